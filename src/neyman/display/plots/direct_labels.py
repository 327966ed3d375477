"""Draw lines with their names beside them, for all figures of `plots`.

A name is placed where the figure has room: near its own line, and off all other lines. All
distances are in pixels of the figure at the time of drawing.
"""

# Some methods of matplotlib have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree  # pyright: ignore[reportMissingTypeStubs]

from neyman.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito 2008, the darker colors first: distinct for all kinds of color vision.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
PALE = "#6b6b6b"

Array = NDArray[np.float64]


_FAR = (0.75, 1.1, 1.6, 2.3, 3.2)  # distances from a point of a line to its name, in letter heights


@dataclass(frozen=True)
class LabeledLine:
    """Hold the name (empty for none) and the points of a drawn line."""

    name: str
    x: Array
    y: Array
    color: str


def fresh(axes: Axes | None) -> Axes:
    """Return the axes, or axes of a new figure, without a frame above and on the right."""
    require("figures", "matplotlib")
    from matplotlib import pyplot as plt

    if axes is None:
        _, axes = plt.subplots(layout="constrained")
    if not hasattr(axes, "spines"):
        raise TypeError(f"axes = {axes!r} must be axes of matplotlib")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def draw(axes: Axes, name: str, x: Any, y: Any, color: str, **style: Any) -> LabeledLine:
    """Draw a line. Return it with its name and points."""
    line = LabeledLine(name, np.asarray(x, float), np.asarray(y, float), color)
    look: dict[str, Any] = {"linewidth": 1.8, **style}
    axes.plot(line.x, line.y, color=color, **look)
    return line


def percent(*sides: Any) -> None:
    """Label the ticks of these sides of a figure, such as ``axes.xaxis``, in percent."""
    from matplotlib.ticker import PercentFormatter

    for side in sides:
        side.set_major_formatter(PercentFormatter(1.0, decimals=0))


def name_lines(axes: Axes, lines: Sequence[LabeledLine]) -> None:
    """Write each line's name beside it, at the place with the fewest obstacles.

    Args:
        axes: the axes of the lines, with final limits and scales.
        lines: all lines, so that names also avoid lines without a name.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.canvas.draw()  # scales, limits and the layout are known from here on
    frame = axes.get_window_extent()
    paths = [_pixels(axes, line) for line in lines]
    taken: list[Array] = []
    for line, path in zip(lines, paths, strict=True):
        if not line.name or not len(path):
            continue
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "medium"}
        look["color"] = readable(line.color)
        text = axes.annotate(line.name, (0, 0), xycoords="figure pixels", **look)
        box = text.get_window_extent()
        half = np.array([box.width, box.height]) / 2
        place = _best(path, [p for p in paths if p is not path], taken, half, frame)
        taken.append(np.concatenate([place - half, place + half]))
        text.remove()
        x, y = axes.transAxes.inverted().transform(place)
        axes.text(x, y, line.name, transform=axes.transAxes, zorder=5, **look)


def _pixels(axes: Axes, line: LabeledLine) -> Array:
    """Return points along a line inside the frame, a few pixels apart."""
    points = np.column_stack([line.x, line.y])
    points = points[np.isfinite(points).all(axis=1)]
    for values, scale in ((points[:, 0], axes.get_xscale()), (points[:, 1], axes.get_yscale())):
        if scale == "log":
            np.maximum(values, 1e-300, out=values)
    pixels = axes.transData.transform(points)
    steps = np.hypot(*np.diff(pixels, axis=0).T)
    walked = np.concatenate([[0.0], np.cumsum(steps)])
    if walked[-1] == 0:
        return pixels[:1]
    at: Array = np.linspace(0, float(walked[-1]), max(int(min(walked[-1], 1e5) / 3), 2))
    dense: Array = np.column_stack([np.interp(at, walked, pixels[:, i]) for i in (0, 1)])
    frame = axes.get_window_extent()
    inside = (dense >= [frame.x0 - 1, frame.y0 - 1]) & (dense <= [frame.x1 + 1, frame.y1 + 1])
    return dense[inside.all(axis=1)]


def _best(
    path: Array, others: Sequence[Array], taken: Sequence[Array], half: Array, frame: Any
) -> Array:
    """Return the center of a name beside its line where `_cost` is least.

    ``path`` has points of its line, and ``others`` those of other lines. ``taken`` has the boxes of
    placed names. ``half`` is half the name's width and height.
    """
    height = 2 * half[1]
    every = np.concatenate([path, *others])
    # If another line runs along this one, a name may stand for both.
    foreign = every[KDTree(path).query(every)[0] > 3]
    best, least = path[len(path) // 2], np.inf
    # Points of a line that are tried.
    for spot in path[np.linspace(0, len(path) - 1, 36).astype(int)]:
        for far in _FAR:
            for across in (-1.0, 0.0, 1.0):
                for up in (-1.0, 0.0, 1.0):
                    if across == 0 and up == 0:
                        continue
                    # Distance to the nearest edge of the name: half a letter less than `far`.
                    gap = (far - 0.5) * height
                    place = spot + np.array(
                        [
                            across * (half[0] + gap * 0.8),
                            up * (half[1] + gap * (0.6 if across else 1)),
                        ]
                    )
                    cost = _cost(place, half, every, foreign, spot, taken, frame, height) + far
                    if cost < least:
                        best, least = place, cost
    return best


def _cost(
    place: Array,
    half: Array,
    every: Array,
    foreign: Array,
    spot: Array,
    taken: Sequence[Array],
    frame: Any,
    height: float,
) -> float:
    """Return the cost of ``place`` as the center of a name, by what is in its way.

    ``every`` has points of all lines, ``foreign`` those that are not along the name's line, and
    ``spot`` is the named point of this line.
    """
    low, high = place - half, place + half
    wide = 0.35 * height  # gap between a name and any line, in letter heights
    crossed = ((every > low - wide) & (every < high + wide)).all(axis=1).sum()
    cost = 5.0 * crossed
    for other in taken:
        if (low < other[2:] + wide).all() and (high > other[:2] - wide).all():
            cost += 500.0
    if (
        low[0] < frame.x0 + 3
        or high[0] > frame.x1 - 3
        or low[1] < frame.y0 + 3
        or high[1] > frame.y1 - 3
    ):
        cost += 1000.0
    own = _distance(spot[None], low, high)
    if len(foreign):
        nearest = _distance(foreign, low, high)
        cost += 40.0 * max(0.0, 1.6 - nearest / max(own, 1.0))
    return cost


def _distance(points: Array, low: Array, high: Array) -> float:
    """Return the least distance between points and the box with corners ``low`` and ``high``."""
    apart = np.maximum(np.maximum(low - points, points - high), 0)
    return float(np.hypot(*apart.T).min())


def readable(color: str) -> Any:
    """Return a darker color whose letters are readable on white."""
    from matplotlib.colors import to_rgb

    return tuple(0.65 * c for c in to_rgb(color))
