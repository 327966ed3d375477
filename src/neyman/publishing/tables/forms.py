"""Build the rows of a published table from its noisy integers and public numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neyman.numerics.arrays import Array, Integers
from neyman.publishing.plan.measurement import Entry
from neyman.publishing.plan.measures import Detail, Median, detail_label
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query
from neyman.publishing.tables.estimates import CellEstimates, estimate, rows_of, value_range


@dataclass(frozen=True, eq=False)
class Form:
    """Describe one published table: its key columns, and how rows follow from noisy integers.

    A cell is an integer that gets noise. Cells are ordered by places, then the keys of ``by``, then
    bins, and the last varies fastest. A table has one row per cell. A table of quantiles has one
    row per quantile for each group of bins.

    Args:
        entries: the entries of the table. Each has the sigma squared of its noise (0 for declared
            values).
        first_counts: for a query with detail, the published first count of each group. None before
            they are drawn, and then each group has the level of detail with the most cells.
    """

    plan: Plan
    entries: tuple[tuple[Entry, Fraction], ...]
    first_counts: Integers | None = None

    @property
    def query(self) -> Query:
        """Return the query of the table."""
        return self.plan.query(self.entries[0][0].query)

    @property
    def level(self) -> str:
        """Return the level of the table's places."""
        return self.entries[0][0].level

    @property
    def discovered(self) -> bool:
        """Return True if the keys are discovered in the data, and so decide the number of rows."""
        return self.query.delta is not None

    @property
    def shown(self) -> Entry:
        """Return the entry whose noisy integers are the values of a table with discovered keys."""
        return self.entries[-1][0]

    @property
    def cells(self) -> int:
        """Return the number of cells per measure, or 0 if the data decide the keys."""
        if self.first_counts is not None:
            return int(self.starts[-1])
        return self.entries[0][0].cells or 0

    @property
    def rows(self) -> int:
        """Return the number of rows, or 0 if the keys are discovered in the data."""
        return rows_of(self.query, self.cells)

    @property
    def block(self) -> int:
        """Return the number of cells that one estimate uses, such as the bins of a quantile."""
        if self.query.inverse_sensitivity:
            return len(self.query.draws)
        bins = self.query.bins if self.query.ranked else None
        return len(bins) - 1 if bins else 1

    @property
    def lines(self) -> int:
        """Return the number of rows that the cells of one `block` become."""
        return rows_of(self.query, self.block)

    @property
    def possible(self) -> tuple[float, float]:
        """Return the possible range of a quantile, mean, variance, or ratio, in plan units."""
        (low, high), power = value_range(self.query), max(self.query.kind.unit_power, 1)
        unit = 10.0 ** (power * self.decimals)
        return low / unit, high / unit

    def build(self, noisy: Mapping[str, Integers], start: int = 0) -> pa.Table:
        """Build the rows for the cells from ``start`` on.

        Args:
            noisy: the noisy integers of these cells by measure ("count", "units", "sum", "offset",
                "square"), in declared order, in entire blocks.
            start: the first cell, from 0, at the beginning of a block.

        Returns:
            The key columns (texts are dictionary-encoded), then ``value``, ``standard_error``,
            ``lower`` and ``upper`` (90%), see `estimates`. With ``print``, a small cell has a text
            in ``printed``, before ``value``, and is null in these four. A histogram has the edges
            of a bin, ``at_least`` and ``below``, among its keys. Quantiles have ``quantile``. With
            detail, ``detail`` names the columns that split a row's group. The group's
            ``first_count`` is in the range of thresholds from ``at_least`` to ``below``.
        """
        return self.with_keys(self._estimate(noisy), start)

    def with_keys(self, estimate: CellEstimates, start: int = 0) -> pa.Table:
        """Build the rows for the cells from ``start`` on, from their ``estimate``."""
        table_columns = self._columns(estimate)
        first = rows_of(self.query, start)
        rows = np.arange(first, first + len(table_columns["value"]), dtype=np.int64)
        if self.query.detail is not None:
            return pa.table(self._detailed_keys(self.query.detail, rows) | table_columns)
        return pa.table({key.name: key.column(rows) for key in self._keys} | table_columns)

    @cached_property
    def detail_levels(self) -> Integers:
        """Return the position of each group's level of detail, given its first count."""
        query, sizes = self.query, self.plan.detail_sizes(self.query)
        if self.first_counts is None or query.detail is None:
            return np.full(self.plan.groups(query, self.level), np.argmax(sizes), np.int64)
        return np.searchsorted(query.detail.thresholds, self.first_counts, side="right")

    @cached_property
    def starts(self) -> Integers:
        """Return the first cell of each group of a query with detail, then the number of cells."""
        sizes = np.array(self.plan.detail_sizes(self.query), dtype=np.int64)
        return np.concatenate([[0], np.cumsum(sizes[self.detail_levels])])

    def _detailed_keys(self, detail: Detail, rows: Integers) -> dict[str, pa.Array]:
        """Return the key columns of some rows, and the columns that explain their level of detail.

        If a group's level lacks a column, the rows of the group have no value in this column.
        """
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        inside, level = rows - self.starts[groups], self.detail_levels[groups]
        keys = {key.name: key.column(groups) for key in self._keys}
        for name in detail.columns:
            values = pa.array(self.plan.column(name).keys)
            codes, known = np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=bool)
            for number, names in enumerate(detail.levels):
                if name in names:
                    below = names[names.index(name) + 1 :]
                    stride = math.prod(len(self.plan.column(one).keys) for one in below)
                    here = level == number
                    codes[here], known[here] = inside[here] // stride % len(values), True
            keys[name] = _dictionary_array(values, pa.array(codes, mask=~known))
        texts = pa.array([detail_label(names) for names in detail.levels])
        ends = pa.array([None, *detail.thresholds, None], pa.int64())
        first = np.zeros(1, np.int64) if self.first_counts is None else self.first_counts
        return keys | {
            "detail": _dictionary_array(texts, pa.array(level.astype(np.int32))),
            "first_count": pa.array(first[groups % len(first)]),
            "at_least": ends.take(pa.array(level)),
            "below": ends.take(pa.array(level + 1)),
        }

    def named(self, keys: pa.Table, noisy: Integers) -> pa.Table:
        """Build the table for discovered keys, from their columns and their noisy integers."""
        table_columns = self._columns(self._estimate({self.shown.measure: noisy}))
        return pa.table({name: keys.column(name) for name in keys.column_names} | table_columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the names and types of the columns of `build`, with dictionary-encoded texts."""
        nothing = np.zeros(0, dtype=np.int64)
        if self.discovered:
            names = self.plan.key_columns(self.query, self.level)
            keys = pa.table({name: pa.array([], pa.string()) for name in names})
            return self.named(keys, nothing).schema
        return self.build({entry.measure: nothing for entry, _ in self.entries}).schema

    @property
    def published(self) -> pa.Schema:
        """Return the names and types of the columns of the published file, with plain texts."""
        return as_published(self.schema)

    def _estimate(self, noisy: Mapping[str, Integers]) -> CellEstimates:
        noise = {entry.measure: sigma_squared for entry, sigma_squared in self.entries}
        if self.query.nonnegative:
            noisy = {measure: np.maximum(values, 0) for measure, values in noisy.items()}
        both = {measure: (values, noise[measure]) for measure, values in noisy.items()}
        own = estimate(self.query, self.decimals, both, rounded=self.plan.rounded)
        return replace(own, lower=np.maximum(own.lower, 0)) if self.query.nonnegative else own

    def _columns(self, estimate: CellEstimates) -> dict[str, pa.Array]:
        """Return the columns of an estimate. A printed cell has a text, and no number at all."""
        own = columns(estimate)
        if self.query.printed is None:
            return own
        hidden = estimate.value < self.least_shown
        text = pa.array([self.query.printed[1]])
        codes = pa.array(np.zeros(len(hidden), np.int32), mask=~hidden)
        shown, kinds = pa.array(~hidden), {name: column.type for name, column in own.items()}
        return {"printed": _dictionary_array(text, codes)} | {
            name: pc.if_else(shown, column, pa.scalar(None, kinds[name]))
            for name, column in own.items()
        }

    @property
    def least_shown(self) -> int:
        """Return the least value that is not printed as a text, in units of 10^-decimals."""
        below = self.query.printed[0] if self.query.printed else Fraction(0)
        return math.ceil(below * 10**self.decimals)

    @property
    def decimals(self) -> int:
        """Return the decimals of the query's column minus those of ``over``; 0 for no column."""
        column, over = self.query.column, self.query.over
        below = self.plan.column(over).decimals if over is not None else 0
        return self.plan.column(column).decimals - below if column is not None else 0

    @cached_property
    def _keys(self) -> tuple[_Key, ...]:
        plan, query = self.plan, self.query
        shape, by = plan.shape(query, self.level), query.group_by
        if query.detail is not None:
            shape = shape[: 1 + len(by)]
        last: list[tuple[str, pa.Array]] = []
        if query.ranked:
            shape = (*shape[:-1], len(query.quantiles))
        if query.ranked and query.kind is not Median:  # the others are not what they are called
            last = [("quantile", pa.array([float(level) for level in query.quantiles]))]
        elif query.bins and not query.ranked:
            edges = [Decimal(edge).scaleb(-self.decimals) for edge in query.bins]
            kind = pa.decimal128(19, self.decimals) if self.decimals else pa.int64()
            sides = (("at_least", edges[:-1]), ("below", edges[1:]))
            last = [(name, pa.array(side, kind)) for name, side in sides]
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        columns: list[_Key] = []
        stride = shape[0] * strides[0]
        for hierarchy, level in plan.parts(self.level):
            paths = hierarchy.paths(level)
            stride //= len(paths)
            for depth, name in enumerate(hierarchy.levels[: hierarchy.depth(level) + 1]):
                number: dict[str, int] = {}
                codes = [number.setdefault(path[depth], len(number)) for path in paths]
                keys, own = pa.array(list(number), pa.string()), np.array(codes, dtype=np.int32)
                columns.append(_Key(name, keys, own, stride))
        for axis, name in enumerate(by, 1):
            keys = pa.array(plan.column(name).keys)
            columns.append(_Key(name, keys, np.arange(len(keys), dtype=np.int32), strides[axis]))
        for name, keys in last:
            columns.append(_Key(name, keys, np.arange(len(keys), dtype=np.int32), 1))
        return tuple(columns)


def columns(estimate: CellEstimates) -> dict[str, pa.Array]:
    """Return the columns of an estimate in the plan's units: int64, exact decimals, or doubles."""
    unit = 10.0**estimate.decimals

    def decimal_column(values: Array) -> pa.Array:
        if values.dtype != np.int64:
            return pa.array(values / unit)
        if estimate.decimals:
            return _decimal(values, estimate.decimals)
        return pa.array(values, pa.int64())

    return {
        "value": decimal_column(estimate.value),
        "standard_error": pa.array(estimate.standard_error / unit),
        "lower": decimal_column(estimate.lower),
        "upper": decimal_column(estimate.upper),
    }


def _decimal(values: Integers, decimals: int) -> pa.Array:
    """Return values / 10^decimals, exact: the integers as 128 bits with a decimal scale."""
    bits = np.empty((len(values), 2), dtype="<i8")
    bits[:, 0], bits[:, 1] = values, values >> 63
    kind = pa.decimal128(19, decimals)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(bits.tobytes())])


def as_published(schema: pa.Schema) -> pa.Schema:
    """Return the schema with dictionary-encoded texts as plain texts."""
    coded = pa.types.is_dictionary
    plain = [kind.value_type if coded(kind) else kind for kind in schema.types]
    return pa.schema(list(zip(schema.names, plain, strict=True)))


def integers(column: pa.ChunkedArray) -> Integers:
    """Return a column's integers. Of decimals, return their digits as integers of 64 bits."""
    if not pa.types.is_decimal(column.type):
        return column.to_numpy()
    parts: list[Integers] = []
    for chunk in column.chunks:
        halves = np.frombuffer(chunk.buffers()[1], dtype="<i8")
        parts.append(halves[2 * chunk.offset : 2 * (chunk.offset + len(chunk)) : 2])
    return np.concatenate([np.zeros(0, np.int64), *parts])


def forms(plan: Plan, calibrated: Iterable[tuple[Entry, Fraction]]) -> tuple[Form, ...]:
    """Return the form of each table of a plan. Its entries come with their sigma squared."""
    by_table: dict[tuple[str, str], list[tuple[Entry, Fraction]]] = {}
    for entry, sigma_squared in calibrated:
        by_table.setdefault((entry.query, entry.level), []).append((entry, sigma_squared))
    return tuple(Form(plan, tuple(entries)) for entries in by_table.values())


@dataclass(frozen=True, eq=False)
class _Key:
    """Describe a key column: row i has the key ``values[codes[(i // stride) % len(codes)]]``."""

    name: str
    values: pa.Array
    codes: NDArray[np.int32]
    stride: int

    def column(self, rows: Integers) -> pa.Array:
        codes = self.codes[rows // self.stride % len(self.codes)]
        return _dictionary_array(self.values, pa.array(codes))


def _dictionary_array(values: pa.Array, index: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        return pa.DictionaryArray.from_arrays(index, values)
    return values.take(index)
