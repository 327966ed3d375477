"""Define the command line, with one file per command group."""
