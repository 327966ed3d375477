"""Curves of finite pairs and of points against enumeration in fractions; estimates marked so."""

import subprocess
import sys
from fractions import Fraction as F

import exact_polygons as cv
import mpmath as mp
import numpy as np
import pytest
import scipy.stats

import neyman as ny
import reference as ref
from neyman import between, from_points, total_variation

PAIRS = {
    "the contract's": ([0.5, 0.5], [0.9, 0.1]),
    "three outcomes": (["0.5", "0.3", "0.2"], ["1/6", "1/3", "1/2"]),
    "outcomes that one lacks": ([F(1, 2), F(1, 4), F(1, 4), 0], [F(1, 3), F(1, 2), 0, "1/6"]),
    "outcomes that never happen": ([0, 0.25, 0.75, 0], [0, 0.5, 0.5, 0]),
    "nine outcomes": ([F(k, 45) for k in range(1, 10)], [F(k * k, 285) for k in range(1, 10)]),
    "losses that are nearly the same": (
        [F(1, 4), F(1, 4), F(1, 2)],
        [F(1, 10), F(1, 10) + F(1, 10**18), F(8, 10) - F(1, 10**18)],
    ),
}


def fractions(masses):
    results = [F(repr(x)) if isinstance(x, float) else F(x) for x in masses]
    assert sum(results) == 1
    return results


def delta(p, q, t):
    return sum(max(a - t * b, 0) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
def test_a_finite_pair_is_answered_in_its_worse_order_at_each_level(pair):
    p, q = map(fractions, pair)
    f = between(*pair)
    for level in (0, F(1, 1000), F(1, 20), F(1, 10), F(1, 3), F(1, 2), F(9, 10), 1):
        truth = max(cv.power(p, q, F(float(level))), cv.power(q, p, F(float(level))))
        assert ref.holds(f.power(float(level)), ref.exact(truth)), level
        assert ref.holds(f(float(level)), 1 - ref.exact(truth)), level
    assert ref.holds(f.advantage(), ref.exact(delta(p, q, 1)))
    for epsilon in (0.125, 0.5, 1.0, 2.0):
        t = mp.exp(epsilon)
        truth = max(
            delta(list(map(ref.exact, p)), list(map(ref.exact, q)), t),
            delta(list(map(ref.exact, q)), list(map(ref.exact, p)), t),
        )
        assert ref.holds(f.delta(epsilon), truth), epsilon


def test_a_finite_pair_composes_with_itself():
    p, q = fractions(["0.5", "0.3", "0.2"]), fractions(["0.2", "0.5", "0.3"])
    p3 = [a * b * c for a in p for b in p for c in p]
    q3 = [a * b * c for a in q for b in q for c in q]
    f = between(p, q) ** 3
    for level in (0.001, 0.05, 0.4):
        truth = max(cv.power(p3, q3, F(level)), cv.power(q3, p3, F(level)))
        assert ref.holds(f.power(level), ref.exact(truth))


def test_neither_the_order_of_the_two_nor_that_of_the_outcomes_matters():
    for p, q in PAIRS.values():
        for level in (0.0, 1e-6, 0.05, 0.4):
            power, other = between(p, q).power(level), between(q, p).power(level)
            assert power.upper == pytest.approx(other.upper, rel=1e-12)
            assert power.lower <= other.upper
    assert between([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]) == between([0.2, 0.5, 0.3], [0.3, 0.2, 0.5])


def test_equal_distributions_are_perfectly_private_and_disjoint_ones_reveal_all():
    assert between([0.1, 0.9], np.array([0.1, 0.9])) == ny.perfect()
    f = between([0.5, 0.5, 0], [0, 0, 1])
    assert f.advantage().lower > 1 - 1e-12
    assert f.pure().upper == f.epsilon(0.1).upper == mp.inf


def test_randomized_response_as_a_pair_has_its_own_curve():
    p = [mp.e / (1 + mp.e), 1 / (1 + mp.e)]
    p = [F(int(x * 10**40), 10**40) for x in p]
    p[1] = 1 - p[0]
    f = between(p, p[::-1])
    assert f.advantage().upper == pytest.approx(float(mp.tanh(0.5)), rel=1e-12)
    assert f.gdp().upper == pytest.approx(1.2320354, abs=1e-7)
    assert f.renyi(2).upper == pytest.approx(ny.pure(1).renyi(2).upper, rel=1e-12)


POINTS = [(0, F(9, 10)), (F(1, 10), F(1, 2)), (F(1, 2), F(1, 10)), (1, 0)]


def test_a_curve_from_points_goes_through_them_and_straight_between():
    f = from_points(*zip(*POINTS, strict=True))
    for level in (*(float(a) for a, _ in POINTS), 0.03, 0.2, 0.4, 0.77):
        truth = float(cv.value(POINTS, F(level)))
        assert f(level).lower - 1e-15 <= truth <= f(level).upper + 1e-15
        assert f(level).width < 1e-11


def test_a_curve_from_points_counts_in_the_order_that_was_given():
    alphas, betas = [0, "0.1", "0.5"], [1, "0.3", 0]
    f, back = from_points(alphas, betas), from_points([0, "0.3", 1], ["0.5", "0.1", 0])
    assert f(0.3).upper == pytest.approx(0.15, abs=1e-12)
    assert back(0.3).upper == pytest.approx(0.1, abs=1e-12)
    assert f.pure().upper == pytest.approx(np.log(7))
    assert back.pure().upper == mp.inf
    p, q = [0, F(7, 10), F(3, 10)], [0, F(1, 10), F(4, 10)]
    both = between([*p, 0], [*q, F(1, 2)])
    for level in (0.05, 0.2, 0.6):
        assert both.power(level).upper >= f.power(level).upper - 1e-12


def test_points_of_the_diagonal_are_perfect_privacy_and_those_at_0_reveal_all():
    assert from_points([0, 0.25, 1], [1, 0.75, 0]).alternatives == ny.perfect().alternatives
    assert from_points([0, 1], [0, 0]).advantage().upper == 1
    assert from_points([0], [0]).power(0).lower > 1 - 1e-12


def test_floats_that_are_rounded_out_of_range_are_taken_back_into_it():
    f = from_points([0, 0.5, 1], [1 + 4e-13, 0.5 + 1e-16, -1e-13])
    assert f.alternatives == ny.perfect().alternatives
    assert from_points([0, 0.5], [1, 1e-13]).pure().upper < np.inf
    with pytest.raises(ValueError, match="point 1"):
        from_points([0, F(1, 2), 1], [1, F(1, 2) + F(1, 10**13), 0])


@pytest.mark.parametrize("curve", [ny.gdp(1), ny.pure(1), ny.approximate(0.5, 0.01)])
def test_sampled_points_of_a_curve_are_accepted_and_give_at_most_its_chords(curve):
    alphas = np.linspace(0, 1, 201)
    betas = np.array([curve(float(a)).lower for a in alphas])
    f = from_points(alphas, betas)
    for i in range(0, 200, 7):
        middle = float(alphas[i] + alphas[i + 1]) / 2
        chord = (betas[i] + betas[i + 1]) / 2
        assert f(middle).lower <= chord + 1e-15
        assert f(middle).upper >= chord - 2e-12


def test_total_variation_is_the_curve_below_the_diagonal():
    for v in (0.0, 0.1, 0.5, 1.0):
        for level in (0.0, 0.3, 0.9):
            assert ref.holds(total_variation(v).power(level), min(mp.mpf(v) + mp.mpf(level), 1))
    assert total_variation(0) == ny.perfect()


def test_two_scipy_distributions_give_an_estimate_that_says_so():
    f, g = between(scipy.stats.norm(0, 1), scipy.stats.norm(1, 1)), ny.gdp(1)
    assert "estimate" in f.method
    assert "estimate" in f.power(0.05).method
    assert "estimate" in (f**2).epsilon(1e-6).method
    assert "estimate" in between(scipy.stats.norm(), scipy.stats.norm()).method
    assert "estimate" in between(scipy.stats.uniform(0), scipy.stats.uniform(2)).method
    for level in (1e-9, 0.01, 0.05, 0.5):
        assert f.power(level).upper == pytest.approx(g.power(level).upper, rel=1e-4)
    assert (f**10).epsilon(1e-6).upper == pytest.approx((g**10).epsilon(1e-6).upper, rel=1e-5)


def test_estimates_of_other_distributions_are_near_their_closed_forms():
    stats = scipy.stats
    p, q, k = stats.binom(20, 0.5), stats.binom(20, 0.6), np.arange(21)
    shifted = between(stats.poisson(3), stats.poisson(3, 0.5))
    laplace = between(stats.laplace(0), stats.laplace(1)).delta(0.5)
    for bound, exact, relative in (
        (laplace, ny.Laplace(1).tradeoff().delta(0.5).upper, 1e-5),
        (between(stats.uniform(0), stats.uniform(0.25)).power(0.1), 0.35, 3e-9),
        (between(stats.cauchy(0), stats.cauchy(1)).pure(), np.log((3 + np.sqrt(5)) / 2), 1e-3),
        (between(p, q).advantage(), np.abs(p.pmf(k) - q.pmf(k)).sum() / 2, 1e-5),
        (shifted.advantage(), 1, 1e-6),
        (between(stats.norm(0), stats.norm(100)).advantage(), 1, 1e-6),
    ):
        assert bound.upper == pytest.approx(exact, rel=relative)
    exponential = between(stats.expon(), stats.uniform())  # e^-1 lies beyond the uniform's end
    assert exponential.epsilon(0.3).upper == np.inf
    assert exponential.epsilon(0.37).upper < 1


def test_the_curves_need_no_scipy_stats():
    code = "import sys, neyman.curves.tradeoff.garbling; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
