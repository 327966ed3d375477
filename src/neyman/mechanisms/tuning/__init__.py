"""Release the best of a random number of private runs."""
