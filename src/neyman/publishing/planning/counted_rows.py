"""Say in words which rows a plan's tables count, from the plan alone.

The number of rows that do not count is private. Only `neyman data check` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neyman.accounting.semantics.digits import many
from neyman.publishing.plan.measures import Distinct
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query


def counted_rows(plan: Plan, rows: int | None = None) -> tuple[str, str]:
    """Return two texts: which rows count, and how leaving out the other rows affects the tables.

    The second is "" if every row counts. ``rows`` is the largest number of rows of one unit, if a
    noisy histogram has set it.
    """
    queries = [query for query in plan.queries if query.split and not query.searched]
    lost = [set(_lost(plan, query)) for query in queries]
    has_id = plan.unit.id is not None
    dropping = [query for query, kinds in zip(queries, lost, strict=True) if has_id or kinds]
    if not dropping:
        return _every_row(plan, queries), ""
    uncounted = ["rows without an id"] if has_id else []
    uncounted += [text for kind, (text, _) in _LOST.items() if all(kind in own for own in lost)]
    listed = [f"{' and '.join(uncounted)} are not counted"] if uncounted else []
    first = "; ".join([*_bound(plan, queries, rows), *listed])
    in_some = (
        text
        for kind, (_, text) in _LOST.items()
        if 0 < sum(kind in own for own in lost) < len(lost)
    )
    sentences = [first, *in_some, *_further(plan, queries)]
    which = " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences if text)
    return which, _effect(dropping)


def _every_row(plan: Plan, queries: Sequence[Query]) -> str:
    filtered = plan.rows.where is not None or any(query.where for query in queries)
    skipping = any(query.optional for query in queries)
    return (
        f"Every row {'that the filter takes ' if filtered else ''}counts"
        f"{', apart from missing values' if skipping else ''}."
    )


def _bound(plan: Plan, queries: Sequence[Query], rows: int | None) -> Iterator[str]:
    """Yield a clause on the largest number of rows of one unit in each table that queries read."""
    subject = plan.unit.protects
    if plan.unit.id is None:
        return
    if plan.unit.search is not None and rows is None:
        yield f"a noisy histogram sets how many rows per {subject} count"
        return
    read = dict.fromkeys(query.table for query in queries)
    bounds = {name or plan.table: _row_bound(plan, name, rows) for name in read}
    if len(bounds) == 1:
        (most,) = bounds.values()
        yield f"at most {many(most, 'row')} per {subject} {'counts' if most == 1 else 'count'}"
        return
    listed = ", ".join(f"{most:,} in {name}" for name, most in bounds.items())
    yield f"of the rows per {subject}, at most {listed} count"


def _row_bound(plan: Plan, name: str | None, rows: int | None) -> int:
    table = plan.further_table(name)
    if table is not None:
        return table.rows
    return plan.unit.rows if rows is None else rows


_LOST = {
    "listed": (
        "rows outside the listed keys",
        "tables by listed keys do not count the rows outside them",
    ),
    "discovered": (
        "rows without a key",
        "tables by discovered keys do not count the rows without one",
    ),
}
"""Words for uncounted rows, if every table leaves them out, and if some tables do."""


def _lost(plan: Plan, query: Query) -> Iterator[str]:
    """Yield the kinds of rows that the keys of a query drop, as keys of `_LOST`."""
    if any(one.unknown is None for one, _ in plan.parts(plan.finest(query))):
        yield "listed"
    for name in (*query.by, *([query.column] if query.kind is Distinct else [])):
        column = plan.column(name or "")
        if column.discover:
            yield "discovered"
        elif column.unknown is None:
            yield "listed"


def _further(plan: Plan, queries: Sequence[Query]) -> Iterator[str]:
    """Yield a clause on the bounds that queries set on a unit's rows; nothing if none sets one."""
    subject = plan.unit.protects
    own = {(query.groups, query.rows_per_group) for query in queries}
    if own == {(None, None)}:
        return
    if len(own) > 1:
        yield f"some tables count fewer rows per {subject}"
        return
    ((groups, each),) = own
    parts = [f"rows in at most {many(groups, 'cell')}"] if groups is not None else []
    parts += [f"at most {many(each, 'row')} in each cell"] if each is not None else []
    text = " and ".join(parts)
    yield f"of these, {text} count per {subject}"


def _effect(queries: Sequence[Query]) -> str:
    are_counts = {not query.kind.unit_power for query in queries}
    if are_counts == {True}:
        return "This lowers counts by an unknown amount."
    if are_counts == {False}:
        return "This can change values by an unknown amount."
    return "This lowers counts by an unknown amount, and can change other values."
