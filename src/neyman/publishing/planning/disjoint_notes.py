"""What a plan says of queries that no row meets together, and why others are charged as a sum."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

from neyman.accounting.semantics.digits import plain
from neyman.publishing.plan.disjoint import MOST_SETS, are_disjoint
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.row_expression import sources

_MOST_SHOWN = 6


def disjoint_notes(plan: Plan) -> tuple[str, ...]:
    """Return the rule by which disjoint queries are charged, and the pairs that are not proved."""
    filters = {text: node for text, node in plan.rows.filters if text in _texts(plan)}
    proved: list[str] = []
    left: list[str] = []
    for (one, a), (other, b) in combinations(filters.items(), 2):
        apart, reason = are_disjoint(a, b), "no expression that both compare excludes it"
        if set(sources(a)).isdisjoint(sources(b)):
            reason = "they read no column in common"
        pair = f"{one!r} and {other!r}"
        (proved if apart else left).append(pair if apart else f"{pair}: {reason}")
    if len(plan.row_sets) > 1:
        more = "Charged as a sum, because one row may meet both, as far as the text says: "
        return (*_rule(plan), *([more + _list(left)] if left else []))
    why = _why_sum(plan, bool(proved))
    if plan.disjoint:
        return (f"disjoint = true, and all queries are charged as a sum: {why or _list(left)}",)
    if proved and not why:
        rule = "With disjoint = true a plan charges the worst of such queries, and not their sum."
        return (f"No row meets both {_list(proved)}. {rule}",)
    return ()


def _texts(plan: Plan) -> set[str | None]:
    return {query.where for query in plan.queries if query.split}


def _rule(plan: Plan) -> Iterator[str]:
    """Say who is in what, and what that saves."""
    subject = plan.unit.protects
    sets = _list([f"({', '.join(sorted(one))})" for one in plan.row_sets])
    if plan.unit.neighboring == "add-remove":
        worst = "The plan charges the worst of these sets."
    else:
        worst = (
            f"A {subject} whose row is replaced may leave one set and enter another, so the plan "
            "charges the worst pair of sets, or the worst change within one."
        )
    part = 1 / sum((entry.share for entry in plan.entries()), Fraction(0))
    yield (
        f"The filters prove that one {subject} is in the queries of one set at most: {sets}. "
        f"{worst} The variance of the noise is {plain(part)} of what their sum would need."
    )


def _why_sum(plan: Plan, proved: bool) -> str:
    """Return why a plan charges a sum whatever its filters are; "" if they decide."""
    if plan.unit.id is not None:
        return (
            f"unit.id says that one {plan.unit.protects} may have several rows, and each filter "
            "bounds these by itself, so their rows can be in all of the queries"
        )
    if any(query.delta is not None for query in plan.queries):
        return "nothing is proved here for keys that are discovered"
    if plan.disjoint and proved:
        return f"the filters allow more than {MOST_SETS} sets of queries"
    return "" if len(_texts(plan) - {None}) > 1 else "no two queries have different filters"


def _list(texts: list[str]) -> str:
    more = f"; and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    return "; ".join(texts[:_MOST_SHOWN]) + more
