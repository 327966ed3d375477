"""``neyman audit``: test the release path of a plan on small datasets that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neyman.cli.terminal import Json, answer, failing, out, working

if TYPE_CHECKING:
    from neyman.auditing.releases.release_path import ReleaseAudit


def audit(
    plan: Annotated[Path, typer.Argument(help="The plan, a TOML file.")],
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
        answer(report.to_dict(), as_json, lambda: _show(report))
    if report.faults:
        raise SystemExit(5)


def _show(report: ReleaseAudit) -> None:
    out.say(
        f"{report.pairs} pairs of neighboring datasets, {report.tables} tables, "
        f"{report.draws:,} draws of noise."
    )
    for fault in report.faults:
        out.say(f"Fault: {fault}")
    if not report.faults:
        out.say("No fault. That is no proof that there is none.")
    out.say(str(report.evidence))
