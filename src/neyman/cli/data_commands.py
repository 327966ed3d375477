"""Run ``neyman data``: show the custodian how a run would read private data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import neyman
from neyman import publishing
from neyman.accounting.semantics.digits import many
from neyman.cli.commands import command
from neyman.cli.terminal import Answer, bound_tables, columns, marked, working

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neyman.publishing.engines.drop_counts import JoinRows, RowsOfUnits
    from neyman.publishing.engines.key_matches import Frequent, KeyMatch, NumberMatch, TextMatch
    from neyman.publishing.engines.line_faults import Lines

    Page = Iterator[RenderableType]

USE = (
    "Correct the data with it. Do not choose keys, clips, or bounds by it: a plan is published, "
    "and what it was chosen by is not protected."
)


@command("data check", "plan.toml --data people=people.csv")
def data_check(
    plan: Path,
    *,
    data: list[str],
    engine: str = "duckdb",
    memory: str | None = None,
    master: str | None = None,
    most: Annotated[int, typer.Option(min=0)] = 10,
    id: str | None = None,  # noqa: A002 (the field of the unit)
) -> Answer:
    """List the lines, values, and rows that a run would drop. The answer is private.

    The command reads the data as a run does. It charges nothing, opens no ledger, and writes no
    file.

    Args:
        plan: The plan, a TOML file.
        data: TABLE=PATH: the file of a private table.
        engine: Engine that counts: duckdb or spark.
        memory: Largest memory of the engine, such as 4GB.
        master: Address of Spark, such as 'local[2]'.
        most: Number of lines per reason and values per column to list.
        id: Column that names the privacy unit. Count how often it has more rows.
    """
    read = neyman.Plan.load(plan)
    bound = bound_tables(data)
    with working("checking the data"):
        report = neyman.check_data(
            read, bound, engine, memory=memory, master=master, most=most, id=id
        )
    return Answer(report.to_dict(), _report(report, read))


def reading_rule(plan: neyman.Plan) -> str:
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


def _report(report: publishing.DataCheck, plan: neyman.Plan) -> Page:
    yield from _head(f"{plan.name}, table {report.table}: {many(report.rows, 'row')}")
    yield USE
    if report.lines is not None:
        yield from _lines(report.lines)
    for keys in report.keys:
        yield from _keys(keys)
    for texts in report.texts:
        yield from _texts(texts)
    for numbers in report.numbers:
        yield from _numbers(numbers, plan)
    listed = {column for keys in report.keys for column in keys.columns}
    listed |= {numbers.column for numbers in report.numbers}
    for texts in report.readings:
        if texts.suggestions or texts.column not in listed:
            yield from _readings(texts)
    yield from _rows(report)
    if report.assumed is not None:
        yield from _assumed(report.assumed, plan)
    for joined in report.joins:
        yield from _join(joined, plan)
    for other in report.others:
        yield ""
        yield from _report(other, plan)


def _head(text: str) -> Page:
    """Yield the notice that the output is private, and then the headline ``text``."""
    yield marked(publishing.NOTICE, "bold red", "")
    yield text


def _page(text: str) -> Page:
    yield ""
    yield from _head(text)


def _lines(lines: Lines) -> Page:
    yield from _page(
        f"Lines: {lines.read:,} read, {many(lines.rows, 'row')}, {lines.dropped:,} dropped"
    )
    if not lines.reasons:
        return
    reasons = ((one, f"{n:,}", publishing.REASONS[one]) for one, n in lines.reasons.items())
    yield columns(("reason", "lines", "meaning"), reasons)
    for file, faults in groupby(lines.listed, lambda fault: fault.file):
        yield file
        rows = ((str(one.line), one.reason, _quote_value(one.column)) for one in faults)
        yield columns(("line", "reason", "column"), rows)
    more = sum(lines.reasons.values()) - len(lines.listed)
    if more:
        yield f"and {more:,} more (--most lists more of each reason)"


def _keys(keys: KeyMatch) -> Page:
    yield from _page(
        f"Keys of {' > '.join(keys.columns)}: {keys.matched:,} rows match, {keys.missing:,} have "
        f"no value, {keys.unmatched:,} match no key"
    )
    if keys.missing + keys.unmatched:
        yield (
            "Rows without a match are dropped from the tables by these keys."
            if keys.unknown is None
            else f"Rows without a match go to {keys.unknown!r}."
        )
    if keys.unmatched:
        yield _frequent(keys.frequent, f"{many(keys.values, 'value')} without a key")


def _texts(texts: KeyMatch) -> Page:
    """Yield the texts that a map or a lookup does not list."""
    yield from _page(
        f"Texts of {texts.columns[0]}: {texts.matched:,} rows match, {texts.missing:,} have no "
        f"value, {texts.unmatched:,} have a text that is not listed"
    )
    if texts.missing + texts.unmatched:
        yield (
            "Rows without a match have no value, and are dropped by it."
            if texts.unknown is None
            else f"Rows without a match become {texts.unknown!r}."
        )
    if texts.unmatched:
        yield _frequent(texts.frequent, f"{many(texts.values, 'text')} not listed")


def _numbers(numbers: NumberMatch, plan: neyman.Plan) -> Page:
    yield from _page(
        f"Numbers of {numbers.column}: {numbers.numbers:,} rows have one, {numbers.missing:,} have "
        f"no value, {numbers.unmatched:,} have another value"
    )
    for sentence, names in publishing.missing_by_sentence(plan).items():
        own = [name for name in names if numbers.column in plan.query(name).columns]
        if own:
            yield f"{', '.join(own)}: {sentence}"
    yield f"{many(numbers.missing + numbers.unmatched, 'row')} without a number."
    if numbers.rounded:
        digits = publishing.rounding(plan.column(numbers.column))
        yield f"Rounded down to {digits}: {many(numbers.rounded, 'number')} with more digits."
    if numbers.unmatched:
        yield _frequent(numbers.frequent, "value that is not a number")
    rows = (
        (
            ", ".join(clip.queries),
            f"{clip.low} <= x {'<' if clip.edges else '<='} {clip.high}",
            f"{clip.below:,}",
            f"{clip.above:,}",
        )
        for clip in numbers.clips
    )
    yield columns(("queries", "range", "below", "above"), rows)


def _readings(texts: TextMatch) -> Page:
    """Yield values that the plan's formats do not read as numbers or dates, and formats that do."""
    example = next((_quote_value(one.value[0]) for one in texts.frequent), "")
    yield from _page(
        f"{texts.unread:,} of {texts.texts:,} values of {texts.column} "
        + (f"is no {texts.reading}" if texts.unread == 1 else f"are no {texts.reading}s")
        + (f", such as {example}" if example else "")
    )
    for fields in texts.suggestions:
        marks = " and ".join(
            f'{name} = "{mark}"' if "'" in mark else f"{name} = '{mark}'"
            for name, mark in fields.items()
        )
        yield (
            f"If {_format_sentence(fields)}, declare [source] {marks}. The plan then reads "
            f"{texts.suggested:,} of {texts.texts:,} values."
        )
    if len(texts.suggestions) > 1:
        yield "The values do not show which of these is right. Ask who wrote the file."
    yield _frequent(texts.frequent, f"value that is no {texts.reading}")


def _format_sentence(fields: Mapping[str, str]) -> str:
    """Describe how texts write numbers or dates, for fields of [source]."""
    if "dates" in fields:
        return f"dates are written as {fields['dates']}"
    names = {".": "points", ",": "commas", " ": "blanks", "'": "apostrophes"}
    decimal = f"the texts have decimal {names[fields['decimal']]}"
    thousands = fields.get("thousands")
    return decimal + (f" and {names[thousands]} between thousands" if thousands else "")


def _frequent(frequent: Iterable[Frequent], head: str) -> RenderableType:
    rows = (
        (
            " > ".join("(no value)" if part is None else _quote_value(part) for part in one.value),
            f"{one.rows:,}",
        )
        for one in frequent
    )
    return columns((head, "rows"), rows)


def _rows(report: publishing.DataCheck) -> Page:
    yield from _page("Rows that the queries count")
    unit = report.unit
    if unit is not None:
        yield (
            f"{unit.missing:,} rows have no {unit.column}, and are dropped. "
            f"{many(unit.units, 'unit')} with up to {many(unit.largest, 'row')}; the bound "
            f"unit.rows = {unit.bound} drops {unit.dropped:,} rows of {many(unit.over, 'unit')}."
        )
    causes = {
        "no id": "missing",
        "unit.rows": "unit_rows",
        "unknown keys": "unknown",
        "no number": "without_number",
        "groups": "groups",
        "rows_per_group": "rows_per_group",
    }
    lost = {
        cause: name
        for cause, name in causes.items()
        if any(getattr(query, name) for query in report.queries)
    }
    rows = (
        (
            query.query,
            level,
            *(f"{getattr(query, name):,}" for name in ("taken", *lost.values(), "lost", "counted")),
        )
        for query in report.queries
        for level in query.levels
    )
    yield columns(("query", "level", "rows", *lost, "lost", "counted"), rows)
    yield (
        'The column "rows" counts the rows that the filters take. A row is lost to the first '
        "cause, from left to right."
    )


def _assumed(unit: RowsOfUnits, plan: neyman.Plan) -> Page:
    """Yield how often a unit has more rows than the plan assumes."""
    yield from _page(f"Rows per {unit.column}")
    bound = many(unit.bound, "row")
    says = (
        f"The guarantee assumes that each {plan.unit.protects} has at most {bound}."
        if plan.unit.id is None
        else f"The plan counts at most {bound} per {plan.unit.protects}, named by {plan.unit.id}."
    )
    yield (
        f"{says} {unit.over:,} of {many(unit.units, 'value')} of {unit.column} have more than "
        f"{bound}. The largest number is {many(unit.largest, 'row')}. {many(unit.missing, 'row')} "
        f"{'has' if unit.missing == 1 else 'have'} no {unit.column}."
    )


def _join(rows: JoinRows, plan: neyman.Plan) -> Page:
    """Yield how many rows of a joined table, which has one row per unit, match the main table."""
    yield from _page(f"Rows of {rows.table}, one per {plan.unit.protects}")
    yield (
        f"{rows.missing:,} rows have no {rows.column}, and are dropped. "
        f"{many(rows.units, 'unit')}, of which {rows.several:,} have several rows: "
        f"{many(rows.dropped, 'row')} of these are dropped. "
        f"{many(rows.matched, 'row')} of {plan.table} have a row in {rows.table}, and "
        f"{rows.unmatched:,} have none."
    )


def _quote_value(value: str | None) -> str:
    """Return a value in quotes, which show its blanks. Escape characters that move a cursor."""
    text = "" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
