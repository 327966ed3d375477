"""Compute certified bounds, roots, characteristic functions, and sums, and check arguments."""
