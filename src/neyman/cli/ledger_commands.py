"""Run ``neyman ledger``: show caps, charges, and balances, and verify the ledger."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neyman.accounting.semantics.digits import many
from neyman.accounting.semantics.unchecked_claims import dataset_names, disjoint_parts
from neyman.cli.terminal import Json, answer, check_suffix, failing, out, working, writing

if TYPE_CHECKING:
    from neyman.ledger.ledger import Ledger

ledger_app = typer.Typer(help="Manage and audit privacy budgets.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(help="The ledger: a path, or postgresql://...")]
CheckpointFile = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Checkpoint file. A ledger that is behind it is refused."),
]


@ledger_app.command("create", epilog="Example: neyman ledger create ledger.db people@1 --cap 0.5")
def ledger_create(
    ledger: Annotated[
        str, typer.Argument(help="Path or URL of the ledger, created if it does not exist.")
    ],
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="Name and version, people@1. If not given, the plan's. Nothing checks that two"
            " names hold different data: you answer for that."
        ),
    ] = None,
    *,
    cap: Annotated[
        str | None,
        typer.Option(
            help="Largest total charge in the ledger's currency, exact: 0.5 or 1/2. With --plan and"
            " if not given, the cost of one release."
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Plan that gives the dataset, its unit, and default caps.")
    ] = None,
    protects: Annotated[
        str | None, typer.Option(help="Who is protected. If not given, person.")
    ] = None,
    neighboring: Annotated[
        str | None,
        typer.Option(help="Neighboring datasets: replace-one (if not given) or add-remove."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Largest number of rows per unit. If not given, 1.")
    ] = None,
    currency: Annotated[
        str, typer.Option(help="Unit of charges: zcdp, pure, gdp, or renyi:ORDER.")
    ] = "zcdp",
    delta_cap: Annotated[
        str | None,
        typer.Option(
            help="Largest total delta. If not given, 0, or with --plan the delta of one release."
        ),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="A part of the data, with its own cap. Nothing checks that parts are"
            " disjoint: you answer for that."
        ),
    ] = None,
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Register a dataset version, privacy unit, and cap.

    The terms never change. With --plan, they are those of the plan. Then, without --cap and
    --delta-cap, the caps allow one release.
    """
    from neyman.cli.ledger_tables import account_dict

    with failing(as_json), _open_ledger(ledger, checkpoint) as book:
        given: dict[str, Any] = {
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
        usual: dict[str, Any] = {"protects": "person", "neighboring": "replace-one"}
        account = book.create(**usual | terms, currency=currency, parts=tuple(part or ()))

        def show() -> None:
            out.say(repr(account))
            subject = account.protects
            if account.parts and account.neighboring == "replace-one":
                out.say(
                    f"Each part has the whole cap, because a {subject} and whoever takes their"
                    " place are in the same part: where that is not so, parts add up."
                )
            if account.parts:
                out.say(disjoint_parts(account.dataset, subject))
            if len(book.datasets()) > 1:
                out.say(dataset_names(subject))

        answer(account_dict(account), as_json, show)


@ledger_app.command(
    "allocate", epilog="Example: neyman ledger allocate ledger.db people@1 team-a --cap 0.2"
)
def ledger_allocate(
    ledger: Place,
    dataset: Annotated[str, typer.Argument(help="A registered dataset: people@1.")],
    to: Annotated[str, typer.Argument(help="The allocation's name: team-a.")],
    cap: Annotated[
        str, typer.Option(help="Largest total charge, in the ledger's currency, exact: 0.5 or 1/2.")
    ],
    delta_cap: Annotated[
        str | None, typer.Option(help="Largest total delta. If not given, that of the parent.")
    ] = None,
    of: Annotated[str, typer.Option(help="Parent allocation. If not given, the dataset.")] = "",
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Cap a team's or project's charges."""
    from neyman.cli.ledger_tables import account_dict

    with failing(as_json), _open_ledger(ledger, checkpoint) as book:
        allocation = book.allocate(dataset, to, cap=cap, delta_cap=delta_cap, of=of)
        answer(account_dict(allocation), as_json, lambda: out.say(repr(allocation)))


@ledger_app.command("show", epilog="Example: neyman ledger show ledger.db")
def ledger_show(
    ledger: Place,
    dataset: Annotated[str | None, typer.Argument(help="One dataset. If not given, all.")] = None,
    last: Annotated[int, typer.Option(help="Number of entries to list.", min=0)] = 20,
    curve: Annotated[
        bool, typer.Option(help="Print the exact curve of all charged mechanisms together.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show caps, charges, and balances."""
    from neyman.cli.ledger_tables import standing, standing_dict

    with failing(as_json), _open_ledger(ledger) as book:
        accounts = [book.account(dataset)] if dataset else list(book.datasets())
        with working("composing what was spent"):
            balances = [standing_dict(book, account, last, curve) for account in accounts]
        answer({"accounts": balances}, as_json, lambda: standing(balances))


@ledger_app.command("history", epilog="Example: neyman ledger history ledger.db --last 50")
def ledger_history(
    ledger: Place,
    last: Annotated[int, typer.Option(help="Number of events to list. 0 lists all.", min=0)] = 50,
    as_json: Json = False,
) -> None:
    """List events in order."""
    from neyman.cli.ledger_tables import history, history_list

    with failing(as_json), _open_ledger(ledger) as book:
        events = history_list(book, last)
        answer({"events": events}, as_json, lambda: history(events))


@ledger_app.command(
    "void",
    epilog="Example: neyman ledger void ledger.db 7 --why 'stopped before the data were ready'",
)
def ledger_void(
    ledger: Place,
    entry: Annotated[int, typer.Argument(help="Number of a reserved entry.")],
    why: Annotated[
        str, typer.Option(help="Reason, which the hash chain records.")
    ] = "by the operator",
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Cancel a reservation that never read data.

    A charge whose run began to read data stays spent.
    """
    from neyman.cli.ledger_tables import entry_dict

    with failing(as_json), _open_ledger(ledger, checkpoint) as book:
        voided = book.void(entry, why)
        answer(entry_dict(voided), as_json, lambda: out.say(repr(voided)))


@ledger_app.command(
    "confirm-location",
    epilog="Example: neyman ledger confirm-location ledger.db --checkpoint saved.txt",
)
def ledger_confirm_location(
    ledger: Annotated[str, typer.Argument(help="Current path of the SQLite ledger.")],
    why: Annotated[
        str, typer.Option(help="Reason, which the hash chain records.")
    ] = "moved by the operator",
    checkpoint: CheckpointFile = None,
    as_json: Json = False,
) -> None:
    """Confirm the ledger's location after a move or a restored backup.

    Stop all runs first. The command verifies the ledger and refuses it if its log is missing.
    """
    with failing(as_json), _open_ledger(ledger, checkpoint) as book:
        with working("verifying the ledger"):
            place = book.confirm_location(why)

        def show() -> None:
            out.say(f"{book!r} belongs here: {place}")
            if checkpoint is None:
                out.print(
                    "If it is a restored backup, it has forgotten what was spent since: compare"
                    " it with a checkpoint that was kept elsewhere"
                    " (neyman ledger verify --checkpoint)."
                )

        answer({**asdict(place), "line": str(place)}, as_json, show)


@ledger_app.command(
    "checkpoint", epilog="Example: neyman ledger checkpoint ledger.db --out saved.txt"
)
def ledger_checkpoint(
    ledger: Place,
    into: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Checkpoint file to write or bring forward. Store it elsewhere."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print or save a checkpoint.

    It exposes a ledger that is later rolled back, restored, or copied.
    """
    with failing(as_json), _open_ledger(ledger) as book:
        latest = book.checkpoint() if into is None else book.keep_checkpoint(into)
        content = {**asdict(latest), "line": str(latest)}
        answer(content, as_json, lambda: out.say(str(latest)))


@ledger_app.command(
    "verify", epilog="Example: neyman ledger verify ledger.db --checkpoint saved.txt"
)
def ledger_verify(
    ledger: Place,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Checkpoint, a file or its line, that the ledger must have passed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify the hash chain and balances."""
    from neyman.ledger.chain import Checkpoint

    with failing(as_json), _open_ledger(ledger) as book:
        saved = None
        if checkpoint is not None:
            line = checkpoint.startswith("neyman-ledger ")
            saved = Checkpoint.parse(checkpoint) if line else Checkpoint.load(checkpoint)
        with working("following the chain"):
            report = book.verify(saved)

        def show() -> None:
            for problem in report.problems:
                out.print("[bold red]FAILED[/] ", end="")
                out.say(problem)
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

        answer({"ok": report.ok, **asdict(report)}, as_json, show)
    if not report.ok:
        raise SystemExit(5)


@ledger_app.command("export", epilog="Example: neyman ledger export ledger.db --out ledger.jsonl")
def ledger_export(
    ledger: Place,
    into: Annotated[
        Path | None, typer.Option("--out", help="New file. If not given, stdout.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Export the hash chain as JSON lines, which anyone can check.

    Each line has the hash of the line before. docs/ledger.md explains it. The lines go to
    stdout or to a file. With --json and --out, the command prints a summary.
    """
    with failing(as_json), _open_ledger(ledger) as book:
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
        answer(content, as_json, lambda: out.say(f"{many(count, 'event')} in {into}"))


@ledger_app.command("key", epilog="Example: neyman ledger key custodian")
def ledger_key(
    path: Annotated[Path, typer.Argument(help="New file for the private key.")],
    as_json: Json = False,
) -> None:
    """Create a signing key pair.

    Sign with neyman run --sign. Check with neyman verify --key.
    """
    from neyman.publishing.release.signing import create_key
    from neyman.publishing.release.ssh_signature import allowed_signer

    with failing(as_json):
        signers = path.with_name(f"{path.name}.signers")
        if signers.exists():
            raise ValueError(f"{signers} already exists: name another file")
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
            out.say(f"{path}: the private key; whoever has it signs in your name")
            out.say(f"{public}: the public key, for whoever verifies; {digits}")
            out.say(f"{signers}: the same key, for ssh-keygen -Y verify")

        answer(content, as_json, show)


def _of_plan(
    path: Path, currency: str, given: Mapping[str, Any], parts: Sequence[str]
) -> dict[str, Any]:
    """Return the terms of a plan. If no caps are given, they allow one release of the plan.

    Raises:
        ValueError: a given term contradicts the plan, or the plan reads an undeclared part.
    """
    from neyman.accounting.charges import charge
    from neyman.ledger.units import DELTA, UNIT, units_up
    from neyman.publishing.plan.plan import Plan

    plan = Plan.load(path)
    unit = plan.unit
    terms: dict[str, Any] = {
        "dataset": plan.dataset,
        "protects": unit.protects,
        "neighboring": unit.neighboring,
        "rows": plan.unit_rows,
    }
    terms |= {"totals": plan.totals_hash} if plan.totals else {}
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
    # A charge is rounded up to integer units, so a smaller cap would refuse it.
    caps = {
        "cap": Fraction(units_up(amount), UNIT),
        "delta_cap": Fraction(units_up(delta, DELTA), DELTA),
    }
    return {**caps, **given, **terms}


def _open_ledger(ledger: str, checkpoint: Path | None = None) -> Ledger:
    from neyman.ledger.ledger import Ledger

    return Ledger(ledger, checkpoint=checkpoint)
