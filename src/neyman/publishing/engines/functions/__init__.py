"""Define functions of a row with equal results on every engine: local times and text changes."""
