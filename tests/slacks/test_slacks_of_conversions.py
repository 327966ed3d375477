"""Rules, counts, and divergences hold exact numbers, and would not without their slacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

import neyman as ny
from neyman.accounting import compare_noise
from neyman.accounting.literature import composition_bounds, conversions
from neyman.canonical.distribution import CanonicalLaw, _exact_variance, _geometric
from neyman.canonical.iterates_closed_form import Exponential
from neyman.divergences.binary_region import _moment
from neyman.divergences.divergence import renyi_divergence
from neyman.divergences.envelope import loss_moment
from neyman.divergences.implied_profile import ImpliedProfile
from neyman.hypothesis_tests.binomial_sums import count
from neyman.losses.composition import Composition
from neyman.losses.gaussian import GaussianLoss
from slacks import needed, numbers

F = Fraction


def held(bound: Any, exact: mpf) -> bool:
    low, high = (bound.lower, bound.upper) if hasattr(bound, "lower") else bound
    return low <= exact <= high


@needed("accounting/literature/composition_bounds.py:advanced")
def test_advanced_composition() -> Iterator[bool]:
    for epsilon, slack, n in numbers(1, 40, (0.01, 1.0), (1e-9, 0.1), (2, 999)):
        found = composition_bounds.advanced(epsilon, 0, count=int(n), slack=slack).epsilon
        e, s = mpf(repr(epsilon)), mpf(repr(slack))
        yield held(
            found, e * mpmath.sqrt(-2 * int(n) * mpmath.log(s)) + int(n) * e * mpmath.expm1(e)
        )


@needed("accounting/literature/composition_bounds.py:_textbook")
def test_the_textbook_rule() -> Iterator[bool]:
    for epsilon, delta, size in numbers(2, 40, (0.01, 1.0), (1e-9, 0.1), (0.1, 9.0)):
        found = composition_bounds._textbook(F(epsilon), F(delta), F(size))
        yield held(found, mpmath.sqrt(2 * mpmath.log(1.25 / mpf(delta))) * size / mpf(epsilon))


@needed("accounting/literature/conversions.py:_sum", "accounting/literature/conversions.py:_around")
def test_sums_and_products_of_numbers_that_are_rounded() -> Iterator[bool]:
    for x, y in numbers(3, 60, (-9.0, 9.0), (0.1, 9.0)):
        yield held(
            conversions._sum((math.exp(x), math.log(y) + 9), ""), mpmath.exp(x) + mpmath.log(y) + 9
        )
        yield held(conversions._around(math.exp(x) * y, ""), mpmath.exp(x) * y)


@needed("accounting/compare_noise.py:_around", "accounting/compare_noise.py:_integer")
def test_errors_of_noise() -> Iterator[bool]:
    for (scale,) in numbers(4, 60, (0.1, 90.0)):
        yield held(compare_noise._around(math.pi * scale**3), mpmath.pi * mpf(scale) ** 3)
        # A place just above a whole number is rounded to it.
        k = int(scale) + 1
        yield held(compare_noise._integer(float(k), float(k)), k + 1)


@needed("accounting/compare_noise.py:_summed")
def test_the_variance_of_the_discrete_gaussian() -> Iterator[bool]:
    for (sigma,) in numbers(5, 6, (0.5, 3.0)):
        found = compare_noise._summed(sigma, (0.05,)).variance
        weight = [mpmath.exp(-(mpf(k) ** 2) / (2 * mpf(sigma) ** 2)) for k in range(60)]
        total = 2 * mpmath.fsum(weight) - 1
        yield held(found, 2 * mpmath.fsum(k * k * w for k, w in enumerate(weight)) / total)


@needed("accounting/compare_noise.py:_rounded", but=(0,))
def test_the_variance_of_rounded_noise() -> Iterator[bool]:
    for (sigma,) in numbers(6, 4, (0.5, 2.0)):
        found = compare_noise._rounded(sigma, (0.05,)).variance
        exact = mpmath.fsum(
            (2 * k + 1) * mpmath.erfc((k + mpf(0.5)) / (sigma * mpmath.sqrt(2))) for k in range(60)
        )
        yield held(found, exact)


@needed(
    "hypothesis_tests/binomial_sums.py:count",
    "numerics/binomial.py:_log_binomial",
    together=[(0, 1, 2, 3)],
)
def test_the_number_of_successes() -> Iterator[bool]:
    for n, p in numbers(7, 20, (2, 60), (0.05, 0.95)):
        law = count(int(n), F(p))
        for k in range(len(law.low)):
            j = law.first + k
            exact = mpmath.binomial(int(n), j) * mpf(p) ** j * (1 - mpf(p)) ** (int(n) - j)
            yield law.low[k] <= exact <= law.high[k]
        count.cache_clear()


@needed("canonical/distribution.py:_exact_variance", "canonical/distribution.py:_geometric")
def test_variances_of_canonical_noise() -> Iterator[bool]:
    for (epsilon,) in numbers(8, 40, (0.1, 9.0)):
        e = mpf(epsilon)
        q = mpmath.exp(-e)
        d = (1 - q) / (1 + q)
        exact = 4 * (mpf(1) / 16 - d / 24 + q / (1 - q) ** 2 / 2 - q / (1 - q) * d / 12)
        yield held(_exact_variance(Exponential(epsilon, 0.0)), exact)
        r = mpf(epsilon / 10)
        sum_of_squares = 9 + 6 * r / (1 - r) + r * (1 + r) / (1 - r) ** 2
        yield _geometric(2.0, epsilon / 10) >= sum_of_squares


@needed(
    "canonical/distribution.py:CanonicalLaw._middle",
    "canonical/distribution.py:CanonicalLaw.c",
    "canonical/distribution.py:CanonicalLaw.log_density",
    "canonical/distribution.py:CanonicalLaw.place",
    "canonical/iterates_closed_form.py:Exponential.__init__",
    "canonical/iterates_closed_form.py:Ladder.middle",
    together=[(0, 6), (1, 2, 6), (5, 7, 8)],
)
def test_canonical_noise_of_a_pure_guarantee() -> Iterator[bool]:
    for epsilon, t in numbers(9, 40, (0.1, 9.0), (-0.5, 0.5)):
        law = CanonicalLaw(ny.pure(epsilon))
        e = mpmath.exp(epsilon)
        c = 1 / (1 + e)
        yield held(law.c, c)
        s = c * (mpf(0.5) + t) + (1 - c) * (mpf(0.5) - t)
        _, low, high = law._middle(np.array([abs(t)]))
        yield held(
            (low[0], high[0]), mpmath.log(c * (mpf(0.5) + abs(t)) + (1 - c) * (mpf(0.5) - abs(t)))
        )
        law.ladder.gap = (near := float(1 - 2 * c)), near
        low, high = law.log_density(np.array([abs(t)]))
        yield held((low[0], high[0]), mpmath.log(near))
        if 0 < t < 0.49:
            log_u = float(mpmath.log(s))
            low, high = law.place(np.array([log_u]))
            yield held((low[0], high[0]), (mpf(0.5) - mpmath.exp(log_u)) / near)


@needed("divergences/binary_region.py:_moment")
def test_the_moment_of_a_binary_pair() -> Iterator[bool]:
    for x, y, a in numbers(10, 60, (-9.0, -0.7), (-9.0, -0.7), (1.1, 90.0)):
        ly, lx = x, y
        my, mx = math.log1p(-math.exp(x)), math.log1p(-math.exp(y))
        value, error, _ = _moment(
            np.array([a]), (np.array([ly]), np.array([my])), (np.array([lx]), np.array([mx]))
        )
        exact = mpmath.log(
            mpmath.exp(ly + (mpf(a) - 1) * (mpf(ly) - lx))
            + mpmath.exp(my + (mpf(a) - 1) * (mpf(my) - mx))
        )
        yield abs(value[0] - exact) <= error[0]


@needed(
    "divergences/divergence.py:renyi_divergence",
    "losses/gaussian.py:GaussianLoss.mgf_rounding",
    together=[(0, 1)],
)
def test_the_divergence_of_a_gaussian_pair() -> Iterator[bool]:
    for v, a in numbers(11, 40, (0.01, 9.0), (1.1, 90.0)):
        found = renyi_divergence(Composition.of([(GaussianLoss(v), 1)]), a)
        yield held(found, mpf(a) * v / 2)


@needed(
    "divergences/envelope.py:loss_moment",
    "losses/gaussian.py:GaussianLoss.mgf_rounding",
    together=[(0, 1)],
)
def test_the_moment_of_a_gaussian_pair() -> Iterator[bool]:
    for v, a in numbers(12, 40, (0.01, 9.0), (1.1, 90.0)):
        found = loss_moment(Composition.of([(GaussianLoss(v), 1)]), np.array([a]))
        yield found[0] >= mpf(a) * (mpf(a) - 1) * v / 2


@needed("divergences/implied_profile.py:ImpliedProfile._mixed")
def test_a_mass_of_infinite_loss_is_mixed_in() -> Iterator[bool]:
    profile = object.__new__(ImpliedProfile)
    for y, value in numbers(13, 60, (-90.0, -0.1), (-90.0, -0.1)):
        profile._infinite = math.exp(y)
        profile._keep = math.log1p(-profile._infinite)
        low, high = profile._mixed(np.array([value]), np.array([value]))
        m = mpf(profile._infinite)
        yield low[0] <= mpmath.log(m + (1 - m) * mpmath.exp(value)) <= high[0]
