"""Draw the packages of `neyman` and their imports, from the code.

``python docs/site/import_picture.py`` writes docs/architecture.svg. With ``--check`` it writes
nothing and exits with 1 if the picture on disk differs from the code.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, BOX, MARGIN = 1000, 84, 46, 24

Graph = dict[str, set[str]]


def layers() -> list[list[str]]:
    """The layers of packages that the linter holds, from the top."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in config["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    rows = [[name.strip() for name in row.split("|")] for row in contract["layers"]]
    folders = {path.parent.name for path in (ROOT / "src" / "neyman").glob("*/__init__.py")}
    return [row for row in rows if {*row} <= folders]


def imports() -> tuple[Graph, dict[str, int]]:
    """Which package imports which packages below it, and the lines of each package."""
    shown = {name: place for place, row in enumerate(layers()) for name in row}
    graph: Graph = defaultdict(set)
    lines: dict[str, int] = defaultdict(int)
    source = ROOT / "src" / "neyman"
    for path in sorted(source.rglob("*.py")):
        own = path.relative_to(source).parts[0].removesuffix(".py")
        if own not in shown:
            continue
        text = path.read_text(encoding="utf-8")
        lines[own] += text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neyman"):
                parts = (node.module or "").split(".")
                targets = [parts[1]] if len(parts) > 1 else [name.name for name in node.names]
                graph[own].update(t for t in targets if shown.get(t, 0) > shown[own])
    return graph, lines


def reduced(graph: Graph) -> Graph:
    """The graph without arrows that a longer path implies."""

    def reach(start: str, observation: set[str]) -> set[str]:
        for step in graph.get(start, ()):
            if step not in observation:
                observation.add(step)
                reach(step, observation)
        return observation

    below = {name: reach(name, set()) for name in graph}
    return {
        name: {t for t in targets if not any(t in below.get(o, ()) for o in targets if o != t)}
        for name, targets in graph.items()
    }


def picture() -> str:
    """The SVG: one row per layer, an arrow from each package to what it imports directly."""
    graph, lines = imports()
    rows = layers()
    place: dict[str, tuple[float, float, float]] = {}
    for i, row in enumerate(rows):
        width = min((WIDTH - 2 * MARGIN) / len(row) - 16, 190)
        start = (WIDTH - len(row) * (width + 16) + 16) / 2
        for j, name in enumerate(row):
            place[name] = (start + j * (width + 16), MARGIN + i * ROW, width)
    height = 2 * MARGIN + (len(rows) - 1) * ROW + BOX
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        "<title>Packages of neyman and their imports</title>",
        "<style>rect{fill:#fff;stroke:#666}text{fill:#1a1a1a}path{stroke:#8a8a8a;fill:none}"
        "@media (prefers-color-scheme:dark){rect{fill:#1f1f1f;stroke:#999}text{fill:#eee}"
        "path{stroke:#777}}</style>",
    ]
    for name, targets in sorted(reduced(graph).items()):
        for target in sorted(targets):
            if name in place and target in place:
                x, y, w = place[name]
                u, v, s = place[target]
                middle = (y + BOX + v) / 2
                text.append(
                    f'<path d="M{x + w / 2:.0f} {y + BOX:.0f} C{x + w / 2:.0f} {middle:.0f} '
                    f'{u + s / 2:.0f} {middle:.0f} {u + s / 2:.0f} {v:.0f}"/>'
                )
    for name, (x, y, w) in place.items():
        text.append(f'<rect x="{x:.0f}" y="{y}" width="{w:.0f}" height="{BOX}" rx="6"/>')
        center = x + w / 2
        text.append(
            f'<text x="{center:.0f}" y="{y + 20}" text-anchor="middle" font-size="15">{name}</text>'
        )
        text.append(
            f'<text x="{center:.0f}" y="{y + 37}" text-anchor="middle" font-size="11">'
            f"{round(lines[name], -2) / 1000:.1f} thousand lines</text>"
        )
    return "\n".join([*text, "</svg>"]) + "\n"


def main() -> int:
    """Write the picture, or check it."""
    current = picture()
    if "--check" not in sys.argv:
        PICTURE.write_text(current, encoding="utf-8")
        return 0
    same = PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == current
    if not same:
        print("docs/architecture.svg differs from the code; run docs/site/import_picture.py")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
