"""Consistent tables."""
