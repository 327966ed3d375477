"""Compute private estimates, run private hypothesis tests, and train with privacy."""
