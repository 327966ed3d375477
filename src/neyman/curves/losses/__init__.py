"""Define privacy losses L = log dP/dQ of one ordered pair (P, Q), and their composition."""
