"""Interoperability with dp-accounting: events, privacy loss distributions, and an accountant."""
