"""Tables that add up, made of the noisy ones alone.

Public: `consistent_tables` and its records (tables), `least_squares` under linear constraints of
one's own (constraints). Which tables belong together is in families; tree and margins have the
exact least squares, nonnegative and rounding what may follow it.
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
