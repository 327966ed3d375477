"""Compare discrete and rounded Gaussian noise: which kind has smaller errors at a plan's budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from neyman.accounting.semantics.budget import Zcdp
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import NoiseKind
from neyman.publishing.tables.estimates import standard_error


@dataclass(frozen=True)
class Limits:
    """Limit the work to compare two kinds of noise, and the difference that justifies a change."""

    # A relative difference of standard errors that does not justify a change.
    relative_difference: float = 1e-3


LIMITS = Limits()


@dataclass(frozen=True)
class NoiseChoice:
    """Compare the kind of a plan's noise with the other kind at the same budget.

    ``ratio`` is the other kind's standard error divided by the plan's, as the geometric mean of the
    integer tables. If it is unknown, it is None, and ``reason`` says why.
    """

    kind: NoiseKind
    other: NoiseKind
    ratio: float | None
    reason: str = ""

    @property
    def better(self) -> NoiseKind:
        """Return the kind with the smaller errors, or the plan's own if they are about equal."""
        smaller = self.ratio is not None and self.ratio < 1 - LIMITS.relative_difference
        return self.other if smaller else self.kind

    def text(self) -> str:
        """Return one or two sentences that name the better kind."""
        if self.ratio is None:
            return f"Noise: {self.kind}. {self.reason}"
        percent = f"{100 * abs(self.ratio - 1):.2g}"
        if self.better == self.other:
            return (
                f'Noise: {self.kind}. The better kind for this budget is noise = "{self.other}": '
                f"standard errors {percent}% smaller."
            )
        if abs(self.ratio - 1) <= LIMITS.relative_difference:
            return f"Noise: {self.kind}. With {self.other} noise the errors are about the same."
        return (
            f"Noise: {self.kind}, the better kind for this budget. With {self.other} noise "
            f"standard errors are {percent}% larger."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON types."""
        return {
            "kind": self.kind,
            "other": self.other,
            "better": self.better,
            "standard_error_ratio": self.ratio,
        }


def noise_choice(plan: Plan) -> NoiseChoice:
    """Compare the plan's kind of noise with the other one at the same budget."""
    other: NoiseKind = "discrete-gaussian" if plan.rounded else "rounded-gaussian"
    measured = [entry for entry in plan.entries() if entry.public is None]
    if not measured:
        return NoiseChoice(plan.noise, other, None, "No table has noise.")
    alternatives = math.prod(max(1, len(entry.shifts)) for entry in measured)
    slow = plan.rounded and not isinstance(plan.budget, Zcdp)
    # The most combinations of shift vectors for which discrete noise is calibrated to compare it.
    if slow and alternatives > 8:
        reason = (
            f"Discrete Gaussian noise would have {alternatives:,} combinations of shift "
            "vectors, which take long to compare."
        )
        return NoiseChoice(plan.noise, other, None, reason)
    beside = plan.changed(noise=other)
    try:
        # The last digit of the scale does not justify the time to certify it.
        logs = [
            math.log(
                standard_error(entry.sigma_squared(beside.normal_scale), rounded=beside.rounded)
                / standard_error(entry.sigma_squared(plan.scale), rounded=plan.rounded)
            )
            for entry in measured
        ]
    except (PlanError, ValueError, ZeroDivisionError):
        reason = f"{other.capitalize()} noise cannot meet this budget."
        return NoiseChoice(plan.noise, other, None, reason)
    return NoiseChoice(plan.noise, other, math.exp(math.fsum(logs) / len(logs)))
