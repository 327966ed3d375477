"""Laws that every curve obeys, for random mechanisms."""

import math
from fractions import Fraction as F

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import Tradeoff
from neyman.curves import Composition, FiniteLoss
from random_laws import examples

SLACK = 1e-9  # relative: for curves that are read off certified intervals of some width
tries = settings(max_examples=25, suppress_health_check=list(HealthCheck))
slower = settings(tries, max_examples=10)

small = st.fractions(F(1, 20), F(3), max_denominator=20)
leaves = st.one_of(
    st.builds(ny.Gaussian, st.floats(0.4, 20)),
    st.builds(ny.Laplace, small),
    st.builds(ny.RandomizedResponse, small, st.integers(2, 6)),
    st.builds(ny.DiscreteLaplace, small, st.integers(1, 3)),
    st.builds(
        ny.DiscreteGaussian,
        small,
        st.one_of(st.integers(1, 2), st.just([(1, 1)]), st.just([(2,), (1, 1, 1)])),
    ),
)
single = leaves.map(lambda m: m.tradeoff())
finite = st.one_of(
    st.builds(ny.RandomizedResponse, small, st.integers(2, 6)),
    st.builds(ny.DiscreteLaplace, small, st.integers(1, 3)),
)
levels = st.one_of(st.floats(1e-12, 1 - 1e-9), st.floats(-40, -1).map(lambda x: 10.0**x))
budgets = st.one_of(
    single,
    st.builds(ny.pure, small),
    st.builds(ny.approximate, small, st.floats(1e-12, 0.3)),
    st.builds(ny.gdp, st.floats(0.01, 5)),
    st.just(ny.perfect()),
)


@tries
@given(budgets, st.lists(levels, min_size=3, max_size=3))
def test_type_ii_error_falls_with_the_level_and_stays_below_the_diagonal(f, xs):
    a, b, c = sorted(xs)
    fa, fb, fc = f(a), f(b), f(c)
    assert fa.upper >= fb.lower
    assert fb.upper >= fc.lower
    for x, y in ((a, fa), (b, fb), (c, fc)):
        assert 0 <= y.lower <= y.upper <= 1
        assert y.lower <= 1 - x + 1e-15
        assert f.power(x).upper >= x * (1 - 1e-15)


@tries
@given(budgets, levels, levels, st.floats(0.01, 0.99))
def test_each_direction_of_a_curve_is_convex(f, a, b, share):
    middle = share * a + (1 - share) * b
    for profile in f.profiles:
        low = [profile.log_power(math.log(x))[0] for x in (a, b)]
        line = share * math.exp(low[0]) + (1 - share) * math.exp(low[1])
        assert math.exp(profile.log_power(math.log(middle))[1]) >= line * (1 - 1e-12)


@tries
@given(budgets, st.floats(0, 4), st.floats(0, 4), st.floats(0.01, 0.99))
def test_delta_falls_and_is_convex_in_e_to_the_epsilon(f, a, b, share):
    a, b = sorted((a, b))
    assert f.delta(a).upper >= f.delta(b).lower
    middle = math.log(share * math.exp(a) + (1 - share) * math.exp(b))
    line = share * f.delta(a).upper + (1 - share) * f.delta(b).upper
    assert f.delta(middle).lower <= line + 1e-14


@tries
@given(budgets, st.floats(-60, -0.5), st.floats(0, 3))
def test_epsilon_and_delta_invert_each_other(f, log_delta, at):
    epsilon = f.epsilon(log_delta=log_delta)
    if math.isfinite(epsilon.upper):
        assert f.log_delta(epsilon.upper).lower <= log_delta + 1e-12
    if epsilon.lower == math.inf:  # more infinite loss than delta: no epsilon is enough
        assert f.log_delta(1e300).upper >= log_delta - 1e-12
    elif epsilon.lower > 0:
        assert f.log_delta(epsilon.lower).upper >= log_delta - 1e-12
    log_delta = f.log_delta(at).upper
    assert not -600 < log_delta < 0 or f.epsilon(log_delta=log_delta).lower <= at + 1e-12


@tries
@given(budgets, levels, st.floats(0, 5), st.floats(1, 50))
def test_lower_never_exceeds_upper_and_numbers_stay_in_range(f, level, epsilon, order):
    for bound in (f.delta(epsilon), f.power(level), f(level), f.advantage()):
        assert 0 <= bound.lower <= bound.upper <= 1
    for bound in (f.renyi(order), f.zcdp(), f.gdp(), f.pure(), f.epsilon(1e-6)):
        assert 0 <= bound.lower <= bound.upper
    assert f.advantage() == f.delta(0.0)


@tries
@given(budgets, st.floats(1.01, 20), st.floats(1.01, 20))
def test_renyi_divergence_grows_with_its_order_up_to_the_pure_epsilon(f, a, b):
    a, b = sorted((a, b))
    assert f.renyi(a).lower <= f.renyi(b).upper
    assert f.renyi(b).lower <= f.pure().upper
    assert f.renyi(a).lower <= a * f.zcdp().upper * (1 + 1e-14)


@slower
@given(finite, finite, leaves, st.floats(0, 2), levels)
def test_composition_is_commutative_and_associative_and_never_more_private(a, b, c, epsilon, level):
    one, other = (a + b).tradeoff(), (b + a).tradeoff()
    assert a + b == b + a
    assert (one, one.delta(epsilon), one.power(level)) == (
        other, other.delta(epsilon), other.power(level)
    )  # fmt: skip
    assert one.delta(epsilon).upper >= a.tradeoff().delta(epsilon).lower
    assert one.power(level).upper >= b.tradeoff().power(level).lower
    assert (a + b) + c == a + (b + c)
    f, g, h = a.tradeoff(), b.tradeoff(), c.tradeoff()
    assert set(((f @ g) @ h).alternatives) == set((f @ (g @ h)).alternatives)


@slower
@given(leaves, st.integers(1, 3))
def test_a_multiple_is_a_repeated_sum(m, n):
    total = m
    for _ in range(n - 1):
        total = total + m
    assert total == m * n
    assert set(total.tradeoff().alternatives) == set((m * n).tradeoff().alternatives)


def pair(index, weights, step):
    """A finite pair on a lattice whose P- and Q-masses both sum to one, by tilting."""
    values = [float(step) * i for i in index]
    total = sum(weights)
    p = [w / total for w in weights]
    low, high = -60.0, 60.0

    def excess(t):
        q = [x * math.exp(t * v) for x, v in zip(p, values, strict=True)]
        s = sum(q)
        return sum(x / s * math.exp(-v) for x, v in zip(q, values, strict=True)) - 1

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    q = [x * math.exp(high * v) for x, v in zip(p, values, strict=True)]
    return [x / sum(q) for x in q]


def curve(step, masses):
    index = tuple(sorted(masses))
    logs = tuple(math.log(masses[i]) for i in index)
    return Tradeoff.of([Composition.of([(FiniteLoss(step, index, logs), 2)])])


@tries
@given(
    st.lists(st.floats(0.05, 1), min_size=9, max_size=9),
    st.floats(0.05, 0.95),
    st.floats(0, 2),
    levels,
)
def test_merging_outcomes_never_makes_a_curve_less_private(weights, keep, epsilon, level):
    step = F(1, 5)
    index = [-4, -3, -2, -1, 0, 1, 2, 3, 4]
    p = dict(zip(index, pair(index, weights, step), strict=True))
    # Move the outcomes 4 and -4 together onto the lattice: shares of both that balance at loss 0.
    h = float(step)
    up, down = p[4] * keep, 0.0
    down = up * -math.expm1(-4 * h) / math.expm1(4 * h)
    if down >= p[-4]:
        up, down = up * p[-4] / down * 0.9, p[-4] * 0.9
    garbled = dict(p)
    garbled[4] -= up
    garbled[-4] -= down
    garbled[0] += up + down
    f, g = curve(step, p), curve(step, garbled)
    assert g.delta(epsilon).lower <= f.delta(epsilon).upper * (1 + 1e-13)
    assert g.power(level).lower <= f.power(level).upper * (1 + 1e-13)


@slower
@given(small, st.integers(2, 8), st.floats(0.5, 10), st.floats(1.001, 3), st.floats(0, 3), levels)
def test_more_categories_and_more_noise_reveal_less(size, k, scale, factor, epsilon, level):
    pairs = [(ny.RandomizedResponse(size, k), ny.RandomizedResponse(size, k + 1))]
    pairs += [(family(scale), family(scale * factor)) for family in (ny.Gaussian, ny.Laplace)]
    for less, more in pairs:
        assert more.tradeoff().delta(epsilon).lower <= less.tradeoff().delta(epsilon).upper
        assert more.tradeoff().power(level).lower <= less.tradeoff().power(level).upper


@slower
@given(leaves, levels, st.floats(0, 3))
def test_hulls_inverses_and_probabilistic_bounds_are_never_more_private(m, level, epsilon):
    f = m.tradeoff()
    assert f.symmetric().power(level).upper >= f.power(level).lower * (1 - 1e-14)
    assert f.inverse().power(level).upper >= f.power(level).lower
    assert f.pbdp(epsilon).upper >= f.delta(epsilon).lower


@settings(tries, max_examples=examples(40))
@given(st.lists(leaves, min_size=2, max_size=3), st.floats(0, 4), levels)
def test_delta_and_power_of_random_compositions_obey_duality(parts, epsilon, level):
    total = sum(parts[1:], parts[0])
    f = total.tradeoff()
    line = f.delta(epsilon).upper + math.exp(epsilon) * level
    assert f.power(level).lower <= line * (1 + 1e-14)
