"""Student noise: its largest loss and its curve against mpmath and quadrature."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import neyman as ny
from neyman.curves import pure_rho
from neyman.mechanisms.stability import student_pairs
from neyman.mechanisms.stability.student_pairs import LIMITS as STUDENT_LIMITS
from neyman.mechanisms.stability.student_pairs import largest_loss, lower_tail

CASES = [(3, 0.1, 0.3), (1, 0.2, 0.5), (0.5, 0.3, 0.2), (2, 0.05, 1.0), (8, 0.3, 0.4)]


def noise(degrees, smoothness, scale):
    return ny.SmoothNoise("student", degrees, smoothness, scale)


def loss(z, d, t, u):
    """log of Student's density at z over that of e^t Z + u."""
    moved = (z - u) * np.exp(-t)
    return t + (d + 1) / 2 * (np.log1p(moved**2 / d) - np.log1p(z**2 / d))


def largest_by_grid(d, beta, s, limit):
    """Over t, u, and z on grids, and their refinement around the largest in z."""
    z = np.concatenate([-np.geomspace(1e-4, 1e7, 1500)[::-1], np.geomspace(1e-4, 1e7, 1500)])
    z = np.concatenate([z, np.linspace(-6, 6, 6001)])
    best = 0.0
    for t in np.linspace(-beta, beta, 21):
        for u in np.linspace(0, limit(t) * s, 5):
            best = max(best, np.abs(loss(z, d, t, u)).max())
    return best


@pytest.mark.parametrize("case", CASES)
def test_epsilon_is_the_largest_loss_of_all_neighbors(case):
    d, beta, s = case
    bound = noise(*case).epsilon()
    grid = largest_by_grid(d, beta, s, lambda t: min(1, math.exp(t)))
    assert grid <= bound.upper
    assert grid >= bound.lower * (1 - 1e-5)


def test_the_published_check_values():
    d, beta, s = 3, 0.1, 0.3
    box = largest_by_grid(d, beta, s, lambda t: 1)
    assert abs(box - 0.51477268) < 1e-5
    mp.mp.dps = 30
    v = mp.acosh(mp.cosh(mp.mpf("0.1")) + mp.exp(mp.mpf("0.1")) * mp.mpf("0.09") / 6)
    assert abs(2 * v + mp.mpf("0.1") - mp.mpf("0.51477268")) < 1e-8
    assert abs(float(noise(d, beta, s).epsilon()) - 0.48491) < 1e-5
    shift = (d + 1) * s / (2 * math.sqrt(d))
    assert round(d * beta + shift, 4) == 0.6464
    assert round((d + 1) * beta + shift, 4) == 0.7464


@settings(max_examples=50)
@given(
    st.floats(0.1, 30), st.floats(1e-4, 2), st.floats(1e-3, 3), st.floats(-1, 1), st.floats(0.01, 1)
)
def test_one_pair_has_the_loss_of_its_two_eigenvalues(d, beta, s, place, share):
    """[ST-4] with mpmath: the extreme points of the quotient are roots of a quadratic."""
    mp.mp.dps = 30
    d = mp.mpf(d)
    t = mp.mpf(place) * beta
    u = mp.mpf(share) * s * min(1, mp.exp(t))
    v = mp.acosh(mp.cosh(t) + mp.exp(-t) * u**2 / (2 * d))
    k = mp.exp(-2 * t)

    def at(z):
        return t + (d + 1) / 2 * mp.log((d + k * (z - u) ** 2) / (d + z**2))

    ends = [t + (d + 1) / 2 * mp.log(k)]
    if u:
        # The derivative of the quotient vanishes: k (z - u) (d + z^2) = z (d + k (z - u)^2).
        a, b, c = k * u, (k * d - d - k * u**2), -k * u * d
        root = mp.sqrt(b * b - 4 * a * c)
        ends += [at((-b + root) / (2 * a)), at((-b - root) / (2 * a))]
    else:
        ends.append(at(mp.mpf(0)))
    high = (d + 1) / 2 * v - (d - 1) / 2 * t
    low = -(d + 1) / 2 * v - (d - 1) / 2 * t
    assert abs(max(ends) - high) < 1e-20
    assert abs(min(ends) - low) < 1e-20
    top = largest_loss(float(d), beta, s)[1]
    assert max(high, -low) <= top


@pytest.mark.parametrize("case", CASES[:3])
def test_the_curve_encloses_the_worst_pair_by_quadrature(case):
    d, beta, s = case
    mechanism = noise(*case)
    f, top = mechanism.tradeoff(), mechanism.epsilon().upper
    z = np.sinh(np.linspace(-16, 16, 40_001))
    weight = np.cosh(np.linspace(-16, 16, 40_001)) * 32 / 40_000
    p = stats.t.pdf(z, d) * weight
    assert abs(p.sum() - 1) < (1e-6 if d >= 1 else 1e-3)
    for e in (0.0, 0.3 * top, 0.8 * top):
        bound, right = f.delta(e), 0.0
        for t in np.linspace(-beta, beta, 9):
            limit = s * min(1, math.exp(t))
            for u in (0.0, limit / 2, limit):
                away = p * np.exp(-loss(z, d, t, u))
                right = max(right, np.maximum(p - math.exp(e) * away, 0).sum())
        assert right <= bound.upper + 1e-6
        assert right >= bound.lower - 1e-6
        assert bound.width <= 2e-3 * bound.upper + 1e-9


@pytest.mark.parametrize("case", CASES)
def test_few_wide_cells_still_bound_every_scale_between_their_centers(case, monkeypatch):
    """One round of 16 cells is loose, and stays above what five rounds certify [ST-7]."""
    sharp = student_pairs.enclosing_polygons(*case)
    monkeypatch.setattr(student_pairs, "LIMITS", replace(student_pairs.LIMITS, rounds=1))
    loose = student_pairs.enclosing_polygons(*case)
    for level in (0.01, 0.1, 0.3, 0.6, 0.9):
        below, above, wide = (
            np.interp(level, *np.array(polygon, dtype=float).T) for polygon in (*sharp, loose[1])
        )
        assert below <= above <= below + 1e-3
        assert below < wide
        assert above <= wide + 1e-4


@pytest.mark.parametrize("case", [(0.1, 2, 5), (1000, 0.001, 3), (3, 20, 1e-6), (2, 1e-6, 1e-6)])
def test_extreme_arguments_have_a_curve(case):
    one = noise(*case)
    bound = one.tradeoff().advantage()
    assert 0 <= bound.lower <= bound.upper <= ny.pure(one.epsilon().upper).advantage().upper + 1e-9
    assert bound.width <= 0.01 * bound.upper + 1e-9


def test_the_curve_is_below_pure_epsilon_and_composes():
    one = noise(3, 0.1, 0.3)
    f, top = one.tradeoff(), F(one.epsilon().upper)
    assert f >= ny.pure(top * F(1_000_001, 1_000_000))
    assert float(f.pure()) <= float(top) * (1 + 1e-9)
    assert float(f.advantage()) < float(ny.pure(top).advantage()) / 2
    assert one.rho() < pure_rho(top)
    assert float(f.zcdp()) <= float(pure_rho(top)) * (1 + 1e-6)
    ten = (one * 10).tradeoff()
    assert float(ten.epsilon(1e-6)) < float((ny.pure(top) ** 10).epsilon(1e-6))
    assert ny.Mechanism.from_json(one.to_json()) == one


@pytest.mark.parametrize("d", [0.1, 0.5, 1, 2, 3, 7.5, 100, 1000])
def test_the_distribution_function_errs_by_less_than_a_hundredth_of_the_slack(d):
    """SciPy's incomplete beta function against that of mpmath [ST-7]; its `stdtr` errs by 1e-9."""
    mp.mp.dps = 40
    places = np.array([-1e4, -30.0, -3.0, -0.7, -1e-3, 1e-8, 0.4, 2.0, 50.0, 0.0, np.inf, -np.inf])
    for x, value in zip(places, lower_tail(d, places), strict=True):
        if math.isinf(x):
            assert value == (x > 0)
            continue
        half = mp.betainc(mp.mpf(d) / 2, 0.5, 0, d / (d + mp.mpf(x) ** 2), regularized=True) / 2
        right = half if x < 0 else 1 - half
        assert abs(float(right) - value) < STUDENT_LIMITS.probability_error / 100


def test_an_interval_is_refused_where_the_noise_has_no_variance():
    """At most 2 degrees; above, margin and deviation are those of Student's distribution."""
    for degrees in (2, 1, 0.5):
        for ask in (noise(degrees, 0.1, 0.3).margin, noise(degrees, 0.1, 0.3).standard_deviation):
            with pytest.raises(ValueError, match=rf"degrees = {degrees} must be above 2"):
                ask(1)
    one = noise(4, 0.1, 0.5)
    assert math.isclose(one.margin(2, 0.9), 4 * stats.t.ppf(0.95, 4), rel_tol=1e-12)
    assert math.isclose(one.standard_deviation(2), 4 * math.sqrt(2), rel_tol=1e-12)
    inside = integrate.quad(lambda x: stats.t.pdf(x, 4), -one.margin(2) / 4, one.margin(2) / 4)[0]
    assert math.isclose(inside, 0.95, rel_tol=1e-9)
    with pytest.raises(ValueError, match="confidence = 1"):
        one.margin(2, 1)
    with pytest.raises(ValueError, match="sensitivity = 0"):
        one.margin(0)


def test_a_mechanism_on_small_data_stays_within_its_epsilon_and_delta():
    d, beta, s = 3, F(1, 2), 0.7
    mechanism = noise(d, beta, s)
    f, top = mechanism.tradeoff(), mechanism.epsilon().upper
    claimed = {e: f.delta(e).upper for e in (0.0, 0.5, 1.0)}
    z = np.sinh(np.linspace(-12, 12, 8001)) * 2 + 1.5
    weight = np.gradient(z)
    laws = {}
    for x in itertools.combinations_with_replacement(range(4), 3):
        size = ny.smooth_sensitivity.median(x, lower=0, upper=3, smoothness=beta)
        laws[x] = stats.t.logpdf(z, d, float(size.value), float(size) / s)
    tightest = 0.0
    for x, one in laws.items():
        for i, y in itertools.product(range(3), range(4)):
            other = laws[tuple(sorted((*x[:i], y, *x[i + 1 :])))]
            assert np.abs(one - other).max() <= top * (1 + 1e-12)
            for e, most in claimed.items():
                delta = np.maximum(np.exp(one) - math.exp(e) * np.exp(other), 0) @ weight
                assert delta <= most + 1e-6
                tightest = max(tightest, delta / most)
    assert tightest > 0.9


@pytest.mark.parametrize("miss", ["0.9", "1/20", "1e-9", "1e-17", "1e-100", "1e-300"])
@pytest.mark.parametrize("degrees", [2.5, 3, 40])
def test_a_margin_covers_as_often_as_stated_also_next_to_1(degrees, miss):
    """The confidence is exact, and the tail is checked by mpmath."""
    share = 1 - (1 - F(miss)) if miss != "0.9" else F(9, 10)
    x = noise(degrees, 0.1, 1).margin(1, 1 - share)
    with mp.workdps(60):
        d = mp.mpf(degrees)
        tail = mp.betainc(d / 2, 0.5, 0, d / (d + mp.mpf(x) ** 2), regularized=True)
        target = mp.mpf(share.numerator) / share.denominator
        assert target * (1 - mp.mpf("1e-6")) <= tail <= target
