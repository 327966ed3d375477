"""Sums of choices drawn in the open that nearly always fall on the same loss."""

from __future__ import annotations

import math

import mpmath
import pytest

import neyman as ny
from neyman.curves import select
from neyman.curves.profiles.rare_choice import RareChoiceProfile
from neyman.mechanisms import Choice

STEPS = 3
LIKELY, RARE = 0.5, 2.0  # mu of the two Gaussian releases


def gaussian_delta(mu, epsilon):
    tail = mpmath.ncdf
    return tail(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * tail(-mu / 2 - epsilon / mu)


def delta_of_choices(share, epsilon):
    """The mean over how many of the steps drew the rare release."""
    each = [
        mpmath.binomial(STEPS, k) * (1 - share) ** (STEPS - k) * share**k
        * gaussian_delta(mpmath.sqrt((STEPS - k) * LIKELY**2 + k * RARE**2), epsilon)
        for k in range(STEPS + 1)
    ]  # fmt: skip
    return mpmath.fsum(each)


def choices(share):
    parts = ((1 - share, ny.Gaussian(1 / LIKELY)), (share, ny.Gaussian(1 / RARE)))
    return Choice(parts) * STEPS


@pytest.mark.parametrize("share", [1e-30, 2.0**-60, 2.0**-40, 2.0**-24])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 6.0, 12.0])
def test_delta_is_the_mean_over_what_was_drawn(share, epsilon):
    """Also where only the rare draws can have so large a loss."""
    with mpmath.workdps(50):
        truth = delta_of_choices(mpmath.mpf(share), mpmath.mpf(epsilon))
        bound = choices(share).tradeoff().log_delta(epsilon)
        assert bound.lower <= mpmath.log(truth) <= bound.upper
        if truth > 1e9 * STEPS * share:  # the likely losses decide
            assert bound.upper - bound.lower < 1e-8 * max(1.0, -bound.upper)


@pytest.mark.parametrize("share", [1e-30, 2.0**-40, 2.0**-24])
@pytest.mark.parametrize("level", [1e-12, 0.05, 0.999])
def test_power_is_that_of_the_best_test_over_the_draws(share, level):
    """The least of delta + e^epsilon level, by golden sections."""
    with mpmath.workdps(40):

        def above(epsilon):
            return delta_of_choices(mpmath.mpf(share), epsilon) + mpmath.exp(epsilon) * level

        low, high = mpmath.mpf(-20), mpmath.mpf(20)
        ratio = (mpmath.sqrt(5) - 1) / 2
        for _ in range(100):
            one, other = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, other) if above(one) < above(other) else (one, high)
        bound = choices(share).tradeoff().power(level)
        assert bound.lower <= above(low) * (1 + mpmath.mpf(10) ** -15)
        assert above(low) * (1 - mpmath.mpf(10) ** -15) <= bound.upper


def test_the_bounds_alone_hold_where_the_whole_sum_would_be_asked():
    """The whole sum is an independent engine, and both intervals hold."""
    (composition, *_) = choices(2.0**-24).tradeoff().directions
    profile = select(composition).inner
    assert isinstance(profile, RareChoiceProfile)
    for epsilon in (0.1, 1.0, 4.0, 9.0):
        low, high = profile.log_delta(epsilon)
        below, above = profile._sum.log_delta(epsilon)
        assert max(low, below) <= min(high, above) + 1e-15


def test_a_full_batch_that_is_nearly_never_reached_costs_nothing():
    """A step that is cut down with probability 1e-28 has the epsilon of one that isn't."""
    step, worst = ny.Gaussian(1).subsample(rate=0.01), ny.Gaussian(0.5).subsample(rate=0.01)
    rare = (Choice(((1.0, step), (7e-29, worst))) * 1000).tradeoff().epsilon(1e-6)
    plain = (step * 1000).tradeoff().epsilon(1e-6)
    assert math.isclose(rare.upper, plain.upper, rel_tol=1e-10)
    assert rare.lower <= plain.upper
    assert plain.lower <= rare.upper
