"""Show results to people: the report of a release, figures, and the explorer."""

from neyman.exports import exports

__getattr__, __dir__ = exports(__name__, __file__)
