"""Figures as inline SVG: no script, no style and no resource of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

__all__ = ["Point", "limit_curve", "overlaid_figure", "tradeoff_figure"]

Point = tuple[float, float]

# The frame of the figure, in the units of its viewBox. `page.js` reads it from the SVG's data.
WIDTH, HEIGHT = 560.0, 430.0
LEFT, TOP, RIGHT, BOTTOM = 58.0, 36.0, 540.0, 372.0


def limit_curve(budget: Mapping[str, Any]) -> list[Point] | None:
    """Power against level of the curve that a budget draws as the limit; None if it draws none.

    Args:
        budget: as in a receipt: "at_most" (the Gaussian curve through its point), "gdp",
            "approximate" (power <= min(1, e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a))).

    Returns:
        Points (level, power) from level 0 to 1. Other kinds (zCDP) are functionals, not curves.
    """
    levels = np.linspace(0.0, 1.0, 161) ** 2
    kind = budget.get("kind")
    if kind == "at_most":
        level, power = (float(Fraction(str(budget[name]))) for name in ("level", "power"))
        if not (0 < level < 1 and 0 < power < 1):
            return None
        powers = ndtr(ndtri(levels) + ndtri(power) - ndtri(level))
    elif kind == "gdp":
        powers = ndtr(ndtri(levels) + float(Fraction(str(budget["mu"]))))
    elif kind == "approximate":
        epsilon = float(Fraction(str(budget["epsilon"])))
        delta = float(Fraction(str(budget["delta"])))
        factor = math.exp(min(epsilon, 700.0))
        powers = np.minimum(factor * levels + delta, 1 - (1 - delta - levels) / factor)
    else:
        return None
    powers[-1] = 1.0
    return list(zip(levels.tolist(), np.clip(powers, 0, 1).tolist(), strict=True))


def tradeoff_figure(
    curve: Sequence[Point],
    *,
    limit: Sequence[Point] | None = None,
    chosen: Point | None = None,
    label: str = "",
    title: str = "",
) -> str:
    """Power against level, both linear from 0 to 100%: the release, guessing, and the limit.

    Args:
        curve: (level, power), increasing in level: certified upper bounds.
        limit: the same for the budget's curve.
        chosen: a point to mark.
        label: one or two lines beside it, separated by a newline; plain text.
        title: what a screen reader says; plain text.

    Returns:
        An ``<svg>`` element. Text is escaped.
    """
    from html import escape

    # Down to level 0 the first point's power still bounds the curve, which never decreases.
    points = [(0.0, curve[0][1]), *curve] if curve else [(0.0, 0.0)]
    if points[-1][0] < 1:
        points.append((1.0, 1.0))
    line = _path(points)
    parts = [
        f'<svg class="tradeoff" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'data-frame="{LEFT:g} {TOP:g} {RIGHT:g} {BOTTOM:g}" aria-label="{escape(title)}">',
        f'<rect class="frame" x="{LEFT:g}" y="{TOP:g}" width="{RIGHT - LEFT:g}" '
        f'height="{BOTTOM - TOP:g}"/>',
        *_axes(),
        f'<path class="given-away" d="{line}L{_x(0)} {_y(0)}Z"/>',
        f'<path class="guessing" d="{_path([(0, 0), (1, 1)])}"/>',
        _along_diagonal("guessing: nothing learned"),
        f'<path class="release" d="{line}"/>',
    ]
    if limit:
        parts.append(f'<path class="limit" d="{_path(limit)}"/>')
    if chosen:
        x, y = _x(chosen[0]), _y(chosen[1])
        # A level near 1 has its label on the left; a power near 1 has it below, near 0 above.
        left = chosen[0] > 0.55
        side = 'text-anchor="end"' if left else ""
        at = float(x) + (-14 if left else 14)
        down = float(y) + (24 if chosen[1] > 0.85 else -34 if chosen[1] < 0.15 else 0)
        lines = "".join(
            f'<tspan x="{at:.1f}" dy="{"0" if i == 0 else "1.25em"}">{escape(text)}</tspan>'
            for i, text in enumerate(label.split("\n"))
        )
        parts += [
            f'<path class="drop" d="M{_x(0)} {y}H{x}V{_y(0)}"/>',
            f'<circle class="chosen" cx="{x}" cy="{y}" r="5.5"/>',
            f'<text class="chosen-label" y="{down:.1f}" {side}>{lines}</text>',
        ]
    parts.append('<g class="reader" hidden><path/><circle r="5"/></g></svg>')
    return "\n".join(parts)


# The frame of the small figure, whose labels stand on its right.
SMALL, SMALL_RIGHT, SMALL_BOTTOM, APART = (560.0, 340.0), 386.0, 284.0, 19.0


def overlaid_figure(curves: Sequence[tuple[str, str, Sequence[Point]]], *, title: str) -> str:
    """Power against small levels for several curves, each named at its right end.

    Args:
        curves: name (plain text), kind (a class: "release" or "scenario") and points (level,
            power), increasing in level up to the same last level for all.
        title: what a screen reader says; plain text.

    Returns:
        An ``<svg>`` element, in which names are escaped.
    """
    from html import escape

    last = curves[0][2][-1][0]
    top = min(1.0, math.ceil(max(points[-1][1] for _, _, points in curves) * 10 + 0.2) / 10)
    step = 0.1 if top <= 0.6 else 0.2

    def at(point: Point) -> tuple[float, float]:
        across = LEFT + point[0] / last * (SMALL_RIGHT - LEFT)
        return across, SMALL_BOTTOM - point[1] / top * (SMALL_BOTTOM - TOP)

    def path(points: Iterable[Point]) -> str:
        return "M" + "L".join("{:.2f} {:.2f}".format(*at(point)) for point in points)

    parts = [
        f'<svg class="overlaid" viewBox="0 0 {SMALL[0]:g} {SMALL[1]:g}" role="img" '
        f'aria-label="{escape(title)}">'
    ]
    for k in range(round(top / step) + 1):
        y = at((0, k * step))[1]
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:.2f}H{SMALL_RIGHT:g}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8:g}" y="{y:.2f}" dy="0.35em" text-anchor="end">'
            f"{round(k * step * 100)}%</text>"
        )
    for k in range(5):
        x = at((last * k / 4, 0))[0]
        parts.append(f'<path class="grid" d="M{x:.2f} {TOP:g}V{SMALL_BOTTOM:g}"/>')
        parts.append(
            f'<text class="tick" x="{x:.2f}" y="{SMALL_BOTTOM + 19:g}" text-anchor="middle">'
            f"{last * k / 4:.0%}</text>"
        )
    parts += [
        f'<text class="axis" x="{LEFT - 50:g}" y="{TOP - 16:g}">True claims found out, at most'
        "</text>",
        f'<text class="axis" x="{(LEFT + SMALL_RIGHT) / 2:g}" y="{SMALL_BOTTOM + 47:g}" '
        'text-anchor="middle">False claims taken for true (level)</text>',
        f'<path class="guessing" d="{path([(0, 0), (last, last)])}"/>',
    ]
    drawn = [("guessing", "guessing", [(0.0, 0.0), (last, last)]), *curves]
    spots = _spread([at(points[-1])[1] for _, _, points in drawn], TOP, SMALL_BOTTOM)
    for (name, kind, points), spot in zip(drawn, spots, strict=True):
        if kind != "guessing":
            parts.append(f'<path class="{kind}" d="{path([(0.0, points[0][1]), *points])}"/>')
        end = at(points[-1])[1]
        parts += [
            f'<path class="leader" d="M{SMALL_RIGHT + 3:g} {end:.2f}L{SMALL_RIGHT + 16:g} '
            f'{spot:.2f}"/>',
            f'<text class="{kind}-name" x="{SMALL_RIGHT + 20:g}" y="{spot:.2f}" dy="0.35em">'
            f"{escape(name)}</text>",
        ]
    return "\n".join([*parts, "</svg>"])


def _spread(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights near the given ones, in the same order, no two nearer than a line of text."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    found = [0.0] * len(heights)
    least = top
    for i in order:
        found[i] = max(heights[i], least)
        least = found[i] + APART
    most = bottom + 10
    for i in reversed(order):
        found[i] = min(found[i], most)
        most = found[i] - APART
    return found


def _axes() -> Iterable[str]:
    for tick in range(0, 101, 20):
        x, y = _x(tick / 100), _y(tick / 100)
        if 0 < tick < 100:
            yield f'<path class="grid" d="M{x} {TOP:g}V{BOTTOM:g}M{LEFT:g} {y}H{RIGHT:g}"/>'
        yield f'<text class="tick" x="{x}" y="{BOTTOM + 19:g}" text-anchor="middle">{tick}%</text>'
        yield (
            f'<text class="tick" x="{LEFT - 8:g}" y="{y}" dy="0.35em" text-anchor="end">'
            f"{tick}%</text>"
        )
    yield (
        f'<text class="axis" x="{LEFT - 50:g}" y="{TOP - 16:g}">True claims found out (power)'
        "</text>"
    )
    yield (
        f'<text class="axis" x="{(LEFT + RIGHT) / 2:g}" y="{BOTTOM + 47:g}" text-anchor="middle">'
        "False claims taken for true (level)</text>"
    )


def _along_diagonal(text: str) -> str:
    angle = -math.degrees(math.atan2(BOTTOM - TOP, RIGHT - LEFT))
    x, y = _x(0.62), _y(0.62)
    return (
        f'<text class="guessing-label" text-anchor="middle" dy="1.35em" '
        f'transform="translate({x} {y}) rotate({angle:.2f})">{text}</text>'
    )


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{_x(level)} {_y(power)}" for level, power in points)


def _x(level: float) -> str:
    return f"{LEFT + level * (RIGHT - LEFT):.2f}"


def _y(power: float) -> str:
    return f"{BOTTOM - power * (BOTTOM - TOP):.2f}"
