"""Describe distributions of the random number K of runs of a search, with a proven bound.

The curve of the best run needs psi'(x) = E[K x^(K-1)], the derivative of the generating function,
for x in [0, 1]. Functions take the complement c = 1 - x, to lose no digits near x = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from neyman.mechanisms.description import (
    POSITIVE,
    Description,
    form,
    from_json_number,
    rational,
    to_json,
)
from neyman.noise.bits import Bits
from neyman.noise.parameters import secure_unless
from neyman.noise.run_count import draw_negative_binomial, draw_poisson
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.roots import bisect


@dataclass(frozen=True)
class Limits:
    """Limit the mean, the shape, and gamma of a distribution of runs."""

    shape: int = 10**6


LIMITS = Limits()


def _shape_json(shape: float | Fraction) -> object:
    return "poisson" if shape == math.inf else to_json(shape)


def _read(shape: object) -> object:
    return math.inf if shape == "poisson" else from_json_number(shape)


@dataclass(frozen=True, repr=False)
class Runs(Description):
    """Represent the distribution of the secret number K of runs for `select_best`.

    Build it with `geometric`, `poisson`, `logarithmic`, or `negative_binomial`.

    Args:
        mean: E[K] (after truncation), above 0 for Poisson, at least 1 for the others, and at most
            1e9.
        shape: shape of the truncated negative binomial distribution, above -1 and at most 1e6: 1 is
            geometric and 0 logarithmic. ``math.inf`` is Poisson.

    Raises:
        ValueError: the mean or the shape is out of range.

    Examples:
        >>> import neyman as ny
        >>> ny.Runs.geometric(mean=10).halting
        0.1
        >>> ny.Runs.poisson(mean=10).none
        4.5399929762484854e-05

    Source: Papernot and Steinke 2022, definition 1.
    """

    mean: float | Fraction = field(metadata=POSITIVE)
    shape: float | Fraction = field(metadata=form(write=_shape_json, read=_read))

    def __post_init__(self) -> None:
        super().__post_init__()
        mean_runs = 10**9
        if self.mean > mean_runs:
            raise ValueError(f"mean = {self.mean!r} must be at most {mean_runs:g} runs")
        if self.poisson_law:
            return
        if check.finite("shape", self.shape) <= -1 or self.shape > LIMITS.shape:
            raise ValueError(
                f"shape = {self.shape!r} must be above -1 and at most {LIMITS.shape:g}, or "
                "math.inf for a Poisson distribution"
            )
        self._keep(shape=check.number("shape", self.shape))
        if self.mean < 1:
            raise ValueError(
                f"mean = {self.mean!r} must be at least 1: this distribution makes at least one "
                "run; Runs.poisson may make none"
            )
        try:
            gamma = self.halting
        except OverflowError:
            gamma = 0.0
        least_halting = 1e-200
        if gamma < least_halting:
            raise ValueError(
                f"shape = {self.shape!r} is too near -1 for mean = {self.mean!r}: the distribution "
                f"would stop with a chance below {least_halting:g}; give a larger shape or "
                "a smaller mean"
            )

    @staticmethod
    def geometric(mean: float | Fraction) -> Runs:
        """Return the distribution of K if each run is the last with probability 1 / mean.

        Args:
            mean: E[K], at least 1.
        """
        return Runs(mean, 1)

    @staticmethod
    def logarithmic(mean: float | Fraction) -> Runs:
        """Return the distribution P(K = k) proportional to (1 - gamma)^k / k, for k >= 1.

        Args:
            mean: E[K], at least 1.
        """
        return Runs(mean, 0)

    @staticmethod
    def negative_binomial(mean: float | Fraction, shape: float | Fraction) -> Runs:
        """Return the negative binomial distribution, conditional on K >= 1.

        Args:
            mean: E[K], at least 1.
            shape: eta, above -1. For the same mean, a smaller shape reveals less and has a heavier
                tail.
        """
        if isinstance(shape, float) and shape == math.inf:
            raise ValueError("shape = inf must be finite; use Runs.poisson(mean=...)")
        return Runs(mean, shape)

    @staticmethod
    def poisson(mean: float | Fraction) -> Runs:
        """Return the Poisson distribution. K is 0, with an empty release, with probability e^-mean.

        Args:
            mean: E[K], above 0.
        """
        return Runs(mean, math.inf)

    @property
    def poisson_law(self) -> bool:
        """Return True for the Poisson distribution."""
        return isinstance(self.shape, float) and self.shape == math.inf

    @property
    def none(self) -> float:
        """Return the probability that K is 0 and the release is empty."""
        return math.exp(-float(self.mean)) if self.poisson_law else 0.0

    @cached_property
    def halting(self) -> float:
        """Return gamma of the negative binomial distribution, in (0, 1].

        For the geometric distribution, gamma is 1 / mean.

        Raises:
            ValueError: the distribution is Poisson and has no gamma.
        """
        if self.poisson_law:
            raise ValueError(
                "a Poisson distribution has no halting probability; its mean determines it"
            )
        if self.shape == 1:
            return float(1 / rational(self.mean))
        mean, eta = float(self.mean), float(self.shape)
        low, high = -math.log(mean) - 1, 0.0  # of log gamma
        while _mean(low, eta) < mean:
            low *= 2
        return math.exp(0.5 * sum(bisect(lambda x: _mean(x, eta) >= mean, low, high)))

    def draw(self, *, bits: Bits | None = None) -> int:
        """Draw K from exactly this distribution, in a time proportional to K [BS-7].

        Keep K secret: the guarantee holds only if no one learns K or the duration of the search.

        Args:
            bits: the source of randomness, by default `SecureBits`.

        Examples:
            >>> import neyman as ny
            >>> ny.Runs.logarithmic(mean=10).draw() >= 1
            True
        """
        source = secure_unless(bits)
        mean = rational(self.mean)
        if self.poisson_law:
            return draw_poisson(mean, source)
        return draw_negative_binomial(mean, rational(self.shape), source)

    def log_slope(self, complement: Array, side: int) -> Array:
        """Bound the logarithm of psi'(1 - c) = E[K (1 - c)^(K-1)] [BS-1].

        Args:
            complement: c in [0, 1], correct to a few units of rounding.
            side: 1 for an upper bound, -1 for a lower bound.
        """
        top = math.log(self.mean)
        if self.poisson_law:
            value = top - float(self.mean) * complement
            return value + side * 1e-14 * (abs(top) + float(self.mean) * complement)
        # Relative error bound of gamma; the float solution has about 1e-14.
        gamma = min(self.halting * (1 + side * 1e-11), 1.0)
        power = 1 + float(self.shape)
        fall = power * np.log1p((1 / gamma - 1) * complement)
        return top - fall + side * 1e-14 * (abs(top) + 16 * power + fall)

    def to_dict(self) -> dict[str, Any]:
        """Return the distribution as JSON types."""
        return self._fields()

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Runs:
        """Return the distribution that `to_dict` described."""
        if not isinstance(fields, Mapping) or set(fields) != {"mean", "shape"}:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"runs = {fields!r} must have the fields mean and shape")
        return Runs._from_fields(fields)

    def __repr__(self) -> str:
        if self.poisson_law:
            return f"Runs.poisson(mean={self.mean!r})"
        if self.shape in (0, 1):
            return f"Runs.{'geometric' if self.shape else 'logarithmic'}(mean={self.mean!r})"
        return f"Runs.negative_binomial(mean={self.mean!r}, shape={self.shape!r})"


def _mean(log_gamma: float, eta: float) -> float:
    """Return E[K] = eta (1 / gamma - 1) / (1 - gamma^eta), with its limit at shape eta = 0."""
    if log_gamma == 0:
        return 1.0
    more = math.expm1(-log_gamma)
    exponent = eta * log_gamma
    ratio = -log_gamma if exponent == 0 else -math.expm1(exponent) / eta
    return more / ratio
