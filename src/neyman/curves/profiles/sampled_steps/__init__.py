"""Privacy profiles of steps on samples."""
