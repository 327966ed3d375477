"""Convolution on lattices, and moving atoms onto a grid safely to either side."""

import math
import os
import subprocess
import sys
import tracemalloc
from fractions import Fraction as F

import mpmath
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.curves import LatticeProfile
from neyman.numerics import (
    LEAST_WEIGHT,
    Atoms,
    Discretization,
    added,
    common_step,
    compose,
    contract,
    even_series,
    power,
    series,
    spread,
    wave_sum,
    wave_sums,
)
from neyman.numerics.atoms import convolve
from neyman.numerics.characteristic_function import rounding
from neyman.numerics.decay import _gain

tries = settings(max_examples=60)


def atoms(weights, step=F(1), start=0):
    return Atoms(step, F(0), start, np.array(weights, float))


@tries
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.integers(1, 5),
)
def test_convolution_stays_within_its_stated_error_of_exact_arithmetic(a, b, n):
    result = compose([(atoms(a), n), (atoms(b, start=-3), 1)])
    exact = [F(x) for x in b]
    for _ in range(n):
        product = [F(0)] * (len(exact) + len(a) - 1)
        for i, x in enumerate(exact):
            for j, y in enumerate(a):
                product[i + j] += x * F(y)
        exact = product
    scale = F(math.exp(result.log_scale))  # 1, unless the weights had become tiny
    relative = F(result.relative) + (F(1, 10**13) if scale != 1 else 0)
    for i, truth in enumerate(exact):
        k = i - 3 - result.start
        value = scale * F(float(result.weight[k])) if 0 <= k < len(result) else F(0)
        slack = relative * value + scale * (F(result.absolute) + F(result.tail)) + F(1, 10**300)
        assert abs(value - truth) <= slack


def test_many_terms_are_convolved_with_few_roundings():
    rng = np.random.default_rng(7)
    weights = [rng.random(700) ** 9, rng.random(900) ** 9]
    result = convolve(*(atoms(w) for w in weights))
    one, two = ([F(float(x)) for x in w] for w in weights)
    for k in (0, 1, 350, 699, 700, 1200, len(result) - 1):
        pairs_at = range(max(k - 899, 0), min(k, 699) + 1)
        exact = sum(one[i] * two[k - i] for i in pairs_at)
        assert abs(F(float(result.weight[k])) - exact) <= F(result.relative) * exact
    assert result.relative < 130 * 2.0**-53


def test_a_fourier_convolution_stays_within_its_stated_error():
    rng = np.random.default_rng(1)
    weights = rng.random(9000)
    result = power(atoms(weights), 2)
    assert result.absolute > 0
    direct = np.convolve(weights, weights)
    assert np.max(np.abs(result.weight - direct)) <= result.absolute + 1e-12 * direct.max()


def test_the_common_step_divides_every_step():
    steps = [F(1, 3), F(1, 2), F(5, 7)]
    step = common_step(steps)
    assert all((s / step).denominator == 1 for s in steps)
    assert step == F(1, 42)


def delta(loss, weight, epsilon):
    keep = loss > epsilon
    return float(np.sum(weight[keep] * -np.expm1(epsilon - loss[keep])))


def all_sums(loss, weight, n):
    total, mass = np.zeros(1), np.ones(1)
    for _ in range(n):
        total = np.add.outer(total, loss).ravel()
        mass = np.multiply.outer(mass, weight).ravel()
    return total, mass


pairs = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(1e-6, 1)),
    min_size=1,
    max_size=5,
    unique_by=lambda t: round(t[0], 6),
)


@tries
@given(pairs, st.floats(0.001, 0.9), st.floats(0, 3), st.integers(1, 3), st.floats(-3, 5))
def test_spread_dominates_and_contract_is_dominated_also_after_composition(
    points, step, tilt, n, epsilon
):
    points = sorted(points)
    loss = np.array([x for x, _ in points])
    mass = np.array([w for _, w in points])
    mass /= mass.sum()
    dots = Discretization(loss, mass * np.exp(tilt * loss), tilt, 0.0, 0.0, 0.0)
    truth = delta(*all_sums(loss, mass, n), epsilon)
    for side, sign in ((spread, 1), (contract, -1)):
        moved = side(dots, step)
        places = moved.points()
        p = moved.weight * np.exp(-tilt * places)
        value = delta(*all_sums(places[p > 0], p[p > 0], n), epsilon)
        assert sign * (value - truth) >= -1e-11 * (1 + truth)


@tries
@given(pairs, st.floats(0.001, 0.9))
def test_connecting_the_dots_keeps_both_measures(points, step):
    points = sorted(points)
    loss = np.array([x for x, _ in points])
    mass = np.array([w for _, w in points])
    mass /= mass.sum()
    moved = spread(Discretization(loss, mass, 0.0, 0.0, 0.0, 0.0), step)
    places = moved.points()
    assert float(moved.weight.sum()) == pytest.approx(1, rel=1e-12)
    q = float(np.sum(mass * np.exp(-loss)))
    result = float(np.sum(moved.weight * np.exp(-places)))
    assert result <= q * (1 + 1e-12)
    assert result >= q * (1 - 1e-9)


def test_a_lattice_answers_an_epsilon_beyond_its_largest_loss_with_nothing():
    one = atoms([0.25, 0.75], F(1), 0)
    profile = LatticeProfile(lambda tilt: (one, one), lambda epsilon: 0.0, 0.0, 1.0, "lattice")
    assert profile.log_delta(1.0) == (-math.inf, -math.inf)


def test_a_long_composition_stays_within_memory():
    tracemalloc.start()
    power(atoms([0.5, 0.5]), 10**6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400e6


def test_cells_that_floats_do_not_hold_are_left_out_of_the_lower_side():
    """Under a large tilt e^{-tilt away} overflows: no NaN and no warning, and less mass."""
    loss = np.array([0.0, 0.2, 0.45, 1.0, 1.3, 1.9])
    dots = Discretization(loss, np.full(6, 0.1), 1e4, 0.0, 0.0, 0.0)
    below = contract(dots, 0.25)
    assert np.all(np.isfinite(below.weight))
    assert float(below.weight.sum()) <= 0.6 * (1 + 1e-12)


@pytest.mark.parametrize("moved", [spread, contract])
@pytest.mark.parametrize("number", [2, 100_000])
def test_the_stated_error_covers_small_weights_that_a_sum_loses(moved, number):
    """Next to a weight of 1 each of the others is less than half a float."""
    loss, weight = np.arange(number) * 2.0**-60, np.full(number, 2.0**-54)
    weight[0] = 1.0
    errors = np.linspace(1e-13, 3e-13, number)
    atoms = moved(Discretization(loss, weight, 0.0, 0.0, 0.0, errors), 1.0)
    exact = 1 + (number - 1) * F(1, 2**54)
    lost = exact - sum(map(F, atoms.weight.tolist()))
    assert abs(lost) + F(3e-13) * exact <= F(atoms.relative) * exact
    assert atoms.relative <= 3e-13 + (100 + 2 * number) * 2.0**-53
    assert number == 2 or lost > F(1e-12)


@pytest.mark.parametrize("relative", [0.0, 2.0**-52, 1e-13])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 20), (20, 3)])
def test_sums_of_losses_stay_within_their_stated_error_of_exact_arithmetic(sizes, relative):
    draw = np.random.default_rng(sum(sizes))

    def dots(number):
        loss, weight = np.sort(draw.uniform(-9, 9, number)), draw.uniform(0.01, 1, number)
        weight[1::3] = 1e-170  # whose products are left out
        return Discretization(loss, weight, 0.5, 0.25, 0.25, np.full(number, relative), relative)

    first, second = map(dots, sizes)
    total = added([first, second], 0.5)
    pairs = [
        (F(a) + F(b), F(p) * F(q))
        for a, p in zip(first.loss.tolist(), first.weight.tolist(), strict=True)
        for b, q in zip(second.loss.tolist(), second.weight.tolist(), strict=True)
    ]
    products = sorted(pair for pair in pairs if float(pair[1]) > LEAST_WEIGHT)
    assert total.log_scale == 0.5
    assert len(products) == len(total.loss)
    most = 1 + F(relative)
    spread_out = zip(
        products, total.loss.tolist(), total.weight.tolist(), total.relative, strict=True
    )
    for (place, mass), at, weight, error in spread_out:
        assert abs(F(at) - place) + 2 * F(relative) <= F(total.place)
        for true in (mass * most * most, mass * (2 - most) ** 2):
            assert abs(F(weight) - true) <= F(float(error)) * F(weight)
    sums = [sum(map(F, d.weight.tolist())) for d in (first, second)]
    lost = sum(mass for _, mass in pairs if float(mass) <= LEAST_WEIGHT)
    assert np.all(total.relative <= 2 * relative + 2.5 * 2.0**-53)  # with the common factor's
    exact = lost + F(1, 4) * (sums[0] + sums[1] + F(1, 4))
    assert exact <= F(total.tail) <= exact * (1 + F(1, 10**8)) + 99 * F(LEAST_WEIGHT)


@pytest.mark.parametrize(
    ("size", "start", "step", "count"),
    [(40, 0.3, 1e-3, 9000), (2000, -1.2, 5e-6, 10_000), (300, 2.0, -3e-4, 1), (2, 0.0, 0.1, 50)],
)
def test_a_sum_at_even_angles_errs_by_at_most_its_bound(size, start, step, count):
    rng = np.random.default_rng(3)
    weight = (rng.normal(size=size) + 1j * rng.normal(size=size)) / np.arange(1, size + 1)
    sums, error = even_series(weight, start, step, count)
    assert sums.shape == error.shape == (count,)
    assert error.max() < 1e-9
    with mpmath.workdps(30):
        for j in {0, count // 3, count - 1}:
            angle = mpmath.mpf(start) + j * mpmath.mpf(step)
            wave, truth = mpmath.expj(-angle), mpmath.mpc(0)
            for w in weight[::-1]:
                truth = truth * wave + mpmath.mpc(w)
            assert abs(truth - mpmath.mpc(sums[j])) <= error[j]


def test_many_even_epsilons_have_the_bounds_of_single_ones():
    f = (ny.DiscreteGaussian(sigma=3) * 5 + ny.Laplace(scale=20)).tradeoff()
    profile = f.profiles[0]
    epsilons = np.arange(4000) * 1e-3
    low, high = profile.log_deltas(epsilons)
    assert np.all(high - low < 1e-3)
    for k in (0, 1234, 3999):
        below, above = profile.log_delta(float(epsilons[k]))
        assert low[k] <= above
        assert below <= high[k]


_THREADS = """
import time
import numpy as np
from neyman.numerics import characteristic_function as waves
draw = np.random.default_rng(1)
time.sleep(0.5)  # new threads wait for a while
for rows, terms, columns in ((1, 600, 600), (8, 128, 128), (200, 128, 128), (66, 130, 127)):
    left = draw.normal(size=(rows, terms)) + 1j
    right = (draw.normal(size=(columns, terms)) + 1j).T
    own, every = time.thread_time(), time.process_time()
    product = waves._product(left, right)
    time.sleep(0.1)  # threads that wait for the next product would run
    own, every = time.thread_time() - own, time.process_time() - every
    assert np.allclose(product, np.einsum("ij,jk->ik", left, right))
    assert every - own < 0.01, (rows, terms, columns, every - own)
"""


def test_small_products_are_not_shared_among_threads():
    """Threads of BLAS that wait at full load took nine tenths of a receipt's CPU time."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", _THREADS], check=True, env=env)


def test_waves_and_series_are_their_sums():
    rng = np.random.default_rng(5)
    place, weight = rng.normal(size=40), rng.random(40) / 40
    u = 0.37 * np.arange(5000)
    with mp.workdps(40):
        for k in (1, 777, 4999):
            truth = mp.fsum(
                mp.mpf(w) * (mp.expj(mp.mpf(0.37) * k * mp.mpf(x)) - 1)
                for w, x in zip(weight, place, strict=True)
            )
            result = wave_sum(place, weight, u)[k]
            assert abs(truth - complex(result)) <= rounding(place, weight, u)[k]
            several = wave_sums(np.array([0 * place, place]), np.array([weight, weight]), u)[:, k]
            assert several[0] == 0
            assert abs(truth - complex(several[1])) <= rounding(place, weight, u)[k]
    angle = rng.normal(size=30)
    coefficients = rng.normal(size=300) + 1j * rng.normal(size=300)
    direct = np.exp(np.multiply.outer(angle, -1j * np.arange(300))) @ coefficients
    assert np.abs(series(coefficients, angle) - direct).max() < 1e-10


def test_mass_at_one_place_loses_nothing_whatever_rounding_has_added():
    """Mass 1 at 1/2 in a cell of width 1; its second moment errs by less than the slack."""
    sums = np.array([[1.0], [0.5], [0.25 + 1e-11]])
    assert _gain(sums, np.ones(1), 1e-10, 1.0, 1.5).tolist() == [0]
    sums[2] = 0.3
    assert _gain(sums, np.ones(1), 1e-10, 1.0, 1.5) > 0
