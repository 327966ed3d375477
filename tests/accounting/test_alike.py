"""Noise of several kinds at one target: errors against forty digits, and who errs least."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import pytest

import neyman as ny
from neyman import CanonicalNoise
from neyman.accounting import compare_noise as room
from neyman.accounting.compare_noise import alike, error_of

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


@pytest.mark.parametrize("sigma", ["0.3", "1", "4.2308", "30"])
def test_the_discrete_gaussian_by_its_sums(sigma):
    """Moments and tails hold the distribution summed in forty digits."""
    s = mpmath.mpf(sigma)
    reach = int(15 * s) + 60
    wanted = summed(lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)), reach)
    agrees(error_of(ny.DiscreteGaussian(sigma), LEVELS), *wanted)


@pytest.mark.parametrize("scale", ["0.1", "1", "21.866"])
def test_the_discrete_laplace_by_its_sums(scale):
    """The same for the geometric mechanism, also where it hardly ever adds anything."""
    b = mpmath.mpf(scale)
    wanted = summed(lambda k: mpmath.exp(-k / b), int(100 * b) + 60)
    agrees(error_of(ny.DiscreteLaplace(scale), LEVELS), *wanted)


def test_continuous_noise_by_its_formulas():
    """Laplace: 2 b^2, b, b ln(1/p). Gaussian: s^2, s sqrt(2/pi), s times a quantile."""
    b, s = mpmath.mpf("1.5"), mpmath.mpf("2.5")
    tails = [b * mpmath.log(1 / mpmath.mpf(p)) for p in LEVELS]
    agrees(error_of(ny.Laplace(1.5), LEVELS), 2 * b * b, b, tails, 1e-13)
    tails = [s * mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(p)) for p in LEVELS]
    mean = s * mpmath.sqrt(2 / mpmath.pi)
    agrees(error_of(ny.Gaussian(2.5), LEVELS), s * s, mean, tails, 1e-13)


def test_a_wide_discrete_gaussian_lies_between_integrals():
    """Where sums become integrals the two ways agree."""
    noise, sigma = ny.DiscreteGaussian(9999), 9999.0
    near, far = error_of(noise, LEVELS), room._wide(sigma, LEVELS)
    for a, b in (
        (near.variance, far.variance),
        (near.mean_error, far.mean_error),
        *((x[1], y[1]) for x, y in zip(near.tails, far.tails, strict=True)),
    ):
        assert max(a.lower, b.lower) <= min(a.upper, b.upper)
        assert b.width <= max(1.0, 1e-8 * b.upper)
    assert error_of(ny.DiscreteGaussian(10**6)).variance.upper == pytest.approx(1e12)


def test_the_noise_keeps_the_target_and_hardly_less_does():
    """Every scale is admitted, and a little less of a monotone kind is not."""
    target = ny.approximate(1, 1e-6)
    result = alike(target, count=5)
    laplace, _, gaussian, discrete, rounded = (k.scale for k in result.kinds)
    assert target.admits(ny.Laplace(laplace) * 5)
    assert target.admits(ny.Gaussian(gaussian) * 5)
    assert target.admits(ny.DiscreteGaussian(discrete) * 5)
    assert target.admits(ny.RoundedGaussian(rounded) * 5)
    assert not target.admits(ny.Laplace(laplace * (1 - 1e-7)) * 5)
    assert not target.admits(ny.Gaussian(gaussian * (1 - 1e-7)) * 5)


def test_one_answer_wants_laplace_and_many_want_a_gaussian():
    """At (1, 1e-6) Laplace errs less once, the Gaussian from some number of releases on."""
    target = ny.approximate(1, 1e-6)
    single, often = alike(target), alike(target, count=30)
    variance = [{k.kind: k.variance.upper for k in c.kinds} for c in (single, often)]
    assert variance[0]["Laplace"] < variance[0]["Gaussian"] / 8
    assert variance[1]["Gaussian"] < variance[1]["Laplace"] / 1.7
    assert "1e-09 beyond" in str(single)
    assert len(str(single).splitlines()) == 7
    assert len(str(often).splitlines()) == 6


def test_canonical_noise_by_integrals():
    """For (0, delta) it is uniform; for pure privacy a smoothed geometric law."""
    uniform = error_of(CanonicalNoise(ny.approximate(0, 0.1)), (0.1, 0.5))
    agrees_about(uniform, 100 / mpmath.mpf(12), mpmath.mpf(10) / 4, (4.5, 2.5))
    e = mpmath.e
    c = 1 / (1 + e)
    # P(Z > n + t) = e^-n times what is left at t, and between two places it is a line.
    tail = [c / e**n for n in range(60)]  # at n + 1/2
    chords = mpmath.fsum((a + b) / 2 for a, b in pairwise(tail))
    middle = (mpmath.mpf("0.5") + c) / 4  # from 0 to 1/2
    result = error_of(CanonicalNoise(ny.pure(1)), (0.5,))
    wanted = 2 * (middle + chords)
    assert result.mean_error.lower <= wanted <= result.mean_error.upper
    assert result.mean_error.width < 1e-3
    assert result.variance.upper == pytest.approx(1.9246805, abs=1e-6)


def test_a_gaussian_is_never_pure():
    """No noise of that kind is enough: inf, not an exception."""
    kinds = {k.kind: k for k in alike(ny.pure(1)).kinds}
    assert kinds["Laplace"].scale == pytest.approx(1)
    assert math.isinf(kinds["Gaussian"].scale)
    assert math.isinf(float(kinds["discrete Gaussian"].variance))
    assert all(math.isinf(k.scale) for k in alike(ny.perfect()).kinds)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: alike(ny.gdp(1), count=0), "count = 0"),
        (lambda: alike(ny.gdp(1), sensitivity=0), "sensitivity = 0"),
        (lambda: alike(ny.gdp(1), kinds=["uniform"]), "'uniform' must be one of"),
        (lambda: alike(ny.gdp(1), count=2, kinds=["canonical"]), "'canonical' must be one of"),
        (lambda: alike(ny.gdp(1), tails=[1.0]), "must be below 1"),
    ],
)
def test_refusals_name_the_argument(ask, said):
    """What cannot be answered is refused by name."""
    with pytest.raises(ValueError, match=said):
        ask()


@pytest.mark.parametrize("sigma", ["0.3", "1", "4.2", "50"])
def test_errors_of_rounded_noise_are_those_of_its_law(sigma):
    """Variance, mean error, and tails, by sums over the mass function."""
    row = error_of(ny.RoundedGaussian(sigma), (0.05, 1e-9))
    s = mpmath.mpf(sigma)

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


def test_wide_rounded_noise_has_the_normal_errors():
    """One twelfth more variance."""
    row = error_of(ny.RoundedGaussian(10**5))
    assert row.variance.lower <= 10**10 + 1 / 12 <= row.variance.upper
    assert row.mean_error.lower <= 10**5 * math.sqrt(2 / math.pi) <= row.mean_error.upper
