"""Engines for sums hold exact numbers, and would not without their slacks.

Each part of an engine is asked with pieces that are exact in floats, so that only the rounding of
the part under test is left. The exact number is what the certificate names, in 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import mpmath
import numpy as np
from exact_profiles import Known
from mpmath import mpf

from neyman.curves.losses.subsampled import SubsampledGaussianLoss
from neyman.curves.profiles.closed_forms.bounded_range_releases import BoundedRangeProfile
from neyman.curves.profiles.contour.complement_line import ComplementLine, _on_line
from neyman.curves.profiles.lattice.lattice import Side
from neyman.curves.profiles.sampled_steps.bracket_sum import BracketSum
from neyman.curves.profiles.sampled_steps.few_steps import FewStepsProfile
from neyman.curves.profiles.sampled_steps.log_sum_density import Step, density_of_step
from neyman.curves.profiles.sampled_steps.many_steps import LargestStepProfile
from neyman.curves.profiles.sampled_steps.step_nodes import StepNodes
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import Atoms
from neyman.numerics.discretization import Discretization
from slacks import needed, numbers


def bare(kind: type, **parts: Any) -> Any:
    """An engine that has nothing but these parts."""
    engine = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(engine, name, part)
    return engine


def log_kernel(c: float) -> mpf:
    return c * mpmath.log(c) - (mpf(c) + 1) * mpmath.log1p(c)


@needed
def test_chernoff_by_a_few_tilts_of_steps() -> Iterator[bool]:
    for tilt, above, epsilon in numbers(1, 60, (1e3, 1e6), (0.0, 90.0), (0.0, 1e-3)):
        bracket = SimpleNamespace(tilts=np.array([tilt]), log_f_above=lambda _, a=above: a)
        table = SimpleNamespace(saddle=lambda _, t=tilt: (t, 0.0))
        steps = SimpleNamespace(
            rough=lambda _, t=table: (0.0, t),
            one_bracket=lambda _, b=bracket: [b],
            removed=False,
            cheap=False,
        )
        profile = bare(LargestStepProfile, _sum=steps)
        exact = above + log_kernel(tilt) - mpf(tilt) * epsilon
        yield profile._chernoff_bound(np.array([epsilon]))[0] >= min(exact, 0)


@needed
def test_places_of_a_lattice_whose_step_is_no_float() -> Iterator[bool]:
    # Found by a search: here the places err by more than four units of the farthest one.
    for a, b, start, n in ((344, 630, -14, 32), (800, 136, -20, 45), (166, 324, -9, 20)):
        atoms = Atoms(Fraction(a, b), Fraction(0), start, np.ones(n))
        for side in (Side.of(atoms, 0.0), Side.of(Discretization.of(atoms, 0.0), 0.0)):
            exact = [Fraction(a, b) * (start + k) for k in range(n)]
            off = max(abs(Fraction(x) - y) for x, y in zip(side.loss.tolist(), exact, strict=True))
            yield off <= side.place


@needed
def test_the_transform_of_a_bracket_whose_factors_cancel() -> Iterator[bool]:
    n, m = 10**6 + 7, 10**6 + 2
    for tilt, v, x, y in numbers(2, 60, (0.1, 90.0), (0.0, 3.0), (-1.0, 1.0), (-30.0, -1.0)):
        for bulk in (True, False):
            pairs = [(n, x, x + y), (m, -x, y - x)]  # of counts, laws, and brackets
            nodes = [
                SimpleNamespace(count=k, log_above=lambda _, p=(b if bulk else a, b): p)
                for k, a, b in ([(n, x, x), (m, -x, -x)] if bulk else pairs)
            ]
            above = bare(BracketSum, nodes=nodes, variance=v, bulk=bulk)._log_f_above(tilt)
            exact = mpf(v) * tilt * (mpf(tilt) + 1) / 2 + n * mpf(x) + m * mpf(-x)
            if not bulk:
                ratios = ((k, mpmath.exp(mpf(b) - mpf(a))) for k, a, b in pairs)
                exact += mpmath.log(mpmath.expm1(sum(k * mpmath.log1p(r) for k, r in ratios)))
            yield above >= exact


def log_moment(mu: float, q: float, k: int) -> mpf:
    """log E R^k under Q, R = 1 - q + q e^t, t of the normal distribution with the distance mu."""
    terms = (
        mpmath.binomial(k, j) * (1 - mpf(q)) ** (k - j) * mpf(q) ** j * mpmath.exp(mpf(mu) ** 2 * i)
        for j, i in ((j, j * (j - 1) // 2) for j in range(k + 1))
    )
    return mpmath.log(sum(terms))


@needed
def test_the_transform_of_a_step_at_a_real_tilt() -> Iterator[bool]:
    often = numbers(3, 30, (0.2, 2.0), (0.05, 0.9), (1, 6))
    rarely = numbers(4, 30, (0.1, 1.0), (1e-3, 0.05), (1, 6))
    for mu, q, tilt in (*often, *rarely):
        loss = SubsampledGaussianLoss(mu, q, True)
        nodes = StepNodes(loss, "one", 1, -math.inf, math.inf, 8.0, None)
        sums = nodes.line(float(int(tilt)), np.array([0.0, 0.5]))
        off = abs(sums.log_bracket - log_moment(mu, q, int(tilt) + 1))
        yield off <= mpmath.log1p(sums.bracket_error[0])


@needed
def test_the_density_of_one_step() -> Iterator[bool]:
    for q, mu, share in numbers(5, 40, (1e-3, 0.9), (0.1, 9.0), (-1.0, 1.0)):
        step = Step(q, mu)
        tau = step.mean + 3 * mu * share
        table = density_of_step(step, tau, tau + 1.0, 0.5)
        z = (tau - mpmath.log(mpf(q) / (1 - mpf(q))) + mpf(mu) ** 2 / 2) / mu
        exact = -(z**2) / 2 - mpmath.log(2 * mpmath.pi) / 2 - mpmath.log(mu)
        yield abs(table.log_value(np.array([tau]))[0] - exact) <= table.error[0]


@needed
def test_delta_of_a_threshold_that_is_rounded() -> Iterator[bool]:
    far = numbers(6, 40, (1.0, 9.0), (1.0, 9.0), (1e5, 1e6), (0.0, 1e-6))
    slow = numbers(7, 40, (0.1, 0.9), (0.1, 0.9), (0.0, 1.0), (-700.0, -90.0))
    for beyond, epsilon, slope, start in (*far, *slow):
        log_a = beyond + epsilon
        middle = beyond + (1e-9 if slope > 1 else -0.3)
        known = Known(start, slope)  # log of the expectation, by how far s is beyond the middle

        def values(tau: Any, known: Known = known, middle: float = middle) -> Any:
            s = [mpmath.log1p(mpmath.exp(mpf(t))) for t in tau]
            return np.array([known._ends(known.start + known.slope * (x - middle)) for x in s]).T

        profile = bare(FewStepsProfile, _log_a=log_a, _values=values)
        low, high = profile._above_zero(np.array([epsilon]))
        s = mpf(log_a) - epsilon
        exact = start + mpf(slope) * (s - middle) - s
        yield exact > 0 or low[0] <= exact <= high[0]


@needed
def test_a_power_where_the_least_epsilon_is_best() -> Iterator[bool]:
    for x, level in numbers(8, 60, (-90.0, -1.0), (-90.0, -1.0)):
        profile = bare(BoundedRangeProfile, _by_orders=lambda e, x=x: np.full(len(e), x))
        yield profile._dual(level) >= mpmath.log(mpmath.exp(x) + mpmath.exp(level))


@needed
def test_a_gain_that_gets_its_size_back() -> Iterator[bool]:
    for value, level in numbers(9, 60, (-900.0, -300.0), (-9.0, -7.0)):
        # Logarithms of the gain, which is no float, and of what is taken.
        top, taken = mpf(value) / 3, mpf(value / 3 + level)

        def log_complement(epsilon: Array, top: mpf = top, taken: mpf = taken) -> Any:
            gains = [mpmath.exp(top) * (1 - mpf(e) ** 2) for e in epsilon]
            sums = [mpmath.exp(taken + e) + g for e, g in zip(epsilon, gains, strict=True)]
            return np.array([Known(0.0, 0.0)._ends(mpmath.log(x)) for x in sums]).T

        line = SimpleNamespace(near=lambda _, v=value: v / 3 + 2.0, log_complement=log_complement)
        low, high = _on_line(cast("ComplementLine", line), 0.0, value / 3 + level)
        yield low <= top <= high
