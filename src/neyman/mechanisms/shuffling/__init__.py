"""Describe the reports of many people that are shuffled into random order."""
