"""Whether a mechanism keeps a budget, and by how much it does not."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

from neyman.core.bare import BareLoss
from neyman.core.composition import Composition
from neyman.core.kept import bare_budget, bare_excess, keeps_bare
from neyman.core.loss import FiniteLoss, GaussianLoss
from neyman.core.order import Described
from neyman.core.questions import log_of
from neyman.core.tradeoff import Tradeoff
from neyman.numerics import check

__all__ = ["admits", "excess"]


def admits(budget: Tradeoff, mechanism: Described) -> bool:
    """See `Tradeoff.admits`."""
    check.described("mechanism", mechanism)
    bare = bare_budget(budget.alternatives)
    if bare is None:
        return mechanism.tradeoff() >= budget
    own = getattr(mechanism, "rho", None)
    with suppress(*[ValueError] if bare[1] else []):  # what can fail outright has no rho
        exact = own() if callable(own) else None
        if isinstance(exact, Fraction) and BareLoss(exact).within(bare[0]):
            return True  # the description is at hand
    spent = mechanism.tradeoff()
    return not spent.sources and keeps_bare(_both(spent), bare)


def excess(budget: Tradeoff, mechanism: Described) -> float | None:
    """See `Tradeoff.excess`."""
    check.described("mechanism", mechanism)
    bare = bare_budget(budget.alternatives)
    spent = mechanism.tradeoff()
    if bare is not None:
        return bare_excess(_both(spent), bare)
    if len(budget.alternatives) != 1 or len(budget.alternatives[0].parts) != 1:
        return None
    loss, count = budget.alternatives[0].parts[0]
    if isinstance(loss, GaussianLoss):
        return log_of(spent.gdp_above()) - log_of(loss.mu)
    if not isinstance(loss, FiniteLoss) or count > 1 or loss.failure != loss.missing:
        return None
    if loss.index == (-1, 1) and not loss.infinite:
        return log_of(spent.pure().upper) - log_of(float(loss.supremum))
    if loss.index not in ((-1, 1), (0,)):
        return None
    epsilon = float(loss.supremum) if loss.index == (-1, 1) else 0.0
    return spent.log_delta(epsilon).upper - log_of(loss.infinite)


def _both(spent: Tradeoff) -> list[Composition]:
    """Every pair in both orders, in which a budget has to be kept."""
    return list(dict.fromkeys(x for c in spent._directions for x in (c, c.reverse())))
