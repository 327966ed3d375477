"""HTML as a tree of elements, in which a text never becomes markup.

All markup comes from `element`. Its other arguments are texts, and each text is escaped when the
tree is written. No function takes markup as a text, so none can take it from a plan or a receipt.
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
_RAW = ("script", "style")  # a browser reads what is inside as code
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
"""Controls, line separators, marks that turn the direction of what follows, and surrogates."""

_UNSEEN = re.compile(rf"(?![\t\n])[{UNSEEN}]")


@dataclass(frozen=True)
class Element:
    """An element of a page, as `element` returns it; its ``str`` is HTML."""

    name: str
    children: tuple[Node, ...]
    attributes: Mapping[str, str | bool]

    def __str__(self) -> str:
        return "".join(_write(self))


def element(name: str, /, *children: Node, **attributes: str | bool) -> Element:
    """Return an element.

    Args:
        children: elements and texts inside. "" and empty sequences write nothing.
        attributes: texts, by name, with "_" for "-" and after a word of Python (``class_``).
            ``True`` is an attribute without a text, and ``False`` is none.

    Raises:
        ValueError: a name is none, or the element would hold code or lead out of the page's folder.
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
    """Return the parts that are not empty, with a separator between any two."""
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
    """Return a text for any place between or inside tags; what
    could not be seen is written as a code.
    """
    return escape(_UNSEEN.sub(lambda match: ascii(match.group())[1:-1], str(value)))
