"""The errors of a plan's tables as a data frame, which `Plan.errors` loads when it is asked."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from neyman.plan.plan import Plan
from neyman.planning.accuracy import errors

__all__ = ["error_frame"]

_ROWS = 1000


def error_frame(plan: Plan) -> pd.DataFrame:
    """Return a row per table, in declared order."""
    shares: dict[tuple[str, str], Fraction] = {}
    for entry in plan.entries():
        name = (entry.query, entry.level)
        shares[name] = shares.get(name, Fraction(0)) + entry.share
    rows = [
        {
            "query": error.query,
            "level": error.level,
            "measure": error.measure,
            "cells": error.cells,
            "share": float(shares[error.query, error.level]),
            "standard_error": error.standard_error,
            "half_width_90": error.half_width,
            f"standard_error_at_{_ROWS}": next(
                (e for n, e, _ in error.by_rows if n == _ROWS), None
            ),
        }
        for error in errors(plan)
    ]
    return pd.DataFrame(rows).astype({"cells": "Int64"})
