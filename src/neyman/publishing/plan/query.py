"""Represent a query of a plan whose names are resolved, in scaled integers, with its share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from neyman.accounting.semantics.digits import exact_text
from neyman.publishing.plan.clip_search import ROWS_TABLE, ClipSearch, edges_of
from neyman.publishing.plan.column import Column, Section, unscaled
from neyman.publishing.plan.hierarchy import ALL
from neyman.publishing.plan.measures import (
    INVERSE_SENSITIVITY,
    INVERSE_SENSITIVITY_INTERVAL,
    Count,
    Detail,
    Histogram,
    Quantiles,
    RankMeasure,
    UnitRows,
    Units,
    range_in,
)
from neyman.publishing.plan.plan_fields import UnitPart
from neyman.publishing.plan.query_part import QueryPart

_EQUAL_BINS = 64  # bins of a clip, for quantiles without a method


@dataclass(frozen=True, kw_only=True)
class Query:
    """Represent one measure, by some columns and levels, with its exact part of the budget.

    Args:
        kind: the class of the measure.
        title: the name of its tables in a report; None for the query's name.
        column: the column to sum, to put into bins, or whose values are counted.
        clip: [low, high] of a sum, mean or variance, in scaled integers.
        by: columns with keys (unknown keys only with ``delta``), then the columns of ``detail``.
        split: the fraction of ``share`` that each measured level gets.
        weight: the weight of each measured level's error; empty if the plan states none.
        groups: the largest number of finest cells that count the rows of one unit. A finest cell is
            a place of the lowest level of ``at``, a key of each of ``group_by``, and a bin.
        rows_per_group: the largest number of rows of one unit that one such cell counts.
        inverse_sensitivity: True to draw quantiles by inverse sensitivity. Then ``bins`` are the
            points of the clip, as a range.
        interval: True if each quantile has two more draws, the ends of its interval [IS-4].
        undecided: True while a plan that gives a clip and no method has not chosen one.
        bins: rising edges, in scaled integers. Bin i holds edges[i] <= x < edges[i+1]. Values
            outside go into the first or last bin.
        quantiles: the quantiles to publish, in (0, 1), rising.
        over, clip_over: the column of a ratio's denominator, and its clip.
        optional: the measured columns in which a row may lack a number; see `required`. In others,
            a number replaces a missing one.
        delta: for unknown keys, the largest allowed probability of publishing a key that only one
            unit holds.
        row_per_cell: True if the query counts rows and a unit has at most one in each cell.
        search: how the clip follows from a noisy histogram; then ``clip`` is the largest candidate.
        searched: True for such a histogram, and for the first counts of a query with detail. The
            plan's document does not list them.
        detail: how a first count decides by which columns a group is split.
        nonnegative: True to publish values below 0 as 0.
        printed: below which value, in plan units, a cell is printed as which text.
    """

    kind: type[QueryPart]
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
    interval: bool = False
    undecided: bool = False
    row_per_cell: bool = False
    table: str | None = None
    search: ClipSearch | None = None
    searched: bool = False
    optional: tuple[str, ...] = ()
    complete: bool = False
    detail: Detail | None = None
    nonnegative: bool = False
    printed: tuple[Fraction, str] | None = None

    @property
    def group_by(self) -> tuple[str, ...]:
        """Return the columns of ``by`` that split every table, without those of ``detail``."""
        inner = () if self.detail is None else self.detail.columns
        return tuple(name for name in self.by if name not in inner)

    @property
    def counted(self) -> tuple[Query, ...]:
        """Return the queries that a run counts: one per level of detail, or the query itself."""
        if self.detail is None or self.detail.level is not None:
            return (self,)
        return tuple(
            replace(
                self,
                name=f"{self.name}#{number}",  # no query of a plan has this name
                by=(*self.group_by, *level),
                detail=replace(self.detail, level=number),
            )
            for number, level in enumerate(self.detail.levels)
        )

    @property
    def ranked(self) -> bool:
        """Return True if the query publishes quantiles."""
        return issubclass(self.kind, RankMeasure)

    @property
    def measure(self) -> str:
        """Return the name of the measure in a plan."""
        return self.kind.noun

    @property
    def draws(self) -> tuple[tuple[Fraction, int], ...]:
        """Return the draws of a group by inverse sensitivity, each as a quantile and a sign.

        The draw aims at the rank of the quantile, plus the sign times `rank_margin`.
        """
        signs = (-1, 0, 1) if self.interval else (0,)
        return tuple((q, sign) for q in self.quantiles for sign in signs)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the measured columns: ``column`` and ``over``."""
        return tuple(name for name in (self.column, self.over) if name is not None)

    def measured(self, part: str) -> tuple[str | None, tuple[int, int] | None]:
        """Return the column that a ``part`` of the measure reads, and the clip of its values."""
        return (self.over, self.clip_over) if part == "over" else (self.column, self.clip)

    def required(self, part: str) -> tuple[str, ...]:
        """Return the columns in which a row needs a number to count in a part of the measure.

        Other rows add nothing to this part. So a mean counts the rows with a number, and a sum
        counts a missing number as 0. A ratio is SUM(a) / SUM(b) as in SQL, unless ``complete``.
        """
        if part in ("keys", "units", "distinct", "rows"):
            return ()
        columns = self.columns if self.complete else (self.measured(part)[0],)
        return tuple(name for name in self.optional if name in columns)

    def row_range(self, part: str) -> tuple[int, int]:
        """Return the range of one row's contribution to a ratio's "sum" or "over".

        The range contains 0 if a row without a number adds nothing to that sum alone.
        """
        name, clip = self.measured(part)
        low, high = clip or (0, 1)
        apart = name in self.optional and not self.complete
        return (min(low, 0), max(high, 0)) if apart else (low, high)

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the levels of the query's tables: ``("all",)`` if it names no level."""
        return self.at or (ALL,)

    def to_dict(self, columns: Mapping[str, Column], share: Fraction) -> Section:
        """Return the query's section in a canonical plan. ``share`` includes histogram shares."""
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
        method = INVERSE_SENSITIVITY_INTERVAL if self.interval else INVERSE_SENSITIVITY
        section["method"] = method if self.inverse_sensitivity else None
        listed = issubclass(self.kind, Quantiles)
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
        section |= self._cell_rules()
        return {field: value for field, value in section.items() if value is not None}

    def _cell_rules(self) -> Section:
        rule = self.printed and {"below": exact_text(self.printed[0]), "as": self.printed[1]}
        return {"nonnegative": self.nonnegative or None, "print": rule}


def _unscale(
    numbers: Iterable[int] | None, columns: Mapping[str, Column], name: str | None
) -> list[int | str] | None:
    if numbers is None or name is None:
        return None
    return [unscaled(number, columns[name]) for number in numbers]


def with_histograms(queries: Iterable[Query], unit: UnitPart) -> tuple[Query, ...]:
    """Return the queries, preceded by the noisy histograms and first counts that they depend on.

    The shares of the queries are reduced by the shares of these histograms and counts.
    """
    main = (replace(query, share=query.share * _left(query, unit)) for query in queries)
    return (*_histograms(queries, unit), *_first_counts(queries), *main)


def names_with_histograms(queries: Iterable[Query]) -> frozenset[str]:
    """Return the names of the queries, and of the histograms and first counts of these queries."""
    names = set[str]()
    for query in queries:
        names.add(query.name)
        names |= set() if query.search is None else {query.search.histogram}
        names |= set() if query.detail is None else {query.detail.first}
    return frozenset(names)


def declared_share(query: Query, unit: UnitPart) -> Fraction:
    """Return a query's share, including the shares of its histograms and first counts."""
    return query.share / _left(query, unit)


def _left(query: Query, unit: UnitPart) -> Fraction:
    """Return the fraction of a declared share that is left after histograms and first counts."""
    terms = [term for term in (query.search, query.detail, unit.search) if term is not None]
    return math.prod((1 - search.share for search in terms), start=Fraction(1))


def _histograms(queries: Iterable[Query], unit: UnitPart) -> Iterator[Query]:
    """Yield the queries for the histograms that set clips and the number of rows per unit [UN-9].

    In each histogram, each unit counts with one row, in one bin.
    """
    one = None if unit.id is None else 1
    rows, every = unit.search, ((ALL, Fraction(1)),)
    if rows is not None:
        yield Query(
            kind=UnitRows,
            name=ROWS_TABLE,
            bins=edges_of(rows),
            share=rows.share,
            split=every,
            searched=True,
        )
    for query in queries:
        search = query.search
        if search is not None:
            yield Query(
                kind=Histogram,
                name=search.histogram,
                column=query.column,
                bins=edges_of(search),
                share=query.share * search.share * (1 - (rows.share if rows else 0)),
                split=every,
                groups=one,
                rows_per_group=one,
                where=query.where,
                table=query.table,
                searched=True,
                optional=query.optional,
            )


def _first_counts(queries: Iterable[Query]) -> Iterator[Query]:
    """Yield the queries for the first counts, which decide each group's level of detail [UN-12]."""
    for query in queries:
        if query.detail is not None:
            yield Query(
                kind=Count,
                name=query.detail.first,
                by=query.group_by,
                at=query.at,
                share=query.share * query.detail.share,
                split=query.split,
                groups=query.groups,
                rows_per_group=query.rows_per_group,
                where=query.where,
                table=query.table,
                searched=True,
            )


def measures_of(query: Query) -> tuple[str, ...]:
    """Return the measures of the integer tables of a query, which share its budget equally."""
    if query.delta is not None:
        # If a unit has one row per cell, each row of a count is a unit.
        units_alone = query.kind is Units or query.row_per_cell
        return ("keys",) if units_alone else ("keys", *query.kind.tables)
    return ("rank",) if query.inverse_sensitivity else query.kind.tables


def rank_unit(query: Query) -> Fraction:
    """Return the fraction of a rank of which drawn quantiles have an integer sensitivity."""
    return Fraction(1, _widest(query).denominator)


def rank_margin(query: Query, sigma_squared: Fraction) -> float:
    """Return r, the 90% margin in ranks of quantiles drawn by inverse sensitivity [IS-3].

    A candidate is drawn with probability proportional to exp(-rate d). Here d is its distance in
    ranks from the target, and 1 / rate is sigma times `rank_unit`. For m candidates, P(d >= r) <= m
    exp(-rate r). With an interval, each of its two ends fails with probability at most 5% [IS-4].
    """
    candidates = len(query.bins or range(2)) - 1
    failures = 20 if query.interval else 10
    rank = math.sqrt(sigma_squared) * float(rank_unit(query))
    return rank * math.log(failures * candidates) * (1 + 1e-12)


def in_bins(query: Query) -> Query:
    """Return a query for drawn quantiles with equal bins of the clip in place of draws."""
    low, points = (query.bins or range(2))[0], len(query.bins or range(2)) - 1
    count = min(_EQUAL_BINS, points)
    edges = tuple(low + number * points // count for number in range(count + 1))
    changes = {"inverse_sensitivity": False, "interval": False, "undecided": False}
    return replace(query, bins=edges, **changes)


def bin_error(query: Query, variance: float) -> tuple[float, float]:
    """Return the standard error and the 90% margin, in ranks, of quantiles of noisy bins.

    They hold for any rows, and leave out the place within a bin. ``variance`` is that of the noise.
    """
    bins = len(query.bins or range(2)) - 1
    worst = max(
        (1 - q) ** 2 * j + q * q * (bins - j)
        for q in map(float, query.quantiles)
        for j in (1, bins)
    )
    error = math.sqrt(variance * worst)
    return error, error * math.sqrt(2 * math.log(10 * max(1, (bins - 1).bit_length())))


def interval_ranks(query: Query, sigma_squared: Fraction, rows: int) -> float:
    """Return half the width of a quantile's 90% interval, in ranks.

    Interval ends in bins are up to a bin away. The ``rows`` are spread evenly over the clip.
    """
    if query.inverse_sensitivity:
        return rank_margin(query, sigma_squared)
    edges = query.bins or range(2)
    bin_rows = rows * (1 / (len(edges) - 1) - 1 / (edges[-1] - edges[0]))  # beyond one value
    return bin_error(query, float(sigma_squared))[1] + bin_rows


def _widest(query: Query) -> Fraction:
    """Return the largest q or 1 - q of a query's quantiles q: the most that a row moves a rank."""
    return max(max(level, 1 - level) for level in query.quantiles)


def range_of(query: Query, measure: str) -> tuple[int, int]:
    """Return the least and the most that one row in a cell adds to a table of this measure.

    For the quantile q of n values x, a row moves the rank #{x < t} - q n of a point t by 1 - q or
    by -q. For "rank", the range is for the quantile with the largest q or 1 - q, in units of
    `rank_unit` [IS-2].
    """
    if measure == "rank":
        widest = _widest(query)
        return widest.numerator - widest.denominator, widest.numerator
    _, clip = query.measured(measure)
    return (1, 1) if clip is None else range_in(clip, measure)
