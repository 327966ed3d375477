"""Compute the consistent tables of a release from its published tables.

``tables/consistent/`` has one file for each table that takes part. The publisher writes these
files. A verifier computes them again, from the same published files with the same function. No
private data are used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from neyman.publishing.consistency.adjusted_tables import (
    Consistent,
    ConsistentTable,
    consistent_tables,
)
from neyman.publishing.consistency.families import Member, families
from neyman.publishing.plan.plan import Plan
from neyman.publishing.tables.estimates import CellEstimates
from neyman.publishing.tables.forms import Form, integers
from neyman.storage.reading import open_file

FOLDER = "tables/consistent"  # the folder of consistent tables within a release


@dataclass(frozen=True, eq=False)
class ConsistentForm:
    """Represent one consistent table, with the keys of its noisy table."""

    form: Form
    table: ConsistentTable

    @property
    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        return self.build(range(0)).schema

    def build(self, part: range) -> pa.Table:
        """Build the rows whose numbers are in ``part``, in the plan's units."""
        rows = slice(part.start, part.stop)
        columns = (self.table.value, self.table.standard_error, self.table.lower, self.table.upper)
        value, error, lower, upper = (np.ascontiguousarray(numbers[rows]) for numbers in columns)
        decimals = self.form.decimals * self.form.query.kind.unit_power
        return self.form.with_keys(CellEstimates(value, error, lower, upper, decimals), part.start)


def from_published(plan: Plan, forms: Iterable[Form], folder: Path) -> Consistent:
    """Return consistent tables computed from the published tables in a folder."""
    parts = members(plan)
    noisy: dict[tuple[str, str, str], Any] = {}
    for form in forms:
        name = form.query.name, form.level
        if name in parts:
            path = folder / "tables" / f"{form.query.name}.{form.level}.parquet"
            with open_file(path) as file:
                column = pyarrow.parquet.ParquetFile(file).read(["value"], use_threads=False)
            values = integers(column.column("value"))
            noisy[*name, parts[name].measure] = (values, form.entries[0][1])
    method: Any = plan.consistency
    return consistent_tables(plan, noisy, method)


def members(plan: Plan) -> dict[tuple[str, str], Member]:
    """Return the tables that must add up to others, by query and level."""
    return {member.name: member for family in families(plan) for member in family.members}


def consistent_forms(result: Consistent, forms: Iterable[Form]) -> tuple[ConsistentForm, ...]:
    """Return the consistent tables with their keys, in declared order."""
    by_name = {(form.query.name, form.level): form for form in forms}
    return tuple(ConsistentForm(by_name[name], table) for name, table in result.tables.items())
