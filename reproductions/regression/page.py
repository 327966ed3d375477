"""The page on regression: ``python -m reproductions.regression.page docs`` writes it.

The errors come from the results file, and every other number is computed here.
"""

from __future__ import annotations

import json
import math
from typing import Any

from scipy.special import betaincinv

import neyman as ny
from neyman.accounting import number
from neyman.analysis.estimators.logistic_fit import largest_move
from reproductions.markdown import main, table
from reproductions.regression.compare import BUDGETS, RESULTS, losses_of_a_pair
from reproductions.regression.coverage import COVERAGE

__all__ = ["pages"]

PAIRS = (
    ("(0, 1)", (0.0, 1.0), (0.0, 1.0)),
    ("(18, 42.2), body mass index", (18.0, 42.2), (25.0, 346.0)),
    ("(-1, 1)", (-1.0, 1.0), (-1.0, 1.0)),
)
SIZES = (1_000, 10_000, 1_000_000)
MU, BOUND, EPSILON = 0.1, 4.0, 1


def pages() -> dict[str, str]:
    """Return the page, as its text by its name."""
    results = json.loads(RESULTS.read_text("utf-8"))
    simulated = json.loads(COVERAGE.read_text("utf-8"))
    return {"regression.md": _page(results, simulated)}


def _page(results: dict[str, Any], simulated: dict[str, Any]) -> str:
    return f"""\
# Private regression

<!-- Written by `python -m reproductions.regression.page docs`. Edit that module. -->

`ny.estimate.regression` and `ny.estimate.logistic` release coefficients with a receipt:

```python
import numpy as np
import neyman as ny

x = np.random.default_rng(0).uniform(-1, 1, (20_000, 2))
y = 0.2 + x @ [0.5, -0.3]
fit = ny.estimate.regression(x, y, radius=1.5, bound=1, budget=ny.gdp(1))
low, high = fit.interval(confidence=0.95)                  # sampling and noise, approximate
low, high = fit.interval(confidence=0.95, about="data")    # noise alone, proven for all data
```

The sensitivity holds for the integers that are computed, and the noise is exact
([regression](certificates/regression.md), [logistic](certificates/logistic.md)).

## What the intervals cover

{_coverage()}

No interval covers what clipping y, or the penalty, changes.

The approximate 95% intervals of the first slope covered it this often in {simulated["runs"]:,}
simulations each (standard normal features, errors with deviation 0.5). Every interval was finite.
With radius 1 most rows are clipped:

{_simulated(simulated)}

## Compared with diffprivlib {results["diffprivlib"]}

Both libraries get the same scaled data of scikit-learn, and the ranges of the columns as public
bounds (radius 1, and √10/2 for ten features). diffprivlib claims pure ε. Neyman's noise is
Gaussian, so it gets two budgets: ρ = ε²/2, which pure ε implies, and (ε, {results["delta"]:g}),
which needs more noise. Each cell has the median and the lowest tenth of {results["runs"]} runs.

R² of linear models at ε = {EPSILON}, on the rows of the fit:

{_scores(results, "linear")}

Accuracy of logistic models at ε = {EPSILON}, with one penalty. Neyman penalizes the constant too:

{_scores(results, "logistic")}

At equal zCDP Neyman's models are at least as accurate, or within 0.1 points. At (ε, δ)
diffprivlib's logistic models are at least as accurate in most rows, and its linear models with ten
features have more error at both budgets. The same holds at ε = 10
([all scores](../reproductions/data/regression.json)).

## Validity

The guarantee of diffprivlib's `LinearRegression` does not hold, because its noise is too small. It
takes the sensitivity of x² from the lower bound of x alone (issue 105 of its repository). The table
has the largest privacy loss of two neighbors in its noisy sums, over the ε that it states, for one
feature without an intercept. A valid release has at most 1:

{_losses()}

With bounds (0, 1) the sum of x² gets no noise, and an [audit](howto/audit.md) of the coefficients
refutes ε = 1. With an intercept, as in the comparison above, the parts of the budget also add up to
(d + 2)/(d + 1) ε for d features, and noisy means move the bounds, so that their lower end is not
the largest absolute value.

We found no fault in the noise of its `LogisticRegression`, and did not audit it. Its proof is for
the exact minimum, and does not count the tolerance of the search. Its classes are those that appear
in the data.

## How far a logistic fit can move

One replaced record moves the fit by at most D/(n λ). The textbook has D = 2 for features of norm
1. Neyman's D is {_move(1.0)} at λ = 1 and {_move(0.001)} at λ = 0.001, because no fit is very wrong
on two opposite records.

## Compared with the least error

This is a coefficient θ of y = θ x + N(0, 1), at θ = 0 with x = ±1, y clipped at ±{BOUND:g},
μ = {MU:g}, and no intercept, against `ny.least_error("regression-coefficient")` at the worst θ.
The error is to first order in noise over second moments, without the bias of clipping.

Divided by the least error, it is {_least()} records. The
noise grows with the bound of y, so a wide bound costs most with few records.
"""


def _coverage() -> str:
    rows = [
        [
            "`regression`",
            "coefficients of a linear model with errors of constant variance, if no y is clipped; "
            "approximate, to first order in noise over second moments; infinite where noise may "
            "hide the moments",
            "least squares of the clipped rows, all coordinates together; proven for all data",
        ],
        [
            "`logistic`",
            "with `sampling=True` the penalized fit of the clipped population, approximate "
            "([coverage](howto/estimates.md)); else none",
            "the penalized fit of the clipped records; proven",
        ],
    ]
    return table(["estimate", "about the population", "about the data"], rows, words=3)


def _simulated(simulated: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for r in simulated["rows"]:
        n, k = r["finite"], r["covers"]
        assert n == simulated["runs"]  # every interval is finite
        # Clopper and Pearson.
        low = betaincinv(k, n - k + 1, 0.005)
        high = betaincinv(k + 1, n - k, 0.995)
        interval = f"{low:.3f} to {high:.3f}"
        settings = f"{r['n']:,}", str(r["size"]), f"{r['mu']:g}", f"{r['radius']:g}"
        rows.append([*settings, f"{k / n:.3f}", interval])
    head = ["records", "features", "μ", "radius", "coverage", "99% interval"]
    return table(head, rows)


def _scores(results: dict[str, Any], model: str) -> str:
    cells: dict[tuple[str, Any], dict[str, dict[str, Any]]] = {}
    for row in results["rows"]:
        if row["model"] == model and row["epsilon"] == EPSILON:
            key = row["task"], row["penalty"]
            cells.setdefault(key, {})[row["budget"]] = row
    head = ["data", "diffprivlib, ε", "Neyman, ρ = ε²/2", "Neyman, (ε, δ)", "no privacy"]
    rows: list[list[str]] = []
    for (task, penalty), by in cells.items():
        name = task if penalty is None else f"{task}, λ = {penalty:g}"
        rows.append([
            name,
            *(f"{_shown(by[b]['median'])} ({_shown(by[b]['tenth'])})" for b in BUDGETS),
            _shown(by["pure"]["without_privacy"]),
        ])  # fmt: skip
    return table(head, rows)


def _shown(score: float) -> str:
    return f"{score:.3f}" if score > -1 else "below -1"


def _losses() -> str:
    rows: list[list[str]] = []
    for name, x_bounds, y_bounds in PAIRS:
        losses = losses_of_a_pair(x_bounds, y_bounds)
        rows.append([name, *(_ratio(losses[key]) for key in ("x^2", "x y", "y^2", "total"))])
    return table(["bounds of x", "sum of x²", "sum of x y", "sum of y²", "total over ε"], rows)


def _ratio(loss: float) -> str:
    return "infinite" if math.isinf(loss) else f"{loss:.2f}"


def _move(penalty: float) -> str:
    return f"{largest_move(1, penalty, False) * penalty:.3f}"


def _least() -> str:
    said: list[str] = []
    for n in SIZES:
        # Rows (x, y / b) in units of G: sigma is sqrt(8) / mu, half its square off the diagonal.
        error = math.sqrt(1 / n + BOUND**2 * 4 / (MU * n) ** 2)
        least = ny.least_error("regression-coefficient", n=n, budget=ny.gdp(MU), sigma=1)
        low = math.sqrt(least.lower)
        said.append(f"{number(error / low, 3)} with {n:,}")
    return ", ".join(said)


if __name__ == "__main__":
    main(lambda tell: pages())
