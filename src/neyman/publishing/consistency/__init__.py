"""Adjust noisy tables so that they add up, without any other data.

Public: `consistent_tables` and its results (adjusted_tables), and `least_squares` under custom
linear constraints (constraints). The module families finds the tables that must add up to each
other. The modules tree, tree_pair, and margins compute exact least squares. The modules nonnegative
and integer_rounding compute optional further steps.
"""

from neyman.extras import require

require("consistent tables", "pyarrow", "pydantic")

from neyman.publishing.consistency.adjusted_tables import (
    METHODS,
    Consistent,
    ConsistentTable,
    check_consistency,
    consistent_tables,
    consistent_variances,
)

__all__ = [
    "METHODS",
    "Consistent",
    "ConsistentTable",
    "check_consistency",
    "consistent_tables",
    "consistent_variances",
]
