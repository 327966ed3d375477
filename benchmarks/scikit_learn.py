"""Private models on the data of scikit-learn, ours and those of diffprivlib.

    python benchmarks/scikit_learn.py neyman        # with neyman[sklearn]
    python benchmarks/scikit_learn.py diffprivlib   # where scikit-learn is older than 1.6

Prints the share of right answers of logistic regressions on digits for each penalty, and the median
error of linear regressions on diabetes.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

EPSILONS = 0.5, 1, 2, 4, 8, 16
PENALTIES = 0.01, 0.03, 0.1  # of the mean loss, in units of the radius
DELTA = 1e-6  # ours; theirs has none
RADIUS, TRAIN_ROWS, RUNS = 4, 1200, 15
DIABETES_RADIUS, DIABETES_TRAIN_ROWS, DIABETES_RUNS = 0.2, 342, 40


def classifier(library: str, epsilon: float, penalty: float) -> Any:
    """Return a logistic regression with this guarantee."""
    if library == "neyman":
        import neyman as ny
        from neyman.sklearn import LogisticRegression

        budget = ny.approximate(epsilon, DELTA)
        return LogisticRegression(budget=budget, radius=RADIUS, classes=(0, 1), alpha=penalty)
    from diffprivlib.models import LogisticRegression

    weight = 1 / (penalty * RADIUS**2 * TRAIN_ROWS)  # C of the same objective
    return LogisticRegression(epsilon=epsilon, data_norm=RADIUS, C=weight, max_iter=1000)


def line(library: str, epsilon: float) -> Any:
    """Return a linear regression with this guarantee."""
    if library == "neyman":
        import neyman as ny
        from neyman.sklearn import LinearRegression

        budget = ny.approximate(epsilon, DELTA)
        return LinearRegression(budget=budget, radius=DIABETES_RADIUS, bounds=(0, 350))
    from diffprivlib.models import LinearRegression

    ends = -DIABETES_RADIUS, DIABETES_RADIUS
    return LinearRegression(epsilon=epsilon, bounds_X=ends, bounds_y=(0, 350))


def main(library: str) -> None:
    """Print both tables of one library."""
    warnings.simplefilter("ignore")  # of diffprivlib, about iterations
    x, digit = load_digits(return_X_y=True)
    x, even = x / 16, (digit % 2 == 0).astype(int)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:TRAIN_ROWS], order[TRAIN_ROWS:]
    for epsilon in EPSILONS:
        means: list[float] = []
        for penalty in PENALTIES:
            models = [classifier(library, epsilon, penalty) for _ in range(RUNS)]
            fits = [one.fit(x[train], even[train]) for one in models]
            means.append(float(np.mean([fit.score(x[test], even[test]) for fit in fits])))
        print("digits", epsilon, *(f"{mean:.3f}" for mean in means))
    x, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:DIABETES_TRAIN_ROWS], order[DIABETES_TRAIN_ROWS:]
    for epsilon in EPSILONS:
        fits = [line(library, epsilon).fit(x[train], y[train]) for _ in range(DIABETES_RUNS)]
        errors = [float(np.mean((fit.predict(x[test]) - y[test]) ** 2)) ** 0.5 for fit in fits]
        print("diabetes", epsilon, f"{np.median(errors):.1f}")


if __name__ == "__main__":
    main(sys.argv[1])
