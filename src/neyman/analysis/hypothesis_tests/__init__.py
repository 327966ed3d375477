"""Private hypothesis tests: p-values that hold for every n, from one release."""
