"""The engines against mpmath, against one another, and against an independent library."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction as F
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

import neyman as ny
import reference as ref
from neyman.curves import (
    CascadeProfile,
    Composition,
    Engine,
    FixedSizeLoss,
    GaussianLoss,
    LaplaceLoss,
    Loss,
    Profile,
    ReplaceOneSubsampledLoss,
    SubsampledGaussianLoss,
    SubsampledLoss,
    dots_profile,
    intersection,
    select,
)
from neyman.numerics import Discretization


def test_a_power_is_at_most_twice_as_wide_as_the_delta_at_its_threshold():
    """Rare steps, whose delta has a relative width of 1e-9; five times as wide by three points."""
    f = (ny.Gaussian(1.4452748891116796).subsample(rate=0.022357525367953174) * 108).tradeoff()
    power = f.power(6.165832254732546e-24)
    width = math.expm1(f.log_delta(3.565354).width)
    assert 1e-12 < power.width / power.upper <= 2 * width


def test_a_billion_small_losses_are_answered_within_bounds_and_memory():
    epsilon = (ny.RandomizedResponse(F(1, 10**8)) * 10**9).tradeoff().epsilon(1e-5)
    mu = mp.mpf("1e-8") * mp.sqrt(10**9)
    assert ref.gaussian_delta(mu * (1 - mp.mpf("1e-6")), epsilon.upper) <= 1e-5


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(2, 1e-4, 300), (0.6, 1e-3, 50)])
def test_rare_samples_are_answered_within_what_each_engine_alone_allows(sigma, rate, steps):
    f = (ny.Gaussian(sigma).subsample(rate=rate) * steps).tradeoff()
    assert any(isinstance(profile.inner, CascadeProfile) for profile in f.profiles)
    for c in f.directions:
        if not isinstance(select(c).inner, CascadeProfile):
            continue
        dots = dots_profile(c)
        for epsilon in (0.0, 0.01, 0.5):
            low, high = select(c).log_delta(epsilon)
            below, above = dots.log_delta(epsilon)
            assert max(below, low) <= high <= above
        low, high = select(c).log_power(math.log(0.05))
        assert high - low < 1e-2


class Unknown(Profile):
    """Knows that delta is at most 1, and nothing else."""

    method, engine = "a test's", "none"

    def log_delta(self, epsilon):
        return -math.inf, 0.0

    def log_deltas(self, epsilons):
        return np.full(len(epsilons), -math.inf), np.zeros(len(epsilons))

    def log_power(self, log_level):
        return log_level, 0.0


def test_one_engine_that_knows_nothing_is_asked_again():
    """Epsilons near one of which the first engine knows nothing go to the others: here none."""
    profile = CascadeProfile([(0.0, Unknown)], -0.5)
    for _ in range(2):
        assert profile.log_delta(1.0) == (-math.inf, -0.5)


def test_intervals_that_contradict_each_other_give_the_interval_that_holds_both():
    """An intersection would be wrong on one side; what is not a number claims nothing."""
    low, high = np.array([0.0, 0.0, 0.0, -math.inf]), np.array([1.0, 1.0, 1.0, 0.0])
    below, above = np.array([2.0, 0.5, math.nan, -1.0]), np.array([3.0, 2.0, math.nan, -0.5])
    ends = intersection(low, high, below, above)
    assert np.array_equal(ends[0], [0.0, 0.5, 0.0, -1.0])
    assert np.array_equal(ends[1], [3.0, 1.0, 1.0, -0.5])


SOURCE = Path(__file__).parents[3] / "src"


def test_the_docstring_of_select_lists_every_rule_with_its_reason():
    text = " ".join((select.__doc__ or "").split())
    listed = re.findall(r"- (\d+): (.*?)\.(?= -| A new)", text)
    rules = []
    for path in SOURCE.glob("**/*.py"):
        code = path.read_text("utf-8")
        named = dict(re.findall(r"^(\w+) = (\d+)$", code, re.MULTILINE))
        for n, why in re.findall(r'@register\(\s*(\w+),\s*"(.*)",?\s*\)', code):
            rules.append((int(named.get(n, n)), why))
    assert [(int(n), why) for n, why in listed] == sorted(rules)


@dataclass(frozen=True)
class Coin(Loss):
    """A loss from outside: a coin with probabilities p and 1 - p under P, swapped under Q."""

    p: float

    @property
    def supremum(self):
        return math.log(self.p) - math.log1p(-self.p)

    def reverse(self):
        return self

    def _values(self):
        top = self.supremum
        return np.array([-top, top]), np.array([1 - self.p, self.p])

    def log_mgf(self, z):
        value, weight = self._values()
        return np.log(np.exp(np.multiply.outer(z, value)) @ weight)

    def mgf_rounding(self, z):
        return 1e-13 * (1 + np.abs(z))

    def moments(self, tilts):
        value, weight = self._values()
        k = self.log_mgf(tilts)
        tilted = weight * np.exp(np.multiply.outer(tilts, value) - k[:, None])
        mean = tilted @ value
        return k, mean, (tilted * (value - mean[:, None]) ** 2).sum(axis=1)

    def dots(self, tilt, step):
        value, weight = self._values()
        scale = float(self.log_mgf(np.array([tilt]))[0])
        return Discretization(value, weight * np.exp(tilt * value - scale), tilt, scale, 0.0, 1e-13)


def test_a_loss_from_outside_gets_an_engine_without_an_edit():
    """The grid holds ten coins that it has never seen; their exact delta is within its bounds."""
    p, count, epsilon = 0.6, 10, 1.0
    profile = select(Composition.of([(Coin(p), count)]))
    assert profile.engine in (Engine.GRID, Engine.CONTOUR)
    top = math.log(p / (1 - p))
    delta = math.fsum(
        math.comb(count, k)
        * p**k
        * (1 - p) ** (count - k)
        * max(0.0, 1 - math.exp(epsilon - (2 * k - count) * top))
        for k in range(count + 1)
    )
    low, high = profile.log_delta(epsilon)
    assert low <= math.log(delta) <= high


def test_the_profile_of_a_composition_is_computed_once():
    composition = Composition.of([(GaussianLoss(1.0), 1)])
    assert select(composition) is select(composition)


@pytest.mark.parametrize(
    "mechanism",
    [
        ny.Gaussian(1).subsample(rate=0.01) * 1000,
        ny.Gaussian(0.6).subsample(rate=0.001) * 10**6,
        ny.Gaussian(2).subsample(rate=1e-5) * 20,
        ny.Gaussian(3).subsample(size=20, population=1000) * 50,
    ],
    ids=repr,
)
def test_a_curve_is_the_largest_of_its_pairs(mechanism):
    """What is left out changes neither epsilon, nor delta, nor a power."""
    f = mechanism.tradeoff()
    parts = [f.part(c) for c in f.directions]

    def largest(ask):
        ends = [ref.ends(ask(p)) for p in parts]
        return tuple(map(max, zip(*ends, strict=True)))

    levels = (1e-25, 1e-9, 1e-3, 0.05, 0.5, 0.99)
    for level, many in zip(levels, f.powers(levels), strict=True):
        assert ref.meet(largest(lambda p, level=level: p.power(level)), many)
        assert many.upper == pytest.approx(f.power(level).upper, rel=1e-6)
    for log_level in (-40.0, -12.0, -3.0, -0.1):
        low, high = largest(lambda p, level=log_level: p.log_power(log_level=level))
        answer = f.log_power(log_level=log_level)
        assert low <= answer.upper == pytest.approx(high, rel=1e-9, abs=1e-12)
        assert answer.lower == pytest.approx(low, rel=1e-9, abs=1e-12)
    for delta in (1e-3, 1e-12, 1e-40):
        low, high = largest(lambda p, delta=delta: p.epsilon(delta))
        answer = f.epsilon(delta)
        assert low <= answer.upper == pytest.approx(high, rel=1e-8)
        low, _ = largest(lambda p, answer=answer: p.log_delta(answer.upper))
        assert low <= f.log_delta(answer.upper).upper <= math.log(delta) + 1e-9


def both_orders(mechanism):
    return mechanism.tradeoff().directions


LAPLACE, GAUSSIAN = LaplaceLoss(F(7, 5)), GaussianLoss(1.5625)
SAMPLED = [
    SubsampledLoss(LAPLACE, 0.05, True),
    FixedSizeLoss(GAUSSIAN, 0.05),
    ReplaceOneSubsampledLoss(LAPLACE, 0.05),
    ReplaceOneSubsampledLoss(GAUSSIAN, 0.05),
    SubsampledGaussianLoss(1.0, 0.05, True),
    SubsampledGaussianLoss(1.0, 0.05, False),
]
TINY = [(GaussianLoss(2.9584e-06), 1), (LaplaceLoss(F("0.0111")), 2), (LaplaceLoss(F("0.0014")), 3)]
DISCRETE = [ny.DiscreteGaussian(F(20 + 7 * i, 10)) for i in range(6)]
UNLIKE = [
    *both_orders(sum(DISCRETE[1:], DISCRETE[0])),
    *both_orders(ny.Laplace(1) + ny.Laplace(3) * 2 + ny.RandomizedResponse(F(1, 3), 4)),
]
CHOSEN = [
    *both_orders(ny.RandomizedResponse(F("0.1")) * 1000),
    *both_orders(ny.RandomizedResponse(F("0.01"), 5) * 10_000),
    *both_orders(ny.DiscreteGaussian(10) * 100),
    *both_orders(ny.DiscreteGaussian(3) * 20 + ny.DiscreteGaussian(3, 2) * 5),
    *both_orders(ny.DiscreteLaplace(20, 3) * 300),
    *both_orders(ny.Gaussian(30) * 500 + ny.Laplace(50) * 200),
    *both_orders(ny.DiscreteGaussian(5) * 10 + ny.RandomizedResponse(F(1, 25)) * 10),
    *(Composition.of([(loss, 60)]) for loss in SAMPLED),
]


@pytest.mark.parametrize("losses", [*CHOSEN, *UNLIKE], ids=lambda x: repr(x)[:60])
def test_no_engine_contradicts_connected_dots(losses):
    """Which move each loss to a grid, and are 1e-2 wide or so."""
    one, dots = select(losses), dots_profile(losses)
    for epsilon in (0.0, 0.1, 0.5, 0.8, 2.0, 5.0, -1.0):
        low, high = one.log_delta(epsilon)
        assert ref.meet((low, high), dots.log_delta(epsilon)), epsilon
        assert high - low < 1e-3 or high == -math.inf, epsilon
    for log_level in (-60.0, -30.0, -3.0, -0.1):
        low, high = one.log_power(log_level)
        assert ref.meet((low, high), dots.log_power(log_level)), log_level
        assert high - low < 1e-3, log_level


def test_drowned_cells_are_left_out_when_dots_are_contracted():
    losses = Composition.of(TINY)
    _, mean, variance = (float(v[0]) for v in losses.moments(np.zeros(1)))
    for away in (-2, 0, 3, 6, 9):
        epsilon = mean + away * math.sqrt(variance)
        assert ref.meet(select(losses).log_delta(epsilon), dots_profile(losses).log_delta(epsilon))


THREE = "epsilon(1e-6) delta(0.2) power(0.01)"
POWERS = " ".join(f"power({x})" for x in (1e-30, 1e-9, 0.05, 0.3679, 0.7, 0.9))
NARROW = [
    ("G(1.0).subsample(rate=1e-06) * 5", "epsilon(1e-12)", 1e-6),
    ("G(2.8).subsample(rate=1.4e-06) * 636", "epsilon(1e-13)", 1e-6),
    ("G(6.4).subsample(rate=2.3e-06) * 60922", "epsilon(4e-20)", 1e-6),
    ("G(0.97).subsample(rate=2.2e-06) * 2543", "epsilon(1e-29)", 1e-6),
    ("G(2.5).subsample(rate=2.7e-07) * 138826", "epsilon(1e-20)", 1e-6),
    ("G(6.0).subsample(rate=3e-07) * 10", "epsilon(1e-25)", 1e-6),
    ("G(0.652).subsample(rate=0.000215) * 14206", "epsilon(1.27e-25)", 1e-6),
    ("G(0.482).subsample(rate=6.1e-05) * 41658", "epsilon(8.4e-26)", 1e-6),
    ("G(0.341).subsample(rate=1.5e-05) * 847416", "epsilon(2.5e-29)", 1e-6),
    ("G(0.30356).subsample(rate=1.44075e-05) * 404075", "epsilon(1.733e-17)", 1e-6),
    ("G(0.8).subsample(rate=1e-07) * 2", "epsilon(1e-12)", 1e-6),
    ("G(3).subsample(rate=0.0001) * 2", "epsilon(1e-12)", 1e-6),
    ("G(0.5).subsample(rate=1e-05) * 10", "epsilon(1e-08)", 1e-6),
    ("G(0.8).subsample(rate=0.001) * 20", "epsilon(1e-08)", 1e-6),
    ("G(2.5).subsample(rate=0.00014) * 2", "epsilon(7e-12)", 1e-6),
    ("G(10).subsample(rate=1e-07) * 20", "epsilon(1e-05)", 1e-6),
    ("G(0.395).subsample(rate=1.67e-06) * 2", "epsilon(2.1e-06)", 1e-6),
    ("G(0.395).subsample(size=17, population=10**7) * 2", "epsilon(2.1e-06)", 1e-6),
    ("G(2.95).subsample(rate=5.6e-07) * 2", "epsilon(2.5e-11)", 1e-6),
    ("G(2.95).subsample(size=6, population=10**7) * 2", "epsilon(2.5e-11)", 1e-6),
    ("G(3.86).subsample(rate=3.4e-06) * 13", "epsilon(3.6e-24)", 1e-6),
    ("G(3.86).subsample(size=34, population=10**7) * 13", "epsilon(3.6e-24)", 1e-6),
    ("G(0.441).subsample(rate=0.058) * 869615", "epsilon(1e-26)", 1e-6),
    ("G(0.441).subsample(size=580000, population=10**7) * 869615", "epsilon(1e-26)", 1e-6),
    ("G(0.52).subsample(size=358_000, population=10**7) * 773", "__call__(0.051)", 1e-6),
    (
        "G(0.94057).subsample(rate=1.8457e-5) * 2426 + G(14.511).subsample(rate=0.015781) * 8741",
        "power(0.79045)",
        1e-9,
    ),
    ("D(2).subsample(rate=2.362e-5) * 918", "epsilon(1e-12)", 2e-9),
    ('D("13.34").subsample(rate=2.362e-5) * 918', "epsilon(5.889e-15)", 2e-9),
    ("D(20).subsample(rate=1e-3) * 1000", "epsilon(1e-12)", 2e-9),
    ("D(2).subsample(rate=1e-6) * 10**6", "epsilon(1e-12)", 2e-9),
    ("D(6.5).subsample(rate=1e-4) * 3316", "epsilon(5e-8)", 2e-9),
    ("D(5).subsample(size=442, population=10**5) * 3987", "epsilon(1e-3)", 2e-9),
    ("ny.DiscreteLaplace(2).subsample(rate=1e-2) * 100", "epsilon(1e-12)", 2e-9),
    ("ny.Staircase(1).subsample(rate=1e-2) * 100", "epsilon(1e-6)", 2e-9),
    ("L(7.17).subsample(rate=0.0131) * 12", "epsilon(1e-14) power(1e-7)", 1e-6),
    ("L(2.95).subsample(rate=0.0104) * 17", "epsilon(1e-14) power(1e-7)", 1e-6),
    ("L(1.92).subsample(rate=0.00027) * 16", "epsilon(1e-14) power(1e-7)", 1e-6),
    ("L(3.86).subsample(rate=9.3e-07) * 3", "epsilon(1e-14) power(1e-7)", 1e-6),
    ("L(0.05).subsample(rate=1e-07) * 5", "delta(0.5)", 1e-6),
    ("L(0.03).subsample(rate=0.001) * 5", "delta(0.5) delta(20.0)", 1e-6),
    ("L(0.06).subsample(rate=1e-07) * 5", "delta(0.5)", 1e-6),
    ("G(1).subsample(rate=0.01) * 1000", POWERS, 1e-6),
    ("G(10**9)", "delta(0.0)", 1e-6),
    ("L(1) + G(1).subsample(rate=0.01)", "delta(1.0)", 1e-9),
    ("G(2).subsample(rate=1e-4) * 300", "epsilon(1e-6)", 1e-6),
    *((f"L(2) * {n}", "epsilon(1e-12)", 1e-9) for n in (2, 3)),
    ("L(27.8) * 50", "group(2).delta(0.001)", 3e-5),
    ("L(5) * 3 + G(2).subsample(rate=0.05) * 3", THREE, 2e-9),
    ("L(3).subsample(rate=0.1) * 5 + G(1).subsample(rate=0.1) * 5", THREE, 2e-9),
    ("ny.DiscreteLaplace(3) * 3 + G(1).subsample(rate=0.01) * 10", THREE, 2e-9),
    ("ny.GaussianMixture(1, [0, 0.5, 1], [0.5, 0.25, 0.25]) * 3 + L(2) * 3", THREE, 2e-9),
    ("G(1) + L(1)", POWERS, 1e-4),
    ("G(1) + ny.RandomizedResponse(1) * 5", POWERS, 1e-4),
]


@pytest.mark.parametrize(("mechanism", "questions", "width"), NARROW)
def test_questions_that_were_wide_or_raised_are_narrow(mechanism, questions, width):
    """Few or rare steps, densities that fall by 1e15, atoms, and points of benchmarks/map.py."""
    f = eval(mechanism, {"ny": ny, "G": ny.Gaussian, "L": ny.Laplace, "D": ny.DiscreteGaussian})
    for question in questions.split():
        bound = eval(f"f.{question}", {"f": f.tradeoff()})
        assert bound.width <= width * bound.upper, question
