"""A discrete Gaussian of many cells: its K and its decay against sums in two hundred digits."""

import math
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

import reference as ref
from neyman.curves import DiscreteGaussianLoss

CASES = [("4", 1), ("5", 1), ("5.5", 3), ("16.0714", 1), ("69.23", 2)]


DIGITS = 200


@cache
def masses(loss):
    """e^{-x^2 / (2 sigma^2)} for x from -reach on, and their sum."""
    with mpmath.workdps(DIGITS):
        s2 = mpmath.mpf(loss.sigma_squared.numerator) / loss.sigma_squared.denominator
        reach = math.ceil(30 * math.sqrt(s2)) + 8 * loss.shift
        each = [mpmath.exp(-mpmath.mpf(x * x) / (2 * s2)) for x in range(-reach, reach + 1)]
        return s2, reach, each, mpmath.fsum(each)


def exactly(loss, z):
    """K(z) by its definition, log E e^{zL} with L = shift (shift - 2x) / (2 sigma^2)."""
    s2, reach, each, scale = masses(loss)
    with mpmath.workdps(DIGITS):
        shift = loss.shift
        term = mpmath.exp(mpmath.mpc(z) * shift * (shift + 2 * reach) / (2 * s2))
        factor = mpmath.exp(-mpmath.mpc(z) * shift / s2)
        total = mpmath.mpc(0)
        for mass in each:
            total += mass * term
            term *= factor
        return mpmath.log(total / scale)


@pytest.mark.parametrize(("sigma_squared", "shift"), CASES)
def test_k_is_the_sum_over_cells_to_within_its_rounding_near_and_far_from_the_axis(
    sigma_squared, shift
):
    loss = DiscreteGaussianLoss(Fraction(sigma_squared), shift)
    turn = math.tau * float(loss.sigma_squared) / shift
    for c in (0.2, 1.0, 6.3):
        for heights in ([0.0, 0.03, 0.1], [0.0, 0.2, 0.45, 0.5, 0.7, 1.1]):
            z = c + 1j * turn * np.array(heights)
            k, error = loss.log_mgf(z), loss.mgf_rounding(z)
            top = float(exactly(loss, complex(c)).real)
            for value, at, most in zip(k, z, error, strict=True):
                wanted = mpmath.exp(exactly(loss, complex(at)) - top)
                assert abs(mpmath.exp(mpmath.mpc(value) - top) - wanted) <= most, (c, at)
            real = loss.log_mgf(np.array([c]))
            assert abs(real[0] - top) <= loss.mgf_rounding(np.array([c]))[0]
            assert loss.moments(np.array([c]))[0][0] == pytest.approx(top, rel=1e-12)


@pytest.mark.parametrize(("sigma_squared", "shift"), CASES)
def test_the_decay_is_never_below_the_size_of_the_characteristic_function(sigma_squared, shift):
    loss = DiscreteGaussianLoss(Fraction(sigma_squared), shift)
    turn = math.tau * float(loss.sigma_squared) / shift
    for reach in (0.3, 0.5, 2.3):  # within half a turn, just so, and beyond
        edges = turn * np.linspace(0.02, reach, 6)
        bound = loss.decay(1.0, edges)
        for low, high, most in zip(edges[:-1], edges[1:], bound[:-1], strict=True):
            for share in (0.0, 1.0):
                z = complex(1.0, low + share * (high - low))
                size = exactly(loss, z).real - exactly(loss, 1 + 0j).real
                assert size <= most + 1e-12, (reach, z)
        assert bound[-1] == 0


@pytest.mark.parametrize("tilt", [0.0, 0.3, -1.7, 1e-9, 41 / 3])
@pytest.mark.parametrize(("sigma_squared", "shift"), [*CASES, ("0.0101", 1), ("1e3/7", 1000)])
def test_each_atom_is_within_its_few_units_of_the_exact_mass(sigma_squared, shift, tilt):
    top, _, bottom = sigma_squared.partition("/")
    loss = DiscreteGaussianLoss(Fraction(top) / int(bottom or 1), shift)
    atoms = loss.atoms(tilt)
    s2, center = loss.sigma_squared, Fraction(tilt) * shift
    squares = [(center - (atoms.start + k)) ** 2 / (2 * s2) for k in range(len(atoms))]
    rises = [square - min(squares) for square in squares]
    with mpmath.workdps(40):
        mass = [mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) for x in rises]
        total = mpmath.fsum(mass)
        for weight, each in zip(atoms.weight.tolist(), mass, strict=True):
            assert abs(weight - each / total) <= atoms.relative * each / total + 1e-299
    assert atoms.relative == 16 * 2.0**-53


@pytest.mark.parametrize(("variance", "shift"), [("1/10000", 1), ("1/2500", 2)])
def test_the_mu_of_a_tiny_sigma_is_finite_and_that_of_its_corner(variance, shift):
    exact = ref.mu(ref.discrete_gaussian(Fraction(variance), shift))
    assert exact - 1e-9 <= DiscreteGaussianLoss(Fraction(variance), shift).mu <= exact * (1 + 1e-9)
