"""Time private estimates beside NumPy's: CPU seconds, and the memory above the data.

python benchmarks/estimates.py
"""

import resource
import time

import numpy as np

import neyman as ny

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


if __name__ == "__main__":
    main()
