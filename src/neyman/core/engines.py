"""Which engine answers for a sum of losses.

What is known in closed form comes first, then what a lattice or a few sums hold exactly, then the
contour, and a grid for a few releases whose K is costly.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from neyman.core.allocated import AllocatedLoss
from neyman.core.amplify import SubsampledGaussianLoss
from neyman.core.bracket import BracketedLoss, BracketProfile, JointLoss, sides
from neyman.core.closed import GaussianProfile, LaplaceProfile, PerfectProfile
from neyman.core.either import EitherProfile
from neyman.core.finite import AtomsLoss
from neyman.core.grid import dots_profile, exact_profile
from neyman.core.implied import ImpliedProfile
from neyman.core.loss import GaussianLoss, LaplaceLoss, Loss
from neyman.core.mixture import ChoiceLoss, GaussianMixtureLoss
from neyman.core.once import OnceProfile, once
from neyman.core.ranged import EnvelopeLoss, EnvelopeProfile, RangedLoss, RangedProfile
from neyman.core.revealed import RevealedLoss, RevealedProfile
from neyman.core.sampled import SampledLoss
from neyman.core.shuffled import ShuffledLoss, unshuffled
from neyman.core.single import ChoiceProfile, GaussianMixtureProfile
from neyman.core.stated import StatedLoss, StatedProfile
from neyman.numerics.contour import ContourProfile
from neyman.numerics.line import line_for
from neyman.numerics.nearest import above
from neyman.numerics.profile import Profile

if TYPE_CHECKING:
    from neyman.core.composition import Composition

__all__ = ["contour_profile", "profile_of"]

MANY = 400  # values of a loss, of which K is a sum
FEW = 64  # releases, of which a grid holds enough digits
SOME = 10_000  # of which it holds some
PROBES = (-14.0, -6.0, -2.0)  # log deltas at which the contour shows what it can
LOOSE = 1e-3  # width of log delta from which another engine is asked first
NEED = 45.0  # e-folds by which the characteristic function has to die out for the contour


def profile_of(losses: Composition) -> Profile:
    """The engine that suits these losses, ready to be asked."""
    parts, of = losses.parts, type(losses).of
    kinds = [loss for loss, _ in parts]
    if not parts:
        return PerfectProfile()
    if any(isinstance(loss, RevealedLoss) for loss in kinds):
        return RevealedProfile()
    if any(isinstance(loss, StatedLoss) for loss in kinds):
        return StatedProfile(losses)
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
    if any(isinstance(loss, RangedLoss) for loss in kinds):
        return RangedProfile(losses)
    exact = exact_profile(losses)
    if exact is not None:
        return exact
    if not _smooth(losses):
        return dots_profile(losses)
    contour = contour_profile(losses)
    return EitherProfile(dots_profile(losses), contour) if _blurred(losses) else contour


def contour_profile(losses: Composition) -> ContourProfile:
    """The contour, for any sum that has a K."""

    @cache
    def backward() -> Profile:
        """That of the reversed losses; the one that they use themselves, if it is a contour."""
        reverse = losses.reverse()
        known = reverse.profile
        quick = isinstance(known, (ContourProfile, EitherProfile))
        return known if quick else contour_profile(reverse)

    return ContourProfile(losses, backward, losses.infinite, above(losses.supremum), losses.log_top)


def _alone(losses: Composition, loss: Loss) -> Profile | None:
    """The profile of one release, where it has a closed form."""
    of = type(losses).of
    if isinstance(loss, LaplaceLoss):
        return LaplaceProfile(loss.exact_epsilon)
    if isinstance(loss, SubsampledGaussianLoss):
        pair = GaussianProfile(loss.distance)
        return OnceProfile(pair, pair, loss.rate, "removed" if loss.removed else "added")
    if isinstance(loss, GaussianMixtureLoss):
        return GaussianMixtureProfile(loss)
    if isinstance(loss, ChoiceLoss):
        return ChoiceProfile(tuple((w, of([(x, 1)]).profile) for w, x in loss.parts))
    if isinstance(loss, (RangedLoss, EnvelopeLoss)):
        return EnvelopeProfile(loss.exact_epsilon)
    if isinstance(loss, ShuffledLoss):
        return loss.profile
    if isinstance(loss, BracketedLoss) and not _of_one_sum(loss):
        return None
    return once(loss, lambda parts: of(parts).profile)


def _of_one_sum(loss: BracketedLoss) -> bool:
    """Whether both sides are grids for one and the same sum."""
    low, high = (getattr(side, "inner", None) for side in (loss.lower, loss.upper))
    return isinstance(low, JointLoss) and isinstance(high, JointLoss) and low.parts == high.parts


def _blurred(losses: Composition) -> bool:
    """Whether the contour needs a tiny release that costs it its digits: samples, few or rare."""
    sampled = any(
        isinstance(loss, (SubsampledGaussianLoss, SampledLoss)) for loss, _ in losses.parts
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
        isinstance(x, AllocatedLoss) or (isinstance(x, AtomsLoss) and len(x.values) > MANY)
        for x, _ in losses.parts
    )
    if many and sum(n for _, n in losses.parts) <= FEW:
        return False
    if losses.places(1.0, 1e6) < 2 * losses.places(1.0, 1.0):
        return True
    tilt = np.ones(1)
    far = 1e9 / math.sqrt(max(float(losses.moments(tilt)[2][0]), 1e-300))
    return bool(losses.log_decay(1.0, np.array([far]), NEED)[0] <= -NEED)
