"""What a plan says of its exact totals: which claims have a limit, and which have none."""

from __future__ import annotations

from neyman.accounting.semantics.sentences import open_claims
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.scenarios import Scenario, moves_total, usual


def totals_notes(plan: Plan) -> tuple[str, ...]:
    """Return the claims that no total moves and those without a limit; none without totals."""
    if not plan.totals:
        return ()
    limited = [_about(each) for each in usual(plan) if not moves_total(plan, *each)]
    unlimited = [_about(each) for each in usual(plan) if moves_total(plan, *each)]
    return (
        open_claims(limited, unlimited, [total.name for total in plan.totals]),
        "The dataset's account in the ledger must be registered with these totals (neyman ledger "
        "create LEDGER --plan PLAN), and each later plan must declare them.",
    )


def _about(scenario: Scenario) -> str:
    (name,), within = scenario
    return name if within is None else f"{name} within a known {within}"
