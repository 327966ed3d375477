"""Programs of other libraries, in an environment of their own: `python worker.py PROGRAM`.

It reads one letter per call, "d" for the data and "n" for the neighbor, and writes one JSON line.
It uses nothing but the library, so that it runs where Neyman is not installed.
"""

from __future__ import annotations

import json
import sys
import warnings

warnings.filterwarnings("ignore")


def diffprivlib_regression():
    """0.6.6 takes the sensitivity of x^2 from the lower bound alone: 0 here (issue 105).

    So the size of the coefficient shows whether the second row is there.
    """
    import numpy as np
    from diffprivlib.models import LinearRegression

    def fit(x):
        model = LinearRegression(epsilon=1, bounds_X=(0, 1), bounds_y=(0, 1), fit_intercept=False)
        model.fit(np.array(x, float).reshape(-1, 1), np.zeros(len(x)))
        return float(model.coef_[0])

    return lambda letter: fit([0.01, 1] if letter == "d" else [0.01])


def diffprivlib_laplace():
    """0.1.1 draws Laplace noise by inversion in floats (Mironov 2012)."""
    from sklearn.utils import fixes

    fixes._joblib_parallel_args = None  # of an old scikit-learn; only a model of theirs needs it
    from diffprivlib.mechanisms import Laplace

    mechanism = Laplace().set_epsilon(1).set_sensitivity(1)
    return lambda letter: float(mechanism.randomise(1 if letter == "d" else 0))


def datasynthesizer_tables():
    """0.1.4 adds the noise of probabilities to counts: 2 (d - k) / (n epsilon) (issue 34)."""
    import pandas as pd
    from DataSynthesizer.lib.PrivBayes import get_noisy_distribution_of_attributes

    data = pd.DataFrame({"a": [0, 1] * 10 + [0], "b": [0, 1] * 10 + [0]})

    def table(letter):
        rows = data if letter == "d" else data[:-1]
        noisy = get_noisy_distribution_of_attributes(["a", "b"], rows, 1.0)
        return noisy["count"].tolist()

    return table


def serve(program):
    """Answer each letter on its own line."""
    for line in sys.stdin:
        print(json.dumps(program(line.strip())), flush=True)


if __name__ == "__main__":
    serve({f.__name__: f for f in (
        diffprivlib_regression, diffprivlib_laplace, datasynthesizer_tables
    )}[sys.argv[1]]())  # fmt: skip
