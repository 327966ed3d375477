"""A query of a plan, once its names are resolved: a class per measure, with what each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

from neyman.accounting.semantics.digits import exact_text
from neyman.publishing.plan.clip_search import ClipSearch
from neyman.publishing.plan.column import Column, Section, unscaled
from neyman.publishing.plan.hierarchy import ALL

Measure = Literal[
    "count", "units", "distinct", "sum", "mean", "variance", "standard_deviation", "ratio",
    "histogram", "quantiles", "median", "min", "max",
]  # fmt: skip
"""What a query measures."""

QuantileMethod = Literal["bins", "inverse-sensitivity"]
"""How quantiles are published: from noisy counts of bins, or drawn from the values in ``clip``."""

ConsistencyMethod = Literal["least-squares", "nonnegative", "integer"]
"""How noisy tables are adjusted so that they add up."""

NoiseKind = Literal["discrete-gaussian", "rounded-gaussian"]
"""The kind of integer noise of a plan's tables."""

Duplicates = Literal["drop", "least"]
"""Which row a unit with several rows has, in a table that is joined: none, or the least."""


TOTAL = "total"  # the level of detail at which a group has one count


def first_table(name: str) -> str:
    """Return the name of the table of first counts of a query with detail."""
    return f"{name}-first"


@dataclass(frozen=True)
class Detail:
    """Describe how a first noisy count decides on the detail of each group [UN-12].

    Args:
        first: the name of the query with the first counts.
        share: the part of the query's share that they take, in (0, 1).
        levels: for each level of detail the columns that a group is split by.
        thresholds: rising whole numbers, one fewer than levels: a group has the level of the
            number of thresholds that its first count reaches.
        level: which level a query counts that counts one alone (see `Query.counted`).
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


@dataclass(frozen=True, kw_only=True)
class Query:
    """One measure by columns at some levels, with its exact part of the budget.

    Args:
        title: what a report calls its tables; None for its name.
        column: what is summed or put into bins, or whose values are counted.
        clip: [low, high] of a sum, mean or variance, scaled whole numbers.
        by: columns with keys; with unknown keys too where ``delta`` is given; and then those of
            ``detail``.
        split: the part of ``share`` of each level that is measured.
        weight: how much the error of each measured level counts; empty where the plan is silent.
        groups: the most finest cells that rows of one unit are kept in: a place of the lowest of
            ``at``, a key of each of ``group_by``, and a bin.
        rows_per_group: the most rows of one unit that are kept in one such cell.
        inverse_sensitivity: whether quantiles are drawn by inverse sensitivity; then ``bins`` are
            the points of the clip, as a range.
        bins: rising edges, scaled whole numbers; n edges make n - 1 bins; bin i holds
            edges[i] <= x < edges[i+1], and values outside go into the first or last bin.
        quantiles: which quantiles are published, in (0, 1), rising.
        over, clip_over: of a ratio, the column of the sum below, and its clip.
        optional: the measured columns in which a row may lack a number. Such a row takes no part
            (see `required`). In the other columns a number replaces a missing one.
        delta: for unknown keys, the most that the chance may be with which a key that only one
            unit holds is published.
        row_per_cell: whether the query counts rows and a unit has at most one in each cell.
        search: how the clip follows from a noisy histogram; then ``clip`` is the largest candidate.
        searched: whether it is such a histogram, or has the first counts of a query with detail.
            The plan's document does not list it.
        detail: how a first count of a group decides by which columns its table is.

    Attributes:
        synonyms: other words for it, which an error answers with the name.
        parts: the measures of the tables of integers that it is made of.
        takes: the fields that it takes beside those that each query takes.
        kind: how a plan declares a column that it measures.
        quantile: the quantile that it publishes, if its name says which.
        unknown_keys: whether its keys may be discovered.
    """

    measure: ClassVar[Measure | Literal["rows"]]
    synonyms: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ("count",)
    takes: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "integer = true or decimals"
    quantile: ClassVar[Fraction | None] = None
    unknown_keys: ClassVar[bool] = False

    name: str
    title: str | None = None
    column: str | None = None
    clip: tuple[int, int] | None = None
    by: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    share: Fraction
    split: tuple[tuple[str, Fraction], ...]
    public: tuple[tuple[str, int], ...] = ()
    groups: int | None = None
    rows_per_group: int | None = None
    bins: tuple[int, ...] | range | None = None
    quantiles: tuple[Fraction, ...] = ()
    delta: Fraction | None = None
    weight: tuple[tuple[str, Fraction], ...] = ()
    where: str | None = None
    over: str | None = None
    clip_over: tuple[int, int] | None = None
    inverse_sensitivity: bool = False
    row_per_cell: bool = False
    table: str | None = None
    search: ClipSearch | None = None
    searched: bool = False
    optional: tuple[str, ...] = ()
    complete: bool = False
    detail: Detail | None = None

    @property
    def group_by(self) -> tuple[str, ...]:
        """Return the columns of ``by`` without those that only more detailed tables are by."""
        inner = () if self.detail is None else self.detail.columns
        return tuple(name for name in self.by if name not in inner)

    @property
    def counted(self) -> tuple[Query, ...]:
        """Return the queries that are counted for it: one for each level of detail, or itself."""
        if self.detail is None or self.detail.level is not None:
            return (self,)
        return tuple(
            replace(
                self,
                name=f"{self.name}#{number}",  # which no query of a plan is called
                by=(*self.group_by, *level),
                detail=replace(self.detail, level=number),
            )
            for number, level in enumerate(self.detail.levels)
        )

    @property
    def ranked(self) -> bool:
        """Whether it publishes quantiles."""
        return isinstance(self, Quantiles)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it measures."""
        return tuple(name for name in (self.column, self.over) if name is not None)

    def measured(self, part: str) -> tuple[str | None, tuple[int, int] | None]:
        """Return the column of a part of the measure, and what its values are clipped to."""
        return (self.over, self.clip_over) if part == "over" else (self.column, self.clip)

    def required(self, part: str) -> tuple[str, ...]:
        """Return the columns in which a row needs a number to take part in a part of the measure.

        A row without one adds nothing to this part. So a mean counts the rows with a number, a sum
        counts a missing number as nothing, and a ratio is SUM(a) / SUM(b) as in SQL, unless it is
        ``complete``.
        """
        if part in ("keys", "units", "distinct", "rows"):
            return ()
        columns = self.columns if self.complete else (self.measured(part)[0],)
        return tuple(name for name in self.optional if name in columns)

    def row_range(self, part: str) -> tuple[int, int]:
        """Return the range of what one row adds to a sum of a ratio, its "sum" or its "over".

        It contains 0 where a row without a number adds nothing to that sum alone.
        """
        name, clip = self.measured(part)
        low, high = clip or (0, 1)
        apart = name in self.optional and not self.complete
        return (min(low, 0), max(high, 0)) if apart else (low, high)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of its tables, ``("all",)`` if it names none."""
        return self.at or (ALL,)

    def to_dict(self, columns: Mapping[str, Column], share: Fraction) -> Section:
        """Return the section of a canonical plan; the share has those of its histograms."""
        section: Section = {"name": self.name, "title": self.title, "measure": self.measure}
        section["table"] = self.table
        section["column"] = self.column
        if self.search is not None:
            section["clip"] = "discover-signed" if self.search.signed else "discover"
            section["clip_share"] = exact_text(self.search.share)
            section["clip_above"] = exact_text(self.search.above)
        elif self.inverse_sensitivity and self.bins:
            section["clip"] = _unscale((self.bins[0], self.bins[-1] - 1), columns, self.column)
        else:
            section["clip"] = _unscale(self.clip, columns, self.column)
            section["edges"] = _unscale(self.bins, columns, self.column)
        section["over"] = self.over
        section["clip_over"] = _unscale(self.clip_over, columns, self.over)
        section["complete"] = self.complete or None
        section["method"] = "inverse-sensitivity" if self.inverse_sensitivity else None
        listed = "quantiles" in self.takes
        section["quantiles"] = [exact_text(q) for q in self.quantiles] if listed else None
        section |= {"where": self.where, "by": list(self.group_by), "at": list(self.at)}
        if self.detail is not None:
            section["detail"] = [list(level) for level in self.detail.levels]
            section["thresholds"] = list(self.detail.thresholds)
            section["first_share"] = exact_text(self.detail.share)
        section |= {"groups": self.groups, "rows_per_group": self.rows_per_group}
        section["delta"] = None if self.delta is None else exact_text(self.delta)
        if self.split:
            section["share"] = str(share)
            section["split"] = {level: str(part) for level, part in self.split}
        section["weight"] = {level: exact_text(part) for level, part in self.weight} or None
        section["public"] = dict(self.public) or None
        return {field: value for field, value in section.items() if value is not None}


def _unscale(
    numbers: Iterable[int] | None, columns: Mapping[str, Column], name: str | None
) -> list[int | str] | None:
    if numbers is None or name is None:
        return None
    return [unscaled(number, columns[name]) for number in numbers]


class Count(Query):
    """The number of rows."""

    measure = "count"
    synonyms = ("rows", "size", "number", "frequency")
    unknown_keys = True


class Units(Query):
    """The number of distinct units; a row is a unit where ``unit.id`` names none."""

    measure = "units"
    synonyms = ("people", "persons")
    parts = ("units",)
    unknown_keys = True


class UnitRows(Query):
    """The number of units by their number of rows, from which a bound on it follows."""

    measure = "rows"
    parts = ("rows",)


class Distinct(Query):
    """The number of distinct values of a column."""

    measure = "distinct"
    synonyms = ("unique", "nunique")
    parts = ("distinct",)
    takes = ("column",)
    kind = "keys or discover = true"


class Sum(Query):
    """The sum of a column."""

    measure = "sum"
    synonyms = ("total", "add")
    parts = ("sum",)
    takes = ("column", "clip")
    unknown_keys = True


class Ratio(Sum):
    """The sum of a column divided by the sum of another."""

    measure = "ratio"
    synonyms = ("rate", "quotient")
    parts = ("sum", "over")
    takes = ("column", "clip", "over", "clip_over", "complete")
    unknown_keys = False


class Mean(Sum):
    """The mean of a column, from distances from the middle of the clip."""

    measure = "mean"
    synonyms = ("average", "avg")
    parts = ("offset", "count")
    unknown_keys = False


class Variance(Mean):
    """The variance of a column, from distances and squares about the middle of the clip."""

    measure = "variance"
    synonyms = ("var",)
    parts = ("offset", "square", "count")


class StandardDeviation(Variance):
    """The standard deviation of a column: the root of its variance."""

    measure = "standard_deviation"
    synonyms = ("std", "stdev", "stddev", "standard deviation")


class Histogram(Query):
    """The number of rows in each bin of a column."""

    measure = "histogram"
    synonyms = ("hist", "bins", "distribution")
    takes = ("column", "edges")


class Quantiles(Query):
    """The quantiles of a column that the plan lists."""

    measure = "quantiles"
    synonyms = ("percentile", "percentiles", "quantile")
    takes = ("column", "edges", "quantiles", "method")


class Median(Quantiles):
    """The median of a column."""

    measure = "median"
    synonyms = ()
    takes = ("column", "edges", "method")
    quantile = Fraction(1, 2)


class Minimum(Median):
    """The 1% quantile of a column, as an exact minimum depends on one row alone."""

    measure = "min"
    synonyms = ("minimum", "least")
    quantile = Fraction(1, 100)


class Maximum(Median):
    """The 99% quantile of a column, as an exact maximum depends on one row alone."""

    measure = "max"
    synonyms = ("maximum", "largest")
    quantile = Fraction(99, 100)


MEASURES: Mapping[str, type[Query]] = {
    kind.measure: kind
    for kind in (
        *(Count, Units, Distinct, Sum, Mean, Variance, StandardDeviation, Ratio),
        *(Histogram, Quantiles, Median, Minimum, Maximum),
    )
}
"""The classes of the measures that a plan can name."""

SYNONYMS = {word: kind.measure for kind in MEASURES.values() for word in kind.synonyms}
"""Other words for measures."""


def measures_of(query: Query) -> tuple[str, ...]:
    """Return the measures of the tables of integers that a
    query is made of, which share its part.
    """
    if query.delta is not None:
        # Each row of a count is a unit where a unit has one row in each cell.
        return (
            ("keys",) if query.measure == "units" or query.row_per_cell else ("keys", query.measure)
        )
    return ("rank",) if query.inverse_sensitivity else query.parts


def rank_unit(query: Query) -> Fraction:
    """Return the part of a rank in which the sensitivity of quantiles that are drawn is whole."""
    return Fraction(1, _widest(query).denominator)


def _widest(query: Query) -> Fraction:
    """Return the largest of q and 1 - q of a query's quantiles: how far one row moves a rank."""
    return max(max(level, 1 - level) for level in query.quantiles)


def range_of(query: Query, measure: str) -> tuple[int, int]:
    """Return the least and the most that one row in a cell adds to a table of that measure.

    A row moves #{x < t} - q n by 1 - q or by -q: for "rank" the ends are those of the quantile
    whose two ends are the farthest apart from each other in size, in units of `rank_unit` [IS-2].
    """
    if measure == "rank":
        widest = _widest(query)
        return widest.numerator - widest.denominator, widest.numerator
    _, clip = query.measured(measure)
    return (1, 1) if clip is None else range_in(clip, measure)


def range_in(clip: tuple[int, int], measure: str) -> tuple[int, int]:
    """Return the range of what a row adds to a table of that measure, by the clip of its values."""
    low, high = clip
    if measure in ("sum", "over"):
        return low, high
    if measure == "offset":
        about = middle(clip)
        return about.denominator * low - about.numerator, about.denominator * high - about.numerator
    return (0, (high - center(clip)) ** 2) if measure == "square" else (1, 1)


def middle(clip: tuple[int, int]) -> Fraction:
    """Return the middle n/d of a clip; a value x counts in an offset as d x - n, d being 1 or 2."""
    return Fraction(clip[0] + clip[1], 2)


def center(clip: tuple[int, int]) -> int:
    """Return the whole number that squares are taken about: the
    middle of the clip, rounded down.
    """
    return (clip[0] + clip[1]) // 2
