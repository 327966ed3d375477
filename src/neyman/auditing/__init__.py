"""Audit privacy claims: refute a claim by an attack's results, with a stated confidence."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
