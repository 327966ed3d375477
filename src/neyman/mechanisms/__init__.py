"""Mechanisms: frozen descriptions of randomness, closed under ``+``, ``*`` and ``.subsample``."""
