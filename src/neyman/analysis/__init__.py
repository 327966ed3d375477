"""Compute private estimates, run private hypothesis tests, and train with privacy."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
