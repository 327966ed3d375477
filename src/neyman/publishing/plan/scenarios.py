"""What a plan reveals about some attributes of one record: which tables can move, and by how much.

A scenario compares two datasets in which one record differs in the named attributes alone. It is
replace-one, restricted, whatever relation the plan has: under add-remove too the record is in both.
AT-1 proves the shifts. A derived column changes where a column that it is computed from does, and a
filter that reads a changed column can drop the row from a table, or add it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.choice import Alternatives
from neyman.mechanisms.full_disclosure import NonPrivate
from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.document import suggest
from neyman.publishing.plan.hierarchy import Hierarchy
from neyman.publishing.plan.measurement import Entry, together
from neyman.publishing.plan.plan_model import PlanModel
from neyman.publishing.plan.query import ALL, Query, range_of
from neyman.publishing.plan.shifts import Shifts, maximal
from neyman.publishing.plan.totals import held

Scenario = tuple[tuple[str, ...], str | None]
"""The attributes that change, and the level that their places stay within."""


@dataclass(frozen=True)
class _Change:
    """What is free to change: columns, and the place below a depth (-1: to anywhere; None: not).

    The columns are those of the data, with the derived ones that they change; and levels that
    expressions read. Those that are held may change among values of one key.
    """

    columns: frozenset[str]
    below: int | None
    held: frozenset[str] = frozenset()


def concerning(
    plan: PlanModel, attributes: tuple[str, ...], within: str | None, scale: Fraction
) -> Mechanism:
    """The part of a plan that a change of these attributes can move, at 1/rho of the whole plan.

    A change that can move an exact total is revealed: `NonPrivate`. Where the change can move a
    record from one of disjoint queries to another, both move [UN-11].
    """
    change = _change(plan, attributes, within)
    if _moves_total(plan, change):
        return NonPrivate()
    noise = {_table(e): e.sigma_squared(scale) for e in plan.entries() if e.public is None}
    crossing = any(not _filter_columns(plan, q).isdisjoint(change.columns) for q in plan.queries)
    cases = plan.cases_of(moved_most(plan, attributes, within), crossing=crossing)
    return Alternatives.of(together([(e, noise[_table(e)]) for e in case]) for case in cases)


def moved_most(plan: PlanModel, attributes: tuple[str, ...], within: str | None) -> Iterator[Entry]:
    """The entries that can move, for every number of rows that a histogram can lead to [UN-9].

    Noise is proportional to the plan's shift. So what counts is the ratio of the squared shifts,
    and each entry has the largest ratio of all candidates, as a shift of the largest one.
    """
    entries = moved(plan, attributes, within)
    search = plan.unit.search
    squares = {_table(entry): entry.squared for entry in entries}
    own = {_table(entry): entry.squared for entry in plan.entries()}
    for exponent in range(search.most if search is not None else 0):
        smaller = plan.with_clips({ROWS_TABLE: (0, 2**exponent)})
        most = {_table(entry): entry.squared for entry in smaller.entries()}
        for entry in moved(smaller, attributes, within):
            table = _table(entry)
            if most[table]:
                ratio = Fraction(entry.squared, most[table])
                squares[table] = max(squares[table], math.ceil(ratio * own[table]))
    return (replace(entry, squared=squares[_table(entry)]) for entry in entries)


def _table(entry: Entry) -> tuple[str, str, str]:
    return entry.query, entry.level, entry.measure


def moved(
    plan: PlanModel, attributes: tuple[str, ...], within: str | None = None
) -> tuple[Entry, ...]:
    """The entries whose tables a change of these attributes can move, with the shifts it can cause.

    Args:
        attributes: columns of the plan, levels of its hierarchy, or the hierarchy by its name.
        within: the level whose place stays; all the levels that are named lie below it.

    Returns:
        In declared order. Each entry's ``shifts`` are the maximal ones of this change alone.

    Raises:
        ValueError: no attribute, one that the plan does not have, a lower level without ``within``,
            or a ``within`` that is no level above.
    """
    change = _change(plan, attributes, within)
    if plan.unit.id is not None:
        if not _read(plan, change):
            return ()
        change = _any_change(plan)
    pairs = ((entry, _shifts(plan, entry, change)) for entry in plan.entries())
    return tuple(entry.moved(shifts) for entry, shifts in pairs if shifts is not None)


def moves_total(plan: PlanModel, attributes: tuple[str, ...], within: str | None = None) -> bool:
    """Return True if a change of these attributes can move a declared total."""
    return _moves_total(plan, _change(plan, attributes, within))


def keeping_totals(plan: PlanModel, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries as they are moved by every change of one row that moves no total [UN-14]."""
    change = _keeping(plan)
    still = Shifts((), 0)
    return tuple(entry.moved(_shifts(plan, entry, change) or still) for entry in entries)


def unmoved(plan: PlanModel) -> Iterator[str]:
    """Give a problem for each table that no change moves if all totals are kept.

    It would have no noise. Then a run would compute exact numbers from private rows.
    """
    if not plan.totals:
        return
    for entry in plan.entries():
        if entry.public is None and not entry.squared:
            yield (
                f"query {entry.query!r} at {entry.level!r}: no change of one row that keeps the "
                f"totals by {'; '.join(total.name for total in plan.totals)} moves its "
                f"{entry.measure}, so it would be published without noise; leave it out, or "
                "declare it in [[totals]] if it is public (in place of a mean, ask for a sum)"
            )


def usual(plan: PlanModel) -> tuple[Scenario, ...]:
    """The scenarios that a report shows: each column, and each level within the one above.

    The top level is one of them if it has several places. What no query reads is left out.
    """
    scenarios: list[Scenario] = [
        ((name,), None) for name in _attributes(plan) if _read(plan, _widened(plan, {name}, None))
    ]
    levels = plan.hierarchy.levels if plan.hierarchy else ()
    for depth, level in enumerate(levels):
        if _read(plan, _widened(plan, set(), depth - 1)) and _several(plan.hierarchy, depth, -1):
            scenarios.append(((level,), levels[depth - 1] if depth else None))
    return tuple(scenarios)


def _any_change(plan: PlanModel) -> _Change:
    """Return a change of everything in a record."""
    everything = {column.name for column in plan.columns}
    everything |= {name for name, _ in plan.rows.readings}
    return _widened(plan, everything, -1 if plan.hierarchy else None)


def _keeping(plan: PlanModel) -> _Change:
    """Return a change of everything in a record but its cell in each table of totals.

    A value may become another one that counts in the same cell: an unlisted one. So whatever reads
    the values themselves may change.
    """
    level, columns = held(plan.totals, plan.hierarchy)
    change = replace(_any_change(plan), held=columns)
    if level is None or plan.hierarchy is None:
        return change
    return replace(change, below=plan.hierarchy.depth(level))


def _moves_total(plan: PlanModel, change: _Change) -> bool:
    """Return True if a change can move the row to another cell of a table of totals."""
    return any(_relocates(plan, total.columns, total.level, change) for total in plan.totals)


def _shifts(plan: PlanModel, entry: Entry, change: _Change) -> Shifts | None:
    """The maximal shifts of one table when one unit changes so; none if it cannot move [AT-1]."""
    if entry.public is not None:
        return None
    query = plan.query(entry.query)
    moves, vanishes = _moves(plan, query, entry, change), _vanishes(plan, query, entry, change)
    low, high = range_of(query, entry.measure)
    varies = low < high and query.measured(entry.measure)[0] in change.columns
    if not (moves or vanishes or varies):
        return None
    if plan.rows_of(query) > 1:
        return plan.shifts(query, entry.level, entry.measure, relation="replace-one")
    most = max(abs(low), abs(high))
    possible = (((most, most), moves), ((most,), vanishes), ((high - low,), varies))
    vectors = maximal(vector for vector, happens in possible if happens)
    return Shifts(vectors, max(sum(x * x for x in vector) for vector in vectors))


def _moves(plan: PlanModel, query: Query, entry: Entry, change: _Change) -> bool:
    """Return True if the cell of a record can become another."""
    if _relocates(plan, query.by, entry.level, change):
        return True
    several_bins = len(query.bins or ()) > 2 and not query.inverse_sensitivity
    return several_bins and query.measured(entry.measure)[0] in change.columns


def _relocates(plan: PlanModel, by: Iterable[str], level: str, change: _Change) -> bool:
    """Return True if the place or the key of a column can become another."""
    free = [plan.column(name) for name in by if name in change.columns - change.held]
    if any(len(column.keys) > 1 or column.discover for column in free):
        return True
    if plan.hierarchy is None or level == ALL or change.below is None:
        return False
    at = plan.hierarchy.depth(level)
    return at > change.below and _several(plan.hierarchy, at, change.below)


def _vanishes(plan: PlanModel, query: Query, entry: Entry, change: _Change) -> bool:
    """Return True if the cell of a record can become none."""
    if any(plan.column(name).unknown is None for name in query.by if name in change.columns):
        return True
    # Another value may be the only one of its kind in the cell, or the cell may lose its last one.
    if entry.measure == "distinct" and query.measured(entry.measure)[0] in change.columns:
        return True
    # A row that loses its number takes no part: it leaves the count of a mean as well [UN-10].
    deciding = {*query.required(entry.measure), *_filter_columns(plan, query)}
    if not change.columns.isdisjoint(deciding):
        return True
    if plan.hierarchy is None or entry.level == ALL or change.below is None:
        return False
    return change.below < 0 and plan.hierarchy.unknown is None


def _several(hierarchy: Hierarchy | None, lower: int, upper: int) -> bool:
    """Whether some place at one depth (-1: everything) contains several at another."""
    if hierarchy is None:
        return False
    above = len(hierarchy.paths(hierarchy.levels[upper])) if upper >= 0 else 1
    return len(hierarchy.paths(hierarchy.levels[lower])) > above


def _attributes(plan: PlanModel) -> list[str]:
    """The columns of the data that the plan declares, in order."""
    names = [column.name for column in plan.columns if column.name not in plan.rows.names]
    return [*names, *(name for name, _ in plan.rows.types)]


def _widened(plan: PlanModel, columns: set[str], below: int | None) -> _Change:
    """A change of columns and places, with all that is derived from them."""
    changed = set(plan.rows.following(plan.rows.bases(columns)))
    hierarchy = plan.hierarchy
    if hierarchy is None:
        return _Change(frozenset(changed), None)
    if not changed.isdisjoint(hierarchy.levels):
        below = -1
    if below is not None:
        # Unlisted places that count as a listed one may differ on each level.
        first = below + 1 if hierarchy.unknown is None else 0
        changed = set(plan.rows.following({*changed, *hierarchy.levels[first:]}))
        if any(level in plan.rows.names for level in changed.intersection(hierarchy.levels)):
            below = -1
    return _Change(frozenset(changed), below)


def _filter_columns(plan: PlanModel, query: Query) -> frozenset[str]:
    """The columns that decide whether a query takes a row."""
    return plan.rows.read_by(plan.rows.where) | plan.rows.read_by(query.where)


def _read(plan: PlanModel, change: _Change) -> bool:
    """Whether what the plan reads of a row can differ after the change."""
    if any(not _filter_columns(plan, q).isdisjoint(change.columns) for q in plan.queries):
        return True
    by = {name for query in plan.queries for name in query.by} & change.columns
    if any(len(c.keys) > 1 or c.unknown is None for c in map(plan.column, by)):
        return True
    if any(not change.columns.isdisjoint(query.columns) for query in plan.queries):
        return True
    if plan.hierarchy is None or change.below is None or not any(q.at for q in plan.queries):
        return False
    lowest = len(plan.hierarchy.levels) - 1
    drops = change.below < 0 and plan.hierarchy.unknown is None
    return drops or _several(plan.hierarchy, lowest, change.below)


# ---- what is asked ----------------------------------------------------------------------------


def _change(plan: PlanModel, attributes: tuple[str, ...], within: str | None) -> _Change:
    if not attributes:
        raise ValueError(f"attributes: name at least one; {suggest('', _known(plan))}")
    columns = {*_attributes(plan), *(column.name for column in plan.columns)}
    hierarchy = plan.hierarchy
    places: list[int] = []
    for name in attributes:
        if name in columns:
            continue
        if hierarchy and name in hierarchy.levels:
            places.append(hierarchy.depth(name))
        elif hierarchy and name == hierarchy.name:
            places.append(len(hierarchy.levels) - 1 if within is not None else 0)
        else:
            raise ValueError(
                f"attribute {name!r}: the plan has no such column or level; "
                f"{suggest(name, _known(plan))}"
            )
    named = frozenset(columns & set(attributes))
    if hierarchy is None or not places:
        if within is not None:
            raise ValueError(
                f"within = {within!r}: no attribute is a level of a hierarchy; "
                + (
                    f"name one below it, of {list(hierarchy.levels)}, or leave within out"
                    if hierarchy
                    else "the plan has none; leave within out"
                )
            )
        return _widened(plan, set(named), None)
    return _widened(plan, set(named), _below(hierarchy, min(places), within))


def _below(hierarchy: Hierarchy, highest: int, within: str | None) -> int:
    """The depth of what stays, for places that change from a depth on down."""
    level, above = hierarchy.levels[highest], hierarchy.levels[:highest]
    choice = " or ".join(f"within = {name!r}" for name in above)
    if within is None:
        if above:
            raise ValueError(
                f"attribute {level!r} is a level of the hierarchy {hierarchy.name!r}: say what it "
                f"stays within, {choice}; or name {hierarchy.levels[0]!r}, the top level, for a "
                "change to anywhere"
            )
        return -1
    if within not in above:
        right = f"must be {choice}" if above else "is not possible: nothing is above; leave it out"
        raise ValueError(f"within = {within!r} for the attribute {level!r} {right}")
    return hierarchy.depth(within)


def _known(plan: PlanModel) -> Iterator[str]:
    yield from _attributes(plan)
    yield from plan.hierarchy.levels if plan.hierarchy else ()
