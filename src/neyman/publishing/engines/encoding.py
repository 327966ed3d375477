"""Encode rows as integers: the code of each key, and the bin and value that each query uses.

A code is the position of a key among the public keys of its column, or of a place in its level.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, cast

import ibis
import numpy as np
import pyarrow as pa

from neyman.numerics.arrays import Integers
from neyman.publishing.engines.backends import Value, backend_of
from neyman.publishing.engines.data_schema import (
    as_written,
    code_column,
    columns_needed,
    decimals_read,
    key_kind,
    level_columns,
)
from neyman.publishing.engines.expressions import bin_of, key_bytes, raw_key, scaled_integer
from neyman.publishing.plan.column import key_text
from neyman.publishing.plan.hierarchy import Hierarchy
from neyman.publishing.plan.measures import Distinct
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query

_BLANK = -2  # the code of a missing text, where a place ends above its level


class Kind(Enum):
    """Name the content of a column of coded rows. The value begins the column's name in SQL."""

    PLACE = "p"  # the codes of places; the index is the position of their level in the plan
    KEY = "b"  # the codes of keys; the index is the position of their column in the plan
    BIN = "h"  # the codes of bins
    VALUE = "s"  # values to add up
    SOURCE = "t"
    """Data values in the form by which keys are looked up, or discovered keys."""
    WRITTEN = "v"  # the data's values as written, for which ``SOURCE`` has another form


@dataclass(frozen=True)
class CodeColumn:
    """Represent a column of coded rows. Engines ignore case in names, so its name has a number.

    Args:
        index: the position of the column's level, column, bins, or clip among those of the plan.
        size: for an axis (a column of codes or bins), the number of its keys or bins. A row with an
            unknown key has the code ``size``, unless the plan declares a key for unknown values.
    """

    kind: Kind
    index: int
    size: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Return the column's name in SQL."""
        return f"{self.kind.value}{self.index}"


def names_of(columns: Iterable[CodeColumn]) -> list[str]:
    """Return the names of columns in SQL."""
    return [column.name for column in columns]


@dataclass(frozen=True)
class Coding:
    """Define the columns of coded rows that a plan's queries use.

    ``present`` has the names of the data's columns, with derived ones.
    """

    plan: Plan
    present: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the columns of the data that are read."""
        return columns_needed(self.plan, self.present)

    @cached_property
    def _clips(self) -> list[tuple[str | None, Any]]:
        both = (q.measured(part) for q in self.plan.queries for part in ("sum", "over"))
        return list(dict.fromkeys((name, clip) for name, clip in both if clip))

    @cached_property
    def _bins(self) -> list[tuple[str | None, Any]]:
        return list(dict.fromkeys((q.column, q.bins) for q in self.plan.queries if q.bins))

    @cached_property
    def _texts(self) -> dict[CodeColumn, tuple[str, ...]]:
        discovered = {column.name for column in self.plan.columns if column.discover}
        return {
            self.source(one.name): one.texts
            for one in self.plan.rows.derived
            if one.name in self.names
            and one.name not in discovered
            and code_column(one.name) in self.present
            and key_kind(self.plan, one.name) == "text"
        }

    @cached_property
    def _blanks(self) -> frozenset[CodeColumn]:
        """Return the columns of levels above which a place ends. Their missing values are ""."""
        levels = [(one, level) for one, level in self._levels if level in self.names]
        return frozenset(self.source(level) for one, level in levels if one.has_blanks(level))

    def source(self, name: str) -> CodeColumn:
        """Return the column of values by which keys of the data column ``name`` are looked up."""
        return CodeColumn(Kind.SOURCE, self.names.index(name))

    def value(self, query: Query, part: str = "sum") -> CodeColumn | None:
        """Return the column of values that a part of a query's measure sums; None for no column."""
        name, clip = query.measured(part)
        return CodeColumn(Kind.VALUE, self._clips.index((name, clip))) if clip else None

    def numbers(self, query: Query, part: str) -> dict[CodeColumn, int]:
        """Return the columns of values that a part of a measure needs, each with its lower clip.

        A value below the lower clip stands for a missing number.
        """
        names = query.required(part)
        parts = ("sum", "over") if query.complete else (part if part == "over" else "sum",)
        ends = {self.value(query, one): query.measured(one) for one in parts}
        return {
            value: clip[0]
            for value, (name, clip) in ends.items()
            if value is not None and clip and name in names
        }

    def values(self, query: Query) -> dict[CodeColumn, None]:
        """Return the columns that a query sums, or whose distinct values it counts."""
        if query.kind is Distinct and query.column is not None:
            is_open = self.plan.column(query.column).discover
            return {(self.source if is_open else self.key)(query.column): None}
        values = (self.value(query, part) for part in ("sum", "over"))
        return dict.fromkeys(value for value in values if value)

    @cached_property
    def _levels(self) -> list[tuple[Hierarchy, str]]:
        """Return all (hierarchy, level) pairs, in the order of the columns of places."""
        return [(one, level) for one in self.plan.hierarchies for level in one.levels]

    def place(self, hierarchy: Hierarchy, level: str) -> CodeColumn:
        """Return the axis of a level's places."""
        names = [(one.name, name) for one, name in self._levels]
        index = names.index((hierarchy.name, level))
        return CodeColumn(Kind.PLACE, index, len(hierarchy.paths(level)))

    def level(self, place: CodeColumn) -> tuple[Hierarchy, str]:
        """Return the hierarchy and the level of an axis of places."""
        return self._levels[place.index]

    def places(self, level: str) -> list[CodeColumn]:
        """Return the axes of a level's places: none, one, or one per hierarchy."""
        return [self.place(one, name) for one, name in self.plan.parts(level)]

    def key(self, name: str) -> CodeColumn:
        """Return the axis of a column's keys."""
        names = [column.name for column in self.plan.columns]
        return CodeColumn(Kind.KEY, names.index(name), len(self.plan.column(name).keys))

    def axes(self, query: Query, level: str) -> tuple[CodeColumn, ...]:
        """Return the axes of a query's table at a level: places, public keys, and bins, if any."""
        axes = self.places(level)
        axes += [self.key(name) for name in query.by if not self.plan.column(name).discover]
        if query.bins:
            number = self._bins.index((query.column, query.bins))
            axes.append(CodeColumn(Kind.BIN, number, len(query.bins) - 1))
        return tuple(axes)

    def discovered(self, query: Query) -> tuple[CodeColumn, ...]:
        """Return the columns with the bytes of a query's discovered keys."""
        return tuple(self.source(name) for name in query.by if self.plan.column(name).discover)

    def read(
        self, table: ibis.Table, wanted: Iterable[CodeColumn], *, unit: bool, shown: bool = False
    ) -> ibis.Table:
        """Return rows with the look-up values, bins, and values to sum of the ``wanted`` columns.

        Args:
            unit: True to include the bytes of the unit. Rows without a unit are then dropped.
            shown: True to include the data's values as written, with texts as bytes.
        """
        backend = backend_of(table)
        wanted = set(wanted)
        columns: dict[str, Any] = {}
        for name in self._sources(wanted):
            source, value = self.source(name), cast("Value", table[name])
            if source in self._texts:
                value = table[code_column(name)]
            elif not (source in self._blanks and value.type().is_floating()):  # 7.5 is not missing
                value = raw_key(value, backend)
            columns[source.name] = value
            if shown:
                written = CodeColumn(Kind.WRITTEN, source.index)
                columns[written.name] = backend.plain_bytes(as_written(table, name))
        for column in sorted(wanted, key=lambda one: one.index):
            if column.kind is Kind.VALUE:
                name, (low, high) = self._clips[column.index]
                columns[column.name] = self._integer(table, name or "", low, high)
            if column.kind is Kind.BIN:
                name, edges = self._bins[column.index]
                value = self._integer(table, name or "", edges[0], edges[-1] - 1)
                optional = self.plan.column(name or "").unknown is None
                columns[column.name] = bin_of(value, edges, optional=optional)
        if unit and self.plan.unit.id is not None:
            columns["unit"] = key_bytes(as_written(table, self.plan.unit.id), backend)
        columns["one"] = ibis.literal(1)
        rows: Any = table.select(**columns)
        return rows.filter(rows["unit"].notnull()) if unit else rows

    def _integer(self, table: ibis.Table, name: str, low: int, high: int) -> Value:
        column = self.plan.column(name)
        decimals = decimals_read(self.plan, column)
        return scaled_integer(table[name], backend_of(table), decimals, low, high, column.unknown)

    def _sources(self, wanted: set[CodeColumn]) -> list[str]:
        names: list[str] = []
        for hierarchy, _ in self._trees(wanted):
            names += level_columns(hierarchy, self.present)
        for column in self.plan.columns:
            keyed = column.name in self.names and not column.integer
            read = keyed and self.source(column.name) in wanted
            if (self.key(column.name) in wanted or read) and column.name not in names:
                names.append(column.name)
        return names

    def sources(self, rows: ibis.Table) -> list[CodeColumn]:
        """Return the columns of ``rows`` that hold values by which keys are looked up."""
        return [one for one in map(self.source, self.names) if one.name in rows.columns]

    def looked_up(
        self, rows: ibis.Table, wanted: Iterable[CodeColumn], keys: Sequence[ibis.Table]
    ) -> ibis.Table:
        """Return rows with the ``wanted`` columns.

        Left joins with the tables of `keys` give each row its codes.
        """
        backend, sources = backend_of(rows), self.sources(rows)
        values: dict[str, Value] = {one.name: rows[one.name] for one in sources}
        for one in sources:
            blank = ibis.literal(_BLANK)
            if one not in self._texts:
                kind = key_kind(self.plan, self.names[one.index])
                values[one.name] = key_bytes(rows[one.name], backend, kind)
                blank = backend.plain_bytes(ibis.literal(""))
            if one in self._blanks:
                given: Any = rows[one.name]
                absent = given.isnull()
                if given.type().is_floating():
                    absent |= given.isnan()
                values[one.name] = ibis.cases((absent, blank), else_=values[one.name])
        joined: Any = rows.mutate(**values)
        for number, right in enumerate(keys):
            pairs = [(one.name, _key_column(number, one)) for one in sources]
            on = [joined[own] == right[other] for own, other in pairs if other in right.columns]
            joined = joined.left_join(right, on)
        rest = [name for name in rows.columns if name not in names_of(sources)]
        columns: dict[str, Any] = {name: joined[name] for name in rest}
        for one in wanted:
            coded = one.kind in (Kind.PLACE, Kind.KEY)
            own = joined[one.name]
            columns[one.name] = own.coalesce(self._unknown(one)) if coded else own
        return joined.select(**columns)

    def keys(self, wanted: Iterable[CodeColumn]) -> list[pa.Table]:
        """Return tables of public keys for the wanted columns, with look-up values and codes."""
        return [
            pa.table({_key_column(number, one): right[one] for one in right})
            for number, right in enumerate(self._keys(set(wanted)))
        ]

    def _keys(self, wanted: set[CodeColumn]) -> list[dict[CodeColumn, Any]]:
        keys: list[dict[CodeColumn, Any]] = []
        for hierarchy, places in self._trees(wanted):
            right: dict[CodeColumn, Any] = {}
            for level in level_columns(hierarchy, self.present):
                depth, source = hierarchy.depth(level), self.source(level)
                right[source] = [
                    self._key(source, hierarchy.key(level, row[depth])) for row in hierarchy.rows
                ]
            right |= {place: hierarchy.codes(self.level(place)[1]) for place in places}
            keys.append(right)
        for column in self.plan.columns:
            if (code := self.key(column.name)) in wanted:
                source = self.source(column.name)
                known = [self._key(source, key_text(value)) for value in column.keys]
                keys.append({source: known, code: np.arange(len(known), dtype=np.int64)})
        return keys

    def _trees(self, wanted: Iterable[CodeColumn]) -> Iterator[tuple[Hierarchy, list[CodeColumn]]]:
        places = sorted((o for o in wanted if o.kind is Kind.PLACE), key=lambda one: one.index)
        for hierarchy in self.plan.hierarchies:
            own = [place for place in places if self.level(place)[0] is hierarchy]
            if own:
                yield hierarchy, own

    def _key(self, source: CodeColumn, key: str) -> bytes | int:
        texts = self._texts.get(source)
        if texts is None:
            return key.encode("utf-8", "surrogatepass")
        return texts.index(key) if key in texts else -1 if key else _BLANK

    def _unknown(self, column: CodeColumn) -> int:
        """Return the code for unknown values: the declared key's code, or the number of keys."""
        if column.kind is Kind.PLACE:
            hierarchy, level = self.level(column)
            if hierarchy.unknown is None:
                return len(hierarchy.paths(level))
            return int(hierarchy.codes(level)[hierarchy.unknown])
        declared = self.plan.columns[column.index]
        return len(declared.keys) if declared.unknown is None else declared.unknown

    def risen(
        self, codes: Mapping[CodeColumn, Integers], query: Query, level: str
    ) -> list[Integers]:
        """Return the codes on each axis of a query's table, from codes at ``level`` or below."""
        lowest = {one.name: place for one, (*_, place) in self._trees(codes)}
        codes_above: list[Integers] = []
        for axis in self.axes(query, level):
            if axis.kind is Kind.PLACE and axis not in codes:
                hierarchy, own = self.level(axis)
                lower = lowest[hierarchy.name]
                upward = hierarchy.parents(self.level(lower)[1], own)
                # One extra place stands for unknown places.
                codes_above.append(np.append(upward, axis.size)[codes[lower]])
            else:
                codes_above.append(codes[axis])
        return codes_above


def _key_column(number: int, column: CodeColumn) -> str:
    return f"j{number}{column.name}" if column.kind is Kind.SOURCE else column.name
