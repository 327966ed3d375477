"""Describe normal noise around a random shift, and mixtures of normal distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Loss, Part
from neyman.curves.losses.mixture import GaussianMixtureLoss, MixtureLoss
from neyman.curves.losses.subsampled import SubsampledGaussianLoss, check_distance
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import LIMITS as DESCRIPTION_LIMITS
from neyman.mechanisms.description import probability, rational
from neyman.numerics import check
from neyman.numerics.canonical_order import order_key


@dataclass(frozen=True)
class Limits:
    """Limit the error of a sum of probabilities, the shifts, and the smallest separate weight."""

    sum_error: float = 1e-9  # largest distance of the sum of the probabilities from 1
    distance: float = 1e3  # above, the noise hides nothing
    # A number of records has its own normal distribution from this weight on [SA-10].
    least_weight: float = 1e-40


LIMITS = Limits()


@dataclass(frozen=True, init=False)
class GaussianMixture(Mechanism):
    """Add normal noise around a random shift: sum p_i N(c_i, sigma^2) against N(0, sigma^2).

    Args:
        sigma: standard deviation, above 0.
        sensitivities: the possible shifts c_i, at least 0, same units. Repeats are allowed.
        probabilities: p_i, same length, with sum 1, each 0 or at least 1e-300.

    Only the dataset with the record has the shift, so the relation is add-remove. Poisson
    subsampling of a Gaussian is the mixture with shifts (0, sensitivity).

    Examples:
        >>> import neyman as ny
        >>> sampled = ny.GaussianMixture(sigma=1, sensitivities=[0, 1], probabilities=[0.99, 0.01])
        >>> round(float((sampled * 1000).tradeoff().epsilon(delta=1e-5)), 3)
        1.828

    Source: Choquette-Choo et al. 2024, "Privacy amplification for matrix mechanisms".
    """

    RELATION = "add-remove"

    sigma: float | Fraction
    sensitivities: tuple[float | Fraction, ...]
    probabilities: tuple[float | Fraction, ...]

    def __init__(
        self,
        sigma: float | Fraction,
        sensitivities: Iterable[float | Fraction],
        probabilities: Iterable[float | Fraction],
    ) -> None:
        sigma = cast("float | Fraction", check.plain("sigma", sigma))
        check.positive("sigma", sigma)
        shifts = tuple(
            check.number("sensitivities", check.plain("sensitivities", c))
            for c in check.several("sensitivities", sensitivities)
        )
        shares = tuple(
            probability("probabilities", p) for p in check.several("probabilities", probabilities)
        )
        if len(shifts) != len(shares) or not shifts:
            raise ValueError(
                f"sensitivities has {len(shifts)} entries and probabilities {len(shares)}: give "
                "one probability for each sensitivity, and at least one of each"
            )
        for c in shifts:
            check.non_negative("sensitivities", c)
        check_sum("probabilities", shares)
        ratio = max(map(float, shifts)) / float(sigma)
        if ratio and not 1e-150 < ratio <= LIMITS.distance:
            raise ValueError(
                f"sensitivities / sigma = {ratio:g} must be 0, or from 1e-150 to "
                f"{LIMITS.distance:g}"
            )
        self._keep(sigma=sigma, sensitivities=shifts, probabilities=shares)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss: Gaussian for one shift, sampled for 0 and one shift, else a mixture."""
        sigma = float(self.sigma)
        gathered: dict[float, float] = {}
        for c, p in zip(self.sensitivities, self.probabilities, strict=True):
            distance = float(c) / sigma
            gathered[distance] = gathered.get(distance, 0.0) + float(p)
        loss = mixture_of_normals(gathered)
        return (Composition.of([(loss, 1)] if loss else []),)

    def rho(self) -> Fraction:
        """Return the rho of the largest shift, because the mixture reveals no more."""
        return (max(map(rational, self.sensitivities)) / rational(self.sigma)) ** 2 / 2


def check_sum(name: str, shares: Iterable[float | Fraction]) -> None:
    """Refuse probabilities that do not add up to 1."""
    total = math.fsum(map(float, shares))
    if abs(total - 1) > LIMITS.sum_error:
        raise ValueError(f"{name}: they add up to {total!r} and must add up to 1")


def mixture_of_normals(shifts: Mapping[float, float]) -> Loss | None:
    """Return the loss of a mixture against the normal distribution at 0, or None without a shift.

    Args:
        shifts: the weight of each distance, at least 0. The sum of the weights need not be 1.
    """
    used = sorted((c, p) for c, p in shifts.items() if p > 0)
    total = math.fsum(p for _, p in used)
    distances, shares = tuple(c for c, _ in used), tuple(p / total for _, p in used)
    if len(used) == 1:
        return GaussianLoss(distances[0] ** 2) if distances[0] else None
    if len(used) == 2 and not distances[0]:
        if shares[1] == 1:  # the other share is rounded away; the shift dominates it
            return GaussianLoss(distances[1] ** 2)
        return SubsampledGaussianLoss(distances[1], shares[1], True)
    return GaussianMixtureLoss(distances, shares, True)


def binomial_mixture(mu: float, records: int, rate: Fraction) -> Part:
    """Return the loss of the removal of a user's records from a Poisson sample [SA-8].

    The pair is sum_j Bin(k, q)(j) N(j mu, 1) against N(0, 1). The lower bound moves improbable
    small j to 0, and improbable large j to the last probable j. The upper bound moves improbable
    small j to the first probable j. A public coin decides if a large j occurs, and then all records
    are in the sample [SA-10].

    Args:
        mu: the shift by one record, in standard deviations, above 0.
        records: k, at least 2.
        rate: q, above 0 and below 1.
    """
    a, b = rate.as_integer_ratio()
    terms = [math.comb(records, j) * a**j * (b - a) ** (records - j) for j in range(records + 1)]
    denominator = b**records
    numbers = [j for j, term in enumerate(terms) if term / denominator >= LIMITS.least_weight]
    first, last = numbers[0], max(numbers[-1], 1)
    check_distance(last * mu)
    weights = {j: terms[j] / denominator for j in range(first, last + 1)}
    under, over = sum(terms[:first]), sum(terms[last + 1 :])
    lower = dict(weights)
    if under:
        lower[0] = max(under / denominator, DESCRIPTION_LIMITS.least_share)
    lower[last] = (terms[last] + over) / denominator
    weights[first] = (terms[first] + under) / denominator
    below, above = (
        mixture_of_normals({j * mu: p for j, p in each.items()}) for each in (lower, weights)
    )
    assert below is not None
    assert above is not None
    if not under and not over:
        return above
    if over:
        tail = max(over / denominator, DESCRIPTION_LIMITS.least_share)
        parts = ((1 - tail, above), (tail, GaussianLoss((records * mu) ** 2)))
        above = MixtureLoss(tuple(sorted(parts, key=order_key)))
    return LossBracket(below, above, "between two mixtures of normals")
