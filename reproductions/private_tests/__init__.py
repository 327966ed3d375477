"""Lower bounds on errors, beside the library's mechanisms."""
