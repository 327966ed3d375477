"""Users with several records: the pair of one user, in Poisson samples of records and of users."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

import neyman as ny
from neyman.cli import app
from neyman.curves import LossBracket

CHECKS = [(1, 8, 23.08, 0.005), (16, 16, 1.37506984167, 1e-11)]
"""Sigma, k, and epsilon of 1,000 steps at rate .01 and delta 1e-6."""


def direct(sigma, shares, epsilon, *, removed):
    """delta of sum_j p_j N(j, sigma^2) and N(0, sigma^2), by the half-line that is best."""
    epsilon, sigma = mp.mpf(epsilon), mp.mpf(sigma)
    laws = [(mp.mpf(j) / sigma, mp.mpf(p.numerator) / p.denominator) for j, p in shares.items()]
    target = epsilon if removed else -epsilon

    def log_ratio(y):
        terms = [p * mp.exp(c * y - c * c / 2) for c, p in laws]
        total = mp.fsum(terms)
        return mp.log(total), mp.fsum(c * t for (c, _), t in zip(laws, terms, strict=True)) / total

    low, high = mp.mpf(-400), mp.mpf(400)
    with mp.workdps(20):
        for _ in range(45):
            middle = (low + high) / 2
            low, high = (middle, high) if log_ratio(middle)[0] < target else (low, middle)
    if low > -400:
        for _ in range(5):
            value, slope = log_ratio(low)
            low -= (value - target) / slope
    sign = 1 if removed else -1
    mixture = mp.fsum(p * mp.ncdf(sign * (c - low)) for c, p in laws)
    normal = mp.ncdf(-sign * low)
    if removed:
        return mixture - mp.exp(epsilon) * normal
    return max(normal - mp.exp(epsilon) * mixture, mp.mpf(0))


def binomial(k, q):
    """The distribution of the number of records in a sample, exact."""
    q = Fraction(str(q))
    return {j: math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)}


def one_order(mechanism, *, removed):
    """The curve of one order alone."""
    (pair,) = mechanism.losses()
    return mechanism.tradeoff().part(pair if removed else pair.reverse())


@pytest.mark.parametrize(("sigma", "k", "epsilon", "within"), CHECKS)
def test_epsilons_of_known_runs(sigma, k, epsilon, within):
    run = ny.Gaussian(sigma).subsample(rate=0.01) * 1000
    bound = run.user(k).tradeoff().epsilon(1e-6)
    assert abs(bound.upper - epsilon) <= within
    assert bound.upper - bound.lower < 1e-8
    if k == 8:
        group = run.tradeoff().group(k).epsilon(1e-6)
        assert group.upper == pytest.approx(30.4, abs=0.05)
        assert bound.upper < group.lower


def test_one_step_is_the_direct_mixture_at_random_points():
    draw = np.random.default_rng(42)
    with mp.workdps(60):
        for _ in range(150):
            k = int(draw.integers(1, 12))
            low = 10.0 ** -draw.integers(1, 8)
            q = float(f"{draw.choice([low, draw.random(), 1 - low]):.9g}")
            sigma = float(f"{10 ** draw.uniform(-0.5, 1.5):.6g}")
            epsilon = float(draw.choice([0.0, draw.uniform(0, 2), draw.uniform(0, 30)]))
            removed = bool(draw.integers(2))
            truth = direct(sigma, binomial(k, q), epsilon, removed=removed)
            step = ny.Gaussian(sigma).subsample(rate=q).user(k)
            bound = one_order(step, removed=removed).log_delta(epsilon)
            case = (k, q, sigma, epsilon, removed, bound, truth)
            if truth < mp.mpf(10) ** -45:  # digits of the reference
                assert bound.lower < -90, case
                continue
            assert bound.lower <= mp.log(truth) <= bound.upper, case
            assert q < 0.001 or bound.upper - bound.lower < 1e-7 + 1e-13 / truth, case


def test_noise_far_below_the_sensitivity_has_a_narrow_delta():
    step = ny.Gaussian(0.05).subsample(rate=1e-7).user(8)
    reach = -8 * math.log1p(-1e-7)
    with mp.workdps(60):
        for epsilon in (0.5 * reach, 1.1 * reach, 1.0, 30.0, 1000.0):
            truth = direct(0.05, binomial(8, 1e-7), epsilon, removed=True)
            bound = step.tradeoff().delta(epsilon)
            assert bound.lower <= truth <= bound.upper < truth * (1 + 1e-9), epsilon
    added = one_order(step, removed=False)
    assert added.delta(1.1 * reach).upper < 1e-40 < added.delta(0.5 * reach).lower


@pytest.mark.parametrize(("k", "q"), [(300, 0.001), (40, 1e-7), (200, 0.97)])
@pytest.mark.parametrize("removed", [True, False])
def test_improbable_numbers_of_records_move_to_the_safe_side(k, q, removed):
    step = ny.Gaussian(10).subsample(rate=q).user(k)
    assert isinstance(step.losses()[0].parts[0][0], LossBracket)
    with mp.workdps(120):
        shares = {j: p for j, p in binomial(k, q).items() if p > Fraction(1, 10**120)}
        for epsilon in (0.0, 0.01, 1.0, 30.0):
            truth = direct(10, shares, epsilon, removed=removed)
            bound = one_order(step, removed=removed).log_delta(epsilon)
            if truth < mp.mpf(10) ** -90:  # digits of the reference
                assert bound.lower < -200
                continue
            log = mp.log(truth)
            assert bound.lower <= log <= bound.upper, (epsilon, bound, log)
            assert log < math.log(1e-30) or bound.upper - bound.lower < 1e-6


def test_two_steps_are_the_sum_over_both_outputs():
    sigma, q, k = 1.25, 0.02, 5
    c, p = np.array([(j / sigma, float(p)) for j, p in binomial(k, q).items()]).T
    y = np.linspace(-12, 18, 3001)  # the sums are of analytic functions: their error is nothing
    h = y[1] - y[0]
    ratio = np.exp(np.multiply.outer(y, c) - c * c / 2) @ p
    plain = np.exp(-y * y / 2) / math.sqrt(math.tau)
    run = (ny.Gaussian(sigma).subsample(rate=q) * 2).user(k)
    for removed, epsilon in ((True, 0.75), (False, 0.1)):
        wanted = math.exp(epsilon) / ratio if removed else math.exp(-epsilon) / ratio
        low, high = np.full_like(y, -60.0), np.full_like(y, 60.0)
        for _ in range(70):
            middle = (low + high) / 2
            under = np.exp(np.multiply.outer(middle, c) - c * c / 2) @ p < wanted
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        if removed:  # the second output beyond the end of the best half-line
            inner = ratio * (ndtr(np.subtract.outer(c, low)).T @ p) - math.exp(epsilon) * ndtr(-low)
        else:
            inner = ndtr(low) - math.exp(epsilon) * ratio * (ndtr(-np.subtract.outer(c, low)).T @ p)
        truth = float((plain * inner).sum() * h)
        bound = one_order(run, removed=removed).delta(epsilon)
        assert bound.lower * (1 - 1e-8) <= truth <= bound.upper * (1 + 1e-8)
        assert bound.upper < bound.lower * (1 + 1e-6)


def test_no_directions_of_the_gradients_reveal_more():
    draw = np.random.default_rng(7)
    y = np.linspace(-12, 16, 20_001)
    h = y[1] - y[0]

    def normal(shift, sigma):
        return np.exp(-(((y - shift) / sigma) ** 2) / 2) / (sigma * math.sqrt(math.tau))

    for _ in range(40):
        k, q, sigma = int(draw.integers(2, 5)), draw.uniform(0.01, 0.9), draw.uniform(0.7, 1.5)
        shifts = draw.uniform(-1, 1, k) if draw.random() < 0.7 else draw.choice([-1.0, 1.0], k)
        run = ny.Gaussian(sigma).subsample(rate=q).user(k)
        mixed = np.zeros_like(y)
        for subset in range(1 << k):
            taken = [(subset >> i) & 1 for i in range(k)]
            chance = math.prod(q if one else 1 - q for one in taken)
            mixed += chance * normal(float(np.dot(taken, shifts)), sigma)
        plain = normal(0.0, sigma)
        for epsilon in (0.0, 0.3, 1.5):
            for pair, removed in (((mixed, plain), True), ((plain, mixed), False)):
                delta = np.maximum(pair[0] - math.exp(epsilon) * pair[1], 0).sum() * h
                most = one_order(run, removed=removed).delta(epsilon).upper
                assert delta <= most + h * h / 2, (k, q, sigma, shifts, epsilon, removed)


def test_one_record_and_certain_records_are_the_ordinary_pairs():
    step = ny.Gaussian(4).subsample(rate=0.3)
    assert step.user(1) == step
    everyone = ny.Gaussian(4).subsample(rate=1).user(6)
    assert everyone.losses() == ny.Gaussian(4, 6).losses() == ny.Gaussian(4).user(6).losses()
    for epsilon in (0.0, 1.0, 3.0):
        near = ny.Gaussian(4).subsample(rate=1 - 1e-12).user(6).tradeoff().delta(epsilon)
        assert near.upper == pytest.approx(ny.gdp(1.5).delta(epsilon).upper, rel=1e-9)
    assert ny.Gaussian(4).subsample(rate=0).user(6).tradeoff().delta(0).upper == 0


def test_more_records_reveal_more_and_cost_the_square():
    run = ny.Gaussian(20).subsample(rate=0.001) * 100
    powers = [run.user(k).tradeoff().power(0.05) for k in (1, 2, 15, 22, 24, 60, 1000)]
    assert all(a.upper < b.lower for a, b in pairwise(powers))
    assert run.user(15).rho() == 225 * run.rho()


@pytest.mark.parametrize("rate", [1e-9, 1e-20, 1e-150, 1e-290])
def test_rates_that_hide_everything_answer_zero(rate):
    step = ny.Gaussian(1).subsample(rate=rate).user(8)
    for run in (step, step * 10):
        assert run.tradeoff().epsilon(1e-6).upper == 0


def test_sums_are_of_the_same_user():
    step = ny.Gaussian(2).subsample(rate=0.1)
    run = step * 3 + ny.Gaussian(9)
    assert run.user(4) == step.user(4) * 3 + ny.Gaussian(9, 4)
    for part in (
        ny.Laplace(1),
        ny.Gaussian(1).subsample(size=2, population=9),
        ny.Gaussian(1).random_allocation(5),
        ny.Gaussian(1).shuffled_batches(5),
        ny.Laplace(1).subsample(rate=0.1),
        ny.Gaussian(1).subsample(rate=0.1, neighboring="replace-one"),
    ):
        with pytest.raises(ValueError, match=r"proven|proof"):
            part.user(2)
    with pytest.raises(ValueError, match="at most 1,000"):
        step.user(1001)
    with pytest.raises(ValueError, match="records already"):
        step.user(2).user(3)
    with pytest.raises(ValueError, match="smaller than the sensitivity"):
        ny.Gaussian(1e-4).subsample(rate=0.1).user(8)


def accounted(text):
    """The mechanism that the command line reads."""
    done = CliRunner().invoke(app, ["account", text, "--json"])
    return ny.Mechanism.from_dict(json.loads(done.stdout)["mechanism"])


def test_descriptions_name_the_records_only_where_there_are_several():
    step = ny.Gaussian(2).subsample(rate=Fraction(1, 10))
    assert "records" not in step.to_json()
    assert repr(step.user(3)).endswith(".subsample(rate=Fraction(1, 10)).user(3)")
    assert ny.Mechanism.from_json(step.user(3).to_json()) == step.user(3)
    assert accounted("Gaussian(2).subsample(rate=1/10).user(3) * 5") == step.user(3) * 5
    run = ny.DPSGD(600, 60, 2, 3)
    assert "user" not in run.to_json() + repr(run)
    for more in (
        {"records_per_user": 4},
        {"records_per_user": {1: 300, 3: 100}},
        {"records_per_user": 4, "user_sampling": "users"},
        {"user_sampling": "users", "sampling": "fixed"},
    ):
        several = ny.DPSGD(600, 60, 2, 3, **more)
        assert ny.Mechanism.from_json(several.to_json()) == several
        assert hash(several) != hash(run)
    text = "DPSGD(600, 60, 2, 3, records_per_user={1: 300, 3: 100})"
    assert accounted(text) == ny.DPSGD(600, 60, 2, 3, records_per_user={3: 100, 1: 300})


def test_sigma_is_over_the_clip_of_a_record_or_of_the_sum_of_a_user():
    examples = ny.DPSGD(100, 25, 2, Fraction(1, 4), records_per_user=4)
    users = ny.DPSGD(100, 25, 2, Fraction(1, 4), records_per_user=4, user_sampling="users")
    with mp.workdps(40):
        for run, shares in ((examples, binomial(4, 0.25)), (users, binomial(1, 0.25))):
            for removed in (True, False):
                truth = direct(2, shares, 0.1, removed=removed)
                bound = one_order(run, removed=removed).delta(0.1)
                assert bound.lower <= truth <= bound.upper
                assert bound.upper < bound.lower * (1 + 1e-9)
    assert "sigma=2 (noise / clip of one record)" in repr(examples)
    assert "sigma=2 (noise / clip of one user's sum)" in repr(users)
    assert examples.noise(clip=3.0) == users.noise(clip=3.0) == 6.0
    assert examples == ny.DPSGD(100, 25, 2, Fraction(1, 4)).user(4)
    assert examples.made_of() == ny.Gaussian(2).subsample(rate=Fraction(1, 4)).user(4)


def test_a_histogram_has_a_table_whose_last_row_is_the_guarantee():
    run = ny.DPSGD(1000, 50, 4, 2, records_per_user={1: 500, 5: 60, 10: 20})
    table = run.user_guarantees(delta=1e-6, level=0.01)
    assert [(row.records, row.users) for row in table] == [(1, 500), (5, 60), (10, 20)]
    for row in table:
        curve = ny.DPSGD(1000, 50, 4, 2, records_per_user=row.records).tradeoff()
        assert (row.epsilon, row.power) == (curve.epsilon(1e-6), curve.power(0.01))
    f = run.tradeoff()
    assert (table[-1].epsilon, table[-1].power) == (f.epsilon(1e-6), f.power(0.01))
    mean = sum(row.users * row.power.upper for row in table) / 580
    assert mean < table[-1].power.lower / 2
    with pytest.raises(ValueError, match="is one number"):
        ny.DPSGD(1000, 50, 4, 2).user_guarantees(delta=1e-6)
