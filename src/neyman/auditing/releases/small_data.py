"""Make small neighboring datasets for any plan, from its columns and its constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, cast

import numpy as np
import pyarrow as pa

from neyman.publishing.plan.column import Column
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.row_expression import ColumnType, Node

MAX_UNITS = 12
MISSING_SHARE = 0.05  # share of missing values in columns that only expressions read
Tables = dict[str, pa.Table]
Row = dict[str, Any]


def refuse_unknown_parts(plan: Plan) -> None:
    """Refuse a plan with a part that this audit cannot test."""
    reasons = {
        "discovered keys": (
            any(query.delta is not None for query in plan.queries),
            "its tables have other rows in each run, so no cell has its own shift",
        ),
        "queries with detail": (
            any(query.detail is not None for query in plan.queries),
            "noise decides which cells a table has",
        ),
        "bounds that a histogram chooses": (
            plan.unit.search is not None or any(entry.searched for entry in plan.entries()),
            "the shifts follow from noise of the same run",
        ),
        "quantiles by inverse sensitivity": (
            any(query.inverse_sensitivity for query in plan.queries),
            "their values are drawn, and no noise is added to an exact number",
        ),
        "exact totals": (
            bool(plan.totals),
            "neighbors must keep each total, and the rows made here keep none",
        ),
    }
    for name, (present, reason) in reasons.items():
        if present:
            raise ValueError(
                f"plan = {plan.name!r} has {name}, which this audit does not test: {reason}; "
                "audit a plan without them"
            )


@dataclass
class Constants:
    """Represent the constants in a plan's expressions. Values near them are the best tests.

    Args:
        numbers: whole numbers, in units of the column's last decimal.
    """

    numbers: set[int] = field(default_factory=set[int])
    texts: set[str] = field(default_factory=set[str])
    dates: set[int] = field(default_factory=set[int])

    @classmethod
    def of(cls, plan: Plan) -> Constants:
        """Return the constants of a plan's filters and derived columns."""
        constants = cls()
        for _, node in plan.rows.filters:
            constants._read(node)
        for derived in plan.rows.derived:
            for node in derived.nodes:
                constants._read(node)
            constants.numbers |= {*derived.edges, *(derived.ends or ())}
            constants.texts |= {text for *key, _ in derived.pairs for text in key}
        return constants

    def _read(self, node: Node) -> None:
        value = cast(object, node.value)
        values = cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,)
        kind = node.parts[0].type if node.op == "member" else node.type
        for value in values if node.op != "column" else ():
            if isinstance(value, str):
                self.texts.add(value)
            elif isinstance(value, int) and not isinstance(value, bool):
                (self.dates if kind == "date" else self.numbers).add(value)
        for part in node.parts:
            self._read(part)


def neighbors(plan: Plan, rng: np.random.Generator) -> tuple[Tables, Tables]:
    """Return the private tables twice. They differ in the rows of one unit in all tables."""
    makers = {name: row_maker(plan, name, rng) for name in names_of(plan)}
    several = plan.unit.id is not None

    def unit(extreme: bool) -> dict[str, list[Row]]:
        """Return a unit's rows by table. A table's rows are equal, as a run may choose some."""
        own: dict[str, list[Row]] = {}
        for name, make in makers.items():
            most = most_rows(plan, name)
            count = most + 1 if extreme else int(rng.integers(1, most + 2))
            further = plan.further_table(name)
            if not several or (further is not None and further.duplicates is not None):
                count = 1
            own[name] = [make(extreme)] * count
        return own

    units = [unit(False) for _ in range(MAX_UNITS)]
    one, other = [*units, unit(True)], list(units)
    if plan.unit.neighboring == "replace-one":
        other.append(unit(True))
    return tables_of(plan, one), tables_of(plan, other)


def names_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of a plan's private tables."""
    return (plan.table, *(table.name for table in plan.tables))


def most_rows(plan: Plan, name: str) -> int:
    """Return the largest number of one unit's rows that count in a table."""
    further = plan.further_table(name)
    return plan.unit_rows if not plan.tables else (further.rows if further else plan.unit.rows)


def tables_of(plan: Plan, units: Sequence[Mapping[str, Sequence[Row]]]) -> Tables:
    """Return one table per name with the rows of all units. A unit's id is its number."""
    tables: Tables = {}
    for name in names_of(plan):
        further = plan.further_table(name)
        key = plan.unit.id if further is None else further.id
        rows: list[Row] = []
        for number, own in enumerate(units):
            extra = {} if key is None else {key: f"u{number}"}
            rows += [{**row, **extra} for row in own[name]]
        tables[name] = pa.Table.from_pylist(rows)
    return tables


def row_maker(plan: Plan, table: str, rng: np.random.Generator) -> Callable[[bool], Row]:
    """Return a function that makes a random row of a table, without columns that a join adds.

    Its argument is True for extreme values.
    """
    constants = Constants.of(plan)
    left_out = set(plan.rows.names)
    if table == plan.table:
        left_out |= {name for further in plan.tables for name in further.join}
    columns = [column for column in plan.columns if column.name not in left_out]
    levels = {level for one in plan.hierarchies for level in one.levels}
    read = dict(plan.rows.readings)
    others = read.keys() - {column.name for column in columns} - left_out - levels

    def make(extreme: bool) -> Row:
        row: Row = {}
        for column in columns:
            if column.keys:
                row[column.name] = key(column, rng, extreme)
            else:
                near = constants.numbers if column.name in read else ()
                value = number(plan, column.name, sorted(near), rng, extreme)
                row[column.name] = value / 10**column.decimals if column.decimals else value
        for name in sorted(others):
            missing = rng.random() < MISSING_SHARE
            row[name] = None if missing else value_of(read[name], constants, rng)
        for one in plan.hierarchies:
            place = one.rows[int(rng.integers(len(one.rows)))]
            named = zip(one.levels, place, strict=True)
            row |= {level: value for level, value in named if level not in left_out}
        return row

    return make


def key(column: Column, rng: np.random.Generator, extreme: bool) -> object:
    """Return a listed key, or sometimes a text that is no key."""
    if column.kind == "text" and not extreme and rng.random() < 0.1:
        return "no such key"
    return column.keys[int(rng.integers(len(column.keys)))]


def number(
    plan: Plan, name: str, near: Sequence[int], rng: np.random.Generator, extreme: bool
) -> int:
    """Return a number near a constant, or within a column's clips and bins; if extreme, outside."""
    ends = [
        end
        for query in plan.queries
        if name in query.columns
        for end in (*(query.clip or ()), *(query.clip_over or ()), *(query.bins or ()))
    ] or [0, 10]
    low, high = min(ends), max(ends)
    wide = max(high - low, 1)
    if extreme:
        return int(rng.choice([low - wide, high + wide]))
    if near and rng.random() < 0.5:
        return int(rng.choice(near)) + int(rng.integers(-1, 2))
    return int(rng.integers(low - 1, high + 2))


def value_of(kind: ColumnType, constants: Constants, rng: np.random.Generator) -> object:
    """Return a value of a column that only expressions read, near a constant of the plan."""
    if kind.type == "boolean":
        return bool(rng.integers(2))
    if kind.type == "text":
        texts = [*sorted(constants.texts), "another text"]
        return texts[int(rng.integers(len(texts)))]
    if kind.type == "date":
        days = [*days_of(constants)] or [date(2000, 1, 1)]
        return days[int(rng.integers(len(days)))] + timedelta(days=int(rng.integers(-1, 2)))
    near = sorted(constants.numbers) or [0]
    value = int(rng.choice(near)) + int(rng.integers(-1, 2))
    return value / 10**kind.scale if kind.scale else value


def days_of(constants: Constants) -> Iterator[date]:
    """Yield the dates of a plan's constants, except years outside 2 to 9998."""
    for number in sorted(constants.dates):
        year, rest = divmod(number, 10_000)
        if 2 <= year <= 9998 and 1 <= rest // 100 <= 12:
            yield date(year, rest // 100, min(max(rest % 100, 1), 28))
