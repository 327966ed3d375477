"""One report among many that come in random order."""

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from neyman.mechanisms.shuffling.shuffled_profiles import ShufflePair, ShuffleProfile


def clones(users: int, epsilon: float) -> ShuffleProfile:
    """What covers every epsilon-local report."""
    return ShuffleProfile(ShufflePair(users - 1, epsilon))


def response(users: int, epsilon: float, categories: int) -> ShuffleProfile:
    """Randomized response of more than two categories, all others holding a third one."""
    return ShuffleProfile(ShufflePair(users - 1, epsilon, categories))


def enumerated(users, p, own, other, t):
    """delta by all outcomes, in fractions."""
    laws = {}
    for c in range(users):
        w = comb(users - 1, c) * p**c * (1 - p) ** (users - 1 - c)
        for x in range(c + 1):
            mass = w * comb(c, x) / Fraction(2) ** c
            for place, a, b in (
                ((x + 1, c - x), own, other),
                ((x, c - x + 1), other, own),
                ((x, c - x), 1 - own - other, 1 - own - other),
            ):
                first, second = laws.get(place, (0, 0))
                laws[place] = first + a * mass, second + b * mass
    return sum(max(a - t * b, 0) for a, b in laws.values())


@pytest.mark.parametrize("users", [1, 2, 3, 17])
@pytest.mark.parametrize("odds", [Fraction(3, 2), 7, 50])
@pytest.mark.parametrize("categories", [2, 3, 9])
def test_few_users_are_enumerated(users, odds, categories):
    """delta is that of all outcomes counted, for reports of any kind and of k categories."""
    other = Fraction(1, odds + categories - 1)
    product = (clones if categories == 2 else lambda n, e: response(n, e, categories))(
        users, math.log(odds)
    )
    for t in (1, Fraction(11, 10), Fraction(7, 5), 5, 45):
        true = enumerated(users, 2 * other, odds * other, other, t)
        low, high = product.log_delta(math.log(t))
        assert math.exp(low) * (1 - 1e-11) <= true <= math.exp(high) * (1 + 1e-11) + 1e-15
        if true > 1e-12:
            assert high - low < 1e-10


def summed(crowd: ShufflePair, epsilon: float) -> float:
    """delta as a sum of positive terms over both counts, in logarithms."""
    n, p = crowd.others, crowd.rates[0]
    b = 1 / (math.exp(crowd.epsilon) + crowd.categories - 1)
    a = math.exp(crowd.epsilon) * b
    t, total = math.exp(epsilon), 0.0
    c = np.arange(n + 1)
    w = gammaln(n + 1) - gammaln(c + 1) - gammaln(n - c + 1) + c * math.log(p)
    w = np.exp(w + (n - c) * math.log1p(-p))
    for m in range(1, n + 2):
        if w[m - 1] < 1e-60:
            continue
        x = np.arange(m + 1)
        law = np.exp(gammaln(m + 1) - gammaln(x + 1) - gammaln(m - x + 1) - m * math.log(2))
        none = (1 - a - b) * w[m] if m <= n else 0.0
        first = 2 * w[m - 1] * (a * x + b * (m - x)) / m + none
        second = 2 * w[m - 1] * (b * x + a * (m - x)) / m + none
        total += float((law * np.maximum(first - t * second, 0)).sum())
    return total


@pytest.mark.parametrize(("users", "local"), [(300, 0.5), (1000, 2.0), (3000, 4.0)])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 0.3, 0.45])
def test_more_users_are_summed(users, local, epsilon):
    """delta is the sum over both counts of reports."""
    for product in (clones(users, local), response(users, local, 3)):
        low, high = product.log_delta(epsilon)
        true = summed(product.crowd, epsilon)
        if true > 1e-13:
            assert math.exp(low) <= true * (1 + 1e-9)
            assert true <= math.exp(high) * (1 + 1e-9)
            assert high - low < 1e-9


def test_a_billion_users_are_no_slower_to_trust():
    """At n = 1e9 the interval is narrow, and delta falls with the number of users."""
    results = [clones(n, 4.0).log_delta(1e-3) for n in (10**7, 10**8, 10**9)]
    assert all(high - low < 1e-8 for low, high in results)
    assert results[0][0] > results[1][1] > results[1][0] > results[2][1]


@settings(max_examples=40)
@given(users=st.integers(1, 10**6), local=st.floats(0.01, 20), share=st.floats(0, 1))
def test_a_crowd_only_hides(users, local, share):
    """Shuffling never tells more than the report alone, and three categories tell less than any."""
    epsilon = share * local
    alone = math.log((math.exp(local) - math.exp(epsilon)) / (1 + math.exp(local)) + 1e-300)
    any_, three = clones(users, local), response(users, local, 3)
    assert any_.log_delta(epsilon)[0] <= alone + 1e-9
    assert three.log_delta(epsilon)[0] <= any_.log_delta(epsilon)[1] + 1e-9


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0, 3.0])
def test_far_out_the_bounds_stay_bounds(epsilon):
    """Where deltas leave the floats the interval is wide but holds: n = 10^5 against Stirling."""
    users, local = 10**5, 4.0
    low, high = clones(users, local).log_delta(epsilon)
    # the largest single term, to the first order in its exponent, is below; n of them above
    p, t = 2 / (math.exp(local) + 1), math.exp(epsilon)
    r = (t * math.exp(local) - 1) / ((math.exp(local) - 1) * (1 + t))
    answer = r * math.log(2 * r) + ((1 - r) * math.log(2 * (1 - r)) if r < 1 else 0)
    rate = math.log(1 - p + p * math.exp(-answer))
    assert low <= users * rate + 10
    assert high >= users * rate - 60
    assert low <= high <= 0
