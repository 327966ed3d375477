"""Fits of diffprivlib, in an environment of its own: it reads a task and writes coefficients.

    python worker.py TASK.npz    # prints one JSON list of [intercept, coefficients...] per run

It uses nothing but that library and NumPy, so that it runs where Neyman is not installed.
"""

from __future__ import annotations

import json
import sys
import warnings


def main() -> None:
    """Fit the task's model as often as it says."""
    import diffprivlib  # pyright: ignore[reportMissingImports]
    import numpy as np
    from diffprivlib.models import LinearRegression, LogisticRegression  # pyright: ignore[reportMissingImports]

    warnings.filterwarnings("ignore")
    task = np.load(sys.argv[1])
    x, y, epsilon, runs = task["x"], task["y"], float(task["epsilon"]), int(task["runs"])
    fits = []
    for _ in range(runs):
        if task["model"] == "linear":
            model = LinearRegression(epsilon=epsilon, bounds_X=(-1, 1), bounds_y=(-1, 1))
        else:
            model = LogisticRegression(
                epsilon=epsilon, data_norm=1.0, C=1 / (float(task["penalty"]) * len(x))
            )
        model.fit(x, y)
        fits.append([float(np.ravel(model.intercept_)[0]), *np.ravel(model.coef_).tolist()])
    print(json.dumps({"version": diffprivlib.__version__, "fits": fits}))


if __name__ == "__main__":
    main()
