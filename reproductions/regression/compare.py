"""Errors of private regressions on scikit-learn's data, beside those of diffprivlib.

    make study-regression                                               # needs the network once
    python -m reproductions.regression.compare --python PATH --runs 100

Noise comes from secure bits in both libraries, so no seed repeats the runs: the file holds what one
execution measured. The table of validity follows from the other library's formulas alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import neyman as ny

__all__ = ["BUDGETS", "RESULTS", "Task", "losses_of_a_pair", "tasks"]

RESULTS = Path(__file__).parents[1] / "data" / "regression.json"
EPSILONS = (1, 10)
DELTA = 1e-6
PENALTIES = (0.001, 0.01)
BUDGETS = ("pure", "zcdp", "approximate")
"""diffprivlib's pure epsilon; Neyman at the zCDP that it implies, and at (epsilon, 1e-6)."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Task:
    """Data of scikit-learn, scaled as if its columns' ranges were public.

    Args:
        name: of the data.
        model: "linear" or "logistic".
        x: features in [-1, 1], or of norm at most 1 for a logistic model.
        y: the target in [-1, 1], or a label.
        radius: of the features, for Neyman.
    """

    name: str
    model: Literal["linear", "logistic"]
    x: Floats
    y: Floats
    radius: float


def tasks() -> Iterator[Task]:
    """Return the tasks: two of stored data and two of generators, with public seeds."""
    from sklearn import datasets as stored

    datasets: Any = stored  # its types say data frames too
    x, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    x, y = _to_range(x), _to_range(y[:, None])[:, 0]
    yield Task("diabetes, body mass index", "linear", x[:, 2:3], y, 1.0)
    yield Task("diabetes, 10 features", "linear", x, y, math.sqrt(10) / 2)
    x, y = datasets.make_regression(20_000, 5, noise=20, random_state=0)[:2]
    yield Task("make_regression, 20,000 x 5", "linear", _to_range(x), _scaled(y), 1.0)
    x, y = datasets.load_breast_cancer(return_X_y=True)
    yield Task("breast cancer, 30 features", "logistic", _to_ball(x), y.astype(float), 1.0)
    x, y = datasets.make_classification(20_000, 10, n_informative=5, random_state=0)
    yield Task("make_classification, 20,000 x 10", "logistic", _to_ball(x), y.astype(float), 1.0)


def _to_range(x: Floats) -> Floats:
    low, high = x.min(axis=0), x.max(axis=0)
    return np.clip((2 * x - low - high) / (high - low), -1.0, 1.0)


def _scaled(y: Floats) -> Floats:
    return np.clip(y / np.abs(y).max(), -1.0, 1.0)


def _to_ball(x: Floats) -> Floats:
    z = (x - x.mean(axis=0)) / x.std(axis=0) / math.sqrt(x.shape[1])
    return z / np.maximum(np.linalg.norm(z, axis=1) * (1 + 1e-12), 1.0)[:, None]


def budget_of(kind: str, epsilon: float) -> Any:
    """Return the budget for Neyman: pure epsilon implies zCDP with rho = epsilon^2 / 2."""
    if kind == "zcdp":
        return ny.zcdp(Fraction(epsilon) ** 2 / 2)
    return ny.approximate(epsilon, DELTA)


def score(task: Task, fit: NDArray[np.floating[Any]]) -> float:
    """Return R^2 of a linear model, or the accuracy of a logistic one, on all rows."""
    guess = fit[0] + task.x @ fit[1:]
    if task.model == "linear":
        return 1 - float(((task.y - guess) ** 2).sum() / ((task.y - task.y.mean()) ** 2).sum())
    return float(((guess > 0) == (task.y > 0.5)).mean())


def without_privacy(task: Task, penalty: float | None) -> float:
    """Return the score of the same model without noise, by Neyman's arithmetic or least squares."""
    if task.model == "linear":
        design = np.column_stack([np.ones(len(task.x)), task.x])
        return score(task, np.linalg.lstsq(design, task.y, rcond=None)[0])
    from sklearn.linear_model import LogisticRegression

    assert penalty is not None
    model = LogisticRegression(C=1 / (penalty * len(task.x)), max_iter=10_000)
    model.fit(task.x, task.y)
    return score(task, np.r_[model.intercept_, model.coef_[0]])


def fits_of_neyman(
    task: Task, kind: str, epsilon: float, penalty: float | None, runs: int
) -> list[Floats]:
    """Return released coefficients, the intercept first."""
    budget = budget_of(kind, epsilon)

    def fit() -> Any:
        if task.model == "linear":
            return ny.estimate.regression(
                task.x, task.y, radius=task.radius, bound=1, budget=budget
            ).value
        assert penalty is not None
        return ny.estimate.logistic(
            task.x, task.y, radius=task.radius, penalty=penalty, budget=budget
        ).value

    return [np.asarray(fit()) for _ in range(runs)]


def fits_of_diffprivlib(
    python: str, task: Task, epsilon: float, penalty: float | None, runs: int
) -> tuple[str, list[Floats]]:
    """Return its version and its coefficients, the intercept first."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.npz"
        np.savez(
            path, x=task.x, y=task.y, epsilon=epsilon, runs=runs, model=task.model,
            penalty=penalty or 0.0,
        )  # fmt: skip
        worker = Path(__file__).with_name("worker.py")
        done = subprocess.run(
            [python, worker, path], env=environment, capture_output=True, text=True, check=True
        )
    result = json.loads(done.stdout)
    return result["version"], [np.array(fit) for fit in result["fits"]]


def losses_of_a_pair(
    x_bounds: tuple[float, float], y_bounds: tuple[float, float]
) -> dict[str, float]:
    """Return the largest privacy loss of two neighbors in diffprivlib 0.6.6's sums, over epsilon.

    One feature, without an intercept. A record (x, y) becomes another one; entries are a bound, or
    0 where that is inside. Each of the sums of y^2, x y, and x^2 has Laplace noise for a third of
    epsilon and this sensitivity: the largest |y| squared; the range of x y; and the lower bound of
    x, squared. Far from 0 a shift of Laplace noise has a loss of shift / scale. A right release has
    at most 1 in total.

    Args:
        x_bounds, y_bounds: (lower, upper).
    """
    (a, b), (c, d) = x_bounds, y_bounds
    corners = [a * c, a * d, b * c, b * d]
    sensitivities = max(abs(c), abs(d)) ** 2, max(corners) - min(corners), a**2
    ends = [
        (x, y)
        for x in {a, b, min(max(0.0, a), b)}
        for y in {c, d, min(max(0.0, c), d)}
    ]  # fmt: skip

    def losses(one: tuple[float, float], other: tuple[float, float]) -> list[float]:
        (x, y), (u, v) = one, other
        moved = abs(y * y - v * v), abs(x * y - u * v), abs(x * x - u * u)
        return [_quotient(m, s) / 3 for m, s in zip(moved, sensitivities, strict=True)]

    worst = max(
        ((one, other) for one in ends for other in ends), key=lambda pair: sum(losses(*pair))
    )
    parts = dict(zip(("y^2", "x y", "x^2"), losses(*worst), strict=True))
    return parts | {"total": sum(parts.values())}


def _quotient(moved: float, sensitivity: float) -> float:
    if sensitivity:
        return moved / sensitivity
    return math.inf if moved else 0.0


def measure(python: str, runs: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return what the results file holds."""
    rows: list[dict[str, Any]] = []
    version = ""
    for task in tasks():
        for penalty in PENALTIES if task.model == "logistic" else (None,):
            best = without_privacy(task, penalty)
            for epsilon in EPSILONS:
                version, theirs = fits_of_diffprivlib(python, task, epsilon, penalty, runs)
                arms = {"pure": theirs}
                for kind in BUDGETS[1:]:
                    arms[kind] = fits_of_neyman(task, kind, epsilon, penalty, runs)
                for kind, fits in arms.items():
                    scores = np.sort([score(task, fit) for fit in fits])
                    rows.append({
                        "task": task.name, "model": task.model, "penalty": penalty,
                        "epsilon": epsilon, "budget": kind,
                        "library": "diffprivlib" if kind == "pure" else "neyman",
                        "median": float(np.median(scores)),
                        "tenth": float(np.quantile(scores, 0.1)),
                        "without_privacy": best,
                    })  # fmt: skip
                    tell(json.dumps(rows[-1]))
    return {"runs": runs, "delta": DELTA, "diffprivlib": version, "rows": rows}


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="the Python that has diffprivlib 0.6.6")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    results = measure(given.python, given.runs, lambda line: print(line, flush=True))
    if not given.no_write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
