"""The page on noise that serves many tables: ``python -m reproductions.strategies.page docs``.

Every number on it is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

from neyman import optimal_marginals
from neyman.accounting import sentences as words
from neyman.cli.demo.midwest import write_plan
from neyman.mechanisms import MarginalStrategy
from neyman.publishing import Plan, at_error, best_split
from reproductions.consistency.page import demo_plan
from reproductions.markdown import main, table
from reproductions.svg_chart import Axis, Line, chart

__all__ = ["pages"]

SURVEY = {"age": 10, "sex": 2, "race": 5, "income": 8}
SHOWN = (("age",), ("sex",), ("age", "income"), ("sex", "race"))  # the ends among them
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

Three choices reduce the error without data, and leave the guarantee as it is.

## Marginals that are measured once

```python
from neyman import optimal_marginals

strategy = optimal_marginals({"age": 10, "sex": 2, "race": 5, "income": 8},
                             [("age", "sex"), ("age", "race"), ("race", "income")])
mechanism = strategy.mechanism(rho=0.1)          # a ny.Mechanism: tradeoff(), +, *
released = mechanism.measure(tables)             # whole numbers with exact integer noise
mechanism.reconstruct(released)                  # marginals that add up, with standard errors
strategy.gap()                                   # proven: no Gaussian mechanism is better by more
```

Age by sex and age by race both contain age. Separate measurements pay for it twice, and disagree.
`optimal_marginals` measures once each part of a marginal that its own margins do not have. The
marginals made from these parts add up."""


def _survey() -> str:
    workload = _marginals(SURVEY, (1, 2))
    cells = {of: math.prod(SURVEY[name] for name in of) for of in workload}
    strategy = optimal_marginals(SURVEY, {of: 1 / n for of, n in cells.items()})
    compared = strategy.compared()
    rows = [
        (" × ".join(c.marginal), f"{math.sqrt(c.variance):.2f}", f"{math.sqrt(c.equal):.2f}")
        for c in compared
        if c.marginal in SHOWN
    ]
    head = ("marginal", "chosen", "equal")
    independent, equal = strategy.gains()
    return f"""\
### All single attributes and pairs of a survey

Standard error of a cell in four of them, at mu = 1, add-remove. *Independent* noise has
{math.sqrt(compared[0].independent):.2f} in every cell. *Equal* is the same after least squares.

{table(head, rows)}

Each marginal's mean squared error has the same weight. The weighted sum falls by a factor of
{independent:.2f} compared with independent noise, and by {equal:.2f} compared with equal noise and
least squares. A single marginal can have more error: choose weights, or `objective="largest"`."""


def _large() -> str:
    ten = {f"a{i}": 10 for i in range(20)}
    mixed = {f"a{i}": n for i, n in enumerate(MIXED)}
    kinds = [("20 of 10 values", ten, (1, 2, 3)), ("20 of 2 to 12 values", mixed, (1, 2, 3))]
    rows = []
    for said, sizes, ways in kinds:
        for objective in ("total", "largest"):
            result, other = (
                optimal_marginals(
                    sizes, _marginals(sizes, ways), objective=objective, neighboring=relation
                )
                for relation in ("add-remove", "replace-one")
            )
            # What the page says about replace-one.
            gains = zip(result.gains(), other.gains(), strict=True)
            assert all(abs(one - two) <= 0.02 for one, two in gains)
            assert other.gap() <= 1.1e-4
            rows.append((said, _ways(ways), objective, *_numbers(result)))
    head = (
        "attributes",
        "marginals",
        "objective",
        "parts",
        "over independent",
        "over equal",
        "at most off by",
    )
    return f"""\
### Large workloads

One record is added or removed:

{table(head, rows, 3)}

![Standard error of a cell by number of attributes](strategies.svg)

Under replace-one the factors differ by at most 0.02, and the gap is at most 0.011%."""


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

- *The guarantee*: a record moves each part by a vector of whole numbers of exactly known length.
  Integer noise is added, without floating point before the release.
- *The curve*: Gaussian, mu = sqrt(2 rho) to 3e-6, rounded up.
- *The optimum*: "at most off by" is a certified gap to a lower bound that holds for every unbiased
  mechanism with Gaussian noise on linear answers."""


def _errors() -> str:
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan.load(write_plan(Path(folder)))
    result = at_error(plan, "county total", 25)
    rows = [
        (f"{p.error:.4g}", words.number(p.rho), words.number(p.epsilon), words.percent(p.power))
        for p in result.curve[1::2]
    ]
    head = ("standard error", "rho", "epsilon at 1e-6", "power at level 5%")
    point = result.point
    return f"""\
## Error first

`neyman calibrate` computes the budget for an error, or the errors for a guarantee:

```
neyman calibrate plan.toml --error "county total" 25     # what does this error cost?
neyman calibrate plan.toml --power .2 --level .05        # which errors does this guarantee give?
```

On the demo's plan, a standard error of 25 for a county's total costs rho {words.number(point.rho)}
(epsilon {words.number(point.epsilon)} at delta 1e-6). An attacker who wrongly confirms a false
claim 5% of the time can then correctly confirm a true claim at most {words.percent(point.power)}
of the time. Half the error costs four times the rho:

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
    equal, before = (
        f"{100 * float(1 - split.value / other):.1f}%" for other in (split.equal, split.before)
    )
    return f"""\
## Who gets how much

`neyman plan split plan.toml --weight race.county=4` chooses the shares with the least weighted sum
of the tables' mean squared errors, as exact fractions. For consistent tables the errors are those
after least squares, as here on the demo's plan:

{table(head, rows, 2)}

The weighted squared error falls by {equal} compared with equal shares, and by {before} compared
with the plan's own. A noisy table with a small share has a larger error before least squares."""


if __name__ == "__main__":
    main(lambda _: pages())
