"""Explain a plan's tables whose groups differ in detail, before any data."""

from __future__ import annotations

from neyman.accounting.semantics.digits import many
from neyman.publishing.plan.measures import TOTAL
from neyman.publishing.plan.plan import Plan
from neyman.publishing.tables.estimates import half_width


def detail_notes(plan: Plan) -> tuple[str, ...]:
    """Return a sentence or more for each query whose detail depends on first counts."""
    noise = {(e.query, e.level): e.sigma_squared(plan.scale) for e in plan.entries()}
    notes: list[str] = []
    for query in plan.queries:
        if query.detail is None:
            continue
        first = query.detail.first
        off = max(half_width(noise[first, at], rounded=plan.rounded) for at in query.levels)
        notes.append(
            f"{query.name!r}: a group's noisy count in {first!r} decides how detailed its table "
            f"is: {levels_text(query.detail.levels, query.detail.thresholds)}. A group with "
            f"{many(off, 'row')} more than a threshold reaches it with probability 95% or "
            "more. The cells above are those if every group has the most detail."
        )
    return tuple(notes)


def levels_text(levels: tuple[tuple[str, ...], ...], thresholds: tuple[int, ...]) -> str:
    """Return the levels in words, each with the least first count that leads to it."""
    starts = ["", *(f" from {threshold:,}" for threshold in thresholds)]
    names = (" × ".join(level) or TOTAL for level in levels)
    return "; ".join(name + start for name, start in zip(names, starts, strict=True))
