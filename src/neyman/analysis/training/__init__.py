"""Train with privacy: the loop draws, clips, and adds noise as its mechanism states."""

from neyman.extras import require

require("private training runs", "cryptography", "apsw")
