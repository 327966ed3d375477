"""From a plan to a release: plans, engines, tables, and the run."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
