"""Handle guarantees that bound Renyi divergences: zCDP, truncated CDP, and RDP.

Importing this package registers the engine for compositions with such a guarantee.
"""

from neyman.curves.divergences import implied_profile

__all__ = ["implied_profile"]
