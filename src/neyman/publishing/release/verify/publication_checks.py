"""Check that a release's folder holds its tables and pages, and nothing else.

Tables are read part by part, so the disk bounds their size and memory does not.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from neyman.accounting.semantics.digits import many
from neyman.numerics.arrays import Integers
from neyman.publishing.consistency.published_forms import FOLDER
from neyman.publishing.plan.column import key_text
from neyman.publishing.plan.query import measures_of
from neyman.publishing.release.field_comparison import Differs, same, short
from neyman.publishing.release.folder import Release
from neyman.publishing.release.receipt import versions
from neyman.publishing.release.signing import SIGNATURE
from neyman.publishing.release.ssh_signature import SSH_SIGNATURE
from neyman.publishing.release.table_files import LIMITS as TABLE_FILES_LIMITS
from neyman.publishing.release.table_files import csv_form
from neyman.publishing.release.verify import size_limits
from neyman.publishing.release.verify.case import Case
from neyman.publishing.tables.forms import Form, as_published, integers
from neyman.publishing.tables.key_selection import threshold
from neyman.storage.reading import open_file, read_file

_REPORT = "report.html"
_TABLE_BYTES_PER_CSV_BYTE = 6  # bytes of a table for a byte of CSV
_MEASURED = ("value", "standard_error", "lower", "upper")


def check_table(case: Case, query: str, level: str, ending: str) -> str:
    """Check that a table's file has the listed digest, and content that fits the plan."""
    form = case.form(query, level)
    rows = case.rows(form)
    size = max(TABLE_FILES_LIMITS.chunk_cells // form.lines, 1) * form.lines
    if form.discovered:
        size = max(rows, 1)
    return _looked_through(
        case,
        f"tables/{query}.{level}",
        ending,
        form.published,
        rows,
        lambda start, table: _check_values(form, start, table, case.memory),
        size,
    )


def check_consistent(case: Case, query: str, level: str, ending: str) -> str:
    """Check that a file of a consistent table follows from the published noisy tables."""
    form = case.consistent[query, level]

    def look(start: int, table: pa.Table) -> None:
        _check_alike(table, form.build(range(start, start + len(table))))

    detail = _looked_through(
        case, f"{FOLDER}/{query}.{level}", ending, as_published(form.schema), form.form.rows, look
    )
    return detail if ending == "csv" else f"{detail}, as they follow from the noisy tables"


def _looked_through(
    case: Case,
    name: str,
    ending: str,
    schema: pa.Schema,
    rows: int,
    look: Callable[[int, pa.Table], None],
    size: int = TABLE_FILES_LIMITS.chunk_cells,
) -> str:
    """Check a file of this name and ending, and return its size in words.

    ``look`` gets the rows in order, ``size`` at a time, with the number of the first row. A CSV
    file only needs to agree with the Parquet file.
    """
    path = _file_of(case, f"{name}.{ending}")
    parquet = path if ending == "parquet" else _file_of(case, f"{name}.parquet")
    with case.memory.table(parquet, schema, rows, rows if ending == "csv" else size) as file:
        if ending == "csv":
            return _same_as_parquet(path, file, case.memory)
        start = 0
        for batch in file.iter_batches(size, use_threads=False):
            look(start, pa.Table.from_batches([batch]))
            start += batch.num_rows
    if start != rows:
        # Guards against a footer that counts other rows.
        raise Differs(f"{many(start, 'row')} for {many(rows, 'cell')}")
    return many(rows, "cell")


def _file_of(case: Case, path: str) -> Path:
    """Return the path of a file, after a check that its digest is in the receipt."""
    listed = next(one for one in case.receipt["tables"] if one["path"] == path)
    with open_file(case.folder / path, links=False) as file:
        same("sha256", hashlib.file_digest(file, "sha256").hexdigest(), listed["sha256"])
    return case.folder / path


def _check_alike(table: pa.Table, own: pa.Table) -> None:
    """Compare some rows of a consistent table with ours, except for a double's last digits."""
    for name in table.column_names[: -len(_MEASURED)]:
        if not size_limits.same_texts(table.column(name), own.column(name)):
            raise Differs(f"the keys in column {name!r} are not the public ones, in order")
    for name in _MEASURED:
        here, ours = (np.asarray(t.column(name).to_numpy(), dtype=float) for t in (table, own))
        # An integer is rounded from a double and may fall on the other side of a half.
        kind = table.column(name).type
        step = 10.0**-kind.scale if pa.types.is_decimal(kind) else 1.0
        near = 1e-6 if pa.types.is_floating(kind) else step
        if not np.allclose(here, ours, rtol=1e-9, atol=near):
            raise Differs(f"column {name!r} is not what the noisy tables come to")


def _check_values(form: Form, start: int, table: pa.Table, memory: size_limits.MemoryLimit) -> None:
    """Check some rows of a file against the public keys, and against their own values.

    If the value is a noisy integer, the rest of the row follows from it.
    """
    hidden = _hidden(form, table)
    query, names = form.query, table.column_names[: -len(_MEASURED)]
    ratio = query.ranked or (len(measures_of(query)) > 1 and not form.discovered)
    size, first = (row // form.lines * form.block for row in (len(table), start))
    noisy = np.zeros(size, np.int64)
    if not ratio:
        value = table.column("value")
        shown = integers(value.fill_null(pa.scalar(0, value.type)))
        noisy = np.where(hidden, form.least_shown - 1, shown)
    if form.discovered:
        _check_discovered(form, table, noisy, memory)
        own = form.named(table.select(names), noisy)
    else:
        own = form.build({entry.measure: noisy for entry, _ in form.entries}, first)
    for name in names:
        if not size_limits.same_texts(table.column(name), own.column(name)):
            raise Differs(f"the keys in column {name!r} are not the public ones, in order")
    if ratio:
        numbers = [np.asarray(column.to_numpy(), dtype=float) for column in table.columns[-4:]]
        _check_possible(form, numbers)
        return
    error = (one.column("standard_error").to_numpy() for one in (table, own))
    if not np.allclose(*error, rtol=1e-9, atol=0, equal_nan=True):
        raise Differs("the standard error is not that of the noise")
    if any(not table.column(name).equals(own.column(name)) for name in ("value", "lower", "upper")):
        raise Differs("the intervals are not those of the noise")
    public = form.entries[0][0].public
    if public is not None and np.any((noisy != public) & ~hidden):
        raise Differs("the value is not the declared one")


def _hidden(form: Form, table: pa.Table) -> NDArray[np.bool_]:
    """Return which rows are printed as a text. They have no number, and all others have them."""
    masks = [table.column(name).is_null().to_numpy() for name in _MEASURED]
    if form.query.printed is None:
        if np.any(masks):
            raise Differs("a value is missing")
    elif any(not np.array_equal(masks[0], other) for other in masks):
        raise Differs("a number of a cell that is printed as a text is there, or one is missing")
    return masks[0]


def _check_possible(form: Form, columns: Sequence[NDArray[np.float64]]) -> None:
    """Check that a ratio or a quantile, its error, and its interval are in the possible range."""
    value, error, lower, upper = columns
    low, high = form.possible
    fits = (low <= lower) & (lower <= value) & (value <= upper) & (upper <= high)
    unknown = form.query.inverse_sensitivity and not form.query.interval
    near = np.isposinf(error) if unknown else (error >= 0) & (error <= high - low)
    if not np.all(fits & near):
        what = "quantile" if form.query.ranked else form.query.measure.replace("_", " ")
        raise Differs(f"a {what}, its error or its interval is impossible")


def _check_discovered(
    form: Form, table: pa.Table, noisy: Integers, memory: size_limits.MemoryLimit
) -> None:
    """Check that discovered keys are possible, and sorted so that their order reveals nothing."""
    plan, query = form.plan, form.query
    names = plan.key_columns(query, form.level)
    memory.check_texts(table)
    # Use ranks of the distinct keys: a few keys can stand for millions of rows.
    columns = [_rank_keys(table.column(name)) for name in names]
    same_so_far, rising = (np.full(max(len(table) - 1, 0), first) for first in (True, False))
    for ranks, _ in columns:
        rising |= same_so_far & (ranks[:-1] < ranks[1:])
        same_so_far &= ranks[:-1] == ranks[1:]
    if not rising.all():
        raise Differs("its keys are not in the order of their bytes, each once")
    depth = 0
    for hierarchy, level in plan.parts(form.level):
        paths, own = set(hierarchy.paths(level)), columns[depth:][: hierarchy.depth(level) + 1]
        depth += len(own)
        distinct = np.unique(np.stack([ranks for ranks, _ in own], axis=1), axis=0)
        texts = [keys for _, keys in own]
        rows: list[list[int]] = distinct.tolist()
        places = (tuple(keys[r] for keys, r in zip(texts, row, strict=True)) for row in rows)
        if len(distinct) > len(paths) or not set(places) <= paths:
            raise Differs("a place is not one of the public ones")
    for name, (_, keys) in zip(query.by, columns[depth:], strict=True):
        column = plan.column(name)
        if not column.discover and not set(keys) <= {key_text(key) for key in column.keys}:
            raise Differs(f"a key in column {name!r} is not one of the public ones")
    entry, sigma_squared = form.entries[0]
    least = threshold(sigma_squared, entry.delta or Fraction(0), rounded=entry.rounded)
    if form.shown is entry and noisy.min(initial=least) < least:
        raise Differs(f"a value is below the threshold, {least}")


def _rank_keys(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """Return the rank of each row's key in byte order, and the distinct keys in this order."""
    if column.null_count:
        raise Differs("a key is missing")
    numbers, keys = size_limits.codes(
        column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    )
    used, numbers = np.unique(np.asarray(numbers, dtype=np.int64), return_inverse=True)
    texts = [str(key) for key in keys.take(pa.array(used)).to_pylist()]
    order = sorted(set(texts), key=lambda text: text.encode("utf-8", "surrogatepass"))
    ranks = {text: rank for rank, text in enumerate(order)}
    return np.array([ranks[text] for text in texts], dtype=np.int64)[numbers], order


def _same_as_parquet(
    path: Path, file: pyarrow.parquet.ParquetFile, memory: size_limits.MemoryLimit
) -> str:
    """Check that a CSV file agrees with the Parquet file, and return its size in words."""
    size = path.stat().st_size
    memory.check("the file", size * _TABLE_BYTES_PER_CSV_BYTE)
    table = file.read(use_threads=False)
    # CSV writes out each text, so the file cannot be shorter than all texts together.
    if size_limits.texts_size(table) > size:
        raise Differs("it does not say what the Parquet file says")
    written, content = size_limits.with_texts(table), read_file(path, size)
    shown = csv_form(written)
    missing = any(column.null_count for column in table.columns)
    if not _csv(content, shown.schema, missing=missing).equals(shown.combine_chunks()):
        raise Differs("it does not say what the Parquet file says")
    return f"{many(file.metadata.num_rows, 'cell')}, as in the Parquet file"


def _csv(content: bytes, schema: pa.Schema, *, missing: bool) -> pa.Table:
    """Read a CSV file. If keys may be missing, an empty field is a missing key."""
    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=max(1 << 20, len(content) + 1)
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=schema,
            strings_can_be_null=missing,
            null_values=[""] if missing else [],
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()


def check_files(case: Case, pages: Mapping[str, Any] | None) -> str:
    """Check that the folder holds only files that the receipt lists, and pages."""
    known = {one.path for one in case.files}
    known |= {case.path.name, SIGNATURE, SSH_SIGNATURE, *(pages or (_REPORT,))}
    holding = {str(above) for path in known for above in PurePosixPath(path).parents}
    there: set[str] = set()
    for root, folders, files in os.walk(case.folder):
        for name in (*folders, *files):
            entry = Path(root) / name
            path = entry.relative_to(case.folder).as_posix()
            mode = entry.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise Differs(f"{short(path)} is a symbolic link, and a release has none")
            if stat.S_ISDIR(mode) and path in holding:
                continue
            if path not in known:
                raise Differs(f"{short(path)} is in the folder and is not part of the release")
            if not stat.S_ISREG(mode):
                raise Differs(f"{short(path)} is not an ordinary file")
            there.add(path)
    if pages is None and _REPORT in there:
        return f"nothing else is there; {_REPORT} was not checked"
    return "nothing else is there"


def check_page(case: Case, name: str, page: Callable[[Release], str]) -> str:
    """Check that a page follows from the receipt and the tables."""
    if read_file(case.folder / name, links=False) != page(case.release).encode():
        version = case.receipt["versions"]["neyman"]
        now = versions()["neyman"]
        other = f" (it was made with {version}, and this is {now})" if version != now else ""
        raise Differs(f"is not the page that follows from the receipt{other}: make it again")
    return "follows from the receipt and the tables"
