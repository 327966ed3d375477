"""Private estimates, tests of hypotheses, and training."""
