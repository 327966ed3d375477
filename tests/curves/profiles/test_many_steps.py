"""Lines for each size of the largest step: against mpmath, quadrature, and the other engines."""

import math
import warnings
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfc

import neyman as ny
import reference as ref
from neyman import Tradeoff
from neyman.curves import (
    Composition,
    FixedSizeLoss,
    GaussianLoss,
    GaussianMixtureLoss,
    Loss,
    Order,
    ReplaceOneSubsampledLoss,
    SubsampledGaussianLoss,
    dots_profile,
    profile_of_one,
)
from neyman.curves.profiles.contour.brackets import CutTransform
from neyman.curves.profiles.contour.contour import contour_profile
from neyman.curves.profiles.sampled_steps.many_steps import LargestStepProfile, StepSum
from neyman.curves.profiles.sampled_steps.step_grid import StepGrid
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes
from neyman.numerics.operations import question_meter
from random_laws import examples


@pytest.fixture(autouse=True)
def question():
    """A profile keeps its intermediate results for a question."""
    with question_meter():
        yield


RATES = st.floats(-7, -0.6).map(lambda v: 10**v)
DISTANCES = st.floats(-0.9, 0.5).map(lambda v: 10**v)


def steps(*parts, removed=True):
    return Composition.of((SubsampledGaussianLoss(mu, q, removed), n) for q, mu, n in parts)


ORDERS: list[Order] = ["one", "opposite", "symmetric"]


@st.composite
def nodes(draw):
    """Nodes of a random step between two random levels, and a tilt in their range."""
    rate, mu = draw(RATES), draw(DISTANCES)
    loss = SubsampledGaussianLoss(mu, rate, True)
    low = draw(st.one_of(st.just(-math.inf), st.floats(0.5, 8.0)))
    high = draw(st.floats(max(low, 0.5) + 0.7, max(low, 0.5) + 2.5))
    size = math.log1p(rate * math.expm1(high))
    last = draw(st.floats(2.0, 40.0)) / size
    sharpness: float | None = draw(st.sampled_from([2.0, 4.0, 6.0, 10.0, 24.0]))
    if low == -math.inf and draw(st.integers(0, 3)) == 0:  # the whole step
        high, last, sharpness = math.inf, min(last, 30.0 / mu), None
    step = StepNodes(loss, draw(st.sampled_from(ORDERS)), 3, low, high, last, sharpness)
    return step, last * draw(st.floats(0.01, 1.0))


class Integrand:
    """The terms of a step at places z of its path, written down once more."""

    def __init__(self, step, z):
        self.step, mu, symmetric = step, step.loss.farthest, step.order == "symmetric"
        y = z
        base = -0.5 * math.log(math.tau)
        if symmetric:  # a path that leaves the kink
            y = mu / 2 + np.log1p(np.exp(step.grid.bend * z)) / step.grid.bend
            base = base - np.log1p(np.exp(-step.grid.bend * z))

        def log_ratio(y):
            return np.log1p(step.loss.rate * np.expm1(mu * y - mu * mu / 2))

        back = log_ratio(-y) if step.order == "opposite" else 0.0
        self.loss = log_ratio(y) - back  # its size where the order is symmetric
        self.log_base = base - y * y / 2 + back  # the log density of Q in z
        self.t = mu * y - mu * mu / 2

    def psi(self, level):
        if level == math.inf:
            return np.zeros_like(self.t)
        x = self.step.sharpness * (self.t - level)
        x = np.minimum(x.real, 72.0) + 1j * x.imag
        return np.exp(x) * 0.5 * erfc(-x / (3 * math.sqrt(2)))

    def log_sizes(self, tilt):
        base = np.real(self.log_base + (tilt + 1) * self.loss)
        if self.step.low == -math.inf:
            return base - np.real(self.psi(self.step.high))
        low, high = self.psi(self.step.low), self.psi(self.step.high)
        with np.errstate(all="ignore"):
            gap = np.log(np.abs(-np.expm1(-(low - high))))
            swapped = np.log(np.abs(np.expm1(low - high)))
        first = np.real(low - high) > -30
        return base + np.where(first, np.real(-high) + gap, np.real(-low) + swapped)


@settings(max_examples=examples(240))
@given(nodes(), st.floats(0.0, 2.0))
def test_no_place_of_a_panel_exceeds_its_bound(case, share):
    """LS-4, the bound from which every other one follows, at 7 places of each panel."""
    step, tilt = case
    height, count = share * step.a, len(step.x)
    panels = step.panels(height, tilt)
    inside = step.x[:-1, None] + step.h * np.linspace(0.0, 1.0, 7)
    terms = Integrand(step, inside.ravel() + 1j * height)
    sizes = terms.log_sizes(tilt).reshape(inside.shape).max(axis=1)
    bound = panels.bracket[1:count] - math.log(step.h)
    known = sizes > bound.max() - 200
    assert np.all(sizes[known] <= bound[known] + 1e-6)
    angle = np.imag(terms.loss).reshape(inside.shape).min(axis=1)
    assert np.all(panels.angle[1:count] <= angle + 1e-9)
    if step.order == "symmetric":  # the losses below 0
        bulk = step.low == -math.inf
        bound = (panels.bracket if bulk else panels.low)[count + 2 : -2] - math.log(step.h)
        sizes = np.real(terms.log_base - tilt * terms.loss).reshape(inside.shape).max(axis=1)
        assert np.all(sizes <= bound + 1e-6)


@settings(max_examples=examples(160))
@given(nodes())
def test_sums_on_a_line_err_by_less_than_they_say(case):
    """The reference is a sum on the real line with a tenth of the step."""
    step, tilt = case
    high = min(step.high, step.loss.farthest**2 * (tilt + 1) + 4)  # t where the loss is largest
    scale = 1 / max(math.log1p(step.loss.rate * math.expm1(high)), 1e-300)
    u = scale * np.arange(12)
    sums = step.line(tilt, u)
    if sums.inside_error[0] == 1.0:
        return
    h = step.h / 10
    terms = Integrand(step, step.x[0] + h * np.arange(10 * len(step.x)))
    loss = np.real(terms.loss)
    weight = np.exp(terms.log_sizes(tilt) - sums.log_inside) * h
    exact = weight @ np.exp(1j * np.multiply.outer(loss, u))
    if step.order == "symmetric" and step.low == -math.inf:
        below = np.exp(np.real(terms.log_base) - tilt * loss - sums.log_inside) * h
        exact = exact + below @ np.exp(-1j * np.multiply.outer(loss, u))
        erf = math.erf(step.loss.farthest / math.sqrt(8))
        exact = exact + (1 - step.loss.rate) * erf * math.exp(-sums.log_inside)
    error = np.abs(1 + sums.inside - exact)
    noise = 1e-11 * (1 + weight @ np.abs(np.multiply.outer(loss, u)))
    assert np.all(error <= sums.inside_error + noise)


KINDS: dict[str, Callable[[float, float], Loss]] = {
    "replace-one": lambda q, mu: ReplaceOneSubsampledLoss(GaussianLoss(mu**2), q),
    "fixed size": lambda q, mu: FixedSizeLoss(GaussianLoss(mu**2), q),
    "two": lambda q, mu: GaussianMixtureLoss((0.0, mu), (1 - q, q), True),
    "three": lambda q, mu: GaussianMixtureLoss((0.0, mu / 2, mu), (1 - q, q / 2, q / 2), True),
}


@st.composite
def sums(draw):
    """A sum of random steps between two random levels, and a tilt in its range."""
    loss = KINDS[draw(st.sampled_from(sorted(KINDS)))](draw(RATES), draw(DISTANCES))
    losses = Composition.of([(loss, draw(st.integers(1, 30)))])
    low = draw(st.one_of(st.just(-math.inf), st.floats(-4, 0.5).map(lambda v: 10**v)))
    high = max(low, 1e-4) * draw(st.sampled_from([2.0, 3.0, 8.0, math.inf]))
    scale = 0.0 if low == -math.inf and high == math.inf else 8 * max(low, 1e-4)
    last = min(20.0 / max(low, 1e-2), 400 / high if high < math.inf else 10.0)
    return StepSum(losses, low, high, scale, last), last * draw(st.floats(0.01, 1.0))


@settings(max_examples=examples(80))
@given(sums())
def test_the_decay_bound_holds_at_every_height(case):
    """|F(c + iv)| from the sums is at most the bound for each u <= v (LS-5)."""
    total, c = case
    u = c * np.geomspace(0.3, 300.0, 9)
    heights = np.linspace(0.0, float(u[-1]), 400)
    with question_meter():
        bound = total.decay(c, u)
        log_f, error = total.on_line(c, heights)
    if not error[0] < 0.5:  # rounding hides the bracket
        return
    top = float(log_f[0].real)
    least = np.exp(log_f.real - top) - error
    for place, most in zip(u, bound, strict=True):
        known = (heights >= place) & (least > 0)
        assert np.all(top + np.log(least[known]) <= most + 1e-9)


TWO = [
    (1.4e-4, 2.5, 0.00096),
    (1e-6, 0.5, 3.0),
    (0.1, 3.0, 0.3),
    (1.67e-6, 0.395, 4.7e-6),  # the terms are at c = 5e6
]


@settings(max_examples=60)
@given(nodes())
def test_moments_on_few_nodes_bracket_those_on_many(case):
    """Nodes four times as far apart, whose sums err by e^-11 or so, and say so [LS-10]."""
    step, tilt = case
    last = step.last_tilt
    coarse = StepGrid(step.loss, step.order, step.sharpness, last, coarse=4.0)
    rough = StepNodes(
        step.loss, step.order, step.count, step.low, step.high, last, step.sharpness, coarse
    )
    below, above = rough.moments(tilt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepNodes, "_moment_errors", lambda *_: [0.0, 0.0, 0.0])
        least, most = step.moments(tilt)
    if above > 0:
        assert below <= least * (1 + 3e-6)
        assert above >= most * (1 - 3e-6)


def exact_delta(rate, sigma, epsilon, removed):
    """delta of two steps: mpmath's integral over the first, the second in closed form."""
    with mp.workdps(30):
        q, mu = mp.mpf(rate), 1 / mp.mpf(sigma)

        def ratio(y):
            return 1 - q + q * mp.exp(mu * y - mu * mu / 2)

        def term(y):
            loss = mp.log(ratio(y))
            weight, left = (ratio(y), epsilon - loss) if removed else (1, epsilon + loss)
            return mp.npdf(y) * weight * ref.sampled_delta(mu, q, left, removed)

        # The integrand bends where what is left of epsilon is about the loss of no record.
        bends = set()
        for k in range(-20, 30):
            for sign in (-1, 1):
                left = mp.log(1 - q) + sign * q * mp.mpf(2) ** k
                e = (mp.mpf(epsilon) - left) * (1 if removed else -1)
                x = 1 + (mp.exp(e) - 1) / q
                if x > 0:
                    bends.add(mp.log(x) / mu + mu / 2)
        inner = [b for b in bends if -14 < b < 20 + mu]
        places = sorted({mp.mpf(-14), *inner, *map(mp.mpf, range(-13, 20)), 20 + mu})
        return mp.quad(term, places)


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize(("rate", "sigma", "epsilon"), TWO)
def test_two_steps_hold_the_integral(rate, sigma, epsilon, removed):
    losses = steps((rate, 1 / sigma, 2), removed=removed)
    if epsilon >= float(losses.supremum):
        epsilon = 0.5 * float(losses.supremum)
    low, high = (float(v[0]) for v in LargestStepProfile(losses).log_deltas(np.array([epsilon])))
    exact = float(math.log(exact_delta(rate, sigma, epsilon, removed)))
    assert low <= exact + 1e-12
    assert high >= exact - 1e-12
    if removed or sigma > 1:
        assert high - low < 1e-6


BESIDE = Composition.of([*steps((1e-3, 1.0, 50)).parts, (GaussianLoss(0.3**2), 1)])
MANY = [(BESIDE, 0.4), (BESIDE, 0.95)]
for part, epsilon in (
    ((1e-2, 1.0, 1000), 2.0),
    ((4e-3, 1.25, 14_062), 2.2),
    ((1e-3, 1.0, 100_000), 3.0),
    ((0.1, 0.5, 60), 4.0),
):
    MANY += [(steps(part, removed=removed), epsilon) for removed in (True, False)]
for q, mu, count, epsilon in ((0.02, 0.7, 3000, 3.0), (0.05, 0.25, 300, 1.0)):
    MANY += [(Composition.of([(kind(q, mu), count)]), epsilon) for kind in KINDS.values()]


@pytest.mark.parametrize(("losses", "epsilon"), MANY)
def test_many_steps_agree_with_one_line(losses, epsilon):
    """Where one line certifies its end, the two engines have the same delta to 1e-6."""
    at = np.array([epsilon, 1.1 * epsilon])
    one = contour_profile(losses, release=False).log_deltas(at)
    other = LargestStepProfile(losses).log_deltas(at)
    assert np.all(one[1] - one[0] < 1e-6)
    assert np.all(other[1] - other[0] < 1e-6)
    assert np.all(np.maximum(one[0], other[0]) <= np.minimum(one[1], other[1]) + 1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("q", "mu"), [(1e-5, 1.0), (1e-3, 2.0), (0.1, 0.4)])
def test_one_step_agrees_with_its_closed_form(kind, q, mu):
    loss = KINDS[kind](q, mu)
    profile, exact = LargestStepProfile(Composition.of([(loss, 1)])), profile_of_one(loss)
    at = q * np.array([0.3, 2.0])
    one, other = profile.log_deltas(at), exact.log_deltas(at)
    assert np.all(one[0] <= other[1] + 1e-11)
    assert np.all(other[0] <= one[1] + 1e-11)


@settings(max_examples=examples(12))
@given(st.sampled_from(sorted(KINDS)), RATES, DISTANCES, st.integers(2, 5), st.floats(0.1, 6.0))
def test_few_steps_of_each_kind_agree_with_a_grid(kind, q, mu, count, times):
    losses = Composition.of([(KINDS[kind](q, mu), count)])
    at = np.array([times * q * count])
    one = dots_profile(losses).log_deltas(at)
    other = LargestStepProfile(losses).log_deltas(at)
    assert one[0][0] <= other[1][0] + 1e-12
    assert other[0][0] <= one[1][0] + 1e-12


@pytest.mark.parametrize("level", [1e-30, 1e-12, 1e-4, 0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("part", [(1e-3, 0.5, 8), (1e-5, 1.0, 300), (0.02, 1.0, 500)])
def test_powers_are_tight_and_have_an_inverse(part, level):
    """The reversed pair rejects where this one misses: its power at 1 - power is 1 - level."""
    losses = steps(part)
    low, high = (float(v[0]) for v in LargestStepProfile(losses).log_powers(np.log([level])))
    least = min(math.exp(high), -math.expm1(low))
    assert math.exp(high) - math.exp(low) <= 1e-6 * least
    if 1e-4 <= level <= 0.9:
        back = LargestStepProfile(losses.reverse()).log_powers(
            np.array([math.log1p(-math.exp(low))])
        )
        assert math.exp(back[0][0]) <= 1 - level + 1e-9
        assert math.exp(back[1][0]) >= 1 - level - 1e-9


def test_an_epsilon_and_its_check_share_one_set_of_lines():
    profile = LargestStepProfile(steps((1e-4, 1.0, 10)))
    with question_meter():
        epsilon = profile.epsilon_near(math.log(1e-5))
        low, high = profile.log_delta(epsilon)
    assert abs(0.5 * (low + high) - math.log(1e-5)) < 1e-6
    assert high - low < 1e-9
    assert len(profile._lines) <= 2


def test_a_level_above_all_likely_losses_costs_few_lines():
    mechanism = ny.Gaussian(0.357).subsample(rate=1.3e-5) * 156
    profile = LargestStepProfile(mechanism.tradeoff().alternatives[0])
    low, high = profile.log_powers(np.array([math.log(0.997)]))
    assert high[0] - low[0] < -1e-9 * low[0]
    assert len(profile._lines) <= 1


@pytest.mark.parametrize(
    "mechanism",
    [
        ny.Gaussian(1).subsample(rate=0.01) * 1000,
        ny.Gaussian(1).subsample(rate=1e-6) * 10**4,
        ny.Gaussian(1).subsample(size=10**5, population=10**7) * 1000,
    ],
)
def test_many_levels_share_a_few_lines(mechanism):
    losses = mechanism.tradeoff().alternatives[0]
    levels = np.log(np.append(np.geomspace(1e-30, 0.5, 200), [0.7, 0.9, 0.99]))
    profile = LargestStepProfile(losses)
    low, high = profile.log_powers(levels)
    assert np.all(high - low <= 1e-6)
    assert np.all(np.diff(low) >= -1e-6)
    assert len(profile._lines) <= 40
    for k in (0, 60, 120, 199, 201):
        alone = LargestStepProfile(losses).log_powers(levels[[k]])
        assert low[k] <= alone[1][0]
        assert alone[0][0] <= high[k]


def test_a_deep_delta_whose_guess_is_off_costs_one_line():
    f = (ny.Gaussian(1).subsample(rate=0.01) * 1000).tradeoff()
    for losses in f.alternatives:
        profile = LargestStepProfile(losses)
        profile.epsilon_near(math.log(1e-100))
        assert len(profile._lines) <= 2
        assert all(len(lines.lines) == 1 for lines, _, _ in profile._lines)


def test_a_step_that_never_reaches_a_level_is_lost_and_not_divided_by():
    """All terms between the levels are 0 in floats."""
    loss = SubsampledGaussianLoss(0.05, 1e-4, True)
    step = StepNodes(loss, "one", 1, 40.0, 42.0, 10.0, 24.0)
    sums = step.line(0.5, 0.1 * np.arange(4))
    assert np.all(sums.inside_error == 1.0)
    assert math.isfinite(sums.log_low)


def test_a_bracket_without_a_bound_claims_nothing(monkeypatch):
    """An infinite bound on both measures is not a bound on their difference (LS-6)."""
    total = StepSum(steps((1e-3, 1.0, 3)), 0.002, 0.02, 0.1, 20.0)
    monkeypatch.setattr(StepNodes, "log_above", lambda *_: (math.inf, math.inf))
    assert total.log_above(1.0) == math.inf


def test_many_rare_fixed_size_steps_give_no_warning():
    """10^9 steps at a share of 1e-9: the answer is certified, and no number overflows."""
    f = (ny.Gaussian(10).subsample(size=1, population=10**9) * 10**9).tradeoff()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = f.epsilon(1e-6)
    assert 0 <= bound.lower <= bound.upper <= 1e-5


@pytest.mark.parametrize("log_level", [-300.0, -2048.0, -1e5])
def test_a_level_far_below_all_powers_is_answered(log_level):
    """The search for the threshold stops before floats stand still at the largest loss."""
    f = (ny.Gaussian(1).subsample(rate=0.1) * 3).tradeoff()
    power = f.log_power(log_level=log_level)
    assert log_level * (1 + 1e-12) <= power.lower <= power.upper <= 0


ADDED_BESIDE = Composition.of(
    [(GaussianLoss(2.2), 1), *steps((0.03, 0.74, 2), removed=False).parts]
)


@pytest.mark.parametrize("epsilon", [0.15, 1.1, 3.0])
def test_added_steps_beside_a_gaussian_release_have_the_delta_of_one_line(epsilon):
    """The transform of the release is not conjugated with those of the added steps."""
    with question_meter():
        line = LargestStepProfile(ADDED_BESIDE)._split(epsilon, False, 8.0)
    assert line is not None
    low, high = (float(v[0]) for v in line.log_delta(np.array([epsilon])))
    one = contour_profile(ADDED_BESIDE, release=False).log_delta(epsilon)
    assert high - low < 1e-6
    assert max(low, one[0]) <= min(high, one[1]) + 1e-13


def test_added_steps_beside_a_gaussian_release_have_no_largest_loss():
    """The guess at an epsilon ends where the supremum is infinite."""
    profile = LargestStepProfile(ADDED_BESIDE)
    epsilon = profile.epsilon_near(-40.0)
    low, high = profile.log_delta(epsilon)
    assert abs(0.5 * (low + high) + 40) < 0.1


def test_steps_that_a_gaussian_release_hides_are_answered():
    """No step is larger than the least level of the guesses."""
    losses = Composition.of([(GaussianLoss(0.19), 1), *steps((7.7e-9, 0.11, 27_000)).parts])
    low, high = LargestStepProfile(losses).log_power(math.log(0.9))
    assert math.log(0.9) < low <= high < low + 1e-6


@pytest.mark.parametrize("y", [30.0, 50.0, 80.0])
def test_answers_reach_beyond_the_floats(y):
    """The tail of one step at y, whose probability is not a float, is about e^{-y^2 / 2}."""
    rate, mu = 1.6e-8, 2.9
    profile = LargestStepProfile(steps((rate, mu, 1)))
    epsilon = mu * y - mu * mu / 2 + math.log(rate)
    exact = profile_of_one(SubsampledGaussianLoss(mu, rate, True))
    known = exact.log_delta(epsilon)
    low, high = profile.log_delta(epsilon)
    assert ref.meet((low, high), known)


def test_a_bracket_that_is_no_float_beside_the_bulk_has_a_bound():
    """M_inside / M_low = e^-800 or so: its share is small, but above 0 (LS-6)."""
    low, high = (math.log1p(1e-3 * math.expm1(0.5 * y - 0.125)) for y in (56.0, 60.0))
    total = StepSum(steps((1e-3, 0.5, 3)), low, high, 0.1, 100.0)
    with question_meter():
        for c in (0.5, 1.0, 2.0):
            assert -1500 < total.log_above(c) < -700
            assert float(total.moments(np.array([c]))[0][0]) - 1e-3 <= total.log_above(c)


def test_sums_over_many_rare_added_mixtures_stay_short():
    """Where a tilt is large the terms lie where R is near its least value, not at tilt times mu."""
    weights = (1 - 3.7e-7, 4.2e-8, 3.28e-7)
    loss = GaussianMixtureLoss(
        (0.0, 0.158, 0.665), (1 - weights[1] - weights[2], *weights[1:]), False
    )
    low, high = loss.range(loss.power(3e9))
    assert -500 < low < high < 20


def test_a_cover_is_no_lower_bound_on_a_power():
    """A pair that gains little is skipped for another pair's power only, not for its cover's."""
    parts = ((1e-3, 1.5, True), (0.3, 1.0, False), (0.01, 0.1, False))
    f = Tradeoff(tuple(steps((q, mu, 1), removed=r) for q, mu, r in parts), ordered=True)
    bound = f.power(0.01)
    assert bound.upper - bound.lower < 1e-9


def test_a_delta_of_very_many_rare_steps_has_an_upper_bound():
    """10^18 steps at a rate of 1e-12, whose sums lose their digits, are still held by Chernoff."""
    profile = LargestStepProfile(steps((1e-12, 0.2, 10**18)))
    low, high = (float(v[0]) for v in profile.log_deltas(np.array([0.016])))
    assert low <= high <= math.log(1e-9)


def test_a_delta_whose_bulk_counts_by_a_bound_holds_one_plain_line_of_many_nodes():
    """The bulk needs too many nodes for a line, and has 4e-8 of delta."""
    q, mu, n, epsilon = 1.44075e-5, 1 / 0.30356, 404_075, 36.0
    truth = ref.log_on_a_line(*ref.sampled_law(mu, q, True), n, epsilon)
    low, high = LargestStepProfile(steps((q, mu, n))).log_deltas(np.array([epsilon]))
    assert low[0] <= truth <= high[0]
    assert high[0] - low[0] < 1e-7


@pytest.mark.parametrize("rate", [0.1, 0.3, 1 / 3, 0.7])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_largest_loss_of_additions_is_rounded_up(rate, count):
    losses = Composition.of([(SubsampledGaussianLoss(1.0, rate, False), count)])
    largest = LargestStepProfile(losses)._supremum
    assert largest >= losses.supremum > math.nextafter(largest, 0)


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "width"),
    [
        (ny.Gaussian(0.132).subsample(rate=0.5) * 3, 83.4, 1e-8),  # large losses far above epsilon
        (
            ny.Gaussian(0.882).subsample(rate=3.86e-6) * 761
            + ny.Gaussian(0.964).subsample(rate=8.92e-5) * 160,
            33.3,
            10.0,
        ),
        (ny.Gaussian(0.3).subsample(rate=0.5, neighboring="replace-one") * 10**5, 0.0, 1e-6),
    ],
)
def test_sums_that_rounding_hides_give_neither_a_warning_nor_an_error(mechanism, epsilon, width):
    bound = mechanism.tradeoff().log_delta(epsilon)
    assert bound.upper - bound.lower < width


def test_an_epsilon_far_beyond_the_spread_is_found():
    """No loss above the last level counts where the bulk is at 1e-100."""
    bound = (ny.Gaussian(5.15).subsample(rate=5.69e-8) * 10_000).tradeoff().epsilon(1e-100)
    assert bound.lower == pytest.approx(2.33073007427e-5, rel=1e-11)
    assert bound.upper - bound.lower < 1e-9 * bound.upper


def test_a_schedule_of_six_noises_is_narrow():
    parts = ((1.13, 0.0205), (2.715, 0.00156), (2.573, 0.0017), (1.34, 0.00643), (0.8087, 0.00141))
    each = [ny.Gaussian(s).subsample(rate=q) * 100 for s, q in (*parts, (1.0, 0.01))]
    bound = sum(each[1:], each[0]).tradeoff().epsilon(5.94e-12)
    assert bound.upper - bound.lower < 1e-9


def test_an_inside_that_rounding_hides_counts_with_its_whole_bound():
    """F is then the visible part: its error is relative to this part [LS-6]."""

    class Hidden(StepSum):
        def transforms(self, tilt, u):
            none, one = np.zeros(len(u)), np.ones(len(u))
            visible = CutTransform(0.0, math.log(1e-6), none, none, none, none)
            hidden = CutTransform(0.0, math.log(4e-7), none, -one, none, one)
            return [(1, visible), (1, hidden)]

    total = Hidden(steps((1e-3, 1.0, 3)), 0.1, 0.2, 0.2, 20.0)
    log_f, error = total.on_line(1.0, np.zeros(1))
    assert math.exp(log_f[0].real) * (1 + error[0]) >= 1.4e-6


def test_an_inside_whose_ratio_to_what_is_below_is_no_float_claims_nothing():
    class Large(StepSum):
        def transforms(self, tilt, u):
            none = np.zeros(len(u))
            return [(1, CutTransform(0.0, 800.0, none, none, none, none))]

    _, error = Large(steps((1e-3, 1.0, 1)), 0.1, 0.2, 0.2, 20.0).on_line(1.0, np.zeros(1))
    assert error[0] == math.inf
