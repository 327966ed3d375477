"""Describe mechanisms that release a selected candidate or query, not a number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.curves.losses.bounded_range import BoundedRangeLoss
from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import response_loss
from neyman.curves.losses.zcdp_parameters import bounded_range_rho, pure_rho
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import (
    EPSILON,
    NON_NEGATIVE,
    POSITIVE,
    TRUTH,
    integer,
    pure_epsilon,
    rational,
)
from neyman.numerics import check

NOISES = ("laplace", "gumbel", "exponential")
MAX_ANSWERS = 10**9


@dataclass(frozen=True)
class ExponentialMechanism(Mechanism):
    """Draw one candidate with probability proportional to the exponential of its score.

    Args:
        epsilon: the *range* of the loss, at least 0: between neighbors, the loss is in
            [t - epsilon, t] for some t. If each score u moves by at most D, the weights
            e^{epsilon u / (2 D)} have this range. If all scores also move in the same direction,
            the weights e^{epsilon u / D} have it too. The mechanism is pure epsilon-DP.

    The odds of the power are at most e^epsilon times the odds of the level, and some exponential
    mechanism attains each point of this curve. Several releases have no single worst case.
    ``.upper`` is the smaller of two safe bounds: the composed envelope of all ranges, which also
    holds if later scores depend on earlier choices, but is not exact, and the bound from the worst
    divergence of each order. A repeated choice between two candidates attains ``.lower``. Renyi
    divergences are exact. `rho()` is at most epsilon^2 / 8, a quarter of the zCDP cost of other
    pure epsilon-DP mechanisms.

    The mechanism releases only the candidate, not its score or the lead over other candidates.

    Examples:
        >>> import neyman as ny
        >>> draw = ny.ExponentialMechanism(1)
        >>> round(float(draw.rho()), 6), round(float((draw * 10).tradeoff().epsilon(1e-6)), 3)
        (0.123302, 7.77)

    Source: McSherry and Talwar 2007; Dong, Durfee and Rogers 2020; Cesar and Rogers 2021.
    """

    RELATION = "any"

    epsilon: float | Fraction = field(metadata=EPSILON)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss of bounded range."""
        return (_range_loss(rational(self.epsilon)),)

    def rho(self) -> Fraction:
        """Return log(sinh(a) / a) + a coth(a) - 1, a = epsilon / 2, rounded up [ZC-7]."""
        return bounded_range_rho(rational(self.epsilon))


@dataclass(frozen=True)
class ReportNoisyMax(Mechanism):
    """Release the candidate with the largest noisy score.

    Args:
        scale: noise scale, above 0, in the units of the scores.
        sensitivity: largest move of a single score between neighbors, at least 0, same units.
        noise: "laplace", of density e^{-|x| / scale} / (2 scale); "exponential", of density
            e^{-x / scale} / scale for x > 0 (this is permute-and-flip); or "gumbel", equivalent to
            the exponential mechanism.
        monotone: True if all scores move in the same direction between neighbors, like counts if a
            record is added.

    Let epsilon = 2 sensitivity / scale, or half of it if monotone. The release is pure epsilon-DP
    for any number of candidates. With Gumbel noise, its loss has the range epsilon
    (`ExponentialMechanism`). For the other two noises, only pure epsilon is claimed: ``.upper`` is
    randomized response, and ``.lower`` comes from two candidates that change places.

    The mechanism releases only the index of the winner. The guarantee does not cover its noisy
    score, the order of the other candidates, or a second use of the same noise. The data must not
    break ties.

    Examples:
        >>> import neyman as ny
        >>> f = ny.ReportNoisyMax(scale=2).tradeoff()
        >>> round(float(f.pure()), 6)
        1.0

    Source: Dwork and Roth 2014, claim 3.9; McKenna and Sheldon 2020; [BR-6].
    """

    RELATION = "any"

    scale: float | Fraction = field(metadata=POSITIVE)
    sensitivity: float | Fraction = field(default=1, metadata=NON_NEGATIVE)
    noise: str = "laplace"
    monotone: bool = field(default=False, metadata=TRUTH)

    def __post_init__(self) -> None:
        super().__post_init__()
        check.one_of("noise", self.noise, NOISES)
        pure_epsilon("the epsilon of scale and sensitivity", self.epsilon())

    def epsilon(self) -> Fraction:
        """Return the proven pure epsilon as an exact rational."""
        ratio = rational(self.sensitivity) / rational(self.scale)
        return ratio * (1 if self.monotone else 2)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss: of bounded range for Gumbel noise, else of pure epsilon."""
        epsilon = self.epsilon()
        if self.noise == "gumbel":
            return (_range_loss(epsilon),)
        double = self.noise == "laplace"
        return (_pure(epsilon, _swap_bound(float(epsilon) / 2, double=double)),)

    def rho(self) -> Fraction:
        """Return rho of bounded range (Gumbel noise) or of pure DP, rounded up [ZC-3, ZC-7]."""
        return (bounded_range_rho if self.noise == "gumbel" else pure_rho)(self.epsilon())


@dataclass(frozen=True)
class SparseVector(Mechanism):
    """Report for each query if it is above a threshold, until ``answers`` queries are above.

    The threshold gets Laplace noise once, and each query gets fresh Laplace noise. The mechanism
    releases "above" or "below" for each query, until ``answers`` queries are above. Any number of
    queries may be below. Each query may depend on the earlier answers.

    Args:
        threshold_scale: noise scale of the threshold, above 0, in the units of the queries.
        query_scale: noise scale of each query, same units.
        answers: number of "above" answers before the mechanism stops, at least 1.
        sensitivity: largest move of a single query between neighbors, at least 0, same units.
        monotone: True if all queries move in the same direction between neighbors.

    The release is pure epsilon-DP, where epsilon is
    sensitivity / threshold_scale + answers * (2, or 1 if monotone) sensitivity / query_scale.
    Nothing more is claimed: ``.upper`` is randomized response, and ``.lower`` comes from a single
    query.

    The proof is void if a noisy query is itself released (use `Laplace` with fresh noise), if query
    noise is reused or left out, if the mechanism continues after the last "above", or if the
    threshold depends on the data without being part of each query.

    Examples:
        >>> import neyman as ny
        >>> f = ny.SparseVector(threshold_scale=4, query_scale=8, answers=2).tradeoff()
        >>> round(float(f.pure()), 6)
        0.75

    Source: Lyu, Su and Li 2017, theorems 4 and 5; Dwork and Roth 2014, section 3.6.
    """

    RELATION = "any"

    threshold_scale: float | Fraction = field(metadata=POSITIVE)
    query_scale: float | Fraction = field(metadata=POSITIVE)
    answers: int = field(default=1, metadata=integer(1, MAX_ANSWERS))
    sensitivity: float | Fraction = field(default=1, metadata=NON_NEGATIVE)
    monotone: bool = field(default=False, metadata=TRUTH)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = "the epsilon of threshold_scale, query_scale, and sensitivity"
        pure_epsilon(name, self.epsilon())

    def epsilon(self) -> Fraction:
        """Return the proven pure epsilon as an exact rational."""
        moved = rational(self.sensitivity)
        each = moved / rational(self.query_scale)
        threshold_cost = moved / rational(self.threshold_scale)
        return threshold_cost + self.answers * each * (1 if self.monotone else 2)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss of pure epsilon."""
        # One query, half of the sensitivity below or above the threshold. The larger of the two
        # scales, used for both noises, hides more.
        wider = max(float(self.threshold_scale), float(self.query_scale))
        lower = _swap_bound(float(self.sensitivity) / (2 * wider), double=True)
        return (_pure(self.epsilon(), lower),)

    def rho(self) -> Fraction:
        """Return epsilon tanh(epsilon / 2), rounded up [ZC-3]."""
        return pure_rho(self.epsilon())


def _range_loss(epsilon: Fraction) -> Composition:
    return Composition.of([(BoundedRangeLoss(epsilon), 1)] if epsilon else [])


def _pure(epsilon: Fraction, lower: float) -> Composition:
    """Return a loss between those of randomized response at ``lower`` and at ``epsilon``."""
    if not epsilon:
        return Composition()
    below = response_loss(min(Fraction(lower), epsilon))
    why = "pure epsilon: safe, not exact (a choice between two below)"
    return Composition.of([(LossBracket(below, response_loss(epsilon), why), 1)])


def _swap_bound(r: float, *, double: bool) -> float:
    """Bound log((1 - s) / s) from below, for the chance s that the worse candidate wins [BR-6].

    The other candidate is r noise scales ahead. For exponential noise, the difference is Laplace,
    and s = e^-r / 2. For Laplace noise (``double``), s = e^-r (1 + r / 2) / 2.
    """
    if not double:
        return (r + math.log1p(-math.expm1(-r))) * (1 - 1e-12)
    if r < 1:
        left = math.exp(-r) * (1 + r / 2)  # 2 s
        return math.log1p(2 * (-math.expm1(-r) - math.exp(-r) * r / 2) / left) * (1 - 1e-12)
    log_s = math.log1p(r / 2) - r - math.log(2)
    return (math.log1p(-math.exp(log_s)) - log_s) * (1 - 1e-12)
