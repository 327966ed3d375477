"""Compare the noise distributions, or the mechanisms for a problem, that meet one guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args, overload

import numpy as np

from neyman.accounting import compare_noise
from neyman.accounting.calibrate import Budget
from neyman.accounting.compare_noise import TAILS, Comparison, Kind, error_of
from neyman.accounting.optimality.least_error import least_error
from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from neyman.mechanisms.inverse_sensitivity import InverseSensitivity
from neyman.mechanisms.rounded_noise import RoundedGaussian
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import up

Problem = Literal["mean", "median", "histogram"]


@dataclass(frozen=True)
class Limits:
    """Hold the sizes of the grids on which `alike` compares mechanisms."""

    grid_steps: int = 1000  # per interval; integer noise rounds values to this grid


LIMITS = Limits()

EXACT = ("discrete Laplace", "discrete Gaussian", "rounded Gaussian", "inverse sensitivity")
CELLS: dict[str, Callable[[float], Kind]] = {
    "Laplace": lambda s: Laplace(s, 2),
    "discrete Laplace": lambda s: DiscreteLaplace(s, 2),
    "Gaussian": lambda s: Gaussian(s, up(math.sqrt(2))),
    "discrete Gaussian": lambda s: DiscreteGaussian(s, sensitivity=[(1, 1)]),
    "rounded Gaussian": lambda s: RoundedGaussian(s, squared_norm=2),
}
"""Noise distributions for counts. Replacing one record changes two counts by 1 each."""


@dataclass(frozen=True)
class Option:
    """Represent one way to release an answer.

    Args:
        scale: the parameter with the least noise that meets the guarantee: the smallest scale or
            sigma, or the largest rate of an exponential mechanism.
        error: root mean squared error. It includes sampling error if the answer is about a
            population.
        times_least: error over the least error of any release with the same guarantee.
        exact: True if the library draws it exactly, not by rounding floating-point noise.
    """

    name: str
    scale: float
    error: float
    times_least: float
    exact: bool


@dataclass(frozen=True)
class Options:
    """List ways to release an answer at one guarantee, smallest error first. `print` shows a table.

    Args:
        least: the least mean squared error of any release with the same guarantee; lower is proven.
        options: the mechanisms that can meet the guarantee.
    """

    problem: Problem
    least: Bound
    options: tuple[Option, ...]

    @property
    def recommended(self) -> Option:
        """Return the option with the smallest error among exactly drawn mechanisms."""
        return next(option for option in self.options if option.exact)

    def __str__(self) -> str:
        head = f"{'mechanism':<20}  {'scale':>10}  {'error':>10}  {'× least':>8}"
        rows = [
            f"{o.name:<20}  {o.scale:>10.4g}  {o.error:>10.4g}  {o.times_least:>8.3f}"
            for o in self.options
        ]
        least = f"{'least error':<20}  {'':>10}  {math.sqrt(self.least.lower):>10.4g}"
        best = self.recommended
        advice = f"Recommended: {best.name}, {best.times_least:.3g} times the least error."
        return "\n".join([head, *rows, least, advice])


@overload
def alike(
    budget: Budget,
    count: int = 1,
    sensitivity: int = 1,
    kinds: Iterable[str] | None = None,
    tails: Iterable[float] = TAILS,
) -> Comparison: ...
@overload
def alike(
    budget: Budget,
    *,
    problem: Problem,
    n: int | None = None,
    radius: float | None = None,
    categories: int | None = None,
    values: Iterable[float] | None = None,
) -> Options: ...
def alike(
    budget: Budget,
    count: int = 1,
    sensitivity: int = 1,
    kinds: Iterable[str] | None = None,
    tails: Iterable[float] = TAILS,
    *,
    problem: Problem | None = None,
    n: int | None = None,
    radius: float | None = None,
    categories: int | None = None,
    values: Iterable[float] | None = None,
) -> Comparison | Options:
    """Calibrate each noise distribution to one budget and compare their errors.

    With ``problem``, compare the library's mechanisms for a mean, median, or histogram with the
    least error of any release with the same guarantee, and recommend one. Neighbors differ by
    replacing one of n records.

    Args:
        budget: a budget: a curve such as ``ny.approximate(1, 1e-6)``, or ``ny.at_most(...)``.
        count: number of releases that share the budget, each with the same noise; at least 1.
        sensitivity: largest change of one answer between neighbors, a whole number of at least 1.
        kinds: some of "Laplace", "discrete Laplace", "Gaussian", "discrete Gaussian", "rounded
            Gaussian" and, for one release, "canonical"; all by default.
        tails: probabilities in (0, 1), from 1e-30 up.
        problem: "mean" of a distribution on an interval of half width ``radius`` (0.5 if left out),
            with n records; "histogram" of ``categories`` counts, for n records or the limit of
            large n; "median" of data like ``values``, public or simulated numbers within ``radius``
            of 0.
        n, radius, categories, values: arguments of the problem; see `least_error`.

    Returns:
        A `Comparison`. If no noise of a kind meets the budget (a Gaussian is never pure), its
        numbers are inf. Errors are certified for the calibrated noise; upper is safe. With
        ``problem``: `Options`, with ``.least`` and ``.recommended``.

    Raises:
        ValueError: a kind or problem is unknown, canonical noise is asked for several releases, an
            argument of the problem is missing, or `calibrate` refuses.

    Examples:
        >>> import neyman as ny
        >>> found = ny.alike(ny.approximate(1, 1e-6), kinds=["Laplace", "Gaussian"])
        >>> print(found)
        noise      scale  variance  mean error  0.05 beyond  0.001 beyond  1e-09 beyond
        Laplace        1         2           1       2.9957        6.9077        20.723
        Gaussian  4.2247    17.848      3.3708       8.2802        13.901         25.81
        >>> best = ny.alike(ny.gdp(0.5), problem="histogram", categories=10).recommended
        >>> best.name, f"{best.times_least:.2f}"
        ('rounded Gaussian', '1.13')
    """
    if problem is None:
        given = {"n": n, "radius": radius, "categories": categories, "values": values}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} = {value!r} needs problem=, such as 'mean'")
        return compare_noise.alike(budget, count, sensitivity, kinds, tails)
    check.one_of("problem", problem, get_args(Problem))
    if problem == "mean":
        if n is None:
            raise ValueError("n: a mean needs the number of records")
        half = 0.5 if radius is None else check.positive("radius", radius)
        least = least_error("bounded-mean", n=n, budget=budget, radius=half)
        squares = _noise_on_interval(budget, half, n, half**2 / n)
    elif problem == "histogram":
        if categories is None:
            raise ValueError("categories: a histogram needs the number of its cells")
        least = least_error("histogram", n=n, budget=budget, categories=categories)
        squares: list[tuple[str, float, float]] = []
        for name, make in CELLS.items():
            scale = compare_noise.least_scale(make, budget)
            if scale is not None:
                row = error_of(make(scale))
                squares.append((name, row.scale, row.variance.upper))
    else:
        if values is None:
            raise ValueError("values: a median needs public or simulated numbers like the data")
        least, squares = _median(budget, values, radius)
    options = [
        Option(name, scale, math.sqrt(square), math.sqrt(square / least.lower), name in EXACT)
        for name, scale, square in squares
        if math.isfinite(square)
    ]
    return Options(problem, least, tuple(sorted(options, key=lambda option: option.error)))


def _noise_on_interval(
    budget: Budget, half: float, n: int = 1, sampling: float = 0.0
) -> list[tuple[str, float, float]]:
    """Return the name, scale, and squared error of each noise, for a mean of n values.

    ``half``: half width of the values' interval. ``sampling``: mean squared error without noise.
    """
    return [
        (
            k.kind,
            k.scale * 2 * half / LIMITS.grid_steps / n,
            sampling + k.variance.upper * (2 * half / LIMITS.grid_steps / n) ** 2,
        )
        for k in compare_noise.alike(budget, sensitivity=LIMITS.grid_steps).kinds
    ]


def _median(
    budget: Budget, values: Iterable[float], radius: float | None
) -> tuple[Bound, list[tuple[str, float, float]]]:
    """Compute the least error and the options for the median of ``values``, in [-radius, radius].

    Compare the inverse-sensitivity mechanism with noise for the whole range. Return the bound on
    the least squared error, and each option's name, parameter, and squared error.
    """
    x = np.sort(np.array([check.finite("values", v) for v in check.several("values", values)]))
    half = float(np.abs(x).max()) if radius is None else check.positive("radius", radius)
    if len(x) < 3 or half < float(np.abs(x).max()):
        raise ValueError(
            f"values must be at least 3 numbers within radius = {half!r} of 0; clip them first"
        )
    least = least_error("quantile", budget=budget, values=x.tolist())
    true = float(x[math.ceil(len(x) / 2) - 1])
    squares = _noise_on_interval(budget, half)
    scale = compare_noise.least_scale(lambda s: InverseSensitivity(1 / s), budget)
    if scale is not None:
        grid = np.linspace(-half, half, 200_001)  # on a coarse grid, a draw can be right by luck
        below = np.searchsorted(x, grid, side="left")
        upto = np.searchsorted(x, grid, side="right")
        distance = np.maximum(0.0, np.maximum(below - len(x) / 2, len(x) / 2 - upto))
        weight = np.exp(-(distance - distance.min()) / scale)
        square = float(weight @ (grid - true) ** 2 / weight.sum())
        squares.append(("inverse sensitivity", 1 / scale, square))
    return least, squares
