"""The shuffling page: ``python -m reproductions.shuffling.page docs`` writes it.

Every number on the page is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

import math

import numpy as np

from neyman import Bound, LocalRandomizer
from neyman.numerics import directed
from reproductions.markdown import main, table
from reproductions.panels import Axis, Label, Line, Panel, figure
from reproductions.shuffling import tables as shuffle

__all__ = ["pages"]

TEN = math.log(10)
CROWDS = (10**4, 10**5, 10**6, 10**9)
LOCAL = (
    directed(shuffle.LOCAL, 7, up=False) + "…"
)  # cut: rounded up, the closed form would not hold


def pages() -> dict[str, str]:
    """Return the page and its figure, each the text of a file by its name."""
    text = "\n\n".join([_opening(), _deltas(), _epsilons(), _crowds()])
    return {"shuffle.md": text + "\n", "shuffle.svg": _figure()}


def _opening() -> str:
    return f"""\
# Shuffled reports

<!-- Written by `python -m reproductions.shuffling.page docs`. Edit that module. -->

`shuffle` accounts for reports that arrive in random order, so no one knows whose is whose:

```pycon
>>> import math
>>> local = math.log({shuffle.USERS} / (8 * math.log(2 / {shuffle.LOCAL_DELTA:g})) - 1)
>>> f = ny.LocalRandomizer(local).shuffle(users={shuffle.USERS}).tradeoff()
>>> round(local, 6), round(f.epsilon(delta=1e-6).upper, 4)
({shuffle.LOCAL:.6f}, {_example():.4f})
```

One person's record is replaced, and they still report. Here ε₀ = {LOCAL} and n = {shuffle.USERS:,}.

- *At most* holds for any report of that ε₀ (the clones of Feldman, McMillan and Talwar 2023).
- *The worst is at least* is what randomized response of three categories reveals if all others hold
  the third one.
- *Closed form*: ε = log(1 + (e^ε₀ − 1)(4√(2 log(4/δ)) / √((e^ε₀ + 1) n) + 4/n)). It holds where
  ε₀ ≤ log(n / (8 log(2/δ)) − 1): here, for δ ≥ 10⁻⁶."""


def _example() -> float:
    """Return the epsilon of the example."""
    f = LocalRandomizer(shuffle.LOCAL).shuffle(users=shuffle.USERS).tradeoff()
    return f.epsilon(delta=1e-6).upper


def _deltas() -> str:
    rows = [
        (
            f"{row.given:.1f}",
            _few(row.ours.lower, up=False),
            _few(row.ours.upper),
            _few(row.printed["f_dp"], 1),
            _few(row.formula),
            f"{row.printed['closed_form']:g}",
        )
        for row in shuffle.rows("delta_by_epsilon")
    ]
    head = ("ε", "the worst is at least", "at most", "printed, f-DP", "closed form", "printed")
    return f"""\
## δ at an ε

{table(head, rows, words=0)}

*Table 2 of Su's review, whose row "Rényi" is the closed form. The printed f-DP figures are ours
rounded, or up to twice as large.*

![Delta by epsilon](shuffle.svg)"""


def _epsilons() -> str:
    rows = [
        (
            _few(row.given, 1),
            _digits(row.ours.lower, up=False),
            _digits(row.ours.upper),
            f"{row.printed['f_dp']:.1f}",
            f"{row.printed['numerical_lower']:.3f}",
            f"{row.closed:.3f}" if row.closed else f"does not hold; ε₀ = {LOCAL} does",
            f"{row.printed['numerical_upper']:.3f}",
        )
        for row in shuffle.rows("epsilon_by_delta")
    ]
    head = (
        "δ",
        "the worst is at least",
        "at most",
        "printed, f-DP",
        "printed, lower",
        "closed form",
        "printed, upper",
    )
    return f"""\
## ε at a δ

{table(head, rows, words=0)}

*Table 3. The printed lower row comes from a coarse grid.*"""


def _crowds() -> str:
    rows = []
    for users in CROWDS:
        epsilon = LocalRandomizer(shuffle.LOCAL).shuffle(users=users).tradeoff().epsilon(delta=1e-6)
        rows.append((f"{users:,}", _digits(epsilon.lower, up=False), _digits(epsilon.upper)))
    return f"""\
## More people

{table(("people", "the worst is at least", "at most"), rows, words=0)}

*ε at δ = 10⁻⁶, ε₀ = {LOCAL}.*"""


def _figure() -> str:
    f = shuffle.curve()
    places = np.linspace(0.02, 1.2, 60)
    answers: list[Bound] = [f.log_delta(epsilon=float(e)) for e in places]
    high = [(float(e), math.exp(max(b.upper, -40.0))) for e, b in zip(places, answers, strict=True)]
    low = [(float(e), math.exp(max(b.lower, -40.0))) for e, b in zip(places, answers, strict=True)]
    closed = [
        (float(e), min(shuffle.closed_form_delta(shuffle.USERS, shuffle.LOCAL, float(e)), 1.0))
        for e in places
    ]
    closed = [(e, d) for e, d in closed if d >= shuffle.LOCAL_DELTA]  # it holds no farther
    panel = Panel(
        "Shuffling 10,000 reports",
        "δ by ε",
        (
            Line(closed, "bound", Label("closed form,\nwhere it holds", (0.72, 1e-4))),
            Line(high, "exact", Label("at most (clones)", (0.62, 1e-6))),
            Line(low, "other", Label("the worst is\nat least", (0.13, 1e-9)), dashed=True),
        ),
    )
    x = Axis("ε", tuple((v, f"{v:g}") for v in (0, 0.2, 0.4, 0.6, 0.8, 1, 1.2)))
    powers = (-16, -12, -8, -4, 0)
    names = ("10⁻¹⁶", "10⁻¹²", "10⁻⁸", "10⁻⁴", "1")
    y = Axis("δ", tuple((10.0**k, s) for k, s in zip(powers, names, strict=True)), logarithmic=True)
    return figure(
        [panel],
        x,
        y,
        title="Delta by epsilon of shuffled reports",
        columns=1,
        large=1,
        cell=(620, 380),
    )


def _few(value: float, digits: int = 3, *, up: bool = True) -> str:
    """Digits that hold on the side that is meant."""
    if digits == 1:
        return f"{value:.0e}"
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    turned = (math.ceil if up else math.floor)(value / unit) * unit
    return f"{turned:.{digits - 1}e}" if turned < 1e-3 else f"{turned:.4g}"


def _digits(value: float, *, up: bool = True) -> str:
    """Three digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{(math.ceil if up else math.floor)(value / unit) * unit:.3g}"


if __name__ == "__main__":
    main(lambda tell: pages())
