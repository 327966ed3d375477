"""Draw figures of privacy guarantees."""
