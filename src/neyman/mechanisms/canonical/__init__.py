"""Compute canonical noise: the distribution whose unit shift has a given trade-off curve."""
