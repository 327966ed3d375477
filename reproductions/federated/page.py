"""The page on federated learning: ``python -m reproductions.federated.page docs`` writes it.

Every guarantee on the page is computed here, so that a test can tell a stale one. The accuracies
are those that `reproductions.federated.simulation` stored.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from neyman import Federated
from reproductions.federated import simulation
from reproductions.federated.simulation import CLIENTS, LOCAL_STEPS, RATE, ROUNDS, SIGMA
from reproductions.markdown import main, table
from reproductions.panels import Axis, Label, Line, Panel, figure

__all__ = ["pages"]

LEAST = 8
PHONES, SHARE, PHONE_SIGMA, PHONE_ROUNDS = 1000, 0.05, 4, 200
BOTH, HONEST = "of records (for a client: of clients)", "of h honest clients"
VIEWS = (
    ("observer", "sees", "noise that counts", "sampling that counts"),
    ("server", "each client's update, and who takes part", "the client's own", "of records"),
    ("server, with secure aggregation", "the sum, and who takes part", HONEST, "of records"),
    ("clients, public", "each round's model, and what colluders know", HONEST, BOTH),
    ("clients, with secure aggregation", "the same, and who takes part", HONEST, "of records"),
)


def pages() -> dict[str, str]:
    """Return the page and its figure, each the text of a file by its name."""
    text = "\n\n".join([_opening(), _observers(), _accuracy(), _refused()])
    return {"federated.md": text + "\n", "federated.svg": _figure()}


@cache
def _hospitals() -> dict[str, Federated]:
    def observer(against: str, **more: Any) -> Federated:
        return Federated(
            clients=CLIENTS,
            records=143,
            record_rate=RATE,
            sigma=SIGMA,
            rounds=ROUNDS,
            local_steps=LOCAL_STEPS,
            protects="record",
            against=against,
            least_participants=LEAST,
            **more,
        )

    return {
        "the server": observer("server"),
        "the server, secure aggregation": observer("server", secure_aggregation=True),
        "other clients, nine collude": observer("clients", colluding=CLIENTS - 1),
        "other clients, one": observer("clients"),
        "the public": observer("public"),
    }


@cache
def _phones() -> dict[str, Federated]:
    def observer(against: str, **more: Any) -> Federated:
        return Federated(
            clients=PHONES,
            sigma=PHONE_SIGMA,
            rounds=PHONE_ROUNDS,
            protects="client",
            against=against,
            **more,
        )

    size = round(PHONES * SHARE)
    hidden: dict[str, Any] = {"client_rate": SHARE, "least_participants": size}
    return {
        "the server": observer("server"),
        "the server, secure aggregation": observer(
            "server", secure_aggregation=True, least_participants=size, colluding=10
        ),
        "other clients, ten collude": observer("clients", colluding=10, **hidden),
        "the public": observer("public", **hidden),
    }


def _opening() -> str:
    power = _hospitals()["the server"].tradeoff().power(level=0.05)
    return f"""\
# Federated learning

<!-- Written by `python -m reproductions.federated.page docs`. Edit that module. -->

Ten hospitals train one model. Each trains on its own records, adds its own noise, and sends an
update. `ny.Federated` describes the training once, and gives the curve for each observer.

```pycon
>>> import neyman as ny
>>> def training(against, **more):
...     return ny.Federated(
...         clients={CLIENTS}, records=143, record_rate={RATE}, sigma={SIGMA:g}, rounds={ROUNDS},
...         local_steps={LOCAL_STEPS}, protects="record", against=against,
...         least_participants={LEAST}, **more,
...     )
>>> server, public = training("server"), training("public")
>>> round(float(server.tradeoff().power(level=0.05)), 4)
{round(float(power), 4)}
>>> server.made_of()
Gaussian(sigma={SIGMA:g}, sensitivity=1).subsample(rate={RATE}) * {ROUNDS * LOCAL_STEPS}
>>> round(float(public.tradeoff().power(level=0.05)), 4)
{round(float(_hospitals()["the public"].tradeoff().power(level=0.05)), 4)}
>>> public.honest
{LEAST}
```

![What each observer can learn](federated.svg)

## Who sees what

{table(VIEWS[0], VIEWS[1:], words=4)}

- h = max(1, `least_participants` − `colluding`). A round with fewer updates must be void. Without
  `least_participants` only the client's own noise counts. A client that observes colludes with
  itself.
- `clients` and `public` trust the server to show only the model. If the server colludes with them,
  use `against="server"`.
- Nothing better is claimed for the last model alone.
- No other client's noise hides the earlier local steps of a client, so
  the noise of others counts in the last of {LOCAL_STEPS} local steps.
- The [certificate](certificates/federated.md) does not cover integer
  encodings of noise, unequal weights, Adam on the clients, or drop-outs that depend on the data."""


def _observers() -> str:
    def rows(deployments: dict[str, Federated]) -> list[tuple[str, ...]]:
        result = []
        for name, mechanism in deployments.items():
            f = mechanism.tradeoff()
            epsilon, power = f.epsilon(delta=1e-5).upper, f.power(level=0.05).upper
            result.append((name, str(mechanism.honest), f"{power:.4f}", f"{epsilon:.3f}"))
        return result

    head = ("observer", "h", "power at level 0.05", "ε at δ = 10⁻⁵")
    size = round(PHONES * SHARE)
    return f"""\
## Ten hospitals: a record

{CLIENTS} clients, {ROUNDS} rounds of {LOCAL_STEPS} local steps, batches of a tenth of the records,
σ = {SIGMA:g} clipping norms, and at least {LEAST} updates in a round.

{table(head, rows(_hospitals()))}

Nine colluding hospitals learn what the server learns. A record's curve does not cover a hospital:
143 records together have `f.group(143)`.

## A thousand phones: a client

Each of {PHONE_ROUNDS} rounds draws {size} of {PHONES:,} clients. σ = {PHONE_SIGMA}, over
the diameter of the one ball
into which all phones clip their updates. The server sees who takes part, so its rows have
`client_rate=1`. With secure aggregation ten phones collude with
it. Then participants also see who takes part, and other clients learn what the server learns.

{table(head, rows(_phones()))}"""


def _accuracy() -> str:
    results = json.loads(simulation.RESULTS.read_text(encoding="utf-8"))
    means = {}
    for arm, counts in results.items():
        shares = [right / of for right, of in counts]
        means[arm] = f"{sum(shares) / len(shares):.3f}"
    return f"""\
## The hospitals on digits

With the settings of the first table, a linear classifier of scikit-learn's digits has accuracy
{means["no noise"]} without noise and {means["each client adds noise"]} with noise
(mean of 5 runs, 360 test rows, simulated noise, `python
-m reproductions.federated.simulation`). A release must draw exact noise."""


def _refused() -> str:
    return """\
## What is refused

A rate of clients below 1 claims that the draw hides a client. It is refused where this is not
true:

```pycon
>>> ny.Federated(clients=100, client_rate=0.1, sigma=1, rounds=50, protects="client",
...              against="server", least_participants=10)
Traceback (most recent call last):
...
ValueError: client_rate = 0.1 amplifies nothing against = 'server', which sees who takes part, ...
```

- Against the server, always.
- With secure aggregation, against clients, and against the public if clients collude.
- For a record, against everyone: its client's other records show whether the client takes part.
  `tests/mechanisms/test_federated.py` has an attack.
- If clients may drop out, or their number is random: the size of the noise reveals how many took
  part. Every client that is drawn must answer. If a draw is repeated until all answer, it is a draw
  from those who do, and `clients` is their number.
- With secure aggregation but no `least_participants`.

With a cap on the rounds of one client, lower `rounds` and use `client_rate=1` for every observer: a
draw that leaves out clients at their cap is not a fresh draw.

The setting is that of Zheng, Chen, Long, and Su (2021, "Federated f-differential privacy"). We
could not read that paper, and do not claim its definitions of weak and strong federated f-DP."""


def _figure() -> str:
    levels = [k / 200 for k in range(1, 20)] + [k / 50 for k in range(5, 51)]
    guess = Line([(0, 0), (1, 1)], "guess")

    def line(mechanism: Federated, kind: str, label: Label, *, dashed: bool = False) -> Line:
        powers = mechanism.tradeoff().powers(levels)
        points = [(a, float(p)) for a, p in zip(levels, powers, strict=True)]
        return Line([(0.0, 0.0), *points], kind, label, dashed)

    first, second = _hospitals(), _phones()
    hospitals = (
        guess,
        line(
            first["the server"],
            "bound",
            Label("the server, or nine\ncolluding clients", (0.03, 0.78)),
        ),
        line(
            first["the public"],
            "other",
            Label(
                "the public, another client,\nor the server with\nsecure aggregation",
                (0.45, 0.3),
                (0.35, 0.56),
            ),
        ),
    )
    phones = (
        guess,
        line(second["the server"], "bound", Label("the server", (0.12, 0.88))),
        line(
            second["the server, secure aggregation"],
            "fourth",
            Label("the server,\nsecure aggregation", (0.08, 0.74)),
        ),
        line(
            second["the public"],
            "other",
            Label("the public, or\ncolluding clients", (0.6, 0.3), (0.5, 0.53)),
        ),
    )
    ticks = tuple((k / 5, f"{k / 5:g}") for k in range(6))
    return figure(
        [Panel("A record of a hospital", "", hospitals), Panel("A phone", "", phones)],
        Axis("false positive rate", ticks),
        Axis("true positive rate, at most", ticks),
        title="Power by level of the best attack of each observer of federated learning",
        columns=2,
        large=1,
        cell=(420, 400),
    )


if __name__ == "__main__":
    main(lambda tell: pages())
