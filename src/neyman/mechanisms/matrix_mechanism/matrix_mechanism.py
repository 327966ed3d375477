"""Release sums over a stream with correlated noise that partly cancels.

If all prefix sums of n steps are released one by one, the noise is of order sqrt(n). With a
strategy C (`neyman.mechanisms.matrix_mechanism.strategy`), it is of order log n. The mechanism
releases C x with integer noise, and every sum is computed from this release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.curves.losses.composition import Composition
from neyman.curves.losses.discrete_gaussian import LIMITS as DISCRETE_GAUSSIAN_LIMITS
from neyman.curves.losses.discrete_gaussian import integer_mu, root_above
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import NON_NEGATIVE, integer, rational
from neyman.mechanisms.matrix_mechanism.factorization import LIMITS as FACTORIZATION_LIMITS
from neyman.mechanisms.matrix_mechanism.factorization import moved_by, prefix_bound
from neyman.mechanisms.matrix_mechanism.noise_stream import Stream
from neyman.mechanisms.matrix_mechanism.strategy import STRATEGY_UNIT, Strategy, floats
from neyman.noise.bits import Bits
from neyman.noise.parameters import secure_unless
from neyman.numerics import check


@dataclass(frozen=True, init=False)
class MatrixMechanism(Mechanism):
    """Release C x plus integer noise, and decode it into queries of the stream x.

    x has ``steps`` entries, integers or integer vectors. They come one by one, and each may depend
    on the earlier releases. A record takes part in at most ``participations`` steps that are at
    least ``separation`` apart, and moves each by at most ``sensitivity``, in l2 norm. The mechanism
    releases W x + Z, with the integer matrix W = 65536 C and discrete Gaussian Z of parameter
    65536 sigma. The curve is G_mu with mu = (1 + e) Delta / sigma. Delta is `shift()`, and e, about
    7e-10 / sigma^2, is the cost of integer noise (`integer_mu`).

    Args:
        strategy: C; see `neyman.mechanisms.matrix_mechanism.strategy`.
        sigma: noise scale on each number of C x, in the units of x; at least 1 / 2048.
        participations: largest number of steps in which a record takes part.
        separation: smallest distance between these steps.
        sensitivity: largest move of a step by a record, in l2 norm, in the units of x.
        sigma_squared: sigma^2, exact, instead of sigma.

    The samples are exact: the release uses no floating-point arithmetic. If other software adds
    floating-point normal noise, this class describes that noise but proves nothing about it.

    Examples:
        >>> import neyman as ny
        >>> from neyman.mechanisms.matrix_mechanism.strategy import square_root
        >>> running = ny.MatrixMechanism(square_root(steps=64), sigma=4)
        >>> round(float(running.tradeoff().gdp()), 4)
        0.3864

    Source: Li et al. 2015; Denisov et al. 2022; the curve by [MM-1].
    """

    RELATION = "any"
    OWN_STEPS = True

    strategy: Strategy
    sigma_squared: Fraction
    participations: int = field(metadata=integer(1))
    separation: int = field(metadata=integer(1))
    sensitivity: float | Fraction = field(metadata=NON_NEGATIVE)

    def __init__(
        self,
        strategy: Strategy,
        sigma: float | Fraction | str | None = None,
        participations: int = 1,
        separation: int = 1,
        sensitivity: float | Fraction = 1,
        *,
        sigma_squared: float | Fraction | str | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"strategy = {strategy!r} must be a Strategy such as square_root(steps=1024)"
            )
        if (sigma is None) == (sigma_squared is None):
            raise ValueError("give exactly one of sigma= and sigma_squared=")
        name, given = ("sigma", sigma) if sigma is not None else ("sigma_squared", sigma_squared)
        exact = check.exact(name, given)
        squared = exact**2 if sigma is not None else exact
        # Below a variance of 2^10, rounding costs more than 0.3%.
        if exact <= 0 or not 1 << 10 <= squared * STRATEGY_UNIT**2 <= 1 << 100:
            raise ValueError(
                f"{name} = {given!r}: sigma must be from 1/2048 to 2^34, so that integers in units "
                "of 1 / 65536 hold the noise; count x in other units"
            )
        self._keep(sensitivity=sensitivity, strategy=strategy, sigma_squared=squared)
        self._keep(participations=participations, separation=separation)
        if self.sensitivity and not Fraction(1, 10**200) <= self.rho() <= 10**200:
            raise ValueError(
                f"sensitivity = {sensitivity!r} is too far from sigma = {self.sigma:g}: "
                "their ratio must be between about 1e-100 and 1e100"
            )

    @property
    def sigma(self) -> float:
        """Return sigma as a float."""
        return math.sqrt(self.sigma_squared)

    def shift(self) -> float:
        """Return Delta, an upper bound on the l2 distance by which one record moves C x."""
        return root_above(self._shift_squared()) / STRATEGY_UNIT

    def _shift_squared(self) -> Fraction:
        """Return the exact bound on the squared l2 distance by which one record moves W x."""
        size = rational(self.sensitivity)
        return size**2 * self.strategy.largest(self.participations, self.separation)

    def losses(self) -> tuple[Composition, ...]:
        """Return one Gaussian loss, of `integer_mu`."""
        mu = self.mu()
        return (Composition.of([(GaussianLoss(mu * mu), 1)] if mu else []),)

    def mu(self) -> float:
        """Return the mu of the curve, rounded up."""
        return integer_mu(self._shift_squared(), self.sigma_squared * STRATEGY_UNIT**2)

    def rho(self) -> Fraction:
        """Return Delta^2 / (2 sigma^2) (Canonne, Kamath and Steinke 2020, theorem 4).

        The filter of Feldman and Zrnic (2021) covers shifts that depend on earlier releases.
        """
        return self._shift_squared() / (2 * self.sigma_squared * STRATEGY_UNIT**2)

    def errors(self, workload: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return each query's standard error, in the units of x: a float estimate, not a bound.

        Args:
            workload: the queries, of shape ``(queries, steps)``, computed after the stream has
                ended. By default, the prefix sums as `stream` returns them.

        Returns:
            An array of shape ``(queries,)``. Estimates are unbiased.
        """
        if workload is None:
            return self.sigma * self.strategy.spread()
        queries = floats("workload", workload)
        if queries.ndim != 2 or queries.shape[1] != self.strategy.steps:
            raise ValueError(
                f"workload has the shape {queries.shape}; a query is a row of "
                f"{self.strategy.steps} numbers"
            )
        if not (np.abs(queries) <= 1 / FACTORIZATION_LIMITS.least_entry).all():
            raise ValueError("workload must have finite entries of at most 1e60 in size")
        return self.sigma * self.strategy.reading(queries)

    def gap(self) -> float:
        """Return the largest prefix-sum error divided by a lower bound for Gaussian strategies.

        The bound is `prefix_bound`, for the same mu, participations and separation.
        """
        least = prefix_bound(self.strategy.steps, self.participations, self.separation)
        moved = moved_by(self.strategy, self.participations, self.separation)
        return float(self.strategy.spread().max()) * moved / least

    def stream(self, width: int = 1, bits: Bits | None = None) -> Stream:
        """Return a stream that releases noisy prefix sums step by step.

        Args:
            width: number of numbers per step.
            bits: the source of randomness, by default `SecureBits`.

        Returns:
            A `Stream`. ``step(x)`` returns the estimate of the sum so far. Entries are clipped to
            ``strategy.room()`` in size.
        """
        exact = self.sigma_squared * STRATEGY_UNIT**2
        numbers = check.integer("width", width, 1)
        # same: 2 -> 3: No machine has the memory for a stream of 2^60 / 3 numbers.
        if numbers * 2 * self.strategy.steps > DISCRETE_GAUSSIAN_LIMITS.numbers:
            raise ValueError(f"width = {width} makes more than 2^60 numbers in all")
        ends = self.strategy.stream(exact, numbers, secure_unless(bits))
        return Stream(*ends, self.strategy.steps, numbers)
