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
Booleans = NDArray[np.bool_]
Key = tuple[str, ...]
Published = Mapping[Key, int]

EMPTY = -1  # a suppressed count
MOST_CELLS = 200_000  # of the cross-table
MOST_COMBINATIONS = 1_000_000  # of values in the rows
MOST_BYTES = 2**26  # of a table


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
    tables: Sequence[Table]

    @property
    def single(self) -> Booleans:
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
    read = [*map(_read_table, paths, method.table)]
    names = [*dict.fromkeys(name for one in method.table for name in one.by)]
    values = {name: _categories(name, method, read) for name in names}
    classes = {name: [*dict.fromkeys(of.values())] for name, of in values.items()}
    shape = tuple(map(len, classes.values()))
    if (size := math.prod(shape)) > MOST_CELLS:
        raise ValueError(
            f"the cross-table of {', '.join(names)} has {size:,} cells: must be at most "
            f"{MOST_CELLS:,}; give fewer tables or columns, or the rows and tables of one region"
        )
    counts = _count(data, values, shape)
    spots = dict(zip(names, np.indices(shape).reshape(len(shape), -1), strict=True))
    tables: list[Table] = []
    for k, one in enumerate(method.table):
        kinds = {name: [*one.map.get(name, values[name])] for name in one.columns}
        own = tuple(map(len, kinds.values()))
        places = (np.array([of.index(c[k]) for c in classes[name]]) for name, of in kinds.items())
        at = np.ravel_multi_index([p[spots[n]] for n, p in zip(kinds, places, strict=True)], own)
        people = np.bincount(at, counts.ravel(), math.prod(own)).astype(np.int64)
        people = people.reshape(-1, own[-1] if one.total or one.swap else 1)
        shown = _published(paths[k], one, kinds, read[k])
        tables.append(Table(str(paths[k]), one, own, at, people, shown))
    members = {
        name: [[value for value in values[name] if values[name][value] == own] for own in of]
        for name, of in classes.items()
    }
    return Counted(members, counts, names.index(method.attribute), tables)


def _read_table(path: Path, method: TableMethod) -> Published:
    """Return the counts of a table by their keys, in the order of `TableMethod.columns`."""
    try:
        text = io.StringIO(read_file(path, MOST_BYTES).decode("utf-8-sig"))
        head, *lines = [*filter(None, csv.reader(text, strict=True))] or [[]]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV file in UTF-8: {error}") from None
    names = [*method.by, method.count]
    if sorted(head) != sorted(names) or {*map(len, lines)} - {len(head)}:
        raise ValueError(
            f"{path} has the columns {head}: must have {names}, each once and in each line; leave "
            "out others, which could reveal more than this command computes"
        )
    counts: dict[Key, int] = {}
    for line in lines:
        *key, text = (line[head.index(name)] for name in (*method.columns, method.count))
        if tuple(key) in counts or not re.fullmatch(r"([0-9]{1,9}(\.0*)?)?", text):
            raise ValueError(
                f"{path} has the line {line}: must have a whole number from 0 to 999,999,999, or "
                "nothing if it is suppressed, and keys that no other line has"
            )
        counts[tuple(key)] = int(text.partition(".")[0] or EMPTY)
    return counts


def _categories(name: str, method: Method, read: Sequence[Published]) -> Mapping[str, Key]:
    """Return the public values of a column, and their category in each table."""
    values = dict.fromkeys(method.values.get(name, ()))
    maps: list[dict[str, str]] = []
    for one, table in zip(method.table, read, strict=True):
        pairs = [(value, kind) for kind, part in one.map.get(name, {}).items() for value in part]
        maps.append(dict(pairs))
        if len(maps[-1]) < len(pairs):
            raise ValueError(f"a map of {name!r} lists a value twice; list each value once")
        values |= dict.fromkeys(maps[-1])
        if name in one.by and name not in {*one.map, *method.values}:
            texts = {key[one.columns.index(name)] for key in table}
            values |= dict.fromkeys(
                sorted(texts - {one.total_label if one.total == name else None})
            )
    of = [
        kinds or {value: value if name in one.by else "" for value in values}
        for kinds, one in zip(maps, method.table, strict=True)
    ]
    for value in values:
        if any(value not in kinds for kinds in of):
            raise ValueError(f"a map of {name!r} has no category for {value!r}; add it to one")
    if not values:
        raise ValueError(f"the tables list no value of {name!r}; give [values] {name} = [...]")
    return {value: tuple(kinds[value] for kinds in of) for value in values}


def _count(data: str, values: Mapping[str, Mapping[str, Key]], shape: tuple[int, ...]) -> Integers:
    """Count the rows of the data by class."""
    names = [*values]
    rows = "_".join([*names, "rows"])  # longer than the other names
    table: Any = open_table(as_source(data), columns=names)
    try:
        grouped = table.group_by(names).aggregate(**{rows: table.count()})
        groups = grouped.limit(MOST_COMBINATIONS + 1).to_pyarrow().to_pydict()
    finally:
        close_table(table)
    if len(groups[rows]) > MOST_COMBINATIONS:
        raise ValueError(
            f"the rows have more than {MOST_COMBINATIONS:,} different combinations of "
            f"{', '.join(names)}; give the rows of one region"
        )
    places: list[list[int]] = []
    for name, of in values.items():
        number = {kind: k for k, kind in enumerate(dict.fromkeys(of.values()))}
        place = [number.get(of.get(_text(value), ()), -1) for value in groups[name]]
        if lost := sum(n for n, k in zip(groups[rows], place, strict=True) if k < 0):
            raise ValueError(
                f"{lost:,} rows of the data have a {name!r} that neither the method nor a table "
                "lists; list it in [values] or a map, where '' stands for a missing value"
            )
        places.append(place)
    flat = np.ravel_multi_index(np.array(places, np.int64), shape)
    return np.bincount(flat, groups[rows], math.prod(shape)).astype(np.int64).reshape(shape)


def _text(value: object) -> str:
    """Return a value of the data as a table writes it."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _published(
    path: Path, method: TableMethod, kinds: Mapping[str, Sequence[str]], counts: Published
) -> Integers:
    """Return the published counts, a row per line. A count that is not there is 0."""
    known = [[*of, *([method.total_label] * (name == method.total))] for name, of in kinds.items()]
    cells = np.zeros([*map(len, known)], np.int64)
    places = [{text: k for k, text in enumerate(of)} for of in known]
    if method.total and len(places[-1]) < len(known[-1]):
        raise ValueError(f"{path}: {known[-1][-1]!r} is a category, too; give a total_label")
    for key, count in counts.items():
        for text, of in zip(key, places, strict=True):
            if text not in of:
                raise ValueError(
                    f"{path}: {text!r} in {[*key]} is no category; {suggest(text, of)}"
                )
        cells[tuple(of[text] for text, of in zip(key, places, strict=True))] = count
    return cells.reshape(-1, cells.shape[-1] if method.total or method.swap else 1)
