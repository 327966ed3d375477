"""Certified numbers: bounds, checked arguments, and the engines that answer for one ordered pair.

Public: `Bound` (bound), the argument checks (check), `Profile` (profile, of every engine),
`LatticeProfile` (lattice, on atoms and dots), `ContourProfile` (contour, on decay), roots.
"""
