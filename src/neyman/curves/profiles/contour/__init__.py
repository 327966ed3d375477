"""Compute privacy profiles by integrals along a line in the complex plane."""
