"""Bounds of curves and losses hold exact numbers, and would not without their slacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import mpmath
import numpy as np
from mpmath import mpf

import neyman as ny
from neyman import Tradeoff
from neyman.curves import (
    Composition,
    Interval,
    LaplaceLoss,
    OffLatticeLoss,
    Polygon,
    hull,
    pbdp_delta,
)
from neyman.curves.tradeoff.enclosure import _by_values, _down, _half, _last_corner, _Places, _up
from neyman.curves.tradeoff.float_polygon import after_rounded
from neyman.curves.tradeoff.loss_tails import _laplace_tails, _normal_tails
from neyman.curves.tradeoff.loss_variable import _chords, _complementary, _variance_by_moments
from neyman.curves.tradeoff.piecewise_linear import after, rounded
from neyman.curves.tradeoff.queries import epsilon_at, settled
from neyman.curves.tradeoff.symmetry import conjugate
from neyman.numerics import Array
from slacks import Known, Perfect, held, needed, numbers


@needed
def test_a_level_whose_logarithm_is_rounded() -> Iterator[bool]:
    for (y,) in numbers(1, 100, (-700.0, -1e-3)):
        level = math.exp(y)
        yield held(settled(math.log(level), -math.inf, -math.inf), mpmath.log(level))


@needed
def test_the_mass_of_infinite_losses_is_what_is_left_far_out() -> Iterator[bool]:
    for (y,) in numbers(2, 40, (-700.0, -1.0)):
        delta = math.exp(y)
        yield held(ny.approximate(1, delta).log_delta(2e12), mpmath.log(delta))


@needed
def test_no_epsilon_is_enough_only_if_the_infinite_losses_exceed_delta() -> Iterator[bool]:
    for y, n in numbers(3, 40, (-3.0, -0.1), (2, 9)):
        mass, count = math.exp(y), int(n)
        exact = mpmath.log(1 - (1 - mpf(mass)) ** count)
        near = float(exact)
        target = near if near >= exact else math.nextafter(near, 0.0)
        yield (ny.approximate(1, mass) ** count).epsilon(log_delta=target).lower < math.inf


@needed
def test_the_conjugate_of_a_curve() -> Iterator[bool]:
    steep = numbers(4, 40, (-9.0, -1.1), (9.0, 90.0), (1e-3, 3.0))
    for slope, fall, below in (*steep, *numbers(5, 80, (-9.0, -1.1), (0, 1e-9), (1e-3, 9.0))):
        profile = Known(fall * math.log(-slope) - below, fall)
        answer = conjugate(cast("Tradeoff", SimpleNamespace(profiles=[profile], method="")), slope)
        log_delta = profile.start - fall * mpmath.log(-mpf(slope))
        yield answer.lower <= mpmath.expm1(log_delta) <= answer.upper


@needed
def test_a_probability_from_the_rest() -> Iterator[bool]:
    for (y,) in numbers(5, 60, (-45.0, 0.0)):
        rest = math.exp(y)
        yield held(_complementary((0.0, 1.0), (rest, rest)), 1 - mpf(rest))


@needed
def test_the_mass_of_infinite_losses() -> Iterator[bool]:
    for y, n in numbers(6, 40, (-30.0, -0.1), (2, 9)):
        mass, count = math.exp(y), int(n)
        yield held((ny.approximate(1, mass) ** count).loss.infinite, 1 - (1 - mpf(mass)) ** count)


class Cliff(Known):
    """delta = 1 up to a place, from which on it falls at once."""

    def log_delta(self, epsilon: float) -> Interval:
        return (0.0, 0.0) if epsilon <= self.start else (-math.inf, -1000.0)


@needed
def test_the_slope_of_a_profile_between_its_chords() -> Iterator[bool]:
    lengths = 0.23 * 2.0 ** np.arange(-18.0, 1.0)
    for (x,) in numbers(7, 60, (-9.0, -0.3)):
        delta, slope = _chords(Perfect(0, 0), x, lengths)
        yield delta[0] <= -mpmath.expm1(x) <= delta[1]
        yield slope[0] <= mpmath.exp(x) <= slope[1]
        left = x - float(lengths[-1])
        most = (1 - mpmath.exp(-2000)) / -mpmath.expm1(mpf(left) - x)
        yield _chords(Cliff(left, 0), x, lengths)[1][1] >= most


@needed
def test_an_epsilon_where_delta_hardly_falls() -> Iterator[bool]:
    for y, more in numbers(8, 60, (-600.0, -10.0), (1e-7, 1e-6)):
        delta = math.exp(y)
        profile = Known(math.log(delta) * (1 - more), 2.0**-20)
        yield held(
            epsilon_at(profile, math.log(delta), math.inf),
            (profile.start - mpmath.log(delta)) * 2**20,
        )


@needed
def test_another_pair_has_no_larger_power_there() -> Iterator[bool]:
    for start, epsilon in numbers(9, 60, (-9.0, -1.0), (1e4, 1e6)):
        known = math.exp(start)
        known = math.nextafter(known, 0.0) if mpmath.log(known) > start else known
        yield pbdp_delta(Known(start, 0.0), epsilon, known)[1] >= mpmath.exp(start)


class Coin:
    """A loss of m + 1 or m - 1 with equal chances: K(z) = m z + log cosh z."""

    def __init__(self, middle: float) -> None:
        self.middle, self.parts = middle, [(self, 1)]

    def moments(self, tilts: Array) -> tuple[Array, Array, Array]:
        return tilts, tilts, np.ones(1)

    def log_mgf(self, z: Array) -> Array:
        exact = [mpf(self.middle) * v + mpmath.log(mpmath.cosh(v)) for v in z.tolist()]
        return np.array([float(v) for v in exact])

    def mgf_rounding(self, z: Array) -> Array:
        return np.zeros(len(z))


@needed
def test_a_variance_from_k_at_small_orders() -> Iterator[bool]:
    for (middle,) in numbers(10, 20, (-900.0, 900.0)):
        coin = cast("Composition", Coin(middle))
        yield held(_variance_by_moments(coin, (middle, middle)), 1)


@needed
def test_the_tails_of_a_normal_loss() -> Iterator[bool]:
    wide = (0.1, 30.0), (-8.0, 36.0)
    for mu, z in (*numbers(13, 60, *wide), *numbers(14, 60, (1e-3, 1), (-1, 1))):
        x = mu * (z + 0.5 * mu)
        for sign, (beyond, below) in zip((1, -1), _normal_tails(mu, x), strict=True):
            v = mpf(x) / mpf(mu) - sign * mpf(mu) / 2
            yield beyond[0] <= mpmath.ncdf(-v) <= beyond[1]
            yield below[0] <= mpmath.ncdf(v) <= below[1]


@needed
def test_the_tails_of_a_laplace_loss() -> Iterator[bool]:
    for a, share in numbers(15, 200, (0.01, 9.0), (-1.0, 1.0)):
        loss = LaplaceLoss(Fraction(a).limit_denominator(100))
        epsilon = mpf(loss.exact_epsilon.numerator) / loss.exact_epsilon.denominator
        x = share * a
        if abs(x) < epsilon:
            (beyond, below), (_, null) = _laplace_tails(loss, x)
            exact = mpmath.exp((x - epsilon) / 2) / 2
            yield below[0] <= exact <= below[1]
            yield beyond[0] <= 1 - exact <= beyond[1]
            yield null[0] <= 1 - mpmath.exp((-x - epsilon) / 2) / 2 <= null[1]


@needed
def test_powers_of_e_are_moved_outward() -> Iterator[bool]:
    for (value,) in numbers(11, 100, (-700.0, 0.0)):
        exact = mpmath.exp(value)
        yield _down(np.array([value]))[0] <= exact <= _up(np.array([value]))[0]


@needed
def test_slopes_of_lines_are_moved_up() -> Iterator[bool]:
    places = object.__new__(_Places)
    places.high = places.level = places.power = np.zeros(1)
    for (epsilon,) in numbers(12, 60, (0.0, 500.0)):
        places.place = np.array([epsilon])
        yield places.rows()[0][0] >= mpmath.exp(epsilon)


@needed
def test_the_corner_of_the_largest_loss() -> Iterator[bool]:
    for log_top, top in numbers(13, 60, (-90.0, -0.1), (0.1, 90.0)):
        losses = cast("Composition", SimpleNamespace(log_top=log_top, infinite=0.0))
        level, power = _last_corner(losses, top)
        yield mpf(level.numerator) / level.denominator >= mpmath.exp(mpf(log_top) - top)
        yield mpf(power.numerator) / power.denominator <= mpmath.exp(log_top)


def power_at(polygon: Polygon, level: mpf) -> mpf:
    """The power of a polygon of corners."""
    corners = [
        (mpf(x.numerator) / x.denominator, mpf(y.numerator) / y.denominator) for x, y in polygon
    ]
    for (x, y), (u, v) in pairwise(corners):
        if x <= level <= u and u > x:
            return y + (v - y) * (level - x) / (u - x)
    return corners[-1][1]


@needed
def test_corners_from_logarithms_of_masses() -> Iterator[bool]:
    for (x,) in numbers(14, 30, (0.1, 9.0)):
        log_p = (-x - math.log1p(math.exp(-x)), -math.log1p(math.exp(-x)))
        loss = OffLatticeLoss((-x, x), log_p, 0.0)
        below, above = _by_values(loss)
        level, power = mpmath.exp(mpf(log_p[1]) - x), mpmath.exp(log_p[1])
        yield power_at(below, level) <= power <= power_at(above, level)


@needed
def test_a_test_after_another_stays_on_its_side() -> Iterator[bool]:
    for x, y, u, v in numbers(15, 60, (1e-9, 0.3), (0.3, 0.9), (1e-9, 0.3), (0.3, 0.9)):
        ends = (Fraction(0), Fraction(0)), (Fraction(1), Fraction(1))
        one, two = (
            rounded(hull([ends[0], (Fraction(a), Fraction(b)), ends[1]]), 1)
            for a, b in ((x, y), (u, v))
        )
        exact, above = after(one, two), after_rounded(one, two, 1)
        yield all(on_polygon(above, level) >= power for level, power in exact)


def on_polygon(polygon: Polygon, level: Fraction) -> Fraction:
    """The power of a polygon of corners, exactly."""
    (x, y), (u, v) = next(pair for pair in pairwise(polygon) if level <= pair[1][0])
    return y + (v - y) * (level - x) / (u - x)


@needed
def test_lines_and_points_at_the_mass_of_infinite_losses() -> Iterator[bool]:
    for y, n in numbers(16, 9, (-9.0, -1.0), (2, 9)):
        mass, times = math.exp(y), int(n)
        points, lines = _half(
            Composition.of([(ny.approximate(1, mass).directions[0].parts[0][0], times)])
        )
        exact = 1 - (1 - Fraction(mass)) ** times
        yield points[0][1] <= exact
        yield lines[0][1] >= exact
