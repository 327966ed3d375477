"""Run the commands of releases: publish, verify, report, audit, and explore."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import neyman
from neyman import accounting, auditing, display, publishing
from neyman.accounting.semantics.digits import many
from neyman.accounting.semantics.unchecked_claims import disjoint_parts, one_row_each
from neyman.cli.commands import command
from neyman.cli.terminal import (
    Answer,
    bound_tables,
    check_suffix,
    columns,
    marked,
    progress,
    warn,
    working,
    write,
    writing,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neyman.publishing.synthetic.rows_from_tables import SyntheticRows

CHARGED = (
    "no release was published; if the run had begun to read the data, its charge stays spent "
    "(see neyman ledger history)"
)


@command(
    "run",
    "plan.toml --data people=people.parquet --ledger ledger.db --out release",
    interrupted=CHARGED,
)
def run(
    plan: Path,
    *,
    ledger: str,
    out: Path,
    data: list[str] = [],  # noqa: B006 (typer copies it)
    engine: str = "duckdb",
    memory: str | None = None,
    master: str | None = None,
    account: str | None = None,
    charge_again: bool = False,
    sign: Path | None = None,
    checkpoint: Path | None = None,
    wait: float = 3600.0,
    corrects: Path | None = None,
    why: str = "",
    copy: list[str] = [],  # noqa: B006 (typer copies it)
    balance: bool = True,
) -> Answer:
    """Publish a release and charge the ledger.

    Args:
        plan: The plan, a TOML file.
        ledger: The ledger: a path, or postgresql://...
        out: Folder for the release, new or empty.
        data: TABLE=PATH: the file of a private table. A plan that is published needs none.
        engine: Engine that counts: duckdb or spark.
        memory: Largest memory of the engine, such as 4GB.
        master: Address of Spark, such as 'local[2]'.
        account: Allocation to charge, such as team-a.
        charge_again: Charge again a plan whose earlier run did not finish.
        sign: Ed25519 private key (PEM) that signs the receipt.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
        wait: Seconds to wait for another run of this plan.
        corrects: Folder of the release that this one replaces.
        why: What was wrong with it, for both reports.
        balance: Write into the receipt what was spent on these people, and what is left.
        copy: A query whose tables are copied from it, without noise and without a charge.
    """
    bound = bound_tables(data)
    book = neyman.Ledger(ledger, checkpoint=checkpoint)
    read = neyman.Plan.load(plan)
    for warning in accounting.budget_warnings(read.budget):
        warn(warning)
    with progress() as tell:
        release = neyman.run(
            read,
            bound or None,
            book,
            out,
            engine,
            memory=memory,
            master=master,
            account=account,
            charge_again=charge_again,
            sign=sign,
            wait=wait,
            corrects=corrects,
            why=why,
            copied=copy,
            balance=balance,
            progress=tell,
        )
    return Answer(_release_dict(release, out), _release_lines(release, out))


def _release_dict(release: neyman.Release, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "published_before": release.published_before,
        "receipt": release.receipt.to_dict(),
    }


def _release_lines(release: neyman.Release, folder: Path) -> Iterator[str]:
    """Yield what was published, the attacker's power, and the charge."""
    words, receipt = accounting.sentences, release.receipt
    paid, subject = receipt.ledger, receipt.unit.protects
    tables = [t for t in receipt.tables if t.path.endswith(".parquet")]
    price = f"{words.number(paid.charged)} {paid.currency}"
    where = f"{paid.account} (entry {paid.entry})"
    if release.published_before:
        verb = "Published before: the same"
        cost = f"Nothing was charged ({price} had been, to {where}); the data were not read."
    else:
        verb, cost = "Released", f"Charged {price} to {where}."
    cells = many(sum(t.cells for t in tables), "cell")
    yield f"{verb} {cells} of {receipt.dataset} into {folder}"
    at = next(p for p in receipt.guarantee.power if p.level == 0.05)
    known = words.known(subject, receipt.guarantee.held)
    yield words.power(at.level, at.upper, known, receipt.neighboring)
    if text := display.totals_sentence(receipt):
        yield text
    if text := one_row_each(subject, receipt.plan.get("unit", {}).get("id")):
        yield text
    if large := sum(bool(t.without_csv) for t in tables):
        are = "is" if large == 1 else "are"
        yield f"{many(large, 'table')} {are} too large for CSV, and published as Parquet alone."
    if receipt.plan.get("part"):
        yield disjoint_parts(receipt.dataset, subject)
    yield f"{cost} Read {folder / 'report.html'}"


@command("verify", "release --key custodian.pub --ledger ledger.db")
def verify(
    receipt: Path,
    *,
    key: Path | None = None,
    ledger: str | None = None,
    checkpoint: Path | None = None,
    independent: Path | None = None,
    memory: str = "4GB",
) -> Answer:
    """Verify a release without the data.

    With --key, also check who signed the receipt. With --ledger, also check that this ledger was
    charged for the release. With --independent, also let another program check the numbers.

    Args:
        receipt: A receipt.json or its folder.
        key: The custodian's public key, which must have signed the receipt.
        ledger: The ledger, which must have been charged for these files.
        checkpoint: Checkpoint that the ledger must have passed.
        independent: Program that checks the numbers, such as checker/check.py of the repository.
        memory: Largest memory, such as 4GB. A file that needs more fails.
    """
    from neyman.cli.memory_limit import at_most

    if not receipt.exists():
        raise ValueError(f"receipt = {str(receipt)!r} is not there; give a receipt.json")
    _check_ledger(checkpoint, ledger)
    with working("recomputing the guarantee"), at_most(memory):
        checks = publishing.verify(
            receipt,
            {"report.html": display.page},
            key=key,
            ledger=ledger,
            checkpoint=checkpoint,
            independent=independent,
            memory=memory,
        )
    good = all(c.ok for c in checks)
    lines = (
        marked("ok", "green", f"     {c.name}: {c.detail}")
        if c.ok
        else marked("FAILED", "bold red", f" {c.name}: {c.detail}")
        for c in checks
    )
    return Answer({"ok": good, "checks": [asdict(c) for c in checks]}, lines, 0 if good else 5)


def _check_ledger(checkpoint: Path | None, ledger: str | None) -> None:
    if checkpoint is not None and ledger is None:
        raise ValueError("--checkpoint needs a ledger: add --ledger")


@command("report", "release --out report.html")
def report(
    folder: Path, *, out: Path | None = None, registry: bool = False, ledger: str | None = None
) -> Answer:
    """Rebuild a release's report.

    Args:
        folder: The folder of a release, or its receipt.json.
        ledger: The ledger that published it, to say whether it was corrected or withdrawn.
        out: File to write: report.html or registry.yaml if not given.
        registry: Write a record for the Differential Privacy Deployments Registry instead.
    """
    path = out or Path("registry.yaml" if registry else "report.html")
    check_suffix(path, *((".yaml", ".yml") if registry else (".html", ".htm")))
    release = neyman.Release.load(folder.parent if folder.name == "receipt.json" else folder)
    after = publishing.sequel(release.receipt, ledger) if ledger else ""
    text = (
        display.registry_text(release.receipt)
        if registry
        else display.page(release, path, sequel=after)
    )
    write(path, text, "w")
    return Answer({"report": str(path)}, [str(path)])


@command("demo", "--out demo", interrupted=CHARGED)
def demo(*, out: Path = Path("demo")) -> Answer:
    """Run the whole workflow on 42,008,942 records, rebuilt from published county counts.

    Args:
        out: Folder for all files of the demo.
    """
    from neyman.cli.demo.demonstration import demonstrate, edited

    with progress() as tell:
        release, times = demonstrate(out, tell)
    folder = out / "release"
    stage = "fetching it" if release.published_before else "the release, start to end"
    lines = [
        *_release_lines(release, folder),
        *([f"{out / 'plan.toml'} is not the demo's own plan: it was run as it is"] * edited(out)),
        "",
        f"{'making the person table':<34}{times['people']:6.1f} s",
        f"{stage:<34}{times['release']:6.1f} s",
        f"{'the plain aggregation alone':<34}{times['aggregation']:6.1f} s",
        "",
        f"neyman verify {folder / 'receipt.json'}",
        f"neyman ledger show {out / 'ledger.db'}",
    ]
    return Answer({**_release_dict(release, folder), "seconds": times}, lines)


@command("audit", "plan.toml --pairs 5")
def audit(
    plan: Path,
    *,
    pairs: Annotated[int, typer.Option(min=1)] = 5,
    replays: Annotated[int, typer.Option(min=100)] = 2000,
    confidence: str = "0.999999",
) -> Answer:
    """Test a plan's release path on small datasets made from its columns, without private data.

    Args:
        plan: The plan, a TOML file.
        pairs: Number of neighboring pairs of datasets.
        replays: Number of new draws of the noise on each side.
        confidence: Confidence at which a random test reports a fault.
    """
    read = neyman.Plan.load(plan)
    with working("releasing small datasets"):
        tests = auditing.audit_plan(read, pairs=pairs, replays=replays, confidence=confidence)
    lines = [
        f"{tests.pairs} pairs of neighboring datasets, {tests.tables} tables, "
        f"{tests.draws:,} draws of noise.",
        *(f"Fault: {fault}" for fault in tests.faults),
        *([] if tests.faults else ["No fault. That is not a proof that there is none."]),
        str(tests.evidence),
    ]
    return Answer(tests.to_dict(), lines, 5 if tests.faults else 0)


@command("synthesize", "release --rows people.parquet")
def synthesize(
    folder: Path, *, rows: Path, people: Annotated[int | None, typer.Option(min=1)] = None
) -> Answer:
    """Make synthetic rows from a release's tables, without private data and without a charge.

    Args:
        folder: The folder of a release.
        rows: The Parquet file to write.
        people: Number of rows. If not given, the tables' own estimate.
    """
    check_suffix(rows, ".parquet")
    if rows.exists():
        raise ValueError(f"--rows {str(rows)!r} already exists; name a new file")
    release = neyman.Release.load(folder)
    with working("fitting the rows to the tables"):
        fit = publishing.synthesize(release, people)
    import pyarrow.parquet

    with writing(rows):
        pyarrow.parquet.write_table(fit.rows, rows)
    return Answer({"path": str(rows), **fit.to_dict()}, _synthetic_lines(fit, rows))


def _synthetic_lines(fit: SyntheticRows, path: Path) -> Iterator[RenderableType]:
    yield f"{path}: {fit.rows.num_rows} synthetic rows"
    tables = (
        (one.table, ", ".join(one.columns), f"{one.total_variation:.4f}", f"{one.from_noise:.4f}")
        for one in fit.tables
    )
    yield columns(("table", "columns", "total variation", "expected from noise"), tables)
    yield (
        "Total variation: half the sum over the cells of the distance between the share of the "
        "rows and the share in the released table. The last column is the distance that the noise "
        "of the table alone would cause."
    )
    for name, reason in fit.unused.items():
        yield f"Not preserved: {name}: {reason}"
    if fit.independent:
        pairs = ", ".join(f"{a} x {b}" for a, b in fit.independent)
        yield (
            f"Not preserved: relations that no table shows: {pairs}. The rows relate these columns "
            "only through columns that tables relate to both."
        )
    yield publishing.STATEMENT


@command(
    "explore",
    "plan.toml --no-browser",
    document=False,
    interrupted="the explorer was stopped; nothing was charged",
)
def explore(
    file: Path | None = None,
    *,
    port: int | None = None,
    no_browser: bool = False,
    key: Path | None = None,
    ledger: str | None = None,
    checkpoint: Path | None = None,
) -> Answer:
    """Open a mechanism, plan, or receipt in the browser.

    Args:
        file: A plan.toml, or a receipt.json or its folder.
        port: Port on 127.0.0.1. If not given, a free one.
        no_browser: Print the address and open no browser.
        key: Public key that must have signed the receipt.
        ledger: The ledger, which must have been charged for the receipt's files.
        checkpoint: Checkpoint that the ledger must have passed.
    """
    given = {"key": key, "ledger": ledger, "checkpoint": checkpoint}
    witness = {name: str(value) for name, value in given.items() if value is not None}
    _check_ledger(checkpoint, ledger)
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"--port {port} must be from 0 (any free one) to 65535")
    with working("opening"):
        explorer = display.Explorer(None if file is None else str(file), port=port, witness=witness)
    address = explorer.address

    def lines() -> Iterator[str]:
        yield f"Open {address}"
        yield "once, in a browser on this machine. Ctrl-C stops it."
        if not no_browser and not _open_browser(address):
            yield "No browser could be started: open the address yourself."

    return Answer({"address": address}, lines(), serve=explorer.serve)


def _open_browser(address: str) -> bool:
    import webbrowser

    screen = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & set(os.environ)
    if sys.platform.startswith("linux") and not screen:
        return False  # a browser in the terminal would occupy it
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
