"""Describe random allocation: each record enters one random batch of a pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.bracket import ComposedLattice, LossBracket
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.gaussian import GaussianLoss
from neyman.curves.losses.loss import Part
from neyman.curves.losses.random_allocation import LIMITS as RANDOM_ALLOCATION_LIMITS
from neyman.curves.losses.random_allocation import allocated
from neyman.mechanisms.base import Mechanism, bracketed, check_one_step
from neyman.mechanisms.description import POSITIVE, form, integer
from neyman.mechanisms.matrix_mechanism.strategy import STRATEGY_UNIT, Strategy
from neyman.numerics.atoms import UNIT
from neyman.numerics.canonical_order import order_key
from neyman.numerics.rounding import above, below

MAX_BATCHES = 10**9


@dataclass(frozen=True, repr=False)
class RandomAllocation(Mechanism):
    """Run one pass over random batches. Build it with ``.random_allocation(batches)``.

    Each record enters one of T batches, uniformly and independently, so batch sizes are random. The
    pair for adding or removing a record is P against Q = N(0, I) in T coordinates, and its reverse.
    Here P is the mean over t of N(mu e_t, I), e_t is the unit vector of batch t, and mu is the
    shift by one record in standard deviations. A batch's release may depend on earlier releases.
    The pair holds only if no one learns the batch of a record. Passes compose: ``* epochs``, with
    fresh draws. The curve has certified lower and upper bounds.

    If a record takes part in k of T batches, P is the mean over all sets of k batches. Its curve is
    at least the curve of k passes over T / k batches, rounded up or down so that they add up to T,
    and at most the curve of the sum of all releases [RA-5].

    Args:
        mechanism: Gaussian noise, described by the shift that the presence of one record causes, at
            most 10 standard deviations.
        batches: T, at least 1.
        times: k, from 1 to T.

    Raises:
        ValueError: the mechanism or the relation is another.

    Source: [RA-1] to [RA-4]; Chua et al. 2025 (balls and bins), Feldman and Shenfeld 2025.
    """

    RELATION = "add-remove"
    OWN_STEPS = True

    mechanism: Mechanism
    batches: int = field(metadata=integer(1, MAX_BATCHES))
    times: int = field(default=1, metadata=integer(1) | form(shown=lambda pass_: pass_.times > 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_step(self.mechanism, "random allocation")
        if self.times > self.batches:
            raise ValueError(
                f"times = {self.times} must be at most batches = {self.batches}: a record is in a "
                "batch at most once"
            )
        if self.mechanism.neighboring not in ("any", "add-remove"):
            raise ValueError(
                f"mechanism = {self.mechanism!r} is described under "
                f"{self.mechanism.neighboring!r}; random allocation is proven for 'add-remove'"
            )
        mu = self._mu
        if mu > RANDOM_ALLOCATION_LIMITS.mu and self.batches > self.times:
            raise ValueError(
                f"mechanism = {self.mechanism!r}: one record moves a batch by {mu:.3g} standard "
                f"deviations, more than {RANDOM_ALLOCATION_LIMITS.mu:g}, which hides nothing; add "
                "noise, or claim no amplification (shuffled_batches)"
            )

    @property
    def _mu(self) -> float:
        composition, *more = self.mechanism.losses()
        kinds = [loss for loss, _ in composition.parts]
        if not kinds and not more:
            return 0.0
        if more or len(kinds) > 1 or not isinstance(kinds[0], GaussianLoss):
            raise ValueError(
                f"mechanism = {self.mechanism!r}: random allocation is proven here for Gaussian "
                "noise only; use subsample(rate=), or shuffled_batches for no amplification"
            )
        return kinds[0].mu

    def losses(self) -> tuple[Composition, ...]:
        """Return one loss, between two finite losses, or the loss of the mechanism [RA-1]."""
        mu = self._mu
        if self.batches == self.times or not mu:
            return (self.mechanism * self.times).losses()
        if self.times == 1:
            return (Composition.of([(allocated(mu, self.batches), 1)]),)
        # k groups of T batches: `rest` of them have one batch more than the others [RA-5].
        size, rest = divmod(self.batches, self.times)
        counts = ((size, self.times - rest), (size + 1, rest))
        return (Composition.of([(self._share(mu, bins), many) for bins, many in counts if many]),)

    def _share(self, mu: float, bins: int) -> LossBracket:
        """Return a bracket of a part of the loss of a record in k of T batches [RA-5].

        The sum of the k parts brackets the loss.

        Args:
            mu: the shift by one record, in standard deviations.
            bins: the batches of the group that the part is about.
        """
        exact = Fraction(mu) ** 2 * self.times / self.batches
        lower = GaussianLoss(below(exact * (1 - Fraction(16, 2**53))))
        upper = allocated(mu, bins).upper if bins > 1 else self.mechanism.losses()[0].parts[0][0]
        return LossBracket(lower, upper, "between a sum of batches and k passes")

    def rho(self) -> Fraction:
        """Return k times the mechanism's rho, as if the attacker saw the record's k batches."""
        return self.mechanism.rho() * self.times

    def __repr__(self) -> str:
        times = f", times={self.times}" if self.times > 1 else ""
        return f"{bracketed(self.mechanism)}.random_allocation(batches={self.batches}{times})"


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

    strategy: Strategy
    sigma: float | Fraction = field(metadata=POSITIVE)
    bins: int = field(metadata=integer(1, MAX_BATCHES))

    def __post_init__(self) -> None:
        super().__post_init__()
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
            return (Composition.of([(GaussianLoss(above(Fraction(most[0]))), 1)]),)
        r = self.classes
        upper = _equicorrelated(most[0], most[r::r].max(initial=0.0), self.bins // r, 1)
        lower = _equicorrelated(least[0], min(least[1:].min(), least[0]), self.bins, -1)
        how = "between two matrices with equal entries off the diagonal"
        if r > 1:
            how = f"between a matrix with equal entries off the diagonal, and {r} classes of bins"
        return (Composition.of([(LossBracket(lower, upper, how), 1)]),)

    def rho(self) -> Fraction:
        """Return G / 2 for the largest G_jj, as if the attacker saw the record's bin."""
        return Fraction(self._gram[0][0]) / 2

    def __repr__(self) -> str:
        return f"BallsInBins({self.strategy!r}, sigma={self.sigma!r}, bins={self.bins})"


def _equicorrelated(diagonal: float, other: float, bins: int, side: int) -> Part:
    """Return a loss on a side of that of a Gram matrix with equal entries off the diagonal.

    It is the sum of a Gaussian loss with mu^2 = ``other`` and of a loss of random allocation with
    mu^2 = ``diagonal`` - ``other`` [RA-7].

    Args:
        diagonal, other: the entries of the matrix, 0 <= other <= diagonal.
        bins: its size.
        side: 1 for a loss that dominates, -1 for one that is dominated.
    """
    apart = math.sqrt(diagonal - other) * (1 + side * 4 * UNIT)  # slack: counted
    parts: list[tuple[Part, int]] = [(GaussianLoss(other), 1)] if other > 0 else []
    if bins > 1 and apart > 0:
        bracket = allocated(apart, bins)
        parts.append((bracket.upper if side > 0 else bracket.lower, 1))
    elif side > 0:
        return GaussianLoss(diagonal)
    if len(parts) == 1:
        return parts[0][0]
    return ComposedLattice(tuple(sorted(parts, key=order_key)), side)
