"""Write results as HTML for a notebook: tables, a small curve, and text.

A notebook shows the HTML that an object's `_repr_html_` returns. The HTML has no script, loads
nothing, and follows the notebook's colors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from neyman.elements import Element, Node, element

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


@dataclass(frozen=True)
class Limits:
    """Limit the size of a curve's drawing, the length of texts, and the rate of updates."""

    letters: int = 300  # largest number of characters in a text


LIMITS = Limits()


def shortened(text: str, most: int = LIMITS.letters) -> str:
    """Return a text. Omit its middle if it has more than ``most`` characters."""
    if len(text) <= most:
        return text
    half = (most - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def title(text: str) -> Element:
    """Return a bold line."""
    return element("p", element("strong", shortened(text)))


def paragraph(text: str) -> Element:
    """Return a paragraph."""
    return element("p", text)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> Element:
    """Return a table.

    Args:
        rows: values, each shown as text.
    """
    columns = [element("th", text, scope="col") for text in head]
    body = [element("tr", *(element("td", shortened(str(value))) for value in row)) for row in rows]
    return element(
        "table",
        element("caption", caption) if caption else "",
        element("thead", element("tr", *columns)),
        element("tbody", *body),
    )


def curve(levels: Sequence[float], powers: Sequence[float]) -> Element:
    """Return a small drawing of power against level, with the diagonal of guessing.

    Args:
        levels: false positive rates, increasing, in [0, 1].
        powers: true positive rates, in [0, 1].
    """

    side, margin = 160, 26  # side of the drawing, in SVG units

    def place(x: float, y: float) -> str:
        return f"{margin + x * side:.1f},{(1 - y) * side + 4:.1f}"

    def line(points: str, color: str, **style: str) -> Element:
        return element("polyline", points=points, fill="none", stroke=color, **style)

    def label(words: str, **at: str) -> Element:
        style = {"font_size": "9", "fill": "currentColor", "text_anchor": "middle"}
        return element("text", words, **at, **style)

    points = " ".join(place(x, y) for x, y in zip(levels, powers, strict=True))
    diagonal = f"{place(0, 0)} {place(1, 1)}"
    size = str(side + margin + 8)
    box = {"x": str(margin), "y": "4", "width": str(side), "height": str(side)}
    frame = {"fill": "none", "stroke": "currentColor", "stroke_width": "0.5"}
    return element(
        "svg",
        element("rect", **box, **frame),
        line(diagonal, "currentColor", stroke_width="1", stroke_dasharray="3 3"),
        line(points, "#2b87c8", stroke_width="2"),
        label("false positive rate", x=f"{margin + side / 2:g}", y=str(side + 18)),
        label("true positive rate", transform=f"translate(12 {side / 2:g}) rotate(-90)"),
        role="img",
        aria_label="Trade-off curve: true positive rate, at most, against false positive rate",
        width=size,
        height=size,
        viewBox=f"0 0 {size} {size}",
        xmlns="http://www.w3.org/2000/svg",
    )


def safe_html(parts: Callable[[], Iterable[Node]], plain: object) -> str:
    """Return the parts in one block. If a part fails, return the plain form.

    Args:
        parts: function that returns elements, part by part.
        plain: the object shown as its ``repr``, with the reason, if a part raises an error of the
            library or of a file.
    """
    try:
        return str(element("div", *parts()))
    except (ArithmeticError, OSError, ValueError) as error:
        return str(element("div", title(repr(plain)), paragraph(shortened(str(error)))))


def is_notebook() -> bool:
    """Return True if this process runs the cells of a notebook."""
    asked: Callable[[], Any] = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return hasattr(asked(), "kernel")


def progress_line() -> Callable[[str, float], None]:
    """Return a function that shows a stage and the part done in one line of a notebook.

    The line updates in place. Outside a notebook the function does nothing.
    """
    if not is_notebook():
        return lambda stage, part: None
    display = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)
    shown, at = "", 0.0

    def show(stage: str, part: float) -> None:
        nonlocal shown, at
        now = time.monotonic()
        if stage == shown and part < 1 and now - at < 0.1:  # seconds between two updates of a line
            return
        shown, at = stage, now
        with suppress(Exception):  # a display error must not stop a release
            handle.update(display.HTML(str(paragraph(f"{stage} ({int(100 * part)}%)"))))

    return show
