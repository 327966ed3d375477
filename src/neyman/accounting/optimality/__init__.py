"""Optimality: the smallest error that any release as private could have."""
