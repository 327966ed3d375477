"""Random mechanisms and questions about them, as text: the map and the fuzz draw from here.

A text names only what users call, over ``ny``, so that a failure can be pasted. Noise, rates,
counts, deltas, and levels are spread evenly in their logarithms, far beyond ordinary ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

__all__ = ["FAMILIES", "QUESTIONS", "mechanism", "question"]


def spread(draw: random.Random, low: float, high: float) -> float:
    """A number between two positive ones, even in its logarithm, with four digits."""
    return float(f"{math.exp(draw.uniform(math.log(low), math.log(high))):.4g}")


def noise(draw: random.Random) -> float:
    return spread(draw, 0.05, 100)


def rate(draw: random.Random) -> float:
    return spread(draw, 1e-7, 0.9)


def count(draw: random.Random, most: float = 1e7) -> int:
    return round(spread(draw, 1, most))


def gaussian(draw: random.Random) -> str:
    return f"ny.Gaussian({noise(draw)})"


def lattice(draw: random.Random) -> str:
    """Noise on whole numbers."""
    kind = draw.choice(["DiscreteGaussian", "DiscreteLaplace", "RoundedGaussian"])
    return f"ny.{kind}({noise(draw)})"


def response(draw: random.Random) -> str:
    return f"ny.RandomizedResponse({spread(draw, 0.01, 8)}, {draw.randint(2, 12)})"


def staircase(draw: random.Random) -> str:
    how = draw.choice(["cost='squared'", f"gamma={draw.uniform(0.02, 0.98):.3g}"])
    return f"ny.Staircase({spread(draw, 0.01, 6)}, {how})"


def mixture(draw: random.Random) -> str:
    p = round(draw.uniform(0.01, 0.99), 3)
    places = [0, spread(draw, 0.1, 5)]
    return f"ny.GaussianMixture({noise(draw)}, {places}, [{p}, {round(1 - p, 3)}])"


def additive(draw: random.Random) -> str:
    kinds = [gaussian, lattice, staircase, mixture, lambda d: f"ny.Laplace({noise(d)})"]
    return draw.choice(kinds)(draw)


def several(draw: random.Random) -> str:
    """Two to seven unlike parts, some on samples, with up to 30,000 copies."""
    parts = [f"{draw.choice([additive, sampled])(draw)} * {count(draw, 3e4)}" for _ in range(8)]
    return " + ".join(parts[: draw.randint(2, 7)])


def sampled(draw: random.Random) -> str:
    return f"{additive(draw)}.subsample(rate={rate(draw)})"


def fixed_size(draw: random.Random) -> str:
    population = round(spread(draw, 10, 1e9))
    size = min(count(draw, population), population - 1)
    inner = draw.choice([gaussian, lattice])(draw)
    return f"{inner}.subsample(size={size}, population={population})"


FAMILIES: dict[str, Callable[[random.Random], str]] = {
    "sampled lattice": lambda d: f"{lattice(d)}.subsample(rate={rate(d)}) * {count(d)}",
    "sampled response": lambda d: f"{response(d)} * {count(d)}",
    "fixed size": lambda d: f"{fixed_size(d)} * {count(d)}",
    "unlike parts": several,
    "rounded Gaussian": lambda d: f"ny.RoundedGaussian({noise(d)}) * {count(d)}",
    "random allocation": lambda d: (
        f"{gaussian(d)}.random_allocation({count(d, 3000) + 1}) * {count(d, 100)}"
    ),
    "shuffle": lambda d: f"{response(d)}.shuffle(users={count(d, 1e5) + 1}) * {count(d, 20)}",
    "staircase": lambda d: f"{staircase(d)} * {count(d)}",
    "sampled staircase": lambda d: f"{staircase(d)}.subsample(rate={rate(d)}) * {count(d)}",
    "mixture": lambda d: f"{mixture(d)} * {count(d)}",
    "sample of a sample": lambda d: f"{sampled(d)}.subsample(rate={rate(d)}) * {count(d)}",
    "sample of a composition": lambda d: (
        f"({additive(d)} * {count(d, 20)}).subsample(rate={rate(d)}) * {count(d)}"
    ),
    "sampled Gaussian": lambda d: f"{gaussian(d)}.subsample(rate={rate(d)}) * {count(d)}",
}
"""The mechanisms of the fuzz by name, each a function of a generator that returns a text."""


def level(draw: random.Random) -> float:
    return draw.choice([spread(draw, 1e-200, 1), draw.random(), 1 - spread(draw, 1e-12, 0.5)])


def epsilon(draw: random.Random) -> float:
    return draw.choice([0.0, spread(draw, 1e-6, 200)])


PART = "f.part(f.alternatives[0]).loss"
QUESTIONS: dict[str, Callable[[random.Random], str]] = {
    "epsilon": lambda d: f"f.epsilon({spread(d, 1e-300, 0.999)})",
    "epsilons": lambda d: (
        f"f.epsilons({sorted(spread(d, 1e-30, 0.5) for _ in range(5))})[{d.randrange(5)}]"
    ),
    "delta of an order": lambda d: (
        f"f.part(f.alternatives[{d.choice([0, -1])}]).delta({epsilon(d)})"
    ),
    "epsilon of a log": lambda d: f"f.epsilon(log_delta={-spread(d, 1e-3, 1e4)})",
    "delta": lambda d: f"f.delta({epsilon(d)})",
    "log_delta": lambda d: f"f.log_delta({epsilon(d)})",
    "power": lambda d: f"f.power({level(d)})",
    "log_power": lambda d: f"f.log_power(log_level={-spread(d, 1e-9, 2000)})",
    "powers": lambda d: f"f.powers({sorted(level(d) for _ in range(3))})",
    "type II error": lambda d: f"f({level(d)})",
    "renyi": lambda d: f"f.renyi({1 + spread(d, 1e-3, 1e3)})",
    "gdp": lambda d: "f.gdp()",
    "nearest_gaussian": lambda d: "f.nearest_gaussian()",
    "pbdp": lambda d: f"f.pbdp({epsilon(d)})",
    "zcdp": lambda d: "f.zcdp()",
    "loss": lambda d: (
        f"{PART}."
        + d.choice([f"cdf({epsilon(d)})", f"tail({-epsilon(d)})", "mean", "variance", "infinite"])
    ),
    "group": lambda d: (
        f"f.group({d.randint(2, 4)})." + d.choice([f"power({level(d)})", f"delta({epsilon(d)})"])
    ),
    "affinity": lambda d: "f.affinity()",
    "pure": lambda d: "f.pure()",
}
"""The questions by name, each a function of a generator that returns a text over ``f``."""


def mechanism(draw: random.Random, family: str) -> str:
    """A random mechanism of a family."""
    return FAMILIES[family](draw)


def question(draw: random.Random, kind: str) -> str:
    """A random question of a kind."""
    return QUESTIONS[kind](draw)
