"""Finite pairs and discrete Gaussians against full enumeration in 60 digits."""

import math
import tracemalloc
from fractions import Fraction as F

import exact_polygons as cv
import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman import Tradeoff
from neyman.curves import Composition, FiniteLoss

R, L = ny.RandomizedResponse, ny.DiscreteLaplace
CASES = {
    "one response": (R(F(1, 3)), [ref.response(F(1, 3))]),
    "responses of 5": (R(F(1, 2), 5) * 4, [ref.response(F(1, 2), 5)] * 4),
    "response and geometric": (
        R(F("0.3"), 3) * 2 + L(F(10, 3), 3) * 3,
        [ref.response(F("0.3"), 3)] * 2 + [ref.discrete_laplace(F(10, 3), 3)] * 3,
    ),
    "steep geometric": (L(F(1, 10), 2), [ref.discrete_laplace(F(1, 10), 2)]),
    "17 responses": (R(2) * 17, [ref.response(F(2))] * 17),
}
LEVELS = [1e-300, 1e-30, 1e-12, 1e-3, 0.05, 0.3, 0.5, 0.9, 1 - 1e-9, 1 - 1e-15]


@pytest.fixture(scope="module", params=list(CASES))
def case(request):
    mechanism, laws = CASES[request.param]
    return mechanism.tradeoff(), ref.together(*laws)


def test_delta_of_a_finite_pair_contains_the_enumerated_value(case):
    f, law = case
    top = float(f.exact_pure())
    for epsilon in [0.0, 1e-9, *(top * x for x in (0.01, 0.1, 0.3, 0.5, 0.77, 0.999, 0.9999999))]:
        truth = ref.delta(law, epsilon)
        assert ref.holds(f.delta(epsilon), truth)
        assert ref.holds(f.log_delta(epsilon), mp.log(truth))


def test_power_of_a_finite_pair_contains_the_enumerated_value(case):
    f, law = case
    for level in LEVELS:
        truth = ref.power(law, level)
        assert ref.holds(f.power(level), truth), level
        assert ref.holds(f.log_power(level), mp.log(truth)), level
        assert ref.holds(f(level), 1 - truth), level


@pytest.mark.parametrize("level", [3.8095676688316026e-300, 1.7e-250, 2.3e-99])
def test_the_lower_end_of_power_counts_the_rounding_of_the_level(level):
    law = ref.response(F(2, 3))
    power = ny.RandomizedResponse(F(2, 3)).tradeoff().power(level)
    assert ref.holds(power, ref.power(law, level))


def test_epsilon_of_a_finite_pair_is_on_both_sides_of_its_delta(case):
    f, law = case
    for target in (0.3, 1e-2, 1e-5, 1e-12, 1e-40):
        epsilon = f.epsilon(target)
        assert ref.delta(law, epsilon.upper) <= mp.mpf(target)
        assert epsilon.lower == 0 or ref.delta(law, epsilon.lower) >= mp.mpf(target)


def test_renyi_and_kl_of_a_finite_pair_contain_the_enumerated_value(case):
    f, law = case
    for order in (1, 1.0001, 1.5, 2, 8, 100):
        assert ref.holds(f.renyi(order), ref.renyi(law, order)), order


def test_pbdp_of_a_finite_pair_contains_the_brute_force_value(case):
    f, law = case
    top = float(f.exact_pure())
    for epsilon in (0.05 * top, 0.3 * top, 0.6 * top, 0.95 * top):
        assert ref.holds(f.pbdp(epsilon), ref.pbdp(law, epsilon)), epsilon


def test_pbdp_is_one_sided_near_epsilon_zero():
    f, law = ny.RandomizedResponse(F(1, 10)).tradeoff(), ref.response(F(1, 10))
    for epsilon in (1e-6, 1e-9, 1e-12):
        assert ref.holds(f.pbdp(epsilon), ref.pbdp(law, epsilon)), epsilon


def test_gdp_of_a_finite_pair_contains_the_largest_gap_over_its_corners(case):
    f, law = case
    assert ref.holds(f.gdp(), ref.mu(law))


@pytest.mark.parametrize("count", [50, 150, 300])
def test_gdp_of_many_responses_never_falls_below_the_largest_gap(count):
    law = {}
    p = mp.exp(1) / (1 + mp.exp(1))
    for k in range(count + 1):
        law[mp.mpf(2 * k - count)] = mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
    f = (ny.RandomizedResponse(1) * count).tradeoff()
    truth = ref.mu(law)
    assert ref.holds(f.gdp(), truth)
    assert not f >= ny.gdp(float(truth) * 0.99)


def power_of(masses, step, count):
    """The law of the sum of ``count`` losses, given the masses of multiples of ``step``."""
    total = {0: mp.mpf(1)}
    for _ in range(count):
        sums: dict[int, mp.mpf] = {}
        for a, p in total.items():
            for b, q in masses.items():
                sums[a + b] = sums.get(a + b, mp.mpf(0)) + p * q
        total = sums
    return {k * step: p for k, p in total.items()}


def response_law(epsilon, categories, count):
    e = mp.exp(ref.exact(epsilon))
    total = e + categories - 1
    masses = {1: e / total, 0: (categories - 2) / total, -1: 1 / total}
    return power_of(masses, ref.exact(epsilon), count)


def between_law(a, b, count):
    """The law of ``count`` draws from (a, 1 - a) against (b, 1 - b)."""
    x, y = ref.exact(a), ref.exact(b)
    rare, usual = mp.log(x / y), mp.log((1 - x) / (1 - y))
    return {
        k * rare + (count - k) * usual: mp.binomial(count, k) * x**k * (1 - x) ** (count - k)
        for k in range(count + 1)
    }


RARE = F(1, 10**20), F(1, 10**30)
SMALL = [
    *((F(3), 1000, 150), (F(3), 10**6, 60), (F("6.9"), 10**6, 99)),
    *((F(1000), 5, 30), (F("1e-4"), 10**9, 40), (*RARE, 20), (*RARE[::-1], 20)),
]


@pytest.mark.parametrize("law", SMALL)
def test_no_corner_is_lost_whose_mass_is_below_the_floats(law):
    a, b, count = law
    if isinstance(b, F):
        f, build = ny.between([a, 1 - a], [b, 1 - b]) ** count, between_law
    else:
        f, build = (ny.RandomizedResponse(a, b) * count).tradeoff(), response_law
    mu = f.gdp()
    with mp.workdps(60):
        truth = ref.mu(build(*law))
        assert mu.lower <= truth <= mu.upper
        assert mu.upper - truth <= max(1e-10 * truth, 2e-12)
    assert not f >= ny.gdp(mu.lower * (1 - 1e-6))
    assert not ny.gdp(mu.lower * (1 - 1e-6)).admits(f)
    assert ny.gdp(mu.upper).admits(f)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(-150, 0), min_size=2, max_size=3), st.integers(0, 10**6)),
        min_size=1, max_size=2,
    ),
    st.integers(1, 6),
)  # fmt: skip
def test_gdp_of_products_of_pairs_with_masses_of_any_size(parts, count):
    """Masses 10^k, whose products are often below the floats, enumerated in 60 digits."""
    f, laws = None, []
    for exponents, seed in parts:
        p = [F(10) ** k for k in exponents]
        turn = seed % len(p)
        q = p[turn:] + p[:turn]
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        one = ny.between(p, q) ** count
        f = one if f is None else f @ one
        law = {}
        for x, y in zip(p, q, strict=True):
            v = mp.log(ref.exact(x) / ref.exact(y))
            law[v] = law.get(v, mp.mpf(0)) + ref.exact(x)
        laws += [law] * count
    truth, mu = ref.mu(ref.together(*laws)), f.gdp()
    assert mu.lower <= truth <= mu.upper
    assert mu.upper - mu.lower <= 1e-10 * (1 + mu.upper)


@pytest.mark.parametrize(("epsilon", "count"), [("1e-4", 10**6), ("1e-8", 10**9), ("0.001", 1)])
def test_renyi_of_many_small_losses_counts_the_rounding_of_each(epsilon, count):
    one = ref.response(F(epsilon))
    f = (ny.RandomizedResponse(F(epsilon)) * count).tradeoff()
    for order in (1, 1.001, 2, 8):
        width = 1e-3 if count < 10**9 else 1.0
        assert ref.holds(f.renyi(order), count * ref.renyi(one, order), width), order


@pytest.mark.parametrize("sigma", ["0.0101", "0.0125", "0.02", "0.05", "0.2", "0.5", "1", "3.3"])
@pytest.mark.parametrize("shift", [1, 3])
def test_a_discrete_gaussian_contains_the_enumerated_values(sigma, shift):
    f = ny.DiscreteGaussian(sigma, shift).tradeoff()
    law = ref.discrete_gaussian(F(sigma) ** 2, shift)
    mu = shift / float(sigma)
    for epsilon in (0.0, mu / 10, mu, mu * mu / 2, mu * mu / 2 + 3 * mu, mu * mu / 2 + 10 * mu):
        truth = ref.delta(law, epsilon)  # an epsilon at an atom may be wide where delta is tiny
        width = 1e-7 if truth > 1e-9 else math.inf
        assert ref.holds(f.log_delta(epsilon), mp.log(truth), width), epsilon
    for level in (1e-30, 1e-3, 0.3, 1 - 1e-9):
        assert ref.holds(f.power(level), ref.power(law, level)), level


def test_gdp_of_a_wide_discrete_gaussian_needs_little_memory():
    tracemalloc.start()
    try:
        mu = ny.DiscreteGaussian(200_000).tradeoff().gdp()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert mu.lower <= 5.0001e-6
    assert 5e-6 <= mu.upper < 5.01e-6
    assert peak < 100e6


@pytest.mark.parametrize("delta", [1e-6, 1e-20, 1e-100, 1e-300])
def test_a_mass_of_infinite_loss_is_inside_its_own_interval(delta):
    for f in (ny.approximate(1, delta), ny.approximate(1, delta) @ ny.zcdp("0.01")):
        assert ref.holds(f.log_delta(2000.0), mp.log(delta))
        assert ref.holds(f.log_power(0), mp.log(delta))
    assert ref.holds(ny.perfect().log_power(delta), mp.log(delta))


@pytest.mark.parametrize("mechanism", [ny.RandomizedResponse(F(1, 3)), ny.Laplace(3)])
def test_a_float_just_below_the_pure_epsilon_still_has_a_positive_delta(mechanism):
    assert F(1 / 3) < F(1, 3)
    assert mechanism.tradeoff().delta(1 / 3).upper >= 1e-18


@pytest.mark.parametrize("neighbor", [-8, -1, 0, 1, 8])
def test_power_at_a_corner_is_as_narrow_as_elsewhere(neighbor):
    for m, law in (
        (ny.RandomizedResponse(5), ref.response(F(5))),
        (ny.DiscreteLaplace(F(1, 2), 3), ref.discrete_laplace(F(1, 2), 3)),
        (ny.RandomizedResponse(3) * 3, ref.together(*[ref.response(F(3))] * 3)),
    ):
        corner = mp.mpf(0)
        for loss in sorted(law, reverse=True)[:-1]:
            corner += law[loss] * mp.exp(-loss)
            level = float(corner) * (1 + neighbor * 2.0**-53)
            power = m.tradeoff().power(level)
            assert ref.holds(power, ref.power(law, level))
            assert power.width <= 1e-9 * power.upper, (m, level)


def test_an_asymmetric_pair_is_answered_in_its_worse_direction():
    a, b = mp.exp(mp.mpf("0.9")), mp.exp(mp.mpf("-0.3"))
    mass = (1 - b) / (a - b)  # P-mass at -0.9 that makes the Q-masses sum to one
    law = {mp.mpf("-0.9"): mass, mp.mpf("0.3"): 1 - mass}
    back = {-v: m * mp.exp(-v) for v, m in law.items()}
    loss = FiniteLoss(F(1, 10), (-9, 3), (float(mp.log(mass)), float(mp.log(1 - mass))))
    f = Tradeoff.of([Composition.of([(loss, 3)])])
    orders = ref.together(law, law, law), ref.together(back, back, back)
    for level in (1e-3, 0.05, 0.3, 0.8):
        truth, bound = max(ref.power(x, level) for x in orders), f.power(level)
        assert ref.meet(bound, (truth, truth), 1e-14)
        assert bound.width < 1e-11
        assert f.symmetric().power(level).upper >= bound.lower
        assert f.inverse().power(level).upper >= bound.lower
    for epsilon in (0.0, 0.2, 0.7, 2.0):
        truth = max(ref.delta(x, epsilon) for x in orders)
        assert ref.meet(f.delta(epsilon), (truth, truth), 1e-14)


@pytest.mark.parametrize("count", [1, 2, 50])
@pytest.mark.parametrize("share", [F(1, 10**10), F(1, 10**20)])
def test_steps_that_reveal_almost_surely_have_their_type_ii_error(share, count):
    """A float holds no such mass of infinite loss, and the rest of the loss keeps its digits."""
    one = ny.between([1 - share, 2 * share / 3, share / 3], [F(0), F(1, 3), F(2, 3)])
    f = one.replace([c * count for c in one.directions])
    f = f.part(next(c for c in f.directions if c.infinite > 0.5))  # one order
    # Every sequence without a revealing outcome has the chances (2/3, 1/3) against (1/3, 2/3).
    ways = [F(math.comb(count, k), 3**count) for k in range(count + 1)]
    p, q = ([w * 2 ** abs(k - n) for k, w in enumerate(ways)] for n in (0, count))
    truth = share**count * (1 - cv.power(p, q, F(1, 7)))
    miss = f(float(F(1, 7)))
    assert F(miss.lower) <= truth * (1 + F(1, 10**14)) + F(1, 10**307)
    assert truth * (1 - F(1, 10**14)) <= F(miss.upper)
