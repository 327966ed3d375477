"""Rules, counts, divergences, noise, and sums hold exact numbers, and would not without slacks."""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import mpmath
import numpy as np
from mpmath import mpf

import neyman as ny
from neyman import curves, numerics
from neyman.accounting import compare_noise, conversions
from neyman.accounting.dp_accounting.privacy_loss import _connect_dots
from neyman.accounting.semantics.bayes import _chernoff, _predicted_record_bounds
from neyman.analysis.hypothesis_tests.binomial_sums import count
from neyman.auditing import ManyRuns
from neyman.auditing.evidence import _mu
from neyman.auditing.one_run_bounds import Guesses, approximate_level, gaussian_level, polygon_level
from neyman.auditing.rate_limits import all_counts, anytime_limit, clopper_pearson, tail_above
from neyman.curves.divergences.binary_region import _Asked, _moment, one_order
from neyman.curves.divergences.envelope import Ceiling, loss_moment, trusted_rho
from neyman.curves.divergences.implied_profile import ImpliedProfile
from neyman.mechanisms import PolygonNoise
from neyman.mechanisms.canonical import iterates_closed_form as ladders
from neyman.mechanisms.canonical.distribution import CanonicalLaw, _exact_variance, _geometric
from neyman.mechanisms.canonical.iterates_numeric import Stepwise
from neyman.mechanisms.canonical.tabulated_power import TabulatedPower
from neyman.mechanisms.shuffling.shuffled_profiles import BinaryShuffleProfile, _tail_over
from neyman.numerics import characteristic_function
from neyman.numerics.atoms import _trim, convolve
from slacks import held, needed, numbers, slacks

F = Fraction


@needed
def test_sums_and_products_of_numbers_that_are_rounded() -> Iterator[bool]:
    for x, y in numbers(3, 60, (-9.0, 9.0), (0.1, 9.0)):
        yield held(
            conversions._sum((math.exp(x), math.log(y) + 9), ""), mpmath.exp(x) + mpmath.log(y) + 9
        )
        yield held(conversions._around(math.exp(x) * y, ""), mpmath.exp(x) * y)


@needed
def test_errors_of_noise() -> Iterator[bool]:
    for (scale,) in numbers(4, 60, (0.1, 90.0)):
        yield held(compare_noise._around(math.pi * scale**3), mpmath.pi * mpf(scale) ** 3)
        # A place just above a codes_before number is rounded to it.
        k = int(scale) + 1
        yield held(compare_noise._integer(float(k), float(k)), k + 1)


@needed
def test_the_variance_of_the_discrete_gaussian() -> Iterator[bool]:
    for (sigma,) in numbers(5, 6, (0.5, 3.0)):
        answer = compare_noise._errors_by_sums(sigma, (0.05,)).variance
        weight = [mpmath.exp(-(mpf(k) ** 2) / (2 * mpf(sigma) ** 2)) for k in range(60)]
        total = 2 * mpmath.fsum(weight) - 1
        yield held(answer, 2 * mpmath.fsum(k * k * w for k, w in enumerate(weight)) / total)


@needed
def test_the_variance_of_rounded_noise() -> Iterator[bool]:
    for (sigma,) in numbers(6, 4, (0.5, 2.0)):
        answer = compare_noise._errors_of_rounded_normal(sigma, (0.05,)).variance
        exact = mpmath.fsum(
            (2 * k + 1) * mpmath.erfc((k + mpf(0.5)) / (sigma * mpmath.sqrt(2))) for k in range(60)
        )
        yield held(answer, exact)


@needed
def test_the_number_of_successes() -> Iterator[bool]:
    for n, p in numbers(7, 20, (2, 60), (0.05, 0.95)):
        law = count.__wrapped__(int(n), F(p))  # without its cache
        for k in range(len(law.low)):
            j = law.first + k
            exact = mpmath.binomial(int(n), j) * mpf(p) ** j * (1 - mpf(p)) ** (int(n) - j)
            yield law.low[k] <= exact <= law.high[k]


@needed
def test_variances_of_canonical_noise() -> Iterator[bool]:
    for (epsilon,) in numbers(8, 40, (0.1, 9.0)):
        e = mpf(epsilon)
        q = mpmath.exp(-e)
        d = (1 - q) / (1 + q)
        exact = 4 * (mpf(1) / 16 - d / 24 + q / (1 - q) ** 2 / 2 - q / (1 - q) * d / 12)
        yield held(_exact_variance(ladders.Exponential(epsilon, 0.0)), exact)
        r = mpf(epsilon / 10)
        sum_of_squares = 9 + 6 * r / (1 - r) + r * (1 + r) / (1 - r) ** 2
        yield _geometric(2.0, epsilon / 10) >= sum_of_squares


@needed
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
        yield held(law.log_density(np.array([abs(t)])), mpmath.log(near))
        if 0 < t < 0.49:
            log_u = float(mpmath.log(s))
            yield held(law.place(np.array([log_u])), (mpf(0.5) - mpmath.exp(log_u)) / near)


@needed
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


@needed
def test_the_divergence_of_a_gaussian_pair() -> Iterator[bool]:
    for v, a in numbers(11, 40, (0.01, 9.0), (1.1, 90.0)):
        answer = curves.renyi_divergence(curves.Composition.of([(curves.GaussianLoss(v), 1)]), a)
        yield held(answer, mpf(a) * v / 2)


@needed
def test_the_moment_of_a_gaussian_pair() -> Iterator[bool]:
    for v, a in numbers(12, 40, (0.01, 9.0), (1.1, 90.0)):
        answer = loss_moment(curves.Composition.of([(curves.GaussianLoss(v), 1)]), np.array([a]))
        yield answer[0] >= mpf(a) * (mpf(a) - 1) * v / 2


@needed
def test_a_mass_of_infinite_loss_is_mixed_in() -> Iterator[bool]:
    profile = object.__new__(ImpliedProfile)
    for y, value in numbers(13, 60, (-90.0, -0.1), (-90.0, -0.1)):
        profile._infinite = math.exp(y)
        profile._keep = math.log1p(-profile._infinite)
        low, high = profile._mix_infinite_loss(np.array([value]), np.array([value]))
        m = mpf(profile._infinite)
        yield low[0] <= mpmath.log(m + (1 - m) * mpmath.exp(value)) <= high[0]


@needed
def test_delta_of_one_order() -> Iterator[bool]:
    near = [
        (1 + math.exp(x), math.exp(y), epsilon)
        for x, y, epsilon in numbers(26, 60, (-20.0, 0.0), (-20.0, 0.0), (0.1, 9.0))
    ]
    for a, tau, epsilon in numbers(14, 60, (1.1, 90.0), (0.1, 90.0), (0.1, 90.0)) + near:
        value, _ = one_order(np.array([a]), np.array([tau]), epsilon)
        order = mpf(a)
        kernel = order * mpmath.log1p(-1 / order) - mpmath.log(order - 1)
        yield value >= min(tau - (order - 1) * epsilon + kernel, 0)


@needed
def test_tangents_of_the_best_order() -> Iterator[bool]:
    x = np.linspace(-30.0, 5.0, 8)
    for guarantee in (ny.zcdp(1), ny.renyi({1.000001: 5}), ny.renyi({1.5: 1})):
        region = cast("ImpliedProfile", guarantee.tradeoff().profiles[0])._regions[0]
        y, order, ahead = region.excluded(x)
        line = region.tangents(x)
        for k in np.flatnonzero(np.isfinite(line.log_slope)):
            (ly, my), (lx, mx) = (
                (-mpmath.log1p(mpmath.exp(-odds)), -mpmath.log1p(mpmath.exp(odds)))
                for odds in (mpf(y[k]), mpf(x[k]))
            )
            r, s, z = ly - lx, my - mx, mpf(order[k]) - 1
            more = mpmath.log(mpmath.expm1(-(z + 1) * (r - s)) / mpmath.expm1(-z * (r - s)))
            more += mpmath.log(z / (z + 1))
            slope = r + more if ahead[k] else s - more
            for answer, exact in (
                (line.log_y[k], ly), (line.log_x[k], lx), (line.log_slope[k], slope)
            ):  # fmt: skip
                yield abs(answer - exact) <= line.rounding[k]


@needed
def test_a_ceiling_lies_on_its_side() -> Iterator[bool]:
    for order, tau, slope in numbers(15, 60, (2.0, 9.0), (1.0, 9.0), (1.0, 9.0)):
        corner = F(order), F(tau)
        bare = curves.RenyiBound(F(0), (corner,), F(tau) / (corner[0] - 1), math.inf, F(slope))
        low = Ceiling.below(bare)
        for a in (1 + (order - 1) / 3, order + 7 / 3):
            yield F(float(low.allowed(np.array([a]))[0])) <= bare.linear(F(a))
        allowed = SimpleNamespace(allowed=lambda a: a / 3)
        asked = _Asked.of(
            (cast("Ceiling", allowed), cast("Ceiling", allowed)),
            np.array([[tau]]),
            np.array([[slope]]),
        )
        yield F(float(asked.allowed[0, 0])) >= F(tau) / 3


@needed
def test_an_epsilon_among_outcomes_that_both_can_produce() -> Iterator[bool]:
    profile = object.__new__(ImpliedProfile)
    profile._infinite, profile._reached, profile._keep = 0.0, None, 0.0
    profile._inner = lambda e: (-1000 * e, -1000 * e)  # type: ignore[method-assign]
    for epsilon, y in numbers(17, 60, (0.1, 90.0), (-9.0, -0.1)):
        profile._held = math.log1p(-math.exp(y))
        exact = -1000 * (mpf(epsilon - profile._held) + profile._held)
        yield held(profile.log_deltas(np.array([epsilon - profile._held])), exact)


@needed
def test_chances_that_a_belief_grows() -> Iterator[bool]:
    for rho, e in numbers(18, 40, (0.1, 3.0), (3.0, 9.0)):
        bound, epsilon = curves.RenyiBound(F(rho)), F(e) + F(1, 3)
        ((low, high),) = _chernoff((curves.Composition.of([(bound, 1)]),), [epsilon])
        exact = -((epsilon - F(rho)) ** 2) / (4 * F(rho))
        yield F(low) <= exact <= F(high)


@needed
def test_chances_that_the_rest_does_not_explain() -> Iterator[bool]:
    for rho, e in numbers(19, 40, (0.1, 3.0), (3.0, 9.0)):
        answer = _predicted_record_bounds(
            ny.zcdp(rho).tradeoff(), [F(e) + F(1, 3)], "knows-the-rest"
        )[0]
        r, epsilon = mpf(repr(rho)), mpf(e) + mpf(1) / 3
        yield answer.lower <= mpmath.exp(-((epsilon - r) ** 2) / (4 * r) - epsilon) <= answer.upper


@needed
def test_a_tail_over_a_probability() -> Iterator[bool]:
    c = np.arange(200, 240)[None, :]
    for (share,) in numbers(20, 6, (0.4, 0.6)):
        k = np.full(c.shape, int(220 * share))
        log_pmf, error = numerics.log_half(c, k - 1)
        ratio, wrong = _tail_over(c, k, log_pmf, error)
        for i in (0, 7, 20, 39):
            n, j = int(c[0, i]), int(k[0, i])
            tail = mpmath.fsum(mpmath.binomial(n, x) for x in range(j, n + 1))
            # The float logarithm of the probability is what the tail is divided by.
            exact = tail / mpf(2) ** n / mpmath.exp(log_pmf[0, i])
            yield abs(ratio[0, i] - exact) <= wrong[0, i]


@needed
def test_the_middle_of_a_curve_that_is_asked() -> Iterator[bool]:
    for y, mass in numbers(21, 60, (-9.0, -0.1), (-90.0, -1.0)):
        infinite = math.exp(mass)
        ladder = Stepwise(lambda v: (v / 3, v / 3), (y, y), infinite)
        yield held(ladder.gap, mpmath.exp(y))
        # The ends of the gap are known to 8 units and more.
        ladder.gap = (gap := math.exp(y)), gap
        yield held(ladder.log_c, mpmath.log(-mpmath.expm1(y) / 2))
        yield held(ladder._powers(np.array([-math.inf])), mpmath.log(infinite))


@needed
def test_the_chance_of_as_many_correct_guesses() -> Iterator[bool]:
    for g, share, epsilon, delta in numbers(23, 60, (5, 30), (0.6, 1.0), (0.1, 2.0), (0.0, 1e-3)):
        n, c, m = int(g), max(int(share * int(g)), 1), 40
        q = 1 / (1 + mpmath.exp(-mpf(epsilon)))
        mass = [mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
        most = max(mpmath.fsum(mass[c - i : c]) / i for i in range(1, c + 1))
        exact = mpmath.fsum(mass[c:]) + 2 * m * mpf(delta) * most
        yield Guesses(m, n, c, 0.05).chance_under(epsilon, delta) >= min(exact, 1)


@needed
def test_a_ceiling_from_above() -> Iterator[bool]:
    for order, tau, slope, v in numbers(24, 90, (2.0, 9.0), (1.0, 9.0), (1.0, 9.0), (0.1, 9.0)):
        corner = F(order), F(tau)
        bare = curves.RenyiBound(F(0), (corner,), F(tau) / (corner[0] - 1), math.inf, F(slope))
        high = Ceiling.above(bare)
        for a in (1 + (order - 1) / 3, order + 7 / 3):
            yield F(float(high.allowed(np.array([a]))[0])) >= bare.linear(F(a))
        known = curves.Composition(((curves.GaussianLoss(v), 3),))
        yield F(Ceiling.above(bare, known).rho) >= 3 * F(curves.GaussianLoss(v).rho)


@needed
def test_delta_of_shuffled_binary_reports() -> Iterator[bool]:
    for n, top, share in numbers(25, 12, (20, 60), (0.1, 3.0), (0.9, 1.0)):
        others, epsilon = int(n), share * top
        b = 1 / (mpmath.exp(top) + 1)
        mass = [
            mpmath.binomial(others, k) * b**k * (1 - b) ** (others - k) for k in range(others + 1)
        ]
        gap, more = (
            b * mpmath.exp(epsilon) * mpmath.expm1(mpf(top) - epsilon),
            mpmath.expm1(epsilon),
        )
        exact = max(
            gap * mass[k] - more * tail
            for k in range(others + 1)
            for tail in (mpmath.fsum(mass[k + 1 :]), mpmath.fsum(mass[:k]))
        )
        low, high = BinaryShuffleProfile(others + 1, top)._interior_bounds(
            np.array([epsilon]), ("P, Q", "Q, P")
        )
        yield exact <= 0 or low[0] <= mpmath.log(exact) <= high[0]


@needed
def test_delta_of_a_pair_that_is_tabulated() -> Iterator[bool]:
    for mu, step in numbers(28, 12, (0.3, 2.0), (0.05, 0.2)):
        index = np.arange(-30, 60)
        high = curves.select(ny.gdp(mu).tradeoff().alternatives[0]).log_deltas(index * step)[1]
        table = _connect_dots(-30, step, np.exp(high))
        for k in (0, 7, 15, 30, 45):
            delta = mpf(table.infinite) + mpmath.fsum(
                mpf(m) * (1 - mpmath.exp(mpf(step) * (k - i)))
                for i, m in zip(table.index, table.mass, strict=True)
                if i > k
            )
            yield delta >= float(np.exp(high[k + 30]))


@needed
def test_rho_of_a_sum_of_gaussian_losses() -> Iterator[bool]:
    for v, w, n in numbers(30, 40, (0.1, 9.0), (0.1, 9.0), (2, 99)):
        losses = curves.Composition.of(
            [(curves.GaussianLoss(v), int(n)), (curves.SubsampledGaussianLoss(w, 0.1, True), 3)]
        )
        yield trusted_rho(losses) >= (int(n) * mpf(v) + 3 * mpf(w) ** 2) / 2


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


def around(value_and_error: tuple[np.ndarray, np.ndarray], exact: mpf) -> bool:
    value, error = (float(v[0]) for v in value_and_error)
    return abs(value - exact) <= error


def laplace_tail(y: mpf) -> mpf:
    return mpmath.log(mpmath.exp(-y) / 2 if y >= 0 else 1 - mpmath.exp(y) / 2)


def laplace_place(log_s: mpf) -> mpf:
    s = mpmath.exp(log_s)
    return -mpmath.log(2 * s) if s <= 0.5 else mpmath.log(2 * (1 - s))


def logistic_tail(y: mpf) -> mpf:
    return -mpmath.log1p(mpmath.exp(y))


def logistic_place(log_s: mpf) -> mpf:
    return mpmath.log(-mpmath.expm1(log_s)) - log_s


def check_law(
    ladder: Callable[[float], ladders.MovedLadder],
    tail: Callable[[mpf], mpf],
    place: Callable[[mpf], mpf],
    density: Callable[[mpf], mpf],
) -> Iterator[bool]:
    for a, log_s, y in numbers(1, 40, (0.01, 9.0), (-40.0, -1e-3), (-30.0, 30.0)):
        law, at = ladder(a), np.array([y])
        yield law.log_c[0] <= tail(mpf(a) / 2) <= law.log_c[1]
        yield around(law._quantile(np.array([log_s])), place(mpf(log_s)))
        yield around(law._log_tail(at, np.zeros(1)), tail(mpf(y)))
        yield around(law._log_density(at, np.zeros(1)), density(mpf(y)))


@needed
def test_the_law_of_laplace() -> Iterator[bool]:
    yield from check_law(ladders.LaplaceLadder, laplace_tail, laplace_place, lambda y: -abs(y))


@needed
def test_the_logistic_law() -> Iterator[bool]:
    density = lambda y: -abs(y) - 2 * mpmath.log1p(mpmath.exp(-abs(y)))  # noqa: E731
    yield from check_law(ladders.Logistic, logistic_tail, logistic_place, density)


@needed
def test_the_density_of_the_normal_law() -> Iterator[bool]:
    for (y,) in numbers(2, 40, (-30.0, 30.0)):
        density = ladders.Normal(1.0)._log_density(np.array([y]), np.zeros(1))
        yield around(density, -(mpf(y) ** 2) / 2)


@needed
def test_steps_of_a_law_that_is_moved() -> Iterator[bool]:
    for a, log_s, n in numbers(3, 60, (0.01, 9.0), (-40.0, -1e-3), (1, 1e4)):
        law, steps = ladders.LaplaceLadder(a), np.array([float(int(n))])
        y = laplace_place(mpf(log_s))
        moved = y + int(n) * mpf(a)
        yield held(law.out(np.array([log_s]), steps), laplace_tail(moved))
        yield held(law.log_slope(np.array([log_s]), steps), abs(y) - abs(moved))


@needed
def test_a_place_in_the_middle() -> Iterator[bool]:
    for a, s in numbers(4, 60, (0.01, 9.0), (0.1, 0.9)):
        law = ladders.LaplaceLadder(a)
        near = float(-mpmath.expm1(-mpf(a) / 2))
        law.gap = near, near
        low, high = law.middle(np.array([s]), np.array([s]))
        exact = (mpf(0.5) - s) / near
        yield held((low, high), min(max(exact, -0.5), 0.5))


@needed
def test_a_place_beyond_the_middle() -> Iterator[bool]:
    for epsilon, log_u in numbers(5, 60, (0.1, 3.0), (-90.0, -3.0)):
        law = ladders.Exponential(epsilon, 0.0)
        e = mpmath.exp(-mpf(epsilon))
        c = e / (1 + e)
        n = max(mpmath.ceil((mpmath.log(c) - log_u) / epsilon), 0)
        s = mpmath.exp(log_u + n * mpf(epsilon))
        yield held(law.place(np.array([log_u])), n + (0.5 - s) / (1 - 2 * c))


@needed
def test_steps_of_an_exponential_law() -> Iterator[bool]:
    for epsilon, y, log_s, n in numbers(6, 80, (0.1, 2.0), (-9.0, -2.0), (-1.0, -0.01), (1, 4)):
        delta, steps = math.exp(y) * math.exp(-9), np.array([float(int(n))])
        e, at = mpmath.exp(mpf(epsilon)), np.array([log_s])
        for d in (0.0, delta):
            law = ladders.Exponential(epsilon, d)
            taken = d * (e ** int(n) - 1) / (e - 1)
            yield law.log_c[0] <= mpmath.log((1 - mpf(d)) / (1 + e)) <= law.log_c[1]
            out = mpmath.log(mpmath.exp(log_s) - taken) - int(n) * mpf(epsilon)
            yield held(law.out(at, steps), out)
            yield held(
                law.back(out_as_float(out), steps), mpmath.log(exp_of(out) * e ** int(n) + taken)
            )
            yield held(law.log_slope(at, steps), -int(n) * mpf(epsilon))


def out_as_float(x: mpf) -> np.ndarray:
    return np.array([float(x)])


def exp_of(x: mpf) -> mpf:
    return mpmath.exp(float(x))


@needed
def test_what_is_left_beyond_the_largest_loss() -> Iterator[bool]:
    for (y,) in numbers(7, 20, (-30.0, -2.0)):
        delta = math.exp(y)
        table = TabulatedPower(curves.select(ny.approximate(1, delta).directions[0]), 1.0, delta)
        yield table._low[-1] <= mpmath.log(delta) <= table._high[-1]


@needed
def test_tails_of_the_noise_of_a_polygon() -> Iterator[bool]:
    for x, y, start in numbers(8, 30, (0.01, 0.2), (0.3, 0.5), (-0.5, 0.5)):
        corners = [(F(0), F(0)), (F(x), F(y)), (F(1) - F(y), F(1) - F(x)), (F(1), F(1))]
        noise = PolygonNoise(curves.hull(corners))
        lows, highs = noise.tails(F(start))
        tail = F(1, 2) - noise.density * F(start)
        for k in range(6):
            yield F(float(lows[k])) <= tail <= F(float(highs[k]))
            (a, b), (c, d) = (
                next(pair for pair in pairwise(noise.corners) if pair[0][1] <= tail <= pair[1][1])
                if tail <= noise.corners[-1][1]
                else ((F(0), F(0)), (F(1), F(1)))
            )
            tail = a + (tail - b) * (c - a) / (d - b)


@needed
def test_tails_of_a_sum_with_the_noise_of_a_polygon() -> Iterator[bool]:
    for x, y, place in numbers(9, 40, (0.01, 0.2), (0.3, 0.5), (-9.0, 0.0)):
        corners = [(F(0), F(0)), (F(x), F(y)), (F(1) - F(y), F(1) - F(x)), (F(1), F(1))]
        noise = PolygonNoise(curves.hull(corners))
        low, high = noise.tail_between(F(place), 0, 0)
        start = F(place) - round(F(place))
        tail = F(1, 2) + noise.density * start
        for _ in range(-round(F(place))):
            (a, b), (c, d) = next(
                pair for pair in pairwise(noise.corners) if pair[0][1] <= tail <= pair[1][1]
            )
            tail = a + (tail - b) * (c - a) / (d - b)
        exact = 1 - tail if place < 0 and round(F(place)) else tail
        yield round(F(place)) == 0 or F(float(low[0])) <= exact <= F(float(high[0]))


@needed
def test_a_level_next_to_the_end_of_the_support() -> Iterator[bool]:
    for y, steps in numbers(10, 40, (-30.0, -0.1), (-6, 6)):
        m = math.exp(y)

        def powers(v: np.ndarray, m: float = m) -> tuple[np.ndarray, np.ndarray]:
            near = np.log(m + (1 - m) * np.exp(v))
            return near - 1e-14 * (1 - near), near + 1e-14 * (1 - near)

        ladder = Stepwise(powers, (math.log1p(-m), math.log1p(-m)), m)
        end = math.log(m)
        for log_p in (end, end + int(steps) * 2.0**-52 * abs(end)):
            level = (mpmath.exp(log_p) - m) / (1 - mpf(m))
            exact = mpmath.log(level) if level > 0 else -mpmath.inf
            yield held(ladder._levels(np.array([log_p])), exact)


ONE = F(1)


@needed
def test_powers_of_e_of_a_logarithm_that_is_rounded() -> Iterator[bool]:
    unit = mpf(2) ** -53
    for (y,) in numbers(1, 100, (-700.0, -100.0)):
        yield numerics.exp_down(y) <= mpmath.exp(y * (1 + unit))
        yield numerics.exp_up(y) >= mpmath.exp(y * (1 - unit))


@needed
def test_the_logarithm_of_what_is_left_of_one() -> Iterator[bool]:
    for (y,) in [*numbers(13, 100, (-40.0, -0.7)), *numbers(14, 100, (-0.8, -1e-9)), (-1e-18,)]:
        yield held(numerics.log_complement(y, y), mpmath.log(-mpmath.expm1(y)))


@needed
def test_weights_of_a_convolution() -> Iterator[bool]:
    for n, work in ((3, 1e9), (40, 1e9), (64, 0.0)):
        a, b = (np.array([v for (v,) in numbers(k, n, (0.0, 1.0))]) for k in (2, 3))
        answer = convolve(numerics.Atoms(ONE, F(0), 0, a), numerics.Atoms(ONE, F(0), 0, b), work)
        p, q = ([F(x) for x in v.tolist()] for v in (a, b))
        for k in range(len(answer)):
            exact = sum(p[i] * q[k - i] for i in range(max(0, k - n + 1), min(k, n - 1) + 1))
            error = F(answer.relative) * exact + F(answer.absolute)
            yield abs(F(float(answer.weight[k])) - exact) <= error


@needed
def test_weights_of_another_scale() -> Iterator[bool]:
    for y, scale in numbers(4, 40, (-690.0, -250.0), (-9.0, 9.0)):
        weight = math.exp(y)
        answer = _trim(numerics.Atoms(ONE, F(0), 0, np.array([weight]), scale))
        exact, near = weight * mpmath.exp(scale), answer.weight[0] * mpmath.exp(answer.log_scale)
        yield abs(near - exact) <= answer.relative * exact


@needed
def test_a_binomial_law_with_fair_coins() -> Iterator[bool]:
    for n, share in numbers(5, 60, (2, 1e6), (0.0, 1.0)):
        c, j = int(n), int(share * int(n))
        value, error = (float(v[0]) for v in numerics.log_half(np.array([c]), np.array([j])))
        yield abs(value - log_choose(c, j) + c * mpmath.log(2)) <= error


def log_choose(n: int, k: int) -> mpf:
    return mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)


@needed
def test_a_binomial_law() -> Iterator[bool]:
    for n, share, p in numbers(6, 60, (2, 1e5), (0.0, 1.0), (0.01, 0.99)):
        c, j = int(n), int(share * int(n))
        value, error = (float(v[0]) for v in numerics.log_binomial(c, p, 1 - p, np.array([j]), 0.0))
        exact = log_choose(c, j) + j * mpmath.log(p) + (c - j) * mpmath.log1p(-mpf(p))
        yield abs(value - exact) <= error


@needed
def test_k_of_the_discrete_gaussian() -> Iterator[bool]:
    for v, c in numbers(7, 12, (0.1, 9.0), (0.1, 9.0)):
        z = np.array([c])
        answer = float(numerics.theta.log_mgf(v, 1, z)[0])
        near = [mpf(x) for x in range(-150, 150)]
        total = mpmath.fsum(mpmath.exp(-x * x / (2 * mpf(v))) for x in near)
        moved = mpmath.fsum(mpmath.exp(-((x + c) ** 2) / (2 * mpf(v))) for x in near)
        exact = mpf(c) * (mpf(c) + 1) / (2 * mpf(v)) + mpmath.log(moved / total)
        yield abs(answer - exact) <= numerics.theta.rounding(v, 1, z)[0]


@needed
def test_a_sum_of_waves() -> Iterator[bool]:
    for x, y, w in numbers(8, 6, (-9.0, 9.0), (-9.0, 9.0), (0.1, 0.9)):
        place, weight, u = np.array([x, y]), np.array([w, 1 - w]), 0.7 * np.arange(40.0)
        sums = numerics.wave_sum(place, weight, u)
        error = characteristic_function.rounding(place, weight, u)
        for k in (1, 7, 20, 39):
            exact = mpmath.fsum(
                p * mpmath.expm1(1j * mpf(u[k]) * v)
                for p, v in ((weight[0], mpf(x)), (weight[1], mpf(y)))
            )
            yield abs(mpmath.mpc(sums[k]) - exact) <= error[k]


@needed
def test_a_series_at_even_angles() -> Iterator[bool]:
    n = 40
    for start, step in numbers(9, 3, (1.0, 900.0), (0.01, 1.0)):
        weight = np.array([complex(x, y) for x, y in numbers(10, n, (-1.0, 1.0), (-1.0, 1.0))])
        sums, error = numerics.even_series(weight, start, step, 64)
        for j in (0, 17, 63):
            angle = mpf(start) + j * mpf(step)
            exact = mpmath.fsum(
                mpmath.mpc(w) * mpmath.exp(-1j * k * angle) for k, w in enumerate(weight)
            )
            yield abs(mpmath.mpc(sums[j]) - exact) <= error[j]


@needed
def test_atoms_of_a_sum() -> Iterator[bool]:
    for x, y, p, q in numbers(11, 40, (-9.0, 9.0), (-9.0, 9.0), (0.1, 1.0), (0.1, 1.0)):
        one, two = (
            numerics.Discretization(np.array([v]), np.array([w]), 0.0, 0.0, 0.0, 0.0)
            for v, w in ((x, p), (y, q))
        )
        both = numerics.added([one, two], 0.0)
        yield abs(mpf(both.loss[0]) - (mpf(x) + y)) <= both.place
        exact = mpf(p) * q
        yield abs(both.weight[0] - exact) <= np.max(both.relative) * exact


@needed
def test_the_share_of_a_mass_that_moves_up() -> Iterator[bool]:
    step = 0.1
    for k, y in numbers(12, 60, (1, 999), (-30.0, -3.0)):
        loss = int(k) * step + math.exp(y)
        dots = numerics.Discretization(np.array([loss]), np.ones(1), 0.0, 0.0, 0.0, 0.0)
        atoms = numerics.spread(dots, step)
        inside = F(loss) - F(step) * atoms.start
        exact = -mpmath.expm1(-mpf(inside.numerator) / inside.denominator) / -mpmath.expm1(
            -mpf(step)
        )
        yield atoms.weight[1] >= exact


@needed
def test_many_masses_at_one_place() -> Iterator[bool]:
    for n in (10, 1000, 20000):
        dots = numerics.Discretization(np.zeros(n), np.full(n, 0.1), 0.0, 0.0, 0.0, 0.0)
        atoms = numerics.spread(dots, 1.0)
        yield abs(atoms.weight[0] - n * mpf(0.1)) <= (atoms.relative + 2.0**-52) * n * mpf(0.1)


@needed
def test_two_masses_that_are_mixed() -> Iterator[bool]:
    for place, y, gap, tilt in numbers(15, 60, (1.0, 20.0), (-9.0, -1.0), (1.5, 3.0), (-1.0, 2.0)):
        step = math.exp(y)
        loss, weight = np.array([place, place + gap * step]), np.array([0.3, 0.7])
        atoms = numerics.contract(numerics.Discretization(loss, weight, tilt, 0.0, 0.0, 0.0), step)
        at = [mpf(step) * (atoms.start + k) - place for k in range(len(atoms))]

        def share(
            away: list[mpf],
            weight: list[float],
            tilts: tuple[mpf, mpf] = (mpf(tilt), mpf(tilt) + 1),
        ) -> mpf:
            """Of Q's mass in P's, up to a factor."""
            p, q = (
                mpmath.fsum(w * mpmath.exp(-c * x) for x, w in zip(away, weight, strict=True))
                for c in tilts
            )
            return q / p

        yield share(at, atoms.weight.tolist()) >= share(
            [mpf(x) - place for x in loss.tolist()], weight.tolist()
        )


HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "certificates" / "rounding.md"


def test_each_mark_names_a_test_and_each_test_a_mark():
    names = {part.partition("/")[0] for slack in slacks() for part in slack.labels}
    modules = [importlib.import_module(p.stem) for p in sorted(HERE.glob("test_slacks_of_*.py"))]
    tests = [test for module in modules for test in vars(module).values() if hasattr(test, "label")]
    labels = Counter(test.label for test in tests)
    assert labels.keys() == names - {"counted", "open"}
    assert set(labels.values()) == {1}


def test_the_page_on_rounding_counts_the_slacks():
    every = slacks()
    counted, unknown = (sum(s.labels == (word,) for s in every) for word in ("counted", "open"))
    sentence = f"Of {len(every)} slacks, {len(every) - counted - unknown} are shown, "
    sentence += f"{counted} are counted, and {unknown} are open."
    assert sentence in re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8")), sentence
