"""Shuffled reports: local reports in random order."""
