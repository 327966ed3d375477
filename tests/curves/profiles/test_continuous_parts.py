"""Equal losses with atoms and a density: against quadrature, enumeration, and the grid."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.laplace import LaplaceLoss
from neyman.curves.losses.piecewise_analytic import PiecewiseAnalyticLoss
from neyman.curves.losses.subsampled import FixedSizeLoss, ReplaceOneSubsampledLoss, SubsampledLoss
from neyman.curves.profiles.contour.continuous_parts import (
    CONTOUR_PARTS,
    ContinuousPartsProfile,
    ManyFromDensity,
    _sums_of_atoms,
    parts_lattice,
)
from neyman.curves.profiles.duality import log_power_by_duality, log_power_near
from neyman.curves.profiles.lattice.convolution import dots_profile
from neyman.curves.profiles.lattice.lattice import tilt_of_level
from random_laws import examples

SHAPES = ["removal", "addition", "fixed size", "replace-one", "plain"]
EQUAL_LOSSES = {
    "shape": st.sampled_from(SHAPES),
    "epsilon": st.floats(0.1, 3.0),
    "log_rate": st.floats(-6, -0.5),
    "count": st.integers(2, 45),
}


def loss_of(shape: str, epsilon: float, rate: float) -> PiecewiseAnalyticLoss:
    """Laplace noise with this epsilon, on a sample."""
    inner = LaplaceLoss(Fraction(epsilon))
    if shape in ("removal", "addition"):
        return SubsampledLoss(inner, rate, shape == "removal")
    if shape == "fixed size":
        return FixedSizeLoss(inner, rate)
    return ReplaceOneSubsampledLoss(inner, rate) if shape == "replace-one" else inner


def one_loss(epsilon: float, rate: float) -> list[tuple[Any, Any, Any]]:
    """The two atoms (loss, P, Q) of sampled Laplace noise, removal, by its formulas."""
    a, q = mpmath.mpf(epsilon), mpmath.mpf(rate)
    g = [mpmath.log(1 - q + q * mpmath.exp(x)) for x in (-a, a)]
    base = [mpmath.mpf(1) / 2, mpmath.exp(-a) / 2]  # under Q, the law without the record
    return [(g[i], base[i] * mpmath.exp(g[i]), base[i]) for i in (0, 1)]


def exact_two(epsilon: float, rate: float, at: float) -> float:
    """log delta of two sampled Laplace releases, removal: a double integral in 40 digits."""
    with mpmath.workdps(40):
        a, q, e = mpmath.mpf(epsilon), mpmath.mpf(rate), mpmath.mpf(at)

        def g(x: Any) -> Any:
            return mpmath.log(1 - q + q * mpmath.exp(x))

        def inverse(value: Any) -> Any:
            return mpmath.log((mpmath.exp(value) - 1 + q) / q)

        atoms = one_loss(epsilon, rate)

        def one(x: Any) -> Any:
            """E_P[(1 - e^{x - L})_+] = P(L > x) - e^x Q(L > x) of one release."""
            total = mpmath.mpf(0)
            for loss, p, base in atoms:
                total += max(p - base * mpmath.exp(x), 0) if loss > x else 0
            start = -a if x <= g(-a) else inverse(x)
            if start >= a:
                return total

            # The density under Q is e^{-(l + a) / 2} / 4 on (-a, a); P is (1 - q + q e^l) of it.
            def null(s: Any) -> Any:
                return (mpmath.exp(-(s + a) / 2) - mpmath.exp(-a)) / 2

            def moved(s: Any) -> Any:
                return (1 - mpmath.exp((s - a) / 2)) / 2

            p_tail = (1 - q) * null(start) + q * moved(start)
            return total + p_tail - mpmath.exp(x) * null(start)

        value = sum(p * one(e - loss) for loss, p, _ in atoms)
        kinks = [x for x in (e - atoms[0][0], e - atoms[1][0]) if g(-a) < x < g(a)]
        points = sorted([-a, a, *(inverse(x) for x in kinks)])
        value += mpmath.quad(
            lambda s: (1 - q + q * mpmath.exp(s)) * mpmath.exp(-(s + a) / 2) / 4 * one(e - g(s)),
            points,
        )
        return float(mpmath.log(value))


@pytest.mark.parametrize(
    ("epsilon", "rate"), [(1.0, 0.1), (0.3, 1e-4), (3.0, 0.01), (0.12, 0.3), (2.0, 1e-7)]
)
@pytest.mark.parametrize("share", [0.0, 0.13, 0.5, 0.71, 0.97])
def test_two_releases_agree_with_a_double_integral(epsilon: float, rate: float, share: float):
    """Their bounds hold the integral and are narrow."""
    losses = Composition.of([(loss_of("removal", epsilon, rate), 2)])
    at = share * float(losses.supremum)
    exact = exact_two(epsilon, rate, at)
    for engine in (ContinuousPartsProfile, parts_lattice):
        low, high = engine(losses).log_delta(at)
        assert low - 1e-13 <= exact <= high + 1e-13
        assert high - low < 2e-6


@pytest.mark.parametrize(("epsilon", "rate", "level"), [(1.0, 0.1, 0.02), (3.0, 0.01, 1e-2)])
def test_the_power_of_two_releases_agrees_with_a_double_integral(
    epsilon: float, rate: float, level: float
):
    """No line delta + e^eps level is below it, and the least of many comes near."""
    losses = Composition.of([(loss_of("removal", epsilon, rate), 2)])
    profile = parts_lattice(losses)
    low, high = profile.log_power(math.log(level))
    star = profile._threshold(math.log(level), None)
    places = star + 0.02 * float(losses.supremum) * np.linspace(-1, 1, 41)
    lines = [np.logaddexp(exact_two(epsilon, rate, x), x + math.log(level)) for x in places]
    assert low <= min(lines) + 1e-12
    assert high >= min(lines) - 1e-4
    assert high - low < 1e-6


@settings(max_examples=examples(24))
@given(**EQUAL_LOSSES, share=st.floats(-0.9, 0.99))
def test_bounds_meet_those_of_a_grid(
    shape: str, epsilon: float, log_rate: float, count: int, share: float
):
    """The grid moves all atoms and knows nothing of the number of parts."""
    losses = Composition.of([(loss_of(shape, epsilon, 10**log_rate), count)])
    at = share * float(losses.supremum)
    grid = dots_profile(losses).log_delta(at)
    for engine in (ContinuousPartsProfile, parts_lattice):
        mine = engine(losses).log_delta(at)
        assert mine[0] <= mine[1]
        assert mine[0] <= grid[1] + 1e-12
        assert grid[0] <= mine[1] + 1e-12


@settings(max_examples=examples(24))
@given(**EQUAL_LOSSES, level=st.floats(-20, -0.01))
def test_a_power_from_the_lattice_meets_the_one_by_duality(
    shape: str, epsilon: float, log_rate: float, count: int, level: float
):
    """The first sums up to a threshold, the second is the least of many deltas."""
    losses = Composition.of([(loss_of(shape, epsilon, 10**log_rate), count)])
    low, high = parts_lattice(losses).log_power(level)
    other = log_power_by_duality(ContinuousPartsProfile(losses).log_delta, level)
    assert low <= high
    assert low <= other[1] + 1e-12
    assert other[0] <= high + 1e-12


@pytest.mark.parametrize("count", [60, 3000])
@pytest.mark.parametrize("level", [1e-12, 1e-3, 0.3])
def test_a_power_from_a_few_deltas_meets_the_one_from_many(count: int, level: float):
    """The guess at the threshold is the mean under a tilt."""
    losses = Composition.of([(loss_of("addition", 0.5, 0.01), count)])
    profile = (ny.Laplace(2).subsample(rate=0.01) * count).tradeoff().profiles[0]
    tilt = tilt_of_level(losses, math.log(level), 1e5)
    _, mean, variance = (float(v[0]) for v in losses.moments(np.array([tilt])))
    near = log_power_near(profile.log_deltas, math.log(level), mean, math.sqrt(variance))
    other = log_power_by_duality(profile.log_delta, math.log(level))
    assert near[0] <= other[1] + 1e-12
    assert other[0] <= near[1] + 1e-12
    assert near[1] - near[0] < 1e-6


def test_a_type_two_error_from_two_sides_holds_the_complement():
    """Both distributions of the lattice bound 1 - power where it is small."""
    losses = Composition.of([(loss_of("removal", 3.0, 0.3), 40)])
    profile = parts_lattice(losses)
    for log_level in (-4.0, -2.0, -0.5):
        tilt = tilt_of_level(losses, log_level, 10.0)
        low, high = profile._log_miss(log_level, tilt)
        power = log_power_by_duality(profile.log_delta, log_level)
        miss = -math.expm1(power[1]), -math.expm1(power[0])
        assert math.exp(low) <= miss[1] + 1e-12
        assert miss[0] <= math.exp(high) + 1e-12
        assert high - low < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_the_contour_holds_the_terms_with_many_parts(shape: str):
    """On a line, the recursion equals the binomial sum, term by term."""
    loss, count = loss_of(shape, 1.0, 0.1), CONTOUR_PARTS + 15
    z = 0.7 + 1j * np.linspace(0.0, 40.0, 33)
    k, error = ManyFromDensity(loss, count).mgf(z)
    atoms, density, _ = loss.characteristic_functions(z)
    terms = [math.comb(count, j) * atoms ** (count - j) * density**j for j in range(count + 1)]
    shares = loss.shares(0.7)
    direct = np.sum(terms[CONTOUR_PARTS:], axis=0)
    mass = float(np.real(direct[0]))
    assert np.all(np.abs(np.exp(k - count * shares.log_mgf) - direct) <= 1e-12 * mass)
    assert np.all(error < 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_decay_bounds_the_characteristic_function(shape: str):
    """At each height between two edges."""
    loss, count = loss_of(shape, 2.0, 0.2), CONTOUR_PARTS + 5
    many, tilt = ManyFromDensity(loss, count), 1.3
    edges = np.geomspace(0.1, 300.0, 60)
    bound = many.log_decay(tilt, edges, 40.0)
    u = np.concatenate([[0.0], np.sqrt(edges[1:] * edges[:-1]), edges[1:]])
    k, _ = many.mgf(tilt + 1j * u)
    size = np.real(k) - np.real(k[0])
    assert np.all(size[1:] <= np.concatenate([bound[:-1], bound[:-1]]) + 1e-6)


def test_a_level_at_an_atom_has_the_power_of_the_likelihood_ratio_test():
    """Enumerate the top atom: below its mass each level gains e^supremum, no more."""
    (_, _, _), (top, _, mass) = one_loss(1.0, 0.1)
    level = float(mass**5) / 3
    power = (ny.Laplace(1).subsample(rate=0.1) * 5).tradeoff().power(level=level)
    exact = float(level * mpmath.exp(5 * top))
    assert power.lower <= exact * (1 + 1e-14)
    assert exact <= power.upper * (1 + 1e-14)
    assert power.upper - power.lower < 1e-12 * exact


@pytest.mark.parametrize(("count", "kinds"), [(3, 2), (4, 3)])
def test_sums_of_atoms_equal_their_enumeration(count: int, kinds: int):
    """All ways to choose atoms, one by one."""
    shape = "removal" if kinds == 2 else "fixed size"
    loss = loss_of(shape, 1.0, 0.2)
    atoms = loss.point_masses()
    assert atoms is not None
    low, high = float(atoms.place[0]), float(atoms.place[-1])
    share, log_w = _sums_of_atoms(tuple(atoms.log_mass.tolist()), count, 0)
    exact: dict[float, float] = {}
    for chosen in product(range(kinds), repeat=count):
        place = round(sum(float(atoms.place[k]) for k in chosen), 9)
        mass = math.exp(sum(float(atoms.log_mass[k]) for k in chosen))
        exact[place] = exact.get(place, 0.0) + mass
    places = np.round(count * low + share * (high - low), 9)
    assert np.allclose(places, sorted(exact), atol=2e-9)
    assert np.allclose(np.exp(log_w), [exact[k] for k in sorted(exact)], rtol=1e-12)


def test_few_releases_have_narrow_answers():
    """These were wider than 1e-4, some open, when a grid answered."""
    cases = [(7.17, 0.0131, 12), (2.95, 0.0104, 17), (1.92, 2.7e-4, 16), (3.86, 9.3e-7, 3)]
    for scale, rate, count in cases:
        f = (ny.Laplace(scale).subsample(rate=rate) * count).tradeoff()
        epsilon, power = f.epsilon(1e-14), f.power(level=1e-7)
        assert epsilon.upper - epsilon.lower <= 1e-6 * epsilon.upper
        assert power.upper - power.lower <= 1e-6 * power.upper


@pytest.mark.parametrize("count", [2, 3])
def test_plain_laplace_noise_a_few_times_is_narrow(count: int):
    """The largest loss was known to 1e-4 only."""
    f = (ny.Laplace(2) * count).tradeoff()
    bound = f.epsilon(1e-12)
    assert bound.upper - bound.lower <= 1e-9 * bound.upper
    assert 0 < count / 2 - bound.lower < 1e-9


@pytest.mark.parametrize("count", [7, 26, 92])
def test_far_thresholds_ask_for_no_more_nodes(count: int):
    """A tilt of 1e9 asked for 8e7 nodes of the density of Laplace noise."""
    f = (ny.Laplace(1) * count).tradeoff()
    for epsilon in (0.5 * count, count - 1e-3, count - 1e-7):
        delta = f.delta(epsilon)
        assert 0 < delta.lower <= delta.upper <= 1
    assert f.epsilon(1e-100).upper == pytest.approx(count, abs=1e-9)


def test_losses_of_1e_13_keep_their_bounds():
    """There, a step of the lattice is below the rounding of its places."""
    f = (ny.Laplace(3e3).subsample(rate=3e-10) * 40).tradeoff()
    power = f.power(level=0.1)
    assert 0.1 * (1 - 1e-14) <= power.lower <= power.upper <= 0.1 * (1 + 1e-9)
