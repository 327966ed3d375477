"""Lines for each size of the largest step: against mpmath, quadrature, and the other engines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import neyman as ny
from neyman.losses.composition import Composition
from neyman.losses.gaussian import GaussianLoss
from neyman.losses.subsampled import SubsampledGaussianLoss
from neyman.profiles.contour import contour_profile
from neyman.profiles.few_steps import FewStepsProfile
from neyman.profiles.largest_step import BracketSum, LargestStepProfile
from neyman.profiles.step_windows import SIGMA, StepNodes, log_sum
from tests.core.test_few_steps import exact_delta

RATES = st.floats(-7, -0.6).map(lambda v: 10**v)
DISTANCES = st.floats(-0.9, 0.5).map(lambda v: 10**v)


def steps(*parts: tuple[float, float, int], removed: bool = True) -> Composition:
    """Steps (rate, distance, count) of one order."""
    return Composition.of((SubsampledGaussianLoss(mu, q, removed), n) for q, mu, n in parts)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[StepNodes, float]:
    """Nodes of a random step between two random levels, and a tilt in their range."""
    rate, mu = draw(RATES), draw(DISTANCES)
    loss = SubsampledGaussianLoss(mu, rate, True)
    low = draw(st.one_of(st.just(-math.inf), st.floats(0.5, 8.0)))
    high = draw(st.floats(max(low, 0.5) + 0.7, max(low, 0.5) + 2.5))
    size = math.log1p(rate * math.expm1(high))
    last = draw(st.floats(2.0, 40.0)) / size
    sharpness = draw(st.sampled_from([2.0, 4.0, 6.0, 10.0]))
    return StepNodes(loss, False, 3, low, high, last, sharpness), last * draw(st.floats(0.01, 1.0))


def log_sizes(step: StepNodes, tilt: float, y: np.ndarray, height: float) -> np.ndarray:
    """Logarithms of the size of the bracket's integrand at y + i height, term by term."""
    z = y + 1j * height
    t = step.loss.farthest * z - step.loss.farthest**2 / 2
    ratio = np.log1p(step.loss.rate * np.expm1(t))

    def psi(level: float) -> np.ndarray:
        from scipy.special import erfc

        x = t - level
        x = np.minimum(x.real, 12.0) + 1j * x.imag
        return np.exp(step.sharpness * x) * 0.5 * erfc(-x / (SIGMA * math.sqrt(2)))

    base = (tilt + 1) * ratio - z * z / 2 - 0.5 * math.log(math.tau)
    if step.low == -math.inf:
        return np.real(base - psi(step.high))
    low, high = psi(step.low), psi(step.high)
    with np.errstate(all="ignore"):
        gap = np.log(np.abs(-np.expm1(-(low - high))))
        swapped = np.log(np.abs(np.expm1(low - high)))
    first = np.real(low - high) > -30
    return np.real(base) + np.where(first, np.real(-high) + gap, np.real(-low) + swapped)


@settings(max_examples=60, deadline=None)
@given(nodes(), st.floats(0.0, 2.0))
def test_no_place_of_a_panel_exceeds_its_bound(case: tuple[StepNodes, float], share: float):
    """LS-4, the bound from which every other one follows, at 7 places of each panel."""
    step, tilt = case
    height = share * step.a
    panels = step.panels(height, tilt).bracket[1:-1]
    inside = step.y[:-1, None] + step.h * np.linspace(0.0, 1.0, 7)
    sizes = log_sizes(step, tilt, inside.ravel(), height).reshape(inside.shape).max(axis=1)
    bound = panels - math.log(step.h)
    known = sizes > bound.max() - 200
    assert np.all(sizes[known] <= bound[known] + 1e-6)


@settings(max_examples=40, deadline=None)
@given(nodes())
def test_sums_on_a_line_err_by_less_than_they_say(case: tuple[StepNodes, float]):
    """The reference is a sum on the real line with a tenth of the step."""
    step, tilt = case
    scale = 1 / max(math.log1p(step.loss.rate * math.expm1(step.high)), 1e-300)
    u = scale * np.arange(12)
    sums = step.line(tilt, u)
    if sums.bracket_error[0] == 1.0:
        return
    y = step.y[0] + step.h / 10 * np.arange(10 * len(step.y))
    t = step.loss.farthest * y - step.loss.farthest**2 / 2
    ratio = np.log1p(step.loss.rate * np.expm1(t))

    def psi(level: float) -> np.ndarray:
        x = np.minimum(t - level, 12.0)
        return np.exp(step.sharpness * x) * ndtr(x / SIGMA)

    low = psi(step.low) if step.low > -math.inf else None
    high = psi(step.high)
    with np.errstate(divide="ignore"):
        share = -high if low is None else -high + np.log(-np.expm1(high - low))
    base = (tilt + 1) * ratio - y * y / 2 - sums.log_bracket
    weight = np.exp(base + share) * (step.h / 10) / math.sqrt(math.tau)
    exact = weight @ np.exp(1j * np.multiply.outer(ratio, u))
    error = np.abs(1 + sums.bracket - exact)
    noise = 1e-11 * (1 + weight @ np.abs(np.multiply.outer(ratio, u)))
    assert np.all(error <= sums.bracket_error + noise)


@settings(max_examples=40, deadline=None)
@given(nodes())
def test_the_decay_bound_holds_at_every_height(case: tuple[StepNodes, float]):
    """|F(c + iv)| from the sums is at most the bound for each u <= v (LS-5)."""
    step, tilt = case
    tilts = np.geomspace(tilt / 4, min(1.5 * tilt, step.last_tilt), 5)
    bracket = BracketSum.of((step,), 0.0, tilts)
    c = float(bracket.tilts[-1])
    u = c * np.geomspace(0.3, 300.0, 9)
    bound = bracket.log_decay(c, u)
    heights = np.linspace(0.0, float(u[-1]), 400)
    values = bracket._transform(c, 0.0, heights)
    if values is None:
        return
    phi, error = values
    size = np.log(np.maximum(np.abs(phi) - error, 1e-300))
    for place, most in zip(u, bound, strict=True):
        assert np.all(size[heights >= place] <= most + 1e-9)


TWO = [
    (1.4e-4, 2.5, 0.00096),
    (1e-6, 0.5, 3.0),
    (0.1, 3.0, 0.3),
]


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize(("rate", "sigma", "epsilon"), TWO)
def test_two_steps_hold_the_integral(rate: float, sigma: float, epsilon: float, removed: bool):
    """mpmath's integral with 50 digits lies within, and the interval is narrow."""
    losses = steps((rate, 1 / sigma, 2), removed=removed)
    if epsilon >= float(losses.supremum):
        epsilon = 0.5 * float(losses.supremum)
    low, high = (float(v[0]) for v in LargestStepProfile(losses).log_deltas(np.array([epsilon])))
    exact = float(math.log(exact_delta(rate, sigma, epsilon, removed)))
    assert low <= exact + 1e-12
    assert high >= exact - 1e-12
    if removed or sigma > 1:  # the density of the sum answers for the others
        assert high - low < 1e-6


MANY = [
    ((1e-2, 1.0, 1000), 2.0),
    ((4e-3, 1.25, 14_062), 2.2),
    ((1e-3, 1.0, 100_000), 3.0),
    ((0.1, 0.5, 60), 4.0),
]


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize(("part", "epsilon"), MANY)
def test_many_steps_agree_with_one_line(
    part: tuple[float, float, int], epsilon: float, removed: bool
):
    """Where one line certifies its end, the two engines have the same delta to 1e-6."""
    losses = steps(part, removed=removed)
    at = np.array([epsilon, 1.1 * epsilon])
    one = contour_profile(losses, release=False).log_deltas(at)
    other = LargestStepProfile(losses).log_deltas(at)
    assert np.all(one[1] - one[0] < 1e-6)
    assert np.all(other[1] - other[0] < 1e-6)
    assert np.all(np.maximum(one[0], other[0]) <= np.minimum(one[1], other[1]) + 1e-13)


FEW = st.lists(
    st.tuples(RATES, st.floats(-0.9, 0.3).map(lambda v: 10**v), st.integers(1, 6)),
    min_size=1,
    max_size=2,
)


@settings(max_examples=25, deadline=None)
@given(FEW, st.booleans(), st.floats(0.1, 6.0))
def test_few_steps_agree_with_their_density(
    parts: list[tuple[float, float, int]], removed: bool, times: float
):
    """Intervals of two unrelated certificates always meet."""
    losses = steps(*parts, removed=removed)
    if sum(n for _, n in losses.parts) < 2:
        return
    scale = math.fsum(q * n for q, _, n in parts)
    at = np.array([times * scale * (1.0 if removed else 0.1)])
    one, other = FewStepsProfile(losses).log_deltas(at), LargestStepProfile(losses).log_deltas(at)
    assert one[0][0] <= other[1][0] + 1e-12
    assert other[0][0] <= one[1][0] + 1e-12


def test_a_gaussian_release_beside_the_steps_counts():
    """Against one line, which certifies its end because the Gaussian law does."""
    losses = Composition.of([*steps((1e-3, 1.0, 50)).parts, (GaussianLoss(0.3**2), 1)])
    at = np.array([0.4, 1.0])
    one = contour_profile(losses, release=False).log_deltas(at)
    other = LargestStepProfile(losses).log_deltas(at)
    assert np.all(other[1] - other[0] < 1e-6)
    assert np.all(np.maximum(one[0], other[0]) <= np.minimum(one[1], other[1]) + 1e-13)


@pytest.mark.parametrize("level", [1e-30, 1e-12, 1e-4, 0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("part", [(1e-3, 0.5, 8), (1e-5, 1.0, 300), (0.02, 1.0, 500)])
def test_powers_are_tight_and_have_an_inverse(part: tuple[float, float, int], level: float):
    """The reversed pair rejects where this one misses: its power at 1 - power is 1 - level."""
    losses = steps(part)
    low, high = (float(v[0]) for v in LargestStepProfile(losses).log_powers(np.log([level])))
    least = min(math.exp(high), -math.expm1(low))
    assert math.exp(high) - math.exp(low) <= 1e-6 * least
    if 1e-4 <= level <= 0.9:
        back = LargestStepProfile(losses.reverse()).log_powers(
            np.array([math.log1p(-math.exp(low))])
        )
        assert math.exp(back[0][0]) <= 1 - level + 1e-9
        assert math.exp(back[1][0]) >= 1 - level - 1e-9


def test_hard_corners_of_the_map_are_tight():
    """Points of benchmarks/map.py that were wide, slow, or raised; dp-accounting says 1.84e-4."""
    for rate, sigma, count, delta in (
        (1e-6, 1.0, 5, 1e-12),
        (1.4e-6, 2.8, 636, 1e-13),
        (2.3e-6, 6.4, 60_922, 4e-20),
        (2.2e-6, 0.97, 2543, 1e-29),
        (2.7e-7, 2.5, 138_826, 1e-20),
        (3e-7, 6.0, 10, 1e-25),
    ):
        bound = (ny.Gaussian(sigma).subsample(rate=rate) * count).tradeoff().epsilon(delta)
        assert bound.upper - bound.lower <= 1e-6 * bound.upper, (rate, sigma, count, delta)


def test_log_sum_of_nothing_is_minus_infinity():
    """No warning and no NaN where every term is zero."""
    assert log_sum(np.full((2, 3), -math.inf)).tolist() == [-math.inf, -math.inf]
