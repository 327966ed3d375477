"""The report of a release: one HTML file for a reader who sets policy."""
