"""Read a receipt for the page, and refuse invalid numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.semantics import digits
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.budget import AtMost, PlanBudget
from neyman.accounting.semantics.digits import many
from neyman.curves.tradeoff.safe_mu import USUAL_LEVELS, mu_of_points
from neyman.display.report import html as markup
from neyman.elements import Node
from neyman.publishing.plan.measures import MEASURES, RankMeasure
from neyman.publishing.planning.detail_notes import levels_text
from neyman.publishing.release.receipt_format import (
    MechanismPart,
    Receipt,
    ReceiptTable,
    Scenario,
    TableName,
)

Entries = Sequence[MechanismPart]
Powers = NDArray[np.float64]


def chosen(receipt: Receipt) -> tuple[Fraction, Fraction]:
    """Return the level and the certified power that the page puts first."""
    point = receipt.budget if isinstance(receipt.budget, AtMost) else None
    level = proportion(point.level) if point else Fraction(1, 20)
    known: dict[Fraction, Fraction] = {}
    for shown in receipt.guarantee.power:
        at, upper = proportion(shown.level), proportion(shown.upper)
        known[at] = max(upper, known.get(at, upper))
    if not point and level not in known and known:
        level = min(known)
    # Both the budget that was met and the computed power are upper bounds.
    powers = [proportion(point.power)] if point else []
    if level in known:
        powers.append(known[level])
    if receipt.plan.get("budget", {}).get("unspent"):  # then a power at a higher level is lower
        curve = receipt.guarantee.curve
        powers += [proportion(p.upper) for p in curve if proportion(p.level) >= level]
    if not powers:
        raise ValueError("receipt's guarantee.power is empty: it must give the power at a level")
    return level, max(level, min(powers))


def safe_mu(receipt: Receipt) -> float:
    """Return a mu such that mu-GDP allows at least the receipt's powers at the usual levels."""
    points = [*receipt.guarantee.curve, *receipt.guarantee.power]
    known = [(number(p.level), number(p.upper)) for p in points]
    return min(mu_of_points(known, USUAL_LEVELS), number(receipt.guarantee.mu.upper))


def limit_curve(budget: PlanBudget) -> list[tuple[float, float]] | None:
    """Return points (level, power) of a budget's limit on the power, or None without a limit."""
    power, corner = budget.power_limit, budget.corner
    if power is None:
        return None
    levels = np.linspace(0.0, 1.0, 161) ** 2
    if corner is not None:
        levels = np.union1d(levels, [corner])
    return list(zip(levels.tolist(), power(levels).tolist(), strict=True))


def tables_of(receipt: Receipt, *, public: bool = False) -> list[Entries]:
    """Return the entries of each noisy table, or of each exact table if ``public``.

    A count or a sum has one entry, and a mean two. If noisy first counts decide the detail of a
    query, or its quantiles follow from noisy bins, ``cells`` of its entries is the number of
    published cells.
    """
    tables: dict[tuple[str, str], list[MechanismPart]] = {}
    queries = receipt.plan.get("query", ())
    fewer = [query["name"] for query in queries if "detail" in query or is_quantile(query)]
    cells = {(t.query, t.level): t.cells for t in receipt.tables if t.query in fewer}
    for entry in receipt.mechanisms:
        if entry.public is public:
            table = entry.query, entry.level
            known = entry.cells and cells.get(table, entry.cells)
            shown = entry.model_copy(update={"cells": known})
            tables.setdefault(table, []).append(shown)
    return list(tables.values())


def is_quantile(query: Mapping[str, Any]) -> bool:
    """Return True if a query of a plan publishes quantiles; False for an unknown measure."""
    kind = MEASURES.get(query["measure"])
    return kind is not None and issubclass(kind, RankMeasure)


def place(level: str) -> str:
    """Return a table's level in words, such as "overall" or "by county"."""
    return "overall" if level == "all" else f"by {level}"


def title(receipt: Receipt, query: str) -> str:
    """Return the title of a query in its plan, or its name."""
    titles = {part["name"]: part.get("title") for part in receipt.plan.get("query", ())}
    return str(titles.get(query) or query)


def name(receipt: Receipt, table: MechanismPart | TableName | ReceiptTable) -> str:
    """Return the name of a table. If a titled query has one table, the name is the title."""
    query = title(receipt, table.query)
    return query if _has_one_table(receipt, table) else f"{query}, {place(table.level)}"


def _has_one_table(receipt: Receipt, table: MechanismPart | TableName | ReceiptTable) -> bool:
    """Return True if a query with a title has a table of all rows and no other."""
    parts: Sequence[Mapping[str, Any]] = receipt.plan.get("query", ())
    one = [part for part in parts if part["name"] == table.query and part.get("title")]
    return bool(one) and not one[0].get("at")


def detail_text(query: Mapping[str, Any]) -> str:
    """Describe how noisy first counts decide the detail of a query's groups."""
    levels = tuple(tuple(map(str, level)) for level in query["detail"])
    thresholds = tuple(int(threshold) for threshold in query["thresholds"])
    return f"by the noisy count of each group: {levels_text(levels, thresholds)}"


def size(entries: Entries) -> str:
    """Return the number of cells of a table, or a dash if its keys are discovered."""
    cells = entries[0].cells
    return "–" if cells is None else words.number(cells)


def listing(receipt: Receipt, tables: Iterable[Entries], most: int | None = None) -> Node:
    """List tables by query, one per line: "total by state (5 cells), by county (437 cells)".

    Args:
        most: the largest number of queries, and of tables per query, to list. The others are
            counted.
    """
    queries: dict[str, list[str]] = {}
    for entries in tables:
        number = entries[0].cells
        cells = "discovered keys" if number is None else many(number, "cell")
        listed = queries.setdefault(title(receipt, entries[0].query), [])
        level = "" if _has_one_table(receipt, entries[0]) else f"{place(entries[0].level)} "
        listed.append(f"{level}({cells})")
    lines: list[Node] = []
    for query, places in list(queries.items())[:most]:
        more = f", and {len(places[most:]):,} more" if most and len(places) > most else ""
        lines.append([markup.strong(query), f" {', '.join(places[:most])}{more}"])
    if most and len(queries) > most:
        left = sum(len(places) for places in list(queries.values())[most:])
        lines.append(f"and {many(left, 'more table')}")
    return markup.lines(lines)


def subject_of(receipt: Receipt) -> str:
    """Return who is protected. Exact totals add attributes: "person with a known state"."""
    return words.known(receipt.unit.protects, receipt.guarantee.held)


def totals_sentence(receipt: Receipt) -> str:
    """Say which claims have a limit beside exact totals. Return "" without totals."""
    sections = receipt.plan.get("totals")
    if not sections:
        return ""
    claims = [(about(each), each.no_limit) for each in receipt.guarantee.scenarios]
    return words.open_claims(claims, [", ".join(each["by"]) for each in sections])


def about(scenario: Scenario) -> str:
    """Name a scenario by its attributes, such as "county within a known state"."""
    return words.about(scenario.attributes, scenario.within)


def unit(receipt: Receipt) -> tuple[str, int]:
    """Return who is protected, and how many records each has in all tables together."""
    tables: Mapping[str, Any] = receipt.plan.get("tables", {})
    if not tables:
        return receipt.unit.protects, receipt.unit.rows
    own = int(receipt.plan["unit"].get("rows", 1))
    return receipt.unit.protects, own + sum(int(part["rows"]) for part in tables.values())


def number(x: digits.Numeric) -> float:
    """Return a number of a receipt as a float."""
    return float(words.value("number in the receipt", x))


def proportion(x: digits.Numeric) -> Fraction:
    """Return an exact number of a receipt that must be in [0, 1]."""
    return digits.proportion("number in the receipt", x)
