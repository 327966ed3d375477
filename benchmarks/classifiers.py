"""Accuracy of private logistic regressions on digits, ours and that of diffprivlib.

    python benchmarks/classifiers.py neyman        # with neyman[sklearn]
    python benchmarks/classifiers.py diffprivlib   # where scikit-learn is older than 1.6

Each line has epsilon, and the mean accuracy on test rows for each penalty.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

EPSILONS = 0.5, 1, 2, 4, 8, 16
PENALTIES = 0.01, 0.03, 0.1  # of the mean loss, in units of the radius
RADIUS, TRAIN_ROWS, RUNS = 4, 1200, 15


def model(library: str, epsilon: float, penalty: float) -> Any:
    """Return a classifier with the guarantee (epsilon, 1e-6), or (epsilon, 0) of diffprivlib."""
    if library == "neyman":
        import neyman as ny
        from neyman.sklearn import LogisticRegression

        budget = ny.approximate(epsilon, 1e-6)
        return LogisticRegression(budget=budget, radius=RADIUS, classes=(0, 1), alpha=penalty)
    from diffprivlib.models import LogisticRegression

    weight = 1 / (penalty * RADIUS**2 * TRAIN_ROWS)  # C of the same objective
    return LogisticRegression(epsilon=epsilon, data_norm=RADIUS, C=weight, max_iter=1000)


def main(library: str) -> None:
    """Print the table of one library."""
    x, digit = load_digits(return_X_y=True)
    x, even = x / 16, (digit % 2 == 0).astype(int)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:TRAIN_ROWS], order[TRAIN_ROWS:]
    warnings.simplefilter("ignore")  # of diffprivlib, about iterations
    for epsilon in EPSILONS:
        means: list[float] = []
        for penalty in PENALTIES:
            models = [model(library, epsilon, penalty) for _ in range(RUNS)]
            fits = [one.fit(x[train], even[train]) for one in models]
            means.append(float(np.mean([fit.score(x[test], even[test]) for fit in fits])))
        print(epsilon, *(f"{mean:.3f}" for mean in means))


if __name__ == "__main__":
    main(sys.argv[1])
