"""Run ``neyman risk``: what tables without noise reveal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neyman import accounting
from neyman.cli.commands import command
from neyman.cli.terminal import Answer, check_suffix, columns, marked, working, writing

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_CELLS = 10


@command("risk", "table.csv --data people.parquet --made-by method.toml")
def risk(
    tables: list[Path],
    *,
    data: str,
    method: Annotated[Path, typer.Option("--made-by")],
    out: Path | None = None,
) -> Answer:
    """Compute what tables without noise reveal. The answer is private.

    The tables have rounded, suppressed, swapped, or exact counts. The command makes them again from
    the rows, and refuses tables that differ. It charges nothing, and adds no noise.

    Args:
        tables: The tables, CSV files, in the order of the method's sections.
        data: The rows, one per person: a path or a URL.
        method: The method, a TOML file.
        out: A new JSON file for the answer, which only you may read. It cannot be in the folder of
            a release.
    """
    from neyman import auditing, storage

    check_suffix(out, ".json")
    if out is not None:
        _check_place(out)
    with working("comparing the tables with the rows"):
        answer = auditing.plain_tables_risk(tables, data, method)
    if out is not None:
        with writing(out):
            storage.replace_file(out, json.dumps(answer, indent=1, ensure_ascii=False).encode())
    return Answer(answer, _lines(answer))


def _check_place(out: Path) -> None:
    """Refuse a file that exists, or that would be published with a release."""
    for folder in out.absolute().resolve().parents:
        if (folder / "receipt.json").exists():
            raise ValueError(
                f"--out {str(out)!r} is inside {str(folder)!r}, which has a receipt.json: the "
                "answer is private, so name a file outside this release"
            )
    with writing(out):
        if out.exists() or out.is_symlink():
            raise FileExistsError


def _lines(answer: dict[str, Any]) -> Iterator[RenderableType]:
    people, of = f"{answer['people']:,} people", answer["attribute"]
    yield marked(answer["private"], "bold red", "")
    for name in answer["exact"]:
        yield (
            f"{name} has exact counts by {of}: an attacker who knows all other rows reads the {of} "
            f"of each of the {people}."
        )
    rows = [
        (", ".join(each["tables"]), f"{each['certain']:,}", *_percents(each["power"]))
        for each in answer["known_rows"]
    ]
    yield columns(("all other rows known", "people certain", "power at 1%", "power at 5%"), rows)
    yield (
        f"A person is certain if every other {of} is impossible. The power is the largest over all "
        "people and values: how often an attacker confirms a true value at this rate of false "
        "ones. Guessing has 1% and 5%."
    )
    for each in answer["known_rows"]:
        if each["exchange"] or each["not_enumerated"]:
            low, high = _percents(each["exchange"])
            yield (
                f"{each['tables'][0]}: which of two people has which swapped value, if the rest is "
                f"known: power {low} at 1%, {high} at 5%. Not computed for groups that are too "
                f"large: {each['not_enumerated']:,} people."
            )
    for name, what in (
        ("groups", f"All other columns of everyone known: in groups with one possible {of}"),
        ("cells", "Only the tables known: in cells of their cross-table with one possible count"),
    ):
        left = answer[f"{name}_not_computed"]
        without = f", not computed for {left:,}" if left else ""
        yield f"{what}: {answer[name]:,} of {people}{without}"
    ranges = answer["ranges"]
    shown = (
        (" > ".join(each["cell"]), *(f"{each[end]:,}" if each["exact"] else _NONE for end in _ENDS))
        for each in ranges[:SHOWN_CELLS]
    )
    yield columns((" > ".join(answer["columns"]), *_ENDS), shown)
    if len(ranges) > SHOWN_CELLS:
        yield f"and {len(ranges) - SHOWN_CELLS:,} more cells (--json lists all)"


_NONE, _ENDS = "not computed", ("least", "largest")


def _percents(power: dict[str, dict[str, float]] | None) -> tuple[str, ...]:
    if power is None:
        return _NONE, _NONE
    return tuple(accounting.digits.percent(one["upper"]) for one in power.values())
