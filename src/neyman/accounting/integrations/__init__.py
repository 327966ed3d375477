"""Neyman inside the training libraries of others; each file needs its library."""
