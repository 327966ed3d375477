"""Texts in one case, without blanks around them, and in one Unicode form, equal on every engine.

Engines map cases by Unicode versions, locales, and collations of their own. So each function has a
definition that none of these changes:

- ``lower`` and ``upper`` replace a letter of Latin, Greek, Cyrillic, or Armenian by one letter
  (`CASED`). Other characters stay: ``ß`` has no single upper case, and ``İ`` no single lower case.
- ``strip`` removes the characters of `BLANKS` at both ends, as Python's ``str.strip`` does. Of
  blanks alone nothing is left, which is missing.
- ``normalize`` gives the form NFC. A text with a character that is not `is_settled` stays, because
  later versions of Unicode may give such a character another form.
- A text that is not UTF-8 stays.

Texts of ASCII or of common letters alone, which are most, take a shorter way.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Any

import ibis

from neyman.publishing.engines.expressions import hexadecimal, plain_bytes

__all__ = ["BLANKS", "CASED", "changed_text", "is_settled"]

CASED = range(0x41, 0x590), range(0x1E00, 0x2000)
"""The code points of the letters that change case: Latin, Greek, Cyrillic, and Armenian."""

BLANKS = "".join(
    map(
        chr,
        [
            *(*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680),
            *(*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
        ],
    )
)
"""The characters that ``strip`` removes."""

_PICTURES = range(0x1F300, 0x1F650), range(0x1F900, 0x1FA00)
_SIMPLE = (
    "^[\x01-\x7f\xa0-\xb4\xb6-\xde\xe0-\xfe\u0100-\u012f\u0132-\u0148\u014a-\u017e"
    "\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03c9\u0400-\u052f]*\\z"
)
"""Texts of letters for which DuckDB's functions follow the definition."""
_MOST = 0x30000  # higher code points are tags, variants, and private
_ASCII_HEX = r"^([0-7][0-9A-F])*\z"
_TAIL = "[89AB][0-9A-F]"
_UTF8_HEX = (
    rf"^([0-7][0-9A-F]|(C[2-9A-F]|D[0-9A-F]){_TAIL}|E0[AB][0-9A-F]{_TAIL}"
    rf"|E[1-9A-CEF]{_TAIL}{_TAIL}|ED[89][0-9A-F]{_TAIL}|F0[9AB][0-9A-F]{_TAIL}{_TAIL}"
    rf"|F[1-3]{_TAIL}{_TAIL}{_TAIL}|F48[0-9A-F]{_TAIL}{_TAIL})*\z"
)


@ibis.udf.scalar.builtin(name="decode")
def _decode(data: bytes) -> str:  # pyright: ignore[reportReturnType] - DuckDB's own
    """The text whose bytes these are; an error if they are not UTF-8."""


@ibis.udf.scalar.builtin(name="is_valid_utf8")
def _is_utf8(text: str) -> bool:  # pyright: ignore[reportReturnType] - Spark's own
    """True if a text is UTF-8."""


@ibis.udf.scalar.builtin(name="trim")
def _trim(text: str, blanks: str) -> str:  # pyright: ignore[reportReturnType] - DuckDB's own
    """A text without these characters at its ends."""


@ibis.udf.scalar.builtin(name="btrim")
def _btrim(text: str, blanks: str) -> str:  # pyright: ignore[reportReturnType] - of the others
    """The same on Spark and PostgreSQL."""


@ibis.udf.scalar.builtin(name="nfc_normalize")
def _nfc(text: str) -> str:  # pyright: ignore[reportReturnType] - see ``postgres_sql``
    """The form NFC of a text."""


def changed_text(data: Any, changes: Sequence[str], engine: str) -> Any:
    """The bytes of a text after some changes.

    Args:
        data: the text's bytes.
        changes: "lower", "upper", "strip" or "normalize", the first to apply first.
        engine: "duckdb", "pyspark" or "postgres", which has each of the changes.
    """
    is_text: Any
    if engine == "duckdb":
        text, digits = _decode(data), hexadecimal(data)
        is_text, is_ascii = digits.re_search(_UTF8_HEX), digits.re_search(_ASCII_HEX)
    else:
        text = data.cast("string")
        every: Any = ibis.literal(True)
        is_text = _is_utf8(text) if engine == "pyspark" else every
        is_ascii = ~text.re_search("[^\x01-\x7f]")
    short: Any = text
    long: Any = text
    for change in changes:
        if change == "strip":
            short, long = _stripped(short, engine), _stripped(long, engine)
        elif change == "normalize":
            long = ibis.cases((long.re_search(f"[^{_settled()}]"), long), else_=_nfc(long))
        else:
            short = _native(short, change)
            replaced = long.translate(*_cases(change))
            if engine == "duckdb":  # which takes 0.1 ms for a text, since it sorts the letters
                replaced = ibis.cases(
                    (long.re_search(_SIMPLE), _native(long, change)), else_=replaced
                )
            long = replaced
    # The first condition that is true decides, and what follows it is not computed.
    return ibis.cases(
        (~is_text, data),
        (is_ascii, plain_bytes(short, engine)),
        else_=plain_bytes(long, engine),
    )


def _native(text: Any, change: str) -> Any:
    return text.lower() if change == "lower" else text.upper()


def _stripped(text: Any, engine: str) -> Any:
    stripped: Any = (_trim if engine == "duckdb" else _btrim)(text, BLANKS)
    return stripped.nullif("")


@cache
def _cases(change: str) -> tuple[str, str]:
    """The letters that a change of case replaces, and what by."""
    letters = [chr(point) for points in CASED for point in points]
    pairs = [(one, getattr(one, change)()) for one in letters]
    single = [(a, b) for a, b in pairs if a != b and b in letters]
    return "".join(a for a, _ in single), "".join(b for _, b in single)


def is_settled(point: int) -> bool:
    """Return True for a code point whose normal form no engine's Unicode version changes.

    Unicode 3.2, which Python has beside its own version, had it, or it is a picture such as an
    emoji, which has no other form.
    """
    if any(point in points for points in _PICTURES):
        return True
    return 0 < point < _MOST and unicodedata.ucd_3_2_0.category(chr(point)) not in ("Cn", "Cs")


@cache
def _settled() -> str:
    """The code points that are settled, as ranges of a pattern."""
    parts: list[str] = []
    for settled, points in groupby(range(_MOST), is_settled):
        if settled:
            several = list(points)
            parts.append(f"{_escaped(several[0])}-{_escaped(several[-1])}")
    return "".join(parts)


def _escaped(point: int) -> str:
    return ("\\" if 0x20 < point < 0x7F and not chr(point).isalnum() else "") + chr(point)
