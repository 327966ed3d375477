"""Which engine answers for a sum of losses.

What is known in closed form comes first, then what a lattice or a few sums hold exactly, then the
contour, and a grid for a few releases whose K is costly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neyman.losses.bounded_range import BoundedRangeLoss, EnvelopeLoss
from neyman.losses.bracket import BracketedLoss, ComposedLattice, sides
from neyman.losses.external_pld import ExternalPld
from neyman.losses.finite import OffLatticeLoss
from neyman.losses.gaussian import GaussianLoss
from neyman.losses.laplace import LaplaceLoss
from neyman.losses.loss import Loss
from neyman.losses.mixture import GaussianMixtureLoss, MixtureLoss
from neyman.losses.non_private import NonPrivateLoss
from neyman.losses.random_allocation import RandomAllocationLoss
from neyman.losses.subsampled import SubsampledGaussianLoss, SubsampledLoss
from neyman.numerics.arrays import Array
from neyman.numerics.rounding import above
from neyman.profiles.bounded_range import BoundedRangeProfile, EnvelopeProfile
from neyman.profiles.bracketed import BracketProfile
from neyman.profiles.closed_form import (
    GaussianMixtureProfile,
    GaussianProfile,
    LaplaceProfile,
    MixtureProfile,
    NonPrivateProfile,
    PerfectProfile,
)
from neyman.profiles.contour import ContourProfile
from neyman.profiles.contour_line import line_for
from neyman.profiles.convolution import dots_profile, exact_profile
from neyman.profiles.one_subsampled_step import SubsampledStepProfile, once
from neyman.profiles.profile import Interval, Profile
from neyman.renyi.implied_profile import ImpliedProfile
from neyman.shuffling.loss import ShuffledLoss, unshuffled

if TYPE_CHECKING:
    from neyman.losses.composition import Composition

__all__ = ["ExternalPldProfile", "TwoEngineProfile", "contour_profile", "profile"]


MANY = 400  # values of a loss, of which K is a sum
FEW = 64  # releases, of which a grid holds enough digits
SOME = 10_000  # of which it holds some
PROBES = (-14.0, -6.0, -2.0)  # log deltas at which the contour shows what it can
LOOSE = 1e-3  # width of log delta from which another engine is asked first
NEED = 45.0  # e-folds by which the characteristic function has to die out for the contour


def profile(losses: Composition) -> Profile:
    """The engine that suits these losses, ready to be asked."""
    parts, of = losses.parts, type(losses).of
    kinds = [loss for loss, _ in parts]
    if not parts:
        return PerfectProfile()
    if any(isinstance(loss, NonPrivateLoss) for loss in kinds):
        return NonPrivateProfile()
    if any(isinstance(loss, ExternalPld) for loss in kinds):
        return ExternalPldProfile(losses)
    if losses.bare is not None:
        return ImpliedProfile(losses.bare, losses.known)
    if len(parts) == 1:
        if isinstance(kinds[0], GaussianLoss):
            return GaussianProfile(kinds[0].mu)
        alone = _alone(losses, kinds[0]) if parts[0][1] == 1 else None
        if alone is not None:
            return alone
    if any(isinstance(loss, ShuffledLoss) for loss in kinds):
        return unshuffled(losses).profile
    if any(isinstance(loss, BracketedLoss) for loss in kinds):
        lower, upper = sides(parts)
        how = dict.fromkeys(loss.how for loss in kinds if isinstance(loss, BracketedLoss))
        return BracketProfile(of(lower).profile, of(upper).profile, ", ".join(how))
    if any(isinstance(loss, BoundedRangeLoss) for loss in kinds):
        return BoundedRangeProfile(losses)
    exact = exact_profile(losses)
    if exact is not None:
        return exact
    if not _smooth(losses):
        return dots_profile(losses)
    contour = contour_profile(losses)
    return TwoEngineProfile(dots_profile(losses), contour) if _blurred(losses) else contour


def contour_profile(losses: Composition) -> ContourProfile:
    """The contour, for any sum that has a K."""

    @cache
    def backward() -> Profile:
        """That of the reversed losses; the one that they use themselves, if it is a contour."""
        reverse = losses.reverse()
        known = reverse.profile
        quick = isinstance(known, (ContourProfile, TwoEngineProfile))
        return known if quick else contour_profile(reverse)

    return ContourProfile(losses, backward, losses.infinite, above(losses.supremum), losses.log_top)


def _alone(losses: Composition, loss: Loss) -> Profile | None:
    """The profile of one release, where it has a closed form."""
    of = type(losses).of
    if isinstance(loss, LaplaceLoss):
        return LaplaceProfile(loss.exact_epsilon)
    if isinstance(loss, SubsampledGaussianLoss):
        pair = GaussianProfile(loss.distance)
        return SubsampledStepProfile(pair, pair, loss.rate, "removed" if loss.removed else "added")
    if isinstance(loss, GaussianMixtureLoss):
        return GaussianMixtureProfile(loss)
    if isinstance(loss, MixtureLoss):
        return MixtureProfile(tuple((w, of([(x, 1)]).profile) for w, x in loss.parts))
    if isinstance(loss, (BoundedRangeLoss, EnvelopeLoss)):
        return EnvelopeProfile(loss.exact_epsilon)
    if isinstance(loss, ShuffledLoss):
        return loss.profile
    if isinstance(loss, BracketedLoss) and not _of_one_sum(loss):
        return None
    return once(loss, lambda parts: of(parts).profile)


def _of_one_sum(loss: BracketedLoss) -> bool:
    """Whether both sides are grids for one and the same sum."""
    low, high = (getattr(side, "inner", None) for side in (loss.lower, loss.upper))
    return (
        isinstance(low, ComposedLattice)
        and isinstance(high, ComposedLattice)
        and low.parts == high.parts
    )


def _blurred(losses: Composition) -> bool:
    """Whether the contour needs a tiny release that costs it its digits: samples, few or rare."""
    sampled = any(
        isinstance(loss, (SubsampledGaussianLoss, SubsampledLoss)) for loss, _ in losses.parts
    )
    if not sampled or sum(count for _, count in losses.parts) > SOME:
        return False
    for log_delta in PROBES:
        found = line_for(losses, log_delta)
        if found is None:
            continue  # so private that the epsilon is 0
        line, epsilon = found
        if line.bump is None:
            return False
        if line.width(epsilon) > LOOSE:
            return True
    return False


def _smooth(losses: Composition) -> bool:
    """Whether the contour certifies its end, or K is cheap as far as a tiny release needs it."""
    many = any(
        isinstance(x, RandomAllocationLoss)
        or (isinstance(x, OffLatticeLoss) and len(x.values) > MANY)
        for x, _ in losses.parts
    )
    if many and sum(n for _, n in losses.parts) <= FEW:
        return False
    if losses.places(1.0, 1e6) < 2 * losses.places(1.0, 1.0):
        return True
    tilt = np.ones(1)
    far = 1e9 / math.sqrt(max(float(losses.moments(tilt)[2][0]), 1e-300))
    return bool(losses.log_decay(1.0, np.array([far]), NEED)[0] <= -NEED)


ENOUGH = 1e-2  # relative width of power with which the quicker answer is left as it is
FINE = 1e-3  # and of delta


class TwoEngineProfile(Profile):
    """Privacy profile of one ordered pair, by two engines whose intervals both hold.

    Args:
        quick: asked first.
        slow: asked beside it where its interval is wider than 1% (power) or 0.1% (delta).
    """

    def __init__(self, quick: Profile, slow: Profile) -> None:
        self._quick, self._slow = quick, slow
        self.method = quick.method

    def log_deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Bounds on log delta at many epsilons."""
        return self._both(epsilons, FINE, lambda profile, asked: profile.log_deltas(asked))

    def log_delta(self, epsilon: float) -> Interval:
        """Bounds on log delta(epsilon)."""
        low, high = self.log_deltas(np.array([epsilon]))
        return float(low[0]), float(high[0])

    def log_powers(self, log_levels: Array) -> tuple[Array, Array]:
        """Bounds on log power at many levels."""
        return self._both(log_levels, ENOUGH, lambda profile, asked: profile.log_powers(asked))

    def log_power(self, log_level: float) -> Interval:
        """Bounds on log power."""
        low, high = self.log_powers(np.array([log_level]))
        return float(low[0]), float(high[0])

    def epsilon_near(self, log_delta: float) -> float:
        """About the epsilon that has this log delta."""
        return self._quick.epsilon_near(log_delta)

    def mu(self) -> Interval | None:
        """Neither can certify a supremum."""
        return None

    def _both(
        self, places: Array, enough: float, ask: Callable[[Profile, Array], tuple[Array, Array]]
    ) -> tuple[Array, Array]:
        low, high = (np.array(found, dtype=float) for found in ask(self._quick, places))
        with np.errstate(invalid="ignore"):  # where both are -inf nothing is missing
            wide = (high > low) & ~(high - low <= enough)
        if wide.any():
            below, above = ask(self._slow, np.asarray(places)[wide])
            low[wide], high[wide] = np.maximum(low[wide], below), np.minimum(high[wide], above)
            self.method = f"{self._quick.method}; {self._slow.method}"
        return low, high


class ExternalPldProfile(Profile):
    """The profile of a sum with stated parts; its method names their sources."""

    def __init__(self, whole: Composition) -> None:
        sources = [loss.source for loss, _ in whole.parts if isinstance(loss, ExternalPld)]
        parts = [(x.ahead if isinstance(x, ExternalPld) else x, n) for x, n in whole.parts]
        self._profile = type(whole).of(parts).profile
        self.method = "; ".join([*dict.fromkeys(sources), self._profile.method])

    def log_delta(self, epsilon: float) -> Interval:
        """As stated."""
        return self._profile.log_delta(epsilon)

    def log_power(self, log_level: float) -> Interval:
        """As stated."""
        return self._profile.log_power(log_level)

    def log_deltas(self, epsilons: NDArray) -> tuple[NDArray, NDArray]:
        """As stated."""
        return self._profile.log_deltas(epsilons)

    def log_powers(self, log_levels: NDArray) -> tuple[NDArray, NDArray]:
        """As stated."""
        return self._profile.log_powers(log_levels)

    def epsilon_near(self, log_delta: float) -> float:
        """As stated."""
        return self._profile.epsilon_near(log_delta)

    def mu(self) -> Interval | None:
        """As stated."""
        return self._profile.mu()
