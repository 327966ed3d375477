"""Privacy profiles that have a formula."""
