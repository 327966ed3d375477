"""One guarantee, several mechanisms: kinds of noise, or what to do about a problem."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

from neyman.accounting import compare_noise
from neyman.accounting.calibrate import Budget
from neyman.accounting.compare_noise import TAILS, Comparison
from neyman.accounting.options import Options, Problem, options_for

__all__ = ["alike"]


@overload
def alike(
    target: Budget,
    count: int = 1,
    sensitivity: int = 1,
    kinds: Iterable[str] | None = None,
    tails: Iterable[float] = TAILS,
) -> Comparison: ...
@overload
def alike(
    target: Budget,
    *,
    problem: Problem,
    n: int | None = None,
    radius: float | None = None,
    categories: int | None = None,
    values: Iterable[float] | None = None,
) -> Options: ...
def alike(
    target: Budget,
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
    """Calibrate each noise distribution to one target and compare their errors.

    With ``problem`` it compares what the library can do about a mean, median, or histogram, each
    beside the least error of any release that is as private, and recommends one. One record of n is
    replaced.

    Args:
        target: a budget: a curve such as ``ny.approximate(1, 1e-6)``, or ``ny.at_most(...)``.
        count: how many releases share it, each with as much noise; at least 1.
        sensitivity: by how much one answer moves between neighbors, a whole number of at least 1.
        kinds: some of "Laplace", "discrete Laplace", "Gaussian", "discrete Gaussian", "rounded
            Gaussian" and, for one release, "canonical"; all of them if left out.
        tails: probabilities in (0, 1), from 1e-30 up.
        problem: "mean" of a law on an interval of half width ``radius`` (0.5 if left out), with n
            records; "histogram" of ``categories`` counts, for n records or the limit of many;
            "median" of data like ``values``, public or simulated numbers within ``radius`` of 0.
        n, radius, categories, values: as the problem needs them; see `least_error`.

    Returns:
        A `Comparison`; where no noise of a kind is enough (a Gaussian is never pure) all is inf.
        Errors are certified for the noise as calibrated; upper is safe. With ``problem`` the
        options, with ``.least`` and ``.recommended``.

    Raises:
        ValueError: for a kind that is none of these, canonical noise for several releases, an
            unknown problem or one that lacks an argument, or what `calibrate` refuses.

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
        return compare_noise.alike(target, count, sensitivity, kinds, tails)
    return options_for(problem, target, n=n, radius=radius, categories=categories, values=values)
