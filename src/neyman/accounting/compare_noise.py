"""Compare the errors of noise distributions that meet the same guarantee.

Calibration finds the least noise of each kind for one budget. Then this module computes the noise's
variance, mean absolute error, and tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, ndtri_exp

from neyman.accounting.calibrate import Budget, calibrate
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.canonical.canonical_noise import CanonicalNoise
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import Bound

Kind = Gaussian | Laplace | DiscreteGaussian | DiscreteLaplace | RoundedGaussian | CanonicalNoise

TAILS = (0.05, 0.001, 1e-9)


@dataclass(frozen=True)
class Limits:
    """Limit the sums and integrals that give the errors of noise."""

    summed_sigma: float = 10_000.0  # sigma up to which a discrete Gaussian's distribution is summed
    summed_deviations: int = 14  # standard deviations in a sum
    digits: int = 5


LIMITS = Limits()
CANONICAL = "canonical"
KINDS: dict[str, Callable[[float, int], Kind]] = {
    "Laplace": Laplace,
    "discrete Laplace": DiscreteLaplace,
    "Gaussian": Gaussian,
    "discrete Gaussian": DiscreteGaussian,
    "rounded Gaussian": RoundedGaussian,
}


@dataclass(frozen=True)
class Alike:
    """Represent one kind of noise, calibrated to a budget, and the error of one answer.

    Args:
        scale: the least parameter (scale of a Laplace, sigma of a Gaussian). It is inf if no noise
            of this kind is enough. For canonical noise it is the sensitivity, because the budget is
            the curve.
        mean_error: E|noise|.
        tails: pairs (p, t). t is the smallest number that the error exceeds with probability at
            most p.
    """

    kind: str
    scale: float
    variance: Bound
    mean_error: Bound
    tails: tuple[tuple[float, Bound], ...]


@dataclass(frozen=True)
class Comparison:
    """Compare several kinds of noise at one budget. `print` shows a table with rounded numbers.

    Args:
        count: number of releases that share the budget.
        sensitivity: largest change of an answer between neighbors.
        kinds: in the requested order.
    """

    budget: Budget
    count: int
    sensitivity: int
    kinds: tuple[Alike, ...]

    def __str__(self) -> str:
        levels = [f"{p:g} beyond" for p, _ in self.kinds[0].tails] if self.kinds else []
        rows = [["noise", "scale", "variance", "mean error", *levels]]
        for k in self.kinds:
            bounds = (k.variance, k.mean_error, *(t for _, t in k.tails))
            numbers = (k.scale, *(b.upper for b in bounds))
            rows.append([k.kind, *(f"{x:.{LIMITS.digits}g}" for x in numbers)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join(
            "  ".join(
                text.ljust(width) if i == 0 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )


def alike(
    budget: Budget,
    count: int = 1,
    sensitivity: int = 1,
    kinds: Iterable[str] | None = None,
    tails: Iterable[float] = TAILS,
) -> Comparison:
    """Compare kinds of noise; see `neyman.alike`."""
    number = check.integer("count", count, 1)
    shift = check.integer("sensitivity", sensitivity, 1)
    levels = tuple(check.between("tails", p, 1e-30, 1.0) for p in check.several("tails", tails))
    if any(p == 1 for p in levels):
        raise ValueError(f"tails = {levels!r} must be below 1")
    every = (*KINDS, CANONICAL) if number == 1 else tuple(KINDS)
    rows: list[Alike] = []
    for kind in every if kinds is None else check.several("kinds", kinds, '["Gaussian"]'):
        check.one_of("kinds", kind, every)
        noise = _enough(kind, budget, number, shift)
        if noise is None:
            never = Bound(math.inf, math.inf, "upper", "no noise of this kind is enough")
            rows.append(Alike(kind, math.inf, never, never, tuple((p, never) for p in levels)))
        else:
            rows.append(error_of(noise, levels))
    return Comparison(budget, number, shift, tuple(rows))


def error_of(noise: Kind, tails: Iterable[float] = TAILS) -> Alike:
    """Return the error of one answer with this noise.

    Args:
        noise: a `Laplace`, `DiscreteLaplace`, `Gaussian`, `DiscreteGaussian`, `RoundedGaussian` or
            `CanonicalNoise`.
        tails: as for `alike`.
    """
    levels = tuple(tails)
    if isinstance(noise, Laplace):
        b = float(noise.scale)
        at = [_around(b * -math.log(p)) for p in levels]
        return _row("Laplace", b, _around(2 * b * b), _around(b), levels, at)
    if isinstance(noise, Gaussian):
        s = float(noise.sigma)
        at = [_around(-s * _normal(p), 128) for p in levels]
        mean = _around(s * math.sqrt(2 / math.pi))
        return _row("Gaussian", s, _around(s * s), mean, levels, at)
    if isinstance(noise, DiscreteLaplace):
        return _discrete_laplace(float(noise.scale), levels)
    if isinstance(noise, CanonicalNoise):
        return _canonical(noise, levels)
    if isinstance(noise, RoundedGaussian):
        return _errors_of_rounded_normal(noise.sigma, levels)
    return (_errors_by_sums if noise.sigma <= LIMITS.summed_sigma else _wide)(noise.sigma, levels)


def _enough(kind: str, budget: Budget, count: int, shift: int) -> Kind | None:
    """Return the least noise that meets the budget, or None if no scale is enough.

    ``kind``: name of the noise. ``shift``: sensitivity of each of the ``count`` answers.
    """
    if kind == CANONICAL:
        curve = budget.tradeoff()
        parts = [loss for c in curve.alternatives for loss, _ in c.parts]
        # A bare guarantee says more than the curve that it implies. Perfect privacy needs no noise.
        bare = any(isinstance(loss, RenyiBound) for loss in parts)
        return CanonicalNoise(curve, shift) if parts and not bare else None
    make = KINDS[kind]
    scale = least_scale(lambda scale: make(scale, shift) * count, budget)
    return None if scale is None else make(scale, shift)


def least_scale(make: Callable[[float], Mechanism], budget: Budget) -> float | None:
    """Return the least scale that meets the budget. Return None if no scale is enough."""
    try:
        return calibrate(make, budget)
    except ValueError:
        if budget.admits(make(1e12)):  # meets any budget that this kind of noise can meet
            raise
        return None


def _row(
    kind: str,
    scale: float,
    variance: Bound,
    mean: Bound,
    levels: tuple[float, ...],
    at: list[Bound],
) -> Alike:
    return Alike(kind, scale, variance, mean, tuple(zip(levels, at, strict=True)))


def _normal(p: float) -> float:
    """Return the standard normal quantile of p / 2."""
    return float(ndtri_exp(math.log(p / 2)))


def _around(value: float, units: float = 16, method: str = "closed form") -> Bound:
    # slack: errors_of_noise
    return Bound(value * (1 - units * UNIT), value * (1 + units * UNIT), "upper", method)


def _integer(low: float, high: float) -> Bound:
    """Return bounds on the least whole number >= max(x, 0), where ``low`` <= x <= ``high``."""
    slack = 64 * UNIT * (1 + abs(high))  # slack: errors_of_noise
    ends = [max(math.ceil(x), 0) for x in (low - slack, high + slack)]
    return Bound(ends[0], ends[1], "upper", "whole numbers")


def _discrete_laplace(scale: float, levels: tuple[float, ...]) -> Alike:
    """Compute errors from P(|X| > k) = 2 r^{k + 1} / (1 + r), r = e^{-1/scale}.

    ``levels``: the tail probabilities.
    """
    r, left = math.exp(-1 / scale), -math.expm1(-1 / scale)
    at = [scale * (math.log(2 / p) - math.log1p(r)) - 1 for p in levels]
    variance, mean = 2 * r / left**2, 2 * r / (left * (1 + r))
    # r errs by a unit of 1 / scale, if 1 / scale is large.
    units = 32 + 4 / scale
    return _row(
        "discrete Laplace",
        scale,
        _around(variance, units),
        _around(mean, units),
        levels,
        [_integer(x, x) for x in at],
    )


def _errors_by_sums(sigma: float, levels: tuple[float, ...]) -> Alike:
    """Compute errors by sums over the first values of the probability mass function.

    The mass beyond these values falls geometrically. ``levels``: the tail probabilities.
    """
    k = np.arange(1, math.ceil(LIMITS.summed_deviations * sigma) + 8, dtype=float)
    exponent = -((k / sigma) ** 2) / 2
    mass = 2 * np.exp(exponent)
    following = (k[-1] + 1) / sigma
    ratio = math.exp(-following / sigma)
    rest = 2 * math.exp(-(following**2) / 2) / (1 - ratio)
    # slack: the_variance_of_the_discrete_gaussian
    error = UNIT * (len(k) + 16 - 4 * float(exponent[-1]))
    tail = np.append(np.cumsum(mass[::-1])[::-1], 0.0)  # P(|X| > k), times the sum of all masses
    mass_sum = 1 + float(tail[0])

    def mean(power: int) -> Bound:
        value = float(np.sum((mass * k**power)[::-1])) / mass_sum
        # Beyond, k^2 grows by less than a factor of two from term to term.
        more = rest * 4 * (k[-1] + 1) ** power / mass_sum
        return Bound(value * (1 - 4 * error), (value + more) * (1 + 4 * error), "upper", "sums")

    at: list[Bound] = []
    for p in levels:
        low = int(np.argmax(tail * (1 - 4 * error) <= p * mass_sum))
        high = int(np.argmax((tail + rest) * (1 + 4 * error) <= p * mass_sum))
        at.append(Bound(low, high, "upper", "sums"))
    return _row("discrete Gaussian", sigma, mean(2), mean(1), levels, at)


def _errors_of_rounded_normal(sigma: float, levels: tuple[float, ...]) -> Alike:
    """Compute errors from P(|X| > k) = P(|Z| > k + 1/2), Z normal. Tails sum to moments [EE-8]."""
    at = [_integer(-sigma * _normal(p) - 0.5, -sigma * _normal(p) - 0.5) for p in levels]
    if sigma > LIMITS.summed_sigma:
        mean = sigma * math.sqrt(2 / math.pi)
        # slack: counted
        means = _around(mean, 16 + 0.25 / sigma**2 / UNIT, "integral")  # in units [EE-8]
        return _row("rounded Gaussian", sigma, _around(sigma**2 + 1 / 12), means, levels, at)
    k = np.arange(math.ceil(LIMITS.summed_deviations * sigma) + 8, dtype=float)[::-1]
    x = (k + 0.5) / sigma
    beyond = erfcx(x / math.sqrt(2)) * np.exp(-x * x / 2)
    # slack: the_variance_of_rounded_noise
    error = UNIT * (len(k) + 256 + 16 * LIMITS.summed_deviations**2)

    def moment(weight: Array) -> Bound:
        value = float(np.sum(weight * beyond))
        # More than the mass beyond them, up to `summed_sigma` [EE-8].
        return Bound(value * (1 - error), value * (1 + error) + 1e-30, "upper", "sums")

    return _row("rounded Gaussian", sigma, moment(2 * k + 1), moment(np.ones_like(k)), levels, at)


def _wide(sigma: float, levels: tuple[float, ...]) -> Alike:
    """Compute errors by integrals, for a sigma so large that sums have too many terms.

    The normalizing constant and the variance equal the normal ones up to e^-77 (Poisson summation).
    The error of the trapezoid sum of |x| e^{-x^2 / 2 sigma^2} is at most an eighth of the variation
    of the function's derivative. This variation is below 2 on either side of 0.
    """
    middle = sigma * math.sqrt(2 / math.pi)
    mean = _around(middle, 16 + 0.25 / sigma**2 / UNIT, "integral")  # slack: counted
    at = [_integer(-sigma * _normal(p) - 1, -sigma * _normal(p)) for p in levels]
    return _row("discrete Gaussian", sigma, _around(sigma * sigma), mean, levels, at)


def _canonical(noise: CanonicalNoise, levels: tuple[float, ...]) -> Alike:
    """Compute the errors of canonical noise. E|Z| is twice the integral of the tail.

    The tail is convex, because the density does not rise [EE-7]. So the integral over each piece is
    between the rectangle at its midpoint and the trapezoid. From integer to integer, the tail falls
    by a factor that does not rise, which bounds the rest.
    """
    law, scale = noise.law, float(noise.sensitivity)
    # Log of the tail at which the integral ends.
    end = max(float(law.place(np.array([-35.0]))[1][0]), 2.0)
    tail_pieces = 4096  # pieces of a tail's integral
    x = np.linspace(0.0, end, 2 * tail_pieces + 1)
    low, high = (np.exp(v) for v in law.log_tail(x))
    width = 2 * end / tail_pieces * scale
    # same: -1] -> -2]: Safe: the tail falls, so a ratio with an earlier place is larger, and so is
    # the rest in the upper end of the mean.
    ratio = float(high[-1]) / max(float(np.exp(law.log_tail(np.array([end - 1]))[0][0])), 1e-300)
    rest = 2 * scale * float(high[-1]) / (1 - ratio) if ratio < 1 else math.inf
    mean = Bound(
        width * float(low[1::2].sum()) * (1 - 1e-12),
        (width * float((high[:-2:2] + high[2::2]).sum()) / 2 + rest) * (1 + 1e-12),
        "upper",
        "the tail between chords and middles",
    )
    places = law.place(np.log(np.array(levels) / 2))
    at = [
        Bound(float(a) * scale * (1 - 1e-12), float(b) * scale * (1 + 1e-12), "upper", "quantile")
        for a, b in zip(*places, strict=True)
    ]
    return _row(CANONICAL, scale, noise.variance(), mean, levels, at)
