"""Compute tables whose groups differ in detail, from the published first counts of the groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from neyman.publishing.engines.cells import Cells, added
from neyman.publishing.release.table_files import FileCheck, published_integers
from neyman.publishing.tables.forms import Form

Key = tuple[str, str, str]


def forms_with_first_counts(
    tables: Sequence[Form], folder: Path, check: FileCheck | None = None
) -> tuple[Form, ...]:
    """Return each table's `Form`, with detail that follows from published first counts [UN-12].

    ``check`` is as for `published_integers`.
    """
    by_name = {(form.query.name, form.level): form for form in tables}
    changed: list[Form] = []
    for form in tables:
        if form.query.detail is None:
            changed.append(form)
            continue
        first = by_name[form.query.detail.first, form.level]
        counts = published_integers(first, folder, check)
        changed.append(replace(form, first_counts=counts))
    return tuple(changed)


def detailed_cells(
    tables: Sequence[Form], cells: Mapping[Key, Cells]
) -> Iterator[tuple[Key, Cells]]:
    """Yield the key and the cells of each table that has levels of detail.

    The cells are each group's counts, at the level of detail of this group.
    """
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
