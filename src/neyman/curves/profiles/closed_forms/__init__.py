"""Compute privacy profiles by formulas."""
