"""A public hierarchy: nested levels of places, listed in advance, one row a lowest-level place."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

__all__ = ["Hierarchy", "HierarchyError", "read_rows"]


class HierarchyError(ValueError):
    """A public hierarchy that is not one; says the row, the value and what would be right."""


@dataclass(frozen=True)
class Hierarchy:
    """Public places on nested levels.

    A place is known by its path from the top: counties of one name in two states are two places.

    Args:
        name: what the plan calls it.
        levels: level names, top first.
        rows: for each lowest-level place, its name on every level, top first.
        unknown: index of the place that rows with an unlisted path go to; None drops them.
    """

    name: str
    levels: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    unknown: int | None = None

    def __post_init__(self) -> None:
        if not self.rows:
            raise HierarchyError("keys lists no place; give a row for each lowest-level place")
        seen: dict[tuple[str, ...], int] = {}
        for number, row in enumerate(self.rows, 1):
            _check_row(number, row, self.levels)
            if row in seen:
                raise HierarchyError(
                    f"row {number} repeats row {seen[row]}: {' > '.join(row)!r}; "
                    "each lowest-level place is listed once"
                )
            seen[row] = number

    def depth(self, level: str) -> int:
        """Position of a level, 0 at the top."""
        return self.levels.index(level)

    def paths(self, level: str) -> tuple[tuple[str, ...], ...]:
        """Places of a level, each as its path from the top, in order of first appearance."""
        return self._places[self.depth(level)][0]

    def codes(self, level: str) -> np.ndarray:
        """For each row of ``rows``, the index of its place in ``paths(level)``."""
        return self._places[self.depth(level)][1]

    def parents(self, lower: str, upper: str) -> np.ndarray:
        """For each place of ``lower``, the index of the place of ``upper`` that contains it."""
        found = np.empty(len(self.paths(lower)), dtype=np.int64)
        found[self.codes(lower)] = self.codes(upper)
        return found

    @cached_property
    def _places(self) -> tuple[tuple[tuple[tuple[str, ...], ...], np.ndarray], ...]:
        found = []
        for length in range(1, len(self.levels) + 1):
            index: dict[tuple[str, ...], int] = {}
            codes = [index.setdefault(row[:length], len(index)) for row in self.rows]
            found.append((tuple(index), np.array(codes, dtype=np.int64)))
        return tuple(found)


def read_rows(path: Path, levels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The rows of a public CSV file (UTF-8, a header, a column for each level).

    Raises:
        HierarchyError: the file is missing, not text, lacks a column or has a ragged row.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise HierarchyError(
            f"cannot read {str(path)!r} ({error}); "
            "give a CSV file in UTF-8, its path relative to the plan"
        ) from None
    header = lines[0] if lines else []
    missing = [level for level in levels if level not in header]
    if missing:
        raise HierarchyError(
            f"{str(path)!r} has no column {missing[0]!r}; its columns are {header}, "
            f"and there must be one for each of the levels {list(levels)}"
        )
    if len(set(header)) < len(header):
        raise HierarchyError(f"{str(path)!r} names a column twice: {header}")
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(header):
            raise HierarchyError(
                f"{str(path)!r} row {number} has {len(line)} values, not {len(header)}: {line}"
            )
    picked = [header.index(level) for level in levels]
    return tuple(tuple(line[i] for i in picked) for line in lines[1:])


def _check_row(number: int, row: Sequence[str], levels: Sequence[str]) -> None:
    if len(row) != len(levels):
        raise HierarchyError(
            f"row {number} has {len(row)} values, {list(row)!r}; the levels are {list(levels)}"
        )
    lowest = row[-1]
    for level, value in zip(levels, row, strict=True):
        if not value.strip():
            what = "has no name" if level == levels[-1] else f"{lowest!r} is an orphan: it"
            what = what if level == levels[-1] else f"{what} has no {level}"
            raise HierarchyError(
                f"row {number} {what} ({level} = {value!r}); every place needs a name on each level"
            )
        if value != value.strip():
            raise HierarchyError(
                f"row {number} has {level} = {value!r} with blanks around it, which makes it "
                f"another place than {value.strip()!r}; take them out"
            )
