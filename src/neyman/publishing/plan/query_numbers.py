"""The numbers of one query: clips, edges, quantiles and bounds, scaled, and refused where wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from neyman.accounting.semantics.digits import plain
from neyman.numerics import check
from neyman.publishing.plan.clip_search import MOST_EXPONENT, ClipSearch
from neyman.publishing.plan.document import PlanDocument, QueryPart, show, suggest
from neyman.publishing.plan.measurement import fitting_delta
from neyman.publishing.plan.query import LEVELS, Column, center, middle

__all__ = ["MOST_SUM", "ROWS", "SEARCHES", "Numbers", "clip_search", "numbers_of", "scaled"]

ROWS = 2**31
"""The most rows that a table has, where a plan does not declare it."""

MOST_SUM = 2**62 - 1
"""What a cell can hold before noise."""

MOST_MOVE = 10**12
"""The most that one unit may move a cell: what discrete noise is described for."""

MOST_VALUE = 2**53
"""The largest absolute value of a clip or an edge, scaled: doubles are whole up to there."""

LEAST_DELTA = Fraction(1, 10**300)
"""The least chance for which thresholds are found."""

_SUMS = ("sum", "mean", "variance", "standard_deviation", "ratio")
_BINS = ("histogram", "quantiles", *LEVELS)
_TAKES = {
    "column": (*_SUMS, *_BINS, "distinct"),
    "clip": _SUMS,
    "over": ("ratio",),
    "clip_over": ("ratio",),
    "edges": _BINS,
    "quantiles": ("quantiles",),
    "method": ("quantiles", *LEVELS),
}
_INVERSE_SENSITIVITY = "inverse-sensitivity"
SEARCHES = ("discover", "discover-signed")
"""Clips that follow from a noisy histogram."""


@dataclass(frozen=True)
class Numbers:
    """What a query has: clip and bins, scaled to whole numbers, and what is wrong in words."""

    clip: tuple[int, int] | None
    bins: tuple[int, ...] | range | None
    problems: tuple[str, ...]
    clip_over: tuple[int, int] | None = None


def _takers(part: QueryPart, field: str) -> tuple[str, ...]:
    """The measures that take a field."""
    if part.method == _INVERSE_SENSITIVITY and part.measure in _TAKES["method"]:
        return {"clip": (part.measure,), "edges": ()}.get(field, _TAKES[field])
    return _TAKES[field]


def scaled(value: object, decimals: int) -> int | None:
    """The whole number value * 10^decimals; None where it is none."""
    try:
        number = check.exact("value", value) * 10**decimals
    except (TypeError, ValueError):
        return None
    return int(number) if number.denominator == 1 else None


def numbers_of(
    part: QueryPart,
    where: str,
    name: str,
    document: PlanDocument,
    columns: Mapping[str, Column],
    discovers: bool,
) -> Numbers:
    """The numbers of a query, and every problem with them.

    Args:
        part: the query as written.
        where, name: how errors call it.
        document: the plan that it is of.
        columns: the plan's columns that are right.
        discovers: whether some of its keys are unknown.
    """
    problems = list(_fields(part, where, name, columns, document))
    problems += _bounds(part, where, name, document)
    problems += _discovery(part, where, name, discovers, document)
    column, over = columns.get(part.column or ""), columns.get(part.over or "")
    if problems or column is None or (over is None) != (part.over is None):
        return Numbers(None, None, tuple(problems))
    values = {
        "clip": (part.clip or (), column),
        "edges": (part.edges or (), column),
        "clip_over": (part.clip_over or (), over or column),
    }
    fields: dict[str, tuple[int, ...]] = {}
    for field, (numbers, column) in values.items():
        integers = [scaled(value, column.decimals) for value in numbers]
        spot = f"{where}.{field} {name} = {_list(numbers)}"
        right = (
            f"numbers of at most {column.decimals} decimals" if column.decimals else "whole numbers"
        )
        if None in integers:
            problems.append(f"{spot}: must be {right}, as the column {column.name!r} has")
            continue
        fields[field] = tuple(value for value in integers if value is not None)
        if any(low >= high for low, high in pairwise(fields[field])):
            what = "must rise" if field == "edges" else "the low end must be below the high end"
            problems.append(f"{spot}: {what}")
        elif any(abs(value) > MOST_VALUE for value in fields[field]):
            problems.append(f"{spot}: must be within {_unscaled(MOST_VALUE, column)}")
        elif field == "clip_over" and numbers and numbers[0] < 0:
            problems.append(f"{spot}: the low end must be at least 0, as the sum divides")
    if not problems and part.clip is not None:
        clips: list[tuple[int, int] | None] = []
        for field, numbers in (("clip", part.ends), ("clip_over", part.clip_over)):
            clip = (fields[field][0], fields[field][1]) if numbers is not None else None
            clips.append(clip)
            if clip is not None and numbers is not None and part.method != _INVERSE_SENSITIVITY:
                spot = f"{where}.{field} {name} = {_list(numbers)}"
                problems += _overflow(part, clip, spot, document)
        if part.method == _INVERSE_SENSITIVITY and clips[0] is not None:
            low, high = clips[0]
            return Numbers(clips[0], range(low, high + 2), tuple(problems))
        return Numbers(clips[0], None, tuple(problems), clips[1])
    return Numbers(None, fields.get("edges") or None, tuple(problems))


def clip_search(
    part: QueryPart, where: str, name: str, document: PlanDocument, problems: list[str]
) -> ClipSearch | None:
    """How the clip of a query is searched for; None where it is declared.

    Args:
        part: the query as written.
        where, name: how errors call it.
        document: the plan that it is of.
        problems: where what is wrong goes.
    """
    given = {"clip_share": part.clip_share, "clip_above": part.clip_above}
    if part.clip not in SEARCHES:
        for field, value in given.items():
            if value is not None:
                problems.append(
                    f"{where}.{field} {name} = {show(value)}: is for clip = 'discover'; leave it "
                    "out"
                )
        return None
    spot = f"{where}.clip {name} = {show(part.clip)}"
    if part.measure not in ("sum", "mean"):
        problems.append(f"{spot}: is for a sum or a mean; give {part.measure} clip = [low, high]")
    if part.delta is not None:
        problems.append(f"{spot}: is for listed keys; with delta, give clip = [low, high]")
    if document.noise != "rounded-gaussian":
        problems.append(
            f"{spot}: needs noise = 'rounded-gaussian' in the plan, whose curve is the same for "
            "each clip"
        )
    if document.consistency is not None:
        problems.append(f"{spot}: its tables take no part in [consistency]; leave that out")
    for field, value in given.items():
        if value is not None and value >= 1:
            problems.append(f"{where}.{field} {name} = {show(value)}: must be below 1")
    signed = part.clip == "discover-signed"
    rows = document.most_rows or ROWS
    exponent = MOST_EXPONENT
    moves = (1 + signed) * document.rows_of(part)
    while exponent and (2**exponent * rows > MOST_SUM or 2**exponent * moves > MOST_MOVE):
        exponent -= 1
    share, above = part.clip_share or Fraction(1, 10), part.clip_above or Fraction(1, 100)
    return ClipSearch(f"{part.name}-clip", share, above, signed, exponent)


def _fields(
    part: QueryPart,
    where: str,
    name: str,
    columns: Mapping[str, Column],
    document: PlanDocument,
) -> Iterator[str]:
    how = f" with method = {_INVERSE_SENSITIVITY!r}" if part.method == _INVERSE_SENSITIVITY else ""
    for field in _TAKES:
        value = getattr(part, field)
        if value is not None and part.measure not in _takers(part, field):
            text = _list(value) if isinstance(value, tuple) else show(value)
            yield f"{where}.{field} {name} = {text}: a {part.measure} takes none{how}; leave it out"
    a = "quantiles" if part.measure == "quantiles" else f"a {part.measure}"
    need = "need" if part.measure == "quantiles" else "needs"
    distinct = part.measure == "distinct"
    known = [column.name for column in columns.values() if column.integer != distinct]
    kind = "keys or discover = true" if distinct else "integer = true or decimals"
    for field in ("column", "over"):
        value = getattr(part, field)
        if part.measure not in _TAKES[field]:
            continue
        if value is None:
            yield f"{where}.{field} {name} is missing; {a} {need} one; {suggest('', known)}"
        elif value not in known and (
            value in columns
            or value not in document.columns
            or document.columns[value].type is not None  # which expressions alone read
        ):
            yield (
                f"{where}.{field} {name} = {value!r}: is not a column with {kind}; "
                f"{suggest(value, known)}"
            )
    if part.complete and part.measure != "ratio":
        yield (
            f"{where}.complete {name} = true: is for a ratio, of the rows with both numbers; leave "
            "it out"
        )
    for field in ("clip", "clip_over"):
        if part.measure in _takers(part, field) and getattr(part, field) is None:
            yield f"{where}.{field} {name} is missing; {a} {need} {field} = [low, high]"
    if part.measure in _takers(part, "edges") and len(part.edges or ()) < 2:
        text = "is missing" if part.edges is None else f"= {_list(part.edges)}"
        yield f"{where}.edges {name} {text}; {a} {need} edges = [...], at least two"
    if part.measure == "quantiles":
        levels = part.quantiles or ()
        rising = all(a < b for a, b in pairwise(levels))
        if not levels or not rising or not all(0 < level < 1 for level in levels):
            yield (
                f"{where}.quantiles {name} = {_list(levels)}: must be rising numbers between 0 and "
                "1, such as [0.25, 0.5, 0.75]"
            )


def _bounds(part: QueryPart, where: str, name: str, document: PlanDocument) -> Iterator[str]:
    unit = document.unit
    for field in ("groups", "rows_per_group"):
        value = getattr(part, field)
        if value is not None and unit.id is None:
            yield (
                f"{where}.{field} {name} = {value}: needs unit.id, the column that names the unit "
                "whose rows are bounded"
            )
    if part.measure == "units" and part.rows_per_group is not None:
        yield (
            f"{where}.rows_per_group {name} = {part.rows_per_group}: a unit counts once in a cell, "
            "whatever its rows; leave it out"
        )


def _discovery(
    part: QueryPart, where: str, name: str, discovers: bool, document: PlanDocument
) -> Iterator[str]:
    if discovers and part.measure not in ("units", "count", "sum"):
        yield (
            f"{where}.measure {name} = {part.measure!r}: must be 'units', 'count' or 'sum' for "
            "keys that are discovered; list the keys for another measure"
        )
    if discovers and part.delta is None:
        yield (
            f"{where}.delta {name} is missing; keys that are discovered need one: the chance that "
            f"a key of a single unit is published{_fitting(document)}"
        )
    elif not discovers and part.delta is not None:
        yield (
            f"{where}.delta {name} = {show(part.delta)}: is for keys that are discovered; "
            "leave it out"
        )
    elif part.delta is not None and not LEAST_DELTA <= part.delta <= Fraction(1, 2):
        yield f"{where}.delta {name} = {show(part.delta)}: must be from 1e-300 to 1/2"


def _fitting(document: PlanDocument) -> str:
    """Return a delta that the budget has room for, in each query that needs one and has none."""
    budget = document.budget
    limit = Fraction(1, 10**12) if budget.delta is None else budget.delta
    discovered = {name for name, column in document.columns.items() if column.discover}
    keys = 0
    for part in document.query:
        if not discovered.isdisjoint(part.by):
            rows = document.rows_of(part)
            own = min(rows, part.groups or rows) * max(1, len(part.at))
            limit -= own * (part.delta or 0)
            keys += own if part.delta is None else 0
    known = budget.delta is not None or budget.power is not None
    return f", such as {fitting_delta(limit, keys)}" if known and limit > 0 else ""


def _overflow(
    part: QueryPart, clip: tuple[int, int], spot: str, document: PlanDocument
) -> Iterator[str]:
    """Sums that could pass 64 bits, or one unit's part of them what noise is described for."""
    rows = document.most_rows or ROWS
    low, high = clip
    largest, moves = max(abs(low), abs(high)), max(high, 0) - min(low, 0)
    what = "value"
    if part.measure not in ("sum", "ratio"):
        about = middle(clip)
        largest = about.denominator * high - about.numerator
        moves, what = 2 * largest, "distance from the middle"
    if part.measure in ("variance", "standard_deviation"):
        square = (high - center(clip)) ** 2
        if square > largest:
            largest, moves, what = square, max(square, moves), "square about the middle"
    if largest * rows > MOST_SUM:
        yield (
            f"{spot}: the largest {what}, {largest}, times {rows} rows must stay below 2^62, so it "
            f"must be within {MOST_SUM // rows}; narrow the clip, declare fewer decimals, or "
            "declare the table's most_rows"
        )
    elif moves * (own := document.rows_of(part)) > MOST_MOVE:
        yield (
            f"{spot}: one {document.unit.protects} of {own} rows could move the "
            f"table by {moves * own}, and the most is {MOST_MOVE}; narrow the clip "
            "or declare fewer decimals"
        )


def _unscaled(scaled_value: int, column: Column) -> str:
    return plain(Fraction(scaled_value, 10**column.decimals))


def _list(values: Iterable[Fraction]) -> str:
    shown = [show(value) for value in values]
    return "[" + ", ".join(shown[:8]) + (", ..." if len(shown) > 8 else "") + "]"
