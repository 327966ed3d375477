"""Rows as whole numbers: the code of each key, the bin and the value that each query takes.

A column made here has a number, since engines take names that differ in case for one: p0, p1, ...
are the places of the hierarchy's levels, b0, ... the keys of the plan's columns, h0, ... bins, s0,
... values, t0, ... what keys are looked up by, v0, ... the values in the data that those are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neyman.engines.backends import backend_of
from neyman.engines.data_schema import (
    as_written,
    code_column,
    columns_needed,
    key_kind,
    level_columns,
)
from neyman.engines.expressions import (
    bin_of,
    key_bytes,
    raw_key,
    scaled_integer,
)
from neyman.plan.plan import Plan
from neyman.plan.query import ALL, KeyKind, Query, key_text

__all__ = ["Axis", "Coding"]


@dataclass(frozen=True)
class Axis:
    """One dimension of a table: its column of codes, and how many keys it has.

    A row whose key is unknown, and not declared to go to another, has the code ``size``.
    """

    name: str
    size: int


@dataclass(frozen=True)
class Coding:
    """How a plan's queries see rows."""

    plan: Plan
    present: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The data's columns that are read."""
        return columns_needed(self.plan, self.present)

    @cached_property
    def _clips(self) -> list[tuple[str | None, Any]]:
        both = (q.measured(part) for q in self.plan.queries for part in ("sum", "over"))
        return list(dict.fromkeys((name, clip) for name, clip in both if clip))

    @cached_property
    def _bins(self) -> list[tuple[str | None, Any]]:
        return list(dict.fromkeys((q.column, q.bins) for q in self.plan.queries if q.bins))

    @cached_property
    def _texts(self) -> dict[str, tuple[str, ...]]:
        """The texts of the columns of which the rows have codes, by t0, ..."""
        discovered = {column.name for column in self.plan.columns if column.discover}
        return {
            f"t{self.names.index(one.name)}": one.texts
            for one in self.plan.rows.derived
            if one.name in self.names
            and one.name not in discovered
            and code_column(one.name) in self.present
            and key_kind(self.plan, one.name) == "text"
        }

    def value(self, query: Query, part: str = "sum") -> str | None:
        """The column of the values that a part of a query's measure adds up."""
        name, clip = query.measured(part)
        return f"s{self._clips.index((name, clip))}" if clip else None

    def numbers(self, query: Query, part: str) -> dict[str, int]:
        """The columns of values in which a row needs a number for a part, each with its low end.

        A value below the low end stands for a missing one.
        """
        names = query.required(part)
        parts = ("sum", "over") if query.complete else (part if part == "over" else "sum",)
        ends = {self.value(query, one): query.measured(one) for one in parts}
        return {
            value: clip[0]
            for value, (name, clip) in ends.items()
            if value is not None and clip and name in names
        }

    def values(self, query: Query) -> dict[str, None]:
        """The columns of all values that a query adds up, or whose distinct ones it counts."""
        if query.measure == "distinct" and query.column is not None:
            column = self.plan.column(query.column)
            source = f"t{self.names.index(query.column)}"
            return {source if column.discover else self.key(query.column).name: None}
        names = (self.value(query, part) for part in ("sum", "over"))
        return dict.fromkeys(name for name in names if name)

    def lowest(self, query: Query) -> str:
        """The level of a query's finest table."""
        if self.plan.hierarchy is None or not query.at:
            return ALL
        return max(query.at, key=self.plan.hierarchy.depth)

    def place(self, level: str) -> Axis | None:
        """The axis of a level's places."""
        hierarchy = self.plan.hierarchy
        if hierarchy is None or level == ALL:
            return None
        return Axis(f"p{hierarchy.depth(level)}", len(hierarchy.paths(level)))

    def key(self, name: str) -> Axis:
        """The axis of a column's keys."""
        names = [column.name for column in self.plan.columns]
        return Axis(f"b{names.index(name)}", len(self.plan.column(name).keys))

    def axes(self, query: Query, level: str) -> tuple[Axis, ...]:
        """The axes of a query's table at a level: places if any, known keys, bins if any."""
        place = self.place(level)
        axes = [place] if place else []
        axes += [self.key(name) for name in query.by if not self.plan.column(name).discover]
        if query.bins:
            number = self._bins.index((query.column, query.bins))
            axes.append(Axis(f"h{number}", len(query.bins) - 1))
        return tuple(axes)

    def discovered(self, query: Query) -> tuple[str, ...]:
        """The columns of the bytes of a query's unknown keys."""
        unknown = [name for name in query.by if self.plan.column(name).discover]
        return tuple(f"t{self.names.index(name)}" for name in unknown)

    def read(
        self, table: ibis.Table, wanted: Iterable[str], *, unit: bool, shown: bool = False
    ) -> ibis.Table:
        """Rows with what their keys are looked up by, their bins and values.

        Args:
            table: the private rows.
            wanted: columns of codes and values that will be needed.
            unit: whether the bytes of the unit come along; rows without a unit are dropped then.
            shown: whether the values that keys are read from come along, texts as their bytes.
        """
        backend = backend_of(table)
        wanted = set(wanted)
        columns: dict[str, Any] = {}
        for name in self._sources(wanted):
            number, column = self.names.index(name), table[name]
            coded = f"t{number}" in self._texts
            columns[f"t{number}"] = table[code_column(name)] if coded else raw_key(column, backend)
            if shown:
                columns[f"v{number}"] = backend.plain_bytes(as_written(table, name))
        for number, (name, clip) in enumerate(self._clips):
            if f"s{number}" in wanted and name is not None:
                columns[f"s{number}"] = self._integer(table, name, clip[0], clip[1])
        for number, (name, edges) in enumerate(self._bins):
            if f"h{number}" in wanted and name is not None:
                value = self._integer(table, name, edges[0], edges[-1] - 1)
                optional = self.plan.column(name).unknown is None
                columns[f"h{number}"] = bin_of(value, edges, optional=optional)
        if unit and self.plan.unit.id is not None:
            columns["unit"] = key_bytes(as_written(table, self.plan.unit.id), backend)
        columns["one"] = ibis.literal(1)
        rows: Any = table.select(**columns)
        return rows.filter(rows["unit"].notnull()) if unit else rows

    def _integer(self, table: ibis.Table, name: str, low: int, high: int) -> Any:
        column = self.plan.column(name)
        return scaled_integer(
            table[name], backend_of(table), column.decimals, low, high, column.unknown
        )

    def _kind(self, name: str) -> KeyKind:
        """What the keys of a column t0, ... are."""
        return key_kind(self.plan, self.names[int(name[1:])])

    def _sources(self, wanted: set[str]) -> list[str]:
        """The columns of the data whose keys are wanted."""
        hierarchy = self.plan.hierarchy
        names: list[str] = []
        if hierarchy and any(name.startswith("p") for name in wanted):
            names += level_columns(hierarchy, self.present)
        for number, column in enumerate(self.plan.columns):
            keyed = column.name in self.names and not column.integer
            read = keyed and f"t{self.names.index(column.name)}" in wanted
            if (f"b{number}" in wanted or read) and column.name not in names:
                names.append(column.name)
        return names

    def looked_up(
        self, rows: ibis.Table, wanted: Iterable[str], keys: Sequence[ibis.Table]
    ) -> ibis.Table:
        """Rows, or groups of them, with codes in place of keys: what is wanted, and the rest.

        Keys are looked up by joins, so that the rows stay where they are.

        Args:
            rows: as `read` gives them.
            wanted: columns of codes and values.
            keys: the tables of `keys`, on the engine of the rows.
        """
        backend = backend_of(rows)
        wanted = list(dict.fromkeys(wanted))
        texts = [name for name in rows.columns if name[0] == "t" and name not in self._texts]
        joined: Any = rows.mutate(
            **{name: key_bytes(rows[name], backend, self._kind(name)) for name in texts}
        )
        for right in keys:
            on = [name for name in right.columns if name.startswith("j")]
            joined = joined.left_join(
                right, [joined[name[name.index("t") :]] == right[name] for name in on]
            )
        columns: dict[str, Any] = {}
        for name in (*rows.columns, *wanted):
            if name in wanted or not name.startswith("t"):
                coded = name[0] in "pb"
                columns[name] = (
                    joined[name].coalesce(self._unknown(name)) if coded else joined[name]
                )
        return joined.select(**columns)

    def keys(self, wanted: Iterable[str]) -> list[pa.Table]:
        """Tables of public keys: what they are looked up by, j0t0, ..., and their codes."""
        return [
            pa.table({f"j{i}{name}" if name[0] == "t" else name: right[name] for name in right})
            for i, right in enumerate(self._keys(list(wanted)))
        ]

    def _keys(self, wanted: Sequence[str]) -> list[dict[str, Any]]:
        keys: list[dict[str, Any]] = []
        hierarchy = self.plan.hierarchy
        depths = [int(name[1:]) for name in wanted if name.startswith("p")]
        if hierarchy and depths:
            right: dict[str, Any] = {}
            for level in level_columns(hierarchy, self.present):
                depth = hierarchy.depth(level)
                name = f"t{self.names.index(level)}"
                right[name] = [
                    self._key(name, hierarchy.key(level, row[depth])) for row in hierarchy.rows
                ]
            right |= {f"p{depth}": hierarchy.codes(hierarchy.levels[depth]) for depth in depths}
            keys.append(right)
        for number, column in enumerate(self.plan.columns):
            if f"b{number}" in wanted:
                name = f"t{self.names.index(column.name)}"
                known = [self._key(name, key_text(value)) for value in column.keys]
                codes = np.arange(len(known), dtype=np.int64)
                keys.append({name: known, f"b{number}": codes})
        return keys

    def _key(self, name: str, key: str) -> bytes | int:
        """What a key is looked up by in a column t0, ...: its bytes, or its number."""
        texts = self._texts.get(name)
        if texts is None:
            return key.encode("utf-8", "surrogatepass")
        return texts.index(key) if key in texts else -1

    def _unknown(self, name: str) -> int:
        """The code of what is unknown: a declared key's, or one more than there are."""
        number = int(name[1:])
        if name.startswith("p") and self.plan.hierarchy:
            level = self.plan.hierarchy.levels[number]
            goes = self.plan.hierarchy.unknown
            more = len(self.plan.hierarchy.paths(level))
            return more if goes is None else int(self.plan.hierarchy.codes(level)[goes])
        column = self.plan.columns[number]
        return len(column.keys) if column.unknown is None else column.unknown

    def risen(
        self, codes: Mapping[str, NDArray[np.int64]], query: Query, level: str
    ) -> list[NDArray[np.int64]]:
        """The codes on a table's axes, from those of rows at the same or a lower level."""
        place = self.place(level)
        codes_above = []
        for axis in self.axes(query, level):
            if axis == place and axis.name not in codes and self.plan.hierarchy:
                lower = max(int(name[1:]) for name in codes if name.startswith("p"))
                upward = self.plan.hierarchy.parents(self.plan.hierarchy.levels[lower], level)
                # One place more, for those that are unknown.
                codes_above.append(np.append(upward, axis.size)[codes[f"p{lower}"]])
            else:
                codes_above.append(codes[axis.name])
        return codes_above
