"""The page on tables that add up: ``python -m reproductions.consistency.page docs`` writes it.

Every number on it is computed here, from the public counts that the demo's people are made of, so
that a test can tell a stale one.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neyman.cli.demo.midwest import PEOPLE, RACES, counted, write_plan
from neyman.publishing import Consistent, Plan
from neyman.publishing.consistency.adjusted_tables import METHODS, consistent_tables
from reproductions.markdown import Tell, main, table
from reproductions.svg_chart import Axis, Line, Note, chart

__all__ = ["demo_plan", "noisy_tables", "pages", "true_tables"]

Name = tuple[str, str]
Noisy = Mapping[tuple[str, str, str], tuple[NDArray[np.int64], Fraction]]

RELEASES = 200
DELTA = 1e-6
SIZES = ((0, 0), (1, 4), (5, 19), (20, PEOPLE))
BLUE, PALE = "#1d4f91", "#8b939b"


def demo_plan(folder: Path) -> Plan:
    """Return the demo's plan, but for rows of no listed race or county: they count as "other" and
    in one.

    The demo drops them from the tables by race and by place, which then need not add up to the
    totals. (Its data have none.)
    """
    said = Plan.load(write_plan(folder)).canonical()
    said["columns"]["race"]["unknown"] = "other"
    places = said["hierarchy"]["place"]
    places["unknown"] = places["keys"][-1]
    return Plan.from_dict(said)


def true_tables(plan: Plan) -> dict[Name, NDArray[np.int64]]:
    """Return the census counts that the demo's people are made of, as the plan's tables."""
    counts = np.array([[int(row[race]) for race in RACES] for row in counted()])
    assert plan.hierarchy is not None
    by_key = {}
    for query in plan.queries:
        cells = counts if query.by else counts.sum(axis=1, keepdims=True)
        for level in query.levels:
            sums = np.zeros((len(plan.hierarchy.paths(level)), cells.shape[1]), dtype=np.int64)
            np.add.at(sums, plan.hierarchy.codes(level), cells)
            by_key[query.name, level] = sums.ravel()
    return by_key


def noisy_tables(plan: Plan, truth: Mapping[Name, NDArray[np.int64]], number: int) -> Noisy:
    """One simulated release, the same in every run: no release draws its noise like this."""
    words = np.random.Philox(number)
    noisy = {}
    for entry, sigma_squared in plan.calibrated():
        exact = truth[entry.query, entry.level]
        noise = _draws(sigma_squared, len(exact), words) if sigma_squared else 0
        noisy[entry.query, entry.level, entry.measure] = (exact + noise, sigma_squared)
    return noisy


def _draws(sigma_squared: Fraction, size: int, words: np.random.Philox) -> NDArray[np.int64]:
    most = int(9 * float(sigma_squared) ** 0.5) + 9
    reached = np.cumsum(np.exp(-(np.arange(-most, most + 1) ** 2) / (2 * float(sigma_squared))))
    uniform = words.random_raw(size) / 2.0**64
    return np.searchsorted(reached, uniform * reached[-1]) - most


@dataclass(frozen=True)
class _Measured:
    """Errors over many simulated releases.

    Args:
        consistent: the tables of the last release.
        errors: by table, the standard error of the noise.
        square: by way and table, the mean squared error of each cell.
        mean: likewise the mean error.
    """

    consistent: Consistent
    errors: Mapping[Name, float]
    square: Mapping[tuple[str, Name], NDArray[np.float64]]
    mean: Mapping[tuple[str, Name], NDArray[np.float64]]

    def rms(self, way: str, name: Name) -> float:
        return float(np.sqrt(self.square[way, name].mean()))

    def after(self, name: Name) -> float:
        """Return the stated standard error of a table's cells, by root mean square."""
        return float(np.sqrt((self.consistent.tables[name].standard_error ** 2).mean()))


def _measure(plan: Plan, truth: Mapping[Name, NDArray[np.int64]], tell: Tell) -> _Measured:
    square: dict[tuple[str, Name], NDArray[np.float64]] = {}
    mean: dict[tuple[str, Name], NDArray[np.float64]] = {}
    product = None
    for number in range(RELEASES):
        tell("simulated releases", 0.9 * number / RELEASES)
        noisy = noisy_tables(plan, truth, number)
        values = {("as drawn", name): noisy[*name, "count"][0] for name in truth}
        for method in reversed(METHODS):
            product = consistent_tables(plan, noisy, method)
            values |= {(method, name): product.tables[name].value for name in truth}
        for key, value in values.items():
            off = (value - truth[key[1]]).astype(float)
            square[key] = square.get(key, 0.0) + off * off / RELEASES
            mean[key] = mean.get(key, 0.0) + off / RELEASES
    assert product is not None
    by_key = {
        (entry.query, entry.level): float(sigma_squared) ** 0.5
        for entry, sigma_squared in plan.calibrated()
    }
    return _Measured(product, by_key, square, mean)


def pages(tell: Tell = lambda stage, part: None) -> dict[str, str]:
    """Return the page and its figure, each the text of a file by its name.

    Args:
        tell: called with a stage's name and the part done, in [0, 1].
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = demo_plan(Path(folder))
    truth = true_tables(plan)
    measured = _measure(plan, truth, tell)
    tell("epsilons", 0.9)
    text = "\n\n".join(
        [
            _opening(),
            _errors(measured),
            _epsilons(plan, measured),
            _total(plan),
            _bias(measured, truth),
            _guarantee(),
        ]
    )
    tell("done", 1.0)
    return {"consistency.md": text + "\n", "consistency.svg": _figure(measured)}


# ---- sections ---------------------------------------------------------------------------------


def _opening() -> str:
    return f"""\
# Consistent tables

<!-- Written by `python -m reproductions.consistency.page docs`. Edit that module. -->

Add this to a plan, for tables that add up:

```toml
[consistency]
method = "least-squares"     # or "nonnegative", or "integer"
```

Each table has its own noise, so the counties of a published state do not add up to the state. Least
squares takes the nearest tables that do, and moves a table with less noise less. **Consistent
tables are more accurate, and reveal nothing more**, because only published numbers go in. The noisy
tables are published too, so anyone can recompute them.

**Counts, histograms, and sums of one column with one clip** can be consistent. Means, variances,
quantiles, and distinct units cannot. A table by race adds up to the total only if every row has a
listed race: write `unknown = "other"` in its column. With `unknown = "drop"` the two tables stay
separate. Tables by place add up to a declared total only if the hierarchy's `unknown` is one of its
places.

The numbers below are for the demo's {PEOPLE:,} people with such an `unknown` for races and places,
from {RELEASES} simulated releases."""


def _errors(measured: _Measured) -> str:
    rows = []
    for name, product in measured.consistent.tables.items():
        rows.append(
            (
                ".".join(name),
                f"{len(product.value):,}",
                _two(measured.errors[name]),
                _two(measured.after(name)),
                *(_two(measured.rms(way, name)) for way in ("nonnegative", "integer")),
            )
        )
    head = ("table", "cells", "noise", "least squares", "nonnegative", "integer")
    return f"""\
## Error, by level

![Error before and after, by level](consistency.svg)

{table(head, rows)}

*Root mean square over a table's cells, in people: exact formulas for noise and least squares,
measured for the others. `total.region` is declared, so it has no noise.*"""


def _epsilons(plan: Plan, measured: _Measured) -> str:
    def epsilon(factor: float) -> float:
        scale = plan.scale * Fraction(factor).limit_denominator(10**6)
        return plan.mechanism(scale).tradeoff().epsilon(delta=DELTA).upper

    now = epsilon(1.0)
    product = measured.consistent.tables
    noisy = [name for name in product if measured.errors[name] > 0]
    before = {name: measured.errors[name] ** 2 * len(product[name].value) for name in noisy}
    after = {name: measured.after(name) ** 2 * len(product[name].value) for name in noisy}

    def left(names: list[Name]) -> float:
        return sum(after[name] for name in names) / sum(before[name] for name in names)

    small = epsilon(1 / left(noisy))
    by_table = sorted((1 - epsilon(1 / left([name])) / now, ".".join(name)) for name in noisy)
    (least, worst), (most, best) = by_table[0], by_table[-1]
    return f"""\
## The same error at less ε

Least squares leaves {100 * left(noisy):.0f}% of the squared error. Consistent tables have the error
of the noisy ones (ε = {_up(now)} at δ = 10⁻⁶) at ε = {small:.3f}: {100 * (1 - small / now):.0f}%
less, and for single tables {100 * least:.0f}% (`{worst}`) to {100 * most:.0f}% (`{best}`)."""


def _total(plan: Plan) -> str:
    said = plan.canonical()
    for query in said["query"]:
        query.pop("public", None)
        query.pop("split", None)
    free = Plan.from_dict(said)
    truth = true_tables(free)
    product = consistent_tables(free, noisy_tables(free, truth, 1))
    alone = {
        f"{entry.query}.{entry.level}": float(sigma_squared) * len(truth[entry.query, entry.level])
        for entry, sigma_squared in free.calibrated()
    }
    best = min(alone, key=lambda name: alone[name])
    own = float(product.tables["total", "region"].standard_error[0] ** 2)
    return f"""\
## The total of everyone

Without a declared total, the best table (`{best}`) estimates it with variance {alone[best]:,.2f},
and least squares of all tables with {own:,.2f}."""


def _bias(measured: _Measured, truth: Mapping[Name, NDArray[np.int64]]) -> str:
    name = ("race", "county")
    rows = []
    for low, high in SIZES:
        chosen = (truth[name] >= low) & (truth[name] <= high)
        count = int(chosen.sum())
        words = (
            f"{low} to {high}" if low < high < PEOPLE else f"{low}" if low == high else f"{low}+"
        )
        rows.append(
            (
                words,
                f"{count:,}",
                *(_signed(float(measured.mean[way, name][chosen].mean())) for way in METHODS),
                *(_two(float(measured.square[way, name][chosen].mean()) ** 0.5) for way in METHODS),
            )
        )
    head = (
        "true count",
        "cells",
        *(f"mean error, {way}" for way in METHODS),
        *(f"rms error, {way}" for way in METHODS),
    )
    return f"""\
## What it costs to have no negative counts

Least squares is unbiased for each cell and for all sums of cells. It has decimals, and can be
negative. *Nonnegative* takes the nearest consistent tables without a negative cell. *Integer*
rounds those. Both move cells near zero **up**, and cells that share a total with them **down**.
These are cells of `race.county`, by their true count:

{table(head, rows)}

*In people, over the simulated releases. Least squares has no bias: its means are chance.*

Sums of many small cells add up their bias. So add up least-squares tables, and show the others.
The other two methods have the standard errors of least squares, and its intervals (1.645 standard
errors and a half on either side, cut at 0). These contain the truth at least as often, and are
wider where the published value would be outside."""


def _guarantee() -> str:
    return """\
## What the guarantee covers

Consistent tables cost nothing. **Declared totals are different.** They are published without noise,
and the guarantee does not cover them: it compares neighbors with the same declared totals. A wrong
declared total moves every table.

## How

All cells of a table have the same noise, so each set of columns is a tree of its own, which two
passes solve exactly ([proofs](certificates/consistency.md)). For your own linear constraints use
`least_squares` ([constraints.py](../src/neyman/publishing/consistency/constraints.py)), which is
iterative on large problems."""


# ---- figure and digits ------------------------------------------------------------------------


def _figure(measured: _Measured) -> str:
    names = [name for name, error in measured.errors.items() if error > 0]
    marks: list[Line | Note] = []
    for row, name in enumerate(names):
        y = float(len(names) - row)
        before, after = (measured.rms(way, name) for way in ("as drawn", "least-squares"))
        marks += [
            Line([(after, y), (before, y)], color=PALE, width=1.2),
            Note(before, y, "", PALE, dot=True),
            Note(after, y, "", BLUE, dot=True),
            Note(
                after - 0.04, y, f"{100 * (after / before - 1):.0f}%".replace("-", "−"), BLUE, "end"
            ),
        ]
        if row == 0:
            marks.append(Note(before, y + 0.45, "as drawn", PALE, "middle"))
            marks.append(Note(after, y + 0.45, "adding up", BLUE, "middle"))
    ticks = tuple((float(len(names) - row), ".".join(name)) for row, name in enumerate(names))
    return chart(
        Axis(0, 4, "root mean square error of a cell, in people"),
        Axis(0.4, len(names) + 0.8, "", ticks=ticks),
        marks,
        title="Error of the demo's tables as drawn and after they are made to add up, by level",
        height=340,
    )


def _two(value: float) -> str:
    return f"{value:.2f}"


def _up(value: float) -> str:
    return f"{math.ceil(value * 1e3) / 1e3:.3f}"


def _signed(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


if __name__ == "__main__":
    main(pages)
