"""Compute cumulants of a privacy loss, and bound how far a sum of losses is from normal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.external_pld import ExternalPld
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Loss
from neyman.curves.losses.non_private import NonPrivateLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.numerics.atoms import UNIT


@dataclass(frozen=True)
class Limits:
    """Limit the computation of cumulants from a circle in the complex plane."""

    cumulants: int = 5
    berry_esseen: float = 0.56  # constant of the theorem


LIMITS = Limits()


def cumulants(losses: Composition) -> tuple[float, ...]:
    """Estimate the first five cumulants of the finite part of a sum of losses, up to rounding.

    Each loss's moments come from e^K on a circle about 0 (Cauchy), where K is its cumulant
    generating function. Cumulants of a sum add.

    Args:
        losses: independent losses of one ordered pair.

    Raises:
        ValueError: the loss has no distribution.
    """
    each = [(_cumulants(_moments(loss)), n) for loss, n in losses.parts]
    return tuple(math.fsum(n * k[j] for k, n in each) for j in range(LIMITS.cumulants))


@dataclass(frozen=True)
class _Moments:
    """Represent E[(L - center)^j] for j = 0 to 5, each with a bound on its error."""

    center: float
    values: tuple[float, ...]
    errors: tuple[float, ...]


@lru_cache(maxsize=256)
def _moments(loss: Loss) -> _Moments:
    """Compute moments about ``center`` from M(z) = e^{K(z) - K(0) - z center} on a circle |z| = r.

    The mean of M(z) z^-j over the circle is the j-th moment divided by j!. The code uses 32 points,
    and r = R / 4 for an outer radius R. The error is below 4^-32 (M(R) + M(-R)).
    """
    if isinstance(loss, (RenyiBound, ExternalPld, NonPrivateLoss)):
        raise ValueError(
            f"mechanism: {loss!r} has no distribution of the loss to expand; give one that has"
        )
    origin, mean, variance = (float(v[0]) for v in loss.moments(np.zeros(1)))
    if variance <= 0:
        return _Moments(mean, (1.0, *[0.0] * LIMITS.cumulants), (0.0,) * (LIMITS.cumulants + 1))

    largest_deviation = 1e50  # of a loss; the least standard deviation is its inverse
    if not 1 / largest_deviation <= math.sqrt(variance) <= largest_deviation:
        raise ValueError(
            f"mechanism: {loss!r} has the standard deviation {math.sqrt(variance):.3g}, and powers "
            "of that leave the floats; ask the curve, mechanism.tradeoff(), which is certified"
        )

    def k(z: complex) -> complex:
        return loss.log_mgf(np.array([z]))[0] - origin - z * mean

    wide = 4 / math.sqrt(variance)
    largest_k = 3.0  # the largest K on the outer circle, four times as wide
    while not max(np.real(k(wide)), np.real(k(-wide))) < largest_k:
        wide /= 2
        if wide < 1e-300:
            # Guards against a loss without exponential moments.
            raise ValueError(f"mechanism: {loss!r} has no exponential moments")
    r = wide / 4
    circle_points = 32
    angles = (2 * np.arange(circle_points // 2) + 1) * math.pi / circle_points
    circle = r * np.exp(1j * angles)
    mgf = np.exp(np.array([k(z) for z in circle]))
    most = math.exp(max(np.real(k(r)), np.real(k(-r)), 0.0))
    alias = 2 * math.exp(largest_k) * (r / wide) ** circle_points
    rounding = max(float(loss.mgf_rounding(np.array([z]))[0]) for z in circle)
    # Two sums and a product: 4 units of K's terms. A power of e, the wave, whose angle errs by 32
    # units, a product, and a sum of 16: 42. They count twice below, so for 128 units and more.
    rounding += 16 * UNIT * (1 + abs(origin) + r * abs(mean) + largest_k)  # slack: counted
    values: list[float] = []
    errors: list[float] = []
    for j in range(LIMITS.cumulants + 1):
        scale = math.factorial(j) / r**j
        values.append(
            scale * 2 / circle_points * float(np.real(mgf * np.exp(-1j * j * angles)).sum())
        )
        errors.append(scale * (2 * rounding * most + alias))
    return _Moments(mean, tuple(values), tuple(errors))


def _cumulants(moments: _Moments) -> tuple[float, ...]:
    """Return the first five cumulants, with the center added to the first one.

    k_n = m_n - sum over j of C(n - 1, j - 1) k_j m_{n - j}.
    """
    m, k = moments.values, [0.0]
    for n in range(1, LIMITS.cumulants + 1):
        rest = (math.comb(n - 1, j - 1) * k[j] * m[n - j] for j in range(1, n))
        k.append(m[n] - math.fsum(rest))
    return (moments.center + k[1], *k[2:])


def normal_band(losses: Composition) -> float | None:
    """Bound the distance of the finite part's distribution from the normal one (Berry and Esseen).

    The bound is 0.56 (sum of E|L - EL|^3) / (sum of variances)^{3/2}, from moments with their
    errors and E|X|^3 <= sqrt(E X^2 E X^4). A Gaussian loss adds nothing to the numerator: it is a
    sum of arbitrarily many small Gaussians.

    Returns:
        The largest distance between the two distribution functions, at most 1. None if a loss is
        known only by lower and upper brackets.

    Source: Shevtsova 2010 for the constant.
    """
    above: list[float] = []
    below: list[float] = []
    for loss, n in losses.parts:
        if isinstance(loss, LossBracket):
            return None
        m = _moments(loss)
        most = [abs(v) + e for v, e in zip(m.values, m.errors, strict=True)]
        below.append(n * (m.values[2] - m.errors[2] - most[1] ** 2))
        if not isinstance(loss, GaussianLoss):
            third = math.sqrt(most[2] * most[4])
            above.append(n * (third ** (1 / 3) + most[1]) ** 3)
    variance = math.fsum(below)
    if variance <= 0:
        return 0.0 if not math.fsum(above) else 1.0
    return min(LIMITS.berry_esseen * math.fsum(above) / variance**1.5 * (1 + 1e-12), 1.0)


def fourth_moment(losses: Composition, mean: float) -> float:
    """Return an upper bound on E (S - mean)^4, with S the finite part of the sum.

    Each of n equal parts with central moments m_2 and m_4 adds the fourth cumulant m_4 - 3 m_2^2.

    Args:
        losses: independent losses of one ordered pair.
        mean: approximate mean of S.
    """
    excess: list[float] = []
    square: list[float] = []
    places, sizes = [-mean], [abs(mean)]
    off = 0.0
    for loss, n in losses.parts:
        m = _moments(loss)
        most = [abs(v) + e for v, e in zip(m.values, m.errors, strict=True)]
        # Minkowski: from about the center to about the mean, which is at most most[1] away.
        # same: - most -> + most: Safe: most[1] is the rounding of a centered mean. Its square,
        # times 12 m_2, is below the 4 m_4^(3/4) most[1] that Minkowski's inequality adds in the
        # same line.
        second = max(m.values[2] - m.errors[2] - most[1] ** 2, 0.0)
        excess.append(n * ((most[4] ** 0.25 + most[1]) ** 4 - 3 * second**2))
        square.append(n * most[2])
        places.append(n * m.center)
        sizes.append(n * abs(m.center))
        off += n * most[1]
    # Each product errs by one unit, and the exact sum by one when it is rounded.
    off += abs(math.fsum(places)) + 8 * UNIT * math.fsum(sizes)  # slack: counted
    central = max(math.fsum(excess) + 3 * math.fsum(square) ** 2, 0.0)
    return (central**0.25 + off) ** 4 * (1 + 1e-12)
