"""A few unlike parts: sampled steps beside losses with atoms, by quadrature and enumeration."""

import math
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman.curves import (
    Composition,
    GaussianLoss,
    LaplaceLoss,
    SubsampledGaussianLoss,
    conditioned,
    dots_profile,
    select,
)
from random_laws import examples

STEPS = {
    "distance": st.floats(0.05, 6.0),
    "log_rate": st.floats(-5.0, -0.1),
    "removed": st.booleans(),
}


def delta_of_step(epsilon, distance, rate, removed):
    return ref.sampled_delta(distance, rate, epsilon, removed)


def beside_laplace(at, epsilon, step):
    """Log delta of Laplace noise and one step: atoms, and an integral over the density."""
    with mpmath.workdps(30):
        a, e = mpmath.mpf(epsilon), mpmath.mpf(at)
        total = delta_of_step(e - a, *step) / 2 + mpmath.exp(-a) / 2 * delta_of_step(e + a, *step)
        distance, rate, removed = step
        edge = mpmath.log(1 - mpmath.mpf(rate)) * (1 if removed else -1)
        # Panels that grow away from where the step's own losses are.
        width = mpmath.mpf(rate) * min(distance, 1.0)
        near = [edge + s * width * 4**k for k in range(-4, 14) for s in (-1, 1)]
        inner = sorted({e - x for x in (*near, edge) if -a < e - x < a})
        total += mpmath.quad(
            lambda x: mpmath.exp((x - a) / 2) / 4 * delta_of_step(e - x, *step), [-a, *inner, a]
        )
        return float(mpmath.log(total)) if total > 0 else -math.inf


@settings(max_examples=examples(12))
@given(**STEPS, epsilon=st.floats(0.05, 3.0), share=st.floats(-0.5, 1.2))
@example(distance=1.0, log_rate=-2.0, removed=True, epsilon=1.0, share=1.0)
def test_laplace_noise_and_one_step_agree_with_quadrature(
    distance, log_rate, removed, epsilon, share
):
    """One factor more of a line holds the integral over the density."""
    step = distance, 10**log_rate, removed
    losses = Composition.of(
        [(LaplaceLoss(Fraction(epsilon)), 1), (SubsampledGaussianLoss(*step), 1)]
    )
    at = share * epsilon
    low, high = select(losses).log_delta(at)
    exact = beside_laplace(at, epsilon, step)
    assert low - 1e-12 <= exact <= high + 1e-12


@settings(max_examples=examples(24))
@given(**STEPS, scale=st.floats(0.3, 5.0), count=st.integers(1, 6), share=st.floats(-0.9, 1.1))
def test_listed_losses_and_one_step_agree_with_enumeration(
    distance, log_rate, removed, scale, count, share
):
    step = distance, 10**log_rate, removed
    (listed,) = ny.DiscreteLaplace(scale).tradeoff().directions[0].parts
    losses = Composition.of([(listed[0], count), (SubsampledGaussianLoss(*step), 1)])
    at = share * count * float(listed[0].supremum)
    low, high = conditioned(losses, 1e4).log_delta(at)
    with mpmath.workdps(30):
        law = ref.together(*[ref.discrete_laplace(Fraction(scale), 1)] * count)
        exact = sum(m * delta_of_step(mpmath.mpf(at) - v, *step) for v, m in law.items())
        exact = float(mpmath.log(exact)) if exact > 0 else -math.inf
    assert low - 1e-12 <= exact <= high + 1e-12
    assert exact <= -600 or high - low < 1e-9


@settings(max_examples=examples(12))
@given(
    **STEPS,
    second=st.floats(0.05, 6.0),
    counts=st.tuples(st.integers(1, 20), st.integers(1, 5), st.booleans()),
    epsilon=st.floats(0.05, 2.0),
    share=st.floats(0.0, 1.0),
)
def test_several_unlike_parts_meet_a_grid(
    distance, log_rate, removed, second, counts, epsilon, share
):
    """The grid moves all losses and has no line; where the line answers, it is narrower."""
    rate, (count, laplace, normal) = 10**log_rate, counts
    parts = [
        (SubsampledGaussianLoss(distance, rate, removed), count),
        (SubsampledGaussianLoss(second, rate / 2, removed), 1),
        (LaplaceLoss(Fraction(epsilon)), laplace),
        (GaussianLoss(0.5), int(normal)),
    ]
    losses, at = Composition.of(parts), share * laplace * epsilon
    grid = dots_profile(losses, 1 << 14).log_delta(at)
    assert ref.meet(select(losses).log_delta(at), grid, 1e-12)


def test_powers_of_conditioned_sums_are_the_least_of_the_lines():
    f = (ny.DiscreteLaplace(2) * 3 + ny.Gaussian(1).subsample(rate=0.05)).tradeoff()
    for composition in f.directions:
        profile = select(composition)
        low, high = profile.log_power(math.log(0.02))
        epsilons = np.linspace(-1.5, 2.0, 2001)
        lines = np.logaddexp(profile.log_deltas(epsilons)[1], epsilons + math.log(0.02))
        assert low <= lines.min() + 1e-12
        assert high >= lines.min() - 1e-5
        assert high - low < 2e-9


def test_steps_whose_peaks_lie_far_apart_take_little_memory():
    """Nodes that all of them shared would be 80 million."""
    steps = (ny.Gaussian(14.22) * 5).subsample(rate=1.096e-05) * 24
    steps += ny.Gaussian(0.3394).subsample(rate=4.566e-05) * 2 + ny.Gaussian(1.155)
    tracemalloc.start()
    try:
        tail = steps.tradeoff().loss.tail(112.4)
        assert tracemalloc.get_traced_memory()[1] < 1e8
    finally:
        tracemalloc.stop()
    assert 0 < tail.upper <= tail.lower * (1 + 1e-6)
