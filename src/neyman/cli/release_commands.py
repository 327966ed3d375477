"""Run ``neyman audit``, ``synthesize``, and ``explore``, which need no private data."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neyman.cli.terminal import (
    Json,
    PlanFile,
    answer,
    check_suffix,
    columns,
    failing,
    out,
    working,
    writing,
)

if TYPE_CHECKING:
    from neyman.auditing.releases.release_path import ReleaseAudit
    from neyman.publishing.synthetic.rows_from_tables import SyntheticRows


def audit(
    plan: PlanFile,
    pairs: Annotated[int, typer.Option(min=1, help="Number of neighboring pairs of datasets.")] = 5,
    replays: Annotated[
        int, typer.Option(min=100, help="Number of new draws of the noise on each side.")
    ] = 2000,
    confidence: Annotated[
        str, typer.Option(help="Confidence at which a random test reports a fault.")
    ] = "0.999999",
    as_json: Json = False,
) -> None:
    """Test a plan's release path on small datasets made from its columns, without private data."""
    from neyman.auditing.releases.release_path import audit_plan
    from neyman.publishing.plan.plan import Plan

    with failing(as_json):
        read = Plan.load(plan)
        with working("releasing small datasets"):
            report = audit_plan(read, pairs=pairs, replays=replays, confidence=confidence)
        answer(report.to_dict(), as_json, lambda: _show_audit(report))
    if report.faults:
        raise SystemExit(5)


def _show_audit(report: ReleaseAudit) -> None:
    out.say(
        f"{report.pairs} pairs of neighboring datasets, {report.tables} tables, "
        f"{report.draws:,} draws of noise."
    )
    for fault in report.faults:
        out.say(f"Fault: {fault}")
    if not report.faults:
        out.say("No fault. That is not a proof that there is none.")
    out.say(str(report.evidence))


def synthesize(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    rows: Annotated[Path, typer.Option("--rows", help="The Parquet file to write.")],
    people: Annotated[
        int | None,
        typer.Option(min=1, help="Number of rows. If not given, the tables' own estimate."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make synthetic rows from a release's tables, without private data and without a charge."""
    from neyman.publishing.release.folder import Release
    from neyman.publishing.synthetic.rows_from_tables import synthesize as rows_of

    with failing(as_json):
        check_suffix(rows, ".parquet")
        if rows.exists():
            raise ValueError(f"--rows {str(rows)!r} already exists; name a new file")
        release = Release.load(folder)
        with working("fitting the rows to the tables"):
            report = rows_of(release, people)
        import pyarrow.parquet

        with writing(rows):
            pyarrow.parquet.write_table(report.rows, rows)
        content = {"path": str(rows), **report.to_dict()}
        answer(content, as_json, lambda: _show_rows(report, rows))


def _show_rows(report: SyntheticRows, path: Path) -> None:
    from neyman.publishing.synthetic.rows_from_tables import STATEMENT

    out.say(f"{path}: {report.rows.num_rows} synthetic rows")
    table = columns("table", "columns", "total variation", "expected from noise")
    for one in report.tables:
        table.add_row(
            one.table, ", ".join(one.columns), f"{one.total_variation:.4f}", f"{one.from_noise:.4f}"
        )
    out.print(table)
    out.say(
        "Total variation: half the sum over the cells of the distance between the share of the "
        "rows and the share in the released table. The last column is the distance that the noise "
        "of the table alone would cause."
    )
    for name, reason in report.unused.items():
        out.say(f"Not preserved: {name}: {reason}")
    if report.independent:
        pairs = ", ".join(f"{a} x {b}" for a, b in report.independent)
        out.say(
            f"Not preserved: relations that no table shows: {pairs}. The rows relate these columns "
            "only through columns that tables relate to both."
        )
    out.say(STATEMENT)


def explore(
    file: Annotated[
        Path | None, typer.Argument(help="A plan.toml, or a receipt.json or its folder.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1. If not given, a free one.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and open no browser.")
    ] = False,
    key: Annotated[
        Path | None, typer.Option(help="Public key that must have signed the receipt.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="The ledger, which must have been charged for the receipt's files."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint that the ledger must have passed.")
    ] = None,
) -> None:
    """Open a mechanism, plan, or receipt in the browser."""
    from neyman.display.explorer.server import Explorer

    with failing(False, "the explorer was stopped; nothing was charged"):
        given = {"key": key, "ledger": ledger, "checkpoint": checkpoint}
        witness = {name: str(value) for name, value in given.items() if value is not None}
        if checkpoint is not None and ledger is None:
            raise ValueError("--checkpoint needs a ledger: add --ledger")
        if port is not None and not 0 <= port <= 65535:
            raise ValueError(f"--port {port} must be from 0 (any free one) to 65535")
        with working("opening"):
            explorer = Explorer(None if file is None else str(file), port=port, witness=witness)
        out.say(f"Open {explorer.address}")
        out.say("once, in a browser on this machine. Ctrl-C stops it.")
        if not no_browser and not _open_browser(explorer.address):
            out.say("No browser could be started: open the address yourself.")
        explorer.serve()


def _open_browser(address: str) -> bool:
    import webbrowser

    screen = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & set(os.environ)
    if sys.platform.startswith("linux") and not screen:
        return False  # a browser in the terminal would occupy it
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
