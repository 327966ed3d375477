"""Train with privacy: batches, clipping, and noise are as the accounted mechanism states."""

from neyman.extras import require

require("private training runs", "cryptography", "apsw")
