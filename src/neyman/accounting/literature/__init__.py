"""Formulas of the literature: conversions and approximations."""
