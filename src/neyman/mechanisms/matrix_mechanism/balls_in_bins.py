"""Describe balls in bins: each record draws one bin, which stays the same in every pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.bracket import LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.random_allocation import LIMITS as RANDOM_ALLOCATION_LIMITS
from neyman.curves.losses.random_allocation import equicorrelated
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.description import COUNT, POSITIVE
from neyman.mechanisms.matrix_mechanism.strategy import STRATEGY_UNIT, Toeplitz, Triangular
from neyman.numerics.atoms import UNIT


@dataclass(frozen=True, repr=False)
class BallsInBins(Mechanism):
    """Run passes over random batches that stay the same, with noise that is correlated over time.

    Each record draws one of b bins, uniformly and independently of the other records, and takes
    part in the steps j, j + b, j + 2 b, ... of its bin j in every pass. The noise of the steps is
    C^-1 Z, with Z of standard deviation sigma. The pair for adding or removing a record is P
    against Q = N(0, I), with a coordinate for each row of C. Here P is the mean over j of
    N(m_j, I), and m_j is the sum over the steps t of bin j of |C|[:, t] / sigma. Absolute values
    are needed, because gradients may have opposite signs.

    Delta at every epsilon, in both orders, does not fall if an entry of the Gram matrix
    G_ij = m_i . m_j grows [RA-6]. So the curve is between the curves of two simpler matrices, with
    equal entries off the diagonal: Gaussian noise beside one pass of random allocation. Above, the
    bins may also be split into classes that are revealed.

    Args:
        strategy: C, a row and a column per step, E b steps in all.
        sigma: standard deviation of the noise on each row of C, above 0, divided by the clip.
        bins: b, at least 1, a divisor of the strategy's steps.

    Raises:
        ValueError: an argument is out of range.

    Source: [RA-6], [RA-7]; Kahane 1985; Choquette-Choo et al. 2025 (balls in bins).
    """

    RELATION = "add-remove"
    OWN_STEPS = True

    strategy: Toeplitz | Triangular
    sigma: float | Fraction = field(metadata=POSITIVE)
    bins: int = field(metadata=COUNT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.strategy, (Toeplitz, Triangular)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"strategy = {self.strategy!r} must have a row per step, such as "
                "square_root(steps, band)"
            )
        if not Fraction(1, 2048) <= Fraction(self.sigma) <= 1 << 34:
            raise ValueError(f"sigma = {self.sigma!r} must be from 1/2048 to 2^34")
        if self.strategy.steps % self.bins:
            raise ValueError(
                f"bins = {self.bins} must divide the {self.strategy.steps} steps of the strategy: "
                "each pass has a step per bin"
            )
        if self.bins > 1 and math.sqrt(self._gram[0][0]) > RANDOM_ALLOCATION_LIMITS.mu:
            raise ValueError(
                f"sigma = {self.sigma!r}: one record moves the rows of the strategy by "
                f"{math.sqrt(self._gram[0][0]):.3g} standard deviations, more than "
                f"{RANDOM_ALLOCATION_LIMITS.mu:g}, which hides nothing; add noise"
            )

    @cached_property
    def _gram(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the largest and the least G_ij at each distance |i - j| = 0, ..., b - 1.

        The first array is rounded up, and the second down.
        """
        scale = (float(self.sigma) * STRATEGY_UNIT) ** 2
        # Sums of products of non-negative numbers err by 2 n + 4 units, and the scale by 4 [RA-7].
        margin = (2 * self.strategy.steps + 16) * UNIT  # slack: counted
        most, least = self.strategy.gram_ends(self.bins)
        return most / scale * (1 + margin), least / scale * (1 - margin)

    @property
    def classes(self) -> int:
        """Return r: bins j and i with j - i a multiple of r form a class, which is revealed.

        It is the number with the least variance of dP/dQ at the upper end, and 1 reveals nothing.
        """
        most, _ = self._gram

        def variance(r: int) -> float:
            within = float(most[r::r].max(initial=0.0))
            return within + math.log1p(math.expm1(most[0] - within) / (self.bins // r))

        return min(range(1, self.bins + 1), key=variance)

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, between those of two simpler Gram matrices [RA-7]."""
        most, least = self._gram
        if self.bins == 1:
            return (Composition.of([(GaussianLoss(float(most[0])), 1)]),)
        r = self.classes
        upper = equicorrelated(most[0], most[r::r].max(initial=0.0), self.bins // r, 1)
        lower = equicorrelated(least[0], least[1:].min(), self.bins, -1)
        how = "between two matrices with equal entries off the diagonal"
        if r > 1:
            how = f"between a matrix with equal entries off the diagonal, and {r} classes of bins"
        return (Composition.of([(LossBracket(lower, upper, how), 1)]),)

    def rho(self) -> Fraction:
        """Return G / 2 for the largest G_jj, as if the attacker saw the record's bin."""
        return Fraction(self._gram[0][0]) / 2

    def __repr__(self) -> str:
        return f"BallsInBins({self.strategy!r}, sigma={self.sigma!r}, bins={self.bins})"
