"""Mixtures of normal distributions, choices that everyone sees, and what hides nothing."""

import math
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman import GaussianMixture, Mechanism, NonPrivate
from neyman.curves import Composition, GaussianMixtureLoss, MixtureLoss, select
from neyman.mechanisms import Choice

distances = st.lists(st.floats(0.05, 4.0), min_size=1, max_size=3, unique=True)


def place(c, p, value):
    """The y at which log R takes a value: bisection, R grows."""

    def log_ratio(y):
        return mp.log(mp.fsum(b * mp.exp(a * y - a * a / 2) for a, b in zip(c, p, strict=True)))

    low, high = mp.mpf(-200), mp.mpf(200)
    for _ in range(130):
        middle = (low + high) / 2
        low, high = (middle, high) if log_ratio(middle) < value else (low, middle)
    return low


def delta(c, p, epsilon, removed=True):
    c, p, epsilon = [mp.mpf(x) for x in c], [mp.mpf(x) for x in p], mp.mpf(epsilon)
    y = place(c, p, epsilon if removed else -epsilon)
    sign = 1 if removed else -1
    mixture = mp.fsum(b * mp.ncdf(sign * (a - y)) for a, b in zip(c, p, strict=True))
    normal = mp.ncdf(-sign * y)
    return mixture - mp.exp(epsilon) * normal if removed else normal - mp.exp(epsilon) * mixture


def holds(bound, truth, width):
    assert bound.lower <= truth <= bound.upper, (bound, truth)
    assert bound.upper - bound.lower <= width * truth


@settings(max_examples=20)
@given(distances, st.booleans(), st.floats(0.01, 0.9), st.floats(-2.0, 6.0), st.booleans())
def test_one_release_of_a_mixture_has_the_delta_of_its_best_test(c, zero, q, epsilon, removed):
    c = sorted(c)
    c = ([0.0] if zero else []) + c
    p = np.array([1 - q, *([q] * (len(c) - 1))])
    p = tuple((p / p.sum()).tolist())
    loss = GaussianMixtureLoss(tuple(c), p, removed)
    truth = delta(c, p, epsilon, removed)
    low, high = select(Composition.of([(loss, 1)])).log_delta(epsilon)
    if truth < mp.mpf(10) ** -25:  # cancellation of the reference
        assert math.exp(low) < 1e-20
    else:
        assert low <= mp.log(truth) <= high
        # Near the largest loss delta is a difference of terms of up to 1, rounded to 1e-16.
        assert high - low < 1e-9 + 1e-16 / truth or truth < 1e-12


def test_two_releases_of_a_mixture_have_the_delta_of_the_integral():
    c, p, sigma = [0.0, 0.6, 1.5], [0.6, 0.3, 0.1], 1.0
    f = (GaussianMixture(sigma, c, p) * 2).tradeoff()
    for epsilon in (0.5,):

        def inner(y, e=epsilon):
            terms = zip(c, p, strict=True)
            ratio = mp.fsum(b * mp.exp(mp.mpf(a) * y - mp.mpf(a) ** 2 / 2) for a, b in terms)
            least = mp.log(mp.mpf(p[0]))
            rest = e - mp.log(ratio)
            one = 1 - mp.exp(rest) if rest <= least else delta(c, p, rest)
            return mp.npdf(y) * ratio * one

        with mp.workdps(16):
            truth = mp.quad(inner, [-9, -4, -1, 1, 3, 6, 11], maxdegree=5)
        bound = f.delta(epsilon)
        assert bound.lower * (1 - 1e-7) <= truth <= bound.upper * (1 + 1e-7)
        assert bound.upper / bound.lower < 1 + 1e-5


@pytest.mark.parametrize("steps", [1, 500])
def test_the_mixture_of_two_is_the_poisson_subsampled_gaussian(steps):
    mixture = GaussianMixture(0.9, [0, 1], [0.98, 0.02]) * steps
    sampled = ny.Gaussian(0.9).subsample(rate=0.02) * steps
    for log_delta in (math.log(1e-3), math.log(1e-8), -80.0):
        a = mixture.tradeoff().epsilon(log_delta=log_delta)
        b = sampled.tradeoff().epsilon(log_delta=log_delta)
        assert ref.meet(a, b)
        assert a.upper - a.lower < 1e-6 * a.upper + 1e-9


def test_a_choice_that_everyone_sees_is_the_mean_over_what_was_chosen():
    m = Choice(((0.7, ny.Gaussian(1)), (0.3, ny.Gaussian(1, 2))))
    for steps, epsilon in product((1, 3), (0.1, 2.0, 9.0)):
        truth = mp.fsum(
            math.comb(steps, k)
            * mp.mpf(0.3) ** k
            * mp.mpf(0.7) ** (steps - k)
            * ref.gaussian_delta(mp.sqrt(4 * k + (steps - k)), epsilon)
            for k in range(steps + 1)
        )
        holds((m * steps).tradeoff().delta(epsilon), truth, 1e-6)


def test_a_choice_is_between_its_parts():
    a, b = ny.Laplace(2), ny.Laplace(1)
    m = Choice(((0.5, a), (0.5, b)))
    for steps in (1, 40):
        low, mid, high = (x.tradeoff().epsilon(1e-4) for x in (a * steps, m * steps, b * steps))
        assert low.lower <= mid.upper
        assert mid.lower <= high.upper


def test_losses_of_a_mixture_are_consistent():
    """K(0) = K(-1) = 0, and K is minus itself mirrored at -1/2."""
    loss = GaussianMixtureLoss((0.0, 0.5, 2.0), (0.5, 0.3, 0.2), True)
    choice = MixtureLoss(((0.4, loss), (0.6, loss.reverse())))
    z = np.array([-1.0, 0.0])
    assert np.all(np.abs(loss.log_mgf(z)) < 1e-13)
    assert np.all(np.abs(choice.log_mgf(z)) < 1e-13)
    w = np.array([0.3, 1.7])
    assert np.allclose(loss.log_mgf(w), loss.reverse().log_mgf(-1 - w), rtol=0, atol=1e-12)
    line = 0.8 + 0.5j * np.arange(40)
    spread = np.array([loss.log_mgf(line), loss.reverse().log_mgf(line)])
    mean = np.array([0.4, 0.6]) @ np.exp(spread)
    assert np.allclose(np.exp(choice.log_mgf(line)), mean, rtol=1e-12)


def test_decay_bounds_the_characteristic_function():
    loss = GaussianMixtureLoss((0.0, 0.5, 2.0), (0.5, 0.3, 0.2), True)
    edges = np.geomspace(0.1, 60, 30)
    for x in (loss, loss.reverse(), MixtureLoss(((0.4, loss), (0.6, loss.reverse())))):
        for tilt in (0.0, 0.7):
            bound = x.decay(tilt, edges)
            u = np.concatenate([[0.0], edges[:-1] + 0.37 * np.diff(edges)])
            k = np.concatenate([x.log_mgf(np.array([tilt + 0j, tilt + 1j * v])) for v in u[1:]])
            log_phi = np.real(k[1::2] - k[::2])
            assert np.all(log_phi <= bound[:-1] + 1e-9)


def test_nothing_is_hidden_by_what_is_not_private():
    for m in (NonPrivate(), NonPrivate() * 3, NonPrivate() + ny.Gaussian(1) * 5):
        f = m.tradeoff()
        assert f.delta(7.0).upper == 1
        assert f.power(0.01).upper == 1
        assert f.epsilon(1e-5).upper == math.inf
        assert f.pure().upper == math.inf
    assert (NonPrivate() * 0).tradeoff().delta(0).upper == 0


def test_what_is_seldom_used_is_seldom_revealed():
    """Used with probability q it is (0, q), and (e^eps times) less under add-remove."""
    f = NonPrivate(0.25, "add-remove").tradeoff()
    assert f.delta(0).lower <= 0.25 <= f.delta(0).upper
    assert f.delta(3).lower <= 0.25 <= f.delta(3).upper
    two = (NonPrivate(0.25, "replace-one") * 2).tradeoff()
    truth = 1 - 0.75**2
    assert two.delta(1).lower <= truth <= two.delta(1).upper


@pytest.mark.parametrize(
    "m",
    [
        GaussianMixture(2, [0, 1.5], [0.75, 0.25]),
        Choice(((0.5, ny.Laplace(2)), (0.5, ny.Gaussian(1)))),
        NonPrivate(),
        NonPrivate(0.5, "replace-one"),
    ],
)
def test_descriptions_are_read_back(m):
    assert Mechanism.from_json(m.to_json()) == m


def test_a_single_shift_is_a_plain_gaussian():
    assert GaussianMixture(2, [1, 1], [0.5, 0.5]).losses() == ny.Gaussian(2).losses()
    assert GaussianMixture(2, [0], [1]).losses() == (Composition(),)


def test_a_full_batch_that_is_nearly_never_reached_costs_nothing():
    """A step that is cut down with probability 1e-28 has the epsilon of one that isn't."""
    step, worst = ny.Gaussian(1).subsample(rate=0.01), ny.Gaussian(0.5).subsample(rate=0.01)
    rare = (Choice(((1.0, step), (7e-29, worst))) * 1000).tradeoff().epsilon(1e-6)
    plain = (step * 1000).tradeoff().epsilon(1e-6)
    assert math.isclose(rare.upper, plain.upper, rel_tol=1e-10)
    assert ref.meet(rare, plain)


STEPS = 3
MUS = [(0.5, 2.0), (2.0, 0.5)]  # of the likely and the rare of two Gaussian releases


def delta_of_choices(mus, share, epsilon):
    """The mean over how many of the steps drew the rare release."""
    likely, rare = mus
    return mp.fsum(
        mp.binomial(STEPS, k) * (1 - share) ** (STEPS - k) * share**k
        * ref.gaussian_delta(mp.sqrt((STEPS - k) * likely**2 + k * rare**2), epsilon)
        for k in range(STEPS + 1)
    )  # fmt: skip


def choices(mus, share):
    parts = zip((1 - share, share), (ny.Gaussian(1 / mu) for mu in mus), strict=True)
    return (Choice(tuple(parts)) * STEPS).tradeoff()


@pytest.mark.parametrize("mus", MUS, ids=str)
@pytest.mark.parametrize("share", [1e-30, 2.0**-60, 2.0**-40, 2.0**-24])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.0, 6.0, 12.0])
def test_delta_is_the_mean_over_what_was_drawn(mus, share, epsilon):
    """Also where only the rare draws can have so large a loss."""
    with mp.workdps(50):
        truth = delta_of_choices(mus, mp.mpf(share), mp.mpf(epsilon))
        bound = choices(mus, share).log_delta(epsilon)
        assert bound.lower <= mp.log(truth) <= bound.upper
        likely_decide = truth > 1e9 * STEPS * share
        assert bound.width < (1e-8 * max(1.0, -bound.upper) if likely_decide else 0.2)


@pytest.mark.parametrize("mus", MUS, ids=str)
@pytest.mark.parametrize("share", [1e-30, 2.0**-40, 2.0**-24])
@pytest.mark.parametrize("level", [1e-12, 0.05, 0.999])
def test_power_is_that_of_the_best_test_over_the_draws(mus, share, level):
    """The least of delta + e^epsilon level, by golden sections."""
    with mp.workdps(40):

        def above(epsilon):
            return delta_of_choices(mus, mp.mpf(share), epsilon) + mp.exp(epsilon) * level

        low, high = mp.mpf(-20), mp.mpf(20)
        ratio = (mp.sqrt(5) - 1) / 2
        for _ in range(100):
            one, other = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, other) if above(one) < above(other) else (one, high)
        bound = choices(mus, share).power(level)
        assert bound.lower <= above(low) * (1 + mp.mpf(10) ** -15)
        assert above(low) * (1 - mp.mpf(10) ** -15) <= bound.upper
        assert bound.width < 1e-8 * bound.upper
