"""How many rows a join reads and drops, for the custodian alone."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import ibis

from neyman.publishing.engines.backends import backend_of, held, row_count, row_sum
from neyman.publishing.engines.expressions import key_bytes
from neyman.publishing.engines.private_tables import Private
from neyman.publishing.plan.plan import Plan


@dataclass(frozen=True, repr=False)
class JoinRows(Private):
    """The rows of a table that has one row per unit, and of the plan's table that match them.

    Args:
        table: the table.
        column: its column that names the unit.
        missing: its rows without a unit, which are dropped.
        units: how many units it has.
        several: how many of these have several rows.
        dropped: how many rows of these units are dropped.
        matched: rows of the plan's table whose unit has a row that is left.
        unmatched: rows of the plan's table whose unit has none.
    """

    table: str
    column: str
    missing: int
    units: int
    several: int
    dropped: int
    matched: int
    unmatched: int


def join_rows(plan: Plan, tables: Mapping[str, ibis.Table]) -> tuple[JoinRows, ...]:
    """Count the rows of each table that has one row per unit."""
    counts: list[JoinRows] = []
    for table in plan.tables:
        if table.duplicates is None:
            continue
        rows: Any = tables[table.name]
        keyed: Any = rows.select(unit=key_bytes(rows[table.id], backend_of(rows)))
        keyed = keyed.filter(keyed["unit"].notnull())
        units: Any = keyed.group_by("unit").aggregate(rows=keyed.count())
        with held(units) as own, ExitStack() as scope:
            every: Any = own
            named = row_sum(every)
            several: Any = every.filter(every["rows"] > 1)
            remaining = int(table.duplicates == "least")
            main: Any = tables[plan.table]
            left: Any = main.select(unit=key_bytes(main[plan.unit.id or ""], backend_of(main)))
            left = left.filter(left["unit"].notnull())
            single = every if remaining else every.filter(every["rows"] == 1)
            right: Any = scope.enter_context(backend_of(main).import_rows(single))
            matched = row_count(left.semi_join(right, "unit"))
            units_of_several = row_count(several)
            counts.append(
                JoinRows(
                    table.name,
                    table.id,
                    row_count(rows) - named,
                    row_count(every),
                    units_of_several,
                    row_sum(several) - remaining * units_of_several,
                    matched,
                    row_count(left) - matched,
                )
            )
    return tuple(counts)
