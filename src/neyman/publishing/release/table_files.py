"""Write a published table as files: Parquet in row groups, and CSV if the table is small enough.

A table is written part by part, so the disk bounds its size and memory does not. If a table has
more cells than a spreadsheet holds, Neyman writes no CSV. The receipt and the report state this.

In CSV, a text that a spreadsheet would read as a formula gets an apostrophe in front. Such a text
begins with ``=``, ``+``, ``-``, or ``@``, possibly after apostrophes, and is no plain number.
Remove one apostrophe to get the key. A control character, which a terminal would obey, is written
as ``\\u001b``: see `escaped`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from neyman.publishing.release.folder import Hashed, Staging
from neyman.publishing.release.receipt_format import ReceiptTable
from neyman.publishing.tables.forms import Form, integers
from neyman.storage.visible_text import escaped

Writer = pyarrow.csv.CSVWriter | pyarrow.parquet.ParquetWriter
FileCheck = Callable[[Form, Path], None]  # a check of a table's file before it is read


@dataclass(frozen=True)
class Limits:
    """Limit the files of a table."""

    # The largest number of cells in memory at a time, and of rows in a row group.
    chunk_cells: int = 1 << 20
    # The largest number of cells of a table with a CSV. A spreadsheet has 1,048,576 rows.
    csv_cells: int = 1_000_000


LIMITS = Limits()


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def listing(query: str, level: str, rows: int, folder: str = "tables") -> list[ReceiptTable]:
    """Return a table's files as in a receipt, without digests. Their ``cells`` is ``rows``."""
    name, large = f"{folder}/{query}.{level}", dict[str, str]()
    if rows > LIMITS.csv_cells:
        large = {"without_csv": f"more than {LIMITS.csv_cells} cells"}
    return [
        ReceiptTable(
            query=query, level=level, path=f"{name}.{ending}", cells=rows, sha256="", **large
        )
        for ending in (("parquet",) if large else ("parquet", "csv"))
    ]


def published_integers(form: Form, folder: Path, check: FileCheck | None) -> NDArray[np.int64]:
    """Read the values of a published table of counts, after a call of ``check`` on its file."""
    path = folder / listing(form.query.name, form.level, form.rows)[0].path
    if check is not None:
        check(form, path)
    table = pyarrow.parquet.read_table(path, columns=["value"], use_threads=False)
    return integers(table.column("value"))


def parts(form: Form) -> Iterator[range]:
    """Split a table's cells into ranges of whole blocks, to build the table part by part."""
    step = max(LIMITS.chunk_cells // form.block, 1) * form.block
    return (range(first, min(first + step, form.cells)) for first in range(0, form.cells, step))


def write(
    stage: Staging, listed: list[ReceiptTable], schema: pa.Schema, tables: Iterable[pa.Table]
) -> list[ReceiptTable]:
    """Write the files of one table from its parts, in order. Return ``listed`` with digests."""
    digests: list[Hashed] = []
    with ExitStack() as stack:
        writers: list[Writer] = []
        for one in listed:
            file = stack.enter_context(stage.writing(one.path))
            digests.append(file)
            writers.append(stack.enter_context(_writer(file, one.path, schema)))
        for table in tables:
            for one, writer in zip(listed, writers, strict=True):
                writer.write_table(table if one.path.endswith(".parquet") else csv_form(table))
    return [
        one.model_copy(update={"sha256": file.hexdigest()})
        for one, file in zip(listed, digests, strict=True)
    ]


def _writer(file: Hashed, path: str, schema: pa.Schema) -> Writer:
    if path.endswith(".csv"):
        plain = csv_form(schema.empty_table()).schema
        return pyarrow.csv.CSVWriter(file, plain)
    # Readers of the file see the encoded keys as texts. The file stores no Arrow schema.
    return pyarrow.parquet.ParquetWriter(file, schema, store_schema=False)


def csv_form(table: pa.Table) -> pa.Table:
    """Return a table with each text as the CSV has it."""
    columns = [_shown(column) for column in table.columns]
    return pa.Table.from_arrays(columns, names=[_safe(name) for name in table.column_names])


def _shown(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        parts = [
            pa.DictionaryArray.from_arrays(chunk.indices, _shown(chunk.dictionary))
            for chunk in column.chunks
        ]
        return pa.chunked_array(parts, kind)
    if not pa.types.is_string(kind):
        return column
    texts = [text if text is None else _safe(text) for text in column.to_pylist()]
    return pa.array(texts, pa.string())


def _safe(text: str) -> str:
    """Escape control characters, and put an apostrophe before a spreadsheet's formula."""
    text = escaped(text)
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text
