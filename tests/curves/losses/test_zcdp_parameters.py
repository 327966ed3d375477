"""The sharp zCDP parameters: never below a divergence at any order, and attained."""

import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.curves import (
    EnvelopeLoss,
    ExternalPld,
    FiniteLoss,
    bounded_range_rho,
    discrete_laplace_rho,
    laplace_rho,
    pure_rho,
    response_rho,
    three_values_rho,
)
from random_laws import examples

F = Fraction
# a - 1: near order 1, and so far out that D_a is the largest loss
GRID = [mp.mpf(10) ** (mp.mpf(j) / 4) for j in range(-80, 54)]
EPSILONS = st.one_of(
    st.fractions(F(1, 100), 30, max_denominator=1000), st.integers(-11, 2).map(lambda n: F(10) ** n)
)


def envelope_rho(epsilon):
    return F(EnvelopeLoss(epsilon).rho)


def exactly(x):
    return mp.mpf(x.numerator) / x.denominator


def worst(k, zs=GRID):
    """The largest K(z) / (z (z + 1)), refined about the worst z of the grid."""
    ratio = lambda z: k(z) / (z * (z + 1))  # noqa: E731
    best = max(zs, key=ratio)
    for width in (mp.mpf("0.5"), mp.mpf("0.05"), mp.mpf("0.005"), mp.mpf("0.0005")):
        best = max((best * (1 + width * j / 12) for j in range(-12, 13)), key=ratio)
    return ratio(best)


def is_sharp(rho, k, rel="1e-7"):
    attained = worst(k)
    assert attained <= exactly(rho) <= attained * (1 + mp.mpf(rel))


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(75):
        yield


def three_valued(epsilon, a):
    e = exactly(epsilon)
    return lambda z: mp.log((a + mp.cosh(e * (z + 0.5))) / (a + mp.cosh(e / 2)))


def s(x):
    return mp.log(mp.sinh(x) / x)


RHOS = {  # at order 1, which is the worst of all
    pure_rho: lambda e: e * mp.tanh(e / 2),
    laplace_rho: lambda e: mp.expm1(-e) + e,
    bounded_range_rho: lambda e: s(e / 2) + e / 2 * mp.coth(e / 2) - 1,
    envelope_rho: lambda e: e * mp.coth(e / 2) - 2,
}


@settings(max_examples=examples(30))
@given(EPSILONS | st.integers(0, 15).map(lambda n: F(2, 3) / 10**n))
def test_pure_laplace_and_ranged_releases_have_the_rho_of_their_worst_order(epsilon):
    """And 14 digits are right, also of a small epsilon with many digits."""
    e = exactly(epsilon)
    a = e / 2
    is_sharp(pure_rho(epsilon), three_valued(epsilon, 0))

    def laplace(z):
        w = z + mp.mpf(1) / 2
        return mp.log(mp.cosh(e * w) + mp.sinh(e * w) / (2 * w)) - a

    is_sharp(laplace_rho(epsilon), laplace)
    is_sharp(bounded_range_rho(epsilon), lambda z: (z + 1) * s(a * (z + 1)) - z * s(a * z) - s(a))
    is_sharp(envelope_rho(epsilon), lambda z: s(e * (z + mp.mpf(1) / 2)) - s(a))
    for rho, truth in RHOS.items():
        assert truth(e) <= exactly(rho(epsilon)) <= truth(e) * (1 + mp.mpf("1.1e-14"))


@settings(max_examples=examples(30))
@given(EPSILONS, st.one_of(st.integers(3, 60), st.integers(2, 15).map(lambda n: 10**n)))
def test_responses_have_the_rho_of_their_worst_order(epsilon, categories):
    """Also where many categories move the worst order away from 1."""
    e = exactly(epsilon)
    a = (categories - 2) * mp.exp(-e / 2) / 2
    is_sharp(response_rho(epsilon, categories), three_valued(epsilon, a))
    is_sharp(three_values_rho(epsilon), three_valued(epsilon, mp.cosh(e / 2)))


@settings(max_examples=examples(80))
@given(st.fractions(F(1, 30), 1000, max_denominator=100), st.integers(1, 60))
def test_discrete_laplace_noise_has_the_rho_of_its_own_law(scale, shift):
    a = 1 / exactly(scale)
    r = mp.exp(-a)
    masses = [(shift * a, 1 / (1 + r)), (-shift * a, r**shift / (1 + r))]
    masses += [((shift - 2 * x) * a, (1 - r) / (1 + r) * r**x) for x in range(1, shift)]
    assert abs(mp.fsum(p for _, p in masses) - 1) < mp.mpf("1e-60")

    def k(z):
        return mp.log(mp.fsum(p * mp.exp(z * v) for v, p in masses))

    rho = exactly(discrete_laplace_rho(scale, shift))
    kl = mp.fsum(p * v for v, p in masses)
    assert kl <= rho <= kl * (1 + mp.mpf("1.1e-14"))
    for z in GRID[::6]:
        assert k(z) <= rho * z * (z + 1)
        assert k(-1 - z) <= rho * z * (z + 1)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=5),
    st.lists(st.integers(0, 40), min_size=2, max_size=5),
)
def test_no_finite_pair_has_a_divergence_above_its_rho(first, second):
    pairs = list(zip(first, second, strict=False))
    both = [(p, q) for p, q in pairs if p and q]
    if not both or not all(sum(x) for x in zip(*pairs, strict=True)):
        return
    shares = _shares(pairs)
    f = ny.between([p for p, _ in shares], [q for _, q in shares])
    parts = f.alternatives[0].parts
    if not parts:
        return
    ((loss, _),) = parts
    total = [sum(x) for x in zip(*both, strict=True)]
    laws = [(mp.mpf(p) / total[0], mp.mpf(q) / total[1]) for p, q in both]
    for z in GRID[::8]:
        ahead = mp.log(mp.fsum(p * (p / q) ** z for p, q in laws))
        behind = mp.log(mp.fsum(q * (q / p) ** z for p, q in laws))
        slack = mp.mpf("1e-12") * z * (1 + z) + mp.mpf("1e-80")
        assert max(ahead, behind) <= mp.mpf(loss.rho) * z * (z + 1) + slack


def _shares(pairs):
    total = [sum(x) for x in zip(*pairs, strict=True)]
    return [(F(p, total[0]), F(q, total[1])) for p, q in pairs]


MECHANISMS = {
    "Laplace": (ny.Laplace(1), "0.367879441171443"),
    "geometric": (ny.DiscreteLaplace(2, 3), "0.754579890030413"),
    "response": (ny.RandomizedResponse(1), "0.46211715726001"),
    "20 categories": (ny.RandomizedResponse(1, 20), "0.101994563427168"),
    "reports of 4 categories": (ny.CategoryResponse(1, 4), "0.300489181891563"),
    "Hadamard": (ny.HadamardResponse(1, 7), "0.231058578630005"),
    "choice": (ny.ExponentialMechanism(4), "1.66984963350932"),
    "sparse vector": (ny.SparseVector(4, 8), "0.122459331201855"),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_charge_is_an_exact_decimal_that_its_divergences_stay_below(name):
    """Of the mechanism itself, at orders from 1 to 1000, and for ten of them ten times as much."""
    mechanism, rho = MECHANISMS[name]
    assert mechanism.rho() == F(rho)
    assert (mechanism * 10).rho() == 10 * F(rho)
    f = mechanism.tradeoff()
    for order in (1, 1.0001, 1.5, 2, 3, 10, 100, 1000):
        assert f.renyi(order).lower <= order * float(rho)
    assert f.zcdp().lower <= float(rho)


def test_the_sharp_rho_of_sums_is_attained():
    parts = ny.Laplace(1) + ny.Gaussian(1) + ny.DiscreteLaplace(3, 2) + ny.ExponentialMechanism(1)
    bound = parts.tradeoff().zcdp()
    assert bound.upper - bound.lower < 1e-5
    assert F(bound.lower) <= parts.rho() <= F(bound.upper)


@given(st.fractions(0, 10**5), st.integers(0, 1000), st.integers(2, 10**6))
@settings(max_examples=50)
def test_no_rho_is_above_what_earlier_versions_charged(epsilon, shift, categories):
    old = epsilon**2 / 2
    assert pure_rho(epsilon) <= old
    assert laplace_rho(epsilon) <= pure_rho(epsilon)
    assert bounded_range_rho(epsilon) <= old / 4
    assert response_rho(epsilon, categories) <= pure_rho(epsilon)
    scale = 1 + epsilon
    assert discrete_laplace_rho(scale, shift) <= (shift / scale) ** 2 / 2


def test_another_librarys_statement_counts_what_it_leaves_out_of_q():
    """A loss of log 2 alone has D_a = log 2: Q keeps half of its mass for itself."""
    one = FiniteLoss(F(1), (0,), (0.0,), 0.0, 0.0)
    half = FiniteLoss(F(7, 10), (1,), (0.0,), 0.0, 1 - math.exp(-0.7))
    assert ExternalPld(half, one, "a test").rho >= 0.7


@pytest.mark.parametrize("epsilon", [0.1, 1, 3, 8])
@pytest.mark.parametrize("categories", [2, 3, 10, 1000])
@pytest.mark.parametrize(
    "make", [ny.CategoryResponse, ny.HadamardResponse, ny.UnaryEncoding, ny.RandomizedResponse]
)
def test_the_curve_of_a_local_report_has_a_zcdp_parameter_no_larger_than_its_mechanism(
    make, epsilon, categories
):
    """It is attained at order 1, or above it, within what the curve's own interval says."""
    mechanism = make(epsilon, categories)
    bound = mechanism.tradeoff().zcdp()
    assert bound.upper <= float(mechanism.rho()) * (1 + 1e-15)
    assert bound.lower <= bound.upper
    divergence = mechanism.tradeoff().renyi(order=2)
    assert divergence.lower <= 2 * bound.upper * (1 + 1e-9)
