"""Rows made from the published tables of a release. Nothing here reads private data."""
