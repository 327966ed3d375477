"""Compute privacy profiles of steps on samples."""
