"""The contour against the same integral in thirty digits, and what must fall or rise."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from function_calls import function_calls
from neyman.curves import (
    Composition,
    FiniteLoss,
    GaussianLoss,
    LaplaceLoss,
    SubsampledGaussianLoss,
    line_at,
    response_loss,
    saddle,
    select,
)
from neyman.curves.profiles.contour.complement_line import (
    _largest_around,
    complement_line,
    log_type_two_error,
)
from neyman.curves.profiles.contour.contour import contour_profile
from neyman.numerics.array_cache import CACHE
from random_laws import examples

TRAINING = ny.Gaussian(0.8).subsample(rate=256 / 60_000)


def test_delta_falls_with_epsilon_and_sigma_and_rises_with_steps_and_rate():

    def at(sigma=1.0, rate=0.02, steps=500, epsilon=1.0):
        return (ny.Gaussian(sigma).subsample(rate=rate) * steps).tradeoff().delta(epsilon)

    for less, more in (
        (at(epsilon=1.001), at()),
        (at(sigma=1.001), at()),
        (at(), at(steps=501)),
        (at(), at(rate=0.02001)),
    ):
        assert less.upper < more.lower
    for scale in (1.0, 2.0):
        a = (ny.Laplace(scale) * 40).tradeoff().delta(0.5 / scale)
        b = (ny.Laplace(scale * 1.0001) * 40).tradeoff().delta(0.5 / scale)
        assert b.upper < a.lower


def test_the_tiny_release_brackets_what_is_known_in_closed_form():
    """One Laplace mechanism, whose atoms never die out, by the blurred contour."""
    profile = contour_profile(Composition.of([(LaplaceLoss(Fraction(1)), 1)]))
    exact = ny.Laplace(1).tradeoff()
    for epsilon in (0.1, 0.5, 0.93):
        low, high = profile.log_delta(epsilon)
        truth = exact.log_delta(epsilon)
        assert ref.meet((low, high), truth)
        assert high - low < 1e-4


def test_a_gaussian_by_the_contour_is_the_closed_form():
    exact = ny.gdp(1.5)
    profile = contour_profile(Composition.of([(GaussianLoss(2.25), 1)]))
    for epsilon in (0.0, 0.7, 5.0, 30.0, 100.0):
        low, high = profile.log_delta(epsilon)
        truth = exact.log_delta(epsilon)
        assert ref.meet((low, high), truth)
        assert high - low < 1e-8


SUMS = {
    "training": [(SubsampledGaussianLoss(1.25, 256 / 60_000, removed=True), 14_062)],
    "addition": [(SubsampledGaussianLoss(1.25, 256 / 60_000, removed=False), 14_062)],
    "rare": [(SubsampledGaussianLoss(0.5, 1e-4, removed=True), 300)],
    "much noise": [(GaussianLoss(1e-6), 1)],
    "little noise": [(GaussianLoss(1e6), 1), (LaplaceLoss(Fraction(3)), 40)],
}


@pytest.mark.parametrize("name", SUMS)
def test_at_a_saddle_the_terms_are_least(name):
    losses = Composition.of(SUMS[name])
    top = min(float(losses.supremum), 1e4)
    for epsilon in (0.01, 0.5, 3.0, 0.9 * top if top < 1e4 else 40.0):
        c = saddle(losses, epsilon) * np.array([1 - 4e-3, 1 + 4e-3])
        below, above = losses.moments(c)[1] - 1 / c - 1 / (c + 1)
        assert below <= epsilon <= above


def test_epsilons_of_a_cell_have_one_line_that_suits_them():
    losses = Composition.of(SUMS["training"])
    lines = [line_at(losses, epsilon, release=False) for epsilon in np.linspace(4.5, 4.6, 11)]
    assert len(set(map(id, lines))) <= 2
    for line, epsilon in zip(lines, np.linspace(4.5, 4.6, 11), strict=True):
        assert line.width(epsilon) < 1e-9


def test_the_first_epsilon_of_a_training_run_takes_few_calls():
    """From the description on, at most 900 of Python's; 24,000 before one table of tilts."""

    def ask():
        CACHE.clear()
        return (TRAINING * 14_062).tradeoff().epsilon(1e-5)

    ask()
    assert function_calls(ask, of_python=True) <= 900
    assert function_calls(ask) < 3_200


def test_the_decay_of_a_training_run_takes_few_complex_logarithms(monkeypatch):
    """A bound at a height holds beyond it: three heights near the end; 3,164 before."""
    numbers = []
    plain = SubsampledGaussianLoss.log_ratio

    def counted(self, y):
        numbers.append(y.size if y.dtype.kind == "c" else 0)
        return plain(self, y)

    monkeypatch.setattr(SubsampledGaussianLoss, "log_ratio", counted)
    CACHE.clear()
    (TRAINING * 14_062).tradeoff().epsilon(1e-5)
    assert 0 < sum(numbers) <= 800


def test_a_million_rare_steps_take_few_calls():
    """K has a cliff: 61,000 before a line's place was chosen ahead of its end."""
    rare = ny.Gaussian(1).subsample(rate=Fraction(1, 10_000)) * 10**6
    rare.tradeoff().epsilon(1e-5)
    CACHE.clear()
    assert function_calls(lambda: rare.tradeoff().epsilon(1e-5)) < 12_000


@pytest.mark.parametrize(("mu", "rate"), [(0.1656, 6.8e-6), (1.0, 1e-4), (2.0, 1e-7)])
def test_nodes_beyond_the_only_hump_are_left_out(mu, rate):
    loss = SubsampledGaussianLoss(mu, rate, removed=True)
    for w in np.geomspace(2, 100 / mu, 25):
        y = np.arange(-12.0, w * mu + 14, 0.01)
        g = w * loss.log_ratio(y) - y * y / 2 + math.log(0.01 / math.sqrt(math.tau))
        sure = float(np.logaddexp.reduce(g))
        k, error = loss.log_mgf(np.array([w - 1]))[0], loss.mgf_rounding(np.array([w - 1]))[0]
        assert abs(k - sure) <= error + 1e-12 * (1 + abs(sure))
        low, high = loss.range(w)
        outside = g[(y < low) | (y > high)]
        assert len(outside) == 0 or np.logaddexp.reduce(outside) - sure < -44


def test_a_second_delta_of_a_curve_takes_its_line_from_the_first():
    """Also in another question, as the line is decided by the sum and the epsilon's cell."""
    f = (TRAINING * 14_062).tradeoff()
    CACHE.clear()
    first, second = (function_calls(lambda e=e: f.delta(e)) for e in (4.5, 4.501))
    assert second < first / 2


LEVELS = [0.01, 0.5, 0.88, 0.9, 0.995, 1 - 2.0**-30]
MASSES = {-1: 0.25, 0: 0.5, 3: 0.24}  # of 1/2 times the key; the rest is an infinite loss
MISSING = 1 - sum(p * math.exp(-k / 2) for k, p in MASSES.items())
FINITE = FiniteLoss(
    Fraction(1, 2), tuple(MASSES), tuple(math.log(p) for p in MASSES.values()), 0.01, MISSING
)


def gaussian_complement(epsilon, mu):
    z = epsilon / mu
    return mp.ncdf(z - mu / 2) + mp.exp(epsilon) * mp.ncdf(-z - mu / 2)


def complement(epsilon, mu, count):
    if not count:
        return gaussian_complement(epsilon, mu)
    return mp.fsum(
        p * complement(epsilon - mp.mpf(k) / 2, mu, count - 1) for k, p in MASSES.items()
    )


def type_two_error(log_level, mu, count):
    """The largest 1 - delta - e^epsilon level, by ternary search in 50 digits."""
    with mp.workdps(50):
        level = mp.exp(mp.mpf(log_level))

        def gain(epsilon):
            return complement(epsilon, mu, count) - mp.exp(epsilon) * level

        low, high = mp.mpf(-mu * mu - 40), mp.mpf(mu * mu + 40)
        for _ in range(170):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if gain(left) < gain(right) else (low, right)
        return mp.log(gain((low + high) / 2))


@pytest.mark.parametrize("mu", [3.0, 8.0, 30.0])
@pytest.mark.parametrize("level", LEVELS)
def test_the_type_two_error_of_a_gaussian_is_enclosed(mu, level):
    composition = Composition.of([(GaussianLoss(mu * mu), 1)])
    low, high = log_type_two_error(composition, math.log(level), contour_profile(composition))
    assert low <= type_two_error(math.log(level), mu, 0) <= high
    assert high - low < (1e-6 if low > -300 else 1e-5)  # 1 - delta and level cancel


@pytest.mark.parametrize("level", [v for v in LEVELS if v < (1 - MISSING) ** 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_type_two_error_with_infinite_losses_is_enclosed(level, reverse):
    parts = Composition.of([(GaussianLoss(36.0), 1), (FINITE, 2)])
    other = parts.reverse()
    composition, other = (other, parts) if reverse else (parts, other)
    low, high = log_type_two_error(composition, math.log(level), contour_profile(other))
    assert high - low < 1e-6
    if not reverse:
        assert low <= type_two_error(math.log(level), 6.0, 2) <= high
        return
    # The curve of the reversed pair is the inverse: f(f'(level)) is the level.
    with mp.workdps(50):
        back = [mp.exp(type_two_error(end, 6.0, 2)) for end in (high, low)]
    assert back[0] <= level * (1 + 1e-15)
    assert level * (1 - 1e-15) <= back[1]


def test_nothing_is_claimed_where_the_type_two_error_is_0():
    parts = Composition.of([(GaussianLoss(36.0), 1), (FINITE, 2)])
    low, _ = log_type_two_error(parts, math.log(0.995), contour_profile(parts.reverse()))
    assert low == -math.inf


@pytest.mark.parametrize("epsilon", [-12.0, -3.0, 0.0, 2.0, 25.0])
def test_one_minus_delta_is_enclosed_on_and_off_the_place_of_a_line(epsilon):
    composition = Composition.of([(GaussianLoss(36.0), 1), (FINITE, 2)])
    line = complement_line(composition, epsilon)
    places = epsilon + np.array([-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0])
    low, high = line.log_complement(places)
    with mp.workdps(50):
        for place, least, most in zip(places, low, high, strict=True):
            assert least <= mp.log(complement(mp.mpf(place), 6.0, 2)) <= most
    assert high[3] - low[3] < 1e-9


@pytest.mark.parametrize(
    ("mechanism", "level"),
    [
        (ny.Gaussian(1).subsample(rate=0.1) * 10**5, 0.05),
        (ny.Gaussian(1).subsample(rate=0.01) * 449_000, 0.9),
        (ny.Laplace(1).subsample(rate=0.1) * 10**4, 0.05),
        (ny.Gaussian(1).subsample(rate=0.01) * 10**4, 0.999999),
    ],
)
def test_a_type_two_error_near_0_has_digits(mechanism, level):
    f = mechanism.tradeoff()
    error, power = f(level), f.power(level=level)
    assert 0 < error.lower <= error.upper <= error.lower * (1 + 1e-6)
    assert power.lower <= 1 - error.lower
    assert 1 - error.upper <= power.upper


MECHANISMS = [
    ny.Gaussian(1).subsample(rate=0.01) * 1000,
    ny.Gaussian(0.6).subsample(rate=0.001) * 10**6,
    ny.Gaussian(2).subsample(rate=1e-5) * 20,
    ny.Gaussian(3).subsample(size=20, population=1000) * 50,
    ny.Laplace(2).subsample(rate=0.05) * 30,
    ny.Laplace(10) * 40 + ny.Gaussian(5),
    ny.DiscreteGaussian(2) * 30,
    ny.Gaussian(1) + ny.RandomizedResponse(1),
]
ORDERS = [c for m in MECHANISMS for a in m.losses() for c in dict.fromkeys((a, a.reverse()))]


@settings(max_examples=examples(120))
@given(st.sampled_from(ORDERS), st.floats(0, 40))
def test_a_quick_bound_of_delta_is_above_delta(losses, epsilon):
    assert contour_profile(losses).log_delta_above(epsilon) >= select(losses).log_delta(epsilon)[0]


@settings(max_examples=examples(120))
@given(st.sampled_from(ORDERS), st.floats(-70, -0.001))
def test_a_quick_bound_of_a_power_is_above_the_power(losses, log_level):
    most = contour_profile(losses).log_powers_above(np.array([log_level]))[0]
    assert most >= select(losses).log_power(log_level)[0]


@pytest.mark.parametrize("mechanism", [MECHANISMS[0], MECHANISMS[6]], ids=repr)
def test_a_quick_bound_is_not_far_above(mechanism):
    for losses in mechanism.losses():
        quick, profile = contour_profile(losses), select(losses)
        for epsilon in (0.5, 1.0, 3.0):
            assert quick.log_delta_above(epsilon) < profile.log_delta(epsilon)[0] + 4
        for log_level in (-20.0, -3.0):
            most = quick.log_powers_above(np.array([log_level]))[0]
            assert most < profile.log_power(log_level)[0] + 1


def test_a_mass_of_infinite_loss_has_no_quick_bound():
    """K leaves such a mass out, so nothing is claimed."""
    sampled, _ = ORDERS[0].parts[0]
    response = response_loss(Fraction(1, 2), failure=0.001)
    forward = Composition.of([(sampled, 100), (response, 1)])
    for losses in (forward, forward.reverse()):
        assert losses.infinite > 0
        profile = contour_profile(losses)
        assert profile.log_delta_above(30.0) == 0.0
        assert profile.log_powers_above(np.array([-20.0])) == 0.0
        assert select(losses).log_delta(30.0)[0] >= math.log(0.00099)


@settings(max_examples=examples(60))
@given(
    left=st.floats(0.01, 5.0),
    right=st.floats(0.01, 5.0),
    curve=st.floats(0.0, 3.0),
    bend=st.floats(-4.0, 4.0),
    move=st.sampled_from([0.0, 0.0, 1e-9, -1e-5, 3e-3]),
    width=st.sampled_from([0.0, 1e-12, 1e-9]),
)
def test_chords_at_a_bend_hold_the_largest_value_of_a_concave_function(
    left, right, curve, bend, move, width
):
    """It is 1 less two slopes and a parabola in t; its largest value is 1 at a place near."""
    top = math.exp(bend + move)

    def gain(epsilon):
        away = np.exp(epsilon) / top - 1
        value = 1 - np.where(away < 0, -left, right) * away - curve * away**2
        return value - width - 1e-14, value + width + 1e-14

    low, high = _largest_around(gain, bend)
    assert low <= 1e-12
    assert high >= -1e-12
    if move == 0:
        assert high - low < 20 * width + 1e-6 * (1 + curve)
