"""Normal noise around a shift that is drawn at random."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.mixture import mixture_of_normals
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import probability, rational
from neyman.numerics import check

SUM_SLACK = 1e-9  # by which probabilities that were given as floats may miss one
MOST_DISTANCE = 1e3  # beyond it nothing is hidden anyway


@dataclass(frozen=True, init=False)
class GaussianMixture(Mechanism):
    """Normal noise around a shift drawn at random: sum p_i N(c_i, sigma^2) and N(0, sigma^2).

    Args:
        sigma: standard deviation, above 0.
        sensitivities: the possible shifts c_i, at least 0, same units; the same one may come twice.
        probabilities: p_i, same length, with sum 1, each 0 or at least 1e-300.

    The shift is there with a record and not without it: the relation is add-remove. Poisson
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
        check.positive("sigma", sigma)
        shifts = tuple(
            check.number("sensitivities", c) for c in check.several("sensitivities", sensitivities)
        )
        shares = tuple(
            probability("probabilities", p) for p in check.several("probabilities", probabilities)
        )
        if len(shifts) != len(shares) or not shifts:
            raise ValueError(
                f"sensitivities has {len(shifts)} entries and probabilities {len(shares)}: give as "
                "many of one as of the other, at least one"
            )
        for c in shifts:
            check.non_negative("sensitivities", c)
        check_sum("probabilities", shares)
        ratio = max(map(float, shifts)) / float(sigma)
        if ratio and not 1e-150 < ratio <= MOST_DISTANCE:
            raise ValueError(
                f"sensitivities / sigma = {ratio:g} must be 0, or from 1e-150 to {MOST_DISTANCE:g}"
            )
        self._keep(sigma=sigma, sensitivities=shifts, probabilities=shares)

    def losses(self) -> tuple[Composition, ...]:
        """One loss; a Gaussian one for a single shift, a sampled one for none and another."""
        sigma = float(self.sigma)
        gathered: dict[float, float] = {}
        for c, p in zip(self.sensitivities, self.probabilities, strict=True):
            distance = float(c) / sigma
            gathered[distance] = gathered.get(distance, 0.0) + float(p)
        loss = mixture_of_normals(gathered)
        return (Composition.of([] if loss is None else [(loss, 1)]),)

    def rho(self) -> Fraction:
        """That of the largest shift: a mixture is a noisier view of it."""
        return (max(map(rational, self.sensitivities)) / rational(self.sigma)) ** 2 / 2


def check_sum(name: str, shares: Iterable[float | Fraction]) -> None:
    """Refuse probabilities that do not add up to one."""
    total = math.fsum(map(float, shares))
    if abs(total - 1) > SUM_SLACK:
        raise ValueError(f"{name}: they add up to {total!r} and must add up to 1")
