"""Published tables: estimates, their errors, and the keys that a release may show."""
