"""Turn the queries of a plan's document into `Query` objects, and report every problem."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from neyman.accounting.semantics.digits import many, short_text
from neyman.publishing.plan.clip_search import ROWS_TABLE, ClipSearch, edges_of, top_clip
from neyman.publishing.plan.column import Column
from neyman.publishing.plan.hierarchy import ALL, CROSSED, Hierarchy, is_above, parts_of, places_of
from neyman.publishing.plan.plan_fields import LIMITS as DOCUMENT_LIMITS
from neyman.publishing.plan.plan_fields import (
    Origin,
    PlanDocument,
    QueryPart,
    UnitPart,
    show,
    suggest,
)
from neyman.publishing.plan.query import (
    Count,
    Detail,
    Histogram,
    Query,
    UnitRows,
    detail_label,
    first_table,
)
from neyman.publishing.plan.query_numbers import QueryContext, clip_search, numbers_of
from neyman.publishing.plan.totals import is_fixed


@dataclass(frozen=True)
class Limits:
    """Limit the size of one table."""

    cells: int = 100_000_000  # the most cells of one table


LIMITS = Limits()


VALUE_COLUMNS = (
    "printed",
    "value",
    "standard_error",
    "lower",
    "upper",
    "at_least",
    "below",
    "quantile",
)
DETAIL_COLUMNS = ("detail", "first_count")  # columns of a table whose groups differ in detail


def read_queries(
    document: PlanDocument,
    columns: Mapping[str, Column],
    hierarchies: Sequence[Hierarchy],
    problems: list[str],
    origins: Sequence[Origin],
) -> list[Query]:
    """Return the valid queries of a plan, and report all problems. Take valid hierarchies only.

    Args:
        origins: for each query of the document, the query of the author's plan. A problem of
            several queries with one origin comes once, with the author's name.
    """
    queries: list[Query] = []
    by_author: dict[str, list[str]] = {}
    for part, origin in zip(document.query, origins, strict=True):
        context = QueryContext(part, origin._replace(name=part.name), document, columns)
        of_part, same = list[str](), list[str]()
        query = _query(context, hierarchies, of_part)
        if of_part:
            _query(replace(context, origin=origin), hierarchies, same)
        for problem, authors in zip(of_part, same, strict=True):
            by_author.setdefault(authors, []).append(problem)
        queries += [] if query is None else [query]
    problems += (author if len(ours) > 1 else ours[0] for author, ours in by_author.items())
    problems += _name_problems(document, queries, origins)
    if not problems:
        _check_shares(queries, document.budget.unspent, problems)
    return queries


def _name_problems(
    document: PlanDocument, queries: Sequence[Query], origins: Sequence[Origin]
) -> Iterator[str]:
    names = Counter(part.name.casefold() for part in document.query)
    titles = Counter(part.title for part in document.query)
    searched = document.unit.search is not None or any(query.search for query in queries)
    names.update([ROWS_TABLE] if searched else [])
    for query in queries:
        names.update(map(str.casefold, names_with_histograms([query]) - {query.name}))
    parts = [*zip(origins, document.query, strict=True)]
    for origin, part in parts:
        if names[part.name.casefold()] > 1:
            yield (
                f"{origin.where}.name = {part.name!r}: queries need names that differ in more than "
                "case, since files are named after them"
            )
    for origin, part in parts:
        if part.title is not None and titles[part.title] > 1:
            yield (
                f"{origin.where}.title = {part.title!r}: another query has this title; give each "
                "its own, since a report names tables by it"
            )


def with_histograms(queries: Iterable[Query], document: PlanDocument) -> tuple[Query, ...]:
    """Return the queries, preceded by the noisy histograms and first counts that they depend on.

    The shares of the queries are reduced by the shares of these histograms and counts.
    """
    unit = document.unit
    main = (replace(query, share=query.share * _left(query, unit)) for query in queries)
    return (*_histograms(queries, document), *_first_counts(queries), *main)


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


def _histograms(queries: Iterable[Query], document: PlanDocument) -> Iterator[Query]:
    """Yield the queries for the histograms that set clips and the number of rows per unit [UN-9].

    In each histogram, each unit counts with one row, in one bin.
    """
    one = None if document.unit.id is None else 1
    rows, every = document.unit.search, ((ALL, Fraction(1)),)
    if rows is not None:
        yield UnitRows(
            name=ROWS_TABLE, bins=edges_of(rows), share=rows.share, split=every, searched=True
        )
    for query in queries:
        search = query.search
        if search is not None:
            yield Histogram(
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
            yield Count(
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


def _query(
    context: QueryContext, hierarchies: Sequence[Hierarchy], problems: list[str]
) -> Query | None:
    """Return a query, or None if the query or something that it uses has an error."""
    errors = [*_key_problems(context, hierarchies)]
    search = clip_search(context, errors)
    if search is not None:
        context = _with_clip(context, top_clip(search))
    numbers = numbers_of(context, errors)
    errors += _public_problems(context, hierarchies)
    errors += _share_problems(context)
    errors += _print_problems(context)
    errors += _detail_problems(context, hierarchies)
    query = None
    if numbers is not None and not errors and not _has_failed_parts(context, hierarchies):
        query = _resolve_query(context, numbers, search)
        errors += _size_problems(context, query, hierarchies)
    problems += errors
    return None if errors else query


def _levels(context: QueryContext) -> tuple[tuple[str, ...], list[str], str]:
    """Return the levels of a query's tables, those that are measured, and what the others are."""
    part = context.part
    names = part.at or (ALL,)
    if is_fixed(context.document, part):
        return names, [], "fixed by the totals"
    return names, [level for level in names if level not in (part.public or {})], "public"


def _by(part: QueryPart) -> tuple[str, ...]:
    """Return all key columns of a query: the columns of ``by``, then the columns of ``detail``."""
    inner = (name for level in part.detail or () for name in level)
    return tuple(dict.fromkeys((*part.by, *inner)))


def _failed_columns(context: QueryContext) -> list[str]:
    """Return the columns with errors of their own. Their queries report no second error."""
    declared = context.document.columns.items()
    return [name for name, one in declared if one.type is None and name not in context.columns]


def _has_failed_parts(context: QueryContext, hierarchies: Sequence[Hierarchy]) -> bool:
    """Return True if a hierarchy, or a column that the query uses, has errors."""
    used = {*_by(context.part), context.part.column, context.part.over}
    lost = len(hierarchies) < len(context.document.hierarchy)
    return lost or not used.isdisjoint(_failed_columns(context))


def _with_clip(context: QueryContext, clip: tuple[int, int]) -> QueryContext:
    """Return the query with this clip, in scaled integers, instead of a clip to discover."""
    column = context.columns.get(context.part.column or "")
    decimals = column.decimals if column is not None else 0
    low, high = (Fraction(end, 10**decimals) for end in clip)
    return replace(context, part=context.part.model_copy(update={"clip": (low, high)}))


def _key_problems(context: QueryContext, hierarchies: Sequence[Hierarchy]) -> Iterator[str]:
    part = context.part
    keyed = [column.name for column in context.columns.values() if not column.integer]
    levels = [level for one in hierarchies for level in one.levels]
    levels += [at for at in part.at if at not in levels and _is_level(hierarchies, at)]
    lost = part.at if _has_failed_parts(context, hierarchies) else ()
    crossed = CROSSED if len(hierarchies) > 1 else None
    for field, mark, names, known, kind, failures in (
        ("by", None, part.by, keyed, "a column with keys", _failed_columns(context)),
        ("at", crossed, part.at, levels, "a level of the hierarchy", lost),
    ):
        before: list[frozenset[str]] = []
        for position, value in enumerate(names):
            spot = f"{context.spot(f'{field}[{position}]')} = {value!r}"
            own = frozenset(value.split(mark) if mark else [value])
            if own in before:
                yield f"{spot}: is listed twice"
            elif value not in known and value not in failures:
                yield f"{spot}: is not {kind}; {suggest(value, known)}"
            elif names_used := {value, *_levels_above(hierarchies, value)} & {*VALUE_COLUMNS}:
                yield (
                    f"{spot}: the tables use the name {min(names_used)!r} for what is measured; "
                    "rename it"
                )
            elif mark and len(value) > (most := DOCUMENT_LIMITS.name_letters):
                yield f"{spot}: has more than {most} characters, and files are named after it"
            before.append(own)
    yield from _finest_problems(context, hierarchies, levels)


def _finest_problems(
    context: QueryContext, hierarchies: Sequence[Hierarchy], levels: Sequence[str]
) -> Iterator[str]:
    part = context.part
    if not part.at or not {*part.at} <= {*levels}:
        return
    if not any(all(is_above(hierarchies, up, low) for up in part.at) for low in part.at):
        names = CROSSED.join(_deepest(hierarchies, part.at))
        yield (
            f"{context.spot('at')} = {list(part.at)}: has no finest level, of which each row has "
            f"one place; add {names!r}, or give each level its own query"
        )


def _detail_problems(context: QueryContext, hierarchies: Sequence[Hierarchy]) -> Iterator[str]:
    """Yield an error for each invalid level of detail, and each setting that detail rules out."""
    part, document = context.part, context.document
    if part.detail is None:
        for field in ("thresholds", "first_share"):
            if getattr(part, field) is not None:
                yield f"{context.given(field)}: is for a query with detail; leave it out"
        return
    spot, levels = context.spot("detail"), part.detail
    if part.measure != "count":
        yield f"{context.given('measure')}: must be 'count' for a query with detail"
    if context.discovers:
        yield f"{spot}: is for groups of listed keys; list the keys of 'by', or leave detail out"
    if part.public:
        yield f"{context.given('public')}: a table with detail is measured; leave it out"
    if document.consistency is not None:
        yield f"{spot}: its tables take no part in [consistency]; leave that out"
    if document.totals:
        yield f"{spot}: no charge for it is proved beside [[totals]]; leave one of them out"
    if len(document.hierarchy) > 1:
        yield f"{spot}: is for a plan with one hierarchy, or none; leave detail or hierarchies out"
    if document.unit.search is not None:
        yield f"{spot}: does not go with unit.rows = 'discover'; declare the rows"
    most, different = 16, len({frozenset(one) for one in levels})  # levels of detail of a query
    if not 2 <= len(levels) <= most or different < len(levels):
        yield f"{spot}: must list 2 to {most} different levels, such as [[], ['sex']]"
    if len({*map(detail_label, levels)}) < different:
        yield f"{spot}: two levels would have one name in the table; rename a column"
    yield from _detail_columns(context, hierarchies)
    needed, given = max(len(levels) - 1, 1), part.thresholds or ()
    if len(given) != needed or sorted({*given}) != [*given]:
        what = f"{context.spot('thresholds')} = {list(given)}"
        yield f"{what}: must list {many(needed, 'rising whole number')}, one fewer than detail"
    if part.first_share is not None and part.first_share >= 1:
        yield f"{context.given('first_share')}: must be below 1"


def _detail_columns(context: QueryContext, hierarchies: Sequence[Hierarchy]) -> Iterator[str]:
    part, failed = context.part, _failed_columns(context)
    keyed = [column.name for column in context.columns.values() if column.keys]
    for number, level in enumerate(part.detail or ()):
        for position, name in enumerate(level):
            spot = f"{context.spot(f'detail[{number}][{position}]')} = {name!r}"
            if name in level[:position] or name in part.by:
                where = "by" if name in part.by else "this level"
                yield f"{spot}: is in {where} already; leave it out here"
            elif name not in keyed and name not in failed:
                yield f"{spot}: is not a column with listed keys; {suggest(name, keyed)}"
    above = (name for at in part.at for name in _levels_above(hierarchies, at))
    for name in dict.fromkeys((*part.at, *above, *_by(part))):
        if name in DETAIL_COLUMNS or (name not in part.by and name in VALUE_COLUMNS):
            yield (
                f"{context.spot('detail')}: the tables use the name {name!r} for what they say; "
                "rename the column"
            )


def _is_level(hierarchies: Sequence[Hierarchy], level: str) -> bool:
    try:
        return bool(parts_of(hierarchies, level))
    except KeyError:
        return False


def _levels_above(hierarchies: Sequence[Hierarchy], level: str) -> Iterator[str]:
    """Yield the levels that are columns of a table at ``level``: its own and those above.

    Yield none if ``level`` is no level.
    """
    if _is_level(hierarchies, level):
        for one, name in parts_of(hierarchies, level):
            yield from one.levels[: one.depth(name) + 1]


def _deepest(hierarchies: Sequence[Hierarchy], levels: Iterable[str]) -> list[str]:
    """Return, for each hierarchy that these levels use, the lowest one among them."""
    depths: dict[str, int] = {}
    for level in levels:
        for one, name in parts_of(hierarchies, level):
            depths[one.name] = max(depths.get(one.name, 0), one.depth(name))
    return [one.levels[depths[one.name]] for one in hierarchies if one.name in depths]


def _public_problems(context: QueryContext, hierarchies: Sequence[Hierarchy]) -> Iterator[str]:
    names = context.part.at or (ALL,)
    for level in context.part.public or {}:
        spot, reason = context.spot(f"public.{level}"), _why_not_public(context)
        places = places_of(hierarchies, level) if _is_level(hierarchies, level) else 1
        if level not in names:
            yield f"{spot}: must be a level of this query; {suggest(level, names)}"
        elif reason:
            yield f"{spot}: {reason}"
        elif places > 1:
            yield f"{spot}: the level has {places} places; only one total can be public"


def _why_not_public(context: QueryContext) -> str:
    """Return why a total of a query cannot be declared; "" if it can."""
    part, document, unit = context.part, context.document, context.document.unit
    if part.measure != "count" or part.by:
        return "only the total of a count without 'by' can be declared public"
    if document.where is not None or part.where is not None:
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


def _print_problems(context: QueryContext) -> Iterator[str]:
    """Yield why the query's cells cannot be printed as texts, or raised to 0."""
    part = context.part
    for field, given in (("print", part.print is not None), ("nonnegative", part.nonnegative)):
        if not given:
            continue
        negative = part.clip == "discover-signed" or (
            isinstance(part.clip, tuple) and part.clip[0] < 0
        )
        reason = ""
        if part.measure not in ("count", "units", "sum"):
            reason = f"a {part.measure} has none: it is for counts, units, and sums"
        elif part.measure == "sum" and negative:
            reason = "this sum can be negative: give its clip a low end of at least 0"
        elif part.delta is not None or part.detail is not None:
            reason = "with delta or detail, a published value decides which rows there are"
        elif context.document.consistency is not None:
            reason = "consistent tables are made of the printed values: leave [consistency] out"
        if reason:
            yield f"{context.spot(field)}: {reason}"


def _share_problems(context: QueryContext) -> Iterator[str]:
    part, (names, measured, others) = context.part, _levels(context)
    for level, value in part.weight.items() if isinstance(part.weight, dict) else ():
        spot = f"{context.spot(f'weight.{level}')} = {show(value)}"
        if level not in names:
            yield f"{spot}: must be a level of this query; {suggest(level, names)}"
        elif level not in measured:
            yield f"{spot}: the level is {others} and has no error that could count"
    split = part.split or {}
    if part.split is not None and set(split) != set(measured):
        yield (
            f"{context.spot('split')} is over {sorted(split)}: must be over the levels that are "
            f"measured, {measured}"
        )
    elif part.split is not None and sum(split.values()) != 1:
        yield f"{context.spot('split')}: {_sum_text(split.values())}"
    if measured and part.share is None:
        yield (
            f"{context.spot('share')} is missing; give its exact part of the budget"
            f"{_unused_share(context)}"
        )
    if not measured and part.share is not None:
        reason = f"all its levels are {others}, so it takes no share; leave it out"
        yield f"{context.given('share')}: {reason}"
    if not measured and isinstance(part.weight, Fraction):
        yield f"{context.spot('weight')}: all its levels are {others}, so it has no error"


def _resolve_query(
    context: QueryContext, numbers: Mapping[str, tuple[int, ...]], search: ClipSearch | None
) -> Query:
    part, measure, (names, measured, _) = context.part, context.measure, _levels(context)
    split = part.split or dict.fromkeys(measured, Fraction(1, max(1, len(measured))))
    public, ends = part.public or {}, _ends(numbers, "clip")
    columns = [context.columns[name] for name in dict.fromkeys((part.column, part.over)) if name]
    bins: tuple[int, ...] | range | None = numbers.get("edges")
    if context.inverse_sensitivity and ends:
        ends, bins = None, range(ends[0], ends[1] + 2)
    single = (part.rows_per_group, len(measured)) == (1, 1) or context.document.rows_of(part) == 1
    return measure(
        name=part.name,
        title=part.title,
        column=part.column,
        clip=ends,
        by=_by(part),
        at=part.at,
        share=part.share or Fraction(0),
        split=tuple((level, split[level]) for level in measured),
        public=tuple((level, public[level]) for level in names if level in public),
        groups=part.groups,
        rows_per_group=part.rows_per_group,
        bins=bins,
        quantiles=part.quantiles or ((measure.quantile,) if measure.quantile else ()),
        delta=part.delta,
        weight=_weights(part, measured),
        where=part.where,
        over=part.over,
        clip_over=_ends(numbers, "clip_over"),
        inverse_sensitivity=context.inverse_sensitivity,
        interval=context.undecided or part.method == "inverse-sensitivity-interval",
        undecided=context.undecided,
        row_per_cell=part.measure == "count" and single,
        table=None if part.table == context.document.table else part.table,
        search=search,
        optional=tuple(one.name for one in columns if one.integer and one.unknown is None),
        complete=part.complete,
        detail=_detail(part),
        nonnegative=part.nonnegative,
        printed=_printed(part),
    )


def _printed(part: QueryPart) -> tuple[Fraction, str] | None:
    return part.print and (part.print.below, part.print.as_)


def _detail(part: QueryPart) -> Detail | None:
    if part.detail is None:
        return None
    share, thresholds = part.first_share or Fraction(1, 10), part.thresholds or ()
    return Detail(first_table(part.name), share, part.detail, thresholds)


def _weights(part: QueryPart, measured: Iterable[str]) -> tuple[tuple[str, Fraction], ...]:
    weight = part.weight or {}
    if isinstance(weight, Fraction):
        weight = dict.fromkeys(measured, weight)
    return tuple((level, weight.get(level, Fraction(1))) for level in measured if weight)


def _ends(numbers: Mapping[str, tuple[int, ...]], field: str) -> tuple[int, int] | None:
    return (numbers[field][0], numbers[field][1]) if field in numbers else None


def _size_problems(
    context: QueryContext, query: Query, hierarchies: Sequence[Hierarchy]
) -> Iterator[str]:
    sizes = {name: max(1, len(context.columns[name].keys)) for name in query.by}
    every = [(*query.group_by, *names) for names in query.detail.levels] if query.detail else []
    cells = max(math.prod(sizes[name] for name in names) for names in every or [query.by])
    bins = len(query.bins or range(2)) - 1
    cells *= len(query.draws) if query.inverse_sensitivity else bins
    places = max((places_of(hierarchies, level) for level in query.at), default=1)
    grid_points = 2**62  # the most points of the grids of one table
    if query.inverse_sensitivity and cells * places * bins > grid_points:
        yield (
            f"{context.spot('clip')}: {cells * places} quantiles over {bins} values are more than "
            f"{grid_points} in all; narrow the clip, or declare fewer decimals"
        )
    if cells * places > LIMITS.cells:
        yield (
            f"{context.origin.where} (of query {context.origin.name!r}) has {cells * places} "
            f"cells; the most is {LIMITS.cells}: group by less"
        )


def _unused_share(context: QueryContext) -> str:
    """Return the end of an error message, with the share left for each query without one, or ""."""
    parts = context.document.query
    given = (part.share or Fraction(0) for part in parts)
    left = 1 - sum(given, context.document.budget.unspent)
    measured = (_levels(replace(context, part=part))[1] for part in parts if part.share is None)
    open_ = sum(map(bool, measured))
    return f", such as '{left / open_}'" if left > 0 else ""


def _check_shares(queries: Iterable[Query], unspent: Fraction, problems: list[str]) -> None:
    shares = {query.name: query.share for query in queries if query.split}
    if not shares:
        problems.append(
            "query: every table is public or fixed by the totals, so nothing is measured; add one"
        )
        return
    shares |= {"budget.unspent": unspent} if unspent else {}
    left = 1 - sum(shares.values(), Fraction(0))
    if left:
        text = ", ".join(f"{name} {share}" for name, share in shares.items())
        rest = f"; or leave the rest with budget.unspent = '{unspent + left}'" if left > 0 else ""
        problems.append(f"query[].share: {_sum_text(shares.values())} ({text}){rest}")


def _sum_text(parts: Iterable[Fraction]) -> str:
    total = sum(parts, Fraction(0))
    off = total - 1
    return (
        f"the parts add up to {short_text(total)}, which is {short_text(abs(off))} too "
        f"{'much' if off > 0 else 'little'}; they must add up to exactly 1"
    )
