"""Describe randomness by frozen mechanisms, closed under ``+``, ``*`` and ``.subsample``."""
