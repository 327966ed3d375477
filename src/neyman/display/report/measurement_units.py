"""Name the unit of a table's values: the unit that the plan declares for the column, or rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neyman.accounting.semantics.digits import plural
from neyman.display.report.receipt_view import unit
from neyman.publishing.plan.measures import MEASURES, Distinct, Sum, Units
from neyman.publishing.release.receipt_format import Receipt

_UNDECLARED = "not declared; values are as the column has them"


def declared_columns(receipt: Receipt) -> dict[str, Mapping[str, Any]]:
    """Return the columns that a plan declares, by name."""
    parts = (receipt.plan.get(part, {}) for part in ("lookup", "derive", "columns"))
    return {name: column for part in parts for name, column in part.items()}


def unit_of_values(receipt: Receipt, query: str, *, declared: bool = False) -> str:
    """Return the unit of the values that a query publishes, plain text.

    Args:
        declared: if True, return "" unless the plan declares a unit.
    """
    parts = [part for part in receipt.plan.get("query", ()) if part["name"] == query]
    if not parts:
        return ""
    part: Mapping[str, Any] = parts[0]
    measure = str(part["measure"])
    kind = MEASURES.get(measure, Sum)
    if not kind.unit_power:
        subject, _ = unit(receipt)
        if declared:
            return ""
        others = "distinct values" if kind is Distinct else "rows"
        return plural(subject) if kind is Units else others
    columns = declared_columns(receipt)
    units = [
        str(columns.get(str(part[name]), {}).get("measurement_unit", ""))
        for name in ("column", "over")
        if part.get(name)
    ]
    if not units or not all(units):
        return "" if declared else _UNDECLARED
    if kind.unit_power == 2:
        return f"the square of {units[0]}"
    return " per ".join(units)
