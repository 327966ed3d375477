"""Find the families of a plan: sets of tables that must add up to each other.

- Counts and histograms must add up to each other, and so must sums of one column with one clip.
- A table by a column adds up to a table without the column only if each row has one of the column's
  keys, that is, if the column's ``unknown`` is a key. If it is "drop", tables with the column and
  without it stay apart. The bins of a histogram count as a column here: a row without a number may
  be in no bin. A hierarchy counts as a column too. A table over all places is then a table without
  the hierarchy. So is a declared total, which also counts dropped rows. A query by two hierarchies
  counts rows with a place in both.
- Exact totals take part with counts that have no filter.
- If a query counts only some rows of a unit (``groups``, ``rows_per_group``), its tables add up
  only to each other. Other queries add up only if they have the same table and filter.
- Means, variances, quantiles, distinct units, and discovered keys do not add up and take no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from neyman.numerics.arrays import Array
from neyman.publishing.consistency.margins import Margin, Margins
from neyman.publishing.consistency.tree import Chain
from neyman.publishing.consistency.tree_pair import matrix_size
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.hierarchy import Hierarchy
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query
from neyman.publishing.plan.totals import Total


@dataclass(frozen=True)
class Limits:
    """Limit the number of hierarchies along which a family's tables add up, and their size."""

    trees: int = 2  # the most hierarchies of a family's tables


LIMITS = Limits()


Name = tuple[str, str]


@dataclass(frozen=True)
class Member:
    """Represent a table of a family: its level, and the order of its cells.

    Args:
        at: the position of the table's level in each of the family's two trees.
        turned: True if the places of the family's first tree vary fastest.
        axes: the columns and bins of the table. ``sizes`` has their numbers of keys.
        public: the declared value of a query's table; None if the table is noisy.
        total: the declared table; None for a query's table.
    """

    name: Name
    measure: str
    level: str
    at: tuple[int, int]
    turned: bool
    axes: tuple[Any, ...]
    sizes: tuple[int, ...]
    public: int | None
    total: Total | None = None


@dataclass(frozen=True)
class Family:
    """Represent tables that must add up to each other."""

    members: tuple[Member, ...]
    linked: tuple[Any, ...]  # the axes that may be summed over
    alike: tuple[Any, ...]  # the axes that all members have
    sizes: Mapping[Any, int]
    trees: tuple[Chain, Chain]  # of places; one or both may have only one place
    signed: bool  # True if a true value can be negative

    def margins(self, variances: Mapping[Name, float]) -> Margins:
        """Return the least-squares problem that makes the members add up, for these variances."""
        tables = [
            Margin(
                member.at[0],
                frozenset(i for i, axis in enumerate(self.linked) if axis in member.axes),
                variances[member.name],
                member.at[1],
            )
            for member in self.members
        ]
        first, second = self.trees
        sizes = [self.sizes[a] for a in self.linked]
        return Margins(tables, sizes, first.parents, first.places, second)

    def turned(self, member: Member, table: Array, *, back: bool = False) -> Array:
        """Reorder a member's table, whose first axis is over pairs of places.

        Its order of the pairs becomes the family's order. ``back`` is the reverse.
        """
        if not member.turned:
            return table
        first, second = (tree.sizes[at] for tree, at in zip(self.trees, member.at, strict=True))
        shape = (first, second) if back else (second, first)
        cells = table.reshape(*shape, *table.shape[1:]).swapaxes(0, 1)
        return cells.reshape(table.shape)

    def shaped(self, member: Member, table: Array) -> Array:
        """Return a flat table in the shape that `Margins` uses."""
        cells = self.turned(member, table.reshape(-1, *member.sizes))
        order = [a for a in (*self.linked, *self.alike) if a in member.axes]
        cells = cells.transpose(0, *(1 + member.axes.index(axis) for axis in order))
        linked = [self.sizes[a] if a in member.axes else 1 for a in self.linked]
        return np.ascontiguousarray(cells).reshape(len(cells), *linked, -1)

    def flat(self, member: Member, table: Array) -> Array:
        """Return a table of shape `shaped` as a flat table, in the member's order of cells."""
        order = [a for a in (*self.linked, *self.alike) if a in member.axes]
        cells = self.turned(member, table, back=True)
        cells = cells.reshape(len(table), *(self.sizes[axis] for axis in order))
        return cells.transpose(0, *(1 + order.index(axis) for axis in member.axes)).ravel()


def _takes_part(query: Query) -> str | None:
    """Return "count" or "sum", the measure that adds up; None if the query's tables do not."""
    measures = {"count": "count", "histogram": "count", "sum": "sum"}
    return measures.get(query.measure) if query.delta is None else None


def without_part(plan: Plan) -> Mapping[Name, str]:
    """Return the tables of queries that belong to no family, each with the reason."""
    return {
        (query.name, level): "keys that were found in the data do not add up"
        if query.delta is not None
        else f"a table of measure {query.measure!r} does not add up"
        for query in plan.queries
        if _takes_part(query) is None
        for level in query.levels
    }


def families(plan: Plan) -> list[Family]:
    """Return the families of a plan's tables, in the order of their first queries.

    Raises:
        PlanError: tables would have to add up along three hierarchies, or along two with too many
            places.
    """
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
            if not query.optional:  # else it counts only the rows with a number
                complete.add(bins)
            sizes[bins] = len(query.bins) - 1
        dropping = frozenset(
            one.name for one, _ in plan.parts(plan.finest(query)) if one.unknown is None
        )
        bounded = query.groups is not None or query.rows_per_group is not None
        for level in query.levels:
            name, public = (query.name, level), dict(query.public).get(level)
            group = (
                (measure, query.column, query.clip) if measure == "sum" else measure,
                (query.name if bounded else None, query.where, query.table),
                dropping if public is None else frozenset[str](),  # which a total also counts
                frozenset(axes) - complete,
            )
            shape = tuple(sizes[axis] for axis in axes)
            member = Member(name, measure, level, (0, 0), False, tuple(axes), shape, public)
            groups.setdefault(group, []).append(member)
    for index, total in enumerate(plan.totals):
        group = ("count", (None, None, None), frozenset[str](), frozenset[Any]())
        sizes |= dict(zip(total.columns, total.shape[1:], strict=True))
        name = f"totals[{index}]", total.level
        if group in groups:
            by, shape = total.columns, total.shape[1:]
            member = Member(name, "count", total.level, (0, 0), False, by, shape, None, total)
            groups[group].append(member)
    return [
        _family(plan, members, alike, sizes, signed=_has_signed_clip(plan, members[0]))
        for (_, _, _, alike), members in groups.items()
    ]


def _has_signed_clip(plan: Plan, member: Member) -> bool:
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
    parts = [{one.name: name for one, name in plan.parts(m.level)} for m in members]
    named = set[str]().union(*parts)
    used = [one for one in plan.hierarchies if one.name in named]
    if len(used) > LIMITS.trees:
        names = ", ".join(one.name for one in used)
        raise PlanError(
            f"consistency: tables by the hierarchies {names} would have to add up, and tables add "
            f"up along at most {LIMITS.trees}; leave levels or the section out"
        )
    trees = [Chain(), Chain()]
    depths: list[list[int]] = [[0] * len(members), [0] * len(members)]
    for i, one in enumerate(used):
        names = [own.get(one.name) for own in parts]
        levels = [name for name in (None, *one.levels) if name in names]
        trees[i], depths[i] = _chain(one, levels), [*map(levels.index, names)]
    matrix_rows = 1000  # the most rows of the matrices of two trees
    if min(map(matrix_size, trees)) > matrix_rows:
        raise PlanError(
            f"consistency: both hierarchies have more than {matrix_rows} places above "
            "their lowest level, and their matrices would be too large; measure at fewer levels"
        )
    placed = [
        replace(member, at=at, turned=len(own) > 1 and next(iter(own)) != used[0].name)
        for member, own, at in zip(members, parts, zip(*depths, strict=True), strict=True)
    ]
    axes = dict.fromkeys(axis for member in members for axis in member.axes)
    return Family(
        tuple(placed),
        tuple(axis for axis in axes if axis not in alike),
        tuple(axis for axis in axes if axis in alike),
        sizes,
        (trees[0], trees[1]),
        signed,
    )


def _chain(hierarchy: Hierarchy, levels: Sequence[str | None]) -> Chain:
    """Return the tree of some levels of a hierarchy. The level None is one place above all."""
    parents = [
        np.zeros(len(hierarchy.paths(lower)), np.int64)
        if upper is None
        else hierarchy.parents(lower, upper)
        for upper, lower in pairwise(levels)
        if lower is not None
    ]
    top = levels[0]
    return Chain(1 if top is None else len(hierarchy.paths(top)), tuple(parents))
