"""Compute tables whose groups differ in detail, from the published first counts of the groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from neyman.publishing.engines.cells import Cells, added
from neyman.publishing.release.table_files import listing
from neyman.publishing.tables.forms import Form, integers

Key = tuple[str, str, str]


def forms_with_first_counts(
    tables: Sequence[Form], folder: Path, check: Callable[[Form, Path], None] = lambda f, p: None
) -> tuple[Form, ...]:
    """Return the forms with the levels of detail that follow from published first counts [UN-12].

    The function calls ``check`` before it reads a file.
    """
    by_name = {(form.query.name, form.level): form for form in tables}
    changed: list[Form] = []
    for form in tables:
        if form.query.detail is None:
            changed.append(form)
            continue
        first = by_name[form.query.detail.first, form.level]
        path = folder / listing(first.query.name, first.level, first.rows)[0].path
        check(first, path)
        table = pq.read_table(path, columns=["value"], use_threads=False)
        changed.append(replace(form, first_counts=integers(table.column("value"))))
    return tuple(changed)


def detailed_cells(
    tables: Sequence[Form], cells: Mapping[Key, Cells]
) -> Iterator[tuple[Key, Cells]]:
    """Yield the cells of each table with detail, selected from the counts at each level."""
    for form in tables:
        if form.query.detail is None:
            continue
        sizes, starts = form.plan.detail_sizes(form.query), form.starts
        index: list[np.ndarray] = []
        values: list[np.ndarray] = []
        for number, (size, query) in enumerate(zip(sizes, form.query.counted, strict=True)):
            part = cells[query.name, form.level, "count"]
            group, inside = np.divmod(part.index, size)
            here = form.detail_levels[group] == number
            index.append((starts[group] + inside)[here])
            values.append(part.values[here])
        joint = added(form.cells, np.concatenate(index), np.concatenate(values))
        yield (form.query.name, form.level, "count"), joint
