"""Define the command line, with one file per command group."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
