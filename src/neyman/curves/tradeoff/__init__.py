"""Compute with trade-off functions: the smallest type II error at each type I error."""
