"""A convolutional network on digits: accuracy against epsilon, by three loops at the same noise.

    python -m reproductions.dp_sgd.network_training              # some minutes of one core
    python -m reproductions.dp_sgd.network_training --runs 1 --sigmas 4 --no-write
    python -m reproductions.dp_sgd.network_training --draw       # the figure alone

It needs torch, Opacus, and scikit-learn. Noise has no seed, so the file holds what one execution
printed. Epsilon and power follow from the settings, and a test computes them again.
"""

# torch is no dependency, so its types are unknown where it is not installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import neyman as ny
from reproductions.markdown import table
from reproductions.panels import Axis, Line, Panel, figure

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = ["ARMS", "mechanism", "network_figure", "network_table", "results", "train_once"]

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reproductions" / "data" / "network_training.json"
FIGURE = ROOT / "docs" / "pytorch-digits.svg"
ROWS, BATCH, EPOCHS = 1440, 240, 30
SIGMAS = (2, 4, 8, 16)
RUNS = 4
STEP = 4.0  # over sigma: chosen by runs with another split

Rows = tuple["Tensor", "Tensor"]


def mechanism(sigma: float) -> ny.DPSGD:
    """Return what all three loops do: Poisson samples of a sixth of the rows."""
    return ny.DPSGD(ROWS, BATCH, sigma, EPOCHS)


def digits(split: int) -> tuple[Rows, Rows]:
    """Return 1,440 training rows and 357 test rows; the split is no part of the guarantee."""
    import torch
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(split))
    x = torch.tensor(images / 16).float().view(-1, 1, 8, 8)[order]
    y = torch.tensor(labels)[order]
    return (x[:ROWS], y[:ROWS]), (x[ROWS:], y[ROWS:])


def network(seed: int) -> Module:
    """Return two convolutions and a linear layer: 6,090 parameters."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    torch.seed()
    return model


def by_neyman(model: Module, rows: Rows, sigma: float) -> None:
    """Train by `ny.torch.train`."""
    import torch

    ledger = ny.throwaway(10**5, currency="renyi:4")
    ledger.register("digits@1", protects="image", neighboring="add-remove", rows=1)
    with tempfile.TemporaryDirectory() as folder:
        ny.torch.train(
            model,
            torch.nn.CrossEntropyLoss(),
            rows,
            ny.torch.TrainingPlan(mechanism(sigma)),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=STEP / sigma),
            ledger=ledger,
            dataset="digits@1",
            out=Path(folder) / "out",
        )


def by_opacus(model: Module, rows: Rows, sigma: float, *, exact: bool = False) -> None:
    """Train by Opacus with hooks, as it comes or with exact noise."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    from neyman.opacus import make_exact

    module, optimizer, loader = PrivacyEngine(accountant="neyman").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=STEP / sigma),
        data_loader=DataLoader(TensorDataset(*rows), batch_size=BATCH),
        noise_multiplier=float(sigma),
        max_grad_norm=1.0,
    )

    def loss(model: Module, batch: Rows) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

    if exact:
        make_exact(module, optimizer, loader, loss)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            loss(module, batch).backward()
            optimizer.step()


def exactly_by_opacus(model: Module, rows: Rows, sigma: float) -> None:
    """Train by Opacus after `make_exact`."""
    by_opacus(model, rows, sigma, exact=True)


ARMS: dict[str, Callable[[Module, Rows, float], None]] = {
    "ny.torch.train": by_neyman,
    "Opacus, make_exact": exactly_by_opacus,
    "Opacus": by_opacus,
}


def train_once(arm: str, sigma: float, run: int) -> int:
    """Train with the split and the first weights of a run; return the correct test rows."""
    rows, (x, y) = digits(run)
    model = network(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus, about hooks
        ARMS[arm](model, rows, sigma)
    return int((model(x).argmax(1) == y).sum())


class Point(TypedDict):
    """The correct test rows of each run, by loop, at one noise."""

    sigma: float
    epsilon: float
    power: float
    correct: dict[str, list[int]]


class Results(TypedDict):
    """What the file holds."""

    runs: int
    of: int
    curve: list[Point]


def results() -> Results:
    """Return what this module printed."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def network_figure() -> str:
    """Return the figure: each run is a dot, and a line goes through the means."""
    data = results()
    x = Axis("epsilon at delta 1e-5", ((0.4, "0.4"), (1, "1"), (2, "2"), (4, "4"), (8, "8")), True)
    y = Axis("accuracy", tuple((k / 10, f"{k / 10:g}") for k in range(4, 11)))
    panels = []
    for arm in ARMS:
        points = sorted((p["epsilon"], p["correct"][arm]) for p in data["curve"])
        shares = [(epsilon, [k / data["of"] for k in correct]) for epsilon, correct in points]
        means = [(epsilon, sum(ks) / len(ks)) for epsilon, ks in shares]
        dots = tuple((epsilon, k) for epsilon, ks in shares for k in ks)
        panels.append(Panel(arm, "", (Line(means, "exact"),), dots))
    title = "Accuracy of a convolutional network against epsilon, by three loops"
    return figure(panels, x, y, columns=3, large=1, title=title)


def network_table() -> str:
    """Return the table: the mean accuracy, and the least and the largest of the runs."""
    data = results()
    rows = []
    for point in data["curve"]:
        cells = []
        for correct in point["correct"].values():
            shares = [k / data["of"] for k in correct]
            mean = sum(shares) / len(shares)
            cells.append(f"{mean:.3f} ({min(shares):.3f} to {max(shares):.3f})")
        epsilon, power = f"{point['epsilon']:.2f}", f"{point['power']:.3f}"
        rows.append((f"{point['sigma']:g}", epsilon, power, *cells))
    return table(("σ", "ε (at most)", "power (at most)", *ARMS), rows)


def main() -> None:
    """Train, print the counts, write the file, and draw the figure."""
    parser = argparse.ArgumentParser(description="Train a network on digits")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--sigmas", type=float, nargs="+", default=SIGMAS)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--draw", action="store_true", help="draw the figure of the stored file")
    options = parser.parse_args()
    if not options.draw:
        curve: list[Point] = []
        for sigma in options.sigmas:
            f = mechanism(sigma).tradeoff()
            point: Point = {
                "sigma": sigma,
                "epsilon": f.epsilon(delta=1e-5).upper,
                "power": f.power(level=0.05).upper,
                "correct": {
                    arm: [train_once(arm, sigma, run) for run in range(options.runs)]
                    for arm in ARMS
                },
            }
            print(json.dumps(point), flush=True)
            curve.append(point)
        if options.no_write:
            return
        text = json.dumps({"runs": options.runs, "of": 1797 - ROWS, "curve": curve}, indent=1)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    FIGURE.write_text(network_figure(), encoding="utf-8")
    print(network_table())


if __name__ == "__main__":
    main()
