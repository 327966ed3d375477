"""Noise that serves many tables."""
