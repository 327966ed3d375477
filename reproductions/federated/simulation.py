"""Ten clients train a classifier of digits; each adds its own noise.

    python -m reproductions.federated.simulation

It writes the counts of correct test rows to reproductions/data/federated.json. It is a simulation
on public data: its noise comes from a seeded generator, and so a test repeats it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ARMS", "CLIENTS", "LOCAL_STEPS", "RATE", "RESULTS", "ROUNDS", "SIGMA", "correct"]

RESULTS = Path(__file__).parents[1] / "data" / "federated.json"
CLIENTS, ROUNDS, LOCAL_STEPS, RATE, SIGMA, STEP = 10, 100, 2, 0.1, 2.0, 6.0
ARMS = {"no noise": 0.0, "each client adds noise": SIGMA}
SEEDS = 5
Floats = NDArray[np.float64]


def correct(sigma: float, seed: int) -> tuple[int, int]:
    """Run once, and return how many test rows are classified correctly, of how many."""
    from sklearn.datasets import load_digits

    data: Any = load_digits(return_X_y=True)
    x, y = np.c_[data[0] / 16 - 0.3, np.full(len(data[0]), 0.5)], data[1]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    test = np.arange(len(x)) % 5 == 0
    generator = np.random.default_rng(seed)
    shares = np.array_split(generator.permutation(np.flatnonzero(~test)), CLIENTS)
    model = np.zeros((x.shape[1], 10))
    for k in range(ROUNDS):
        step = STEP * (1 - 0.9 * k / ROUNDS)
        updates = [_local(model, x, y, rows, sigma, step, generator) - model for rows in shares]
        model = model + np.mean(updates, axis=0)
    return int((np.argmax(x[test] @ model, axis=1) == y[test]).sum()), int(test.sum())


def _local(
    start: Floats,
    x: Floats,
    y: NDArray[np.int64],
    rows: NDArray[np.int64],
    sigma: float,
    step: float,
    generator: np.random.Generator,
) -> Floats:
    """Return where a client's local steps end: Poisson batches, clipping norm 1, normal noise."""
    model = start
    for _ in range(LOCAL_STEPS):
        batch = rows[generator.random(len(rows)) < RATE]
        chance = np.exp(x[batch] @ model)
        chance /= chance.sum(axis=1, keepdims=True)
        chance[np.arange(batch.size), y[batch]] -= 1
        norm = np.maximum(np.linalg.norm(chance, axis=1, keepdims=True), 1)  # rows of x have norm 1
        total = x[batch].T @ (chance / norm) + generator.normal(0, sigma, start.shape)
        model = model - step * total / (RATE * len(rows))
    return model


def main() -> None:
    """Write the counts of all arms."""
    results = {arm: [correct(s, seed) for seed in range(SEEDS)] for arm, s in ARMS.items()}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(RESULTS, results)


if __name__ == "__main__":
    main()
