"""CSV files, where each line is a record whatever the other lines are.

The fast readers guess a dialect from the content, stop at an ill-formed row, or let one stray quote
swallow the rows after it: one person's record would decide whether there is a release, or what
happens to others. Here a line is read by itself, so that a line more or less changes one row. The
price is that a value cannot have a line break in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["DataError", "missing", "read_csv"]

_CHUNK = 1 << 24
_LONGEST = 1 << 20
_VALUE = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^",]*+)'
_ROW = re.compile(_VALUE + rb"(?:," + _VALUE + rb")*+")
_VALUES = re.compile(rb"(?:\A|,)(" + _VALUE + rb")")
# pyright does not see the functions that Arrow makes on import.
_compute: Any = pc
_KIND = pa.dictionary(pa.int32(), pa.string())


class DataError(ValueError):
    """Data whose form (not content) does not fit the plan: a missing file, column or type."""


def missing(column: str, present: Sequence[str]) -> str:
    """What to say of a missing column.

    The names that are present are not printed: in a file without a header they are somebody's row.
    """
    same = [name for name in present if name.strip().casefold() == column.strip().casefold()]
    meant = f"; is {same[0]!r} meant?" if same else "; does the data start with column names?"
    if len(present) == 1 and any(mark in present[0] for mark in ";\t|"):
        meant = "; are its values separated by commas?"
    return f"data has no column {column!r} among its {len(present)}{meant}"


def read_csv(path: str, columns: Sequence[str] | None = None, *, rows: bool = True) -> pa.Table:
    """The columns of a CSV file as dictionaries of text.

    UTF-8, a header, values separated by commas; a line ends with LF or CRLF. A value that begins
    with a quote ends with one, and has its own quotes doubled. Dropped are blank lines and
    ill-formed ones: another number of values than the header, other quotes, a carriage return, or
    more than a mebibyte. A value that is empty or not UTF-8 is missing.

    Args:
        path: the file.
        columns: the names of those to read; None for all.
        rows: False for no rows; then only the header is read.

    Raises:
        DataError: the file or its header cannot be read, or a column is not there.
    """
    try:
        with open(path, "rb") as file:
            names = _header(path, file)
            for column in columns or ():
                if column not in names:
                    raise DataError(missing(column, names))
            picked = [names.index(name) for name in names if columns is None or name in columns]
            kept = [names[i] for i in picked]
            schema = pa.schema([(name, _KIND) for name in kept])
            parts = [
                pa.table(_columns(block, len(names), picked), schema=schema)
                for block in (_blocks(file) if rows else ())
            ]
    except OSError as error:
        raise DataError(f"data = {path!r} cannot be read: {error.strerror}") from None
    return pa.concat_tables([schema.empty_table(), *parts]).unify_dictionaries()


def _header(path: str, file: BinaryIO) -> list[str]:
    line = file.readline(_LONGEST + 2).removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")
    values = _split(line.removesuffix(b"\r"))
    try:
        names = [value.decode() for value in values or ()]
    except UnicodeDecodeError:
        names = []
    if not names or len(line) > _LONGEST:
        raise DataError(
            f"data = {path!r}: the first line is no header: it must be UTF-8, at most a mebibyte "
            "long, with its quotes in pairs, and end with LF or CRLF"
        )
    if len(set(names)) < len(names):
        raise DataError(
            f"data = {path!r}: two of the {len(names)} columns that its first line names have the "
            "same name; does the file start with column names, each once?"
        )
    return names


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, each with an LF at its end; of one that is too long anyway, a part."""
    left = b""
    while block := file.read(_CHUNK):
        text = left + block
        cut = text.rfind(b"\n") + 1
        if cut:
            yield text[:cut]
        left = text[cut : cut + _LONGEST + 1]
    if left:
        yield left + b"\n"


def _split(line: bytes) -> list[bytes] | None:
    """The values of one line by itself; None if it is ill-formed."""
    if b"\r" in line or not _ROW.fullmatch(line):
        return None
    return [
        value[1:-1].replace(b'""', b'"') if value[:1] == b'"' else value
        for value in _VALUES.findall(line)
    ]


def _columns(text: bytes, width: int, picked: list[int]) -> list[pa.Array]:
    """The picked columns of whole lines."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)
    returns = np.flatnonzero(data == ord("\r"))
    last = np.isin(ends - 1, returns[data[returns + 1] == ord("\n")])
    returns = returns[data[returns + 1] != ord("\n")]
    lines = np.append(starts, len(data))
    whole = np.diff(np.searchsorted(returns, lines)) == 0
    whole &= (ends - starts <= _LONGEST) & (ends - last > starts)
    ends = (ends - last)[whole]
    starts = starts[whole]

    quotes = np.flatnonzero(data == ord('"'))
    commas = np.flatnonzero(data == ord(","))
    plain = np.ones(len(starts), dtype=bool)
    if len(quotes):
        # A comma is inside quotes if it has an odd number of them before it in its line.
        line = np.clip(np.searchsorted(starts, commas, "right") - 1, 0, None)
        before = np.searchsorted(quotes, commas)
        if len(starts):
            before = before - np.searchsorted(quotes, starts)[line]
        commas = commas[before % 2 == 0]
        plain = np.searchsorted(quotes, starts) == np.searchsorted(quotes, ends)
    first = np.searchsorted(commas, starts)
    fits = np.searchsorted(commas, ends) - first == width - 1
    simple = fits.copy()
    bounds: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    for i in range(width) if len(quotes) else picked:
        left, right = starts.copy(), ends.copy()
        if i > 0:
            left[fits] = commas[first[fits] + i - 1] + 1
        if i < width - 1:
            right[fits] = commas[first[fits] + i]
        if len(quotes):
            inside = np.searchsorted(quotes, right) - np.searchsorted(quotes, left)
            around = (data[left] == ord('"')) & (data[right - 1] == ord('"')) & (right - left > 1)
            around &= inside == 2
            simple &= (inside == 0) | around
            left, right = left + around, right - around
        bounds[i] = left, right
    other = [_split(text[starts[i] : ends[i]]) for i in np.flatnonzero(~simple & ~plain)]
    fitting = [values for values in other if values is not None and len(values) == width]
    return [
        _encoded(text, bounds[i][0][simple], bounds[i][1][simple], [row[i] for row in fitting])
        for i in picked
    ]


def _encoded(
    text: bytes, left: NDArray[np.int64], right: NDArray[np.int64], more: list[bytes]
) -> Any:
    """The values between bounds in a text, and some more, as a dictionary of valid text."""
    # Every other value of an array over all of the text is one of ours; what is between is not.
    offsets = np.stack([left, right], axis=1).reshape(-1).astype(np.int32)
    values: Any = pa.array([], pa.binary())
    if len(left):
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        between = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        values = between.take(pa.array(np.arange(0, len(offsets) - 1, 2)))
    encoded: Any = pa.concat_arrays([values, pa.array(more, pa.binary())]).dictionary_encode()
    words = _decoded(encoded.dictionary)
    known = _compute.greater(_compute.binary_length(words), 0)
    places = _compute.if_else(known, pa.array(np.arange(len(words), dtype=np.int32)), None)
    return pa.DictionaryArray.from_arrays(places.take(encoded.indices), words)


def _decoded(words: Any) -> Any:
    """Text for bytes, empty for what is not UTF-8."""
    try:
        return words.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_word(word) for word in words.to_pylist()], pa.string())


def _word(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return ""
