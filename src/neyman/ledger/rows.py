"""Read and check a ledger's tables.

Each function raises `Damage` for content that no ledger writes. The rest of the ledger relies on
the types of the results. So any other error is a defect of this package, not of the file. An
integer has at most 62 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import UnionType
from typing import Any, cast

from neyman.ledger.database import MOST_ROWS, Transaction
from neyman.ledger.records import LedgerError
from neyman.storage.reading import read_json

Kind = type | UnionType
_RATIO = re.compile(r"-?[0-9]{1,1300}/[0-9]{1,1300}")


class Damage(Exception):
    """Report a row or an event that no ledger writes. The message describes it."""


def damaged(where: str, damage: Damage) -> LedgerError:
    """Return the error that refuses a damaged ledger."""
    return LedgerError(
        f"{where} is damaged or was tampered with ({damage}): `neyman ledger verify` lists the"
        " damage. Restore it from a backup, and count as spent what was released since"
    )


def typed(row: tuple[Any, ...], kinds: tuple[Kind, ...]) -> tuple[Any, ...]:
    """Return a row after checking the types of its values.

    Args:
        kinds: the type of each value: ``int``, ``str``, ``bytes``, or one of these ``| None``.
    """
    for place, (value, kind) in enumerate(zip(row, kinds, strict=True), 1):
        if not isinstance(value, kind) or _beyond(value):
            raise Damage(f"value {place} of a row is {_shown(value)}")
    return row


def typed_rows(
    db: Transaction, kinds: tuple[Kind, ...], query: str, *values: object
) -> list[tuple[Any, ...]]:
    """Return the rows of a query, checked by `typed`."""
    return [typed(row, kinds) for row in db.rows(query, *values)]


def one_row(
    db: Transaction, kinds: tuple[Kind, ...], query: str, *values: object
) -> tuple[Any, ...]:
    """Return the only row of a query, checked by `typed`."""
    rows = typed_rows(db, kinds, query, *values)
    if len(rows) != 1:
        raise Damage(f"{len(rows)} rows where a ledger has one")
    return rows[0]


def fields(line: str) -> dict[str, Any]:
    """Return the fields of an event's line."""
    content = json_value(line)
    if not isinstance(content, dict):
        raise Damage("an event is not a JSON object")
    return cast(dict[str, Any], content)


def typed_field(event: Mapping[str, Any], name: str, kind: Kind) -> Any:
    """Return a field of an event after checking its type.

    Args:
        kind: the type: ``int``, ``str``, ``list``, ``dict``, or one of these ``| None``.
    """
    value = event.get(name)
    # In Python, JSON's true is an int.
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or _beyond(value):
        raise Damage(f"an event has {_shown(value)} as its {name}")
    return value


def fraction(event: Mapping[str, Any], name: str) -> Fraction:
    """Return a rational field of an event, such as a charge."""
    return rational(typed_field(event, name, str))


def rational(text: str) -> Fraction:
    """Return the rational number in a text such as "1/3"."""
    if not _RATIO.fullmatch(text) or not int(text.partition("/")[2]):
        raise Damage(f"an amount is {_shown(text)}")
    return Fraction(text)


def texts(value: object) -> list[str]:
    """Return a list of texts, given as JSON text or as a list."""
    items = json_value(value) if isinstance(value, str) else value
    if not isinstance(items, list) or not _are_texts(cast(list[object], items)):
        raise Damage("a list of names is none")
    return cast(list[str], items)


def hashes(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the hash of each file by its path, from the event that published them."""
    files = typed_field(event, "files", dict)
    if not _are_texts(files.values()):
        # Guards against a hash that was replaced by a number.
        raise Damage("an event has a file whose hash is not a text")
    return files


def json_value(text: str) -> Any:
    """Return the value of a JSON text."""
    try:
        return read_json(text)
    except ValueError as error:
        raise Damage(f"a text is not JSON: {str(error)[:80]}") from None


def _beyond(value: object) -> bool:
    return isinstance(value, int) and abs(value) > MOST_ROWS


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:60]
