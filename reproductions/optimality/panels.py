"""Each problem's mechanisms against the least error, over n and over the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri
from scipy.stats import norm

from neyman import (
    Gaussian,
    Laplace,
    RandomizedResponse,
    alike,
    approximate,
    calibrate,
    gdp,
    least_error,
    pure,
)
from neyman.accounting.alike import Options
from reproductions.local_model.errors import encodings
from reproductions.svg_chart import Axis, Line, chart, grid

__all__ = [
    "BOUND",
    "PROBLEMS",
    "ball_means",
    "by_budget",
    "by_dimension",
    "by_size",
    "noise_deviation",
    "normal_mean",
]

SIZES = np.geomspace(100, 1e6, 13)
DIMENSIONS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 200, 300, 500, 1000)
BUDGETS = np.geomspace(0.01, 3, 7)
CATEGORIES, DIMENSION, BOUND, MARGIN = 10, 10, 2.0, 4.0
COLORS = {
    "Laplace": "#4c7a34",
    "Gaussian": "#1d4f91",
    "inverse sens.": "#4c7a34",
    "the category": "#4c7a34",
    "bits, optimized": "#1d4f91",
    "Hadamard": "#7a4a86",
    "local bits": "#7a4a86",
    "least error": "#a8430c",
    "least, local": "#a8430c",
    "no privacy": "#9aa0a6",
}
Errors = Iterable[tuple[str, float]]


@dataclass(frozen=True)
class Problem:
    """A problem as one chart.

    Args:
        heading: above the chart.
        errors: n and the parameter of the guarantee -> root mean squared errors by name.
        parameter: "mu", or "epsilon" of one report in the local model.
        every: of the places, every so many is computed, where one takes a second.
    """

    heading: str
    errors: Callable[[int, float], Errors]
    parameter: str = "mu"
    every: int = 1


@cache
def noise_deviation(mu: float, kind: str) -> float:
    """Return the standard deviation of a count's noise at G_mu."""
    return math.sqrt(alike(gdp(mu), kinds=[kind], tails=[]).kinds[0].variance.upper)


def _root(square: float) -> float:
    return math.sqrt(square)


@cache
def _response(mu: float) -> float:
    """Deviation of one report of a bit by randomized response at G_mu, of a mean in [-1, 1]."""
    return 1 / math.tanh(calibrate(RandomizedResponse, gdp(mu)) / 2)


def _share(n: int, mu: float) -> Errors:
    for kind in ("Laplace", "Gaussian"):
        yield kind, math.hypot(0.5 / math.sqrt(n), noise_deviation(mu, kind) / n)
    yield "least error", _root(least_error("share", n=n, budget=gdp(mu)).lower)
    yield "no privacy", 0.5 / math.sqrt(n)
    yield "local bits", _response(mu) / (2 * math.sqrt(n))
    yield "least, local", _root(least_error("share", n=n, budget=gdp(mu), model="local").lower)


def _ball(n: int, mu: float) -> Errors:
    yield "Gaussian", math.sqrt(1 / n + DIMENSION * (2 / (n * mu)) ** 2)
    least = least_error("ball-mean", n=n, budget=gdp(mu), radius=1, dimension=DIMENSION)
    yield "least error", _root(least.lower)
    yield "no privacy", 1 / math.sqrt(n)


def _clipping_bias() -> float:
    """How far clipping MARGIN deviations from a normal law's mean moves its mean, at most."""
    return float(norm.pdf(MARGIN) - MARGIN * norm.sf(MARGIN))


def normal_mean(n: int, mu: float) -> Errors:
    """Errors for the mean of N(theta, 1), theta within BOUND of 0."""
    clip = BOUND + MARGIN
    yield "Gaussian", math.sqrt(1 / n + (2 * clip / (n * mu)) ** 2 + _clipping_bias() ** 2)
    least = least_error("normal-mean", n=n, budget=gdp(mu), sigma=1, radius=BOUND)
    yield "least error", _root(least.lower)
    yield "no privacy", 1 / math.sqrt(n)


def _coefficient(n: int, mu: float) -> Errors:
    """Covariates of 1 and -1, so that the sum of x y alone needs noise."""
    clip = BOUND + MARGIN
    yield "Gaussian", math.sqrt(1 / n + (2 * clip / (n * mu)) ** 2 + _clipping_bias() ** 2)
    least = least_error("regression-coefficient", n=n, budget=gdp(mu), sigma=1, radius=BOUND)
    yield "least error", _root(least.lower)
    yield "no privacy", 1 / math.sqrt(n)


def _categories(n: int, mu: float) -> Errors:
    k = CATEGORIES
    sample = (1 - 1 / k) / n
    yield "Gaussian", math.sqrt(sample + 2 * k / (n * mu) ** 2)
    least = least_error("category-shares", n=n, budget=gdp(mu), categories=k)
    yield "least error", _root(least.lower)
    yield "no privacy", math.sqrt(sample)


def _counts(n: int, mu: float) -> Errors:
    options = _histogram(mu).options
    for name, shown in (("Laplace", "discrete Laplace"), ("Gaussian", "rounded Gaussian")):
        yield name, next(o.error for o in options if o.name == shown)
    yield (
        "least error",
        _root(least_error("histogram", n=n, budget=gdp(mu), categories=CATEGORIES).lower),
    )


@cache
def _histogram(mu: float) -> Options:
    return alike(gdp(mu), problem="histogram", categories=CATEGORIES)


def _median(n: int, mu: float) -> Errors:
    options = _ranks(n, mu)
    shown = {o.name: o.error for o in options.options}
    yield "inverse sens.", shown["inverse sensitivity"]
    yield "Gaussian", shown["Gaussian"]
    yield "least error", _root(options.least.lower)


@cache
def _ranks(n: int, mu: float) -> Options:
    scores = ndtri((np.arange(n) + 0.5) / n)
    return alike(gdp(mu), problem="median", values=scores, radius=10.0)


def _reports(n: int, epsilon: float) -> Errors:
    k = CATEGORIES
    shown = {
        "the category": "the category itself",
        "bits, optimized": "bits, optimised",
        "Hadamard": "Hadamard",
    }
    ways = encodings(epsilon, k)
    for name, way in shown.items():
        yield name, math.sqrt(k * ways[way].variance(1 / k, n) + (1 - 1 / k) / n)
    budget = pure(float(epsilon))
    least = least_error("category-shares", n=n, budget=budget, categories=k, model="local")
    yield "least error", _root(least.lower)


PROBLEMS = (
    Problem("A share", _share, every=2),
    Problem(f"A mean in a ball, dimension {DIMENSION}", _ball),
    Problem("The mean of a normal law", normal_mean),
    Problem("A regression coefficient", _coefficient),
    Problem(f"Shares of {CATEGORIES} categories", _categories),
    Problem(f"One of {CATEGORIES} counts", _counts, every=2),
    Problem("A median", _median, every=3),
    Problem(f"Shares of {CATEGORIES} categories, local", _reports, "epsilon"),
)


def by_size(mu: float = 0.1, epsilon: float = 1.0) -> str:
    """Return the charts over n."""
    most = {"A median": 10_001}
    charts = []
    for problem in PROBLEMS:
        sizes = [round(n) for n in SIZES if n <= most.get(problem.heading, math.inf)]
        value = mu if problem.parameter == "mu" else epsilon
        charts.append(
            _chart(problem, [(n, n, value) for n in sizes], Axis(100, 1e6, "records, n", log=True))
        )
    return grid(charts, 2, title=f"Error by the number of records, at mu = {mu}")


def by_budget(n: int = 1000) -> str:
    """Return the charts over the budget."""
    charts = [
        _chart(
            problem,
            [(float(b), n, float(b)) for b in BUDGETS],
            Axis(0.01, 3, f"{problem.parameter} of the guarantee", log=True),
        )
        for problem in PROBLEMS
    ]
    return grid(charts, 2, title=f"Error by the budget, for {n:,} records")


def ball_means(n: int, epsilon: float, delta: float, dimension: int) -> dict[str, float]:
    """Duchi's example: Laplace noise by the l1 shift, Gaussian noise by the l2 shift.

    One replaced record moves a mean of vectors of length 1 by at most 2 / n in l2, and by
    2 sqrt(d) / n in l1. Errors are root mean squares for a population whose records have length 1.
    """
    strict, loose = pure(epsilon), approximate(epsilon, delta)
    scale = float(calibrate(Laplace, strict)) * 2 / n * math.sqrt(dimension)
    sigma = float(calibrate(Gaussian, loose)) * 2 / n
    least = least_error("ball-mean", n=n, budget=strict, radius=1, dimension=dimension)
    return {
        "Laplace": math.sqrt(1 / n + 2 * dimension * scale**2),
        "Gaussian": math.sqrt(1 / n + dimension * sigma**2),
        "least error": _root(least.lower),
        "no privacy": 1 / math.sqrt(n),
    }


def by_dimension(n: int, epsilon: float, delta: float) -> str:
    """Return the chart of Laplace against Gaussian noise over the dimension of a mean in a ball."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for d in DIMENSIONS:
        for name, error in ball_means(n, epsilon, delta, d).items():
            lines.setdefault(name, []).append((d, error))
    heading = f"A mean in a ball, for {n:,} records"
    return chart(
        Axis(1, DIMENSIONS[-1], "dimension", log=True),
        Axis(0.001, 1, "root mean squared error", log=True),
        [_line(name, points) for name, points in lines.items()],
        title=heading,
        heading=heading,
        width=560,
        height=360,
    )


def _chart(problem: Problem, places: list[tuple[float, int, float]], x: Axis) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for place, n, value in places[:: problem.every]:
        for name, error in problem.errors(n, value):
            lines.setdefault(name, []).append((place, error))
    heights = [y for points in lines.values() for _, y in points]
    low = 10.0 ** math.floor(math.log10(min(heights)))
    high = 10.0 ** math.ceil(math.log10(max(heights)))
    return chart(
        x,
        Axis(low, high, "root mean squared error", log=True),
        [_line(name, points) for name, points in lines.items()],
        title=problem.heading,
        heading=problem.heading,
        width=400,
        height=300,
    )


def _line(name: str, points: list[tuple[float, float]]) -> Line:
    return Line(
        points,
        name,
        COLORS[name],
        width=2.0 if "least" in name else 1.6,
        dash={"least error": "5 4", "least, local": "2 3"}.get(name, ""),
    )
