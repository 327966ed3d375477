"""Selection, random subsets, local randomizers: real ones, enumerated, never exceed the claim."""

from __future__ import annotations

import math
from fractions import Fraction as F
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.accounting import charge

EPSILONS = (0.0, 0.2, 0.6, 1.1)
SLACK = 1e-12

scores = st.lists(st.integers(-8, 8), min_size=2, max_size=4)
moves = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=4, max_size=4)


def hockey_stick(p, q, epsilon):
    """Delta in the worse direction."""
    gap = [np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))]
    return float(max(gap))


def softmax(scores):
    weight = np.exp(np.array(scores) - max(scores))
    return weight / weight.sum()


def covers(f, p, q, slack=SLACK):
    """No test of the pair beats what the curve allows."""
    for epsilon in EPSILONS:
        assert hockey_stick(p, q, epsilon) <= f.delta(epsilon).upper + slack
    inside = (p > 0) & (q > 0)
    worst = np.abs(np.log(p[inside] / q[inside])).max()
    assert worst <= f.pure().upper + 100 * slack


@settings(max_examples=60)
@given(scores, moves, st.booleans(), st.sampled_from([0.3, 1.0, 2.0]))
def test_exponential_mechanisms_never_exceed_their_range(u, moved, monotone, epsilon):
    v = [a + (abs(m) if monotone else m) for a, m in zip(u, moved, strict=False)]
    rate = epsilon if monotone else epsilon / 2
    p, q = softmax([rate * x for x in u]), softmax([rate * x for x in v])
    covers(ny.ExponentialMechanism(epsilon).tradeoff(), p, q)
    ratio = np.log(p / q)
    assert ratio.max() - ratio.min() <= epsilon + 1e-12


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_two_candidates_attain_the_curve(share):
    epsilon = 1.5
    t = share * epsilon
    # The loss of the first outcome is t: odds r before and r e^-epsilon after.
    r = (math.exp(epsilon) - math.exp(t)) / math.expm1(t)
    p, q = np.array([r, 1.0]) / (r + 1), np.array([r, math.exp(epsilon)]) / (r + math.exp(epsilon))
    assert math.log(p[0] / q[0]) == pytest.approx(t)
    s = 2 * t - epsilon
    low, high = ny.ExponentialMechanism(epsilon).tradeoff().profiles[0].log_delta(s)
    truth = math.log(np.maximum(p - math.exp(s) * q, 0).sum())
    assert low - 1e-12 <= truth <= high + 1e-12


UPPER = {
    n: [(ny.ExponentialMechanism(0.8) * n).tradeoff().delta(s).upper for s in EPSILONS]
    for n in (2, 3)
}


@settings(max_examples=40)
@given(st.data())
def test_compositions_of_exponential_mechanisms_never_exceed(data):
    epsilon, releases = 0.8, data.draw(st.integers(2, 3))
    law = [(1.0, 1.0)]
    for _ in range(releases):
        following = []
        for p, q in law:
            u = data.draw(st.lists(st.integers(-4, 4), min_size=2, max_size=2))
            m = data.draw(moves)
            v = [a + b for a, b in zip(u, m, strict=False)]
            first, last = (softmax([epsilon / 2 * x for x in w]) for w in (u, v))
            following += [(p * a, q * b) for a, b in zip(first, last, strict=True)]
        law = following
    p, q = np.array(law).T
    for s, upper in zip(EPSILONS, UPPER[releases], strict=True):
        assert hockey_stick(p, q, s) <= upper + SLACK


def test_repeated_choices_between_two_are_within_the_interval():
    epsilon, releases = 1.0, 3
    f = (ny.ExponentialMechanism(epsilon) * releases).tradeoff()
    for s in EPSILONS:
        results = []
        for t in np.linspace(0.01, 0.99, 99) * epsilon:
            p = math.expm1(t - epsilon) / math.expm1(-epsilon)
            first = np.array([p, 1 - p])
            last = first * np.exp([-t, epsilon - t])
            both = [
                np.array([math.prod(x) for x in product(w, repeat=releases)]) for w in (first, last)
            ]
            results.append(hockey_stick(*both, s))
        bound = f.delta(s)
        assert max(results) <= bound.upper
        assert bound.lower <= max(results) * 1.001
        assert bound.lower >= 0.9 * max(results)


# Noisy maxima, integrated


def nodes(kinks, reach):
    """Gauss-Legendre between the places where a density or distribution function has a kink."""
    node, weight = np.polynomial.legendre.leggauss(24)
    inner = sorted({float(k) for k in kinks if abs(k) < reach})
    edges = np.concatenate(
        [np.linspace(-reach, inner[0], 12)[:-1], inner, np.linspace(inner[-1], reach, 12)[1:]]
    )
    half = np.diff(edges) / 2
    place = (edges[:-1] + half)[:, None] + half[:, None] * node
    return place.ravel(), (half[:, None] * weight).ravel()


def laplace(x, b):
    return np.exp(-np.abs(x) / b) / (2 * b)


def laplace_below(x, b):
    tail = np.exp(-np.abs(x) / b) / 2
    return np.where(x < 0, tail, 1 - tail)


def exponential(x, b):
    return np.where(x > 0, np.exp(-np.maximum(x, 0) / b) / b, 0.0)


def exponential_below(x, b):
    return np.where(x > 0, -np.expm1(-np.maximum(x, 0) / b), 0.0)


def winner(u, b, density, below):
    """The distribution of the winner: the integral over its noisy score."""
    x, w = nodes(u, 45 * b)
    law = []
    for i, a in enumerate(u):
        others = [below(x - c, b) for j, c in enumerate(u) if j != i]
        law.append(float((w * density(x - a, b) * np.prod(others, axis=0)).sum()))
    return np.array(law)


@pytest.mark.parametrize(
    ("noise", "density", "below"),
    [("laplace", laplace, laplace_below), ("exponential", exponential, exponential_below)],
)
@pytest.mark.parametrize("monotone", [False, True])
def test_noisy_maxima_never_exceed_and_two_candidates_attain(noise, density, below, monotone):
    b = 1.6
    f = ny.ReportNoisyMax(b, noise=noise, monotone=monotone).tradeoff()
    rng = np.random.default_rng(7)
    for k in range(30):
        u = rng.integers(-3, 4, size=2 + k % 2).astype(float)
        move = rng.uniform(-1, 1, len(u)) if k % 3 else rng.choice([-1.0, 1.0], len(u))
        v = u + (np.abs(move) if monotone else move)
        p, q = winner(u, b, density, below), winner(v, b, density, below)
        assert abs(p.sum() - 1) < 1e-10
        covers(f, p, q, 1e-9)
    half = 0.5 if monotone else 1.0
    p = winner([half, 0.0], b, density, below)
    q = winner([0.0, half], b, density, below)
    assert hockey_stick(p, q, 0.0) == pytest.approx(f.delta(0).lower, abs=1e-9)


def test_gumbel_noise_draws_as_the_exponential_mechanism():
    m = ny.ReportNoisyMax(4, 3, noise="gumbel")
    assert m.losses() == ny.ExponentialMechanism(F(3, 2)).losses()
    assert m.rho() == ny.ExponentialMechanism(F(3, 2)).rho() < F(9, 32)
    assert ny.ReportNoisyMax(4, 3, noise="gumbel", monotone=True).epsilon() == F(3, 4)
    u, b = [0.0, 1.0, -2.0], 1.3

    def density(x, b):
        return np.exp(-x / b - np.exp(np.minimum(-x / b, 700.0))) / b

    def below(x, b):
        return np.exp(-np.exp(np.minimum(-x / b, 700.0)))

    assert np.allclose(winner(u, b, density, below), softmax(np.array(u) / b), atol=1e-9)


def above_threshold(queries, first, each):
    """The distribution of what is released for two queries and one answer: threshold noise
    integrated.
    """
    x, w = nodes([*queries, 0.0], 60 * max(first, each))
    mass = w * laplace(x, first)
    a, b = (1 - laplace_below(x - v, each) for v in queries)  # query v is above threshold x
    return np.array(
        [(mass * a).sum(), (mass * (1 - a) * b).sum(), (mass * (1 - a) * (1 - b)).sum()]
    )


@pytest.mark.parametrize("monotone", [False, True])
def test_sparse_vectors_never_exceed(monotone):
    first, each = 2.0, 3.0
    m = ny.SparseVector(first, each, monotone=monotone)
    assert m.epsilon() == F(1, 2) + (F(1, 3) if monotone else F(2, 3))
    f = m.tradeoff()
    ways = [(1, 1), (-1, -1), (1, 0)] if monotone else list(product((-1, 1), repeat=2))
    for u in product((-3.0, 0.0, 0.5, 4.0), repeat=2):
        for way in ways:
            p = above_threshold(u, first, each)
            q = above_threshold(np.add(u, way), first, each)
            assert abs(p.sum() - 1) < 1e-10
            covers(f, p, q, 1e-9)
    single = [above_threshold((s, -500.0), first, each) for s in (0.5, -0.5)]
    assert f.delta(0).lower <= hockey_stick(*single, 0.0) + 1e-9


def test_many_answers_cost_once_for_the_threshold():
    m = ny.SparseVector(10, 40, answers=3, sensitivity=2)
    assert m.epsilon() == F(2, 10) + 3 * 2 * F(2, 40)
    assert m.tradeoff().pure().upper == pytest.approx(0.5)
    assert m.rho() == ny.LocalRandomizer(0.5).rho() < F(1, 8)
    assert charge(m, "pure") == (F(1, 2), 0)


# Subsets and local randomizers


def test_a_random_subset_is_what_enumeration_says():
    before, after = "abcd", "abcx"
    laws = [
        {frozenset(c): F(1, 6) for c in combinations(records, 2)} for records in (before, after)
    ]
    outcomes = sorted({o for law in laws for o in law}, key=sorted)
    p, q = (np.array([float(law.get(o, 0)) for o in outcomes]) for law in laws)
    f = ny.RandomSubset(2, 4).tradeoff()
    for epsilon in EPSILONS:
        bound = f.delta(epsilon)
        assert bound.lower <= hockey_stick(p, q, epsilon) <= bound.upper
        assert bound.upper - bound.lower < 1e-12
    assert f.neighboring == "replace-one"
    assert f.pure().upper == f.renyi(2).upper == math.inf
    assert (ny.RandomSubset(0, 4).tradeoff() ** 3).delta(0).upper == 0
    assert ny.RandomSubset(4, 4).tradeoff().delta(9).lower > 1 - 1e-12


def test_a_subset_of_a_sample_is_a_smaller_subset():
    m = ny.RandomSubset(2, 10).subsample(size=10, population=100)
    bound = m.tradeoff().delta(0.3)
    assert bound.lower <= 0.02 <= bound.upper < 0.02 * (1 + 1e-9)
    with pytest.raises(ValueError, match="population of 10"):
        ny.RandomSubset(2, 10).subsample(size=20, population=100)
    with pytest.raises(ValueError, match="described under 'replace-one'"):
        ny.RandomSubset(2, 10).subsample(rate=0.1)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=5), st.floats(0.05, 2.0), st.data())
def test_local_randomizers_cover_every_channel(weights, epsilon, data):
    p = np.array(weights) / sum(weights)
    tilt = np.array([data.draw(st.floats(0, epsilon)) for _ in weights])
    q = p * np.exp(tilt)
    q = q / q.sum()  # ratios stay within e^epsilon: the sum is between 1 and e^epsilon
    covers(ny.LocalRandomizer(epsilon).tradeoff(), p, q)
    assert ny.LocalRandomizer(epsilon).tradeoff() >= ny.pure(epsilon)
    assert ny.pure(epsilon) >= ny.LocalRandomizer(epsilon).tradeoff()


def test_samples_of_selections_hold_for_each_selection():
    epsilon, q = 1.5, 0.2
    f = ny.ExponentialMechanism(epsilon).subsample(rate=q).tradeoff()
    fixed = ny.ExponentialMechanism(epsilon).subsample(size=2, population=10).tradeoff()
    noisy = ny.ReportNoisyMax(2 / epsilon).subsample(rate=q).tradeoff()
    for s in (0.0, 0.1, 0.25):
        results = []
        for t in np.linspace(0.01, 0.99, 99) * epsilon:
            p = math.expm1(t - epsilon) / math.expm1(-epsilon)
            first = np.array([p, 1 - p])
            last = first * np.exp([-t, epsilon - t])
            results.append(hockey_stick((1 - q) * last + q * first, last, s))
        for curve in (f, fixed):
            bound = curve.delta(s)
            assert bound.lower <= max(results) * 1.001
            assert max(results) <= bound.upper <= max(results) * 1.001 + 1e-12
        assert noisy.delta(s).upper >= f.delta(s).upper
    twice = (ny.ExponentialMechanism(epsilon) * 2 + ny.Gaussian(3)).subsample(rate=q).tradeoff()
    assert twice.delta(0.1).upper > f.delta(0.1).upper
    with pytest.raises(ValueError, match="replace-one"):
        ny.ExponentialMechanism(1).subsample(rate=0.1, neighboring="replace-one")
    with pytest.raises(ValueError, match="described under 'replace-one'"):
        ny.LocalRandomizer(1).subsample(rate=0.1)


def test_renyi_of_a_bracket_lies_between_its_two_sides():
    f = ny.ReportNoisyMax(2).tradeoff()
    lower, upper = (
        ny.pure(F(x)).renyi(3) for x in (f.alternatives[0].parts[0][0].lower.lattice, 1)
    )
    bound = f.renyi(3)
    assert bound.lower == pytest.approx(lower.lower, rel=1e-9)
    assert bound.upper == pytest.approx(upper.upper, rel=1e-9)
    assert bound.upper >= upper.lower


# What they cost


@pytest.mark.parametrize(
    ("mechanism", "currency", "price"),
    [
        (ny.ExponentialMechanism(2), "zcdp", (F("0.474474647070527"), 0)),
        (ny.ExponentialMechanism(2) * 3, "pure", (F(6), 0)),
        (ny.ReportNoisyMax(4), "zcdp", (F("0.122459331201855"), 0)),
        (ny.LocalRandomizer(0.5), "zcdp", (F("0.122459331201855"), 0)),
        (ny.RandomSubset(3, 1000), "zcdp", (F(0), F(3, 1000))),
        (ny.RandomSubset(1, 10) * 4 + ny.Gaussian(2), "zcdp", (F(1, 8), F(2, 5))),
        (ny.RandomSubset(1, 10) + ny.Gaussian(2), "gdp", (F(1, 4), F(1, 10))),
        (ny.NonPrivate(0.1, "add-remove") + ny.Laplace(2), "pure", (F(1, 2), F(1, 10))),
        (ny.NonPrivate(0.1, "replace-one"), "renyi:2", (F(0), F(1, 10))),
        (ny.Gaussian(1), "gdp", (F(1), 0)),
        (ny.Gaussian(3) * 9, "gdp", (F(1), 0)),
    ],
)
def test_prices_are_exact(mechanism, currency, price):
    assert charge(mechanism, currency) == price


def test_what_has_no_price_is_refused():
    for mechanism in (ny.NonPrivate(), ny.RandomSubset(1, 2) * 2):
        with pytest.raises(ValueError, match="deltas add up to 1"):
            charge(mechanism, "zcdp")
    with pytest.raises(ValueError, match="no zCDP parameter"):
        charge(ny.NonPrivate().subsample(rate=0.1), "zcdp")
    with pytest.raises(ValueError, match="RandomSubset"):
        charge(ny.NonPrivate().subsample(rate=0.1), "pure")
    with pytest.raises(ValueError, match="currency = 'euro'"):
        charge(ny.RandomSubset(1, 10), "euro")
