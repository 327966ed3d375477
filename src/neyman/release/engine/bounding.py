"""Row bounding: at most m rows of each unit are kept, by a rule that looks at that unit alone."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any

import ibis
import pyarrow as pa

__all__ = ["kept_rows"]

_BUCKET = 200_000


def kept_rows(coded: ibis.Table, names: Sequence[str], most: int) -> ibis.Table:
    """The coded rows of units, at most ``most`` of each.

    Rows are ranked, within their unit, by HMAC-SHA-256 (a fresh secret key) of the unit, the row's
    codes and the number of the copy among equal rows. A row without a unit (NULL) is dropped. The
    choice for one unit does not depend on any other, so a unit moves what it moves by its own
    kept rows. Only units with too many rows leave the engine, in batches; the key never enters it.

    Args:
        coded: one row each: the ``names``, and the bytes ``unit``, which no collation makes equal.
        names: the columns of whole numbers to keep; they decide what a row adds.
        most: rows to keep of each unit, at least 1.

    Returns:
        A table of the ``names`` alone.
    """
    # Ibis types its columns loosely, so the expressions are Any here.
    rows: Any = coded.filter(coded["unit"].notnull())
    sizes: Any = rows.group_by("unit").aggregate(rows_of_unit=rows.count())
    large = sizes.filter(sizes["rows_of_unit"] > most).select("unit")
    small = rows.anti_join(large, "unit").select(*names)
    grouped: Any = rows.semi_join(large, "unit")
    # Of equal rows no more than `most` can be kept, so equal rows travel as one with a number.
    grouped = grouped.group_by(["unit", *names]).aggregate(copies=grouped.count())
    key = secrets.token_bytes(32)
    kept: list[tuple[int, ...]] = []
    number = 1 + int(grouped.count().to_pyarrow().as_py()) // _BUCKET
    for bucket in range(number):
        # Python's sign rule for % is not every engine's, hence the second %.
        part = grouped.filter((grouped["unit"].hash() % number + number) % number == bucket)
        found = part.select("unit", *names, "copies").to_pyarrow()
        ranked: dict[bytes, list[tuple[bytes, tuple[int, ...]]]] = {}
        for record in zip(*(column.to_pylist() for column in found.columns), strict=True):
            unit, codes, copies = record[0], record[1:-1], record[-1]
            ranked.setdefault(unit, []).extend(
                (_rank(key, unit, codes, copy), codes) for copy in range(min(copies, most))
            )
        for rows_of_unit in ranked.values():
            kept += [codes for _, codes in sorted(rows_of_unit)[:most]]
    columns: dict[str, Any] = {
        name: pa.array([codes[i] for codes in kept], pa.int64()) for i, name in enumerate(names)
    }
    few = ibis.memtable(pa.table(columns))
    return small.select(*(small[name].cast("int64").name(name) for name in names)).union(few)


def _rank(key: bytes, unit: bytes, codes: Sequence[int], copy: int) -> bytes:
    # Lengths first, so that no two rows have the same encoding.
    numbers = ",".join(str(code) for code in (*codes, copy))
    message = len(unit).to_bytes(8, "big") + unit + numbers.encode()
    return hmac.new(key, message, hashlib.sha256).digest()
