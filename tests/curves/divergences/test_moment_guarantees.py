"""Bare moment guarantees against their definition: given orders, every order, both directions."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Tradeoff, renyi, tcdp, zcdp
from neyman.curves import finite_pair
from neyman.curves.divergences.admission import _spent
from neyman.curves.divergences.envelope import loss_moment, trusted_rho
from random_laws import examples
from reference import exact

INF = math.inf


def divergence(p, q, order):
    """D_order(p || q) of finite distributions without infinite loss, in 40 digits."""
    pairs = [(mp.mpf(a), mp.mpf(b)) for a, b in zip(p, q, strict=True) if a]
    if order == INF:
        return max(mp.log(a / b) for a, b in pairs)
    if order == 1:
        return mp.fsum(a * mp.log(a / b) for a, b in pairs)
    order = mp.mpf(order)
    return mp.log(mp.fsum(a**order * b ** (1 - order) for a, b in pairs)) / (order - 1)


def worst_given(y, x, bounds):
    """The largest D_a - bound over given orders and both directions of two coins."""
    with mp.workdps(40):
        y, x = mp.mpf(y), mp.mpf(x)
        one, two = (y, 1 - y), (x, 1 - x)
        return max(
            divergence(p, q, a) - mp.mpf(e)
            for a, e in bounds.items()
            for p, q in ((one, two), (two, one))
        )


def worst_order(y, x, rho, top=INF):
    """sup over orders up to the top and directions of D_a / (a rho) - 1, by search in 40 digits."""
    with mp.workdps(40):
        y, x, rho = mp.mpf(y), mp.mpf(x), mp.mpf(rho)
        best = -mp.inf
        for p, q in (((y, 1 - y), (x, 1 - x)), ((x, 1 - x), (y, 1 - y))):

            def ratio(t, p=p, q=q):
                a = min(1 + mp.exp(t), mp.mpf(top))
                return divergence(p, q, a) / (a * rho) - 1

            places = [mp.mpf(k) / 4 for k in range(-50, 60)]
            values = [ratio(t) for t in places]
            i = max(range(len(values)), key=lambda j: values[j])
            low, high = places[max(i - 1, 0)], places[min(i + 1, len(places) - 1)]
            for _ in range(60):
                left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
                low, high = (low, right) if ratio(left) > ratio(right) else (left, high)
            best = max(best, divergence(p, q, 1) / rho - 1, values[i], ratio(low))
        return best


@pytest.mark.parametrize(
    ("rho", "level", "top"),
    [
        *(("0.001", 1e-4, INF), ("0.01", 0.9, INF), ("0.1", 0.05, INF), ("0.5", 1e-4, INF)),
        *(("1", 1e-30, INF), ("1", 0.1, INF), ("2.63", 0.01, INF), ("10", 1e-10, INF)),
        *(("0.3", level, 3) for level in (1e-8, 0.05, 0.6)),
    ],
)
def test_power_is_between_an_allowed_point_and_an_excluded_one(rho, level, top):
    """Some order up to the top excludes the upper end, and no order the lower one, close by."""
    power = (zcdp(rho) if top == INF else tcdp(rho, top)).power(level)
    assert worst_order(power.upper, level, rho, top) >= 0
    assert worst_order(power.lower, level, rho, top) <= 0
    assert power.width <= 2e-6 * power.upper
    assert power.lower >= zcdp(rho).power(level).lower * (1 - 1e-9)


BOUNDS = [
    *({2: "0.1"}, {1: "0.1"}, {2: "0.1", 8: "0.5"}, {"1.5": "0.05", 4: 1}, {1: "0.02", INF: 2}),
    *({2: "0.1", 8: "0.5", INF: 4}, {2: "1e-9"}, {100: 20}),
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("level", [1e-12, 0.05, 0.5, 0.99])
def test_given_orders_bound_the_power(bounds, level):
    exact = {a if a == INF else mp.mpf(str(a)): mp.mpf(e) for a, e in bounds.items()}
    power = renyi(bounds).power(level)
    assert power.upper >= 1 or worst_given(power.upper * (1 + 1e-11), level, exact) >= 0
    assert worst_given(power.lower, level, exact) <= 1e-300
    assert power.width <= (1e-3 if bounds == {2: "1e-9"} else 1e-6) * power.upper


@pytest.mark.parametrize("make", [zcdp, lambda e: renyi({2: e, 16: 5}), lambda e: tcdp(e, 4)])
@pytest.mark.parametrize("e", ["0.1", "2.63"])
def test_delta_is_the_conjugate_of_power(make, e):
    """No level's power minus t level exceeds delta, and some level's is near it."""
    f = make(e)
    for epsilon in (0.0, 1.0, 4.0):
        delta = f.delta(epsilon)
        levels = np.exp(np.linspace(-20, 0, 800, endpoint=False))
        best = max(
            power.lower - math.exp(epsilon) * level
            for power, level in zip(f.powers(levels), levels, strict=True)
        )
        assert best <= delta.upper
        assert delta.lower <= delta.upper < max(best, 0) * 1.005 + 1e-8


def test_many_bare_guarantees_compose_in_rho_before_they_become_a_curve():
    """A hundred times .01 is rho 1, whose epsilon at 1e-6 is 7.77."""
    assert round((zcdp("0.01") ** 100).epsilon(1e-6).upper, 2) == 7.77
    assert zcdp("0.5") @ zcdp("0.5") == zcdp(1)
    assert renyi({2: "0.1"}) ** 3 == renyi({2: "0.3"})
    assert tcdp("0.1", 5) @ zcdp("0.1") == tcdp("0.2", 5)
    assert renyi({INF: 2}) == ny.pure(2)


orders = st.fractions(Fraction(11, 10), 20, max_denominator=10)
epsilons = st.fractions(Fraction(1, 100), 5, max_denominator=100)


def implied(bounds, order):
    """The least chord through two given moments around the order; inf beyond the largest."""
    tau = {Fraction(1): Fraction(0)} | {a: (a - 1) * e for a, e in bounds.items()}
    chords = [
        t if a == b else t + (u - t) * (order - a) / (b - a)
        for a, t in tau.items()
        for b, u in tau.items()
        if a <= order <= b and (a, b) != (1, 1)
    ]
    return min(chords, default=INF) / (order - 1)


@settings(max_examples=examples(120))
@given(
    st.dictionaries(orders, epsilons, min_size=1, max_size=4),
    st.dictionaries(orders, epsilons, min_size=1, max_size=4),
    orders,
)
def test_each_order_adds_what_the_parts_imply(one, two, order):
    """A sum allows at any order exactly the sum of what convexity makes of each part's bounds."""
    both = (renyi(one) @ renyi(two)).alternatives[0].bare
    assert both.divergence(order) == implied(one, order) + implied(two, order)
    assert renyi(one).renyi(order).upper >= implied(one, order)


@settings(max_examples=examples(28))
@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=4),
    st.lists(st.integers(1, 30), min_size=4, max_size=4),
    st.lists(st.sampled_from([1, 1.25, 2, 3, 7, 30, INF]), min_size=1, max_size=3, unique=True),
)
def test_the_curve_covers_every_pair_that_keeps_the_bounds(p, q, chosen):
    """Its own divergences, taken as bounds, imply a curve no better, also composed with itself."""
    p = [Fraction(a, sum(p)) for a in p]
    q = [Fraction(a, sum(q[: len(p)])) for a in q[: len(p)]]
    laws = [[exact(a) for a in law] for law in (p, q)]
    bounds = {
        a: max(1e-6, *(float(divergence(*u, a)) * (1 + 1e-5) for u in (laws, laws[::-1])))
        for a in chosen
    }
    pair, guarantee = ny.between(p, q), renyi(bounds)
    assert guarantee.admits(pair) or any(e < 1e-5 for e in bounds.values())
    for f, g in ((pair, guarantee), (pair**2, guarantee**2)):
        for level in (1e-6, 0.05, 0.4, 0.9):
            assert f.power(level).lower <= g.power(level).upper
        for epsilon in (0.0, 0.3, 2.0):
            assert f.delta(epsilon).lower <= g.delta(epsilon).upper
    for a in chosen:  # in, then out: never tighter than what came in implies
        assert guarantee.renyi(a).upper >= pair.renyi(a).lower


@pytest.mark.parametrize("mu", [0.01, 0.5, 1.0, 4.0])
def test_a_gaussian_lies_within_its_zcdp(mu):
    f, g = ny.gdp(mu), zcdp(Fraction(str(mu)) ** 2 / 2)
    levels = np.geomspace(1e-12, 0.999, 25)
    for a, b in zip(f.powers(levels), g.powers(levels), strict=True):
        assert a.lower <= b.upper
    for epsilon in (0.0, mu, 5 * mu):
        assert f.delta(epsilon).lower <= g.delta(epsilon).upper


def test_divergences_come_out_as_they_went_in():
    """At a given order the bound itself, beyond the largest inf, in between the chord's."""
    f = renyi({2: 0.1})
    assert (f.renyi(2).upper, f.renyi(8).lower, f.pure().lower) == (0.1, INF, INF)
    assert f.renyi(2).lower > 0.1 - 1e-9  # two coins attain it
    assert renyi({1.1: 0.1}).renyi(1.1).upper == 0.1
    assert renyi({2: 0.1, INF: 3}).pure().upper == 3
    assert zcdp(0.1).renyi(8).lower >= 0.8 * (1 - 1e-15)
    assert renyi({2: 5, 8: 0.5}).renyi(2).upper == 0.5  # D_a grows with a
    assert tcdp(0.1, 5).renyi(5).upper == 0.5
    assert tcdp(0.1, 5).renyi(6).lower == tcdp(0.1, 5).zcdp().lower == INF
    mixed = zcdp(0.1) @ renyi({2: 0.1}) @ ny.gdp(1)
    assert math.isclose(mixed.renyi(2).upper, 1.3)


def test_a_lower_end_of_a_tiny_bound_is_that_of_two_coins_which_keep_it():
    """Coins of log-odds 1e-4 attain the bound of order 8, and with it the lower end of order 2."""

    def divergence_of_coins(a):
        p = 1 / (1 + mp.exp(mp.mpf("-1e-4")))
        return mp.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)

    lower = renyi({8: float(divergence_of_coins(8))}).renyi(2).lower
    assert math.isclose(lower, divergence_of_coins(2), rel_tol=1e-4)


def test_what_losses_spend_is_no_less_than_the_product_of_rho_and_the_order():
    """In floats, against the product in fractions: next to order 1 the moment itself drowns."""
    for k in range(60):
        known = ny.gdp(0.1 + k / 7).alternatives[0]
        a = 1 + 3.0**-k
        exact = Fraction(trusted_rho(known)) * Fraction(a) * (Fraction(a) - 1)
        spent = _spent(known, np.array([a]))[0]
        assert spent >= min(exact, float(loss_moment(known, np.array([a]))[0]))


def test_the_largest_ratio_to_the_order_is_a_rho():
    """With a pure epsilon, sup D_a / a is within the rho that is claimed, and near it."""
    bare = renyi({2: "0.1", 8: 3, INF: 40}).alternatives[0].bare
    ratios = [bare.divergence(a) / a for a in map(Fraction, np.geomspace(1, 1e6, 4000))]
    assert max(ratios) <= bare.rho <= max(ratios) * Fraction(1001, 1000)
    assert ny.pure(2).zcdp().upper >= renyi({2: 1.9, INF: 2}).zcdp().lower


CASES = [
    ((0, 3, 5, 2), (1, 4, 4, 1)),
    ((2, 3, 4, 1), (0, 5, 2, 3)),
    ((2, 3, 0, 5), (0, 4, 4, 2)),
    ((1, 0, 9), (0, 6, 4)),
]


def coins(p, q, y, x):
    one = [a * b for a in p for b in (y, 1 - y)]
    two = [a * b for a in q for b in (x, 1 - x)]
    return one, two


def best_power(p, q, level):
    pairs = sorted(zip(p, q, strict=True), key=lambda v: v[1] / v[0] if v[0] else mp.inf)
    power, left = mp.mpf(0), mp.mpf(level)
    for a, b in pairs:
        share = 1 if b <= left else left / b
        power, left = power + share * a, left - share * b
        if share < 1:
            break
    return power


@pytest.mark.parametrize(("p", "q"), CASES, ids=str)
@pytest.mark.parametrize("way", ["zcdp", "renyi"])
def test_infinite_masses_of_both_laws_beside_a_bare_guarantee(p, q, way):
    p, q = [mp.mpf(a) / sum(p) for a in p], [mp.mpf(a) / sum(q) for a in q]
    pair = finite_pair([Fraction(str(a)) for a in p], [Fraction(str(a)) for a in q])
    bare = zcdp("0.2") if way == "zcdp" else renyi({3: "0.6"})
    f = Tradeoff((pair + bare.alternatives[0],), ordered=True)
    near = 0.0
    for x in (0.02, 0.1, 0.3, 0.5, 0.7):
        y = bare.power(x).lower
        one, two = coins(p, q, mp.mpf(y), mp.mpf(x))
        for level in (0.001, 0.05, 0.2, 0.45, 0.8, 0.95):
            reached, bound = best_power(one, two, level), f.power(level)
            assert reached <= bound.upper * (1 + 1e-12)
            near = max(near, float(reached) / bound.upper)
        for epsilon in (0.0, 0.2, 1.0, 3.0):
            t = mp.exp(epsilon)
            reached = sum(max(a - t * b, 0) for a, b in zip(one, two, strict=True))
            assert reached <= f.delta(epsilon).upper * (1 + 1e-12)
    assert near > 0.8


@pytest.mark.parametrize("mass", [1e-9, 0.01, 0.3])
def test_approximate_zcdp_is_zcdp_beside_a_failure(mass):
    """Power is m + (1 - m) power(level / (1 - m)), as the best test takes the failures."""
    f, g = zcdp("0.1", mass), zcdp("0.1")
    for level in (1e-6, 0.05, 0.5):
        inner = g.power(level / (1 - mass))
        assert f.power(level).upper >= (mass + (1 - mass) * inner.lower) * (1 - 1e-12)
        assert f.power(level).lower <= (mass + (1 - mass) * inner.upper) * (1 + 1e-12)
        assert f.power(level).width <= 1e-6 * f.power(level).upper
    delta, inner = f.delta(1.0), g.delta(1.0)
    assert math.isclose(delta.upper, mass + (1 - mass) * inner.upper, rel_tol=1e-9)
    assert f.power(0).upper == pytest.approx(mass)
    assert f.power(1).upper == 1
    assert f.zcdp().lower == INF


def test_an_ordered_pair_with_missing_mass_has_the_rho_that_its_divergences_need():
    """Against Q with an outcome that P lacks, D_a is log 10/9 even where the rest is equal."""
    tenth = Fraction(1, 10)
    f = Tradeoff((finite_pair([Fraction(1), Fraction(0)], [9 * tenth, tenth]),), ordered=True)
    assert f.zcdp().upper >= math.log(10 / 9) * (1 - 1e-12)


def test_known_losses_enter_by_their_own_divergences():
    """Less than with rho, epsilon^2 / 2, and at least what a Gaussian of the bare rho reaches."""
    known = ny.Laplace(2).tradeoff()
    f = zcdp("0.1") @ known
    by_rho = zcdp(Fraction(1, 10) + Fraction(1, 8))
    reached = ny.gdp(math.sqrt(0.2)) @ known
    for level in (1e-6, 0.05, 0.5):
        assert f.power(level).upper <= by_rho.power(level).upper * (1 + 1e-9)
        assert f.power(level).upper >= reached.power(level).lower
        assert f.power(level).lower >= reached.power(level).lower * (1 - 1e-9)
    assert f.power(0.05).upper < 0.98 * by_rho.power(0.05).upper
    # A Gaussian's divergences are those of its rho.
    one, two = (zcdp("0.1") @ ny.gdp(1)).power(0.05), zcdp("0.6").power(0.05)
    assert math.isclose(one.upper, two.upper, rel_tol=1e-9)


def test_budgets_are_checked_by_their_own_divergences():
    """Each order, the truncated ratio, rho with a mass: certified yes, and no beyond the edge."""
    step = ny.Gaussian(1).subsample(rate=0.01) * 1000
    failing = ny.gdp(0.4) @ ny.approximate(0.1, 1e-6)
    assert ny.gdp(1) >= zcdp("0.500001")
    for budget, meets, breaks in (
        (zcdp("0.500001"), [ny.Gaussian(1)], []),
        (zcdp("0.499999"), [], [ny.Gaussian(1)]),
        (renyi({2: 1, 8: 4}), [ny.Gaussian(1)], []),
        (renyi({2: 1, 8: "3.999"}), [], [ny.Gaussian(1)]),
        (renyi({2: 1, INF: 9}), [], [ny.Gaussian(1)]),
        (tcdp("0.5", 9), [ny.Gaussian(1)], []),
        (tcdp("0.2", 4), [step], []),
        (tcdp("0.2", 40), [], [step]),
        (zcdp("0.09", 1e-5), [failing], []),
        (zcdp("0.09", 1e-7), [], [failing]),
        (zcdp("0.08", 1e-5), [], [failing]),
        (zcdp("0.09"), [], [failing]),
        (renyi({2: "0.1"}), [renyi({2: "0.1"})], []),
        (zcdp(1), [], [renyi({2: "0.1"})]),
        (renyi({2: "0.2"}), [], [ny.approximate("0.01", 1e-9)]),
    ):
        assert all(budget.admits(m) for m in meets), budget
        assert not any(budget.admits(m) for m in breaks), budget


@pytest.mark.parametrize(
    ("make", "target", "known"),
    [
        (ny.Gaussian, renyi({8: 0.5}), math.sqrt(8)),
        (ny.Gaussian, tcdp("0.1", 20), math.sqrt(5)),
        (ny.Gaussian, zcdp("0.1", 1e-6), math.sqrt(5)),
        (ny.Laplace, renyi({1: 0.1, INF: 2}), None),
        (ny.Laplace, zcdp("0.1"), None),
        (lambda s: ny.Gaussian(s).subsample(rate=0.01) * 1000, renyi({2: 0.5, 32: 5}), None),
        (lambda s: ny.Gaussian(s).subsample(rate=0.01) * 1000, tcdp("0.05", 20), None),
    ],
)
def test_noise_is_calibrated_to_a_bare_guarantee(make, target, known):
    """What is returned is admitted, a little less is not, and Gaussian noise is the formula's."""
    parameter = ny.calibrate(make, target)
    assert target.admits(make(parameter))
    assert not target.admits(make(parameter * (1 - 1e-5)))
    if known:
        assert math.isclose(parameter, known, rel_tol=1e-8)


def test_a_bare_guarantee_is_above_another_only_where_its_bounds_are():
    assert zcdp("0.1") >= renyi({2: "0.2", 8: "0.8"})
    assert not zcdp("0.1") >= renyi({2: "0.2", 8: "0.79"})
    assert not renyi({2: "0.1"}) >= zcdp(1)
    assert renyi({2: "0.1", INF: 1}) >= zcdp("0.5")
    assert ny.pure(1) >= zcdp("0.5")


def test_zcdp_implies_no_gdp_and_no_pure_epsilon_and_a_bound_of_0_perfect_privacy():
    assert zcdp(1).gdp().upper == zcdp(1).pure().upper == renyi({2: 1}).gdp().lower == INF
    assert renyi({2: 0, 3: 1}) == tcdp(0, 5) == ny.perfect()


@pytest.mark.parametrize("rho", [10**6, "1e-12"])
def test_extreme_rho_gives_a_finite_epsilon(rho):
    """Bun and Steinke's conversion is an upper bound of the truth."""
    epsilon, rho = zcdp(rho).epsilon(1e-10), mp.mpf(float(rho))
    simple = rho + 2 * mp.sqrt(rho * mp.log(mp.mpf(10) ** 10))
    assert epsilon.lower <= simple
    assert epsilon.upper < 2 * simple


ENDS = [zcdp(10**12), zcdp("1e-150"), renyi({2: "1e-150"}), renyi({10**6: "0.1"})]


@pytest.mark.parametrize("bare", [*ENDS, renyi({"1.0001": 3}), tcdp(1, "1.001")])
def test_ends_of_the_range_have_answers(bare):
    for result in (bare.power(1e-300), bare.power(0.5), bare.delta(0), bare.delta(2)):
        assert 0 <= result.lower <= result.upper <= 1
    assert bare.power(0).upper == 0
    assert bare.power(0.5).upper >= 0.5
    assert bare.log_delta(600).upper <= 0


@pytest.mark.parametrize("curve", [ny.zcdp(1), ny.zcdp("0.125", delta=1e-6), ny.renyi({2: 0.1})])
def test_tangents_bound_delta_from_above_and_closely(curve):
    """Bounds from tangents are above those of a search, by at most 1e-3 of log delta."""
    (profile,) = curve.profiles
    epsilons = np.linspace(-2.0, 9.0, 23)
    exact, above = profile.log_deltas(epsilons), profile.from_above().log_deltas(epsilons)[1]
    assert np.all(above >= exact[0] - 1e-12)
    assert np.all(above - exact[1] <= 1e-3)
