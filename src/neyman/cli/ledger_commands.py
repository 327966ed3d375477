"""Run ``neyman ledger``: show caps, charges, and balances, and verify the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import neyman
from neyman import accounting, publishing
from neyman.accounting.semantics.digits import many
from neyman.accounting.semantics.unchecked_claims import dataset_names, disjoint_parts
from neyman.cli.commands import command
from neyman.cli.ledger_tables import history, standing
from neyman.cli.terminal import Answer, check_suffix, ends, marked, working, write, writing
from neyman.numerics.bound import Bound

if TYPE_CHECKING:
    from neyman.ledger.records import Account


_Last = Annotated[int, typer.Option(min=0)]


@command("ledger create", "ledger.db people@1 --cap 0.5")
def ledger_create(
    ledger: str,
    dataset: str | None = None,
    *,
    cap: str | None = None,
    plan: Path | None = None,
    protects: str | None = None,
    neighboring: str | None = None,
    rows: int | None = None,
    currency: str = "zcdp",
    delta_cap: str | None = None,
    part: list[str] = [],  # noqa: B006 (typer copies it)
    population: str = "",
    approval: str = "",
    approver: list[Path] = [],  # noqa: B006 (typer copies it)
    checkpoint: Path | None = None,
) -> Answer:
    """Register a dataset version, privacy unit, and cap.

    The terms never change. With --plan, they are those of the plan. Then, without --cap and
    --delta-cap, the caps allow one release.

    Args:
        ledger: Path or URL of the ledger, created if it does not exist.
        dataset: Name and version, people@1. If not given, the plan's. Nothing checks that two names
            hold different data: you answer for that.
        cap: Largest total charge in the ledger's currency, exact: 0.5 or 1/2. With --plan and if
            not given, the cost of one release.
        plan: Plan that gives the dataset, its unit, and default caps.
        protects: Who is protected. If not given, person.
        neighboring: Neighboring datasets: replace-one (if not given) or add-remove.
        rows: Largest number of rows per unit. If not given, 1.
        currency: Unit of charges: zcdp, pure, gdp, or renyi:ORDER.
        delta_cap: Largest total delta. If not given, 0, or with --plan the delta of one release.
        part: A part of the data, with its own cap. Nothing checks that parts are disjoint: you
            answer for that.
        population: Registered dataset whose cap covers this edition, too (see ledger join).
        approval: required, to refuse each plan that no second person approved (see plan approve).
        approver: Public key (PEM) of which one must sign an approval.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book:
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
            terms = _of_plan(plan, currency, terms, part)
        elif dataset is None or cap is None:
            missing = "DATASET" if dataset is None else "--cap"
            raise ValueError(f"{missing} is missing: give a dataset and its --cap, or a --plan")
        usual: dict[str, Any] = {"protects": "person", "neighboring": "replace-one"}
        more: dict[str, Any] = {"parts": tuple(part), "population": population}
        more |= {
            "approval": approval or ("required" if approver else ""),
            "approvers": [publishing.public_bytes(key).hex() for key in approver],
        }
        account = book.create(**usual | terms, currency=currency, **more)
        several = len(book.datasets()) > 1
    lines, subject = [repr(account)], account.protects
    if account.parts and account.neighboring == "replace-one":
        lines.append(
            f"Each part has the whole cap, because a {subject} and whoever takes their"
            " place are in the same part: where that is not so, parts add up."
        )
    if account.parts:
        lines.append(disjoint_parts(account.dataset, subject))
    if several:
        lines.append(dataset_names(subject))
    return Answer(account.to_dict(), lines)


@command("ledger join", "ledger.db people@2025 people@all")
def ledger_join(
    ledger: str, dataset: str, population: str, *, checkpoint: Path | None = None
) -> Answer:
    """Make a dataset an edition of a population, with all that it has spent.

    The population's cap covers the sum over its editions. An edition stays one.

    Args:
        ledger: The ledger: a path, or postgresql://...
        dataset: The registered edition: people@2025.
        population: The registered dataset of all editions' people: people@all.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book:
        accounts = [book.join(dataset, population), book.account(population)]
    return Answer({"accounts": [one.to_dict() for one in accounts]}, list(map(repr, accounts)))


@command("ledger allocate", "ledger.db people@1 team-a --cap 0.2")
def ledger_allocate(
    ledger: str,
    dataset: str,
    to: str,
    *,
    cap: str,
    delta_cap: str | None = None,
    of: str = "",
    checkpoint: Path | None = None,
) -> Answer:
    """Cap a team's or project's charges.

    Args:
        ledger: The ledger: a path, or postgresql://...
        dataset: A registered dataset: people@1.
        to: The allocation's name: team-a.
        cap: Largest total charge, in the ledger's currency, exact: 0.5 or 1/2.
        delta_cap: Largest total delta. If not given, that of the parent.
        of: Parent allocation. If not given, the dataset.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book:
        allocation = book.allocate(dataset, to, cap=cap, delta_cap=delta_cap, of=of)
    return Answer(allocation.to_dict(), [repr(allocation)])


@command("ledger show", "ledger.db")
def ledger_show(
    ledger: str, dataset: str | None = None, *, last: _Last = 20, curve: bool = True
) -> Answer:
    """Show caps, charges, and balances.

    Args:
        ledger: The ledger: a path, or postgresql://...
        dataset: One dataset. If not given, all.
        last: Number of entries to list.
        curve: Print the exact curve of all charged mechanisms together.
    """
    with neyman.Ledger(ledger) as book:
        accounts = [book.account(dataset)] if dataset else list(book.datasets())
        with working("composing what was spent"):
            balances = [_balance(book, account, last, curve) for account in accounts]
    return Answer({"accounts": balances}, standing(balances))


def _balance(book: neyman.Ledger, account: Account, last: int, curve: bool) -> dict[str, Any]:
    """Return an account, its allocations, ``last`` entries, and epsilon and power if asked for."""
    entries = book.entries(account.dataset, last) if last else ()
    spent = publishing.spent_curve(book, account) if curve else {}
    return account.to_dict() | {
        "allocations": [one.to_dict() for one in book.allocations(account.dataset)],
        "entries": [entry.to_dict() for entry in entries],
        "composed": {
            name: ends(value) if isinstance(value, Bound) else value
            for name, value in spent.items()
        }
        or None,
    }


@command("ledger history", "ledger.db --last 50")
def ledger_history(ledger: str, *, last: _Last = 50) -> Answer:
    """List events in order.

    Args:
        ledger: The ledger: a path, or postgresql://...
        last: Number of events to list. 0 lists all.
    """
    from neyman.ledger.event_list import event_list

    with neyman.Ledger(ledger) as book:
        events = event_list(book, last)
    return Answer({"events": events}, [history(events)])


@command("ledger void", "ledger.db 7 --why 'stopped before the data were ready'")
def ledger_void(
    ledger: str, entry: int, *, why: str = "by the operator", checkpoint: Path | None = None
) -> Answer:
    """Cancel a reservation that never read data.

    A charge whose run began to read data stays spent.

    Args:
        ledger: The ledger: a path, or postgresql://...
        entry: Number of a reserved entry.
        why: Reason, which the hash chain records.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book:
        voided = book.void(entry, why)
    return Answer(voided.to_dict(), [repr(voided)])


@command("ledger withdraw", "ledger.db 7 --why 'a wrong file was read'")
def ledger_withdraw(ledger: str, entry: int, *, why: str, checkpoint: Path | None = None) -> Answer:
    """Record that a published release was taken back.

    Its charge stands, because what was published stays known.

    Args:
        ledger: The ledger: a path, or postgresql://...
        entry: Number of a released entry.
        why: Reason, which the hash chain records.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book:
        withdrawn = book.withdraw(entry, why)
    line = f"Entry {entry} of {withdrawn.dataset} is withdrawn. Its charge stands."
    return Answer(withdrawn.to_dict(), [line])


@command("ledger confirm-location", "ledger.db --checkpoint saved.txt")
def ledger_confirm_location(
    ledger: str, *, why: str = "moved by the operator", checkpoint: Path | None = None
) -> Answer:
    """Confirm the ledger's location after a move or a restored backup.

    Stop all runs first. The command verifies the ledger and refuses it if its log is missing.

    Args:
        ledger: Current path of the SQLite ledger.
        why: Reason, which the hash chain records.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book, working("verifying the ledger"):
        place = book.confirm_location(why)
    lines = [f"{book!r} belongs here: {place}"]
    if checkpoint is None:
        lines.append(
            "If it is a restored backup, it has forgotten what was spent since: compare"
            " it with a checkpoint that was kept elsewhere"
            " (neyman ledger verify --checkpoint)."
        )
    return Answer({**asdict(place), "line": str(place)}, lines)


@command("ledger checkpoint", "ledger.db --out saved.txt")
def ledger_checkpoint(ledger: str, *, out: Path | None = None) -> Answer:
    """Print or save a checkpoint.

    It exposes a ledger that is later rolled back, restored, or copied.

    Args:
        ledger: The ledger: a path, or postgresql://...
        out: Checkpoint file to write or bring forward. Store it elsewhere.
    """
    with neyman.Ledger(ledger) as book:
        latest = book.checkpoint() if out is None else book.keep_checkpoint(out)
    return Answer({**asdict(latest), "line": str(latest)}, [str(latest)])


@command("ledger verify", "ledger.db --checkpoint saved.txt")
def ledger_verify(ledger: str, *, checkpoint: str | None = None) -> Answer:
    """Verify the hash chain and balances.

    Args:
        ledger: The ledger: a path, or postgresql://...
        checkpoint: Checkpoint, a file or its line, that the ledger must have passed.
    """
    from neyman.ledger import Checkpoint

    with neyman.Ledger(ledger) as book:
        saved = None
        if checkpoint is not None:
            line = checkpoint.startswith("neyman-ledger ")
            saved = Checkpoint.parse(checkpoint) if line else Checkpoint.load(checkpoint)
        with working("following the chain"):
            report = book.verify(saved)
    lines = [marked("FAILED", "bold red", f" {problem}") for problem in report.problems]
    if report.ok:
        lines = [
            marked(
                "ok",
                "green",
                f" ledger {report.ledger}: a chain of {many(report.events, 'event')}, and"
                f" {many(report.accounts, 'account')} and {many(report.entries, 'entry')} that"
                " follow from it",
            ),
            "A copy from before, or a chain written anew, would be whole too: keep a"
            " checkpoint elsewhere (neyman ledger checkpoint) and give it here."
            if saved is None
            else f"It was at the checkpoint; events since then: {report.events - saved.events}.",
        ]
    return Answer({"ok": report.ok, **asdict(report)}, lines, 0 if report.ok else 5)


@command("ledger export", "ledger.db --out ledger.jsonl")
def ledger_export(ledger: str, *, out: Path | None = None, json: bool = False) -> Answer:
    """Export the hash chain as JSON lines, which anyone can check.

    Each line has the hash of the line before. docs/ledger.md explains it. The lines go to
    stdout or to a file. With --json and --out, the command prints a summary.

    Args:
        ledger: The ledger: a path, or postgresql://...
        out: New file. If not given, stdout.
    """
    book = neyman.Ledger(ledger)
    if out is None and json:
        raise ValueError("the export is JSON lines already: give --out FILE, or leave --json")
    check_suffix(out, ".jsonl", ".ndjson")
    if out is None:
        return Answer({}, book.lines())
    count = 0
    with book, writing(out), open(out, "x", encoding="ascii") as file:
        try:
            for line in book.lines():
                file.write(f"{line}\n")
                count += 1
        except BaseException:
            out.unlink()  # half an export is none
            raise
    return Answer({"file": str(out), "events": count}, [f"{many(count, 'event')} in {out}"])


@command("ledger key", "custodian")
def ledger_key(path: Path) -> Answer:
    """Create a signing key pair.

    Sign with neyman run --sign. Check with neyman verify --key.

    Args:
        path: New file for the private key.
    """
    signers = path.with_name(f"{path.name}.signers")
    if signers.exists():
        raise ValueError(f"{signers} already exists: name another file")
    public, digits = publishing.create_key(path)
    write(signers, publishing.allowed_signer(public), "w")
    content = {
        "private": str(path),
        "public": str(public),
        "signers": str(signers),
        "fingerprint": digits,
    }
    return Answer(
        content,
        [
            f"{path}: the private key; whoever has it signs in your name",
            f"{public}: the public key, for whoever verifies; {digits}",
            f"{signers}: the same key, for ssh-keygen -Y verify",
        ],
    )


def _of_plan(
    path: Path, currency: str, given: Mapping[str, Any], parts: Sequence[str]
) -> dict[str, Any]:
    """Return the terms of a plan. If no caps are given, they allow one release of the plan.

    Raises:
        ValueError: a given term contradicts the plan, or the plan reads an undeclared part.
    """
    from neyman.ledger.units import DELTA, UNIT, units_up

    plan = neyman.Plan.load(path)
    unit = plan.unit
    terms: dict[str, Any] = {
        "dataset": plan.dataset,
        "protects": unit.protects,
        "neighboring": unit.neighboring,
        "rows": plan.unit_rows,
        **({"totals": plan.totals_hash} if plan.totals else {}),
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
        amount, delta = accounting.charge(plan.mechanism(), currency)
    # A charge is rounded up to integer units, so a smaller cap would refuse it.
    caps = {
        "cap": Fraction(units_up(amount), UNIT),
        "delta_cap": Fraction(units_up(delta, DELTA), DELTA),
    }
    return {**caps, **given, **terms}
