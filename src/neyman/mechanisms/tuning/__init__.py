"""Describe the release of the best of a random number of private runs."""
