"""Private training: what noisy stochastic gradient descent is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism, StandIn
from neyman.mechanisms.batches import Batches, draws
from neyman.mechanisms.description import COUNT, POSITIVE, form, rational
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
    "fixed": "replace-one",
    "shuffled": "replace-one",
    "cyclic": "replace-one",
}
SAMPLINGS = tuple(RELATION)
UNBROKEN = ("allocated", "k-of-t", "shuffled", "cyclic")  # passes that are not broken off
CLIPPED = {"examples": "one record", "users": "one user's sum"}
"""What is clipped, and is the unit of sigma, by what a batch is drawn from."""

Histogram = tuple[tuple[int, int], ...]


def _records(name: str, value: object) -> int | Histogram:
    """Keep the largest number of records of a user, or a histogram in rising order."""
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
    """Keep a number of records and its number of users."""
    if not isinstance(pair, (tuple, list)) or len(cast("list[object]", pair)) != 2:
        raise ValueError(
            f"{name}: {pair!r} must be a number of records with a number of users, as in {{8: 20}}"
        )
    records, users = cast("list[object]", pair)
    return check.integer(name, records, 1), check.integer(name, users, 1)


@dataclass(frozen=True)
class UserGuarantee:
    """What a training run reveals about a user with a certain number of records.

    Args:
        records: the number of records that the user has.
        users: how many users are declared to have so many.
        epsilon: epsilon at the delta that was asked for.
        power: of the best attack at the level that was asked for.
    """

    records: int
    users: int
    epsilon: Bound
    power: Bound


@dataclass(frozen=True, repr=False)
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

    - "cyclic": record i is in each batch t for which t - i is a multiple of n / batch, under
      replace-one. With independent noise it is what "shuffled" is.

    With a ``strategy`` the noise of a step cancels a part of the noise before it. Sigma is that of
    the noise on each row of the strategy.

    - "cyclic": ``MatrixMechanism(strategy, sigma, participations=epochs, separation=n / batch)``.
    - "poisson", for a band of b rows: each record is put into one of b groups, drawn at random, and
      enters the batch of each step t that is its group's, modulo b, with probability b batch / n.
      With c the largest norm of a column of C, under add-remove, it is
      ``Gaussian(sigma / c).subsample(rate=b * batch / n) * (steps / b)`` [MM-10].

    Where n / batch is not whole it is rounded up.

    A user may have several records. Then neighbors differ in all records of one user, which are in
    one dataset and absent from the other, and `user_sampling` says what the loop draws:

    - "examples": each record by itself, with a clip for each gradient. Sigma is the noise over the
      clip of one record. It is ``Gaussian(sigma).subsample(rate=batch / n).user(k) * steps``, for
      Poisson batches alone: nothing is proven here for the others.
    - "users": each user with all their records, with one clip for the sum of their gradients. Sigma
      is the noise over the clip of one user's sum. n counts users, batch is the (expected) number
      of users in a batch, and the curve is that of one record in n: it is the same for every k.

    Args:
        n: number of records; of users with ``user_sampling="users"``.
        batch: (expected) size of a batch, at most n, in the same unit.
        sigma: standard deviation of the noise, over the most by which the sum of clipped gradients
            differs between neighbors. With clipping norm R that is R under add-remove, and 2 R
            under replace-one, where one gradient is exchanged for another: see `noise`. With
            several records per user R is the clip of one record, or of one user's sum.
        epochs: passes over the data, above 0; need not be whole for "poisson" and "fixed".
        sampling: "poisson", "allocated", "k-of-t", "fixed", "shuffled" or "cyclic".
        records_per_user: the most records that a user has; or how many users have each number of
            records, such as ``{1: 500, 8: 20}``. The curve is that of the largest number, and
            `user_guarantees` lists the others. Such a histogram is public: one that is computed
            from the data needs protection itself.
        user_sampling: "examples" or "users".
        strategy: what is measured of the sums of all steps, such as ``square_root(steps, band)``:
            one row for each step. Its band is at most n / batch; with "cyclic" it may be wider
            where no weight is below 0.

    Raises:
        ValueError: an argument is out of range, a user has more records than the data, the
            histogram does not add up to n, or nothing is proven for these batches.

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
    2024 (users); [SA-9].
    """

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
        self._check_users()
        if self.strategy is not None:
            self._check_strategy(self.strategy)
        self.made_of()

    def _check_strategy(self, strategy: Strategy) -> None:
        if not isinstance(strategy, Strategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"strategy = {strategy!r} must be a Strategy such as square_root(steps, band)"
            )
        if self.sampling not in ("poisson", "cyclic"):
            raise ValueError(
                f"sampling = {self.sampling!r}: nothing is proven here for correlated noise on "
                "such batches; a strategy goes with 'poisson' or 'cyclic'"
            )
        if strategy.steps != self.steps:
            raise ValueError(
                f"strategy = {strategy!r} has {strategy.steps} steps, and the run has {self.steps}"
            )
        if self.sampling == "cyclic" and not strategy.covers_restarts(self.rounds):
            raise ValueError(
                f"strategy = {strategy!r} must release one row for each step, and have weights of "
                f"at least 0 or a band of at most {self.rounds}, the batches of a pass: for others "
                "nothing is proven of a run that is killed and goes on"
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
        if self.user_sampling not in CLIPPED:
            raise ValueError(
                f"user_sampling = {self.user_sampling!r} must be 'examples' or 'users': what the "
                "training loop draws and clips"
            )
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
                "sampling='poisson', or user_sampling='users' with 'poisson', 'allocated', or "
                "'k-of-t'"
            )

    @property
    def histogram(self) -> Histogram:
        """Return each declared number of records with its number of users; empty if none is."""
        given = self.records_per_user
        return () if isinstance(given, int) else tuple(dict(given).items())

    @property
    def most_records(self) -> int:
        """Return the largest number of records of a user: that of the curve."""
        given = self.records_per_user
        return given if isinstance(given, int) else max(dict(given))

    @property
    def _declaration(self) -> int | dict[int, int]:
        """The records per user as they are written."""
        given = self.records_per_user
        return given if isinstance(given, int) else dict(given)

    def user_guarantees(self, *, delta: float, level: float = 0.05) -> list[UserGuarantee]:
        """Return what the run reveals about a user, for each declared number of records.

        The guarantee of the run is the last row, that of the largest number. A mean over the
        histogram is no guarantee for anyone: a user has their own number of records, not the mean.

        Args:
            delta: at which epsilon is computed.
            level: the false positive rate at which the power is computed.

        Raises:
            ValueError: no histogram was declared.
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
        """ "add-remove" with Poisson or allocated batches, else "replace-one"."""
        return RELATION[self.sampling]

    @property
    def steps(self) -> int:
        """Return the number of batches: epochs * n / batch, rounded up.

        Shuffled or allocated, each epoch has ceil(n / batch) of them.
        """
        epochs = rational(self.epochs)
        if self.sampling in UNBROKEN:
            return self.rounds * int(epochs)
        return math.ceil(epochs * self.n / self.batch)

    @property
    def rounds(self) -> int:
        """Return the number of batches of a pass: n / batch, rounded up."""
        return -(-self.n // self.batch)

    @property
    def groups(self) -> int:
        """Return how many groups of records take part in turn, for "poisson".

        It is the band of a strategy, 0 for one without a band, and 1 without a strategy.
        """
        if self.sampling != "poisson" or self.strategy is None:
            return 1
        return self.strategy.band if isinstance(self.strategy, (Toeplitz, Triangular)) else 0

    @property
    def pass_steps(self) -> int:
        """Return the number of steps whose batches are drawn together; the others need no draw.

        It is 1 for "poisson", "fixed", and "cyclic", ceil(n / batch) for "allocated" and
        "shuffled", and all steps for "k-of-t". For "poisson" with a strategy it is the band: a run
        that goes on draws groups anew, and its noise cancels none of the noise before.
        """
        if self.sampling == "k-of-t":
            return self.steps
        return self.rounds if self.sampling in ("allocated", "shuffled") else self.groups

    def batches(self, rows: int, *, after: int = 0) -> Batches:
        """Draw the batches of this run: one array of row numbers per step, exact, once.

        The object that is accounted draws its batches. Every distribution holds exactly: the rate
        batch / n of "poisson" is a rational number that random bits are compared with. The bits
        come from the operating system. There is no seed.

        With ``user_sampling="users"`` a row is a user: the loop takes all records of each user that
        is drawn, and clips their sum.

        Args:
            rows: the actual number of rows, from which 0, ..., rows - 1 are drawn. Under add-remove
                it need not be n: the rate comes from the declared n. Under replace-one it is n.
            after: the number of steps that are over, a multiple of `pass_steps`. With a strategy
                the noise then begins anew too.

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
            clip: R, the norm to which each gradient is clipped, above 0; with
                ``user_sampling="users"`` the norm to which the sum of each user is clipped.

        Returns:
            sigma R under add-remove, 2 sigma R under replace-one; divide by the batch size for
            their mean. With a strategy it is that of the noise on each of its rows.
        """
        return MOVES[self.neighboring] * float(self.sigma) * check.positive("clip", clip)

    def made_of(self) -> Mechanism:
        """Return the composition that this mechanism stands for."""
        step = Gaussian(self.sigma)
        if self.strategy is not None and self.sampling == "cyclic":
            return MatrixMechanism(self.strategy, self.sigma, int(self.epochs), self.rounds)
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
        if self.sampling == "k-of-t":
            return step.random_allocation(self.steps, times=int(self.epochs))
        if self.sampling == "allocated":
            return step.random_allocation(self.rounds) * int(self.epochs)
        return step.shuffled_batches(self.rounds) * int(self.epochs)
