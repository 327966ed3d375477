"""From a plan to a release: plans, engines, tables, and the run."""
