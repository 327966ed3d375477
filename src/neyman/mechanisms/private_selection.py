"""Mechanisms that release which of several candidates is chosen, not a number."""

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

NOISES = ("laplace", "gumbel", "exponential")
MAX_ANSWERS = 10**9


@dataclass(frozen=True)
class ExponentialMechanism(Mechanism):
    """One of many candidates, drawn with probability proportional to e^{its score}.

    Args:
        epsilon: the *range* of the loss, at least 0: for neighbors it is in [t - epsilon, t] for
            some t. Scores u of sensitivity D (each moves by at most D) drawn by
            e^{epsilon u / (2 D)} have it; so have scores that all move the same way, by at most D,
            drawn by e^{epsilon u / D}. It is pure epsilon-DP.

    Its curve multiplies the odds of a level by e^epsilon at most, and some exponential mechanism
    attains each point. Several releases have no one worst case: ``.upper`` is the smaller of what
    the envelope of all ranges composes to, safe also where later scores depend on earlier choices,
    but not exact, and of what the worst divergence of each order gives; ``.lower`` is attained by
    the same choice between two candidates again and again. Renyi divergences are exact. `rho()` is
    at most epsilon^2 / 8, a quarter of what other pure epsilon-DP mechanisms cost in zCDP.

    Released is the candidate alone: its score, or how near others came, is not.

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
        """One loss of bounded range."""
        return (_range_loss(rational(self.epsilon)),)

    def rho(self) -> Fraction:
        """log(sinh(a) / a) + a coth(a) - 1, a = epsilon / 2, rounded up [ZC-7]."""
        return bounded_range_rho(rational(self.epsilon))


@dataclass(frozen=True)
class ReportNoisyMax(Mechanism):
    """Release the candidate with the largest noisy score.

    Args:
        scale: of the noise, above 0, in the units of the scores.
        sensitivity: by how much any one score moves between neighbors, at least 0, same units.
        noise: "laplace", of density e^{-|x| / scale} / (2 scale); "exponential", of density
            e^{-x / scale} / scale for x > 0 (which is permute-and-flip); or "gumbel", which draws
            as the exponential mechanism does.
        monotone: whether all scores move the same way between neighbors, as counts do when a record
            is added.

    With epsilon = 2 sensitivity / scale, half of that if monotone, it is pure epsilon-DP for any
    number of candidates; with Gumbel noise it has the range epsilon (`ExponentialMechanism`). For
    the other two nothing more than pure epsilon is claimed: ``.upper`` is randomized response's,
    ``.lower`` that of two candidates that change places.

    Released is the index of the winner alone. Its noisy score is not covered, neither is the order
    of the others, nor the same noise used again. Ties must not be broken by the data.

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
        if self.noise not in NOISES:
            known = ", ".join(map(repr, NOISES))
            raise ValueError(f"noise = {self.noise!r} must be one of {known}")
        pure_epsilon("epsilon", self.epsilon())

    def epsilon(self) -> Fraction:
        """Return the proven pure epsilon as an exact rational."""
        ratio = rational(self.sensitivity) / rational(self.scale)
        return ratio * (1 if self.monotone else 2)

    def losses(self) -> tuple[Composition, ...]:
        """One loss: of bounded range for Gumbel noise, else of pure epsilon."""
        epsilon = self.epsilon()
        if self.noise == "gumbel":
            return (_range_loss(epsilon),)
        double = self.noise == "laplace"
        return (_pure(epsilon, _swap_bound(float(epsilon) / 2, double=double)),)

    def rho(self) -> Fraction:
        """Return the rho of a bounded range for Gumbel noise, else
        of pure DP; rounded up [ZC-3, ZC-7].
        """
        return (bounded_range_rho if self.noise == "gumbel" else pure_rho)(self.epsilon())


@dataclass(frozen=True)
class SparseVector(Mechanism):
    """Release whether each of many queries is above a threshold, until ``answers`` of them are.

    The threshold gets Laplace noise once, each query fresh Laplace noise, and what is released is
    "above" or "below" for each, until ``answers`` of them were above. Any number of queries may be
    below, and each may be chosen after seeing the answers before it.

    Args:
        threshold_scale: of the threshold's noise, above 0, in the units of the queries.
        query_scale: of each query's noise, same units.
        answers: how many times "above" is said before it stops, at least 1.
        sensitivity: by how much any one query moves between neighbors, at least 0, same units.
        monotone: whether all queries move the same way between neighbors.

    It is pure epsilon-DP with epsilon = sensitivity / threshold_scale + answers * (2, or 1 if
    monotone) sensitivity / query_scale. Nothing more is claimed: ``.upper`` is randomized
    response's, ``.lower`` that of a single query.

    What voids the proof: a noisy query that is itself released (ask `Laplace` for a fresh one),
    noise on the queries that is used twice or left out, going on after the last "above", a
    threshold that depends on the data without being part of each query.

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
        pure_epsilon("epsilon", self.epsilon())

    def epsilon(self) -> Fraction:
        """Return the proven pure epsilon as an exact rational."""
        moved = rational(self.sensitivity)
        each = moved / rational(self.query_scale)
        threshold_cost = moved / rational(self.threshold_scale)
        return threshold_cost + self.answers * each * (1 if self.monotone else 2)

    def losses(self) -> tuple[Composition, ...]:
        """One loss of pure epsilon."""
        # One query, half of the sensitivity below the threshold or above it; with the larger of the
        # two scales for both noises it is hidden the better.
        wider = max(float(self.threshold_scale), float(self.query_scale))
        lower = _swap_bound(float(self.sensitivity) / (2 * wider), double=True)
        return (_pure(self.epsilon(), lower),)

    def rho(self) -> Fraction:
        """epsilon tanh(epsilon / 2), rounded up [ZC-3]."""
        return pure_rho(self.epsilon())


def _range_loss(epsilon: Fraction) -> Composition:
    return Composition.of([(BoundedRangeLoss(epsilon), 1)] if epsilon else [])


def _pure(epsilon: Fraction, lower: float) -> Composition:
    """Pure epsilon, and a randomized response that is certainly not more private."""
    if not epsilon:
        return Composition()
    below = response_loss(min(Fraction(lower), epsilon))
    why = "pure epsilon: safe, not exact (a choice between two below)"
    return Composition.of([(LossBracket(below, response_loss(epsilon), why), 1)])


def _swap_bound(r: float, *, double: bool) -> float:
    """Below log((1 - s) / s), s the chance that noise hides a lead of r scales [BR-6].

    The difference of two exponentials is one Laplace variable, s = e^-r / 2; that of two Laplace
    variables has s = e^-r (1 + r / 2) / 2.
    """
    if not double:
        return (r + math.log1p(-math.expm1(-r))) * (1 - 1e-12)
    if r < 1:
        left = math.exp(-r) * (1 + r / 2)  # 2 s
        return math.log1p(2 * (-math.expm1(-r) - math.exp(-r) * r / 2) / left) * (1 - 1e-12)
    log_s = math.log1p(r / 2) - r - math.log(2)
    return (math.log1p(-math.exp(log_s)) - log_s) * (1 - 1e-12)
