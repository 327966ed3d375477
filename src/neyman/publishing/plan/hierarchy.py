"""Represent public hierarchies: nested levels of places, with one row per lowest place.

A place may end above the lowest level, as a state without counties. Its name below is "".

A plan may have several hierarchies, such as places and industries. Then a table's level is a level
of one hierarchy, or a combination such as "state x sector", whose last part varies fastest.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from neyman.storage.reading import open_file

MAX_KEY_FILE_BYTES = 2**28  # the most bytes of a key file
CROSSED = " x "  # between the levels of different hierarchies
ALL = "all"  # the level name of a table that no level splits

_RIGHT = "give a CSV file in UTF-8, its path relative to the plan"
_INTEGER = re.compile(r"-?[0-9]{1,40}", re.ASCII)


class HierarchyError(ValueError):
    """Report an invalid public hierarchy: the row, the value, and a valid alternative."""


@dataclass(frozen=True)
class KeyFile:
    """Identify a file of public keys by its path in the plan, its device, and its inode."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True)
class Hierarchy:
    """Represent public places on nested levels.

    A place is known by its path from the top. So counties of one name in two states are two places.

    Args:
        levels: level names, top first.
        rows: for each lowest place, its name on every level, top first; "" on levels below it.
        unknown: index of the place for rows with an unlisted path; None drops these rows.
        integer: the levels whose names are integers: 7.0 and 007 in the data are 7.
    """

    name: str
    levels: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    unknown: int | None = None
    integer: tuple[str, ...] = ()
    file: KeyFile | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.rows:
            raise HierarchyError("keys lists no place; give a row for each lowest-level place")
        numbers: dict[tuple[str, ...], int] = {}
        for number, row in enumerate(self.rows, 1):
            _check_row(number, row, self.levels)
            if row in numbers:
                raise HierarchyError(
                    f"row {number} repeats row {numbers[row]}: {' > '.join(row)!r}; "
                    "each lowest-level place is listed once"
                )
            numbers[row] = number
        for level, names in zip(self.levels, zip(*self.rows, strict=True), strict=True):
            if not any(names):
                raise HierarchyError(
                    f"row 1 has no name ({level} = ''), nor has any other row; leave the level out"
                )
        for level in self.integer:
            self._check_integer(level)

    def _check_integer(self, level: str) -> None:
        numbers: dict[int, str] = {}
        for number, row in enumerate(self.rows, 1):
            name = row[self.depth(level)]
            if not name:
                continue
            if not _INTEGER.fullmatch(name):
                raise HierarchyError(
                    f"row {number} has {level} = {name!r}, and integer lists {level!r}: write a "
                    "whole number of at most 40 digits, or take the level out of integer"
                )
            twin = numbers.setdefault(int(name), name)
            if twin != name:
                raise HierarchyError(
                    f"row {number} has {level} = {name!r}, which is the same number as {twin!r}; "
                    "write one number in one way, or take the level out of integer"
                )

    def key(self, level: str, name: str) -> str:
        """Return a place's name for comparisons. On an integer level, drop leading zeros."""
        return str(int(name)) if name and level in self.integer else name

    def to_dict(self) -> dict[str, object]:
        """Return the hierarchy's section in a canonical plan."""
        section: dict[str, object] = {"levels": list(self.levels)}
        section["keys"] = [list(row) for row in self.rows]
        section["unknown"] = "drop" if self.unknown is None else self.path(self.unknown)
        return section | ({"integer": list(self.integer)} if self.integer else {})

    def path(self, place: int) -> list[str]:
        """Return the names of a lowest place, from the top level to its own."""
        return [name for name in self.rows[place] if name]

    def has_blanks(self, level: str) -> bool:
        """Return True if a place ends above this level."""
        return not all(row[self.depth(level)] for row in self.rows)

    def depth(self, level: str) -> int:
        """Return the position of a level, 0 at the top."""
        return self.levels.index(level)

    def paths(self, level: str) -> tuple[tuple[str, ...], ...]:
        """Return the places of a level as paths from the top, in order of first appearance."""
        return self._places[self.depth(level)][0]

    def codes(self, level: str) -> np.ndarray:
        """Return, for each lowest-level place, the index in ``paths(level)`` of its place there."""
        return self._places[self.depth(level)][1]

    def parents(self, lower: str, upper: str) -> np.ndarray:
        """Return, for each place of level ``lower``, the index of the ``upper`` place around it."""
        parents = np.empty(len(self.paths(lower)), dtype=np.int64)
        parents[self.codes(lower)] = self.codes(upper)
        return parents

    @cached_property
    def _places(self) -> tuple[tuple[tuple[tuple[str, ...], ...], np.ndarray], ...]:
        places: list[tuple[tuple[tuple[str, ...], ...], np.ndarray]] = []
        for length in range(1, len(self.levels) + 1):
            index: dict[tuple[str, ...], int] = {}
            codes = [index.setdefault(row[:length], len(index)) for row in self.rows]
            places.append((tuple(index), np.array(codes, dtype=np.int64)))
        return tuple(places)


def parts_of(hierarchies: Sequence[Hierarchy], level: str) -> tuple[tuple[Hierarchy, str], ...]:
    """Split a level such as "state x sector" into pairs of a hierarchy and its level.

    Return no pairs for `ALL`.

    Raises:
        KeyError: ``level`` names no level, or combines two levels of one hierarchy.
    """
    if level == ALL:
        return ()
    names = [level] if len(hierarchies) == 1 else level.split(CROSSED)
    parts = [(one, name) for name in names for one in hierarchies if name in one.levels]
    if not len(parts) == len({one.name for one, _ in parts}) == len(names):
        raise KeyError(level)
    return tuple(parts)


def places_of(hierarchies: Sequence[Hierarchy], level: str) -> int:
    """Return the number of places at a level. For several hierarchies, count combinations."""
    return math.prod(len(one.paths(name)) for one, name in parts_of(hierarchies, level))


def is_above(hierarchies: Sequence[Hierarchy], upper: str, lower: str) -> bool:
    """Return True if each place of level ``lower`` is, or is within, one place of ``upper``."""
    below = {one.name: one.depth(name) for one, name in parts_of(hierarchies, lower)}
    above = parts_of(hierarchies, upper)
    return all(one.depth(name) <= below.get(one.name, -1) for one, name in above)


def read_rows(
    path: str, levels: Sequence[str], folder: Path
) -> tuple[tuple[tuple[str, ...], ...], KeyFile]:
    """Read the rows of a public CSV file (UTF-8, a header, a column for each level).

    The file must be in the plan's folder or below, and no link may lead out. So a plan can name no
    other file of the machine. Pipes and devices, which could block the reader, are refused.

    Raises:
        HierarchyError: the file cannot be read, lacks a column, or has a ragged row.
    """
    content, file = _content(path, folder)
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = [line for line in csv.reader(text, strict=True) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        # Show the reason of a decoding error, but no bytes: the file may be the wrong one.
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise HierarchyError(f"cannot read {path!r} ({reason}); {_RIGHT}") from None
    header = lines[0] if lines else []
    missing = [level for level in levels if level not in header]
    if missing:
        raise HierarchyError(
            f"{path!r} has no column {missing[0]!r}; its columns are {header}, "
            f"and there must be one for each of {list(levels)}"
        )
    if len(set(header)) < len(header):
        raise HierarchyError(f"{path!r} names a column twice: {header}")
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(header):
            raise HierarchyError(
                f"{path!r} row {number} has {len(line)} values, not {len(header)}: {line}"
            )
    picked = [header.index(level) for level in levels]
    return tuple(tuple(line[i] for i in picked) for line in lines[1:]), file


def _content(path: str, folder: Path) -> tuple[bytes, KeyFile]:
    """Return the bytes of a regular file in the folder or below, and the file's identity."""
    try:
        home, place = folder.resolve(strict=True), (folder / path).resolve(strict=True)
        if not place.is_relative_to(home):
            raise HierarchyError(
                f"{path!r} is not in the plan's folder or below; copy the public keys there, since "
                "a plan's keys are published and may not come from elsewhere"
            )
        if not stat.S_ISREG(place.stat().st_mode):  # opening a device may have effects
            raise HierarchyError(f"{path!r} is not a regular file; {_RIGHT}")
        # Opening does not block, even if a pipe replaces the file in between.
        with open_file(place, links=False) as file:
            status = os.fstat(file.fileno())
            content = (
                file.read(MAX_KEY_FILE_BYTES + 1) if status.st_size <= MAX_KEY_FILE_BYTES else b""
            )
            if max(status.st_size, len(content)) > MAX_KEY_FILE_BYTES:
                raise HierarchyError(
                    f"{path!r} is larger than {MAX_KEY_FILE_BYTES // 2**20} MiB, the most of a key "
                    "file; is it the list of public keys?"
                )
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, HierarchyError):
            raise
        reason = getattr(error, "strerror", None) or "no usable path"
        raise HierarchyError(f"cannot read {path!r} ({reason}); {_RIGHT}") from None
    return content, KeyFile(path, status.st_dev, status.st_ino)


def _check_row(number: int, row: Sequence[str], levels: Sequence[str]) -> None:
    if len(row) != len(levels):
        raise HierarchyError(
            f"row {number} has {len(row)} values, {list(row)!r}; the levels are {list(levels)}; "
            "write '' on the levels below a place that ends above the lowest one"
        )
    for depth, (level, value) in enumerate(zip(levels, row, strict=True)):
        below = [name for name in row[depth:] if name]
        if (below or not depth) and not value.strip():
            what = f"{below[-1]!r} is an orphan: it has no {level}" if below else "has no name"
            raise HierarchyError(
                f"row {number} {what} ({level} = {value!r}); every place needs a name on each "
                "level down to its own"
            )
        if value != value.strip():
            raise HierarchyError(
                f"row {number} has {level} = {value!r} with blanks around it, which makes it "
                f"another place than {value.strip()!r}; take them out"
            )
