"""Describe noise with a distribution that the user defines and states bounds for."""

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
    """Limit the shifts, or intervals of shifts, that a user's noise is computed for."""

    shifts: int = 256  # number of integer shifts, each with its own curve


LIMITS = Limits()


class CustomNoise(Mechanism):
    """Add noise with a user's own distribution and stated bounds to a number.

    A subclass is a frozen dataclass. Its fields are numbers that determine the distribution. So
    JSON stores the subclass by its name and fields. It defines `law` and an attribute
    ``sensitivity``: the largest shift of the number between neighbors, an integer for `Masses`.

    The curve covers every shift up to the sensitivity, for one of three reasons [UD-4]:

    - The distribution is log-concave. Then the full shift is the worst shift. A likelihood ratio
      that is monotone for every shift is an equivalent condition.
    - The distribution is on the integers. Then each of at most 256 shifts has its own curve, and
      the worst curve counts.
    - The slope of the log density is bounded. Then intervals cover the shifts.

    Otherwise the curve is an estimate from the full shift, and meets no budget.

    The curve holds if the user's statements are true. `Tradeoff.statements`, the JSON, and each
    receipt list them. A wrong statement is refused if the function shows the error.

    ``dimension`` and ``norm`` are attributes, by default 1 and "". If there are several numbers,
    each has independent noise. The norm must then be "linf": each number moves by at most
    ``sensitivity``. For other norms, no worst shift is proven.

    This class is for accounting and has no sampler.

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
        """Return one loss for each shift or interval of shifts, or only that of the full shift.

        The full shift stands alone if it is proven to be the worst, or if no bound is proven and
        the result is an estimate.
        """
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
            ValueError: no parameter is proven, for example if only the mass of the tails is known.
                A subclass with a proof overrides this method.
        """
        rho = max((c.rho for c in self.losses()), default=0.0)
        if any(c.infinite for c in self.losses()) or not rho < math.inf:
            # Guards against laws whose tails have no moments.
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
    """Return the shifts to compute: intervals as (middle, half width, is an estimate).

    They bound all shifts up to ``most``, unless the third entry is True.
    """
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
    # Each of 40 intervals of shifts takes a quarter of the remaining range.
    ends = [most * (1 - 0.75**i) for i in range(40)] + [most]
    # The half width covers the rounding of the middle and of itself.
    return [
        (0.5 * (a + b), 0.5 * (b - a) * (1 + 8 * UNIT) + 8 * UNIT * b, False)  # slack: counted
        for a, b in pairwise(ends)
    ]
