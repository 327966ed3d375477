"""The numbers of the issues' "Check yourself", each against what the library says of it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import neyman as ny
from neyman.curves import garbling
from reproductions import composition_bounds as bounds


def test_renyi_divergence_of_order_two_of_the_unit_gaussian():
    """D_2 of G_1 is 1."""
    divergence = ny.gdp(1).renyi(order=2)
    assert divergence.lower <= 1 <= divergence.upper
    assert divergence.width < 1e-12


def test_total_variation_of_the_unit_gaussian():
    """.38292492254802624, as certified ends and as the largest power minus level."""
    f = ny.gdp(1)
    advantage = f.advantage()
    assert advantage.lower <= 0.38292492254802624 <= advantage.upper
    assert advantage.width < 1e-12
    level = 0.5 * math.erfc(0.5 / math.sqrt(2))  # of the test with threshold 1/2
    assert float(f.power(level)) - level == pytest.approx(0.38292492254802624, abs=1e-12)


def response(epsilon):
    """Randomized response as two distributions of the same two outcomes."""
    share = 1 / (1 + math.exp(-epsilon))
    return [share, 1 - share], [1 - share, share]


def test_response_of_one_is_garbled_into_response_of_a_half():
    """By the channel (.7650, .2350), which certainly exists and does what it says."""
    (p, q), (p2, q2) = response(1), response(0.5)
    result = garbling(p, q, p2, q2)
    assert result.channel == pytest.approx(np.array([[0.7650, 0.2350], [0.2350, 0.7650]]), abs=5e-5)
    assert np.array(p) @ result.channel == pytest.approx(np.array(p2), abs=1e-12)
    assert np.array(q) @ result.channel == pytest.approx(np.array(q2), abs=1e-12)
    assert garbling(p2, q2, p, q).test is not None  # and not the other way


def test_the_smallest_gaussian_that_can_be_garbled_into_response_of_one():
    """mu = 1.2320354: certified from there on, and refuted just below."""
    f = ny.RandomizedResponse(1).tradeoff()
    assert float(f.gdp()) == pytest.approx(1.2320354, abs=5e-8)
    assert f >= ny.gdp(1.2320355)
    assert not f >= ny.gdp(1.2320353)
    assert ny.compare(f, ny.gdp(1.2320353)) == "incomparable"


def test_optimal_composition_of_thirty():
    """30 times epsilon .1 at delta 1e-6 is 2.34589: by theorem, by curves and by lattice."""
    each = bounds.optimal(Fraction(1, 10), 0, 30, 1e-6)
    curves = (ny.pure(0.1) ** 30).epsilon(1e-6)
    answers = (ny.RandomizedResponse(0.1) * 30).tradeoff().epsilon(1e-6)
    for result in (each, curves, answers):
        assert result.lower <= result.upper
        assert float(result) == pytest.approx(2.34589, abs=5e-6)


def test_canonical_noise_of_pure_one():
    """c = .268941, F(-1) = .183940, variance 1.9247: discrete Laplace noise plus a uniform one."""
    noise = ny.CanonicalNoise(ny.pure(1))
    assert float(ny.pure(1)(0.268941)) == pytest.approx(0.268941, abs=2e-6)  # c = f(c)
    assert noise.cdf(-0.5) == pytest.approx(0.268941, abs=5e-7)
    assert noise.cdf(-1) == pytest.approx(0.183940, abs=5e-7)
    variance = noise.variance()
    assert variance.lower <= variance.upper
    assert float(variance) == pytest.approx(1.9247, abs=5e-5)
    b = math.exp(-1)  # discrete Laplace of ratio b plus a uniform: 2 b / (1 - b)^2 + 1 / 12
    assert float(variance) == pytest.approx(2 * b / (1 - b) ** 2 + 1 / 12, abs=1e-9)


@pytest.mark.parametrize(("mu", "apart"), [(1, 0.0030), (2, 0.021), (3, 0.057)])
def test_canonical_noise_of_gdp_is_not_normal(mu, apart):
    """The distribution functions differ by .0030, .021 and .057."""
    noise = ny.CanonicalNoise(ny.gdp(mu))
    x = np.linspace(-4, 0, 4001)
    normal = np.array([0.5 * math.erfc(-mu * v / math.sqrt(2)) for v in x])
    assert np.abs(noise.cdf(x) - normal).max() == pytest.approx(apart, rel=0.03)


def test_bare_concentrated_guarantees_compose_in_their_own_currency():
    """100 times zcdp(.01) is epsilon 7.77 at 1e-6; as curves it would be 9.22."""
    epsilon = (ny.zcdp(0.01) ** 100).epsilon(1e-6)
    assert float(epsilon) == pytest.approx(float(ny.zcdp(1).epsilon(1e-6)), rel=1e-9)
    assert float(epsilon) == pytest.approx(7.77, abs=5e-3)
