"""Private training over its course: what is exact, and what the limits and Renyi orders say.

The settings are those in which Bu, Dong, Long and Su (2020) trained on MNIST: Poisson samples of
expected size 256 out of 60,000 records, so many epochs, so much noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from neyman import DPSGD, Bound, Mechanism
from neyman.accounting import Estimate, edgeworth, normal
from neyman.accounting.literature.approximations import sampled_gaussian
from neyman.accounting.literature.conversions import canonne_kamath_steinke

__all__ = ["DELTA", "MNIST", "WARNING", "Course", "Moment", "course", "renyi_epsilon", "same_loop"]

DELTA = 1e-5
SAMPLINGS = ("poisson", "allocated", "bins", "fixed", "shuffled")
SIZE, BATCH = 60_000, 256
MNIST: tuple[DPSGD, ...] = tuple(
    DPSGD(SIZE, BATCH, sigma, epochs)
    for sigma, epochs in ((1.3, 15), (1.1, 60), (0.7, 45), (0.6, 62), (0.55, 68), (0.5, 100))
)
# One in a thousand, a hundred steps of little noise: the limit sees no rare large loss.
WARNING = DPSGD(1000, 1, Fraction(1, 2), Fraction(1, 10))
ORDERS: tuple[float, ...] = tuple((1 + np.geomspace(0.05, 300.0, 90)).round(6).tolist())


@dataclass(frozen=True)
class Moment:
    """What may have been told after so many epochs.

    Args:
        epochs: passes over the data.
        exact: epsilon, certified.
        limit: that of the central limit theorem; no side is safe.
        edgeworth: that of Edgeworth's expansion; no side is safe.
        renyi: an epsilon that holds, from the best of many Renyi orders; upper is safe.
    """

    epochs: int
    exact: Bound
    limit: Estimate
    edgeworth: Estimate
    renyi: Bound


@dataclass(frozen=True)
class Course:
    """Private training, moment by moment.

    Args:
        training: as it ends.
        delta: at which every epsilon is.
        moments: by rising epochs.
    """

    training: DPSGD
    delta: float
    moments: tuple[Moment, ...]


def course(
    training: DPSGD, delta: float = DELTA, epochs: Iterable[int] | None = None, order: int = 2
) -> Course:
    """Four epsilons after each epoch.

    Args:
        training: with Poisson samples, because the limit's formula is theirs.
        delta: in (0, 1).
        epochs: after which to ask; each of them if left out.
        order: of Edgeworth's expansion.

    Raises:
        ValueError: for another sampling.
    """
    if training.sampling != "poisson":
        raise ValueError(
            f"sampling = {training.sampling!r} must be 'poisson': the limit's formula is for it"
        )
    asked = range(1, math.floor(training.epochs) + 1) if epochs is None else epochs
    rate = training.batch / training.n
    renyi = renyi_epsilon(replace(training, epochs=Fraction(training.batch, training.n)))
    results = []
    for each in asked:
        total = replace(training, epochs=each)
        limit = normal(sampled_gaussian(float(training.sigma), rate, total.steps))
        results.append(
            Moment(
                each,
                total.tradeoff().epsilon(delta),
                limit.epsilon(delta),
                edgeworth(total, order).epsilon(delta),
                renyi(total.steps, delta),
            )
        )
    return Course(training, delta, tuple(results))


def renyi_epsilon(
    step: Mechanism, orders: Sequence[float] = ORDERS
) -> Callable[[int, float], Bound]:
    """Return what Renyi accounting says of many equal steps: the divergences of one, added up.

    Args:
        step: one step.
        orders: above 1, of which the best is taken.

    Returns:
        steps, delta -> epsilon by `canonne_kamath_steinke`; it holds, and is rarely the best that
        the divergences imply, let alone the truth.
    """
    curve = step.tradeoff()
    each = [curve.renyi(order).upper for order in orders]
    more = np.asarray(orders) - 1
    rest = np.log1p(-1 / np.asarray(orders)) - np.log(np.asarray(orders)) / more

    def epsilon(steps: int, delta: float) -> Bound:
        about = steps * np.asarray(each) + rest - math.log(delta) / more
        k = int(np.argmin(about))
        return canonne_kamath_steinke(orders[k], steps * Fraction(each[k]), delta)

    return epsilon


def same_loop(training: DPSGD) -> dict[str, DPSGD]:
    """One loop's noise under each way to draw its batches.

    The noise that a loop adds is sigma times how far the sum of clipped gradients can move: the
    clipping norm where a record comes or goes, and twice that where one is exchanged for another.
    So the same noise is half the sigma under "replace-one".

    Args:
        training: with sigma as under "add-remove".

    Returns:
        by the name of the sampling.
    """
    by_key = {}
    for sampling in SAMPLINGS:
        other = replace(training, sampling=sampling)
        part = 1 if other.neighboring == "add-remove" else 2
        by_key[sampling] = replace(other, sigma=Fraction(str(training.sigma)) / part)
    return by_key
