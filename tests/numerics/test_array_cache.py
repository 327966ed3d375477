"""A cache with a limit in bytes, and the memory that questions leave behind."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import neyman as ny
from neyman.curves.profiles.selection import select
from neyman.numerics.array_cache import array_cache


def test_the_oldest_results_go_when_the_limit_in_bytes_is_reached():
    """Ten arrays of 1 kB fit, large ones are computed each time."""
    calls: list[int] = []

    @array_cache(10_000)
    def zeros(count: int) -> tuple[np.ndarray, int]:
        calls.append(count)
        return np.zeros(count), count

    for count in (100, 101, 100):
        assert zeros(count)[1] == count
    assert calls == [100, 101]
    for count in range(102, 110):
        zeros(count)
    zeros(100)
    assert calls[-1] == 100
    zeros(1000)
    zeros(1000)
    assert calls[-2:] == [1000, 1000]


@pytest.mark.parametrize(
    "mechanism",
    [
        ny.Gaussian(1.1).subsample(rate=0.001) * 332,
        ny.Gaussian(2.29).subsample(size=1563, population=10**7) * 14,
        ny.Laplace(2.29).subsample(rate=1.5e-4) * 14,
    ],
    ids=["poisson", "fixed-size", "laplace"],
)
def test_a_curve_that_is_no_longer_used_leaves_no_arrays_behind(mechanism):
    """Without the collector of cycles: less than 4 MB of arrays stay beside the caches."""

    def ask() -> None:
        f = mechanism.tradeoff()
        f.epsilon(1e-9)
        f.power(1e-3)

    ask()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        ask()
        assert tracemalloc.get_traced_memory()[0] < 4e6
    finally:
        tracemalloc.stop()
        gc.enable()


def test_a_curve_keeps_its_engine_while_another_one_that_shares_it_goes():
    """A temporary curve of the same pair does not take the first one's results along."""
    f = (ny.Gaussian(1).subsample(rate=0.1) * 20).tradeoff()
    engine = select(f.alternatives[0])
    f.symmetric().power(0.05)
    f.inverse().power(0.05)
    assert select(f.alternatives[0]) is engine


def test_two_steps_at_a_tiny_rate_do_not_ask_for_gigabytes():
    """A line with few nodes but 10^7 terms each is not built; the answer stays tight."""
    steps = ny.Gaussian(6.120421).subsample(rate=3.1953001648924634e-06) * 2
    tracemalloc.start()
    try:
        epsilon = steps.tradeoff().epsilon(3.171220472604185e-16)
        assert tracemalloc.get_traced_memory()[1] < 500e6
    finally:
        tracemalloc.stop()
    assert epsilon.width < 1e-3 * epsilon.upper
