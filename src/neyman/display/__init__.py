"""Show results to people: the report of a release, figures, and the explorer."""
