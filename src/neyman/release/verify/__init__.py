"""Verification of a release without the data."""
