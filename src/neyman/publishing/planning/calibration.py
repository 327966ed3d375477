"""Calibrate a plan: find the cost of an error, and the errors at a guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from neyman.accounting.semantics.digits import exact_text
from neyman.numerics import check
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.plan import Plan
from neyman.publishing.planning.accuracy import (
    TableError,
    errors,
    guarantee_at,
    scale_for,
    table_named,
)

FACTORS = tuple(4.0**k for k in range(-3, 4))  # factors of 1/rho, for errors of 1/8 to 8
EXAMPLE_ROWS = 1000  # rows in a cell, for which a ratio's error is reported


@dataclass(frozen=True)
class Point:
    """Hold the guarantee and the error at one noise scale."""

    rho: float
    epsilon: float
    power: float
    error: float

    def to_dict(self) -> dict[str, float | str]:
        """Return the values as JSON types."""
        return {
            name: value if math.isfinite(value) else "inf" for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class Calibration:
    """Hold a plan's calibrated noise and its guarantee.

    Args:
        rho: the exact rho. With ``[budget] zcdp`` of this value, the plan spends it.
        point: the guarantee, and the error of the table.
        curve: the guarantees at other errors of the table, the smallest error first.
        rows: number of rows per cell, if the table's error depends on it. Otherwise None.
        delta: the delta that ``[budget]`` also needs if keys are discovered. Otherwise None.
    """

    rho: Fraction
    point: Point
    table: str
    errors: tuple[TableError, ...]
    curve: tuple[Point, ...]
    rows: int | None = None
    delta: Fraction | None = None

    @property
    def named(self) -> str:
        """Return the table's name, with the number of rows if its error depends on it."""
        return self.table if self.rows is None else f"{self.table} at {self.rows:,} rows"

    @property
    def budget(self) -> dict[str, str]:
        """Return the fields of a plan's budget that spend this rho."""
        delta = {} if self.delta is None else {"delta": exact_text(self.delta)}
        return {"zcdp": exact_text(self.rho)} | delta

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON types."""
        return {
            "zcdp": str(self.rho),
            "delta": None if self.delta is None else str(self.delta),
            **self.point.to_dict(),
            "table": self.table,
            "rows": self.rows,
            "errors": [error.to_dict() for error in self.errors],
            "curve": [point.to_dict() for point in self.curve],
        }


def at_error(
    plan: Plan, table: str, error: float, *, interval: bool = False, consistent: bool = False
) -> Calibration:
    """Find the least rho at which a table has a given error. Arguments are as for `scale_for`.

    Raises:
        ValueError: `scale_for` refuses the arguments, or no plan's budget can have the rho.
    """

    scale = scale_for(plan, table, error, interval=interval, consistent=consistent)
    delta = _delta(plan)
    try:
        other = _with_budget(
            plan, {"zcdp": 1 / scale} | ({} if delta is None else {"delta": delta})
        )
    except PlanError as refused:
        raise ValueError(f"error = {error!r} cannot be reached: {refused}") from None
    return _calibrate_plan(other, scale, ".".join(table_named(plan, table)), consistent=consistent)


def at_guarantee(plan: Plan, budget: dict[str, Any]) -> Calibration:
    """Find the least error of each table at a guarantee.

    Args:
        plan: the plan. Its own budget is ignored.
        budget: the given fields of a plan's budget, such as power and level.
    """

    other = _with_budget(plan, budget)
    _ = other.mechanism()  # refuses noise that cannot be drawn
    measured = [e for e in errors(other) if e.standard_error != 0]
    plain = [e for e in measured if e.standard_error is not None]
    return _calibrate_plan(other, other.scale, (plain or measured)[0].name, consistent=False)


def _with_budget(plan: Plan, budget: Mapping[str, Any]) -> Plan:

    fields = {name: str(check.exact(name, value)) for name, value in budget.items()}
    return Plan.from_dict(plan.canonical() | {"budget": fields | plan.unspent_field()})


def _delta(plan: Plan) -> Fraction | None:
    """Return the delta that a budget with discovered keys needs beside zcdp, or None."""
    # The budget's delta must include the chance that keys of single units are published.
    return sum((e.failure for e in plan.entries() if e.delta is not None), Fraction(0)) or None


def _calibrate_plan(plan: Plan, scale: Fraction, table: str, *, consistent: bool) -> Calibration:

    def point(at: Fraction) -> Point:
        return Point(**guarantee_at(plan, at), error=_error(plan, at, table, consistent))

    curve: list[Point] = []
    for factor in FACTORS:
        try:
            curve.append(point(scale * Fraction(factor)))
        except ValueError:  # noise that cannot be drawn
            continue
    tables = errors(plan, scale)
    ratio = next(e for e in tables if e.name == table).standard_error is None
    rows = EXAMPLE_ROWS if ratio else None
    return Calibration(1 / scale, point(scale), table, tables, tuple(curve), rows, _delta(plan))


def _error(plan: Plan, scale: Fraction, table: str, consistent: bool) -> float:

    (own,) = (e for e in errors(plan, scale, (EXAMPLE_ROWS,)) if e.name == table)
    if own.standard_error is None:
        return own.by_rows[0][1]
    return own.consistent[1] if consistent and own.consistent else own.standard_error
