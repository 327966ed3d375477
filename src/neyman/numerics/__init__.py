"""Compute certified bounds, roots, characteristic functions, and sums, and check arguments."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
