"""Channels and the tests against them, verified in fractions and against a linear programme."""

import math
import random
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import linprog

import neyman as ny
from neyman import between
from neyman.curves import garbling


def response(epsilon):
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    return [p, 1 - p], [1 - p, p]


def through(masses, rows):
    return [
        sum(m * row[j] for m, row in zip(masses, rows, strict=True)) for j in range(len(rows[0]))
    ]


def masses(rng, size, grain):
    weights = [rng.randint(0, grain) for _ in range(size)]
    weights[rng.randrange(size)] += 1
    return [F(w, sum(weights)) for w in weights]


def dominated(p, q, p2, q2):
    """Every hockey-stick divergence of (p2, q2) is at most that of (p, q)."""
    ratios = {a / b for a, b in (*zip(p, q, strict=True), *zip(p2, q2, strict=True)) if b}

    def stick(a, b, t):
        return sum(max(x - t * y, 0) for x, y in zip(a, b, strict=True))

    return all(stick(p2, q2, t) <= stick(p, q, t) for t in ratios)


def programme(p, q, p2, q2):
    n, m = len(p), len(p2)
    rows = np.zeros((n + 2 * m, n * m + 4 * m))
    rows[:n, : n * m] = np.kron(np.eye(n), np.ones(m))
    rows[n : n + m, : n * m] = np.kron(np.array(p, float), np.eye(m))
    rows[n + m :, : n * m] = np.kron(np.array(q, float), np.eye(m))
    rows[n:, n * m :] = np.kron(np.eye(2 * m), [1, -1])
    right = np.array([*[1.0] * n, *p2, *q2], float)
    result = linprog(np.r_[np.zeros(n * m), np.ones(4 * m)], A_eq=rows, b_eq=right, method="highs")
    assert result.status == 0
    return result.fun


def test_randomized_response_is_made_into_a_more_private_one_by_the_known_channel():
    g = garbling(*response(1), *response(0.5))
    assert g.exists is True
    assert g.test is None
    np.testing.assert_allclose(g.channel, [[0.7650, 0.2350], [0.2350, 0.7650]], atol=5e-5)
    assert g.error < 1e-15


def test_the_other_way_there_is_none_and_a_test_proves_it():
    g = garbling(*response(0.5), *response(1))
    assert g.exists is False
    assert g.channel is None
    assert g.error == math.inf
    assert float(g.test.power) == pytest.approx(0.7310586)
    assert float(g.test.level) == pytest.approx(0.2689414)
    assert g.test.matched < g.test.power


def makes(g, p, q, p2, q2):
    """Whether the exact channel is one, and makes the second pair of the first."""
    rows = all(sum(row) == 1 and min(row) >= 0 for row in g.exact)
    return g.exists is True and rows and through(p, g.exact) == p2 and through(q, g.exact) == q2


def test_every_pair_that_a_channel_made_is_found_to_be_made_by_one():
    rng = random.Random(1)
    for _ in range(600):
        n, m = rng.randint(1, 7), rng.randint(1, 7)
        p, q = masses(rng, n, 9), masses(rng, n, 9)
        rows = [masses(rng, m, 9) for _ in range(n)]
        p2, q2 = through(p, rows), through(q, rows)
        g = garbling(p, q, p2, q2)
        assert makes(g, p, q, p2, q2)
        assert g.channel.shape == (n, m)
        assert g.error <= 1e-15


def test_the_verdict_is_that_of_the_hockey_sticks_and_a_test_is_what_it_says():
    rng, visited = random.Random(2), set()
    for k in range(600):
        n, m = rng.randint(1, 5), rng.randint(1, 5)
        p, q, p2, q2 = (masses(rng, k, 4) for k in (n, n, m, m))
        g = garbling(p, q, p2, q2)
        assert g.exists is dominated(p, q, p2, q2)
        if k % 10 == 0:
            assert g.exists is (programme(p, q, p2, q2) < 1e-9)
        visited.add(g.exists)
        if g.exists:
            assert makes(g, p, q, p2, q2)
            continue
        test = g.test
        assert sum(w * x for w, x in zip(test.weights, p2, strict=True)) == test.power
        assert sum(w * x for w, x in zip(test.weights, q2, strict=True)) == test.level
        assert test.power > test.matched == most_power(p, q, test.level)
    assert visited == {True, False}


def most_power(p, q, level):
    """By duality: the least over all ratios t of t level + the hockey stick at t, in fractions."""
    if level == 0:
        return sum(a for a, b in zip(p, q, strict=True) if not b)
    return min(
        t * level + sum(max(a - t * b, 0) for a, b in zip(p, q, strict=True))
        for t in {a / b for a, b in zip(p, q, strict=True) if b} | {F(0)}
    )


def test_the_smallest_gaussian_that_can_be_made_into_randomized_response():
    def exact(x):
        return F(int(x * 10**30), 10**30)

    truth = exact(mp.e / (1 + mp.e))
    for mu, exists in (("1.2320353", False), ("1.2320355", True)):
        edges = [k * mp.mpf(mu) / 2 for k in range(-5, 8)]  # cells, with one edge in the middle
        q = [exact(mp.ncdf(x)) for x in edges]
        p = [exact(mp.ncdf(x - mp.mpf(mu))) for x in edges]
        p, q = ([b - a for a, b in zip([0, *x], [*x, 1], strict=True)] for x in (p, q))
        assert garbling(p, q, [truth, 1 - truth], [1 - truth, truth]).exists is exists
        verdict = ny.compare(ny.gdp(float(mu)), ny.pure(1))
        assert verdict == ("at-most" if exists else "incomparable")
    assert ny.pure(1).gdp().upper == pytest.approx(1.2320354, abs=5e-8)


def test_garblings_compose():
    rng = random.Random(4)
    for _ in range(100):
        p, q = masses(rng, 5, 9), masses(rng, 5, 9)
        first, second = ([masses(rng, k, 9) for _ in range(n)] for n, k in ((5, 4), (4, 3)))
        p2, q2 = through(p, first), through(q, first)
        p3, q3 = through(p2, second), through(q2, second)
        total = garbling(p, q, p2, q2) @ garbling(p2, q2, p3, q3)
        assert total.exists is True
        assert through(p, total.exact) == p3
        assert through(q, total.exact) == q3
        assert garbling(p, q, p3, q3).exists is True


def test_what_a_channel_makes_is_at_least_as_private():
    p, q = ["0.6", "0.3", "0.1"], ["0.1", "0.4", "0.5"]
    rows = [[F(4, 5), F(1, 5)], [F(1, 2), F(1, 2)], [F(1, 10), F(9, 10)]]
    p2, q2 = (through([F(x) for x in side], rows) for side in (p, q))
    assert garbling(p, q, p2, q2).exists
    f, g = between(p2, q2), between(p, q)
    for level in np.linspace(0, 1, 41):
        assert f.power(level).lower <= g.power(level).upper


def test_where_floats_round_the_answer_away_nothing_is_claimed_and_the_error_is_stated():
    rng = random.Random(5)
    visited = set()
    for _ in range(200):
        p, q = response(rng.uniform(0.1, 3))
        cuts = [rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9)]
        p2, q2 = ([x * y for x, c in zip(s, cuts, strict=True) for y in (c, 1 - c)] for s in (p, q))
        g = garbling(p, q, p2, q2)  # the same outcomes in pieces: nothing is to spare
        assert g.exists in (True, None)
        assert g.error < 1e-12
        assert np.abs(np.array(p) @ g.channel - p2).max() < 1e-12
        assert (g.test is None) is (g.exists is True)
        visited.add(g.exists)
    assert None in visited


def test_exact_numbers_are_decided_exactly():
    p, q = [F(2, 3), F(1, 3)], [F(1, 3), F(2, 3)]
    tiny = F(1, 10**30)
    assert garbling(p, q, p, q).exists is True
    assert garbling(p, q, [p[0] - tiny, p[1] + tiny], q).exists is True
    assert garbling(p, q, [p[0] + tiny, p[1] - tiny], q).exists is False


def test_everything_is_made_from_what_reveals_all_and_nothing_but_noise_from_nothing():
    assert garbling([1, 0], [0, 1], *response(3)).exists is True
    assert garbling([1], [1], [F(1, 2), F(1, 2)], [F(1, 2), F(1, 2)]).exists is True
    assert garbling([1], [1], *response(0.01)).exists is False


def test_outcomes_that_never_happen_are_no_matter():
    g = garbling([0, 0.7, 0.3], [0, 0.3, 0.7], [0.6, 0, 0.4], [0.4, 0, 0.6])
    assert g.exists is True
    np.testing.assert_allclose(g.channel.sum(axis=1), 1)
    assert g.channel.shape == (3, 3)
