"""A sum of many parts of one class, in one array, is the sum of the parts one at a time."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import neyman as ny
from neyman.curves import Composition, LaplaceLoss, SubsampledGaussianLoss

LAPLACES = [LaplaceLoss(Fraction(1, 30 + k)) for k in range(7)] + [LaplaceLoss(Fraction(20))]
REMOVED = [SubsampledGaussianLoss(1 / (1 + 0.1 * k), 1e-3 * (k + 1), True) for k in range(9)]
ADDED = [loss.reverse() for loss in REMOVED]
MANY = {"Laplace": LAPLACES, "removed": REMOVED, "added": ADDED}
COUNTS = np.arange(1.0, 10.0)


@pytest.mark.parametrize("losses", MANY.values(), ids=MANY)
@pytest.mark.parametrize("step", [0.0, 0.3, 40.0])
def test_transforms_of_many_parts_are_within_the_errors_of_both(losses, step):
    z = np.array([2.5]) if step == 0 else 2.5 + 1j * step * np.arange(60)
    together, error = type(losses[0]).mgfs(losses, z)
    for loss, k, bound in zip(losses, together, error, strict=True):
        each = np.exp(loss.log_mgf(z) - loss.log_mgf(z[:1]).real)
        moved = np.abs(np.exp(k - loss.log_mgf(z[:1]).real) - each)
        assert np.all(moved <= bound + loss.mgf_rounding(z))


@pytest.mark.parametrize("losses", MANY.values(), ids=MANY)
def test_moments_of_many_parts_are_the_sums_of_theirs(losses):
    tilts, counts = np.array([0.3, 2.0, 11.0]), COUNTS[: len(losses)]
    together = type(losses[0]).sum_of_moments(losses, counts, tilts)
    each = sum(n * np.array(x.moments(tilts)) for x, n in zip(losses, counts, strict=True))
    np.testing.assert_allclose(together, each, rtol=1e-8)


@pytest.mark.parametrize("losses", [REMOVED, ADDED], ids=["removed", "added"])
def test_places_of_many_parts_are_about_the_sums_of_theirs(losses):
    for tilt, height in ((1.0, 1.0), (300.0, 1e3), (1e6, 0.0)):
        together = SubsampledGaussianLoss.sum_of_places(losses, tilt, height)
        each = math.fsum(loss.places(tilt, height) for loss in losses)
        assert 0.5 * each <= together <= 2 * each


def test_the_error_of_a_sum_of_many_parts_holds_their_rounding():
    """K of 300 parts, beside 60 digits: rounding grows with the parts that are added."""
    losses = [LaplaceLoss(Fraction(1, 1 + k)) for k in range(300)]
    z = np.array([0.7, 30.0])
    total, error = Composition.of((loss, 1) for loss in losses).mgf(z)
    with mpmath.workdps(60):
        for k, tilt in enumerate(z):
            w = mpmath.mpf(tilt) + mpmath.mpf(0.5)
            truth = mpmath.fsum(
                mpmath.log(mpmath.exp(-a / 2) * (mpmath.cosh(a * w) + mpmath.sinh(a * w) / (2 * w)))
                for a in (mpmath.mpf(1) / (1 + n) for n in range(300))
            )
            assert abs(mpmath.expm1(mpmath.mpf(total[k]) - truth)) <= error[k]
            assert error[k] < 1e-9


def test_the_lower_peak_is_near_its_root():
    """y = w mu s(y) has one root, which a bisection in 30 digits finds."""
    rng = np.random.default_rng(4)
    for _ in range(40):
        loss = SubsampledGaussianLoss(10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-8, -0.01), False)
        w = -(10 ** rng.uniform(-4, 12))
        mu, q = mpmath.mpf(loss.distance), mpmath.mpf(loss.rate)

        def excess(y, mu=mu, q=q, w=w):
            part = q * mpmath.exp(mu * y - mu * mu / 2)
            return y - w * mu * part / (1 - q + part)

        low, high = w * mu, mpmath.mpf(0)
        for _ in range(200):
            root = (low + high) / 2
            low, high = (root, high) if excess(root) < 0 else (low, root)
        assert -0.03 < loss._lower_peak(w) - root <= 0.01


def test_a_sum_of_mechanisms_does_not_depend_on_how_it_is_written():
    parts = [ny.Gaussian(20 + k) for k in range(12)] + [ny.Laplace(30 + k) for k in range(12)]
    one_by_one = parts[0]
    for part in [*parts[:0:-1], parts[3]]:
        one_by_one = one_by_one + part
    assert one_by_one == sum(parts[1:], parts[0]) + parts[3]
    assert dict(one_by_one.parts)[parts[3]] == 2


@pytest.mark.parametrize("rate", [0.3, 1e-7, 1e-14, 1e-20, 1e-100])
def test_log_r_keeps_its_digits_where_a_rare_sample_meets_a_large_outcome(rate):
    loss = SubsampledGaussianLoss(1.0, rate, True)
    with mpmath.workdps(150):
        for t in (-5.0, 1e-8, 29.9, 30.1, 36.0, 45.0, 228.0, 236.0, 689.0):
            for place in (t, complex(t, 0.7)):
                truth = mpmath.log(1 + mpmath.mpf(rate) * (mpmath.exp(mpmath.mpmathify(place)) - 1))
                t_array = np.array([place])
                value = mpmath.mpmathify(complex(loss.log_ratio_on(t_array, t_array)[0]))
                assert abs(value - truth) <= 16 * 2.0**-53 * (1 + abs(t)) * abs(truth)
