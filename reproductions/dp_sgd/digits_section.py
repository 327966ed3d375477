"""The head of the training page: a classifier, accuracy against power, and groups."""

from __future__ import annotations

import json
from typing import Any

from reproductions.dp_sgd.private_training import RESULTS, interval
from reproductions.markdown import table
from reproductions.panels import Axis, Label, Line, Panel, figure

__all__ = ["accuracy_figure", "groups_figure", "opening", "results"]

CODE = """\
```python
import neyman as ny
import numpy as np
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = np.c_[x / 16 - 0.3, np.full(len(x), 0.5)]
x /= np.linalg.norm(x, axis=1, keepdims=True)
test = np.arange(len(x)) % 5 == 0  # declared public
a, b = x[~test], np.eye(10)[y[~test]]

def gradient(w, rows):  # of the logistic loss: one gradient per row
    chance = np.exp(a[rows] @ w)
    chance /= chance.sum(axis=1, keepdims=True)
    return a[rows][:, :, None] * (chance - b[rows])[:, None, :]

ledger = ny.throwaway(3, currency="renyi:8")
ledger.register("digits@1", protects="image", neighboring="add-remove", rows=1)
mechanism = ny.DPSGD(n=1437, batch=256, sigma=4, epochs=40)
trained = ny.train(
    gradient, start=np.zeros((65, 10)), rows=len(a), mechanism=mechanism, clip=1,
    step_size=np.linspace(12, 1, mechanism.steps), ledger=ledger, dataset="digits@1",
    out="digits", piece=512, save_every=25,
)
accuracy = ((x[test] @ trained.parameters).argmax(axis=1) == y[test]).mean()
```"""


def results() -> dict[str, Any]:
    """Return what `private_training` printed."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def opening() -> str:
    """Return the sections at the head of the page."""
    return "\n\n".join([_code(), _curve(), _groups()])


def _code() -> str:
    return f"""\
{CODE}

This trains a classifier of digits at ε ≤ 2.88 (δ = 10⁻⁵). In 34 runs the accuracy was 0.923 on
average, and 0.911 at least. The ledger is charged before the first batch. A killed run stays
charged, and the same call continues it. `trained.receipt` states the guarantee and its
[conditions](certificates/training.md): with `piece=512` it assumes that rows do not depend on each
other. `piece=1` does not need this. [Private training in PyTorch](pytorch.md) trains networks."""


def _curve() -> str:
    rows = []
    for point in results()["curve"]:
        total = len(point["correct"]) * point["of"]
        low, high = interval(sum(point["correct"]), total)
        rows.append(
            (
                f"{point['sigma']}",
                f"{point['epsilon']:.2f}",
                f"{point['power']:.3f}",
                f"{sum(point['correct']) / total:.3f} ({low:.3f} to {high:.3f})",
            )
        )
    head = ("σ", "ε (at most)", "power at level 0.05 (at most)", "accuracy (95%)")
    return f"""\
## Accuracy against attack power

An attacker who sees every training step and wrongly flags a non-member 5% of the time can
correctly flag a training record at most as often as the power says.

![Accuracy on digits against the power of the best attack](training-digits.svg)

{table(head, rows)}

*{results()["runs"]} runs per row with one split (`python -m
reproductions.dp_sgd.private_training`). The intervals are binomial, as if all rows differed.*"""


def _groups() -> str:
    arms = results()["groups"]["digits, 8 is rare, clip 0.1"]

    def share(arm: str, group: str) -> str:
        correct, total = arms[arm][group]
        return f"{correct / total:.3f}"

    return f"""\
## Which groups lose accuracy

Here the digit 8 is rare: only one in four of its training images stays.

![Accuracy of the rare digit and of the others in each arm](training-groups.svg)

Clipping alone at 0.1 lowers the accuracy on the digit 8 from {share("non-private", "digit 8")} to
{share("clipping alone", "digit 8")}, and on all digits from {share("non-private", "all")} to
{share("clipping alone", "all")}. The smallest class loses most, as in Bagdasaryan, Poursaeed, and
Shmatikov (2019). On a census sample, a linear model lost at most 0.02 in each group."""


def accuracy_figure() -> str:
    """Return the figure of accuracy against power."""
    points = results()["curve"]
    x = Axis("power at level 0.05", tuple((k / 20, f"{k / 20:g}") for k in range(1, 6)))
    y = Axis("accuracy", tuple((k / 10, f"{k / 10:g}") for k in range(0, 11, 2)))
    ends = [interval(sum(p["correct"]), len(p["correct"]) * p["of"]) for p in points]
    means = [sum(p["correct"]) / (len(p["correct"]) * p["of"]) for p in points]
    power = [p["power"] for p in points]
    order = sorted(range(len(points)), key=lambda i: power[i])
    lines = (
        Line([(power[i], ends[i][0]) for i in order], "bound", None, True),
        Line([(power[i], ends[i][1]) for i in order], "bound", None, True),
        Line(
            [(power[i], means[i]) for i in order], "exact", Label("ny.train on digits", (0.13, 0.8))
        ),
    )
    panel = Panel("Digits", "95% intervals dashed", lines)
    return figure(
        [panel], x, y, columns=1, title="Accuracy on digits against the power of the best attack"
    )


def groups_figure() -> str:
    """Return the figure of the rare digit's accuracy, and of the others', in each arm."""
    arms = ("none", "clip", "σ 4", "σ 8", "σ 16")
    x = Axis("arm", tuple((float(i), name) for i, name in enumerate(arms)))
    y = Axis("accuracy", tuple((k / 10, f"{k / 10:g}") for k in range(0, 11, 2)))
    panels = []
    for clip in ("1", "0.1"):
        rare, others = [], []
        for i, groups in enumerate(results()["groups"][f"digits, 8 is rare, clip {clip}"].values()):
            (correct, total), (every, rows) = groups["digit 8"], groups["all"]
            rare.append((float(i), correct / total))
            others.append((float(i), (every - correct) / (rows - total)))
        lines = (
            Line(others, "exact", Label("the other digits", (0.2, 0.85))),
            Line(rare, "bound", Label("the rare digit 8", (0.2, 0.12))),
        )
        panels.append(Panel(f"Clipping norm {clip}", "", lines))
    return figure(panels, x, y, columns=2, large=1, title="Accuracy of a rare digit in each arm")
