"""Private training: a loop that draws, clips, and adds noise as its mechanism says it does."""

from neyman.extras import require

require("private training runs", "cryptography", "apsw")
