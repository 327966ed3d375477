"""Build HTML from parts: tables, bars, and a document that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib import resources
from urllib.parse import quote

from neyman.elements import Element, Node, element, joined
from neyman.ledger.published_files import inside

paragraph, strong = partial(element, "p"), partial(element, "strong")
note = partial(element, "p", class_="note")  # in small letters

_SCRIPTS = ("display/explorer/static/charts.js", "display/report/static/page.js")


def document(title: str, *parts: Element) -> str:
    """Return a complete page that holds its style and script, and may load nothing else."""
    style, script = _asset("display/report/static/page.css"), "\n".join(map(_asset, _SCRIPTS))
    body = "\n".join(map(str, parts))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Only the script with this hash may run. Injected markup cannot start another one.
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"{element('title', title)}\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def code(text: object) -> Element:
    """Return text as code."""
    return element("code", str(text))


def link(ident: str, text: str) -> Element:
    """Return a link to a section of the page."""
    return element("a", text, href=f"#{ident}")


def lines(parts: Iterable[Node]) -> Node:
    """Return the parts, one per line."""
    return joined(element("br"), parts)


def with_last_line(parts: Sequence[Node], last: str) -> Node:
    """Return the parts, one per line, with a period and a last line. Return nothing if empty."""
    return [lines(parts), ".", element("br"), last] if parts else ""


def blocks(*parts: Node) -> Node:
    """Return the parts, with a line end between any two in the HTML file."""
    return joined("\n", parts)


def section(ident: str, title: str, *parts: Node) -> Element:
    """Return a section of the page. Its heading has the id, for links."""
    heading = element("h2", title, id=ident)
    return element("section", "\n", blocks(heading, *parts), "\n", aria_labelledby=ident)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Node]],
    *,
    caption: str = "",
    key: int | None = None,
    left: Sequence[int] = (),
    here: Sequence[bool] = (),
    kind: str = "",
) -> Element:
    """Return a table that scrolls by itself if the page is narrow.

    Args:
        head: column heads, "" over bars.
        rows: cells, of which the first is the row's head.
        key: index of the column that matters most.
        left: indices of the columns aligned to the left.
        here: True for each row to mark.
        kind: extra class of the table.
    """

    def classes(column: int) -> str | bool:
        names = ["key"] * (column == key) + ["left"] * (column in left)
        names += ["drawn"] * (not head[column])
        return " ".join(names) or False

    columns = [
        element("th", text, scope="col", class_=classes(i))
        if text
        else element("td", class_=classes(i))
        for i, text in enumerate(head)
    ]
    body: list[Node] = []
    for number, row in enumerate(rows):
        cells = [element("td", cell, class_=classes(i)) for i, cell in enumerate(row) if i]
        marked = "here" if number < len(here) and here[number] else False
        body.append(element("tr", element("th", row[0], scope="row"), *cells, class_=marked))
    content = element(
        "table",
        element("caption", caption) if caption else "",
        element("thead", element("tr", *columns)),
        element("tbody", *body),
        class_=kind,
    )
    # For screen readers, two tables with one label would be the same place.
    return scroll(caption or f"{head[0]}: {head[-1]}", content)


def scroll(label: str, content: Node) -> Element:
    """Return a part of the page that scrolls by itself, with a name for screen readers."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


@dataclass(frozen=True)
class Fold:
    """Hold a section that opens on request. Only an open section is printed."""

    ident: str
    title: str
    about: str
    body: Node

    @property
    def element(self) -> Element:
        """Return the section as an element."""
        summary = element(
            "summary",
            blocks(
                element("h2", self.title, id=self.ident), element("span", self.about, class_="note")
            ),
        )
        details = element("details", "\n", blocks(summary, self.body), "\n")
        return element("section", details, class_="fold", aria_labelledby=self.ident)

    def __str__(self) -> str:
        return str(self.element)


def facts(pairs: Sequence[tuple[str, Node]]) -> Node:
    """Return a list of terms and their values. Omit empty values."""
    parts = [(element("dt", term), element("dd", text)) for term, text in pairs if text]
    return element("dl", *parts) if parts else ""


def file_link(path: str, folder: str = "") -> Element:
    """Return a link to a release's file, or only the path if it leaves the release's folder.

    Args:
        folder: the release's folder relative to the page, such as "../release/". "" is the page's
            own folder.
    """
    text = code(path)
    return element("a", text, href=quote(folder + path, errors="replace")) if inside(path) else text


def below(text: Node, more: str) -> Node:
    """Return a text, with an optional second text in small letters on the next line."""
    return lines([text, element("span", more, class_="note") if more else ""])


def bar(part: Fraction, mark: Fraction | None = None) -> Element:
    """Return a bar for the share ``part``, with an optional ``mark``, that screen readers skip."""
    tick = "" if mark is None else element("b", style=f"left:{float(mark):.2%}")
    return element(
        "span",
        element("i", style=f"width:{float(part):.2%}"),
        tick,
        class_="bar",
        aria_hidden="true",
    )


def chart(kind: str, content: object) -> Node:
    """Return a placeholder for a figure that the page's script draws.

    Args:
        kind: the kind of figure: "tradeoff" or "beside".
    """
    payload = json.dumps(content, ensure_ascii=True, allow_nan=False)
    without = "The figure is drawn by this page’s own script, which is turned off here."
    return [
        element("div", class_="chart", **{f"data-{kind}": payload}),
        element("noscript", note(without)),
    ]


def key(kind: str, text: str) -> Element:
    """Return an entry of a figure's legend: a line of this kind, and its name."""
    line = element("path", class_=kind, d="M0 5H30")
    return element("li", element("svg", line, viewBox="0 0 30 10", aria_hidden="true"), text)


def _asset(name: str) -> str:
    return resources.files("neyman").joinpath(name).read_text(encoding="utf-8")
