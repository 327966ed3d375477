"""Explain which queries of a plan are disjoint, and why others are charged as a sum."""

from __future__ import annotations

from itertools import combinations

from neyman.accounting.semantics.digits import plain
from neyman.publishing.plan.disjoint import LIMITS as DISJOINT_LIMITS
from neyman.publishing.plan.disjoint import are_disjoint
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.row_expression import sources

_MAX_QUERIES_SHOWN = 6
_RULES = {
    "add-remove": "The plan charges the worst of these sets.",
    "replace-one": "A replaced row may leave one set and enter another, so the plan charges the "
    "worst pair of sets, or the worst change within one.",
}


def disjoint_notes(plan: Plan) -> tuple[str, ...]:
    """Return sentences on how disjoint queries are charged, and on pairs not proved disjoint."""
    texts = dict.fromkeys(q.where for q in plan.queries if q.split and q.where is not None)
    proved: list[str] = []
    left: list[str] = []
    for one, other in combinations([*texts][: DISJOINT_LIMITS.sets], 2):
        a, b = plan.rows.filter(one), plan.rows.filter(other)
        pair, alone = f"{one!r} and {other!r}", set(sources(a)).isdisjoint(sources(b))
        if are_disjoint(a, b):
            proved.append(pair)
        else:
            left.append(f"{pair} {'read no column in common' if alone else 'may both be true'}")
    if len(plan.row_sets) > 1:
        part = 1 / sum((entry.share for entry in plan.entries()), plan.left)
        sets = _list_queries([f"({', '.join(sorted(one))})" for one in plan.row_sets])
        rule = (
            f"The filters prove that one {plan.unit.protects} is in the queries of one set at most:"
            f" {sets}. {_RULES[plan.unit.neighboring]} The variance of the noise is {plain(part)} "
            "of what their sum would need."
        )
        more = f"Charged as a sum, because one row may meet both: {_list_queries(left)}."
        return (rule, more) if left else (rule,)
    why = _list_queries(left) or "no two queries have different filters"
    if proved:
        why = f"more than {DISJOINT_LIMITS.sets} sets are possible"
    blocked = plan.unit.id is not None or any(query.delta is not None for query in plan.queries)
    if plan.unit.id is not None:
        why = (
            f"unit.id says that one {plan.unit.protects} may have several rows, and each filter "
            "bounds these by itself, so their rows can be in all of the queries"
        )
    elif blocked:
        why = "nothing is proved here for keys that are discovered"
    if plan.disjoint:
        return (f"disjoint = true, and all queries are charged as a sum: {why}.",)
    rule = "With disjoint = true a plan charges the worst of such queries, and not their sum."
    return (f"No row meets both {_list_queries(proved)}. {rule}",) if proved and not blocked else ()


def _list_queries(texts: list[str]) -> str:
    left = len(texts) - _MAX_QUERIES_SHOWN
    return "; ".join(texts[:_MAX_QUERIES_SHOWN]) + (f"; and {left} more" if left > 0 else "")
