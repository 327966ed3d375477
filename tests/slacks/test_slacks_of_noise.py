"""Places, tails, and slopes of canonical noise hold exact numbers, and would not without slacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction as F
from itertools import pairwise

import mpmath
import numpy as np
from mpmath import mpf

import neyman as ny
from neyman.curves import hull, select
from neyman.mechanisms import PolygonNoise
from neyman.mechanisms.canonical.iterates_closed_form import (
    Exponential,
    LaplaceLadder,
    Logistic,
    MovedLadder,
    Normal,
)
from neyman.mechanisms.canonical.iterates_numeric import Stepwise
from neyman.mechanisms.canonical.tabulated_power import TabulatedPower
from slacks import held, needed, numbers


def around(value_and_error: tuple[np.ndarray, np.ndarray], exact: mpf) -> bool:
    value, error = (float(v[0]) for v in value_and_error)
    return abs(value - exact) <= error


def laplace_tail(y: mpf) -> mpf:
    return mpmath.log(mpmath.exp(-y) / 2 if y >= 0 else 1 - mpmath.exp(y) / 2)


def laplace_place(log_s: mpf) -> mpf:
    s = mpmath.exp(log_s)
    return -mpmath.log(2 * s) if s <= 0.5 else mpmath.log(2 * (1 - s))


def logistic_tail(y: mpf) -> mpf:
    return -mpmath.log1p(mpmath.exp(y))


def logistic_place(log_s: mpf) -> mpf:
    return mpmath.log(-mpmath.expm1(log_s)) - log_s


def check_law(
    ladder: Callable[[float], MovedLadder],
    tail: Callable[[mpf], mpf],
    place: Callable[[mpf], mpf],
    density: Callable[[mpf], mpf],
) -> Iterator[bool]:
    for a, log_s, y in numbers(1, 40, (0.01, 9.0), (-40.0, -1e-3), (-30.0, 30.0)):
        law, at = ladder(a), np.array([y])
        yield law.log_c[0] <= tail(mpf(a) / 2) <= law.log_c[1]
        yield around(law._quantile(np.array([log_s])), place(mpf(log_s)))
        yield around(law._log_tail(at, np.zeros(1)), tail(mpf(y)))
        yield around(law._log_density(at, np.zeros(1)), density(mpf(y)))


@needed
def test_the_law_of_laplace() -> Iterator[bool]:
    yield from check_law(LaplaceLadder, laplace_tail, laplace_place, lambda y: -abs(y))


@needed
def test_the_logistic_law() -> Iterator[bool]:
    density = lambda y: -abs(y) - 2 * mpmath.log1p(mpmath.exp(-abs(y)))  # noqa: E731
    yield from check_law(Logistic, logistic_tail, logistic_place, density)


@needed
def test_the_density_of_the_normal_law() -> Iterator[bool]:
    for (y,) in numbers(2, 40, (-30.0, 30.0)):
        density = Normal(1.0)._log_density(np.array([y]), np.zeros(1))
        yield around(density, -(mpf(y) ** 2) / 2)


@needed
def test_steps_of_a_law_that_is_moved() -> Iterator[bool]:
    for a, log_s, n in numbers(3, 60, (0.01, 9.0), (-40.0, -1e-3), (1, 1e4)):
        law, steps = LaplaceLadder(a), np.array([float(int(n))])
        y = laplace_place(mpf(log_s))
        moved = y + int(n) * mpf(a)
        yield held(law.out(np.array([log_s]), steps), laplace_tail(moved))
        yield held(law.log_slope(np.array([log_s]), steps), abs(y) - abs(moved))


@needed
def test_a_place_in_the_middle() -> Iterator[bool]:
    for a, s in numbers(4, 60, (0.01, 9.0), (0.1, 0.9)):
        law = LaplaceLadder(a)
        near = float(-mpmath.expm1(-mpf(a) / 2))
        law.gap = near, near
        low, high = law.middle(np.array([s]), np.array([s]))
        exact = (mpf(0.5) - s) / near
        yield held((low, high), min(max(exact, -0.5), 0.5))


@needed
def test_a_place_beyond_the_middle() -> Iterator[bool]:
    for epsilon, log_u in numbers(5, 60, (0.1, 3.0), (-90.0, -3.0)):
        law = Exponential(epsilon, 0.0)
        e = mpmath.exp(-mpf(epsilon))
        c = e / (1 + e)
        n = max(mpmath.ceil((mpmath.log(c) - log_u) / epsilon), 0)
        s = mpmath.exp(log_u + n * mpf(epsilon))
        yield held(law.place(np.array([log_u])), n + (0.5 - s) / (1 - 2 * c))


@needed
def test_steps_of_an_exponential_law() -> Iterator[bool]:
    for epsilon, y, log_s, n in numbers(6, 80, (0.1, 2.0), (-9.0, -2.0), (-1.0, -0.01), (1, 4)):
        delta, steps = math.exp(y) * math.exp(-9), np.array([float(int(n))])
        e, at = mpmath.exp(mpf(epsilon)), np.array([log_s])
        for d in (0.0, delta):
            law = Exponential(epsilon, d)
            taken = d * (e ** int(n) - 1) / (e - 1)
            yield law.log_c[0] <= mpmath.log((1 - mpf(d)) / (1 + e)) <= law.log_c[1]
            out = mpmath.log(mpmath.exp(log_s) - taken) - int(n) * mpf(epsilon)
            yield held(law.out(at, steps), out)
            yield held(
                law.back(out_as_float(out), steps), mpmath.log(exp_of(out) * e ** int(n) + taken)
            )
            yield held(law.log_slope(at, steps), -int(n) * mpf(epsilon))


def out_as_float(x: mpf) -> np.ndarray:
    return np.array([float(x)])


def exp_of(x: mpf) -> mpf:
    return mpmath.exp(float(x))


@needed
def test_what_is_left_beyond_the_largest_loss() -> Iterator[bool]:
    for (y,) in numbers(7, 20, (-30.0, -2.0)):
        delta = math.exp(y)
        table = TabulatedPower(select(ny.approximate(1, delta).directions[0]), 1.0, delta)
        yield table._low[-1] <= mpmath.log(delta) <= table._high[-1]


@needed
def test_tails_of_the_noise_of_a_polygon() -> Iterator[bool]:
    for x, y, start in numbers(8, 30, (0.01, 0.2), (0.3, 0.5), (-0.5, 0.5)):
        corners = [(F(0), F(0)), (F(x), F(y)), (F(1) - F(y), F(1) - F(x)), (F(1), F(1))]
        noise = PolygonNoise(hull(corners))
        lows, highs = noise.tails(F(start))
        tail = F(1, 2) - noise.density * F(start)
        for k in range(6):
            yield F(float(lows[k])) <= tail <= F(float(highs[k]))
            (a, b), (c, d) = (
                next(pair for pair in pairwise(noise.corners) if pair[0][1] <= tail <= pair[1][1])
                if tail <= noise.corners[-1][1]
                else ((F(0), F(0)), (F(1), F(1)))
            )
            tail = a + (tail - b) * (c - a) / (d - b)


@needed
def test_tails_of_a_sum_with_the_noise_of_a_polygon() -> Iterator[bool]:
    for x, y, place in numbers(9, 40, (0.01, 0.2), (0.3, 0.5), (-9.0, 0.0)):
        corners = [(F(0), F(0)), (F(x), F(y)), (F(1) - F(y), F(1) - F(x)), (F(1), F(1))]
        noise = PolygonNoise(hull(corners))
        low, high = noise.tail_between(F(place), 0, 0)
        start = F(place) - round(F(place))
        tail = F(1, 2) + noise.density * start
        for _ in range(-round(F(place))):
            (a, b), (c, d) = next(
                pair for pair in pairwise(noise.corners) if pair[0][1] <= tail <= pair[1][1]
            )
            tail = a + (tail - b) * (c - a) / (d - b)
        exact = 1 - tail if place < 0 and round(F(place)) else tail
        yield round(F(place)) == 0 or F(float(low[0])) <= exact <= F(float(high[0]))


@needed
def test_a_level_next_to_the_end_of_the_support() -> Iterator[bool]:
    for y, steps in numbers(10, 40, (-30.0, -0.1), (-6, 6)):
        m = math.exp(y)

        def powers(v: np.ndarray, m: float = m) -> tuple[np.ndarray, np.ndarray]:
            near = np.log(m + (1 - m) * np.exp(v))
            return near - 1e-14 * (1 - near), near + 1e-14 * (1 - near)

        ladder = Stepwise(powers, (math.log1p(-m), math.log1p(-m)), m)
        end = math.log(m)
        for log_p in (end, end + int(steps) * 2.0**-52 * abs(end)):
            level = (mpmath.exp(log_p) - m) / (1 - mpf(m))
            exact = mpmath.log(level) if level > 0 else -mpmath.inf
            yield held(ladder._levels(np.array([log_p])), exact)
