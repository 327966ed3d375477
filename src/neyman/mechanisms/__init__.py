"""Describe private releases by frozen mechanisms, closed under ``+``, ``*`` and ``.subsample``."""
