"""Read exact public totals: declared numbers of rows, which no run computes from private rows.

A total counts every row in one cell: its columns give unlisted values a listed key. So tables of
totals agree on each margin that they share. If totals agree and their columns close no cycle, some
table of integers has all of them [CO-5]. Other totals are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from neyman.publishing.plan.column import Column, Section, key_text
from neyman.publishing.plan.document import PlanDocument
from neyman.publishing.plan.field_types import show, suggest
from neyman.publishing.plan.hierarchy import ALL, Hierarchy, HierarchyError, KeyFile, read_rows
from neyman.publishing.plan.plan_fields import TotalsPart
from neyman.publishing.plan.query import Query

Integers = NDArray[np.int64]

VALUE = "total"  # the file's column of totals
MAX_TOTAL_ROWS = 2**53  # in all: a double counts them exactly

_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


@dataclass(frozen=True)
class Total:
    """Represent a table of exact public totals.

    Args:
        by: the columns and at most one level, in the plan's order.
        level: the level; `query.ALL` if there is none.
        columns: ``by`` without the level.
        shape: the number of places, and the number of keys of each column.
        values: the totals in the order of the cells: places first, then keys.
    """

    by: tuple[str, ...]
    level: str
    columns: tuple[str, ...]
    shape: tuple[int, ...]
    values: tuple[int, ...]
    file: KeyFile | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Return the level and columns of the totals, as in "state, race"."""
        return ", ".join(self.by)

    @property
    def table(self) -> Integers:
        """Return the totals as an array of ``shape``."""
        return np.array(self.values, dtype=np.int64).reshape(self.shape)

    @property
    def rows(self) -> int:
        """Return the sum of the totals, which is the number of rows."""
        return sum(self.values)


def read_totals(
    document: PlanDocument,
    columns: Mapping[str, Column],
    hierarchies: Sequence[Hierarchy],
    queries: Iterable[Query],
    folder: Path | None,
    problems: list[str],
) -> tuple[Total, ...]:
    """Return the totals of a plan. Add their problems to ``problems``."""
    if not document.totals:
        return ()
    own_problems = [*_unfit(document)]
    if len(hierarchies) > 1:
        names = ", ".join(one.name for one in hierarchies)
        problems += [
            *own_problems,
            f"hierarchy: totals are for a plan with one hierarchy, or none, and this one has "
            f"{names}; leave the totals out, or all hierarchies but one",
        ]
        return ()
    hierarchy = hierarchies[0] if hierarchies else None
    totals: list[Total] = []
    for index, part in enumerate(document.totals):
        where = f"totals[{index}]"
        errors = [*_by_problems(where, part, columns, hierarchy)]
        if not errors:
            try:
                totals.append(_total(part, columns, hierarchy, folder))
            except HierarchyError as error:
                errors.append(f"{where}.values: {error}")
        own_problems += errors
    if not own_problems:
        own_problems += _contradictions(totals, columns, hierarchy, queries, document.most_rows)
    problems += own_problems
    return tuple(totals)


def held(totals: Iterable[Total], hierarchy: Hierarchy | None) -> tuple[str | None, frozenset[str]]:
    """Return the level and the columns in which a row must stay the same to move no total.

    The lowest level decides the levels above it, because its places are known by whole paths.
    """
    totals = tuple(totals)
    levels = [total.level for total in totals if total.level != ALL]
    lowest = max(levels, key=hierarchy.depth) if hierarchy and levels else None
    return lowest, frozenset(name for total in totals for name in total.columns)


def held_names(totals: Iterable[Total], hierarchy: Hierarchy | None) -> tuple[str, ...]:
    """Return the names of the lowest level and of the columns, in the order of the totals."""
    totals = tuple(totals)
    level, columns = held(totals, hierarchy)
    names = dict.fromkeys(name for total in totals for name in total.by)
    return tuple(name for name in names if name == level or name in columns)


def totals_sections(
    totals: Iterable[Total], columns: Mapping[str, Column], hierarchy: Hierarchy | None
) -> list[Section]:
    """Return the sections of a canonical plan, with the totals inline."""
    return [
        {
            "by": list(total.by),
            "values": [
                [*keys, value]
                for keys, value in zip(_keys(total, columns, hierarchy), total.values, strict=True)
            ],
        }
        for total in totals
    ]


def rows_sorted(section: Section) -> Section:
    """Return a section of a canonical plan with its keys and values sorted as JSON texts."""
    return {
        name: sorted(map(json.dumps, cast("list[object]", value)))
        if name in ("keys", "values")
        else value
        for name, value in section.items()
    }


# ---- one table of totals ----------------------------------------------------------------------


def _unfit(document: PlanDocument) -> Iterator[str]:
    """Yield an error for each setting of a plan that totals do not allow."""
    unit, reason = document.unit, "a total counts the rows of units with one row each"
    if unit.neighboring != "replace-one":
        yield (
            f"totals: are not exact under unit.neighboring = {unit.neighboring!r}, because one "
            f"{unit.protects} more or less moves one of them; take 'replace-one'"
        )
    if unit.id is not None or unit.search is not None:
        yield f"unit.id = {show(unit.id)}: {reason}; leave id out, or the totals"
    if document.tables:
        yield f"tables: {reason}; leave the further tables out, or the totals"
    if document.where is not None:
        yield (
            f"where = {show(document.where)}: a total counts all rows, and the tables must count "
            "the same ones; give the queries their own 'where', or leave the totals out"
        )
    if document.part is not None:
        yield (
            f"part = {document.part!r}: the totals are those of the whole dataset; leave one of "
            "them out"
        )
    parted = any(query.partition is not None for query in document.query)
    if document.disjoint or parted:
        field = "disjoint = true" if document.disjoint else "query[].partition"
        yield f"{field}: no charge for disjoint queries is proved beside totals; leave one out"


def _by_problems(
    where: str, part: TotalsPart, columns: Mapping[str, Column], hierarchy: Hierarchy | None
) -> Iterator[str]:
    levels = hierarchy.levels if hierarchy else ()
    keyed = [column.name for column in columns.values() if column.keys]
    named = [name for name in part.by if name in levels]
    if len(named) > 1:
        yield f"{where}.by = {show(list(part.by))}: names several levels; name the lowest alone"
    if hierarchy is not None and named and hierarchy.unknown is None:
        yield (
            f"hierarchy.{hierarchy.name}.unknown = 'drop': a total by {named[0]!r} counts every "
            "row; name the place that rows of unlisted places count in"
        )
    for position, name in enumerate(part.by):
        spot = f"{where}.by[{position}] = {name!r}"
        if name in part.by[:position]:
            yield f"{spot}: is listed twice"
        elif name not in keyed and name not in levels:
            yield f"{spot}: is not a column with listed keys and no level; " + suggest(
                name, [*keyed, *levels]
            )
        elif name in keyed and columns[name].unknown is None:
            yield (
                f"{spot}: columns.{name}.unknown = 'drop', and a total counts every row; name the "
                "key that rows with an unlisted value count in"
            )


def _total(
    part: TotalsPart,
    columns: Mapping[str, Column],
    hierarchy: Hierarchy | None,
    folder: Path | None,
) -> Total:
    level = next((name for name in part.by if hierarchy and name in hierarchy.levels), ALL)
    names = tuple(name for name in part.by if name != level)
    places = len(hierarchy.paths(level)) if hierarchy and level != ALL else 1
    shape = (places, *(len(columns[name].keys) for name in names))
    empty = Total(part.by, level, names, shape, ())
    above = hierarchy.levels[: hierarchy.depth(level) + 1] if hierarchy and level != ALL else ()
    file, rows = None, part.values
    if isinstance(rows, str):
        rows, file = read_rows(rows, (*above, *names, VALUE), folder or Path())
    expected = {
        tuple(map(key_text, keys)): index
        for index, keys in enumerate(_keys(empty, columns, hierarchy))
    }
    values = _read_cells(rows, expected, ", ".join((*above, *names, VALUE)))
    if sum(values) > MAX_TOTAL_ROWS:
        raise HierarchyError(
            f"the totals add up to more than 2^53 = {MAX_TOTAL_ROWS}; are they counts?"
        )
    return Total(part.by, level, names, shape, values, file)


def _read_cells(
    rows: Iterable[Sequence[str | int | bool]], expected: Mapping[tuple[str, ...], int], form: str
) -> tuple[int, ...]:
    """Return the total of each cell, from rows of its keys and its total. Each cell has one row.

    Raise HierarchyError for a row that is none, or a cell without a row.

    Args:
        expected: the index of each cell, by its keys.
        form: the fields of a row, for messages.
    """
    values: dict[int, int] = {}
    for number, row in enumerate(rows, 1):
        keys, value = row[:-1], row[-1] if row else None
        spot = f"row {number} = {show(list(row))}"
        index = expected.get(tuple(map(key_text, keys)))
        if index is None:
            raise HierarchyError(
                f"{spot}: its keys are none of the plan's; give {form}, with a key for each"
            )
        if index in values:
            raise HierarchyError(f"{spot}: repeats the keys of a row before it; list each once")
        values[index] = _total_in(spot, value)
    if len(values) < len(expected):
        missing = next(keys for keys, index in expected.items() if index not in values)
        raise HierarchyError(
            f"has no total for {', '.join(map(repr, missing))}; list each of the "
            f"{len(expected)} cells, with 0 where there is no row"
        )
    return tuple(values[index] for index in range(len(expected)))


def _total_in(spot: str, value: object) -> int:
    """Return ``value``, the total in one row of a plan or a file, as an integer.

    Raise HierarchyError if it is no count.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise HierarchyError(f"{spot}: the total {value!r} must be a whole number of at least 0")
    return value


def _keys(
    total: Total, columns: Mapping[str, Column], hierarchy: Hierarchy | None
) -> Iterator[tuple[str | int | bool, ...]]:
    """Yield the keys of each cell, in order: the path of its place, then a key per column."""
    paths: tuple[tuple[str, ...], ...] = ((),)
    if hierarchy and total.level != ALL:
        paths = hierarchy.paths(total.level)
    listed = [columns[name].keys for name in total.columns]
    for path in paths:
        for keys in product(*listed):
            yield (*path, *keys)


# ---- totals together --------------------------------------------------------------------------


def axes_of(total: Total, hierarchy: Hierarchy | None) -> frozenset[str]:
    """Return the names by which a total splits the rows: levels down to its own, and columns."""
    depth = hierarchy.depth(total.level) + 1 if hierarchy and total.level != ALL else 0
    return frozenset((hierarchy.levels[:depth] if hierarchy else ()) + total.columns)


def joined_order(sets: Sequence[frozenset[str]]) -> tuple[int, ...] | None:
    """Order sets so that each set's overlap with all earlier sets lies in one earlier set [CO-5].

    Return indices, or None if no such order exists.

    Source: Graham (1979), for acyclic hypergraphs: remove ears.
    """
    left, ears = list(range(len(sets))), list[int]()
    while len(left) > 1:
        for i in left:
            others = [sets[j] for j in left if j != i]
            common = sets[i] & frozenset[str]().union(*others)
            if any(common <= other for other in others):
                left.remove(i)
                ears.append(i)
                break
        else:
            return None
    return (*left, *reversed(ears))


def _contradictions(
    totals: Sequence[Total],
    columns: Mapping[str, Column],
    hierarchy: Hierarchy | None,
    queries: Iterable[Query],
    most_rows: int | None,
) -> Iterator[str]:
    """Yield an error for totals that no single table can have, with the numbers that differ."""
    for one, other in combinations(totals, 2):
        axes = axes_of(one, hierarchy) & axes_of(other, hierarchy)
        first, second = (_margin(total, axes, hierarchy) for total in (one, other))
        if (first != second).any():
            spot: list[int] = np.argwhere(first != second)[0].tolist()
            level = _lowest(axes, hierarchy)
            names = sorted(name for name in one.columns if name in axes)
            at = hierarchy.paths(level)[spot[0]] if hierarchy and level else ()
            keys = (str(columns[n].keys[i]) for n, i in zip(names, spot[1:], strict=True))
            place = ", ".join((*at, *keys))
            yield (
                f"totals by {one.name} and totals by {other.name} contradict each other: "
                f"{f'for {place} ' if place else 'for all rows '}they add up to "
                f"{first[tuple(spot)]} and {second[tuple(spot)]}; correct one of them"
            )
        if first.size == len(one.values) == len(other.values):
            yield f"totals by {one.name} and totals by {other.name} are one table; leave one out"
    if joined_order([axes_of(total, hierarchy) for total in totals]) is None:
        listed = "; ".join(total.name for total in totals)
        yield (
            f"totals by {listed}: their columns close a cycle, so that it is not known whether a "
            "table has all of them; leave one out, or declare totals by all these columns together"
        )
    rows = totals[0].rows
    if most_rows is not None and rows > most_rows:
        yield f"most_rows = {most_rows}: the totals by {totals[0].name} add up to {rows}"
    for query in queries:
        for level, value in query.public:
            if value != rows:
                yield (
                    f"query {query.name!r}, public.{level} = {value}: the totals by "
                    f"{totals[0].name} add up to {rows}; correct one of them"
                )


def _lowest(axes: frozenset[str], hierarchy: Hierarchy | None) -> str | None:
    inside = [level for level in hierarchy.levels if level in axes] if hierarchy else []
    return inside[-1] if inside else None


def _margin(total: Total, axes: frozenset[str], hierarchy: Hierarchy | None) -> Integers:
    """Return the margin of a total: an axis for places, then for columns in ``axes``, by name."""
    table, level = total.table, _lowest(axes, hierarchy)
    sizes = len(hierarchy.paths(level)) if hierarchy and level else 1
    above = np.zeros(total.shape[0], dtype=np.int64)
    if hierarchy and level:
        above = hierarchy.parents(total.level, level)
    placed = np.zeros((sizes, *total.shape[1:]), dtype=np.int64)
    np.add.at(placed, above, table)
    gone = tuple(1 + i for i, name in enumerate(total.columns) if name not in axes)
    summed = placed.sum(axis=gone, dtype=np.int64)
    names = [name for name in total.columns if name in axes]
    return summed.transpose(0, *(1 + names.index(name) for name in sorted(names)))
