"""Read CSV files line by line: each line is a record, whatever the other lines hold.

The fast readers guess a dialect from the content, stop at an ill-formed row, or let a stray quote
absorb the rows after it. One person's record would then affect other records. Here each line is
read separately. So one line more or less changes one row, and a value cannot contain a line break.

Only the end of a gzip file proves that the file is complete. So it is decompressed to its end
before the charge, but only its header is read. Any rows make a complete gzip file, so the content
cannot decide whether the file is refused.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neyman.numerics.arrays import Integers
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE, SourcePart

_CHUNK_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 20  # the most bytes of a line that is read
_GZIP = b"\x1f\x8b"
# pyright does not see the functions that Arrow makes on import.
_compute: Any = pc
_KIND = pa.dictionary(pa.int32(), pa.large_string())  # each distinct text once


class DataError(ValueError):
    """Report data whose form (not content) does not fit the plan, such as a missing column."""


def fault(error: Exception, text: str) -> Exception:
    """Return the error to raise in place of an error of a library.

    A raised warning, a lack of memory or of a package, and an error of the system are not faults of
    the data. They are returned unchanged. Any other error becomes a `DataError` with the text.
    """
    of_system = isinstance(error, OSError) and error.errno is not None
    if of_system or isinstance(error, (Warning, MemoryError, ImportError)):
        return error
    return DataError(text)


def cause(error: Exception) -> str:
    """Return the type and first line of an error.

    The caller ensures that they contain no private value.
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


class MissingColumn(DataError):
    """Report data without a column that the plan uses.

    The message does not show the present names: without a header they are someone's row.
    """

    def __init__(self, column: str, present: Sequence[str], data: str = "data") -> None:
        wanted = column.strip().casefold()
        same = [name for name in present if name.strip().casefold() == wanted]
        meant = f"; is {same[0]!r} meant?" if same else "; does the data start with column names?"
        if len(present) == 1 and any(mark in present[0] for mark in ",;\t|"):
            meant = "; does the plan's [source] declare the delimiter that separates its values?"
        super().__init__(f"{data} has no column {column!r} among its {len(present)}{meant}")
        self.column = column


def check_names(present: Sequence[str], columns: Iterable[str], data: str = "data") -> None:
    """Raise DataError if one of the columns is missing, or several present ones share its name."""
    counts = Counter(name.casefold() for name in present)
    exact = set(present)
    for name in columns:
        if name not in exact:
            raise MissingColumn(name, present, data)
        count = counts[name.casefold()]
        if count > 1:
            raise DataError(
                f"{data} has {count} columns called {name!r} if case is ignored; give each its own "
                "name"
            )


@dataclass(frozen=True)
class Patterns:
    """Hold the regular expressions of rows, values, and unclosed quotes for one delimiter."""

    row: re.Pattern[bytes]  # an entire line with its quotes in pairs
    values: re.Pattern[bytes]  # each value of such a line
    unclosed: re.Pattern[bytes]  # an entire line whose last value has no closing quote


@cache
def patterns(delimiter: str) -> Patterns:
    """Return the regular expressions of lines for a delimiter."""
    mark = re.escape(delimiter.encode())
    quoted = rb'"[^"]*+(?:""[^"]*+)*+'
    value = b"(?:" + quoted + b'"|[^"' + mark + b"]*+)"
    return Patterns(
        re.compile(value + b"(?:" + mark + value + b")*+"),
        re.compile(rb"(?:\A|" + mark + b")(" + value + b")"),
        re.compile(b"(?:" + value + mark + b")*+" + quoted),
    )


def read_csv(
    path: str,
    columns: Sequence[str] | None = None,
    *,
    rows: bool = True,
    source: SourcePart = PLAIN_SOURCE,
) -> pa.Table:
    """Return columns of a CSV file as a table of texts.

    The file has a header, then lines that end with LF or CRLF. A value that begins with a quote
    ends with a quote, and its inner quotes are doubled. Blank and ill-formed lines are dropped. A
    line is ill-formed if it has another number of values than the header, other quotes, a carriage
    return, or more than a mebibyte. An empty or undecodable value is missing.

    Args:
        columns: the names of the columns to read; None for all.
        rows: False for no rows. Then only the header is read, and a compressed file is decompressed
            to its end, so that a damaged file is refused.
        source: the delimiter, the encoding, and the compression; `form_of` completes it.

    Raises:
        DataError: the file or its header cannot be read, a column is missing or several share its
            name, or the file is not compressed as declared.
    """
    source = form_of(path, source)
    with opened(path, source) as (file, names):
        check_names(names, columns or (), f"data = {path!r}")
        picked_names = names if columns is None else list(columns)
        # Without a column a table has no rows, so the first one stands for none.
        picked = [names.index(name) for name in picked_names] or [0]
        picked_names = picked_names or [""]
        schema = pa.schema([(name, _KIND) for name in picked_names])
        parts: list[pa.Table] = []
        for text in blocks(file) if rows else ():
            block = parsed(text, len(names), picked, source.delimiter)
            coded, encoding = [block.values(i) for i in picked], source.encoding
            texts = [without_empty(one.indices, decoded(one.dictionary, encoding)) for one in coded]
            parts.append(pa.table(texts, schema=schema))
        if not rows and source.compression != "none":
            while file.read(_CHUNK_BYTES):
                pass
    return pa.concat_tables([schema.empty_table(), *parts]).unify_dictionaries()


def header_of(path: str, source: SourcePart = PLAIN_SOURCE) -> list[str]:
    """Return the names of the columns of a CSV file."""
    with opened(path, form_of(path, source)) as (_, names):
        return names


def form_of(path: str, source: SourcePart) -> SourcePart:
    """Return the declared form of a CSV file, or else the form that its name implies.

    A name that ends in .tsv means tabs, and .gz means compression. The content never decides,
    because it is private.
    """
    if source.form != PLAIN_SOURCE:
        return source
    kind, packed = suffix_of(path)
    return SourcePart(
        delimiter="\t" if kind == ".tsv" else ",", compression="gzip" if packed else "none"
    )


def suffix_of(path: str | Path) -> tuple[str, bool]:
    """Return a file name's suffix before any .gz, and True if the name ends in .gz."""
    suffixes = ["", *(suffix.lower() for suffix in Path(path).suffixes)]
    packed = suffixes[-1] == ".gz"
    return suffixes[-2] if packed else suffixes[-1], packed


@contextmanager
def opened(path: str, source: SourcePart) -> Generator[tuple[BinaryIO, list[str]]]:
    """Open a CSV file. Yield its decompressed bytes after the header, and the column names."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if packed and source.compression == "none":
                raise DataError(
                    f"data = {path!r} is compressed; declare compression = 'gzip' in the plan's "
                    "[source], or decompress the file"
                )
            if source.compression == "none":
                yield raw, _header(path, raw, source)
                return
            if not packed:
                raise gzip.BadGzipFile
            with gzip.open(raw) as file:
                yield cast(BinaryIO, file), _header(path, cast(BinaryIO, file), source)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(
            f"data = {path!r} is not a whole gzip file, but its name or the plan's [source] "
            "says that it is one; is it damaged, cut off, or not compressed?"
        ) from None
    except OSError as error:
        raise DataError(f"data = {path!r} cannot be read: {error.strerror}") from None


def _header(path: str, file: BinaryIO, source: SourcePart) -> list[str]:
    line = file.readline(MAX_LINE_BYTES + 2).removesuffix(b"\n")
    if source.encoding == "utf-8":
        line = line.removeprefix(b"\xef\xbb\xbf")
    values = split(line.removesuffix(b"\r"), source.delimiter)
    try:
        names = [value.decode(source.encoding) for value in values or ()]
    except UnicodeDecodeError:
        names = []
    if not names or len(line) > MAX_LINE_BYTES:
        raise DataError(
            f"data = {path!r}: the first line is not a header: it must be "
            f"{source.encoding.upper()}, at most a mebibyte long, with its quotes in pairs, and "
            "end with LF or CRLF"
        )
    return names


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield parts of a file: entire lines that end with LF. A line that is too long may be cut."""
    left = b""
    while block := file.read(_CHUNK_BYTES):
        text = left + block
        cut = text.rfind(b"\n") + 1
        if cut:
            yield text[:cut]
        left = text[cut : cut + MAX_LINE_BYTES + 1]
    if left:
        yield left + b"\n"


def split(line: bytes, delimiter: str) -> list[bytes] | None:
    """Return the values of one line; None if it is ill-formed."""
    pattern = patterns(delimiter)
    if b"\r" in line or not pattern.row.fullmatch(line):
        return None
    return [
        value[1:-1].replace(b'""', b'"') if value[:1] == b'"' else value
        for value in pattern.values.findall(line)
    ]


@dataclass(frozen=True)
class Block:
    """Represent some lines of a file. A row is a line that is not ill-formed (see `read_csv`).

    Args:
        starts, ends: the positions in ``text`` of each line's first byte and LF.
        rows: for each row, the number of its line, from 0.
        bounds: by column, the positions in ``text`` where the values of the first rows start and
            end.
        others: the values of the remaining rows, which have quotes inside quotes.
    """

    text: bytes
    starts: Integers
    ends: Integers
    rows: Integers
    bounds: dict[int, tuple[Integers, Integers]]
    others: list[list[bytes]]

    def values(self, column: int) -> pa.Array:
        """Return the bytes of a column's value in each row, as a dictionary array."""
        left, right = self.bounds[column]
        # Build an array over the entire text. Every other entry is a value of the column.
        offsets = np.stack([left, right], axis=1).reshape(-1).astype(np.int32)
        values: Any = pa.array([], pa.binary())
        if len(left):
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.text)]
            between = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
            values = between.take(pa.array(np.arange(0, len(offsets) - 1, 2)))
        more = pa.array([row[column] for row in self.others], pa.binary())
        return pa.concat_arrays([values, more]).dictionary_encode()

    def dropped(self) -> Integers:
        """Return the numbers of the lines that are not rows, from 0."""
        return np.setdiff1d(np.arange(len(self.starts)), self.rows)


def parsed(text: bytes, width: int, picked: Sequence[int], delimiter: str) -> Block:
    """Parse entire lines. The rows are the lines with ``width`` values.

    ``picked`` has the positions of the columns to read.
    """
    data = np.frombuffer(text, np.uint8)
    feeds = np.flatnonzero(data == ord("\n"))
    starts = heads = np.append(0, feeds[:-1] + 1)
    ends = feeds
    returns = np.flatnonzero(data == ord("\r"))
    last = np.isin(ends - 1, returns[data[returns + 1] == ord("\n")])
    returns = returns[data[returns + 1] != ord("\n")]
    lines = np.append(starts, len(data))
    complete = np.diff(np.searchsorted(returns, lines)) == 0
    complete &= (ends - starts <= MAX_LINE_BYTES) & (ends - last > starts)
    number = np.flatnonzero(complete)
    ends = (ends - last)[complete]
    starts = starts[complete]

    quotes = np.flatnonzero(data == ord('"'))
    marks = np.flatnonzero(data == ord(delimiter))
    plain = np.ones(len(starts), dtype=bool)
    if len(quotes):
        # A mark is inside quotes if an odd number of quotes precede it in its line.
        line = np.clip(np.searchsorted(starts, marks, "right") - 1, 0, None)
        before = np.searchsorted(quotes, marks)
        if len(starts):
            before = before - np.searchsorted(quotes, starts)[line]
        marks = marks[before % 2 == 0]
        plain = np.searchsorted(quotes, starts) == np.searchsorted(quotes, ends)
    first = np.searchsorted(marks, starts)
    fits = np.searchsorted(marks, ends) - first == width - 1
    simple = fits.copy()
    bounds: dict[int, tuple[Integers, Integers]] = {}
    for i in range(width) if len(quotes) else picked:
        left, right = starts.copy(), ends.copy()
        if i > 0:
            left[fits] = marks[first[fits] + i - 1] + 1
        if i < width - 1:
            right[fits] = marks[first[fits] + i]
        if len(quotes):
            inside = np.searchsorted(quotes, right) - np.searchsorted(quotes, left)
            around = (data[left] == ord('"')) & (data[right - 1] == ord('"')) & (right - left > 1)
            around &= inside == 2
            simple &= (inside == 0) | around
            left, right = left + around, right - around
        bounds[i] = left, right
    hard = np.flatnonzero(~simple & ~plain)
    values = [split(text[starts[i] : ends[i]], delimiter) for i in hard]
    fitting = [row is not None and len(row) == width for row in values]
    return Block(
        text,
        heads,
        feeds,
        np.append(number[simple], number[hard[np.array(fitting, dtype=bool)]]),
        {i: (bounds[i][0][simple], bounds[i][1][simple]) for i in picked},
        [row for row, fit in zip(values, fitting, strict=True) if fit and row is not None],
    )


def without_empty(indices: pa.Array, words: pa.Array) -> pa.DictionaryArray:
    """Return the words at these indices, as a dictionary array. An empty word is missing."""
    known = _compute.greater(_compute.binary_length(words), 0)
    places = _compute.if_else(known, pa.array(np.arange(len(words), dtype=np.int32)), None)
    return pa.DictionaryArray.from_arrays(places.take(indices), words)


def decoded(words: pa.Array, encoding: str) -> pa.Array:
    """Return texts for bytes. A text is empty if its bytes cannot be decoded."""
    if encoding == "utf-8":
        with suppress(pa.ArrowInvalid):
            return words.cast(pa.large_string())
    return pa.array([_word(word, encoding) for word in words.to_pylist()], pa.large_string())


def _word(word: bytes, encoding: str) -> str:
    try:
        return word.decode(encoding)
    except UnicodeDecodeError:
        return ""
