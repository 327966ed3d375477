"""Time private estimates beside NumPy's, and measure errors and coverage by simulation.

python benchmarks/estimates.py              # CPU seconds, and the memory above the data
python benchmarks/estimates.py quantile     # the error of a median with and without an interval
python benchmarks/estimates.py logistic     # the coverage of intervals about the population
"""

import math
import resource
import sys
import time
from fractions import Fraction

import numpy as np
from scipy.stats import beta

import neyman as ny
from neyman.analysis.estimators.logistic_fit import accuracy, fit, signed_rows
from neyman.noise.quantile_draw import runs

ROWS, COLUMNS, GRID = 10**6, 50, 10**9


def cpu(function):
    """Return CPU seconds and the growth of the largest resident size in MB."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    function()
    spent = time.process_time() - start
    return spent, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main():
    """Print a row for the median and one for the covariance."""
    rng = np.random.default_rng(1)
    budget = ny.gdp(1)
    values = rng.integers(0, GRID, ROWS)
    ny.estimate.quantile(values[:100], 0.5, lower=0, upper=10, step=1, budget=budget)
    ny.estimate.covariance(np.ones((10, 2)), radius=1, budget=budget)
    settings = {"lower": 0, "upper": GRID, "step": 1, "budget": budget}
    ours, memory = cpu(lambda: ny.estimate.quantile(values, 0.5, **settings))
    theirs, _ = cpu(lambda: np.median(values))
    print(f"median of 10^6 on 10^9 + 1 points: {ours:.2f} s, {memory:.0f} MB, NumPy {theirs:.2f} s")
    rows = rng.normal(size=(ROWS, COLUMNS))
    ours, memory = cpu(lambda: ny.estimate.covariance(rows, radius=10, budget=budget))
    theirs, _ = cpu(lambda: np.cov(rows.T))
    print(f"covariance of 10^6 x 50: {ours:.2f} s, {memory:.0f} MB, NumPy {theirs:.2f} s")


def exact_error(values, rate, points):
    """Return the root mean squared error of a drawn median, in steps, over the exact law."""
    held, counts = np.unique(values, return_counts=True)
    cells = runs(held.tolist(), counts.tolist(), (0, points - 1), Fraction(1, 2))
    first, size, score = np.array(cells, float).T
    weights = size * np.exp(-rate * score / 2)
    away = first + (size - 1) / 2 - np.quantile(values, 0.5, method="inverted_cdf")
    return math.sqrt(np.average(away**2 + (size**2 - 1) / 12, weights=weights))


def quantile(tables=20, calls=400):
    """Print the error of a median, and the width and coverage of its 95% interval."""
    rng = np.random.default_rng(1)
    grid = {"lower": 0, "upper": 120, "step": "1/10"}
    for epsilon in (0.1, 1, 3):
        for n in (101, 1000, 10_000):
            asked = {**grid, "budget": ny.pure(epsilon)}
            errors = []
            for confidence in (None, 0.95):
                call = ny.estimate.quantile(range(n), 0.5, **asked, confidence=confidence)
                rate = float(call.mechanism.rate)
                data = [rng.normal(40, 12, n) for _ in range(tables)]
                squares = [
                    exact_error(np.clip(np.rint(x * 10), 0, 1200).astype(int), rate, 1201) ** 2
                    for x in data
                ]
                errors.append(math.sqrt(np.mean(squares)) / 10)
            ends = np.array([
                ny.estimate.quantile(
                    rng.normal(40, 12, n), 0.5, **asked, confidence=0.95
                ).interval()
                for _ in range(calls)
            ])  # fmt: skip
            covered = np.mean((ends[:, 0] <= 40) & (ends[:, 1] >= 40))
            width = np.mean(ends[:, 1] - ends[:, 0])
            print(epsilon, n, *(f"{e:.3g}" for e in errors), f"{width:.3g}", f"{covered:.3f}")


def logistic(calls=1000, kinds=500):
    """Print the coverage of 95% intervals. Records are uniform, so the fit is exact."""
    rng = np.random.default_rng(4)
    for n, d, penalty, mu in (
        (1000, 1, 0.1, 1),
        (2000, 3, 0.1, 0.5),
        (5000, 3, 0.01, 1),
        (20_000, 1, 0.01, 1),
        (20_000, 3, 0.001, 1),
        (20_000, 10, 0.01, 1),
    ):
        x = rng.uniform(-1, 1, (kinds, d)) / math.sqrt(d)
        labels = np.where(rng.random(kinds) < 1 / (1 + np.exp(-(3 * x[:, 0] + 0.5))), 1.0, -1.0)
        aim = accuracy(10**6, d + 1, penalty, True)
        target = (fit(signed_rows(x, labels, 1.0, True), penalty, aim) * aim.unit)[1]
        hits, values, errors = 0, [], []
        for _ in range(calls):
            chosen = rng.integers(0, kinds, n)
            released = ny.estimate.logistic(
                x[chosen], labels[chosen], radius=1, penalty=penalty, budget=ny.gdp(mu),
                sampling=True,
            )  # fmt: skip
            low, high = released.interval(0.95)
            hits += bool(low[1] <= target <= high[1])
            values.append(released.value[1])
            errors.append(released.standard_error[1])
        ends = beta.ppf(0.005, hits, calls - hits + 1), beta.ppf(0.995, hits + 1, calls - hits)
        shown = released.noise_error[1], np.median(errors), np.std(values), hits / calls, *ends
        print(n, d, penalty, mu, *(f"{number:.3f}" for number in shown))


if __name__ == "__main__":
    {"quantile": quantile, "logistic": logistic}.get("".join(sys.argv[1:]), main)()
