"""Search for a test that refutes a claim about a black-box program."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from scipy.special import ndtri

from neyman.auditing import output_features
from neyman.auditing.evidence import ManyRuns, claimed_curve
from neyman.auditing.rate_limits import checked_confidence, error_rates, proposed_limits
from neyman.auditing.scores import band_limits, checked_scores, lower_chain, refuse_mixed_up
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.notebook import progress_line
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import directed
from neyman.numerics.relation import Relation, relation_of
from neyman.numerics.rounding import below

T = TypeVar("T")
LEAST_RUNS, MOST_RUNS = 40, 10**7


@dataclass(frozen=True, repr=False)
class SearchEvidence(ManyRuns):
    """Represent evidence from a test that was trained and tested on different runs.

    Args:
        test: name of the feature that the test reads.
        claim: the curve that the search tried to refute.
    """

    test: str
    claim: Tradeoff

    @property
    def refuted(self) -> bool:
        """Return True if the evidence refutes the claim of the search."""
        return self.refutes(self.claim)


@dataclass(frozen=True, repr=False)
class Refutation:
    """Represent the point at which an attack refutes a claim.

    Args:
        level: an upper limit on the attack's type I error rate.
        error: an upper limit on its type II error rate there.
        claimed: a lower limit on the type II error rate that the claim allows at this level.
        confidence: the probability that both limits of the attack hold.
    """

    level: float
    error: float
    claimed: float
    confidence: Fraction

    def __repr__(self) -> str:
        return (
            f"<Refutation: at level {directed(self.level, 4, up=True)} the attack has a type II "
            f"error of at most {directed(self.error, 4, up=True)}, and the claim says at least "
            f"{directed(self.claimed, 4, up=False)}; confidence {self.confidence}>"
        )


@dataclass(frozen=True, repr=False)
class AttackCurve(ManyRuns):
    """Represent the simulated curve of one attack on one pair of datasets: evidence, no guarantee.

    The curve describes this statistic only. A better attack or a worse pair of datasets may exist.
    So no mechanism, budget, plan, or ledger accepts this curve.

    Args:
        floor: corners (a, b) of lower limits on both error rates, over all thresholds. All limits
            hold at once.
    """

    floor: tuple[tuple[float, float], ...]

    def band(self, level: float) -> tuple[float, float]:
        """Return limits on the attack's type II error at this level.

        With the stated confidence, the limits hold at every level at once. Between two thresholds,
        the test chooses one at random.

        Args:
            level: type I error rate, in [0, 1].
        """
        at = check.probability("level", level)
        ends: list[float] = []
        for corners, side in ((self.floor, -1), (self.points, 1)):
            chain = lower_chain([(0.0, 1.0), *corners, (1.0, 0.0)])
            value = float(np.interp(at, [a for a, _ in chain], [b for _, b in chain]))
            ends.append(min(max(value + side * 16 * UNIT, 0.0), 1.0))  # slack: counted
        return ends[0], ends[1]

    def refutation(self, claim: object) -> Refutation | None:
        """Return the point at which the attack refutes a claim most, or None if nowhere.

        Args:
            claim: as for `refutes`.
        """
        if not self.refutes(claim):
            return None
        sides = self._sides
        powers = claimed_curve(claim).powers([a for a, _ in sides])
        claims = [below(1 - Fraction(power.upper)) for power in powers]
        best = int(np.argmax([claim - b for claim, (_, b) in zip(claims, sides, strict=True)]))
        return Refutation(*sides[best], claims[best], self.confidence)

    def _refutes(self, curve: Tradeoff) -> bool:
        powers = curve.powers([a for a, _ in self._sides])
        pairs = zip(powers, self._sides, strict=True)
        return any(below(1 - Fraction(power.upper)) > b for power, (_, b) in pairs)

    @property
    def _sides(self) -> list[tuple[float, float]]:
        """Return the upper limits (a, b) on both error rates with a + b < 1, and each as (b, a)."""
        return [pair for a, b in self.points if a + b < 1 for pair in ((a, b), (b, a))]


def attack_curve(
    run: Callable[[T], object],
    data: T,
    neighbor: T,
    statistic: Callable[[object], float],
    *,
    runs: int = 20_000,
    confidence: float | Fraction | str = 0.95,
    neighboring: Relation = "any",
) -> AttackCurve:
    """Simulate the curve of one attack on one pair of datasets, with a band at every level.

    The program runs on both datasets in turn. The attack answers "data" if the statistic of an
    output is at or above a threshold. The limits on both error rates hold at all thresholds at
    once. The curve can refute a claim. It is no guarantee: another attack or pair may show more.

    Args:
        run: a function of a dataset. Each call must use fresh randomness.
        data, neighbor: two neighboring datasets, fixed in advance.
        statistic: a function from an output to a number. A higher number speaks more for ``data``.
            Fix it before the runs: a choice based on these outputs makes the confidence wrong.
        runs: total number of calls, from 40 to 10^7, half on each dataset.
        confidence, neighboring: as for counts.

    Returns:
        An `Evidence` with two further methods: ``band(level)``, limits on the attack's type II
        error, and ``refutation(claim)``, the level at which a claim is refuted the most, or None.

    Examples:
        >>> import neyman as ny
        >>> import numpy as np
        >>> rng = np.random.default_rng(1)
        >>> shown = ny.audit.attack_curve(lambda rows: len(rows) + rng.laplace(scale=0.5),
        ...                               [1, 1], [1], statistic=float)
        >>> shown.refutes(ny.Laplace(scale=1)), shown.refutes(ny.Laplace(scale=0.5))
        (True, False)
        >>> low, high = shown.band(0.05)
        >>> low < float(ny.Laplace(scale=0.5).tradeoff()(0.05)) < high
        True

    Source: Dvoretzky, Kiefer and Wolfowitz 1956; Massart 1990; Berk and Jones 1979.
    """
    sure, relation = checked_confidence(confidence), relation_of(neighboring)
    for name, value in (("run", run), ("statistic", statistic)):
        if not callable(value):
            raise TypeError(f"{name} = {value!r} must be a function")
    values = _results(lambda i: statistic(run(neighbor if i % 2 else data)), _run_count(runs))
    members, others = (checked_scores("statistic", values[start::2]) for start in (0, 1))
    refuse_mixed_up(members, others)
    # Four one-sided bounds each have a quarter of the error probability.
    points, floor, least = band_limits(members, others, 1 - sure)
    return AttackCurve(sure, relation, points, len(others), len(members), least, floor)


def search(
    run: Callable[[T], object],
    data: T,
    neighbor: T,
    *,
    claim: object,
    runs: int = 20_000,
    confidence: float | Fraction | str = 0.95,
    neighboring: Relation = "any",
    learner: output_features.Learner | None = None,
    seed: int | None = None,
) -> SearchEvidence:
    """Search for a test that refutes a claim about a black-box program.

    The program runs in random order on two neighboring datasets. A quarter of the outputs trains
    tests, a quarter chooses one, and half counts its errors. Tests read an output's numbers, their
    differences, lowest bits, and weighted sums, and how often an output repeats.

    Args:
        run: a function of a dataset. Its output is a number, an array, a mapping of numbers, or any
            value with a repr. Each call must use fresh randomness.
        data, neighbor: two neighboring datasets, fixed in advance.
        claim: the claim to refute, as for `Evidence.refutes`.
        runs: total number of calls, from 40 to 10^7.
        confidence, neighboring: as for counts.
        learner: None, or an object with ``fit`` and ``predict_proba``, such as a classifier of
            scikit-learn. It adds one more test, on the numbers.
        seed: seed of the order of the runs and of the split.

    Returns:
        An `Evidence` with two further attributes: ``refuted``, and ``test``, which names what the
        test reads. At 95% confidence, it refutes up to one true claim in twenty.

    Examples:
        >>> import neyman as ny
        >>> import numpy as np
        >>> rng = np.random.default_rng(1)
        >>> shown = ny.audit.search(lambda rows: len(rows) + rng.laplace(scale=0.5),
        ...                         [1, 1], [1], claim=ny.Laplace(scale=1), seed=1)
        >>> shown.refuted
        True

    Source: Jagielski, Ullman and Oprea 2020; Bichsel and others 2021.
    """
    sure, relation = checked_confidence(confidence), relation_of(neighboring)
    if not callable(run):
        raise TypeError(f"run = {run!r} must be a function of a dataset")
    number = _run_count(runs)
    curve = claimed_curve(claim)
    output_features.check_learner(learner)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(number) % 2)
    outputs = _results(lambda i: run(data if labels[i] else neighbor), number)
    features = output_features.features_of(outputs)
    order = rng.permutation(number)
    fit, choose, test = np.split(order, [number // 4, number // 2])
    scores = output_features.scores_by_name(features.rows(fit), labels[fit], learner)
    chance = below((1 - sure) / 2)
    name, threshold = _choose_score(
        scores, features.rows(choose), labels[choose], curve, chance, len(test) // 2
    )
    values, sides = scores[name](features.rows(test)), labels[test]
    positives, negatives = int((sides == 1).sum()), int((sides == 0).sum())
    alarms = int((~(values[sides == 0] < threshold)).sum())
    misses = int((~(values[sides == 1] > threshold)).sum())
    point = error_rates(alarms, negatives, misses, positives, chance)
    least = error_rates(0, negatives, 0, positives, chance)
    return SearchEvidence(sure, relation, (point,), negatives, positives, least, name, curve)


def _run_count(runs: object) -> int:
    number = check.integer("runs", runs, LEAST_RUNS)
    if number > MOST_RUNS:
        raise ValueError(f"runs = {number} must be at most {MOST_RUNS:,}")
    return number


def _results(run: Callable[[int], T], number: int) -> list[T]:
    tell = progress_line()
    results: list[T] = []
    for i in range(number):
        tell(f"audit: {number} runs", i / number)
        results.append(run(i))
    tell(f"audit: {number} runs are done", 1.0)
    return results


def _choose_score(
    scores: dict[str, output_features.Score],
    features: output_features.Features,
    labels: Array,
    curve: Tradeoff,
    chance: float,
    size: int,
) -> tuple[str, float]:
    """Return the score's name and the threshold with the strongest evidence to be expected.

    The test then has ``size`` runs on each dataset.
    """
    tried: list[tuple[str, float, float, float]] = []
    for name, score in scores.items():
        values = score(features)
        cuts, alarms, misses = _rates(values[labels == 1], values[labels == 0])
        a = proposed_limits(np.rint(alarms * size), size, chance)
        b = proposed_limits(np.rint(misses * size), size, chance)
        clipped_a, clipped_b = (np.clip(x, 1e-300, 1 - 1e-16) for x in (a, b))
        for shown in (
            -ndtri(clipped_a) - ndtri(clipped_b),
            np.log1p(-clipped_b) - np.log(clipped_a),
            np.log1p(-clipped_a) - np.log(clipped_b),
        ):
            i = int(np.argmax(shown))
            tried.append((name, float(cuts[i]), float(a[i]), float(b[i])))
    claimed = 1 - np.array([p.upper for p in curve.powers([a for *_, a, _ in tried])])
    margins = [
        (least - b) / math.sqrt((b * (1 - b) + 1 / size) / size)
        for least, (*_, b) in zip(claimed, tried, strict=True)
    ]
    name, threshold, *_ = tried[int(np.argmax(margins))]
    return name, threshold


def _rates(members: Array, others: Array) -> tuple[Array, Array, Array]:
    """Return thresholds between consecutive scores, and the false alarm and miss rates there."""
    values = np.unique(np.concatenate([members, others]))
    if len(values) == 1:
        return values, np.ones(1), np.ones(1)
    cuts = values[:-1] / 2 + values[1:] / 2
    if len(cuts) > 400:
        ends = np.arange(20)
        even = np.linspace(0, len(cuts) - 1, 360).astype(int)
        cuts = cuts[np.unique(np.concatenate([ends, even, len(cuts) - 1 - ends]))]
    alarms = 1 - np.searchsorted(np.sort(others), cuts, "left") / len(others)
    misses = np.searchsorted(np.sort(members), cuts, "right") / len(members)
    return cuts, alarms, misses
