"""Sums, convolutions, and binomial distributions hold exact numbers, and would not without their
slacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
from mpmath import mpf

from neyman.numerics import (
    Atoms,
    Discretization,
    added,
    characteristic_function,
    contract,
    even_series,
    exp_down,
    exp_up,
    log_binomial,
    log_complement,
    log_half,
    spread,
    theta,
    wave_sum,
)
from neyman.numerics.atoms import _trim, convolve
from slacks import held, needed, numbers

F = Fraction
ONE = F(1)


@needed
def test_powers_of_e_of_a_logarithm_that_is_rounded() -> Iterator[bool]:
    unit = mpf(2) ** -53
    for (y,) in numbers(1, 100, (-700.0, -100.0)):
        yield exp_down(y) <= mpmath.exp(y * (1 + unit))
        yield exp_up(y) >= mpmath.exp(y * (1 - unit))


@needed
def test_the_logarithm_of_what_is_left_of_one() -> Iterator[bool]:
    for (y,) in [*numbers(13, 100, (-40.0, -0.7)), *numbers(14, 100, (-0.8, -1e-9)), (-1e-18,)]:
        yield held(log_complement(y, y), mpmath.log(-mpmath.expm1(y)))


@needed
def test_weights_of_a_convolution() -> Iterator[bool]:
    for n, work in ((3, 1e9), (40, 1e9), (64, 0.0)):
        a, b = (np.array([v for (v,) in numbers(k, n, (0.0, 1.0))]) for k in (2, 3))
        answer = convolve(Atoms(ONE, F(0), 0, a), Atoms(ONE, F(0), 0, b), work)
        p, q = ([F(x) for x in v.tolist()] for v in (a, b))
        for k in range(len(answer)):
            exact = sum(p[i] * q[k - i] for i in range(max(0, k - n + 1), min(k, n - 1) + 1))
            error = F(answer.relative) * exact + F(answer.absolute)
            yield abs(F(float(answer.weight[k])) - exact) <= error


@needed
def test_weights_of_another_scale() -> Iterator[bool]:
    for y, scale in numbers(4, 40, (-690.0, -250.0), (-9.0, 9.0)):
        weight = math.exp(y)
        answer = _trim(Atoms(ONE, F(0), 0, np.array([weight]), scale))
        exact, near = weight * mpmath.exp(scale), answer.weight[0] * mpmath.exp(answer.log_scale)
        yield abs(near - exact) <= answer.relative * exact


@needed
def test_a_binomial_law_with_fair_coins() -> Iterator[bool]:
    for n, share in numbers(5, 60, (2, 1e6), (0.0, 1.0)):
        c, j = int(n), int(share * int(n))
        value, error = (float(v[0]) for v in log_half(np.array([c]), np.array([j])))
        yield abs(value - log_choose(c, j) + c * mpmath.log(2)) <= error


def log_choose(n: int, k: int) -> mpf:
    return mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)


@needed
def test_a_binomial_law() -> Iterator[bool]:
    for n, share, p in numbers(6, 60, (2, 1e5), (0.0, 1.0), (0.01, 0.99)):
        c, j = int(n), int(share * int(n))
        value, error = (float(v[0]) for v in log_binomial(c, p, 1 - p, np.array([j]), 0.0))
        exact = log_choose(c, j) + j * mpmath.log(p) + (c - j) * mpmath.log1p(-mpf(p))
        yield abs(value - exact) <= error


@needed
def test_k_of_the_discrete_gaussian() -> Iterator[bool]:
    for v, c in numbers(7, 12, (0.1, 9.0), (0.1, 9.0)):
        z = np.array([c])
        answer = float(theta.log_mgf(v, 1, z)[0])
        near = [mpf(x) for x in range(-150, 150)]
        total = mpmath.fsum(mpmath.exp(-x * x / (2 * mpf(v))) for x in near)
        moved = mpmath.fsum(mpmath.exp(-((x + c) ** 2) / (2 * mpf(v))) for x in near)
        exact = mpf(c) * (mpf(c) + 1) / (2 * mpf(v)) + mpmath.log(moved / total)
        yield abs(answer - exact) <= theta.rounding(v, 1, z)[0]


@needed
def test_a_sum_of_waves() -> Iterator[bool]:
    for x, y, w in numbers(8, 6, (-9.0, 9.0), (-9.0, 9.0), (0.1, 0.9)):
        place, weight, u = np.array([x, y]), np.array([w, 1 - w]), 0.7 * np.arange(40.0)
        sums = wave_sum(place, weight, u)
        error = characteristic_function.rounding(place, weight, u)
        for k in (1, 7, 20, 39):
            exact = mpmath.fsum(
                p * mpmath.expm1(1j * mpf(u[k]) * v)
                for p, v in ((weight[0], mpf(x)), (weight[1], mpf(y)))
            )
            yield abs(mpmath.mpc(sums[k]) - exact) <= error[k]


@needed
def test_a_series_at_even_angles() -> Iterator[bool]:
    n = 40
    for start, step in numbers(9, 3, (1.0, 900.0), (0.01, 1.0)):
        weight = np.array([complex(x, y) for x, y in numbers(10, n, (-1.0, 1.0), (-1.0, 1.0))])
        sums, error = even_series(weight, start, step, 64)
        for j in (0, 17, 63):
            angle = mpf(start) + j * mpf(step)
            exact = mpmath.fsum(
                mpmath.mpc(w) * mpmath.exp(-1j * k * angle) for k, w in enumerate(weight)
            )
            yield abs(mpmath.mpc(sums[j]) - exact) <= error[j]


@needed
def test_atoms_of_a_sum() -> Iterator[bool]:
    for x, y, p, q in numbers(11, 40, (-9.0, 9.0), (-9.0, 9.0), (0.1, 1.0), (0.1, 1.0)):
        one, two = (
            Discretization(np.array([v]), np.array([w]), 0.0, 0.0, 0.0, 0.0)
            for v, w in ((x, p), (y, q))
        )
        both = added([one, two], 0.0)
        yield abs(mpf(both.loss[0]) - (mpf(x) + y)) <= both.place
        exact = mpf(p) * q
        yield abs(both.weight[0] - exact) <= np.max(both.relative) * exact


@needed
def test_the_share_of_a_mass_that_moves_up() -> Iterator[bool]:
    step = 0.1
    for k, y in numbers(12, 60, (1, 999), (-30.0, -3.0)):
        loss = int(k) * step + math.exp(y)
        dots = Discretization(np.array([loss]), np.ones(1), 0.0, 0.0, 0.0, 0.0)
        atoms = spread(dots, step)
        inside = F(loss) - F(step) * atoms.start
        exact = -mpmath.expm1(-mpf(inside.numerator) / inside.denominator) / -mpmath.expm1(
            -mpf(step)
        )
        yield atoms.weight[1] >= exact


@needed
def test_many_masses_at_one_place() -> Iterator[bool]:
    for n in (10, 1000, 20000):
        dots = Discretization(np.zeros(n), np.full(n, 0.1), 0.0, 0.0, 0.0, 0.0)
        atoms = spread(dots, 1.0)
        yield abs(atoms.weight[0] - n * mpf(0.1)) <= (atoms.relative + 2.0**-52) * n * mpf(0.1)


@needed
def test_two_masses_that_are_mixed() -> Iterator[bool]:
    for place, y, gap, tilt in numbers(15, 60, (1.0, 20.0), (-9.0, -1.0), (1.5, 3.0), (-1.0, 2.0)):
        step = math.exp(y)
        loss, weight = np.array([place, place + gap * step]), np.array([0.3, 0.7])
        atoms = contract(Discretization(loss, weight, tilt, 0.0, 0.0, 0.0), step)
        at = [mpf(step) * (atoms.start + k) - place for k in range(len(atoms))]

        def share(
            away: list[mpf],
            weight: list[float],
            tilts: tuple[mpf, mpf] = (mpf(tilt), mpf(tilt) + 1),
        ) -> mpf:
            """Of Q's mass in P's, up to a factor."""
            p, q = (
                mpmath.fsum(w * mpmath.exp(-c * x) for x, w in zip(away, weight, strict=True))
                for c in tilts
            )
            return q / p

        yield share(at, atoms.weight.tolist()) >= share(
            [mpf(x) - place for x in loss.tolist()], weight.tolist()
        )
