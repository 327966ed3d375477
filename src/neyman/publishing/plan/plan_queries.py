"""Read the queries of a plan: split them by the keys of a column, resolve names, and scale."""

from __future__ import annotations

import keyword
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from neyman.publishing.plan.clip_search import ROWS_TABLE
from neyman.publishing.plan.column import Column, key_text
from neyman.publishing.plan.disjoint import LIMITS as DISJOINT_LIMITS
from neyman.publishing.plan.document import PlanDocument
from neyman.publishing.plan.field_types import LIMITS as FIELD_LIMITS
from neyman.publishing.plan.field_types import show, suggest
from neyman.publishing.plan.hierarchy import places_of
from neyman.publishing.plan.measures import Count
from neyman.publishing.plan.query import Query, names_with_histograms
from neyman.publishing.plan.query_part import (
    NAME,
    KeyPart,
    Origin,
    QueryContext,
    QueryPart,
    Scaled,
    sum_text,
)
from neyman.publishing.plan.row_expression import without_comment


@dataclass(frozen=True)
class Limits:
    """Limit the size of one table."""

    cells: int = 100_000_000  # the most cells of one table


LIMITS = Limits()

_PLAIN = KeyPart.model_validate({})


def split_queries(
    document: PlanDocument, columns: Mapping[str, Column], problems: list[str]
) -> tuple[tuple[QueryPart, ...], list[Origin]]:
    """Replace each query with a partition by one query per key of its column.

    Return the new queries, and for each of them the author's query.
    """
    queries: list[QueryPart] = []
    origins: list[Origin] = []
    forbids_disjoint = "disjoint" in document.model_fields_set and not document.disjoint
    for index, part in enumerate(document.query):
        where = f"query[{index}]"
        errors = [*_partition_problems(part, where, columns)]
        if part.partition is not None and forbids_disjoint:
            errors.append(
                f"disjoint = false: {where}.partition (of query {part.name!r}) charges the worst "
                "of its keys; leave disjoint out"
            )
        problems += errors
        if part.partition is None or errors:
            queries.append(part)
        else:
            queries += _one_by_one(part, columns[part.partition])
        origins += [Origin(where, part.name)] * (len(queries) - len(origins))
    return tuple(queries), origins


def _partition_problems(
    part: QueryPart, where: str, columns: Mapping[str, Column]
) -> Iterator[str]:
    spot = f"{where}.partition (of query {part.name!r}) = {show(part.partition)}"
    column = columns.get(part.partition or "")
    if part.partition is None:
        if part.parts:
            yield f"{where}.parts (of query {part.name!r}): is for a query with partition"
    elif column is None or not column.keys:
        known = [name for name, one in columns.items() if one.keys]
        yield f"{spot}: must be a column with listed keys; {suggest(part.partition, known)}"
    elif len(column.keys) > DISJOINT_LIMITS.sets:
        yield (
            f"{spot}: has {len(column.keys)} keys, and the most is {DISJOINT_LIMITS.sets}; list it "
            "in 'by'"
        )
    else:
        yield from _key_problems(part, where, column)


def _key_problems(part: QueryPart, where: str, column: Column) -> Iterator[str]:
    """Yield an error for each key that cannot have a table, and each of ``parts`` for no key."""
    spot = f"{where}.partition (of query {part.name!r}) = {show(part.partition)}"
    odd = (key for key in column.keys if "\\" in repr(key))
    yield from (f"{spot}: the key {key!r} cannot stand in a filter; rename it" for key in odd)
    texts = [key_text(key) for key in column.keys]
    most = FIELD_LIMITS.text_letters - max(len(text) for text in texts) - len(": ")
    if part.title is not None and len(part.title) > most:
        yield (
            f"{where}.title (of query {part.name!r}) = {show(part.title)}: each key is added "
            f"to it, and a title has at most {FIELD_LIMITS.text_letters} letters; write at "
            f"most {max(most, 0)}"
        )
    for name in (part.parts or {}).keys() - set(texts):
        yield f"{spot}: parts.{name} is for no key; {suggest(name, texts)}"
    takes_clip = "clip" in type(part).model_fields
    for name, own in (part.parts or {}).items() if not takes_clip else ():
        if own.clip is not None:
            yield (
                f"{where}.parts.{name}.clip (of query {part.name!r}) = {show(own.clip)}: a "
                f"{part.measure} takes none; leave it out"
            )


def _one_by_one(part: QueryPart, column: Column) -> Iterator[QueryPart]:
    texts = [key_text(key) for key in column.keys]
    own = [(part.parts or {}).get(text, _PLAIN) for text in texts]
    weights = [1 if one.share is None else one.share for one in own]
    names = [f"{part.name} {text}" for text in texts]
    plain = (name.casefold() for name in names if re.fullmatch(r"[\w -]{1,64}", name, re.ASCII))
    if len({*plain}) < len(names):  # files are named after the queries
        names = [f"{part.name} {place}" for place in range(1, len(names) + 1)]
    for place, (name, weight, key) in enumerate(zip(names, weights, own, strict=True)):
        condition = _condition(column, place)
        update: dict[str, object] = {"name": name, "partition": None, "parts": None}
        update["title"] = part.title and f"{part.title}: {texts[place]}".strip()
        if part.where:  # a comment would hide the condition
            condition = f"({without_comment(part.where)}) and ({condition})"
        update["where"] = condition
        update["share"] = part.share and part.share * weight / sum(weights)
        own_fields = {"at": key.at, "clip": key.clip}
        update |= {field: value for field, value in own_fields.items() if value is not None}
        yield part.model_copy(update=update)


def _condition(column: Column, place: int) -> str:
    """Return the filter for rows with the key at index ``place``.

    If this key is the one for unlisted values, the filter also accepts them.
    """
    plain = column.name.isidentifier() and column.name.isascii()  # else Python changes names
    plain = plain and not keyword.iskeyword(column.name)
    name = column.name if plain else f"column({column.name!r})"
    if place != column.unknown:
        return f"{name} == {column.keys[place]!r}"
    others = [key for key in column.keys if key != column.keys[place]]
    return f"{name} is None or {name} not in {others!r}" if others else "True"


def read_queries(
    context: QueryContext, origins: Sequence[Origin], problems: list[str]
) -> list[Query]:
    """Return the valid queries of a plan, and report all problems.

    Args:
        origins: for each query, the query of the author's plan. A problem of several queries with
            one origin comes once, with the author's name.
    """
    queries: list[Query] = []
    names: dict[tuple[str, str], list[str]] = {}  # of the queries that have a problem
    for part, origin in zip(context.queries, origins, strict=True):
        query = _query(part, context.at(origin.where), errors := list[str]())
        queries += [] if query is None else [query]
        for problem in errors:
            names.setdefault((problem, origin.name), []).append(part.name)
    problems += (
        problem.replace(NAME, repr(author if len(own) > 1 else own[0]))
        for (problem, author), own in names.items()
    )
    problems += _name_problems(context, queries, origins)
    if not problems:
        _check_shares(queries, context.sections.budget.unspent, problems)
    return queries


def _name_problems(
    context: QueryContext, queries: Sequence[Query], origins: Sequence[Origin]
) -> Iterator[str]:
    names = Counter(part.name.casefold() for part in context.queries)
    titles = Counter(part.title for part in context.queries)
    searched = context.sections.unit.search is not None or any(query.search for query in queries)
    names.update([ROWS_TABLE] if searched else [])
    for query in queries:
        names.update(map(str.casefold, names_with_histograms([query]) - {query.name}))
    parts = [*zip(origins, context.queries, strict=True)]
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


def _query(part: QueryPart, context: QueryContext, problems: list[str]) -> Query | None:
    """Return a query, or None if the query or something that it uses has an error."""
    errors = [*part.problems(context)]
    numbers = part.scaled(context, errors)
    query = None
    if not errors and not part.uses_failed_parts(context):
        query = _scaled_query(part, context, numbers)
        errors += _size_problems(context, query)
    problems += errors
    return None if errors else query


def _scaled_query(part: QueryPart, context: QueryContext, numbers: Scaled) -> Query:
    sections, columns = context.sections, (context.columns[name] for name in part.column_names)
    _, measured, _ = part.levels(sections)
    split = part.split or dict.fromkeys(measured, Fraction(1, max(1, len(measured))))
    single = part.rows_per_group == 1 == len(measured) or sections.rows_of(part.table) == 1
    return Query(
        kind=type(part),
        name=part.name,
        title=part.title,
        by=part.key_names,
        at=part.at,
        share=part.share or Fraction(0),
        split=tuple((level, split[level]) for level in measured),
        groups=part.groups,
        rows_per_group=part.rows_per_group,
        delta=part.delta,
        weight=_weights(part, measured),
        where=part.where,
        row_per_cell=isinstance(part, Count) and single,
        table=None if part.table == sections.table else part.table,
        search=part.search(context),
        optional=tuple(
            dict.fromkeys(one.name for one in columns if one.integer and one.unknown is None)
        ),
        **part.terms(numbers),
    )


def _weights(part: QueryPart, measured: Iterable[str]) -> tuple[tuple[str, Fraction], ...]:
    weight = part.weight or {}
    if isinstance(weight, Fraction):
        weight = dict.fromkeys(measured, weight)
    return tuple((level, weight.get(level, Fraction(1))) for level in measured if weight)


def _size_problems(context: QueryContext, query: Query) -> Iterator[str]:
    sizes = {name: max(1, len(context.columns[name].keys)) for name in query.by}
    every = [(*query.group_by, *names) for names in query.detail.levels] if query.detail else []
    cells = max(math.prod(sizes[name] for name in names) for names in every or [query.by])
    bins = len(query.bins or range(2)) - 1
    cells *= len(query.draws) if query.inverse_sensitivity else bins
    places = max((places_of(context.hierarchies, level) for level in query.at), default=1)
    grid_points = 2**62  # the most points of the grids of one table
    if query.inverse_sensitivity and cells * places * bins > grid_points:
        yield (
            f"{context.spot('clip')}: {cells * places} quantiles over {bins} values are more than "
            f"{grid_points} in all; narrow the clip, or declare fewer decimals"
        )
    if cells * places > LIMITS.cells:
        yield (
            f"{context.where} (of query {NAME}) has {cells * places} "
            f"cells; the most is {LIMITS.cells}: group by less"
        )


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
        problems.append(f"query[].share: {sum_text(shares.values())} ({text}){rest}")
