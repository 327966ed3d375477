"""Compute synthetic rows from released tables: the maximum-entropy distribution that fits them.

Published numbers are the only input, so the rows reveal nothing more and cost nothing. The rows
match each table up to the distance reported for it. If no table shows two columns together, the
rows add no relation between them: given the tables, such columns are independent.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neyman.publishing.plan.column import key_text
from neyman.publishing.plan.measures import Count
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query
from neyman.publishing.release.folder import Release

STATEMENT = (
    "Confidence intervals and margins of error belong to the released tables, not to these rows. "
    "The rows are computed from the tables alone: they reveal nothing more and charge nothing."
)


@dataclass(frozen=True)
class Limits:
    """Limit the fit of a distribution to tables."""

    cells: int = 10**7
    steps: int = 1000


LIMITS = Limits()


@dataclass(frozen=True)
class TableFit:
    """Report how well the rows match one released table.

    Args:
        table: the name of the table.
        columns: the key columns of the table.
        total_variation: half the sum of |share of the rows - share in the table|, cell by cell. A
            share in the table is a value divided by the sum of values, also if negative.
        from_noise: half the expected sum of |noise of a cell| divided by the sum of values. If
            ``total_variation`` is smaller, the rows fit the table's noise.
    """

    table: str
    columns: tuple[str, ...]
    total_variation: float
    from_noise: float


@dataclass(frozen=True)
class SyntheticRows:
    """Hold synthetic rows, with their distance from each released table.

    Args:
        rows: one row per unit of the estimated total, and a text column for each key column.
        tables: the fit to each table that was used.
        unused: the other tables, with the reason.
        independent: pairs of columns that no table shows together. Only columns that tables relate
            to both can relate them.
    """

    rows: pa.Table
    tables: tuple[TableFit, ...]
    unused: Mapping[str, str]
    independent: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types, without the rows."""
        return {
            "rows": self.rows.num_rows,
            "tables": [
                {
                    "table": one.table,
                    "columns": list(one.columns),
                    "total_variation": one.total_variation,
                    "expected_from_noise": one.from_noise,
                }
                for one in self.tables
            ],
            "unused": dict(self.unused),
            "independent": [list(pair) for pair in self.independent],
            "statement": STATEMENT,
        }


@dataclass(frozen=True)
class _MeasuredTable:
    """Hold a released table as an array, with an axis per column, and its standard error."""

    table: str
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    error: float


def synthesize(release: Release, people: int | None = None) -> SyntheticRows:
    """Make maximum-entropy rows whose tables are close to the released tables.

    The rows follow the maximum-entropy graphical model that fits the noisy counts by weighted least
    squares (McKenna, Sheldon, Miklau, "Graphical-model based estimation and inference for
    differential privacy", ICML 2019). The library `mbi` computes the model. This is post-processing
    of the published tables alone.

    Args:
        release: a release with tables of counts by known keys. Its other tables are not used.
        people: the number of rows. Default: the mean of the released totals, weighted by their
            noise.

    Returns:
        The rows, and their distance from each table.

    Raises:
        ValueError: no table can be used, people is below 1, or the model for all tables is too
            large.
        ImportError: the extra is not installed: pip install 'neyman[synthetic]'.
    """
    if people is not None and people < 1:
        raise ValueError(f"people = {people!r}: must be a whole number of 1 or more")
    measured, unused, keys = _usable(release)
    if not measured:
        raise ValueError(
            "the release has no table of counts by known keys that rows could be made from "
            f"({'; '.join(f'{name}: {why}' for name, why in unused.items())})"
        )
    total = people or _total(measured)
    codes = _fit_rows(measured, {name: len(own) for name, own in keys.items()}, total)
    rows = pa.table(
        {
            name: pa.DictionaryArray.from_arrays(
                pa.array(codes[name].astype(np.int32)), pa.array(own, pa.string())
            ).cast(pa.string())
            for name, own in keys.items()
        }
    ).replace_schema_metadata({"neyman": f"Synthetic rows. {STATEMENT}"})
    fits = tuple(_fit(one, codes, total) for one in measured)
    return SyntheticRows(rows, fits, unused, _separate_pairs(measured, list(keys)))


def _usable(release: Release) -> tuple[list[_MeasuredTable], dict[str, str], dict[str, list[str]]]:
    """Return the usable tables, a reason for each other table, and the keys of each column."""
    plan = release.plan
    keys: dict[str, list[str]] = {}
    unused: dict[str, str] = {}
    tables: list[tuple[str, tuple[str, ...], Any, Any, Any]] = []
    for query, level in ((one, level) for one in plan.queries for level in one.levels):
        name = f"{query.name}.{level}"
        reason = _reason(plan, query, level)
        if reason is not None:
            unused[name] = reason
            continue
        table = release.tables[name]
        columns = tuple(plan.key_columns(query, level))
        texts = [[key_text(key) for key in table[column].to_pylist()] for column in columns]
        for column, own in zip(columns, texts, strict=True):
            keys[column] = list(dict.fromkeys([*keys.get(column, []), *own]))
        values = np.array(table["value"].to_pylist(), dtype=np.float64)
        errors = [error for error in table["standard_error"].to_pylist() if error is not None]
        tables.append((name, columns, texts, values, max(errors, default=0.0)))
    measured: list[_MeasuredTable] = []
    for name, columns, texts, values, error in tables:
        shape = [len(keys[column]) for column in columns]
        if math.prod(shape) > LIMITS.cells:
            unused[name] = f"its columns have {math.prod(shape)} combinations; most {LIMITS.cells}"
            continue
        cells = np.zeros(shape)
        places = (map(keys[name].index, own) for name, own in zip(columns, texts, strict=True))
        cells[tuple(np.array([*place], dtype=np.int64) for place in places)] = values
        # The standard error, in rows, for fitting a table without noise.
        measured.append(_MeasuredTable(name, columns, cells, max(error, 0.01)))
    present = {column for one in measured for column in one.columns}
    return measured, unused, {name: own for name, own in keys.items() if name in present}


def _reason(plan: Plan, query: Query, level: str) -> str | None:
    """Return why a table cannot be used, or None if it can."""
    if query.table not in (None, plan.table):
        return f"it counts rows of another private table ({query.table})"
    if query.kind is not Count:
        return f"it holds no counts of rows ({query.measure})"
    if query.delta is not None:
        return "its keys are discovered, and small ones are missing"
    if query.detail is not None:
        return "its groups differ in detail"
    if query.nonnegative or query.printed is not None:
        return "its small cells are printed as texts, or raised to 0"
    if query.where is not None:
        return "it counts a part of the rows (where)"
    if not query.by and not query.at:
        return "it has no keys"
    if len(plan.parts(level)) > 1:  # most pairs of their levels cannot be used
        return "it is by places of two hierarchies"
    return None


def _total(measured: Sequence[_MeasuredTable]) -> int:
    """Return the mean of the released totals, weighted by inverse variance and rounded."""
    weights = [1 / (one.values.size * one.error**2) for one in measured]
    totals = [one.values.sum() for one in measured]
    return max(1, round(float(np.average(totals, weights=weights))))


def _fit_rows(
    measured: Sequence[_MeasuredTable], sizes: Mapping[str, int], total: int
) -> dict[str, NDArray[np.int64]]:
    """Return the synthetic rows: for each column, the index of each row's key."""
    try:
        import jax
    except ModuleNotFoundError:
        # Guards against an install without mbi.
        raise ModuleNotFoundError(
            "rows from tables need mbi: pip install 'neyman[synthetic]'", name="mbi"
        ) from None
    config: Any = jax.config
    before = config.read("jax_enable_x64")
    config.update("jax_enable_x64", True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mbi import Domain, LinearMeasurement, estimation  # pyright: ignore[reportMissingTypeStubs]

            domain = Domain(list(sizes), list(sizes.values()))
            data = [
                LinearMeasurement(one.values.ravel(), one.columns, stddev=one.error)
                for one in measured
            ]
            solver: Any = estimation.MirrorDescent()
            model = solver.estimate(domain, data, known_total=float(total), iters=LIMITS.steps)
            rows = model.synthetic_data(rows=total).to_dict()
    finally:
        config.update("jax_enable_x64", before)
    return {name: np.asarray(rows[name], dtype=np.int64) for name in sizes}


def _fit(one: _MeasuredTable, codes: Mapping[str, NDArray[np.int64]], total: int) -> TableFit:
    shape = one.values.shape
    flat = np.ravel_multi_index([codes[name] for name in one.columns], shape)
    counts = np.bincount(flat, minlength=one.values.size).reshape(shape)
    sum_of_values = one.values.sum() or 1.0
    away = np.abs(counts / total - one.values / sum_of_values).sum() / 2
    # E|X| of a centered Gaussian is its standard deviation times sqrt(2 / pi).
    noise = one.values.size * one.error * math.sqrt(2 / math.pi) / (2 * abs(sum_of_values))
    return TableFit(one.table, one.columns, float(away), float(noise))


def _separate_pairs(
    measured: Sequence[_MeasuredTable], names: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    together = {frozenset(pair) for one in measured for pair in combinations(one.columns, 2)}
    return tuple(pair for pair in combinations(names, 2) if frozenset(pair) not in together)
