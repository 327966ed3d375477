"""Write plans as TOML, with other shares or other queries, or from their sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import tomlkit
from tomlkit.exceptions import ConvertError, TOMLKitError
from tomlkit.items import InlineTable, Item

from neyman.accounting.semantics.digits import exact_text
from neyman.publishing.planning.allocation import Split

_MAX_TOML_INTEGER = 2**53  # every reader of TOML accepts integers up to here


def rewritten(text: str, split: Split) -> str:
    """Return a plan's TOML with the shares of a split, and the weights used to compute them.

    Only ``share``, ``split``, and ``weight`` of the measured queries change.

    Raises:
        ValueError: the text lacks a query of the split.
    """
    try:
        document: Any = tomlkit.parse(text)
        # A query without a name takes the name of its measure.
        queries = {query.get("name", query["measure"]): query for query in document["query"]}
        for name in dict.fromkeys(part.query for part in split.parts):
            parts = [part for part in split.parts if part.query == name]
            share = sum((part.share for part in parts), Fraction(0))
            shares = {part.level: str(part.share / share) for part in parts}
            weights = {
                part.level: int(part.weight)
                if part.weight.denominator == 1 and part.weight < _MAX_TOML_INTEGER
                else exact_text(part.weight)
                for part in parts
            }
            alike = len(set(weights.values())) == 1
            fields = {
                "share": str(share),
                "split": _inline(shares) if len(parts) > 1 else None,
                "weight": weights[parts[0].level] if alike else _inline(weights),
            }
            for field, value in fields.items():
                if value is None:
                    queries[name].pop(field, None)
                else:
                    queries[name][field] = value
    except (TOMLKitError, KeyError, TypeError) as error:
        raise ValueError(
            f"plan: {error} is not in the text; give the text of the split's plan (the shares of a "
            "partition's keys go into its parts, by hand)"
        ) from None
    return tomlkit.dumps(document)


def with_queries(
    text: str, queries: Sequence[Mapping[str, Any]], derive: Mapping[str, Any], comment: str
) -> str:
    """Return a plan's TOML with its queries replaced, with a comment, and with added columns.

    ``derive``: the derived columns to add.
    """
    document: Any = tomlkit.parse(text)
    document.pop("query", None)
    if derive:
        document["derive"] = {**document.get("derive", {}), **derive}
    for line in comment.splitlines():
        document.add(tomlkit.comment("".join(c if c.isprintable() else " " for c in line)))
    document["query"] = queries
    return tomlkit.dumps(document)


def toml_text(sections: Mapping[str, Any]) -> str:
    """Return the TOML of nested mappings, lists, text, numbers, and truth values, in order."""
    try:
        return tomlkit.dumps(sections)
    except ConvertError as error:
        raise ValueError(str(error)) from None


@tomlkit.register_encoder
def _decimal(value: object, /, **_: object) -> Item:
    """Return an exact decimal as TOML, digit by digit."""
    if not isinstance(value, Decimal):
        # Guards against types that TOML does not read.
        raise ConvertError(f"{type(value).__name__} has no form in TOML")
    return tomlkit.value(str(value))


def _inline(values: Mapping[str, str | int]) -> InlineTable:
    table = tomlkit.inline_table()
    for name, value in values.items():
        table.append(name, value)
    return table
