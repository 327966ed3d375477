"""Add Student noise with a scale proportional to the smooth sensitivity of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from functools import cached_property

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.zcdp_parameters import bounded_range_rho, pure_rho
from neyman.curves.tradeoff.piecewise_linear import composition_between
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import NUMBER, exact_above_zero, rational
from neyman.mechanisms.stability.sensitivities import SmoothSensitivity
from neyman.mechanisms.stability.student_pairs import enclosing_polygons, largest_loss
from neyman.noise.bits import Bits
from neyman.noise.parameters import secure_unless
from neyman.noise.real_noise import rounded_student
from neyman.noise.weights import exponential
from neyman.numerics import check
from neyman.numerics.binomial import student_quantile
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import below, up

NOISES = ("student",)
LEAST_MISS = Fraction(1, 10**300)


@dataclass(frozen=True)
class Limits:
    """Limit the arguments of smooth noise, and its epsilon."""

    epsilon: int = 100  # above, the noise hides nothing


LIMITS = Limits()


@dataclass(frozen=True)
class SmoothNoise(Mechanism):
    """Add Student noise of scale S / s, for the smooth sensitivity S of the data.

    S is a positive function of the data that bounds the local sensitivity, and changes by a factor
    of at most e^beta between neighbors: |f(x) - f(x')| <= min(S(x), S(x')) and
    |log S(x) - log S(x')| <= beta. The mechanism releases f(x) + (S(x) / s) Z, with Z from
    Student's distribution with d degrees of freedom. Two neighbors give the pair (Z, e^t Z + u)
    with |t| <= beta and |u| <= s min(1, e^t). The largest privacy loss is a pure epsilon:

        epsilon = max over t in {0, beta} of (d + 1) v(t) / 2 + |d - 1| t / 2,
        cosh v(t) = cosh t + s^2 e^-t / (2 d)                              [ST-5].

    `tradeoff` gives more detail: the hull of the curves of all these pairs [ST-6, ST-7]. The
    textbook bound adds a bound for the shift and a bound for the scale. The true maximum is
    smaller.

    Args:
        noise: "student".
        degrees: d, degrees of freedom, from 0.1 to 1000. For d <= 2, the noise has no variance.
        smoothness: beta, from 1e-6 to 20.
        scale: s, from 1e-6 to 20. A larger s means less noise and less privacy.

    Floating-point noise whose scale depends on the data leaks through its last digits. `draw`
    rounds the exact real release to a public grid. A published scale, or an interval from it, leaks
    too. For quantiles, `InverseSensitivity` has a smaller error.

    Examples:
        >>> import neyman as ny
        >>> noise = ny.SmoothNoise("student", degrees=3, smoothness=0.1, scale=0.3)
        >>> round(float(noise.epsilon()), 6)
        0.48491
        >>> round(float(noise.tradeoff().delta(epsilon=0)), 3)
        0.11

    Source: Nissim, Raskhodnikova, and Smith 2007 (smooth sensitivity); Bun and Steinke 2019
    (Student noise); [ST-4, ST-5] (the supremum of the loss).
    """

    RELATION = "any"

    noise: str
    degrees: float | Fraction = field(metadata=NUMBER)
    smoothness: float | Fraction = field(metadata=NUMBER)
    scale: float | Fraction = field(metadata=NUMBER)

    def __post_init__(self) -> None:
        check.one_of("noise", self.noise, NOISES)
        # Outside these degrees, floats hold too little of the tails.
        check.between("degrees", self.degrees, 0.1, 1e3)
        for name in ("smoothness", "scale"):
            check.between(name, getattr(self, name), 1e-6, 20.0)  # of smoothness and scale
        super().__post_init__()
        if self.epsilon().upper > LIMITS.epsilon:
            raise ValueError(
                f"smoothness = {self.smoothness!r} and scale = {self.scale!r} give epsilon = "
                f"{self.epsilon().upper:.3g}, above {LIMITS.epsilon}; lower them"
            )

    def epsilon(self) -> Bound:
        """Bound the largest privacy loss over all neighbors: ``upper`` is a proven pure epsilon.

        Some pair with |t| <= smoothness and |u| <= s min(1, e^t) attains it [ST-5].
        """
        low, high = largest_loss(*self._numbers)
        return Bound(low, high, "upper", "closed form of the largest loss")

    @property
    def _numbers(self) -> tuple[float, float, float]:
        return float(self.degrees), float(self.smoothness), float(self.scale)

    @cached_property
    def _losses(self) -> tuple[Composition, ...]:
        return (composition_between(enclosing_polygons(*self._numbers)),)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, between two finite pairs that enclose the curve."""
        return self._losses

    def rho(self) -> Fraction:
        """Return the smaller rho: from epsilon, or from the range (d + 1) v [ST-5, ZC-3, ZC-7]."""
        d, beta, _ = self._numbers
        epsilon = _ten_digits(self.epsilon().upper)
        # The sum of the largest losses in both orders: the two |d - 1| t / 2 cancel.
        ranges = [largest_loss(*self._numbers, scale_change=t)[1] for t in (0.0, beta)]
        widest = max(2 * ranges[0], 2 * ranges[1] - abs(d - 1) * beta * (1 - 1e-12))
        return min(pure_rho(epsilon), bounded_range_rho(_ten_digits(widest)))

    def draw(
        self,
        statistic: SmoothSensitivity,
        *,
        step: float | Fraction | str,
        bits: Bits | None = None,
    ) -> Fraction:
        """Draw the exact noisy statistic, and round it to the nearest grid point [RN-1, RN-3].

        The rounding of the exact real release is post-processing, so the curve holds for every
        step. This method reads private data but charges no ledger: charge the mechanism first. The
        number of random bits depends a little on the private scale: let no one measure the time.

        Args:
            statistic: a result of `smooth_sensitivity`, with at most the smoothness of the noise.
            step: grid step, above 0 and public, in the units of the statistic.
            bits: the source of randomness, by default `SecureBits`.

        Raises:
            ValueError: the smoothness of the statistic is above that of the noise, or step is not
                above 0.

        Examples:
            >>> import neyman as ny
            >>> s = ny.smooth_sensitivity.median(range(101), lower=0, upper=100, smoothness=0.1)
            >>> noise = ny.SmoothNoise("student", degrees=3, smoothness=0.1, scale=0.3)
            >>> noise.draw(s, step="0.1").denominator in (1, 2, 5, 10)
            True
        """
        grid = exact_above_zero("step", step)
        if statistic.smoothness > rational(self.smoothness):
            raise ValueError(
                f"the statistic has smoothness {statistic.smoothness}, above {self.smoothness!r}, "
                "the smoothness of the noise; use the same smoothness for both"
            )
        fall = statistic.smoothness * statistic.changes
        return grid * rounded_student(
            statistic.value / grid,
            rational(self.degrees),
            lambda precision: exponential(fall, precision),
            statistic.local / (grid * rational(self.scale)),
            secure_unless(bits),
        )

    def standard_deviation(self, sensitivity: float | Fraction) -> float:
        """Return the standard deviation of the noise, S / s sqrt(d / (d - 2)).

        It is for the custodian alone: it depends on the data. **Publishing it breaks the
        guarantee.**

        Args:
            sensitivity: S, the smooth sensitivity of the data, above 0, in the units of the answer.

        Raises:
            ValueError: there are at most 2 degrees of freedom: the noise has no variance.
        """
        self._check_variance("a standard deviation")
        size = check.positive("sensitivity", sensitivity)
        d, _, s = self._numbers
        return size / s * math.sqrt(d / (d - 2))

    def margin(self, sensitivity: float | Fraction, confidence: float = 0.95) -> float:
        """Return half the width of an interval around the exact answer, S / s times a quantile.

        The interval covers noise only. It depends on the data and is for the custodian alone.
        **Publishing it breaks the guarantee**: its width reveals S.

        Args:
            sensitivity: S, the smooth sensitivity of the data, above 0, in the units of the answer.
            confidence: chance that the interval covers the exact answer, in (0, 1 - 1e-300].

        Raises:
            ValueError: there are at most 2 degrees of freedom. Without a variance, readers misjudge
                the interval.

        Examples:
            >>> import neyman as ny
            >>> noise = ny.SmoothNoise("student", degrees=3, smoothness=0.1, scale=0.3)
            >>> round(noise.margin(0.102), 3)
            1.082
            >>> ny.SmoothNoise("student", degrees=2, smoothness=0.1, scale=0.3).margin(0.102)
            Traceback (most recent call last):
                ...
            ValueError: degrees = 2 must be above 2 for an interval: ...
        """
        self._check_variance("an interval")
        size = check.positive("sensitivity", sensitivity)
        chance = check.exact("confidence", confidence)
        if not 0 < chance <= 1 - LEAST_MISS:
            raise ValueError(f"confidence = {confidence!r} must be above 0 and at most 1 - 1e-300")
        d, _, s = self._numbers
        return up(size / s * student_quantile(d, below((1 - chance) / 2)), 4)

    def _check_variance(self, what: str) -> None:
        if rational(self.degrees) <= 2:
            raise ValueError(
                f"degrees = {self.degrees!r} must be above 2 for {what}: the noise has no "
                "variance; use 3 degrees of freedom or more"
            )


def _ten_digits(value: float) -> Fraction:
    """Round up to ten digits, so that a charge does not depend on the last bits of a machine."""
    return Fraction(Context(prec=10, rounding=ROUND_CEILING).create_decimal_from_float(value))
