"""Files that are safe to read, and locks whose waits end."""
