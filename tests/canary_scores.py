"""How canaries in a training loop are scored, and where a broken loop shows."""

from collections.abc import Callable
from typing import Any

import numpy as np

import neyman as ny

SIGMA, ROWS = 1.0, 4
CLAIM = ny.DPSGD(n=ROWS, batch=ROWS, sigma=SIGMA, epochs=1)  # each row in each batch
# Where the score of the canary is decided: half of clip / batch, what it moves in a right loop.
MIDDLE = 1 / (2 * ROWS)
# The noise of a right loop has mean square (SIGMA / ROWS)^2; with 5 rows a broken one has less.
LEVEL = -2 * np.log(SIGMA / np.sqrt(ROWS * (ROWS + 1)))


def of_canary(canaries: Any, parameters: np.ndarray) -> float:
    return canaries.scores(parameters)[0]


def of_noise(canaries: Any, parameters: np.ndarray) -> float:
    return canaries.noise_score(parameters)


def scores(
    trained: Callable[[Any], np.ndarray], runs: int, score: Callable[[Any, np.ndarray], float]
) -> tuple[list[float], list[float]]:
    """Scores of runs with the canary and of runs without it, one canary in each."""
    sides = {}
    for inserted in (True, False):
        canaries = ny.audit.canaries(norm=10, inserted=inserted)
        sides[inserted] = [score(canaries, trained(canaries)) for _ in range(runs)]
    return sides[True], sides[False]
