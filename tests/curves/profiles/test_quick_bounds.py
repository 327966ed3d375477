"""Quick upper bounds, with which a curve leaves out the pair that is certainly the better one."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.curves import Composition, contour_profile, response_loss, select
from random_laws import examples

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
SUMS = [c for m in MECHANISMS for a in m.losses() for c in dict.fromkeys((a, a.reverse()))]


@settings(max_examples=examples(120))
@given(st.sampled_from(SUMS), st.floats(0, 40))
def test_a_quick_bound_of_delta_is_above_delta(losses, epsilon):
    """Chernoff's bound is no smaller than the certified lower end of delta."""
    assert contour_profile(losses).log_delta_above(epsilon) >= select(losses).log_delta(epsilon)[0]


@settings(max_examples=examples(120))
@given(st.sampled_from(SUMS), st.floats(-70, -0.001))
def test_a_quick_bound_of_a_power_is_above_the_power(losses, log_level):
    """Chernoff's bound of a power is no smaller than the power's certified lower end."""
    most = contour_profile(losses).log_powers_above(np.array([log_level]))[0]
    assert most >= select(losses).log_power(log_level)[0]


def test_a_mass_of_infinite_loss_has_no_quick_bound():
    """K leaves such a mass out, so nothing is claimed."""
    sampled, _ = SUMS[0].parts[0]
    response = response_loss(Fraction(1, 2), failure=0.001)
    forward = Composition.of([(sampled, 100), (response, 1)])
    for losses in (forward, forward.reverse()):
        assert losses.infinite > 0
        profile = contour_profile(losses)
        assert profile.log_delta_above(30.0) == 0.0
        assert profile.log_powers_above(np.array([-20.0])) == 0.0
        assert select(losses).log_delta(30.0)[0] >= math.log(0.00099)


@pytest.mark.parametrize("mechanism", MECHANISMS[:4], ids=repr)
def test_a_curve_is_the_largest_of_its_pairs(mechanism):
    """What is left out changes neither epsilon, nor delta, nor a power."""
    f = mechanism.tradeoff()
    parts = [f.part(c) for c in f.directions]
    levels = (1e-25, 1e-9, 1e-3, 0.05, 0.5, 0.99)
    for level, many in zip(levels, f.powers(levels), strict=True):
        each = [p.power(level) for p in parts]
        assert max(e.lower for e in each) <= many.upper
        assert many.lower <= max(e.upper for e in each)
        assert many.upper == pytest.approx(f.power(level).upper, rel=1e-6)
    for log_level in (-40.0, -12.0, -3.0, -0.1):
        ends = [p.log_power(log_level=log_level) for p in parts]
        answer = f.log_power(log_level=log_level)
        assert answer.upper <= max(e.upper for e in ends)
        assert answer.upper >= max(e.lower for e in ends)
        assert answer.lower == pytest.approx(max(e.lower for e in ends), rel=1e-9, abs=1e-12)
    for delta in (1e-3, 1e-12, 1e-40):
        ends = [p.epsilon(delta) for p in parts]
        answer = f.epsilon(delta)
        assert answer.upper >= max(e.lower for e in ends)
        assert answer.upper == pytest.approx(max(e.upper for e in ends), rel=1e-8)
        value = f.log_delta(answer.upper)
        assert value.upper >= max(p.log_delta(answer.upper).lower for p in parts)
        assert value.upper <= math.log(delta) + 1e-9
