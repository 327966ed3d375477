"""Estimates: what columns hold, and that intervals cover, by enumeration and by drawn noise."""

import itertools
import math
import statistics
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from neyman.noise import Bits, discrete_gaussian
from neyman.release.estimates import (
    columns,
    estimate,
    half_width,
    mean,
    quantiles,
    rows_of,
    shown,
    standard_error,
    variance,
    whole,
)
from neyman.release.plan.query import Query
from neyman.release.selection import threshold


class Words(Bits):
    """Bits that are the same in every run."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)

    def words(self, count):
        """So many random words."""
        return self.draw.integers(0, 2**64, count, dtype=np.uint64)


def mass(sigma_squared):
    """The law of the noise: integers, and their probabilities in doubles."""
    far = int(12 * math.sqrt(sigma_squared)) + 12
    k = np.arange(-far, far + 1)
    weights = np.exp(-(k**2) / (2 * float(sigma_squared)))
    return k, weights / weights.sum()


@pytest.mark.parametrize(
    "sigma_squared", [Fraction(1, 9), Fraction(1), Fraction(60), Fraction(10**4)]
)
@pytest.mark.parametrize("coverage", [0.9, 0.95])
def test_a_half_width_is_the_least_that_covers(sigma_squared, coverage):
    """By the mass function, and the standard error is its standard deviation."""
    k, p = mass(sigma_squared)
    half = half_width(sigma_squared, coverage)
    assert p[abs(k) <= half].sum() >= coverage > p[abs(k) < half].sum()
    assert standard_error(sigma_squared) == pytest.approx(math.sqrt((p * k * k).sum()), rel=1e-9)
    assert (half_width(Fraction(0)), standard_error(Fraction(0))) == (0, 0.0)


def test_fixed_point_values_are_told_exactly():
    """Sums of cents become decimals, whatever their size; counts stay whole numbers."""
    values = np.array([0, -5, 123456789, -(2**62), 2**62])
    told = pa.table(columns(whole(values, Fraction(4), 2)))
    assert told["value"].to_pylist() == [Decimal(int(x)).scaleb(-2) for x in values]
    assert told["lower"].to_pylist() == [Decimal(int(x) - 3).scaleb(-2) for x in values]
    assert told["upper"].type == pa.decimal128(19, 2)
    assert told["standard_error"][0].as_py() == pytest.approx(0.02)
    assert pa.table(columns(whole(values, Fraction(4))))["value"].type == pa.int64()


def query_of(measure, **fields):
    """A query of one measure."""
    given = {"column": "x", "clip": None, "by": (), "at": (), "share": Fraction(1)}
    return Query(
        "q", measure, **(given | {"split": (("all", Fraction(1)),), "public": ()} | fields)
    )


def test_without_noise_each_measure_is_what_it_is_of_the_data():
    """Sum, mean, variance and quantiles of cents, against plain Python."""
    data = [120, 450, 451, 999, 0, 700, 700, 300]
    sure = Fraction(0)
    total, count = (np.array([sum(data)]), sure), (np.array([len(data)]), sure)
    about = (np.array([sum((x - 500) ** 2 for x in data)]), sure)
    clip = (0, 1000)
    found = estimate(query_of("mean", clip=clip), 2, {"sum": total, "count": count})
    assert pa.table(columns(found))["value"].to_pylist() == [statistics.mean(data) / 100]
    parts = {"sum": total, "count": count, "square": about}
    told = pa.table(columns(estimate(query_of("variance", clip=clip), 2, parts)))
    for name in ("value", "lower", "upper"):
        assert told[name][0].as_py() == pytest.approx(statistics.pvariance(data) / 100**2)
    bins = (0, 200, 400, 600, 800, 1000)
    held = np.array([sum(a <= x < b for x in data) for a, b in itertools.pairwise(bins)] * 2)
    asked = query_of("quantiles", bins=bins, quantiles=(Fraction(1, 4), Fraction(1, 2)))
    told = pa.table(columns(estimate(asked, 2, {"count": (held, sure)})))
    assert rows_of(asked, len(held)) == told.num_rows == 4
    assert told["lower"].to_pylist() == [Decimal(0), Decimal(4)] * 2  # 2nd and 4th of eight values
    assert told["upper"].to_pylist() == [Decimal(2), Decimal(6)] * 2
    for low, value, high in zip(told["lower"], told["value"], told["upper"], strict=True):
        assert low.as_py() <= value.as_py() < high.as_py()


DRAWN = 20_000
FALSE_ALARM = 5.2  # standard deviations below 90%: 1e-7 for each of the tests that follow


def covered(found, truth):
    """Whether intervals hold the truth in 90% of the draws, up to a false alarm of 1e-7."""
    share = np.mean((found.lower <= truth) & (truth <= found.upper))
    return share >= 0.9 - FALSE_ALARM * math.sqrt(0.09 / len(found.value))


DATA = {
    "spread": ((0, 100), [0, 13, 40, 40, 77, 99, 100, 100] * 5),
    "alike": ((0, 100), [60] * 40),
    "apart": ((-5, 5), [-5, 5] * 30),
    "low": ((-5, 5), [-4] * 50 + [3]),
    "few": ((0, 10), [3, 9]),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("noise", [Fraction(1, 2), Fraction(4), Fraction(150)])
def test_intervals_of_means_and_variances_cover(data, noise):
    """With noise as strong as the counts' times what a row can add; values stay possible ones."""
    clip, values = data
    low, high = clip
    middle = (low + high) // 2
    truths = (sum(values), sum((x - middle) ** 2 for x in values), len(values))
    scales = (max(abs(low), abs(high)), (high - middle) ** 2, 1)
    bits = Words(5)
    total, square, count = (
        (truth + discrete_gaussian(noise * scale**2, DRAWN, bits), noise * scale**2)
        for truth, scale in zip(truths, scales, strict=True)
    )
    average = mean(clip, total, count)
    assert covered(average, statistics.mean(values))
    assert np.all((low <= average.lower) & (average.upper <= high))
    spread = variance(clip, total, square, count)
    assert covered(spread, statistics.pvariance(values))
    most = (high - low) ** 2 / 4
    assert np.all((spread.lower >= 0) & (spread.lower <= spread.value + 1e-6))
    assert np.all((spread.value <= spread.upper + 1e-6) & (spread.upper <= most))


def test_a_variance_s_interval_is_its_extremes_over_the_box():
    """Against a fine search over sums, squares and counts that are within their margins."""
    for s, q, n in itertools.product((-40, 3, 55, 160), (30, 400, 900), (12, 30)):
        noise = (Fraction(9), Fraction(400), Fraction(4))
        parts = [(np.array([x]), v) for x, v in zip((s, q, n), noise, strict=True)]
        (lower,), (upper,) = (variance((-10, 16), *parts).lower, variance((-10, 16), *parts).upper)
        halves = [half_width(v, 1 - 0.1 / 3) for v in noise]
        axes = [np.linspace(x - h, x + h, 81) for x, h in zip((s, q, n), halves, strict=True)]
        sums, squares, counts = np.meshgrid(*axes)
        found = squares / counts - (sums / counts - 3) ** 2
        assert lower == pytest.approx(np.clip(found.min(), 0, 169), abs=1e-6)
        assert upper >= np.clip(found.max(), 0, 169) - 1e-9
        assert upper <= np.clip(found.max(), 0, 169) + 0.05


@pytest.mark.parametrize("bins", [1, 2, 3, 16, 50])
@pytest.mark.parametrize("noise", [Fraction(1), Fraction(40)])
def test_intervals_of_quantiles_cover(bins, noise):
    """The value at the quantile's place among the data lies between the two edges."""
    edges = tuple(range(0, 10 * bins + 1, 10))
    values = sorted((7 * i * i) % (10 * bins) for i in range(60))
    held = [sum(a <= x < b for x in values) for a, b in itertools.pairwise(edges)]
    drawn = DRAWN // 4
    noisy = np.tile(held, drawn) + discrete_gaussian(noise, bins * drawn, Words(bins))
    levels = (Fraction(1, 10), Fraction(1, 2), Fraction(99, 100))
    found = quantiles(edges, levels, (noisy, noise))
    for i, level in enumerate(levels):
        truth = values[math.ceil(level * len(values)) - 1]
        lower, value, upper = (
            x.reshape(-1, 3)[:, i] for x in (found.lower, found.value, found.upper)
        )
        share = np.mean((lower <= truth) & (truth < upper))
        assert share >= 0.9 - FALSE_ALARM * math.sqrt(0.09 / drawn)
        assert np.all((lower <= value) & (value < upper))


def test_quantiles_rise_with_their_level():
    """From the same counts, values and both ends are in the order of the levels."""
    noisy = np.tile([5, 0, 9, 30, 2, 1, 0, 4], 500) + discrete_gaussian(Fraction(9), 4000, Words(1))
    levels = tuple(Fraction(i, 10) for i in range(1, 10))
    found = quantiles(tuple(range(9)), levels, (noisy, Fraction(9)))
    lower, upper = (x.reshape(-1, 9) for x in (found.lower, found.upper))
    assert np.mean(np.diff(lower, axis=1) >= 0) > 0.99
    assert np.mean(np.diff(upper, axis=1) >= 0) > 0.99


@pytest.mark.parametrize("sigma_squared", [Fraction(2), Fraction(60), Fraction(4000)])
def test_numbers_that_were_shown_because_they_are_large_are_covered_all_the_same(sigma_squared):
    """For each true number, exactly: among what reaches the threshold, 90% and more."""
    least = threshold(sigma_squared, Fraction(1, 10**6))
    sigma = math.sqrt(sigma_squared)
    for true in sorted({1, 2, least // 3, least - 1, least, least + 7, int(least + 9 * sigma)}):
        y = np.arange(least, max(least, true) + int(13 * sigma) + 14)
        log_mass = -((y - true) ** 2) / (2 * float(sigma_squared))
        p = np.exp(log_mass - log_mass.max())
        p /= p.sum()
        found = shown(y, sigma_squared, least)
        assert p[(found.lower <= true) & (true <= found.upper)].sum() >= 0.9 - 1e-9
        assert np.all((found.lower >= 1) & (np.diff(found.lower, prepend=0) >= 0))


def test_far_above_the_threshold_a_shown_number_has_the_usual_interval():
    """Selection does not matter there."""
    least = threshold(Fraction(60), Fraction(1, 10**6))
    found = shown(np.array([least + 500]), Fraction(60), least)
    assert found.lower[0] == pytest.approx(least + 500 - half_width(Fraction(60)), abs=1)
    assert found.upper[0] == pytest.approx(least + 500 + half_width(Fraction(60)), abs=1)
