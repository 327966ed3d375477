"""Losses of sampled mechanisms: against integrals and sums in mpmath, outcome by outcome."""

import math
from fractions import Fraction
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import reference as ref
from neyman.curves import (
    ComposedLattice,
    Composition,
    DiscreteGaussianLoss,
    FiniteLoss,
    FixedSizeLoss,
    GaussianLoss,
    LaplaceLoss,
    LossBracket,
    NonPrivateLoss,
    ReplaceOneSubsampledLoss,
    SubsampledLoss,
    discrete_laplace_loss,
    dots_profile,
    profile_of_one,
    response_loss,
    select,
)
from neyman.numerics import contract, spread

Q = mp.mpf(0.03)
A = mp.mpf(7) / 5  # shift of the Laplace noise
MU = mp.mpf("1.25")
LAPLACE = LaplaceLoss(Fraction(7, 5))
GAUSSIAN = GaussianLoss(1.25**2)


@pytest.fixture(autouse=True)
def _digits():
    mp.mp.dps = 30


def grown(value, q=Q):
    return mp.log(1 - q + q * mp.e**value)


def laplace_mean(f, low=None):
    """The mean of f(l) under Q over l > low, for a Laplace loss."""
    atoms = f(A) * mp.e**-A / 2 + (f(-A) / 2 if low is None else 0)
    cuts = mp.linspace(-A if low is None else low, A, 7)
    return atoms + mp.quad(lambda x: mp.e ** (-(x + A) / 2) / 4 * f(x), cuts)


def gaussian_mean(f, low=None):
    cuts = [y for y in (-13, -8, -4, -1, 1, 4, 8, 13, 22, 30) if low is None or y > MU / 2]
    start = [] if low is None else [MU / 2]
    return mp.quad(lambda y: mp.npdf(y) * f(MU * y - MU**2 / 2), start + cuts)


def removed(mean, z):
    return mean(lambda x: mp.e ** ((z + 1) * grown(x)))


def added(mean, z):
    return mean(lambda x: mp.e ** (-z * grown(x)))


def fixed_size(mean, z):
    """E e^{zL} of the hull: its two sides, and 1 minus their masses at 0."""
    up = mean(lambda x: mp.e ** ((z + 1) * grown(x)), mp.mpf(0))
    down = mean(lambda x: mp.e ** (-z * grown(x)), mp.mpf(0))
    return up + down + 1 - mean(lambda x: mp.e ** grown(x) + 1, mp.mpf(0))


def opposite(mean, z):
    def term(t):
        density, losses = mp.npdf(t), [MU * t - MU**2 / 2, -MU * t - MU**2 / 2]
        if mean is laplace_mean:
            density, losses = mp.e ** (-abs(t)) / 2, [abs(t) - abs(t - A), abs(t) - abs(t + A)]
        return density * mp.e ** ((z + 1) * grown(losses[0]) - z * grown(losses[1]))

    places = [0, A / 2, A, 6, 20, 60] if mean is laplace_mean else [0, 2, 4, 8, 12, 20, 30]
    return mp.quad(term, sorted({s * x for s in (-1, 1) for x in places}))


RATE, MEANS = float(Q), {LAPLACE: laplace_mean, GAUSSIAN: gaussian_mean}
CASES = [
    *((SubsampledLoss(inner, RATE, True), removed, MEANS[inner]) for inner in MEANS),
    (SubsampledLoss(LAPLACE, RATE, False), added, laplace_mean),
    *((FixedSizeLoss(inner, RATE), fixed_size, MEANS[inner]) for inner in MEANS),
    *((ReplaceOneSubsampledLoss(inner, RATE), opposite, MEANS[inner]) for inner in MEANS),
]
cases = pytest.mark.parametrize(("loss", "integral", "mean"), CASES)


@cases
@pytest.mark.parametrize("z", [0.5, 6.0, 1 + 7j, 2 + 60j])
def test_the_moment_generating_function_is_the_integral(loss, integral, mean, z):
    """K(z) errs by no more than it says, on the real axis and far up a line."""
    at = np.array([z]) if isinstance(z, float) else z.real + 1j * np.array([0.0, z.imag])
    result, error = loss.log_mgf(at)[-1], loss.mgf_rounding(at)[-1]
    truth, size = integral(mean, mp.mpmathify(z)), integral(mean, mp.mpf(z.real))
    # The integrals themselves are good to about 1e-16; the float rate is not quite 0.03.
    assert abs(mp.e ** mp.mpmathify(complex(result)) - truth) <= size * (error + mp.mpf("1e-15"))
    assert error < 1e-11


@cases
@pytest.mark.parametrize("tilt", [0.5, 5.0])
def test_the_decay_bound_is_above_the_characteristic_function(loss, integral, mean, tilt):
    edges = np.geomspace(0.05, 150, 13)
    u = np.geomspace(0.05, 400, 120)
    phi = np.real(loss.log_mgf(tilt + 1j * u)) - loss.log_mgf(np.array([tilt]))[0]
    bound = loss.decay(tilt, edges)[np.searchsorted(edges, u, side="right") - 1]
    assert np.all(phi <= bound + 1e-10)
    assert np.all(bound <= 0)


@cases
@pytest.mark.parametrize("tilt", [0.0, 4.0])
def test_dots_carry_both_masses_and_bracket_every_delta(loss, integral, mean, tilt):
    """Atoms and nodes sum to 1 under P and Q; a grid above and one below surround delta."""
    dots = loss.dots(tilt, 2.0**-9)
    log_p = np.log(dots.weight) + dots.log_scale - tilt * dots.loss
    for log_mass in (log_p, log_p - dots.loss):
        assert abs(math.fsum(np.exp(log_mass)) - 1) < 1e-12
    above, below = spread(dots, 2.0**-9), contract(dots, 2.0**-9)
    for epsilon in (0.01, 0.3):
        exact, high, low = (
            math.fsum(
                np.exp(np.log(w[v > epsilon]) + s - tilt * v[v > epsilon])
                * -np.expm1(epsilon - v[v > epsilon])
            )
            for v, w, s in (
                (dots.loss, dots.weight, dots.log_scale),
                (above.points(), np.maximum(above.weight, 1e-300), above.log_scale),
                (below.points(), np.maximum(below.weight, 1e-300), below.log_scale),
            )
        )
        assert low <= exact * (1 + 1e-12) + 1e-300
        assert exact <= high * (1 + 1e-12)


def sampled_law(law, q, removed, failure=0, missing=0):
    by_key = {}
    for value, p in law.items():
        base = p * mp.e**-value
        g = grown(value, q)
        by_key[g if removed else -g] = base * mp.e**g if removed else base
    if missing:
        g = mp.log(1 - q)
        by_key[g if removed else -g] = missing * mp.e**g if removed else missing
    return by_key


def fixed_law(law, p):
    by_key = {mp.mpf(0): mp.mpf(0)}
    for value, mass in law.items():
        if value > 0:
            base, g = mass * mp.e**-value, grown(value, p)
            by_key[g], by_key[-g] = base * mp.e**g, base
    by_key[mp.mpf(0)] = 1 - mp.fsum(by_key.values())
    return by_key


FINITE = [
    (response_loss(Fraction(1)), ref.response(Fraction(1))),
    (response_loss(Fraction(2), 5), ref.response(Fraction(2), 5)),
    (discrete_laplace_loss(Fraction(2), 3), ref.discrete_laplace(Fraction(2), 3)),
]


@pytest.mark.parametrize(("loss", "law"), FINITE)
@pytest.mark.parametrize("removed", [True, False])
def test_a_finite_loss_stays_finite_and_exact(loss, law, removed):
    q = mp.mpf(0.125)
    truth = sampled_law(law, q, removed)
    dots = SubsampledLoss(loss, 0.125, removed).dots(0.0, 1.0)
    assert len(dots.loss) == len(truth)
    for place, weight, value in zip(dots.loss, dots.weight, sorted(truth), strict=True):
        assert abs(place - value) < 1e-15
        assert abs(weight - truth[value]) < 1e-14 * truth[value]


@pytest.mark.parametrize(("loss", "law"), FINITE)
def test_several_steps_of_a_finite_loss_contain_the_truth(loss, law):
    q = mp.mpf(0.125)
    for sampled, one in (
        (SubsampledLoss(loss, 0.125, True), sampled_law(law, q, True)),
        (SubsampledLoss(loss, 0.125, False), sampled_law(law, q, False)),
        (FixedSizeLoss(loss, 0.125), fixed_law(law, q)),
    ):
        three = ref.together(one, one, one)
        for epsilon in (0.05, 0.2):
            low, high = select(Composition.of([(sampled, 3)])).log_delta(epsilon)
            truth = ref.delta(three, epsilon)
            assert mp.e**low <= truth * (1 + mp.mpf("1e-13"))
            assert truth <= mp.e**high * (1 + mp.mpf("1e-13")) + mp.mpf("1e-25")
            assert mp.e**high - mp.e**low < 1e-4


def test_infinite_mass_goes_through_with_the_rate():
    """What reveals all with probability 1/10 does so with q/10, and never when it was added."""
    pair = FiniteLoss(Fraction(1), (0,), (math.log(0.9),), 0.1, 0.1)
    removed, added = SubsampledLoss(pair, 0.25, True), SubsampledLoss(pair, 0.25, False)
    assert math.isclose(removed.infinite, 0.025, rel_tol=1e-15)
    assert added.infinite == 0
    # Outcomes of Q alone: the mixture has 3/4 of their mass, Q all of it.
    assert math.isclose(added.supremum, -math.log(0.75), rel_tol=1e-14)
    for loss, mass in ((removed, 0.975), (added, 1.0), (FixedSizeLoss(pair, 0.25), 0.975)):
        assert math.isclose(math.exp(loss.log_mgf(np.zeros(1))[0]), mass, rel_tol=1e-14)


def test_what_hides_nothing_is_seen_with_the_rate():
    """P and Q disjoint: the mixture gives itself away with probability q, else loses log(1 - q)."""
    all_ = NonPrivateLoss()
    for loss, place in (
        (SubsampledLoss(all_, 0.25, True), math.log(0.75)), (FixedSizeLoss(all_, 0.25), 0.0)
    ):  # fmt: skip
        dots = loss.dots(0.0, 1.0)
        assert loss.infinite == 0.25
        assert np.allclose(dots.loss, [place], rtol=1e-14, atol=1e-15)
        assert np.allclose(dots.weight * math.exp(dots.log_scale), [0.75], rtol=1e-14)


@pytest.mark.parametrize("z", [1.0, 12.0, 40.0])
@pytest.mark.parametrize("removed", [True, False])
def test_an_unbounded_lattice_is_seen_under_every_tilt(z, removed):
    """A discrete Gaussian's K under small rates and large tilts, where two humps share the mass."""
    q = mp.mpf(2) ** -8
    law = ref.discrete_gaussian(Fraction(4), 1, reach=60)
    mp.mp.dps = 60
    sampled = sampled_law(law, q, removed)
    truth = mp.log(mp.fsum(p * mp.e ** (mp.mpf(z) * v) for v, p in sampled.items()))
    loss = SubsampledLoss(DiscreteGaussianLoss(Fraction(4)), 2.0**-8, removed)
    result, error = loss.log_mgf(np.array([z]))[0], loss.mgf_rounding(np.array([z]))[0]
    assert abs(mp.mpf(result) - truth) <= error
    assert error < 1e-11


@pytest.mark.parametrize("tilt", [0.7, 5.0, 60.0])
def test_no_atom_of_a_lattice_counts_twice_where_two_tilts_meet(tilt):
    """The halfway point between two tilted means is an atom here (x = 15): it counts once."""
    x = np.arange(-4000, 4001).astype(float)
    mass = np.exp(-x * x / 20_000)
    grown = np.log1p(1e-4 * np.expm1(3 * (2 * x - 3) / 20_000))
    # The masses sum to one, so that K is as accurate as expm1.
    truth = math.log1p(float(mass @ np.expm1(-tilt * grown)) / float(mass.sum()))
    loss = SubsampledLoss(DiscreteGaussianLoss(Fraction(10_000), 3), 1e-4, False)
    assert abs(loss.log_mgf(np.array([tilt]))[0] - truth) < 1e-15 + 1e-9 * truth


def test_a_small_common_lattice_is_summed_exactly():
    parts = Composition.of(
        [(discrete_laplace_loss(Fraction(2), 1), 2), (response_loss(Fraction(1)), 1)]
    ).parts
    joint = ComposedLattice.exact(parts)
    assert joint is not None
    one = ref.discrete_laplace(Fraction(2), 1)
    law = ref.together(one, one, ref.response(Fraction(1)))
    q = mp.mpf(0.125)
    truth = sampled_law(law, q, True)
    loss = SubsampledLoss(joint, 0.125, True)
    for z in (0.7, 9.0):
        k = mp.log(mp.fsum(p * mp.e ** (mp.mpf(z) * v) for v, p in truth.items()))
        at = np.array([z])
        assert abs(mp.mpf(loss.log_mgf(at)[0]) - k) <= loss.mgf_rounding(at)[0]
    low, high = select(Composition.of([(loss, 2)])).log_delta(0.1)
    delta = ref.delta(ref.together(truth, truth), 0.1)
    assert mp.e**low <= delta <= mp.e**high


def test_the_two_sides_of_a_grid_surround_the_sum():
    """Renyi divergences of a Gaussian beside a Laplace pair, mixed: below, above, and the truth."""
    parts = Composition.of([(GaussianLoss(1.0), 1), (LaplaceLoss(Fraction(1)), 1)]).parts
    # A trapezoid sum over the normal law; 40 Gauss nodes between the Laplace pair's two atoms.
    y = np.arange(-12, 18, 1 / 16)
    normal = np.exp(-y * y / 2) / 16 / math.sqrt(math.tau)
    node, share = np.polynomial.legendre.leggauss(40)
    place = np.concatenate([[-1.0], node, [1.0]])
    mass = np.concatenate([[0.5], np.exp(-(node + 1) / 2) / 4 * share, [math.exp(-1) / 2]])
    inner = np.add.outer(place, y - 0.5)

    def truth(z):
        grown = np.log1p(0.125 * np.expm1(inner))
        return math.log(float(mass @ np.exp((z + 1) * grown) @ normal))

    below, above = (SubsampledLoss(ComposedLattice(parts, side), 0.125, True) for side in (-1, 1))
    for z in (1.0, 4.0):
        k, at = truth(z), np.array([z])
        low, high = below.log_mgf(at)[0], above.log_mgf(at)[0]
        assert low - below.mgf_rounding(at)[0] <= k + 1e-12
        assert k - 1e-12 <= high + above.mgf_rounding(at)[0]
        assert high - k < 1e-4
    bracket = LossBracket(below, above)
    assert bracket.reverse().reverse() == bracket


@pytest.mark.parametrize("epsilon", [-0.6, -0.02, 0.0, 0.01, 0.4])
def test_one_step_is_the_closed_form(epsilon):
    e, q = mp.mpf(epsilon), mp.mpf(0.125)

    def laplace(x):
        return 1 - mp.e ** ((x - A) / 2) if abs(x) <= A else max(1 - mp.e**x, mp.mpf(0))

    def removed(x):
        t = (mp.e**x - 1) / q
        return q * laplace(mp.log(1 + t)) if t > -1 else 1 - mp.e**x

    def added(x):  # 1 - t + t H_{1/t}(M || Q)
        return 1 - mp.e**x + mp.e**x * removed(-x)

    hull = removed(e) if e >= 0 else added(e)
    for loss, truth in (
        (SubsampledLoss(LAPLACE, 0.125, True), removed(e)),
        (SubsampledLoss(LAPLACE, 0.125, False), added(e)),
        (FixedSizeLoss(LAPLACE, 0.125), hull),
    ):
        profile = profile_of_one(loss)
        low, high = profile.log_delta(epsilon)
        assert mp.e**low <= truth * (1 + mp.mpf("1e-18")) + mp.mpf("1e-30")
        assert truth <= mp.e**high + mp.mpf("1e-30")
        if truth > 1e-20:
            assert high - low < 1e-11
        grid = dots_profile(Composition.of([(loss, 1)])).log_delta(epsilon)
        assert ref.meet((low, high), grid)


def tail_of(inner, x):
    if inner is GAUSSIAN:
        return mp.erfc(x / mp.sqrt(2)) / 2
    return mp.e**-x / 2 if x > 0 else 1 - mp.e**x / 2


@pytest.mark.parametrize("inner", [LAPLACE, GAUSSIAN])
def test_one_step_to_opposite_sides_is_a_threshold_test(inner):
    loss = ReplaceOneSubsampledLoss(inner, 0.125)
    profile = profile_of_one(loss)
    assert profile is not None
    s, q, y = float(MU if inner is GAUSSIAN else A), 0.125, np.linspace(-8, 8, 40_001)
    tail = (stats.norm if inner is GAUSSIAN else stats.laplace).sf
    for epsilon in (0.0, 0.05, 0.3):
        p = (1 - q) * tail(y) + q * tail(y - s)
        other = (1 - q) * tail(y) + q * tail(y + s)
        best = float(np.max(p - math.exp(epsilon) * other))
        low, high = (math.exp(x) for x in profile.log_delta(epsilon))
        assert ref.meet((low, high), (best - 1e-15, best + 1e-6))
        assert high - low < 1e-9
        grid = dots_profile(Composition.of([(loss, 1)])).log_delta(epsilon)
        assert ref.meet(profile.log_delta(epsilon), grid)


@pytest.mark.parametrize("level", [1e-300, 9e-30, 2e-12, 1e-6, 0.03, 0.3, 0.49])
@pytest.mark.parametrize("rate", [0.3, 3e-7])
@pytest.mark.parametrize("inner", [LAPLACE, GAUSSIAN])
def test_the_power_of_one_step_to_opposite_sides_is_that_of_a_threshold_in_mpmath(
    inner, rate, level
):
    profile = profile_of_one(ReplaceOneSubsampledLoss(inner, rate))
    assert profile is not None
    with mp.workdps(60):
        s, q = (MU if inner is GAUSSIAN else A), mp.mpf(rate)
        tail = partial(tail_of, inner)

        low, high = mp.mpf(-3), mp.mpf(700)
        for _ in range(190):
            y = (low + high) / 2
            above = (1 - q) * tail(y) + q * tail(y + s) > level
            low, high = (y, high) if above else (low, y)
        truth = mp.log((1 - q) * tail(y) + q * tail(y - s))
        below, above = profile.log_power(math.log(level))
        rounding = mp.mpf(abs(math.log(level))) * 2**-52  # of the argument
        assert below - rounding <= truth <= above + rounding
    assert above - below < 1e-12 + 1e-14 * math.log(level) ** 2


def test_the_power_of_one_step_of_a_fixed_size_is_narrow_at_tiny_rates():
    """(1 - q) level + q power of the pair, below the level of its likelihood ratio 1."""
    profile = profile_of_one(FixedSizeLoss(GAUSSIAN, 3e-7))
    assert profile is not None
    for level in (1e-29, 1e-12, 0.03, 0.25):
        with mp.workdps(40):
            z = mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(level))
            power = mp.erfc((z - MU) / mp.sqrt(2)) / 2
            truth = mp.log((1 - mp.mpf(3e-7)) * level + mp.mpf(3e-7) * power)
        low, high = profile.log_power(math.log(level))
        assert low - 1e-13 <= truth <= high + 1e-13
        assert high - low < 1e-11


def test_opposite_shifts_are_the_worst_in_the_plane():
    mu, q, h = 1.0, 0.2, 0.04
    x = np.arange(-7, 7, h) + h / 2
    density = np.exp(-x * x / 2) * h / math.sqrt(math.tau)

    def mixed(angle, size):
        a, b = size * math.cos(angle), size * math.sin(angle)
        ratio = np.exp(np.add.outer(a * x, b * x) - size * size / 2)
        return np.outer(density, density) * (1 - q + q * ratio)

    profile = profile_of_one(ReplaceOneSubsampledLoss(GaussianLoss(mu**2), q))
    for epsilon in (0.02, 0.2, 0.6):
        worst = math.exp(profile.log_delta(epsilon)[1])
        for angle in (0.7, 1.5, 2.5, math.pi):
            for size in (0.6, 1.0):
                p, other = mixed(0.0, mu), mixed(angle, size * mu)
                for first, second in ((p, other), (other, p)):
                    delta = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
                    assert delta <= worst + 1e-5  # the sum's error at its kink
                    if angle == math.pi and size == 1.0:
                        assert delta >= worst - 1e-5


def two_hulls(p, a, epsilon):
    """Delta of two steps of the Laplace pair's hull: the mean of one step's at epsilon - loss."""

    def one(e):
        if e < 0:
            return 1 - mp.e**e + mp.e**e * one(-e)
        x = mp.log(1 + (mp.e**e - 1) / p)
        return p * (1 - mp.e ** ((x - a) / 2)) if x < a else mp.mpf(0)

    def both(x):
        g = grown(x, p)
        return mp.e**g * one(epsilon - g) + one(epsilon + g)

    def mean(f):
        # Kinks: where the rest is at 0, and where it is at the largest loss of one step.
        kinks = [mp.log(1 + (mp.e**x - 1) / p) for x in (epsilon, grown(a, p) - epsilon)]
        cuts = sorted({mp.mpf(0), a} | {x for x in kinks if 0 < x < a})
        smooth = mp.quad(lambda x: mp.e ** (-(x + a) / 2) / 4 * f(x), cuts)
        return smooth + mp.e**-a / 2 * f(a)

    rest = 1 - mean(lambda x: 1 + mp.e ** grown(x, p))
    return rest * one(epsilon) + mean(both)


def test_the_hull_is_taken_at_each_step():
    """Shift 2, p .1, two steps, epsilon .4: .02571. A removal and an addition reach .01644.

    Two removals have .01539: the hull of whole compositions would claim that, and be beaten.
    """
    pair, p = LaplaceLoss(Fraction(2)), mp.mpf("0.1")
    truth = two_hulls(p, mp.mpf(2), mp.mpf("0.4"))
    assert abs(truth - mp.mpf("0.0257123157")) < 1e-9
    fixed, removed, added = (
        FixedSizeLoss(pair, 0.1),
        SubsampledLoss(pair, 0.1, True),
        SubsampledLoss(pair, 0.1, False),
    )

    def delta(*parts):
        low, high = dots_profile(Composition.of(parts)).log_delta(0.4)
        assert high - low < 1e-3
        return math.exp(low), math.exp(high)

    low, high = delta((fixed, 2))
    assert low <= truth <= high
    turn, wrong = delta((removed, 1), (added, 1)), delta((removed, 2))
    assert 0.01643 < turn[0] < turn[1] < 0.01645
    assert 0.01538 < wrong[0] < wrong[1] < 0.01540 < turn[0]
    assert turn[1] < low
