"""Read files safely, and take locks with limited waits."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
