"""Private estimates of parameters: a value, an interval, a receipt, and the gap to the optimum."""
