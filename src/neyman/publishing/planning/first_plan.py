"""Write a first plan from the column names and types of a file or a table. Read no row."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from neyman.accounting.semantics.unchecked_claims import rows_not_stated
from neyman.numerics.relation import Neighboring
from neyman.publishing.engines.csv_reader import suffix_of
from neyman.publishing.engines.source import close_table, database_at, open_table


@dataclass(frozen=True)
class Limits:
    """Limit how much of the data a first plan reads."""

    decimals: int = 9


LIMITS = Limits()

_DELIMITERS = (",", ";", "\t", "|")
_NO_NAME = re.compile(r"[\W\d_]*|\d{4}-\d\d-\d\d.*|true|false|null|nan|na|n/a|none", re.I | re.S)
_BARE = re.compile(r"[A-Za-z0-9_-]+")

_OPENING = """\
# A first plan, made from the column names and types alone. It is valid as it stands: it counts all
# rows. Lines that begin with # are suggestions. Take keys and clips from public knowledge, never
# from the data, since the plan is published. What it comes to, before any data:
#   neyman plan check plan.toml"""
_UNTYPED = """\
# A CSV file does not say what its columns hold, and no row was read. Each is text here until you
# replace its type: keys = [...] to group by, integer = true or decimals = 2 to sum,
# type = "whole", "date" or "boolean" for expressions.
"""
_CLOSING = """\
[budget]
power = 0.25                # an attacker confirms at most 25 of 100 true claims about a person,
level = 0.05                # if they confirm 5 of 100 false ones

[[query]]
name = "rows"
measure = "count"
share = "1"                 # the shares of all queries add up to 1

# Rows without a number take no part in a mean and add nothing to a sum, as in SQL.
# unknown = 40 in a column replaces a missing number by 40.
# More queries; see the plan's reference for every measure:
# [[query]]
# name = "by key"
# measure = "count"
# by = [{key}]      # a column with keys
# share = "1/2"
# [[query]]
# name = "average"
# measure = "mean"
# column = {number}
# clip = [0, 100]            # values outside count as the nearer end
# share = "1/4"
"""


@dataclass(frozen=True)
class Schema:
    """Describe the columns of a file.

    Args:
        columns: the name of each column, and its Arrow type; None if the file does not say.
        source: the fields of [source] that are not the default.
    """

    columns: tuple[tuple[str, pa.DataType | None], ...]
    source: Mapping[str, str]


def schema_at(url: str) -> tuple[str, Schema] | None:
    """Read the name of a table in a database, and the names and types of its columns.

    No row is read. Return None if ``url`` is the path of a file. Error messages contain no
    password.
    """
    source = database_at(url)
    if source is None:
        return None
    table = open_table(source, rows=False)
    try:
        kinds = table.schema().to_pyarrow()
    finally:
        close_table(table)
    given = parse_qsl(urlsplit(url).query)
    name = dict(given)["table"].rpartition(".")[2]
    return name, Schema(tuple((field.name, _usual(field.type)) for field in kinds), {})


def _usual(kind: pa.DataType) -> pa.DataType:
    """Return a column's type, or double for decimals of more than ``LIMITS.decimals`` digits.

    Only digits after the point count.
    """
    wide = pa.types.is_decimal(kind) and kind.scale > LIMITS.decimals
    return pa.float64() if wide else kind


def schema_of(path: Path, delimiter: str | None = None, encoding: str = "utf-8") -> Schema:
    """Read the column names of a file, and their types if it has them. Read no row.

    Without a delimiter, take the one that is most frequent in the first line.

    Raises:
        ValueError: the file cannot be read, or its first line has no column names. The message
            shows nothing of this line, which is someone's row if a header is missing.
    """
    suffix, packed = suffix_of(path)
    if (suffix, packed) == (".parquet", False):
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            reason = getattr(error, "strerror", None) or "it is not a Parquet file"
            raise ValueError(f"{str(path)!r} cannot be read: {reason}") from None
        return Schema(tuple(zip(schema.names, schema.types, strict=True)), {})
    if suffix not in ((".csv",) if packed else (".csv", ".txt", ".tsv")):
        raise ValueError(
            f"{str(path)!r}: give one file whose name ends in .parquet, .csv, .tsv, .txt or .csv.gz"
        )
    line = _first_line(path, packed, encoding)
    used = delimiter or max(_DELIMITERS, key=line.count)
    if used not in _DELIMITERS:
        raise ValueError(f"delimiter = {used!r}: must be one of {list(_DELIMITERS)}")
    try:
        names = next(csv.reader([line], delimiter=used, strict=True), list[str]())
    except csv.Error:
        raise ValueError(f"{str(path)!r}: its first line has a quote that does not end") from None
    if not names or any(_NO_NAME.fullmatch(name.strip()) for name in names):
        raise ValueError(
            f"{str(path)!r}: its first line has values that are no column names, such as numbers "
            "or blanks. A plan is published, so no row may get into it: add a line of column names"
        )
    given = {"delimiter": used, "encoding": encoding, "compression": "gzip" if packed else "none"}
    plain = {"delimiter": ",", "encoding": "utf-8", "compression": "none"}
    source = {name: value for name, value in given.items() if value != plain[name]}
    return Schema(tuple((name, None) for name in names), source)


def _first_line(path: Path, packed: bool, encoding: str) -> str:
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            # The most bytes of a header, or of any line, that are read.
            line = file.readline(1 << 20)
        return line.decode("utf-8-sig" if encoding == "utf-8" else encoding).rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(
            f"{str(path)!r}: its first line is not {encoding}; give --encoding, such as latin-1"
        ) from None
    except LookupError:
        raise ValueError(f"encoding = {encoding!r}: is not known; give one such as utf-8") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not a gzip file"
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from None


def first_plan(
    name: str,
    schema: Schema,
    *,
    id: str | None = None,  # noqa: A002 (the field of the unit)
    protects: str = "person",
    neighboring: Neighboring = "replace-one",
) -> str:
    """Return a commented plan in TOML. It is valid as it stands and counts all rows.

    Raises:
        ValueError: the file does not have exactly one column of the name ``id``, which names the
            unit.
    """
    names = [column for column, _ in schema.columns]
    if id is not None and names.count(id) != 1:
        raise ValueError(
            f"--id {id!r}: the file has {names.count(id)} columns of that name among its "
            f"{len(names)}; name one that it has once"
        )
    lines = [*_sections(_safe(name), schema, id, protects, neighboring)]
    if any(kind is None for _, kind in schema.columns):
        lines.append(_UNTYPED)
    others = [(column, kind) for column, kind in schema.columns if column != id]
    numbers = [
        column
        for column, kind in others
        if kind is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind))
    ]
    keyed = [column for column, _ in others if column not in numbers]
    key, number = (_text(names[0] if names else "column") for names in (keyed, numbers))
    return "\n".join([*lines, *_columns(schema, id), _CLOSING.format(key=key, number=number)])


def _sections(
    name: str, schema: Schema, unit: str | None, protects: str, neighboring: Neighboring
) -> Iterator[str]:
    yield _OPENING
    yield "schema = 2"
    yield f"name = {_text(name)}"
    yield f"dataset = {_text(name + '@1')}            # name@version, as the ledger registers it"
    yield f"table = {_text(name)}"
    yield "# most_rows = 1_000_000     # the most rows that the table can have, public"
    yield "# where = \"column('age') >= 18\"   # a condition on a row; the other rows take no part"
    yield ""
    if schema.source:
        yield "[source]                    # the form of the CSV file"
        yield from (f"{field} = {_text(value)}" for field, value in schema.source.items())
        yield ""
    yield "[unit]"
    yield f"protects = {_text(protects)}"
    yield f"neighboring = {_text(neighboring)}"
    if unit is None:
        # Nobody has confirmed it yet, so `plan check` continues to warn.
        mark = "# " if rows_not_stated(protects, None, rows_given=False) else ""
        yield f"{mark}rows = 1                    # each {_comment(protects)} has one row; or id"
        yield '# id = "person_id"'
    else:
        yield f"id = {_text(unit)}"
        yield "rows = 1                    # the most rows of each that count"
    yield ""


def _columns(schema: Schema, unit: str | None) -> Iterator[str]:
    twice = Counter(column.casefold() for column, _ in schema.columns)
    for column, kind in schema.columns:
        if column == unit:
            continue
        if twice[column.casefold()] > 1:
            yield f"# {_comment(column)}: another column has this name, up to case; rename one"
        elif not column.strip() or not column.isprintable():
            yield "# a column without a usable name; rename it in the data"
        else:
            yield from _column(column, kind)
        yield ""


def _column(name: str, kind: pa.DataType | None) -> Iterator[str]:
    head = f"[columns.{name if _BARE.fullmatch(name) else _text(name)}]"
    keys = '# keys = ["...", "..."]      # or public keys, to group by; then leave type out'
    if kind is None:
        yield from (head, 'type = "text"               # unknown: read as text', keys)
        return
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        yield from (head, "keys = [true, false]")
    elif pa.types.is_integer(kind):
        yield from (head, "integer = true              # to sum; for keys: keys = [1, 2, 3]")
    elif pa.types.is_decimal(kind) and kind.bit_width <= 128 and 0 <= kind.scale <= LIMITS.decimals:
        yield from (head, f"decimals = {kind.scale}                # to sum")
    elif pa.types.is_floating(kind):
        yield from (head, "decimals = 2                # to sum, rounded down to so many digits")
    elif pa.types.is_date(kind):
        yield from (head, 'type = "date"               # for expressions, as month(admitted)')
    elif pa.types.is_timestamp(kind):
        yield from (head, 'type = "date"               # for expressions, as hour(admitted)')
        if kind.tz is not None:
            yield 'zone = "UTC"                # in which a timestamp has its day and its hour'
    elif pa.types.is_null(kind) or str(kind) in ("string", "large_string", "string_view"):
        yield from (head, 'type = "text"', keys)
    else:
        kind_text = _comment(str(kind))
        yield f"# {_comment(name)}: of type {kind_text}, which a plan cannot use; convert it first"


def _safe(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:60]
    return safe or "data"


def _text(value: str) -> str:
    """Return a text as a TOML string, in quotes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(value: str) -> str:
    """Return a text on one line, with control characters escaped."""
    return _text(value)[1:-1]
