"""Functions of a row that every engine computes alike: local times, and texts in one form."""
