"""Privacy profiles delta(epsilon) and their conjugates, certified. One engine per file.

`select` picks the engine of a composition; its docstring is the rule.
"""

from neyman.profiles import (
    bounded_range_releases,
    closed_form,
    combination,
    continuous_parts,
    contour,
    convolution,
    largest_step,
    one_subsampled_step,
)
from neyman.profiles.profile import Interval, Profile
from neyman.profiles.selection import Rule, register, rules, select

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
    "largest_step",
    "one_subsampled_step",
    "register",
    "rules",
    "select",
]
