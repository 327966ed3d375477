"""A quantile of values on a declared grid, by inverse sensitivity, with an interval."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtri

from neyman.accounting.calibrate import Budget, calibrate_exact
from neyman.estimators.estimate import About, Estimate, Number
from neyman.estimators.payment import Release, relation_of
from neyman.ledger.ledger import Ledger
from neyman.mechanisms.inverse_sensitivity import InverseSensitivity
from neyman.noise import Bits
from neyman.noise.quantile_draw import draw_sorted_quantile
from neyman.numerics import check
from neyman.numerics.raw_values import as_floats, one_per_record

__all__ = ["grid_points", "quantile"]

MOST_POINTS = 1 << 53  # doubles are whole up to here
DIGITS = 3  # of the scale of several draws
LEVELS = 1 << 40  # levels of the ends are multiples of 1 / LEVELS
FAR = 800  # nats beyond which a weight counts as 0
MOST_RANKS = 10**6  # of the reference
LEAST_SPACING = 100  # points of the grid between values of the reference
REFERENCE = 1001  # values of the reference that the lower bound needs
SLACK = 1e-9


def quantile(
    values: object,
    q: float | Fraction | str,
    *,
    lower: float | Fraction | str,
    upper: float | Fraction | str,
    step: float | Fraction | str,
    budget: Budget,
    confidence: float | Fraction | str | None = 0.95,
    neighboring: str = "replace-one",
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
    account: str | None = None,
) -> Estimate:
    """Estimate a quantile of values on a grid.

    A point t of the grid is drawn with probability proportional to e^{-rate d(t)}, where d(t) is
    the number of ranks between t and the quantile. The draw is exact. With a confidence, two more
    points are drawn for the ends of an interval, and each of the three draws has the same rate.

    Args:
        values: real numbers, one per record. A value outside the grid counts as the nearer end, a
            value between points as the nearest one, and NaN, or what is no number, as ``lower``.
        q: in (0, 1); 1/2 is the median.
        lower: the first point of the grid, chosen without the data.
        upper: the last point; upper - lower is a multiple of the step.
        step: between points, above 0. At most 2^53 points. A finer grid costs few ranks: the error
            grows with the logarithm of the number of points.
        budget: what the release may reveal: a curve such as ``ny.pure(1)`` or ``ny.gdp(1)``,
            ``ny.zcdp``, ``ny.approximate``, or ``ny.at_most``.
        confidence: of the interval, in (0, 1); None for no interval, and the whole budget for the
            value. Under add-remove it must be None, because the number of records is secret.
        neighboring: "replace-one" or "add-remove".
        ledger, dataset, account: as for `ny.estimate.mean`.

    Returns:
        `Estimate`. Its interval covers the quantile of the law that the records are drawn from,
        independently, whatever the law is, and the quantile of the values as well, with at least
        the chance ``confidence``. An end on the edge of the grid, or with too few records, is
        infinite. ``standard_error`` is half the interval over the normal quantile, an estimate;
        ``noise_error`` is NaN, because it depends on the private values. The gap, under
        replace-one, is that for evenly spaced values that fill the grid: the root mean squared
        error of the value there over the least one that two points prove. For other values
        use `least_error` with public or simulated values.

    Raises:
        TypeError, ValueError: an argument is wrong. No content of the data raises an error.
        LedgerError, BudgetRefused: the dataset is not registered so, or too little is left. In all
            of these cases nothing is charged.
        ChargedError: the computation failed after its charge, which stands.

    Examples:
        >>> import neyman as ny
        >>> ages = list(range(18, 90)) * 100
        >>> estimate = ny.estimate.quantile(
        ...     ages, "1/2", lower=0, upper=120, step=1, budget=ny.pure(1)
        ... )
        >>> 50 <= estimate.value <= 57
        True

    Source: Asi and Duchi 2020; [EM-6], [EM-7].
    """
    relation = relation_of(neighboring)
    array = one_per_record("values", values, relation=relation)
    level = check.exact("q", q)
    if not 0 < level < 1:
        raise ValueError(f"q = {q!r} must be between 0 and 1, both excluded")
    first, size, points = grid_points(lower, upper, step)
    miss = _miss(confidence, relation)
    worst = Fraction(1) if relation == "replace-one" else max(level, 1 - level)

    def mechanism(scale: Fraction, draws: int) -> InverseSensitivity:
        return InverseSensitivity(1 / scale, draws=draws)

    draws = 1 if miss is None else 3
    released = mechanism(_scale(budget, draws), draws)
    rate = released.rate / worst
    n = len(array)
    targets: tuple[Fraction | None, ...] = (level,)
    if miss is not None:
        targets = (level, *_ends_of(level, n, points, float(rate), miss))
        used = sum(target is not None for target in targets)
        released = InverseSensitivity(released.rate, draws=used)
    arguments: dict[str, Any] = {
        "q": str(level),
        "lower": str(first),
        "step": str(size),
        "points": points,
        "levels": [None if t is None else str(t) for t in targets],
    }
    if relation == "replace-one":
        arguments["records"] = n
    release = Release.of("quantile", arguments, released, relation, ledger, dataset, account)

    def compute(bits: Bits) -> list[int | None]:
        ranked = np.sort(_on_grid(array, first, size, points))
        ends = (0, points - 1)
        asked = [*targets, None, None][:3]
        return [
            None if t is None else draw_sorted_quantile(ranked, ends, t, rate, bits) for t in asked
        ]

    places, receipt = release.draw(compute, lambda drawing: {"points": drawing})

    def end(place: int | None, side: int) -> float:
        """Return an end one step farther out, for rounding; infinite on the edge of the grid."""
        if place is None or place == (0 if side < 0 else points - 1):
            return side * math.inf
        return float(first + (place + side) * size)

    low, high = end(places[1], -1), end(places[2], 1)

    def limits(asked: float, about: About) -> tuple[Number, Number]:
        if miss is None:
            raise ValueError("level: the estimate has no interval; call it with confidence=0.95")
        if asked < float(miss) * (1 - SLACK):
            raise ValueError(
                f"level must be at most {float(1 - miss):g}, the confidence that the ends were "
                "released for; call the estimator with a higher confidence="
            )
        return low, high

    error = math.nan if miss is None else (high - low) / (-2 * float(ndtri(float(miss) / 2)))
    largest = _reference_error(n, level, points, float(rate)) if relation == "replace-one" else None
    few = min(n, REFERENCE)
    problem = {"problem": "quantile", "values": range(few), "quantile": float(level)}
    return Estimate(
        "quantile",
        float(first + (places[0] or 0) * size),
        error,
        math.nan,
        receipt,
        released,
        "The quantile of the law of the records, and that of the records.",
        limits,
        largest,
        problem if largest is not None and few >= 3 else None,
    )


def grid_points(lower: object, upper: object, step: object) -> tuple[Fraction, Fraction, int]:
    """Return the first point of a grid, its step, and its number of points, exact."""
    first, last, size = (
        check.exact(name, x) for name, x in (("lower", lower), ("upper", upper), ("step", step))
    )
    if size <= 0:
        raise ValueError(f"step = {step!r} must be above 0")
    if last <= first:
        raise ValueError(f"upper = {upper!r} must be above lower = {lower!r}")
    steps = (last - first) / size
    if steps.denominator != 1:
        raise ValueError(
            f"step = {step!r}: upper - lower = {last - first} is {float(steps):.6g} steps, and must"
            " be a whole number of them"
        )
    if steps >= MOST_POINTS:
        raise ValueError(f"step = {step!r}: the grid may have at most 2^53 points; give a larger")
    return first, size, int(steps) + 1


def _on_grid(
    array: NDArray[Any], first: Fraction, size: Fraction, points: int
) -> NDArray[np.int64]:
    """Return the nearest point of each value, by itself; NaN counts as the first point."""
    with np.errstate(all="ignore"):
        places = np.rint((as_floats(array) - float(first)) / float(size))
        np.clip(places, 0, points - 1, out=places)
    return np.nan_to_num(places, copy=False, nan=0.0).astype(np.int64)


def _miss(confidence: object, relation: str) -> Fraction | None:
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
    """Return 1 / rate of the draws that meet a budget."""
    if not callable(getattr(budget, "admits", None)) or isinstance(budget, type):
        raise TypeError(f"budget = {budget!r} must be a budget, such as ny.pure(1) or ny.gdp(1)")
    one = calibrate_exact(lambda scale: InverseSensitivity(1 / scale), budget)
    if draws == 1:
        return one
    # Each question about several draws is slow: few digits, from a guess that is seldom far off.
    return calibrate_exact(
        lambda scale: InverseSensitivity(1 / scale, draws=draws),
        budget,
        digits=DIGITS,
        start=float(one) * math.sqrt(draws) * 0.9,
    )


def _ends_of(
    level: Fraction, n: int, points: int, rate: float, miss: Fraction
) -> tuple[Fraction | None, Fraction | None]:
    """Return the levels at which the ends are drawn, or None where an end is infinite [EM-7]."""
    share = float(miss) / 4  # of sampling and of noise, at each end
    ranks = math.log(points / share) / rate * (1 + SLACK)
    q, asked = float(level), share * (1 - SLACK)
    # The largest numbers with P(Bin(n, q) <= c) <= share, and P(Bin(n, q) >= n - above) <= share.
    c = _last(lambda k: float(bdtr(k, n, q)) <= asked, n) if (1 - q) ** n <= asked else -1
    above = _last(lambda k: float(bdtrc(n - k - 1, n, q)) <= asked, n) if q**n <= asked else -1
    least = math.floor((c + 1 - ranks) / n * (1 - SLACK) * LEVELS)
    most = math.ceil((n - above - 1 + ranks) / n * (1 + SLACK) * LEVELS)
    return (
        Fraction(least, LEVELS) if least > 0 else None,
        Fraction(most, LEVELS) if most < LEVELS else None,
    )


def _last(holds: Any, n: int) -> int:
    """Return the last whole number up to n at which something holds that holds at 0."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _reference_error(n: int, level: Fraction, points: int, rate: float) -> float | None:
    """Return the root mean squared error on evenly spaced values, in spacings [EM-8].

    None where the grid is too coarse for that, or too many ranks matter.
    """
    spacing = points // n
    middle = min(max(math.ceil(level * n), 1), n)  # the order statistic, from 1
    reach = min(n, math.ceil(FAR / rate))
    if spacing < LEAST_SPACING or reach > MOST_RANKS or rate > FAR / 2:
        return None
    target = float(level) * n
    # Between values j and j + 1 are spacing - 1 points, about j + 1/2 - middle spacings away.
    below = np.arange(max(middle - reach, 0), min(middle + reach, n) + 1, dtype=float)
    gaps = np.exp(-rate * np.abs(below - target)) * (spacing - 1)
    away = (below - middle + 0.5) ** 2 + 1 / 12
    order = below[below >= 1]
    ties = np.exp(-rate * np.maximum(0, np.maximum(order - 1 - target, target - order)))
    total = float(np.sum(gaps * away) + np.sum(ties * (order - middle) ** 2))
    return math.sqrt(total / float(np.sum(gaps) + np.sum(ties)) * (1 + SLACK))
