"""The trade-off curve of a composition, from its privacy losses."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
