"""HTML from parts: tables, bars, and the document that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from importlib import resources
from typing import Any
from urllib.parse import quote

from neyman.ledger.published_files import inside

__all__ = ["Fold", "bar", "chart", "code", "document", "facts", "file_link", "key", "table"]

_SCRIPTS = ("explorer/static/charts.js", "report/static/page.js")


def document(title: str, body: str) -> str:
    """A whole page with its style and script inside, forbidden to load anything else.

    Args:
        title: plain text.
        body: HTML.
    """
    style, script = _asset("report/static/page.css"), "\n".join(map(_asset, _SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Only the script with this hash may run: not even markup that slipped in could start one.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    key: int | None = None,
    left: Sequence[int] = (),
    here: Sequence[bool] = (),
    kind: str = "",
) -> str:
    """A table that scrolls by itself where the page is narrow.

    Args:
        head: plain text; "" over a column of bars.
        rows: HTML; the first cell heads its row.
        caption: plain text.
        key: the column that matters most.
        left: columns of text.
        here: rows to mark.
        kind: a class of the table's own.
    """

    def classes(column: int) -> str:
        names = ["key"] * (column == key) + ["left"] * (column in left)
        names += ["drawn"] * (not head[column])
        return f' class="{" ".join(names)}"' if names else ""

    columns = "".join(
        f'<th scope="col"{classes(i)}>{escape(text)}</th>' if text else f"<td{classes(i)}></td>"
        for i, text in enumerate(head)
    )
    body: list[str] = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td{classes(i)}>{cell}</td>" for i, cell in enumerate(row) if i)
        marked = ' class="here"' if number < len(here) and here[number] else ""
        body.append(f'<tr{marked}><th scope="row">{row[0]}</th>{cells}</tr>')
    # Two tables with one label would be one place to who hears the page.
    label = escape(caption or f"{head[0]}: {head[-1]}")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="{kind}">'
        + (f"<caption>{escape(caption)}</caption>" if caption else "")
        + f"<thead><tr>{columns}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


@dataclass(frozen=True)
class Fold:
    """A section that opens when a reader asks for it. Only an open one is printed.

    Args:
        ident: the id of its heading.
        title: of the section, plain text.
        about: what it contains, plain text.
        body: HTML.
    """

    ident: str
    title: str
    about: str
    body: str

    def __str__(self) -> str:
        return (
            f'<section class="fold" aria-labelledby="{self.ident}"><details>\n<summary>'
            f'<h2 id="{self.ident}">{escape(self.title)}</h2>\n'
            f'<span class="note">{escape(self.about)}</span></summary>\n'
            f"{self.body}\n</details></section>"
        )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """A list of terms, plain text, each with HTML. Empty ones are left out."""
    lines = "".join(f"<dt>{escape(term)}</dt><dd>{text}</dd>" for term, text in pairs if text)
    return f"<dl>{lines}</dl>" if lines else ""


def file_link(path: str, folder: str = "") -> str:
    """A link to a file of a release; the path alone if it leads out of the release's folder.

    Args:
        path: in the folder.
        folder: of the release, seen from the page, such as "../release/"; "" beside the page.
    """
    text = code(path)
    return f'<a href="{escape(quote(folder + path))}">{text}</a>' if inside(path) else text


def bar(part: Fraction, mark: Fraction | None = None) -> str:
    """A bar for a share that is written beside it, so hidden from screen readers."""
    tick = "" if mark is None else f'<b style="left:{float(mark):.2%}"></b>'
    return (
        f'<span class="bar" aria-hidden="true"><i style="width:{float(part):.2%}"></i>{tick}</span>'
    )


def chart(kind: str, content: Any) -> str:
    """A place for a figure that the page's script draws.

    Args:
        kind: which: "tradeoff" or "beside".
        content: what it is drawn from, in JSON types.
    """
    payload = escape(json.dumps(content, ensure_ascii=True, allow_nan=False))
    without = "The figure is drawn by this page’s own script, which is turned off here."
    return (
        f'<div class="chart" data-{kind}="{payload}"></div>'
        f'<noscript><p class="note">{without}</p></noscript>'
    )


def key(kind: str, text: str) -> str:
    """An entry of a figure's legend: the line of that kind, and plain text."""
    line = f'<path class="{kind}" d="M0 5H30"/>'
    return f'<li><svg viewBox="0 0 30 10" aria-hidden="true">{line}</svg>{text}</li>'


def code(text: Any) -> str:
    """Text as code, escaped."""
    return f"<code>{escape(str(text))}</code>"


def _asset(name: str) -> str:
    return resources.files("neyman").joinpath(name).read_text(encoding="utf-8")
