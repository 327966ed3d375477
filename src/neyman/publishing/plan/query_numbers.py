"""Check the fields of a query's measure, and scale its clips and edges to integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import cast

from neyman.accounting.semantics.digits import many, plain
from neyman.publishing.plan.clip_search import LIMITS as CLIP_SEARCH_LIMITS
from neyman.publishing.plan.clip_search import ClipSearch
from neyman.publishing.plan.column import Column, scaled
from neyman.publishing.plan.measurement import fitting_delta
from neyman.publishing.plan.plan_fields import Origin, PlanDocument, QueryPart, show, suggest
from neyman.publishing.plan.query import MEASURES, Mean, Query, Sum, center, range_in


@dataclass(frozen=True)
class Limits:
    """Limit the rows, cells, clips, and deltas of a query."""

    table_rows: int = 2**31  # the largest number of rows of a table, if a plan declares none
    cell: int = 2**62 - 1  # the largest value of a cell before noise
    # The most that one unit may move a cell, for which discrete noise is specified.
    cell_move: int = 10**12
    least_delta: Fraction = Fraction(1, 10**300)  # the least delta for discovered keys


LIMITS = Limits()


SEARCHES = ("discover", "discover-signed")  # clips that follow from a noisy histogram

_INVERSE_SENSITIVITY = ("inverse-sensitivity", "inverse-sensitivity-interval")
_FIELDS = ("column", "clip", "over", "clip_over", "edges", "quantiles", "method")
"""The fields that a measure may not take, in the order in which errors name them."""

_SUMMANDS = {
    **dict.fromkeys(("sum", "over"), "value"),
    "offset": "distance from the middle",
    "square": "square about the middle, in its unit",
}
"""What one row adds to each table of sums, in words."""


@dataclass(frozen=True)
class QueryContext:
    """Represent a query as written, and the declarations that its fields can refer to.

    Args:
        part: the query as written. A discovered clip is set to the largest candidate.
        origin: the location and the name of the query in errors.
        columns: the plan's valid columns, by name.
    """

    part: QueryPart
    origin: Origin
    document: PlanDocument
    columns: Mapping[str, Column]

    @property
    def measure(self) -> type[Query]:
        """Return the class that represents the query's measure."""
        return MEASURES[self.part.measure]

    @property
    def inverse_sensitivity(self) -> bool:
        """Return True if the query's quantiles are drawn, or if their method is undecided."""
        return self.part.method in _INVERSE_SENSITIVITY or self.undecided

    @property
    def undecided(self) -> bool:
        """Return True if the query gives a clip for quantiles, and no method."""
        part = self.part
        ranked = "method" in self.measure.takes and part.clip is not None
        return ranked and part.method is None and part.edges is None

    @property
    def taken(self) -> tuple[str, ...]:
        """Return the fields that the query takes beyond the fields of every query."""
        takes = self.measure.takes
        if "method" not in takes or not self.inverse_sensitivity:
            return takes
        return tuple("clip" if field == "edges" else field for field in takes)

    @property
    def discovers(self) -> bool:
        """Return True if the query groups by keys that are discovered."""
        return any(self.columns[n].discover for n in self.part.by if n in self.columns)

    def spot(self, field: str) -> str:
        """Return the name of a field for error messages, as "query[0].clip (of query 'pay')"."""
        return f"{self.origin.where}.{field} (of query {self.origin.name!r})"

    def given(self, field: str) -> str:
        """Return the name and the value of a field for error messages."""
        value: object = getattr(self.part, field)
        text = show(value)
        if isinstance(value, tuple):
            values = cast("tuple[object, ...]", value)
            shown = ", ".join(map(show, values[:8]))
            text = f"[{shown}{', ...' if len(values) > 8 else ''}]"
        return f"{self.spot(field)} = {text}"


def numbers_of(context: QueryContext, problems: list[str]) -> Mapping[str, tuple[int, ...]] | None:
    """Return a query's clips and edges as scaled integers, by field; None if a field is wrong."""
    part, columns = context.part, context.columns
    errors = [*_fields(context), *_bounds(context), *_discovery(context)]
    numbers: dict[str, tuple[int, ...]] = {}
    if not errors:
        names = {"clip": part.column, "edges": part.column, "clip_over": part.over}
        if any(name not in columns for name in names.values() if name):
            return None  # other errors report the column
        for field, name in names.items():
            if getattr(part, field) is not None:
                numbers[field] = _scale_field(context, field, columns[name or ""], errors)
    if not errors and "clip" in context.measure.takes:
        for field, (low, high) in numbers.items():
            errors += _overflow(context, field, (low, high))
    problems += errors
    return None if errors else numbers


def clip_search(context: QueryContext, problems: list[str]) -> ClipSearch | None:
    """Return the search for a clip to discover, and add its errors; None for a declared clip."""
    part, document = context.part, context.document
    given = [f for f in ("clip_share", "clip_above") if getattr(part, f) is not None]
    if part.clip not in SEARCHES:
        problems += [f"{context.given(f)}: is for clip = 'discover'; leave it out" for f in given]
        return None
    problems += _search_problems(context, given)
    signed = part.clip == "discover-signed"
    rows, exponent = document.most_rows or LIMITS.table_rows, CLIP_SEARCH_LIMITS.exponent
    moves = (1 + signed) * document.rows_of(part)
    while exponent and (2**exponent * rows > LIMITS.cell or 2**exponent * moves > LIMITS.cell_move):
        exponent -= 1
    share, above = part.clip_share or Fraction(1, 10), part.clip_above or Fraction(1, 100)
    return ClipSearch(f"{part.name}-clip", share, above, signed, exponent)


def _search_problems(context: QueryContext, given: Iterable[str]) -> Iterator[str]:
    part, document, spot = context.part, context.document, context.given("clip")
    if context.measure not in (Sum, Mean):
        yield f"{spot}: is for a sum or a mean; give {part.measure} clip = [low, high]"
    if part.delta is not None:
        yield f"{spot}: is for listed keys; with delta, give clip = [low, high]"
    if document.noise != "rounded-gaussian":
        yield (
            f"{spot}: needs noise = 'rounded-gaussian' in the plan, whose curve is the same for "
            "each clip"
        )
    if document.consistency is not None:
        yield f"{spot}: its tables take no part in [consistency]; leave that out"
    for field in given:
        if getattr(part, field) >= 1:
            yield f"{context.given(field)}: must be below 1"


def _fields(context: QueryContext) -> Iterator[str]:
    """Yield an error for each field that the measure does not take, or that is missing."""
    part, measure, taken = context.part, context.measure, context.taken
    how = f" with method = {part.method!r}" if part.method in _INVERSE_SENSITIVITY else ""
    for field in _FIELDS:
        if getattr(part, field) is not None and field not in taken:
            yield f"{context.given(field)}: a {measure.measure} takes none{how}; leave it out"
    needs = "quantiles need" if part.measure == "quantiles" else f"a {part.measure} needs"
    for field in ("column", "over"):
        if field in taken:
            yield from _column(context, field, needs)
    if part.complete and "complete" not in taken:
        yield (
            f"{context.given('complete')}: is for a ratio, of the rows with both numbers; leave it "
            "out"
        )
    yield from _missing_numbers(context, needs)


def _missing_numbers(context: QueryContext, needs: str) -> Iterator[str]:
    part, taken = context.part, context.taken
    for field in ("clip", "clip_over"):
        if field in taken and getattr(part, field) is None:
            yield f"{context.spot(field)} is missing; {needs} {field} = [low, high]"
    if "edges" in taken and len(part.edges or ()) < 2:
        missing = part.edges is None
        spot = f"{context.spot('edges')} is missing" if missing else context.given("edges")
        yield f"{spot}; {needs} edges = [...], at least two"
    if "quantiles" in taken:
        levels = part.quantiles or ()
        if not levels or any(a >= b for a, b in pairwise((0, *levels, 1))):
            spot = context.given("quantiles") if levels else f"{context.spot('quantiles')} = []"
            yield f"{spot}: must be rising numbers between 0 and 1, such as [0.25, 0.5, 0.75]"


def _column(context: QueryContext, field: str, needs: str) -> Iterator[str]:
    value, declared = getattr(context.part, field), context.document.columns
    numeric = context.measure.kind == Query.kind
    known = [column.name for column in context.columns.values() if column.integer == numeric]
    if value is None:
        yield f"{context.spot(field)} is missing; {needs} one; {suggest('', known)}"
    elif value not in known and (
        value in context.columns
        or value not in declared
        or declared[value].type is not None  # which only expressions read
    ):
        near = suggest(value, known)
        if numeric and value not in declared:
            near = (f"{near}; or " if known else "") + (
                f"declare columns.{value} with integer = true (0.7 counts as 0) or decimals = 2 "
                "(0.789 counts as 0.78)"
            )
        yield (
            f"{context.spot(field)} = {value!r}: is not a column with {context.measure.kind}; "
            f"{near}"
        )


def _bounds(context: QueryContext) -> Iterator[str]:
    for field in ("groups", "rows_per_group"):
        if getattr(context.part, field) is not None and context.document.unit.id is None:
            yield (
                f"{context.given(field)}: needs unit.id, the column that names the unit whose rows "
                "are bounded"
            )
    if context.part.measure == "units" and context.part.rows_per_group is not None:
        yield (
            f"{context.given('rows_per_group')}: a unit counts once in a cell, whatever its rows; "
            "leave it out"
        )


def _discovery(context: QueryContext) -> Iterator[str]:
    """Yield errors of a query with discovered keys, or of a delta without discovered keys."""
    delta, discovers = context.part.delta, context.discovers
    if discovers and not context.measure.unknown_keys:
        yield (
            f"{context.given('measure')}: must be 'units', 'count' or 'sum' for keys that are "
            "discovered; list the keys for another measure"
        )
    if discovers and delta is None:
        yield (
            f"{context.spot('delta')} is missing; keys that are discovered need one: the chance "
            f"that a key of a single unit is published{_fitting(context.document)}"
        )
    elif not discovers and delta is not None:
        yield f"{context.given('delta')}: is for keys that are discovered; leave it out"
    elif delta is not None and not LIMITS.least_delta <= delta <= Fraction(1, 2):
        yield f"{context.given('delta')}: must be from 1e-300 to 1/2"


def _fitting(document: PlanDocument) -> str:
    """Return the end of an error message, with a delta that fits the budget; "" if none is."""
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


def _scale_field(
    context: QueryContext, field: str, column: Column, problems: list[str]
) -> tuple[int, ...]:
    """Return the numbers of a field in units of the column's last decimal, or report an error."""
    values = [scaled(value, column.decimals) for value in getattr(context.part, field)]
    numbers = tuple(value for value in values if value is not None)
    problem = None
    # The largest absolute value of a scaled clip or edge: doubles hold all integers up to it.
    scaled_value = 2**53
    if len(numbers) < len(values):
        digits = f"numbers of at most {column.decimals} decimals"
        right = digits if column.decimals else "whole numbers"
        problem = f"must be {right}, as the column {column.name!r} has"
    elif any(low >= high for low, high in pairwise(numbers)):
        rising = field == "edges"
        problem = "must rise" if rising else "the low end must be below the high end"
    elif any(abs(value) > scaled_value for value in numbers):
        problem = f"must be within {plain(Fraction(scaled_value, 10**column.decimals))}"
    elif field == "clip_over" and numbers[0] < 0:
        problem = "the low end must be at least 0, as the sum divides"
    problems += [f"{context.given(field)}: {problem}"] if problem else []
    return numbers


def _overflow(context: QueryContext, field: str, clip: tuple[int, int]) -> Iterator[str]:
    """Yield an error for a clip whose sums could exceed 64 bits, or move too far by one unit."""
    document, largest, moves, what = context.document, 0, 0, ""
    for part in context.measure.parts:
        if part in _SUMMANDS and (part == "over") == (field == "clip_over"):
            low, high = range_in(clip, part)
            moves = max(moves, max(high, 0) - min(low, 0))
            if max(abs(low), abs(high)) > largest:
                largest, what = max(abs(low), abs(high)), _SUMMANDS[part]
    rows, own = document.most_rows or LIMITS.table_rows, document.rows_of(context.part)
    if largest * rows > LIMITS.cell:
        yield (
            f"{context.given(field)}: the largest {what}, {largest}, times {rows} rows must stay "
            f"below 2^62, so it must be within {LIMITS.cell // rows}; narrow the clip, declare "
            "fewer decimals, or declare the table's most_rows"
        )
    # The largest distance from the middle of a clip that is squared: its square has 62 bits.
    elif "square" in context.measure.parts and clip[1] - center(clip) > (2**31):
        yield (
            f"{context.given(field)}: a {context.part.measure} takes values at most 2^31 from the "
            "middle of the clip, in the last decimal; narrow the clip or declare fewer decimals"
        )
    elif moves * own > LIMITS.cell_move:
        yield (
            f"{context.given(field)}: one {document.unit.protects} with {many(own, 'row')} could "
            f"move the table by {moves * own}, and the most is {LIMITS.cell_move}; narrow the clip "
            "or declare fewer decimals"
        )
