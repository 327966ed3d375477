"""Explain a plan's exact totals: which claims have a limit, and which have none."""

from __future__ import annotations

from neyman.accounting.semantics.sentences import about, open_claims
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.scenarios import moves_total, usual


def totals_notes(plan: Plan) -> tuple[str, ...]:
    """Return sentences on the claims without a limit and on the ledger; () without totals."""
    if not plan.totals:
        return ()
    claims = [(about(*each), moves_total(plan, *each)) for each in usual(plan)]
    return (
        open_claims(claims, [total.name for total in plan.totals]),
        "The dataset's account in the ledger must be registered with these totals (neyman ledger "
        "create LEDGER --plan PLAN), and each later plan must declare them.",
    )
