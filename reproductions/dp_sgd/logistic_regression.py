"""Logistic regression by noisy cyclic gradient descent, with what its guarantee presumes checked.

The loss of a record is log(1 + e^{-y x.w}) + (m / 2) |w|^2 with |x| <= R. It is convex, the first
part's gradient has norm at most R and its curvature is at most R^2 / 4. So nothing has to be
clipped but the features, before the training: a step's gradient moves by at most 2 R / b when a
record is replaced, and each step brings points closer by the factor that `contraction` says.
Clipped gradients of other losses need not contract at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from neyman import Bound, NoisyCyclicGradientDescent
from neyman.mechanisms.last_iterate import contraction
from neyman.numerics import Array, check

__all__ = ["DELTA", "EPOCHS", "Moment", "Problem", "Training", "course", "digits", "within"]

DELTA = 1e-5
EPOCHS = (1, 2, 5, 10, 20, 50, 100)
SLACK = 1e-9  # relative: what rounding may have left above a bound


def within(features: Array, radius: float) -> Array:
    """Rows shortened to at most ``radius``: by their own length alone, so nothing is told."""
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return features * np.minimum(1.0, radius / np.maximum(length, 1e-300))


@dataclass(frozen=True, eq=False)
class Problem:
    """Records, and the loss that is minimized over them.

    Args:
        features: shape (n, d), rows no longer than ``radius``.
        labels: -1 or 1, shape (n,).
        radius: R, a bound that does not depend on the data.
        regularisation: m, above 0.

    Raises:
        ValueError: where a row is longer, or a label is another.
    """

    features: Array
    labels: Array
    radius: float
    regularisation: float

    def __post_init__(self) -> None:
        check.positive("radius", self.radius)
        check.positive("regularisation", self.regularisation)
        longest = float(np.linalg.norm(self.features, axis=1).max())
        if longest > self.radius * (1 + SLACK):
            raise ValueError(
                f"features have a row of length {longest:.6g}, above radius = {self.radius!r}: "
                "the gradient would not be bounded; shorten them with within()"
            )
        if not np.isin(self.labels, (-1, 1)).all() or len(self.labels) != len(self.features):
            raise ValueError("labels must be -1 or 1, one for each row of features")

    @property
    def sensitivity(self) -> float:
        """How far one record's gradient moves when it is replaced: 2 R."""
        return 2 * self.radius

    @property
    def smoothness(self) -> float:
        """The largest curvature: R^2 / 4 + m."""
        return self.radius**2 / 4 + self.regularisation

    def gradient(self, w: Array, rows: slice = slice(None)) -> Array:
        """Of the mean loss of these records."""
        x, y = self.features[rows], self.labels[rows]
        return -(y * expit(-y * (x @ w))) @ x / len(y) + self.regularisation * w

    def longest_gradient(self, w: Array) -> float:
        """Of a record's own part, which is proven to be at most R."""
        x, y = self.features, self.labels
        return float((expit(-y * (x @ w)) * np.linalg.norm(x, axis=1)).max())

    def accuracy(self, w: Array) -> float:
        """Return the share of labels that the sign of x.w tells."""
        return float(np.mean(np.where(self.features @ w >= 0, 1, -1) == self.labels))


@dataclass(frozen=True, eq=False)
class Training:
    """Noisy cyclic gradient descent on a problem, as it is run and as it is accounted for.

    Args:
        problem: what is trained.
        batch: b, which divides the number of records.
        step_size: eta, at most 2 / smoothness.
        sigma: of the noise on a step's gradient; the step adds eta sigma to each coordinate.
    """

    problem: Problem
    batch: int
    step_size: float
    sigma: float

    @property
    def contraction(self) -> float:
        """The factor c; refused where the step is too long."""
        p = self.problem
        return contraction(self.step_size, p.regularisation, p.smoothness)

    def described(self, epochs: int) -> NoisyCyclicGradientDescent:
        """Describe the last iterate after so many epochs."""
        p = self.problem
        return NoisyCyclicGradientDescent(
            len(p.labels),
            self.batch,
            epochs,
            self.sigma,
            p.sensitivity,
            contraction=self.contraction,
        )

    def iterates(self, epochs: int, random: np.random.Generator) -> Iterator[Array]:
        """Yield the iterate after each epoch, from zero.
        Floating-point noise: not for a release.
        """
        w = np.zeros(self.problem.features.shape[1])
        for _ in range(epochs):
            for rows in self._batches():
                noise = self.sigma * random.standard_normal(len(w))
                w = w - self.step_size * (self.problem.gradient(w, rows) + noise)
            yield w

    def worst_contraction(self, pairs: int, random: np.random.Generator) -> float:
        """Return the largest factor by which a step without noise moved two points apart or
        together.

        Args:
            pairs: how many points are tried on each batch.
            random: which.
        """
        worst = 0.0
        for rows in self._batches():
            for _ in range(pairs):
                a, b = random.standard_normal((2, self.problem.features.shape[1]))
                after = (a - b) - self.step_size * (
                    self.problem.gradient(a, rows) - self.problem.gradient(b, rows)
                )
                worst = max(worst, float(np.linalg.norm(after) / np.linalg.norm(a - b)))
        return worst

    def _batches(self) -> Iterator[slice]:
        for start in range(0, len(self.problem.labels), self.batch):
            yield slice(start, start + self.batch)


@dataclass(frozen=True)
class Moment:
    """After so many epochs.

    Args:
        epochs: passes over the data.
        accuracy: on records that were held out; published as it is, so it is not private itself.
        last: epsilon where the last iterate alone is seen.
        all: epsilon where every iterate is.
    """

    epochs: int
    accuracy: float
    last: Bound
    all: Bound


def course(
    training: Training,
    held_out: Problem,
    random: np.random.Generator,
    epochs: Sequence[int] = EPOCHS,
    delta: float = DELTA,
) -> Iterator[Moment]:
    """One training, looked at after some of its epochs, with its assumptions checked on the way.

    Raises:
        ArithmeticError: where a gradient is longer, or a step contracts less, than was proven.
    """
    problem = training.problem
    if training.worst_contraction(3, random) > training.contraction * (1 + SLACK):
        raise ArithmeticError("a step contracts less than the smoothness of its loss promises")
    for done, w in enumerate(training.iterates(max(epochs), random), 1):
        if problem.longest_gradient(w) > problem.radius * (1 + SLACK):
            raise ArithmeticError("a gradient is longer than the features allow")
        if done in epochs:
            product = training.described(done)
            yield Moment(
                done,
                held_out.accuracy(w),
                product.tradeoff().epsilon(delta),
                product.all_iterates().tradeoff().epsilon(delta),
            )


def digits(sigma: float = 0.03) -> tuple[Training, Problem]:
    """Is a handwritten digit even? 1500 records to train on, in batches of 150, and 297 held out.

    It needs scikit-learn, with which the data come. Pixels lie between 0 and 16 by declaration;
    the order of the records is drawn once and does not depend on them.

    Args:
        sigma: of the noise on a step's gradient.
    """
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    pixels, digit = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digit))
    rows = np.hstack([pixels / 16, np.ones((len(digit), 1))])[order] / 4
    labels = np.where(digit % 2 == 0, 1, -1)[order]
    features = within(rows, 1.0)
    trained, held_out = (
        Problem(features[part], labels[part], 1.0, 0.005)
        for part in (slice(1500), slice(1500, None))
    )
    return Training(trained, 150, 4.0, sigma), held_out
