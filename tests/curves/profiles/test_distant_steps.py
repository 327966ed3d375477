"""Steps whose two normals hardly overlap, against mpmath and against the lines by largest step."""

from __future__ import annotations

import math
import random
import warnings

import mpmath as mp
import pytest

import neyman as ny
from neyman.curves import Composition, FixedSizeLoss, GaussianLoss, SubsampledGaussianLoss
from neyman.curves.profiles.sampled_steps.distant_steps import DistantStepsProfile
from neyman.curves.profiles.sampled_steps.many_steps import LargestStepProfile
from neyman.numerics import question_meter
from neyman.numerics.operations import MOST_OPERATIONS

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


def profile(distance, rate, count, order, variance=0.0):
    shape = "symmetric" if order == "symmetric" else "one"
    removed = order == "removed"
    return DistantStepsProfile(
        distance, rate, count, variance=variance, order=shape, removed=removed
    )


def delta_of_one(mu, q, e, order):
    mu, q, e = mp.mpf(mu), mp.mpf(q), mp.mpf(e)
    if order == "added" or (order == "symmetric" and e < 0):
        return 1 - mp.exp(e) + mp.exp(e) * delta_of_one(mu, q, -e, "removed")
    odds = (mp.expm1(e) + q) / q
    if odds <= 0:
        return 1 - mp.exp(e)
    y = (mp.log(odds) + mu * mu / 2) / mu
    return (1 - q - mp.exp(e)) * mp.ncdf(-y) + q * mp.ncdf(mu - y)


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
                profile(mu, q, 1, order).log_delta(e),
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
            low, high = profile(mu, q, 2, "removed").log_delta(e)
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
            low, high = profile(mu, q, 1, order).log_power(float(mp.log(level)))
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
        low, high = profile(mu, q, count, order, variance).log_delta(e)
        below, above = other.log_delta(e)
        assert low <= above, (order, mu, q, count, variance, e)
        assert below <= high, (order, mu, q, count, variance, e)


@pytest.mark.parametrize("corner", CORNERS)
def test_corners_are_answered_within_a_few_operations(corner):
    """Tiny noise, tiny rates, and many steps: no engine that answers slowly is asked."""
    f = eval(corner, {"ny": ny}).tradeoff()
    for name, ask in QUESTIONS.items():
        with warnings.catch_warnings(), question_meter() as meter:
            warnings.simplefilter("error")
            answer = ask(f)
        most = MOST_OPERATIONS * (1.2 if corner in WIDTHS else 0.5)
        assert meter.count + meter.spared < most, name
        if name in ("epsilon", "delta", "power"):
            assert answer.upper - answer.lower <= WIDTHS.get(corner, 1e-6) * answer.upper, name
