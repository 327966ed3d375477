"""Thresholds and placements enclose the exact distribution function, at every scale."""

from fractions import Fraction
from itertools import accumulate

import mpmath
import numpy as np
import pytest
from exact_noise import magnitude, real, survival
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.noise import weights
from neyman.noise.weights import Weights
from random_laws import examples

PARAMETERS = [
    Fraction(1, 10**30),
    Fraction(1, 10_000),
    Fraction(1, 100),
    Fraction(1, 3),
    Fraction(1),
    Fraction("8.4959"),
    Fraction(10**30 + 7, 3 * 10**29 + 1),
    Fraction(120),
]


def weights_of(law, parameter):
    if law == "laplace":
        return Weights(1 / parameter, Fraction(0))
    return Weights(Fraction(0), 1 / (2 * parameter))


@given(st.fractions(0, 300), st.sampled_from([64, 192, 256]))
def test_exponentials_are_enclosed_within_a_few_units(x, precision):
    """Both sides hold the exact value and are at most three units apart."""
    low, high = weights.exponential(x, precision)
    with mpmath.workprec(precision + 700):
        exact = mpmath.exp(-real(x)) * mpmath.ldexp(1, precision)
        assert low <= exact <= high
    assert high - low <= 3


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_leading_word_of_a_product_is_exact(x, y):
    """floor(x y / 2^64) comes out exactly for all words."""
    one, other = np.array([x], np.uint64), np.array([y], np.uint64)
    assert weights._product(one, other).tolist() == [x * y >> 64]


@pytest.mark.parametrize("a", [Fraction(0), Fraction(1, 3), Fraction(1, 10**5)])
@pytest.mark.parametrize("b", [Fraction(0), Fraction(1, 10**9), Fraction(3)])
def test_powers_are_below_the_truth_by_what_they_may_be(a, b):
    """Each power is at most POWER_OFF units of 2^-64 below exp(-a j - b j^2)."""
    powers = weights._powers(a, b, 3000).tolist()
    with mpmath.workprec(300):
        for j in (0, 1, 2, 7, 100, 2999):
            exact = mpmath.exp(-real(a) * j - real(b) * j * j) * mpmath.ldexp(1, 64)
            assert 0 <= exact - powers[j] <= weights.POWER_ERROR_UNITS


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: f"{float(p):.4g}")
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_thresholds_enclose_the_exact_distribution_function(law, parameter):
    """t(k) <= 2^64 P(|X| <= k) <= t(k) + slack for every k, in rising order."""
    thresholds, slack = weights_of(law, parameter).thresholds()
    assert slack < 1100
    assert np.all(thresholds[1:] >= thresholds[:-1])
    with mpmath.workprec(250):
        for k, t in enumerate(thresholds.tolist()):
            exact = mpmath.ldexp(1 - survival(law, parameter, k + 1), 64)
            assert t <= exact <= t + slack
        assert survival(law, parameter, thresholds.size) < mpmath.ldexp(1, -57)


@pytest.mark.parametrize("scale", [1000, 10**4, 10**5])
def test_thresholds_of_wide_laws_enclose_the_exact_distribution_function(scale):
    """The same for wide distributions, by closed form (Laplace) and by Euler and Maclaurin
    (Gaussian).
    """
    with mpmath.workprec(300):
        sigma = mpmath.mpf(scale)

        def laplace(k):
            ratio = mpmath.exp(-1 / sigma)
            return 1 - 2 * ratio ** (k + 1) / (1 + ratio)

        def gaussian(k):
            # The sum over |j| <= k; what is left out is below sigma^-8, that is 10^-24.
            x, f = k / sigma, mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * sigma**2))
            first, third = -x * f / sigma, (3 * x - x**3) * f / sigma**3
            fifth = -(x**5 - 10 * x**3 + 15 * x) * f / sigma**5
            total = sigma * mpmath.sqrt(2 * mpmath.pi)  # all else is below exp(-2 pi^2 sigma^2)
            inside = total * mpmath.erf(x / mpmath.sqrt(2))
            return (inside + f + first / 6 - third / 360 + fifth / 15120) / total

        laws = [
            (weights_of("laplace", Fraction(scale)), laplace),
            (weights_of("gaussian", Fraction(scale**2)), gaussian),
        ]
        for law, exact in laws:
            thresholds, slack = law.thresholds()
            assert slack < 1100
            assert np.all(thresholds[1:] >= thresholds[:-1])
            n = thresholds.size
            for k in {*range(3), *range(1, n, n // 300), n - 2, n - 1}:
                assert int(thresholds[k]) <= mpmath.ldexp(exact(k), 64)
                assert mpmath.ldexp(exact(k), 64) <= int(thresholds[k]) + slack


@pytest.mark.parametrize("a", [Fraction(0), Fraction(1, 3), Fraction(1, 64)])
@pytest.mark.parametrize("b", [Fraction(0), Fraction(1, 5000), Fraction(3)])
def test_weights_are_enclosed_and_so_is_what_lies_beyond_the_last(a, b):
    """Bounds of every weight, and of the sum of the infinitely many that follow."""
    if a == b == 0:
        return
    bounds = list(Weights(a, b)._weight_bounds(192))
    n = len(bounds)
    with mpmath.workprec(300):
        terms = [mpmath.exp(-real(a) * j - real(b) * j * j) for j in range(6 * n)]
        exact = list(accumulate(reversed(terms)))[::-1]
        for (low, high, _), term in zip(bounds, terms, strict=False):
            assert low <= mpmath.ldexp(term, 192) <= high
            assert high - low < 2**64
        assert mpmath.ldexp(exact[n], 192) <= bounds[-1][2] < 2**64


@settings(max_examples=examples(120))
@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from(PARAMETERS[2:]),
    st.integers(0, 20),
    st.integers(-2, 1),
    st.sampled_from([4, 15, 64, 128]),
)
def test_a_uniform_real_is_placed_as_exact_arithmetic_does(law, parameter, near, off, length):
    """Next to the exact P(|X| <= near) a placement is right, or None where the bits say too little.

    The next thresholds are more than 2^-300 away from any of these reals.
    """
    with mpmath.workprec(400):
        edge = int(mpmath.ldexp(1 - survival(law, parameter, near + 1), length))
        value = min(max(edge + off, 0), 2**length - 1)
        result = weights_of(law, parameter).place(value, length)
        u, unit = mpmath.ldexp(value, -length), mpmath.ldexp(1, -length)
        last = u + unit - mpmath.ldexp(1, -length - 200)
        low, high = magnitude(law, parameter, u), magnitude(law, parameter, last)
        assert result == (low if low == high else None)
