"""Bounds of audits hold exact numbers, and would not without their slacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
from mpmath import mpf

from neyman.auditing.evidence import ManyRuns, _mu
from neyman.auditing.one_run_bounds import approximate_level, gaussian_level, polygon_level
from neyman.auditing.rate_limits import all_counts, anytime_limit, clopper_pearson, tail_above
from slacks import needed, numbers

F = Fraction


def shown(alarm: float, miss: float) -> ManyRuns:
    return ManyRuns(F(9, 10), "any", ((alarm, miss),), 100, 100, (0.1, 0.1))


@needed
def test_a_refuted_epsilon_is_at_most_the_logarithm_of_a_ratio() -> Iterator[bool]:
    for alarm, miss in numbers(1, 100, (0.01, 0.4), (0.01, 0.4)):
        exact = max((1 - mpf(b)) / a for a, b in ((alarm, miss), (miss, alarm)))
        yield shown(alarm, miss).epsilon() <= mpmath.log(exact)


@mpmath.workdps(60)
def test_a_power_on_the_edge_of_the_region() -> None:
    for alarm, miss, level in numbers(2, 200, (0.01, 0.4), (0.01, 0.4), (0.0, 1.0)):
        exact = mpf(level)
        for a, b in ((alarm, miss), (miss, alarm)):
            on_left, on_right = (
                level * (1 - mpf(b)) / a,
                1 - mpf(b) * (1 - mpf(level)) / (1 - mpf(a)),
            )
            exact = max(exact, on_left if level <= a else on_right)
        assert shown(alarm, miss).power_at_least(level) <= exact


@needed
def test_a_refuted_mu_is_at_most_the_difference_of_quantiles() -> Iterator[bool]:
    for a, b in numbers(3, 60, (-30.0, -0.8), (-30.0, -0.8)):
        alarm, miss = math.exp(a), math.exp(b)
        exact = -quantile(alarm) - quantile(miss)
        yield _mu(alarm, miss) <= exact


def quantile(p: float) -> mpf:
    """The quantile of the normal distribution: by Newton's method on its distribution function."""
    from scipy.special import ndtri

    z = mpf(float(ndtri(p)))
    for _ in range(4):
        z -= (mpmath.ncdf(z) - p) / mpmath.npdf(z)
    return z


def at_most(n: int, most: int, p: mpf) -> mpf:
    """P(X <= most) for X binomial."""
    return mpmath.fsum(mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(most + 1))


@mpmath.workdps(60)
def test_the_tail_of_a_binomial_law() -> None:
    for most, n, p in numbers(4, 60, (0, 9), (10, 40), (0.1, 0.9)):
        assert tail_above(int(most), int(n), p) >= at_most(int(n), int(most), mpf(p))


@needed
def test_a_limit_without_an_error() -> Iterator[bool]:
    for n, chance in numbers(5, 60, (1, 1e6), (1e-6, 0.4)):
        limit = clopper_pearson(0, int(n), chance)
        yield limit >= 1 - mpf(chance) ** (mpf(1) / int(n))


@needed
def test_chances_of_all_counts_add_up_to_the_chance() -> Iterator[bool]:
    for n, chance in numbers(6, 60, (2001, 3000), (0.001, 0.4)):
        counts, each = all_counts(int(n), chance)
        yield len(counts) * mpf(each) <= chance
        counts, each = all_counts(int(n), chance * 1e-101)
        yield len(counts) * mpf(each) <= chance * 1e-101


@needed
def test_a_limit_at_every_number_of_trials() -> Iterator[bool]:
    for c, n, chance in [
        *numbers(7, 20, (0, 50), (100, 1e6), (1e-3, 0.4)),
        *numbers(8, 30, (0, 1), (1, 99), (1e-200, 0.1)),
    ]:
        count, trials = int(c), int(n)
        p = mpf(anytime_limit(count, trials, chance))
        log_ratio = (
            mpmath.log(mpmath.beta(count + mpf(0.5), trials - count + mpf(0.5)) / mpmath.pi)
            - count * mpmath.log(p)
            - (trials - count) * mpmath.log1p(-p)
        )
        yield log_ratio >= -mpmath.log(chance)


@needed
def test_a_level_under_epsilon_and_delta() -> Iterator[bool]:
    for epsilon, delta, power in numbers(8, 200, (0.0, 3.0), (0.0, 0.1), (0.2, 1.0)):
        e = mpmath.exp(epsilon)
        exact = max((mpf(power) - delta) / e, 1 - mpf(delta) - e * (1 - mpf(power)), 0)
        yield approximate_level(epsilon, delta)(power) <= exact


@needed
def test_a_level_on_a_gaussian_curve() -> Iterator[bool]:
    for mu, y in numbers(9, 40, (0.1, 4.0), (-30.0, -1e-3)):
        power = math.exp(y)
        yield gaussian_level(mu)(power) <= mpmath.ncdf(quantile(power) - mu)


@needed
def test_a_level_under_a_polygon() -> Iterator[bool]:
    for epsilon, start, power in numbers(10, 200, (-1.0, 3.0), (0.0, 0.9), (0.2, 1.0)):
        level = polygon_level(np.array([epsilon]), np.array([start]))(power)
        yield level <= max(mpmath.exp(-mpf(epsilon)) * (mpf(power) - start), 0)
