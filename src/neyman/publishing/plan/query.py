"""What a plan asks for, once its names are resolved: columns, and queries over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from neyman.numerics.relation import Neighboring
from neyman.publishing.plan.clip_search import ClipSearch
from neyman.publishing.plan.hierarchy import KeyFile

__all__ = [
    "ALL",
    "LEVELS",
    "Column",
    "ConsistencyMethod",
    "Duplicates",
    "KeyKind",
    "Measure",
    "Neighboring",
    "NoiseKind",
    "QuantileMethod",
    "Query",
    "center",
    "key_text",
    "measures_of",
    "middle",
    "range_of",
    "rank_unit",
]

"""How neighboring datasets differ in the records of one unit."""

Measure = Literal[
    "count",
    "units",
    "distinct",
    "sum",
    "mean",
    "variance",
    "standard_deviation",
    "ratio",
    "histogram",
    "quantiles",
    "median",
    "min",
    "max",
]
"""What a query measures."""

QuantileMethod = Literal["bins", "inverse-sensitivity"]
"""How quantiles are published: from noisy counts of bins, or drawn from the values in ``clip``."""

ConsistencyMethod = Literal["least-squares", "nonnegative", "integer"]
"""How noisy tables are adjusted so that they add up."""

NoiseKind = Literal["discrete-gaussian", "rounded-gaussian"]
"""The kind of integer noise of a plan's tables."""

Duplicates = Literal["drop", "least"]
"""Which row a unit with several rows has, in a table that is joined: none, or the least."""

KeyKind = Literal["text", "whole", "boolean"]
"""What a plan's keys are, which decides how a value is read as a key."""

LEVELS = {"median": Fraction(1, 2), "min": Fraction(1, 100), "max": Fraction(99, 100)}
"""The quantile that a measure publishes. An exact extreme depends on one row alone."""

ALL = "all"
"""The level name of a table over everything."""


@dataclass(frozen=True)
class Column:
    """A column that queries use: keys to group by, or numbers to sum.

    Args:
        name: its name in the data.
        keys: the public keys; empty for a column to sum and for one whose keys are unknown.
        unknown: the position of the key that unlisted values go to, or the number that replaces a
            missing one in a column to sum, scaled. None drops the row: from the tables by this
            column, or from the statistics of its numbers [UN-10].
        decimals: digits after the point of a column to sum: a value in the plan's units is
            whole / 10^decimals, and clips, edges and ``unknown`` are kept as that whole number.
        discover: whether its keys are unknown and found in the data; a missing value is dropped.
        file: where its keys come from; None if the plan lists them.
        measurement_unit: the declared unit of a column to sum, or None.
    """

    name: str
    keys: tuple[str | int | bool, ...]
    unknown: int | None
    decimals: int = 0
    discover: bool = False
    file: KeyFile | None = field(default=None, compare=False)
    measurement_unit: str | None = None

    @property
    def integer(self) -> bool:
        """Whether the column is one to sum, of whole or fixed-point numbers."""
        return not self.keys and not self.discover

    @property
    def kind(self) -> KeyKind:
        """What the keys are: texts, whole numbers or true/false. Discovered keys are texts."""
        first = self.keys[0] if self.keys else ""
        if isinstance(first, bool):
            return "boolean"
        return "whole" if isinstance(first, int) else "text"


@dataclass(frozen=True)
class Query:
    """One measure by columns at some levels, with its exact part of the budget.

    Args:
        name: what its tables are called.
        measure: "count", "units" (distinct units; a row is a unit where ``unit.id`` names none),
            "distinct" (values of a column), "sum", "mean", "variance", "standard_deviation",
            "ratio" (of two sums), "histogram", "quantiles", or one of `LEVELS`.
        column: what is summed or put into bins, or whose values are counted.
        clip: [low, high] of a sum, mean or variance, scaled whole numbers.
        by: columns with keys; with unknown keys too where ``delta`` is given.
        at: levels of the hierarchy.
        share: exact part of the plan's budget.
        split: the part of ``share`` of each level that is measured.
        public: the declared totals of the levels that are not.
        weight: how much the error of each measured level counts; empty where the plan is silent.
        where: the condition on a row, beside the table's; None for every row.
        groups: the most finest cells that rows of one unit are kept in: a place of the lowest of
            ``at``, a key of each of ``by``, and a bin.
        rows_per_group: the most rows of one unit that are kept in one such cell.
        inverse_sensitivity: whether quantiles are drawn by inverse sensitivity; then ``bins`` are
            the points of the clip, as a range.
        bins: rising edges, scaled whole numbers; n edges make n - 1 bins; bin i holds
            edges[i] <= x < edges[i+1], and values outside go into the first or last bin.
        quantiles: which quantiles are published, in (0, 1), rising.
        over, clip_over: of a ratio, the column of the sum below, and its clip.
        optional: the measured columns in which a row may lack a number. Such a row takes no part
            (see `required`). In the other columns a number replaces a missing one.
        complete: whether only rows with both numbers take part in a ratio.
        delta: for unknown keys, the most that the chance may be with which a key that only one
            unit holds is published.
        row_per_cell: whether the query counts rows and a unit has at most one in each cell.
        table: the further private table that it reads; None for the plan's table.
        search: how the clip follows from a noisy histogram; then ``clip`` is the largest candidate.
        searched: whether it is such a histogram, which the plan's document does not list.
    """

    name: str
    measure: Measure | Literal["rows"]
    column: str | None
    clip: tuple[int, int] | None
    by: tuple[str, ...]
    at: tuple[str, ...]
    share: Fraction
    split: tuple[tuple[str, Fraction], ...]
    public: tuple[tuple[str, int], ...]
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

    @property
    def ranked(self) -> bool:
        """Whether it publishes quantiles."""
        return self.measure == "quantiles" or self.measure in LEVELS

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it measures."""
        return tuple(name for name in (self.column, self.over) if name is not None)

    def measured(self, part: str) -> tuple[str | None, tuple[int, int] | None]:
        """The column of a part of the measure, and what its values are clipped to."""
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


def key_text(key: str | int | bool) -> str:
    """The text that a key is compared as: ``true``/``false``, decimal digits, or itself."""
    return str(key).lower() if isinstance(key, bool) else str(key)


_PARTS = {
    "mean": ("offset", "count"),
    "variance": ("offset", "square", "count"),
    "standard_deviation": ("offset", "square", "count"),
    "ratio": ("sum", "over"),
    "histogram": ("count",),
    "quantiles": ("count",),
    **dict.fromkeys(LEVELS, ("count",)),
}


def measures_of(query: Query) -> tuple[str, ...]:
    """The measures of the tables of integers that a query is made of, which share its part."""
    if query.delta is not None:
        # Each row of a count is a unit where a unit has one row in each cell.
        return (
            ("keys",) if query.measure == "units" or query.row_per_cell else ("keys", query.measure)
        )
    if query.inverse_sensitivity:
        return ("rank",)
    return _PARTS.get(query.measure, (query.measure,))


def rank_unit(query: Query) -> Fraction:
    """The part of a rank in which the sensitivity of quantiles that are drawn is whole."""
    return Fraction(1, _widest(query).denominator)


def _widest(query: Query) -> Fraction:
    """The largest of q and 1 - q of a query's quantiles: how far one row moves a rank."""
    return max(max(level, 1 - level) for level in query.quantiles)


def range_of(query: Query, measure: str) -> tuple[int, int]:
    """The least and the most that one row in a cell adds to a table of that measure.

    A row moves #{x < t} - q n by 1 - q or by -q: for "rank" the ends are those of the quantile
    whose two ends are the farthest apart from each other in size, in units of `rank_unit` [IS-2].
    """
    if measure == "rank":
        widest = _widest(query)
        return widest.numerator - widest.denominator, widest.numerator
    if measure == "sum" and query.clip:
        return query.clip
    if measure == "over" and query.clip_over:
        return query.clip_over
    if measure == "offset" and query.clip:
        about = middle(query.clip)
        low, high = (about.denominator * x - about.numerator for x in query.clip)
        return low, high
    if measure == "square" and query.clip:
        return 0, (query.clip[1] - center(query.clip)) ** 2
    return 1, 1


def middle(clip: tuple[int, int]) -> Fraction:
    """The middle n/d of a clip; a value x counts in an offset as d x - n, d being 1 or 2."""
    return Fraction(clip[0] + clip[1], 2)


def center(clip: tuple[int, int]) -> int:
    """The whole number that squares are taken about: the middle of the clip, rounded down."""
    return (clip[0] + clip[1]) // 2
