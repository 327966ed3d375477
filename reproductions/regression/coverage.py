"""Coverage of approximate 95% intervals about the population of a linear model, in simulation.

    python -m reproductions.regression.coverage --runs 2000

The data have a public seed, and the noise is drawn as a release draws it, from secure bits.
"""

from __future__ import annotations

import argparse
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from neyman.analysis import solve
from neyman.analysis.estimators.least_squares import moment_shift, moments, population_width
from neyman.analysis.estimators.regression import symmetric_noise
from neyman.noise import SecureBits

__all__ = ["CASES", "COVERAGE", "coverage"]

COVERAGE = Path(__file__).parents[1] / "data" / "regression_coverage.json"
# Records, features, mu, and radius of normal features with variance 1.
CASES = (
    (1_200, 1, 1, 3),
    (2_500, 3, 1, 3),
    (2_500, 3, 1, 1),
    (20_000, 3, 0.5, 3),
    (6_000, 10, 2, 5),
)
BOUND, MISS = 6.0, 0.05


def coverage(n: int, size: int, mu: float, radius: float, runs: int, seed: int) -> dict[str, Any]:
    """Return how often the interval of the first slope covers it, and where it is infinite."""
    rng, bits = np.random.default_rng(seed), SecureBits()
    slopes = np.array([(-1.0) ** i / (i + 1) for i in range(size)])
    variance = Fraction(moment_shift(True, "replace-one")) / Fraction(mu) ** 2
    covers = finite = 0
    for _ in range(runs):
        x = rng.normal(size=(n, size))
        y = 0.5 + x @ slopes + 0.5 * rng.normal(size=n)
        total = moments(x, y, radius, BOUND, True)
        noisy = (total + symmetric_noise(variance, size + 2, bits)).astype(float)
        fit = solve(noisy, math.sqrt(variance), n, None)
        width = population_width(fit, n, MISS)[1]
        finite += math.isfinite(width)
        covers += bool(abs(fit.center[1] - slopes[0] * radius / BOUND) <= width < math.inf)
    return {"n": n, "size": size, "mu": mu, "radius": radius, "finite": finite, "covers": covers}


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    rows: list[dict[str, Any]] = []
    for seed, case in enumerate(CASES):
        rows.append(coverage(*case, runs, seed))
        print(rows[-1], flush=True)
    COVERAGE.write_text(json.dumps({"runs": runs, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
