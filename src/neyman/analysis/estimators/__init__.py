"""Estimate parameters privately. Each estimate has a value, an interval, a receipt, and a gap."""
