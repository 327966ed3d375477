"""A search for a test that refutes a claim about a program that is called, not read."""

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
from neyman.auditing.rate_limits import error_rates, proposed_limits
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.notebook import progress_line
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.relation import Relation
from neyman.numerics.rounding import below

T = TypeVar("T")
LEAST_RUNS, MOST_RUNS = 40, 10**7


@dataclass(frozen=True, repr=False)
class SearchEvidence(ManyRuns):
    """Evidence from a test that was learned on other runs than those that it is tested on.

    Args:
        test: what the test looks at.
        claim: the curve that the search tried to refute.
    """

    test: str
    claim: Tradeoff

    @property
    def refuted(self) -> bool:
        """True if the evidence refutes the claim of the search."""
        return self.refutes(self.claim)


def searched(
    run: Callable[[T], object],
    data: T,
    neighbor: T,
    claim: object,
    runs: int,
    confidence: Fraction,
    *,
    neighboring: Relation,
    learner: output_features.Learner | None,
    seed: int | None,
) -> SearchEvidence:
    """Draw outputs in random order; a quarter teaches tests, a quarter chooses, half tests."""
    if not callable(run):
        raise TypeError(f"run = {run!r} must be a function of a dataset")
    number = check.integer("runs", runs, LEAST_RUNS)
    if number > MOST_RUNS:
        raise ValueError(f"runs = {number} must be at most {MOST_RUNS:,}")
    curve = claimed_curve(claim)
    output_features.check_learner(learner)
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(number) % 2)
    tell = progress_line()
    outputs: list[object] = []
    for label in labels.tolist():
        tell(f"audit: {number} runs", len(outputs) / number)
        outputs.append(run(data if label else neighbor))
    tell(f"audit: {number} runs are done", 1.0)
    features = output_features.features_of(outputs)
    order = rng.permutation(number)
    fit, choose, test = np.split(order, [number // 4, number // 2])
    scores = output_features.scores_by_name(features.rows(fit), labels[fit], learner)
    chance = below((1 - confidence) / 2)
    name, threshold = _chosen(
        scores, features.rows(choose), labels[choose], curve, chance, len(test) // 2
    )
    values, sides = scores[name](features.rows(test)), labels[test]
    positives, negatives = int((sides == 1).sum()), int((sides == 0).sum())
    alarms = int((~(values[sides == 0] < threshold)).sum())
    misses = int((~(values[sides == 1] > threshold)).sum())
    point = error_rates(alarms, negatives, misses, positives, chance)
    least = error_rates(0, negatives, 0, positives, chance)
    return SearchEvidence(
        confidence, neighboring, (point,), negatives, positives, least, name, curve
    )  # fmt: skip


def _chosen(
    scores: dict[str, output_features.Score],
    features: output_features.Features,
    labels: Array,
    curve: Tradeoff,
    chance: float,
    size: int,
) -> tuple[str, float]:
    """The score and threshold that show most against the claim, as if at the size of the test."""
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
    """Thresholds halfway between neighboring scores, and both error rates there."""
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
