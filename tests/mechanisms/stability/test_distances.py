"""Distances and sensitivities against enumeration of every small dataset."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as F
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

import neyman as ny

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
