"""Estimate a density by a histogram over declared bins [EM-9]."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.calibrate import Budget
from neyman.analysis.estimators.estimate import About, Estimate, Number, fixed
from neyman.analysis.estimators.noisy_statistic import Statistic
from neyman.analysis.estimators.normal_noise import least_noise, normal_half_width
from neyman.analysis.estimators.shared_arguments import Shared, relation_of, shares_arguments
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check
from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import largest_rate, least_rate
from neyman.numerics.raw_values import as_floats, one_per_record
from neyman.publishing.tables.estimates import standard_error


@dataclass(frozen=True)
class Limits:
    """Limit the number of bins."""

    bins: int = 10**6


LIMITS = Limits()

Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


@shares_arguments
def histogram(
    values: object, *, edges: Iterable[float], budget: Budget, **paid: Unpack[Shared]
) -> Estimate:
    """Estimate a density by a histogram over declared bins.

    The count of each bin gets rounded Gaussian noise, drawn exactly. A neighbor changes two counts
    by 1 (replace-one), or one (add-remove). The estimate in a bin is count / (n width), for n
    records. Under add-remove, n is the sum of the noisy counts.

    Args:
        values: real numbers, one per record. A value outside the edges counts in the nearer end
            bin. NaN, or a value that is not a number, counts in the first bin.
        edges: rising finite numbers, at least 3 and at most 10^6 + 1, chosen without the data. A
            bin includes its left edge. The last bin includes both edges.

    Returns:
        An `Estimate` with one density per bin, which may be negative. The standard error is an
        estimate. The interval about the population covers the distribution's mean density in each
        bin by itself, if records are drawn independently. It holds for every distribution and n.
        The interval about the data covers the exact histogram. The gap compares the shares of the
        bins with "category-shares" of `least_error`. Under add-remove there is no gap.

    Examples:
        >>> import neyman as ny
        >>> estimate = ny.estimate.histogram(
        ...     [0.5] * 2000 + [1.5] * 400 + [2.5] * 1600, edges=[0, 1, 2, 4], budget=ny.gdp(1)
        ... )
        >>> [round(float(x), 2) for x in estimate.value]
        [0.5, 0.1, 0.2]

    Source: [EM-1], [EM-3], [EM-9].
    """
    relation = relation_of(paid)
    array = one_per_record("values", values, relation=relation)
    cuts = _edges(edges)
    widths = np.diff(cuts)
    bins, n = len(widths), len(array)
    known = relation == "replace-one"
    noise = least_noise(budget, 2 if known else 1)
    arguments: dict[str, Any] = {"edges": cuts.tolist()} | ({"records": n} if known else {})

    def noisy(bits: Bits) -> Lanes:
        return _counts(array, cuts) + rounded_gaussian(noise.sigma_squared, bins, bits)

    def published(counts: Lanes) -> dict[str, object]:
        return {"counts": counts.tolist()}

    counts, receipt = Statistic("histogram", arguments, noise, noisy, published).release(**paid)
    # The code below uses only the release and public numbers.
    public = n if known else None
    deviation = standard_error(noise.sigma_squared, rounded=True)
    total = public or max(int(counts.sum()), 1)
    share = np.clip(counts / total, 0.0, 1.0)

    def limits(miss: float, about: About) -> tuple[Number, Number]:
        parts = (1 if about == "data" else 2) + (public is None)
        around = normal_half_width(noise.sigma, miss / parts) + 0.5
        low, high = np.maximum(np.ceil(counts - around), 0), np.floor(counts + around)
        least = most = float(public or 0)
        if public is None:
            # The sum's noise is a sum of rounded noises. Each is rounded by at most half a unit.
            off = normal_half_width(noise.sigma * math.sqrt(bins), miss / parts) + 0.5 * bins
            least, most = max(float(counts.sum()) - off, 0.0), max(float(counts.sum()) + off, 1.0)
            least, most = math.ceil(least), math.floor(most)
        if about == "data":
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = low / most, np.where(high < least, high / max(least, 1), 1.0)
        else:
            tail = miss / parts / 2
            ends = least_rate(np.minimum(low, most), most, tail), largest_rate(high, least, tail)
        # Both quotients and the width are rounded.
        lower = np.clip(ends[0], 0, 1) / widths * (1 - 4 * UNIT)  # slack: counted
        # slack: counted
        return fixed(lower), fixed(np.clip(ends[1], 0, 1) / widths * (1 + 4 * UNIT))

    error = np.sqrt(share * (1 - share) / total + (deviation / total) ** 2) / widths
    worst = problem = None
    if public:
        worst = math.sqrt((1 - 1 / bins) / public + bins * (deviation / public) ** 2)
        problem = {"problem": "category-shares", "categories": bins, "n": public}
    return Estimate(
        "histogram",
        fixed(counts / (total * widths)),
        fixed(error),
        fixed(deviation / (total * widths)),
        receipt,
        noise,
        "The mean density of each bin, by itself.",
        limits,
        worst,
        problem,
    )


def _edges(edges: Iterable[float]) -> Floats:
    cuts = np.array([check.finite("edges", x) for x in check.several("edges", edges, "[0, 1, 2]")])
    if not 3 <= len(cuts) <= LIMITS.bins + 1:
        raise ValueError(f"edges has {len(cuts)} numbers; it must have from 3 to {LIMITS.bins + 1}")
    if not (np.diff(cuts) > 0).all() or not np.isfinite(np.diff(cuts)).all():
        raise ValueError("edges must rise, by finite steps")
    return cuts


def _counts(array: NDArray[Any], cuts: Floats) -> Lanes:
    values = np.nan_to_num(as_floats(array), nan=cuts[0], posinf=cuts[-1], neginf=cuts[0])
    places = np.clip(np.searchsorted(cuts, values, "right") - 1, 0, len(cuts) - 2)
    return np.bincount(places, minlength=len(cuts) - 1).astype(np.int64)
