"""Private training: what noisy stochastic gradient descent is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism, StandIn
from neyman.mechanisms.batches import Batches, draws
from neyman.mechanisms.description import COUNT, POSITIVE, rational
from neyman.noise.bits import SecureBits
from neyman.numerics import check
from neyman.numerics.relation import MOVES, Neighboring

RELATION: dict[str, Neighboring] = {
    "poisson": "add-remove",
    "allocated": "add-remove",
    "k-of-t": "add-remove",
    "fixed": "replace-one",
    "shuffled": "replace-one",
}
SAMPLINGS = tuple(RELATION)
UNBROKEN = ("allocated", "k-of-t", "shuffled")  # passes that are not broken off


@dataclass(frozen=True)
class DPSGD(StandIn):
    """DP-SGD: clipped gradients with Gaussian noise; the attacker sees every step.

    A step takes the sum of the clipped gradients of a batch, adds normal noise to it, and moves.
    `made_of` spells out what that is, by how the training loop draws its batches; one kind of
    loop must never be accounted for as another.

    - "poisson": each record enters each batch with probability batch / n, under add-remove:
      ``Gaussian(sigma).subsample(rate=batch / n) * steps``.
    - "allocated": once an epoch each record is put into one of n / batch batches, drawn at random,
      under add-remove: ``Gaussian(sigma).random_allocation(n / batch) * epochs``.
    - "k-of-t": each record takes part in k = epochs of the T = epochs * n / batch steps, drawn at
      random from the whole run, under add-remove:
      ``Gaussian(sigma).random_allocation(T, times=k)``.
    - "fixed": each batch is a fresh sample of fixed size, under replace-one:
      ``Gaussian(sigma).subsample(size=batch, population=n) * steps``, C_p at each step.
    - "shuffled": the records are shuffled once an epoch and cut into batches, under replace-one:
      ``Gaussian(sigma).shuffled_batches(n / batch) * epochs``. Nothing is claimed for the order
      being secret. It is what most loops do; "allocated" is as easy to run.

    Where n / batch is not whole it is rounded up.

    Args:
        n: number of records.
        batch: (expected) size of a batch, at most n.
        sigma: standard deviation of the noise, over the most by which the sum of clipped gradients
            differs between neighbors. With clipping norm R that is R under add-remove, and 2 R
            under replace-one, where one gradient is exchanged for another: see `noise`.
        epochs: passes over the data, above 0; need not be whole for "poisson" and "fixed".
        sampling: "poisson", "allocated", "k-of-t", "fixed" or "shuffled".

    Examples:
        >>> import neyman as ny
        >>> training = ny.DPSGD(n=60_000, batch=256, sigma=1.3, epochs=15)
        >>> round(float(training.tradeoff().epsilon(delta=1e-5)), 3)
        0.865

    Source: Abadi et al. 2016; Bu, Dong, Long and Su 2020; Dong, Roth and Su 2022.
    """

    n: int = field(metadata=COUNT)
    batch: int = field(metadata=COUNT)
    sigma: float | Fraction = field(metadata=POSITIVE)
    epochs: float | Fraction = field(metadata=POSITIVE)
    sampling: str = "poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.n:
            raise ValueError(f"batch = {self.batch} must be at most n = {self.n}")
        if self.sampling not in SAMPLINGS:
            known = ", ".join(map(repr, SAMPLINGS))
            raise ValueError(
                f"sampling = {self.sampling!r} must be one of {known}: what the training loop does"
            )
        if self.sampling in UNBROKEN and rational(self.epochs).denominator != 1:
            raise ValueError(
                f"epochs = {self.epochs!r} must be whole with sampling={self.sampling!r}: a pass "
                "that is broken off has seen some records as often as a whole one"
            )
        self.made_of()

    @property
    def neighboring(self) -> Neighboring:
        """ "add-remove" with Poisson or allocated batches, else "replace-one"."""
        return RELATION[self.sampling]

    @property
    def steps(self) -> int:
        """Return the number of batches: epochs * n / batch, rounded up.

        Shuffled or allocated, each epoch has ceil(n / batch) of them.
        """
        epochs = rational(self.epochs)
        if self.sampling in UNBROKEN:
            return -(-self.n // self.batch) * int(epochs)
        return math.ceil(epochs * self.n / self.batch)

    @property
    def pass_steps(self) -> int:
        """Return the number of steps whose batches are drawn together; the others need no draw.

        It is 1 for "poisson" and "fixed", ceil(n / batch) for "allocated" and "shuffled", and all
        steps for "k-of-t".
        """
        if self.sampling == "k-of-t":
            return self.steps
        return -(-self.n // self.batch) if self.sampling in UNBROKEN else 1

    def batches(self, rows: int, *, after: int = 0) -> Batches:
        """Draw the batches of this run: one array of row numbers per step, exact, once.

        The object that is accounted draws its batches. Every law holds exactly: the rate batch / n
        of "poisson" is a rational number that random bits are compared with. The bits come from
        the operating system. There is no seed.

        Args:
            rows: the actual number of rows, from which 0, ..., rows - 1 are drawn. Under add-remove
                it need not be n: the rate comes from the declared n. Under replace-one it is n.
            after: the number of steps that are over, a multiple of `pass_steps`.

        Returns:
            An iterator of one array per step, in rising order; some may be empty, and are steps all
            the same. ``.pieces(most)`` splits each batch without a new draw. A torch DataLoader
            takes it as ``batch_sampler``.

        Raises:
            ValueError: for rows other than n under replace-one, or an ``after`` within a draw.
            ImportError: without the package cryptography (``neyman[release]``).

        Examples:
            >>> import neyman as ny
            >>> training = ny.DPSGD(n=1_000, batch=100, sigma=2, epochs=3)
            >>> batches = training.batches(rows=990)
            >>> len(batches), 0 <= next(batches).size <= 990
            (30, True)
        """
        return draws(self, rows, SecureBits(), after)

    def noise(self, clip: float) -> float:
        """Return the noise's standard deviation per coordinate of the sum of clipped gradients.

        Args:
            clip: R, the norm to which each gradient is clipped, above 0.

        Returns:
            sigma R under add-remove, 2 sigma R under replace-one; divide by the batch size for
            their mean.
        """
        return MOVES[self.neighboring] * float(self.sigma) * check.positive("clip", clip)

    def made_of(self) -> Mechanism:
        """Return the composition that this mechanism stands for."""
        step = Gaussian(self.sigma)
        if self.sampling == "poisson":
            return step.subsample(rate=Fraction(self.batch, self.n)) * self.steps
        if self.sampling == "fixed":
            return step.subsample(size=self.batch, population=self.n) * self.steps
        batches = -(-self.n // self.batch)
        if self.sampling == "k-of-t":
            return step.random_allocation(self.steps, times=int(self.epochs))
        if self.sampling == "allocated":
            return step.random_allocation(batches) * int(self.epochs)
        return step.shuffled_batches(batches) * int(self.epochs)
