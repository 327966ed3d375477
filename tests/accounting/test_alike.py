"""Noise of several kinds at one target: errors against forty digits, and who errs least."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

import neyman as ny

mpmath.mp.dps = 40
LEVELS = (0.05, 0.001, 1e-9)


def summed(mass, reach):
    """Variance, mean absolute error and tails of an even distribution on the whole numbers."""
    half = [mpmath.mpf(mass(k)) for k in range(reach)]
    total = half[0] + 2 * mpmath.fsum(half[1:])
    variance = 2 * mpmath.fsum(k * k * w for k, w in enumerate(half)) / total
    mean = 2 * mpmath.fsum(k * w for k, w in enumerate(half)) / total
    tails, left = [], total - half[0]
    above = [left / total]
    for w in half[1:]:
        left -= 2 * w
        above.append(left / total)
    tails += [next(k for k, a in enumerate(above) if a <= p) for p in LEVELS]
    return variance, mean, tails


def agrees(result, variance, mean, tails, width=1e-10):
    for bound, wanted in zip(
        (result.variance, result.mean_error, *(t for _, t in result.tails)),
        (variance, mean, *tails),
        strict=True,
    ):
        assert bound.lower <= wanted <= bound.upper
        assert bound.width <= width * bound.upper


def agrees_about(result, variance, mean, tails):
    """The same for canonical noise, whose mean error is known to a few digits."""
    assert result.variance.lower <= variance <= result.variance.upper
    assert result.mean_error.lower <= mean <= result.mean_error.upper
    assert result.mean_error.width < 1e-3 * mean
    for (_, bound), wanted in zip(result.tails, tails, strict=True):
        assert float(bound.lower) <= wanted <= float(bound.upper)


def error_of(kind, budget, tails=LEVELS):
    """The error of the noise of a kind that meets a budget, and its scale."""
    (row,) = ny.alike(budget, kinds=[kind], tails=tails).kinds
    return row, mpmath.mpf(row.scale)


@pytest.mark.parametrize("rho", ["5.5", "1/2", "1/36", "1/1800"])
def test_the_discrete_gaussian_by_its_sums(rho):
    row, s = error_of("discrete Gaussian", ny.zcdp(rho))
    wanted = summed(lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)), int(15 * s) + 60)
    agrees(row, *wanted)


@pytest.mark.parametrize("epsilon", [10, 1, "0.0457"])
def test_the_discrete_laplace_by_its_sums(epsilon):
    row, b = error_of("discrete Laplace", ny.pure(epsilon))
    agrees(row, *summed(lambda k: mpmath.exp(-k / b), int(100 * b) + 60))


def test_continuous_noise_by_its_formulas():
    row, b = error_of("Laplace", ny.pure("2/3"))
    agrees(row, 2 * b * b, b, [b * mpmath.log(1 / mpmath.mpf(p)) for p in LEVELS], 1e-13)
    row, s = error_of("Gaussian", ny.gdp("0.4"))
    tails = [s * mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(p)) for p in LEVELS]
    agrees(row, s * s, s * mpmath.sqrt(2 / mpmath.pi), tails, 1e-13)


@pytest.mark.parametrize("rho", ["5.01e-9", "4.99e-9", "5e-13"])
def test_wide_noise_has_normal_errors(rho):
    for kind, more, less in (("discrete Gaussian", 0, 6), ("rounded Gaussian", 1 / 12, 12)):
        row, s = error_of(kind, ny.zcdp(rho))
        assert row.variance.lower <= s * s + more <= row.variance.upper
        mean = s * mpmath.sqrt(2 / mpmath.pi) - 1 / (less * s * mpmath.sqrt(2 * mpmath.pi))
        assert row.mean_error.lower <= mean <= row.mean_error.upper
        for bound in (row.variance, row.mean_error):
            assert bound.width <= 1e-8 * bound.upper
        for p, bound in row.tails:
            normal = s * mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(p))
            assert normal - 2 <= bound.lower <= bound.upper <= normal + 2
            assert bound.width <= 1


def test_the_noise_keeps_the_target_and_hardly_less_does():
    target = ny.approximate(1, 1e-6)
    result = ny.alike(target, count=5)
    laplace, _, gaussian, discrete, rounded = (k.scale for k in result.kinds)
    assert target.admits(ny.Laplace(laplace) * 5)
    assert target.admits(ny.Gaussian(gaussian) * 5)
    assert target.admits(ny.DiscreteGaussian(discrete) * 5)
    assert target.admits(ny.RoundedGaussian(rounded) * 5)
    assert not target.admits(ny.Laplace(laplace * (1 - 1e-7)) * 5)
    assert not target.admits(ny.Gaussian(gaussian * (1 - 1e-7)) * 5)


def test_one_answer_wants_laplace_and_many_want_a_gaussian():
    target = ny.approximate(1, 1e-6)
    single, often = ny.alike(target), ny.alike(target, count=30)
    variance = [{k.kind: k.variance.upper for k in c.kinds} for c in (single, often)]
    assert variance[0]["Laplace"] < variance[0]["Gaussian"] / 8
    assert variance[1]["Gaussian"] < variance[1]["Laplace"] / 1.7
    assert "1e-09 beyond" in str(single)
    assert len(str(single).splitlines()) == 7
    assert len(str(often).splitlines()) == 6


def test_canonical_noise_by_integrals():
    uniform, _ = error_of("canonical", ny.approximate(0, 0.1), (0.1, 0.5))
    agrees_about(uniform, 100 / mpmath.mpf(12), mpmath.mpf(10) / 4, (4.5, 2.5))
    e = mpmath.e
    c = 1 / (1 + e)
    # P(Z > n + t) = e^-n times what is left at t, and between two places it is a line.
    tail = [c / e**n for n in range(60)]  # at n + 1/2
    chords = mpmath.fsum((a + b) / 2 for a, b in pairwise(tail))
    middle = (mpmath.mpf("0.5") + c) / 4  # from 0 to 1/2
    result, _ = error_of("canonical", ny.pure(1), (0.5,))
    wanted = 2 * (middle + chords)
    assert result.mean_error.lower <= wanted <= result.mean_error.upper
    assert result.mean_error.width < 1e-3
    assert result.variance.upper == pytest.approx(1.9246805, abs=1e-6)


def test_a_gaussian_is_never_pure():
    kinds = {k.kind: k for k in ny.alike(ny.pure(1)).kinds}
    assert kinds["Laplace"].scale == pytest.approx(1)
    assert math.isinf(kinds["Gaussian"].scale)
    assert math.isinf(float(kinds["discrete Gaussian"].variance))
    assert all(math.isinf(k.scale) for k in ny.alike(ny.perfect()).kinds)


@pytest.mark.parametrize("rho", ["5.5", "0.45", "1/36", "1/5000"])
def test_errors_of_rounded_noise_are_those_of_its_law(rho):
    row, s = error_of("rounded Gaussian", ny.zcdp(rho))

    def beyond(k):
        return mpmath.erfc((k + mpmath.mpf(1) / 2) / (s * mpmath.sqrt(2)))

    mass = [beyond(k - 1) - beyond(k) if k else 1 - beyond(0) for k in range(int(16 * s) + 12)]
    for bound, power in ((row.variance, 2), (row.mean_error, 1)):
        truth = mpmath.fsum(p * k**power for k, p in enumerate(mass))
        assert bound.lower <= truth <= bound.upper
        assert bound.upper - bound.lower < 1e-11 * (1 + bound.upper)
    for p, bound in row.tails:
        k = int(bound.upper)
        assert bound.lower == k
        assert beyond(k) <= p
        assert k == 0 or beyond(k - 1) > p


# ---- options for a problem, beside the least error


SCORES = ndtri((np.arange(101) + 0.5) / 101)


@pytest.mark.parametrize(
    ("problem", "more", "best"),
    [
        ("mean", {"n": 500}, {"rounded Gaussian", "discrete Gaussian"}),
        ("histogram", {"categories": 4}, {"rounded Gaussian", "discrete Gaussian"}),
        ("median", {"values": SCORES, "radius": 10}, {"inverse sensitivity"}),
    ],
)
def test_options_are_sorted_above_the_least_error_and_one_is_recommended(problem, more, best):
    result = ny.alike(ny.gdp(0.5), problem=problem, **more)
    errors = [option.error for option in result.options]
    assert errors == sorted(errors)
    assert all(option.times_least >= 1 for option in result.options)
    assert result.recommended.name in best
    assert f"Recommended: {result.recommended.name}" in str(result)


def test_pure_privacy_recommends_discrete_laplace_noise():
    result = ny.alike(ny.pure(1), problem="histogram", categories=4)
    assert {option.name for option in result.options} == {"Laplace", "discrete Laplace"}
    assert result.recommended.name == "discrete Laplace"
    assert result.recommended.times_least < 2.4


def test_the_error_of_a_draw_is_that_of_its_law():
    result = ny.alike(ny.pure(1), problem="median", values=SCORES, radius=10)
    assert result.recommended.scale == pytest.approx(0.5, rel=1e-6)
    assert 0.0510519 < result.recommended.error < 0.08
