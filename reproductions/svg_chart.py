"""Small charts as SVG that stands alone: no script, no font and no file beside it.

Lines carry their names at their ends, so that nobody has to look them up in a legend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Area", "Axis", "Line", "Note", "chart", "grid"]

Point = tuple[float, float]

INK, PALE, GRID = "#1b1b1b", "#5c5c5c", "#e3e3e3"
FONT = "font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
SIZE = 13.0
LETTER = 0.54  # of the size: about how wide a letter is
GAP = 16.0  # between two names
TICKS = 5


@dataclass(frozen=True)
class Axis:
    """What a direction of the chart shows.

    Args:
        low, high: its ends.
        label: what it is, with its unit.
        log: whether equal steps are equal factors.
        ticks: (place, text); found if left out.
    """

    low: float
    high: float
    label: str = ""
    log: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high one."""
        if self.log:
            value = max(value, self.low * 1e-12)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> tuple[tuple[float, str], ...]:
        """Return the ticks: powers of ten, or steps of 1, 2 or 5."""
        if self.ticks is not None:
            return self.ticks
        if self.log:
            powers = range(
                math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1
            )
            return tuple((10.0**k, f"{10.0**k:g}") for k in powers)
        rough = (self.high - self.low) / TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        step = unit * next(s for s in (1, 2, 5, 10) if s * unit >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return tuple((k * step, f"{k * step:g}") for k in range(first, last + 1))


@dataclass(frozen=True)
class Line:
    """A line through points.

    Args:
        points: (x, y) in the order in which they are joined.
        name: written at its right end; none if empty.
        color: of the line and its name.
        width: of the line.
        dash: SVG's stroke-dasharray; empty for a solid line.
    """

    points: Sequence[Point]
    name: str = ""
    color: str = INK
    width: float = 1.6
    dash: str = ""


@dataclass(frozen=True)
class Area:
    """A filled polygon."""

    points: Sequence[Point]
    color: str = "#f1ece1"


@dataclass(frozen=True)
class Note:
    """Words at a place: ``anchor`` is "start", "middle" or "end"."""

    x: float
    y: float
    text: str
    color: str = PALE
    anchor: str = "start"
    dot: bool = False


def chart(
    x: Axis,
    y: Axis,
    marks: Sequence[Line | Area | Note],
    *,
    title: str,
    width: float = 720,
    height: float = 440,
    heading: str = "",
) -> str:
    """Return an SVG document.

    Args:
        x, y: the axes; what lies beyond them is cut off.
        marks: in the order in which they are drawn.
        title: what a screen reader says.
        width, height: in pixels.
        heading: a line above the frame; the y axis's label stands there if it is empty.
    """
    names = [m.name for m in marks if isinstance(m, Line) and m.name]
    right = width - 14 - max((len(n) * SIZE * LETTER + 14 for n in names), default=0.0)
    ticks = max((len(text) for _, text in y.marks()), default=1)
    left, top, bottom = 20 + ticks * SIZE * LETTER, 44.0 if heading else 30.0, height - 46

    def place(point: Point) -> Point:
        across = left + x.share(point[0]) * (right - left)
        down = bottom - y.share(point[1]) * (bottom - top)
        # Far beyond the frame a renderer loses digits; the frame cuts anyway.
        return min(max(across, -2e3), 2e4), min(max(down, -2e3), 2e4)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" style="{FONT};font-size:{SIZE:g}px">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        f'<clipPath id="frame"><rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
        f'height="{bottom - top:.1f}"/></clipPath>',
    ]
    parts += _axes(x, y, left, right, top, bottom, heading)
    ends: list[tuple[float, Line]] = []
    for mark in marks:
        if isinstance(mark, Note):
            parts += _noted(mark, place((mark.x, mark.y)))
            continue
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in map(place, mark.points))
        if isinstance(mark, Area):
            parts.append(f'<path d="{path}Z" fill="{mark.color}" clip-path="url(#frame)"/>')
            continue
        dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ""
        parts.append(
            f'<path d="{path}" fill="none" stroke="{mark.color}" stroke-width="{mark.width:g}" '
            f'stroke-linejoin="round" clip-path="url(#frame)"{dash}/>'
        )
        if mark.name:
            ends.append((min(max(place(_last(mark, x, y))[1], top), bottom), mark))
    parts += _names(ends, [place(_last(line, x, y))[0] for _, line in ends], right, top, bottom)
    return "\n".join([*parts, "</svg>\n"])


def grid(charts: Sequence[str], columns: int, *, title: str) -> str:
    """Return one document of charts of equal size, row by row.

    Args:
        charts: SVG documents of `chart`.
        columns: how many stand side by side.
        title: what a screen reader says.
    """
    sizes = [re.search(r'width="([\d.]+)" height="([\d.]+)"', one) for one in charts]
    width, height = (max(float(s[k]) for s in sizes if s) for k in (1, 2))
    across, down = columns * width, math.ceil(len(charts) / columns) * height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {down:g}" '
        f'width="{across:g}" height="{down:g}" role="img">',
        f"<title>{escape(title)}</title>",
    ]
    for k, one in enumerate(charts):
        own = one.replace('id="frame"', f'id="frame{k}"').replace("url(#frame)", f"url(#frame{k})")
        place = f'x="{k % columns * width:g}" y="{k // columns * height:g}"'
        parts.append(own.replace("<svg ", f"<svg {place} ", 1).rstrip())
    return "\n".join([*parts, "</svg>\n"])


def _last(line: Line, x: Axis, y: Axis) -> Point:
    """Where a line leaves the frame, or ends."""
    inside = [p for p in line.points if x.share(p[0]) <= 1 + 1e-9 and y.share(p[1]) <= 1 + 1e-9]
    return inside[-1] if inside else line.points[-1]


def _axes(
    x: Axis, y: Axis, left: float, right: float, top: float, bottom: float, heading: str
) -> list[str]:
    parts = []
    for value, text in x.marks():
        at = left + x.share(value) * (right - left)
        parts.append(f'<path d="M{at:.1f} {top:.1f}V{bottom:.1f}" stroke="{GRID}"/>')
        parts.append(_text(at, bottom + 18, text, PALE, "middle"))
    for value, text in y.marks():
        at = bottom - y.share(value) * (bottom - top)
        parts.append(f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" stroke="{GRID}"/>')
        parts.append(_text(left - 7, at + 4.5, text, PALE, "end"))
    parts.append(
        f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="{PALE}"/>'
    )
    if heading:
        parts.append(_text(12, 20, heading, INK, bold=True))
    parts.append(_text(12, top - 9, y.label, PALE))
    parts.append(_text(right, bottom + 37, x.label, PALE, "end"))
    return parts


def _names(
    ends: Sequence[tuple[float, Line]],
    across: Sequence[float],
    right: float,
    top: float,
    bottom: float,
) -> list[str]:
    """Names beside the ends; those that would overlap are spread around their middle."""
    order = sorted(range(len(ends)), key=lambda i: ends[i][0])
    groups: list[tuple[float, int]] = []  # the middle of so many names
    for i in order:
        middle, count = ends[i][0], 1
        while groups and middle - groups[-1][0] < GAP * (count + groups[-1][1]) / 2:
            other, more = groups.pop()
            middle, count = (middle * count + other * more) / (count + more), count + more
            half = GAP * (count - 1) / 2
            middle = min(max(middle, top + half), bottom - half)
        groups.append((middle, count))
    places = [m + GAP * (k - (n - 1) / 2) for m, n in groups for k in range(n)]
    parts = []
    for at, i in zip(places, order, strict=True):
        end, line = ends[i]
        parts.append(
            f'<path d="M{min(across[i], right):.1f} {end:.1f}L{right + 9:.1f} {at:.1f}" '
            f'stroke="{line.color}" stroke-width="0.8" fill="none"/>'
        )
        parts.append(_text(right + 12, at + 4.5, line.name, line.color, bold=line.width > 2.2))
    return parts


def _noted(note: Note, at: Point) -> list[str]:
    parts = []
    if note.dot:
        parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{note.color}"/>')
    away = {"start": 8.0, "end": -8.0}.get(note.anchor, 0.0) if note.dot else 0.0
    parts += [
        _text(at[0] + away, at[1] + 4.5 + 1.25 * SIZE * k, text, note.color, note.anchor)
        for k, text in enumerate(note.text.split("\n"))
    ]
    return parts


def _text(
    x: float, y: float, text: str, color: str, anchor: str = "start", *, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{side}{weight}>{escape(text)}</text>'
