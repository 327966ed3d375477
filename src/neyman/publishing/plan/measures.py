"""Define a class per measure: its own fields, their problems, its tables, and a row's range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from neyman.accounting.semantics.digits import many, plain
from neyman.publishing.plan.clip_search import LIMITS as CLIP_SEARCH_LIMITS
from neyman.publishing.plan.clip_search import ClipSearch, top_clip
from neyman.publishing.plan.column import Column, scaled
from neyman.publishing.plan.field_types import (
    LIMITS,
    Clip,
    Exact,
    Number,
    Numbers,
    Several,
    Text,
    Texts,
    as_tuple,
    suggest,
)
from neyman.publishing.plan.hierarchy import ALL, places_of
from neyman.publishing.plan.plan_fields import PlanSections, PrintPart
from neyman.publishing.plan.query_part import VALUE_COLUMNS, QueryContext, QueryPart, Scaled

QuantileMethod = Literal["bins", "inverse-sensitivity", "inverse-sensitivity-interval"]
"""How quantiles are published: from noisy counts of bins, or drawn from the values in ``clip``,
alone or with two more draws that are the ends of an interval."""

INVERSE_SENSITIVITY: QuantileMethod = "inverse-sensitivity"
INVERSE_SENSITIVITY_INTERVAL: QuantileMethod = "inverse-sensitivity-interval"
INVERSE_SENSITIVITY_METHODS = (INVERSE_SENSITIVITY, INVERSE_SENSITIVITY_INTERVAL)

SEARCHES = ("discover", "discover-signed")  # clips that follow from a noisy histogram
DETAIL_COLUMNS = ("detail", "first_count")  # columns of a table whose groups differ in detail
TOTAL = "total"  # the level of detail at which a group has one count

Edges = Annotated[
    Numbers | None,
    Field(description="rising edges of the bins of a histogram or of quantiles, at least two"),
]
Ends = Annotated[
    Clip | None,
    Field(
        description="[low, high], numbers with no more decimals than the column; 'discover' or "
        "'discover-signed' for a power of two that follows from a noisy histogram"
    ),
]

_TABLE_ROWS = 2**31  # the largest number of rows of a table, if a plan declares none
_CELL = 2**62 - 1  # the largest value of a cell before noise
_CELL_MOVE = 10**12  # the most that one unit may move a cell, for which discrete noise is specified

_SUMMANDS = {
    **dict.fromkeys(("sum", "over"), "value"),
    "offset": "distance from the middle",
    "square": "square about the middle, in its unit",
}
"""What one row adds to each table of sums, in words."""


@dataclass(frozen=True)
class Detail:
    """Describe how a first noisy count of each group decides by which columns to split it [UN-12].

    Args:
        first: the name of the query with the first counts.
        share: the fraction of the query's share for the first counts, in (0, 1).
        levels: for each level of detail, the columns that split a group.
        thresholds: rising integers, one fewer than levels. The level of a group is the number of
            thresholds that its first count reaches.
        level: the level that this query counts, if it counts only one (see `Query.counted`).
    """

    first: str
    share: Fraction
    levels: tuple[tuple[str, ...], ...]
    thresholds: tuple[int, ...]
    level: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of all levels, each once."""
        return tuple(dict.fromkeys(name for level in self.levels for name in level))


def detail_label(columns: Sequence[str]) -> str:
    """Return the name of a level of detail in the published table."""
    return ", ".join(columns) or TOTAL


def first_table(name: str) -> str:
    """Return the name of the table of first counts of a query with detail."""
    return f"{name}-first"


class UnitRows(QueryPart):
    """Count the units by their number of rows, to derive a bound on this number."""

    noun = "rows"
    tables = ("rows",)


_NOT_BESIDE_CONSISTENCY = {
    "print": "where tables add up, one subtraction returns the number of a cell that is printed as "
    "a text: leave print or [consistency] out",
    "nonnegative": "leave it out: consistency.method = 'nonnegative' gives tables that add up and "
    "have no negative cell",
}


class PrintMeasure(QueryPart):
    """Count or add up what is never negative, so that cells may follow a rule when printed."""

    print: PrintPart | None = Field(
        None, description="{ below = 10, as = '<10' }: how small cells are printed"
    )
    nonnegative: bool = Field(False, description="true to publish values below 0 as 0")

    @property
    def _is_signed(self) -> bool:
        """Return True if a true value can be negative."""
        return False

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the rules for cells, with those of the measure."""
        printed = (self.print.below, self.print.as_) if self.print else None
        return super().terms(scaled) | {"nonnegative": self.nonnegative, "printed": printed}

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        for field in ("print", "nonnegative"):
            if not getattr(self, field):
                continue
            if self._is_signed:
                reason = "this sum can be negative: give its clip a low end of at least 0"
                yield f"{context.spot(field)}: {reason}"
            elif context.sections.consistency is not None:
                yield f"{context.spot(field)}: {_NOT_BESIDE_CONSISTENCY[field]}"


class Count(PrintMeasure):
    """Count the rows."""

    noun = "count"
    synonyms = ("rows", "size", "number", "frequency")
    unknown_keys = True
    is_total = True

    detail: Several[Texts] | None = Field(
        None,
        description="for each level of detail the columns that a group of 'by' is split by: "
        "[[], ['sex'], ['sex', 'age']]; a first noisy count of the group decides",
    )
    thresholds: Several[Annotated[int, Field(ge=1, le=LIMITS.table_rows)]] | None = Field(
        None,
        description="rising whole numbers, one fewer than levels of detail: a first count that "
        "reaches k of them gives the group level k, from 0",
    )
    first_share: Exact | None = Field(
        None,
        description="the part of the share that the first counts take, below 1; 1/10 if not given",
    )
    public: dict[str, Annotated[int, Field(ge=0)]] | None = Field(
        None,
        description="declared true totals of all rows, dropped ones too, of levels with one cell",
    )

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the columns of ``by``, then the columns of ``detail``."""
        inner = (name for level in self.detail or () for name in level)
        return tuple(dict.fromkeys((*self.by, *inner)))

    @property
    def public_levels(self) -> Mapping[str, int]:
        """Return the declared total of each level that has one."""
        return self.public or {}

    def is_fixed(self, sections: PlanSections) -> bool:
        """Return True if the totals fix each cell; False with detail or declared totals."""
        return self.public is None and self.detail is None and super().is_fixed(sections)

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the declared totals in the order of the levels, and the detail."""
        levels, public = self.at or (ALL,), self.public_levels
        detail = None
        if self.detail is not None:
            share, thresholds = self.first_share or Fraction(1, 10), self.thresholds or ()
            detail = Detail(first_table(self.name), share, self.detail, thresholds)
        totals = tuple((level, public[level]) for level in levels if level in public)
        return super().terms(scaled) | {"public": totals, "detail": detail}

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        yield from self._public_problems(context)
        if self.detail is None:
            for field in ("thresholds", "first_share"):
                if getattr(self, field) is not None:
                    yield f"{self.given(context, field)}: is for a query with detail; leave it out"
        else:
            yield from self._detail_problems(context, self.detail)

    def _detail_problems(
        self, context: QueryContext, levels: Sequence[Sequence[str]]
    ) -> Iterator[str]:
        """Yield an error for each invalid level of detail, and each setting that it rules out."""
        sections, spot = context.sections, context.spot("detail")
        if self.discovers(context.columns):
            yield (
                f"{spot}: is for groups of listed keys; list the keys of 'by', or leave detail out"
            )
        if self.public:
            given = self.given(context, "public")
            yield f"{given}: a table with detail is measured; leave it out"
        if sections.consistency is not None:
            yield f"{spot}: its tables take no part in [consistency]; leave that out"
        if sections.totals:
            yield f"{spot}: no charge for it is proved beside [[totals]]; leave one of them out"
        if len(sections.hierarchy) > 1:
            yield (
                f"{spot}: is for a plan with one hierarchy, or none; leave detail or hierarchies "
                "out"
            )
        if sections.unit.search is not None:
            yield f"{spot}: does not go with unit.rows = 'discover'; declare the rows"
        most, different = 16, len({frozenset(one) for one in levels})  # levels of detail
        if not 2 <= len(levels) <= most or different < len(levels):
            yield f"{spot}: must list 2 to {most} different levels, such as [[], ['sex']]"
        if len({*map(detail_label, levels)}) < different:
            yield f"{spot}: two levels would have one name in the table; rename a column"
        yield from self._detail_column_problems(context, levels)
        needed, given = max(len(levels) - 1, 1), self.thresholds or ()
        if len(given) != needed or sorted({*given}) != [*given]:
            what = f"{context.spot('thresholds')} = {list(given)}"
            yield f"{what}: must list {many(needed, 'rising whole number')}, one fewer than detail"
        if self.first_share is not None and self.first_share >= 1:
            yield f"{self.given(context, 'first_share')}: must be below 1"

    def _detail_column_problems(
        self, context: QueryContext, levels: Sequence[Sequence[str]]
    ) -> Iterator[str]:
        keyed = [column.name for column in context.columns.values() if column.keys]
        for number, level in enumerate(levels):
            for position, name in enumerate(level):
                spot = f"{context.spot(f'detail[{number}][{position}]')} = {name!r}"
                if name in level[:position] or name in self.by:
                    where = "by" if name in self.by else "this level"
                    yield f"{spot}: is in {where} already; leave it out here"
                elif name not in keyed and name not in context.failed_columns:
                    yield f"{spot}: is not a column with listed keys; {suggest(name, keyed)}"
        above = (name for at in self.at for name in context.levels_above(at))
        for name in dict.fromkeys((*self.at, *above, *self.key_names)):
            if name in DETAIL_COLUMNS or (name not in self.by and name in VALUE_COLUMNS):
                yield (
                    f"{context.spot('detail')}: the tables use the name {name!r} for what they "
                    "say; rename the column"
                )

    def _public_problems(self, context: QueryContext) -> Iterator[str]:
        names = self.at or (ALL,)
        for level in self.public or {}:
            spot, reason = context.spot(f"public.{level}"), self._why_not_public(context)
            places = places_of(context.hierarchies, level) if context.is_level(level) else 1
            if level not in names:
                yield f"{spot}: must be a level of this query; {suggest(level, names)}"
            elif reason:
                yield f"{spot}: {reason}"
            elif places > 1:
                yield f"{spot}: the level has {places} places; only one total can be public"

    def _why_not_public(self, context: QueryContext) -> str:
        """Return why a total of a query cannot be declared; "" if it can."""
        sections, unit = context.sections, context.sections.unit
        if self.by:
            return "only the total of a count without 'by' can be declared public"
        if sections.where is not None or self.where is not None:
            return (
                "the rows that a filter takes change with a person's data, so their total is not "
                "public; measure it, or leave 'where' out"
            )
        if unit.neighboring != "replace-one":
            return "a total is not public under add-remove, which changes it"
        if unit.rows > 1 or unit.id is not None:
            return (
                "a total is public only where each unit has exactly one row; with unit.rows = "
                f"{unit.rows} and unit.id = {unit.id!r} it may change"
            )
        return ""


class Units(PrintMeasure):
    """Count the distinct units. Each row is a unit if the plan has no ``unit.id``."""

    noun = "units"
    synonyms = ("people", "persons")
    tables = ("units",)
    unknown_keys = True
    is_total = True

    def _bound_problems(self, context: QueryContext) -> Iterator[str]:
        yield from super()._bound_problems(context)
        if self.rows_per_group is not None:
            yield (
                f"{self.given(context, 'rows_per_group')}: a unit counts once in a cell, whatever "
                "its rows; leave it out"
            )


class ColumnMeasure(QueryPart):
    """Measure a column."""

    column: Text | None = Field(
        None, description="the column that is summed, put into bins, or whose values are counted"
    )

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the columns that the measure reads."""
        return () if self.column is None else (self.column,)

    @property
    def _needs(self) -> str:
        return f"a {self.measure} needs"

    def _edge_problems(
        self, context: QueryContext, edges: Sequence[Fraction] | None
    ) -> Iterator[str]:
        if len(edges or ()) < 2:
            spot = context.spot("edges")
            spot = f"{spot} is missing" if edges is None else self.given(context, "edges")
            yield f"{spot}; {self._needs} edges = [...], at least two"

    def _clip_problems(
        self, context: QueryContext, clip: tuple[Fraction, Fraction] | str | None
    ) -> Iterator[str]:
        if clip is None:
            yield f"{context.spot('clip')} is missing; {self._needs} clip = [low, high]"
        elif clip in SEARCHES:
            yield (
                f"{self.given(context, 'clip')}: is for a sum or a mean; give {self.measure} clip "
                "= [low, high]"
            )

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the column, and the bins."""
        own = {"column": self.column, "bins": scaled.get("edges")}
        return super().terms(scaled) | own

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        yield from self._column_problems(context, "column")

    def _column_problems(self, context: QueryContext, field: str) -> Iterator[str]:
        value, declared = getattr(self, field), context.sections.columns
        numeric = self.column_kind == QueryPart.column_kind
        known = [column.name for column in context.columns.values() if column.integer == numeric]
        if value is None:
            spot = context.spot(field)
            yield f"{spot} is missing; {self._needs} one; {suggest('', known)}"
        elif value not in known and (
            value in context.columns
            or value not in declared
            or declared[value].type is not None  # which only expressions read
        ):
            near = suggest(value, known)
            if numeric and value not in declared:
                near = (f"{near}; or " if known else "") + (
                    f"declare columns.{value} with integer = true (0.7 counts as 0) or decimals = "
                    "2 (0.789 counts as 0.78)"
                )
            yield (f"{self.given(context, field)}: is not a column with {self.column_kind}; {near}")

    def _integers(
        self, context: QueryContext, problems: list[str], **columns: str | None
    ) -> Scaled:
        """Return fields in units of the last decimal of their columns. Report what does not fit.

        A clip to discover has no numbers, and other errors report a missing column.

        Args:
            columns: for each field, the name of its column.
        """
        result: Scaled = {}
        for field, name in columns.items():
            value: tuple[Fraction, ...] | str | None = getattr(self, field)
            column = context.columns.get(name or "")
            if isinstance(value, tuple) and column is not None and column.integer:
                numbers, problem = _in_units(value, column, field)
                if problem:
                    problems.append(f"{self.given(context, field)}: {problem}")
                else:
                    result[field] = numbers
        return result


class Distinct(ColumnMeasure):
    """Count the distinct values of a column."""

    noun = "distinct"
    synonyms = ("unique", "nunique")
    tables = ("distinct",)
    column_kind = "keys or discover = true"


class Histogram(ColumnMeasure):
    """Count the rows in each bin of a column."""

    noun = "histogram"
    synonyms = ("hist", "bins", "distribution")

    edges: Edges = None

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        yield from self._edge_problems(context, self.edges)

    def scaled(self, context: QueryContext, problems: list[str]) -> Scaled:
        """Return the edges as scaled integers."""
        return self._integers(context, problems, edges=self.column)


class ClipMeasure(ColumnMeasure):
    """Add up a function of a column's clipped values."""

    unit_power = 1

    clip: Ends = None

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        yield from self._clip_problems(context, self.clip)

    def scaled(self, context: QueryContext, problems: list[str]) -> Scaled:
        """Return the clip as scaled integers."""
        result = self._integers(context, problems, clip=self.column)
        self._check_sums(context, result, problems)
        return result

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the column and the clip."""
        return super().terms(scaled) | {"clip": scaled.get("clip")}

    def _check_sums(self, context: QueryContext, scaled: Scaled, problems: list[str]) -> None:
        for field, (low, high) in scaled.items():
            problems += self._sum_problems(context, field, (low, high))

    def _sum_problems(
        self, context: QueryContext, field: str, clip: tuple[int, int]
    ) -> Iterator[str]:
        """Yield an error for a clip with sums above 64 bits, or that one unit moves too far."""
        sections, largest, moves, what = context.sections, 0, 0, ""
        for table in self.tables:
            if table in _SUMMANDS and (table == "over") == (field == "clip_over"):
                low, high = range_in(clip, table)
                moves = max(moves, max(high, 0) - min(low, 0))
                if max(abs(low), abs(high)) > largest:
                    largest, what = max(abs(low), abs(high)), _SUMMANDS[table]
        rows, own = sections.most_rows or _TABLE_ROWS, sections.rows_of(self.table)
        if largest * rows > _CELL:
            yield (
                f"{self.given(context, field)}: the largest {what}, {largest}, times {rows} rows "
                f"must stay below 2^62, so it must be within {_CELL // rows}; narrow the clip, "
                "declare fewer decimals, or declare the table's most_rows"
            )
        # The largest distance from the middle of a clip that is squared: its square has 62 bits.
        elif "square" in self.tables and clip[1] - center(clip) > (2**31):
            yield (
                f"{self.given(context, field)}: a {self.measure} takes values at most 2^31 from "
                "the middle of the clip, in the last decimal; narrow the clip or declare fewer "
                "decimals"
            )
        elif moves * own > _CELL_MOVE:
            yield (
                f"{self.given(context, field)}: one {sections.unit.protects} with "
                f"{many(own, 'row')} could move the table by {moves * own}, and the most is "
                f"{_CELL_MOVE}; narrow the clip or declare fewer decimals"
            )


class SearchMeasure(ClipMeasure):
    """Add up a function of a column's values, with a clip that a noisy histogram may set."""

    clip_share: Exact | None = Field(
        None,
        description="the part of the share that the histogram of a clip to discover takes, below "
        "1; 1/10 if not given",
    )
    clip_above: Exact | None = Field(
        None,
        description="the part of the units whose value may be outside a clip to discover, below "
        "1; 1/100 if not given",
    )

    def _clip_problems(
        self, context: QueryContext, clip: tuple[Fraction, Fraction] | str | None
    ) -> Iterator[str]:
        given = [
            field for field in ("clip_share", "clip_above") if getattr(self, field) is not None
        ]
        if clip not in SEARCHES:
            yield from super()._clip_problems(context, clip)
            for field in given:
                yield f"{self.given(context, field)}: is for clip = 'discover'; leave it out"
            return
        spot = self.given(context, "clip")
        if self.delta is not None:
            yield f"{spot}: is for listed keys; with delta, give clip = [low, high]"
        if context.sections.noise != "rounded-gaussian":
            yield (
                f"{spot}: needs noise = 'rounded-gaussian' in the plan, whose curve is the same "
                "for each clip"
            )
        if context.sections.consistency is not None:
            yield f"{spot}: its tables take no part in [consistency]; leave that out"
        for field in given:
            if getattr(self, field) >= 1:
                yield f"{self.given(context, field)}: must be below 1"

    def search(self, context: QueryContext) -> ClipSearch | None:
        """Return the search for a clip to discover; None for a declared clip."""
        if self.clip not in SEARCHES:
            return None
        signed, sections = self.clip == "discover-signed", context.sections
        rows, exponent = sections.most_rows or _TABLE_ROWS, CLIP_SEARCH_LIMITS.exponent
        moves = (1 + signed) * sections.rows_of(self.table)
        while exponent and (2**exponent * rows > _CELL or 2**exponent * moves > _CELL_MOVE):
            exponent -= 1
        share, above = self.clip_share or Fraction(1, 10), self.clip_above or Fraction(1, 100)
        return ClipSearch(f"{self.name}-clip", share, above, signed, exponent)

    def scaled(self, context: QueryContext, problems: list[str]) -> Scaled:
        """Return the clip as scaled integers: of a clip to discover, the largest candidate."""
        search = self.search(context)
        if search is None:
            return super().scaled(context, problems)
        result: Scaled = {"clip": top_clip(search)}
        self._check_sums(context, result, problems)
        return result


class Sum(SearchMeasure, PrintMeasure):
    """Compute the sum of a column."""

    noun = "sum"
    synonyms = ("total", "add")
    tables = ("sum",)
    unknown_keys = True

    @property
    def _is_signed(self) -> bool:
        low = self.clip[0] if isinstance(self.clip, tuple) else 0
        return self.clip == "discover-signed" or low < 0


class Mean(SearchMeasure):
    """Compute the mean of a column from a noisy count and a noisy sum of x - `middle`."""

    noun = "mean"
    synonyms = ("average", "avg")
    tables = ("offset", "count")


class Variance(ClipMeasure):
    """Compute the variance of a column from three noisy sums.

    The summands are 1, x - `middle`, and (x - `center`)^2 in units of `square_unit`.
    """

    noun = "variance"
    synonyms = ("var",)
    tables = ("offset", "square", "count")
    unit_power = 2


class StandardDeviation(Variance):
    """Compute the standard deviation of a column: the root of its variance."""

    noun = "standard_deviation"
    synonyms = ("std", "stdev", "stddev", "standard deviation")
    unit_power = 1


class Ratio(ClipMeasure):
    """Compute the sum of a column divided by the sum of another."""

    noun = "ratio"
    synonyms = ("rate", "quotient")
    tables = ("sum", "over")

    over: Text | None = Field(None, description="the column of the sum that a ratio divides by")
    clip_over: Annotated[tuple[Number, Number], BeforeValidator(as_tuple)] | None = Field(
        None, description="[low, high] of the column 'over', low at least 0"
    )
    complete: bool = Field(False, description="true for a ratio of the rows that have both numbers")

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the columns that the measure reads."""
        return tuple(name for name in (self.column, self.over) if name is not None)

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        yield from self._column_problems(context, "over")
        if self.clip_over is None:
            spot = context.spot("clip_over")
            yield f"{spot} is missing; {self._needs} clip_over = [low, high]"

    def scaled(self, context: QueryContext, problems: list[str]) -> Scaled:
        """Return both clips as scaled integers."""
        result = self._integers(context, problems, clip=self.column, clip_over=self.over)
        if "clip_over" in result and result["clip_over"][0] < 0:
            problems.append(
                f"{self.given(context, 'clip_over')}: the low end must be at least 0, as the sum "
                "divides"
            )
        self._check_sums(context, result, problems)
        return result

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the columns, their clips, and which rows count."""
        own = {"over": self.over, "clip_over": scaled.get("clip_over"), "complete": self.complete}
        return super().terms(scaled) | own


class RankMeasure(ColumnMeasure):
    """Compute quantiles of a column.

    Attributes:
        quantile: the quantile that the measure's name implies; None if the query lists them.
    """

    unit_power = 1
    quantile: ClassVar[Fraction | None] = None

    edges: Edges = None
    clip: Ends = None
    method: QuantileMethod | None = Field(
        None,
        description="'bins', 'inverse-sensitivity', or 'inverse-sensitivity-interval', how "
        "quantiles are published; if not given, edges mean bins, and a clip the method with the "
        "narrower interval",
    )

    @property
    def undecided(self) -> bool:
        """Return True if the query gives a clip, and no method."""
        return self.clip is not None and self.method is None and self.edges is None

    @property
    def inverse_sensitivity(self) -> bool:
        """Return True if the quantiles are drawn, or if their method is undecided."""
        return self.method in INVERSE_SENSITIVITY_METHODS or self.undecided

    @property
    def ranks(self) -> tuple[Fraction, ...]:
        """Return the quantiles to publish."""
        return () if self.quantile is None else (self.quantile,)

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        other, how = "clip", ""
        if self.inverse_sensitivity:
            other, how = "edges", f" with method = {self.method!r}"
            yield from self._clip_problems(context, self.clip)
        else:
            yield from self._edge_problems(context, self.edges)
        if getattr(self, other) is not None:
            yield f"{self.given(context, other)}: a {self.measure} takes none{how}; leave it out"

    def scaled(self, context: QueryContext, problems: list[str]) -> Scaled:
        """Return the clip or the edges as scaled integers."""
        field = "clip" if self.inverse_sensitivity else "edges"
        return self._integers(context, problems, **{field: self.column})

    def terms(self, scaled: Scaled) -> dict[str, Any]:
        """Return the column, the bins or the points of the clip, and the quantiles."""
        own = super().terms(scaled) | {"quantiles": self.ranks, "undecided": self.undecided}
        if self.inverse_sensitivity:
            low, high = scaled["clip"]
            own |= {"inverse_sensitivity": True, "bins": range(low, high + 2)}
            own["interval"] = self.undecided or self.method == INVERSE_SENSITIVITY_INTERVAL
        return own


class Quantiles(RankMeasure):
    """Compute the listed quantiles of a column."""

    noun = "quantiles"
    synonyms = ("percentile", "percentiles", "quantile")

    quantiles: Numbers | None = Field(
        None, description="which quantiles, each between 0 and 1, rising"
    )

    @property
    def _needs(self) -> str:
        return "quantiles need"

    @property
    def ranks(self) -> tuple[Fraction, ...]:
        """Return the quantiles to publish."""
        return self.quantiles or ()

    def problems(self, context: QueryContext) -> Iterator[str]:
        """Yield every problem of the query's fields."""
        yield from super().problems(context)
        if not self.ranks or any(a >= b for a, b in pairwise((0, *self.ranks, 1))):
            spot = context.spot("quantiles")
            spot = self.given(context, "quantiles") if self.ranks else f"{spot} = []"
            yield f"{spot}: must be rising numbers between 0 and 1, such as [0.25, 0.5, 0.75]"


class Median(RankMeasure):
    """Compute the median of a column."""

    noun = "median"
    quantile = Fraction(1, 2)


class Minimum(RankMeasure):
    """Compute the 1% quantile of a column, as an exact minimum depends on one row alone."""

    noun = "min"
    synonyms = ("minimum", "least")
    quantile = Fraction(1, 100)


class Maximum(RankMeasure):
    """Compute the 99% quantile of a column, as an exact maximum depends on one row alone."""

    noun = "max"
    synonyms = ("maximum", "largest")
    quantile = Fraction(99, 100)


MEASURES: Mapping[str, type[QueryPart]] = {
    kind.noun: kind
    for kind in (
        *(Count, Units, Distinct, Sum, Mean, Variance, StandardDeviation, Ratio),
        *(Histogram, Quantiles, Median, Minimum, Maximum),
    )
}
"""The classes of the measures that a plan can name."""

SYNONYMS = {word: kind.noun for kind in MEASURES.values() for word in kind.synonyms}
"""Other words for measures."""


def _in_units(
    values: Sequence[Fraction], column: Column, field: str
) -> tuple[tuple[int, ...], str]:
    """Return numbers in units of a column's last decimal, and why they do not fit, or ""."""
    exact = [scaled(one, column.decimals) for one in values]
    numbers = tuple(one for one in exact if one is not None)
    # The largest absolute value of a scaled clip or edge: doubles hold all integers up to it.
    most = 2**53
    if len(numbers) < len(exact):
        digits = f"numbers of at most {column.decimals} decimals"
        right = digits if column.decimals else "whole numbers"
        return numbers, f"must be {right}, as the column {column.name!r} has"
    if any(low >= high for low, high in pairwise(numbers)):
        rising = field == "edges"
        return numbers, "must rise" if rising else "the low end must be below the high end"
    if any(abs(one) > most for one in numbers):
        return numbers, f"must be within {plain(Fraction(most, 10**column.decimals))}"
    return numbers, ""


def range_in(clip: tuple[int, int], table: str) -> tuple[int, int]:
    """Return the range of one row's contribution to a table of this measure, from its clip."""
    low, high = clip
    if table in ("sum", "over"):
        return low, high
    if table == "offset":
        about = middle(clip)
        return about.denominator * low - about.numerator, about.denominator * high - about.numerator
    if table == "square":
        return 0, in_square_units((high - center(clip)) ** 2, square_unit(clip))
    return 1, 1


def middle(clip: tuple[int, int]) -> Fraction:
    """Return the middle n/d of a clip, with d = 1 or 2. An offset adds d x - n for a value x."""
    return Fraction(clip[0] + clip[1], 2)


def center(clip: tuple[int, int]) -> int:
    """Return the number about which values are squared: the middle of the clip, rounded down."""
    return (clip[0] + clip[1]) // 2


def square_unit(clip: tuple[int, int]) -> int:
    """Return the unit in which squares are counted: 1 if each is below 2^31, else a power of two.

    In this unit the largest square is at most 2^30, so the squares of 2^31 rows add up in 64 bits.
    A row's square, rounded to the nearest unit, is a function of this row alone, so a unit of any
    size keeps the guarantee. It moves a variance by at most half a unit.
    """
    bits = ((clip[1] - center(clip)) ** 2).bit_length()
    return 1 if bits <= 31 else 1 << (bits - 30)


def in_square_units(square: int, unit: int) -> int:
    """Return a square in the units of `square_unit`, to the nearest."""
    return (square + unit // 2) // unit
