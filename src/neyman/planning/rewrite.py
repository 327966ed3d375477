"""A plan's TOML with other shares, and the weights that they were chosen for; all else stays."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from neyman.plan.resolve import exact_text
from neyman.planning.allocation import Split

__all__ = ["rewritten"]

_FIELDS = ("share", "split", "weight")
_LINE = re.compile(
    r"(?m)^(?P<before>[ \t]*)(?P<field>share|split|weight)[ \t]*=[ \t]*"
    r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^#\n]*?)(?P<after>[ \t]*(?:#[^\n]*)?)$\n?"
)
_LONGEST = 2**53  # of the whole numbers that every reader of TOML takes


def rewritten(text: str, split: Split) -> str:
    """A plan's TOML with the shares of a split, and beside them the weights that it was made for.

    Args:
        text: with a ``[[query]]`` section for each query.
        split: of that plan.

    Returns:
        The same text but for ``share``, ``split`` and ``weight`` of the queries that are measured;
        comments stay, also those behind what is replaced.

    Raises:
        ValueError: the queries are not written so that these can be replaced.
    """
    wanted: dict[str, dict[str, str]] = {}
    for query in dict.fromkeys(part.query for part in split.parts):
        parts = [part for part in split.parts if part.query == query]
        share = sum((part.share for part in parts), Fraction(0))
        wanted[query] = {"share": f'"{share}"'}
        if len(parts) > 1:
            wanted[query]["split"] = _table({p.level: f'"{p.share / share}"' for p in parts})
        weights = {part.level: _number(part.weight) for part in parts}
        alike = len(set(weights.values())) == 1
        wanted[query]["weight"] = weights[parts[0].level] if alike else _table(weights)
    pieces = re.split(r"(?m)^(?=[ \t]*\[\[?)", text)
    for i, piece in enumerate(pieces):
        named = re.search(r"(?m)^[ \t]*name[ \t]*=[ \t]*(['\"])(.*?)\1", piece)
        if named and named[2] in wanted and re.match(r"[ \t]*\[\[\s*query\s*\]\]", piece):
            pieces[i] = _replaced(piece, wanted[named[2]])
    result = "".join(pieces)
    if not _as_wanted(text, result, wanted):
        names = ", ".join(wanted)
        raise ValueError(
            "plan: share, split and weight cannot be replaced where they stand; they must each be "
            f"on one line of a [[query]] section with a name, for {names}. Write them by hand"
        )
    return result


def _replaced(piece: str, fields: Mapping[str, str]) -> str:
    """A section with these fields in place of the old ones; what is new stands behind the share."""
    there = {line["field"] for line in _LINE.finditer(piece)}

    def line(old: re.Match[str]) -> str:
        field = old["field"]
        if field not in fields:
            return ""
        new = [name for name in fields if name not in there] if field == "share" else []
        return f"{old['before']}{field} = {fields[field]}{old['after']}\n" + "".join(
            f"{old['before']}{name} = {fields[name]}\n" for name in new
        )

    return _LINE.sub(line, piece)


def _as_wanted(text: str, result: str, wanted: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether the new text says what the old one did, but for the fields that are wanted."""
    try:
        before, after = (tomllib.loads(one, parse_float=Decimal) for one in (text, result))
    except tomllib.TOMLDecodeError:
        return False
    expected: list[dict[str, Any]] = []
    queries = before.get("query", [])
    if not wanted.keys() <= {query.get("name") for query in queries}:
        return False
    for query in queries:
        fields = wanted.get(query.get("name"))
        if fields is None:
            expected.append(query)
            continue
        rest = {name: value for name, value in query.items() if name not in _FIELDS}
        expected.append(
            rest
            | {n: tomllib.loads(f"x = {v}", parse_float=Decimal)["x"] for n, v in fields.items()}
        )
    return after == before | {"query": expected}


def _table(values: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f'"{name}" = {value}' for name, value in values.items()) + " }"


def _number(value: Fraction) -> str:
    short = value.denominator == 1 and value < _LONGEST
    return str(value) if short else f'"{exact_text(value)}"'
