"""An attack on k-anonymous tables."""
