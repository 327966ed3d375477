"""Count the rows by all columns of some tables, and read the tables themselves.

A *cross cell* is a set of values that no table tells apart, one per column. The tables' cells are
sums of counts of cross cells.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
        labels: the columns, and the name of each class of values.
        single: for each class of the attribute, True if it has one value.
        counts: the number of rows of each cross cell, one axis per column.
        axis: the axis of the attribute.
        tables: the tables.
    """

    labels: Mapping[str, Sequence[str]]
    single: Any
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
    read = [_read_table(path, one) for path, one in zip(paths, method.table, strict=True)]
    names = [*dict.fromkeys(name for one in method.table for name in one.by)]
    values = {name: _categories(name, method, read) for name in names}
    classes = {
        name: each.groupby([*each.columns], sort=False).ngroup() for name, each in values.items()
    }
    shape = tuple(int(of.max()) + 1 for of in classes.values())
    if (size := math.prod(shape)) > LIMITS.cells:
        raise ValueError(
            f"the cross-table of {', '.join(names)} has {size:,} cells: must be at most "
            f"{LIMITS.cells:,}; give fewer tables or columns, or the rows and tables of one region"
        )
    counts = _count(data, method, classes, shape)
    spots = dict(zip(names, np.indices(shape).reshape(len(shape), -1), strict=True))
    tables: list[Table] = []
    for k, (path, one) in enumerate(zip(paths, method.table, strict=True)):
        kinds = {name: pd.Index([*one.map.get(name, values[name].index)]) for name in one.columns}
        own = tuple(map(len, kinds.values()))
        place = [
            kinds[name].get_indexer(values[name][k][~classes[name].duplicated()])[spots[name]]
            for name in kinds
        ]
        at = np.ravel_multi_index(place, own)
        width = own[-1] if one.total or one.swap else 1
        made = np.bincount(at, counts.ravel(), math.prod(own)).astype(np.int64).reshape(-1, width)
        tables.append(Table(str(path), one, own, at, made, _published(path, one, kinds, read[k])))
    labels = {
        name: [", ".join(each.index[classes[name] == k]) for k in range(n)]
        for n, (name, each) in zip(shape, values.items(), strict=True)
    }
    single = (classes[method.attribute].value_counts(sort=False) == 1).to_numpy()
    return Counted(labels, single, counts, names.index(method.attribute), tuple(tables))


def _read_table(path: Path, method: TableMethod) -> pd.Series[int]:
    """Return the counts of a table by its keys."""
    try:
        content = io.BytesIO(read_file(path, LIMITS.table_bytes))
        frame = pd.read_csv(content, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"{path} is no CSV file in UTF-8: {error}") from None
    names = [*method.by, method.count]
    if sorted(frame.columns) != sorted(names) or frame.isna().any(axis=None):
        raise ValueError(
            f"{path} has the columns {[*frame.columns]}: must have {names}, each once and in each "
            "line; leave out others, which could reveal more than this command computes"
        )
    counts = frame.set_index([*method.columns])[method.count].str.strip()
    if not (right := counts.str.fullmatch(r"(?:[0-9]{1,9}(?:\.0*)?)?")).all():
        raise ValueError(
            f"{path} has the count {counts[~right].iloc[0]!r}: must be a whole number from 0 to "
            "999,999,999, or empty if it is suppressed"
        )
    if counts.index.has_duplicates:
        raise ValueError(f"{path} has two lines with the same keys; leave one count of each cell")
    return counts.str.partition(".")[0].replace("", str(EMPTY)).astype(np.int64)


def _categories(name: str, method: Method, read: Sequence[pd.Series[int]]) -> pd.DataFrame:
    """Return the public values of a column, and their category in each table that has it."""
    values = dict.fromkeys(method.values.get(name, ()))
    for one, table in zip(method.table, read, strict=True):
        if name in one.map:
            values |= dict.fromkeys(v for part in one.map[name].values() for v in part)
        elif name in one.by and name not in method.values:
            keys = {*table.index.get_level_values(name)}
            values |= dict.fromkeys(
                sorted(keys - ({one.total_label} if one.total == name else set()))
            )
    frame = pd.DataFrame(index=[*values])
    for k, one in enumerate(method.table):
        if name in one.by:
            pairs = [(v, kind) for kind, part in one.map.get(name, {}).items() for v in part]
            frame[k] = frame.index.map(dict(pairs)) if pairs else frame.index
            if len(pairs) > len(dict(pairs)) or frame[k].isna().any():
                raise ValueError(
                    f"table[{k}].map.{name} must have each of these values in one category: "
                    f"{', '.join(values)}"
                )
    if frame.empty:
        raise ValueError(f"the tables list no value of {name!r}; give [values] {name} = [...]")
    return frame


def _count(
    data: str, method: Method, classes: Mapping[str, pd.Series[int]], shape: tuple[int, ...]
) -> Integers:
    """Count the rows of the data by class."""
    names = [*classes]
    rows = "_".join([*names, "rows"])  # longer than the other names
    table: Any = open_table(as_source(data), columns=names)
    try:
        grouped = table.group_by(names).aggregate(**{rows: table.count()})
        found = grouped.limit(LIMITS.combinations + 1).to_pyarrow().to_pydict()
    finally:
        close_table(table)
    numbers = np.array(found[rows], np.int64)
    if len(numbers) > LIMITS.combinations:
        raise ValueError(
            f"the rows have more than {LIMITS.combinations:,} different combinations of "
            f"{', '.join(names)}; give the rows of one region"
        )
    places: list[Any] = []
    for name, of in classes.items():
        place = of.reindex([_text(value, method.missing) for value in found[name]]).to_numpy()
        if lost := int(numbers[np.isnan(place)].sum()):
            raise ValueError(
                f"{lost:,} rows of the data have a {name!r} that neither the method nor a table "
                "lists; list it in [values] or a map, and name a missing value: missing = 'none'"
            )
        places.append(place.astype(np.int64))
    flat = np.ravel_multi_index(places, shape)
    return np.bincount(flat, numbers, math.prod(shape)).astype(np.int64).reshape(shape)


def _text(value: object, missing: str | None) -> str | None:
    """Return a value of the data as a table writes it."""
    if value is None or value != value or value == "":
        return missing
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _published(
    path: Path, method: TableMethod, kinds: Mapping[str, Any], counts: pd.Series[int]
) -> Integers:
    """Return the published counts, a row per line. A count that is not there is 0."""
    keys = {
        name: [*of, *([method.total_label] if name == method.total else [])]
        for name, of in kinds.items()
    }
    for name, known in keys.items():
        for text in counts.index.unique(name):
            if text not in known:
                raise ValueError(
                    f"{path}: {name} = {text!r} is no category; {suggest(text, known)}"
                )
        if len({*known}) < len(known):
            raise ValueError(f"{path}: {known[-1]!r} is also a category; give another total_label")
    *_, last = keys.values()
    index = pd.MultiIndex.from_product(keys.values()) if len(keys) > 1 else last
    cells = counts.reindex(index, fill_value=0).to_numpy()
    return cells.reshape(-1, len(last) if method.total or method.swap else 1)
