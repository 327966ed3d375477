"""Questions stop at a limit of operations, and answer with the wider bounds that they have then."""

import math
from itertools import product

import numpy as np
import pytest

import neyman as ny
import reference as ref
from neyman.curves import Composition, select
from neyman.curves.profiles.combination import part_groups
from neyman.curves.profiles.operation_limits import ExponentProfile
from neyman.numerics import (
    OperationLimit,
    cells,
    charge,
    engine_limit,
    limit,
    operations,
    question_meter,
    reserve,
    simplex,
)

MECHANISMS = {
    "samples": lambda: ny.Gaussian(1).subsample(rate=0.01) * 300,
    "few samples": lambda: ny.Gaussian(1).subsample(rate=1e-4) * 3,
    "sampled lattice": lambda: ny.DiscreteGaussian(2).subsample(rate=0.05) * 3,
    "rounded": lambda: ny.RoundedGaussian(2).subsample(rate=0.01) * 4,
    "unlike": lambda: ny.Laplace(2) * 2 + ny.Gaussian(2).subsample(rate=0.01) * 10,
    "mixture": lambda: ny.GaussianMixture(1, [0, 1], [0.9, 0.1]) * 20,
    "shuffle": lambda: ny.RandomizedResponse(1).shuffle(users=200) * 2,
    "lattice": lambda: ny.DiscreteLaplace(20, 3) * 300,
}
QUESTIONS = {
    "epsilon": lambda f: f.epsilon(1e-6),
    "delta": lambda f: f.delta(0.5),
    "power": lambda f: f.power(0.01),
    "type II error": lambda f: f(0.9),
    "pbdp": lambda f: f.pbdp(0.5),
    "affinity": lambda f: f.affinity(),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_bounds_of_few_operations_hold_those_of_many(name):
    for kind, ask in QUESTIONS.items():
        full = ask(MECHANISMS[name]().tradeoff())
        for most in (0.0, 1e6, 1e8):
            with question_meter() as meter:
                meter.most = most
                few = ask(MECHANISMS[name]().tradeoff())
            assert few.lower <= full.upper, (kind, most, few, full)
            assert few.upper >= full.lower, (kind, most, few, full)
            if not meter.reached and not most:
                assert meter.count == 0, (kind, meter)


def test_a_stopped_question_says_so_and_has_one_answer(monkeypatch):
    monkeypatch.setattr(operations, "MOST_OPERATIONS", 4e6)
    ask = MECHANISMS["unlike"]
    first, other = ask().tradeoff(), ask().tradeoff()
    answers = [first.epsilon(1e-6), first.epsilon(1e-6), other.epsilon(1e-6)]
    assert answers[0] == answers[1] == answers[2]
    assert operations.NOTE in answers[0].method
    assert all(operations.NOTE in power.method for power in first.powers([0.01, 0.1]))
    assert operations.NOTE not in ny.gdp(1).epsilon(1e-6).method


def test_only_what_is_bounded_raises_and_a_share_leaves_the_rest():
    charge(1e30)  # between two questions nothing counts
    cells(1e30)
    with question_meter() as meter:
        charge(1e30)
        assert meter.count == 1e30
    with question_meter() as meter:
        meter.most, meter.reserve = 100.0, 10.0
        with limit(0.5), engine_limit():
            charge(50)
            with pytest.raises(OperationLimit):
                charge(1)
        with engine_limit():
            charge(40)
            with pytest.raises(OperationLimit):
                charge(20)
            with reserve():
                charge(10)
                with pytest.raises(OperationLimit):
                    charge(1)
            with pytest.raises(OperationLimit):
                cells(operations.LIMITS.array_cells + 1)
        assert meter.reached


def law_of_a_sampled_lattice(sigma, rate):
    """Masses with the record and without it, in long doubles."""
    x = np.arange(-40, 42, dtype=np.longdouble)
    without = np.exp(-((x / np.longdouble(sigma)) ** 2) / 2)
    moved = np.exp(-(((x - 1) / np.longdouble(sigma)) ** 2) / 2)
    without, moved = without / without.sum(), moved / moved.sum()
    return (1 - np.longdouble(rate)) * without + np.longdouble(rate) * moved, without


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(2, 1e-5, 2), (1, 1e-3, 2), (2, 0.05, 3), (4, 1e-4, 2)]
)
def test_samples_of_lattice_noise_are_answered_around_the_sum_of_all_outcomes(sigma, rate, steps):
    """A distribution with heavy losses has masses below the floats, times factors above them."""
    f = (ny.DiscreteGaussian(sigma).subsample(rate=rate) * steps).tradeoff()
    laws = joint = law_of_a_sampled_lattice(sigma, rate)
    for _ in range(steps - 1):
        joint = [np.multiply.outer(a, b).ravel() for a, b in zip(joint, laws, strict=True)]

    def delta(epsilon):
        t = np.exp(np.longdouble(epsilon))
        return max(float(np.maximum(a - t * b, 0).sum()) for a, b in (joint, joint[::-1]))

    for epsilon in (0.0, 10 * rate, 0.05):
        truth, bound = delta(epsilon), f.delta(epsilon)
        assert bound.lower * (1 - 1e-12) - 1e-17 <= truth <= bound.upper * (1 + 1e-12) + 1e-17
    bound = f.epsilon(1e-12)
    assert bound.lower == 0 or delta(bound.lower * (1 - 1e-9)) >= 1e-12 * (1 - 1e-9)
    assert delta(bound.upper) <= 1e-12 * (1 + 1e-9)


def test_fixed_size_samples_of_lattice_noise_are_answered():
    f = (ny.DiscreteGaussian(2).subsample(size=10, population=10**6) * 10).tradeoff()
    assert 0 <= f.delta(1e-3).lower <= f.delta(1e-3).upper < 0.01


@pytest.mark.parametrize("name", ["samples", "mixture", "lattice", "unlike"])
def test_exponents_hold_the_curve(name):
    f = MECHANISMS[name]().tradeoff()
    for losses, profile in zip(f.directions, f.profiles, strict=True):
        rough = ExponentProfile(losses)
        for epsilon in (-0.5, 0.0, 0.3, 2.0):
            ends, around = profile.log_delta(epsilon), rough.log_delta(epsilon)
            assert ref.meet(ends, around, 1e-12)
            assert epsilon > 1 or around[1] - ends[1] < 1.5
        for log_level in (-40.0, -3.0, -0.1):
            ends, around = profile.log_power(log_level), rough.log_power(log_level)
            assert ref.meet(ends, around, 1e-12)
            assert around[1] - ends[1] < 4
    much = ExponentProfile(ny.gdp(9).alternatives[0])
    assert much.log_delta(5.0)[0] > -0.01
    assert much.log_power(-3.0)[0] > -1e-9


def test_exponents_that_take_too_many_operations_claim_nothing_from_below():
    profile = ExponentProfile(ny.gdp(9).alternatives[0])
    assert np.isfinite(profile._lower_delta(np.zeros(2))).all()
    vars(profile)["_misses"] = None
    assert profile._lower_delta(np.zeros(2)).tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_like_parts_in_groups_hold_the_sum_between(groups):
    parts = [
        ny.Gaussian(3 + k / 5).subsample(rate=0.01 * (1 + k % 7)) * (1 + k % 3) for k in range(20)
    ]
    f = sum([*parts, *(ny.Laplace(40 + k) for k in range(9))], ny.Gaussian(9)).tradeoff()
    for losses in f.directions:
        low, high = (Composition.of(side) for side in part_groups(losses.parts, groups))
        assert sum(n for _, n in low.parts) == sum(n for _, n in losses.parts)
        assert len(high.parts) <= 2 * groups**2 + 1
        for epsilon in (-0.3, 0.0, 0.4, 1.5):
            below, middle, above = (select(c).log_delta(epsilon) for c in (low, losses, high))
            assert below[0] <= middle[1] + 1e-9
            assert above[1] >= middle[0] - 1e-9
            assert epsilon > 1 or above[1] - below[0] < 5 / groups


def test_all_ways_of_a_sum_are_listed_in_order():
    for count, values in product(range(5), range(1, 6)):
        ways = [w for w in product(range(count + 1), repeat=values) if sum(w) == count]
        assert simplex(count, values).tolist() == [list(w) for w in ways]


SLOW = [
    "(ny.RoundedGaussian(1.097).subsample(rate=.002958) * 5).tradeoff().epsilon(2.359e-107)",
    "(ny.RoundedGaussian(72.25).subsample(rate=3.126e-07) * 6495).tradeoff().pbdp(.4671)",
    "(ny.UnaryEncoding(1.503, 9).shuffle(users=1071) * 5).tradeoff().pbdp(2.539)",
    "(ny.RandomizedResponse(.153, 10).shuffle(users=8424) * 11).tradeoff().epsilon(.02597)",
    "(ny.RoundedGaussian(.05277) * 33117).tradeoff().affinity()",
    "(ny.Gaussian(.05747).subsample(rate=8.479e-07) * 83).tradeoff().epsilon(2.272e-10)",
    "(ny.DiscreteGaussian(2).subsample(rate=2.362e-5) * 10**6).tradeoff().power(1e-40)",
    "sum(ny.Gaussian(500 + i / 20).subsample(rate=.3) if i % 2 else ny.Laplace(500 + i / 20)"
    " for i in range(10_000)).tradeoff().epsilon(1e-6)",
]


@pytest.mark.parametrize("text", SLOW)
def test_questions_that_took_long_end_within_their_operations(text):
    with question_meter() as meter:
        bound = eval(text, {"ny": ny})
    assert 0 <= bound.lower <= bound.upper < math.inf
    assert meter.count + meter.spared <= 1.25 * operations.MOST_OPERATIONS


class Stopped:
    """An object all of whose questions stop at the limit, and answer what was asked."""

    @operations.question
    def ask(self, value):
        with question_meter() as meter:
            meter.reached = True
        return ny.Bound(
            float(np.sum(list(value) if np.iterable(value) else value)), 9e9, "upper", ""
        )

    @operations.question
    def draw(self, count, seed=None):
        with question_meter() as meter:
            meter.reached = True
        return np.random.default_rng(seed).random(count)


def test_a_stopped_question_is_asked_anew():
    """Arrays that print alike, iterators at one place in memory, and draws have own answers."""
    stopped = Stopped()
    for first, second in (
        (np.array([0.123456789]), np.array([0.123456781])),
        (np.zeros(2000), np.r_[np.zeros(1000), 1.0, np.zeros(999)]),
        (0.1, 0.2),
    ):
        assert stopped.ask(first).lower == np.sum(first)
        assert stopped.ask(second).lower == np.sum(second)
    assert [stopped.ask(iter([k])).lower for k in range(50)] == [*range(50)]
    assert stopped.ask(0.3) == stopped.ask(0.3)
    assert "_stopped" not in vars(stopped)
    assert not np.array_equal(stopped.draw(3), stopped.draw(3))
