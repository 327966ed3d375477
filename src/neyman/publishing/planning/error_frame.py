"""Return the errors of a plan's tables as a data frame, for `Plan.errors`."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

from neyman import notebook
from neyman.elements import Node
from neyman.numerics.bound import directed
from neyman.publishing.plan.plan import Plan
from neyman.publishing.planning.accuracy import errors


@dataclass(frozen=True)
class Limits:
    """Limit the number of listed tables, and hold the number of rows of an example cell."""

    tables: int = 50  # tables that a notebook lists


LIMITS = Limits()


def error_frame(plan: Plan) -> pd.DataFrame:
    """Return a row per table, in declared order."""
    example_rows = 1000
    rows = [
        {
            "query": error.query,
            "level": error.level,
            "measure": error.measure,
            "cells": error.cells,
            "share": float(error.share),
            "standard_error": error.standard_error,
            "half_width_90": error.half_width,
            f"standard_error_at_{example_rows}": next(
                (e for n, e, _ in error.by_rows if n == example_rows), None
            ),
        }
        for error in errors(plan)
    ]
    return pd.DataFrame(rows).astype({"cells": "Int64"})  # pyright: ignore[reportUnknownMemberType]


def error_table(plan: Plan) -> Node:
    """Return the errors of the first tables for a notebook, rounded up."""
    listed = errors(plan)
    rows = [
        [e.query, e.level, e.measure, f"{e.cells:,}" if e.cells is not None else ""]
        + [
            directed(x, 3, up=True) if x is not None else ""
            for x in (e.standard_error, e.half_width)
        ]
        for e in listed[: LIMITS.tables]
    ]
    head = ["Query", "Level", "Measure", "Cells", "Standard error", "90% interval, half width"]
    left = len(listed) - LIMITS.tables
    more = notebook.paragraph(f"{left} more tables: plan.errors()") if left > 0 else ""
    return [notebook.table(head, rows, caption="Error of each table, noise only"), more]
