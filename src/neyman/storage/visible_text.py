"""Texts that others chose, shown without characters that a terminal obeys.

A control character can move the cursor, clear the screen, or start a command of a terminal, and a
mark of direction can turn a line around.
"""

from __future__ import annotations

import re

from neyman.elements import UNSEEN

# A page keeps the three marks of text that runs from right to left; a terminal need not.
_CONTROLS = rf"{UNSEEN}\u061c\u200e\u200f"
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
    """
    return _CONTROL.sub(_code, _MISTAKABLE.sub(_code, text))


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
