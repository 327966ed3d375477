"""Binomial probabilities in logarithms: within their stated errors of 40-digit values."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import reference as ref
from neyman.numerics import (
    UNIT,
    largest_rate,
    least_rate,
    log_binomial,
    log_half,
    normal_quantile,
    student_quantile,
)


def log_probability(n, p, c):
    with mp.workdps(60):
        ways = mp.loggamma(n + 1) - mp.loggamma(c + 1) - mp.loggamma(n - c + 1)
        return ways + c * mp.log(p) + (n - c) * mp.log(1 - p)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (40, 0.3), (1000, 0.001), (10**6, 0.75)])
def test_a_binomial_probability_is_within_its_stated_error(n, p, repeats):
    """Also where numbers repeat, so that each is computed once."""
    places = np.unique(np.linspace(0, n, min(n + 1, 12)).astype(np.int64))
    c = np.repeat(places, repeats).reshape(-1, repeats)
    value, error = log_binomial(n, p, 1 - p, c, 0.0)
    assert value.shape == error.shape == c.shape
    for row, place in enumerate(places.tolist()):
        truth = log_probability(n, mp.mpf(p), place)
        assert np.all(np.abs(value[row] - float(truth)) <= error[row] + UNIT * abs(float(truth)))


@pytest.mark.parametrize("counts", [range(2, 60), [3, 300, 900, 10**6, 10**9]])
def test_a_probability_of_fair_coins_is_within_its_stated_error(counts):
    """Few large numbers are computed as they stand, many small ones once each."""
    n = np.array(list(counts))
    j = np.stack([0 * n, n // n, n // 9, n // 4, n // 3, n // 2, n - 1, n], axis=1)
    c = n[:, None] + 0 * j
    value, error = log_half(c, j)
    for at in np.ndindex(c.shape):
        truth = float(log_probability(int(c[at]), mp.mpf("0.5"), int(j[at])))
        assert abs(value[at] - truth) <= error[at] + UNIT * abs(truth)


def log_tail(n, p, k, side):
    """log P(Bin(n, p) <= k) for side 1, of >= k for side -1, by falling terms in mpmath."""
    with mp.workdps(40):
        term = total = mp.exp(log_probability(n, mp.mpf(p), k))
        while 0 <= k - side <= n and term > total * mp.mpf(10) ** -18:
            odds = mp.mpf(p) / (1 - mp.mpf(p))
            term *= mp.mpf(k) / (n - k + 1) / odds if side > 0 else mp.mpf(n - k) / (k + 1) * odds
            total, k = total + term, k - side
        return mp.log(total)


@given(
    st.integers(1, 10**9),
    st.floats(0, 1),
    st.booleans(),
    st.floats(0.3, 300.9),
    st.sampled_from([-1, 1]),
)
@example(150, 114 / 150, False, 295.0, -1)
@example(100, 0.67, False, 299.9, -1)
@example(5788, 5753 / 5788, False, 249.9, -1)
def test_a_limit_of_a_rate_is_checked_by_the_forward_function(n, share, rare, digits, side):
    """Where SciPy's inverse is NaN or far off, too: no chance is above the stated one."""
    k = min(int(share * 60), n) if rare else int(share * n)
    k = min(k, n - 1) if side > 0 else max(k, 1)
    chance = 10**-digits
    limit = float((largest_rate if side > 0 else least_rate)(k, n, chance))
    assert 0 < limit <= 1
    if limit < 1:
        assert log_tail(n, limit, k, side) <= mp.log(chance)
    closer = limit * (1 - side * 1e-6)
    room = 1e-6 if digits < 199 else 30  # below, where SciPy's function underflows, by Chernoff
    assert not 0 < closer < 1 or log_tail(n, closer, k, side) > mp.log(chance) - room


@given(st.floats(-7, 13))
def test_a_normal_quantile_meets_its_log_probability(size):
    """From log 1/2 to -10^13, where SciPy's inverse errs by thousands of units."""
    log_p = -math.log(2) - math.exp(size * math.log(10))
    z = float(normal_quantile(log_p))
    with mp.workdps(60):
        exact = ref.quantile(mp.mpf(log_p))
        assert abs(z - exact) <= 32 * UNIT * (1 + abs(z))


@given(st.floats(0.01, 1000), st.floats(1e-3, 1e6))
def test_a_quantile_of_student_has_at_most_its_tail_and_is_about_the_least(degrees, x):
    with mp.workdps(40):

        def tail(x):
            d = mp.mpf(degrees)
            return mp.betainc(d / 2, 0.5, 0, d / (d + mp.mpf(x) ** 2), regularized=True) / 2

        chance = float(tail(x))
        assume(chance > 1e-300)
        quantile = student_quantile(degrees, chance)
        assert tail(quantile) <= chance < tail(quantile * (1 - 1e-6))
