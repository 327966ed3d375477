"""Canonical noise: its unit shift has exactly the curve that was given."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman import CanonicalNoise
from seeded import Prescribed

MP = mpmath.mp.clone()
MP.dps = 60

CLOSED = {
    "pure 1": ny.pure(1),
    "pure 1e-6": ny.pure(1e-6),
    "pure 30": ny.pure(30),
    "approximate": ny.approximate(1, 1e-2),
    "total variation": ny.approximate(0, 0.1),
    "gdp .01": ny.gdp(0.01),
    "gdp 1": ny.gdp(1),
    "gdp 6": ny.gdp(6),
    "Laplace": ny.Laplace(1).tradeoff(),
}
FINITE = {
    "approximate twice": ny.approximate(1, 1e-6) ** 2,
    "responses": (ny.RandomizedResponse(1, 3) * 3).tradeoff(),
    "discrete Gaussian": ny.DiscreteGaussian(2).tradeoff(),
    "points": ny.from_points([0, 0.2, 0.5, 1], [1, 0.5, 0.2, 0]),
}
COSTLY = {
    "Laplaces": ((ny.Laplace(1) * 2).tradeoff(), 1e-3),
    "fixed size": (ny.Gaussian(1).subsample(size=1, population=10).tradeoff(), 1e-3),
    "joined": (ny.Gaussian(1).subsample(rate=0.1).tradeoff().symmetric(), 1e-3),
    "zcdp": (ny.zcdp(0.5), 1e-3),
}


def recursion(f, c, x):
    """F(x) by its definition alone."""
    half = x * 0 + Fraction(1, 2) if isinstance(x, Fraction) else MP.mpf(1) / 2
    if abs(x) <= half:
        return c * (half - x) + (1 - c) * (x + half)
    if x < 0:
        return f(1 - recursion(f, c, x + 1))
    return 1 - f(recursion(f, c, x - 1))


def approximate_curve(epsilon, delta):
    """f and c in mpmath, f by its definition and c = (1 - delta) / (1 + e^epsilon)."""
    t, d = MP.exp(MP.mpf(epsilon)), MP.mpf(delta)
    return (lambda a: max(MP.zero, 1 - d - t * a, (1 - d - a) / t)), (1 - d) / (1 + t)


def normal_curve(mu):
    """G_mu in mpmath."""

    def quantile(a):
        return MP.sqrt(2) * MP.erfinv(2 * a - 1)

    return (lambda a: MP.ncdf(quantile(1 - a) - mu)), MP.ncdf(-MP.mpf(mu) / 2)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0), (1, "0.01"), (0, "0.1"), ("0.3", "1e-3")])
def test_the_distribution_is_the_recursion_for_epsilon_and_delta(epsilon, delta):
    """F agrees with its definition, carried out in 60 digits, relative to small values of it."""
    f, c = approximate_curve(epsilon, delta)
    noise = CanonicalNoise(ny.approximate(epsilon, float(delta)))
    for x in (-7.3, -3.5, -2.25, -1.0, -0.75, -0.5, -0.1, 0.0, 0.4, 0.5, 0.6, 1.7, 3.25):
        exact = recursion(f, c, MP.mpf(x))
        assert abs(noise.cdf(x) - exact) <= 1e-12 * max(exact, MP.mpf(1e-30))


@pytest.mark.parametrize("mu", [0.5, 1, 3])
def test_the_distribution_is_the_recursion_for_normal_curves(mu):
    """F agrees with its definition, carried out in 60 digits with G_mu."""
    f, c = normal_curve(mu)
    noise = CanonicalNoise(ny.gdp(mu))
    for x in (-3.3, -1.5, -1.2, -0.5, 0.25, 0.75, 2.5):
        exact = recursion(f, c, MP.mpf(x))
        assert abs(noise.cdf(x) - exact) <= 1e-12 * exact


def test_the_distribution_is_the_recursion_for_points():
    xs = [Fraction(0), Fraction(1, 5), Fraction(1, 2), Fraction(1)]
    ys = [1 - x if x in (0, 1) else Fraction(7, 10) - x for x in xs]

    def f(a):
        i = 0 if a <= xs[1] else 1 if a <= xs[2] else 2
        return ys[i] + (ys[i + 1] - ys[i]) * (a - xs[i]) / (xs[i + 1] - xs[i])

    noise = CanonicalNoise(FINITE["points"])
    for x in (Fraction(k, 8) for k in range(-45, 46, 5)):
        exact = recursion(f, Fraction(7, 20), x)
        assert abs(noise.cdf(float(x)) - exact) <= 1e-8 * exact


def test_the_figures_that_are_published():
    noise = CanonicalNoise(ny.pure(1))
    assert noise.law.c.lower <= 1 / (1 + math.e) <= noise.law.c.upper
    assert noise.cdf(-1) == pytest.approx(0.183940, abs=5e-7)
    assert noise.variance().upper == pytest.approx(1.9247, abs=5e-5)
    assert noise.variance().width < 1e-12


def test_noise_for_a_total_variation_is_uniform():
    noise = CanonicalNoise(ny.approximate(0, 0.1))
    x = np.linspace(-4.99, 4.99, 41)
    np.testing.assert_allclose(noise.cdf(x), 0.5 + x / 10, rtol=0, atol=1e-14)
    np.testing.assert_allclose(noise.pdf(x), 0.1, rtol=1e-13)
    assert noise.cdf(5.01) == 1
    assert noise.pdf(5.01) == 0
    np.testing.assert_allclose(noise.ppf([0, 1]), [-5, 5], rtol=1e-13)
    assert float(noise.variance()) == pytest.approx(100 / 12, rel=1e-13)


@pytest.mark.parametrize(("mu", "apart"), [(1, 0.0030), (2, 0.021), (3, 0.057)])
def test_noise_for_a_normal_curve_is_not_normal(mu, apart):
    x = np.linspace(0, 3, 3001)
    normal = np.array([math.erfc(-v * mu / math.sqrt(2)) / 2 for v in x])
    result = np.max(np.abs(CanonicalNoise(ny.gdp(mu)).cdf(x) - normal))
    assert result == pytest.approx(apart, abs=5e-4 if mu > 1 else 5e-5)


@pytest.mark.parametrize("name", CLOSED | FINITE)
def test_a_unit_shift_has_the_curve(name):
    f = (CLOSED | FINITE)[name]
    noise = CanonicalNoise(f)
    levels = [1e-12, 1e-6, 1e-3, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.8, 0.97]
    reached = noise.cdf(noise.isf(levels) - 1)
    for beta, power in zip(reached, f.powers(levels), strict=True):
        slack = 1e-9 if name in FINITE or name == "pure 1e-6" else 1e-11
        assert 1 - power.upper - slack <= beta <= 1 - power.lower + slack


@pytest.mark.parametrize("name", COSTLY)
def test_a_unit_shift_has_the_curve_where_it_is_costly(name):
    """The same for curves that are known to fewer digits."""
    f, slack = COSTLY[name]
    noise = CanonicalNoise(f)
    levels = [1e-4, 0.1, 0.5]
    reached = noise.cdf(noise.isf(levels) - 1)
    for beta, power in zip(reached, f.powers(levels), strict=True):
        assert 1 - power.upper - slack <= beta <= 1 - power.lower + slack


@pytest.mark.parametrize("name", CLOSED | FINITE)
def test_smaller_shifts_are_never_easier_to_detect(name):
    f = (CLOSED | FINITE)[name]
    noise = CanonicalNoise(f)
    levels = np.array([1e-9, 1e-3, 0.1, 0.3, 0.5, 0.9])
    least = np.array([1 - power.upper for power in f.powers(levels)])
    for shift in (0.1, 0.5, 0.77, 0.999):
        assert np.all(noise.cdf(noise.isf(levels) - shift) >= least - 1e-9)


@settings(max_examples=60)
@given(
    epsilon=st.floats(0.01, 8),
    delta=st.sampled_from([0.0, 1e-9, 1e-3, 0.2]),
    x=st.floats(-60, 60),
    sensitivity=st.floats(0.01, 100),
)
def test_it_is_symmetric_scales_and_inverts(epsilon, delta, x, sensitivity):
    unit = CanonicalNoise(ny.approximate(epsilon, delta))
    noise = CanonicalNoise(ny.approximate(epsilon, delta), sensitivity)
    assert noise.cdf(-x) == pytest.approx(1 - noise.cdf(x), abs=1e-14)
    assert noise.cdf(x) == pytest.approx(unit.cdf(x / sensitivity), rel=1e-12, abs=1e-300)
    u = noise.cdf(-abs(x))
    if u > 1e-200:
        assert noise.ppf(u) == pytest.approx(-abs(x), abs=1e-8 * sensitivity)


@pytest.mark.parametrize("name", ["pure 1", "approximate", "gdp 1", "gdp 6", "Laplace"])
def test_the_density_integrates_to_the_distribution(name):
    noise = CanonicalNoise(CLOSED[name])
    for low, high in ((0.0, 0.5), (0.5, 1.5), (1.5, 2.5), (0.7, 1.1)):
        area = mpmath.fp.quad(lambda x: noise.pdf(float(x)), [low, (low + high) / 2, high])
        gain = noise.cdf(-low) - noise.cdf(-high)
        assert float(area) == pytest.approx(gain, abs=2e-6)


@pytest.mark.parametrize("name", ["approximate twice", "responses", "points"])
def test_the_density_of_finite_curves_is_the_slope(name):
    noise = CanonicalNoise(FINITE[name])
    for x in (0.13, 0.71, 1.03, 1.37):
        slope = (noise.cdf(-x + 1e-5) - noise.cdf(-x - 1e-5)) / 2e-5
        assert noise.pdf(x) == pytest.approx(slope, rel=2e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0.0), (0.5, 0.01), (3, 1e-5), (0.05, 0.002)])
def test_the_variance_for_epsilon_and_delta(epsilon, delta):
    """The exact sums agree with an integral over each unit of the definition, in 60 digits."""
    f, c = approximate_curve(epsilon, delta)
    variance = CanonicalNoise(ny.approximate(epsilon, delta)).variance()
    total, s_left, s_right, n = MP.zero, 1 - c, c, 0
    total += MP.quad(lambda x: x * (MP.mpf(1) / 2 - (1 - 2 * c) * x), [0, MP.mpf(1) / 2])
    while s_right > MP.mpf(10) ** -25:
        # What is left at both ends of the next unit; it is a line until nothing is.
        n, s_left, s_right = n + 1, f(1 - s_left), (1 - delta - (1 - s_right)) / MP.exp(epsilon)
        end = MP.mpf(1) / 2
        if s_right < 0:
            end = s_left / (s_left - s_right) - end
        line = lambda t: (n + t) * (s_left + (s_right - s_left) * (t + MP.mpf(1) / 2))  # noqa: B023, E731
        total += MP.quad(line, [-MP.mpf(1) / 2, end])
    assert abs(4 * total - float(variance)) <= 1e-11 * total
    assert variance.lower <= 4 * total * (1 + 1e-20)
    assert 4 * total * (1 - 1e-20) <= variance.upper


@pytest.mark.parametrize(("name", "width"), [("gdp 1", 1e-7), ("Laplace", 1e-7), ("gdp .01", 1e-7)])
def test_the_variance_by_convexity_holds_an_integral(name, width):
    noise = CanonicalNoise(CLOSED[name])
    variance = noise.variance()
    ends = np.concatenate([[0.0], np.arange(0.5, 1500 if name == "gdp .01" else 60)])
    x = np.concatenate([np.linspace(a, b, 65) for a, b in itertools.pairwise(ends)])
    left = noise.cdf(-x).reshape(-1, 65) * x.reshape(-1, 65)
    weight = np.tile([2.0, 4.0], 33)[:65]
    weight[[0, -1]] = 1
    simpson = 4 * float(np.sum((left * weight).sum(axis=1) * np.diff(ends) / 64 / 3))
    assert variance.lower - 1e-9 * simpson <= simpson <= variance.upper + 1e-9 * simpson
    assert variance.width <= width * variance.upper


@pytest.mark.parametrize("name", ["Laplaces"])
def test_the_variance_of_other_curves_holds_an_integral(name):
    f = FINITE[name] if name in FINITE else COSTLY[name][0]
    noise = CanonicalNoise(f)
    variance = noise.variance()
    x = np.linspace(0, 12, 601)
    left = 4 * x * noise.cdf(-x)
    rule = float(np.sum((left[1:] + left[:-1]) / 2 * np.diff(x)))
    assert variance.lower * 0.995 <= rule <= variance.upper * 1.005
    assert variance.width < 0.03 * variance.upper


def test_far_tails_keep_their_digits():
    pure = CanonicalNoise(ny.pure(1))
    assert pure.cdf(-50.0) == pytest.approx(0.5 * math.exp(-50), rel=1e-12)
    assert pure.cdf(50.0) == 1.0
    assert pure.ppf(1e-300) == pytest.approx(-(300 * math.log(10) - math.log(2)), abs=0.2)
    for mu in (0.01, 1.0, 6.0):
        noise = CanonicalNoise(ny.gdp(mu))
        x = noise.ppf(1e-300)
        assert noise.cdf(x) == pytest.approx(1e-300, rel=1e-9)
        low, high = noise.law.log_tail(np.array([50.0]))
        assert high[0] - low[0] <= 1e-13 * abs(low[0]) + 1e-13
    assert np.isneginf(pure.ppf(0))
    assert np.isposinf(pure.ppf(1))
    assert pure.cdf(-math.inf) == 0
    assert pure.cdf(math.inf) == 1
    assert pure.pdf(math.inf) == 0
    assert pure.ppf(0.5) == 0


@pytest.mark.parametrize("unit", [0, 1, 2])
def test_places_next_to_a_jump_keep_their_digits(unit):
    x = math.nextafter(0.5 + unit, math.inf)
    n, t = unit + 1, MP.mpf(x) - unit - 1
    for mu in (5, 17, 30):
        c = MP.ncdf(-MP.mpf(mu) / 2)
        rest = c * (MP.mpf(1) / 2 - t) + (1 - c) * (MP.mpf(1) / 2 + t)
        y = MP.findroot(lambda z, v=rest: MP.log(MP.ncdf(z)) - MP.log(v), -MP.mpf(mu) / 2)
        law = CanonicalNoise(ny.gdp(mu)).law
        tail = MP.log(MP.ncdf(-y - n * mu))
        density = MP.log(1 - 2 * c) + (y * y - (y + n * mu) ** 2) / 2
        for (low, high), exact in (
            (law.log_tail(np.array([x])), tail),
            (law.log_density(np.array([x])), density),
        ):
            assert low[0] <= exact <= high[0]
            assert high[0] - low[0] <= 1e-12 * (1 + abs(low[0]))
    a = MP.mpf(80)
    c = MP.exp(-a / 2) / 2
    y = MP.log(2 * (c * (MP.mpf(1) / 2 - t) + (1 - c) * (MP.mpf(1) / 2 + t)))
    low, high = CanonicalNoise(ny.Laplace(1, sensitivity=80)).law.log_tail(np.array([x]))
    assert low[0] <= -MP.log(2) - y - n * a <= high[0]
    assert high[0] - low[0] <= 1e-13 * abs(low[0])


def test_the_tail_of_a_probability_of_one_is_not_taken_for_the_far_tail():
    for f in (ny.gdp(17), ny.Laplace(1).tradeoff(), ny.ExponentialMechanism(1).tradeoff()):
        ladder = CanonicalNoise(f).law.ladder
        s, n = np.zeros(1), np.ones(1)
        with np.errstate(all="ignore"):
            assert ladder.out(s, n)[1][0] == 0
            assert ladder.log_slope(s, n)[1][0] == 0


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(3e-13, 0), (1e-17, 0), (0, 1e-12), (0, 1e-17), (1e-9, 1e-9), (1, 0.1)]
)
def test_the_ends_of_a_quantile_hold_it_where_the_number_of_steps_is_rounded(epsilon, delta):
    """Near the boundaries of units, the quantile in 60 digits lies between both ends."""
    law = CanonicalNoise(ny.approximate(epsilon, delta)).law
    e, d = MP.mpf(epsilon), MP.mpf(delta)
    c = (1 - d) / (1 + MP.exp(e))
    near = [c]
    for _ in range(5):
        near.append(max((near[-1] - d) * MP.exp(-e), MP.mpf(10) ** -30))
    log_u = [float(MP.log(u)) * (1 + k * 2.0**-52) for u in near for k in range(-3, 4)]
    log_u = [v for v in [-0.6931471805675953, *log_u] if v < -0.69314718055994540]
    low, high = law.place(np.array(log_u))
    for v, below, above in zip(log_u, low, high, strict=True):
        s = MP.exp(MP.mpf(v))
        if epsilon:
            k = d / MP.expm1(e)
            n = max(MP.ceil(MP.log((c + k) / (s + k)) / e), 0)
            s = MP.exp(n * e) * (s + k) - k
        else:
            n = max(MP.ceil((c - s) / d), 0)
            s += n * d
        assert below <= n + (MP.mpf(1) / 2 - s) / (1 - 2 * c) <= above


def test_both_ends_hold_the_number():
    """The certified ends of a tail hold the definition carried out in 60 digits."""
    f, c = normal_curve(1)
    law = CanonicalNoise(ny.gdp(1)).law
    for x in (0.3, 0.9, 1.6, 3.2):
        exact = MP.log(recursion(f, c, MP.mpf(-x)))
        low, high = law.log_tail(np.array([x]))
        assert low[0] <= exact <= high[0]


@pytest.mark.parametrize("f", [ny.pure(1), ny.gdp(1), ny.approximate(0, 0.1)])
def test_draws_follow_the_distribution(f):
    """Kolmogorov's distance of 200,000 draws: false alarm 1e-6 (Dvoretzky-Kiefer-Wolfowitz)."""
    n = 200_000
    noise = CanonicalNoise(f, sensitivity=3)
    draws = np.sort(noise.sample(n, bits=Prescribed(7)))
    u = noise.cdf(draws)
    steps = np.arange(n + 1) / n
    distance = max(np.max(np.abs(u - steps[1:])), np.max(np.abs(u - steps[:-1])))
    assert distance <= math.sqrt(math.log(2 / 1e-6) / (2 * n))


def test_a_draw_is_the_quantile_of_all_the_bits_that_count():
    noise = CanonicalNoise(ny.pure(1))
    lead = 1 << 63
    draws = noise.sample(1, bits=Prescribed(1, [0, 0, lead]))
    assert draws[0] == pytest.approx(noise.isf(2.0**-129), rel=1e-12)
    assert noise.sample(1, bits=Prescribed(1, [lead | 1]))[0] == pytest.approx(-noise.isf(0.25))
    assert noise.sample(0).shape == (0,)


def test_what_is_accounted_for_is_the_curve():
    for f in (ny.pure(1), ny.gdp(2), ny.approximate(1, 1e-6), FINITE["responses"]):
        noise = CanonicalNoise(f, sensitivity=5)
        assert ny.compare(noise.tradeoff(), f) == "equal"
        assert (noise * 10).tradeoff().alternatives == (f**10).alternatives
    mixed = CanonicalNoise(ny.approximate(1, 1e-6)) * 10 + ny.Gaussian(2)
    assert mixed.tradeoff().epsilon(1e-4).upper < 12
    curve = CanonicalNoise(ny.gdp(1)).subsample(rate=0.1).tradeoff()
    assert curve.delta(0.5).upper == ny.Gaussian(1).subsample(rate=0.1).tradeoff().delta(0.5).upper
    assert CanonicalNoise(ny.gdp(2)).rho() == 2
    assert CanonicalNoise(ny.pure(1)).rho() == ny.RandomizedResponse(1).rho()
    assert CanonicalNoise(ny.Laplace(2) * 3).rho() == 3 * ny.Laplace(2).rho()
    assert CanonicalNoise(ny.RandomizedResponse(1)).neighboring == "any"


def test_noise_for_a_bare_guarantee_keeps_the_curve_and_not_the_guarantee():
    noise = CanonicalNoise(ny.zcdp(0.5))
    one, bare = noise.tradeoff(), ny.zcdp(0.5)
    assert one.delta(1.0).upper >= bare.delta(1.0).lower
    assert one.delta(1.0).upper == pytest.approx(bare.delta(1.0).upper, rel=0.02)
    assert (noise * 10).tradeoff().epsilon(1e-5).upper > (bare**10).epsilon(1e-5).upper
    assert one.bare_rho() is None
    with pytest.raises(ValueError, match="no zCDP parameter is proven"):
        noise.rho()


def test_noise_for_a_joined_curve_is_accounted_for_as_the_joined_curve():
    step = ny.Gaussian(1).subsample(rate=0.1).tradeoff()
    delta = CanonicalNoise(step.symmetric()).tradeoff().delta(0.1)
    assert step.delta(0.1).lower <= delta.upper <= step.delta(0.1).upper * 1.01


def test_arrays_keep_their_shape_and_numbers_are_floats():
    noise = CanonicalNoise(ny.pure(1))
    for ask in (noise.cdf, noise.pdf):
        assert isinstance(ask(1), float)
        assert ask(np.zeros((2, 3))).shape == (2, 3)
        assert ask([]).shape == (0,)
    assert noise.ppf([[0.1], [0.9]]).shape == (2, 1)
    assert noise.standard_deviation().upper == pytest.approx(math.sqrt(noise.variance().upper))


@pytest.mark.parametrize("sensitivity", [1e-300, 1e-10, 2, 1e300])
@pytest.mark.parametrize("f", [ny.gdp(1), ny.pure(1), ny.approximate(0, 0.1), ny.gdp(1e-100)])
def test_places_beyond_the_floats_are_answered(f, sensitivity):
    noise = ny.CanonicalNoise(f, sensitivity)
    places = np.array([-1.7e308, 0.0, 1.7e308])
    low, middle, high = noise.cdf(places)
    assert 0 <= low <= middle == 0.5 <= high <= 1
    assert not np.isnan(noise.pdf(places)).any()
    assert not np.isnan(noise.ppf([0, 5e-324, 0.3, 1])).any()
    variance, deviation = noise.variance(), noise.standard_deviation()
    assert variance.lower < math.inf
    assert variance.upper > 0
    assert deviation.lower <= deviation.upper
