"""Represent HTML as a tree of elements, in which a text never becomes markup.

All markup comes from `element`. Its other arguments are texts, and each text is escaped when the
tree is written. No function accepts markup as a text, so a plan or a receipt cannot inject markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias, Union, cast

Node: TypeAlias = Union["Element", str, Sequence["Node"]]
"""An element, a text, or a sequence of both."""

_NAME = re.compile(
    "a|b|br|caption|code|dd|details|div|dl|dt|figcaption|figure|footer|h[1-3]|header|i|input|label|"
    "li|main|noscript|output|p|path|polyline|rect|section|span|strong|summary|svg|table|tbody|td|"
    "text|th|thead|title|tr|ul"
)
# A browser neither runs nor loads what these hold, except for the tests in `element`.
_ATTRIBUTE = re.compile(
    "class|d|fill|font-size|for|height|hidden|href|id|max|min|points|role|scope|step|stroke|"
    "stroke-dasharray|stroke-width|style|tabindex|text-anchor|title|transform|type|value|viewBox|"
    "width|x|xmlns|y|(aria|data)-[a-z-]+"
)
_VOID = ("br", "input")
_LINK = re.compile(r"#[^\s\\]*|(?!/)[\w.~%/-]+", re.ASCII)  # a place of the page, or a file near it
_LOADING = re.compile(r"[(\\@]")  # url(...) and @import in a style or a color
UNSEEN = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, line separators, marks that change the text direction, and surrogates."""

_UNSEEN = re.compile(rf"(?![\t\n])[{UNSEEN}]")


@dataclass(frozen=True)
class Element:
    """Represent an element of a page, as returned by `element`. Its ``str`` is HTML."""

    name: str
    children: tuple[Node, ...]
    attributes: Mapping[str, str | bool]

    def __str__(self) -> str:
        return "".join(_write(self))


def element(name: str, /, *children: Node, **attributes: str | bool) -> Element:
    """Return an element of a page.

    Args:
        children: elements and texts inside. "" and empty sequences write nothing.
        attributes: texts, by name. Write "_" for "-", and add "_" to a Python keyword (``class_``).
            ``True`` writes an attribute without a text, and ``False`` writes none.

    Raises:
        ValueError: a name is not one of those that pages use, or the element would load something,
            or link to another site.
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    if not _NAME.fullmatch(name) or not all(map(_ATTRIBUTE.fullmatch, named)):
        raise ValueError(f"no element {name!r} with attributes {[*named]}")
    link = _text(named.get("href", "#"))
    looks = (str(named.get(key, "")) for key in ("style", "fill", "stroke"))
    if not _LINK.fullmatch(link) or any(map(_LOADING.search, looks)):
        raise ValueError(f"attributes {named} of element {name!r} load code or leave the folder")
    return Element(name, children, named)


def joined(separator: Node, parts: Iterable[Node]) -> list[Node]:
    """Return the nonempty parts, with a separator between any two."""
    pairs = [(separator, part) for part in parts if part]
    return [node for pair in pairs for node in pair][1:]


def _write(node: object) -> Iterator[str]:
    if isinstance(node, Element):
        yield f"<{node.name}"
        for name, value in node.attributes.items():
            if value is not False:
                yield f" {name}" if value is True else f' {name}="{_text(value)}"'
        yield ">"
        if node.name not in _VOID:
            yield from _write(node.children)
            yield f"</{node.name}>"
    elif isinstance(node, (list, tuple)):
        for each in cast(Sequence[object], node):
            yield from _write(each)
    else:
        yield _text(node)


def _text(value: object) -> str:
    """Escape a text for any place between or inside tags. Write unseen characters as codes."""
    return escape(_UNSEEN.sub(lambda match: ascii(match.group())[1:-1], str(value)))
