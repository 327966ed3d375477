"""The training page: ``python -m reproductions.dp_sgd.page docs`` writes it.

Every number on the page is computed here, so that a test can tell a stale one. It needs
scikit-learn, for the data of one section.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from neyman import DPSGD, Gaussian, Mechanism, approximate, at_most, calibrate
from neyman.accounting import edgeworth, normal
from neyman.accounting.literature.approximations import sampled_gaussian
from reproductions.census_2020.figures import few_digits, nearest
from reproductions.dp_sgd import canary_section, digits_section
from reproductions.dp_sgd import course as training
from reproductions.dp_sgd import last_iterate as iterates
from reproductions.dp_sgd import logistic_regression as logistic
from reproductions.dp_sgd.figures import course_figure, iterates_figure
from reproductions.markdown import Tell, main, table

__all__ = ["pages"]


LEVEL = 0.05
SPARSE = 16  # epochs at which the small panels are asked
HIDDEN = 2.0996  # below the epsilon that the limit does not see
SEED = 1


def pages(tell: Tell = lambda stage, part: None) -> dict[str, str]:
    """Return the page and its figures, each the text of a file by its name.

    Args:
        tell: called with a stage's name and the part done, in [0, 1].
    """
    tell("courses of training", 0.0)
    courses = [
        training.course(total, epochs=None if total is training.MNIST[-1] else _sparse(total))
        for total in training.MNIST
    ]
    tell("where the limit fails", 0.4)
    warning = _warning()
    tell("choosing", 0.5)
    choosing = _choosing()
    tell("samplings", 0.7)
    samplings = _samplings()
    tell("last iterates", 0.9)
    answers = [(e, iterates.accounted(iterates.descent(e))) for e in range(1, 201)]
    text = "\n\n".join(
        [_opening(), _courses(courses), warning, choosing, samplings, _iterates(), _logistic()]
    )
    by_key = {
        "training.md": text + "\n",
        "training-digits.svg": digits_section.accuracy_figure(),
        "training-groups.svg": digits_section.groups_figure(),
        "training-attack.svg": canary_section.attack_figure(),
        "training-epochs.svg": course_figure(courses),
        "training-iterates.svg": iterates_figure(answers),
    }
    tell("done", 1.0)
    return by_key


def _sparse(total: DPSGD) -> list[int]:
    """Return some epochs, evenly spread in the logarithm, the first and the last among them."""
    last = math.floor(total.epochs)
    return sorted({round(last ** (k / SPARSE)) for k in range(SPARSE + 1)})


# ---- sections ---------------------------------------------------------------------------------


def _opening() -> str:
    return f"""\
# Private training

<!-- Written by `python -m reproductions.dp_sgd.page docs`. Edit that module. -->

{digits_section.opening()}

{canary_section.section()}

## What a run reveals

What an attacker learns about one record depends on the noise, on how batches are drawn, and on
whether they see every step ([course.py](../reproductions/dp_sgd/course.py)):

```python
import neyman as ny

training = ny.DPSGD(n=60_000, batch=256, sigma=1.3, epochs=15)  # Poisson samples
training.tradeoff().epsilon(delta=1e-5)
ny.calibrate(lambda s: ny.DPSGD(60_000, 256, s, 15), ny.approximate(1, 1e-5))
```

[The league](league.md) compares accountants. Libraries with the interface of dp_accounting take
`NeymanAccountant` ([interop](interop.md#neymanaccountant)). Below, δ is 10⁻⁵."""


def _courses(courses: Sequence[training.Course]) -> str:
    rows = []
    for course in courses:
        total, end = course.training, course.moments[-1]
        rows.append(
            (
                f"{float(total.sigma):g}",
                str(end.epochs),
                f"{total.steps:,}",
                nearest(end.exact, 3),
                f"{end.limit.value:.3f}",
                f"{end.edgeworth.value:.3f}",
                nearest(end.renyi, 3),
                nearest(total.tradeoff().power(LEVEL), 4),
            )
        )
    head = (
        "σ",
        "epochs",
        "steps",
        "exact ε",
        "central limit",
        "Edgeworth",
        "Renyi, best order",
        f"power at level {LEVEL}",
    )
    under = sum(m.limit.value < m.exact.lower for c in courses for m in c.moments)
    count = sum(len(c.moments) for c in courses)
    first = courses[-1].moments[0]
    return f"""\
## Over the course of training

Bu, Dong, Long and Su (2020) trained on MNIST in six settings: 60,000 records, Poisson samples of
256 on average, add-remove neighbors.

{table(head, rows)}

![Epsilon over the epochs of six trainings](training-epochs.svg)

*Blue: exact, certified. Purple: an upper bound from Renyi divergences, with the conversion of
Canonne, Kamath and Steinke. Red: the central limit μ = q √(T (e^(1/σ²) − 1)). Green: Edgeworth's
expansion of second order. The last two are estimates without a safe side. At {under} of {count}
points, the limit is below the truth. After the first epoch at
σ = {float(courses[-1].training.sigma):g}, the limit is {first.limit.value:.2f}, Edgeworth
{first.edgeworth.value:.2f}, and the truth {nearest(first.exact, 2)}.*"""


def _warning() -> str:
    total = training.WARNING
    sigma, rate = float(total.sigma), total.batch / total.n
    limit = normal(sampled_gaussian(sigma, rate, total.steps)).epsilon(training.DELTA).value
    second = edgeworth(total, 2).epsilon(training.DELTA).value
    curve = total.tradeoff()
    there = curve.delta(limit)
    assert curve.delta(HIDDEN).lower > training.DELTA
    return f"""\
## Where the limit under-reports

Take one record in {round(1 / rate):,} at each of {total.steps} steps with σ = {sigma:g}. The
central limit gives ε = {limit:.3f}, and Edgeworth {second:.3f}.
The truth is above {HIDDEN}. At the limit's ε, δ is {few_digits(there.upper)}, which is
{there.lower / training.DELTA:.0f} times 10⁻⁵. Never state a guarantee from the limit."""


def _choosing() -> str:
    start, budget = training.MNIST[0], approximate(1, training.DELTA)
    power = at_most(power="0.1", level="0.05")
    asked: list[tuple[str, str, DPSGD]] = []

    def chosen(what: str, outcome: DPSGD, value: str) -> None:
        asked.append((what, value, outcome))

    sigma = calibrate(lambda s: replace(start, sigma=s), budget)
    chosen("the least noise for ε = 1", replace(start, sigma=sigma), f"σ = {_up(sigma)}")
    epochs = int(calibrate(lambda e: replace(start, epochs=e), budget, whole=True))
    chosen("the most epochs for ε = 1", replace(start, epochs=epochs), f"{epochs} epochs")
    batch = int(calibrate(lambda b: replace(start, batch=b), budget, whole=True))
    chosen("the largest batch for ε = 1", replace(start, batch=batch), f"batch = {batch}")
    sigma = calibrate(lambda s: replace(start, sigma=s), power)
    chosen(
        "the least noise for power 10% at level 5%",
        replace(start, sigma=sigma),
        f"σ = {_up(sigma)}",
    )
    rows = []
    for what, value, result in asked:
        curve = result.tradeoff()
        rows.append(
            (what, value, nearest(curve.epsilon(training.DELTA), 4), nearest(curve.power(LEVEL), 4))
        )
    return f"""\
## Choosing

`ny.calibrate` changes one parameter until a target is just met, certified. From σ = 1.3, batch 256
and 15 epochs:

{table(("asked", "found", "ε", f"power at level {LEVEL}"), rows)}

The last row stays below 10%, because `ny.at_most` asks for the Gaussian curve through that point
at every level."""


def _samplings() -> str:
    start = training.MNIST[0]
    rows = []

    def row(name: str, relation: str, sigma: Fraction | float, item: Mechanism) -> None:
        curve = item.tradeoff()
        rows.append(
            (
                name,
                relation,
                f"{float(sigma):g}",
                nearest(curve.epsilon(training.DELTA), 3),
                nearest(curve.power(LEVEL), 4),
            )
        )

    product = training.same_loop(start)
    for name in ("poisson", "allocated", "bins"):
        row(name, product[name].neighboring, product[name].sigma, product[name])
    # One Poisson sample under replace-one takes the shift of one record that is there or not.
    rate = Fraction(start.batch, start.n)
    replaced = Gaussian(start.sigma).subsample(rate=rate, neighboring="replace-one") * start.steps
    row("poisson", "replace-one", start.sigma, replaced)
    for name in ("fixed", "shuffled"):
        row(name, product[name].neighboring, product[name].sigma, product[name])
    head = ("sampling", "neighbors", "σ over what can move", "ε", f"power at level {LEVEL}")
    return f"""\
## The same loop, drawn in five ways

The noise is 1.3 times the clipping norm, with batches of 256 and 15 epochs. Name the way that your
loop uses. If a record replaces another, the sum can move by twice the clipping norm, so the same
noise is half the σ.

{table(head, rows)}

*poisson*: each record enters each batch by its own coin. *allocated*: in each epoch, each record
enters one random batch (balls in bins). *bins*: it enters the same random batch in each epoch, for
[correlated noise](streams.md). *fixed*: a fresh sample of 256 at each step. *shuffled*: shuffled
once an epoch and cut into batches, as in most loops. No amplification is proven or claimed for it.
Rows with different neighbors are different guarantees."""


def _iterates() -> str:
    rows: dict[str, list[str]] = {}
    for cell in iterates.cells():
        epochs, column = cell.place
        shown = f"{cell.ours:.2f}" if cell.agrees else f"{cell.ours:.2f} ({cell.printed:.2f})"
        rows.setdefault(epochs, [epochs]).append(shown)
        assert column in ("composition", "renyi", "f_dp")
    given = iterates.descent(50)
    head = ("", "every iterate: composition", "last iterate: Renyi", "last iterate: f-DP")
    right = all(cell.agrees for cell in iterates.cells())
    said = "All nine are the printed figures." if right else "In brackets: what is printed."
    return f"""\
## The last iterate alone

If the path is secret, the last iterate of noisy gradient descent reveals less than all iterates.
Bok, Su and Altschuler (2024) print ε in three ways for regularized logistic regression
on MNIST (noisy cyclic gradient descent, {given.n:,} records,
batches of {given.batch:,}, contraction {float(given.contraction or 1):g}). {said}

{table(head, list(rows.values()))}

![Epsilon of one descent in three ways](training-iterates.svg)

The paper's formula for its Renyi column was not at hand. Ours is a proven bound that gives these
digits ([last_iterate.py](../reproductions/dp_sgd/last_iterate.py))."""


def _logistic() -> str:
    run, held_out = logistic.digits()
    problem = run.problem
    rows = [
        (str(m.epochs), f"{m.accuracy:.3f}", f"{m.last.upper:.2f}", f"{m.all.upper:.2f}")
        for m in logistic.course(run, held_out, np.random.default_rng(SEED))
    ]
    head = ("epochs", "accuracy", "last iterate: ε", "every iterate: ε")
    return f"""\
## A descent that runs

Is a handwritten digit even? This is logistic regression on {len(problem.labels):,} digits of
scikit-learn in batches of {run.batch}, with {len(held_out.labels)} held out
([examples/logistic.py](../examples/logistic.py)).
The program checks what the guarantee assumes:

- *Convexity*: for rows no longer than {problem.radius:g} and regularization
  {problem.regularisation:g}, the curvature of the loss is from {problem.regularisation:g} to
  {problem.smoothness:g}.
- *Contracting steps*: a step size of {run.step_size:g} brings points closer by {run.contraction:g}.
  A step that is too long is refused.
- *Bounded gradients*: rows are shortened, so a record moves its gradient by at most
  {problem.sensitivity:g} without clipping, which could undo the contraction.

{table(head, rows)}

The accuracy is that of one run with a seed, for this page alone. A release takes its noise from a
secure source, and pays for the data that it read to choose its parameters."""


def _up(sigma: float) -> str:
    """Four decimals, rounded up."""
    return f"{math.ceil(sigma * 1e4) / 1e4:.4f}"


if __name__ == "__main__":
    main(pages)
