"""Write queries of a plan in Python, with one function per measure: `ny.query`.

Each returns the fields of one ``[[query]]`` of a plan.

Examples:
    >>> import neyman as ny
    >>> ny.query.mean("income", clip=(0, 200_000), by=["sex"])["measure"]
    'mean'
"""

from neyman.publishing.plan.sections import (
    count,
    distinct,
    histogram,
    max,  # noqa: A004
    mean,
    median,
    min,  # noqa: A004
    quantiles,
    ratio,
    standard_deviation,
    sum,  # noqa: A004
    units,
    variance,
)

__all__ = [
    "count",
    "distinct",
    "histogram",
    "max",
    "mean",
    "median",
    "min",
    "quantiles",
    "ratio",
    "standard_deviation",
    "sum",
    "units",
    "variance",
]
