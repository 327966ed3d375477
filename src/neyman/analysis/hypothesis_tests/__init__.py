"""Run private hypothesis tests. Each p-value holds for every n and comes from one release."""
