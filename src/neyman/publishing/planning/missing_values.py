"""Explain how each query of a plan treats rows without a number, and how it rounds numbers.

A missing number adds nothing to a sum. A ratio is the quotient of two such sums. Any other
statistic of a column's numbers leaves the row out. This is SQL's rule. A column can state a number
that replaces a missing one. A number is rounded down to the digits that its column states.
"""

from __future__ import annotations

from neyman.accounting.semantics.digits import many
from neyman.publishing.plan.column import Column, unscaled
from neyman.publishing.plan.measures import Ratio, Sum
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query

SQL_RULE = (
    "Rows without a number take no part in a mean, and add nothing to a sum. A column can state a "
    "number that replaces a missing one, such as unknown = 40."
)
"""The rule for missing values if the plan states nothing about them."""


def missing_values(plan: Plan, query: Query) -> str | None:
    """Return sentences on the rows without a number and on the rounding of the others.

    Return None for a query that reads no number.
    """
    columns = [plan.column(name) for name in query.columns]
    numeric = [column for column in dict.fromkeys(columns) if column.integer]
    if not numeric:
        return None
    names = [column.name for column in numeric if column.unknown is None]
    if query.complete and names:
        both = " and ".join(map(repr, names))
        replaced = [_sentence(query, column) for column in numeric if column.unknown is not None]
        sentences = [f"Only rows with a number in {both} take part.", *replaced]
    else:
        sentences = [_sentence(query, column) for column in numeric]
    for column in numeric:
        sentences.append(f"Numbers in {column.name!r} are rounded down to {rounding(column)}.")
    return " ".join(sentences)


def rounding(column: Column) -> str:
    """Return what numbers of a column to sum are rounded down to: "whole numbers"."""
    return many(column.decimals, "decimal") if column.decimals else "whole numbers"


def missing_by_sentence(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return a dict from each text of `missing_values` to the names of the queries it is about."""
    names: dict[str, tuple[str, ...]] = {}
    for query in plan.queries:
        sentence = None if query.searched else missing_values(plan, query)
        if sentence is not None:
            names[sentence] = (*names.get(sentence, ()), query.name)
    return names


def _sentence(query: Query, column: Column) -> str:
    without = f"without a number in {column.name!r}"
    if column.unknown is not None:
        return f"Rows {without} count as {_counted_as(query, column, column.unknown)}."
    if query.kind is Ratio:
        sums = ["numerator"] if column.name == query.column else []
        sums += ["denominator"] if column.name == query.over else []
        return f"Rows {without} add nothing to the {' and the '.join(sums)}."
    if query.kind is Sum:
        return f"Rows {without} add nothing."
    return f"Rows {without} take no part."


def _counted_as(query: Query, column: Column, unknown: int) -> str:
    """Return the number that replaces a missing one, in words. Say if a clip or edges move it."""
    number = str(unscaled(unknown, column))
    ranges = [(query.bins[0], query.bins[-1] - 1)] if query.bins else []
    ranges += [query.clip] if query.clip and column.name == query.column else []
    ranges += [query.clip_over] if query.clip_over and column.name == query.over else []
    if query.search is not None:
        return f"{number}, or as the end of the clip if {number} is outside"
    inside = {min(max(unknown, low), high) for low, high in ranges}
    if inside <= {unknown}:
        return number
    if len(inside) > 1:
        return f"{number}, which each clip moves to its nearest end"
    what = "edges move" if query.bins and not query.inverse_sensitivity else "clip moves"
    return f"{number}, which the {what} to {unscaled(inside.pop(), column)}"
