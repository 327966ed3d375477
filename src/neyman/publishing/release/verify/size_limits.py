"""Check the sizes that a release states against a memory limit, before any decoding.

A Parquet file of a few kilobytes can expand to gigabytes, if a text or a number repeats. The file's
footer states the number of rows and the size of their encoding. Texts are read as dictionary codes,
so a repeated text is in memory once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from neyman.publishing.release.field_comparison import Differs
from neyman.storage.reading import open_file

MEMORY = "4GB"  # the default limit of what a verification may take

_FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?(KB|KiB|MB|MiB|GB|GiB|TB|TiB)")
_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True)
class Limits:
    """Hold the factors that estimate the memory for a verification from stated sizes."""

    json_bytes: int = 10  # bytes of objects for a byte of JSON


LIMITS = Limits()
_CODECS = ("SNAPPY", "UNCOMPRESSED")  # codecs of releases; Snappy makes at most 22 bytes of 1
_compute: Any = pc  # pyright does not see the functions that Arrow makes on import


@dataclass(frozen=True)
class MemoryLimit:
    """Set the largest memory for a verification: a text such as "4GB", and the size in bytes."""

    text: str
    size: int

    @classmethod
    def of(cls, text: str) -> MemoryLimit:
        """Read an amount in KB, MB, GB, TB (powers of 1000), or KiB, MiB, GiB, TiB (of 1024)."""
        match = _FORM.fullmatch(text) if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        base = 1024 if match and "i" in match[2] else 1000
        size = int(float(match[1]) * base ** _UNITS[match[2][0]]) if match else 0
        if size <= 0:
            raise ValueError(f"memory = {text!r}: must be an amount such as '4GB' or '500MB'")
        return cls(text, size)

    def check(self, what: str, size: int) -> None:
        """Raise `Differs` if an estimated size, in bytes, is above the limit."""
        if size > self.size:
            raise Differs(
                f"{what} would take about {size / 1e9:,.2g} GB, and memory = {self.text!r}; if the "
                "release should be so large, verify with more memory"
            )

    def check_receipt(self, path: Path) -> None:
        """Refuse a receipt whose JSON would exceed the limit."""
        self.check("the receipt", os.stat(path).st_size * LIMITS.json_bytes)

    def check_consistent(self, cells: int) -> None:
        """Refuse consistent tables with too many cells. All cells are in memory at once."""
        # Bytes of a cell that is made consistent.
        self.check("making the tables consistent", cells * 128)

    @contextmanager
    def table(
        self, path: Path, schema: pa.Schema, rows: int, size: int
    ) -> Generator[pyarrow.parquet.ParquetFile]:
        """Open a table's Parquet file if its footer states the expected schema, rows, and sizes.

        At most ``size`` rows are in memory at once. Texts are read as dictionary codes.
        """
        with open_file(path, links=False) as handle:
            self.check("the footer of the file", _footer(handle) * LIMITS.json_bytes)
            with pyarrow.parquet.ParquetFile(handle) as file:
                about, arrow = file.metadata, file.schema_arrow
                if not arrow.equals(schema, check_metadata=True):
                    names = repr(arrow.names)[:80]
                    raise Differs(f"its columns are {names} of other types or names")
                if about.num_rows != rows:
                    raise Differs(f"it has {about.num_rows:,} rows, and the table {rows:,} cells")
                encoded = [_group_bytes(about.row_group(n)) for n in range(about.num_row_groups)]
                # Bytes for a compared value: as read, as recomputed, and as doubles.
                decoded = min(rows, size) * len(schema) * 96
                self.check("the file", 2 * max(encoded, default=0) + decoded)
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            with pyarrow.parquet.ParquetFile(
                handle, metadata=about, read_dictionary=texts
            ) as encoding:
                yield encoding

    def check_texts(self, table: pa.Table) -> None:
        """Refuse a table whose texts would exceed the limit if each repetition were written out."""
        # Times the bytes of a text that is compared as a text.
        self.check("the texts of the file", 4 * texts_size(table))


def _footer(handle: BinaryIO) -> int:
    """Return the length of a Parquet file's footer in bytes, as stated at the file's end."""
    end = handle.seek(0, os.SEEK_END)
    handle.seek(max(end - 8, 0))
    length = int.from_bytes(handle.read(4), "little")
    handle.seek(0)
    return min(length, end)


def _group_bytes(group: pyarrow.parquet.RowGroupMetaData) -> int:
    """Return the decompressed size of a row group in bytes, as stated in the footer."""
    size = 0
    for number in range(group.num_columns):
        column = group.column(number)
        if column.compression not in _CODECS:
            raise Differs(f"it is compressed with {column.compression}, and no release is")
        size += max(column.total_uncompressed_size, column.total_compressed_size)
    return size


def texts_size(table: pa.Table) -> int:
    """Return the bytes of a table's dictionary-encoded texts, with repetitions written out."""
    size = 0
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                lengths = _compute.binary_length(chunk.dictionary).cast(pa.int64())
                size += _compute.sum(lengths.take(chunk.indices)).as_py() or 0
    return size


def with_texts(table: pa.Table) -> pa.Table:
    """Return a table with dictionary-encoded texts as plain texts."""
    return pa.table(
        {
            name: column.cast(column.type.value_type)
            if pa.types.is_dictionary(column.type)
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


def same_texts(column: pa.ChunkedArray, own: pa.ChunkedArray) -> bool:
    """Return True if two columns are equal. Repeated texts are not written out."""
    if not pa.types.is_dictionary(column.type):
        return column.equals(own.cast(column.type))
    if not pa.types.is_dictionary(own.type):
        own = own.dictionary_encode()
    if not _compute.is_null(column).equals(_compute.is_null(own)):
        return False
    column, own = column.drop_null(), own.drop_null()
    (numbers, names), (own_numbers, own_names) = codes(column), codes(own)
    # A text that is not among ours has no index, and then the columns differ.
    places = _compute.index_in(names, own_names.cast(names.type))
    if own_names.null_count or len(own_names.unique()) < len(own_names):
        return column.cast(names.type).equals(own.cast(names.type))
    return places.take(numbers).equals(own_numbers.cast(places.type))


def codes(column: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the codes and the one dictionary of a dictionary-encoded column."""
    joint = column.unify_dictionaries().combine_chunks()
    if isinstance(joint, pa.ChunkedArray):
        joint = joint.chunk(0) if joint.num_chunks else pa.array([], column.type)
    return joint.indices, joint.dictionary
