"""Compute certified bounds, roots, sums of waves and atoms, and check arguments."""
