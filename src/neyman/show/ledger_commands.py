"""``neyman ledger``: what may be spent, what has been, and what is left."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from neyman.show.terminal import Json, answer, failing, out

__all__ = ["ledger_app"]

ledger_app = typer.Typer(help="What has been spent.", no_args_is_help=True)


@ledger_app.command("create")
def ledger_create(
    ledger: Annotated[str, typer.Argument(help="The ledger's path; made if it is not there.")],
    dataset: Annotated[str, typer.Argument(help="Name and version: people@1.")],
    cap: Annotated[str, typer.Option(help="Most that may be spent, exact: 0.5 or 1/2.")],
    protects: Annotated[str, typer.Option(help="Who is protected.")] = "person",
    neighboring: Annotated[str, typer.Option(help="replace-one or add-remove.")] = "replace-one",
    rows: Annotated[int, typer.Option(help="Most rows of one unit.")] = 1,
    currency: Annotated[str, typer.Option(help="zcdp, pure, gdp or renyi:ORDER.")] = "zcdp",
    delta_cap: Annotated[str, typer.Option(help="Most delta beside it.")] = "0",
    as_json: Json = False,
) -> None:
    """Register a dataset version with its unit and its cap."""
    from neyman.release.ledger import Ledger

    with failing(as_json):
        made = Ledger(ledger).create(
            dataset, protects=protects, neighboring=neighboring, rows=rows,
            currency=currency, cap=cap, delta_cap=delta_cap,
        )  # fmt: skip
        answer(_account_dict(made), as_json, lambda: out.print(repr(made), markup=False))


@ledger_app.command("show")
def ledger_show(
    ledger: Annotated[str, typer.Argument(help="The ledger's path.")],
    dataset: Annotated[str | None, typer.Argument(help="One dataset; default all.")] = None,
    as_json: Json = False,
) -> None:
    """What each dataset may spend, has spent and has left."""
    from neyman.release.ledger import Ledger
    from neyman.semantics.digits import plain

    with failing(as_json):
        book = Ledger(ledger)
        accounts = [book.account(dataset)] if dataset else list(book.datasets())
        entries = {a.dataset: book.entries(a.dataset) for a in accounts}

        def show() -> None:
            for a in accounts:
                out.print(
                    f"{a.dataset}: protects a {a.protects} ({a.neighboring}, rows {a.rows}); "
                    f"{a.currency}: spent {plain(a.spent)} of {plain(a.cap)}, left {plain(a.left)}",
                    markup=False,
                )
                table = Table("entry", "state", "charge", "delta", "when", "plan", box=None)
                for e in entries[a.dataset]:
                    plan = json.loads(e.plan) if e.plan else {}
                    name = plan.get("name", "") if isinstance(plan, dict) else ""
                    table.add_row(
                        str(e.id), e.state, plain(e.charge), plain(e.delta), e.created,
                        Text(str(name)),
                    )  # fmt: skip
                if entries[a.dataset]:
                    out.print(table)

        found = [
            _account_dict(a)
            | {
                "entries": [
                    {
                        "id": e.id, "state": e.state, "charge": str(e.charge),
                        "delta": str(e.delta), "created": e.created, "key": e.key,
                    }
                    for e in entries[a.dataset]
                ]
            }
            for a in accounts
        ]  # fmt: skip
        answer({"accounts": found}, as_json, show)


def _account_dict(a: Any) -> dict[str, Any]:
    names = ("dataset", "protects", "neighboring", "rows", "currency")
    amounts = ("cap", "spent", "left", "delta_cap", "spent_delta", "left_delta")
    return {n: getattr(a, n) for n in names} | {n: str(getattr(a, n)) for n in amounts}
