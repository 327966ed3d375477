"""What a second reviewer broke: each case as it was found."""

import math
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest

from neyman.curves import (
    Composition,
    DiscreteGaussianLoss,
    FiniteLoss,
    GaussianLoss,
    LaplaceLoss,
    dots_profile,
    response_loss,
    select,
)

TINY = [
    (GaussianLoss(2.9584e-06), 1),
    (LaplaceLoss(F(111, 10000)), 2),
    (LaplaceLoss(F(7, 5000)), 3),
]


def test_drowned_cells_are_left_out_when_dots_are_contracted():
    composition = Composition.of(TINY)
    _, mean, variance = (float(v[0]) for v in composition.moments(np.zeros(1)))
    other = dots_profile(composition)
    for away in (-2, 0, 3, 6, 9):
        epsilon = mean + away * math.sqrt(variance)
        a, b = select(composition).log_delta(epsilon), other.log_delta(epsilon)
        assert a[0] <= b[1]
        assert b[0] <= a[1]


@pytest.mark.parametrize("sigma_squared", [401, 10**6])
def test_theta_is_a_constant_for_a_large_sigma_within_the_stated_error(sigma_squared):
    mp.mp.dps = 40
    loss = DiscreteGaussianLoss(F(sigma_squared), 3)
    sigma = mp.sqrt(sigma_squared)
    for z in (2 + 3j, 0.5 + 150j):
        # The mass function's transform is a ratio of two theta series, summed in the dual.
        t = mp.mpmathify(z) * 3

        def theta(u, sigma=sigma):
            return 1 + 2 * mp.nsum(
                lambda k: mp.exp(-2 * (mp.pi * sigma * k) ** 2) * mp.cos(2 * mp.pi * k * u), [1, 8]
            )

        gaussian = mp.mpmathify(z) * (mp.mpmathify(z) + 1) * 9 / (2 * mp.mpf(sigma_squared))
        truth = mp.exp(gaussian) * theta(t) / theta(mp.mpf(0))
        size = mp.exp(mp.re(mp.mpf(z.real) * (z.real + 1) * 9 / (2 * mp.mpf(sigma_squared))))
        result = mp.exp(mp.mpmathify(complex(loss.log_mgf(np.array([z]))[0])))
        assert abs(result - truth) / size <= loss.mgf_rounding(np.array([z]))[0] + 1e-15


@pytest.mark.parametrize(("sigma_squared", "shift"), [(F(1, 10000), 1), (F(1, 2500), 2)])
def test_the_mu_of_a_tiny_sigma_is_finite_and_that_of_its_corner(sigma_squared, shift):
    mp.mp.dps = 50
    s2 = mp.mpf(sigma_squared.numerator) / sigma_squared.denominator

    def tail(t):  # P(X > t)
        weight = [mp.exp(-(mp.mpf(x) ** 2) / (2 * s2)) for x in range(-6, 7)]
        return mp.fsum(w for x, w in zip(range(-6, 7), weight, strict=True) if x > t) / mp.fsum(
            weight
        )

    def q(p):  # -Phi^-1(p), by the tail's logarithm
        return mp.findroot(lambda v: mp.log(mp.ncdf(-v)) - mp.log(p), mp.sqrt(-2 * mp.log(p)))

    mechanism = DiscreteGaussianLoss(sigma_squared, shift).mu
    corner = q(tail(shift - 1 - (shift - 1) // 2)) + q(tail((shift - 1) // 2))
    assert math.isfinite(mechanism)
    assert mechanism >= corner - 1e-9


def test_power_is_at_least_the_mass_that_gives_all_away():
    parts = [(GaussianLoss(0.000147), 1), (response_loss(F(146923, 5000000), failure=0.3), 10)]
    composition = Composition.of(parts)
    assert isinstance(parts[1][0], FiniteLoss)
    assert select(composition).log_power(-0.06336)[0] >= math.log(composition.infinite) - 1e-9
