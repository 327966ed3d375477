"""Bounded range: one release exact, several between what is attained and what dominates all."""

from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Tradeoff
from neyman.curves import BoundedRangeLoss, Composition, EnvelopeLoss, GaussianLoss, select
from random_laws import examples

ranges = st.sampled_from([F(1, 1000), F(1, 3), F(1), F(3), F(20)])


def curve(*parts):
    return Tradeoff.of([Composition.of(parts)])


def one_release(epsilon):
    return Composition.of([(BoundedRangeLoss(epsilon), 1)])


def two_point(epsilon, t):
    """P of the loss t where t - epsilon is the other value."""
    return -mp.expm1(t - epsilon) / -mp.expm1(-epsilon)


def two_point_delta(epsilon, t, s):
    p = two_point(epsilon, t)
    low = t - epsilon
    return p * max(-mp.expm1(s - t), 0) + (1 - p) * max(-mp.expm1(s - low), 0)


def two_point_power(epsilon, t, x):
    return min(mp.exp(t) * x, 1 - mp.exp(t - epsilon) * (1 - x))


def two_point_k(epsilon, t, z):
    high = two_point(epsilon, t) * mp.exp(z * t)
    low = -mp.expm1(-t) / -mp.expm1(-epsilon) * mp.exp((z + 1) * (t - epsilon))
    return mp.log(high + low)


def exact(x):
    return mp.mpf(x.numerator) / x.denominator


def inside(epsilon, count=41):
    return [epsilon * k / count for k in range(count + 1)]


@settings(max_examples=40)
@given(ranges, st.floats(-1.2, 1.0))
def test_one_release_has_the_largest_delta_over_all_ranges(epsilon, share):
    """No t exceeds the interval, and t = (s + epsilon) / 2 is in it."""
    a = exact(epsilon)
    s = float(share * a)
    low, high = select(one_release(epsilon)).log_delta(s)
    best = max(two_point_delta(a, t, mp.mpf(s)) for t in inside(a))
    middle = min(max((mp.mpf(s) + a) / 2, 0), a)
    truth = two_point_delta(a, middle, mp.mpf(s))
    assert best <= truth * (1 + mp.mpf(10) ** -30)
    if truth:
        assert mp.mpf(low) <= mp.log(truth) <= mp.mpf(high)
        # delta is about (epsilon - s)^2, and rounding moves s.
        assert high - low < 1e-9 + 1e-14 / abs(1 - share) or truth < 1e-12


@settings(max_examples=40)
@given(ranges, st.floats(-30.0, -1e-6))
def test_one_release_multiplies_the_odds(epsilon, log_level):
    a, x = exact(epsilon), mp.exp(mp.mpf(log_level))
    low, high = select(one_release(epsilon)).log_power(log_level)
    meets = -mp.log(x + mp.exp(-a) * (1 - x))
    truth = two_point_power(a, meets, x)
    assert max(two_point_power(a, t, x) for t in inside(a)) <= truth * (1 + mp.mpf(10) ** -30)
    assert mp.mpf(low) <= mp.log(truth) <= mp.mpf(high)
    assert high - low < 1e-10
    odds = truth / (1 - truth) / (x / (1 - x))
    assert abs(odds / mp.exp(a) - 1) < mp.mpf(10) ** -25


@pytest.mark.parametrize("epsilon", [F(1, 3), F(2), F(12)])
def test_the_envelope_is_the_profile_of_its_density(epsilon):
    """The density e^{l/2} on [-epsilon, epsilon] has the closed delta and K; reversed, itself."""
    a = exact(epsilon)

    def density(x):
        return mp.exp((x - a) / 2) / (2 * -mp.expm1(-a))

    loss = EnvelopeLoss(epsilon)
    assert loss.reverse() == loss
    for share in (-0.5, 0.0, 0.7):
        s = float(share * a)
        truth = mp.quad(lambda x, s=s: density(x) * -mp.expm1(s - x), [s, a])
        low, high = select(Composition.of([(loss, 1)])).log_delta(s)
        assert mp.mpf(low) <= mp.log(truth) <= mp.mpf(high)
    for z in (4.0, 0.2 + 20j):
        with mp.workdps(20):
            pieces = [a * k / 6 for k in range(-6, 7)]
            truth = mp.quad(lambda x, z=z: density(x) * mp.exp(z * x), pieces)
            result = mp.mpc(loss.log_mgf(np.array([z]))[0])
            real = mp.mpf(float(loss.log_mgf(np.array([np.real(z)]))[0]))
            apart = abs(mp.exp(result - real) - truth / mp.exp(real))
        assert apart <= loss.mgf_rounding(np.array([z]))[0]


@pytest.mark.parametrize("tilt", [0.01, 1.0, 30.0])
def test_the_decay_bounds_the_characteristic_function(tilt):
    loss = EnvelopeLoss(F(3, 2))
    edges = np.geomspace(0.01, 1e4, 40)
    bound = loss.decay(tilt, edges)
    for j in range(len(edges) - 1):
        u = np.linspace(edges[j], edges[j + 1], 9)
        k = loss.log_mgf(tilt + 1j * u) - loss.log_mgf(np.array([tilt]))
        assert np.all(np.real(k) <= bound[j] + 1e-12)


@settings(max_examples=examples(50))
@given(
    st.sampled_from([F(1, 10**5), F(1, 10), F(1), F(8), F(300)]),
    st.sampled_from([-4.0, -1.3, -0.6, -1e-4, 1e-5, 0.2, 1.0, 1.5, 7.0, 1e3, 1e6]),
)
def test_each_order_has_its_own_worst_range(epsilon, z):
    """K is the largest over t of e^K (the least between -1 and 0), found by a fine search."""
    sign = 1 if z > 0 or z < -1 else -1
    with mp.workdps(70):
        low, high = mp.mpf(0), exact(epsilon)
        for _ in range(120):  # e^K is unimodal in t
            places = low + (high - low) * mp.mpf("0.4"), low + (high - low) * mp.mpf("0.6")
            first, last = (sign * two_point_k(exact(epsilon), t, mp.mpf(z)) for t in places)
            low, high = (low, places[1]) if first > last else (places[0], high)
        truth = two_point_k(exact(epsilon), low, mp.mpf(z))
    loss, at = BoundedRangeLoss(epsilon), np.array([z])
    result, error = loss.log_mgf(at)[0], loss.mgf_rounding(at)[0]
    assert abs(mp.mpf(float(result)) - truth) <= error + abs(truth) * 1e-15
    assert z <= 0 or result <= z * (z + 1) * loss.rho * (1 + 1e-12) + error
    assert error <= 1e-9 * abs(float(truth)) + 1e-12


@pytest.mark.parametrize("epsilon", [F(1, 10), F(2), F(9)])
def test_the_curve_touches_its_gaussian_from_above(epsilon):
    """Mu is the distance at the level with the odds e^{-epsilon/2}, and no level has a larger."""
    f = curve((BoundedRangeLoss(epsilon), 1))
    mu = f.gdp()
    a = exact(epsilon)

    def z(p):
        return mp.sqrt(2) * mp.erfinv(2 * p - 1)

    def gap(logit):
        return z(1 / (1 + mp.exp(-logit - a))) - z(1 / (1 + mp.exp(-logit)))

    truth = gap(-a / 2)
    assert mu.lower <= truth <= mu.upper
    assert mu.upper / mu.lower < 1 + 1e-12
    assert all(gap(-a / 2 + mp.mpf(x)) <= truth for x in np.linspace(-12, 12, 49))


def adaptive(epsilon, releases, cells):
    """The largest delta over all adaptive choices of t on a grid: by induction from the end."""
    step = epsilon / cells
    reach = releases * cells
    s = np.arange(-2 * reach, 2 * reach + 1)
    value = np.maximum(-np.expm1(s * step), 0.0)
    j = np.arange(cells + 1)
    p = np.expm1((j - cells) * step) / np.expm1(-epsilon)
    for _ in range(releases):
        following = value.copy()
        for k in range(-reach, reach + 1):
            i = k + 2 * reach
            following[i] = max(p * value[i - j] + (1 - p) * value[i - j + cells])
        value = following
    return {k: value[k + 2 * reach] for k in range(reach + 1)}


@pytest.mark.parametrize(("epsilon", "releases"), [(F(1), 2), (F(1, 2), 4), (F(3), 3)])
def test_no_adaptive_choice_of_ranges_leaves_the_interval(epsilon, releases):
    cells = 32
    best = adaptive(float(epsilon), releases, cells)
    f = curve((BoundedRangeLoss(epsilon), releases))
    for k in (0, 4, 16, 32, 48):
        bound = f.delta(float(epsilon) * k / cells)
        assert bound.lower * (1 - 1e-9) <= best[k] <= bound.upper
        assert bound.upper < 1.6 * bound.lower


@pytest.mark.parametrize(("epsilon", "releases"), [(F(1, 10), 100), (F(1, 50), 10**4)])
def test_many_releases_use_the_orders(epsilon, releases):
    """Where the sum is nearly normal the orders do better than the envelope and than bare rho."""
    f = curve((BoundedRangeLoss(epsilon), releases))
    upper = f.epsilon(1e-6).upper
    assert upper < 0.95 * curve((EnvelopeLoss(epsilon), releases)).epsilon(1e-6).lower
    assert upper <= ny.zcdp(releases * epsilon**2 / 8).epsilon(1e-6).upper
    assert f.epsilon(1e-6).lower > 0.9 * upper
    assert f.power(1e-6).upper <= curve((EnvelopeLoss(epsilon), releases)).power(1e-6).upper


def test_renyi_divergences_add_up_exactly():
    """Each release may take the worst t of the order: KL and D_2 of three are three times one's."""
    a = mp.mpf(2)
    f = curve((BoundedRangeLoss(F(2)), 3))
    kl = mp.log(mp.expm1(a) / a) - 1 + a / mp.expm1(a)
    two = mp.log(mp.sinh(a) ** 2 / (4 * mp.sinh(a / 2) ** 2))
    for order, truth in ((1, 3 * kl), (2, 3 * two)):
        bound = f.renyi(order)
        assert bound.lower <= truth <= bound.upper
        assert bound.upper / bound.lower < 1 + 1e-6
    assert f.zcdp().upper == pytest.approx(float(3 * kl), rel=1e-14)
    assert f.pure().upper == 6


def test_ranges_go_with_other_losses():
    """Beside a Gaussian the answers stay between those with the lower and with the upper side."""
    gaussian, tenths = GaussianLoss(0.25), curve((BoundedRangeLoss(F(1, 10)), 100))
    f = curve((BoundedRangeLoss(F(1)), 2), (gaussian, 1))
    lower = ny.pure(F(1, 2)) ** 2 @ ny.gdp(0.5)
    upper = curve((EnvelopeLoss(F(1)), 2), (gaussian, 1))
    for epsilon in (0.1, 1.0, 2.5):
        bound = f.delta(epsilon)
        assert lower.delta(epsilon).lower * (1 - 1e-6) <= bound.lower
        assert bound.lower <= bound.upper <= upper.delta(epsilon).upper * (1 + 1e-6)
    assert "envelope: safe, not exact" in f.delta(1.0).method
    revealed, known = (tenths @ ny.approximate(0, 0.01)).delta(3.0).upper, tenths.delta(3.0).upper
    assert 0.01 <= revealed == pytest.approx(0.01 + 0.99 * known, rel=1e-2)
