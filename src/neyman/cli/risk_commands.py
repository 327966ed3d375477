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

    yield marked(publishing.NOTICE, "bold red", "")
    people, of = f"{answer.people:,}", answer.attribute
    for table in answer.tables:
        if table.exact:
            yield (
                f"{table.table} has exact counts: an attacker who knows all other rows reads the "
                f"{of} of each of the {people} people."
            )
    heads = ("all other rows known", "people certain", "power at 1%", "power at 5%")
    rows = [(one.table, one.certain, one.powers) for one in answer.tables]
    if len(rows) > 1:
        rows.append(("all tables", answer.certain, answer.powers))
    yield columns(heads, ((name, f"{n:,}", *_powers(powers)) for name, n, powers in rows))
    yield (
        f"A person is certain if every other {of} is impossible. The power is the largest, over "
        "the people and two values of theirs: how often an attacker confirms a true value at this "
        "rate of false ones. Guessing has 1% and 5%."
    )
    for table in answer.tables:
        if table.exchange or table.not_enumerated:
            low, high = _powers(table.exchange)
            yield (
                f"{table.table}, swaps: which of two people has which value, if all else is known: "
                f"power {low} at 1%, and {high} at 5%. {table.not_enumerated:,} people are in "
                "groups that are too large to be enumerated."
            )
    for what, number, left in (
        (
            f"All other columns of everyone known: people in groups with one possible {of}",
            answer.groups,
            answer.groups_not_computed,
        ),
        (
            "Nothing known: people in cells of the cross-table with one possible count",
            answer.cells,
            answer.cells_not_computed,
        ),
    ):
        yield f"{what}: {number:,} of {people}" + (f", not computed for {left:,}" if left else "")
    shown = answer.ranges[:SHOWN_CELLS]
    yield columns(
        ("cell", "least", "largest"),
        (
            (
                " > ".join(each.values()),
                *((f"{low:,}", f"{high:,}") if exact else ["not computed"] * 2),
            )
            for each, low, high, exact in shown
        ),
    )
    if more := len(answer.ranges) - len(shown):
        yield f"and {more:,} more cells (--json lists all)"


def _powers(powers: Powers | None) -> list[str]:
    return [f"{one:.1%}" for one in powers.values()] if powers else ["not computed"] * 2
