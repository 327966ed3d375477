"""Measurements of speed and accuracy, of this library and of others."""
