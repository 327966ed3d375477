"""Estimate quantiles on a declared grid by inverse sensitivity, with intervals on request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, ndtri

from neyman.accounting.calibrate import Budget, calibrate_exact
from neyman.analysis.estimators.estimate import About, Estimate, Number, shaped
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import check_budget
from neyman.analysis.estimators.shared_arguments import Shared, relation_of, shares_arguments
from neyman.mechanisms.inverse_sensitivity import InverseSensitivity
from neyman.mechanisms.stability.grid import Grid
from neyman.noise.bits import Bits
from neyman.noise.quantile_draw import draw_sorted_quantile
from neyman.numerics import check
from neyman.numerics.raw_values import one_per_record
from neyman.numerics.relation import Neighboring
from neyman.numerics.roots import bisect_integers

Level = float | Fraction | str
Places = list[list[int | None]]


class Reference(TypedDict, total=False):
    """Hold an estimate's fields about its error on evenly spaced values, the reference data."""

    largest_error: float | None
    problem: Mapping[str, object]


@dataclass(frozen=True)
class Limits:
    """Limit the grid, and the sizes of the reference problem."""

    quantiles: int = 1000
    points: int = 1 << 53  # doubles represent every integer up to here
    rounding_share: float = 1e-9
    tail_share: float = 1e-8  # more than the relative error of a binomial tail


LIMITS = Limits()


@shares_arguments
def quantile(
    values: object,
    q: Level | Iterable[Level],
    *,
    lower: Level,
    upper: Level,
    step: Level,
    budget: Budget,
    confidence: Level | None = None,
    **paid: Unpack[Shared],
) -> Estimate:
    """Estimate one or several quantiles of values on a grid.

    A point t of the grid is drawn with probability proportional to e^{-rate d(t)}, where d(t) is
    the number of ranks between t and the quantile. The draw is exact. Each quantile is one draw.
    With ``confidence``, two more points per quantile are drawn as the ends of its interval. All
    draws share the budget equally, and their composition is certified.

    Args:
        values: real numbers, one per record. A value outside the grid counts as the nearer end. A
            value between points counts as the nearest point. NaN, or a value that is not a number,
            counts as ``lower``.
        q: a number in (0, 1), or a sequence of up to 1,000 such numbers. 1/2 is the median.
        lower: the first point of the grid, chosen without the data.
        upper: the last point of the grid. upper - lower is a multiple of the step.
        step: distance between points, above 0, with at most 2^53 points. A finer grid costs few
            ranks, because the error grows with the logarithm of the number of points.
        budget: what the release may reveal: a curve such as ``ny.pure(1)`` or ``ny.gdp(1)``,
            ``ny.zcdp``, ``ny.approximate``, or ``ny.at_most``.
        confidence: confidence of each interval by itself, in (0, 1). None releases no interval and
            spends the entire budget on the values. Otherwise two thirds of the draws are for ends.
            If there are too few records for an end, the end is infinite and its share goes to the
            other draws. Under add-remove it must be None, because the number of records is secret.

    Returns:
        An `Estimate`. For one number q, the value is a number. For a sequence, the value, the
        errors, and the ends of the intervals are arrays in the order of q. The drawn points are
        sorted, so a larger q never has a smaller value. The receipt has the points in the order of
        the draws. With ``confidence``, each interval covers two quantiles with at least that
        probability: the quantile of the values, and the quantile of any distribution that the
        records are drawn from independently. Without ``confidence``, `Estimate.interval` raises a
        ValueError. An end on the edge of the grid is infinite. ``standard_error`` is an estimate:
        half the interval over the normal quantile, or NaN without an interval. ``noise_error`` is
        NaN, because it depends on the private values. The gap for one quantile under replace-one
        assumes evenly spaced values that fill the grid. It is the root mean squared error of the
        value on them over the least error that two points prove. For other values, use
        `least_error` with public or simulated values.

    Examples:
        >>> import neyman as ny
        >>> ages = list(range(18, 90)) * 100
        >>> grid = {"lower": 0, "upper": 120, "step": 1}
        >>> estimate = ny.estimate.quantile(ages, "1/2", **grid, budget=ny.pure(1))
        >>> 50 <= estimate.value <= 57
        True
        >>> three = ny.estimate.quantile(ages, [0.25, 0.5, 0.75], **grid, budget=ny.pure(1))
        >>> three.value.shape, bool(three.value[0] <= three.value[1] <= three.value[2])
        ((3,), True)

    Source: Asi and Duchi 2020; [EM-6], [EM-7], [EM-12].
    """
    relation = relation_of(paid)
    array = one_per_record("values", values, relation=relation)
    flat = isinstance(q, str) or not isinstance(q, Iterable)
    levels = _levels([q] if flat else check.several("q", q, "[0.25, 0.5, 0.75]"))
    grid = Grid.of(lower, upper, step, LIMITS.points - 1)
    first, size, points = grid.lower, grid.step, grid.last + 1
    miss = _miss(confidence, relation)
    # Under add-remove n is secret, so only the draws may depend on it.
    n = len(array) if relation == "replace-one" else None
    released, targets = _quantile_release(budget, levels, n, points, miss)
    arguments: dict[str, Any] = {
        "q": [str(level) for level in levels],
        "lower": str(first),
        "step": str(size),
        "points": points,
        "levels": [[None if t is None else str(t) for t in own] for own in targets],
    }
    if flat:
        arguments |= {"q": arguments["q"][0], "levels": arguments["levels"][0]}
    if n is not None:
        arguments["records"] = n

    def rate_of(level: Fraction) -> Fraction:
        """Return a draw's rate: the released rate / the most that a record changes d(t) [EM-6]."""
        return released.rate if n is not None else released.rate / max(level, 1 - level)

    def noisy(bits: Bits) -> Places:
        ranked = np.sort(grid.nearest(array))
        ends = (0, points - 1)
        return [
            [
                None if t is None else draw_sorted_quantile(ranked, ends, t, rate_of(t), bits)
                for t in [*own, None, None][:3]
            ]
            for own in targets
        ]

    def published(places: Places) -> dict[str, object]:
        return {"points": places[0] if flat else places}

    statistic = Statistic("quantile", arguments, released, noisy, published)
    places, receipt = statistic.release(**paid)
    # The code below uses only the release and public numbers.
    value = _in_order(levels, [_value(grid, own[0]) for own in places])
    low, high = (np.array([_end(grid, own[i], s) for own in places]) for i, s in ((1, -1), (2, 1)))

    def limits(asked: float, about: About) -> tuple[Number, Number]:
        if miss is None:
            raise ValueError(
                "the estimate has no interval; call the estimator with confidence=0.95"
            )
        if asked < float(miss) * (1 - LIMITS.rounding_share):
            raise ValueError(
                f"confidence must be at most {float(1 - miss):g}, the confidence that the ends "
                "were released for; call the estimator with a higher confidence="
            )
        return shaped(low, flat), shaped(high, flat)

    unknown = np.full(len(levels), math.nan)
    error = unknown if miss is None else (high - low) / (-2 * float(ndtri(float(miss) / 2)))
    return Estimate(
        "quantile",
        shaped(value, flat),
        shaped(error, flat),
        shaped(unknown, flat),
        receipt,
        released,
        "The quantile of the distribution of the records, and that of the records.",
        limits,
        **_reference(n if flat else None, levels[0], points, released.rate),
    )


def _end(grid: Grid, place: int | None, side: int) -> float:
    """Return an interval's end, one step outside grid point ``place``, or infinite at the edge.

    ``place``: index of the drawn point; None for an infinite end. ``side``: -1 for a lower end, 1
    for an upper.
    """
    if place is None or place == (0 if side < 0 else grid.last):
        return side * math.inf
    return _value(grid, place + side)


def _value(grid: Grid, place: int | None) -> float:
    return float(grid.lower + (place or 0) * grid.step)


def _reference(n: int | None, level: Fraction, points: int, rate: Fraction) -> Reference:
    """Return an estimate's fields about its error on n evenly spaced values; {} if n is None.

    They are the quantile's error, or None if it is not computed, and in most cases the arguments
    with which `least_error` bounds the error of any release from below.
    """
    if n is None:
        return {}
    largest = _reference_error(n, level, points, float(rate))
    few = min(n, 1001)  # values of the reference that the lower bound needs
    if largest is None or few < 3:
        return {"largest_error": largest}
    problem = {"problem": "quantile", "values": range(few), "quantile": float(level)}
    return {"largest_error": largest, "problem": problem}


def _levels(q: Iterable[object]) -> list[Fraction]:
    levels = [check.exact("q", level) for level in q]
    if not 1 <= len(levels) <= LIMITS.quantiles:
        raise ValueError(f"q has {len(levels)} numbers; it must have from 1 to {LIMITS.quantiles}")
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"q = {level} must be between 0 and 1, both excluded")
    return levels


def _in_order(levels: Sequence[Fraction], values: Sequence[float]) -> NDArray[np.float64]:
    """Sort the drawn values so that they rise with the levels."""
    result = np.empty(len(values))
    result[np.argsort([float(level) for level in levels], kind="stable")] = np.sort(values)
    return result


def _quantile_release(
    budget: Budget, levels: Sequence[Fraction], n: int | None, points: int, miss: Fraction | None
) -> tuple[InverseSensitivity, list[tuple[Fraction | None, ...]]]:
    """Return the mechanism of the release, and the levels to draw for each quantile.

    At first, each quantile has three draws: its value and both ends of its interval. Ends with too
    few records are dropped (None), and the other draws share the budget again. A larger rate needs
    fewer records, so other ends stay finite. Only public numbers decide. n is None if secret.
    """
    if n is None or miss is None:
        rate = 1 / _scale(budget, len(levels))
        return InverseSensitivity(rate, draws=len(levels)), [(level,) for level in levels]
    targets: list[tuple[Fraction | None, ...]] = [(level,) * 3 for level in levels]
    while True:
        draws = _number_of(targets)
        rate = 1 / _scale(budget, draws)
        for k, level in enumerate(levels):
            low, high = _ends_of(level, n, points, float(rate), miss)
            _, low_before, high_before = targets[k]
            # A dropped end stays dropped, because the rate assumes the remaining draws.
            targets[k] = level, low_before and low, high_before and high
        if _number_of(targets) == draws:
            return InverseSensitivity(rate, draws=draws), targets


def _number_of(targets: Iterable[Iterable[Fraction | None]]) -> int:
    return sum(target is not None for own in targets for target in own)


def _miss(confidence: object, relation: Neighboring) -> Fraction | None:
    if confidence is None:
        return None
    exact = check.exact("confidence", confidence)
    if not 0 < exact < 1:
        raise ValueError(f"confidence = {confidence!r} must be between 0 and 1, or None")
    if relation == "add-remove":
        raise ValueError(
            f"confidence = {confidence!r}: under add-remove the number of records is secret, and "
            "the ends depend on it; give confidence=None"
        )
    return 1 - exact


def _scale(budget: Budget, draws: int) -> Fraction:
    """Return 1 / rate, the scale at which ``draws`` draws together meet a budget."""
    check_budget(budget, "ny.pure(1) or ny.gdp(1)")
    one = calibrate_exact(lambda scale: InverseSensitivity(1 / scale), budget)
    if draws == 1:
        return one
    # Each check of several draws is slow, so use few digits and start from a good guess.
    return calibrate_exact(
        lambda scale: InverseSensitivity(1 / scale, draws=draws),
        budget,
        digits=3,  # digits of the scale of several draws
        start=float(one) * math.sqrt(draws) * 0.9,
    )


def _ends_of(
    level: Fraction, n: int, points: int, rate: float, miss: Fraction
) -> tuple[Fraction | None, Fraction | None]:
    """Return the levels of the quantiles that are drawn as the lower and the upper end [EM-7].

    None if an end is infinite.
    """
    share = float(miss) / 4  # for sampling and for noise, at each end
    ranks = math.log(points / share) / rate * (1 + LIMITS.rounding_share)
    asked = share * (1 - LIMITS.tail_share)
    # The largest numbers with P(Bin(n, q) <= c) <= share, and P(Bin(n, q) >= n - above) <= share.
    c = bisect_integers(lambda k: _tail(k, n, level) <= asked, -1, n)
    above = bisect_integers(lambda k: _tail(k, n, 1 - level) <= asked, -1, n)
    level_units = 1 << 40  # levels of the ends are multiples of 1 / level_units
    least = math.floor((c + 1 - ranks) / n * (1 - LIMITS.rounding_share) * level_units)
    most = math.ceil((n - above - 1 + ranks) / n * (1 + LIMITS.rounding_share) * level_units)
    return (
        Fraction(least, level_units) if least > 0 else None,
        Fraction(most, level_units) if most < level_units else None,
    )


def _tail(k: int, n: int, level: Fraction) -> float:
    """Return P(Bin(n, level) <= k) for 0 <= k < n, from the smaller of level and 1 - level."""
    if level <= Fraction(1, 2):
        return float(betaincc(k + 1, n - k, float(level)))
    return float(betainc(n - k, k + 1, float(1 - level)))


def _reference_error(n: int, level: Fraction, points: int, rate: float) -> float | None:
    """Return the root mean squared error on n evenly spaced values, in spacings [EM-8].

    Return None if the grid is too coarse, or if too many ranks matter.
    """
    spacing = points // n
    middle = min(max(math.ceil(level * n), 1), n)  # the order statistic, from 1
    weight_nats = 800  # nats beyond which a weight counts as 0
    reach = min(n, math.ceil(weight_nats / rate))
    # Points of the grid between values of the reference.
    coarse = spacing < 100 or rate > weight_nats / 2
    if coarse or reach > 10**6:  # largest number of ranks of the reference
        return None
    target = float(level) * n
    # Between values j and j + 1 are spacing - 1 points, about j + 1/2 - middle spacings away.
    below = np.arange(max(middle - reach, 0), min(middle + reach, n) + 1, dtype=float)
    gaps = np.exp(-rate * np.abs(below - target)) * (spacing - 1)
    away = (below - middle + 0.5) ** 2 + 1 / 12
    order = below[below >= 1]
    ties = np.exp(-rate * np.maximum(0, np.maximum(order - 1 - target, target - order)))
    total = float(np.sum(gaps * away) + np.sum(ties * (order - middle) ** 2))
    return math.sqrt(total / float(np.sum(gaps) + np.sum(ties)) * (1 + LIMITS.rounding_share))
