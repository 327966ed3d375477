"""Derive what a plan reveals about some attributes of one record: which tables move, and how far.

A scenario compares two datasets in which one record differs in the named attributes alone. This is
a restricted replace-one relation, even if the plan has add-remove. AT-1 proves the shifts. A
derived column changes if a source column changes. A filter that reads a changed column can drop the
row from a table, or add it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.choice import Alternatives
from neyman.mechanisms.full_disclosure import NonPrivate
from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.field_types import suggest
from neyman.publishing.plan.hierarchy import CROSSED, Hierarchy
from neyman.publishing.plan.measurement import Entry, together
from neyman.publishing.plan.measures import Distinct
from neyman.publishing.plan.plan_model import PlanModel
from neyman.publishing.plan.query import Query, range_of
from neyman.publishing.plan.shifts import Shifts, maximal
from neyman.publishing.plan.totals import held

Scenario = tuple[tuple[str, ...], str | None]
"""The attributes that change, and the level within which their places stay."""


@dataclass(frozen=True)
class _Change:
    """Describe what may change in a record.

    Args:
        columns: the columns, the derived columns that change with them, and the changed levels that
            expressions read.
        below: for each hierarchy whose places change, the depth of the level whose place stays; -1
            if no place stays.
        held: columns that keep their key. Their value may become another value of this key.
    """

    columns: frozenset[str]
    below: Mapping[str, int]
    held: frozenset[str] = frozenset()

    def moves(self, hierarchy: Hierarchy, level: str) -> bool:
        """Return True if the record's place at ``level`` can become another place."""
        at, below = hierarchy.depth(level), self.below.get(hierarchy.name)
        return below is not None and at > below and _several(hierarchy, at, below)

    def loses(self, hierarchy: Hierarchy) -> bool:
        """Return True if a row's place can become an unlisted one, which drops the row."""
        return self.below.get(hierarchy.name, 0) < 0 and hierarchy.unknown is None


def concerning(
    plan: PlanModel, attributes: tuple[str, ...], within: str | None, scale: Fraction
) -> Mechanism:
    """Return the mechanism of the tables that a change of these attributes can move.

    The noise is the noise of the whole plan, with 1/rho = ``scale``. If the change can move an
    exact total, the total reveals it: return `NonPrivate`. If the change can move a record from one
    of disjoint queries to another, both queries move [UN-11].
    """
    change = _change(plan, attributes, within)
    if _moves_total(plan, change):
        return NonPrivate()
    noise = {_table(e): e.sigma_squared(scale) for e in plan.entries() if e.public is None}
    crossing = any(not _filter_columns(plan, q).isdisjoint(change.columns) for q in plan.queries)
    cases = plan.cases_of(moved_most(plan, attributes, within), crossing=crossing)
    return Alternatives.of(together([(e, noise[_table(e)]) for e in case]) for case in cases)


def moved_most(plan: PlanModel, attributes: tuple[str, ...], within: str | None) -> Iterator[Entry]:
    """Return the entries of `moved` for the worst number of rows per unit that a run can discover.

    Noise variance is proportional to the plan's squared shift. So only the ratio of the change's
    squared shift to it matters. Each entry gets the largest ratio of all candidates, expressed as a
    squared shift for the largest candidate [UN-9].
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
    """Return the tables that a change of these attributes can move, with the possible shifts.

    Args:
        attributes: columns of the plan, levels of its hierarchies, or a hierarchy by its name.
        within: the level whose place stays, above all named levels of its hierarchy. For several
            hierarchies, a level of each, as in "state x sector".

    Returns:
        Entries in declared order. Each entry's ``shifts`` are the maximal ones of this change
        alone.

    Raises:
        ValueError: an attribute is missing or unknown, a lower level has no ``within``, or
            ``within`` is not a level above.
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
    """Return the entries, with shifts only from one-row changes that move no total [UN-14]."""
    change = _change_within_totals(plan)
    still = Shifts((), 0)
    return tuple(entry.moved(_shifts(plan, entry, change) or still) for entry in entries)


def unmoved(plan: PlanModel) -> Iterator[str]:
    """Yield an error for each table that no change moves if all totals stay.

    Such a table would have no noise, so a run would publish exact numbers from private rows.
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
    """Return the scenarios that a report shows.

    Each changes one column of a record, or its place at one level of a hierarchy within a fixed
    place of the level above (a county within its state). The top level is included if it has
    several places. Attributes are left out if no query or exact total reads them.
    """
    changes: list[tuple[Scenario, _Change]] = [
        (((name,), None), _widen_change(plan, {name}, {})) for name in _attributes(plan)
    ]
    for one in plan.hierarchies:
        for depth, level in enumerate(one.levels):
            if _several(one, depth, -1):
                within = one.levels[depth - 1] if depth else None
                change = _widen_change(plan, set(), {one.name: depth - 1})
                changes.append((((level,), within), change))
    return tuple(
        scenario
        for scenario, change in changes
        if _read(plan, change) or _moves_total(plan, change)
    )


def _any_change(plan: PlanModel) -> _Change:
    """Return the change in which everything in a record may change."""
    everything = {column.name for column in plan.columns}
    everything |= {name for name, _ in plan.rows.readings}
    return _widen_change(plan, everything, {one.name: -1 for one in plan.hierarchies})


def _change_within_totals(plan: PlanModel) -> _Change:
    """Return the change of everything in a record except its cell in each table of totals.

    A value may become another value that counts in the same cell, such as an unlisted one. So
    everything that reads the values themselves may change.
    """
    level, columns = held(plan.totals, plan.hierarchy)
    change = replace(_any_change(plan), held=columns)
    if level is None or plan.hierarchy is None:
        return change
    return replace(change, below={plan.hierarchy.name: plan.hierarchy.depth(level)})


def _moves_total(plan: PlanModel, change: _Change) -> bool:
    """Return True if a change can move the row to another cell of a table of totals."""
    return any(_relocates(plan, total.columns, total.level, change) for total in plan.totals)


def _shifts(plan: PlanModel, entry: Entry, change: _Change) -> Shifts | None:
    """Return one table's maximal shifts under a change; None if it cannot move [AT-1]."""
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
    """Return True if a record can move to another cell of the table."""
    if _relocates(plan, query.by, entry.level, change):
        return True
    several_bins = len(query.bins or ()) > 2 and not query.inverse_sensitivity
    return several_bins and query.measured(entry.measure)[0] in change.columns


def _relocates(plan: PlanModel, by: Iterable[str], level: str, change: _Change) -> bool:
    """Return True if the change can move a record to another place at ``level``, or another key."""
    free = [plan.column(name) for name in by if name in change.columns - change.held]
    if any(len(column.keys) > 1 or column.discover for column in free):
        return True
    return any(change.moves(one, own) for one, own in plan.parts(level))


def _vanishes(plan: PlanModel, query: Query, entry: Entry, change: _Change) -> bool:
    """Return True if the change can move a record out of every cell of the query."""
    if any(plan.column(name).unknown is None for name in query.by if name in change.columns):
        return True
    # The new value may be the only one of its kind in the cell, or the old one may have been.
    if entry.measure in Distinct.tables and query.measured(entry.measure)[0] in change.columns:
        return True
    # A row without its number takes no part. So it also leaves the count of a mean [UN-10].
    deciding = {*query.required(entry.measure), *_filter_columns(plan, query)}
    if not change.columns.isdisjoint(deciding):
        return True
    # At each level, a query counts the rows with a place in its finest table.
    return any(change.loses(one) for one, _ in plan.parts(plan.finest(query)))


def _several(hierarchy: Hierarchy, lower: int, upper: int) -> bool:
    """Return True if a place at depth ``upper`` contains several places at depth ``lower``.

    If ``upper`` is -1, it stands for one place that contains all others.
    """
    above = len(hierarchy.paths(hierarchy.levels[upper])) if upper >= 0 else 1
    return len(hierarchy.paths(hierarchy.levels[lower])) > above


def _attributes(plan: PlanModel) -> list[str]:
    """Return the columns of the data that the plan declares, in order."""
    names = [column.name for column in plan.columns if column.name not in plan.rows.names]
    return [*names, *(name for name, _ in plan.rows.types)]


def _widen_change(plan: PlanModel, columns: set[str], below: Mapping[str, int]) -> _Change:
    """Return the change of these columns and places, and of everything derived from them."""
    changed = set(plan.rows.following(plan.rows.bases(columns)))
    places = dict(below)
    for one in plan.hierarchies:
        if not changed.isdisjoint(one.levels):
            places[one.name] = -1
    before = None
    while before != (changed, places):  # a derived level may be in another hierarchy
        before = set(changed), dict(places)
        for one in plan.hierarchies:
            if one.name in places:
                # Unlisted places that count as a listed one may differ on each level.
                first = places[one.name] + 1 if one.unknown is None else 0
                changed = set(plan.rows.following({*changed, *one.levels[first:]}))
        for one in plan.hierarchies:
            if any(level in plan.rows.names for level in changed.intersection(one.levels)):
                places[one.name] = -1
    return _Change(frozenset(changed), places)


def _filter_columns(plan: PlanModel, query: Query) -> frozenset[str]:
    """Return the columns that decide whether a query takes a row."""
    return plan.rows.read_by(plan.rows.where) | plan.rows.read_by(query.where)


def _read(plan: PlanModel, change: _Change) -> bool:
    """Return True if the change can alter something that the plan reads of a row."""
    if any(not _filter_columns(plan, q).isdisjoint(change.columns) for q in plan.queries):
        return True
    by = {name for query in plan.queries for name in query.by} & change.columns
    if any(len(c.keys) > 1 or c.unknown is None for c in map(plan.column, by)):
        return True
    if any(not change.columns.isdisjoint(query.columns) for query in plan.queries):
        return True
    used = [one for query in plan.queries for one, _ in plan.parts(plan.finest(query))]
    return any(change.loses(one) or change.moves(one, one.levels[-1]) for one in used)


# ---- changed attributes ------------------------------------------------------------------------


def _change(plan: PlanModel, attributes: tuple[str, ...], within: str | None) -> _Change:
    if not attributes:
        raise ValueError(f"attributes: name at least one; {suggest('', _known(plan))}")
    columns = {*_attributes(plan), *(column.name for column in plan.columns)}
    named = frozenset(columns & set(attributes))
    stays = _levels_in(plan, within)
    hierarchies = plan.hierarchies
    staying = {one.name: {*stays} & {*one.levels} for one in hierarchies}
    places: dict[str, int] = {}
    for name in dict.fromkeys(attributes):
        if name not in named:
            one, depth = _place_of(plan, name, stays)
            places[one.name] = min(depth, places.get(one.name, depth))
    changing = [one for one in hierarchies if one.name in places]
    levels = [level for one in changing or hierarchies for level in one.levels]
    if stays and not changing:
        right = f"name one below it, of {levels}, or leave within out"
        right = right if levels else "the plan has none; leave within out"
        raise ValueError(f"within = {within!r}: no attribute is a level of a hierarchy; {right}")
    if len(changing) > 1 and not {*stays} <= {*levels}:
        raise ValueError(
            f"within = {within!r}: must be levels of hierarchies whose places change, {levels}, "
            f"such as '{levels[0]}{CROSSED}{changing[1].levels[0]}'"
        )
    below = {
        one.name: _fixed_depth(
            one, places[one.name], staying[one.name] if len(changing) > 1 else stays
        )
        for one in changing
    }
    return _widen_change(plan, set(named), below)


def _place_of(plan: PlanModel, name: str, stays: Collection[str]) -> tuple[Hierarchy, int]:
    """Return the hierarchy of a level, or of this name, and the depth from which places change."""
    for one in plan.hierarchies:
        if name in one.levels:
            return one, one.depth(name)
        if name == one.name:
            own = one.levels if len(plan.hierarchies) > 1 else stays
            return one, 0 if {*stays}.isdisjoint(own) else len(one.levels) - 1
    raise ValueError(
        f"attribute {name!r}: the plan has no such column or level; {suggest(name, _known(plan))}"
    )


def _levels_in(plan: PlanModel, within: str | None) -> tuple[str, ...]:
    """Return the levels that ``within`` combines, as in "state x sector"; itself if no level."""
    if within is None:
        return ()
    try:
        return tuple(name for _, name in plan.parts(within)) or (within,)
    except KeyError:
        return (within,)


def _fixed_depth(hierarchy: Hierarchy, highest: int, stays: Collection[str]) -> int:
    """Return the depth of the lowest level in ``stays``, or -1 if ``stays`` is empty.

    The levels from the depth ``highest`` downward change. The levels in ``stays`` must be above.
    """
    level, above = hierarchy.levels[highest], hierarchy.levels[:highest]
    choice = " or ".join(f"within = {name!r}" for name in above)
    if not stays:
        if above:
            raise ValueError(
                f"attribute {level!r} is a level of the hierarchy {hierarchy.name!r}: say what it "
                f"stays within, {choice}; or name {hierarchy.levels[0]!r}, the top level, for a "
                "change to anywhere"
            )
        return -1
    for within in stays:
        if within not in above:
            right = "is not possible: no level is above it; leave within out"
            right = f"must be {choice}" if above else right
            raise ValueError(f"within = {within!r} for the attribute {level!r} {right}")
    return max(map(hierarchy.depth, stays))


def _known(plan: PlanModel) -> Iterator[str]:
    yield from _attributes(plan)
    yield from (level for one in plan.hierarchies for level in one.levels)
