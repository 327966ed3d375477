"""Compute the errors of a release's tables from the plan alone, before any data are read.

A count or a sum has the standard error and the 90% interval of its noise in every cell. A mean, a
variance, and a quantile divide by a number of rows, on which their error depends. These formulas
bound the error to first order in noise / rows:

- mean of values within h of the middle of the clip: sqrt(S^2 + h^2 N^2) / rows. S and N are the
  standard errors of the sum of signed distances from the middle, and of the count;
- variance of such values: sqrt(Q^2 + (2 h S)^2 + (h^2 N)^2) / rows. Q is the standard error of the
  sum of squared distances;
- standard deviation: the root of the variance's error, which is an upper bound;
- ratio of sums: sqrt(S^2 + r^2 T^2) / b. S and T are the standard errors of both sums, b is the
  denominator's sum if its values have the middle of their clip as their mean, and r is the largest
  ratio then;
- quantile drawn by inverse sensitivity: by rank, see `rank_error`;
- quantile of bins: by rank, as a fraction of the rows: sqrt(largest v_j) / rows (see `quantiles`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from neyman.accounting.optimality.table_gap import cell_gap, mean_gap
from neyman.accounting.semantics.budget import within_limit
from neyman.numerics import check
from neyman.numerics.roots import bisect
from neyman.numerics.rounding import above
from neyman.publishing.consistency.adjusted_tables import consistent_variances
from neyman.publishing.plan.field_types import suggest
from neyman.publishing.plan.measurement import Entry
from neyman.publishing.plan.measures import (
    Distinct,
    Mean,
    StandardDeviation,
    center,
    middle,
    square_unit,
)
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query, bin_error
from neyman.publishing.tables.estimates import (
    half_width,
    rank_error,
    ratio_range,
    rows_of,
    standard_error,
)
from neyman.publishing.tables.key_selection import threshold

ROWS = (100, 1000, 10_000)  # the numbers of rows in a cell for which a ratio's error is given

LEAST_NOISE, MOST_NOISE = Fraction(1, 10**4), Fraction(10**30)  # sigma^2 that can be drawn
DELTA, LEVEL = 1e-6, 0.05  # delta and level at which a guarantee is stated

Name = tuple[str, str]


@dataclass(frozen=True)
class TableError:
    """Describe the error of one table, in the plan's units.

    Args:
        cells: the number of cells; None for discovered keys.
        share: the table's fraction of the budget; 0 for a declared table.
        standard_error, half_width: the standard error and the half width of the 90% interval of
            each cell; None if they depend on the number of rows.
        by_rows: for errors that depend on the number of rows in a cell: this number, with upper
            bounds to first order on both errors. Half the clip's range if nothing is known.
        by_rank: True if ``by_rows`` has errors of ranks, as fractions of the rows.
        gap: an upper bound on the standard error divided by the smallest one of any release with
            the same zCDP guarantee; for a mean, at the largest number of rows; None if no bound is
            proven.
        consistent: the least and largest standard error of the cells after least squares; None if
            this table takes no part.
        threshold: the smallest noisy number of units for which a discovered key is published.
        published_from: the number of units from which on a key is published with probability 95%.
    """

    query: str
    level: str
    measure: str
    cells: int | None
    standard_error: float | None
    half_width: float | None
    by_rows: tuple[tuple[int, float, float], ...] = ()
    consistent: tuple[float, float] | None = None
    threshold: int | None = None
    published_from: int | None = None
    by_rank: bool = False
    gap: float | None = None
    share: Fraction = Fraction(0)

    @property
    def name(self) -> str:
        """Return the name of the table's files: query.level."""
        return f"{self.query}.{self.level}"

    def to_dict(self) -> dict[str, Any]:
        """Return the errors as JSON types."""
        return {
            "table": self.name,
            "measure": self.measure,
            "cells": self.cells,
            "standard_error": self.standard_error,
            "half_width_90": self.half_width,
            "by_rows": [
                {"rows": n, "standard_error": _json(error), "half_width_90": _json(half)}
                for n, error, half in self.by_rows
            ],
            "consistent": None if self.consistent is None else list(self.consistent),
            "times_least_error": self.gap,
        } | (
            {"threshold": self.threshold, "published_from": self.published_from}
            if self.threshold is not None
            else {}
        )


def _json(number: float) -> float | str:
    """Return a number for JSON, which has no infinity: "inf" stands for it, as in a receipt."""
    return number if math.isfinite(number) else "inf"


def errors(
    plan: Plan, scale: Fraction | None = None, rows: Sequence[int] = ROWS
) -> tuple[TableError, ...]:
    """Return the error of every table of a plan, in declared order.

    Args:
        plan: the plan, calibrated if no scale is given.
        scale: 1/rho to use instead of the calibrated one.
        rows: numbers of rows in a cell at which to give a ratio's error.
    """
    scale = plan.scale if scale is None else scale
    after = _after(plan, scale)
    tables: list[TableError] = []
    for (name, level), entries in entries_by_table(plan).items():
        query = plan.query(name)
        noise = {entry.measure: entry.sigma_squared(scale) for entry in entries}
        unit = _unit(plan, query)
        least = after.get((name, level))
        single = (len(noise) == 1 or query.delta is not None) and not query.ranked
        (*_, sigma_squared) = noise.values()  # for discovered keys, the last
        by_rows = () if single else tuple(_ratio(plan, query, noise, unit, n) for n in rows)
        tables.append(
            TableError(
                name,
                level,
                query.measure,
                _published_cells(query, entries[0].cells),
                standard_error(sigma_squared, rounded=plan.rounded) / unit if single else None,
                half_width(sigma_squared, rounded=plan.rounded) / unit if single else None,
                by_rows,
                None if least is None else (least[0] / unit, least[1] / unit),
                *_key_threshold(plan, query, noise),
                by_rank=query.ranked,
                gap=_gap(plan, query, entries, noise, by_rows),
                share=sum((entry.share for entry in entries), Fraction(0)),
            )
        )
    return tuple(tables)


def _published_cells(query: Query, cells: int | None) -> int | None:
    """Return the number of published cells, of noisy ``cells``. Quantiles need one per bin."""
    if cells is None or not (query.ranked and query.bins):
        return cells
    return rows_of(query, cells)


def _gap(
    plan: Plan,
    query: Query,
    entries: Sequence[Entry],
    noise: Mapping[str, Fraction],
    by_rows: Sequence[tuple[int, float, float]],
) -> float | None:
    """Return the ``gap`` of `TableError`; None if no bound is proven.

    ``noise`` is the sigma squared of each entry, by measure.
    """
    relation = plan.unit.neighboring
    if plan.totals or query.detail is not None:  # the bounds are for one table, any replaced row
        return None
    if query.kind is Distinct:  # the bounds are for numbers without a largest value
        return None
    if any(entry.public is not None or entry.searched or entry.failure for entry in entries):
        return None
    rho = sum((entry.squared / (2 * noise[entry.measure]) for entry in entries), Fraction(0))
    if len(entries) == 1 and not query.ranked:
        (entry,) = entries
        error = standard_error(noise[entry.measure], rounded=plan.rounded)
        return cell_gap(error, rho, entry.shifts, entry.cells, relation)
    if query.kind is not Mean or query.clip is None or not by_rows:
        return None
    n, error, _ = by_rows[-1]
    width = (query.clip[1] - query.clip[0]) / _unit(plan, query)
    return mean_gap(error, rho, width, n, relation)


def _key_threshold(
    plan: Plan, query: Query, noise: Mapping[str, Fraction]
) -> tuple[int | None, int | None]:
    """Return ``threshold`` and ``published_from`` of `TableError`; None for known keys.

    A key of n units is published if its noise is at least threshold - n. By symmetry, it is left
    out with the probability of noise above n - threshold. If this is the half width of a 90%
    interval, the probability is at most 5%.
    """
    if query.delta is None:
        return None, None
    least = threshold(noise["keys"], query.delta, rounded=plan.rounded)
    return least, least + math.ceil(half_width(noise["keys"], rounded=plan.rounded))


def table_named(plan: Plan, text: str) -> Name:
    """Return the (query, level) of the table that a text names.

    Args:
        text: "query.level", as in file names, or "level query" as in speech; the query alone if it
            has one level. A query "total" at "county" is "total.county" or "county total".

    Raises:
        ValueError: no table has this name, or several have.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"table = {text!r} must be a text, such as 'total.county'")
    names: dict[str, list[Name]] = {}
    tables = entries_by_table(plan)
    for name, level in tables:
        said = {f"{name}.{level}", f"{level} {name}"}
        if len(plan.query(name).levels) == 1:
            said.add(name)
        for way in said:
            names.setdefault(way, []).append((name, level))
    wanted = names.get(" ".join(text.split()), [])
    if len(wanted) == 1:
        return wanted[0]
    if wanted:
        several = " and ".join(map(".".join, wanted))
        raise ValueError(f"table = {text!r} names several tables, {several}; give one of these")
    known = map(".".join, tables)
    raise ValueError(f"table = {text!r}: there is no such table; {suggest(text, known)}")


def scale_for(
    plan: Plan,
    table: str,
    error: float | Fraction | str,
    *,
    interval: bool = False,
    consistent: bool = False,
) -> Fraction:
    """Return the largest 1/rho at which a table's error is at most ``error``.

    Args:
        plan: the plan, for its shares. Its budget is ignored.
        table: a table of counts, sums or units; see `table_named`.
        error: the wanted standard error of each cell, above 0, in the plan's units.
        interval: True if ``error`` is the half width of the 90% interval instead.
        consistent: True if ``error`` is the largest standard error after least squares.

    Returns:
        An exact number, to pass to ``plan.at_scale``.

    Raises:
        ValueError: the table's error depends on the data or is 0, or ``error`` is too large.
    """
    name, level = table_named(plan, table)
    wanted = check.exact("error", error)
    if wanted <= 0:
        raise ValueError(f"error = {error!r} must be above 0")
    query = plan.query(name)
    entry, *further = entries_by_table(plan)[name, level]
    if further or query.ranked:
        raise ValueError(
            f"table = {table!r} is a {query.measure}, whose error depends on how many rows are in "
            "a cell; name a table of counts or sums"
        )
    if entry.searched:
        raise ValueError(
            f"table = {table!r}: its error depends on a bound that a noisy histogram leads to; "
            "name another one, or declare the bound"
        )
    if entry.public is not None:
        raise ValueError(f"table = {table!r} is declared and has no error; name another one")
    wanted *= _unit(plan, query)
    if consistent:
        if interval:
            raise ValueError("consistent: give a standard error, not the half width of an interval")
        if (name, level) not in _after(plan, Fraction(1)):
            raise ValueError(
                f"table = {table!r} is not made consistent with others; the plan must have a "
                "[consistency] section and the table be of counts or sums"
            )
        return _largest(entry, lambda scale: _after(plan, scale)[name, level][1] <= wanted)
    measure: Callable[..., float] = half_width if interval else standard_error
    return _largest(
        entry, lambda scale: measure(entry.sigma_squared(scale), rounded=plan.rounded) <= wanted
    )


def guarantee_at(plan: Plan, scale: Fraction) -> dict[str, float]:
    """Return upper bounds on rho = 1/``scale``, epsilon at delta 1e-6, and power at level 5%.

    They include what the plan leaves. If ``scale`` is the plan's, they are at most the budget's.
    """
    mechanism = plan.at_scale(scale) + plan.rest(scale)
    curve = mechanism.tradeoff()
    met = plan.budget if scale == plan.scale and plan.admits(mechanism) else None
    return {
        "rho": above(1 / scale),
        "epsilon": within_limit(met, "epsilon", curve.epsilon(delta=DELTA), DELTA).upper,
        "power": within_limit(met, "power", curve.power(level=LEVEL), LEVEL).upper,
    }


def _largest(entry: Entry, meets: Callable[[Fraction], bool]) -> Fraction:
    """Return the largest 1/rho, to eight digits, at which ``meets`` returns True.

    The caller ensures that ``meets`` also returns True at all smaller values.
    """
    one = entry.sigma_squared(Fraction(1))
    low, high = LEAST_NOISE / one, MOST_NOISE / one
    if meets(high):
        raise ValueError("error: no noise that can be drawn has such an error; give a smaller one")
    return bisect(
        meets,
        low,
        high,
        tolerance=Fraction(1, 10**9 + 1),
        middle=lambda a, b: Fraction(f"{math.sqrt(a) * math.sqrt(b):.7e}"),
    )[0]


def entries_by_table(plan: Plan) -> dict[Name, list[Entry]]:
    """Return the plan's entries (integer tables to publish) for each published table.

    A published table is one query at one level of its hierarchy, so the keys are (query, level).
    Several entries can make one table, such as an offset and a count for a mean. The plan's order
    is kept.
    """
    tables: dict[Name, list[Entry]] = {}
    for entry in plan.entries():
        tables.setdefault((entry.query, entry.level), []).append(entry)
    return tables


def _unit(plan: Plan, query: Query) -> float | int:
    """Return what to divide a table's integers by for the plan's units: 100 for two decimals."""
    if query.column is None or query.ranked or not query.kind.unit_power:
        return 1
    decimals = plan.column(query.column).decimals
    if query.over is not None:
        return 10.0 ** (decimals - plan.column(query.over).decimals)
    return 10 ** (query.kind.unit_power * decimals)


def _after(plan: Plan, scale: Fraction) -> Mapping[Name, tuple[float, float]]:
    """Return the least and largest standard error after least squares, of each adjusted table."""
    if plan.consistency is None:
        return {}
    noise = {
        name: standard_error(entries[0].sigma_squared(scale), rounded=plan.rounded) ** 2
        for name, entries in entries_by_table(plan).items()
    }
    variances = consistent_variances(plan, noise)
    return {
        name: (math.sqrt(float(np.min(v))), math.sqrt(float(np.max(v))))
        for name, v in variances.items()
    }


def _ratio(
    plan: Plan, query: Query, noise: Mapping[str, Fraction], unit: float, rows: int
) -> tuple[int, float, float]:
    """Return an entry of ``by_rows`` in `TableError`: rows, standard error, and half width.

    ``noise`` is the sigma squared of each part, by measure, and ``unit`` the result of `_unit`.
    """
    n = check.integer("rows", rows, 1)
    if query.inverse_sensitivity:
        error, half = rank_error(query, noise["rank"])
        return n, min(error / n, 1.0), min(half / n, 1.0)
    if query.ranked and query.bins:
        variance = noise["count"] + (Fraction(1, 12) if plan.rounded else 0)
        error, half = bin_error(query, float(variance))
        return n, min(error / n, 1.0), min(half / n, 1.0)
    low, high = query.clip or (0, 1)
    if query.clip_over:
        return _ratio_of_sums(plan, query, noise, unit, n)
    half = (high - low) / 2
    steps = middle((low, high)).denominator  # steps of offsets per step of the clip
    if query.kind is Mean:
        slopes, most, coverage = {"offset": 1 / steps, "count": half}, half, 0.95
    else:
        half = max(high - center((low, high)), half)
        squared = float(square_unit((low, high)))
        slopes = {"square": squared, "offset": 2 * half / steps, "count": half**2}
        most, coverage = half**2 / 2, 1 - 0.1 / 3
    errors = {part: standard_error(noise[part], rounded=plan.rounded) for part in slopes}
    error = math.hypot(*(k * errors[part] for part, k in slopes.items())) / n
    widths = {part: half_width(noise[part], coverage, rounded=plan.rounded) for part in slopes}
    left = n - widths["count"]
    width = sum(k * widths[part] for part, k in slopes.items()) / left if left > 0 else most
    if query.kind is StandardDeviation:
        error, width, most = math.sqrt(error), math.sqrt(width), half
    return n, min(error, most) / unit, min(width, most) / unit


def _ratio_of_sums(
    plan: Plan, query: Query, noise: Mapping[str, Fraction], unit: float, rows: int
) -> tuple[int, float, float]:
    """Return `_ratio` for a ratio of sums, if the denominator's values have a mean of mid-clip."""
    below = rows * sum(query.clip_over or (0, 1)) / 2
    slope = max(abs(end) for end in query.clip or (0, 1)) * rows / below
    parts = noise["sum"], noise["over"]
    errors = [standard_error(part, rounded=plan.rounded) for part in parts]
    error = math.hypot(errors[0], slope * errors[1]) / below
    above, over = (half_width(part, 0.95, rounded=plan.rounded) for part in parts)
    left = below - over
    least, most = ratio_range(query.row_range("sum"), query.row_range("over"))
    width = (above + slope * over) / left if left > 0 else math.inf
    return rows, min(error, most - least) / unit, min(width, most - least) / unit
