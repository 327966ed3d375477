"""Limits and expansions: cumulants against forty digits, and how far the estimates are off."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.signal import fftconvolve

import neyman as ny
from neyman.accounting import approximations as limits

mpmath.mp.dps = 30


def by_recursion(moments):
    """Cumulants from raw moments m_1, m_2, ..."""
    m, k = [mpmath.mpf(1), *moments], [mpmath.mpf(0)]
    for n in range(1, len(m)):
        rest = (mpmath.binomial(n - 1, j - 1) * k[j] * m[n - j] for j in range(1, n))
        k.append(m[n] - mpmath.fsum(rest))
    return k[1:]


def response_cumulants(epsilon):
    e = mpmath.mpf(epsilon)
    p = mpmath.e**e / (1 + mpmath.e**e)
    return by_recursion([p * e**j + (1 - p) * (-e) ** j for j in range(1, 6)])


def laplace_cumulants(epsilon):
    e = mpmath.mpf(epsilon)

    def moment(j):
        inner = mpmath.quad(lambda x: x**j * mpmath.exp((x - e) / 2) / 4, [-e, e])
        return e**j / 2 + mpmath.exp(-e) * (-e) ** j / 2 + inner

    return by_recursion([moment(j) for j in range(1, 6)])


def sampled_cumulants(sigma, rate, removed):
    """L = log(1 - q + q e^{(2x - 1) / 2s^2}) at x ~ the mixture; its negative at x ~ N(0, s^2)."""
    s, q = mpmath.mpf(sigma), mpmath.mpf(rate)

    def density(x):
        there = mpmath.npdf(x, 0, s)
        return (1 - q) * there + q * mpmath.npdf(x, 1, s) if removed else there

    def loss(x):
        value = mpmath.log(1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s)))
        return value if removed else -value

    ends = [s * k for k in range(-14, 18, 2)]
    return by_recursion(
        [mpmath.quad(lambda x, j=j: loss(x) ** j * density(x), ends) for j in range(1, 6)]
    )


def cumulants(mechanism, order=0):
    """Of the losses of one order, from the corrections of their expansion."""
    total = limits.edgeworth(mechanism, 3).pairs[0][order]
    s, terms = total.deviation, dict(total.terms)
    higher = [terms.get(n, 0) * f * s**n for n, f in ((3, 6), (4, 24), (5, 120))]
    return total.mean, s**2, *higher


def close(result, wanted, tolerance):
    """Each cumulant within a tolerance of the deviation to its power, or of itself."""
    s = mpmath.sqrt(wanted[1])
    for j, (a, b) in enumerate(zip(result, wanted, strict=True), 1):
        assert abs(a - b) <= tolerance * max(s**j, abs(b)), j


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "3"])
def test_cumulants_of_responses_and_laplace(epsilon):
    response = cumulants(ny.RandomizedResponse(Fraction(epsilon)))
    close(response, response_cumulants(epsilon), 1e-9)
    laplace = ny.Laplace(1 / Fraction(epsilon))
    close(cumulants(laplace), laplace_cumulants(epsilon), 1e-9)


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.05), (0.5, 0.001)])
def test_cumulants_of_sampled_gaussians(sigma, rate):
    for order, removed in enumerate((True, False)):
        result = cumulants(ny.Gaussian(sigma).subsample(rate=rate), order)
        close(result, sampled_cumulants(sigma, rate, removed), 1e-8)


def test_cumulants_add():
    result = cumulants(ny.Gaussian(2) * 4 + ny.RandomizedResponse(0.5) * 7)
    wanted = [7 * k for k in response_cumulants("0.5")]
    wanted[0] += mpmath.mpf(1) / 2
    wanted[1] += 1
    close(result, wanted, 1e-12)
    assert cumulants(ny.perfect()) == (0.0,) * 5


def test_the_limit_in_its_symmetric_form():
    k = response_cumulants("0.1")
    result = limits.central_limit(ny.RandomizedResponse(0.1) * 50)
    assert result.value == pytest.approx(float(2 * 50 * k[0] / mpmath.sqrt(50 * k[1])), rel=1e-12)
    assert result.order == 0
    assert limits.central_limit(ny.Gaussian(2) * 4).value == pytest.approx(1, rel=1e-14)
    assert limits.central_limit(ny.perfect()).value == 0
    assert limits.central_limit(ny.approximate(0.1, 1e-6) ** 9).value == math.inf


def test_the_limit_of_sampled_gaussians():
    result = limits.sampled_gaussian(2, 0.01, 10_000)
    assert result.value == pytest.approx(math.sqrt(math.expm1(0.25)), rel=1e-14)
    mechanism = ny.Gaussian(2).subsample(rate=0.01) * 10_000
    assert limits.central_limit(mechanism).value == pytest.approx(result.value, rel=3e-3)
    assert limits.sampled_gaussian(0.01, 0.5, 3).value == math.inf
    assert limits.sampled_gaussian(1, 0, 3).value == 0


def test_the_pitfall():
    """Rate .001, sigma .5, 100 steps, delta 1e-5: the limit says .243, the truth is above 2.0996.

    The expansions are no better there: they say 0.
    """
    mechanism = ny.Gaussian(0.5).subsample(rate=0.001) * 100
    said = limits.normal(limits.sampled_gaussian(0.5, 0.001, 100)).epsilon(1e-5)
    assert round(said.value, 3) == 0.243
    assert said.method.startswith("estimate: ")
    assert mechanism.tradeoff().delta(2.0996).lower > 1e-5
    for order in range(4):
        assert limits.edgeworth(mechanism, order).epsilon(1e-5).value < 0.31


def test_every_order_is_exact_for_gaussians():
    curve = ny.gdp(1.5)
    for order in range(4):
        result = limits.edgeworth(ny.Gaussian(2) * 9, order)
        assert result.delta(1).value == pytest.approx(curve.delta(1).upper, abs=1e-13)
        assert result.power(0.05).value == pytest.approx(curve.power(0.05).upper, abs=1e-12)
        assert result.epsilon(1e-3).value == pytest.approx(curve.epsilon(1e-3).upper, abs=1e-8)


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [
        (ny.Laplace(5) * 60, 2.0),
        (ny.Laplace(20) * 2000, 2.0),
        (ny.Gaussian(1).subsample(rate=0.05) * 400, 2.0),
    ],
    ids=["laplace", "many laplace", "sampled"],
)
def test_higher_orders_come_closer(mechanism, epsilon):
    truth = mechanism.tradeoff().delta(epsilon).upper
    off = [abs(limits.edgeworth(mechanism, k).delta(epsilon).value - truth) for k in range(4)]
    assert off[2] < off[0] / 5
    assert off[3] < off[1] / 5


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize(
    "mechanism",
    [
        ny.Laplace(20) * 2000,
        ny.RandomizedResponse(0.1) * 400,
        ny.Gaussian(1).subsample(rate=0.05) * 400,
        ny.Gaussian(1) + ny.Laplace(10) * 40,
        ny.approximate(0.1, 1e-4) ** 100,
    ],
    ids=["laplace", "response", "sampled", "mixed", "failing"],
)
def test_the_band_holds_the_truth(mechanism, order):
    curve, result = mechanism.tradeoff(), limits.edgeworth(mechanism, order)
    for epsilon in (0.0, 0.1, 0.5):
        said, truth = result.delta(epsilon), curve.delta(epsilon)
        assert said.within is not None
        assert said.within < 1
        assert said.value - said.within <= truth.upper
        assert truth.lower <= said.value + said.within
    for level in (0.01, 0.1, 0.5):
        said, truth = result.power(level), curve.power(level)
        assert said.within is not None
        assert said.value - said.within <= truth.upper + 1e-12
        assert truth.lower <= said.value + said.within + 1e-12


@pytest.mark.parametrize("order", range(4))
def test_the_band_holds_for_the_whole_law(order):
    n, e = 100, mpmath.mpf("0.1")
    p = mpmath.e**e / (1 + mpmath.e**e)
    pairs = limits.edgeworth(ny.RandomizedResponse(0.1) * n, order).pairs
    total, band = pairs[0][0], pairs[0][0].band
    below, largest = mpmath.mpf(0), 0.0
    for k in range(n + 1):
        at = float((2 * k - n) * e)
        mass = mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k)
        near = total.below(at)
        largest = max(largest, float(abs(below - near)), float(abs(below + mass - near)))
        below += mass
    assert band is not None
    assert 0.03 < largest <= band < 0.08


@pytest.mark.parametrize(("order", "most"), [(0, 0.15), (1, 0.1), (2, 0.05), (3, 0.05)])
def test_the_band_holds_the_law_of_few_releases(order, most):
    count, cells, epsilon = 8, 4000, 0.8
    width = 2 * epsilon / cells
    middle = -epsilon + width * (np.arange(cells) + 0.5)
    law = np.zeros(cells + 1)
    density = np.exp((middle - epsilon) / 2) / 4 * width  # a cell's mass goes to its two ends
    law[:-1] += density / 2
    law[1:] += density / 2
    law[0] += math.exp(-epsilon) / 2
    law[-1] += 0.5
    total = law
    for _ in range(count - 1):
        total = fftconvolve(total, law)
    run = np.cumsum(total)
    result = limits.edgeworth(ny.Laplace(1 / Fraction("0.8")) * count, order).pairs[0][0]
    places = -count * epsilon + width * np.arange(len(total))
    off = max(abs(run[k] - result.below(places[k] + width / 2)) for k in range(0, len(run), 40))
    assert result.band is not None
    assert 0.002 < off <= result.band + 1e-4 < most + 0.2


def test_the_band_of_many_releases_is_narrow():
    bands = [limits.edgeworth(ny.Laplace(20) * 1000, k).pairs[0][0].band for k in range(4)]
    assert bands == pytest.approx([1.2323e-4, 5.5922e-5, 1.5565e-6, 1.5111e-6], rel=1e-4)


def test_the_kernel_of_the_smoothing_inequality():
    u = np.linspace(1e-5, 1, 200_001)[:-1]
    real, odd = 1 - u, (1 - u) / np.tan(np.pi * u) + 1 / np.pi
    assert (np.pi * u * np.hypot(real, odd)).max() <= 1.0253
    nodes, weights = np.polynomial.legendre.leggauss(200)
    v, w = (nodes + 1) / 2, weights / 2
    x = 0.025 * (np.arange(-800, 800) + 0.5)
    turn = 2 * np.pi * x[:, None] * v
    odd = (1 - v) / np.tan(np.pi * v) + 1 / np.pi
    above = 0.5 + ((1 - v) * np.cos(turn) + odd * np.sin(turn)) @ w
    step = (x >= 0).astype(float)
    assert (above - step).min() >= -1e-12
    assert (above - step).sum() * 0.025 == pytest.approx(0.5, abs=3e-3)


@pytest.mark.parametrize(
    "mechanism",
    [ny.Laplace(3) * 20, ny.Gaussian(1).subsample(rate=0.05) * 40, ny.DiscreteGaussian(2) * 9],
    ids=["laplace", "sampled", "discrete"],
)
def test_characteristic_functions_die_out_as_is_claimed(mechanism):
    losses = mechanism.tradeoff().alternatives[0]
    edges = np.geomspace(0.5, 500, 41)
    bound = losses.log_decay(0.0, edges, 1e9)
    for share in (0.0, 0.3, 0.7, 1.0):
        u = edges[:-1] ** (1 - share) * edges[1:] ** share
        k = losses.mgf(1j * np.concatenate([[0.0], u]))[0]
        assert (np.real(k[1:] - k[0]) <= bound[:-1] + 1e-6).all()


def test_no_band_is_claimed_between_two_others():
    between = (ny.Laplace(3) + ny.Gaussian(2)).subsample(rate=0.1) * 50
    result = limits.edgeworth(between, 2)
    assert result.delta(1).within is None
    assert result.power(0.05).within is None
    assert result.delta(1).method == "estimate: Edgeworth expansion of order 2"


def test_estimates_have_no_safe_side():
    result = limits.central_limit(ny.Laplace(1) * 9)
    assert not isinstance(result, ny.Bound)
    with pytest.raises(TypeError):
        float(result)  # type: ignore[arg-type]


def test_losses_that_hardly_vary_are_answered():
    result = limits.edgeworth(ny.RandomizedResponse(50), 0)
    assert result.epsilon(1e-3).value == pytest.approx(50, rel=1e-3)
    assert result.delta(1).value == pytest.approx(1)
    assert limits.central_limit(ny.RandomizedResponse(50)).value == math.inf


def test_infinite_losses_count():
    result = limits.edgeworth(ny.approximate(0.1, 1e-4) ** 50, 2)
    lost = 1 - (1 - 1e-4) ** 50
    assert result.delta(9).value == pytest.approx(lost, rel=1e-9)
    assert result.power(0).value == pytest.approx(lost, rel=1e-9)
    assert result.epsilon(lost / 2).value == math.inf
    only = limits.edgeworth(ny.approximate(0, 0.25))
    assert only.delta(0).value == pytest.approx(0.25)
    assert only.power(0.3).value == pytest.approx(ny.approximate(0, 0.25).power(0.3).upper)
    assert limits.edgeworth(ny.perfect()).power(0.3).value == pytest.approx(0.3)


@pytest.mark.parametrize("coordinates", [100, 400, 1600])
def test_many_equal_coordinates_come_near_the_gaussian_of_their_fisher_information(coordinates):
    spread = math.isqrt(coordinates)
    limit = limits.normal(limits.high_dimensional(information=4, norm=0.5))
    line = (
        ny.Laplace(Fraction(1, 2), sensitivity=Fraction(1, 2 * spread)) * coordinates
    ).tradeoff()
    integers = (ny.DiscreteLaplace(spread, sensitivity=1) * coordinates).tradeoff()
    for epsilon in (0.5, 1, 2):
        for curve in (line, integers):
            assert abs(float(curve.delta(epsilon)) - limit.delta(epsilon).value) < 0.08 / spread


def test_the_fisher_information_of_logistic_noise_is_that_of_the_docstring():
    def slope_squared(x):
        share = 1 / (1 + mpmath.exp(-x))
        return (1 - 2 * share) ** 2 * share * (1 - share)

    information = mpmath.quad(slope_squared, [-80, -5, 0, 5, 80])
    assert abs(information - mpmath.mpf(1) / 3) < 1e-25
    with pytest.raises(ValueError, match="information"):
        limits.high_dimensional(0, 1)
