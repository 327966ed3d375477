"""Describe mechanisms that add noise to a number or a vector of numbers.

Each mechanism states the largest shift between neighbors, so its relation is "any". For example, a
count that moves by one has `sensitivity=1` under every relation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest

import numpy as np

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.discrete_gaussian import DiscreteGaussianLoss
from neyman.curves.losses.finite import MOST_EPSILON, discrete_laplace_loss
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.renyi_bound import RenyiBound
from neyman.curves.losses.zcdp_parameters import discrete_laplace_rho, laplace_rho
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import (
    EXACT_POSITIVE,
    NON_NEGATIVE,
    POSITIVE,
    UNLESS_NORM,
    exact_variance,
    integer,
    rational,
)
from neyman.numerics import check
from neyman.numerics.whitening import Matrix, whitened_norm


@dataclass(frozen=True)
class Limits:
    """Limit the shift between neighbors: for `DiscreteLaplace`, and per entry of a shift vector."""

    move: int = 10**12


LIMITS = Limits()


@dataclass(frozen=True, init=False)
class Gaussian(Mechanism):
    """Add normal noise of standard deviation ``sigma``.

    The curve is G_mu, mu = sensitivity / sigma.

    Args:
        sigma: standard deviation, above 0, in the units of the answer.
        sensitivity: largest l2 norm of the shift between neighbors, at least 0, same units.
        covariance: the covariance matrix S of noise on a vector, instead of ``sigma``. S is
            symmetric and positive definite, at most 64 by 64, in squared units of the answer.
        shifts: the possible shifts d as vectors, in units of the answer. They go with a covariance,
            instead of ``sensitivity``. Then mu is the largest sqrt(d' S^-1 d), rounded up. With a
            sensitivity D, mu is D / sqrt(t), rounded up, for the smallest eigenvalue t of S.

    This class is for accounting. A release adds integer noise (`DiscreteGaussian`), which is safe
    from floating-point errors.

    A mechanism with a covariance is stored in coordinates with unit noise variance: ``sigma`` is 1
    and ``sensitivity`` is mu [GC-1].

    Raises:
        TypeError, ValueError: an argument is out of range, or the arguments do not go together.

    Examples:
        >>> import neyman as ny
        >>> f = ny.Gaussian(sigma=2).tradeoff()
        >>> round(float(f.gdp()), 6), round(float(f.power(level=0.05)), 4)
        (0.5, 0.1261)

        A person moves from the first count to the second. Noise that moves both counts the same
        way hides this less than noise that moves them in opposite ways:

        >>> ny.Gaussian(covariance=[[4, 2], [2, 4]], shifts=[[1, -1]])
        Gaussian(sigma=1, sensitivity=1.0)
        >>> opposite = ny.Gaussian(covariance=[[4, -2], [-2, 4]], shifts=[[1, -1]])
        >>> round(float(opposite.tradeoff().gdp()), 6)
        0.57735

    Source: Dong, Roth and Su 2022, theorem 2.7.
    """

    RELATION = "any"

    sigma: float | Fraction = field(metadata=POSITIVE)
    sensitivity: float | Fraction = field(metadata=NON_NEGATIVE)

    def __init__(
        self,
        sigma: float | Fraction | None = None,
        sensitivity: float | Fraction = 1,
        *,
        covariance: Matrix | None = None,
        shifts: Matrix | None = None,
    ) -> None:
        if (sigma is None) == (covariance is None):
            raise ValueError("give exactly one of sigma= and covariance=: ny.Gaussian(sigma=2)")
        if covariance is not None:
            sigma, sensitivity = 1, whitened_norm(covariance, sensitivity, shifts)
        elif shifts is not None:
            raise ValueError("shifts= goes with covariance=; give sensitivity= an l2 norm instead")
        self._keep(sigma=sigma, sensitivity=sensitivity)
        _check_ratio("sensitivity / sigma", self.sensitivity, self.sigma, 10**150)

    def losses(self) -> tuple[Composition, ...]:
        """Return one Gaussian loss."""
        mu = float(rational(self.sensitivity) / rational(self.sigma))
        return (Composition.of([(GaussianLoss(mu * mu), 1)] if mu else []),)

    def _of_user(self, records: int) -> Mechanism:
        return Gaussian(self.sigma, records * self.sensitivity)

    def rho(self) -> Fraction:
        """Return mu^2 / 2 (Bun and Steinke 2016, proposition 1.6)."""
        return (rational(self.sensitivity) / rational(self.sigma)) ** 2 / 2


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Add Laplace noise of density e^{-|x| / scale} / (2 scale).

    The pure epsilon is sensitivity / scale.

    Args:
        scale: above 0, in the units of the answer. The standard deviation is sqrt(2) scale.
        sensitivity: largest l1 norm of the shift between neighbors, at least 0, same units. A shift
            over several coordinates reveals no more than the same shift in one coordinate.

    Examples:
        >>> import neyman as ny
        >>> f = ny.Laplace(scale=2).tradeoff()
        >>> round(float(f.pure()), 6), round(float(f.power(level=0.05)), 4)
        (0.5, 0.0824)

    Source: Dwork, McSherry, Nissim and Smith 2006; Dong, Roth and Su 2022, proposition 2.7.
    """

    RELATION = "any"

    scale: float | Fraction = field(metadata=POSITIVE)
    sensitivity: float | Fraction = field(default=1, metadata=NON_NEGATIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ratio("sensitivity / scale", self.sensitivity, self.scale, MOST_EPSILON)

    def losses(self) -> tuple[Composition, ...]:
        """Return one Laplace loss."""
        epsilon = self._epsilon()
        return (Composition.of([(LaplaceLoss(epsilon), 1)] if epsilon else []),)

    def _epsilon(self) -> Fraction:
        return rational(self.sensitivity) / rational(self.scale)

    def rho(self) -> Fraction:
        """Return epsilon - 1 + e^-epsilon, rounded up [ZC-6]."""
        return laplace_rho(self._epsilon())


@dataclass(frozen=True, init=False)
class DiscreteGaussian(Mechanism):
    """Add integer noise with mass proportional to e^{-x^2 / (2 sigma^2)} to each coordinate.

    Args:
        sigma: the parameter sigma, above 0. A float is read as the decimal that it prints. The
            standard deviation is a little smaller.
        sensitivity: the possible shifts between neighbors. An integer d means that one coordinate
            moves by at most d. Otherwise, give an iterable of integer vectors: a person who moves
            from one count to another is ``[(1, 1)]``. Signs, order and zeros do not matter. A
            vector is dropped if another vector is at least as large in each coordinate, because
            the dropped vector reveals less (the noise is log-concave).
        sigma_squared: sigma^2, exact, instead of sigma.
        squared_norm: the largest squared l2 norm of a shift, at least 1. Use it if there are too
            many shifts to list. Then only rho-zCDP is claimed, with the curve that it implies,
            because an l2 norm does not determine a curve.

    With several vectors, the curve is for the worst vector. The change of the data, and so the
    vector, is fixed in advance. If earlier answers choose later queries, the shift of a later
    release may depend on these answers. Then no fixed vector need be the worst: give one vector
    that covers all of them.

    The l2 norm of a shift does not determine the curve: the curves for the shifts (2) and (1, 1, 1,
    1) cross at sigma 1. A larger sigma is not always more private: delta(2) is .1048 at sigma .5
    and .1533 at .65.

    Examples:
        >>> import neyman as ny
        >>> moved = ny.DiscreteGaussian(2, sensitivity=[(1, 1)])  # from one count to another
        >>> round(float(moved.tradeoff().power(level=0.05)), 4), moved.rho()
        (0.1739, Fraction(1, 4))

    Source: Canonne, Kamath and Steinke 2020.
    """

    RELATION = "any"

    sigma_squared: Fraction
    sensitivity: tuple[tuple[int, ...], ...] = field(metadata=UNLESS_NORM)
    squared_norm: int | None = field(default=None, metadata=integer(1))

    def __init__(
        self,
        sigma: float | Fraction | str | None = None,
        sensitivity: int | Iterable[Iterable[int]] = 1,
        *,
        sigma_squared: float | Fraction | str | None = None,
        squared_norm: int | None = None,
    ) -> None:
        exact = exact_variance(sigma, sigma_squared)
        shifts = shifts_or_norm(sensitivity, squared_norm)
        self._keep(sigma_squared=exact, sensitivity=shifts, squared_norm=squared_norm)

    def __repr__(self) -> str:
        name = "sensitivity" if self.squared_norm is None else "squared_norm"
        shifts = f"{name}={getattr(self, name)!r}"
        return f"DiscreteGaussian(sigma_squared={self.sigma_squared!r}, {shifts})"

    @property
    def sigma(self) -> float:
        """Return sigma as a float."""
        return float(self.sigma_squared) ** 0.5

    def losses(self) -> tuple[Composition, ...]:
        """Return, for each shift vector, a sum of one loss per coordinate.

        With a squared norm, return the bound by rho-zCDP.
        """
        if self.squared_norm is not None:
            return (Composition.of([(RenyiBound(self.rho()), 1)]),)
        return tuple(
            Composition.of((DiscreteGaussianLoss(self.sigma_squared, s), 1) for s in vector)
            for vector in self.sensitivity
        ) or (Composition(),)

    def rho(self) -> Fraction:
        """Return the largest ||shift||^2 / (2 sigma^2).

        Source: Canonne, Kamath and Steinke 2020, theorem 4.
        """
        most = self.squared_norm or max(
            (sum(s * s for s in vector) for vector in self.sensitivity), default=0
        )
        return Fraction(most) / (2 * self.sigma_squared)


@dataclass(frozen=True, init=False)
class DiscreteLaplace(Mechanism):
    """Add integer noise with mass proportional to e^{-|x| / scale}: the geometric mechanism.

    Args:
        scale: above 0. A float is read as the decimal that it prints.
        sensitivity: largest l1 norm of the integer shift between neighbors, at least 0.

    A shift over several coordinates reveals no more than the same shift in one coordinate. So one
    loss dominates every shift, even if later queries depend on earlier answers.

    The pure epsilon is sensitivity / scale. Source: Ghosh, Roughgarden and Sundararajan 2012.

    Examples:
        >>> import neyman as ny
        >>> f = ny.DiscreteLaplace(scale=2).tradeoff()
        >>> round(float(f.pure()), 6), round(float(f.delta(epsilon=0.25)), 4)
        (0.5, 0.1377)
    """

    RELATION = "any"

    scale: Fraction = field(metadata=EXACT_POSITIVE)
    sensitivity: int = field(metadata=integer())

    def __init__(self, scale: float | Fraction | str, sensitivity: int = 1) -> None:
        self._keep(scale=scale, sensitivity=sensitivity)
        _check_ratio("sensitivity / scale", self.sensitivity, self.scale, MOST_EPSILON)
        listed_shift = 100_000
        if self.sensitivity > listed_shift:
            raise ValueError(
                f"sensitivity = {sensitivity} must be at most {listed_shift}: count in larger units"
            )

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss with sensitivity + 1 values."""
        if not self.sensitivity:
            return (Composition(),)
        return (Composition.of([(discrete_laplace_loss(self.scale, self.sensitivity), 1)]),)

    def rho(self) -> Fraction:
        """Return rho, the KL divergence between neighbors, rounded up [ZC-5]."""
        return discrete_laplace_rho(self.scale, self.sensitivity)


def _check_ratio(name: str, above: float | Fraction, below: float | Fraction, most: int) -> None:
    """Refuse ``above / below``, shift over noise, unless it is 0 or from 1e-150 to ``most``."""
    if isinstance(below, float) and above <= most and 1e-149 < above / below < most / 10:
        return
    ratio = check.exact(name, above) / check.exact(name, below)
    if ratio and not Fraction(1, 10**150) <= ratio <= most:
        raise ValueError(f"{name} = {above!r} / {below!r} must be between 1e-150 and {most:g}")


def shift_vectors(sensitivity: int | Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the shift vectors that no other vector covers.

    Each one consists of its absolute nonzero entries, in falling order. An integer d is ``[(d,)]``.
    """
    if isinstance(sensitivity, np.ndarray):
        sensitivity = sensitivity.tolist()
    if not isinstance(sensitivity, Iterable):
        return shift_vectors([[check.integer("sensitivity", sensitivity)]])
    if isinstance(sensitivity, (str, bytes)):
        raise TypeError(f"sensitivity = {sensitivity!r} must be a whole number or integer vectors")
    vectors: set[tuple[int, ...]] = set()
    for vector in sensitivity:
        if not isinstance(vector, Iterable) or isinstance(vector, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"sensitivity = {sensitivity!r} must be a whole number or a set of integer "
                "vectors, such as [(1, 1)]"
            )
        sizes = [abs(check.integer("sensitivity", s, -LIMITS.move)) for s in vector]
        if any(s > LIMITS.move for s in sizes):
            raise ValueError(f"sensitivity = {sensitivity!r} must be at most {LIMITS.move:g}")
        vectors.add(tuple(sorted((s for s in sizes if s), reverse=True)))
    maximal = [v for v in vectors if v and not any(v != w and _covers(w, v) for w in vectors)]
    return tuple(sorted(maximal))


def shifts_or_norm(
    sensitivity: int | Iterable[Iterable[int]], squared_norm: int | None
) -> tuple[tuple[int, ...], ...]:
    """Return the `shift_vectors`, or () if a squared norm replaces them. Refuse both."""
    shifts = shift_vectors(sensitivity)
    if squared_norm is None:
        return shifts
    if isinstance(sensitivity, Iterable) or sensitivity != 1:
        raise ValueError("give at most one of sensitivity= and squared_norm=")
    return ()


def _covers(larger: tuple[int, ...], smaller: tuple[int, ...]) -> bool:
    """Return True if ``larger`` is at least ``smaller`` in every coordinate."""
    return all(a >= b for a, b in zip_longest(larger, smaller, fillvalue=0))
