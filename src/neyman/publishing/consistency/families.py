"""Which of a plan's tables must add up to each other: families, read off the plan alone.

- counts and histograms with each other, and sums of one column with one clip;
- a table by a column adds up to one without it only where each row has one of its keys: where the
  column's ``unknown`` is a key. Where it is "drop", tables with it and without it stay apart. The
  bins of a histogram are a column in this: a row without a number may lie in no bin. A hierarchy is
  a column in this, and the table over everything the one without it, as is a declared total, which
  counts dropped rows too;
- exact totals with counts that have no filter;
- a query that keeps some rows of a unit only (``groups``, ``rows_per_group``) with itself alone,
  and queries with one table and one filter with each other alone;
- means, variances, quantiles, distinct units and found keys do not add up and take no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import ALL, Query
from neyman.publishing.plan.totals import Total

Integers = NDArray[np.int64]
Name = tuple[str, str]


@dataclass(frozen=True)
class Member:
    """A table of a family: where it stands, and how its cells are ordered."""

    name: Name
    measure: str
    level: str
    axes: tuple[Any, ...]
    sizes: tuple[int, ...]
    public: int | None
    total: Total | None = None


@dataclass(frozen=True)
class Family:
    """Tables that must add up to each other."""

    members: tuple[Member, ...]
    linked: tuple[Any, ...]  # the axes that may be summed away
    alike: tuple[Any, ...]  # those that all members have
    sizes: Mapping[Any, int]
    levels: tuple[str, ...]  # of places, from the top
    parents: tuple[Integers, ...]
    places: int
    signed: bool  # whether a true value can be negative

    def margins(self, variances: Mapping[Name, float]) -> Margins:
        """The members' structure, for noise of these variances."""
        tables = [
            Margin(
                self.levels.index(member.level),
                frozenset(i for i, axis in enumerate(self.linked) if axis in member.axes),
                variances[member.name],
            )
            for member in self.members
        ]
        return Margins(tables, [self.sizes[a] for a in self.linked], self.parents, self.places)

    def shaped(self, member: Member, table: NDArray[Any]) -> NDArray[Any]:
        """Return a flat table in the shape that `Margins` uses."""
        cells = table.reshape(-1, *member.sizes)
        order = [a for a in (*self.linked, *self.alike) if a in member.axes]
        cells = cells.transpose(0, *(1 + member.axes.index(axis) for axis in order))
        linked = [self.sizes[a] if a in member.axes else 1 for a in self.linked]
        return np.ascontiguousarray(cells).reshape(len(cells), *linked, -1)

    def flat(self, member: Member, table: NDArray[Any]) -> NDArray[Any]:
        """Return a `shaped` table as a flat one, in the table's own order of cells."""
        order = [a for a in (*self.linked, *self.alike) if a in member.axes]
        cells = table.reshape(len(table), *(self.sizes[axis] for axis in order))
        return cells.transpose(0, *(1 + order.index(axis) for axis in member.axes)).ravel()


def _takes_part(query: Query) -> str | None:
    """The measure that adds up, if there is one."""
    if query.delta is not None:
        return None
    return {"count": "count", "histogram": "count", "sum": "sum"}.get(query.measure)


def without_part(plan: Plan) -> Mapping[Name, str]:
    """The tables that belong to no family, each with the reason."""
    return {
        (query.name, level): "keys that were found in the data do not add up"
        if query.delta is not None
        else f"a table of measure {query.measure!r} does not add up"
        for query in plan.queries
        if _takes_part(query) is None
        for level in query.levels
    }


def families(plan: Plan) -> list[Family]:
    """The families of a plan's tables, in the order of their first queries."""
    hierarchy = plan.hierarchy
    groups: dict[Any, list[Member]] = {}
    sizes: dict[Any, int] = {}
    for query in plan.queries:
        measure = _takes_part(query)
        if measure is None:
            continue
        axes: list[Any] = list(query.by)
        complete: set[Any] = {name for name in query.by if plan.column(name).unknown is not None}
        sizes |= {name: len(plan.column(name).keys) for name in query.by}
        if query.bins is not None:
            bins = (query.column, query.bins)
            axes.append(bins)
            if not query.optional:  # else it counts the rows with a number alone
                complete.add(bins)
            sizes[bins] = len(query.bins) - 1
        bounded = query.groups is not None or query.rows_per_group is not None
        for level in query.levels:
            name, public = (query.name, level), dict(query.public).get(level)
            counted = bool(query.at) and public is None  # a declared total is that of all rows
            group = (
                (measure, query.column, query.clip) if measure == "sum" else measure,
                (query.name if bounded else None, query.where, query.table),
                counted if hierarchy and hierarchy.unknown is None else None,
                frozenset(axes) - complete,
            )
            shape = tuple(sizes[axis] for axis in axes)
            member = Member(name, measure, level, tuple(axes), shape, public)
            groups.setdefault(group, []).append(member)
    for index, total in enumerate(plan.totals):
        counted = total.level != ALL if hierarchy and hierarchy.unknown is None else None
        group = ("count", (None, None, None), counted, frozenset[Any]())
        sizes |= dict(zip(total.columns, total.shape[1:], strict=True))
        name = f"totals[{index}]", total.level
        member = Member(name, "count", total.level, total.columns, total.shape[1:], None, total)
        if group in groups:
            groups[group].append(member)
    return [
        _family(plan, members, alike, sizes, signed=_signed(plan, members[0]))
        for (_, _, _, alike), members in groups.items()
    ]


def _signed(plan: Plan, member: Member) -> bool:
    clip = plan.query(member.name[0]).clip
    return member.measure == "sum" and clip is not None and clip[0] < 0


def _family(
    plan: Plan,
    members: list[Member],
    alike: frozenset[Any],
    sizes: Mapping[Any, int],
    *,
    signed: bool,
) -> Family:
    hierarchy = plan.hierarchy
    named = dict.fromkeys(member.level for member in members)
    inside = [name for name in hierarchy.levels if name in named] if hierarchy else []
    levels = [name for name in named if name not in inside] + inside
    places = [len(hierarchy.paths(name)) if name in inside and hierarchy else 1 for name in levels]
    parents: list[Integers] = []
    for upper, lower in pairwise(levels):
        single = np.zeros(places[levels.index(lower)], dtype=np.int64)
        parents.append(hierarchy.parents(lower, upper) if hierarchy and upper in inside else single)
    axes = dict.fromkeys(axis for member in members for axis in member.axes)
    return Family(
        tuple(members),
        tuple(axis for axis in axes if axis not in alike),
        tuple(axis for axis in axes if axis in alike),
        sizes,
        tuple(levels),
        tuple(parents),
        places[0],
        signed,
    )
