"""Seconds of what people ask of a whole study: epsilons along a training run, a posterior curve.

`python benchmarks/studies.py` prints a line for each, by processor time; BLAS should have one
thread (OMP_NUM_THREADS=1), or its idle threads count as work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import neyman as ny
from neyman.accounting import posterior_ratios
from reproductions.dp_sgd import course as training


def epochs() -> object:
    return training.course(training.MNIST[-1])


def posteriors() -> object:
    mechanism = ny.DiscreteGaussian(sigma_squared=20, sensitivity=[(1, 1)])
    for i in range(1, 70):
        mechanism += ny.DiscreteGaussian(sigma_squared=20 + i, sensitivity=[(1, 1)])
    return posterior_ratios(mechanism, np.linspace(0.2, 12, 60), "arbitrary-prior")


ROWS: tuple[tuple[str, Callable[[], object], float], ...] = (
    ("four epsilons at each of 100 epochs of private training", epochs, 2),
    ("posterior ratios at 60 epsilons of 70 discrete Gaussians", posteriors, 1),
)


def main() -> None:
    """Print the table."""
    for said, work, goal in ROWS:
        start = time.process_time()
        work()
        spent = time.process_time() - start
        met = "met" if spent <= goal else "MISSED"
        print(f"{said:<60}{spent:7.2f} s   goal {goal:g} s: {met}")


if __name__ == "__main__":
    main()
