"""Count the rows by all columns of some tables, and read the tables themselves.

A *cross cell* is a set of values that no table tells apart, one per column. The tables' cells are
sums of counts of cross cells.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.auditing.plain_tables.method import Method, TableMethod
from neyman.publishing.engines.source import as_source, close_table, open_table
from neyman.publishing.plan.field_types import suggest
from neyman.storage.reading import read_file

Integers = NDArray[np.int64]
EMPTY = -1  # a suppressed count


@dataclass(frozen=True)
class Limits:
    """Limit the sizes of tables."""

    cells: int = 200_000  # cross cells
    combinations: int = 1_000_000  # different combinations of values in the rows
    table_bytes: int = 2**26


LIMITS = Limits()


@dataclass(frozen=True)
class Table:
    """Represent a published table.

    Args:
        name: the file.
        shape: the number of categories of each column of ``by``.
        at: the cell of the table that each cross cell is in.
        counts: the number of rows in each cell.
        published: the published count of each cell, or `EMPTY`.
        totals: the published total of each line, if the table has totals.
    """

    name: str
    method: TableMethod
    shape: tuple[int, ...]
    at: Integers
    counts: Integers
    published: Integers
    totals: Integers | None

    @property
    def lines(self) -> Integers:
        """Return the cells of each line: those that one total adds up."""
        cells = np.arange(math.prod(self.shape)).reshape(self.shape)
        axis = self.method.by.index(self.method.total or self.method.by[-1])
        return np.moveaxis(cells, axis, -1).reshape(-1, self.shape[axis])


@dataclass(frozen=True)
class Counted:
    """Hold the number of rows in each cross cell, and the tables.

    Args:
        columns: the columns, and for each the values of its classes.
        counts: the number of rows of each cross cell, one axis per column.
        axis: the axis of the attribute.
    """

    columns: dict[str, list[list[str]]]
    counts: Integers
    axis: int
    tables: tuple[Table, ...]


def count_rows(paths: Sequence[Path], data: str, method: Method) -> Counted:
    """Read the tables, and count the rows of the data.

    Raises:
        ValueError: a table or the data do not fit to the method, or they are too large.
    """
    if len(paths) != len(method.table):
        raise ValueError(
            f"{len(paths)} tables are given, and the method has {len(method.table)} sections "
            "[[table]]; give one section per table, in the same order"
        )
    rows = [_read_table(path, one) for path, one in zip(paths, method.table, strict=True)]
    columns = [*dict.fromkeys(name for one in method.table for name in one.by)]
    domains = {name: _domain(name, method, rows) for name in columns}
    categories = [
        {name: _categories(name, one, domains[name], path) for name in one.by}
        for path, one in zip(paths, method.table, strict=True)
    ]
    classes = {
        name: _classes(domains[name], [each[name][1] for each in categories if name in each])
        for name in columns
    }
    shape = tuple(max(of) + 1 for of in classes.values())
    if (size := math.prod(shape)) > LIMITS.cells:
        raise ValueError(
            f"the cross-table of {', '.join(columns)} has {size:,} cells: must be at most "
            f"{LIMITS.cells:,}; give fewer tables or columns, or the rows and tables of one region"
        )
    counts = _count(data, method, domains, classes, shape)
    tables: list[Table] = []
    for path, one, each, read in zip(paths, method.table, categories, rows, strict=True):
        own = tuple(len(each[name][0]) for name in one.by)
        at = np.zeros((1,) * len(shape), np.int64)
        for name in one.by:
            axis = columns.index(name)
            of_class = dict(zip(classes[name], each[name][1], strict=True))
            place = np.array([of_class[k] for k in range(shape[axis])])
            at = at * len(each[name][0]) + place.reshape(
                [-1 if k == axis else 1 for k in range(len(shape))]
            )
        at = np.broadcast_to(at, shape).ravel()
        made = np.bincount(at, counts.ravel(), math.prod(own)).astype(np.int64)
        tables.append(Table(str(path), one, own, at, made, *_published(path, one, each, own, read)))
    values = {
        name: [
            [v for v, k in zip(domains[name], of, strict=True) if k == c]
            for c in range(max(of) + 1)
        ]
        for name, of in classes.items()
    }
    return Counted(values, counts, columns.index(method.attribute), tuple(tables))


def _read_table(path: Path, method: TableMethod) -> dict[tuple[str, ...], int]:
    """Return the count of each row of a table by its keys."""
    try:
        text = read_file(path, LIMITS.table_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text in UTF-8; save it as a CSV file in UTF-8") from None
    lines = csv.reader(io.StringIO(text))
    head = next(lines, [])
    if sorted(head) != sorted([*method.by, method.count]):
        raise ValueError(
            f"{path} has the columns {head}: must have {[*method.by, method.count]}, each once; "
            "another column could reveal more than this command computes, so leave it out"
        )
    order, place = [head.index(name) for name in method.by], head.index(method.count)
    rows: dict[tuple[str, ...], int] = {}
    for line in filter(None, lines):
        if len(line) != len(head):
            raise ValueError(
                f"{path}, line {lines.line_num}: has {len(line)} values, not {len(head)}"
            )
        key, count = tuple(line[k] for k in order), line[place].strip()
        if key in rows:
            raise ValueError(f"{path}, line {lines.line_num}: its keys stand in another line, too")
        rows[key] = _whole(count, f"{path}, line {lines.line_num}")
    return rows


def _whole(text: str, where: str) -> int:
    """Return a count, or `EMPTY`."""
    whole, point, zeros = text.partition(".")
    if text and not (whole.isdecimal() and len(whole) < 10 and not zeros.strip("0")):
        raise ValueError(
            f"{where}: the count {text!r} must be a whole number from 0 to 999,999,999, or empty "
            "if it is suppressed"
        )
    return int(whole) if text else EMPTY


def _domain(name: str, method: Method, rows: Sequence[dict[tuple[str, ...], int]]) -> list[str]:
    """Return the public values of a column: of the list, the maps, or else of the tables."""
    values = dict.fromkeys(method.values.get(name, ()))
    for one in method.table:
        values |= {v: None for part in one.map.get(name, {}).values() for v in part}
    for one, table in zip(method.table, rows, strict=True):
        if name in one.by and name not in one.map and name not in method.values:
            keys = {key[one.by.index(name)] for key in table}
            values |= dict.fromkeys(
                sorted(keys - ({one.total_label} if one.total == name else set()))
            )
    if not values:
        raise ValueError(
            f"column {name!r} has no value; give [values] {name} = [...] in the method, as the "
            "tables list none"
        )
    return [*values]


def _categories(
    name: str, method: TableMethod, domain: list[str], path: Path
) -> tuple[list[str], list[int]]:
    """Return a table's categories of a column, and the category of each value."""
    if name not in method.map:
        return domain, [*range(len(domain))]
    names = [*method.map[name]]
    of_value = {v: k for k, values in enumerate(method.map[name].values()) for v in values}
    if unknown := [value for value in domain if value not in of_value]:
        raise ValueError(
            f"the map of {name!r} for {path} has no category for {unknown[0]!r}, which the method "
            "or another table lists; add it to a category"
        )
    return names, [of_value[value] for value in domain]


def _classes(domain: list[str], categories: list[list[int]]) -> list[int]:
    """Return the class of each value. Values of one class are in one category of each table."""
    number: dict[tuple[int, ...], int] = {}
    keys = zip(*categories, strict=True)
    return [number.setdefault(key, len(number)) for key in keys]


def _count(
    data: str,
    method: Method,
    domains: dict[str, list[str]],
    classes: dict[str, list[int]],
    shape: tuple[int, ...],
) -> Integers:
    """Count the rows of the data by class."""
    names = [*domains]
    table: Any = open_table(as_source(data), columns=names)
    try:
        grouped = table.group_by([table[name] for name in names]).aggregate(_rows=table.count())
        found = grouped.limit(LIMITS.combinations + 1).to_pyarrow().to_pydict()
    finally:
        close_table(table)
    numbers: list[int] = found["_rows"]
    if len(numbers) > LIMITS.combinations:
        raise ValueError(
            f"the rows have more than {LIMITS.combinations:,} different combinations of "
            f"{', '.join(names)}; give the rows of one region"
        )
    places: list[list[int]] = []
    for name in names:
        class_of = dict(zip(domains[name], classes[name], strict=True))
        texts = [_text(value, method.missing) for value in found[name]]
        for what, wrong, hint in (
            ("no value", None, "fill it, or name a text for it: missing = 'unknown'"),
            (
                "a value that neither the method nor a table lists",
                "",
                "add it to [values] or a map",
            ),
        ):
            lost = sum(
                n
                for text, n in zip(texts, numbers, strict=True)
                if (text is None if wrong is None else text is not None and text not in class_of)
            )
            if lost:
                raise ValueError(f"{lost:,} rows of the data have {what} of {name!r}; {hint}")
        places.append([class_of[text] for text in texts if text is not None])
    flat = np.ravel_multi_index(np.array(places, np.int64).reshape(len(names), -1), shape)
    return np.bincount(flat, numbers, math.prod(shape)).astype(np.int64).reshape(shape)


def _text(value: object, missing: str | None) -> str | None:
    """Return a value of the data as a table writes it."""
    if value is None or value != value or value == "":
        return missing
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _published(
    path: Path,
    method: TableMethod,
    categories: dict[str, tuple[list[str], list[int]]],
    shape: tuple[int, ...],
    rows: dict[tuple[str, ...], int],
) -> tuple[Integers, Integers | None]:
    """Return the published counts and totals. A row that is not there has the count 0."""
    cells = np.zeros(
        [n + (name == method.total) for n, name in zip(shape, method.by, strict=True)], np.int64
    )
    for name in method.by:
        names = categories[name][0]
        if name == method.total and method.total_label in names:
            raise ValueError(
                f"{path}: the label {method.total_label!r} of the total is a category of {name!r}, "
                "too; give another total_label"
            )
    index = {
        name: {
            text: k
            for k, text in enumerate(
                [*categories[name][0], *([method.total_label] if name == method.total else [])]
            )
        }
        for name in method.by
    }
    for key, count in rows.items():
        for name, text in zip(method.by, key, strict=True):
            if text not in index[name]:
                raise ValueError(
                    f"{path}: {name} = {text!r} is no category; {suggest(text, index[name])}"
                )
        cells[tuple(index[name][text] for name, text in zip(method.by, key, strict=True))] = count
    if method.total is None:
        return cells.ravel(), None
    axis = method.by.index(method.total)
    return np.delete(cells, -1, axis).ravel(), np.take(cells, -1, axis).ravel()
