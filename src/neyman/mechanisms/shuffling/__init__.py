"""Shuffle local reports into random order."""
