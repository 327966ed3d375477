"""Distances and sensitivities by enumeration, and propose-test-release against all distances."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction as F
from functools import cache
from statistics import NormalDist

import mpmath as mp
import numpy as np
import pytest

import neyman as ny
from seeded import Seeded

SIZES = [(1, 4), (2, 4), (3, 4), (4, 3), (5, 3)]  # rows, points of the grid


def rank(q, n):
    """The place of the q-quantile among n sorted rows."""
    return max(math.ceil(q * n) - 1, 0)


def quantile(q):
    return lambda x: sorted(x)[rank(q, len(x))]


def quartile_range(x):
    return quantile(F(3, 4))(x) - quantile(F(1, 4))(x)


def variance(x):
    n = len(x)
    return F(n * sum(v * v for v in x) - sum(x) ** 2, n * n)


STATISTICS = {
    "median": quantile(F(1, 2)),
    "quartile": quantile(F(1, 4)),
    "largest": quantile(F(1)),
    "range": quartile_range,
    "variance": variance,
}


@cache
def local(name, n, points):
    """Each dataset with its local sensitivity, by trying every replacement."""
    f, tables = STATISTICS[name], list(itertools.product(range(points), repeat=n))
    value = {x: f(x) for x in tables}
    return {
        x: max(
            abs(value[x] - value[(*x[:i], y, *x[i + 1 :])]) for i in range(n) for y in range(points)
        )
        for x in tables
    }


def away(x, y):
    return sum(a != b for a, b in zip(x, y, strict=True))


@cache
def after_changes(name, n, points):
    """The largest local sensitivity within k changes of each dataset, by its definition."""
    table = local(name, n, points)
    answers = {}
    for x in table:
        if tuple(sorted(x)) != x:  # order does not matter
            continue
        at = [F(0)] * (n + 1)
        for y, moved in table.items():
            at[away(x, y)] = max(at[away(x, y)], moved)
        answers[x] = list(itertools.accumulate(at, max))
    return answers


@pytest.mark.parametrize(("n", "points"), SIZES)
@pytest.mark.parametrize("name", ["median", "quartile", "largest", "range"])
def test_the_distance_is_that_of_the_nearest_unstable_dataset(name, n, points):
    if name == "range" and n == 1:
        return
    ask = {
        "median": ny.distance_to_instability.median,
        "quartile": lambda x, **k: ny.distance_to_instability.quantile(x, "1/4", **k),
        "largest": lambda x, **k: ny.distance_to_instability.quantile(x, 1, **k),
        "range": ny.distance_to_instability.interquartile_range,
    }[name]
    table = local(name, n, points)
    for bound in (F(0), F(1), F(3, 2), F(points) - F(4, 3)):
        unstable = [y for y, moved in table.items() if moved > bound]
        for x in after_changes(name, n, points):
            result = ask(x, bound=bound, lower=0, upper=points - 1)
            assert result.distance == min(away(x, y) for y in unstable)
            assert result.value == STATISTICS[name](x) == result.steps


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_the_distance_of_the_mode_is_the_least_number_of_changes_to_an_unstable_table(relation):
    keys, most = "abc", 9

    def neighbors(counts):
        for i in range(4):
            if relation == "add-remove":
                yield (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            if counts[i]:
                fewer = (*counts[:i], counts[i] - 1, *counts[i + 1 :])
                if relation == "add-remove":
                    yield fewer
                else:
                    for j in range(4):
                        yield (*fewer[:j], fewer[j] + 1, *fewer[j + 1 :])

    def mode(counts):
        return max(range(3), key=lambda i: (counts[i], -i))

    tables = [c for c in itertools.product(range(6), repeat=4) if 0 < sum(c) <= 5 and c[3] < 2]
    for start in tables:
        reached, border, distance = {start}, [start], 0
        while all(mode(c) == mode(d) for c in border for d in neighbors(c)):
            border = list({d for c in border for d in neighbors(c)} - reached)
            reached |= set(border)
            distance += 1
            assert distance < most
        values = [key for key, n in zip("abcx", start, strict=True) for _ in range(n)]
        result = ny.distance_to_instability.mode(values, keys=keys, neighboring=relation)
        assert (result.distance, result.value) == (distance, keys[mode(start)])


@pytest.mark.parametrize("beta", [F(1, 1000), F(1, 10), F(3, 10), F(1), F(5)])
@pytest.mark.parametrize("name", ["median", "quartile", "largest", "variance"])
@pytest.mark.parametrize(("n", "points"), SIZES[1:])
def test_smooth_sensitivity_is_its_definition_and_smooth_between_all_neighbors(
    name, beta, n, points
):
    ask = {
        "median": ny.smooth_sensitivity.median,
        "quartile": lambda x, **k: ny.smooth_sensitivity.quantile(x, "1/4", **k),
        "largest": lambda x, **k: ny.smooth_sensitivity.quantile(x, 1, **k),
        "variance": ny.smooth_sensitivity.variance,
    }[name]
    sizes = {}
    for x, at in after_changes(name, n, points).items():
        result = ask(x, lower=0, upper=points - 1, smoothness=beta)
        right = max(math.exp(-beta * k) * a for k, a in enumerate(at))
        assert result.bound.lower <= right * (1 + 1e-14)
        assert result.bound.upper >= right * (1 - 1e-14)
        assert result.bound.width <= 1e-15 * right
        assert result.local == at[result.changes]
        assert result.value == STATISTICS[name](x)
        sizes[x] = result.bound
    for x, size in sizes.items():
        assert size.upper >= local(name, n, points)[x]
        for i, y in itertools.product(range(n), range(points)):
            other = sizes[tuple(sorted((*x[:i], y, *x[i + 1 :])))]
            assert size.lower <= math.exp(beta) * other.upper * (1 + 1e-14)


def test_the_smooth_sensitivity_of_101_normal_quantiles_is_the_published_check():
    rows = [NormalDist().inv_cdf((i + 0.5) / 101) for i in range(101)]
    expected = {
        "0.05": 0.82084999,
        "0.1": 0.1019616464179341,
        "0.2": 0.0559013325,
        "0.5": 0.0301182521,
    }
    for beta, size in expected.items():
        result = ny.smooth_sensitivity.median(
            rows, lower=-10, upper=10, step=F(1, 10**12), smoothness=beta
        )
        assert abs(float(result) - size) < 1e-8


def test_the_search_skips_blocks_and_still_returns_the_largest_term():
    draw = np.random.default_rng(5)
    for _ in range(200):
        rows = np.sort(draw.integers(0, 50, 40) * draw.integers(0, 2, 40)).tolist()
        padded = [0] * 41 + rows + [50] * 41
        beta = F(int(draw.integers(1, 60)), 100)
        terms = [
            math.exp(-beta * k) * max(padded[60 + j] - padded[59 + j - k] for j in range(k + 2))
            for k in range(41)
        ]
        result = ny.smooth_sensitivity.median(rows, lower=0, upper=50, smoothness=beta)
        assert math.isclose(float(result), max(terms), rel_tol=1e-12)


def test_values_are_rounded_and_clipped_one_by_one_and_never_raise():
    strange = ["x", None, math.nan, math.inf, -math.inf, 10**400, -(10**400), 2.4, F(13, 2), [1]]
    result = ny.distance_to_instability.quantile(strange, 1, bound=1, lower=0, upper=9)
    assert result.value == 9
    rows = [0, 0, 0, 9, 0, 9, 0, 2, 6, 0]
    again = ny.distance_to_instability.quantile(rows, 1, bound=1, lower=0, upper=9)
    assert result == again
    assert ny.distance_to_instability.mode([[1], "a", "a"], keys="ab").value == "a"


EPSILONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


def laplace_profile(e, epsilon):
    """The hockey-stick divergence of a Laplace pair at any real order."""
    if abs(e) >= epsilon:
        return max(mp.mpf(0), 1 - mp.exp(e)) if e <= 0 else mp.mpf(0)
    return 1 - mp.exp((e - epsilon) / 2)


def discrete_profile(e, scale, shift):
    """That of a discrete Laplace pair, by summing its masses."""
    r = math.exp(-1 / scale)
    mass = (1 - r) / (1 + r) * r ** np.abs(np.arange(-150, 151))
    p, q = np.append(np.zeros(shift), mass), np.append(mass, np.zeros(shift))
    return np.maximum(p - math.exp(e) * q, 0).sum()


def laplace_pass(distance, threshold, scale):
    short = mp.mpf(threshold) - distance
    rare = mp.exp(-abs(short) / scale) / 2
    return rare if short >= 0 else 1 - rare


def discrete_pass(distance, threshold, scale):
    r, short = mp.exp(-1 / mp.mpf(scale)), threshold - distance
    return r ** (short + 1) / (1 + r) if short >= 0 else 1 - r**-short / (1 + r)


def worst(e, profile, passing, last):
    """The largest delta over all pairs of distances up to ``last``, and of unstable data."""
    answers = [passing(0), profile(e)]
    for i, j in [(i + a, i + 1 - a) for i in range(last) for a in (0, 1)]:
        if i + j:
            p, q = passing(i), passing(j)
            alone = max(mp.mpf(0), 1 - p - mp.exp(e) * (1 - q))
            answers.append(p * profile(e - mp.log(p / q)) + alone)
    return max(answers)


@pytest.mark.parametrize(("test_scale", "delta"), [(2, 1e-6), (0.7, 0.01), (F(5, 3), 0.2)])
def test_the_curve_is_the_worst_of_all_pairs_of_distances(test_scale, delta):
    mp.mp.dps = 20
    mechanism = ny.ProposeTestRelease(ny.Laplace(test_scale), ny.Laplace(2), delta)
    f, t = mechanism.tradeoff(), mechanism.threshold
    exact = F(str(test_scale))
    scale = mp.mpf(exact.numerator) / exact.denominator
    assert abs(laplace_pass(0, t, scale) - delta) < 1e-12 * delta
    last = int(t) + 12
    for e in EPSILONS:
        right = worst(
            e, lambda x: laplace_profile(x, 0.5), lambda i: laplace_pass(i, t, scale), last
        )
        bound = f.delta(e)
        assert bound.lower - 1e-15 <= right <= bound.upper + 1e-15
        assert bound.width < 1e-6
    mechanism = ny.ProposeTestRelease(
        ny.DiscreteLaplace(test_scale), ny.DiscreteLaplace(4, sensitivity=2), delta
    )
    f, t = mechanism.tradeoff(), mechanism.threshold
    assert discrete_pass(0, t, scale) <= delta
    assert t == 0 or discrete_pass(0, t - 1, scale) > delta
    table = {}

    def profile(x):
        return table.setdefault(x, discrete_profile(x, 4, 2))

    for e in EPSILONS[::2]:
        right = worst(e, profile, lambda i: discrete_pass(i, t, scale), t + 8)
        bound = f.delta(e)
        assert bound.lower - 1e-8 <= right <= bound.upper + 1e-8  # the sum is cut at 150
        assert bound.width < 1e-12


def test_the_published_check_values():
    mechanism = ny.ProposeTestRelease(test=ny.Laplace(2), release=ny.Laplace(2), delta=1e-6)
    f = mechanism.tradeoff()
    assert abs(mechanism.threshold - 26.2447) < 1e-4
    assert abs(float(f.delta(0)) - 0.237299008) < 1e-7
    assert abs(float(f.delta(1)) - 1e-6) < 1e-15
    assert f >= ny.approximate(1, 1.0000001e-6)
    assert float(f.advantage()) < float(ny.approximate(1, 1e-6).advantage())
    assert f.pure().lower == math.inf


def test_no_pair_of_datasets_is_above_the_curve():
    """Exact laws of a whole mechanism: the median of seven values on a grid of four points.

    All tables and all their neighbors: distance, test, and noise of the value together.
    """
    grid, bound = range(4), 1
    mechanism = ny.ProposeTestRelease(
        ny.DiscreteLaplace(F(1, 2)), ny.DiscreteLaplace(1, sensitivity=bound), 0.05
    )
    f, t = mechanism.tradeoff(), mechanism.threshold
    r = math.exp(-1)
    outcomes = np.arange(-25, 29)

    def law(table):
        place = ny.distance_to_instability.median(table, bound=bound, lower=0, upper=3)
        p = float(discrete_pass(place.distance, t, 0.5))
        noise = (1 - r) / (1 + r) * r ** np.abs(outcomes - place.steps)
        return np.append(p * noise, 1 - p)

    laws = {x: law(x) for x in itertools.combinations_with_replacement(grid, 7)}
    claimed = {e: f.delta(e).upper for e in (0.0, 0.5, 1.5, 3.0)}
    tightest = 0.0
    for x in laws:
        for i, y in itertools.product(range(7), grid):
            other = laws[tuple(sorted((*x[:i], y, *x[i + 1 :])))]
            for e, most in claimed.items():
                delta = np.maximum(laws[x] - math.exp(e) * other, 0).sum()
                assert delta <= most + 1e-10
                tightest = max(tightest, delta / most)
    assert tightest > 0.5


def test_an_exact_release_costs_the_test_and_the_leak_alone():
    f = ny.ProposeTestRelease(ny.DiscreteLaplace(2), None, 1e-6).tradeoff()
    for e in (0.0, 0.2, 0.4):
        right = (math.exp(0.5) - math.exp(e)) / (1 + math.exp(0.5))
        assert abs(float(f.delta(e)) - right) < 1e-12
    assert float(f.delta(0.5)) <= 1e-6


@pytest.mark.parametrize("delta", [0.01, 0.02, 0.05, 0.1])
def test_an_exact_release_with_laplace_noise_is_as_bad_as_its_worst_distances(delta):
    mp.mp.dps = 20
    mechanism = ny.ProposeTestRelease(ny.Laplace(F(7, 10)), None, delta)
    f, t, scale = mechanism.tradeoff(), mechanism.threshold, mp.mpf("0.7")
    for e in (0.0, 0.5, 1.0, 1.3, 1.42):
        right = worst(
            e,
            lambda x: max(mp.mpf(0), 1 - mp.exp(x)),
            lambda i: laplace_pass(i, t, scale),
            int(t) + 5,
        )
        assert f.delta(e).lower - 1e-14 <= right <= f.delta(e).upper + 1e-14


def test_it_composes_and_joins_with_others():
    one = ny.ProposeTestRelease(ny.DiscreteLaplace(2), ny.DiscreteLaplace(2), 1e-6)
    both = (one * 10 + ny.Gaussian(5)).tradeoff()
    assert float(both.delta(30)) <= 1e-5
    assert float(both.epsilon(1e-4)) < 10.5
    answer = ny.ProposeTestRelease(ny.Laplace(1), ny.RandomizedResponse(1), 1e-6)
    assert answer.neighboring == "replace-one"


def test_draws_follow_the_law():
    """2,000 draws at each of three distances: a false alarm of 1e-7 each, by Hoeffding."""
    mechanism = ny.ProposeTestRelease(ny.DiscreteLaplace(2), ny.DiscreteLaplace(1), 0.01)
    t, bits, size = mechanism.threshold, Seeded(3), 2000
    for distance in (t - 1, t, t + 2):
        answers = Counter(mechanism.draw(distance, 50, bits=bits) for _ in range(size))
        passes = size - answers[None]
        expected = float(discrete_pass(distance, t, 2))
        assert abs(passes / size - expected) < math.sqrt(math.log(2e7) / (2 * size))
        r = math.exp(-1)
        exact = expected * (1 - r) / (1 + r)
        assert abs(answers[50] / size - exact) < math.sqrt(math.log(2e7) / (2 * size))
    stable = ny.ProposeTestRelease(ny.DiscreteLaplace(1), None, 1e-6)
    assert stable.draw(10**20, "blue") == "blue"
    assert ny.ProposeTestRelease(ny.DiscreteLaplace(1), None, 1e-30).draw(0, "blue") is None


def test_a_statistic_on_the_largest_grid_is_released_as_it_is():
    mechanism = ny.ProposeTestRelease(ny.DiscreteLaplace(1), ny.DiscreteLaplace(1), delta=1e-6)
    assert abs(mechanism.draw(10**9, 2**52) - 2**52) < 1000  # else by chance e^-1000
