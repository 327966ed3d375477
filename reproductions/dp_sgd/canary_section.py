"""The section and figure on an attack with canaries: what is certified, and what is shown."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import neyman as ny
from reproductions.dp_sgd.canary_attack import EPOCHS, LEVEL, RESULTS, after
from reproductions.panels import Axis, Label, Line, Panel, figure

__all__ = ["attack_figure", "evidence", "section"]

DELTA = 1e-5


@cache
def counted() -> dict[str, Any]:
    """Return what `canary_attack` printed."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


@cache
def evidence() -> tuple[ny.audit.Evidence, ...]:
    """Return what the counts show after each epoch of `EPOCHS`, at 95% confidence."""
    stored, runs = counted(), counted()["runs"]
    return tuple(
        ny.audit.counts(
            false_positives=alarms, negatives=runs, false_negatives=missed, positives=runs,
            neighboring="add-remove",
        )
        for missed, alarms in zip(stored["missed"], stored["alarms"], strict=True)
    )  # fmt: skip


@cache
def certified() -> tuple[tuple[float, float], ...]:
    """Return the certified power at `LEVEL` and epsilon after each epoch of `EPOCHS`, at most."""
    curves = [after(epochs).tradeoff() for epochs in EPOCHS]
    return tuple((c.power(level=LEVEL).upper, c.epsilon(delta=DELTA).upper) for c in curves)


def attack_figure() -> str:
    """Return the certified power above, and the power that the
    attack has shown below, over the epochs.
    """
    x = Axis("epochs", tuple((float(k), str(k)) for k in (0, 10, 20, 30, 40)))
    y = Axis("power at level 0.05", tuple((k / 20, f"{k / 20:g}") for k in range(5)))
    above = [(float(e), power) for e, (power, _) in zip(EPOCHS, certified(), strict=True)]
    below = [(float(e), s.power_at_least(LEVEL)) for e, s in zip(EPOCHS, evidence(), strict=True)]
    runs, missed = counted()["runs"], counted()["missed"]
    rates = [(float(e), 1 - m / runs) for e, m in zip(EPOCHS, missed, strict=True)]
    start = (0.0, LEVEL)
    panel = Panel(
        "An attack on training with digits",
        "",
        (
            Line([start, (40.0, LEVEL)], "guess", Label("guessing", (29, 0.036))),
            Line([start, *rates], "other", Label("rate in the runs", (25, 0.182)), dashed=True),
            Line([start, *above], "exact", Label("certified: at most", (3, 0.13))),
            Line([start, *below], "bound", Label("shown: at least", (20, 0.084))),
        ),
    )
    title = "Certified power, and the power that an attack has shown"
    return figure([panel], x, y, columns=1, cell=(230, 214), title=title)


def section() -> str:
    """Return the section of the page."""
    runs = counted()["runs"]
    last, (power, epsilon) = evidence()[-1], certified()[-1]
    return f"""\
## Certified above, attacked below

This classifier decides whether a digit is even, and trains as above. {runs:,} runs had a
[canary](howto/audit.md) among the rows, and {runs:,} had none. The attacker saw every step, and
used the likelihood ratio of the canary's parameter. All thresholds were fixed before the runs.

![Certified power and the power that an attack has shown, over the epochs](training-attack.svg)

After 40 epochs the power at level 0.05 is at most {power:.3f} (ε ≤ {epsilon:.2f}). The attack has
shown, with 95% confidence at each epoch, that it is at least {last.power_at_least(LEVEL):.3f}
(ε ≥ {last.epsilon(DELTA):.2f}, and among Gaussian guarantees μ ≥ {last.gdp():.2f}). The gap comes
from the number of runs: the rate of the best test (dashed) is near the upper curve. A typical row
has less influence than a canary (`python -m reproductions.dp_sgd.canary_attack`)."""
