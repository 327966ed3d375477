"""Small multiples as one SVG file: panels with the same axes, lines labeled where they run.

The file stands alone (an image in a page of text): it has its own paper, type and colors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Axis", "Label", "Line", "Panel", "figure"]

Point = tuple[float, float]

CELL = 230.0, 214.0  # one panel, with what stands around its frame
MARGIN = 50.0, 46.0, 16.0, 34.0  # of the frame in its cell: left, top, right, bottom
LETTER = 6.7  # about the width of one
COLORS = {"exact": "#1d4f91", "bound": "#a8430c", "other": "#4c7a34", "fourth": "#7a4b94"}
STYLE = """\
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
text{fill:#1b1e22}.head{font-weight:650;font-size:13px}.soft{fill:#565e67}
.wide text{font-size:13px}.wide .head{font-size:15px}
.label{font-weight:500;paint-order:stroke;stroke:#fff;stroke-width:4px}
.grid{stroke:#e6e9ec}.frame{fill:none;stroke:#9aa2aa}.leader{stroke:#9aa2aa}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.guess{fill:none;stroke:#8b939b;stroke-dasharray:4 4}\
"""


@dataclass(frozen=True)
class Axis:
    """A scale that all panels share.

    Args:
        title: what it measures.
        ticks: values with their text, from the low end to the high one.
        logarithmic: whether equal distances are equal factors.
        few: how many ticks apart the small panels have theirs.
    """

    title: str
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool = False
    few: int = 1

    def share(self, value: float) -> float:
        """Where a value stands between the ends, 0 to 1."""
        low, high = self.ticks[0][0], self.ticks[-1][0]
        if self.logarithmic:
            value, low, high = math.log(max(value, 1e-300)), math.log(low), math.log(high)
        return (value - low) / (high - low)


@dataclass(frozen=True)
class Label:
    """Words beside a line.

    Args:
        text: one or more lines, separated by newlines.
        at: where they begin (in the axes' units).
        to: where a thin rule leads to, on the line; none if the words stand beside it.
        anchor: "start", "middle" or "end".
    """

    text: str
    at: Point
    to: Point | None = None
    anchor: str = "start"


@dataclass(frozen=True)
class Line:
    """One curve: its points, increasing in x, its kind (a color's name, or "guess") and label."""

    points: Sequence[Point]
    kind: str
    label: Label | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """A heading, a line below it, and curves.

    Args:
        head: the heading.
        note: beside it, or below it where the panel is small.
        lines: the curves, the last on top.
        dots: marked points.
        labels: words that belong to no line.
    """

    head: str
    note: str
    lines: tuple[Line, ...]
    dots: tuple[Point, ...] = ()
    labels: tuple[Label, ...] = ()


def figure(
    panels: Sequence[Panel],
    x: Axis,
    y: Axis,
    *,
    title: str,
    columns: int = 4,
    large: int = 2,
    cell: Point = CELL,
) -> str:
    """Return the first panel large, the others in the cells that are left, row by row.

    The axes are named where the panel is large, or where all are alike.

    Args:
        panels: at least one.
        x: the axis of all panels.
        y: likewise.
        title: what a screen reader says.
        columns: cells in a row.
        large: how many cells wide and high the first panel is; 1 for one like the others.
        cell: width and height of a cell.

    Returns:
        The text of an SVG file.
    """
    cells = [
        (column, row)
        for row in range(len(panels) + large)
        for column in range(columns)
        if column >= large or row >= large
    ]
    boxes = [(0, 0, large), *((c, r, 1) for c, r in cells if (c, r) != (0, 0))][: len(panels)]
    width = max(c + size for c, _, size in boxes) * cell[0] + 4
    rows = max(r + size for _, r, size in boxes)
    room = 20 if len(panels) <= columns or 1 < large == rows else 0  # for the axis's name
    height = rows * cell[1] + room
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
    ]
    for i, (panel, (column, row, size)) in enumerate(zip(panels, boxes, strict=True)):
        frame = (
            column * cell[0] + MARGIN[0],
            row * cell[1] + MARGIN[1],
            size * cell[0] - MARGIN[0] - MARGIN[2],
            size * cell[1] - MARGIN[1] - MARGIN[3],
        )
        parts += _panel(panel, x, y, frame, i, named=size > 1 or large == 1)
    return "\n".join([*parts, "</svg>\n"])


Frame = tuple[float, float, float, float]


def _panel(panel: Panel, x: Axis, y: Axis, frame: Frame, i: int, *, named: bool) -> Iterable[str]:
    left, top, wide, high = frame

    def place(point: Point) -> Point:
        return left + x.share(point[0]) * wide, top + (1 - y.share(point[1])) * high

    yield f'<g class="{"wide" if named else "small"}">'
    yield (
        f'<clipPath id="c{i}"><rect x="{left:g}" y="{top - 2:g}" width="{wide:g}" '
        f'height="{high + 4:g}"/></clipPath>'
    )
    head, note = escape(panel.head), f'class="soft">{escape(panel.note)}<'
    if named:
        yield (
            f'<text class="head" x="{left:g}" y="{top - 28:g}">{head}<tspan dx="10" '
            f'font-weight="400" font-size="13" {note}/tspan></text>'
        )
        yield f'<text class="soft" x="{left - 34:g}" y="{top - 9:g}">↑ {escape(y.title)}</text>'
        yield (
            f'<text class="soft" x="{left + wide:g}" y="{top + high + 36:g}" text-anchor="end">'
            f"{escape(x.title)} →</text>"
        )
    else:
        yield f'<text class="head" x="{left:g}" y="{top - 25:g}">{head}</text>'
        yield f'<text x="{left:g}" y="{top - 8:g}" {note}/text>'
    for value, text in x.ticks[:: 1 if named else x.few]:
        at = place((value, y.ticks[0][0]))[0]
        yield f'<path class="grid" d="M{at:.1f} {top:g}V{top + high:g}"/>'
        yield (
            f'<text class="soft" x="{at:.1f}" y="{top + high + 16:g}" text-anchor="middle">'
            f"{escape(text)}</text>"
        )
    for value, text in y.ticks[:: 1 if named else y.few]:
        at = place((x.ticks[0][0], value))[1]
        yield f'<path class="grid" d="M{left:g} {at:.1f}H{left + wide:g}"/>'
        yield (
            f'<text class="soft" x="{left - 6:g}" y="{at:.1f}" dy=".35em" text-anchor="end">'
            f"{escape(text)}</text>"
        )
    yield f'<rect class="frame" x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}"/>'
    for line in panel.lines:
        path = "M" + "L".join("{:.1f} {:.1f}".format(*place(p)) for p in line.points)
        look = "guess" if line.kind == "guess" else "line"
        color = "" if line.kind == "guess" else f' stroke="{COLORS[line.kind]}"'
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        yield f'<path class="{look}"{color}{dash} clip-path="url(#c{i})" d="{path}"/>'
    for point in panel.dots:
        px, py = place(point)
        yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{COLORS["exact"]}"/>'
    for line in panel.lines:
        if line.label:
            yield from _labeled(line.label, COLORS.get(line.kind, "#565e67"), place)
    for label in panel.labels:
        yield from _labeled(label, COLORS["exact"], place)
    yield "</g>"


def _labeled(label: Label, color: str, place: Callable[[Point], Point]) -> Iterable[str]:
    px, py = place(label.at)
    lines = label.text.split("\n")
    if label.to:
        tx, ty = place(label.to)
        beside = px - 5 if tx < px else px + LETTER * len(lines[0]) + 5
        yield f'<path class="leader" d="M{beside:.1f} {py - 4:.1f}L{tx:.1f} {ty:.1f}"/>'
    for k, text in enumerate(lines):
        yield (
            f'<text class="label" x="{px:.1f}" y="{py + 16 * k:.1f}" style="fill:{color}" '
            f'text-anchor="{label.anchor}">{escape(text)}</text>'
        )
