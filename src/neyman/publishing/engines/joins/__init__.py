"""A plan of several private tables on an engine: one row per unit, and joins by the unit's id."""
