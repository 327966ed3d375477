"""Groups: closed forms, iterated powers in fractions, and actual chains of people."""

import math
from fractions import Fraction as F
from itertools import pairwise

import exact_polygons as cv
import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
import reference as ref
from neyman import Tradeoff

LEVELS = [1e-9, 0.03, 0.11, 0.25, 0.5, 0.7, 0.95]


def test_named_curves_stay_what_they_are():
    assert ny.compare(ny.gdp(0.5).group(4), ny.gdp(2)) == "equal"
    assert ny.compare(ny.pure("1/3").group(6), ny.pure(2)) == "equal"
    assert ny.zcdp("0.01").group(10) == ny.zcdp(1)
    assert ny.perfect().group(7) == ny.perfect()
    assert ny.approximate(0, 0.25).group(3) == ny.approximate(0, 0.75)
    assert ny.approximate(0, 0.25).group(4).power(0).lower > 1 - 1e-15
    assert ny.gdp(0.5).group(1) == ny.gdp(0.5)


def test_bare_guarantees_stay_bare():
    f = ny.zcdp("0.01").group(3)
    assert f.bare_rho() == F(9, 100)
    assert (f**2).bare_rho() == F(18, 100)


def test_a_curve_of_one_order_says_nothing_of_two_steps():
    f = ny.from_points([0, 0.2, 1], [0.9, 0.5, 0])
    assert f.mutual().group(2).power(0.1).upper <= f.symmetric().group(2).power(0.1).upper


@settings(max_examples=40)
@given(cv.curves(), st.integers(2, 5))
def test_powers_are_iterated_exactly(corners, size):
    hull = cv.smallest(corners)
    f = ny.from_points([x for x, _ in corners], [y for _, y in corners]).symmetric().group(size)
    for level in LEVELS:
        x = F(level)
        for _ in range(size):
            x = 1 - cv.value(hull, x)
        power = f.power(level)
        assert ref.holds(power, ref.exact(x)), (level, float(x))


@pytest.mark.parametrize(("epsilon", "delta", "size"), [("1/10", 1e-5, 5), ("1/1000", 1e-9, 1000)])
def test_an_approximate_guarantee_of_a_group(epsilon, delta, size):
    """At k epsilon delta is (e^{k epsilon} - 1) / (e^epsilon - 1) times as much."""
    e = ref.exact(F(epsilon))
    known = delta * float(mpmath.expm1(size * e) / mpmath.expm1(e))
    bound = ny.approximate(epsilon, delta).group(size).delta(float(size * e))
    assert bound.lower <= known * (1 + 1e-9)
    assert known * (1 - 1e-9) <= bound.upper <= known * (1 + 1e-6)


def clipped_geometric(center, size, ratio):
    ends = [ratio ** abs(x - center) / (1 + ratio) for x in range(size + 1)]
    return [p * (1 - ratio) if 0 < x < size else p for x, p in enumerate(ends)]


def test_actual_chains_of_people_never_exceed_the_group():
    """A clipped noisy count, and randomized response on top of it: all distributions, all pairs."""
    laws = [clipped_geometric(i, 5, F(1, 2)) for i in range(6)]
    laws = [
        [F(7, 8) * a + F(1, 8) * (j == (3 * i) % 6) for j, a in enumerate(law)]
        for i, law in enumerate(laws)
    ]
    assert all(sum(law) == 1 for law in laws)
    steps = [ny.between(a, b).alternatives[0] for a, b in pairwise(laws)]
    for size in (2, 3, 4):
        f = Tradeoff.of(steps).group(size)
        for i in range(6 - size):
            for p, q in ((laws[i], laws[i + size]), (laws[i + size], laws[i])):
                for level in LEVELS:
                    assert cv.power(p, q, F(level)) <= F(f.power(level).upper)


def test_two_records_of_a_sampled_gaussian_never_exceed_the_group():
    rate, sigma = 0.1, 0.8
    f = ny.Gaussian(sigma).subsample(rate=rate).tradeoff().group(2)
    shares = [(1 - rate) ** 2, 2 * rate * (1 - rate), rate**2]
    pair = ny.GaussianMixture(sigma, [0, 1, 2], shares).tradeoff()
    for level in (1e-12, 1e-6, 0.01, 0.3, 0.9):
        assert pair.power(level).lower <= f.power(level).upper
        assert f.power(level).width <= 1e-3 * f.power(level).upper
    for epsilon in (0.0, 1.0, 3.0):
        assert pair.delta(epsilon).lower <= f.delta(epsilon).upper


def exact_powers(sigma_squared, shift, count, levels):
    """Powers of ``count`` discrete Gaussian releases, with masses of 100 digits.

    A test rejects if the sum of the noise is at least some k. Under P it is moved by shift count.
    """
    unit = 10**100
    with mpmath.workdps(110):
        reach = math.ceil(26 * math.sqrt(sigma_squared))
        one = [
            mpmath.exp(-mpmath.mpf(k * k) / (2 * mpmath.mpf(sigma_squared)))
            for k in range(-reach, reach + 1)
        ]
        total = mpmath.fsum(one)
        one = [int(mass / total * unit) for mass in one]
    mass = [unit]
    for _ in range(count):
        longer = [0] * (len(mass) + len(one) - 1)
        for k, x in enumerate(mass):
            for j, y in enumerate(one):
                longer[k + j] += x * y
        mass = [x // unit for x in longer]
    moved = shift * count
    pairs = zip([*mass, *[0] * moved], [*[0] * moved, *mass], strict=True)
    corners = [(F(0), F(0))]
    for q, p in reversed([*pairs]):
        corners.append((corners[-1][0] + F(q, unit), corners[-1][1] + F(p, unit)))
    for level in levels:
        left, right = next(
            (a, b) for a, b in pairwise(corners) if a[0] <= level <= b[0] and a[0] < b[0]
        )
        yield left[1] + (right[1] - left[1]) * (level - left[0]) / (right[0] - left[0])


@pytest.mark.parametrize(
    ("sigma", "shift", "count"),
    [("2", 3, 5), ("0.7", 2, 8), ("1", 2, 5), ("0.5", 1, 2), ("1", 1, 3)],
)
def test_a_pair_of_people_in_noise_on_integers_has_the_exact_power(sigma, shift, count):
    """The mass beyond both tables of atoms is of any size, and not a difference of sums."""
    f = (ny.DiscreteGaussian(sigma, sensitivity=shift) * count).tradeoff().group(2)
    levels = [F(1, 10**3), F(1, 10**12), F(1, 10**20), F(1, 10**40), F(1, 10**60)]
    powers = [*exact_powers(float(sigma) ** 2, shift, count, levels)]
    for level, truth in zip(
        levels, exact_powers(float(sigma) ** 2, shift, count, powers), strict=True
    ):
        power = f.power(float(level))
        assert F(power.lower) <= truth * (1 + F(1, 10**15)) + F(1, 10**85)
        assert truth <= F(power.upper) * (1 + F(1, 10**15)) + F(1, 10**85)
        assert power.upper - power.lower <= 1e-10 * power.upper


def test_laplace_noise_is_closed_under_steps_of_the_same_length():
    curve, known = ny.Laplace(2).tradeoff().group(3), ny.Laplace(2, 3).tradeoff()
    for level in LEVELS:
        assert ref.meet(curve.power(level), known.power(level))
        assert curve.power(level).upper == pytest.approx(known.power(level).upper, rel=1e-4)
    assert curve.pure().upper == pytest.approx(1.5, rel=1e-9)


POINTS = ny.from_points([0, 0.2, 0.5, 1], [0.9, 0.5, 0.2, 0]).mutual()


@pytest.mark.parametrize("f", [ny.gdp(1), ny.pure(1), ny.zcdp(1), ny.approximate(1, 1e-6), POINTS])
def test_huge_groups_hide_nothing(f):
    for size in (10**6, 10**40):
        g = f.group(size)
        assert g.delta(1).upper == g.power(1e-6).upper == 1
    assert (g @ ny.gdp(1)).power(0.01).upper == (g @ g).delta(0.1).upper == 1


def test_groups_grow():
    f = (ny.RandomizedResponse(0.3, categories=3) * 2).tradeoff()
    for level in LEVELS:
        powers = [f.group(size).power(level) for size in (1, 2, 3)]
        assert all(small.lower <= large.upper for small, large in pairwise(powers))


@pytest.mark.parametrize(
    ("mechanism", "size"),
    [
        (ny.Laplace(1), 60),
        (ny.DiscreteLaplace(F(3017, 16384)) * 200, 2),
        (ny.Laplace(2) + ny.RandomizedResponse(3), 40),
        (ny.DiscreteLaplace(F(1, 40)), 100),
    ],
)
def test_a_group_of_a_pure_mechanism_stays_pure(mechanism, size):
    """No end is infinite: size times the largest loss holds at every delta."""
    f = mechanism.tradeoff()
    most = size * f.exact_pure()
    for delta in (0.0, 1e-300, 1e-6, 0.0115):
        epsilon = f.group(size).epsilon(delta)
        assert epsilon.lower <= most
        assert epsilon.upper <= float(most) * (1 + 1e-9)
