"""The page of optimality: ``python -m reproductions.optimality.page docs`` writes it.

Every number on the page is computed here when the documentation is built.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from neyman import UnaryEncoding, alike, gdp, least_error, pure
from neyman.accounting import number
from reproductions.markdown import main, table
from reproductions.optimality.panels import (
    BOUND,
    ball_means,
    by_budget,
    by_dimension,
    by_size,
    noise_deviation,
    normal_mean,
)

__all__ = ["pages"]

MU, PEOPLE, CATEGORIES, DIMENSION = 0.1, 10_000, 10, 10
FEW = 1000
EPSILON, DELTA = 1.0, 1e-6


def pages() -> dict[str, str]:
    """Return the page and its figures, as text by name."""
    return {
        "optimality.md": _text(),
        "optimality-size.svg": by_size(MU),
        "optimality-budget.svg": by_budget(FEW),
        "optimality-dimension.svg": by_dimension(PEOPLE, EPSILON, DELTA),
    }


def _rows() -> list[tuple[str, str, str, str, str, str]]:
    n, mu, k, d = PEOPLE, MU, CATEGORIES, DIMENSION
    budget = gdp(mu)
    share = math.hypot(0.5 / math.sqrt(n), noise_deviation(mu, "discrete Gaussian") / n)
    normal = dict(normal_mean(n, mu))
    scores = ndtri((np.arange(1001) + 0.5) / 1001)
    median = alike(budget, problem="median", values=scores, radius=10.0)
    cells = alike(budget, problem="histogram", n=n, categories=k)
    local = pure(1)
    encoding = UnaryEncoding(1.0, k, optimised=True)
    reports = math.sqrt(k * encoding.variance(1 / k, n) + (1 - 1 / k) / n)
    entries = [
        ("share", least_error("share", n=n, budget=budget), "discrete Gaussian noise", share),
        (
            "mean in [0, 1]",
            least_error("bounded-mean", n=n, budget=budget, radius=0.5),
            "Gaussian noise",
            math.hypot(0.5 / math.sqrt(n), 1 / (n * mu)),
        ),
        (
            f"mean in a ball of radius 1, dimension {d}",
            least_error("ball-mean", n=n, budget=budget, radius=1, dimension=d),
            "Gaussian noise",
            math.sqrt(1 / n + 4 * d / (n * mu) ** 2),
        ),
        (
            "mean of a normal distribution, σ = 1, θ in [-2, 2]",
            least_error("normal-mean", n=n, budget=budget, sigma=1, radius=BOUND),
            "clipping and Gaussian noise",
            normal["Gaussian"],
        ),
        (
            "regression coefficient, x = ±1, σ = 1, θ in [-2, 2]",
            least_error("regression-coefficient", n=n, budget=budget, sigma=1, radius=BOUND),
            "clipping and Gaussian noise",
            normal["Gaussian"],
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
    low, high = (ball_means(PEOPLE, EPSILON, DELTA, d) for d in (5, 1000))
    head = ("problem", "best mechanism", "method of the bound", "least error", "its error", "gap")
    return f"""\
# How close to optimal an error is

<!-- Written by `python -m reproductions.optimality.page docs`. Edit that module. -->

`ny.least_error` bounds the error of any release that is as private as a budget. It covers every
mechanism, known or not, and every trade-off curve ([proof](certificates/optimality.md)).

```python
import neyman as ny

least = ny.least_error("share", n=10_000, budget=ny.gdp(0.1))  # .lower is proven
print(ny.alike(ny.gdp(0.1), problem="histogram", categories=10))
```

One record is replaced, and the number of records is public. A budget under add-remove counts
through groups of two. With an unknown number of records no bound is proven.

## The table

Errors are root mean squared errors at μ = {MU} for {PEOPLE:,} records. For a population they
include the error of the sample. *Gap* is the error over the least error: no release with the same
guarantee is better by more than that factor on its worst data.

{table(head, _rows(), words=3)}

Gaussian noise is optimal for shares and means: the gap tends to 1 as n grows. For a histogram the
gap is the root of k/(k-1), because the noise ignores that the counts add up to n. For a normal
distribution and a regression coefficient, the noise covers values up to six deviations, and the
bound is not sharp either. We do not know how much of the gap belongs to which. A median is compared
with a bound near one dataset, which two points prove, so a part of its gap belongs to the bound.

## The pictures

Solid lines are mechanisms, calibrated to one guarantee. No release with that guarantee has a
largest error below the dashed line. Discrete and rounded noise coincide with continuous noise here.

![Error by the number of records](optimality-size.svg)

With few records the error falls as 1/n. With many it falls as 1/√n, as without privacy. The local
model needs 1/√n at every size.

![Error by the budget](optimality-budget.svg)

The dashed lines bend where another method proves more. Where they are flat on the left, the least
error is the error of a constant answer.

## Laplace against Gaussian noise in d dimensions

Duchi (2025) compares the mechanisms for the mean of n vectors of length at most r. One replaced
record moves the mean by at most 2r/n in l2, and by 2r√d/n in l1. So the root mean square of the
length of the noise is 2r√2 d/(nε) for Laplace noise, and 2r√d σ/n for Gaussian noise.

![Error by the dimension](optimality-dimension.svg)

The guarantees differ: pure ε = {EPSILON:g} for Laplace noise, and (ε, δ) = ({EPSILON:g}, {DELTA:g})
for Gaussian noise. At r = 1, with the error of the sample, the errors are {number(low["Laplace"])}
and {number(low["Gaussian"])} in 5 dimensions, and {number(high["Laplace"])} and
{number(high["Gaussian"])} in 1000. The dashed line is the least error of any release with pure
ε = {EPSILON:g}.

## The methods

- *One moved record*: the error of the sample without privacy, plus what privacy adds. The output
  depends on a population through the data alone, so nothing is lost by adding.
- *Two points*, and *Assouad* for several coordinates: an estimator that is good at two parameters
  separates them, which the affinity `f.affinity()` of the curve of a group limits.
- *Van Trees*: the information of an output is at most what the records have and what χ² of the
  curve lets through.
- *Packing* and *Fano*: many parameters at once, for many dimensions with few records.
"""


if __name__ == "__main__":
    main(lambda tell: pages())
