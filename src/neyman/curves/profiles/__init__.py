"""Compute certified privacy profiles delta(epsilon) and their conjugates, one engine per file.

`select` picks the engine of a composition. Its docstring lists the rules.
"""

from neyman.curves.profiles import combination
from neyman.curves.profiles.closed_forms import bounded_range_releases, closed_form
from neyman.curves.profiles.contour import continuous_parts, contour, finite_sums, lattice_lines
from neyman.curves.profiles.lattice import convolution
from neyman.curves.profiles.profile import Interval, Profile
from neyman.curves.profiles.sampled_steps import many_steps, one_subsampled_step
from neyman.curves.profiles.selection import Rule, register, rules, select

__all__ = [
    "Interval",
    "Profile",
    "Rule",
    "bounded_range_releases",
    "closed_form",
    "combination",
    "continuous_parts",
    "contour",
    "convolution",
    "finite_sums",
    "lattice_lines",
    "many_steps",
    "one_subsampled_step",
    "register",
    "rules",
    "select",
]
