"""Texts that others chose, shown without characters that a terminal obeys.

A control character can move the cursor, clear the screen, or start a command of a terminal, and a
mark of direction can turn a line around.
"""

from __future__ import annotations

import re

__all__ = ["escaped", "visible"]

_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_IN_LINES = re.compile(rf"(?!\n)[{_CONTROLS}]")
_MISTAKABLE = re.compile(r"\\(?=u[0-9a-f]{4})")


def visible(text: str) -> str:
    """Return a text for a terminal, in which control characters but line ends are as ``\\u001b``.

    Args:
        text: of one line or of several. JSON keeps its meaning.
    """
    return _IN_LINES.sub(_code, text)


def escaped(text: str) -> str:
    """Return a text in which control characters and line ends are as ``\\u001b``, without loss.

    A backslash before what would look the same is ``\\u005c``. So each ``\\u`` with four digits
    stands for one character, and all else for itself.

    Args:
        text: of a cell.
    """
    return _CONTROL.sub(_code, _MISTAKABLE.sub(_code, text))


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
