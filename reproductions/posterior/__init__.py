"""Posterior samples: exact draws, chains with a certificate, and Langevin dynamics."""
