"""Join a plan's private tables on an engine by the unit's id, with one row per unit."""
