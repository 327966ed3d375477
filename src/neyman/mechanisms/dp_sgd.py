"""Describe private training by noisy stochastic gradient descent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from neyman.curves.losses.discrete_gaussian import root_above
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism, StandIn
from neyman.mechanisms.batches import Batches, draws
from neyman.mechanisms.description import COUNT, POSITIVE, form, rational
from neyman.mechanisms.description import LIMITS as DESCRIPTION_LIMITS
from neyman.mechanisms.matrix_mechanism.balls_in_bins import BallsInBins
from neyman.mechanisms.matrix_mechanism.matrix_mechanism import MatrixMechanism
from neyman.mechanisms.matrix_mechanism.strategy import Strategy, Toeplitz, Triangular
from neyman.noise.bits import SecureBits
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.relation import MOVES, Neighboring

RELATION: dict[str, Neighboring] = {
    "poisson": "add-remove",
    "allocated": "add-remove",
    "k-of-t": "add-remove",
    "bins": "add-remove",
    "fixed": "replace-one",
    "shuffled": "replace-one",
    "cyclic": "replace-one",
}
SAMPLINGS = tuple(RELATION)
# Schemes with complete passes only.
UNBROKEN = ("allocated", "k-of-t", "bins", "shuffled", "cyclic")
CLIPPED = {"examples": "one record", "users": "one user's sum"}
"""For each ``user_sampling``, the clipped quantity whose clip is the unit of sigma."""

Histogram = tuple[tuple[int, int], ...]


def _records(name: str, value: object) -> int | Histogram:
    """Return the checked ``value``: the most records per user, or a histogram in rising order."""
    if not isinstance(value, (Mapping, tuple, list)):
        return check.integer(name, value, 1)
    given = cast("Mapping[object, object] | Sequence[object]", value)
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    histogram = dict(_pair(name, pair) for pair in pairs)
    if not histogram or len(histogram) < len(pairs):
        raise ValueError(
            f"{name} = {value!r} must name at least one number of records, each once: "
            "{1: 500, 8: 20} says that 500 users have one record and 20 have eight"
        )
    return tuple(sorted(histogram.items()))


def _pair(name: str, pair: object) -> tuple[int, int]:
    """Return the checked pair: a number of records, and the number of users who have it."""
    if not isinstance(pair, (tuple, list)) or len(cast("list[object]", pair)) != 2:
        raise ValueError(
            f"{name}: {pair!r} must be a number of records with a number of users, as in {{8: 20}}"
        )
    records, users = cast("list[object]", pair)
    return check.integer(name, records, 1), check.integer(name, users, 1)


@dataclass(frozen=True)
class UserGuarantee:
    """Report what a training run reveals about a user with a certain number of records.

    Args:
        records: the user's number of records.
        users: the declared number of users with this number of records.
        epsilon: epsilon at the requested delta.
        power: power of the best attack at the requested level.
    """

    records: int
    users: int
    epsilon: Bound
    power: Bound


@dataclass(frozen=True, repr=False)
class DPSGD(StandIn):
    """Train by DP-SGD: clipped gradients with Gaussian noise. The attacker sees every step.

    A step sums the clipped gradients of a batch, adds normal noise, and updates the model.
    `made_of` returns the composition for each way to draw batches. Never account for one kind of
    loop as another kind.

    - "poisson": each record enters each batch with probability batch / n, under add-remove:
      ``Gaussian(sigma).subsample(rate=batch / n) * steps``.
    - "allocated": once per epoch, each record enters one random batch of n / batch batches, under
      add-remove: ``Gaussian(sigma).random_allocation(n / batch) * epochs``.
    - "k-of-t": each record takes part in k = epochs random steps of all T = epochs * n / batch
      steps, under add-remove: ``Gaussian(sigma).random_allocation(T, times=k)``.
    - "bins": each record draws one of n / batch bins, and takes part in the step of this bin in
      each epoch, under add-remove:
      ``Gaussian(sigma / sqrt(epochs)).random_allocation(n / batch)``. In "allocated", it draws anew
      in each epoch.
    - "fixed": each batch is a fresh sample of fixed size, under replace-one:
      ``Gaussian(sigma).subsample(size=batch, population=n) * steps`` (see `FixedSize`).
    - "shuffled": the records are shuffled once per epoch and cut into batches, under replace-one:
      ``Gaussian(sigma).shuffled_batches(n / batch) * epochs``. No amplification is claimed for the
      secret order. Most loops draw batches in this way, but "allocated" is equally easy.
    - "cyclic": record i is in batch t if t - i is a multiple of n / batch, under replace-one. With
      independent noise, the composition is the same as for "shuffled".

    With a ``strategy``, the noise of a step cancels a part of the earlier noise. Sigma is the
    standard deviation of the noise on each row of the strategy.

    - "cyclic": ``MatrixMechanism(strategy, sigma, participations=epochs, separation=n / batch)``.
    - "bins", under add-remove: `BallsInBins`, for any weights and any number of epochs.
    - "poisson", for a strategy of band b: each record enters one of b groups at random. In each
      step t, the group t modulo b is active, and its records enter the batch with probability b
      batch / n. With the largest norm c of a column of the strategy, under add-remove, the
      composition is ``Gaussian(sigma / c).subsample(rate=b * batch / n) * (steps / b)`` [MM-10].

    If n / batch is not an integer, it is rounded up.

    A user may have several records. Then one neighbor contains all records of a user, and the other
    contains none of them. `user_sampling` says what the loop draws:

    - "examples": single records, with a clip for each gradient. Sigma is the noise divided by the
      clip of one record. The composition, proven for Poisson batches only, is
      ``Gaussian(sigma).subsample(rate=batch / n).user(k) * steps``.
    - "users": users with all their records, with one clip for the sum of their gradients. Sigma is
      the noise divided by the clip of one user's sum. n counts users, and batch is the (expected)
      number of users in a batch. The curve is the curve for one record in n, and the same for every
      k.

    Args:
        n: number of records, or number of users with ``user_sampling="users"``.
        batch: (expected) size of a batch, at most n, in the same unit.
        sigma: standard deviation of the noise, divided by the largest difference of the sum of
            clipped gradients between neighbors. With clipping norm R this is R under add-remove,
            and 2 R under replace-one, which exchanges one gradient for another: see `noise`. With
            several records per user, R is the clip of one record, or of one user's sum.
        epochs: passes over the data, above 0; may be fractional for "poisson" and "fixed".
        sampling: "poisson", "allocated", "k-of-t", "bins", "fixed", "shuffled" or "cyclic".
        records_per_user: the largest number of records per user, or a histogram: the number of
            users for each number of records, such as ``{1: 500, 8: 20}``. The curve is for the
            largest number, and `user_guarantees` lists the others. The histogram is public: if it
            is computed from the data, it needs protection itself.
        user_sampling: "examples" or "users".
        strategy: the measured combinations of the sums of all steps, one row per step, such as
            ``square_root(steps, band)``. The band is at most n / batch. With "cyclic" it may be
            wider if no weight is negative.

    Raises:
        ValueError: an argument is out of range, a user has more records than the data, the
            histogram does not add up to n, or no guarantee is proven for these batches.

    Examples:
        >>> import neyman as ny
        >>> training = ny.DPSGD(n=60_000, batch=256, sigma=1.3, epochs=15)
        >>> round(float(training.tradeoff().epsilon(delta=1e-5)), 3)
        0.865
        >>> users = ny.DPSGD(60_000, 256, 1.3, 15, records_per_user={1: 20_000, 8: 5_000})
        >>> for row in users.user_guarantees(delta=1e-5):
        ...     print(row.records, row.users, round(float(row.epsilon), 2))
        1 20000 0.86
        8 5000 9.25

    Source: Abadi et al. 2016; Bu, Dong, Long and Su 2020; Dong, Roth and Su 2022; Charles et al.
    2024 (users); [SA-8].
    """

    OWN_STEPS = True

    n: int = field(metadata=COUNT)
    batch: int = field(metadata=COUNT)
    sigma: float | Fraction = field(metadata=POSITIVE)
    epochs: float | Fraction = field(metadata=POSITIVE)
    sampling: str = "poisson"
    records_per_user: int | Mapping[int, int] | Histogram = field(
        default=1,
        metadata=form(
            _records, read=lambda given: given, shown=lambda run: run.records_per_user != 1
        ),
    )
    user_sampling: str = field(
        default="examples", metadata=form(shown=lambda run: run.user_sampling != "examples")
    )
    strategy: Strategy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.n:
            raise ValueError(f"batch = {self.batch} must be at most n = {self.n}")
        check.one_of("sampling", self.sampling, SAMPLINGS, ": the training loop's scheme")
        if self.steps > DESCRIPTION_LIMITS.count:
            most = f"{DESCRIPTION_LIMITS.count:g}"
            raise ValueError(f"epochs = {self.epochs!r} must give at most {most} batches")
        if self.sampling in UNBROKEN and rational(self.epochs).denominator != 1:
            raise ValueError(
                f"epochs = {self.epochs!r} must be whole with sampling={self.sampling!r}: an "
                "incomplete pass uses some records as often as a complete pass"
            )
        self._check_users()
        if self.strategy is not None:
            self._check_strategy(self.strategy)
        self.made_of()

    def _check_strategy(self, strategy: Strategy) -> None:
        if not isinstance(strategy, Strategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"strategy = {strategy!r} must be a Strategy such as square_root(steps, band)"
            )
        if self.sampling not in ("poisson", "bins", "cyclic"):
            raise ValueError(
                f"sampling = {self.sampling!r}: nothing is proven here for correlated noise on "
                "such batches; a strategy goes with 'poisson', 'bins', or 'cyclic'"
            )
        if strategy.steps != self.steps:
            raise ValueError(
                f"strategy = {strategy!r} has {strategy.steps} steps, and the run has {self.steps}"
            )
        if self.sampling == "bins" and not isinstance(strategy, (Toeplitz, Triangular)):
            raise ValueError(
                f"strategy = {strategy!r}: a run in bins needs a row per step, such as "
                "square_root(steps, band)"
            )
        if self.sampling == "cyclic" and not strategy.covers_restarts(self.rounds):
            raise ValueError(
                f"strategy = {strategy!r} must release one row for each step, and have weights of "
                f"at least 0 or a band of at most {self.rounds}, the batches of a pass: otherwise "
                "nothing is proven for a run that stops and restarts"
            )
        if self.sampling == "poisson" and not 1 <= self.groups <= self.n / self.batch:
            raise ValueError(
                f"strategy = {strategy!r} must have a band of at most n / batch = "
                f"{self.n / self.batch:g} with sampling='poisson': each step of a band samples "
                "from its own group, n / band records, which must hold a batch"
            )
        if self.sampling == "poisson" and self.most_records > 1 and self.user_sampling != "users":
            raise ValueError(
                f"records_per_user = {self._declaration!r} with a strategy: the records of a user "
                "would be in several groups; use user_sampling='users'"
            )

    def _check_users(self) -> None:
        why = ": what the training loop draws and clips"
        check.one_of("user_sampling", self.user_sampling, CLIPPED, why)
        examples = self.user_sampling == "examples"
        if examples and self.most_records > self.n:
            raise ValueError(
                f"records_per_user = {self._declaration!r}: a user cannot have more records than "
                f"the data, which has n = {self.n}"
            )
        total = sum(many * users if examples else users for many, users in self.histogram)
        if self.histogram and total != self.n:
            raise ValueError(
                f"records_per_user = {self._declaration!r} adds up to {total} "
                f"{'records' if examples else 'users'}, and n = {self.n}"
            )
        if self.most_records == 1:
            return
        if self.neighboring != "add-remove" or (examples and self.sampling != "poisson"):
            raise ValueError(
                f"records_per_user = {self._declaration!r} with sampling = {self.sampling!r}: "
                "nothing is proven here for several records per user in such batches; use "
                "sampling='poisson', or user_sampling='users' with 'poisson', 'allocated', "
                "'k-of-t', or 'bins'"
            )

    @property
    def histogram(self) -> Histogram:
        """Return each declared number of records with its number of users, or () without them."""
        given = self.records_per_user
        return () if isinstance(given, int) else tuple(dict(given).items())

    @property
    def most_records(self) -> int:
        """Return the largest number of records per user, for which the curve holds."""
        given = self.records_per_user
        return given if isinstance(given, int) else max(dict(given))

    @property
    def _declaration(self) -> int | dict[int, int]:
        """Return the declared ``records_per_user``. A histogram is returned as a dict."""
        given = self.records_per_user
        return given if isinstance(given, int) else dict(given)

    def user_guarantees(self, *, delta: float, level: float = 0.05) -> list[UserGuarantee]:
        """Return what the run reveals about a user, for each declared number of records.

        The guarantee of the run is the last row, for the largest number. A mean over the histogram
        is no guarantee for anyone: a user has their own number of records, not the mean.

        Args:
            delta: the delta at which epsilon is computed.
            level: the false positive rate at which the power is computed.

        Raises:
            ValueError: there is no histogram.
        """
        if not self.histogram:
            raise ValueError(
                f"records_per_user = {self.records_per_user!r} is one number; declare how many "
                "users have each number of records, such as {1: 500, 8: 20}"
            )
        rows: list[UserGuarantee] = []
        for many, users in self.histogram:
            curve = replace(self, records_per_user=many).tradeoff()
            rows.append(UserGuarantee(many, users, curve.epsilon(delta), curve.power(level)))
        return rows

    def _of_user(self, records: int) -> Mechanism:
        if self.most_records > 1 or self.user_sampling == "users":
            raise ValueError(
                f"{self!r} is described for whole users already; give records_per_user= once"
            )
        return replace(self, records_per_user=records)

    def __repr__(self) -> str:
        names = ("n", "batch", "sigma", "epochs", "sampling")
        shown = {name: repr(getattr(self, name)) for name in names}
        if self.strategy is not None:
            shown["strategy"] = repr(self.strategy)
        if self.records_per_user != 1 or self.user_sampling != "examples":
            shown["sigma"] += f" (noise / clip of {CLIPPED[self.user_sampling]})"
            shown["records_per_user"] = repr(self._declaration)
            shown["user_sampling"] = repr(self.user_sampling)
        return f"DPSGD({', '.join(f'{name}={text}' for name, text in shown.items())})"

    @property
    def neighboring(self) -> Neighboring:
        """Return "add-remove" with Poisson, allocated, k-of-t, or bins, else "replace-one"."""
        return RELATION[self.sampling]

    @property
    def steps(self) -> int:
        """Return the number of batches: epochs * n / batch, rounded up.

        For schemes other than "poisson" and "fixed", each epoch has ceil(n / batch) batches.
        """
        epochs = rational(self.epochs)
        if self.sampling in UNBROKEN:
            return self.rounds * int(epochs)
        return math.ceil(epochs * self.n / self.batch)

    @property
    def rounds(self) -> int:
        """Return the number of batches per pass: n / batch, rounded up."""
        return -(-self.n // self.batch)

    @property
    def groups(self) -> int:
        """Return the number of groups of records that take turns.

        It is 1, except for "poisson" with a strategy: then it is the strategy's band. A strategy
        without a band gives 0, which `DPSGD` refuses.
        """
        if self.sampling != "poisson" or self.strategy is None:
            return 1
        return self.strategy.band if isinstance(self.strategy, (Toeplitz, Triangular)) else 0

    @property
    def pass_steps(self) -> int:
        """Return the number of steps whose batches are drawn together.

        It is 1 for "poisson", "fixed", and "cyclic", ceil(n / batch) for "allocated" and
        "shuffled", and all steps for "k-of-t" and "bins". For "poisson" with a strategy it is the
        band: a resumed run draws new groups, and its noise does not cancel earlier noise.
        """
        if self.sampling in ("k-of-t", "bins"):
            return self.steps
        return self.rounds if self.sampling in ("allocated", "shuffled") else self.groups

    def batches(self, rows: int, *, after: int = 0) -> Batches:
        """Draw the batches of this run exactly and once: one array of row numbers per step.

        Every distribution is exact: for "poisson", random bits are compared with the rational rate
        batch / n. The bits come from the operating system. There is no seed.

        With ``user_sampling="users"``, a row is a user. The loop takes all records of each drawn
        user, and clips their sum.

        Args:
            rows: the actual number of rows. Row numbers are 0, ..., rows - 1. Under add-remove,
                rows need not equal n: the rate uses the declared n. Under replace-one, rows is n.
            after: the number of completed steps, a multiple of `pass_steps`. With a strategy, the
                noise then starts again too.

        Returns:
            An iterator with one array per step, in rising order. An array may be empty, but still
            counts as a step. ``.pieces(most)`` splits each batch without a new draw. A torch
            DataLoader takes the iterator as ``batch_sampler``.

        Raises:
            ValueError: rows is not n under replace-one, or ``after`` is within a joint draw.
            ImportError: the package cryptography (``neyman[release]``) is missing.

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
            clip: R, the norm to which each gradient is clipped, above 0; with
                ``user_sampling="users"`` the norm to which the sum of each user is clipped.

        Returns:
            sigma R under add-remove, 2 sigma R under replace-one. Divide by the batch size for the
            mean of the gradients. With a strategy, it is the standard deviation on each row.
        """
        return MOVES[self.neighboring] * float(self.sigma) * check.positive("clip", clip)

    def made_of(self) -> Mechanism:
        """Return the composition whose curve is claimed."""
        step = Gaussian(self.sigma)
        if self.strategy is not None and self.sampling == "cyclic":
            return MatrixMechanism(self.strategy, self.sigma, int(self.epochs), self.rounds)
        if isinstance(self.strategy, (Toeplitz, Triangular)) and self.sampling == "bins":
            return BallsInBins(self.strategy, self.sigma, self.rounds)
        if self.strategy is not None:
            column = Fraction(MatrixMechanism(self.strategy, 1).shift())
            sample = Gaussian(rational(self.sigma) / column)
            sample = sample.subsample(rate=Fraction(self.batch * self.groups, self.n))
            return sample * -(-self.steps // self.groups)
        if self.sampling == "poisson":
            records = self.most_records if self.user_sampling == "examples" else 1
            sample = step.subsample(rate=Fraction(self.batch, self.n))
            return sample.user(records) * self.steps
        if self.sampling == "fixed":
            return step.subsample(size=self.batch, population=self.n) * self.steps
        if self.sampling == "bins":
            moved = Gaussian(self.sigma, sensitivity=root_above(Fraction(self.epochs)))
            return moved.random_allocation(self.rounds)
        if self.sampling == "k-of-t":
            return step.random_allocation(self.steps, times=int(self.epochs))
        if self.sampling == "allocated":
            return step.random_allocation(self.rounds) * int(self.epochs)
        return step.shuffled_batches(self.rounds) * int(self.epochs)
