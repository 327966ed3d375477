"""Run Neyman inside other training libraries. Each file needs its library."""
