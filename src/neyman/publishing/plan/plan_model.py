"""Represent a plan whose names are resolved, and the integer tables that it publishes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, Self

import numpy as np

from neyman.accounting.semantics.budget import PlanBudget
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.column import Column
from neyman.publishing.plan.derived import NO_ROWS, Rows
from neyman.publishing.plan.disjoint import Sets, largest_sets
from neyman.publishing.plan.field_types import suggest
from neyman.publishing.plan.hierarchy import Hierarchy, is_above, parts_of, places_of
from neyman.publishing.plan.measurement import Cases, Entry, rate_of
from neyman.publishing.plan.plan_fields import (
    PLAIN_SOURCE,
    ConsistencyMethod,
    CorrectsPart,
    NoiseKind,
    SourcePart,
    UnitPart,
)
from neyman.publishing.plan.query import Query, measures_of, range_of
from neyman.publishing.plan.shifts import Shifts, shifts
from neyman.publishing.plan.tables import PrivateTable, read_by_queries
from neyman.publishing.plan.totals import Total


@dataclass(frozen=True, init=False, repr=False)
class PlanModel:
    """Represent a plan's sections, its integer tables, and how far one unit can move each table."""

    name: str
    dataset: str
    table: str
    unit: UnitPart
    budget: PlanBudget
    columns: tuple[Column, ...]
    hierarchies: tuple[Hierarchy, ...]
    queries: tuple[Query, ...]
    part: str | None = None
    most_rows: int | None = None
    consistency: ConsistencyMethod | None = None
    source: SourcePart = PLAIN_SOURCE
    rows: Rows = NO_ROWS
    noise: NoiseKind = "discrete-gaussian"
    tables: tuple[PrivateTable, ...] = ()
    publisher: str | None = None
    corrects: CorrectsPart | None = None
    disjoint: bool = False
    totals: tuple[Total, ...] = ()
    unspent: Fraction = Fraction(0)
    fixed: tuple[Query, ...] = ()  # by the totals: not measured

    @classmethod
    def _of(cls, parts: Mapping[str, Any]) -> Self:
        plan = object.__new__(cls)
        for name, value in parts.items():
            object.__setattr__(plan, name, value)
        return plan

    def changed(self, **parts: object) -> Self:
        """Return the plan with some fields replaced by resolved parts. Check nothing."""
        return self._of({field.name: getattr(self, field.name) for field in fields(self)} | parts)

    @property
    def hierarchy(self) -> Hierarchy | None:
        """Return the plan's hierarchy; None without one.

        Raises:
            ValueError: the plan has several, which ``hierarchies`` lists.
        """
        if len(self.hierarchies) > 1:
            names = [one.name for one in self.hierarchies]
            raise ValueError(f"the plan has the hierarchies {names}; take one from 'hierarchies'")
        return self.hierarchies[0] if self.hierarchies else None

    @property
    def rounded(self) -> bool:
        """Return True if the noise is rounded Gaussian, and False if it is discrete Gaussian."""
        return self.noise == "rounded-gaussian"

    @property
    def has_detail(self) -> bool:
        """Return True if some query has detail: first counts decide how its groups are split."""
        return any(query.detail is not None for query in self.queries)

    def column(self, name: str) -> Column:
        """Return the declared column of that name."""
        return next(column for column in self.columns if column.name == name)

    def query(self, name: str) -> Query:
        """Return the query of that name.

        Raises:
            KeyError: no query has this name.
        """
        for query in self.queries:
            if query.name == name:
                return query
        raise KeyError(
            f"no query {name!r}; {suggest(name, [query.name for query in self.queries])}"
        )

    def further_table(self, name: str | None) -> PrivateTable | None:
        """Return the further private table of that name; None for the plan's table."""
        return next((table for table in self.tables if table.name == name), None)

    def rows_of(self, query: Query) -> int:
        """Return the largest number of rows of one unit that count in a query's table."""
        table = self.further_table(query.table)
        return self.unit.rows if table is None else table.rows

    @property
    def unit_rows(self) -> int:
        """Return the largest number of rows of one unit that count in any one table.

        The ledger stores this number.
        """
        return max((self.unit.rows, *(table.rows for table in self.tables)))

    @property
    def unit_rows_in_all(self) -> int:
        """Return the largest number of rows of one unit that count in all tables together."""
        return sum((self.unit.rows, *(table.rows for table in self.tables)))

    def table_plans(self) -> tuple[Self, ...]:
        """Return one plan per table, with the queries that read this table [UN-8].

        A plan of one table stays unchanged. Otherwise each plan leaves out the other tables, with
        their queries and filters, and its unit has the table's id and rows.
        """
        if not self.tables:
            return (self,)
        plans: list[Self] = []
        for table in (None, *self.tables):
            name = None if table is None else table.name
            queries = [query for query in self.queries if query.table == name]
            if not queries:
                continue
            where, own = self.rows.where, dict[str, Any]()
            if table is not None:
                unit = self.unit.model_copy(update={"id": table.id, "rows": table.rows})
                where, own = None, {"table": table.name, "unit": unit}
            rows = read_by_queries(self.rows, queries, where, self.hierarchies)
            alone = tuple(replace(query, table=None) for query in queries)
            plans.append(self.changed(queries=alone, rows=rows, tables=(), **own))
        return tuple(plans)

    def key_columns(self, query: Query, level: str) -> tuple[str, ...]:
        """Return a table's key columns: the levels from the top to its own, then ``by``."""
        parts = self.parts(level)
        above = (name for one, low in parts for name in one.levels[: one.depth(low) + 1])
        return (*above, *query.by)

    def parts(self, level: str) -> tuple[tuple[Hierarchy, str], ...]:
        """Return the hierarchies that a level combines, each with its own level."""
        return parts_of(self.hierarchies, level)

    def finest(self, query: Query) -> str:
        """Return the level of a query's finest table, which has all others as margins [UN-13]."""
        return next(
            low
            for low in query.levels
            if all(is_above(self.hierarchies, up, low) for up in query.levels)
        )

    def shape(self, query: Query, level: str) -> tuple[int, ...]:
        """Return a table's shape: places (1 without levels), keys of each ``by``, then bins if any.

        For several hierarchies, the places are combinations, with the last hierarchy fastest. A
        column with unknown keys has 0 keys.
        """
        places = places_of(self.hierarchies, level)
        bins = (len(query.bins) - 1,) if query.bins else ()
        return (places, *(len(self.column(name).keys) for name in query.by), *bins)

    def cells(self, query: Query, level: str) -> int:
        """Return the number of integers in a table. A drawn quantile is one integer.

        If first counts decide on the detail of groups, assume that all groups have the level with
        the most cells.
        """
        if query.detail is not None and query.detail.level is None:
            return self.groups(query, level) * max(self.detail_sizes(query))
        shape = self.shape(query, level)
        if query.inverse_sensitivity:
            shape = (*shape[:-1], len(query.draws))
        return math.prod(shape)

    def groups(self, query: Query, level: str) -> int:
        """Return the number of groups of a table with detail: places times keys of ``group_by``."""
        return math.prod(self.shape(query, level)[: 1 + len(query.group_by)])

    def detail_sizes(self, query: Query) -> tuple[int, ...]:
        """Return the number of cells of a group at each level of detail."""
        levels = () if query.detail is None else query.detail.levels
        return tuple(math.prod(len(self.column(name).keys) for name in names) for names in levels)

    def entries(self) -> tuple[Entry, ...]:
        """Return every table of integers that the plan publishes, in declared order."""
        return self._entries

    @cached_property
    def _entries(self) -> tuple[Entry, ...]:
        """Return the tables, with their shares divided by the worst case's total share [UN-11]."""
        worst = self._worst_total
        return tuple(
            replace(entry, share=entry.share / worst) for entry in self._declared_entries()
        )

    @cached_property
    def _worst_total(self) -> Fraction:
        """Return the total share, of the worst case if queries are disjoint, with what is unspent.

        If queries are disjoint, a case is a set of tables that a change of one unit moves together.
        """
        if len(self.row_sets) == 1:
            return Fraction(1)
        return self._worst_share(self._declared_entries()) + self._unspent_share

    @property
    def _unspent_share(self) -> Fraction:
        """Return the share of a query of all rows that declares what is unspent as its share."""
        search = self.unit.search
        return self.unspent * (1 - (search.share if search else 0))

    @property
    def left(self) -> Fraction:
        """Return the part of the budget that the tables leave."""
        return self._unspent_share / self._worst_total

    def rest(self, scale: Fraction) -> Mechanism:
        """Return the Gaussian release that would take what the tables leave, at 1/rho = ``scale``.

        The noise is that of a plan with this release, which nobody makes.
        """
        if not self.left:
            return Mechanism.nothing()
        return Gaussian(sigma=1, sensitivity=rate_of(scale / (2 * self.left)))

    def with_partitions(self, partitions: Sequence[frozenset[str]]) -> Self:
        """Return the plan in which the worst case of a partition spends the partition's share.

        With what is unspent, the shares still sum to 1. Under add-remove, the largest part gets the
        whole share [UN-11].

        Args:
            partitions: the names of the queries of each partition. Their shares sum to its share.
        """
        factors: dict[str, Fraction] = {}
        entries = self._declared_entries()
        for names in partitions:
            own = [entry for entry in entries if entry.query in names]
            worst = self._worst_share(own)
            share = sum((entry.share for entry in own), Fraction(0))
            factors |= dict.fromkeys(names, share / worst if worst else Fraction(1))
        shares = {one.name: one.share * factors.get(one.name, 1) for one in self.queries}
        total = sum(shares.values(), self._unspent_share) or Fraction(1)
        queries = tuple(replace(one, share=shares[one.name] / total) for one in self.queries)
        return self.changed(queries=queries, unspent=self.unspent / total) if factors else self

    def _worst_share(self, entries: Sequence[Entry]) -> Fraction:
        """Return the largest sum of the shares of tables that a change of one unit moves."""
        cases = self.cases_of(entries, crossing=self.unit.neighboring == "replace-one")
        return max(sum((entry.share for entry in case), Fraction(0)) for case in cases)

    @cached_property
    def row_sets(self) -> Sets:
        """Return the maximal sets of queries that may count the same unit.

        Return one set of all queries if ``disjoint`` is off or does not apply, or nothing is
        proved.
        """
        every = (frozenset(query.name for query in self.queries),)
        discovers = any(query.delta is not None for query in self.queries)
        if not self.disjoint or self.unit.id is not None or discovers:
            return every  # each filter bounds the rows of one id by itself
        filters = {
            query.name: None if query.where is None else self.rows.filter(query.where)
            for query in self.queries
        }
        return largest_sets(filters) or every

    @cached_property
    def cases(self) -> Cases:
        """Return, for each case of a change of one unit, the tables that it can move [UN-11]."""
        return self.cases_of(self.entries(), crossing=self.unit.neighboring == "replace-one")

    def cases_of(self, entries: Iterable[Entry], *, crossing: bool) -> Cases:
        """Return `every_case` of these entries, but only one of the cases with equal noise."""
        cases: dict[object, tuple[Entry, ...]] = {}
        for case in self.every_case(entries, crossing=crossing):
            noise = Counter(replace(entry, query="", level="", cells=None) for entry in case)
            cases.setdefault(frozenset(noise.items()), case)
        return tuple(cases.values())

    def every_case(
        self, entries: Iterable[Entry], *, crossing: bool
    ) -> Iterator[tuple[Entry, ...]]:
        """Yield, for each case of a change of one unit, the entries that move together.

        A case is a set of queries that count the unit before the change, and a set that count it
        after. The sets are equal unless ``crossing``.
        """
        sets = self.row_sets
        if len(sets) == 1:
            yield tuple(entries)
            return
        own: dict[str, list[Entry]] = {}
        for entry in entries:
            own.setdefault(entry.query, []).append(entry)
        one_way = {name: [*map(self._one_way, each)] for name, each in own.items()}
        pairs = combinations_with_replacement(sets, 2) if crossing else zip(sets, sets, strict=True)
        for before, after in pairs:
            both, union = before & after, before | after
            parts = ((own if name in both else one_way)[name] for name in own if name in union)
            yield tuple(entry for part in parts for entry in part)

    def _one_way(self, entry: Entry) -> Entry:
        """Return the entry for a change in which a unit only leaves or only enters the table.

        Its share falls in proportion to its squared shift, so the noise stays the same.
        """
        query = self.query(entry.query)
        moved = entry.moved(self.shifts(query, entry.level, entry.measure, relation="add-remove"))
        return replace(moved, share=entry.share * moved.squared / (entry.squared or 1))

    def _declared_entries(self) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for query in self.queries:
            split, public = dict(query.split), dict(query.public)
            by_rows = self.unit.search is not None and not query.searched
            for level in query.levels:
                cells = None if query.delta is not None else self.cells(query, level)
                if level in public:
                    entries.append(
                        Entry(query.name, level, "count", cells, Fraction(0), (), public[level])
                    )
                    continue
                parts = measures_of(query)
                for measure in parts:
                    shifts = self.shifts(query, level, measure)
                    draws = len(query.draws) if query.inverse_sensitivity else 1
                    selection = measure == "keys"
                    entry = Entry(
                        query.name,
                        level,
                        measure,
                        cells,
                        query.share * split[level] / len(parts),
                        shifts.vectors,
                        squared=draws * shifts.squared,
                        draws=draws,
                        keys=self._groups_of_unit(query) if selection else 0,
                        delta=query.delta if selection else None,
                        relation=self.unit.neighboring if selection else "any",
                        rounded=self.rounded and not query.inverse_sensitivity,
                        searched=by_rows or (query.search is not None and measure != "count"),
                    )
                    entries.append(entry)
        return tuple(entries)

    def with_clips(self, clips: Mapping[str, tuple[int, int]]) -> Self:
        """Return a copy of the plan with fixed clips instead of discovered clips.

        Args:
            clips: a dict from the name of a query with a discovered clip to its scaled clip. For
                `ROWS_TABLE`, the high end is the number of rows of a unit.
        """
        unit = self.unit
        if ROWS_TABLE in clips:
            unit = unit.model_copy(update={"rows": clips[ROWS_TABLE][1]})
        queries = (
            replace(query, clip=clips[query.name]) if query.name in clips else query
            for query in self.queries
        )
        return self.changed(queries=tuple(queries), unit=unit)

    def shifts(
        self, query: Query, level: str, measure: str, *, relation: Neighboring | None = None
    ) -> Shifts:
        """Return how far a change of all rows of one unit can move one table.

        Args:
            query, level, measure: the table, as in its `Entry`.
            relation: the neighboring relation to use instead of the plan's.
        """
        own = rows = self.rows_of(query)
        groups, rows_per_group, finer = query.groups, query.rows_per_group, 1
        if measure == "rows":
            rows, groups, rows_per_group = 1, None, 1
        elif measure in ("units", "keys"):
            rows, groups, rows_per_group = self._groups_of_unit(query), None, 1
        elif rows > 1:
            finer = self._finer(query, level)
        low, high = range_of(query, measure)
        shape = self.shape(query, level)
        known = math.prod(shape[:-1] if query.inverse_sensitivity else shape)
        if query.detail is not None:
            known = self.groups(query, level)
        return shifts(
            cells=known if query.delta is None else 2 * own,
            neighboring=relation or self.unit.neighboring,
            low=low,
            high=high,
            rows=rows,
            groups=groups,
            rows_per_group=rows_per_group,
            finer=finer,
            apart=query.detail is not None,
        )

    def _finer(self, query: Query, level: str) -> int:
        """Return the largest number of the query's finest-level places in a place of ``level``."""
        above = {one.name: name for one, name in self.parts(level)}
        return math.prod(
            int(np.bincount(one.parents(low, above[one.name])).max())
            if one.name in above
            else len(one.paths(low))
            for one, low in self.parts(self.finest(query))
        )

    def _groups_of_unit(self, query: Query) -> int:
        """Return the largest number of cells, or unknown keys, with rows of one unit."""
        rows = self.rows_of(query)
        return min(rows, query.groups or rows)
