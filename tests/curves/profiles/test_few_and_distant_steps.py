"""The density of a sum of few steps: against mpmath, the grid, and identities."""

import math
import random
import warnings

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman.curves import (
    Composition,
    FixedSizeLoss,
    GaussianLoss,
    SubsampledGaussianLoss,
    dots_profile,
    select,
)
from neyman.curves.profiles.sampled_steps.distant_steps import DistantStepsProfile
from neyman.curves.profiles.sampled_steps.few_steps import FewStepsProfile, Step, log_left
from neyman.curves.profiles.sampled_steps.log_sum_density import (
    convolve,
    density_of_step,
    log_growth,
)
from neyman.curves.profiles.sampled_steps.many_steps import LargestStepProfile
from neyman.numerics import question_meter
from neyman.numerics.operations import MOST_OPERATIONS
from random_laws import examples


def addition(*parts):
    total = sum(
        (ny.Gaussian(sigma).subsample(rate=rate) * count for rate, sigma, count in parts[1:]),
        ny.Gaussian(parts[0][1]).subsample(rate=parts[0][0]) * parts[0][2],
    )
    one, two = total.tradeoff().directions
    return two if one.parts[0][0].removed else one


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


@pytest.mark.parametrize("share", [0.3, 0.6])
@pytest.mark.parametrize(
    ("rate", "sigma"), [(0.01, 1.0), (1.4e-4, 2.5), (0.1, 3.0), (1e-3, 1.5), (1e-6, 0.5)]
)
def test_two_steps_hold_the_integral_of_mpmath(rate, sigma, share):
    epsilon = -2 * math.log1p(-rate) * share
    profile = FewStepsProfile(addition((rate, sigma, 2)))
    low, high = profile.log_delta(epsilon)
    exact = float(mp.log(exact_delta(rate, sigma, epsilon, False)))
    assert low <= exact <= high
    assert high - low < 1e-7


@settings(max_examples=examples(12))
@given(
    rates=st.lists(st.floats(-6, -0.7), min_size=1, max_size=2),
    sigma=st.floats(0.5, 4),
    count=st.integers(2, 5),
    log_delta=st.floats(-30, -6),
)
def test_intervals_meet_those_of_the_grid(rates, sigma, count, log_delta):
    steps = [(10**rate, sigma * (1 + 0.3 * k), count) for k, rate in enumerate(rates)]
    losses = addition(*steps)
    profile = FewStepsProfile(losses)
    epsilon = profile.epsilon_near(log_delta)
    low, high = profile.log_delta(epsilon)
    other_low, other_high = dots_profile(losses).log_delta(epsilon)
    assert ref.meet((low, high), (other_low, other_high), 1e-12)


@pytest.mark.parametrize("level", [1e-9, 0.01, 0.6])
@pytest.mark.parametrize("part", [(0.0055, 0.27, 13), (2e-6, 0.2, 5)])
def test_a_power_without_a_line_is_near_its_level(part, level):
    """Small noise, where lines need too many nodes: powers by duality from deltas."""
    low, high = select(addition(part)).log_power(math.log(level))
    assert math.log(level) - 1e-12 <= low <= high < low + 2e-5


def test_a_density_is_within_its_error_of_the_integral_of_mpmath():
    step = Step(0.01, 0.7)
    one = density_of_step(step, -14, 4, 0.25)
    two = convolve(one, one, -9, 1, 0.25)
    for tau in (-6.0, -4.4, -1.0):
        with mp.workdps(30):

            def term(r, tau=tau):
                e, grow = mp.exp(tau), mp.exp(r)
                first = mp.log(2 * e / (1 + grow + mp.sqrt((1 + grow) ** 2 + 4 * grow * e)))
                second = first + r
                density = mp.npdf(first, step.mean, step.distance)
                density *= mp.npdf(second, step.mean, step.distance)
                return density * e / (e + mp.exp(first + second))

            exact = mp.log(mp.quad(term, [-20, -8, -4, -2, 0, 2, 4, 8, 20]))
        place = np.array([tau])
        error = float(two.error[two.panel(place)][0])
        assert abs(float(two.log_value(place)[0]) - float(exact)) <= error + 1e-13
        assert error < 1e-8


@settings(max_examples=60)
@given(rate=st.floats(-7, -0.4), mu=st.floats(0.1, 4), tau=st.floats(-3, 3), share=st.floats(-1, 1))
def test_growth_bounds_a_density_at_complex_places(rate, mu, tau, share):
    """FS-2 for one step, where the density is a normal distribution in log(e^S - 1)."""
    step = Step(10**rate, mu)
    angle = 0.8 * min(1.0, mu)
    place = complex(step.mean + tau * mu * 2, share * angle)
    size = -((place - step.mean) ** 2).real / (2 * mu**2)
    real = np.linspace(place.real - 0.35 * angle**2, place.real + 0.35 * angle**2, 41)
    nearby = float(np.max(-((real - step.mean) ** 2)) / (2 * mu**2))
    bound = log_growth(((step, 1),), angle, np.array([place.real + 0.35 * angle**2]))
    assert size <= nearby + float(bound[0]) + 1e-12


@pytest.mark.parametrize("tau", [-4.0, -2.0, 0.5, 3.0])
def test_tails_of_a_sum_are_bounded_by_simulation(tau):
    """Three steps, 10^6 draws: a mass above its bound by 6 deviations has probability 1e-9."""
    step, draws = Step(0.05, 1.2), 10**6
    b = np.random.default_rng(7).normal(step.mean, step.distance, (3, draws))
    log_ratio = np.log1p(np.exp(b)).sum(axis=0)
    left = float((np.log(np.expm1(log_ratio)) < tau).mean())
    assert left <= math.exp(log_left(((step, 3),), tau)) + 6 * math.sqrt(left / draws) + 1e-5


ORDERS = ["removed", "added", "symmetric"]
CORNERS = [
    "ny.Gaussian(1e-3).subsample(rate=1e-9) * 10**6",
    "ny.Gaussian(.05).subsample(rate=1e-7) * 10**7",
    "ny.Gaussian(.09).subsample(rate=1e-7) * 10**7",
    "ny.Gaussian(.02).subsample(rate=.6) * 10**4",
    "ny.Gaussian(.001).subsample(size=600, population=1000) * 10**7",
    "ny.Gaussian(.03).subsample(rate=1e-5) * 100 + ny.Gaussian(3)",
]
WIDTHS = {CORNERS[2]: 0.01}  # where the normals overlap a little, in many steps
QUESTIONS = {
    "epsilon": lambda f: f.epsilon(1e-6),
    "epsilon, far": lambda f: f.epsilon(1e-100),
    "delta": lambda f: f.delta(1.0),
    "power": lambda f: f.power(0.05),
    "power, far": lambda f: f.power(1e-100),
    "gdp": lambda f: f.gdp(),
    "zcdp": lambda f: f.zcdp(),
    "nearest_gaussian": lambda f: f.nearest_gaussian(),
}


def distant_profile(distance, rate, count, order, variance=0.0):
    shape = "symmetric" if order == "symmetric" else "one"
    removed = order == "removed"
    return DistantStepsProfile(
        distance, rate, count, variance=variance, order=shape, removed=removed
    )


def delta_of_one(mu, q, e, order):
    return ref.sampled_delta(mu, q, e, order == "removed" or (order == "symmetric" and e >= 0))


def sampled_pair(draw):
    mu = draw.choice([math.exp(draw.uniform(math.log(4), math.log(40))), draw.uniform(10, 16)])
    return mu, math.exp(draw.uniform(math.log(1e-9), math.log(0.95)))


def test_one_step_against_mpmath():
    draw, narrow = random.Random(5), 0
    with mp.workdps(150):
        for _ in range(300):
            (mu, q), order = sampled_pair(draw), draw.choice(ORDERS)
            far, gain = mu * mu / 2 + math.log(q), -math.log1p(-q)
            e = draw.choice(
                [0.0, gain / 2, -gain, draw.uniform(-3, 3), far + mu * draw.uniform(-9, 30)]
            )
            truth, (low, high) = (
                delta_of_one(mu, q, e, order),
                distant_profile(mu, q, 1, order).log_delta(e),
            )
            log_truth = mp.log(truth) if truth > 0 else -mp.inf
            assert low <= log_truth <= high, (mu, q, e, order)
            narrow += high - low < 1e-7
    assert narrow > 100


def test_two_steps_against_mpmath():
    """Panels of y close to where the other step has the epsilon 0, within which delta bends."""
    with mp.workdps(25):
        for mu, q, e in [(16.0, 3e-5, 172.0), (12.96, 0.0034, 142.46), (20.0, 0.3, 410.0)]:
            start = mp.mpf(mu) ** 2 / 2
            places = {mp.mpf(k) for k in range(-14, int(mu) + 15)}
            for target in (e, e - math.log1p(-q)):
                y = (mp.log((mp.expm1(mp.mpf(target)) + q) / q) + start) / mu
                places |= {y} | {y + s * mp.mpf(2) ** -j for j in range(26) for s in (-1, 1)}

            def integrand(y, mu=mu, q=q, e=e, start=start):
                loss = mp.log1p(q * mp.expm1(mu * y - start))
                return mp.npdf(y) * mp.exp(loss) * delta_of_one(mu, q, e - loss, "removed")

            truth = mp.log(mp.quad(integrand, sorted(places), maxdegree=5))
            low, high = distant_profile(mu, q, 2, "removed").log_delta(e)
            assert low <= truth <= high
            assert high - low < 1e-7


def test_powers_of_one_step_against_mpmath():
    draw = random.Random(6)
    with mp.workdps(150):
        for _ in range(60):
            (mu, q), order = sampled_pair(draw), draw.choice(["removed", "added"])
            z = mp.mpf(draw.choice([draw.uniform(-3, 12), draw.uniform(-3, mu + 3)]))
            alike, moved = mp.ncdf(-z), mp.ncdf(mu - z)
            if order == "added":
                alike, moved = 1 - alike, 1 - moved
            mixed = (1 - mp.mpf(q)) * alike + mp.mpf(q) * moved
            level, power = (alike, mixed) if order == "removed" else (mixed, alike)
            low, high = distant_profile(mu, q, 1, order).log_power(float(mp.log(level)))
            error = mp.mpf("1e-13") * (1 - mp.log(level))  # the level as a float
            assert low - error <= mp.log(power) <= high + error, (mu, q, order, z)


def test_many_steps_against_lines_by_the_largest_step():
    draw = random.Random(7)
    for _ in range(40):
        order, variance = draw.choice(ORDERS), draw.choice([0.0, 0.0, 0.3, 2.0])
        mu = draw.uniform(7, 10)
        q, count = math.exp(draw.uniform(-16, -0.1)), round(math.exp(draw.uniform(0, 9)))
        if count * q > 50:
            continue
        fixed = order == "symmetric"
        loss = SubsampledGaussianLoss(mu, q, order == "removed")
        if fixed:
            loss = FixedSizeLoss(GaussianLoss(mu), q)
            mu = loss.inner.mu
        beside = [(GaussianLoss(math.sqrt(variance)), 1)] if variance else []
        other = LargestStepProfile(Composition.of([(loss, count), *beside]))
        variance = math.fsum(x.mu_squared for x, _ in beside)
        far, k = mu * mu / 2 + math.log(q), max(1, round(count * q))
        e = draw.choice(
            [0.0, draw.uniform(-1, 3), k * far + mu * math.sqrt(k) * draw.uniform(-5, 9)]
        )
        if order == "added":
            e = -count * math.log1p(-q) * draw.uniform(0, 1.1)
        low, high = distant_profile(mu, q, count, order, variance).log_delta(e)
        below, above = other.log_delta(e)
        assert ref.meet((low, high), (below, above)), (order, mu, q, count, variance, e)


@pytest.mark.parametrize("corner", CORNERS)
def test_corners_are_answered_within_a_few_operations(corner):
    f = eval(corner, {"ny": ny}).tradeoff()
    for name, ask in QUESTIONS.items():
        with warnings.catch_warnings(), question_meter() as meter:
            warnings.simplefilter("error")
            answer = ask(f)
        most = MOST_OPERATIONS * (1.2 if corner in WIDTHS else 0.5)
        assert meter.count + meter.spared < most, name
        if name in ("epsilon", "delta", "power"):
            assert answer.upper - answer.lower <= WIDTHS.get(corner, 1e-6) * answer.upper, name
