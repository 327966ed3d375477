"""Samples and random allocation: which goes with which relation, and what it is worth."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

import neyman as ny
from neyman.curves import select
from neyman.mechanisms import Subsampled

GAUSSIAN, LAPLACE = ny.Gaussian(2), ny.Laplace(Fraction(5, 4))
RESPONSE = ny.RandomizedResponse(1)


def gaussian_delta(shift, epsilon):
    root = mp.sqrt(2)
    near, far = epsilon / shift - shift / 2, epsilon / shift + shift / 2
    return (mp.erfc(near / root) - mp.e**epsilon * mp.erfc(far / root)) / 2


def holds(bound, truth):
    return mp.mpf(bound.lower) <= truth <= mp.mpf(bound.upper)


def test_a_description_without_a_relation_is_refused():
    without = {"type": "Subsampled", "mechanism": GAUSSIAN.to_dict(), "rate": 0.5}
    with pytest.raises(ValueError, match="needs the field 'neighboring'"):
        ny.Mechanism.from_dict(without)


def test_each_scheme_says_its_relation():
    assert LAPLACE.subsample(0.1).neighboring == "add-remove"
    assert LAPLACE.subsample(0.1, neighboring="replace-one").neighboring == "replace-one"
    assert LAPLACE.subsample(size=1, population=10).neighboring == "replace-one"
    assert LAPLACE.shuffled_batches(10).neighboring == "replace-one"
    with pytest.raises(ValueError, match="add-remove"):
        _ = LAPLACE.subsample(0.1) + LAPLACE.shuffled_batches(10)


def test_the_ends_of_the_rate():
    for nothing in (
        LAPLACE.subsample(0),
        LAPLACE.subsample(0, neighboring="replace-one"),
        LAPLACE.subsample(size=0, population=5),
    ):
        assert nothing.tradeoff().advantage().upper == 0
        assert nothing.rho() == 0
    delta = LAPLACE.tradeoff().delta(0.2)
    assert LAPLACE.subsample(1).tradeoff().delta(0.2) == delta
    assert LAPLACE.subsample(size=5, population=5).tradeoff().delta(0.2) == delta
    # Under replace-one the noise is moved away from where it was moved to.
    twice = ny.Laplace(Fraction(5, 8)).tradeoff().delta(0.2)
    assert LAPLACE.subsample(1, neighboring="replace-one").tradeoff().delta(0.2) == twice


def test_a_sample_of_a_sample_is_one_sample():
    assert LAPLACE.subsample(0.3).subsample(0.1) == LAPLACE.subsample(0.03)
    part = LAPLACE.subsample(Fraction(1, 3)).subsample(Fraction(1, 7))
    assert part == LAPLACE.subsample(Fraction(1, 21))
    inner = LAPLACE.subsample(size=2, population=10)
    assert inner.subsample(size=10, population=50) == LAPLACE.subsample(size=2, population=50)


@pytest.mark.parametrize("rate", [5e-324, 1e-310, Fraction(1, 10**400), Fraction(1, 10**301)])
def test_a_rate_that_no_float_holds_is_refused(rate):
    """It would be lost on the way, and what is not private pass for perfect."""
    for make in (
        lambda: GAUSSIAN.subsample(rate=rate),
        lambda: LAPLACE.subsample(rate=rate, neighboring="replace-one"),
        lambda: Subsampled(LAPLACE, rate),
        lambda: ny.NonPrivate(rate, "replace-one"),
        lambda: ny.Mechanism.from_dict(
            {**LAPLACE.subsample(rate=0.5).to_dict(), "rate": str(rate)}
        ),
    ):
        with pytest.raises(ValueError, match="rate = "):
            make()
    with pytest.raises(ValueError, match="probabilities = "):
        ny.GaussianMixture(1, [0, 1], [1, rate])


def test_a_product_of_rates_that_no_float_holds_is_refused():
    for neighboring in ("add-remove", "replace-one"):
        sampled = LAPLACE.subsample(rate=1e-200, neighboring=neighboring)
        with pytest.raises(ValueError, match="rate = "):
            sampled.subsample(rate=1e-200, neighboring=neighboring)
        assert sampled.subsample(rate=0, neighboring=neighboring).tradeoff().delta(0).upper < 1e-300
    least = GAUSSIAN.subsample(rate=Fraction(1, 10**300)).tradeoff().delta(0)
    one = GAUSSIAN.tradeoff().delta(0)
    assert least.lower <= one.upper * 1e-300
    assert one.lower * 1e-300 <= least.upper <= one.upper * 1.0001e-300


@pytest.mark.parametrize(
    "mechanism",
    [
        GAUSSIAN.subsample(size=1, population=50),
        GAUSSIAN.subsample(size=1, population=50) + LAPLACE,
        GAUSSIAN.subsample(size=1, population=50) * 3 + GAUSSIAN.subsample(size=1, population=2),
        GAUSSIAN.subsample(size=1, population=25).shuffled_batches(2),
    ],
)
def test_populations_that_disagree_are_refused(mechanism):
    described = {"type": "FixedSize", "mechanism": mechanism.to_dict(), "size": 2, "population": 4}
    for make in (
        lambda: mechanism.subsample(size=2, population=4),
        lambda: ny.Mechanism.from_dict(described),
    ):
        with pytest.raises(ValueError, match=r"size = 2, but .* of 50"):
            make()


def test_a_sum_on_a_sample_may_sample_again():
    part = LAPLACE.subsample(size=2, population=8)
    delta = (part * 2).subsample(size=8, population=16).tradeoff().delta(0.2)
    assert part.subsample(size=8, population=16).tradeoff().delta(0.2).lower < delta.upper
    assert delta.lower < (part * 2).tradeoff().delta(0.2).upper
    batches = LAPLACE.subsample(size=2, population=4).shuffled_batches(2)
    again = batches.subsample(size=8, population=16).tradeoff().delta(0.2)
    assert again.lower < batches.tradeoff().delta(0.2).upper


def test_no_gain_in_zcdp_is_claimed():
    assert LAPLACE.subsample(0.1).rho() == LAPLACE.rho()
    assert LAPLACE.subsample(size=1, population=10).rho() == LAPLACE.rho()
    assert GAUSSIAN.subsample(0.1, neighboring="replace-one").rho() == 4 * GAUSSIAN.rho()
    assert (GAUSSIAN.shuffled_batches(100) * 3).rho() == 3 * GAUSSIAN.rho()
    for mechanism in (LAPLACE.subsample(0.1), GAUSSIAN.subsample(0.1, neighboring="replace-one")):
        bound = mechanism.tradeoff().zcdp()
        assert bound.lower <= bound.upper <= float(mechanism.rho()) * (1 + 1e-14)


def test_a_pass_over_shuffled_batches_is_one_run():
    alone = LAPLACE.tradeoff()
    for batches in (1, 1000):
        shuffled = LAPLACE.shuffled_batches(batches)
        assert shuffled.tradeoff().delta(0.3) == alone.delta(0.3)
        assert (GAUSSIAN.shuffled_batches(batches) * 4).tradeoff().delta(0.3) == (
            ny.Gaussian(1).tradeoff().delta(0.3)
        )


def test_more_steps_and_larger_samples_reveal_more():
    def delta(mechanism):
        return mechanism.tradeoff().delta(0.3)

    for less, more in (
        (LAPLACE.subsample(0.02) * 200, LAPLACE.subsample(0.03) * 200),
        (LAPLACE.subsample(0.02) * 200, LAPLACE.subsample(0.02) * 300),
        (
            GAUSSIAN.subsample(size=2, population=100) * 200,
            GAUSSIAN.subsample(size=3, population=100) * 200,
        ),
        (
            GAUSSIAN.subsample(0.02, neighboring="replace-one") * 200,
            GAUSSIAN.subsample(0.02, neighboring="replace-one") * 300,
        ),
        # Replacing is at least as much as removing, and at most moving by twice the shift.
        (GAUSSIAN.subsample(0.02) * 200, GAUSSIAN.subsample(0.02, neighboring="replace-one") * 200),
        (
            GAUSSIAN.subsample(0.02, neighboring="replace-one") * 200,
            ny.Gaussian(1).subsample(size=2, population=100) * 200,
        ),
    ):
        assert delta(less).upper < delta(more).lower


def test_a_gaussian_under_replace_one_agrees_with_another_library():
    ours = (ny.Gaussian(2).subsample(0.02, neighboring="replace-one") * 500).tradeoff()
    theirs = pld.from_gaussian_mechanism(
        2.0,
        value_discretization_interval=1e-3,
        sampling_prob=0.02,
        neighboring_relation=pld.NeighborRel.REPLACE_ONE,
    ).self_compose(500)
    epsilon = theirs.get_epsilon_for_delta(1e-5)
    assert ours.epsilon(1e-5).lower <= epsilon + 1e-9
    assert epsilon <= ours.epsilon(1e-5).upper * 1.02


def test_noise_that_hides_nothing_is_refused_in_samples_of_fixed_size():
    with pytest.raises(ValueError, match="hides nothing under sampling"):
        (ny.Gaussian(1e-5).subsample(size=5, population=10) * 3).tradeoff()


def two_batches(mu, epsilon):
    """Both deltas for T = 2: given x_1, the test is a threshold on x_2."""
    t = math.exp(epsilon)

    def factor(x):
        return np.exp(mu * x - mu * mu / 2)

    def threshold(x, level):  # the x_2 at which S = level
        rest = level - factor(x)
        return (math.log(rest) + mu * mu / 2) / mu if rest > 0 else -math.inf

    def removed(x):  # E over x_2 of (S/2 - t)+
        k = threshold(x, 2 * t)
        return norm.pdf(x) * ((factor(x) / 2 - t) * ndtr(-k) + ndtr(mu - k) / 2)

    def added(x):  # of (1 - t S/2)+
        k = threshold(x, 2 / t)
        return norm.pdf(x) * ((1 - t * factor(x) / 2) * ndtr(k) - t / 2 * ndtr(k - mu))

    bends = [(math.log(2 * t) + mu * mu / 2) / mu, (math.log(2 / t) + mu * mu / 2) / mu]
    ends = sorted([-10.0, *bends, 10.0 + mu])
    pieces = list(pairwise(ends))
    return [
        sum(quad(f, a, b, limit=200, epsabs=1e-13)[0] for a, b in pieces) for f in (removed, added)
    ]


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
def test_two_batches_are_what_integration_says(mu, epsilon):
    allocation = ny.Gaussian(1 / Fraction(str(mu))).random_allocation(2)
    removed, added = two_batches(mu, epsilon)
    (total,) = allocation.losses()
    for losses, truth in ((total, removed), (total.reverse(), added)):
        low, high = (math.exp(v) for v in select(losses).log_delta(epsilon))
        assert low - 1e-11 <= truth <= high + 1e-11
        assert high - low <= 2e-3 * truth + 1e-9
    delta = allocation.tradeoff().delta(epsilon)
    assert delta.lower - 1e-11 <= max(removed, added) <= delta.upper + 1e-11


@pytest.mark.parametrize("mu", [0.8, 2.0])
def test_three_batches_are_what_integration_says(mu):
    epsilon = 0.5
    t = math.exp(epsilon)
    x = np.linspace(-9, 9 + mu, 2001)
    weight = norm.pdf(x) * (x[1] - x[0])
    y = np.exp(mu * x - mu * mu / 2)
    other = np.add.outer(y, y)
    rest = np.maximum(3 * t - other, 1e-300)
    k = np.where(other < 3 * t, (np.log(rest) + mu * mu / 2) / mu, -np.inf)
    inner = (other / 3 - t) * ndtr(-k) + ndtr(mu - k) / 3
    truth = float(weight @ inner @ weight)
    allocation = ny.Gaussian(1 / Fraction(str(mu))).random_allocation(3)
    (losses,) = allocation.losses()
    low, high = (math.exp(v) for v in select(losses).log_delta(epsilon))
    assert low - 1e-7 <= truth <= high + 1e-7
    assert high - low < 2e-3 * truth


def test_one_batch_is_the_mechanism():
    allocation = ny.Gaussian(0.8).random_allocation(1)
    assert allocation.losses() == ny.Gaussian(0.8).losses()


def test_what_it_hides_is_about_what_poisson_samples_hide():
    batches, step = 100, ny.Gaussian(1.0)
    for passes in (1, 4):
        allocated = (step.random_allocation(batches) * passes).tradeoff().epsilon(1e-5)
        rate = Fraction(1, batches)
        poisson = (step.subsample(rate=rate) * (passes * batches)).tradeoff().epsilon(1e-5)
        assert 0.5 * poisson.lower < allocated.lower <= allocated.upper < poisson.lower
        assert allocated.width < 2e-3 * allocated.upper


def test_an_adaptive_pass_tells_no_more():
    """Two steps, the second's shift chosen by what the first showed: still within the bound.

    The attacker halves the second shift where the first outcome was low. By integration on a grid.
    """
    mu, t = 1.2, math.exp(0.4)
    x = np.linspace(-9, 9 + mu, 3001)
    h = x[1] - x[0]
    shift = np.where(x < 0.6, mu / 2, mu)
    first, null = norm.pdf(x - mu), norm.pdf(x)
    k = np.add.outer(-shift, x)
    p = 0.5 * first[:, None] * norm.pdf(x) + 0.5 * null[:, None] * norm.pdf(k)
    q = null[:, None] * norm.pdf(x)
    removed = np.maximum(p - t * q, 0).sum() * h * h
    added = np.maximum(q - t * p, 0).sum() * h * h
    (total,) = ny.Gaussian(1 / Fraction("1.2")).random_allocation(2).losses()
    for losses, result in ((total, removed), (total.reverse(), added)):
        assert result < math.exp(select(losses).log_delta(0.4)[1]) + 1e-6


def test_simulated_allocation_stays_within_the_ends():
    """The mean of what 20,000 outcomes add to delta, to 6 deviations: false alarms below 1e-8."""
    mu, count, draws, epsilon = 1.0, 8, 20_000, 0.5
    random = np.random.default_rng(20)
    x = random.normal(size=(draws, count))
    x[np.arange(draws), random.integers(count, size=draws)] += mu
    ratio = np.exp(mu * x - mu * mu / 2).mean(axis=1)
    part = np.maximum(1 - math.exp(epsilon) / ratio, 0)
    slack = 6 * part.std() / math.sqrt(draws)
    (total,) = ny.Gaussian(1 / Fraction(mu)).random_allocation(count).losses()
    low, high = (math.exp(v) for v in select(total).log_delta(epsilon))
    assert part.mean() - slack <= high < 1.01 * low
    assert low <= part.mean() + slack


def test_what_shows_nothing_shows_nothing_in_a_batch():
    assert (ny.Gaussian(1) * 0).random_allocation(5).tradeoff().delta(0).upper == 0


def test_many_gaussians_are_one():
    mechanism = (ny.Gaussian(2) * 4).random_allocation(5)
    allocation = ny.Gaussian(1).random_allocation(5)
    assert mechanism.tradeoff().delta(0.5) == allocation.tradeoff().delta(0.5)
