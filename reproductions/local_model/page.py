"""The page of the local model: ``python -m reproductions.local_model.page docs`` writes it.

Every number on the page is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

from neyman.accounting import number
from reproductions.local_model import errors as local
from reproductions.markdown import main, table

__all__ = ["pages"]

PEOPLE = 100_000
SETTINGS = ((1.0, 2), (1.0, 256), (4.0, 256))


def pages() -> dict[str, str]:
    """Return the page, as its text by its name."""
    tables = "\n\n".join(_table_of(epsilon, k) for epsilon, k in SETTINGS)
    return {"local.md": f"{_opening()}\n\n{tables}\n\n{_closing()}\n"}


def _opening() -> str:
    return f"""\
# The local model

<!-- Written by `python -m reproductions.local_model.page docs`. Edit that module. -->

Each person adds noise to their own category before they send it, so they trust no one:

```python
made = HadamardResponse(epsilon=1, categories=256)
reports = made.report(values)          # on secure bits
made.frequencies(reports)              # unbiased shares of all categories
```

With few categories, send the category itself. With many, bits have a smaller error. Hadamard sends
the least. All have the same pure ε and different curves.

The tables compare this with a trusted party that publishes noisy counts, for {PEOPLE:,} people with
one of k categories. One person's record is replaced.

- *Power*: of the best attacker, at level {local.LEVEL}, who sees one person's report.
- *Error*: standard error of a share, where the true share is 1/k.
- *Trusted*: the same for a count with discrete Gaussian noise, at the same power and level. One
  record moves two cells. *Times* is the ratio of both errors.
- *Over the least*: mean squared error at the worst share of a population, as a multiple of the
  proven lower bound for every way to report at this ε (`ny.least_error`). Both include the variance
  of the share among the people, who are a sample."""


def _table_of(epsilon: float, categories: int) -> str:
    rows = [
        (
            c.name,
            f"{c.power.upper:.4f}",
            f"{100 * c.deviation:.2f}%",
            f"{100 * c.central:.4f}%",
            f"{c.deviation / c.central:,.0f}",
            number(c.ratio, 4),
        )
        for c in local.compared(epsilon, categories, PEOPLE)
    ]
    head = ("report", "power", "error", "trusted", "times", "over the least")
    return f"## ε = {epsilon:g}, k = {categories}\n\n{table(head, rows)}"


def _closing() -> str:
    return """\
With two categories, randomized response is within a factor of 1.0073 of the least error."""


if __name__ == "__main__":
    main(lambda tell: pages())
