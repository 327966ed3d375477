"""Exchange events, privacy loss distributions, and an accountant with dp-accounting."""
