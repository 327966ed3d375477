"""HTML of results for a notebook: tables, a small curve, and text, with every text escaped.

A notebook shows what `_repr_html_` of an object returns. It has no script and loads nothing, and
its colors follow those of the notebook.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from html import escape
from importlib import import_module
from typing import Any

__all__ = [
    "curve",
    "is_notebook",
    "paragraph",
    "progress_line",
    "safe_html",
    "shortened",
    "table",
    "title",
]

_SIDE = 160  # units of the drawing
_MARGIN = 26
_LONGEST = 300  # letters of a text
_PAUSE = 0.1  # seconds between two states of a line


def shortened(text: str, most: int = _LONGEST) -> str:
    """Return a text with its middle left out where it has more than ``most`` letters."""
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def title(text: str) -> str:
    """Return a bold line."""
    return f"<p><strong>{escape(shortened(text))}</strong></p>"


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """Return a table.

    Args:
        head: the text over each column.
        rows: values, each shown as its text.
        caption: the text over the table.
    """
    over = f"<caption>{escape(caption)}</caption>" if caption else ""
    columns = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(shortened(str(value)))}</td>' for value in row)}</tr>"
        for row in rows
    )
    return f"<table>{over}<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"


def curve(levels: Sequence[float], powers: Sequence[float]) -> str:
    """Return a small drawing of power against level, with the diagonal of guessing.

    Args:
        levels: false positive rates, increasing, in [0, 1].
        powers: true positive rates, in [0, 1].
    """

    def place(x: float, y: float) -> str:
        return f"{_MARGIN + x * _SIDE:.1f},{(1 - y) * _SIDE + 4:.1f}"

    points = " ".join(place(x, y) for x, y in zip(levels, powers, strict=True))
    width, height = _SIDE + _MARGIN + 8, _SIDE + _MARGIN + 8
    label = "Trade-off curve: true positive rate, at most, against false positive rate"
    text = 'font-size="9" fill="currentColor" text-anchor="middle"'
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">'
        f'<rect x="{_MARGIN}" y="4" width="{_SIDE}" height="{_SIDE}" fill="none" '
        'stroke="currentColor" stroke-width="0.5"/>'
        f'<polyline points="{place(0, 0)} {place(1, 1)}" fill="none" stroke="currentColor" '
        'stroke-width="1" stroke-dasharray="3 3"/>'
        f'<polyline points="{points}" fill="none" stroke="#2b87c8" stroke-width="2"/>'
        f'<text x="{_MARGIN + _SIDE / 2:g}" y="{_SIDE + 18}" {text}>false positive rate</text>'
        f'<text transform="translate(12 {_SIDE / 2:g}) rotate(-90)" {text}>'
        "true positive rate</text>"
        "</svg>"
    )


def safe_html(parts: Callable[[], Iterable[str]], plain: object) -> str:
    """Return the parts in one block, or the plain form where one cannot be computed.

    Args:
        parts: returns HTML, part by part.
        plain: what is shown, as its ``repr``, with the reason if a part raises an error of the
            library or of a file.
    """
    try:
        return f"<div>{''.join(parts())}</div>"
    except (ArithmeticError, OSError, ValueError) as error:
        return f"<div>{title(repr(plain))}{paragraph(shortened(str(error)))}</div>"


def is_notebook() -> bool:
    """Return True in a process that runs the cells of a notebook."""
    asked: Callable[[], Any] = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return hasattr(asked(), "kernel")


def progress_line() -> Callable[[str, float], None]:
    """Return a function that shows a stage and the part done in one line of a notebook.

    The line changes in its place. Outside a notebook the function does nothing.
    """
    if not is_notebook():
        return lambda stage, part: None
    display = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)
    shown, at = "", 0.0

    def show(stage: str, part: float) -> None:
        nonlocal shown, at
        now = time.monotonic()
        if stage == shown and part < 1 and now - at < _PAUSE:
            return
        shown, at = stage, now
        with suppress(Exception):  # a line that cannot be shown ends no release
            handle.update(display.HTML(paragraph(f"{stage} ({int(100 * part)}%)")))

    return show
