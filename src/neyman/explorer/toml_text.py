"""A plan as TOML again: the sections that ``tomllib`` reads, written so that it reads the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

__all__ = ["toml_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")

Table = Mapping[str, Any]


def toml_text(sections: Table) -> str:
    """Return the TOML of nested mappings, lists, text, numbers and truth values, keys in order.

    Raises:
        ValueError: a value that TOML has no form for.
    """
    return "\n".join(_lines(sections, ())).strip() + "\n"


def _lines(content: Table, path: tuple[str, ...]) -> list[str]:
    """A table's own values first: what follows a heading belongs to that heading."""
    lines = [f"{_key(k)} = {_value(v)}" for k, v in content.items() if not _tables(v)]
    for name, value in content.items():
        tables = _tables(value)
        heading = ".".join(map(_key, (*path, name)))
        if isinstance(value, Mapping):
            body = _lines(tables[0], (*path, name))
            # A table of tables alone needs no heading of its own.
            bare = bool(tables[0]) and all(map(_tables, tables[0].values()))
            lines += body if bare else ["", f"[{heading}]", *body]
        else:
            for table in tables:
                lines += ["", f"[[{heading}]]"]
                lines += [f"{_key(k)} = {_value(v)}" for k, v in table.items()]
    return lines


def _tables(value: object) -> list[Table]:
    """The tables that a value is or lists, which need headings; none for any other value."""
    if isinstance(value, Mapping):
        return [cast(Table, value)]
    items = cast(list[object], value) if isinstance(value, list) else []
    tables = [cast(Table, item) for item in items if isinstance(item, Mapping)]
    return tables if len(tables) == len(items) else []


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # TOML's escapes are JSON's, but for DEL, which must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float() | Decimal():
            return str(value)
        case Mapping():
            items = cast(Table, value).items()
            inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in items)
            return f"{{ {inside} }}" if inside else "{}"
        case Sequence():
            return f"[{', '.join(map(_value, cast(Sequence[object], value)))}]"
        case _:
            raise ValueError(f"{type(value).__name__} has no form in TOML")
