"""A plan as TOML again: the sections that ``tomllib`` reads, written so that it reads the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

__all__ = ["toml_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(sections: Mapping[str, Any]) -> str:
    """TOML of nested mappings, lists, text, numbers and truth values, keys in their order.

    Raises:
        ValueError: a value that TOML has no form for.
    """
    return "\n".join(_table(sections, ())).strip() + "\n"


def _table(content: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table's own values first: what follows a heading belongs to that heading."""
    own = {k: v for k, v in content.items() if not _nested(v)}
    lines = [f"{_key(name)} = {_value(value)}" for name, value in own.items()]
    for name, value in content.items():
        inner = (*path, name)
        heading = ".".join(map(_key, inner))
        if isinstance(value, Mapping) and _nested(value):
            body = _table(value, inner)
            # A table of tables alone needs no heading of its own.
            bare = all(_nested(v) for v in value.values())
            lines += body if bare and value else ["", f"[{heading}]", *body]
        elif _nested(value):
            for one in value:
                lines += ["", f"[[{heading}]]"]
                lines += [f"{_key(k)} = {_value(v)}" for k, v in one.items()]
    return lines


def _nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # TOML's escapes are JSON's, but for DEL, which must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float() | Decimal():
            return str(value)
        case Mapping():
            inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case Sequence():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            raise ValueError(f"{type(value).__name__} has no form in TOML")
