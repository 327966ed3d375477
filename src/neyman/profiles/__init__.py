"""Privacy profiles delta(epsilon) and their duals, certified; one engine per file."""
