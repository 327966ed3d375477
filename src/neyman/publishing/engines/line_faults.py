"""List the lines of CSV files that are not rows, with reasons, and undecodable values.

A line is listed if `csv_reader.parsed` drops it. Each reason follows from the line alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from neyman.publishing.engines import csv_reader as lines
from neyman.publishing.engines.private_tables import Private
from neyman.publishing.plan.plan_fields import SourcePart

Reason = Literal[
    "blank line", "too long", "carriage return", "unclosed quote", "bare quote", "too few fields",
    "too many fields", "not text",
]  # fmt: skip

REASONS: Mapping[Reason, str] = {
    "blank line": "the line is empty",
    "too long": "the line is longer than a mebibyte",
    "carriage return": "a carriage return inside the line",
    "unclosed quote": "a quoted value does not end on its line: a line break inside quotes, or a "
    "stray quote",
    "bare quote": "a quote inside a value: a stray quote, or the end of a value with a line break",
    "too few fields": "fewer values than the header",
    "too many fields": "more values than the header",
    "not text": "a value that the plan needs cannot be decoded; the row counts, its value is "
    "missing",
}
"""The meaning of each reason."""

_compute: Any = pc


@dataclass(frozen=True, repr=False)
class LineFault(Private):
    """Report a line that is not a row, or a value that cannot be decoded as text.

    Args:
        file: the file.
        line: the number of the line. The header is line 1.
        reason: one of `REASONS`.
        column: the column of the undecodable value; None if the line is dropped.
    """

    file: str
    line: int
    reason: Reason
    column: str | None = None


@dataclass(frozen=True, repr=False)
class Lines(Private):
    """Count the lines of CSV files after their headers.

    Args:
        read: the number of lines.
        rows: the number of these lines that are rows.
        reasons: the number of lines per reason (for "not text": the number of values).
        listed: the first lines of each reason.
    """

    read: int
    rows: int
    reasons: Mapping[Reason, int]
    listed: tuple[LineFault, ...]

    @property
    def dropped(self) -> int:
        """Return the number of lines that are not rows."""
        return self.read - self.rows


def line_faults(
    files: Sequence[str], columns: Sequence[str], source: SourcePart, most: int
) -> Lines:
    """Count the lines of CSV files, and list the lines that are not rows, with reasons.

    Args:
        columns: the columns whose values must be decodable.
        most: the largest number of lines to list per reason, at least 0.
    """
    read = rows = 0
    reasons: Counter[Reason] = Counter()
    listed: list[LineFault] = []
    for path in files:
        form = lines.form_of(path, source)
        with lines.opened(path, form) as (file, names):
            picked = [names.index(name) for name in names if name in columns]
            line = 2
            for text in lines.blocks(file):
                block = lines.parsed(text, len(names), picked, form.delimiter)
                for at, reason, column in _faults(block, len(names), picked, form):
                    reasons[reason] += 1
                    if reasons[reason] <= most:
                        name = None if column is None else names[column]
                        listed.append(LineFault(path, line + at, reason, name))
                read += len(block.starts)
                rows += len(block.rows)
                line += len(block.starts)
    order = {path: i for i, path in enumerate(files)}
    listed.sort(key=lambda fault: (order[fault.file], fault.line))
    return Lines(read, rows, dict(reasons.most_common()), tuple(listed))


def _faults(
    block: lines.Block, width: int, picked: Sequence[int], source: SourcePart
) -> Iterator[tuple[int, Reason, int | None]]:
    """Yield (line number in the block, reason, column position or None) for each fault.

    ``picked`` has the positions of the columns to decode.
    """
    for i in block.dropped():
        line = block.text[block.starts[i] : block.ends[i]]
        yield int(i), _reason(line, width, source.delimiter), None
    for column in picked:
        encoded = block.values(column)
        words = lines.decoded(encoded.dictionary, source.encoding)
        blank = _compute.equal(_compute.binary_length(words), 0)
        lost = _compute.and_(blank, _compute.greater(_compute.binary_length(encoded.dictionary), 0))
        at = np.flatnonzero(lost.take(encoded.indices).to_numpy(zero_copy_only=False))
        for i in np.sort(block.rows[at]):
            yield int(i), "not text", column


def _reason(line: bytes, width: int, delimiter: str) -> Reason:
    if len(line) > lines.MAX_LINE_BYTES:
        return "too long"
    line = line.removesuffix(b"\r")
    if not line:
        return "blank line"
    if b"\r" in line:
        return "carriage return"
    values = lines.split(line, delimiter)
    if values is None:
        closed = lines.patterns(delimiter).unclosed.fullmatch(line) is None
        return "bare quote" if closed else "unclosed quote"
    return "too few fields" if len(values) < width else "too many fields"
