"""Draw which records are in each batch of a training run, as its mechanism describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from neyman.noise.bits import Bits
from neyman.noise.rejection import uniform
from neyman.noise.row_draws import coins, order, subset
from neyman.numerics import check

Rows = NDArray[np.int64]


class Sampled(Protocol):
    """Represent a training run whose batches can be drawn, such as `DPSGD`."""

    @property
    def n(self) -> int:
        """Return the declared number of records."""
        ...

    @property
    def batch(self) -> int:
        """Return the declared (expected) size of a batch."""
        ...

    @property
    def sampling(self) -> str:
        """Return the name of the sampling scheme, such as "poisson"."""
        ...

    @property
    def steps(self) -> int:
        """Return the number of batches."""
        ...

    @property
    def pass_steps(self) -> int:
        """Return the number of steps whose batches are drawn together."""
        ...

    @property
    def rounds(self) -> int:
        """Return the number of batches per pass over the data."""
        ...

    @property
    def groups(self) -> int:
        """Return the number of groups of records that take turns."""
        ...

    @property
    def epochs(self) -> float | Fraction:
        """Return the average or exact number of times that each record takes part."""
        ...


class Batches(Iterator[Rows]):
    """Yield the batches of one run, drawn once. Build it with ``mechanism.batches(rows)``.

    Each step has one array of row numbers in rising order, possibly empty. The object works as a
    torch ``batch_sampler``. The batches exist once: a loop that stops and starts again continues
    with the next step. A second pass is refused, because it is a second run.

    Args:
        rows: the actual number of rows.
        after: the number of completed steps.
    """

    def __init__(self, mechanism: Sampled, rows: int, after: int, upcoming: Iterator[Rows]) -> None:
        self.mechanism = mechanism
        self.rows = rows
        self.step = after
        self._first = after
        self._upcoming = upcoming

    def __len__(self) -> int:
        """Return the number of steps of the run, without the first ``after`` steps."""
        return self.mechanism.steps - self._first

    def __iter__(self) -> Self:
        """Return this iterator, because no batch is drawn twice.

        Raises:
            RuntimeError: all batches were drawn.
        """
        if len(self) and self.step == self.mechanism.steps:
            raise RuntimeError(
                f"all {len(self)} batches of this run were drawn; a second pass is another run, "
                "with its own charge: call mechanism.batches(rows) again, or describe more "
                "epochs"
            )
        return self

    def __next__(self) -> Rows:
        """Return the rows of the next step."""
        batch = next(self._upcoming)
        self.step += 1
        return batch

    def pieces(self, most: int) -> Iterator[list[Rows]]:
        """Yield each step's batch in pieces of at most ``most`` rows. An empty batch is one piece.

        The pieces of a step are one batch: sum their gradients, and add noise once.

        Args:
            most: the largest number of rows per piece, at least 1.
        """
        most = check.integer("most", most, 1)
        return (pieces(batch, most) for batch in self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "batches are neither pickled nor copied, because a copy would draw other rows for the "
            "same steps: draw them in one process, and pass the row numbers on"
        )

    def __repr__(self) -> str:
        return f"<step {self.step} of {self.mechanism.steps} of {self.mechanism!r}>"


def pieces(batch: Rows, most: int) -> list[Rows]:
    """Cut a batch into pieces of at most ``most`` rows. An empty batch is one empty piece."""
    return [batch[i : i + most] for i in range(0, max(1, batch.size), most)]


def draws(mechanism: Sampled, rows: int, bits: Bits, after: int = 0) -> Batches:
    """Return the batches of a run, as `DPSGD.batches` describes."""
    rows = check.integer("rows", rows)
    if mechanism.sampling in ("fixed", "shuffled", "cyclic") and rows != mechanism.n:
        raise ValueError(
            f"rows = {rows} must be n = {mechanism.n}: with sampling={mechanism.sampling!r} "
            "neighbors have the same number of records, so the number is public; describe the "
            "mechanism with it"
        )
    after = check.integer("after", after)
    if after > mechanism.steps or (after % mechanism.pass_steps and after != mechanism.steps):
        raise ValueError(
            f"after = {after} must be at most {mechanism.steps} and a multiple of "
            f"{mechanism.pass_steps}: with sampling={mechanism.sampling!r} the batches of "
            f"{mechanism.pass_steps} steps are drawn together, and a part cannot be drawn again"
        )
    upcoming = SCHEMES[mechanism.sampling](mechanism, rows, bits, after)
    return Batches(mechanism, rows, after, upcoming)


def _poisson(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    many = mechanism.groups
    rate = Fraction(mechanism.batch * many, mechanism.n)
    groups = uniform(many, rows, bits) if many > 1 else None
    for step in range(after, mechanism.steps):
        if groups is None:
            yield coins(rate, rows, bits)
        else:
            members = np.flatnonzero(groups == step % many)
            yield members[coins(rate, members.size, bits)]


def _fixed_batches(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    for _ in range(after, mechanism.steps):
        yield subset(rows, mechanism.batch, bits)


def _allocated_batches(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    bins = mechanism.pass_steps
    for _ in range(after, mechanism.steps, bins):
        places = uniform(bins, rows, bits)
        by_bin = np.argsort(places, kind="stable")
        yield from np.split(by_bin, np.cumsum(np.bincount(places, minlength=bins))[:-1])


def _shuffled_batches(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    for _ in range(after, mechanism.steps, mechanism.pass_steps):
        yield from map(np.sort, np.array_split(order(rows, bits), mechanism.pass_steps))


def _cyclic(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    for step in range(after, mechanism.steps):
        yield np.arange(step % mechanism.rounds, rows, mechanism.rounds)


def _k_of_t(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    """Yield batches in which each row takes part in exactly k of the t steps, with k = epochs.

    With l steps left, a row that must take part r more times enters with probability r / l.
    """
    due = np.full(rows, int(mechanism.epochs), np.int64)
    for left in range(mechanism.steps - after, 0, -1):
        taken = np.flatnonzero(uniform(left, rows, bits) < due)
        due[taken] -= 1
        yield taken


def _bins(mechanism: Sampled, rows: int, bits: Bits, after: int) -> Iterator[Rows]:
    """Yield batches of the rows of one bin, drawn once for all passes."""
    places = uniform(mechanism.rounds, rows, bits)
    for step in range(after, mechanism.steps):
        yield np.flatnonzero(places == step % mechanism.rounds)


SCHEMES: dict[str, Callable[[Sampled, int, Bits, int], Iterator[Rows]]] = {
    "poisson": _poisson,
    "allocated": _allocated_batches,
    "k-of-t": _k_of_t,
    "bins": _bins,
    "fixed": _fixed_batches,
    "shuffled": _shuffled_batches,
    "cyclic": _cyclic,
}
"""For each ``sampling``, the function that draws its batches."""
