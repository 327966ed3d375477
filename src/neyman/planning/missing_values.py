"""What happens to rows without a number: one sentence for each query of a plan.

A row takes part in a mean, a variance, a standard deviation, quantiles, a minimum, a maximum, and a
histogram only if it has a number. A missing number adds nothing to a sum. A ratio is the quotient
of two such sums. This is SQL's rule. A column can state a number that replaces a missing one.
"""

from __future__ import annotations

from neyman.plan.plan import Plan, unscaled
from neyman.plan.query import Column, Query

__all__ = ["SQL_RULE", "missing_by_sentence", "missing_values"]

SQL_RULE = (
    "Rows without a number take no part in a mean, and add nothing to a sum. A column can state a "
    "number that replaces a missing one, such as unknown = 40."
)
"""What a plan does with missing values that does not state anything about them."""


def missing_values(plan: Plan, query: Query) -> str | None:
    """Return one sentence on the rows without a number; None for a query that reads no number.

    Args:
        plan: the plan of the query.
        query: one of its queries.
    """
    columns = [plan.column(name) for name in query.columns]
    numeric = [column for column in dict.fromkeys(columns) if column.integer]
    if not numeric:
        return None
    if query.complete:
        names = " and ".join(repr(column.name) for column in numeric if column.unknown is None)
        if names:
            return f"Only rows with a number in {names} take part."
    return " ".join(_sentence(query, column) for column in numeric)


def missing_by_sentence(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return each sentence on rows without a number, with the names of the queries that it is on.

    Args:
        plan: the plan. A query that reads no number is left out.
    """
    names: dict[str, tuple[str, ...]] = {}
    for query in plan.queries:
        sentence = None if query.searched else missing_values(plan, query)
        if sentence is not None:
            names[sentence] = (*names.get(sentence, ()), query.name)
    return names


def _sentence(query: Query, column: Column) -> str:
    without = f"without a number in {column.name!r}"
    if column.unknown is not None:
        count = f"Rows {without} count as {unscaled(column.unknown, column)}"
        low, high = _range(query, column.name)
        inside = min(max(column.unknown, low), high)
        moved = f", which the clip moves to {unscaled(inside, column)}"
        return f"{count}{moved if inside != column.unknown else ''}."
    if query.measure == "ratio":
        sums = ["numerator"] if column.name == query.column else []
        sums += ["denominator"] if column.name == query.over else []
        return f"Rows {without} add nothing to the {' and the '.join(sums)}."
    if query.measure == "sum":
        return f"Rows {without} add nothing."
    return f"Rows {without} take no part."


def _range(query: Query, name: str) -> tuple[int, int]:
    """The range that the numbers of a column are brought into."""
    if query.bins:
        return query.bins[0], query.bins[-1] - 1
    clip = query.clip_over if name == query.over and name != query.column else query.clip
    return clip or (-(2**63), 2**63)
