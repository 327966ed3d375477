"""Run ``neyman risk``: what tables without noise reveal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from neyman.cli.commands import command
from neyman.cli.terminal import Answer, check_suffix, columns, marked, working, writing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neyman.auditing import PlainTablesRisk
    from neyman.auditing.plain_tables.attack_power import Powers

SHOWN_CELLS = 10


@command("risk", "table.csv --data people.parquet --made-by method.toml")
def risk(tables: list[Path], *, data: str, made_by: Path, out: Path | None = None) -> Answer:
    """Compute what tables without noise reveal. The answer is private.

    The tables have rounded, suppressed, swapped, or exact counts. The command makes them again from
    the rows, and refuses tables that differ. It charges nothing, and adds no noise.

    Args:
        tables: The tables, CSV files, in the order of the method's sections.
        data: The rows, one per person: a path or a URL.
        made_by: The method, a TOML file.
        out: A new JSON file for the answer, which only you may read. It cannot be in the folder of
            a release.
    """
    from neyman import auditing, storage

    check_suffix(out, ".json")
    if out is not None:
        _check_place(out)
    with working("comparing the tables with the rows"):
        answer = auditing.plain_tables_risk(tables, data, made_by)
    content = answer.to_dict()
    if out is not None:
        with writing(out):
            storage.replace_file(out, json.dumps(content, indent=1, ensure_ascii=False).encode())
    return Answer(content, _lines(answer))


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


def _lines(answer: PlainTablesRisk) -> Iterator[RenderableType]:
    from neyman import publishing

    people, of = f"{answer.people:,} people", answer.attribute
    yield marked(publishing.NOTICE, "bold red", "")
    for each in answer.exact:
        yield (
            f"{each} has exact counts by {of}: an attacker who knows all other rows reads the {of} "
            f"of each of the {people}."
        )
    yield columns(
        ("all other rows known", "people certain", "power at 1%", "power at 5%"),
        (
            (", ".join(each.tables), f"{each.certain:,}", *_percents(each.powers))
            for each in answer.known_rows
        ),
    )
    yield (
        f"A person is certain if every other {of} is impossible. The power is the largest over all "
        "people and values: how often an attacker confirms a true value at this rate of false "
        "ones. Guessing has 1% and 5%."
    )
    for each in answer.known_rows:
        if each.exchange or each.not_enumerated:
            low, high = _percents(each.exchange)
            yield (
                f"{each.tables[0]}: which of two people has which swapped value, if all else is "
                f"known: power {low} at 1%, {high} at 5%. Not computed for groups that are too "
                f"large: {each.not_enumerated:,} people."
            )
    for what, number, left in (
        (
            f"All other columns of everyone known: in groups with one possible {of}",
            answer.groups,
            answer.groups_not_computed,
        ),
        (
            "Only the tables known: in cells of their cross-table with one possible count",
            answer.cells,
            answer.cells_not_computed,
        ),
    ):
        yield f"{what}: {number:,} of {people}" + (f", not computed for {left:,}" if left else "")
    yield columns(
        ("cell", "least", "largest"),
        (
            (
                " > ".join(each.values.values()),
                *((f"{each.least:,}", f"{each.largest:,}") if each.exact else _NOT_COMPUTED),
            )
            for each in answer.ranges[:SHOWN_CELLS]
        ),
    )
    if (more := len(answer.ranges) - SHOWN_CELLS) > 0:
        yield f"and {more:,} more cells (--json lists all)"


_NOT_COMPUTED = ("not computed", "not computed")


def _percents(powers: Powers | None) -> tuple[str, ...]:
    return tuple(f"{one:.1%}" for one in powers.values()) if powers else _NOT_COMPUTED
