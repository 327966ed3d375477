"""Federated learning: ten clients on digits, and the curves of all observers."""
