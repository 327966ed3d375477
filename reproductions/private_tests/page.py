"""The page of private tests: ``python -m reproductions.private_tests.page docs`` writes it.

Every power on the page is computed here when the documentation is built.
"""

from __future__ import annotations

from functools import cache

from scipy.special import bdtr, bdtrc

from neyman import Tradeoff, approximate, gdp, pure
from neyman.analysis import BinomialTest
from reproductions.markdown import main, table
from reproductions.svg_chart import Axis, Line, chart

__all__ = ["pages"]

N, LEVEL = 200, 0.05
TRUTHS = tuple(0.5 + i / 100 for i in range(21))
SHOWN = (0.5, 0.55, 0.6, 0.65, 0.7)
BUDGETS: dict[str, Tradeoff] = {
    "1-GDP": gdp(1),
    "0.3-GDP": gdp(0.3),
    "0.1-GDP": gdp(0.1),
    "pure 1": pure(1),
    "(1, 0.01)": approximate(1, "0.01"),
}
COLORS = ("#1d4f91", "#4c7a34", "#a8430c")
HEAD = (
    "<!-- Written by `python -m reproductions.private_tests.page docs`: edit that. -->\n"
    "# Private hypothesis tests\n"
)
TEXT = f"""
Test whether a share is above 1/2, by a noisy count:

```python
import neyman as ny
from neyman.analysis.hypothesis_tests.binomial_test import BinomialTest

test = BinomialTest(n={N}, null="1/2", alternative="greater", budget=ny.gdp(1))
print(test.power(truth=0.6, level=0.05))
result = test.release(successes=131)          # add ledger= and dataset= to charge it
result.p_value, result.interval, result.rejects(level=0.05)
```

A test of a count releases the count with canonical noise, and computes its p-value with that
noise. So its size is at most the level for every number of records. In a one-sided problem no
other test with the same guarantee has more power, up to the digits below
([proofs](certificates/private-tests.md)).

## The price of privacy

The table has the power at level {LEVEL:g} with {N} records and the null 1/2. Without privacy it
is the power of the most powerful test, which decides at random on one count. At the truth 0.5 the
power is the size.
"""
MORE = """
![Power of the private tests by the truth](private-tests.svg)

## More tests

- `ProportionsTest` compares two groups. Its p-value is the largest over a confidence set for
  the common proportion.
- `GoodnessOfFitTest` compares noisy counts with shares. It simulates the noisy counts under
  the null, so its p-value is valid for any number of simulations. It needs a budget that Gaussian
  noise can meet.
- `MeanTest` is a t-test of clipped records. It is valid for every n, and for every distribution
  that is symmetric about its center and falls away from it, such as a normal one. It does not cover
  a skewed distribution. With few records its p-value is a bound, which costs power.

Each test has a method `power`, which needs no data. The power of a count is a certified sum. The
others simulate releases, and return the share that rejects with a confidence interval.

```python
from neyman.analysis.hypothesis_tests.goodness_of_fit_test import GoodnessOfFitTest
from neyman.analysis.hypothesis_tests.mean_test import MeanTest
from neyman.analysis.hypothesis_tests.proportions_test import ProportionsTest

groups = ProportionsTest(n=(300, 200), alternative="greater", budget=ny.gdp(1))
print(groups.power(truth=(0.6, 0.45), level=0.05, simulations=50))
fit = GoodnessOfFitTest(["1/2", "3/10", "1/5"], n=500, budget=ny.gdp(1), simulations=499)
print(fit.power(truth=["0.6", "0.2", "0.2"], level=0.05, simulations=200))
center = MeanTest(null=0, n=1000, clip=3, alternative="greater", budget=ny.gdp(1))
print(center.power(truth=lambda rng, n: rng.normal(0.2, 1, n), level=0.05))
```

`least_records` finds the number of records for a power:

```pycon
>>> from neyman.analysis.hypothesis_tests.power import least_records
>>> def power(n, budget):
...     test = BinomialTest(n=n, null="1/2", alternative="greater", budget=budget)
...     return test.power(truth=0.6, level=0.05)
>>> [least_records(lambda n: power(n, ny.gdp(mu)), at_least=0.8) for mu in (1, 0.3, 0.1)]
[157, 189, 337]
```

Choose the effect, the level, and the budget before there are any data. An effect that is taken
from the private records needs its own budget.

## Limits

- The number of records is public. Neighbors replace one record.
- Publish only the noisy numbers and what is computed from them, and not the exact count.
- Without `ledger=` and `dataset=` nothing is charged, and the receipt says so. Each test of the
  same records is a separate release.
- A rejected null hypothesis is a statement about the population only if the records are a random
  sample of it.
"""


def pages() -> dict[str, str]:
    """Return the page and its figure, as text by name."""
    names = list(BUDGETS)
    rows = [
        [f"{truth:g}", *(_shown(_power(name, truth)) for name in names), _shown(free_power(truth))]
        for truth in SHOWN
    ]
    text = HEAD + TEXT + "\n" + table(["truth", *names, "no privacy"], rows, 0) + "\n" + MORE
    return {"private-tests.md": text, "private-tests.svg": _figure()}


@cache
def _power(name: str, truth: float) -> float:
    test = BinomialTest(n=N, null="1/2", alternative="greater", budget=BUDGETS[name])
    return test.power(truth=truth, level=LEVEL).lower


def free_power(truth: float) -> float:
    """Return the power of the most powerful test without privacy."""
    most = next(k for k in range(N) if bdtrc(k, N, 0.5) <= LEVEL)  # rejects above k for certain
    at = bdtr(most, N, 0.5) - bdtr(most - 1, N, 0.5)
    share = (LEVEL - bdtrc(most, N, 0.5)) / at
    chance = bdtr(most, N, truth) - bdtr(most - 1, N, truth)
    return float(bdtrc(most, N, truth) + share * chance)


def _shown(power: float) -> str:
    return f"{power:.3f}"


def _figure() -> str:
    lines = [Line([(t, free_power(t)) for t in TRUTHS], "no privacy", "#5c5c5c", dash="5 4")]
    lines += [
        Line([(t, _power(name, t)) for t in TRUTHS], name, color)
        for name, color in zip(list(BUDGETS)[:3], COLORS, strict=True)
    ]
    return chart(
        Axis(0.5, 0.7, "true probability of success"),
        Axis(0, 1, "power"),
        lines,
        title=f"Power of binomial tests of {N} records at level {LEVEL:g}, by the truth",
        heading=f"Power at level {LEVEL:g}, {N} records",
    )


if __name__ == "__main__":
    main(lambda _: pages())
