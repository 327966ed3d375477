"""A cache with a limit in bytes, and the memory that questions leave behind."""

import gc
import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest

import neyman as ny
from neyman.numerics import OperationLimit, cells, charge, engine_limit, operations, question_meter
from neyman.numerics.array_cache import CACHE, array_cache


def test_the_oldest_results_go_when_the_limit_in_bytes_is_reached(monkeypatch):
    """All functions share the limit, and what is above a quarter of it is computed each time."""
    calls: list[tuple[str, int]] = []

    @array_cache
    def zeros(count: int) -> tuple[np.ndarray, int]:
        calls.append(("zeros", count))
        return np.zeros(count), count

    @array_cache
    def ones(count: int) -> tuple[np.ndarray, int]:
        calls.append(("ones", count))
        return np.ones(count), count

    CACHE.clear()
    monkeypatch.setattr(CACHE, "most", 20_000)
    for count in (100, 101, 100):
        assert zeros(count)[1] == count
    assert calls == [("zeros", 100), ("zeros", 101)]
    for count in range(100, 115):
        ones(count)
    assert CACHE.held <= 20_000
    zeros(100)
    assert calls[-1] == ("zeros", 100)
    ones(1000)
    ones(1000)
    assert calls[-2:] == [("ones", 1000)] * 2


def test_a_stored_result_takes_the_operations_of_a_new_one():
    """Whether a question stops does not depend on what was computed before it."""

    @array_cache
    def costly(at: int) -> np.ndarray:
        charge(60)
        cells(10)
        return np.zeros(at)

    counts: list[float] = []
    for _ in range(2):
        with question_meter() as meter:
            costly(3)
        counts.append(meter.count)
    assert counts == [60, 60]
    for _ in range(2):
        with question_meter() as meter:
            meter.most = 100
            with engine_limit():
                costly(3)
                with pytest.raises(OperationLimit):
                    costly(4)
        assert meter.count == 120


@pytest.mark.parametrize("lost", [False, True])
def test_a_question_pays_for_a_result_once_also_if_the_cache_loses_it(lost):
    @array_cache
    def inner(at: int) -> np.ndarray:
        charge(5)
        return np.zeros(at)

    @array_cache
    def outer(at: int) -> np.ndarray:
        charge(60)
        return inner(at)

    counts: list[float] = []
    for _ in range(2):
        with question_meter() as meter:
            inner(3)
            for _ in range(3):
                outer(3)
                if lost:
                    CACHE.clear()
        counts.append(meter.count)
    assert counts == [70, 70]


def test_a_question_pays_for_each_use_of_a_large_result_which_leaves_the_cache_first(monkeypatch):
    """So a question whose own results fill the cache does no work that no one counts."""
    built: list[int] = []

    @array_cache
    def small(at: int) -> int:
        charge(5)
        built.append(at)
        return at

    @array_cache
    def large(at: int) -> np.ndarray:
        charge(60)
        return np.full(1 << 18, float(at))

    CACHE.clear()
    monkeypatch.setattr(CACHE, "most", 10 << 20)
    with question_meter() as meter:
        for _ in range(2):
            small(1)
            for at in range(8):
                large(at)
    assert meter.count == 5 + 16 * 60
    assert built == [1]
    assert CACHE.held <= CACHE.most


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


CURVES = {
    "closed form": lambda: ny.Gaussian(1),
    "exact sums": lambda: ny.RandomizedResponse(1) * 5,
    "lattice": lambda: ny.DiscreteGaussian(3) * 3 + ny.DiscreteGaussian(4) * 4,
    "contour": lambda: ny.Gaussian(1) + ny.Laplace(2),
    "contour and grid": lambda: ny.Laplace(2) * 2 + ny.Gaussian(2).subsample(rate=0.01) * 10,
    "largest step": lambda: ny.Gaussian(2).subsample(rate=1e-4) * 300,
    "few steps": lambda: ny.Gaussian(1).subsample(rate=1e-2) * 3,
    "atoms": lambda: ny.Laplace(1).subsample(rate=0.1) * 20,
    "bracket": lambda: ny.RoundedGaussian(3, squared_norm=3) * 5,
    "bounded range": lambda: ny.ExponentialMechanism(0.1) * 100,
    "zCDP": lambda: ny.zcdp(0.1) @ ny.gdp(0.5),
}
QUESTIONS = {
    "delta": lambda f: [f.delta(0.5), f.log_delta(3.0)],
    "epsilon": lambda f: [f.epsilon(1e-6)],
    "power": lambda f: [f.power(0.05)],
    "powers": lambda f: f.powers([1e-4, 0.3]),
    "method": lambda f: f.method,
}


def answers(curve: str, names: Iterable[str]) -> dict[str, str]:
    f = CURVES[curve]().tradeoff()
    asked = {name: QUESTIONS[name](f) for name in names}
    return {
        name: result
        if isinstance(result, str)
        else " ".join(f"{b.lower.hex()} {b.upper.hex()} {b.method}" for b in result)
        for name, result in asked.items()
    }


@pytest.mark.parametrize("most", [operations.MOST_OPERATIONS, 2e7], ids=["all", "stopped"])
@pytest.mark.parametrize("curve", CURVES)
def test_an_answer_does_not_depend_on_earlier_questions(curve, most, monkeypatch):
    """Forward, then backward with what is stored, and backward with an empty cache: same bits."""
    monkeypatch.setattr(operations, "MOST_OPERATIONS", most)
    CACHE.clear()
    forward = answers(curve, QUESTIONS)
    stored = answers(curve, reversed(QUESTIONS))
    CACHE.clear()
    fresh = answers(curve, reversed(QUESTIONS))
    CACHE.clear()
    assert forward == stored == fresh
    assert all(forward["method"] in result for result in forward.values())


def test_a_long_session_stays_within_the_limit_of_the_cache(monkeypatch):
    monkeypatch.setattr(CACHE, "most", 16 << 20)
    CACHE.clear()
    gc.collect()
    tracemalloc.start()
    try:
        for k in range(20):
            (ny.Laplace(2 + k / 10).subsample(rate=0.1) * 20).tradeoff().epsilon(1e-6)
        gc.collect()
        assert CACHE.held <= 16 << 20
        assert tracemalloc.get_traced_memory()[0] < 20 << 20
    finally:
        tracemalloc.stop()


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
