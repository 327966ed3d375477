"""An attack on training with digits: a canary in half of many runs of `ny.train`.

    python -m reproductions.dp_sgd.canary_attack
    python -m reproductions.dp_sgd.canary_attack --runs 10 --no-write    # a small sample

The attacker sees every step. Their score at each epoch is the likelihood ratio of what they saw of
the canary's parameter, which is the best test. The threshold of an epoch is fixed before the runs:
a quantile of scores that are drawn without any training. The model says whether a digit is even,
because it is small; the attack does not depend on the model. Noise has no seed, so the file holds
the counts of one execution.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import neyman as ny
from reproductions.dp_sgd.private_training import Task, digits

__all__ = ["EPOCHS", "LEVEL", "MECHANISM", "RESULTS", "after", "counts"]

RESULTS = Path(__file__).parents[1] / "data" / "canary_attack.json"
EPOCHS = (1, 2, 5, 10, 15, 20, 25, 30, 35, 40)
LEVEL = 0.05
MECHANISM = ny.DPSGD(n=1437, batch=256, sigma=4, epochs=40)
Floats = NDArray[np.float64]


def after(epochs: int) -> ny.DPSGD:
    """Return the training up to the end of an epoch."""
    return ny.DPSGD(MECHANISM.n, MECHANISM.batch, MECHANISM.sigma, epochs)


def even(task: Task) -> Callable[[Floats, Any], Floats]:
    """Return the gradient of the logistic loss of "this digit is even"."""
    sides = np.where(task.y % 2 == 0, 1.0, -1.0)

    def gradient(w: Floats, rows: Any) -> Floats:
        x, y = task.x[rows], sides[rows]
        return x * (-y / (1 + np.exp(y * (x @ w))))[:, None]

    return gradient


def noisy_sums(task: Task, inserted: bool, book: ny.Ledger, out: Path) -> Floats:
    """Train, and return what an attacker saw: the canary's noisy sum over clip in each step."""
    canaries = ny.audit.canaries(norm=10, inserted=inserted, silent=0)
    path: list[float] = []
    joined = canaries.join(even(task), start=np.zeros(65), rows=len(task.x))
    gradient = joined["gradient"]

    def watched(parameters: Floats, rows: Any) -> Floats:
        if len(rows) > 1:  # a call of one row checks another call
            path.append(float(parameters[-1]))
        return gradient(parameters, rows)

    trained = ny.train(
        watched,
        start=joined["start"],
        rows=joined["rows"],
        mechanism=MECHANISM,
        clip=1,
        step_size=task.step,
        ledger=book,
        dataset="digits@1",
        out=out,
        name=out.name,
        piece=2048,
        save_every=MECHANISM.steps,
    )
    path.append(float(trained.parameters[-1]))
    assert len(path) == MECHANISM.steps + 1
    return -np.diff(path) * (MECHANISM.batch / task.step)


def scores(sums: Floats) -> Floats:
    """Return the likelihood ratio after each epoch of `EPOCHS`, from the noisy sums of steps."""
    rate, sigma = MECHANISM.batch / MECHANISM.n, float(MECHANISM.sigma)
    ratios = np.log1p(rate * np.expm1((sums - 0.5) / sigma**2))
    return np.cumsum(ratios, axis=-1)[..., [after(e).steps - 1 for e in EPOCHS]]


def thresholds(level: float = LEVEL) -> Floats:
    """Return what a share of runs without the canary would exceed, by draws of noise alone."""
    noise = np.random.default_rng(1).normal(0, float(MECHANISM.sigma), (20_000, MECHANISM.steps))
    return np.quantile(scores(noise), 1 - level, axis=0)


def counts(runs: int) -> dict[str, Any]:
    """Return the errors at each epoch of half of the runs with the canary and half without."""
    task, cuts = digits(0), thresholds()
    missed, alarms = np.zeros(len(EPOCHS), int), np.zeros(len(EPOCHS), int)
    book = ny.throwaway(10**6, currency="renyi:8")
    book.register("digits@1", protects="image", neighboring="add-remove", rows=1)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(runs):
            for inserted in (True, False):
                sums = noisy_sums(task, inserted, book, Path(folder) / f"{i}-{inserted}")
                shown = scores(sums)
                missed += inserted & (shown <= cuts)
                alarms += (not inserted) & (shown >= cuts)
    return {"runs": runs, "missed": missed.tolist(), "alarms": alarms.tolist()}


def main() -> None:
    """Run the attack, and write the counts."""
    parser = argparse.ArgumentParser(description="Attack many runs with a canary.")
    parser.add_argument("--runs", type=int, default=1000, help="with the canary; as many without")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    result = counts(given.runs)
    print(json.dumps(result))
    if not given.no_write:
        RESULTS.write_text(json.dumps(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
