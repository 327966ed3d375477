"""Guarantees that bound Renyi divergences: zCDP, truncated CDP, and RDP."""
