"""Pages that are written in Markdown: their tables, and the command that writes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["Tell", "main", "table"]

Tell = Callable[[str, float], None]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Return a table whose first columns are words and whose others are figures.

    Args:
        head: the columns' headings.
        rows: cells, as many as headings; Markdown.
        words: how many columns are words.
    """
    lines = [head, ["---"] * words + ["---:"] * (len(head) - words), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def main(pages: Callable[[Tell], Mapping[str, str]]) -> None:
    """Write files into the folder that the command line names, docs if none, and print their paths.

    Args:
        pages: the text of each file by its name; it may tell which stage is how far, in [0, 1].
    """
    from neyman.cli.terminal import console, progress

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    with progress() as tell:
        result = pages(tell)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in result.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        console().print(str(folder / name))
