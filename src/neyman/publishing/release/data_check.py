"""Report which private rows a run would read and drop, for the custodian alone.

The check uses the same reader, keys, and bounds as a release. It publishes, charges, and writes
nothing. Its answer is private and states so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import ibis  # pyright: ignore[reportMissingTypeStubs]

from neyman.extras import library_warnings
from neyman.numerics import check
from neyman.publishing.engines import drop_counts, key_matches
from neyman.publishing.engines.backends import row_count
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.data_schema import check_key_type
from neyman.publishing.engines.joins.joined_tables import columns_of, prepared_tables
from neyman.publishing.engines.line_faults import Lines, line_faults
from neyman.publishing.engines.private_tables import NOTICE, Private
from neyman.publishing.engines.source import close_table, csv_files
from neyman.publishing.plan.plan import Plan
from neyman.publishing.release.private_key_files import check_key_files
from neyman.publishing.release.run import Source


@dataclass(frozen=True, repr=False)
class DataCheck(Private):
    """Report the rows that a run would read and drop. This report is private: never publish it.

    Args:
        plan_hash: the hash of the plan.
        table: the plan's name for the table.
        rows: the number of rows that a run would read.
        lines: the lines of CSV files; None for other data.
        keys: rows that match the places of the hierarchy, and the keys of each column.
        numbers: rows that have a number, by column.
        unit: the rows of the units; None if each row is a unit.
        queries: the rows that each query would count.
        texts: rows whose text a map or a lookup lists.
        joins: the rows of the tables that have one row per unit.
        others: the same check of each further table that queries read.
        readings: columns that the plan reads as numbers or dates, but that have other texts.
        assumed: the rows per value of a given unit column; None if no column was given.

    Examples:
        >>> import neyman as ny
        >>> import pyarrow as pa
        >>> plan = ny.Plan.from_dict({
        ...     "schema": 2, "name": "survey", "dataset": "survey@1", "table": "people",
        ...     "unit": {"protects": "person", "neighboring": "replace-one"},
        ...     "columns": {"sex": {"keys": ["male", "female"]}},
        ...     "budget": {"power": 0.25, "level": 0.05},
        ...     "query": [{"name": "sex", "measure": "count", "by": ["sex"], "share": 1}],
        ... })
        >>> check = ny.check_data(plan, pa.table({"sex": ["male", "Female", "Female"]}))
        >>> [(value.value, value.rows) for value in check.keys[0].frequent]
        [(('Female',), 2)]
        >>> check.to_dict()["private"]
        'PRIVATE: this describes private rows. It may not be shared or published.'
    """

    plan_hash: str
    table: str
    rows: int
    lines: Lines | None
    keys: tuple[key_matches.KeyMatch, ...]
    numbers: tuple[key_matches.NumberMatch, ...]
    unit: drop_counts.RowsOfUnits | None
    queries: tuple[drop_counts.QueryRows, ...]
    texts: tuple[key_matches.KeyMatch, ...] = ()
    joins: tuple[drop_counts.JoinRows, ...] = ()
    others: tuple[DataCheck, ...] = ()
    readings: tuple[key_matches.TextMatch, ...] = ()
    assumed: drop_counts.RowsOfUnits | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON types. The field "private" holds the notice."""
        return {"private": NOTICE, **asdict(self)}


@library_warnings()
def check_data(
    plan: Plan | str | Path,
    data: object,
    engine: str = "duckdb",
    *,
    memory: str | None = None,
    master: str | None = None,
    most: int = 10,
    id: str | None = None,  # noqa: A002 (the field of the unit)
) -> DataCheck:
    """Check private data against a plan before a run. The result is for the custodian only.

    A run silently drops an ill-formed line of a CSV file and a row with an unknown key, since an
    error would reveal their presence. This check names them. It reads the data as a run does. It
    charges nothing, opens no ledger, and writes no file except private spill files of the engine.

    The result is private. Use it to correct the data, not to choose keys, clips, or bounds, since
    the plan is published.

    Args:
        plan: a plan, or the path of a plan.
        data: the private table, as for `run`. The check uses up a stream.
        engine: "duckdb" or "spark".
        memory: the largest memory of the engine, such as "4GB".
        master: the Spark master, such as "local[2]".
        most: the number of lines to list per reason, and of values per column, at least 0.
        id: a column of the plan's table that names the unit. The field ``assumed`` then counts its
            values with more than ``unit.rows`` rows that meet the plan's filter. The guarantee
            assumes that no such value exists.

    Returns:
        The check. Its numbers are exact, except if bounds drop rows: a run draws which rows of a
        unit it uses, so the number of rows that a query counts can differ between runs.

    Raises:
        PlanError, DataError: an error that a run raises before its charge.
        ImportError: the engine is not installed. The message names the extra.

    Examples:
        >>> import neyman as ny
        >>> import pyarrow as pa
        >>> plan = ny.Plan.from_dict({
        ...     "schema": 2, "name": "survey", "dataset": "survey@1", "table": "people",
        ...     "unit": {"protects": "person", "neighboring": "replace-one"},
        ...     "columns": {"sex": {"keys": ["male", "female"]}},
        ...     "budget": {"power": 0.25, "level": 0.05},
        ...     "query": [{"name": "sex", "measure": "count", "by": ["sex"], "share": 1}],
        ... })
        >>> check = ny.check_data(plan, pa.table({"sex": ["male", "female", "Female"]}))
        >>> check.rows, check.keys[0].matched, check.keys[0].unmatched
        (3, 2, 1)
    """
    check.integer("most", most)
    if id is not None:
        check.text("id", id, "person")
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    check_key_files(plan, data)
    source = Source.of(plan, data, engine, memory, master)
    forms = source.rehearse(plan)
    if id is not None:
        if all(own.table != plan.table for own in plan.table_plans()):
            raise DataError(f"id = {id!r}: no query reads {plan.table!r}, the table of the units")
        check_key_type(id, source.open((id,), rows=False).schema()[id])
    needed = columns_of(plan, {name: list(form.columns) for name, form in forms.items()})
    tables = source.open_tables(plan, forms, more=[] if id is None else [id])
    try:
        read = {
            name: _read(one, needed[name], tables[name], most)
            for name, one in source.by_name(plan).items()
        }
        readings = {
            name: key_matches.reading_matches(plan, table, most) for name, table in tables.items()
        }
        with prepared_tables(plan, tables, key_matches.with_texts, shown=True) as prepared:
            own, filtered = prepared[0]
            assumed = None if id is None else drop_counts.unit_rows(own, filtered, id)
            checks = [
                DataCheck(
                    plan.hash,
                    own.table,
                    *read[own.table],
                    tuple(key_matches.key_matches(own, filtered, most)),
                    key_matches.number_matches(own, filtered, most),
                    drop_counts.unit_rows(own, filtered),
                    drop_counts.query_rows(own, filtered),
                    key_matches.text_matches(own, filtered, most),
                    readings=readings.pop(own.table),
                )
                for own, filtered in prepared
            ]
        # Tables that no query reads only supply columns to the plan's table.
        joined = tuple(match for matches in readings.values() for match in matches)
        return replace(
            checks[0],
            joins=drop_counts.join_rows(plan, tables),
            others=tuple(checks[1:]),
            readings=(*checks[0].readings, *joined),
            assumed=assumed,
        )
    finally:
        for table in tables.values():
            close_table(table)


def _read(
    source: Source, columns: tuple[str, ...], table: ibis.Table, most: int
) -> tuple[int, Lines | None]:
    """Return the number of rows of a table, and the faults in its CSV files; None for others."""
    files = csv_files(source.data)
    lines = line_faults(files, columns, source.csv, most) if files else None
    rows = row_count(table)
    if lines is not None and lines.rows != rows:
        raise DataError("data changed while it was checked; check it again")
    return rows, lines
