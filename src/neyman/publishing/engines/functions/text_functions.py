"""Change texts on every engine: to one case, to one Unicode form, or without outer blanks.

No engine's Unicode version, locale, or collation affects these functions. ``lower`` and ``upper``
replace a letter of `CASED` by one letter. ``strip`` removes `BLANKS`, and a text of only blanks is
missing. ``normalize`` gives the Unicode form NFC, but a text stays unchanged if it is not UTF-8 or
has a character that is not `is_settled`. Texts of only ASCII or common letters take a faster way.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import groupby

import ibis

from neyman.publishing.engines.backends import Backend, Value

CASED = range(0x41, 0x590), range(0x1E00, 0x2000)
"""The code points of the letters that change case: Latin, Greek, Cyrillic, and Armenian."""

_BLANK_RANGES = range(0x09, 0x0E), range(0x1C, 0x21), range(0x2000, 0x200B)
BLANKS = "\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    chr(point) for points in _BLANK_RANGES for point in points
)
"""The characters that ``strip`` removes."""

_PICTURES = range(0x1F300, 0x1F650), range(0x1F900, 0x1FA00)
_CODE_POINT_END = 0x30000  # higher code points are tags, variants, and private


@ibis.udf.scalar.builtin(name="nfc_normalize")
def _nfc(text: str) -> str:  # pyright: ignore[reportReturnType] - see ``postgres_sql``
    """Return the Unicode normal form NFC of a text."""


def changed_text(data: Value, changes: Sequence[str], backend: Backend) -> Value:
    """Return the bytes of the text ``data`` after ``changes`` (of `TEXT_CHANGES`), in order."""
    text, is_text, is_ascii = backend.decode(data)
    short: Value = text
    long: Value = text
    for change in changes:
        if change == "strip":
            short, long = (backend.strip(one, BLANKS).nullif("") for one in (short, long))
        elif change == "normalize":
            long = ibis.cases((long.re_search(f"[^{_stable_points()}]"), long), else_=_nfc(long))
        else:
            short, own = (t.lower() if change == "lower" else t.upper() for t in (short, long))
            long = backend.change_case(long, own, long.translate(*_cases(change)))
    # The first true condition decides, and later branches are not computed.
    return ibis.cases(
        (~is_text, data), (is_ascii, backend.encode(short)), else_=backend.encode(long)
    )


@cache
def _cases(change: str) -> tuple[str, str]:
    """Return the letters that ``lower`` or ``upper`` replaces, and their replacements, in order."""
    letters = [chr(point) for points in CASED for point in points]
    pairs = [(one, getattr(one, change)()) for one in letters]
    single = [(a, b) for a, b in pairs if a != b and b in letters]
    return "".join(a for a, _ in single), "".join(b for _, b in single)


def is_settled(point: int) -> bool:
    """Return True for a code point whose form NFC is the same in every engine's Unicode version.

    Such a code point is in Unicode 3.2, whose tables Python includes, or is a picture such as an
    emoji, which has no other form.
    """
    if any(point in points for points in _PICTURES):
        return True
    return 0 < point < _CODE_POINT_END and unicodedata.ucd_3_2_0.category(chr(point)) not in (
        "Cn",
        "Cs",
    )


@cache
def _stable_points() -> str:
    """Return the code points that are `is_settled`, as ranges for a regular expression."""
    parts: list[str] = []
    for settled, points in groupby(range(_CODE_POINT_END), is_settled):
        if settled:
            several = list(points)
            parts.append(f"{_escape(several[0])}-{_escape(several[-1])}")
    return "".join(parts)


def _escape(point: int) -> str:
    return ("\\" if 0x20 < point < 0x7F and not chr(point).isalnum() else "") + chr(point)
