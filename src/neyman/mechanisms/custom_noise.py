"""Noise of a user's own: a distribution with stated bounds, added to a number or to each of
several."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.user_pair import Density as Density
from neyman.curves.losses.user_pair import Law, UserPair
from neyman.curves.losses.user_pair import Masses as Masses
from neyman.mechanisms.base import STATEMENTS, Mechanism
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.rounding import above


@dataclass(frozen=True)
class Limits:
    """How shifts of a user's noise are divided."""

    shifts: int = 256  # whole shifts, each with its own curve
    shift_intervals: int = 40  # of shifts, each of them this share of what is left:
    interval_share: float = 0.25  # of what is left, that each interval has


LIMITS = Limits()


class CustomNoise(Mechanism):
    """Noise on a number, whose distribution a user describes and states bounds of.

    A subclass is a frozen dataclass. Its fields are numbers, from which the distribution follows,
    so that it is written as JSON, stored, and read again by its name. It has `law` and an attribute
    ``sensitivity``: the largest shift of the number between neighbors, a whole number for `Masses`.

    The curve covers every shift up to the sensitivity, for one of three reasons [UD-4]:

    - The distribution is log-concave. Then the full shift is the worst one. That the likelihood
      ratio is monotone for every shift says the same.
    - It is on whole numbers. Then each of at most 256 shifts has its curve, and the worst answers.
    - The slope of the log density is bounded. Then the shifts are covered by intervals.

    Otherwise the curve is that of the full shift, and an estimate: it meets no budget.

    The curve holds under the statements. `Tradeoff.statements`, the JSON, and each receipt list
    them. Wrong ones are refused as far as the function shows it.

    ``dimension`` and ``norm`` are attributes, 1 and "" if a subclass sets none. Each of several
    numbers has noise of its own. The norm must then be "linf": each number moves by at most
    ``sensitivity``. No shift is proven to be the worst of another norm.

    It is a description for accounting: no sampler is offered.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from neyman.mechanisms.custom_noise import CustomNoise, Density
        >>> @dataclass(frozen=True)
        ... class Logistic(CustomNoise):
        ...     scale: float
        ...     sensitivity: float = 1
        ...     def law(self):
        ...         s = self.scale
        ...         def log_density(x):
        ...             return -abs(x) / s - 2 * np.log1p(np.exp(-abs(x) / s)) - np.log(s)
        ...         return Density(log_density=log_density, low=-80 * s, high=80 * s, tails=1e-34,
        ...                        curvature=0.5 / s**2, log_concave=True)
        >>> f = Logistic(2).tradeoff()
        >>> f"{f.epsilon(delta=1e-6):.4f}", f.statements[-1]
        ('0.4988', 'the density is log-concave')

    Source: Dong, Roth and Su 2022, proposition A.3, for log-concave noise.
    """

    RELATION = "any"

    dimension: int = 1
    norm: str = ""

    @abstractmethod
    def law(self) -> Law:
        """Return the distribution of the noise on one number: a `Density`, or `Masses`."""

    def losses(self) -> tuple[Composition, ...]:
        """One loss for the full shift, or one for each shift or interval of shifts."""
        return self._losses

    @cached_property
    def _losses(self) -> tuple[Composition, ...]:
        law = self.law()
        most = check.non_negative("sensitivity", getattr(self, "sensitivity", None))
        if not isinstance(law, Density | Masses):
            raise TypeError(f"law() returns {law!r}; it must be a Density or Masses")
        number = check.integer("dimension", self.dimension, 1)
        if number > 1 and self.norm != "linf":
            raise ValueError(
                f"norm = {self.norm!r} for {number} numbers must be 'linf': no shift is proven to "
                "be the worst of another norm. A bound on any l_p norm bounds 'linf' too"
            )
        if not most:
            return (Composition(),)
        shifts = _shifts(law, most)
        if number > 1 and not law.log_concave:
            raise ValueError(
                f"dimension = {number} needs log-concave noise, of which the full shift is the "
                "worst; add mechanisms of single numbers instead"
            )
        return tuple(
            Composition.of([(UserPair.of(law.shifted(*by), law, estimate=estimate), number)])
            for *by, estimate in shifts
        )

    def rho(self) -> Fraction:
        """Return a proven zCDP parameter.

        Raises:
            ValueError: none is proven, as where tails are known by their mass alone. A subclass
                that has a proof overrides this.
        """
        rho = max((c.rho for c in self.losses()), default=0.0)
        if any(c.infinite for c in self.losses()) or not rho < math.inf:
            raise ValueError(
                f"{self!r} has no proven zCDP parameter; use its curve, or override rho()"
            )
        return Fraction(above(Fraction(rho)))

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), STATEMENTS: list(self.tradeoff().statements)}

    @classmethod
    def _from_fields(cls, given: Mapping[str, Any]) -> Self:
        mechanism = super()._from_fields(given)
        own = mechanism.to_dict()[STATEMENTS]
        if given.get(STATEMENTS, own) != own:
            raise ValueError(f"{cls.__name__} states {own} now, and not {given[STATEMENTS]}")
        return mechanism


def _shifts(law: Density | Masses, most: float) -> list[tuple[float, float, bool]]:
    """Shifts that stand for all up to the largest, each with a spare and whether it is a guess."""
    if law.log_concave:
        return [(most, 0.0, False)]
    if isinstance(law, Masses):
        if most > LIMITS.shifts:
            raise ValueError(
                f"sensitivity = {most} must be at most {LIMITS.shifts} for these masses"
            )
        return [(float(shift), 0.0, False) for shift in range(1, math.ceil(most) + 1)]
    if law.slope is None:
        return [(most, 0.0, True)]
    ends = [
        most * (1 - (1 - LIMITS.interval_share) ** i) for i in range(LIMITS.shift_intervals)
    ] + [most]
    # A middle and a half width are rounded, and the spare covers that.
    return [
        (0.5 * (a + b), 0.5 * (b - a) * (1 + 8 * UNIT) + 8 * UNIT * b, False)
        for a, b in pairwise(ends)
    ]
