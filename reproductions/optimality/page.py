"""The page of optimality: ``python -m reproductions.optimality.page docs`` writes it.

Every number on the page is computed here when the documentation is built.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.special import ndtri

from neyman.accounting.alike import alike
from neyman.accounting.calibrate import calibrate
from neyman.mechanisms.local_randomizers import UnaryEncoding
from neyman.mechanisms.randomized_response import RandomizedResponse
from neyman.optimality.least_error import least_error
from neyman.semantics.digits import number
from neyman.tradeoff.guarantees import gdp, pure
from reproductions.markdown import main, table
from reproductions.svg_chart import Axis, Line, chart

__all__ = ["pages"]

MU, PEOPLE, CATEGORIES, DIMENSION = 0.1, 10_000, 10, 10
SIZES = np.geomspace(100, 1e6, 25)
FEW = 1000
BUDGETS = tuple(float(mu) for mu in np.geomspace(0.01, 3, 13))
BLUE, RED, GREEN, GRAY = "#1d4f91", "#a8430c", "#4c7a34", "#5c5c5c"


def pages() -> dict[str, str]:
    """The page and its figures, as text by name."""
    return {
        "optimality.md": _text(),
        "optimality-size.svg": _by_size(),
        "optimality-budget.svg": _by_budget(),
    }


@cache
def _noise(mu: float, kind: str) -> float:
    """Standard deviation of a count's noise at G_mu."""
    return math.sqrt(alike(gdp(mu), kinds=[kind], tails=[]).kinds[0].variance.upper)


def _share_error(n: float, deviation: float) -> float:
    """Root mean squared error of a share at 1/2, with the sample's."""
    return math.sqrt(0.25 / n + (deviation / n) ** 2)


@cache
def _response(mu: float) -> float:
    """Deviation of one report of a bit by randomized response at G_mu, of a mean in [-1, 1]."""
    epsilon = calibrate(RandomizedResponse, gdp(mu))
    return 1 / math.tanh(epsilon / 2)


def _least(n: float, mu: float, model: str = "central") -> float:
    return math.sqrt(least_error("share", n=round(n), budget=gdp(mu), model=model).lower)


def _lines(places: list[tuple[float, float, float]]) -> list[Line]:
    """Lines of errors: at each place its abscissa, n, and mu."""

    def noise(kind: str) -> list[tuple[float, float]]:
        return [(x, _share_error(n, _noise(mu, kind))) for x, n, mu in places]

    return [
        Line(noise("Laplace"), "Laplace noise", GREEN),
        Line(noise("discrete Laplace"), "", GREEN, dash="2 3"),
        Line(noise("Gaussian"), "Gaussian noise", BLUE, width=2.4),
        Line(noise("discrete Gaussian"), "", BLUE, dash="2 3"),
        Line(noise("rounded Gaussian"), "", BLUE, dash="6 3"),
        Line([(x, _least(n, mu)) for x, n, mu in places], "least error", RED, dash="5 4"),
        Line(
            [(x, _response(mu) / (2 * math.sqrt(n))) for x, n, mu in places],
            "randomized response",
            GRAY,
        ),
        Line(
            [(x, _least(n, mu, "local")) for x, n, mu in places],
            "least error, local",
            RED,
            dash="2 3",
        ),
        Line([(x, 0.5 / math.sqrt(n)) for x, n, _ in places], "no privacy", "#b8bcc2"),
    ]


def _by_size() -> str:
    lines = _lines([(float(n), float(n), MU) for n in SIZES])
    return chart(
        Axis(100, 1e6, "records, n", log=True),
        Axis(3e-4, 3, "root mean squared error", log=True),
        lines,
        title=f"Error of a share by the number of records, at mu = {MU}",
        heading=f"Error of a share at mu = {MU}",
        width=780,
    )


def _by_budget() -> str:
    lines = _lines([(mu, float(FEW), mu) for mu in BUDGETS])
    return chart(
        Axis(0.01, 3, "mu of the guarantee", log=True),
        Axis(1e-2, 10, "root mean squared error", log=True),
        lines,
        title=f"Error of a share by the budget, for {FEW:,} records",
        heading=f"Error of a share of {FEW:,} records",
        width=780,
    )


def _rows() -> list[tuple[str, str, str, str, str, str]]:
    n, mu, k, d = PEOPLE, MU, CATEGORIES, DIMENSION
    budget = gdp(mu)
    share = _share_error(n, _noise(mu, "discrete Gaussian"))
    scores = ndtri((np.arange(1001) + 0.5) / 1001)
    median = alike(budget, problem="median", values=scores, radius=10.0)
    cells = alike(budget, problem="histogram", n=n, categories=k)
    local = pure(1)
    encoding = UnaryEncoding(1.0, k, optimised=True)
    reports = math.sqrt(k * encoding.variance(1 / k, n) + (1 - 1 / k) / n)
    entries = [
        (
            "share",
            least_error("share", n=n, budget=budget),
            "discrete Gaussian noise",
            share,
        ),
        (
            "mean in [0, 1]",
            least_error("bounded-mean", n=n, budget=budget, radius=0.5),
            "Gaussian noise",
            _share_error(n, 1 / mu),
        ),
        (
            f"mean in a ball of radius 1, dimension {d}",
            least_error("ball-mean", n=n, budget=budget, radius=1, dimension=d),
            "Gaussian noise",
            math.sqrt(1 / n + 4 * d / (n * mu) ** 2),
        ),
        (f"count, histogram of {k}", cells.least, cells.recommended.name, cells.recommended.error),
        (
            f"shares of {k} categories",
            least_error("category-shares", n=n, budget=budget, categories=k),
            "Gaussian noise",
            math.sqrt((1 - 1 / k) / n + 2 * k / (n * mu) ** 2),
        ),
        (
            "median near 1,001 normal scores, in [-10, 10]",
            median.least,
            median.recommended.name,
            median.recommended.error,
        ),
        (
            "share, local, ε = 1",
            least_error("share", n=n, budget=local, model="local"),
            "randomized response",
            1 / (2 * math.sqrt(n) * math.tanh(0.5)),
        ),
        (
            f"shares of {k} categories, local, ε = 1",
            least_error("category-shares", n=n, budget=local, categories=k, model="local"),
            "bits, optimised",
            reports,
        ),
    ]
    return [
        (
            name,
            best,
            least.method,
            number(math.sqrt(least.lower), up=False),
            number(error),
            number(error / math.sqrt(least.lower), 4),
        )
        for name, least, best, error in entries
    ]


def _text() -> str:
    head = ("problem", "best mechanism", "method of the bound", "least error", "its error", "gap")
    return f"""\
# How close to optimal an error is

<!-- Written by `python -m reproductions.optimality.page docs`. Edit that module. -->

`ny.least_error` bounds the error of any release that is as private as a budget. It covers the
library's mechanisms, all others, and those that nobody has found. The bound holds for every
trade-off curve, and its [proof](certificates/optimality.md) names no definition.

```python
import neyman as ny

least = ny.least_error("share", n=10_000, budget=ny.gdp(0.1))  # .lower is proven
print(ny.alike(ny.gdp(0.1), problem="histogram", categories=10))
```

## The table

Errors are root mean squared errors at μ = {MU} for {PEOPLE:,} records, of which one is replaced.
For a population they include that the records are a sample. *Gap* is the error over the least
error: no release with the same guarantee is better by more than that factor on its worst data.

{table(head, _rows(), words=3)}

Gaussian noise is optimal for shares and means: the gap tends to 1 as n grows. For a histogram its
gap is the root of k/(k-1), because the noise ignores that the counts add up to n. A median is
compared with a bound near one data set, which two points prove, so a part of its gap belongs to
the bound.

## The picture

![Error of a share by the number of records](optimality-size.svg)

![Error of a share by the budget](optimality-budget.svg)

Each mechanism is calibrated to the same G_μ. Dotted lines are discrete noise and the dashed blue
line is rounded noise: they cover the continuous ones. Few records cost 1/(nμ), and many cost
1/(2√n), as without privacy. The local model costs 1/(μ√n) at every size.

## The methods

- *One moved record*: the error of the sample without privacy, plus what privacy adds, as one sum.
  The output depends on a population through the data alone, so nothing is lost by adding.
- *Two points*, and *Assouad* for several coordinates: an estimator that is good at two parameters
  tells them apart, which the affinity `f.affinity()` of the curve of a group prevents.
- *Van Trees*: the information of an output is at most what the records have and what χ² of the
  curve lets through.
- *Packing* and *Fano*: many parameters at once. They are the best in many dimensions with few
  records.

The bound is for one replaced record and a public number of records. A budget under add-remove
counts through groups of two. With an unknown number of records no bound is proven.
"""


if __name__ == "__main__":
    main(lambda tell: pages())
