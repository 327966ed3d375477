"""Formulas of the literature: composition bounds, conversions, and approximations."""
