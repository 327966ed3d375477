"""Show texts that others chose without characters that a terminal obeys.

A control character can move the cursor, clear the screen, or start a command of a terminal. A
direction mark can reverse a line.
"""

from __future__ import annotations

import re

from neyman.elements import UNSEEN

# A page keeps the three marks of right-to-left text. A terminal does not need them.
_CONTROLS = rf"{UNSEEN}\u061c\u200e\u200f"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_IN_LINES = re.compile(rf"(?!\n)[{_CONTROLS}]")
_MISTAKABLE = re.compile(r"\\(?=u[0-9a-f]{4})")


def visible(text: str) -> str:
    """Escape control characters, except line ends, in the form ``\\u001b``, for a terminal.

    Args:
        text: a text of one or several lines. If it is JSON, its meaning does not change.
    """
    return _IN_LINES.sub(_code, text)


def escaped(text: str) -> str:
    """Escape control characters and line ends in the form ``\\u001b``, without loss.

    A backslash before text that looks like an escape becomes ``\\u005c``. So each ``\\u`` with four
    digits stands for one character, and all other text for itself.
    """
    return _CONTROL.sub(_code, _MISTAKABLE.sub(_code, text))


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
