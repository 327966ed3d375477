"""Discrete noise on samples: lines of finite sums and their brackets, against own sums."""

import math
import warnings

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import neyman as ny
import reference as ref
from neyman.curves import select
from neyman.curves.losses.change_of_measure import Base
from neyman.curves.losses.subsampled import _lost
from neyman.curves.profiles.contour.finite_sums import FiniteSum


def _law(sigma, rate, *, removed, least="1e-60"):
    """{loss: mass} of a step with a shift of 1, by its formulas in 40 digits."""
    variance, q, reach = mpf(sigma) ** 2, mpf(rate), int(30 * float(sigma)) + 7
    weights = {x: mpmath.exp(-(mpf(x) ** 2) / (2 * variance)) for x in range(-reach, reach + 2)}
    total, law = mpmath.fsum(weights.values()), {}
    for x, weight in weights.items():
        ratio = 1 - q + q * mpmath.exp((mpf(x) - mpf(1) / 2) / variance)
        loss, mass = mpmath.log(ratio), weight / total
        law[loss if removed else -loss] = mass * ratio if removed else mass
    return {loss: p for loss, p in law.items() if p >= mpf(least)}


def _composition(sigma, rate, steps, *, removed):
    losses = (ny.DiscreteGaussian(sigma).subsample(rate=rate) * steps).losses()[0]
    return losses if removed else losses.reverse()


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "epsilon", "removed"),
    [
        ("1.01", 1.01e-6, 2, 1.6e-6, False),
        ("2", 1e-5, 2, 1.2e-4, True),
        ("0.4", 1e-2, 3, 5.0, True),
        ("0.7", 0.3, 3, 0.9, False),
        ("1", 1e-5, 3, 2e-3, True),
        ("0.35", 2e-4, 3, 30.0, True),
        ("0.3", 0.01, 2, 95.0, True),  # under its tilt, unlikely values have all mass
        ("0.05", 0.01, 2, 1388.25, True),  # their masses under P are below the floats
        ("0.5", 1e-9, 2, 0.1, True),
    ],
)
def test_few_steps_agree_with_all_ways_in_forty_digits(sigma, rate, steps, epsilon, removed):
    with mpmath.workdps(40):
        law = _law(sigma, rate, removed=removed, least="1e-1000")
        truth = float(mpmath.log(ref.delta(ref.together(*[law] * steps), epsilon)))
    low, high = select(_composition(sigma, rate, steps, removed=removed)).log_delta(epsilon)
    assert low <= truth + 1e-13 * abs(truth)
    assert truth <= high + 1e-13 * abs(truth)
    assert high - low < 1e-6


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "epsilon", "removed"),
    [
        ("1.4", 0.096, 17334, 93.14, True),
        ("3.06", 0.0115, 20859, 0.561, True),
        ("2.13", 0.00577, 41818, 2.377, False),
        ("4.37", 0.000707, 500, 0.0113, True),
    ],
)
def test_many_steps_agree_with_a_sum_in_long_double(sigma, rate, steps, epsilon, removed):
    with mpmath.workdps(30):
        law = _law(sigma, rate, removed=removed, least="1e-25")
    truth = ref.log_on_a_line([*law], [*law.values()], steps, epsilon)
    low, high = select(_composition(sigma, rate, steps, removed=removed)).log_delta(epsilon)
    assert low - 1e-12 * abs(truth) <= truth <= high + 1e-12 * abs(truth)
    assert high - low < 3e-8


def _sums(law, count, low, high):
    """The law of sums of which no term is above ``high``, less those without one above ``low``."""

    def up_to(level):
        cut = {loss: p for loss, p in law.items() if loss <= level}
        return ref.together(*[cut] * count) if cut else {}

    total = dict(up_to(high))
    for loss, p in up_to(low).items():
        total[loss] -= p
    return {loss: p for loss, p in total.items() if p}


@pytest.mark.parametrize(("low", "high"), [(-math.inf, 0.5), (0.0, 0.5), (0.1, 20.0)])
@pytest.mark.parametrize("tilt", [0.5, 3.0])
def test_the_transform_of_a_bracket_is_that_of_its_sums(low, high, tilt):
    """Its moments, too, and its ends bound what the nodes beyond them add."""
    losses = _composition("0.5", 0.01, 3, removed=True)
    bracket = FiniteSum(losses, low, high)
    u = 0.7 * np.arange(40)
    log_f, error = bracket.mgf(tilt + 1j * u)
    k, mean, variance = (float(v[0]) for v in bracket.moments(np.array([tilt])))
    with mpmath.workdps(40):
        sums = _sums(_law("0.5", 0.01, removed=True), 3, low, high)
        tilted = {x: p * mpmath.exp(tilt * x) for x, p in sums.items()}
        total = mpmath.fsum(tilted.values())
        away = mpmath.fsum(p * x for x, p in tilted.items()) / total
        square = mpmath.fsum(p * (x - away) ** 2 for x, p in tilted.items()) / total
        for height, value, wrong in zip(u[::13], log_f[::13], error[::13], strict=True):
            f = mpmath.fsum(p * mpmath.expj(float(height) * x) for x, p in tilted.items())
            assert abs(f - mpmath.exp(mpmath.mpc(value))) <= float(wrong) * total
    assert np.all(error < 1e-10)
    assert (k, mean, variance) == pytest.approx(
        (float(mpmath.log(total)), float(away), float(square)), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("steps", [40, 41])
@pytest.mark.parametrize(("low", "high"), [(-math.inf, math.inf), (-math.inf, 0.1), (0.02, 1.0)])
def test_what_the_nodes_beyond_an_end_add_is_at_most_its_bound(low, high, steps):
    """The first 200,000 of them, and the bound is within a factor of e^20 of their sum."""
    bracket, tilt, step = (
        FiniteSum(_composition("1", 0.01, steps, removed=True), low, high),
        2.0,
        0.4,
    )
    end = bracket.end(tilt, 12.0, step)
    assert end is not None
    height, log_rest = end
    u = step * np.arange(200_000)
    log_f = np.real(bracket.mgf(tilt + 1j * u)[0])
    sizes = np.exp(log_f - log_f[0]) * step / math.pi / np.maximum(u, step) ** 2
    beyond = float(sizes[u > height].sum())
    assert beyond <= math.exp(log_rest)
    assert math.log(beyond) > log_rest - 20


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(1e-3, 100, 0.08), (2e-5, 3000, 0.003)])
def test_rare_large_losses_are_split_off(rate, steps, epsilon):
    """One line is wide there. The second reference is the same sum in long double."""
    with mpmath.workdps(30):
        law = _law("1", rate, removed=True, least="1e-30")
    truth = ref.log_on_a_line([*law], [*law.values()], steps, epsilon)
    low, high = select(_composition("1", rate, steps, removed=True)).log_delta(epsilon)
    assert low - 1e-9 <= truth <= high + 1e-9
    assert high - low < 1e-5


def test_rates_of_a_billionth_are_narrow():
    f = (ny.DiscreteGaussian("0.5").subsample(rate=1e-9) * 1000).tradeoff()
    delta = f.delta(0.1)
    assert 1.4e-28 < delta.lower <= delta.upper < 1.0001 * delta.lower < 1.6e-28


def test_two_values_on_a_sample_are_listed():
    f = (ny.DiscreteLaplace(1).subsample(rate=1e-2) * 1000).tradeoff()
    power = f.power(0.01)
    assert power.upper - power.lower < 1e-12


def test_rounded_gaussians_on_samples_lie_below_the_gaussian_step():
    rounded = (ny.RoundedGaussian(2).subsample(rate=1e-3) * 100).tradeoff()
    normal = (ny.Gaussian(2).subsample(rate=1e-3) * 100).tradeoff()
    for delta in (1e-3, 1e-6):
        bound, known = rounded.epsilon(delta), normal.epsilon(delta)
        assert 0.9 * known.lower < bound.lower <= bound.upper <= known.upper * (1 + 1e-12)


def test_a_power_of_the_largest_loss_allows_for_a_supremum_that_is_rounded_up():
    """A test rejects both largest losses: log power is the log level plus twice the largest."""
    rate, log_level = 0.9941172641561944, math.log(7e-8)
    losses = (ny.DiscreteLaplace(2, sensitivity=9).subsample(rate=rate) * 2).losses()[0]
    with mpmath.workdps(40):
        truth = mpf(log_level) + 2 * mpmath.log1p(mpf(rate) * mpmath.expm1(mpf(9) / 2))
        low, high = select(losses).log_power(log_level)
        assert low <= truth <= high
    assert high - low < 1e-12


def test_a_number_of_lists_beyond_the_largest_float_is_too_many():
    steps = ny.DiscreteGaussian(27.42).subsample(size=6221, population=230_700_000) * 204_900
    with np.errstate(over="raise"):
        assert steps.tradeoff().epsilon(log_delta=-7.634).upper == 0


def test_a_bracket_that_nearly_all_steps_reach_has_no_majorant_and_warns_of_nothing():
    """Its bound leaves the floats where a share near 1 has the power of many steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = (ny.DiscreteGaussian(0.08809).subsample(rate=6.341e-07) * 2576).tradeoff()
        power = f.power(0.5605258543837365)
    assert 0.5605 < power.lower <= power.upper < 0.58


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("left_out", [(-1.0, -40.0, -3.0, 2.0), (2.0, -30.0, 0.5, 6.0)])
def test_what_a_lattice_leaves_out_counts_as_much_as_at_any_place_of_its_interval(left_out, up):
    """Mass e^(a - (t + 1) l) at a loss l, of which the sample makes g = log(1 - q + q e^l)."""
    q, (t, a, low, high) = 0.1, left_out
    points = _lost(Base(np.empty(0), np.empty(0), lost=(left_out,)), q, up, -math.inf)
    for c in (0.0, 0.5, 2.0):
        counted = math.fsum(math.exp(mass + c * place) for mass, place in points)
        for l in np.linspace(low, high, 30):  # noqa: E741
            g = math.log1p(q * math.expm1(l))
            assert math.exp(a - (t + 1) * l + ((c + 1) * g if up else -c * g)) <= counted * 1.001
