"""Equal losses with atoms and a density: against quadrature, enumeration, and a grid."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman.curves import (
    Composition,
    FixedSizeLoss,
    LaplaceLoss,
    ReplaceOneSubsampledLoss,
    SubsampledLoss,
    UprightEnd,
    dots_profile,
    log_power_by_duality,
    log_power_near,
    tilt_of_level,
)
from neyman.curves.profiles.contour.continuous_parts import (
    LIMITS,
    PartsProfile,
    _amplitudes,
    _Places,
    _Ray,
    _ray_edges,
    bent_contour,
)
from neyman.curves.profiles.contour.contour import contour_profile
from random_laws import examples

SHAPES = ["removal", "addition", "fixed size", "replace-one", "plain"]


def loss_of(shape, epsilon, rate):
    inner = LaplaceLoss(Fraction(epsilon))
    if shape in ("removal", "addition"):
        return SubsampledLoss(inner, rate, shape == "removal")
    if shape == "fixed size":
        return FixedSizeLoss(inner, rate)
    return ReplaceOneSubsampledLoss(inner, rate) if shape == "replace-one" else inner


def one_loss(epsilon, rate):
    """The two atoms (loss, P, Q) of sampled Laplace noise, removal, by its formulas."""
    a, q = mpmath.mpf(epsilon), mpmath.mpf(rate)
    g = [mpmath.log(1 - q + q * mpmath.exp(x)) for x in (-a, a)]
    base = [mpmath.mpf(1) / 2, mpmath.exp(-a) / 2]  # under Q, the law without the record
    return [(g[i], base[i] * mpmath.exp(g[i]), base[i]) for i in (0, 1)]


def exact_two(epsilon, rate, at):
    """log delta of two sampled Laplace releases, removal: a double integral in 40 digits."""
    with mpmath.workdps(40):
        a, q, e = mpmath.mpf(epsilon), mpmath.mpf(rate), mpmath.mpf(at)

        def g(x):
            return mpmath.log(1 - q + q * mpmath.exp(x))

        def inverse(value):
            return mpmath.log((mpmath.exp(value) - 1 + q) / q)

        atoms = one_loss(epsilon, rate)

        def one(x):
            """E_P[(1 - e^{x - L})_+] = P(L > x) - e^x Q(L > x) of one release."""
            total = mpmath.mpf(0)
            for loss, p, base in atoms:
                total += max(p - base * mpmath.exp(x), 0) if loss > x else 0
            start = -a if x <= g(-a) else inverse(x)
            if start >= a:
                return total

            # The density under Q is e^{-(l + a) / 2} / 4 on (-a, a); P is (1 - q + q e^l) of it.
            def null(s):
                return (mpmath.exp(-(s + a) / 2) - mpmath.exp(-a)) / 2

            def moved(s):
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
def test_two_releases_agree_with_a_double_integral(epsilon, rate, share):
    losses = Composition.of([(loss_of("removal", epsilon, rate), 2)])
    at = share * float(losses.supremum)
    exact = exact_two(epsilon, rate, at)
    low, high = PartsProfile(losses).log_delta(at)
    assert low - 1e-13 <= exact <= high + 1e-13
    assert high - low < 1e-10


@pytest.mark.parametrize(("epsilon", "rate", "level"), [(1.0, 0.1, 0.02), (3.0, 0.01, 1e-2)])
def test_the_power_of_two_releases_agrees_with_a_double_integral(epsilon, rate, level):
    """No line delta + e^eps level is below it, and the least of many comes near."""
    losses = Composition.of([(loss_of("removal", epsilon, rate), 2)])
    low, high = PartsProfile(losses).log_power(math.log(level))
    places = float(losses.supremum) * np.linspace(0.1, 0.9, 9)
    lines = [np.logaddexp(exact_two(epsilon, rate, x), x + math.log(level)) for x in places]
    assert low <= min(lines) + 1e-12
    assert high >= min(lines) - 0.1
    assert high - low < 1e-9


@settings(max_examples=examples(24))
@given(
    shape=st.sampled_from(SHAPES),
    epsilon=st.floats(0.1, 3.0),
    log_rate=st.floats(-6, -0.5),
    count=st.integers(2, 45),
    share=st.floats(-0.9, 0.99),
    level=st.floats(-20, -0.01),
)
def test_a_delta_and_a_power_meet_those_of_a_grid(shape, epsilon, log_rate, count, share, level):
    """The grid moves all atoms and knows nothing of rays."""
    losses = Composition.of([(loss_of(shape, epsilon, 10**log_rate), count)])
    at, mine, grid = share * float(losses.supremum), PartsProfile(losses), dots_profile(losses)
    for one, other in (
        (mine.log_delta(at), grid.log_delta(at)),
        (mine.log_power(level), grid.log_power(level)),
    ):
        assert one[0] <= one[1]
        assert ref.meet(one, other, 1e-12)


@pytest.mark.parametrize("count", [60, 3000])
@pytest.mark.parametrize("level", [1e-12, 1e-3, 0.3])
def test_a_power_from_a_few_deltas_meets_the_one_from_many(count, level):
    """The guess at the threshold is the mean under a tilt."""
    losses = Composition.of([(loss_of("addition", 0.5, 0.01), count)])
    profile = (ny.Laplace(2).subsample(rate=0.01) * count).tradeoff().profiles[0]
    tilt = tilt_of_level(losses, math.log(level), 1e5)
    _, mean, variance = (float(v[0]) for v in losses.moments(np.array([tilt])))
    near = log_power_near(profile.log_deltas, math.log(level), mean, math.sqrt(variance))
    other = log_power_by_duality(profile.log_delta, math.log(level))
    assert ref.meet(near, other, 1e-12)
    assert near[1] - near[0] < 1e-6


@pytest.mark.parametrize("log_level", [-6.0, -2.0, -0.5])
def test_a_small_type_two_error_meets_the_one_of_a_grid(log_level):
    losses = Composition.of([(loss_of("removal", 3.0, 0.3), 40)])
    low, high = PartsProfile(losses)._log_miss(log_level)
    power = dots_profile(losses).log_power(log_level)
    assert math.exp(low) <= -math.expm1(power[0]) + 1e-12
    assert -math.expm1(power[1]) <= math.exp(high) + 1e-12
    assert high - low < 1e-8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("epsilon", "rate", "tilt"), [(1.0, 0.1, 0.7), (3.0, 1e-4, 40.0)])
def test_rays_from_all_ends_add_to_the_transform(shape, epsilon, rate, tilt):
    loss = loss_of(shape, epsilon, rate)
    height = max(tilt + 1, 16.0)
    t = np.array([0.0, 0.5, 3.0, 20.0])
    places = _Places.of(loss, tilt, 0.0)
    amplitudes, unsure = _amplitudes(places, tilt, height + t, t, height, LIMITS)
    assert np.all(unsure < 1e-11 * places.sizes(height).sum())
    for side, amplitude in zip((-1, 1), amplitudes, strict=True):
        z = tilt + side * t + 1j * (height + t)
        wave = np.exp(np.multiply.outer(places.place, z) - tilt * places.place[:, None])
        for k, one in enumerate(z.tolist()):
            exact = np.exp(loss.log_mgf(np.array([one])))[0]
            size = math.exp(float(loss.log_mgf(np.array([one.real]))[0]))
            size += float(np.abs(wave[:, k] * amplitude[:, k]).sum())
            assert abs((wave[:, k] * amplitude[:, k]).sum() - exact) <= 1e-12 * size


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sizes_at_a_height_bound_all_amplitudes_above_it(shape):
    """Places count alone: no cancellation between them is used."""
    loss, tilt, height = loss_of(shape, 2.0, 0.02), 5.0, 20.0
    places = _Places.of(loss, tilt, 0.0)
    t = np.geomspace(1e-3, 1e4, 60)
    amplitudes, _ = _amplitudes(places, tilt, height + t, t, height, LIMITS)
    assert np.all(np.abs(amplitudes).max(axis=(0, 2)) <= places.sizes(height) * (1 + 1e-12))
    assert np.all(np.diff([places.sizes(h).sum() for h in (17.0, 20.0, 50.0, 1e3)]) < 0)


@pytest.mark.parametrize("height", [16.0, 60.0, 1e3])
def test_the_error_of_a_ray_is_above_its_distance_from_a_fine_rule(height):
    loss = loss_of("removal", 2.0, 0.02)
    for end, *_, ray in _Places.of(loss, 1.0, 0.0).ends:
        edges = _ray_edges(end.bend, height)
        coarse, fine = (ray_integral(end, edges, height, order) for order in (3, 40))
        assert abs(coarse - fine) * height <= ray.errors(edges, np.array([height]), 3)[0]
        assert abs(fine) <= ray.mass(height)


@pytest.mark.parametrize("bend", [1.0, 30.0, 1e6, 1e12, 1e30])
@pytest.mark.parametrize("height", [16.0, 1e3])
def test_the_mass_of_a_ray_is_above_its_integral(bend, height):
    """Quadrature in 40 digits agrees to a tenth, also where neighboring exponentials cancel."""
    end = UprightEnd(0.0, 0.0, 0.0, bend, 2.0, 1.0, True)
    exact = sure_integral(bend, height, 0.0)
    assert exact <= _Ray.of(end).mass(height) <= 1.1 * exact


@pytest.mark.parametrize("bend", [2.0, 1e3, 1e9, 1e20])
@pytest.mark.parametrize("height", [16.0, 500.0])
def test_the_error_of_a_ray_bounds_what_its_panels_omit(bend, height):
    """With many nodes in few panels, the rest of the integral is the whole error."""
    end = UprightEnd(0.0, 0.0, 0.0, bend, 2.0, 1.0, True)
    edges = _ray_edges(bend, height)[:-4]
    heights = height * np.array([1.0, 1.7, 3.9, 11.0])
    errors = _Ray.of(end).errors(edges, heights, 40)
    for at, error in zip(heights.tolist(), errors.tolist(), strict=True):
        assert sure_integral(bend, at, float(edges[-1]) / at) * at <= error


def sure_integral(bend, height, start):
    """The integral of e^{-height y} |h(y)| from ``start`` on, as in CP-1, in 40 digits."""
    with mpmath.workdps(40):
        r = mpmath.mpf(bend)

        def size(y):
            square = 1 + 4 * r * (r - 1) * mpmath.sin(y / 2) ** 2
            return mpmath.exp(-height * y) * square ** mpmath.mpf("-0.75")

        places = [mpmath.mpf(10) ** (k - mpmath.log10(r) - 2) for k in range(200)]
        inner = [y for y in places if start < y < mpmath.pi]
        return float(mpmath.quad(size, [start, *inner, mpmath.pi, 2 * mpmath.pi, 3 * mpmath.pi]))


def ray_integral(end, edges, height, order):
    """The integral of a density over its ray, over its value at the end, at z = i height."""
    node, weight = np.polynomial.legendre.leggauss(order)
    tau = (edges[:-1, None] + np.diff(edges)[:, None] * (node + 1) / 2).ravel()
    dtau = (np.diff(edges)[:, None] * weight / 2).ravel()
    y = tau / height
    turned = 1 + end.bend * (np.exp(1j * end.sign * y) - 1)
    return complex((dtau * np.exp(1j * end.slope * y - tau) * turned**-1.5).sum() / height)


@pytest.mark.parametrize("shape", SHAPES)
def test_contours_of_different_tilts_and_heights_agree(shape):
    losses = Composition.of([(loss_of(shape, 1.0, 0.05), 25)])
    top = float(losses.supremum)
    for share in (0.03, 0.2, 0.5, 0.9):
        widths: list[float] = []
        low, high = -math.inf, math.inf
        for move, growth in ((0.0, 2.0), (-0.02, 2.0), (0.02, 2.0), (0.0, -0.5), (0.0, 9.0)):
            limits = replace(LIMITS, growth_efolds=growth, long_trunk_nodes=1 << 14)
            line = bent_contour(losses, (share + move) * top, 0.0, limits, False)
            below, above = (float(x[0]) for x in line.log_delta(np.array([share * top])))
            low, high = max(low, below), min(high, above)
            widths.append(above - below)
        assert low <= high
        assert min(widths) < 1e-9


@settings(max_examples=examples(8))
@given(shape=st.sampled_from(SHAPES), epsilon=st.floats(0.3, 2.0), share=st.floats(0.01, 0.3))
def test_a_bent_contour_meets_a_vertical_line(shape, epsilon, share):
    """Of many losses, both suit the sum. Infinite limits ask for a bent contour."""
    count = math.ceil(160 / (1 - math.exp(-epsilon)))
    losses = Composition.of([(loss_of(shape, epsilon, 0.05), count)])
    bent = PartsProfile(losses, replace(LIMITS, line_efolds=math.inf))
    at = share * float(losses.supremum)
    assert ref.meet(bent.log_delta(at), contour_profile(losses).log_delta(at))


def test_a_level_at_an_atom_has_the_power_of_the_likelihood_ratio_test():
    """Enumerate the top atom: below its mass each level gains e^supremum, no more."""
    (_, _, _), (top, _, mass) = one_loss(1.0, 0.1)
    level = float(mass**5) / 3
    power = (ny.Laplace(1).subsample(rate=0.1) * 5).tradeoff().power(level=level)
    exact = float(level * mpmath.exp(5 * top))
    assert power.lower <= exact * (1 + 1e-14)
    assert exact <= power.upper * (1 + 1e-14)
    assert power.upper - power.lower < 1e-12 * exact


@settings(max_examples=examples(16))
@given(
    scale=st.floats(0.05, 3.0),
    log_rate=st.floats(-7, -0.1),
    count=st.sampled_from([2, 3, 10, 30]),
    log_gap=st.floats(-15.6, -8),
)
@example(scale=0.1, log_rate=-6.0, count=2, log_gap=-15.0)
def test_a_delta_near_the_largest_loss_holds_that_of_its_atom(scale, log_rate, count, log_gap):
    """The rest of the sum is below these epsilons, or adds a part of the relative gap."""
    a, q = 1 / mpmath.mpf(scale), mpmath.mpf(10**log_rate)
    f = (ny.Laplace(scale).subsample(rate=10**log_rate) * count).tradeoff()
    with mpmath.workdps(50):
        one = mpmath.log(1 - q + q * mpmath.exp(a))
        top, log_mass = count * one, count * (mpmath.log(mpmath.exp(-a) / 2) + one)
        for at in (float(top) * (1 - 10**log_gap), float(top), math.nextafter(float(top), 9e9)):
            delta = f.delta(at)
            exact = mpmath.exp(log_mass) * -mpmath.expm1(at - top) if at < top else mpmath.mpf(0)
            assert delta.lower <= exact * (1 + 1e-12)
            assert exact <= delta.upper


def test_losses_of_hundreds_and_of_many_releases_have_bounds():
    """One has no atoms that floats tell apart from the density, the other no gap to the top."""
    delta = (ny.Laplace(0.004).subsample(rate=0.3) * 9).tradeoff().delta(125.0)
    assert 0 < delta.upper - delta.lower < 1e-6
    last = (ny.Laplace(1) * 10**8).tradeoff().delta(10**8 - 1.5e-7)
    assert last.lower == 0 < last.upper < 1e-300


def test_powers_around_the_mass_of_the_largest_loss_hold_the_exact_ones():
    """Below this mass, power is level times e^top. The top's upper bound was used for both ends."""
    with mpmath.workdps(50):
        a, q = mpmath.mpf(23471) / 2500, mpmath.mpf(0.9375342590886716)
        top = 9 * mpmath.log(1 - q + q * mpmath.exp(a))
        most = mpmath.exp(9 * mpmath.log(mpmath.exp(-a) / 2))
        f = (ny.Laplace(Fraction(2500, 23471)).subsample(rate=0.9375342590886716) * 9).tradeoff()
        for step in range(-400, 1, 40):
            level = float(most) * (1 + step * 2.0**-53)
            power = f.power(level=level)
            exact = mpmath.mpf(level) * mpmath.exp(top)
            assert level > most or power.lower <= exact <= power.upper


@pytest.mark.parametrize(
    "f", [(ny.Laplace(2) * 3).tradeoff(), (ny.Laplace(1).subsample(rate=0.1) * 5).tradeoff()]
)
def test_many_powers_agree_with_each_alone(f):
    """Some thresholds are at places where the profile bends: chords on one side are wide there."""
    levels = [k / 257 for k in range(1, 257, 3)]
    powers = f.powers(levels)
    assert max(p.upper - p.lower for p in powers) < 2e-8
    for level, one in list(zip(levels, powers, strict=True))[::17]:
        alone = f.power(level=level)
        assert ref.meet(alone, one)


@pytest.mark.parametrize("level", [0.95, 0.9999, 0.9999485022179506])
def test_a_type_two_error_at_a_bend_is_narrow(level):
    losses = Composition.of([(loss_of("removal", 1 / 5.014, 0.1786), 9)])
    low, high = PartsProfile(losses).log_power(math.log(level))
    below, above = dots_profile(losses).log_power(math.log(level))
    assert ref.meet((low, high), (below, above))
    assert math.expm1(low) / math.expm1(high) - 1 < 1e-7


@pytest.mark.parametrize("count", [7, 26, 92])
def test_far_thresholds_ask_for_no_more_nodes(count):
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
