"""Count the rows by all columns of some tables, and read the tables themselves.

A *cross cell* is a set of values that no table tells apart, one per column. The tables' cells are
sums of counts of cross cells.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
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

    cells: int = 200_000  # cross cells, and cells of a table
    combinations: int = 1_000_000  # different combinations of values in the rows
    table_bytes: int = 2**26


LIMITS = Limits()


@dataclass(frozen=True)
class Table:
    """Represent a published table. Its cells are in the order of `TableMethod.columns`.

    Args:
        name: the file.
        shape: the number of categories of each column.
        at: the cell of the table that each cross cell is in.
        counts: the number of rows in each cell, a row per line. Without totals and swaps, each cell
            is a line.
        published: the published counts, and `EMPTY` ones. The last of a line is its total, if any.
    """

    name: str
    method: TableMethod
    shape: tuple[int, ...]
    at: Integers
    counts: Integers
    published: Integers


@dataclass(frozen=True)
class Counted:
    """Hold the rows and the tables.

    Args:
        values: the columns, and the values of each class.
        counts: the number of rows of each cross cell, one axis per column.
        axis: the axis of the attribute.
        tables: the tables.
    """

    values: Mapping[str, Sequence[Sequence[str]]]
    counts: Integers
    axis: int
    tables: tuple[Table, ...]

    @property
    def single(self) -> Any:
        """Return for each class of the attribute True if it has one value."""
        return np.array([len(of) == 1 for of in [*self.values.values()][self.axis]])


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
    read = [_read_table(path, one) for path, one in zip(paths, method.table, strict=True)]
    names = [*dict.fromkeys(name for one in method.table for name in one.by)]
    values = {name: _categories(name, method, read) for name in names}
    classes = {name: [*dict.fromkeys(of.values())] for name, of in values.items()}
    shape = tuple(map(len, classes.values()))
    if (size := math.prod(shape)) > LIMITS.cells:
        raise ValueError(
            f"the cross-table of {', '.join(names)} has {size:,} cells: must be at most "
            f"{LIMITS.cells:,}; give fewer tables or columns, or the rows and tables of one region"
        )
    counts = _count(data, method, values, shape)
    spots = dict(zip(names, np.indices(shape).reshape(len(shape), -1), strict=True))
    tables: list[Table] = []
    for k, (path, one) in enumerate(zip(paths, method.table, strict=True)):
        kinds = {name: [*one.map.get(name, values[name])] for name in one.columns}
        places = [
            np.array([kinds[name].index(of[k]) for of in classes[name]])[spots[name]]
            for name in kinds
        ]
        own = tuple(map(len, kinds.values()))
        at = np.ravel_multi_index(places, own)
        width = own[-1] if one.total or one.swap else 1
        made = np.bincount(at, counts.ravel(), math.prod(own)).astype(np.int64).reshape(-1, width)
        tables.append(Table(str(path), one, own, at, made, _published(path, one, kinds, read[k])))
    members = {
        name: [[value for value, kind in values[name].items() if kind == own] for own in of]
        for name, of in classes.items()
    }
    return Counted(members, counts, names.index(method.attribute), tuple(tables))


def _read_table(path: Path, method: TableMethod) -> dict[tuple[str, ...], int]:
    """Return the counts of a table by their keys, in the order of `TableMethod.columns`."""
    try:
        text = read_file(path, LIMITS.table_bytes).decode("utf-8-sig")
        head, *lines = [*filter(None, csv.reader(io.StringIO(text), strict=True))] or [[]]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV file in UTF-8: {error}") from None
    names = [*method.by, method.count]
    if sorted(head) != sorted(names) or {*map(len, lines)} - {len(head)}:
        raise ValueError(
            f"{path} has the columns {head}: must have {names}, each once and in each line; leave "
            "out others, which could reveal more than this command computes"
        )
    counts: dict[tuple[str, ...], int] = {}
    for line in lines:
        of = dict(zip(head, line, strict=True))
        key, text = tuple(of[name] for name in method.columns), of[method.count].strip()
        if key in counts or not re.fullmatch(r"([0-9]{1,9}(\.0*)?)?", text):
            raise ValueError(
                f"{path} has the line {line}: must have a whole number from 0 to 999,999,999, or "
                "nothing if it is suppressed, and keys that no other line has"
            )
        counts[key] = int(text.partition(".")[0] or EMPTY)
    return counts


def _categories(
    name: str, method: Method, read: Sequence[Mapping[tuple[str, ...], int]]
) -> dict[str, tuple[str, ...]]:
    """Return the public values of a column, and their category in each table."""
    values = dict.fromkeys(method.values.get(name, ()))
    for one, table in zip(method.table, read, strict=True):
        if name in one.map:
            values |= dict.fromkeys(v for part in one.map[name].values() for v in part)
        elif name in one.by and name not in method.values:
            keys = {key[one.columns.index(name)] for key in table}
            values |= dict.fromkeys(
                sorted(keys - ({one.total_label} if one.total == name else set()))
            )
    kinds: list[dict[str, str]] = []
    for one in method.table:
        pairs = [(value, kind) for kind, part in one.map.get(name, {}).items() for value in part]
        kinds.append(dict(pairs) if pairs else {v: v if name in one.by else "" for v in values})
        if kinds[-1].keys() != values.keys() or len(pairs) > len(values):
            raise ValueError(
                f"a map of {name!r} must have each of these values in one category: "
                f"{', '.join(values)}"
            )
    if not values:
        raise ValueError(f"the tables list no value of {name!r}; give [values] {name} = [...]")
    return {value: tuple(of[value] for of in kinds) for value in values}


def _count(
    data: str,
    method: Method,
    values: Mapping[str, Mapping[str, tuple[str, ...]]],
    shape: tuple[int, ...],
) -> Integers:
    """Count the rows of the data by class."""
    names = [*values]
    rows = "_".join([*names, "rows"])  # longer than the other names
    table: Any = open_table(as_source(data), columns=names)
    try:
        grouped = table.group_by(names).aggregate(**{rows: table.count()})
        found = grouped.limit(LIMITS.combinations + 1).to_pyarrow().to_pydict()
    finally:
        close_table(table)
    if len(found[rows]) > LIMITS.combinations:
        raise ValueError(
            f"the rows have more than {LIMITS.combinations:,} different combinations of "
            f"{', '.join(names)}; give the rows of one region"
        )
    places: list[list[int]] = []
    for name, of in values.items():
        number = {kind: k for k, kind in enumerate(dict.fromkeys(of.values()))}
        kinds = [of.get(_text(value, method.missing)) for value in found[name]]
        if lost := sum(n for n, kind in zip(found[rows], kinds, strict=True) if kind is None):
            raise ValueError(
                f"{lost:,} rows of the data have a {name!r} that neither the method nor a table "
                "lists; list it in [values] or a map, and name a missing value: missing = 'none'"
            )
        places.append([number[kind] for kind in kinds if kind is not None])
    flat = np.ravel_multi_index(np.array(places, np.int64), shape)
    return np.bincount(flat, found[rows], math.prod(shape)).astype(np.int64).reshape(shape)


def _text(value: object, missing: str | None) -> str:
    """Return a value of the data as a table writes it."""
    if value is None or value != value or value == "":
        return missing or ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _published(
    path: Path,
    method: TableMethod,
    kinds: Mapping[str, Sequence[str]],
    counts: Mapping[tuple[str, ...], int],
) -> Integers:
    """Return the published counts, a row per line. A count that is not there is 0."""
    places: list[dict[str, int]] = []
    for k, (name, own) in enumerate(kinds.items()):
        known = [*own, *([method.total_label] if name == method.total else [])]
        places.append({text: place for place, text in enumerate(known)})
        for text in {key[k] for key in counts} - {*known}:
            raise ValueError(f"{path}: {name} = {text!r} is no category; {suggest(text, known)}")
        if len(places[-1]) < len(known):
            raise ValueError(f"{path}: {known[-1]!r} is also a category; give another total_label")
    cells = np.zeros([*map(len, places)], np.int64)
    for key, count in counts.items():
        cells[tuple(of[text] for of, text in zip(places, key, strict=True))] = count
    return cells.reshape(-1, cells.shape[-1] if method.total or method.swap else 1)
