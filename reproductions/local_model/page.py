"""The page of the local model: ``python -m reproductions.local_model.page docs`` writes it.

Every number on the page is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

from neyman.accounting.semantics.digits import number
from reproductions.local_model import errors as local
from reproductions.markdown import main, table

__all__ = ["pages"]

PEOPLE = 100_000
SETTINGS = ((1.0, 2), (1.0, 16), (1.0, 256), (4.0, 256))


def pages() -> dict[str, str]:
    """Return the page, as its text by its name."""
    tables = "\n\n".join(_table_of(epsilon, k) for epsilon, k in SETTINGS)
    return {"local.md": f"{_opening()}\n\n{tables}\n\n{_closing()}\n"}


def _opening() -> str:
    return f"""\
# Reports that nobody has to be trusted with

<!-- Written by `python -m reproductions.local_model.page docs`. Edit that module. -->

Each of {PEOPLE:,} people holds one of k categories and sends a noisy report of it. What does that
cost, compared with handing the records to someone who is trusted and publishes noisy counts?

```python
made = HadamardResponse(epsilon=1, categories=256)
reports = made.report(values)          # on secure bits
made.frequencies(reports)              # unbiased shares of all categories
```

- *Power*: of the best attacker, at level {local.LEVEL}, who sees one person's report.
- *Error*: standard error of a share, where the true one is 1/k.
- *Trusted*: that of a count with discrete Gaussian noise against which the best attacker has the
  same power, at the same level; one record moves two cells.
- *Over the least*: mean squared error at the worst share of a population, as a multiple of the
  proven lower bound for every way to report at this ε (`ny.least_error`). Both include the variance
  of the share among the people, who are drawn from that population, so no ratio is below 1. The
  bound is van Trees' inequality for two categories, or for the sum over all if that is larger.

One person's record is replaced. Everything here is computed anew by a test
([studies/local.py](../reproductions/local_model/errors.py))."""


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
With two categories randomized response is within a factor of 1.0073 of the least error: nobody can
do better by 1%. Le Cam's two points alone would put it 13 times off.

With few categories, it is best to send the category itself. With many, bits are better. Hadamard
sends the least. All have the same pure ε and different curves. With many categories, the category
itself reveals less to an attacker. A trusted party with the same limit on the attacker must then
add more noise."""


if __name__ == "__main__":
    main(lambda tell: pages())
