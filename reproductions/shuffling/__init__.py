"""Shuffled reports."""
