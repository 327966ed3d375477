"""Describe private releases by immutable mechanisms, combined by ``+``, ``*``, ``.subsample``."""
