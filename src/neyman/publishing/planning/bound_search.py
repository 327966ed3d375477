"""Explain the clips and bounds on rows per unit that a run will derive from noisy histograms."""

from __future__ import annotations

import math

from neyman.accounting.semantics.digits import plain
from neyman.publishing.plan.clip_search import ROWS_TABLE, ClipSearch
from neyman.publishing.plan.plan import Plan


def searched(plan: Plan) -> bool:
    """Return True if a clip, or the rows per unit, must be discovered."""
    return plan.unit.search is not None or any(query.search for query in plan.queries)


def refuse_searched(plan: Plan) -> None:
    """Raise ValueError if a plan's errors depend on bounds that are not known yet."""
    if searched(plan):
        raise ValueError(
            "plan: its errors depend on bounds that noisy histograms lead to (clip or rows = "
            "'discover'), so no shares are best; choose them by hand"
        )


def search_notes(plan: Plan) -> tuple[str, ...]:
    """Return a text for each bound that follows from a histogram, with the errors that it causes.

    Noise is proportional to the bound, the bound is up to twice as large as needed, and no interval
    covers values outside it.
    """
    noise = {entry.query: entry.sigma_squared(plan.scale) for entry in plan.entries()}
    notes: list[str] = []
    for query in plan.queries:
        if query.search is not None:
            sigma = math.sqrt(noise[query.search.histogram])
            candidate = f"B = 2^{query.search.most} in the column's last digit"
            start = f"The clip of {query.name!r} follows"
            notes.append(_note(start, query.search, sigma, "value", candidate))
    if plan.unit.search is not None:
        sigma = math.sqrt(noise[ROWS_TABLE])
        candidate = f"B = {2**plan.unit.search.most} rows"
        start = "The number of rows of a unit that count follows"
        notes.append(_note(start, plan.unit.search, sigma, "rows", candidate))
    return tuple(notes)


def _note(start: str, search: ClipSearch, sigma: float, what: str, candidate: str) -> str:
    bins = search.most * (1 + search.signed)
    units = 2 * sigma * math.sqrt(bins)
    return (
        f"{start} from {search.histogram!r}, a histogram over powers of two. The errors"
        f" above are for the largest candidate, {candidate};"
        " noise is proportional to B. B can be twice as large as needed."
        f" The {what} of up to {plain(search.above)} of the units, and of up to about {units:.0f}"
        " units that the histogram's noise hides, may be outside B. What is outside is cut to"
        " B, and no interval covers that."
    )
