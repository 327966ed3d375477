"""Sums of waves are as near to the truth as they say."""

from __future__ import annotations

import os
import subprocess
import sys

import mpmath
import numpy as np
import pytest

import neyman as ny
from neyman.numerics import even_series


@pytest.mark.parametrize(
    ("size", "start", "step", "count"),
    [(40, 0.3, 1e-3, 9000), (2000, -1.2, 5e-6, 10_000), (300, 2.0, -3e-4, 1), (2, 0.0, 0.1, 50)],
)
def test_a_sum_at_even_angles_errs_by_at_most_its_bound(size, start, step, count):
    rng = np.random.default_rng(3)
    weight = (rng.normal(size=size) + 1j * rng.normal(size=size)) / np.arange(1, size + 1)
    sums, error = even_series(weight, start, step, count)
    assert sums.shape == error.shape == (count,)
    assert error.max() < 1e-9
    with mpmath.workdps(30):
        for j in {0, count // 3, count - 1}:
            angle = mpmath.mpf(start) + j * mpmath.mpf(step)
            wave, truth = mpmath.expj(-angle), mpmath.mpc(0)
            for w in weight[::-1]:
                truth = truth * wave + mpmath.mpc(w)
            assert abs(truth - mpmath.mpc(sums[j])) <= error[j]


def test_many_even_epsilons_have_the_bounds_of_single_ones():
    f = (ny.DiscreteGaussian(sigma=3) * 5 + ny.Laplace(scale=20)).tradeoff()
    profile = f.profiles[0]
    epsilons = np.arange(4000) * 1e-3
    low, high = profile.log_deltas(epsilons)
    assert np.all(high - low < 1e-3)
    for k in (0, 1234, 3999):
        below, above = profile.log_delta(float(epsilons[k]))
        assert low[k] <= above
        assert below <= high[k]


_THREADS = """
import time
import numpy as np
from neyman.numerics import characteristic_function as waves
draw = np.random.default_rng(1)
time.sleep(0.5)  # new threads wait for a while
for rows, terms, columns in ((1, 600, 600), (8, 128, 128), (200, 128, 128), (66, 130, 127)):
    left = draw.normal(size=(rows, terms)) + 1j
    right = (draw.normal(size=(columns, terms)) + 1j).T
    own, every = time.thread_time(), time.process_time()
    product = waves._product(left, right)
    time.sleep(0.1)  # threads that wait for the next product would run
    own, every = time.thread_time() - own, time.process_time() - every
    assert np.allclose(product, np.einsum("ij,jk->ik", left, right))
    assert every - own < 0.01, (rows, terms, columns, every - own)
"""


def test_small_products_are_not_shared_among_threads():
    """Threads of BLAS that wait at full load took nine tenths of a receipt's CPU time."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", _THREADS], check=True, env=env)
