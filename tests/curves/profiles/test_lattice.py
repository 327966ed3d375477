"""Exact sums, the smoothed contour, and losses with values anywhere, against mp."""

import math
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, ndtr

import neyman as ny
import reference as ref
from neyman.curves import (
    Composition,
    GaussianLoss,
    LaplaceLoss,
    LatticeProfile,
    dots_profile,
    finite_loss,
    least_log_powers,
    mgf_below,
    rounded_gaussian_loss,
)
from neyman.curves.profiles.contour.contour import contour_profile
from neyman.curves.profiles.lattice.convolution import masses_profile, sums_profile
from neyman.curves.profiles.lattice.lattice import Side
from neyman.numerics import theta
from neyman.numerics.power_sums import power_sums

tries = settings(max_examples=25)
few = settings(max_examples=8)
masses = st.lists(st.integers(1, 40), min_size=2, max_size=4)
LEVELS = (1e-300, 1e-30, 1e-12, 1e-3, 0.05, 0.3, 0.7, 0.99)


def exactly(z):
    return mp.mpc(float(z.real), float(z.imag))


def power(law, level):
    """The power at the level whose logarithm the float math.log(level) is."""
    return ref.power(law, mp.exp(mp.mpf(math.log(level))))


def exact_profile(losses):
    return sums_profile(losses) or masses_profile(losses)


@pytest.mark.parametrize("epsilon", [F(1, 100), F(1, 1000), F(7, 10)])
def test_a_rounded_sum_of_masses_does_not_count_once_for_each_response(epsilon):
    """A unit of 2^-53 in the sum of both masses, 10^5 times, is ten times the width."""
    n, e = 10**5, float(epsilon)
    place = int(n * math.exp(e) / (1 + math.exp(e)))  # the mean number of true answers
    at = (2 * place - n + 0.6) * e
    with mp.workdps(40):
        step = mp.mpf(epsilon.numerator) / epsilon.denominator
        p = mp.exp(step) / (1 + mp.exp(step))
        k, total = place + 1, mp.mpf(0)
        weight = mp.binomial(n, k) * p**k * (1 - p) ** (n - k)
        while weight > mp.mpf(10) ** -30:
            total += weight * -mp.expm1(at - (2 * k - n) * step)
            weight *= p * (n - k) / ((1 - p) * (k + 1))
            k += 1
        truth = mp.log(total)
        bound = (ny.RandomizedResponse(epsilon) * n).tradeoff().log_delta(at)
        assert bound.lower <= truth <= bound.upper
    assert bound.upper - bound.lower < 1e-9


def losses(mechanism):
    return mechanism.tradeoff().alternatives[0]


def inside(interval, truth, width=math.inf):
    low, high = interval
    result = mp.log(truth) if truth else mp.mpf("-inf")
    narrow = high - low <= width or not truth
    return narrow and low - mp.mpf(10) ** -40 <= result <= high + mp.mpf(10) ** -40


def law_of(p, q):
    law = {}
    for a, b in zip(p, q, strict=True):
        v = mp.log(ref.exact(a) / ref.exact(b))
        law[v] = law.get(v, mp.mpf(0)) + ref.exact(a)
    return law


@st.composite
def pairs(draw):
    p = draw(masses)
    q = draw(st.lists(st.integers(1, 40), min_size=len(p), max_size=len(p)))
    return [F(a, sum(p)) for a in p], [F(b, sum(q)) for b in q]


@tries
@given(st.lists(st.tuples(pairs(), st.integers(1, 3)), min_size=1, max_size=2))
def test_finite_pairs_of_any_ratios_compose_exactly(parts):
    law = ref.together(*[law_of(*pair) for pair, n in parts for _ in range(n)])
    profile = exact_profile(Composition.of([(finite_loss(*pair), n) for pair, n in parts]))
    top = max(float(v) for v in law)
    for epsilon in (-0.7, 0.0, 0.3 * top, 0.8 * top, 0.95 * top):
        if any(abs(v - epsilon) < 1e-9 for v in law):
            continue
        assert inside(profile.log_delta(epsilon), ref.delta(law, epsilon), 2e-11), epsilon
    for level in LEVELS:
        assert inside(profile.log_power(math.log(level)), power(law, level), 2e-11), level


@few
@given(st.lists(st.tuples(pairs(), st.integers(1, 2)), min_size=1, max_size=2), st.booleans())
def test_the_smoothed_contour_contains_the_enumerated_values(parts, with_more):
    laws = [law_of(*pair) for pair, n in parts for _ in range(n)]
    composed = Composition.of([(finite_loss(*pair), n) for pair, n in parts])
    if with_more:
        composed = composed + losses(ny.DiscreteGaussian(1))
        laws.append(ref.discrete_gaussian(F(1), 1, 30))
    profile, law = contour_profile(composed), ref.together(*laws)
    for epsilon in (-1.0, 0.0, 0.11, 0.73, 2.1):
        assert inside(profile.log_delta(epsilon), ref.delta(law, epsilon)), epsilon
    for level in (1e-12, 1e-3, 0.05, 0.6):
        assert inside(profile.log_power(math.log(level)), power(law, level)), level


def test_many_discrete_gaussians_are_narrow_at_small_deltas():
    parts = [ny.DiscreteGaussian(F(40 + 6 * i, 10)) for i in range(12)]
    profile = contour_profile(losses(sum(parts[1:], parts[0])))
    for log_delta in (math.log(1e-5), math.log(1e-10)):
        low, high = profile.log_delta(profile.epsilon_near(log_delta))
        assert high - low <= 1e-4
        assert abs(high - log_delta) < 0.2


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 9.0, 30.0])
def test_two_discrete_gaussians_without_a_common_lattice_are_exact(epsilon):
    pairs = [("0.83", 1), ("1.1", 2)]
    law = ref.together(*(ref.discrete_gaussian(F(s) ** 2, k, 25) for s, k in pairs))
    one, other = (ny.DiscreteGaussian(*pair) for pair in pairs)
    log_delta = exact_profile(losses(one + other)).log_delta(epsilon)
    assert inside(log_delta, ref.delta(law, epsilon), 5e-12)


@tries
@given(pairs(), st.integers(2, 6), st.floats(0, 2))
def test_powers_keep_every_weight_within_its_stated_error(pair, count, tilt):
    p, q = pair
    law = law_of(p, q)
    places = sorted(law)
    result = power_sums(
        np.array([float(v) for v in places]),
        1.0,
        np.array([float(law[v]) for v in places]),
        count,
        tilt,
        relative=2.0**-52,
        place=2.0**-50,
    )
    truth = ref.together(*[law] * count)
    total = mp.fsum(w * mp.exp(tilt * v) for v, w in truth.items())
    # Places that fall together are compared together: their order is not the reference's.
    worst = float(np.max(result.relative)) + tilt * (result.place + 1e-15 * count * 8) + 1e-14
    exact = sorted((float(v), w * mp.exp(tilt * v)) for v, w in truth.items())
    places = np.array([v for v, _ in exact])
    ends = np.append(np.nonzero(np.diff(places) > 1e-9)[0] + 1, len(places))
    start = 0
    for end in ends:
        total = mp.fsum(w for _, w in exact[start:end])
        near = (result.loss > places[start] - 1e-10) & (result.loss < places[end - 1] + 1e-10)
        mass = mp.fsum(mp.mpf(float(x)) for x in result.weight[near]) * mp.exp(result.log_scale)
        assert abs(mass / total - 1) <= worst
        start = end


@pytest.mark.parametrize(
    ("s2", "shift", "c"), [(1e-3, 1, 0.4), (0.3, 2, 7.7), (0.6, 1, 1), (5, 3, 0.2), (90, 1, 3.3)]
)
def test_the_discrete_gaussians_transform_stays_within_its_stated_error(s2, shift, c):
    u = np.array([0.0, 0.3, 4.0, 61.0, 1000.0])
    result, error = theta.log_mgf(s2, shift, c + 1j * u), theta.rounding(s2, shift, c + 1j * u)
    edge = int(40 * math.sqrt(s2)) + int(c * shift) + 3
    law = {
        mp.mpf(shift) * (shift - 2 * x) / (2 * mp.mpf(s2)): mp.exp(-mp.mpf(x * x) / (2 * s2))
        for x in range(-edge, edge + 1)
    }
    mass = mp.fsum(law.values())
    top = mp.fsum(w * mp.exp(c * v) for v, w in law.items()) / mass
    assert abs(float(mp.log(top)) - theta.log_mgf(s2, shift, np.array([c]))[0]) < 1e-10
    for at, k, e in zip(u, result, error, strict=True):
        truth = mp.fsum(w * mp.exp(mp.mpc(c, at) * v) for v, w in law.items()) / mass
        assert abs(mp.exp(exactly(k)) - truth) <= float(e) * top, at


def test_a_finite_pair_says_what_its_outcomes_give_away():
    loss = finite_loss([F(5, 10), F(3, 10), F(2, 10), F(0)], [F(2, 10), F(3, 10), F(0), F(5, 10)])
    assert loss.values == pytest.approx((0.0, math.log(2.5)))
    assert (loss.infinite, loss.missing) == (0.2, 0.5)
    back = loss.reverse()
    assert (back.infinite, back.missing) == (0.5, 0.2)
    assert back.values == pytest.approx((-math.log(2.5), 0.0))
    z = 0.7 + 0.31j * np.arange(40)
    truth = [mp.log(mp.mpf("0.3") + mp.mpf("0.5") * mp.mpf("2.5") ** exactly(w)) for w in z]
    error = loss.mgf_rounding(z)
    scale = math.exp(float(loss.log_mgf(np.array([0.7]))[0]))
    for w, k, t, e in zip(z, loss.log_mgf(z), truth, error, strict=True):
        assert abs(mp.exp(exactly(k)) - mp.exp(t)) <= float(e) * scale, w


def test_a_symmetric_finite_pair_is_its_own_reverse():
    loss = finite_loss([F(7, 10), F(3, 10)], [F(3, 10), F(7, 10)])
    assert loss.reverse() is loss


def test_losses_with_a_density_are_left_to_the_other_engines():
    assert exact_profile(Composition.of([(LaplaceLoss(F(1)), 2)])) is None


@pytest.mark.parametrize("level", [1e-30, 1e-12, 1e-4, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("count", [40, 200, 1000])
def test_the_type_ii_error_has_digits_however_small_it_is(epsilon, count, level):
    """Against the binomial distribution of randomized responses, with 60 digits."""
    f = (ny.RandomizedResponse(epsilon, 2) * count).tradeoff()
    with mp.workdps(60):
        p = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
        q, rest, miss = 1 - p, mp.mpf(level), mp.mpf(1)
        for k in range(count, -1, -1):
            ways = mp.binomial(count, k)
            null = ways * q**k * p ** (count - k)
            part = min(rest / null, mp.mpf(1))
            miss -= part * ways * p**k * q ** (count - k)
            rest -= part * null
            if part < 1:
                break
        exact = float(miss)
    if exact < 1e-50:  # the reference has no digits there
        return
    bound = f(level)
    assert bound.lower <= exact * (1 + 1e-9)
    assert bound.upper >= exact * (1 - 1e-9)
    assert bound.upper - bound.lower <= 1e-6 * bound.upper


@pytest.mark.parametrize(("mu", "level"), [(10.0, 1e-3), (5.0, 0.5), (20.0, 1e-20), (1.0, 0.999)])
def test_the_type_ii_error_of_a_gaussian_has_digits(mu, level):
    bound, exact = ny.Gaussian(1 / mu).tradeoff()(level), ref.gaussian_miss(mu, level)
    assert bound.lower * (1 - 1e-11) <= exact <= bound.upper * (1 + 1e-11)
    assert bound.width <= 1e-9 * bound.upper


@pytest.mark.parametrize(("count", "deviations"), [(30_000, 5), (30_000, 12), (1_000_000, 5)])
def test_a_type_ii_error_counts_the_losses_far_below_its_threshold(count, deviations):
    """Of many responses at a level below the floats, against binomial sums of 40 digits."""
    with mp.workdps(40):
        p = 1 / (1 + mp.exp(-2))
        k = int(count * p - deviations * mp.sqrt(count * p * (1 - p)))

        def tail(chance, start, step):
            """The mass from ``start`` on, in the direction in which it falls."""
            log = mp.loggamma(count + 1) - mp.loggamma(start + 1) - mp.loggamma(count - start + 1)
            term = mp.exp(log + start * mp.log(chance) + (count - start) * mp.log(1 - chance))
            total, at, odds = mp.mpf(0), start, chance / (1 - chance)
            while term > total * mp.mpf(10) ** -30:
                total += term
                term *= (count - at) * odds / (at + 1) if step > 0 else at / odds / (count - at + 1)
                at += step
            return total

        log_level = float(mp.log(tail(1 - p, k, 1)))
        truth = mp.log1p(-tail(p, k - 1, -1))
    power = (ny.RandomizedResponse(2) * count).tradeoff().log_power(log_level=log_level)
    rounding = 8e-16 * abs(log_level)  # of the level, relative
    assert power.lower * (1 + rounding) <= truth <= power.upper * (1 - rounding)
    assert power.upper - power.lower < -1e-4 * power.upper


def test_bounds_that_overflowed_claim_nothing():
    """A NaN would make each comparison false, so that a target would seem to be met."""
    profile = dots_profile(losses(ny.Laplace(1) * 2))
    low, high = profile._with_infinite(np.array([math.nan, -2.0]), np.array([math.nan, -1.0]))
    assert low.tolist() == [-math.inf, -2.0]
    assert high.tolist() == [0.0, -1.0]


def test_an_epsilon_far_above_zero_is_found_where_little_noise_has_many_steps():
    """The engine knows nothing of delta at epsilon 0, 5 million below."""
    f = (ny.DiscreteGaussian(sigma=0.3) * 10**6).tradeoff()
    for delta in (1e-1, 1e-3, 1e-5):
        epsilon = f.epsilon(delta)
        assert epsilon.lower > 5.55e6
        assert epsilon.upper <= epsilon.lower * (1 + 1e-9)
        assert f.delta(epsilon.upper).upper <= delta
        assert f.delta(epsilon.lower * (1 - 1e-9)).lower > delta


@pytest.mark.parametrize(("sigma", "count"), [(0.3, 10**6), (9.53, 519_863)])
def test_a_power_with_a_miss_below_the_floats_is_one_and_not_above(sigma, count):
    f = (ny.DiscreteGaussian(sigma=sigma) * count).tradeoff()
    low, high = f.profiles[0].log_power(-64.0)
    assert -1e-300 < low < 0
    assert high == 0
    assert f.power(level=1e-20).lower < 1


@tries
@given(st.floats(0.05, 60), st.floats(-600, -1e-3))
def test_a_chernoff_bound_of_a_power_is_below_the_power(mu, log_level):
    losses = Composition.of([(GaussianLoss(mu * mu), 1)])
    low = least_log_powers(mgf_below(losses), np.array([log_level]))[0]
    with mp.workdps(60):
        level = mp.exp(mp.mpf(log_level))
        z = mp.findroot(lambda x: mp.log(mp.ncdf(x) / level), -math.sqrt(max(-2 * log_level, 1e-3)))
        miss = mp.ncdf(-(z + mu))
        assert low <= mp.log1p(-miss)


def test_sums_beyond_the_floats_claim_nothing():
    """Infinite sums of weights make the bounds wide; they never become a delta of 1 or of 0."""
    loss = np.arange(0.0, 700.0, 0.5)
    weight = np.full(len(loss), 1e300)
    side = Side(loss, weight, 2.0, -690.0, 0.0, 0.0, 0.0, 0.0)
    low, high = side.log_deltas(np.array([0.0, 100.0, 690.0]))
    known = low > -math.inf
    assert np.all(high[~known] == 0.0)
    exact = [
        float(logsumexp(np.log(-np.expm1(e - loss[loss > e])) - 2.0 * loss[loss > e]))
        + math.log(1e300)
        - 690.0
        for e in (0.0, 100.0, 690.0)
    ]
    assert np.all((low <= np.array(exact) + 1e-9) & (np.minimum(exact, 0.0) <= high + 1e-9))


def test_powers_at_many_levels_share_their_compositions(monkeypatch):
    """One serves every level whose threshold is within a deviation or two of it."""
    composed: list[float] = []
    original = LatticeProfile._compose_sides

    def counted(self, tilt):
        composed.append(tilt)
        return original(self, tilt)

    monkeypatch.setattr(LatticeProfile, "_compose_sides", counted)
    pairs = [((F(1, 4), 1), 2), ((F(9), 7), 3)]
    parts = [(rounded_gaussian_loss(*pair, alone=False).lower, n) for pair, n in pairs]
    profile = dots_profile(Composition.of(parts), 1 << 14)
    log_levels = np.log(ndtr(np.linspace(-3.75, 3.75, 60)))
    low, high = profile.log_powers(log_levels)
    assert 1 < len(composed) <= 20
    for log_level, *together in zip(log_levels[::6], low[::6], high[::6], strict=True):
        alone = dots_profile(Composition.of(parts), 1 << 14).log_power(float(log_level))
        assert max(together[0], alone[0]) <= min(together[1], alone[1])
        misses = [-math.expm1(x) for x in (*together, *alone)]
        assert misses[0] - misses[1] <= 1.05 * (misses[2] - misses[3]) + 1e-9 * misses[0]


@pytest.mark.parametrize("epsilon", [-600.0, -1.0, 0.0, 0.3, 1.2, 2.0])
def test_two_laws_with_a_mass_too_small_for_powers_are_added_pair_by_pair(epsilon):
    """Against every pair of outcomes, at deltas on both sides of what the small mass decides."""
    p = [F(1, 10**290), F(1, 5), F(1, 2), F(3, 10) - F(1, 10**290)]
    q = [F(1, 10), F(2, 5), F(2, 5), F(1, 10)]
    profile = exact_profile(Composition.of([(finite_loss(p, q), 2)]))
    with mp.workdps(400):
        e, (p, q) = mp.exp(mp.mpf(epsilon)), ([ref.exact(x) for x in side] for side in (p, q))
        pairs = list(zip(p, q, strict=True))
        truth = mp.fsum(max(a * b - e * c * d, 0) for a, c in pairs for b, d in pairs)
        assert inside(profile.log_delta(epsilon), truth, 1e-9)
