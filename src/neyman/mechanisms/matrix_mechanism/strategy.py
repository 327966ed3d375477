"""Describe strategies: the noisy measurements, step by step, for sums over a stream.

A strategy is a matrix C, stored as the integer matrix W = 65536 C. A column stands for a step, and
a row for a released number. The mechanism releases W x with integer noise, and computes sums
afterwards. So neither rounding C nor floating-point decoding affects the guarantee.

A record takes part in at most k steps that are at least b apart, and moves each by at most 1: a
number, or a vector in l2 norm. Every `largest` bounds how far the record moves W x, for all sets of
steps at once, in integers [MM-2].

Sources: Li, Miklau, Hay, McGregor and Rastogi 2015 (the matrix mechanism); Denisov, McMahan, Rush,
Smith and Thakurta 2022 (streams, chosen adaptively); Choquette-Choo et al. 2023 (bands and
participation with a separation).
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neyman.mechanisms.description import Description, form
from neyman.mechanisms.matrix_mechanism import noise_stream as stream
from neyman.mechanisms.matrix_mechanism.participation import MAX_INTEGER_SUM, pattern, pattern_bound
from neyman.mechanisms.registry import STRATEGIES, load_strategy
from neyman.noise.bits import Bits
from neyman.numerics import check
from neyman.numerics.array_cache import array_cache
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT

STRATEGY_UNIT = 1 << 16  # the integer that stands for 1


@dataclass(frozen=True)
class Limits:
    """Limit the steps and the weights of a strategy, and the size of its computations."""

    steps: int = 1 << 20
    dense_steps: int = 4096  # largest number of steps of a matrix
    weight_units: int = 1 << 17  # twice the unit


LIMITS = Limits()


def steps_up_to(steps: object, most: int, name: str = "steps") -> int:
    """Return a checked number of steps, from 1 to ``most``."""
    count = check.integer(name, steps, 1)
    if count > most:
        raise ValueError(f"{name} = {count} must be at most {most}")
    return count


def _weights(name: str, given: object) -> tuple[int, ...]:
    checked = tuple(
        check.integer(name, w, -LIMITS.weight_units) for w in check.several(name, given, "[65536]")
    )
    if any(w > LIMITS.weight_units for w in checked):
        raise ValueError(
            f"{name}: every weight must be at most {LIMITS.weight_units} (twice the unit)"
        )
    return checked


def _rows(name: str, given: object) -> tuple[tuple[int, ...], ...]:
    return tuple(_weights(name, row) for row in check.several(name, given, "[[65536]]"))


STEPS = form(lambda _, steps: steps_up_to(steps, LIMITS.steps))
WEIGHTS = form(_weights)
ROWS = form(_rows)


class Strategy(Description):
    """Describe the measurements of a stream, as integers in units of 1 / 65536."""

    steps: int

    @abstractmethod
    def matrix(self) -> NDArray[np.int64]:
        """Return W = 65536 C, with a row per released number in order and a column per step."""

    @abstractmethod
    def largest(self, participations: int = 1, separation: int = 1) -> int:
        """Return an upper bound on the squared l2 sensitivity of W x, in integers [MM-2].

        W is the integer matrix 65536 C, and x the stream. The sensitivity is the largest distance
        by which one record moves W x, if it moves each of its steps by at most 1.

        Args:
            participations: largest number of steps in which a record takes part.
            separation: smallest distance between these steps.
        """

    def gram_ends(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the largest and the least G_ij by distance |i - j|, shape ``(bins,)`` each.

        G is the Gram matrix of m_j, the sum of the columns j, j + b, j + 2 b, ... of |W| [RA-6]. It
        is a float whose relative error is at most 2 n + 4 units, for n rows.

        Args:
            bins: b, a divisor of the steps.
        """
        shifts = np.abs(self.matrix()).astype(float)
        by_bin = shifts.reshape(len(shifts), -1, bins).sum(axis=1)
        gram = by_bin.T @ by_bin
        lines = [np.diagonal(gram, lag) for lag in range(bins)]
        return np.array([line.max() for line in lines]), np.array([line.min() for line in lines])

    @abstractmethod
    def spread(self) -> NDArray[np.float64]:
        """Return the standard error of each prefix sum, shape ``(steps,)``.

        The measurement C x has errors of variance 1, and the sums are decoded as in `stream`.
        """

    def stream(
        self, sigma_squared: Fraction, width: int, bits: Bits
    ) -> tuple[stream.Encoder, stream.Decoder]:
        """Return the encoder and decoder of the stream, for noise of ``sigma_squared`` on W x."""
        held, estimated = self.memory(width, np.int64), self.memory(width, np.float64)
        encoder = stream.RowEncoder(held, sigma_squared, self.room(), width, bits)
        return encoder, stream.RowDecoder(estimated)

    def memory(self, width: int, kind: type) -> stream.Memory:
        """Return an empty memory of steps, with ``width`` numbers of this type per step."""
        raise NotImplementedError

    def noise(self, sigma_squared: Fraction, width: int, bits: Bits) -> stream.CorrelatedNoise:
        """Return the noise of a training loop, of variance ``sigma_squared`` on W x."""
        memory = self.memory(width, np.int64)
        return stream.CorrelatedNoise(memory, sigma_squared, width, bits)

    def covers_restarts(self, separation: int) -> bool:
        """Return True if the bound `largest` also holds for streams that restart [MM-9].

        After a restart, new rows leave out the steps before it. Released rows do not change.
        """
        del separation
        return False

    def room(self) -> int:
        """Return the largest allowed size of an entry, so that 64 bits hold released numbers."""
        return MAX_INTEGER_SUM // (self.steps * LIMITS.weight_units)

    def reading(self, workload: Array) -> NDArray[np.float64]:
        """Return the standard error of each query if C x is measured with errors of variance 1.

        Args:
            workload: the queries, of shape ``(queries, steps)``. Least squares estimates them after
                the end of the stream, from all released numbers.
        """
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        matrix = self.matrix() / STRATEGY_UNIT
        try:
            factor = cho_factor(matrix.T @ matrix)
            pivots = np.abs(np.diag(factor[0]))
            # Pivots at the level of rounding: the processor decides if they are positive.
            # slack: counted
            if float(pivots.min()) ** 2 <= len(pivots) * UNIT * float(pivots.max()) ** 2:
                raise LinAlgError
        except LinAlgError:
            raise ValueError(
                f"strategy = {self!r} separates its steps too little to answer queries in "
                "floats; take one whose inverse stays small"
            ) from None
        solved = cho_solve(factor, workload.T)
        return np.sqrt(np.maximum(np.sum(workload.T * solved, axis=0), 0.0))

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON types, for `Strategy.from_dict`."""
        return {"kind": type(self).__name__, **self._fields()}

    @staticmethod
    def from_dict(description: object) -> Strategy:
        """Return the strategy that `to_dict` described."""
        if not isinstance(description, Mapping):
            raise ValueError(f"strategy = {description!r} must be an object with a 'kind'")
        arguments = dict(cast(Mapping[str, Any], description))
        kind = arguments.pop("kind", None)
        load_strategy(kind)
        if not isinstance(kind, str) or kind not in Strategy._kinds:
            known = ", ".join(sorted({*STRATEGIES, *Strategy._kinds}))
            raise ValueError(f"strategy: kind = {kind!r} must be one of {known}")
        try:
            return Strategy._kinds[kind](**arguments)
        except TypeError as error:
            raise ValueError(f"strategy: {kind}: {error}") from None


@dataclass(frozen=True, repr=False)
class Toeplitz(Strategy):
    """Weigh a step by its age alone: C is lower triangular and has constant diagonals.

    Args:
        steps: number of steps, at most 2^20.
        coefficients: 65536 times the weight of a step at age 0, 1, ..., as integers. The first is
            above 0, and missing coefficients are 0. The number of coefficients is the band, the
            number of steps that a stream remembers.
    """

    steps: int = field(metadata=STEPS)
    coefficients: tuple[int, ...] = field(metadata=WEIGHTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.coefficients) <= self.steps or self.coefficients[0] <= 0:
            raise ValueError(
                f"coefficients: {len(self.coefficients)} of them for {self.steps} steps; give from "
                "1 to as many as steps, the first above 0"
            )

    @property
    def band(self) -> int:
        """Return the band: the number of coefficients."""
        return len(self.coefficients)

    def matrix(self) -> NDArray[np.int64]:
        """Return W = 65536 C, of shape ``(steps, steps)``."""
        small(self.steps)
        matrix = np.zeros((self.steps, self.steps), np.int64)
        for lag, weight in enumerate(self.coefficients):
            np.fill_diagonal(matrix[lag:], weight)
        return matrix

    def largest(self, participations: int = 1, separation: int = 1) -> int:
        """Return an upper bound on the squared l2 sensitivity of W x, for W = 65536 C.

        The bound is exact for nonnegative falling weights, for one step, and for a band of at most
        the separation b [MM-3]. For falling weights, the worst steps are 0, b, 2b, ... For other
        weights, the bound uses falling weights above their sizes, or `pattern_bound` if smaller.
        """
        times, apart = pattern(self.steps, participations, separation)
        weights = np.array(self.coefficients, np.int64)
        squares = np.concatenate([[0], np.cumsum(weights**2)])  # below 2^60
        if times == 1 or self.band <= apart:
            ends = np.minimum(self.steps - apart * np.arange(times), self.band)
            return sum(int(squares[end]) for end in ends)
        falling = np.maximum.accumulate(np.abs(weights)[::-1])[::-1]
        held = np.zeros(-(-self.steps // apart) * apart, np.int64)
        held[: self.band] = falling
        # The sum over the steps so far at distances of b.
        held = held.reshape(-1, apart).cumsum(axis=0).ravel()
        total = held.copy()
        total[times * apart :] -= held[: len(held) - times * apart]
        bound = _norm_squared(total[: self.steps])
        holds = self.steps <= LIMITS.dense_steps and times**2 * int(squares[-1]) < MAX_INTEGER_SUM
        if holds and (falling != weights).any():
            return min(bound, largest_of(self, participations, separation))
        return bound

    def spread(self) -> NDArray[np.float64]:
        """Return the standard errors of the prefix sums, the row norms of A C^-1.

        Row t has the first t coefficients of 1 / ((1 - z) c(z)), where c(z) has the coefficients of
        C.
        """
        from scipy.signal import lfilter

        given = np.array(self.coefficients, float) / STRATEGY_UNIT
        with np.errstate(over="ignore", invalid="ignore"):
            # For more operations, Fourier transforms invert a series faster.
            if self.steps * self.band <= (1 << 27):
                rows = lfilter([1.0], given, np.ones(self.steps))
            else:
                rows = np.cumsum(_inverse(given, self.steps))
            return _or_endless(np.sqrt(np.cumsum(np.square(rows))))

    def gram_ends(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the largest and the least G_ij by distance |i - j|, shape ``(bins,)`` each.

        For i <= j, G_ij is the sum of s_d s_(d + j - i) over d < n - j, where s_d is the sum of
        |c_d|, |c_(d - b)|, ... It falls with j.
        """
        sizes = np.zeros(self.steps)
        sizes[: self.band] = np.abs(np.array(self.coefficients, float))
        sizes = sizes.reshape(-1, bins).cumsum(axis=0).ravel()
        ends = np.zeros((2, bins))
        for lag in range(bins):
            line = np.cumsum(sizes[lag:] * sizes[: self.steps - lag])
            ends[:, lag] = line[-1], line[self.steps - bins]
        return ends[0], ends[1]

    def covers_restarts(self, separation: int) -> bool:
        """Return True if no weight is negative, or the band is at most the separation."""
        return min(self.coefficients) >= 0 or self.band <= separation

    def memory(self, width: int, kind: type) -> stream.Window:
        """Return an empty memory of the last band - 1 steps."""
        backward = np.array(self.coefficients[::-1], np.int64)
        return stream.Window(lambda t: backward[-(t + 1) :], self.band, width, kind)

    def __repr__(self) -> str:
        return f"Toeplitz(steps={self.steps}, band={self.band}, {_digest(self.coefficients)})"


@dataclass(frozen=True, repr=False)
class Triangular(Strategy):
    """Use any lower triangular C: the number released at a step combines all steps up to it.

    Args:
        rows: for each step, 65536 times the weights of the last steps, as integers. The step itself
            is last, with a weight above 0. The longest row decides how many steps a stream
            remembers. At most 4096 steps.
    """

    rows: tuple[tuple[int, ...], ...] = field(metadata=ROWS)

    def __post_init__(self) -> None:
        super().__post_init__()
        steps_up_to(len(self.rows), LIMITS.dense_steps, "the number of rows")
        for t, row in enumerate(self.rows):
            if not 1 <= len(row) <= t + 1 or row[-1] <= 0:
                raise ValueError(
                    f"rows: that of step {t} has {len(row)} weights, {list(row[-3:])} at its end; "
                    f"it must have from 1 to {t + 1}, the last (of the step itself) above 0"
                )

    @staticmethod
    def of(matrix: Array) -> Triangular:
        """Return the lower triangular C from floats, rounded to multiples of 1 / 65536.

        Args:
            matrix: C, of shape ``(steps, steps)``, with a diagonal above 0. Entries above the
                diagonal are ignored.
        """
        given = floats("matrix", matrix)
        if given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise ValueError(f"matrix has the shape {given.shape}; it must be (steps, steps)")
        if not (np.abs(np.tril(given)) <= LIMITS.weight_units / STRATEGY_UNIT).all():
            raise ValueError("matrix must have finite entries of at most 2 in size: scale it down")
        integers = np.rint(np.tril(given) * STRATEGY_UNIT).astype(np.int64)
        rows: list[tuple[int, ...]] = []
        for t, row in enumerate(integers):
            first = int(np.flatnonzero(row[: t + 1])[0]) if row[: t + 1].any() else t
            rows.append(tuple(row[first : t + 1].tolist()))
        return Triangular(tuple(rows))

    @staticmethod
    def normalized(strategy: Strategy) -> Triangular:
        """Return the strategy with columns scaled to norm 1: each step moves C x equally far.

        Source: Henzinger, Kalinin and Upadhyay 2025, for the square root.
        """
        matrix = strategy.matrix() / STRATEGY_UNIT
        return Triangular.of(matrix / np.linalg.norm(matrix, axis=0))

    @property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the number of steps."""
        return len(self.rows)

    @property
    def band(self) -> int:
        """Return the band: the largest number of stored weights in a row."""
        return max(map(len, self.rows))

    def matrix(self) -> NDArray[np.int64]:
        """Return W = 65536 C, of shape ``(steps, steps)``."""
        matrix = np.zeros((self.steps, self.steps), np.int64)
        for t, row in enumerate(self.rows):
            matrix[t, t + 1 - len(row) : t + 1] = row
        return matrix

    def largest(self, participations: int = 1, separation: int = 1) -> int:
        """Bound the squared l2 sensitivity of W x, for W = 65536 C, by `pattern_bound`.

        The bound is exact for one step, or for a band of at most the separation [MM-4].
        """
        if pattern(self.steps, participations, separation)[0] == 1:
            return int((self.matrix() ** 2).sum(axis=0).max())  # as exact as in `largest_of`
        return largest_of(self, participations, separation)

    def spread(self) -> NDArray[np.float64]:
        """Return the standard error of each prefix sum."""
        return prefix_spread(self.matrix())

    def covers_restarts(self, separation: int) -> bool:
        """Return True if no weight is negative, or the band is at most the separation."""
        return min(map(min, self.rows)) >= 0 or self.band <= separation

    def memory(self, width: int, kind: type) -> stream.Window:
        """Return an empty memory of the last band - 1 steps."""
        return stream.Window(self.rows.__getitem__, self.band, width, kind)

    def __repr__(self) -> str:
        return f"Triangular(steps={self.steps}, band={self.band}, {_digest(self.rows)})"


def square_root(steps: int, band: int | None = None) -> Toeplitz:
    """Return C with C C = A (prefix sums): a step of age m has the weight binom(2m, m) / 4^m.

    Args:
        steps: number of steps.
        band: number of nonzero diagonals, by default all. With a band of at most the separation, no
            released number combines two of a record's steps.

    Source: Bennett 1977 (the square root); Fichtenberger, Henzinger and Upadhyay 2023 (the
    mechanism); Kalinin and Lampert 2024 (bands of it).
    """
    steps = steps_up_to(steps, LIMITS.steps)
    width = steps if band is None else check.integer("band", band, 1)
    return Toeplitz(steps, tuple(root_weights(min(width, steps)).tolist()))


@array_cache
def root_weights(count: int) -> NDArray[np.int64]:
    """Return the first ``count`` coefficients of 65536 (1 - z)^(-1/2), rounded."""
    m = np.arange(1, count)
    root = np.concatenate([[1.0], np.cumprod((2 * m - 1) / (2 * m))])
    weights = np.rint(root * STRATEGY_UNIT).astype(np.int64)
    weights.flags.writeable = False
    return weights


@lru_cache(maxsize=64)
def largest_of(strategy: Strategy, participations: int, separation: int) -> int:
    """Return the `pattern_bound` of a strategy's matrix."""
    real = strategy.matrix().astype(float)
    # Exact: sums of integers, at most LIMITS.dense_steps LIMITS.weight_units^2.
    gram = real.T @ real
    return pattern_bound(gram.astype(np.int64), participations, separation)


def prefix_spread(matrix: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the standard errors of prefix sums: row norms of A C^-1, ``matrix`` = 65536 C."""
    from scipy.linalg import solve_triangular

    n = len(matrix)
    rows = solve_triangular(matrix.T / STRATEGY_UNIT, np.tri(n).T, lower=False).T
    with np.errstate(over="ignore", invalid="ignore"):
        return _or_endless(np.linalg.norm(rows, axis=1))


def _or_endless(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the errors, with NaN (C^-1 overflowed) replaced by infinity."""
    return np.where(np.isnan(errors), np.inf, errors)


def _inverse(weights: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the first ``count`` coefficients of 1 / w(z), for the coefficients ``weights`` of w.

    Each iteration of Newton's method, g <- g (2 - w g), doubles the number of coefficients.
    """
    from scipy.signal import fftconvolve

    inverse = 1 / weights[:1]
    while len(inverse) < count:
        size = min(2 * len(inverse), count)
        left = -fftconvolve(weights[:size], inverse)[:size]
        left[0] += 2
        inverse = fftconvolve(inverse, left)[:size]
    return inverse


def _norm_squared(values: NDArray[np.int64]) -> int:
    if len(values) * int(values.max()) ** 2 < MAX_INTEGER_SUM:
        return int(values @ values)
    return sum(v * v for v in values.tolist())


def floats(name: str, given: ArrayLike) -> NDArray[np.float64]:
    """Return the argument as an array of floats. Refuse other types."""
    try:
        array = np.asarray(given)
        if array.dtype.kind != "c":
            return np.asarray(array, float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"{name} must be an array of real numbers, such as [[1, 0], [1, 1]]")


def small(steps: int) -> None:
    """Raise ValueError for more steps than a matrix may have."""
    if steps > LIMITS.dense_steps:
        raise ValueError(
            f"steps = {steps} must be at most {LIMITS.dense_steps}: its matrix would be too large"
        )


def _digest(weights: Sequence[object]) -> str:
    return "sha256=" + hashlib.sha256(repr(weights).encode()).hexdigest()[:16]
