"""The page on noise that serves many tables: ``python -m reproductions.strategies.page docs``.

Every number on it is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

import math
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

from neyman.accounting.semantics import sentences as words
from neyman.cli.calibrate_command import at_error
from neyman.cli.demo.midwest import write_plan
from neyman.mechanisms.optimal_marginals import MarginalStrategy, optimal_marginals
from neyman.publishing.plan.plan import Plan
from neyman.publishing.planning.allocation import best_split
from reproductions.consistency.page import demo_plan
from reproductions.markdown import main, table
from reproductions.svg_chart import Axis, Line, chart

__all__ = ["pages"]

SURVEY = {"age": 10, "sex": 2, "race": 5, "income": 8}
MIXED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12)
ATTRIBUTES = range(3, 21)
VALUES = 4
BLUE, PALE, INK = "#1d4f91", "#8b939b", "#1b1b1b"


def pages() -> dict[str, str]:
    """Return the page and its figure, as their text by name."""
    page = "\n\n".join([_opening(), _survey(), _large(), _proof(), _errors(), _shares()])
    return {"strategies.md": page + "\n", "strategies.svg": _figure()}


def _marginals(sizes: Iterable[str], ways: Sequence[int]) -> list[tuple[str, ...]]:
    names = list(sizes)
    return [of for k in ways for of in combinations(names, k)]


def _opening() -> str:
    return """\
# The same guarantee, less error

<!-- Written by `python -m reproductions.strategies.page docs`. Edit that module. -->

What is promised about a person does not say where the noise goes. Three choices are left, and each
has a best answer that needs no data: what to measure when many marginals are wanted, how much a
table's error is worth, and how to divide the budget.

## Marginals that are measured once

```python
from neyman.mechanisms.optimal_marginals import optimal_marginals

strategy = optimal_marginals({"age": 10, "sex": 2, "race": 5, "income": 8},
                             [("age", "sex"), ("age", "race"), ("race", "income")])
mechanism = strategy.mechanism(rho=0.1)          # a ny.Mechanism: tradeoff(), +, *
released = mechanism.measure(tables)             # whole numbers with exact integer noise
mechanism.reconstruct(released)                  # marginals that add up, with standard errors
strategy.gap()                                   # proven: no Gaussian mechanism is better by more
```

Age by sex and age by race both tell of age. Measured apart, it is paid for twice and comes out
twice, differently. Here each marginal is taken apart into what it says beyond its own margins, each
such part is measured once, and the marginals are put together again: they add up by themselves."""


def _survey() -> str:
    workload = _marginals(SURVEY, (1, 2))
    cells = {of: math.prod(SURVEY[name] for name in of) for of in workload}
    strategy = optimal_marginals(SURVEY, {of: 1 / n for of, n in cells.items()})
    rows = [
        (
            " × ".join(c.marginal),
            f"{c.cells:,}",
            f"{math.sqrt(c.variance):.2f}",
            f"{math.sqrt(c.independent):.2f}",
            f"{math.sqrt(c.equal):.2f}",
            f"{c.independent / c.variance:.2f}",
        )
        for c in strategy.compared()
    ]
    head = ("marginal", "cells", "chosen", "independent", "equal", "variance saved, times")
    independent, equal = strategy.gains()
    said = (
        "Weights are such that each marginal's mean squared error counts alike. Their sum falls by "
        f"a factor of {independent:.2f} against independent noise and of {equal:.2f} against equal "
        "noise with least squares. A marginal can come out worse where there is more to gain "
        'elsewhere: weights, or `objective="largest"`, say what matters.'
    )
    return f"""\
### All single attributes and pairs of a survey

Standard error of each cell at mu = 1 (rho = 1/2), one record added or removed. *Independent*: the
same noise on every marginal. *Equal*: the same, made consistent by least squares afterwards.

{table(head, rows)}

{_filled(said)}"""


def _large() -> str:
    ten = {f"a{i}": 10 for i in range(20)}
    fifteen = {f"a{i}": 10 for i in range(15)}
    mixed = {f"a{i}": n for i, n in enumerate(MIXED)}
    kinds = [
        ("15 of 10 values", fifteen, (2,)),
        ("20 of 10 values", ten, (1, 2, 3)),
        ("20 of 2 to 12 values", mixed, (1, 2, 3)),
    ]
    rows = []
    for said, sizes, ways in kinds:
        for relation in ("add-remove", "replace-one"):
            for objective in ("total", "largest"):
                result = optimal_marginals(
                    sizes, _marginals(sizes, ways), objective=objective, neighboring=relation
                )
                rows.append((said, _ways(ways), relation, objective, *_numbers(result)))
    head = (
        "attributes",
        "marginals",
        "relation",
        "objective",
        "parts",
        "over independent",
        "over equal",
        "at most off by",
    )
    return f"""\
### Large workloads

The full table of 20 attributes of 10 values has 10^20 cells; only parts of up to three attributes
are ever read, and each line below takes less than a second.

{table(head, rows, 4)}

![Standard error of a cell by number of attributes](strategies.svg)

Where a record is replaced by another, what moves depends on the attributes in which the two differ,
and no pair of records moves every part the most. The worst pair for all parts together is found;
adding up the worst of each would claim more loss than can happen."""


def _ways(ways: Sequence[int]) -> str:
    return f"{ways[0]}-way" if len(ways) == 1 else f"{ways[0]}- to {ways[-1]}-way"


def _numbers(result: MarginalStrategy) -> tuple[str, ...]:
    independent, equal = result.gains()
    gap = math.ceil(result.gap() * 1e5) / 1e5
    return f"{len(result.precisions):,}", f"{independent:.2f}", f"{equal:.2f}", f"{100 * gap:.3f}%"


def _figure() -> str:
    chosen, independent, equal = [], [], []
    for d in ATTRIBUTES:
        sizes = {f"a{i}": VALUES for i in range(d)}
        result = optimal_marginals(sizes, _marginals(sizes, (3,)))
        one = result.compared()[0]
        chosen.append((float(d), math.sqrt(one.variance)))
        independent.append((float(d), math.sqrt(one.independent)))
        equal.append((float(d), math.sqrt(one.equal)))
    lines = [
        Line(independent, "independent", PALE),
        Line(equal, "equal, consistent", INK, dash="5 4"),
        Line(chosen, "chosen", BLUE, width=2.4),
    ]
    top = 5 * math.ceil(independent[-1][1] / 5)
    return chart(
        Axis(ATTRIBUTES[0], ATTRIBUTES[-1], f"attributes of {VALUES} values"),
        Axis(0, top, "standard error of a cell at mu = 1"),
        lines,
        title="Standard error of a cell of each 3-way marginal, by number of attributes",
        heading="All 3-way marginals",
        height=400,
    )


def _proof() -> str:
    return """\
### What is proven

- *The guarantee*: a record moves each part by a vector of whole numbers whose length is known
  exactly. Integer noise is added to whole numbers; no floating point stands before the release.
- *The curve*: Gaussian, mu = sqrt(2 rho) to 3e-6, rounded up.
- *The optimum*: "at most off by" is a certified gap to a lower bound that holds for every unbiased
  mechanism with Gaussian noise on linear answers."""


def _errors() -> str:
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan.load(write_plan(Path(folder)))
    result = at_error(plan, "county total", 25)
    rows = [
        (f"{p.error:.4g}", words.number(p.rho), words.number(p.epsilon), words.percent(p.power))
        for p in result.curve
    ]
    head = ("standard error", "rho", "epsilon at 1e-6", "power at level 5%")
    point = result.point
    said = (
        f"For a county's total to have a standard error of 25, rho {words.number(point.rho)} must "
        f"be spent: epsilon {words.number(point.epsilon)} at delta 1e-6. The best test of whether "
        "a record is one person's or another's, if it is wrong in 5% of the cases where it is the "
        f"one, is right in at most {words.percent(point.power)} of those where it is the other. "
        "Half the error costs four times the rho:"
    )
    return f"""\
## Error first

`neyman plan check` says how far off each table will be. `neyman calibrate` turns it around: on the
demo's plan

```
neyman calibrate plan.toml --error "county total" 25     # what does this error cost?
neyman calibrate plan.toml --power .2 --level .05        # which errors does this promise give?
```

{_filled(said)}

{table(head, rows, 0)}"""


def _shares() -> str:
    with tempfile.TemporaryDirectory() as folder:
        said = demo_plan(Path(folder)).canonical()
    plan = Plan.from_dict(said | {"consistency": {"method": "least-squares"}})
    split = best_split(plan, {"race.county": Fraction(4)})
    rows = [
        (
            part.query,
            part.level,
            str(part.weight),
            f"{100 * float(part.before):.1f}%",
            f"{100 * float(part.share):.1f}%",
            f"{part.error / part.error_before:.2f}",
        )
        for part in split.parts
    ]
    head = ("query", "level", "weight", "share before", "share", "standard error, times")
    last = (
        f"{' '.join(split.explained()[-2:])} All errors are those after least squares; a table "
        "with a small share has a larger one as it is drawn, before."
    )
    return f"""\
## Who gets how much

`neyman plan split plan.toml --weight race.county=4` chooses the shares: exact fractions that sum to
1, for the least sum of the tables' mean squared errors, each times its weight. Where tables are
made consistent, a table also serves its margins, and that is counted. The demo's plan, with a key
for every row, made consistent, and counties by race four times as important:

{table(head, rows, 2)}

{_filled(last)}"""


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False)


if __name__ == "__main__":
    main(lambda _: pages())
