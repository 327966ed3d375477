"""Binomial probabilities in logarithms: within their stated errors of 40-digit values."""

import mpmath as mp
import numpy as np
import pytest

from neyman.numerics.atoms import UNIT
from neyman.numerics.binomial import log_binomial, log_half


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
