"""Compute statistics that few changes of the data can move, and mechanisms that use them."""
