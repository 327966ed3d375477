"""The privacy loss random variable against enumeration, closed forms, and mpmath quadrature."""

import math
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman.curves import GaussianLoss

mp.mp.dps = 40
tries = settings(max_examples=40)


def holds(bound, truth, width=math.inf):
    """Whether the truth, known to 30 digits, is inside, and the interval at most so wide."""
    slack = mp.mpf(10) ** -30
    return bound.lower - slack <= truth <= bound.upper + slack and bound.width <= width


def near(truth, relative=1e-9):
    return truth, relative * float(truth)


def normal(x):
    return mp.ncdf(mp.mpf(x))


@tries
@given(st.fractions(F(1, 20), 3), st.integers(1, 12), st.integers(-40, 40), st.integers(2, 5))
def test_a_sum_of_responses_is_enumerated_also_at_its_atoms(epsilon, count, twice, categories):
    """Multinomial sums; every other place asked is an atom."""
    epsilon = epsilon.limit_denominator(50)
    f = (ny.RandomizedResponse(epsilon, categories) * count).tradeoff()
    e = mp.exp(mp.mpf(epsilon.numerator) / epsilon.denominator)
    total = e + categories - 1
    one = {1: e / total, 0: (categories - 2) / total, -1: 1 / total}
    law = {0: mp.mpf(1)}
    for _ in range(count):
        more = {}
        for k, p in law.items():
            for step, q in one.items():
                more[k + step] = more.get(k + step, 0) + p * q
        law = more
    x = F(twice, 2) * epsilon
    loss = f.loss
    below = mp.fsum(p for k, p in law.items() if k * epsilon <= x)
    beyond = mp.fsum(p for k, p in law.items() if k * epsilon > x)
    assert holds(loss.cdf(x), below, 1e-11 * float(below))
    assert holds(loss.tail(x), beyond, 1e-11 * float(beyond))
    values = {k: mp.mpf(k) * epsilon.numerator / epsilon.denominator for k in law}
    mean = mp.fsum(p * values[k] for k, p in law.items())
    variance = mp.fsum(p * (values[k] - mean) ** 2 for k, p in law.items())
    assert holds(loss.mean, mean, 1e-10 * (1 + float(mean)))
    assert holds(loss.variance, variance, 1e-8 * (1 + float(variance)))
    assert loss.infinite == ny.Bound(0.0, 0.0, "upper", loss.infinite.method)
    t = twice / 4
    assert holds(loss.mgf(t), *near(mp.fsum(p * mp.exp(t * values[k]) for k, p in law.items())))


@tries
@given(st.floats(0.05, 8), st.floats(-6, 6))
def test_a_gaussian_loss_is_normal(mu, z):
    loss = ny.gdp(mu).loss
    m = mp.mpf(mu)
    x = float(m**2 / 2 + z * m)
    truth = normal((mp.mpf(repr(x)) - m**2 / 2) / m)
    assert holds(loss.cdf(x), truth, 2e-12 * float(truth))  # relative in the left tail too
    assert holds(loss.tail(x), 1 - truth, 2e-12 * (1 - float(truth)) + 1e-15)
    assert holds(loss.mean, m**2 / 2, 1e-12 * (1 + mu**2))
    assert holds(loss.variance, m**2, 1e-8 * mu**2)


@tries
@given(st.fractions(F(1, 10), 4), st.floats(-1.2, 1.2))
def test_a_laplace_loss_has_its_atoms_and_density(epsilon, way):
    epsilon = epsilon.limit_denominator(20)
    loss = ny.Laplace(1 / epsilon).tradeoff().loss
    a = mp.mpf(epsilon.numerator) / epsilon.denominator
    x = way * float(epsilon)
    at = mp.mpf(repr(x))
    truth = 0 if at < -a else 1 if at >= a else mp.exp((at - a) / 2) / 2
    assert holds(loss.cdf(x), truth, 1e-14)
    assert loss.cdf(epsilon).lower == 1
    assert loss.tail(epsilon).upper == 0
    assert holds(loss.tail(epsilon * F(99999, 100000)), 1 - mp.exp(-a / 200000) / 2, 1e-14)
    least = loss.cdf(-epsilon)  # the atom there, of which floats do not tell on which side x is
    assert least.lower == 0
    assert holds(least, mp.exp(-a) / 2)
    assert least.method.endswith("holds P(L < x) and P(L <= x)")
    density = [lambda v: v, lambda v: v * v]
    moments = [
        (mp.mpf(1) / 2) * g(a)
        + mp.exp(-a) / 2 * g(-a)
        + mp.quad(lambda v, g=g: g(v) * mp.exp((v - a) / 2) / 4, [-a, 0, a])
        for g in density
    ]
    assert holds(loss.mean, moments[0], 1e-10)
    assert holds(loss.variance, moments[1] - moments[0] ** 2, 1e-8)


def gaussian_tails(y):
    """P(l <= y) and Q(l <= y) of a Gaussian release with mu 1."""
    return normal(y - mp.mpf(1) / 2), normal(y + mp.mpf(1) / 2)


def laplace_tails(y):
    """The same of Laplace noise of epsilon 2, which has atoms at -2 and 2."""
    p, rest = (0 if v < -2 else 1 if v >= 2 else mp.exp(v / 2 - 1) / 2 for v in (y, -y))
    return p, 1 - rest


PLACES = [-1.5, -0.2, -0.005, -1e-7, 1e-6, 0.1, 0.4, 2.0, 9.0]


@pytest.mark.parametrize("rate", [0.3, 0.01, 1e-6])
@pytest.mark.parametrize("x", PLACES)
@pytest.mark.parametrize(
    ("noise", "tails"), [(ny.Gaussian(1), gaussian_tails), (ny.Laplace(0.5), laplace_tails)]
)
def test_one_sampled_release_in_both_orders(noise, tails, rate, x):
    """(1 - q) Q + q P, or Q, at the loss of the pair whose sampled loss is this."""
    f, q = noise.subsample(rate=rate).tradeoff(), mp.mpf(rate)

    def at(value):
        inner = (mp.expm1(value) + q) / q
        return tails(mp.log(inner)) if inner > 0 else (0, 0)

    (p, null), (_, other) = at(mp.mpf(x)), at(-mp.mpf(x))
    for loss, truth in ((f.loss, (1 - q) * null + q * p), (f.inverse().loss, 1 - other)):
        assert holds(loss.cdf(x), truth, 1e-12)
        assert holds(loss.tail(x), 1 - truth, 1e-12)


@settings(max_examples=25)
@given(
    st.fractions(F(1, 20), 3),
    st.integers(1, 8),
    st.floats(0.1, 30),
    st.floats(-30, 60),
    st.booleans(),
)
def test_responses_with_gaussian_noise_are_a_mixture_of_normals(epsilon, count, sigma, z, add):
    """All digits, however far out, and the mean of a sum of unlike parts."""
    epsilon = epsilon.limit_denominator(20)
    f = (ny.RandomizedResponse(epsilon) * count + ny.Gaussian(sigma)).tradeoff()
    loss = f.inverse().loss if add else f.loss
    (normal_part,) = (x for x, _ in loss.composition.parts if isinstance(x, GaussianLoss))
    mu_squared = mp.mpf(normal_part.mu_squared)
    e = mp.mpf(epsilon.numerator) / epsilon.denominator
    p = mp.exp(e) / (1 + mp.exp(e))
    law = {
        (2 * k - count) * e: mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
        for k in range(count + 1)
    }
    mean = mp.fsum(v * w for v, w in law.items()) + mu_squared / 2
    x = float(mean + z * mp.sqrt(mu_squared + count * e**2))
    v = {v: (mp.mpf(repr(x)) - v - mu_squared / 2) / mp.sqrt(mu_squared) for v in law}
    below = mp.fsum(w * normal(v[k]) for k, w in law.items())
    beyond = mp.fsum(w * normal(-v[k]) for k, w in law.items())
    for bound, truth in ((loss.cdf(x), below), (loss.tail(x), beyond)):
        assert bound.lower <= truth <= bound.upper
        assert bound.width <= 1e-9 * bound.upper + 1e-300
    assert holds(loss.mean, mean, 1e-10 * (1 + float(mean)))


@pytest.mark.parametrize("order", ["remove", "add"])
@pytest.mark.parametrize("z", [-2.5, -0.3, 0.4, 3.0, 9.0])
def test_a_tail_of_training_meets_a_line_of_its_own_in_80_bits(order, z):
    """The inversion integral by its own sums, 14,062 steps: within ten times the width of delta."""
    f = (ny.Gaussian(0.8).subsample(rate=256 / 60000) * 14062).tradeoff()
    f = f.part(f.directions[order == "add"])
    loss = f.loss
    (step, count) = loss.composition.parts[0]
    x = float(loss.mean) + z * math.sqrt(float(loss.variance))
    law = ref.sampled_law(step.distance, step.rate, step.removed)
    truth = math.exp(ref.log_on_a_line(*law, count, x, tail=True))
    bound = loss.tail(x)
    assert bound.lower * (1 - 1e-13) <= truth <= bound.upper * (1 + 1e-13)
    delta = f.delta(abs(x))
    assert bound.width / bound.upper <= 10 * delta.width / delta.upper
    assert bound.method == "contour"


def test_a_composed_sampled_gaussian_meets_a_convolution_of_two():
    q = mp.mpf("0.1")
    loss = (ny.Gaussian(1).subsample(rate=0.1) * 2).tradeoff().loss

    def one(y):
        return mp.log(1 - q + q * mp.exp(y - mp.mpf(1) / 2))

    def below(x):
        inner = (mp.exp(x) - 1 + q) / q
        if inner <= 0:
            return mp.mpf(0)
        y = mp.log(inner) + mp.mpf(1) / 2
        return (1 - q) * normal(y) + q * normal(y - 1)

    def density(y):
        return (1 - q) * mp.npdf(y) + q * mp.npdf(y, 1)

    for x in (-0.1, 0.05, 0.8, 3.0):
        at = mp.mpf(repr(x))
        top = mp.log((mp.exp(at) / (1 - q) - 1 + q) / q) + mp.mpf(1) / 2
        with mp.workdps(20):
            truth = mp.quad(
                lambda y, at=at: density(y) * below(at - one(y)), [-12, -3, -1, 0, 1, 2, top]
            )
        assert loss.cdf(x).lower - 1e-10 <= truth <= loss.cdf(x).upper + 1e-10
        assert loss.cdf(x).width < 1e-4


@pytest.mark.parametrize("t", [-30, -2.5, -1, -0.75, -0.25, 0, 0.125, 1, 7.5, 30])
def test_moments_of_a_sampled_gaussian_meet_quadrature_in_both_orders(t):
    f = ny.Gaussian(1.5).subsample(rate=F(1, 50)).tradeoff()
    order, q, sigma = mp.mpf(t), mp.mpf(1) / 50, mp.mpf(3) / 2

    def density(x):
        return mp.exp(-((x / sigma) ** 2) / 2) / (sigma * mp.sqrt(2 * mp.pi))

    def ratio(x):
        return 1 - q + q * mp.exp((x - mp.mpf(1) / 2) / sigma**2)

    places = [mp.mpf(x) for x in range(-80, 121, 5)]
    removed = mp.quad(lambda x: density(x) * ratio(x) ** (1 + order), places)
    added = mp.quad(lambda x: density(x) * ratio(x) ** -order, places)
    assert holds(f.loss.mgf(t), *near(removed))
    assert holds(f.inverse().loss.mgf(t), *near(added))


@pytest.mark.parametrize("t", [-2.0, -0.5, 0.5, 2.0])
def test_moments_of_noise_between_two_laws_hold_those_of_sixty_terms(t):
    n = range(-400, 402)
    mass = [normal((k + mp.mpf(1) / 2) / 3) - normal((k - mp.mpf(1) / 2) / 3) for k in n]
    pairs = zip(mass[1:], mass, strict=False)
    truth = mp.fsum(p * (p / q) ** t for p, q in pairs if p > 1e-300 and q > 1e-300)
    assert holds(ny.RoundedGaussian(3).tradeoff().loss.mgf(t), truth, 5e-3)


def test_moments_are_endless_only_where_infinite_losses_count():
    loss = ny.approximate(1, "1/8").loss
    assert loss.mgf(1).upper == math.inf
    assert holds(loss.mgf(0), 1, 0)
    assert loss.mgf(-1).upper < 1
    certain = ny.between([1, 0], [0, 1]).loss
    assert (certain.mgf(-1).lower, certain.mgf(-0.5).upper) == (0, pytest.approx(0, abs=1e-300))
    assert ny.gdp(100).loss.mgf(1e300).upper == math.inf
    assert ny.Gaussian(1).tradeoff().loss.mgf(100).upper == math.inf
    assert ny.Gaussian(1).tradeoff().loss.mgf(100).lower > 1e308


@pytest.mark.parametrize("delta", ["1e-20", "1e-17", "3e-17", "1.5e-16", "1e-10", "0.3"])
def test_the_chance_of_a_finite_loss_is_below_one_by_the_mass_of_infinite_loss(delta):
    loss = ny.approximate(1, F(delta)).loss
    chance = loss.cdf(5)
    assert F(chance.lower) <= 1 - F(delta) <= F(chance.upper)
    assert chance.width < 4e-15
    assert ny.approximate(1, 0).loss.cdf(5).lower == 1


def test_infinite_losses_have_their_mass_and_no_mean():
    loss, none = ny.approximate(1, 0.25).loss, ny.NonPrivate().tradeoff().loss
    assert all(holds(b, p, 1e-14) for b, p in ((loss.infinite, 0.25), (loss.tail(1), 0.25)))
    assert holds(loss.cdf(1), 0.75, 1e-14)
    assert loss.mean.lower == loss.variance.lower == math.inf
    draws = loss.sample(20_000, seed=3)
    assert abs(np.isinf(draws).mean() - 0.25) < 0.02
    assert set(draws[np.isfinite(draws)]) == {-1.0, 1.0}
    assert (none.tail(5).lower, none.cdf(5).upper) == (1, 0)
    assert np.isinf(none.sample(3)).all()


ADDITIVE = [
    ny.Gaussian(1),
    ny.Laplace(1) * 3,
    ny.RandomizedResponse(1, 4) * 5,
    ny.DiscreteGaussian(3),
]


@pytest.mark.parametrize(
    "mechanism", [*ADDITIVE, ny.Gaussian(1).subsample(rate=0.02) * 50], ids=repr
)
def test_draws_follow_the_law(mechanism):
    """Kolmogorov and Smirnov's distance at 40,000 draws, beyond the certified intervals."""
    loss = mechanism.tradeoff().loss
    draws = np.sort(loss.sample(40_000, seed=7))
    for x in np.quantile(draws, np.linspace(0.01, 0.99, 25), method="nearest"):
        share = np.mean(draws <= x)
        near = 2e-4 * math.sqrt(loss.variance.upper)
        assert loss.cdf(float(x - near)).lower - 0.012 <= share
        assert share <= loss.cdf(float(x + near)).upper + 0.012
    assert abs(draws.mean() - float(loss.mean)) < 0.03 * math.sqrt(loss.variance.upper)
    assert np.array_equal(loss.sample(5, seed=1), loss.sample(5, seed=1))
    assert loss.sample(0).shape == (0,)


@tries
@given(st.floats(-1e290, 1e290), st.floats(-50, 50))
def test_cdf_and_tail_are_monotone_probabilities_anywhere(far, near):
    for f in (ny.gdp(1), ny.pure(1), ny.Laplace(2).tradeoff() ** 3):
        loss = f.loss
        for x in (far, near):
            below, beyond = loss.cdf(x), loss.tail(x)
            assert 0 <= below.lower <= below.upper <= 1
            assert 0 <= beyond.lower <= beyond.upper <= 1
            assert below.lower + beyond.lower <= 1 + 1e-12
            assert below.upper + beyond.upper >= 1 - 1e-12
            more = loss.cdf(x + abs(x) / 1000 + 1e-3)
            assert more.upper >= below.lower


@pytest.mark.parametrize("scale", ["1e-2", "3311/65536", "0.3", "5", "1e6", "1e60"])
def test_the_variance_of_steep_and_of_flat_integer_noise_is_a_sum(scale):
    """Where no moment at a computable order says anything: against 100 digits."""
    with mp.workdps(100):
        law = ref.discrete_laplace(F(scale), 1)
        mean = mp.fsum(v * p for v, p in law.items())
        truth = mp.fsum(p * (v - mean) ** 2 for v, p in law.items())
        bound = ny.DiscreteLaplace(scale).tradeoff().loss.variance
        assert ref.holds(bound, truth)
        assert bound.upper <= truth * (1 + 1e-9)
        thrice = (ny.DiscreteLaplace(scale) * 3).tradeoff().loss.variance
        assert ref.holds(thrice, 3 * truth)


@pytest.mark.parametrize("scale", ["1e3", "1e20", "1e60", "1e100"])
def test_divergences_of_tiny_losses_are_within_those_of_pure_privacy(scale):
    """D_a is at most a epsilon^2 / 2 where K has no digits."""
    epsilon = 1 / F(scale)
    for noise in (ny.Laplace(F(scale)), ny.DiscreteLaplace(scale)):
        for order in (1, 1.5, 2, 32):
            bound = noise.tradeoff().renyi(order)
            assert 0 <= bound.lower <= bound.upper
            assert bound.upper <= F(order) * epsilon**2 / 2 * F(10001, 10000)


@pytest.mark.parametrize("x", [-0.7, 0.1, 0.5, 1.5])
def test_losses_with_atoms_and_no_lattice_have_chords_that_hold_quadrature(x):
    """Two Laplace releases: no line over the sum of atoms and density ends."""

    def one(y):
        return mp.mpf(0) if y >= 1 else mp.mpf(1) if y < -1 else 1 - mp.exp((y - 1) / 2) / 2

    at = mp.mpf(x)
    bends = sorted({-1, 1, *(y for y in (at - 1, at + 1) if -1 < y < 1)})
    with mp.workdps(20):
        truth = mp.quad(lambda v: mp.exp((v - 1) / 2) / 4 * one(at - v), bends)
    truth += one(at - 1) / 2 + mp.exp(-1) / 2 * one(at + 1)
    loss = (ny.Laplace(1) * 2).tradeoff().loss
    for bound, exact in ((loss.tail(x), truth), (loss.cdf(x), 1 - truth)):
        assert bound.lower <= exact <= bound.upper
        assert bound.width < 2e-6
        assert bound.method.endswith("holds P(L < x) and P(L <= x)")
