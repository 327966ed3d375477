"""Let each person report a category with noise, and estimate frequencies from the reports.

Every probability is a multiple of 2^-64, rounded to reveal no more than epsilon. The sampler, the
accountant, and the estimator share these probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import OffLatticeLoss
from neyman.curves.losses.zcdp_parameters import pure_rho, response_rho, three_values_rho
from neyman.curves.tradeoff.enclosure import exponential
from neyman.curves.tradeoff.piecewise_linear import finite_pair
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import EPSILON, TRUTH, integer, rational
from neyman.noise.bits import Bits
from neyman.noise.parameters import secure_unless
from neyman.noise.rejection import uniform
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.raw_values import array_of

WORD_VALUES = 1 << 64


@dataclass(frozen=True)
class Limits:
    """Limit the number of categories and epsilon."""

    categories: int = 1 << 20
    epsilon: int = 40  # above, 64 bits are too few for the rare reports


LIMITS = Limits()


@dataclass(frozen=True)
class Encoding(Mechanism):
    """Report one of k categories with epsilon-DP.

    Args:
        epsilon: above 0, at most 40.
        categories: k, from 2 to 2^20, numbered from 0.
    """

    RELATION = "replace-one"

    epsilon: float | Fraction = field(metadata=EPSILON)
    categories: int = field(default=2, metadata=integer(2, LIMITS.categories))

    def __post_init__(self) -> None:
        super().__post_init__()
        check.positive("epsilon", self.epsilon)
        if self.epsilon > LIMITS.epsilon:
            raise ValueError(f"epsilon = {self.epsilon!r} must be at most {LIMITS.epsilon}")

    def rho(self) -> Fraction:
        """Return an upper bound on rho: that of the unrounded probabilities, rounded up [ZC-4]."""
        return three_values_rho(rational(self.epsilon))

    def _pair(self, p: Sequence[Fraction], q: Sequence[Fraction]) -> tuple[Composition, ...]:
        """Return the loss between two reports with outcome probabilities ``p`` and ``q``, exact."""
        rho = self.rho()
        return (
            Composition.of(
                (replace(loss, known_rho=rho) if isinstance(loss, OffLatticeLoss) else loss, n)
                for loss, n in finite_pair(p, q).parts
            ),
        )

    @abstractmethod
    def report(self, values: Sequence[int] | Array, bits: Bits | None = None) -> Array:
        """Draw the report of each person, independently.

        Args:
            values: each person's category in 0, ..., k - 1, shape (n,).
            bits: the source of randomness, by default `SecureBits`.
        """

    @abstractmethod
    def frequencies(self, reports: Array) -> Array:
        """Return unbiased estimates of each category's share of the people, shape (k,).

        Estimates may be below 0 or above 1: clipping would bias them.
        """

    def variance(self, share: float, people: int) -> float:
        """Return the variance of the estimated share of one category.

        Args:
            share: the true share.
            people: n, the number of reports.
        """
        count = check.finite("people", check.integer("people", people, 1))
        return self._variance(check.probability("share", share)) / count

    @abstractmethod
    def _variance(self, share: float) -> float:
        """Return the variance of one report's estimate."""

    def mean(self, reports: Array, values: Sequence[float] | Array) -> float:
        """Return an unbiased estimate of the mean of a number that each category stands for."""
        return float(np.asarray(values, dtype=float) @ self.frequencies(reports))

    def _check_values(self, values: Sequence[int] | Array, name: str = "values") -> Array:
        held = array_of(name, values, "iu", 1)
        if held.size and (held.min() < 0 or held.max() >= self.categories):
            raise ValueError(
                f"{name} must be categories from 0 to {self.categories - 1}; "
                "map others to one of them first"
            )
        return held.astype(np.int64)


def _check_reports(reports: Array, *numbers_of_one: int) -> Array:
    """Refuse anything but reports of this many whole numbers, at least one."""
    held = array_of("reports", reports, "iu", 1 + len(numbers_of_one))
    if not len(held) or held.shape[1:] != numbers_of_one:
        raise ValueError(f"reports has the shape {held.shape}; give what report() returned")
    return held


@dataclass(frozen=True)
class CategoryResponse(Encoding):
    """Report a uniformly random category with probability k b, else the true category.

    Here b = 1 / (e^epsilon + k - 1), rounded up.

    Examples:
        >>> import neyman as ny
        >>> made = ny.CategoryResponse(1, categories=4)
        >>> reports = made.report([0, 1, 2, 3] * 100)  # one a person, on secure bits
        >>> made.frequencies(reports).shape, round(float(made.tradeoff().pure()), 6)
        ((4,), 1.0)

    Source: Warner 1965; Kairouz, Bonawitz and Ramage 2016.
    """

    @cached_property
    def _random(self) -> Fraction:
        least = exponential(rational(self.epsilon))[0]
        return _up(self.categories / (least + self.categories - 1))

    @property
    def _other(self) -> Fraction:
        return self._random / self.categories

    def rho(self) -> Fraction:
        """Return an upper bound on rho: that of the unrounded probabilities, rounded up [ZC-4]."""
        return response_rho(rational(self.epsilon), self.categories)

    def losses(self) -> tuple[Composition, ...]:
        """Return the loss between the reports of two categories."""
        b = self._other
        a, rest = 1 - (self.categories - 1) * b, (self.categories - 2) * b
        return self._pair([a, b, rest], [b, a, rest])

    def report(self, values: Sequence[int] | Array, bits: Bits | None = None) -> Array:
        """Return the reported categories, shape (n,); see `Encoding.report`."""
        held, source = self._check_values(values), secure_unless(bits)
        lies = _happens(self._random, len(held), source)
        return np.where(lies, uniform(self.categories, len(held), source), held)

    def frequencies(self, reports: Array) -> Array:
        """Return (share of reports - b) / (1 - k b) by category, shape (k,). b: see the class."""
        held = self._check_values(_check_reports(reports), "reports")
        counts = np.bincount(held, minlength=self.categories)
        return (counts / counts.sum() - float(self._other)) / float(1 - self._random)

    def _variance(self, share: float) -> float:
        """Return (share a (1 - a) + (1 - share) b (1 - b)) / (a - b)^2, a = 1 - (k - 1) b."""
        b = float(self._other)
        a = float(1 - (self.categories - 1) * self._other)
        difference = float(1 - self._random)
        return (share * a * (1 - a) + (1 - share) * b * (1 - b)) / difference**2


@dataclass(frozen=True)
class UnaryEncoding(Encoding):
    """Report one bit per category, with random flips.

    Only the true category has a 1 before the flips. Symmetric: every bit flips with probability
    1 / (e^{epsilon/2} + 1). Optimised: the 1 flips with probability 1/2, each 0 with
    1 / (e^epsilon + 1). These probabilities are rounded up.

    Args:
        epsilon, categories: as for `Encoding`.
        optimised: True for optimised flips, False for symmetric flips.

    Examples:
        >>> import neyman as ny
        >>> made = ny.UnaryEncoding(1, categories=4)
        >>> made.report([0, 1, 2, 3] * 100).shape  # a row a person
        (400, 4)
        >>> round(float(made.tradeoff().power(level=0.05)), 4)
        0.1359

    Source: Erlingsson, Pihur and Korolova 2014; Wang, Blocki, Li and Jha 2017.
    """

    optimised: bool = field(default=False, metadata=TRUTH)

    @cached_property
    def _bits(self) -> tuple[Fraction, Fraction]:
        """Return the probability of a 1 for the true category, and for each other category."""
        epsilon = rational(self.epsilon)
        if self.optimised:
            return Fraction(1, 2), _up(1 / (exponential(epsilon)[0] + 1))
        flipped = _up(1 / (exponential(epsilon / 2)[0] + 1))
        return 1 - flipped, flipped

    def rho(self) -> Fraction:
        """Return an upper bound on rho, without rounding. Symmetric: twice the rho of one bit."""
        epsilon = rational(self.epsilon)
        return three_values_rho(epsilon) if self.optimised else 2 * pure_rho(epsilon / 2)

    def losses(self) -> tuple[Composition, ...]:
        """Return the loss between the two bits whose distributions differ [SH-6]."""
        p, q = self._bits
        first = [(x, y) for x in (p, 1 - p) for y in (q, 1 - q)]
        second = [(x, y) for x in (q, 1 - q) for y in (p, 1 - p)]
        return self._pair([x * y for x, y in first], [x * y for x, y in second])

    def report(self, values: Sequence[int] | Array, bits: Bits | None = None) -> Array:
        """Return the reported bits, shape (n, k); see `Encoding.report`."""
        held, source = self._check_values(values), secure_unless(bits)
        p, q = self._bits
        sent = _happens(q, len(held) * self.categories, source)
        sent = sent.reshape(len(held), self.categories)
        sent[np.arange(len(held)), held] = _happens(p, len(held), source)
        return sent.astype(np.uint8)

    def frequencies(self, reports: Array) -> Array:
        """Return (share of ones - q) / (p - q) for each category.

        A bit is 1 with probability p for the true category, and q for another category.
        """
        p, q = self._bits
        held = _check_reports(reports, self.categories)
        return (np.mean(held, axis=0) - float(q)) / float(p - q)

    def _variance(self, share: float) -> float:
        """Return (share p (1 - p) + (1 - share) q (1 - q)) / (p - q)^2; see `frequencies`."""
        p, q = map(float, self._bits)
        spread = share * p * (1 - p) + (1 - share) * q * (1 - q)
        return spread / float(self._bits[0] - self._bits[1]) ** 2


@dataclass(frozen=True)
class HadamardResponse(Encoding):
    """Report one entry of the category's row of a Hadamard matrix, with a random sign flip.

    A person with category v draws a column j uniformly, and reports j and the sign (-1)^{|v & j|},
    flipped with probability f = 1 / (e^epsilon + 1), rounded up: log k + 1 bits. Two rows differ in
    half of the columns.

    Examples:
        >>> import neyman as ny
        >>> made = ny.HadamardResponse(1, categories=256)
        >>> reports = made.report([0, 7, 255] * 100)
        >>> made.frequencies(reports).shape
        (256,)

    Source: Bassily and Smith 2015; Acharya, Sun and Zhang 2019.
    """

    @property
    def columns(self) -> int:
        """Return the smallest power of two that is at least k."""
        return 1 << (self.categories - 1).bit_length()

    @cached_property
    def _flip_probability(self) -> Fraction:
        return _up(1 / (exponential(rational(self.epsilon))[0] + 1))

    def losses(self) -> tuple[Composition, ...]:
        """Return the loss between the reports of two categories."""
        half, f = Fraction(1, 2), self._flip_probability
        return self._pair([half, (1 - f) / 2, f / 2], [half, f / 2, (1 - f) / 2])

    def report(self, values: Sequence[int] | Array, bits: Bits | None = None) -> Array:
        """Return columns and signs (1 or -1), shape (n, 2); see `Encoding.report`."""
        held, source = self._check_values(values), secure_unless(bits)
        column = uniform(self.columns, len(held), source)
        flip = _happens(self._flip_probability, len(held), source)
        odd = np.bitwise_count(held & column) % 2 == 1
        return np.stack([column, np.where(flip != odd, -1, 1)], axis=1)

    def frequencies(self, reports: Array) -> Array:
        """Return the mean of sign times matrix entry, divided by 1 - 2 f, shape (k,)."""
        column, sign = _check_reports(reports, 2).T
        if column.min() < 0 or column.max() >= self.columns:
            raise ValueError(f"reports must have columns from 0 to {self.columns - 1}")
        total = np.bincount(column, weights=sign, minlength=self.columns)
        step = 1
        while step < len(total):
            pairs = total.reshape(-1, 2, step)
            total = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).ravel()
            step *= 2
        return total[: self.categories] / (len(column) * float(1 - 2 * self._flip_probability))

    def _variance(self, share: float) -> float:
        """Return 1 / (1 - 2 f)^2 - share."""
        return float(1 - 2 * self._flip_probability) ** -2 - share


def _up(probability: Fraction) -> Fraction:
    return Fraction(ceil(probability * WORD_VALUES), WORD_VALUES)


def _happens(probability: Fraction, size: int, bits: Bits) -> Array:
    """Draw ``size`` independent events of this probability, a multiple of 2^-64, as booleans."""
    return bits.words(size) < np.uint64(int(probability * WORD_VALUES))
