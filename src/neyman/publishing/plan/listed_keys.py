"""List public keys from a range or a file.

The published plan contains the keys themselves. So a range, a file, and a list with the same keys
give the same plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from neyman.publishing.plan.hierarchy import HierarchyError, KeyFile, read_rows
from neyman.publishing.plan.row_expression import PERIODS

MAX_RANGE_KEYS = 1_000_000  # the most keys of a range

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Listed:
    """Hold the keys of a column, and their file, if any."""

    keys: tuple[str | int, ...]
    file: KeyFile | None = field(default=None, compare=False)


def range_keys(first: int | date, last: int | date, step: int | str | None) -> Listed:
    """List the keys from ``first`` to ``last``, both included. The default step is 1 or "day"."""
    if isinstance(first, date) and isinstance(last, date):
        if first > last:
            raise HierarchyError(f"from = {first} must be at most to = {last}")
        return Listed(tuple(_periods(first, last, step)))
    if isinstance(first, date) or isinstance(last, date):
        raise HierarchyError(f"from = {first} and to = {last} must both be numbers or both dates")
    if first > last:
        raise HierarchyError(f"from = {first} must be at most to = {last}")
    if isinstance(step, str):
        raise HierarchyError(f"step = {step!r} is for dates; give a whole number of at least 1")
    _check_size(first, last, (last - first) // (step or 1) + 1)
    return Listed(tuple(range(first, last + 1, step or 1)))


def _check_size(first: object, last: object, number: int) -> None:
    if number > MAX_RANGE_KEYS:
        raise HierarchyError(
            f"from = {first} to = {last} lists {number} keys, and the most is {MAX_RANGE_KEYS}; a "
            "release publishes each of them: take a narrower range, or a larger step"
        )


def period(day: date, unit: str) -> str:
    """Return the text of a date's day, month, quarter, or year: 2024-12-31, 2024-12, 2024-Q4."""
    year = f"{day.year:04}"
    if unit == "year":
        return year
    if unit == "quarter":
        return f"{year}-Q{(day.month + 2) // 3}"
    return f"{year}-{day.month:02}" if unit == "month" else day.isoformat()


def is_period(key: str, unit: str) -> bool:
    """Return True if the key is the text that `period` gives some date."""
    parts = re.fullmatch(r"([0-9]{4})(?:-Q([1-4])|-([0-9]{2})(?:-([0-9]{2}))?)?", key)
    if parts is None:
        return False
    year, quarter, month, day = (int(part or 0) for part in parts.groups())
    try:
        return period(date(year, 3 * quarter or month or 1, day or 1), unit) == key
    except ValueError:
        return False


def _periods(first: date, last: date, step: int | str | None) -> Iterator[str]:
    unit = step or "day"
    if unit not in PERIODS:
        raise HierarchyError(f"step = {step!r} is for numbers; of dates it is one of {PERIODS}")
    if unit == "day":
        days = (last - first).days + 1
        _check_size(first, last, days)
        yield from (period(first + timedelta(days=day), unit) for day in range(days))
        return
    months = {"month": 1, "quarter": 3, "year": 12}[str(unit)]
    start, end = (day.year * 12 + day.month - 1 for day in (first, last))
    for month in range(start - start % months, end + 1, months):
        yield period(date(month // 12, month % 12 + 1, 1), str(unit))


def file_keys(path: str, column: str, folder: Path, *, integer: bool = False) -> Listed:
    """List the keys in a column of a public CSV file. No key may be blank, padded, or repeated."""
    rows, file = read_rows(path, (column,), folder)
    if not rows:
        raise HierarchyError(f"{path!r} lists no key; give a row for each")
    lines: dict[str, int] = {}
    numbers: dict[int, int] = {}
    for number, (text,) in enumerate(rows, 1):
        spot = f"{path!r} row {number} has {column} = {text!r}"
        if not text.strip():
            raise HierarchyError(f"{spot}: a key must not be blank; take the row out")
        if text != text.strip():
            raise HierarchyError(
                f"{spot} with blanks around it, which makes it another key than {text.strip()!r}; "
                "take them out"
            )
        if integer and not _INTEGER.fullmatch(text):
            raise HierarchyError(
                f"{spot}: must be a whole number of at most 18 digits; leave integer out for text"
            )
        before = lines.setdefault(text, number)
        if integer:
            before = numbers.setdefault(int(text), number)
        if before != number:
            raise HierarchyError(f"{spot}, like row {before}; list each key once")
    return Listed(tuple(numbers) if integer else tuple(lines), file)
