"""Sums over a stream."""
