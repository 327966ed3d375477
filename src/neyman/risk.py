"""Bound the risk of named attacks on one record: `ny.risk`.

Each function returns an `Attack` with its baseline, the best chance of a right guess without the
release. ``attack.success(guarantee)`` bounds the chance of a right guess with the release, and
lists the conditions of the bound. ``attack.at_most(success)`` is the budget that meets a bound.

Examples:
    >>> import neyman as ny
    >>> risk = ny.risk.reidentification(candidates=20).success(ny.gdp(1))
    >>> print(f"{risk.bound:.3f}")
    0.260
    >>> risk.conditions[1]
    'The candidates are equally likely.'
"""

from neyman.accounting.semantics.attacks import (
    Attack,
    AttackSuccess,
    attribute_inference,
    reconstruction,
    reidentification,
    singling_out,
)

__all__ = [
    "Attack",
    "AttackSuccess",
    "attribute_inference",
    "reconstruction",
    "reidentification",
    "singling_out",
]
