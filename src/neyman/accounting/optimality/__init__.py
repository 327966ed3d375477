"""Bound the smallest error of any release with the same privacy guarantee."""
