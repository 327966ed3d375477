"""Write the report of a release: one HTML file for readers who set policy."""
