"""``neyman plan``: what a plan comes to, before any data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from neyman.show.terminal import Json, answer, failing, out, progress

__all__ = ["plan_app"]

plan_app = typer.Typer(help="Check a plan, or print its schema.", no_args_is_help=True)


@plan_app.command("schema")
def plan_schema() -> None:
    """The JSON schema of a plan, on stdout."""
    with failing(as_json=True):
        from neyman.release.plan import Plan

        sys.stdout.write(json.dumps(Plan.schema(), indent=1) + "\n")


@plan_app.command("check")
def plan_check(
    plan: Annotated[Path, typer.Argument(help="The plan, TOML.")],
    concerning: Annotated[
        list[str], typer.Option(help="A column or level: what could be found out about it.")
    ] = [],  # noqa: B006 (typer copies it)
    within: Annotated[
        str | None, typer.Option(help="With --concerning a level: the one that stays.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a plan and print the noise it comes to, without any data.

    With --concerning (repeatable: all of these together), what could be found out about these
    attributes of one record alone.
    """
    from neyman.release.plan import Plan
    from neyman.release.receipt import mechanism_list, scenario

    with failing(as_json):
        if within is not None and not concerning:
            raise ValueError(f"--within {within!r}: give --concerning a level below it as well")
        read = Plan.load(plan)
        with progress() as tell:
            tell("finding the least noise", 0.1)
            mechanisms = mechanism_list(read, read.calibrated())
            asked = None
            if concerning:
                tell("finding what the attributes can move", 0.8)
                part = read.concerning(*concerning, within=within)
                asked = scenario(read, part, concerning, within)

        def show() -> None:
            table = Table("query", "level", "cells", "share", "standard error", "90%", box=None)
            for m in mechanisms:
                table.add_row(
                    m["query"], m["level"], f"{m['cells']:,}", str(m["share"]),
                    f"{m['standard_error']:.4g}", f"± {m['half_width_90']}",
                )  # fmt: skip
            out.print(f"{read.name}: {read.hash}", markup=False)
            out.print(table)
            if asked is not None:
                _show_scenario(asked, read.unit.protects)

        found = {"plan_hash": read.hash, "mechanisms": mechanisms}
        answer(found if asked is None else found | {"concerning": asked}, as_json, show)


def _show_scenario(asked: dict[str, Any], protects: str) -> None:
    """What could be found out about some attributes, in a table and a sentence."""
    from neyman.semantics import words
    from neyman.show.scenarios import found_out, learned, name

    table = Table("level", "found out, at most", box=None, pad_edge=False)
    for level, power in found_out(asked):
        table.add_row(words.percent(level, up=False), words.percent(power))
    tables = ", ".join(asked["tables"]) or "no table"
    out.print(f"\nAbout a {protects}’s {name(asked)}, from {tables}:", markup=False)
    out.print(table)
    out.print(f"rho {words.number(asked['rho']['upper'])}", markup=False)
    said = words.concerning(
        asked["attributes"], *found_out(asked)[1], subject=protects, within=asked["within"]
    )
    for text in (said, *learned(asked, protects)):
        out.print("\n" + text, markup=False)
