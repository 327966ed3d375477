"""Extract numbers and texts from any program's outputs, as features for statistical tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, cast

import numpy as np

from neyman.numerics.arrays import Array


@dataclass(frozen=True)
class Limits:
    """Limit the features of an output, and hold the numbers that replace infinity and NaN."""

    numbers: int = 32  # numbers of an output that are used one by one
    bins: int = 24
    largest_number: float = 1e100  # finite numbers are clipped here


LIMITS = Limits()

Score = Callable[["Features"], Array]


@dataclass(frozen=True)
class Features:
    """Represent outputs as columns of numbers and columns of texts.

    Args:
        numbers: shape (runs, columns). The columns are the output's length, its numbers, and their
            differences.
        texts: columns of strings: the whole output, each number, and each number's lowest bits.
    """

    numbers: Array
    texts: tuple[tuple[Any, ...], ...]

    def rows(self, chosen: Array) -> Features:
        """Return the features of the chosen runs."""
        columns = (tuple(column[i] for i in chosen) for column in self.texts)
        return Features(self.numbers[chosen], tuple(columns))


def _flat(output: object) -> tuple[str, list[float]]:
    """Return a text for an output's parts that are not numbers, such as keys, and its numbers."""
    if isinstance(output, dict):
        entries = cast(dict[object, object], output)
        keys = sorted(entries, key=repr)
        return repr(keys), _flat([entries[key] for key in keys])[1]
    try:
        array = np.asarray(output, dtype=float).ravel()
    except (TypeError, ValueError):
        return repr(output), []
    except OverflowError:  # a whole number beyond the largest float
        items = np.asarray(output, dtype=object).ravel().tolist()
        return " ".join(map(_exact_text, items)), [_nearest(item) for item in items]
    return "", array.tolist()


def _exact_text(item: object) -> str:
    return hex(item) if isinstance(item, int) else repr(item)


def _nearest(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:
        return math.inf if item > 0 else -math.inf


def features_of(outputs: Sequence[object]) -> Features:
    """Return the features of outputs: numbers, arrays, mappings, or anything with a repr."""
    flat = [_flat(output) for output in outputs]
    width = min(max(len(numbers) for _, numbers in flat), LIMITS.numbers)
    values = np.full((len(flat), width), -4e100)  # the number if a shorter output has none
    for i, (_, numbers) in enumerate(flat):
        values[i, : len(numbers)] = _finite_places(np.array(numbers[:width], dtype=float))
    lengths = np.array([[float(len(numbers))] for _, numbers in flat])
    # Numbers of an output with all differences used too.
    pairs = combinations(range(min(width, 8)), 2)
    differences = [values[:, i] - values[:, j] for i, j in pairs]
    columns = [lengths, values, *(column[:, None] for column in differences)]
    texts = [tuple(zip((form for form, _ in flat), map(tuple, values.tolist()), strict=True))]
    texts += [tuple(form for form, _ in flat)]
    texts += [tuple(values[:, i].tolist()) for i in range(width)]
    texts += [tuple(lowest_bit(values[:, i]).tolist()) for i in range(width)]
    return Features(np.hstack(columns), tuple(texts))


def _finite_places(numbers: Array) -> Array:
    """Clip numbers, and replace +inf, -inf, and NaN by finite numbers outside the clipped range."""
    clipped = np.clip(numbers, -LIMITS.largest_number, LIMITS.largest_number)
    infinite = np.sign(numbers) * 2e100  # the number that replaces +inf
    # The number that replaces NaN.
    return np.where(np.isnan(numbers), -3e100, np.where(np.isinf(numbers), infinite, clipped))


def lowest_bit(values: Array) -> Array:
    """Return the binary exponent of the lowest set bit of each number. For 0, return 2000."""
    bits = np.abs(values).view(np.uint64)
    exponent = (bits >> np.uint64(52)).astype(np.int64)
    mantissa = (bits & np.uint64(2**52 - 1)) | np.where(exponent > 0, 2**52, 0).astype(np.uint64)
    lowest = mantissa & (~mantissa + np.uint64(1))
    place = np.log2(np.maximum(lowest, 1).astype(float)).astype(np.int64)
    return np.where(mantissa == 0, 2000, np.maximum(exponent, 1) - 1075 + place)


class Learner(Protocol):
    """Represent a classifier of rows of numbers, as in scikit-learn."""

    def fit(self, numbers: Array, labels: Array, /) -> object:
        """Learn from rows of numbers with the labels 0 and 1."""

    def predict_proba(self, numbers: Array, /) -> Array:
        """Return the probabilities of 0 and 1, one pair per row."""
        ...


def scores_by_name(features: Features, labels: Array, learner: Learner | None) -> dict[str, Score]:
    """Return scores by name, each trained on labeled runs. A higher score means label 1.

    Args:
        labels: 1 for data, 0 for the neighbor.
        learner: None, or an object with ``fit`` and ``predict_proba``, as in scikit-learn.
    """
    scores: dict[str, Score] = {}
    for i in range(features.numbers.shape[1]):
        column = features.numbers[:, i]
        if column.min() == column.max():
            continue
        scores[f"number {i}"] = _number(i, 1.0)
        scores[f"number {i}, reversed"] = _number(i, -1.0)
        edges = np.unique(np.quantile(column, np.linspace(0, 1, LIMITS.bins + 1)[1:-1]))
        binned = np.searchsorted(edges, column, "right").tolist()
        scores[f"ranges of number {i}"] = _ranges(i, edges, _ratios(binned, labels))
    for i, texts in enumerate(features.texts):
        if len(set(texts)) > 1:
            scores[f"text {i}"] = _text(i, _ratios(texts, labels))
    scores["linear"] = _linear(features.numbers, labels)
    if learner is not None:
        learner.fit(features.numbers, labels)
        scores["learner"] = lambda f: _positive_scores(learner, f.numbers)
    return scores


def check_learner(learner: object) -> None:
    """Refuse a learner that lacks the methods fit or predict_proba."""
    if learner is None:
        return
    for name in ("fit", "predict_proba"):
        if isinstance(learner, type) or not callable(getattr(learner, name, None)):
            raise TypeError(
                f"learner = {learner!r} must be None or an object with the methods fit and "
                "predict_proba, such as sklearn.linear_model.LogisticRegression()"
            )


def _positive_scores(learner: Learner, numbers: Array) -> Array:
    answers = np.asarray(learner.predict_proba(numbers), dtype=float)
    if answers.shape != (len(numbers), 2):
        raise ValueError(
            f"learner: predict_proba returned the shape {answers.shape}; it must return "
            f"{(len(numbers), 2)}, one row per output with the probabilities of 0 and 1"
        )
    if not np.isfinite(answers).all():
        raise ValueError(
            "learner: predict_proba returned a number that is not finite; it must return "
            "probabilities, so scale the numbers in the learner or leave it out"
        )
    return answers[:, 1]


def _number(i: int, sign: float) -> Score:
    return lambda f: sign * f.numbers[:, i]


def _ranges(i: int, edges: Array, ratios: dict[Any, float]) -> Score:
    def score(features: Features) -> Array:
        bins = np.searchsorted(edges, features.numbers[:, i], "right").tolist()
        return np.array([ratios.get(one, 0.0) for one in bins])

    return score


def _text(i: int, ratios: dict[Any, float]) -> Score:
    return lambda f: np.array([ratios.get(one, 0.0) for one in f.texts[i]])


def _ratios(values: Sequence[Any], labels: Array) -> dict[Any, float]:
    """Return log(runs with label 1 / runs with label 0) by value, with 1/2 added to each count."""
    counts: dict[Any, list[float]] = {}
    for value, label in zip(values, labels.tolist(), strict=True):
        counts.setdefault(value, [0.5, 0.5])[int(label)] += 1
    return {value: float(np.log(pair[1] / pair[0])) for value, pair in counts.items()}


def _scatter(rows: Array) -> Array:
    """Return the covariance of the columns; 0 for a single row."""
    size = rows.shape[1]
    if len(rows) < 2:
        return np.zeros((size, size))
    return np.cov(rows, rowvar=False).reshape(size, size)


def _linear(numbers: Array, labels: Array) -> Score:
    """Return Fisher's linear discriminant. A weighted sum of columns without noise dominates it."""
    inside = (np.abs(numbers) <= LIMITS.largest_number).all(axis=0) & (np.ptp(numbers, axis=0) > 0)
    chosen = numbers[:, inside]
    if not chosen.shape[1]:
        return lambda f: np.zeros(len(f.numbers))
    center, spread = chosen.mean(axis=0), chosen.std(axis=0)
    scaled = (chosen - center) / spread
    gap = scaled[labels == 1].mean(axis=0) - scaled[labels == 0].mean(axis=0)
    within = _scatter(scaled[labels == 0]) + _scatter(scaled[labels == 1])
    weights = cast(Array, np.linalg.lstsq(within + 1e-9 * np.eye(len(gap)), gap, rcond=None)[0])

    def score(features: Features) -> Array:
        return np.nan_to_num((features.numbers[:, inside] - center) / spread @ weights)

    return score
