"""Numbers: certified bounds, checked arguments, roots, operations, and sums of waves and atoms."""
