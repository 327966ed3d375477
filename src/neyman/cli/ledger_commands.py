"""``neyman ledger``: what may be spent, what has been, what is left, and whether the book holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neyman.cli.terminal import Json, answer, check_suffix, failing, out, working, writing
from neyman.semantics.digits import many
from neyman.semantics.unchecked_claims import dataset_names, disjoint_parts

if TYPE_CHECKING:
    from neyman.ledger.ledger import Ledger

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="What each dataset may spend, has spent and has left.", no_args_is_help=True
)

Place = Annotated[str, typer.Argument(help="The ledger: a path, or postgresql://...")]
CheckpointFile = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="A checkpoint file: refused if the ledger is behind it."),
]


@ledger_app.command("create")
def ledger_create(
    ledger: Annotated[str, typer.Argument(help="The ledger's place; made if it is not there.")],
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="Name and version: people@1; with --plan, the plan's. Nothing checks that two"
            " names hold different data: you answer for that."
        ),
    ] = None,
    cap: Annotated[
        str | None,
        typer.Option(
            help="Most that may be spent, exact: 0.5 or 1/2; with --plan, what one release of the"
            " plan costs."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A plan, TOML, that gives the dataset and its unit, and default caps."),
    ] = None,
    protects: Annotated[
        str | None, typer.Option(help="Who is protected; 'person' if not given.")
    ] = None,
    neighboring: Annotated[
        str | None, typer.Option(help="replace-one (if not given) or add-remove.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Most rows of one unit; 1 if not given.")] = None,
    currency: Annotated[str, typer.Option(help="zcdp, pure, gdp or renyi:ORDER.")] = "zcdp",
    delta_cap: Annotated[
        str | None,
        typer.Option(
            help="Most delta beside it; 0 if not given, with --plan what one release costs."
        ),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="A part of the data, with a cap of its own; repeatable. Nothing checks that parts"
            " are disjoint: you answer for that."
        ),
    ] = None,
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Register a dataset version, privacy unit, and cap.

    Its terms never change. With --plan they are those of the plan, and the caps allow one release
    of it if --cap and --delta-cap are not given.
    """
    from neyman.cli.ledger_tables import account_dict

    with failing(as_json), _opened(ledger, checkpoint) as book:
        given = {
            "dataset": dataset,
            "protects": protects,
            "neighboring": neighboring,
            "rows": rows,
            "cap": cap,
            "delta_cap": delta_cap,
        }
        terms = {name: value for name, value in given.items() if value is not None}
        if plan is not None:
            terms = _of_plan(plan, currency, terms, part or ())
        elif dataset is None or cap is None:
            missing = "DATASET" if dataset is None else "--cap"
            raise ValueError(f"{missing} is missing: give a dataset and its --cap, or a --plan")
        account = book.create(
            **{"protects": "person", "neighboring": "replace-one", **terms},
            currency=currency,
            parts=tuple(part or ()),
        )

        def show() -> None:
            out.print(repr(account), markup=False)
            subject = account.protects
            if account.parts and account.neighboring == "replace-one":
                out.print(
                    f"Each part has the whole cap, because a {subject} and whoever takes their"
                    " place are in the same part: where that is not so, parts add up.",
                    markup=False,
                )
            if account.parts:
                out.print(disjoint_parts(account.dataset, subject), markup=False)
            if len(book.datasets()) > 1:
                out.print(dataset_names(subject), markup=False)

        answer(account_dict(account), as_json, show)


@ledger_app.command("allocate")
def ledger_allocate(
    ledger: Place,
    dataset: Annotated[str, typer.Argument(help="A registered dataset: people@1.")],
    to: Annotated[str, typer.Argument(help="The allocation's name: team-a.")],
    cap: Annotated[str, typer.Option(help="Most that it may spend, exact: 0.5 or 1/2.")],
    delta_cap: Annotated[
        str | None, typer.Option(help="Most delta beside it; default as what it is part of.")
    ] = None,
    of: Annotated[str, typer.Option(help="The allocation that it is part of.")] = "",
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Cap a team's or project's charges."""
    from neyman.cli.ledger_tables import account_dict

    with failing(as_json), _opened(ledger, checkpoint) as book:
        allocation = book.allocate(dataset, to, cap=cap, delta_cap=delta_cap, of=of)
        answer(account_dict(allocation), as_json, lambda: out.print(repr(allocation), markup=False))


@ledger_app.command("show")
def ledger_show(
    ledger: Place,
    dataset: Annotated[str | None, typer.Argument(help="One dataset; default all.")] = None,
    last: Annotated[int, typer.Option(help="How many entries to list.", min=0)] = 20,
    curve: Annotated[bool, typer.Option(help="Compose the mechanisms of all entries.")] = True,
    as_json: Json = False,
) -> None:
    """Show caps, charges, and balances."""
    from neyman.cli.ledger_tables import standing, standing_dict

    with failing(as_json), _opened(ledger) as book:
        accounts = [book.account(dataset)] if dataset else list(book.datasets())
        with working("composing what was spent"):
            balances = [standing_dict(book, account, last, curve) for account in accounts]
        answer({"accounts": balances}, as_json, lambda: standing(balances))


@ledger_app.command("history")
def ledger_history(
    ledger: Place,
    last: Annotated[int, typer.Option(help="How many events to list; 0 is all.", min=0)] = 50,
    as_json: Json = False,
) -> None:
    """List events in order."""
    from neyman.cli.ledger_tables import history, history_list

    with failing(as_json), _opened(ledger) as book:
        events = history_list(book, last)
        answer({"events": events}, as_json, lambda: history(events))


@ledger_app.command("void")
def ledger_void(
    ledger: Place,
    entry: Annotated[int, typer.Argument(help="The number of an entry that is reserved.")],
    why: Annotated[str, typer.Option(help="Kept in the chain.")] = "by the operator",
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Cancel a reservation that never read data.

    One that did is spent for ever.
    """
    from neyman.cli.ledger_tables import entry_dict

    with failing(as_json), _opened(ledger, checkpoint) as book:
        voided = book.void(entry, why)
        answer(entry_dict(voided), as_json, lambda: out.print(repr(voided), markup=False))


@ledger_app.command("confirm-location")
def ledger_confirm_location(
    ledger: Annotated[str, typer.Argument(help="The path where the SQLite ledger is now.")],
    why: Annotated[str, typer.Option(help="Kept in the chain.")] = "moved by the operator",
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Confirm the ledger's location after a move or a restored backup.

    Stop all runs first. The ledger is verified, and refused if its log stayed behind.
    """
    with failing(as_json), _opened(ledger, checkpoint) as book:
        with working("verifying the ledger"):
            place = book.confirm_location(why)
        content = {"ledger": place.ledger, "events": place.events, "head": place.head}

        def show() -> None:
            out.print(f"{book!r} belongs here: {place}", markup=False)
            if checkpoint is None:
                out.print(
                    "If it is a restored backup, it has forgotten what was spent since: compare"
                    " it with a checkpoint that was kept elsewhere"
                    " (neyman ledger verify --checkpoint)."
                )

        answer(content | {"line": str(place)}, as_json, show)


@ledger_app.command("checkpoint")
def ledger_checkpoint(
    ledger: Place,
    into: Annotated[
        Path | None, typer.Option("--out", help="A file to keep elsewhere, or to bring forward.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print or save a checkpoint.

    It exposes a ledger that is rolled back, restored or copied later.
    """
    with failing(as_json), _opened(ledger) as book:
        latest = book.checkpoint() if into is None else book.keep_checkpoint(into)
        content = {"ledger": latest.ledger, "events": latest.events, "head": latest.head}
        answer(
            content | {"line": str(latest)}, as_json, lambda: out.print(str(latest), markup=False)
        )


@ledger_app.command("verify")
def ledger_verify(
    ledger: Place,
    checkpoint: Annotated[
        str | None, typer.Option(help="A checkpoint file, or its line, that it must have been at.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify the hash chain and balances."""
    from neyman.ledger.chain import Checkpoint

    with failing(as_json), _opened(ledger) as book:
        saved = None
        if checkpoint is not None:
            line = checkpoint.startswith("neyman-ledger ")
            saved = Checkpoint.parse(checkpoint) if line else Checkpoint.load(checkpoint)
        with working("following the chain"):
            report = book.verify(saved)

        def show() -> None:
            for problem in report.problems:
                out.print("[bold red]FAILED[/] ", end="")
                out.print(problem, markup=False)
            if report.ok:
                out.print("[green]ok[/] ", end="")
                out.print(
                    f"ledger {report.ledger}: a chain of {many(report.events, 'event')}, and"
                    f" {many(report.accounts, 'account')} and {many(report.entries, 'entry')} that"
                    " follow from it"
                )
                if saved is None:
                    out.print(
                        "A copy from before, or a chain written anew, would be whole too: keep a"
                        " checkpoint elsewhere (neyman ledger checkpoint) and give it here."
                    )
                else:
                    since = report.events - saved.events
                    out.print(f"It was at the checkpoint; events since then: {since}.")

        content: dict[str, Any] = {
            "ok": report.ok,
            "ledger": report.ledger,
            "events": report.events,
            "head": report.head,
            "accounts": report.accounts,
            "entries": report.entries,
            "problems": list(report.problems),
        }
        answer(content, as_json, show)
    if not report.ok:
        raise SystemExit(5)


@ledger_app.command("export")
def ledger_export(
    ledger: Place,
    into: Annotated[Path | None, typer.Option("--out", help="A new file; default stdout.")] = None,
    as_json: Json = False,
) -> None:
    """Export the hash chain as JSON lines, which anyone can check.

    Each has the hash of the one before; docs/ledger.md says how to check. The lines go to stdout
    as they are, or to a file; with --json a summary of it is printed.
    """
    with failing(as_json), _opened(ledger) as book:
        if into is None and as_json:
            raise ValueError("the export is JSON lines already: give --out FILE, or leave --json")
        check_suffix(into, ".jsonl", ".ndjson")
        if into is None:
            lines = (f"{line}\n" for line in book.lines())
            answer({}, False, lambda: sys.stdout.writelines(lines))
            return
        count = 0
        with writing(into), open(into, "x", encoding="ascii") as file:
            try:
                for line in book.lines():
                    file.write(f"{line}\n")
                    count += 1
            except BaseException:
                into.unlink()  # half an export is none
                raise
        content = {"file": str(into), "events": count}
        answer(
            content, as_json, lambda: out.print(f"{many(count, 'event')} in {into}", markup=False)
        )


@ledger_app.command("key")
def ledger_key(
    path: Annotated[Path, typer.Argument(help="A new file for the private key.")],
    as_json: Json = False,
) -> None:
    """Create a signing key pair.

    Sign with run --sign, check with verify --key.
    """
    from neyman.release.signing import create_key
    from neyman.release.ssh_signature import allowed_signer

    with failing(as_json):
        signers = path.with_name(f"{path.name}.signers")
        if signers.exists():
            raise ValueError(f"{signers} is there already: name another file")
        public, digits = create_key(path)
        with writing(signers):
            signers.write_text(allowed_signer(public), encoding="ascii")
        content = {
            "private": str(path),
            "public": str(public),
            "signers": str(signers),
            "fingerprint": digits,
        }

        def show() -> None:
            out.print(f"{path}: the private key; whoever has it signs in your name", markup=False)
            out.print(f"{public}: the public key, for whoever verifies; {digits}", markup=False)
            out.print(f"{signers}: the same key, for ssh-keygen -Y verify", markup=False)

        answer(content, as_json, show)


def _of_plan(
    path: Path, currency: str, given: Mapping[str, Any], parts: Sequence[str]
) -> dict[str, Any]:
    """The terms of a plan, with caps that allow one release of it where none are given.

    Raises:
        ValueError: a term is given that the plan says otherwise, or the plan reads a part that is
            not declared.
    """
    from neyman.accounting.charge import charge
    from neyman.ledger.units import DELTA, UNIT, units_up
    from neyman.plan.plan import Plan

    plan = Plan.load(path)
    unit = plan.unit
    terms: dict[str, Any] = {
        "dataset": plan.dataset,
        "protects": unit.protects,
        "neighboring": unit.neighboring,
        "rows": plan.unit_rows,
    }
    for name, value in terms.items():
        if given.get(name, value) != value:
            option = "DATASET" if name == "dataset" else f"--{name}"
            raise ValueError(
                f"{option} = {given[name]!r}: the plan has {value!r}; leave it out, or change the"
                " plan"
            )
    if plan.part is not None and plan.part not in parts:
        raise ValueError(
            f"the plan reads the part {plan.part!r}: give --part for it and for each other part"
        )
    with working("finding what one release costs"):
        amount, delta = charge(plan.mechanism(), currency)
    # A charge is rounded up to whole units, so that a cap of less would not admit it.
    caps = {
        "cap": Fraction(units_up(amount), UNIT),
        "delta_cap": Fraction(units_up(delta, DELTA), DELTA),
    }
    return {**caps, **given, **terms}


def _opened(ledger: str, checkpoint: Path | None = None) -> Ledger:
    from neyman.ledger.ledger import Ledger

    return Ledger(ledger, checkpoint=checkpoint)
