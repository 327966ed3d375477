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

_NAME = re.compile("[A-Za-z][A-Za-z0-9-]*")
_RAW = ("script", "style")  # a browser runs their content as code
_VOID = ("br", "input")
_OUTSIDE = re.compile(r"/|.*[:\\]", re.DOTALL)
_LOADING = {
    "src",
    "srcset",
    "srcdoc",
    "action",
    "formaction",
    "data",
    "http-equiv",
    "ping",
    "poster",
}
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
        ValueError: a name is not valid, or the element would hold code or link out of the page's
            folder.
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    if name.lower() in _RAW or not all(map(_NAME.fullmatch, (name, *named))):
        raise ValueError(f"no element {name!r} with attributes {[*named]}")
    small = {key.lower(): str(value) for key, value in named.items()}
    runs = any(key.startswith("on") for key in small) or not _LOADING.isdisjoint(small)
    if runs or _OUTSIDE.match(small.get("href", "")):
        raise ValueError(f"attributes {named} of element {name!r} run code or leave the folder")
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
