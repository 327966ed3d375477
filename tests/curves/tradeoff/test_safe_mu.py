"""The least mu that is safe on a range of levels, against enumeration and closed forms."""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import pairwise
from operator import add, ge, matmul, mul

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import neyman as ny
import reference as ref
from neyman import Tradeoff
from neyman.curves import mu_of_points
from random_laws import examples

RUN = (ny.Gaussian(1).subsample(rate=0.01) * 1000).tradeoff()
GDPNUM = 0.4394  # what a numerical GDP accountant says of this run

weights = st.lists(st.integers(0, 40), min_size=4, max_size=4).filter(any)
levels = st.tuples(st.floats(1e-6, 0.98), st.floats(1e-6, 0.98)).filter(lambda v: v[0] < v[1])


def quantile(p):
    if p in (0, 1):
        return mp.inf * (1 if p else -1)
    x = ref.exact(p)
    return ref.quantile(mp.log(x)) if 2 * p < 1 else -ref.quantile(mp.log(1 - x))


def enumerated(p, q, low, high):
    """The largest z(power) - z(level) of the best test of q against p, corner by corner."""
    p, q = ([Fraction(w, sum(v)) for w in v] for v in (p, q))
    corners = [(Fraction(0), sum((a for a, b in zip(p, q, strict=True) if not b), Fraction(0)))]
    for a, b in sorted(zip(p, q, strict=True), key=lambda v: -v[0] / v[1] if v[1] else 1):
        if b:
            corners.append((corners[-1][0] + b, corners[-1][1] + a))
    places = [(x, y) for x, y in corners if low <= x <= high]
    for end in map(Fraction, (low, high)):
        for (x0, y0), (x1, y1) in pairwise(corners):
            if x0 <= end <= x1:
                places.append((end, y0 + (y1 - y0) * (end - x0) / (x1 - x0)))
    return max(quantile(y) - quantile(x) for x, y in places)


def agrees(safe, exact):
    """Whether the interval holds the number, and is as narrow as promised."""
    exact = max(exact, 0)
    assert safe.mu.lower * (1 - 1e-13) - 1e-12 <= exact <= safe.mu.upper
    if 1e-2 < exact < 5:
        assert safe.mu.width <= 1e-6 * safe.mu.upper


@settings(max_examples=examples(160))
@given(weights, weights, levels)
def test_the_mu_of_small_mechanisms_is_the_largest_over_all_corners(p, q, range_):
    both = ny.between([Fraction(w, sum(p)) for w in p], [Fraction(w, sum(q)) for w in q])
    one, other = enumerated(p, q, *range_), enumerated(q, p, *range_)
    agrees(both.gdp(levels=range_), max(one, other))
    forward = Tradeoff(both.alternatives, ordered=True)
    safe = [forward.gdp(levels=range_), forward.inverse().gdp(levels=range_)]
    for answer, exact in zip(safe, (one, other), strict=True):
        assert answer.ordered
        agrees(answer, exact)


@pytest.mark.parametrize(
    ("low", "known"), [(1e-3, 0.44390), (1e-4, 0.45407), (1e-6, 0.47397)], ids=str
)
def test_the_mu_of_a_training_run_has_its_check_value(low, known):
    safe = RUN.gdp(levels=(low, 0.5))
    assert abs(safe.mu.upper - known) < 1e-5
    assert safe.mu.width <= 1e-6 * known
    assert f"levels=({low!r}, 0.5)" in repr(safe)
    grid = [low * (0.5 / low) ** (k / 200) for k in range(201)]
    powers = [power.lower for power in RUN.powers(grid)]
    largest = max(ndtri(power) - ndtri(at) for at, power in zip(grid, powers, strict=True))
    assert safe.mu.upper - 2e-3 <= largest <= safe.mu.upper


def test_the_mu_of_a_numerical_accountant_is_not_safe():
    assert RUN.delta(2).lower > 4 * ny.gdp(GDPNUM).delta(2).upper
    for low in (1e-3, 1e-4, 1e-6):
        assert RUN.power(low).lower > ndtr(ndtri(low) + GDPNUM)
        assert RUN.gdp(levels=(low, 0.5)).mu.lower > GDPNUM
    assert RUN.nearest_gaussian().mu.upper < GDPNUM


def test_the_range_covers_its_mirror_image():
    mu = RUN.gdp(levels=(1e-4, 0.5)).mu.upper
    last = 1 - RUN.power(1e-4).upper
    for level in (0.5, 0.8, 0.99, last):
        assert RUN.power(level).lower <= ndtr(ndtri(level) + mu)
    assert RUN.gdp(levels=(1e-4, last)).mu.lower <= mu


def test_one_order_alone_speaks_of_its_own_levels():
    one = Tradeoff(RUN.alternatives[:1], ordered=True)
    low, high = 1e-6, 1e-3
    safe = one.gdp(levels=(low, high)), one.inverse().gdp(levels=(low, high))
    both = RUN.gdp(levels=(low, high))
    assert max(f.mu.lower for f in safe) <= both.mu.upper
    assert max(f.mu.upper for f in safe) >= both.mu.lower
    assert safe[0].mu.upper != safe[1].mu.upper
    for f, curve in zip(safe, (one, one.inverse()), strict=True):
        at = max(float(ndtri(curve.power(a).lower) - ndtri(a)) for a in (low, high))
        assert f.mu.lower - 1e-6 <= at <= f.mu.upper
        assert "false negative" not in f.sentence
    assert "false negative" in both.sentence


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_pure_privacy_has_its_corner_or_the_nearer_end(epsilon):
    corner = 1 / (1 + math.exp(epsilon))
    f = ny.pure(epsilon)
    agrees(f.gdp(levels=(corner / 2, 0.5)), -2 * ndtri(corner))
    below = corner / 4, corner / 2
    exact = ndtri(below[1] * math.exp(epsilon)) - ndtri(below[1])
    agrees(f.gdp(levels=below), exact)


def test_delta_and_atoms_are_finite_where_the_power_is_below_one():
    f = ny.approximate(1, 1e-3)
    assert f.gdp().upper == math.inf
    corner = (1 - 1e-3) / (1 + math.e)  # of delta + e a and its mirror image
    at_end = ndtri(1e-3 + math.e * 1e-6) - ndtri(1e-6)
    agrees(f.gdp(levels=(1e-2, 0.5)), -2 * ndtri(corner))
    agrees(f.gdp(levels=(1e-6, 0.5)), at_end)
    shifted = ny.total_variation(0.3)
    agrees(shifted.gdp(levels=(0.1, 0.6)), ndtri(0.4) - ndtri(0.1))
    reaching = shifted.gdp(levels=(0.1, 0.71)).mu
    assert (reaching.lower, reaching.upper) == (math.inf, math.inf)
    assert "no Gaussian curve is known" in shifted.gdp(levels=(0.1, 0.71)).sentence
    assert ny.NonPrivate().tradeoff().gdp(levels=(1e-4, 0.5)).mu.lower == math.inf


def test_gaussians_are_their_own_on_every_range_and_nothing_is_zero():
    for mu in (1e-3, 0.5, 4.0, 12.0):
        agrees(ny.gdp(mu).gdp(levels=(1e-9, 0.9)), mu)
        agrees(ny.gdp(mu).group(3).gdp(levels=(0.01, 0.5)), 3 * mu)
    assert ny.perfect().gdp(levels=(1e-4, 0.5)).mu == ny.Bound(
        0.0, 0.0, "upper", ny.perfect().gdp(levels=(1e-4, 0.5)).mu.method
    )


def test_groups_and_joined_curves_are_asked_as_they_are():
    response = ny.RandomizedResponse(1, 2).tradeoff()
    corner = 1 / (1 + math.exp(2))
    agrees(response.group(2).gdp(levels=(1e-3, 0.5)), -2 * ndtri(corner))
    joined = RUN.symmetric().gdp(levels=(1e-4, 0.5))
    assert joined.mu.upper >= RUN.gdp(levels=(1e-4, 0.5)).mu.lower
    power = RUN.symmetric().power(1e-4)
    assert joined.mu.upper >= ndtri(power.lower) - ndtri(1e-4)


@pytest.mark.parametrize(
    "mechanism",
    [
        ny.Gaussian(0.8).subsample(rate=256 / 60_000) * 14_062,
        ny.Laplace(5) * 20,
        ny.DiscreteGaussian(16) * 30,
        ny.Gaussian(1).subsample(rate=0.3),
        ny.Gaussian(0.3).subsample(rate=0.05) * 100,
        ny.DiscreteGaussian(2, [(2, 0), (1, 1)]),
    ],
    ids=repr,
)
def test_no_power_in_the_range_is_above_that_of_the_mu(mechanism):
    f = mechanism.tradeoff()
    safe = f.gdp(levels=(1e-4, 0.5)).mu
    grid = [1e-4 * 5000 ** (k / 60) for k in range(61)]
    assert safe.width <= 1e-6 * safe.upper
    for level, power in zip(grid, f.powers(grid), strict=True):
        assert power.lower <= ndtr(ndtri(level) + safe.upper) * (1 + 1e-12)


@settings(max_examples=examples(80))
@given(weights, weights, st.floats(1e-3, 0.4))
def test_stored_powers_bound_the_mu_between_their_levels(p, q, low):
    f = ny.between([Fraction(w, sum(p)) for w in p], [Fraction(w, sum(q)) for w in q])
    at = [float(ndtr(z / 4)) for z in range(-15, 16)]
    points = [(level, b.upper) for level, b in zip(at, f.powers(at), strict=True)]
    exact = max(0, enumerated(p, q, low, 0.5), enumerated(q, p, low, 0.5))
    assert mu_of_points(points, (low, 0.5)) >= exact
    assert mu_of_points([], (low, 0.5)) == math.inf


def test_stored_powers_of_a_training_run_give_nearly_its_mu():
    at = [float(ndtr(-3.75 + 7.5 * k / 59)) for k in range(60)]
    points = [(level, b.upper) for level, b in zip(at, RUN.powers(at), strict=True)]
    assert 0.45407 <= mu_of_points(points, (1e-4, 0.5)) < 0.47
    assert mu_of_points([*points, (0.05, 0.9)], (1e-4, 0.5)) > 2


def test_the_answer_is_a_statement_and_no_curve():
    safe = RUN.gdp(levels=(1e-4, 0.5))
    names = ("delta", "epsilon", "group", "tradeoff", "admits", "power")
    assert not any(hasattr(safe, name) for name in names)
    pairs = (safe, safe), (safe, RUN), (RUN, safe), (safe, 2)
    for attempt in (
        *(lambda o=o, s=s: o(*s) for o in (mul, matmul, add, ge) for s in pairs),
        lambda: float(safe),
        lambda: ny.gdp(safe),
        lambda: ny.calibrate(ny.Gaussian, budget=safe),
    ):
        with pytest.raises(TypeError):
            attempt()
    with pytest.raises(FrozenInstanceError):
        safe.levels = (0.1, 0.5)


def test_outcomes_that_only_the_null_has_count_for_mu_and_for_the_worst_pair():
    """A power of 1 at a level below 1: no Gaussian curve is below, in either order."""
    pair = ny.between([1, 0], ["0.7635", "0.2365"])
    beside = Tradeoff.of([*pair.alternatives, *ny.gdp(1).alternatives])
    assert beside.power(0.77).upper == 1
    for order in (pair.alternatives[0], pair.alternatives[0].reverse()):
        assert Tradeoff((order,), ordered=True).gdp().upper == math.inf
