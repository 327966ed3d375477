"""Compute conversions and approximations from the literature."""
