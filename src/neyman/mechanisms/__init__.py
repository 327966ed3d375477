"""Describe private releases by immutable mechanisms, combined by ``+``, ``*``, ``.subsample``."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
