"""What noisy numbers state, and thresholds of keys: against mpmath, draws, and enumeration."""

import itertools
import math
import statistics
import tomllib
from decimal import Decimal
from fractions import Fraction

import mpmath as mp
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from mixed_plan import MIXED
from neyman.accounting import charge
from neyman.display.report.table_section import NOUNS
from neyman.noise import SecureBits, discrete_gaussian, rounded_gaussian
from neyman.publishing import (
    MEASURES,
    Plan,
    center,
    errors,
    half_width,
    moved,
    rows_of,
    selected,
    square_unit,
    standard_error,
    threshold,
)
from neyman.publishing.plan.measurement import failure
from neyman.publishing.plan.query import Query, range_of
from neyman.publishing.tables.estimates import (
    ESTIMATES,
    _rounded_margin,
    estimate,
    mean,
    quantiles,
    ratio,
    shown,
    standard_deviation,
    variance,
    with_margin,
)
from neyman.publishing.tables.forms import columns
from neyman.publishing.tables.key_selection import _terms
from seeded import Seeded


def mass(sigma_squared, rounded=False):
    """The distribution of the noise: integers, and their probabilities in doubles."""
    far = int(12 * math.sqrt(sigma_squared)) + 12
    k = np.arange(-far, far + 1)
    if rounded:
        spread = math.sqrt(2 * sigma_squared)
        half = -np.diff([math.erfc((x - 0.5) / spread) / 2 for x in range(far + 2)])
        return k, np.concatenate([half[:0:-1], half])
    weights = np.exp(-(k**2) / (2 * float(sigma_squared)))
    return k, weights / weights.sum()


@pytest.mark.parametrize(
    "sigma_squared",
    [Fraction(x) for x in ("1/20", "1/10", "1/9", "1/2", "1", "7/3", "40", "60", "900", "10000")],
)
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("rounded", [False, True])
def test_a_half_width_is_the_least_that_covers(sigma_squared, coverage, rounded):
    """By the mass function, and the standard error is its standard deviation."""
    k, p = mass(sigma_squared, rounded)
    half = half_width(sigma_squared, coverage, rounded=rounded)
    assert p[abs(k) <= half].sum() >= coverage > p[abs(k) < half].sum()
    error = standard_error(sigma_squared, rounded=rounded)
    assert error == pytest.approx(math.sqrt((p * k * k).sum()), rel=1e-9)
    assert half_width(Fraction(0), rounded=rounded) == 0
    assert standard_error(Fraction(0), rounded=rounded) == 0


def test_fixed_point_values_are_told_exactly():
    values = np.array([0, -5, 123456789, -(2**62), 2**62])
    answer = pa.table(columns(estimate(query_of("sum"), 2, {"sum": (values, Fraction(4))})))
    assert answer["value"].to_pylist() == [Decimal(int(x)).scaleb(-2) for x in values]
    assert answer["lower"].to_pylist() == [Decimal(int(x) - 3).scaleb(-2) for x in values]
    assert answer["upper"].type == pa.decimal128(19, 2)
    assert answer["standard_error"][0].as_py() == pytest.approx(0.02)
    assert pa.table(columns(with_margin(values, Fraction(4))))["value"].type == pa.int64()


def query_of(measure, **fields):
    fields |= {"share": Fraction(1), "split": (("all", Fraction(1)),)}
    return Query(kind=MEASURES[measure], name="q", column="x", **fields)


def integers_of(clip, data):
    """The exact integers that a mean and a variance are made of."""
    low, high = clip
    offsets = [2 * x - low - high for x in data]
    halves = all(x % 2 == 0 for x in offsets)
    middle, unit = (low + high) // 2, square_unit(clip)
    return {
        "offset": sum(offsets) // (2 if halves else 1),
        "square": sum(math.floor(Fraction((x - middle) ** 2, unit) + Fraction(1, 2)) for x in data),
        "count": len(data),
    }


def test_without_noise_each_measure_is_what_it_is_of_the_data():
    data = [120, 450, 451, 999, 0, 700, 700, 300]
    sure = Fraction(0)
    for clip in ((0, 1000), (-1, 1000), (0, 999)):  # the middle of some is a half
        parts = {name: (np.array([x]), sure) for name, x in integers_of(clip, data).items()}
        two = {name: parts[name] for name in ("offset", "count")}
        result = pa.table(columns(estimate(query_of("mean", clip=clip), 2, two)))
        answer = pa.table(columns(estimate(query_of("variance", clip=clip), 2, parts)))
        for name in ("value", "lower", "upper"):
            assert result[name].to_pylist() == [statistics.mean(data) / 100]
            assert answer[name][0].as_py() == pytest.approx(statistics.pvariance(data) / 100**2)
    bins = (0, 200, 400, 600, 800, 1000)
    held = np.array([sum(a <= x < b for x in data) for a, b in itertools.pairwise(bins)] * 2)
    asked = query_of("quantiles", bins=bins, quantiles=(Fraction(1, 4), Fraction(1, 2)))
    answer = pa.table(columns(estimate(asked, 2, {"count": (held, sure)})))
    assert rows_of(asked, len(held)) == answer.num_rows == 4
    assert (
        answer["lower"].to_pylist() == [Decimal(0), Decimal(4)] * 2
    )  # 2nd and 4th of eight values
    assert answer["upper"].to_pylist() == [Decimal(2), Decimal(6)] * 2
    for low, value, high in zip(answer["lower"], answer["value"], answer["upper"], strict=True):
        assert low.as_py() <= value.as_py() < high.as_py()


DRAWS = 20_000
FALSE_ALARM = 5.2  # standard deviations below 90%: 1e-7 for each of the tests that follow


def covered(result, truth):
    """Whether intervals hold the truth in 90% of the draws, up to a false alarm of 1e-7."""
    share = np.mean((result.lower <= truth) & (truth <= result.upper))
    return share >= 0.9 - FALSE_ALARM * math.sqrt(0.09 / len(result.value))


DATA = {
    "spread": ((0, 100), [0, 13, 40, 40, 77, 99, 100, 100] * 5), "alike": ((0, 100), [60] * 40),
    "apart": ((-5, 5), [-5, 5] * 30), "years": ((1900, 2021), [1900, 1950, 1999, 2015, 2021] * 8),
    "yes": ((0, 1), [0] * 30 + [1] * 9), "low": ((-5, 5), [-4] * 50 + [3]),
    "few": ((0, 10), [3, 9]),
}  # fmt: skip
CENTS = (0, 10**8), [84_00, 1544_00, 10**8, 3 * 10**7] * 9


def scales_of(clip):
    """The most that a row adds to an offset, to squares and to a count."""
    return [range_of(query_of("variance", clip=clip), part)[1] for part in PARTS]


PARTS = ("offset", "square", "count")


@pytest.mark.parametrize("data", [*DATA.values(), CENTS], ids=[*DATA, "cents"])
@pytest.mark.parametrize("noise", [Fraction(1, 2), Fraction(4), Fraction(150)])
def test_intervals_of_means_and_variances_cover(data, noise):
    clip, values = data
    low, high = clip
    bits = Seeded(5)
    offset, square, count = (
        (truth + discrete_gaussian(noise * scale**2, DRAWS, bits), noise * scale**2)
        for truth, scale in zip(integers_of(clip, values).values(), scales_of(clip), strict=True)
    )
    average = mean(clip, offset, count)
    assert covered(average, statistics.mean(values))
    assert np.all((low <= average.lower) & (average.lower <= average.value))
    assert np.all((average.value <= average.upper) & (average.upper <= high))
    spread = variance(clip, offset, square, count)
    assert covered(spread, statistics.pvariance(values))
    most = (high - low) ** 2 / 4
    assert np.all((spread.lower >= 0) & (spread.lower <= spread.value + 1e-6))
    assert np.all((spread.value <= spread.upper + 1e-6) & (spread.upper <= most))
    root = standard_deviation(clip, offset, square, count)
    assert covered(root, statistics.pstdev(values))
    assert np.all((root.lower >= 0) & (root.lower <= root.value + 1e-6))
    assert np.all((root.value <= root.upper + 1e-6) & (root.upper <= (high - low) / 2))


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_a_half_width_of_large_rounded_noise_is_the_least_that_covers(coverage):
    sigma = mp.sqrt(10**15)
    half = half_width(Fraction(10**15), coverage, rounded=True)
    with mp.workdps(30):
        assert mp.erf((half + 0.5) / sigma / mp.sqrt(2)) >= coverage
        assert mp.erf((half - 0.5) / sigma / mp.sqrt(2)) < coverage + mp.mpf(1e-8)


@pytest.mark.parametrize(
    "sigma_squared",
    [Fraction(1, 10), Fraction(1), Fraction(399, 100), Fraction(4), Fraction(5), Fraction(50)],
)
@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(1, 10), Fraction(99, 100), Fraction(1, 3)])
def test_a_margin_of_sums_of_rounded_noise_is_exceeded_at_most_5_times_in_100(sigma_squared, q):
    """W = (1 - q) A - q B, A and B sums of j and b terms, by exact convolution on a lattice."""
    k, p = mass(sigma_squared, rounded=True)
    keep = p > 1e-14
    k, p = k[keep], p[keep]
    n, a, b = q.denominator, q.denominator - q.numerator, q.numerator
    for j, rest in [(1, 0), (0, 1), (1, 1), (3, 1), (2, 6), (8, 8)]:
        total = np.ones(1)
        reach = 0
        for weight in [a] * j + [b] * rest:  # in units of 1 / n; signs do not matter
            stretched = np.zeros((len(k) - 1) * weight + 1)
            stretched[::weight] = p
            total = np.convolve(total, stretched)
            reach += weight * int(k[-1])
        w = np.arange(-reach, reach + 1) / n
        factor, size = float((a * a * j + b * b * rest) / n**2), float((a * j + b * rest) / n)
        margin = _rounded_margin(np.array([factor]), np.array([size]), sigma_squared)[0]
        assert total[w > margin + 1e-12].sum() <= 0.05 + 1e-9
        normal = 1.645 * math.sqrt((sigma_squared + Fraction(1, 12)) * Fraction(factor))
        assert margin <= 1.02 * normal + max(1, size / 2)


@pytest.mark.parametrize("noise", [Fraction(1), Fraction(30)])
def test_intervals_of_means_and_variances_cover_and_are_at_most_so_wide(noise):
    draws = 40_000
    bits, values = SecureBits(), np.array([3, 9, 9, 20, 20, 17] * 12)
    counts = len(values) + rounded_gaussian(noise, draws, bits)
    offsets = int((values - 10).sum()) + rounded_gaussian(noise * 100, draws, bits)
    squares = int(((values - 10) ** 2).sum()) + rounded_gaussian(noise * 10**4, draws, bits)
    parts = [(offsets, noise * 100), (squares, noise * 10**4), (counts, noise)]
    estimate = mean((0, 20), parts[0], parts[2], rounded=True)
    spread = variance((0, 20), *parts, rounded=True)
    slack = 5 * math.sqrt(0.09 / draws)
    assert (
        np.mean((estimate.lower <= values.mean()) & (values.mean() <= estimate.upper)) > 0.9 - slack
    )
    assert np.mean((spread.lower <= values.var()) & (values.var() <= spread.upper)) > 0.9 - slack
    for one, most in ((estimate, 1.3), (spread, 2.3)):
        assert np.median(one.upper - one.lower) <= most * 3.29 * np.std(one.value)


def test_a_standard_deviation_of_0_in_a_wide_clip_warns_of_nothing():
    half, none = 10**6, np.zeros(1, np.int64)
    offset, square = (none, Fraction(half) ** 2), (none, Fraction(half) ** 4)
    root = standard_deviation((-half, half), offset, square, (none + 5, Fraction(1)))
    assert root.value == 0
    assert 0 < root.standard_error <= half


RATIOS = {
    "counted": ((0, 10), (1, 20), [3, 0, 10, 7] * 10, [1, 20, 9, 2] * 10),
    "signed": ((-10, 4), (0, 20), [-3, -10, 4, -7] * 10, [0, 20, 9, 2] * 10),
    "loss": ((-10, -4), (2, 20), [-4, -10, -4, -7] * 10, [3, 20, 9, 2] * 10),
    "few": ((0, 10), (0, 20), [3], [1]),
}


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("noise", [Fraction(1, 2), Fraction(4), Fraction(150)])
def test_the_chance_that_a_ratio_s_interval_holds_it_is_at_least_90_percent(name, noise):
    clip, clip_over, above, over = RATIOS[name]
    law, chance = mass(noise)
    both = np.meshgrid(sum(above) + law, sum(over) + law, indexing="ij")
    result = ratio(clip, clip_over, *((x.ravel(), noise) for x in both))
    right = sum(above) / sum(over)
    held = (result.lower <= right) & (right <= result.upper)
    assert np.multiply.outer(chance, chance).ravel()[held].sum() >= 0.9
    assert np.all((result.lower <= result.value) & (result.value <= result.upper))
    if clip_over[0]:
        rows = [x / y for x in clip for y in clip_over]
        assert np.all((min(rows) - 1e-12 <= result.lower) & (result.upper <= max(rows) + 1e-12))
    sure = [(np.array([sum(x)]), Fraction(0)) for x in (above, over)]
    asked = query_of("ratio", clip=clip, over="y", clip_over=clip_over)
    answer = pa.table(
        columns(estimate(asked, 2 - 1, dict(zip(("sum", "over"), sure, strict=True))))
    )
    assert answer["value"][0].as_py() == pytest.approx(right / 10)
    assert answer["lower"] == answer["upper"] == answer["value"]


@pytest.mark.parametrize("name", ["spread", "alike", "apart", "years"])
def test_an_interval_of_a_mean_is_no_wider_than_its_chance_needs(name):
    clip, values = DATA[name]
    values = values * 20
    noise, bits = Fraction(150), Seeded(11)
    truth, scale = integers_of(clip, values), scales_of(clip)
    noisy = [
        (truth[part] + discrete_gaussian(noise * size**2, DRAWS, bits), noise * size**2)
        for part, size in zip(PARTS, scale, strict=True)
    ]
    result = mean(clip, noisy[0], noisy[2])
    assert covered(result, statistics.mean(values))
    share = np.mean(
        (result.lower <= statistics.mean(values)) & (statistics.mean(values) <= result.upper)
    )
    assert share <= 0.93 + FALSE_ALARM * math.sqrt(0.93 * 0.07 / DRAWS)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("noise", [Fraction(1), Fraction(3), Fraction(4), Fraction(9)])
def test_the_chance_that_a_mean_s_interval_holds_it_is_at_least_90_percent(name, noise):
    clip, values = DATA[name]
    truth, scale = integers_of(clip, values), scales_of(clip)
    noises = {"offset": noise * scale[0] ** 2, "count": noise}
    laws = {part: mass(noises[part]) for part in noises}
    noisy = np.meshgrid(*(truth[part] + laws[part][0] for part in noises), indexing="ij")
    flat = [(x.ravel(), noises[part]) for x, part in zip(noisy, noises, strict=True)]
    result, right = mean(clip, *flat), statistics.mean(values)
    held = (result.lower <= right) & (right <= result.upper)
    chance = np.multiply.outer(laws["offset"][1], laws["count"][1]).ravel()
    assert chance[held].sum() >= 0.9


@pytest.mark.parametrize("clip", [(1900, 2020), (1900, 2021), (-5, 3)])
def test_standard_errors_of_means_and_variances_are_those_that_are_drawn(clip):
    """Of 20,000 releases, each with its own error: off by 6 in sqrt(40,000) but for 2e-9."""
    low, high = clip
    for part in (0.1, 0.5, 0.97):
        ends = [low] * round(3000 * (1 - part)) + [high] * round(3000 * part)
        values = ends + [low + (high - low) // 3] * 2000
        bits = Seeded(9)
        noisy = [
            (truth + discrete_gaussian(4 * scale**2, DRAWS, bits), Fraction(4 * scale**2))
            for truth, scale in zip(
                integers_of(clip, values).values(), scales_of(clip), strict=True
            )
        ]
        for result in (mean(clip, noisy[0], noisy[2]), variance(clip, *noisy)):
            answer = float(np.median(result.standard_error))
            assert np.std(result.value) == pytest.approx(
                answer, rel=6 / math.sqrt(2 * DRAWS) + 0.01
            )


@pytest.mark.parametrize("clip", [(-10, 16), (-10, 17), (1990, 2016)])
def test_a_variance_s_interval_is_its_extremes_over_the_box(clip):
    """Against a fine search over offsets, squares and counts that are within their margins."""
    parts = 1 + sum(clip) % 2  # of one, that an offset counts
    most = (clip[1] - clip[0]) ** 2 / 4
    for s, q, n in itertools.product((-60, -12, 3, 55, 130), (30, 400, 900), (12, 30)):
        noise = (Fraction(9), Fraction(400), Fraction(4))
        noisy = [(np.array([x]), v) for x, v in zip((s, q, n), noise, strict=True)]
        result = variance(clip, *noisy)
        halves = [half_width(v, 1 - 0.1 / 3) for v in noise]
        axes = [np.linspace(x - h, x + h, 81) for x, h in zip((s, q, n), halves, strict=True)]
        offsets, squares, counts = np.meshgrid(*axes)
        about = sum(clip) // 2 - sum(clip) / 2
        box = squares / counts - (offsets / parts / counts - about) ** 2
        assert result.lower[0] == pytest.approx(np.clip(box.min(), 0, most), abs=1e-6)
        assert result.upper[0] >= np.clip(box.max(), 0, most) - 1e-9
        assert result.upper[0] <= np.clip(box.max(), 0, most) + 0.05


@pytest.mark.parametrize("bins", [1, 2, 3, 16, 50])
@pytest.mark.parametrize("noise", [Fraction(1), Fraction(40)])
def test_intervals_of_quantiles_cover(bins, noise):
    edges = tuple(range(0, 10 * bins + 1, 10))
    values = sorted((7 * i * i) % (10 * bins) for i in range(60))
    held = [sum(a <= x < b for x in values) for a, b in itertools.pairwise(edges)]
    draws = DRAWS // 4
    noisy = np.tile(held, draws) + discrete_gaussian(noise, bins * draws, Seeded(bins))
    levels = (Fraction(1, 10), Fraction(1, 2), Fraction(99, 100))
    result = quantiles(edges, levels, (noisy, noise))
    for i, level in enumerate(levels):
        truth = values[math.ceil(level * len(values)) - 1]
        lower, value, upper = (
            x.reshape(-1, 3)[:, i] for x in (result.lower, result.value, result.upper)
        )
        share = np.mean((lower <= truth) & (truth < upper))
        assert share >= 0.9 - FALSE_ALARM * math.sqrt(0.09 / draws)
        assert np.all((lower <= value) & (value < upper))


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("noise", [Fraction(1, 4), Fraction(1), Fraction(4), Fraction(25)])
@pytest.mark.parametrize("held", [(4, 3, 9), (0, 0, 1), (40, 0, 40), (1, 30, 0)])
@pytest.mark.parametrize("level", [Fraction(1, 10), Fraction(1, 2), Fraction(4, 5)])
def test_a_quantile_s_interval_holds_it_in_90_percent_or_more(noise, held, level, rounded):
    k, p = mass(noise, rounded)
    far = abs(k) <= 6 * math.sqrt(noise) + 1  # beyond there is less than 1e-8
    k, p = k[far], p[far]
    noisy = np.stack(np.meshgrid(*(n + k for n in held), indexing="ij"), axis=-1).reshape(-1, 3)
    chance = np.multiply.outer(np.multiply.outer(p, p), p).ravel()
    result = quantiles((0, 10, 20, 30), (level,), (noisy.ravel(), noise), rounded=rounded)
    target = next(j for j in range(3) if sum(held[: j + 1]) >= level * sum(held))
    right = (result.lower <= 10 * target) & (10 * target < result.upper)
    assert chance[right].sum() >= 0.9 - 1e-7


@pytest.mark.parametrize("level", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
def test_an_interval_of_a_quantile_is_no_wider_than_its_chance_needs(level):
    number, each, noise, draws = 64, 20, Fraction(100), 500
    noisy = np.full(number * draws, each) + discrete_gaussian(noise, number * draws, Seeded(3))
    result = quantiles(tuple(range(number + 1)), (level,), (noisy, noise))
    place, q = int(level * number), float(level)
    spread = math.sqrt(float(noise) * ((1 - q) ** 2 * place + q * q * (number - place)))
    reach = (1.645 * spread + 1) / each  # in bins, on either side
    assert np.median(result.upper - result.lower) <= 2 * reach + 3


def test_quantiles_rise_with_their_level():
    noisy = np.tile([5, 0, 9, 30, 2, 1, 0, 4], 500) + discrete_gaussian(
        Fraction(9), 4000, Seeded(1)
    )
    levels = tuple(Fraction(i, 10) for i in range(1, 10))
    result = quantiles(tuple(range(9)), levels, (noisy, Fraction(9)))
    lower, upper = (x.reshape(-1, 9) for x in (result.lower, result.upper))
    assert np.mean(np.diff(lower, axis=1) >= 0) > 0.99
    assert np.mean(np.diff(upper, axis=1) >= 0) > 0.99


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("sigma_squared", [Fraction(2), Fraction(60), Fraction(4000)])
def test_numbers_that_are_shown_because_they_are_large_are_covered_too(sigma_squared, rounded):
    least = threshold(sigma_squared, Fraction(1, 10**6), rounded=rounded)
    sigma = math.sqrt(sigma_squared)
    for true in sorted({1, 2, least // 3, least - 1, least, least + 7, int(least + 9 * sigma)}):
        y = np.arange(least, max(least, true) + int(13 * sigma) + 14)
        if rounded:
            beyond = [mp.ncdf((true + 0.5 - int(x)) / mp.mpf(sigma)) for x in (*y, y[-1] + 1)]
            p = np.array([float((a - b) / beyond[0]) for a, b in itertools.pairwise(beyond)])
        else:
            log_mass = -((y - true) ** 2) / (2 * float(sigma_squared))
            p = np.exp(log_mass - log_mass.max())
            p /= p.sum()
        result = shown(y, sigma_squared, least, rounded=rounded)
        assert p[(result.lower <= true) & (true <= result.upper)].sum() >= 0.9 - 1e-9
        assert np.all((result.lower >= 1) & (np.diff(result.lower, prepend=0) >= 0))


@pytest.mark.parametrize("rounded", [False, True])
def test_far_above_the_threshold_a_shown_number_has_the_usual_interval(rounded):
    least = threshold(Fraction(60), Fraction(1, 10**6), rounded=rounded)
    result = shown(np.array([least + 500]), Fraction(60), least, rounded=rounded)
    half = half_width(Fraction(60), rounded=rounded)
    assert result.lower[0] == pytest.approx(least + 500 - half, abs=1)
    assert result.upper[0] == pytest.approx(least + 500 + half, abs=1)


def test_a_half_width_covers_where_the_sum_of_millions_of_weights_is_close():
    """With this sigma, P(|X| <= 1,628,405) is 0.9 - 10^-12, by the Euler-Maclaurin formula."""
    k = 1628405
    with mp.workdps(40):

        def chance(sigma):
            first = mp.exp(-((k / sigma) ** 2) / 2) * (1 - k / sigma**2 / 6)
            return mp.erf(k / sigma / mp.sqrt(2)) + first / sigma / mp.sqrt(2 * mp.pi)

        short = mp.mpf(9) / 10 - mp.mpf(10) ** -12
        sigma = mp.findroot(lambda s: chance(s) - short, (989990, 990010), solver="secant")
        assert chance(sigma) < 0.9
        sigma_squared = Fraction(int(sigma**2 * 10**20), 10**20)
    assert half_width(sigma_squared) == k + 1


def test_a_half_width_of_large_noise_is_the_one_that_sums_give():
    for number in range(60):
        sigma_squared = Fraction(10**6 + 977 * number**3)
        k = np.arange(9 * math.isqrt(int(sigma_squared)) + 40, dtype=float)
        weights = np.exp(-k * k / (2 * float(sigma_squared)))
        weights[1:] *= 2
        for coverage in (0.5, 0.9, 0.99):
            reached = np.cumsum(weights)
            expected = np.searchsorted(reached, coverage * (1 + 1e-12) * reached[-1])
            assert half_width(sigma_squared, coverage) == expected
    assert half_width(Fraction(10**12) + 1) - half_width(Fraction(10**12)) in (0, 1)  # the methods


@pytest.mark.parametrize("rest", [2.0**-53, 2.0**-50, 1e-12, 1e-9, 1e-4, 0.3])
@pytest.mark.parametrize("sigma_squared", [Fraction(1, 9), Fraction(4), Fraction(10**4)])
def test_a_half_width_next_to_certainty_is_the_least_that_covers(sigma_squared, rest):
    """By sums from the far end in mpmath, for coverages that float sums cannot hold."""
    coverage = 1 - rest
    half, normal = (half_width(sigma_squared, coverage, rounded=r) for r in (False, True))
    with mp.workdps(40):
        s2 = mp.mpf(sigma_squared.numerator) / sigma_squared.denominator
        reach = int(15 * mp.sqrt(s2)) + 30
        weights = [mp.exp(-(mp.mpf(k) ** 2) / (2 * s2)) for k in range(reach)]
        total = weights[0] + 2 * mp.fsum(weights[1:])
        beyond = [2 * mp.fsum(weights[k + 1 :]) / total for k in (half - 1, half)]
        assert beyond[1] <= 1 - mp.mpf(coverage)
        assert half == 0 or beyond[0] > (1 - mp.mpf(coverage)) * (1 - 1e-6) - 1e-17
        misses = [mp.erfc((k + 0.5) / mp.sqrt(2 * s2)) for k in (normal - 1, normal)]
        assert misses[1] <= 1 - mp.mpf(coverage)
        assert normal == 0 or misses[0] > (1 - mp.mpf(coverage)) * (1 - 1e-6)


SIGMAS = [
    Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(60), Fraction(4000),
]  # fmt: skip
DELTAS = [
    Fraction(1, 2), Fraction(1, 3), Fraction(1, 100), Fraction(1, 10**9), Fraction(1, 10**300),
]  # fmt: skip


def tail(sigma_squared, k, precision):
    """Bounds on P(X >= k) below and above, by the terms that the threshold sums."""
    terms = list(_terms(sigma_squared, precision))
    low, high = sum(a for a, _ in terms[k:]), sum(b for _, b in terms[k:]) + 1
    all_low = 2 * sum(a for a, _ in terms) - terms[0][1]
    all_high = 2 * (sum(b for _, b in terms) + 1) - terms[0][0]
    return Fraction(low, all_high), Fraction(high, all_low)


def tails(sigma_squared):
    """P(X >= k) for k = 0, 1, ..., by mpmath, down to 1e-330."""
    with mp.workdps(380):
        twice = 2 * mp.mpf(sigma_squared.numerator) / sigma_squared.denominator
        last = int(mp.sqrt(twice * 330 * mp.log(10))) + 60
        weights = [mp.exp(-(mp.mpf(j) ** 2) / twice) for j in range(last)]
        total = 2 * mp.fsum(weights) - 1
        rest, results = mp.mpf(0), []
        for weight in reversed(weights):
            rest += weight
            results.append(rest / total)
    return results[::-1]


@pytest.mark.parametrize("sigma_squared", SIGMAS)
def test_a_threshold_is_the_least_that_keeps_delta(sigma_squared):
    """By the tails that mpmath sums to 380 digits."""
    reference = tails(sigma_squared)
    for delta in DELTAS:
        with mp.workdps(380):
            limit = mp.mpf(delta.numerator) / delta.denominator
            least = next(k for k, p in enumerate(reference) if p <= limit)
        assert threshold(sigma_squared, delta) == 1 + least


@pytest.mark.parametrize(
    "sigma_squared", [Fraction(1, 20), *SIGMAS, 10**6 + Fraction(1, 3), Fraction(10**20)]
)
def test_a_threshold_for_rounded_noise_is_the_least_that_keeps_delta(sigma_squared):
    """P(round(N) >= k) is that of a normal number of at least k - 1/2, by mpmath to 380 digits."""
    for delta in DELTAS if sigma_squared < 9 else DELTAS[:-1]:
        least = threshold(sigma_squared, delta, rounded=True) - 1
        with mp.workdps(380):
            limit = mp.mpf(delta.numerator) / delta.denominator
            width = mp.sqrt(2 * mp.mpf(sigma_squared.numerator) / sigma_squared.denominator)
            at, before = (mp.erfc((k - mp.mpf(0.5)) / width) / 2 for k in (least, least - 1))
            assert least >= 1
            assert at <= limit
            assert least == 1 or before > limit


@pytest.mark.parametrize(
    ("sigma_squared", "precision"), [(4, 4), (4, 8), (4, 16), (4, 40), (60, 1200)]
)
def test_a_tail_is_enclosed_and_beyond_the_last_term_at_most_one_unit(sigma_squared, precision):
    reference = tails(Fraction(sigma_squared))
    for k in range(40) if precision < 1200 else (0, 1, 10, 50, 200):
        low, high = tail(Fraction(sigma_squared), k, precision)
        with mp.workdps(380):
            assert low.numerator <= reference[k] * low.denominator
            assert reference[k] * high.denominator <= high.numerator
        assert precision < 1200 or high - low < Fraction(1, 2**1100)
    if precision < 1200:
        assert low == 0
        assert high.denominator == high.denominator // high.numerator  # one unit of all


@pytest.mark.parametrize("delta", [Fraction(1, 3), Fraction(1, 10**6), Fraction(1, 10**300)])
def test_beyond_the_sums_a_threshold_is_safe_and_close(delta):
    """At sigma just above 1000 it is at least, and hardly more than, that at just below."""
    below, above = threshold(Fraction(10**6), delta), threshold(Fraction(10**6) + 1, delta)
    assert below <= above <= below * (1 + Fraction(1, 10**5)) + 900 * (delta > Fraction(1, 10)) + 2


@pytest.mark.parametrize(("sigma_squared", "delta", "reason"), [
    *((sigma_squared, "1/100", "sigma_squared = .* must be above 0") for sigma_squared in (0, -1)),
    *((1, delta, "1e-300 to 1/2") for delta in ("0", "2/3", "1e-301")),
])  # fmt: skip
def test_a_threshold_without_noise_or_a_fitting_delta_is_refused(sigma_squared, delta, reason):
    with pytest.raises(ValueError, match=reason):
        threshold(Fraction(sigma_squared), Fraction(delta))


def test_keys_that_reach_the_threshold_come_in_the_order_of_their_bytes():
    keys = pa.table({"state": ["B", "A", "A", "B"], "job": ["z", "é", "z", "a"]})
    rows = selected(keys, np.array([5, 9, 7, 4]), 5)
    assert rows.tolist() == [2, 1, 0]
    shown = keys.take(pa.array(rows))
    assert shown.to_pydict() == {"state": ["A", "A", "B"], "job": ["z", "é", "z"]}
    nothing = selected(keys, np.array([1, 2, 3, 4]), 5)
    assert len(nothing) == 0
    assert keys.take(pa.array(nothing)).schema == keys.schema


def test_the_chance_that_some_key_is_shown_is_rounded_up():
    """1 - (1 - delta)^k, never below, by less than 1e-13 of itself."""
    for delta, keys in itertools.product([Fraction(1, 10**9), Fraction(1, 3)], [1, 2, 7, 1000]):
        exact = 1 - (1 - delta) ** keys
        assert exact <= failure(delta, keys) <= min(Fraction(1), exact * (1 + Fraction(1, 10**13)))


# ---- the guarantee, by enumeration of what can be seen ----------------------------------------

SIGMA_SQUARED, DELTA = Fraction(2), Fraction(1, 50)
FAR = 30


def counted(counts):
    """The distribution of what is published: for each key hidden, or its noisy number."""
    least = threshold(SIGMA_SQUARED, DELTA)
    x = np.arange(-FAR, FAR + 1)
    mass = np.exp(-(x**2) / (2 * float(SIGMA_SQUARED)))
    mass /= mass.sum()
    law = np.ones(1)
    for count in counts:
        one = np.zeros(2 * FAR + 3)  # hidden, then the numbers from the threshold on
        if count:
            values = count + x
            np.add.at(one, np.where(values < least, 0, values - least + 1), mass)
        else:
            one[0] = 1.0
        law = np.multiply.outer(law, one)
    return law.ravel()


def plan_of(neighboring, rows):
    """A plan that discovers one column's keys, with noise of about the variance above."""
    return Plan.from_dict({
        "schema": 2, "name": "keys", "dataset": "people@1", "table": "people",
        "unit": {"protects": "person", "neighboring": neighboring, "rows": rows, "id": "who"},
        "columns": {"job": {"discover": True}}, "budget": {"zcdp": 10, "delta": "0.2"},
        "query": [{"name": "jobs", "measure": "units", "by": ["job"], "delta": DELTA, "share": 1}],
    })  # fmt: skip


CHANGES = [
    # counts of three keys without and with the unit, or with one version of it and another
    ("add-remove", 1, (0, 3, 5), (1, 3, 5)),
    ("add-remove", 1, (0, 3, 5), (0, 4, 5)),
    ("add-remove", 2, (0, 0, 5), (1, 1, 5)),
    ("add-remove", 2, (0, 2, 5), (1, 3, 5)),
    ("add-remove", 2, (4, 2, 5), (5, 3, 5)),
    ("replace-one", 1, (1, 0, 5), (0, 1, 5)),
    ("replace-one", 1, (1, 4, 5), (0, 5, 5)),
    ("replace-one", 1, (4, 5, 1), (5, 4, 1)),
    ("replace-one", 2, (1, 1, 0), (0, 0, 1)),
    ("replace-one", 2, (1, 1, 4), (0, 1, 5)),
    ("replace-one", 2, (1, 3, 4), (0, 2, 5)),
]


@pytest.mark.parametrize(("neighboring", "rows", "without", "having"), CHANGES)
def test_what_is_seen_of_unknown_keys_is_within_the_mechanism(neighboring, rows, without, having):
    """Both deltas of the enumerated distributions are at most the certified ones, at every
    epsilon.
    """
    (entry,) = plan_of(neighboring, rows).entries()
    assert entry.measure == "keys"
    assert (entry.cells, entry.keys) == (None, rows)
    curve = entry.noise(SIGMA_SQUARED).tradeoff(neighboring)
    p, q = counted(having), counted(without)
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
        most = max(
            float(np.sum(np.maximum(a - np.exp(epsilon) * b, 0.0))) for a, b in ((p, q), (q, p))
        )
        assert most <= curve.delta(epsilon).upper + 1e-12


# ---- counts and sums by unknown keys -----------------------------------------------------------


def measured(sigma_squared, cells, decimals=0):
    """The law of what is published: for each key hidden, or its noisy number.

    A cell is (units, number); the noise on units has `SIGMA_SQUARED`, that on numbers its own.
    """
    least = threshold(SIGMA_SQUARED, DELTA)
    x = np.arange(-FAR, FAR + 1)
    chance = np.exp(-(x**2) / (2 * float(SIGMA_SQUARED)))
    chance /= chance.sum()
    mass = np.exp(-(x**2) / (2 * float(sigma_squared)))
    mass /= mass.sum()
    law = np.ones(1)
    for units, number in cells:
        one = np.zeros(2 * FAR + 2 + 2 * MOST)  # hidden, then the numbers from -FAR - MOST on
        shown = float(chance[units + x >= least].sum()) if units else 0.0
        one[0] = 1 - shown
        one[1 + MOST + number : 2 + MOST + number + 2 * FAR] += shown * mass
        law = np.multiply.outer(law, one)
    return law.ravel()


MOST = 8


def plan_that_measures(neighboring, rows, measure, **bounds):
    plan = plan_of(neighboring, rows).canonical()
    (query,) = plan["query"]
    query |= {"measure": measure, **bounds}
    if measure == "sum":
        plan["columns"]["pay"] = {"integer": True}
        query |= {"column": "pay", "clip": [-1, 2]}
    return Plan.from_dict(plan)


MEASURED = [
    # relation, rows of a unit, measure, bounds, and keys as (units, number) before and after
    ("add-remove", 3, "count", {}, [(0, 0), (3, 4)], [(1, 3), (3, 4)]),
    ("add-remove", 3, "count", {}, [(0, 0), (3, 4)], [(1, 2), (4, 5)]),
    ("add-remove", 3, "count", {}, [(4, 4), (3, 4)], [(5, 7), (3, 4)]),
    ("add-remove", 3, "count", {"rows_per_group": 2}, [(4, 4), (3, 4)], [(5, 6), (4, 5)]),
    ("add-remove", 2, "count", {"groups": 1}, [(0, 0), (3, 4)], [(1, 2), (3, 4)]),
    ("add-remove", 1, "sum", {}, [(4, 4), (3, -4)], [(5, 6), (3, -4)]),
    ("add-remove", 2, "sum", {}, [(0, 0), (3, -4)], [(1, 2), (4, -5)]),
    ("replace-one", 3, "count", {}, [(1, 3), (3, 4)], [(0, 0), (4, 7)]),
    ("replace-one", 2, "count", {}, [(1, 2), (0, 0)], [(0, 0), (1, 2)]),
    ("replace-one", 2, "count", {}, [(4, 6), (4, 4)], [(3, 4), (5, 6)]),
    ("replace-one", 2, "sum", {}, [(4, 6), (3, -4)], [(4, 0), (3, -4)]),
    ("replace-one", 1, "sum", {}, [(1, 2), (4, 4)], [(0, 0), (5, 3)]),
    ("replace-one", 1, "sum", {}, [(4, 2), (4, 4)], [(3, 0), (5, 6)]),
]


@pytest.mark.parametrize(
    ("neighboring", "rows", "measure", "bounds", "without", "having"), MEASURED
)
def test_what_is_seen_of_numbers_by_unknown_keys_is_within_the_declared_mechanism(
    neighboring, rows, measure, bounds, without, having
):
    """Both deltas of the enumerated distributions are at most the certified ones, at every
    epsilon.
    """
    plan = plan_that_measures(neighboring, rows, measure, **bounds)
    keys, values = plan.entries()
    assert (keys.measure, values.measure) == ("keys", measure)
    assert (values.cells, values.delta, values.failure) == (None, None, 0)
    noise = Fraction(values.squared, keys.squared) * SIGMA_SQUARED
    curve = (keys.noise(SIGMA_SQUARED) + values.noise(noise)).tradeoff(neighboring)
    p, q = measured(noise, having), measured(noise, without)
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0):
        most = max(
            float(np.sum(np.maximum(a - np.exp(epsilon) * b, 0.0))) for a, b in ((p, q), (q, p))
        )
        assert most <= curve.delta(epsilon).upper + 1e-9


def test_a_count_of_units_with_one_row_is_the_number_of_units():
    assert [e.measure for e in plan_that_measures("add-remove", 1, "count").entries()] == ["keys"]
    (entry,) = plan_that_measures("add-remove", 3, "count", rows_per_group=1).entries()
    assert (entry.measure, entry.keys) == ("keys", 3)
    levels = plan_that_measures("add-remove", 3, "count", rows_per_group=1).canonical()
    levels["hierarchy"] = {"place": {"levels": ["a", "b"], "keys": [["x", "y"], ["x", "z"]]}}
    levels["query"][0] |= {"at": ["a", "b"], "split": {"a": "1/2", "b": "1/2"}}
    levels["budget"]["delta"] = "0.3"
    measures = [entry.measure for entry in Plan.from_dict(levels).entries()]
    assert measures == ["keys", "count", "keys", "count"]


def test_numbers_by_unknown_keys_are_charged_once_to_delta():
    plan = plan_that_measures("replace-one", 2, "sum")
    assert charge(plan.mechanism(), "zcdp") == (10, failure(DELTA, 2))
    keys, values = plan.entries()
    assert keys.share == values.share == Fraction(1, 2)
    assert (
        values.squared == (2 * 2 + 2 * 1) ** 2
    )  # in one cell two rows of -1 leave, two of 2 enter


def test_a_key_of_a_single_unit_is_what_the_delta_is_about():
    p, q = counted((1,)), counted((0,))
    shown = float(np.sum(p[q == 0]))
    assert 0.2 * float(DELTA) < shown <= float(DELTA)


def test_keys_are_charged_to_rho_and_to_delta():
    plan = plan_of("add-remove", 2)
    assert charge(plan.mechanism(), "zcdp") == (10, failure(DELTA, 2))
    assert plan.admits(plan.mechanism())
    assert not plan.admits(plan.mechanism() + ny.NonPrivate(Fraction(17, 100), "add-remove"))
    assert not plan.admits(plan.mechanism(plan.scale * Fraction(99, 100)))


def test_a_record_that_stays_may_lose_a_key_and_gain_one():
    (entry,) = moved(plan_of("add-remove", 1), ("job",))
    assert entry.shifts == ((1, 1),)
    assert entry.relation == "replace-one"
    assert plan_of("add-remove", 1).concerning("job").neighboring == "replace-one"


MIXED_PLAN = Plan.from_dict(tomllib.loads(MIXED))
NOISE = {(e.query, e.level, e.measure): s for e, s in MIXED_PLAN.calibrated()}
ERRORS = {error.name: error for error in errors(MIXED_PLAN)}


@given(st.floats(-20, 100), st.sampled_from([1000, 10_000]))
@settings(max_examples=60)
def test_a_published_mean_states_no_more_than_was_told(value, rows):
    fields = {n: (error, half) for n, error, half in ERRORS["mean age.all"].by_rows}[rows]
    noise = {part: NOISE["mean age", "all", part] for part in ("offset", "count")}
    offset = np.array([round((value - 40) * rows)])
    count = np.array([rows])
    product = mean((-20, 100), (offset, noise["offset"]), (count, noise["count"]))
    assert product.standard_error[0] <= fields[0] * (1 + 1e-9)
    assert max(product.upper[0] - value, value - product.lower[0]) <= fields[1] * (1 + 1e-9) + 1e-3
    if value == 100:
        assert product.standard_error[0] == pytest.approx(fields[0])


@given(st.lists(st.integers(0, 50_000), min_size=2, max_size=2), st.floats(0, 1))
@settings(max_examples=60)
def test_a_published_variance_states_no_more_than_was_told(values, part):
    rows = 10_000
    fields = {n: error for n, error, _ in ERRORS["spread.all"].by_rows}[rows]
    noise = {name: NOISE["spread", "all", name] for name in ("offset", "square", "count")}
    some = round(part * rows)
    c = center((0, 50_000))
    offset = some * values[0] + (rows - some) * values[1] - 25_000 * rows
    square = some * (values[0] - c) ** 2 + (rows - some) * (values[1] - c) ** 2
    product = variance(
        (0, 50_000), (np.array([offset]), noise["offset"]), (np.array([square]), noise["square"]),
        (np.array([rows]), noise["count"]),
    )  # fmt: skip
    assert product.standard_error[0] / 10**4 <= fields * (1 + 1e-9)


def test_each_measure_has_an_estimate_and_a_noun_in_a_report():
    assert {*MEASURES.values()} <= {*ESTIMATES}
    assert {*MEASURES.values()} == {*NOUNS}
