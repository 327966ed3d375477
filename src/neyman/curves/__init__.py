"""The trade-off curve of a composition, from its privacy losses."""
