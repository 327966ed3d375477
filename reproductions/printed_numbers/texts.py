"""The five texts, and the entries of each."""

from __future__ import annotations

from collections import Counter
from functools import cache

from reproductions.printed_numbers import duchi, kifer_abowd, published, student, su
from reproductions.printed_numbers.entry import Entry

__all__ = ["TEXTS", "entries", "numerals"]

TEXTS = {
    "su": su,
    "kifer-abowd": kifer_abowd,
    "duchi": duchi,
    "student": student,
    "published": published,
}
"""Name of a text's page, and the module that lists its entries."""


@cache
def entries(name: str) -> tuple[Entry, ...]:
    """Return all entries of a text, each compared.

    Args:
        name: a key of `TEXTS`.

    Raises:
        ArithmeticError: a printed number and ours differ without a reason.
    """
    return tuple(TEXTS[name].entries())


def numerals(name: str) -> dict[str, dict[str, int]]:
    """Return the numerals that the entries of a text account for, by section, with counts."""
    result: dict[str, Counter[str]] = {}
    for entry in entries(name):
        result.setdefault(entry.section, Counter()).update(entry.numerals)
    return {section: dict(sorted(part.items())) for section, part in result.items() if part}
