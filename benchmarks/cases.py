"""What is measured: parameters as exact text, read by the references and by the bench alike."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = [
    "CALIBRATED",
    "CURVE",
    "DELTA",
    "DISCRETE",
    "GAUSSIANS",
    "LAPLACES",
    "LEVELS",
    "POISSON",
    "SAMPLED",
    "Poisson",
    "key",
]


@dataclass(frozen=True)
class Poisson:
    """Epsilon of a training run: Poisson-subsampled Gaussian noise, shift 1, add-remove."""

    sigma: str
    rate: str
    steps: int
    delta: str


FIRST = ("1", "0.01", 1000)
POISSON = {
    "poisson 1": Poisson(*FIRST, "1e-5"),
    "poisson 2": Poisson("0.8", "256/60000", 14_062, "1e-5"),
    "poisson 3": Poisson("1.1", "4096/1200000", 100_000, "1e-7"),
    "poisson 4": Poisson("0.6", "0.001", 1_000_000, "1e-8"),
    "delta 1e-15": Poisson(*FIRST, "1e-15"),
    "delta 1e-30": Poisson(*FIRST, "1e-30"),
    "delta 1e-100": Poisson(*FIRST, "1e-100"),
    "delta 1e-300": Poisson(*FIRST, "1e-300"),
    # A billion steps: at the first rate epsilon is of the size people use, at the second tiny.
    "steps 1e9": Poisson("1", "0.00002", 10**9, "1e-6"),
    "steps 1e9, tiny": Poisson("2", "0.000001", 10**9, "1e-6"),
}
DELTA = "1e-6"  # of every row below

# 300 mechanisms, no two alike: sigma; scale; (sigma, rate).
GAUSSIANS = [Fraction(20) + Fraction(i, 5) for i in range(100)]
LAPLACES = [Fraction(30) + Fraction(i, 4) for i in range(100)]
SAMPLED = [(1 + Fraction(i, 100), Fraction(50 + i, 50_000)) for i in range(100)]

DISCRETE = [Fraction(40 + i, 10) for i in range(72)]

# The curve of the first training run: the levels of the references are among the 1000.
CURVE = Poisson(*FIRST, "1e-5")
LEVELS = [
    "1e-30",
    "1e-27",
    "1e-24",
    "1e-20",
    "1e-16",
    "1e-12",
    "1e-9",
    "1e-6",
    "1e-4",
    "1e-2",
    "0.1",
    "0.5",
]

CALIBRATED = ("1", "0.01", 10_000)  # epsilon, rate, steps; sigma is sought


def key(case: Poisson) -> tuple[float, float, int, float]:
    """The parameters as the floats that a library is given."""
    sigma, rate, delta = (float(Fraction(x)) for x in (case.sigma, case.rate, case.delta))
    return sigma, rate, case.steps, delta
