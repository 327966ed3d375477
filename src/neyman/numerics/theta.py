"""Compute the log moment generating function K of a discrete Gaussian's loss, by one of two sums.

With t = z shift and theta(t) = sum over x of e^{-(x + t)^2 / (2 sigma^2)},

    K(z) = z (z + 1) shift^2 / (2 sigma^2) + log(theta(t) / theta(0)).

For a small sigma, this sum over x is the shorter one. Otherwise, use Poisson summation: theta(t) is
a constant times the sum over whole k of e^{-2 pi^2 sigma^2 k^2 + 2 pi i k t}. For complex t, the
largest term is at the whole number k_0 nearest to -Im t / (2 pi sigma^2). With f = -Im t / (2 pi
sigma^2) - k_0, the terms around it are

    e^{-2 pi^2 sigma^2 (d - f)^2 + 2 pi i d Re t},  d = k - k_0,

times a common factor, which is computed without cancellation of large numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT


@dataclass(frozen=True)
class Limits:
    """Limits on the terms of a sum."""

    drop_efolds: float = 50.0
    narrow_sigma_squared: float = 0.5  # for a smaller sigma^2, the sum over x is shorter


LIMITS = Limits()


def log_mgf(sigma_squared: float, shift: int, z: Array) -> Array:
    """Return K(z) for each real or complex z, shape (n,)."""
    block_numbers = 1 << 18
    if sigma_squared < LIMITS.narrow_sigma_squared:
        logs = [
            _over_places(sigma_squared, shift, z[k : k + block_numbers // 64])
            for k in range(0, len(z), block_numbers // 64)
        ]
        return np.concatenate(logs)
    c, u = np.real(z), np.imag(z)
    ratio = shift * shift / sigma_squared
    turn = -shift * u / (math.tau * sigma_squared)
    turns = np.round(turn)
    away = turn - turns
    steep = 2 * math.pi**2 * sigma_squared
    # Besides the largest term, add each term that is above e^-50 of it, at those z.
    parts = np.ones(z.shape, complex if np.iscomplexobj(z) else float)
    total, d = 1.0, 1
    while steep * d * (d - 1) < LIMITS.drop_efolds:
        total += 2 * math.exp(-steep * d * d)
        for sign in (-1, 1):
            drop = steep * d * (d - 2 * sign * away)
            near = np.nonzero(drop < LIMITS.drop_efolds)[0]
            turned = math.tau * np.mod(sign * d * shift * c[near], 1.0)
            size = np.exp(-drop[near])
            if np.iscomplexobj(z):
                parts[near] += size * (np.cos(turned) + 1j * np.sin(turned))
            else:
                parts[near] += size * np.cos(turned)
        d += 1
    real = c * (c + 1) * (ratio / 2) - steep * away**2 - math.log(total)
    if not np.iscomplexobj(z):
        return real + np.log(parts)
    phase = u * ((2 * c + 1) * (ratio / 2)) + math.tau * turns * np.mod(shift * c, 1.0)
    logs = real + 1j * phase
    other = np.nonzero(parts != 1)[0]
    logs[other] += np.log(parts[other])
    return logs


def _over_places(sigma_squared: float, shift: int, z: Array) -> Array:
    """Return K(z) by the sum over x, for a small sigma, with the largest term factored out."""
    reach = math.ceil(10 * math.sqrt(sigma_squared)) + 2
    x = np.arange(-reach, reach + 1, dtype=float)
    base = np.exp(-(x**2) / (2 * sigma_squared)).sum()
    c, u = np.real(z) * shift, np.imag(z) * shift
    part = c - np.floor(c)
    away = x + part[:, None]
    real = -(away**2) / (2 * sigma_squared)
    top = real.max(axis=1)
    size = np.exp(real - top[:, None])
    gauss = np.real(z) * (np.real(z) + 1) * shift**2 / (2 * sigma_squared)
    if not np.iscomplexobj(z):
        return gauss + top + np.log(size.sum(axis=1) / base)
    # The loss at x - floor(c) is shift (shift - 2x) / (2 sigma^2) there.
    turned = size * np.exp(-1j * u[:, None] * away / sigma_squared)
    phase = u * (2 * np.real(z) + 1) * shift / (2 * sigma_squared)
    return gauss + top + 1j * phase + np.log(turned.sum(axis=1) / base)


def rounding(sigma_squared: float, shift: int, z: Array) -> Array:
    """Bound the error of e^{K(z)} relative to e^{K(Re z)}, from rounded exponents and phases."""
    ratio = shift * shift / sigma_squared
    sizes = np.abs(z) * (np.abs(np.real(z)) + 1) * ratio
    sizes = sizes + np.abs(np.imag(z)) * shift / math.sqrt(sigma_squared) * 4
    if sigma_squared < LIMITS.narrow_sigma_squared:
        sizes = sizes + np.abs(np.imag(z)) * shift / sigma_squared * 4
    return 8 * UNIT * (40 + sizes)  # slack: k_of_the_discrete_gaussian
