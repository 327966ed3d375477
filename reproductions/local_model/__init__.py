"""The local model."""
