"""Choose a threshold for an attack's scores, and bound the attack's two error rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from neyman.auditing.rate_limits import all_counts, clopper_pearson, error_rates, proposed_limits
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.raw_values import array_of
from neyman.numerics.rounding import below


@dataclass(frozen=True)
class Limits:
    """Limit the scores, and hold the tolerances of their statistics."""

    sum_error: float = 1e-9  # rounding of a distribution that sums to 1


LIMITS = Limits()

Threshold = float | Literal["split", "all"]
Rates = tuple[float, float]
Counts = NDArray[np.integer[Any]]


def checked_scores(name: str, values: object) -> Array:
    """Return scores as an array of finite floats."""
    scores = _floats(name, values)
    if scores.ndim != 1 or not len(scores):
        raise ValueError(f"{name} has shape {scores.shape}; it must have one score per run or more")
    if not np.isfinite(scores).all():
        at = int(np.argmin(np.isfinite(scores)))
        raise ValueError(f"{name}[{at}] = {float(scores[at])} must be finite; leave no score out")
    return scores


def _floats(name: str, values: object) -> Array:
    try:
        return np.asarray(values, dtype=float)
    except OverflowError:
        raise ValueError(
            f"{name} has a number that is too large for a float; each score must be finite, so "
            "scale all scores alike"
        ) from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a sequence of numbers, such as [0.5, 1.5]") from None


def refuse_mixed_up(members: Array, others: Array) -> None:
    """Refuse members' scores that are clearly below the others' scores."""
    n, k = len(members), len(others)
    ordered = np.sort(others)
    sides = [np.searchsorted(ordered, members, side).sum() for side in ("left", "right")]
    above = float(sum(sides)) / 2  # pairs in which the member is above; a tie is a half
    spread = math.sqrt(n * k * (n + k + 1) / 12)
    # Standard deviations of the rank sum. By chance this occurs once in a billion audits.
    if (above - n * k / 2) / spread < -6.0:
        raise ValueError(
            f"members score below others in {1 - above / (n * k):.1%} of pairs; a higher score "
            "must mean a member. Exchange members and others, or negate all scores"
        )


def error_limits(
    members: Array, others: Array, threshold: Threshold, chance: Fraction, seed: int | None
) -> tuple[tuple[Rates, ...], Rates, int, int]:
    """Return upper limits on both error rates, and the limits if no error had occurred.

    The last two results count the tested scores of others and of members.

    Args:
        members, others: finite scores.
        threshold: a number fixed in advance, "split", or "all".
        chance: probability that a limit is wrong.
    """
    refuse_mixed_up(members, others)
    each = below(chance / 2)
    if isinstance(threshold, str) and threshold == "all":
        return (*_all(members, others, each), len(others), len(members))
    if isinstance(threshold, str) and threshold == "split":
        if min(len(members), len(others)) < 2:
            raise ValueError('threshold = "split" needs 2 scores of members and 2 of others')
        # Sorted first, so that the given order does not matter.
        rng = np.random.default_rng(seed if seed is None else check.integer("seed", seed))
        (first, members), (second, others) = (_halves(s, rng) for s in (members, others))
        at = best_threshold(first, second, each)
    elif isinstance(threshold, str):
        raise ValueError(f"threshold = {threshold!r} must be a number, 'split', or 'all'")
    else:
        at = check.finite("threshold", threshold)
    # A score at the threshold is an error in both groups.
    alarms, misses = int((others >= at).sum()), int((members <= at).sum())
    point = error_rates(alarms, len(others), misses, len(members), each)
    least = error_rates(0, len(others), 0, len(members), each)
    return (point,), least, len(others), len(members)


def _halves(scores: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    shuffled = rng.permutation(np.sort(scores))
    return shuffled[: len(scores) // 2], shuffled[len(scores) // 2 :]


def _counts(members: Array, others: Array, cuts: Array) -> tuple[Counts, Counts]:
    """Return the numbers of false alarms and misses of the tests that report scores >= a cut."""
    alarms = len(others) - np.searchsorted(np.sort(others), cuts, "left")
    return alarms, np.searchsorted(np.sort(members), cuts, "left")


def best_threshold(members: Array, others: Array, chance: float) -> float:
    """Return the threshold whose error limits refute the largest mu-GDP.

    It is halfway to the next lower score. ``chance``: that a limit is wrong.
    """
    cuts = np.unique(np.concatenate([members, others]))
    alarms, misses = _counts(members, others, cuts)
    a = proposed_limits(alarms.astype(float), len(others), chance)
    b = proposed_limits(misses.astype(float), len(members), chance)
    shown = -ndtri(np.clip(a, 1e-300, 1 - 1e-16)) - ndtri(np.clip(b, 1e-300, 1 - 1e-16))
    best = int(np.argmax(shown))
    return float(cuts[best] if best == 0 else cuts[best - 1] / 2 + cuts[best] / 2)


def band_limits(
    members: Array, others: Array, chance: Fraction
) -> tuple[tuple[Rates, ...], tuple[Rates, ...], Rates]:
    """Return upper and lower limits on both error rates that hold at all thresholds at once.

    With probability at most c <= 1/2, an empirical distribution function of n numbers exceeds the
    true one anywhere by more than sqrt(log(1 / c) / 2n). The same holds for falling below. Each
    rate has two such bounds. Each upper bound also uses the limits at all counts, with half of its
    chance [AC-1].

    Returns:
        Corners of the upper limits, corners of the lower limits, and the upper limits of an attack
        without an error.

    Source: Dvoretzky, Kiefer and Wolfowitz 1956; Massart 1990.
    """
    points, least = _all(members, others, below(chance / 8))
    counts = _counts(members, others, np.unique(np.concatenate([members, others])))
    ends: list[list[Array]] = [[], []]
    for scores, errors in zip((others, members), counts, strict=True):
        rates = np.append(errors, 0.0 if scores is others else len(scores)) / len(scores)
        ends[0].append(np.maximum(rates - _deviation(len(scores), below(chance / 4)), 0.0))
        ends[1].append(np.minimum(rates + _deviation(len(scores), below(chance / 8)), 1.0))
    inner, outer = (list(zip(*(x.tolist() for x in side), strict=True)) for side in ends)
    return tuple(lower_chain([*points, *outer])), tuple(lower_chain(inner)), least


def _deviation(size: int, chance: float) -> float:
    """Return the bound of `band_limits` on the deviation of a distribution function, rounded up.

    ``chance``: probability of a larger deviation, on one side.
    """
    return math.sqrt(-math.log(chance) / (2 * size)) * (1 + 16 * UNIT) + 4 * UNIT  # slack: counted


def _all(members: Array, others: Array, chance: float) -> tuple[tuple[Rates, ...], Rates]:
    """Return upper limits at all thresholds, without redundant ones, and those without an error.

    A test at a threshold reports scores at or above it. If it reports i - 1 of ``others``, its
    false alarm rate is at most that of a test above the i-th highest of others. This rate is at
    most the i-th smallest of uniform numbers (less if scores have ties). So the limits of
    `all_counts`, which hold at all counts at once, hold at all thresholds. Misses are alike.
    """
    alarms, misses = _counts(members, others, np.unique(np.concatenate([members, others])))
    rounded: list[Array] = []
    proposed: list[Array] = []
    chances: list[float] = []
    for trials, counts in ((len(others), alarms), (len(members), misses)):
        allowed, each = all_counts(trials, chance)
        ends = np.append(allowed, trials)
        place = np.searchsorted(ends, counts)
        rounded.append(ends[place])
        proposed.append(proposed_limits(ends.astype(float), trials, each)[place])
        chances.append(each)
    _, distinct = np.unique(np.stack(rounded), axis=1, return_index=True)
    a, b = (limits[distinct] for limits in proposed)
    points = tuple(
        (
            clopper_pearson(int(rounded[0][i]), len(others), chances[0]),
            clopper_pearson(int(rounded[1][i]), len(members), chances[1]),
        )
        for i in distinct[_hull(a, b)]
    )
    least = [clopper_pearson(0, len(s), x) for s, x in zip((others, members), chances, strict=True)]
    return points, (least[0], least[1])


def lower_chain(points: Sequence[Rates]) -> list[Rates]:
    """Return the corners of the lower convex hull of points, from left to right."""
    return [points[i] for i in _hull(*np.array(points).T)]


def _hull(a: Array, b: Array) -> list[int]:
    """Return the indices of the corners of the lower convex hull of points (a, b)."""
    order = np.lexsort((b, a))
    hull: list[int] = []
    for i in map(int, order):
        while len(hull) >= 2:
            u, v = hull[-2], hull[-1]
            if (a[v] - a[u]) * (b[i] - b[u]) - (b[v] - b[u]) * (a[i] - a[u]) > 0:
                break
            hull.pop()
        if not hull or b[i] < b[hull[-1]]:
            hull.append(i)
    return hull


def lira(scores: object, shadows: object, members: object) -> Array:
    """Return each example's likelihood ratio score, from shadow models.

    The score is the log ratio of two normal densities at the example's score. Their means and
    deviations are from the shadow models with the example, and from those without it. A group with
    fewer than 32 shadows uses the pooled deviation of all examples.

    Args:
        scores: scores of the examples in the attacked model, shape (examples,). The logit of the
            confidence in the true label, log(p / (1 - p)), is suitable.
        shadows: scores in the shadow models, shape (models, examples).
        members: True if a shadow model was trained with an example, same shape as ``shadows``.

    Returns:
        An array of shape (examples,). A higher score means a member.

    Raises:
        ValueError: the shapes do not match, a score is not finite or beyond 1e100, or an example
            has fewer than two shadows with it or without it.

    Source: Carlini and others 2022.
    """
    observed = checked_scores("scores", scores)
    shadow, inside = _floats("shadows", shadows), array_of("members", members, "b", 2)
    if shadow.ndim != 2 or shadow.shape != inside.shape or shadow.shape[1] != len(observed):
        raise ValueError(
            f"shadows and members have shapes {shadow.shape} and {inside.shape}; both must be "
            f"(models, {len(observed)}), since scores has {len(observed)} examples"
        )
    if not np.isfinite(shadow).all():
        raise ValueError("shadows has a score that is not finite")
    largest_score = 1e100  # squares do not overflow
    for name, numbers in (("scores", observed), ("shadows", shadow)):
        largest = float(np.max(np.abs(numbers), initial=0.0))
        if largest > largest_score:
            raise ValueError(
                f"{name} has a score of size {largest:g}, and must be from "
                f"{-largest_score:g} to {largest_score:g}; scale scores and shadows "
                "alike"
            )
    terms: list[Array] = []
    for chosen in (inside, ~inside):
        count = chosen.sum(axis=0)
        if count.min() < 2:
            at, which = int(count.argmin()), "with" if chosen is inside else "without"
            raise ValueError(f"members: example {at} has fewer than 2 shadow models {which} it")
        mean = np.where(chosen, shadow, 0).sum(axis=0) / count
        squares = (np.where(chosen, shadow - mean, 0) ** 2).sum(axis=0)
        common = squares.sum() / (count - 1).sum()
        variance = cast(Array, np.where(count >= 32, squares / (count - 1), common))
        variance = np.maximum(variance, 1e-12**2)  # of shadow models' scores
        terms.append(-((observed - mean) ** 2) / (2 * variance) - np.log(variance) / 2)
    return terms[0] - terms[1]


def likelihood_ratio(outputs: object, null: object, alternative: object) -> Array:
    """Return the score of the best test: log(alternative / null) at each output.

    Args:
        outputs: outcomes, each an index of the distributions.
        null, alternative: probabilities of the outcomes, as for ``ny.best_test``.

    Returns:
        An array of finite scores. If one distribution excludes an outcome, its score is beyond all
        others. ``ny.best_test`` answers yes above a threshold on this score.

    Raises:
        ValueError: a distribution has a negative number or does not sum to 1, the distributions
            differ in length, or an output is not an outcome of either distribution.

    Source: Neyman and Pearson 1933.
    """
    from_null, from_alternative = (
        np.array([float(check.exact(name, p)) for p in check.several(name, law)])
        for name, law in (("null", null), ("alternative", alternative))
    )
    for name, law in (("null", from_null), ("alternative", from_alternative)):
        if len(law) and law.min() < 0:
            at = int(law.argmin())
            raise ValueError(f"{name}[{at}] = {law[at]:g} must be at least 0: it is a probability")
        if abs(math.fsum(law) - 1) > LIMITS.sum_error:
            raise ValueError(
                f"{name} sums to {math.fsum(law):.12g} and must sum to 1; divide it by its sum, "
                "or add the outcomes that are missing"
            )
    if len(from_null) != len(from_alternative):
        raise ValueError(
            f"null and alternative have {len(from_null)} and {len(from_alternative)} outcomes"
        )
    places = array_of("outputs", outputs, "iu", 1).astype(np.int64)
    possible = (from_null + from_alternative) > 0
    if len(places) and not (places.min() >= 0 and places.max() < len(possible)):
        raise ValueError(f"outputs must be from 0 to {len(possible) - 1}")
    if not possible[places].all():
        raise ValueError("outputs has an outcome that both distributions exclude")
    with np.errstate(divide="ignore"):
        logs = np.log(from_alternative) - np.log(from_null)
    beyond = float(np.max(np.abs(logs[np.isfinite(logs)]), initial=0.0)) + 1
    return np.clip(logs, -beyond, beyond)[places]
