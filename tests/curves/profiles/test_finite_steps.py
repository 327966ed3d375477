"""Discrete noise on samples: lists of sums and lines that are finite sums, against own sums."""

import math
import warnings
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import neyman as ny
import reference as ref
from neyman.curves import OffLatticeLoss, select
from neyman.curves.losses.change_of_measure import Base
from neyman.curves.losses.subsampled import _lost
from neyman.curves.profiles.sampled_steps.finite_steps import (
    Bracket,
    FiniteStepsProfile,
    finite_steps_profile,
    majorant,
)
from neyman.curves.profiles.sampled_steps.likely_sums import Listing, values_of


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
    ],
)
def test_few_steps_agree_with_all_ways_in_forty_digits(sigma, rate, steps, epsilon, removed):
    with mpmath.workdps(40):
        law = _law(sigma, rate, removed=removed)
        truth = float(mpmath.log(ref.delta(ref.together(*[law] * steps), epsilon)))
    low, high = select(_composition(sigma, rate, steps, removed=removed)).log_delta(epsilon)
    assert low <= truth + 1e-13 * abs(truth)
    assert truth <= high + 1e-13 * abs(truth)
    assert high - low < 1e-9


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
    assert high - low < 3e-9


def test_lists_and_lines_of_the_same_sum_overlap():
    losses = _composition("1", 1e-3, 12, removed=True)
    profile = FiniteStepsProfile(losses)
    listed = profile._line(0.05)
    assert isinstance(listed, Listing)
    profile._few = False
    lines = profile._line(0.05)
    assert lines is not None
    assert not isinstance(lines, Listing)
    (a, b), (c, d) = (x.log_delta(np.array([0.05])) for x in (listed, lines))
    assert a[0] <= d[0]
    assert c[0] <= b[0]
    assert d[0] - c[0] < 1e-4


def test_the_brackets_of_a_split_add_up_to_the_whole_sum():
    losses = _composition("1", 1e-3, 50, removed=True)
    profile = finite_steps_profile(losses)
    levels = profile._levels
    tilts = np.geomspace(0.1, 3.0, 8)
    total = Bracket(losses.parts, -math.inf, levels[-2], tilts).log_f[0]
    parts = [Bracket(losses.parts, -math.inf, levels[0], tilts).log_f[0]]
    parts += [Bracket(losses.parts, a, b, tilts).log_f[0] for a, b in pairwise(levels)]
    together = np.logaddexp.reduce(parts)
    assert np.all(together >= total - 1e-9)  # each part is at most what it says
    assert np.all(together <= total + math.log(2))


@pytest.mark.parametrize(("alpha", "count"), [(0.0, 8), (0.0, 9), (1e-9, 5), (0.2, 6), (0.6, 31)])
def test_the_majorant_is_above_the_transform_and_positive_definite(alpha, count):
    generator = np.random.default_rng(5)
    place, weight = generator.uniform(-1, 1, 6), generator.uniform(0, 1, 6)
    weight *= (1 - alpha) / weight.sum()
    u = 0.37 * np.arange(400)
    waves = np.exp(1j * np.multiply.outer(u, place)) @ weight
    bound = majorant([np.abs(waves)], [alpha], [count])
    chi = np.abs(waves)
    above = chi**count * (np.expm1(count * np.log1p(alpha / chi)) if alpha else 1.0)
    scale = -math.expm1(count * math.log1p(-alpha)) if alpha else 1.0
    assert np.all(bound >= above / scale * (1 - 1e-9))
    # A positive definite sequence: windows anywhere have at most the mean of the one around 0.
    window = 1 - np.abs(np.arange(-39, 40)) / 40
    middle = np.concatenate([bound[39:0:-1], bound])  # from -39 on
    first = float(middle[:79] @ window)
    sums = np.convolve(bound, window, "valid")
    assert np.all(sums <= first * (1 + 1e-9))


def test_what_is_not_listed_of_the_noise_counts():
    values = values_of(_composition("2", 1e-3, 1, removed=True).parts[0][0])
    tilt = np.array([3.0])
    with mpmath.workdps(40):
        law = _law("2", 1e-3, removed=True, least="1e-400")
        top = mpf(float(values.place[-1])) * (1 + mpf("1e-9"))
        beyond = float(mpmath.fsum(p * mpmath.exp(3 * x) for x, p in law.items() if x > top))
    missing = float(values.left_out(tilt, -math.inf, math.inf)[0])
    assert beyond <= missing < 1e-140


def test_rounded_gaussians_on_samples_lie_below_the_gaussian_step():
    rounded = (ny.RoundedGaussian(2).subsample(rate=1e-3) * 100).tradeoff()
    normal = (ny.Gaussian(2).subsample(rate=1e-3) * 100).tradeoff()
    for delta in (1e-3, 1e-6):
        bound, known = rounded.epsilon(delta), normal.epsilon(delta)
        assert 0.9 * known.lower < bound.lower <= bound.upper <= known.upper * (1 + 1e-12)


@pytest.mark.parametrize("failure", [0.0, 4e-17, 6e-17, 1.5e-10])
@pytest.mark.parametrize("tilt", [1e-5, 0.1, 5.0])
def test_a_mass_that_is_missing_counts_where_it_is_below_a_unit_of_one(failure, tilt):
    """K near 0 within its error: a failure of 6e-17 is not a multiple of a unit of 1."""
    with mpmath.workdps(50):
        places = (-0.5, -0.1, 0.0, 0.1, 0.8)
        first = [mpf("0.1"), mpf("0.25"), mpf("0.35")]
        p = [q * mpmath.exp(v) for q, v in zip(first, places, strict=False)]
        # The last two masses of Q, so that both laws have their sums.
        one, other = mpmath.exp(places[3]), mpmath.exp(places[4])
        rest_q, rest_p = 1 - sum(first), 1 - mpf(failure) - sum(p)
        last = (rest_p - rest_q * one) / (other - one)
        p += [(rest_q - last) * one, last * other]
        loss = OffLatticeLoss(places, tuple(float(mpmath.log(x)) for x in p), failure=failure)
        values = values_of(loss)
        k, error, _ = values.log_mgf(np.array([tilt]), -math.inf, math.inf)
        truth = mpmath.log(
            sum(x * mpmath.exp(mpf(tilt) * v) for x, v in zip(p, places, strict=True))
        )
        assert abs(mpf(float(k[0])) - truth) <= float(error[0])
        assert error[0] <= 1e-14 * tilt + 1e-3 * failure + 1e-25


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
