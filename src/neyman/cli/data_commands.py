"""Run ``neyman data``: show the custodian how a run would read private data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from neyman.accounting.semantics.digits import many
from neyman.cli.terminal import (
    Engine,
    Json,
    Master,
    Memory,
    PlanFile,
    answer,
    bound_tables,
    columns,
    failing,
    out,
    text_cell,
    working,
)

if TYPE_CHECKING:
    from neyman.publishing.engines.drop_counts import JoinRows, RowsOfUnits
    from neyman.publishing.engines.key_matches import Frequent, KeyMatch, NumberMatch, TextMatch
    from neyman.publishing.engines.line_faults import Lines
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.release.data_check import DataCheck

USE = (
    "Correct the data with it. Do not choose keys, clips, or bounds by it: a plan is published, "
    "and what it was chosen by is not protected."
)

data_app = typer.Typer(help="Check private data before a run.", no_args_is_help=True)


@data_app.callback()
def _group() -> None:
    """Check private data before a run."""


@data_app.command("check", epilog="Example: neyman data check plan.toml --data people=people.csv")
def data_check(
    plan: PlanFile,
    data: Annotated[list[str], typer.Option(help="TABLE=PATH: the file of a private table.")],
    engine: Engine = "duckdb",
    memory: Memory = None,
    master: Master = None,
    most: Annotated[
        int, typer.Option(min=0, help="Number of lines per reason and values per column to list.")
    ] = 10,
    unit: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that names the privacy unit. Count how often it has more rows."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the lines, values, and rows that a run would drop. The answer is private.

    The command reads the data as a run does. It charges nothing, opens no ledger, and writes no
    file.
    """
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.release.data_check import check_data

    with failing(as_json):
        read = Plan.load(plan)
        bound = bound_tables(data)
        with working("checking the data"):
            report = check_data(
                read, bound, engine, memory=memory, master=master, most=most, id=unit
            )
        answer(report.to_dict(), as_json, lambda: _show(report, read))


def reading_rule(plan: Plan) -> str:
    """Describe how a run reads a CSV file of the plan, and what it drops."""
    source = plan.source
    names = (plan.table, *(table.name for table in plan.tables))
    mark = {"\t": "a tab"}.get(source.delimiter, f"'{source.delimiter}'")
    given = (
        f"decimal {source.decimal!r}" if source.decimal != "." else "",
        f"thousands {source.thousands!r}" if source.thousands else "",
        f"dates {source.dates}" if source.dates else "",
    )
    marks = "".join(f", {one}" for one in given if one)
    packed = ", gzip" if source.compression == "gzip" else ""
    return (
        f"CSV data ({source.encoding}{packed}, values separated by {mark}{marks}): a run reads "
        "each line by itself, and drops blank and ill-formed lines without a message. A value with "
        "a line break in quotes is ill-formed. To list what a run would drop, for the custodian "
        f"alone: neyman data check plan.toml {' '.join(f'--data {name}=PATH' for name in names)}"
    )


def _show(report: DataCheck, plan: Plan) -> None:
    _head(f"{plan.name}, table {report.table}: {many(report.rows, 'row')}")
    out.say(USE)
    if report.lines is not None:
        _show_lines(report.lines)
    for keys in report.keys:
        _show_keys(keys)
    for texts in report.texts:
        _show_texts(texts)
    for numbers in report.numbers:
        _show_numbers(numbers, plan)
    listed = {column for keys in report.keys for column in keys.columns}
    listed |= {numbers.column for numbers in report.numbers}
    for texts in report.readings:
        if texts.suggestions or texts.column not in listed:
            _show_readings(texts)
    _show_rows(report)
    if report.assumed is not None:
        _show_assumed(report.assumed, plan)
    for joined in report.joins:
        _show_join(joined, plan)
    for other in report.others:
        out.print()
        _show(other, plan)


def _head(text: str) -> None:
    """Print the notice that the output is private, and then the headline ``text``."""
    from neyman.publishing.engines.private_tables import NOTICE

    out.print(f"[bold red]{NOTICE}[/]")
    out.say(text)


def _page(text: str) -> None:
    out.print()
    _head(text)


def _show_lines(lines: Lines) -> None:
    from neyman.publishing.engines.line_faults import REASONS

    _page(f"Lines: {lines.read:,} read, {many(lines.rows, 'row')}, {lines.dropped:,} dropped")
    if not lines.reasons:
        return
    table = columns("reason", "lines", "meaning")
    for reason, number in lines.reasons.items():
        table.add_row(reason, f"{number:,}", REASONS[reason])
    out.print(table)
    for file, faults in groupby(lines.listed, lambda fault: fault.file):
        out.say(file)
        table = columns("line", "reason", "column")
        for fault in faults:
            table.add_row(str(fault.line), fault.reason, text_cell(_quote_value(fault.column)))
        out.print(table)
    more = sum(lines.reasons.values()) - len(lines.listed)
    if more:
        out.say(f"and {more:,} more (--most lists more of each reason)")


def _show_keys(keys: KeyMatch) -> None:
    name = " > ".join(keys.columns)
    _page(
        f"Keys of {name}: {keys.matched:,} rows match, {keys.missing:,} have no value, "
        f"{keys.unmatched:,} match no key"
    )
    other = keys.missing + keys.unmatched
    if other and keys.unknown is not None:
        out.say(f"Rows without a match go to {keys.unknown!r}.")
    elif other:
        out.say("Rows without a match are dropped from the tables by these keys.")
    if keys.unmatched:
        _show_frequent(keys.frequent, f"{many(keys.values, 'value')} without a key")


def _show_texts(texts: KeyMatch) -> None:
    """Print the texts that a map or a lookup does not list."""
    _page(
        f"Texts of {texts.columns[0]}: {texts.matched:,} rows match, {texts.missing:,} have no "
        f"value, {texts.unmatched:,} have a text that is not listed"
    )
    other = texts.missing + texts.unmatched
    if other and texts.unknown is not None:
        out.say(f"Rows without a match become {texts.unknown!r}.")
    elif other:
        out.say("Rows without a match have no value, and are dropped by it.")
    if texts.unmatched:
        _show_frequent(texts.frequent, f"{many(texts.values, 'text')} not listed")


def _show_numbers(numbers: NumberMatch, plan: Plan) -> None:
    from neyman.publishing.planning.missing_values import missing_by_sentence, rounding

    _page(
        f"Numbers of {numbers.column}: {numbers.numbers:,} rows have one, {numbers.missing:,} have "
        f"no value, {numbers.unmatched:,} have another value"
    )
    for sentence, names in missing_by_sentence(plan).items():
        own = [name for name in names if numbers.column in plan.query(name).columns]
        if own:
            out.say(f"{', '.join(own)}: {sentence}")
    without = numbers.missing + numbers.unmatched
    out.say(f"{many(without, 'row')} without a number.")
    if numbers.rounded:
        digits = rounding(plan.column(numbers.column))
        out.say(f"Rounded down to {digits}: {many(numbers.rounded, 'number')} with more digits.")
    if numbers.unmatched:
        _show_frequent(numbers.frequent, "value that is not a number")
    table = columns("queries", "range", "below", "above")
    for clip in numbers.clips:
        ends = f"{clip.low} <= x {'<' if clip.edges else '<='} {clip.high}"
        table.add_row(
            text_cell(", ".join(clip.queries)), ends, f"{clip.below:,}", f"{clip.above:,}"
        )
    out.print(table)


def _show_readings(texts: TextMatch) -> None:
    """Print values that the plan's formats do not read as numbers or dates, and formats that do."""
    example = next((_quote_value(one.value[0]) for one in texts.frequent), "")
    _page(
        f"{texts.unread:,} of {texts.texts:,} values of {texts.column} "
        + (f"is no {texts.reading}" if texts.unread == 1 else f"are no {texts.reading}s")
        + (f", such as {example}" if example else "")
    )
    for fields in texts.suggestions:
        declared = " and ".join(f"{name} = {_toml(mark)}" for name, mark in fields.items())
        out.say(
            f"If {_format_sentence(fields)}, declare [source] {declared}. The plan then reads "
            f"{texts.suggested:,} of {texts.texts:,} values."
        )
    if len(texts.suggestions) > 1:
        out.print("The values do not show which of these is right. Ask who wrote the file.")
    _show_frequent(texts.frequent, f"value that is no {texts.reading}")


def _format_sentence(fields: Mapping[str, str]) -> str:
    """Describe how texts write numbers or dates, for fields of [source]."""
    if "dates" in fields:
        return f"dates are written as {fields['dates']}"
    names = {".": "points", ",": "commas", " ": "blanks", "'": "apostrophes"}
    decimal = f"the texts have decimal {names[fields['decimal']]}"
    thousands = fields.get("thousands")
    return decimal + (f" and {names[thousands]} between thousands" if thousands else "")


def _toml(mark: str) -> str:
    return f'"{mark}"' if "'" in mark else f"'{mark}'"


def _show_frequent(frequent: Sequence[Frequent], head: str) -> None:
    table = columns(head, "rows")
    for value in frequent:
        path = " > ".join(
            "(no value)" if part is None else _quote_value(part) for part in value.value
        )
        table.add_row(text_cell(path), f"{value.rows:,}")
    out.print(table)


def _show_rows(report: DataCheck) -> None:
    _page("Rows that the queries count")
    unit = report.unit
    if unit is not None:
        out.say(
            f"{unit.missing:,} rows have no {unit.column}, and are dropped. "
            f"{many(unit.units, 'unit')} with up to {many(unit.largest, 'row')}; the bound "
            f"unit.rows = {unit.bound} drops {unit.dropped:,} rows of {many(unit.over, 'unit')}."
        )
    causes = {
        "no id": [query.missing for query in report.queries],
        "unit.rows": [query.unit_rows for query in report.queries],
        "unknown keys": [query.unknown for query in report.queries],
        "no number": [query.without_number for query in report.queries],
        "groups": [query.groups for query in report.queries],
        "rows_per_group": [query.rows_per_group for query in report.queries],
    }
    lost = {cause: numbers for cause, numbers in causes.items() if any(numbers)}
    table = columns("query", "level", "rows", *lost, "lost", "counted")
    for i, query in enumerate(report.queries):
        numbers = [query.taken, *(cause[i] for cause in lost.values()), query.lost, query.counted]
        for level in query.levels:
            table.add_row(
                text_cell(query.query), text_cell(level), *(f"{number:,}" for number in numbers)
            )
    out.print(table)
    out.say(
        'The column "rows" counts the rows that the filters take. A row is lost to the first '
        "cause, from left to right."
    )


def _show_assumed(unit: RowsOfUnits, plan: Plan) -> None:
    """Print how often a unit has more rows than the plan assumes."""
    _page(f"Rows per {unit.column}")
    bound = many(unit.bound, "row")
    says = (
        f"The guarantee assumes that each {plan.unit.protects} has at most {bound}."
        if plan.unit.id is None
        else f"The plan counts at most {bound} per {plan.unit.protects}, named by {plan.unit.id}."
    )
    out.say(
        f"{says} {unit.over:,} of {many(unit.units, 'value')} of {unit.column} have more than "
        f"{bound}. The largest number is {many(unit.largest, 'row')}. {many(unit.missing, 'row')} "
        f"{'has' if unit.missing == 1 else 'have'} no {unit.column}."
    )


def _show_join(rows: JoinRows, plan: Plan) -> None:
    """Print how many rows of a joined table, which has one row per unit, match the main table."""
    _page(f"Rows of {rows.table}, one per {plan.unit.protects}")
    out.say(
        f"{rows.missing:,} rows have no {rows.column}, and are dropped. "
        f"{many(rows.units, 'unit')}, of which {rows.several:,} have several rows: "
        f"{many(rows.dropped, 'row')} of these are dropped. "
        f"{many(rows.matched, 'row')} of {plan.table} have a row in {rows.table}, and "
        f"{rows.unmatched:,} have none."
    )


def _quote_value(value: str | None) -> str:
    """Return a value in quotes, which show its blanks. Escape characters that move a cursor."""
    if value is None:
        return ""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
