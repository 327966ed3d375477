"""Audit privacy claims: refute a claim by an attack's results, with a stated confidence."""
