"""Split a query of a plan by the keys of a column, into one query for each key."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping

from neyman.publishing.plan.column import Column, key_text
from neyman.publishing.plan.disjoint import LIMITS as DISJOINT_LIMITS
from neyman.publishing.plan.plan_fields import (
    LIMITS,
    KeyPart,
    Origin,
    PlanDocument,
    QueryPart,
    show,
    suggest,
)
from neyman.publishing.plan.row_expression import without_comment

_PLAIN = KeyPart.model_validate({})


def without_partitions(
    document: PlanDocument, columns: Mapping[str, Column], problems: list[str]
) -> tuple[PlanDocument, list[Origin]]:
    """Replace each query with a partition by one query per key of its column.

    Return the new document, and for each of its queries the author's query.
    """
    queries: list[QueryPart] = []
    origins: list[Origin] = []
    forbids_disjoint = "disjoint" in document.model_fields_set and not document.disjoint
    for index, part in enumerate(document.query):
        where = f"query[{index}]"
        errors = [*_problems(part, where, columns)]
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
    return document.model_copy(update={"query": tuple(queries)}), origins


def _problems(part: QueryPart, where: str, columns: Mapping[str, Column]) -> Iterator[str]:
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
        odd = (key for key in column.keys if "\\" in repr(key))
        yield from (f"{spot}: the key {key!r} cannot stand in a filter; rename it" for key in odd)
        texts = [key_text(key) for key in column.keys]
        most = LIMITS.text_letters - max(len(text) for text in texts) - len(": ")
        if part.title is not None and len(part.title) > most:
            yield (
                f"{where}.title (of query {part.name!r}) = {show(part.title)}: each key is added "
                f"to it, and a title has at most {LIMITS.text_letters} letters; write at most "
                f"{max(most, 0)}"
            )
        for name in (part.parts or {}).keys() - set(texts):
            yield f"{spot}: parts.{name} is for no key; {suggest(name, texts)}"


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
