"""Numbers and texts that tests of any program's outputs look at."""

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
    """Which features of an output are looked at."""

    numbers: int = 32  # of an output that are looked at one by one
    paired_numbers: int = 8  # of which all differences are looked at too
    bins: int = 24
    # Finite numbers are cut here; the others have their own places.
    largest_number: float = 1e100
    infinite_place: float = 2e100  # of +inf
    nan_place: float = -3e100  # of NaN
    missing_place: float = -4e100  # where an output is shorter


LIMITS = Limits()

Score = Callable[["Features"], Array]


@dataclass(frozen=True)
class Features:
    """What outputs look like: a column per number, and a column per text.

    Args:
        numbers: shape (runs, columns): the length, each number, and differences of numbers.
        texts: columns of texts: the output, each number, and the lowest bits of each number.
    """

    numbers: Array
    texts: tuple[tuple[Any, ...], ...]

    def rows(self, chosen: Array) -> Features:
        """Return some of the runs."""
        columns = (tuple(column[i] for i in chosen) for column in self.texts)
        return Features(self.numbers[chosen], tuple(columns))


def _flat(output: object) -> tuple[str, list[float]]:
    """Return a text of the form of an output, and its numbers in order."""
    if isinstance(output, dict):
        entries = cast(dict[object, object], output)
        keys = sorted(entries, key=repr)
        return repr(keys), _flat([entries[key] for key in keys])[1]
    try:
        array = np.asarray(output, dtype=float).ravel()
    except (TypeError, ValueError):
        return repr(output), []
    except OverflowError:  # a whole number that no float reaches
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
    values = np.full((len(flat), width), LIMITS.missing_place)
    for i, (_, numbers) in enumerate(flat):
        values[i, : min(len(numbers), width)] = _finite_places(
            np.array(numbers[:width], dtype=float)
        )
    lengths = np.array([[float(len(numbers))] for _, numbers in flat])
    pairs = combinations(range(min(width, LIMITS.paired_numbers)), 2)
    differences = [values[:, i] - values[:, j] for i, j in pairs]
    columns = [lengths, values, *(column[:, None] for column in differences)]
    texts = [tuple(zip((form for form, _ in flat), map(tuple, values.tolist()), strict=True))]
    texts += [tuple(form for form, _ in flat)]
    texts += [tuple(values[:, i].tolist()) for i in range(width)]
    texts += [tuple(lowest_bit(values[:, i]).tolist()) for i in range(width)]
    return Features(np.hstack(columns), tuple(texts))


def _finite_places(numbers: Array) -> Array:
    """Numbers with a finite place for each of +inf, -inf, and NaN, apart from all others."""
    cut = np.where(np.isinf(numbers), np.sign(numbers) * LIMITS.infinite_place, numbers)
    cut = np.where(
        np.isfinite(numbers), np.clip(numbers, -LIMITS.largest_number, LIMITS.largest_number), cut
    )
    return np.where(np.isnan(numbers), LIMITS.nan_place, cut)


def lowest_bit(values: Array) -> Array:
    """Return the exponent of the lowest set bit of each number; of 0, a large one."""
    bits = np.abs(values).view(np.uint64)
    exponent = (bits >> np.uint64(52)).astype(np.int64)
    mantissa = (bits & np.uint64(2**52 - 1)) | np.where(exponent > 0, 2**52, 0).astype(np.uint64)
    lowest = mantissa & (~mantissa + np.uint64(1))
    place = np.log2(np.maximum(lowest, 1).astype(float)).astype(np.int64)
    return np.where(mantissa == 0, 2000, np.maximum(exponent, 1) - 1075 + place)


class Learner(Protocol):
    """A classifier of rows of numbers, as in scikit-learn."""

    def fit(self, numbers: Array, labels: Array, /) -> object:
        """Learn from rows with the labels 0 and 1."""

    def predict_proba(self, numbers: Array, /) -> Array:
        """Return the probabilities of 0 and 1, a row for each row."""
        ...


def scores_by_name(features: Features, labels: Array, learner: Learner | None) -> dict[str, Score]:
    """Return scores by name, each learned from runs with their labels; higher means label 1.

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
    """Refuse a learner without the methods that a search calls."""
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
    """Return the logarithm of the ratio of counts, with one half added to each."""
    counts: dict[Any, list[float]] = {}
    for value, label in zip(values, labels.tolist(), strict=True):
        counts.setdefault(value, [0.5, 0.5])[int(label)] += 1
    return {value: float(np.log(pair[1] / pair[0])) for value, pair in counts.items()}


def _scatter(rows: Array) -> Array:
    """Return the covariance of the columns; nothing is known of it from one row."""
    size = rows.shape[1]
    return (
        np.cov(rows, rowvar=False).reshape(size, size) if len(rows) > 1 else np.zeros((size, size))
    )


def _linear(numbers: Array, labels: Array) -> Score:
    """Fisher's discriminant; sums of columns without noise count, as far as floats resolve."""
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
