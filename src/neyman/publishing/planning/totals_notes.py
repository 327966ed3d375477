"""Explain a plan's exact totals: which claims have a limit, and which have none."""

from __future__ import annotations

from neyman.accounting.semantics.sentences import about, open_claims
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.scenarios import moves_total, usual


def totals_notes(plan: Plan) -> tuple[str, ...]:
    """Return sentences on fixed queries, claims without a limit, and the ledger, for totals."""
    if not plan.totals:
        return ()
    fixed = ", ".join(query.name for query in plan.fixed)
    claims = [(about(*each), moves_total(plan, *each)) for each in usual(plan)]
    return (
        *([f"Fixed by the totals, and not measured: {fixed}."] if fixed else []),
        open_claims(claims, [total.name for total in plan.totals]),
        "The dataset's account in the ledger must be registered with these totals (neyman ledger "
        "create LEDGER --plan PLAN), and each later plan must declare them.",
    )
