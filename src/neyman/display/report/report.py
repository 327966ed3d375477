"""Write the report of a release: one self-contained HTML file for a policy maker.

Everything on the page follows from the receipt and the published tables. The page loads nothing
(its content security policy forbids it). Its short script only repeats its content.
`neyman.accounting.semantics.sentences` rounds the numbers, never in the release's favor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from neyman.display.report import (
    accuracy_section,
    method_section,
    opening_section,
    release_section,
    risk_section,
    table_section,
)
from neyman.display.report import html as markup
from neyman.display.report.attribute_sections import beliefs, section
from neyman.display.report.headline import headline
from neyman.display.report.table_accuracy import Table
from neyman.elements import element
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.plan import Plan
from neyman.publishing.planning.allocation import LIMITS as ALLOCATION_LIMITS
from neyman.publishing.planning.allocation import best_split
from neyman.publishing.release.receipt_format import Receipt

if TYPE_CHECKING:
    from neyman.publishing.release.folder import Release


def page(release: Release, into: Path | None = None, *, sequel: str = "") -> str:
    """Return the report of a release as one self-contained HTML document.

    Args:
        release: a `Release`. Its tables are read one part at a time.
        into: the file of the page. Its links point to the release. The default is a file in the
            folder of the release.
        sequel: what the ledger says happened to the release after it was published.

    Raises:
        ValueError: the receipt is not valid, as for `page_from`.
    """
    names = cast(Iterable[str], release.tables)  # pyright: ignore[reportUnknownMemberType]
    tables: dict[str, Table] = {name: release.parquet(name) for name in names}
    folder = _folder_link(into, release.folder)
    return page_from(release.receipt, tables, None, folder, sequel)


def _folder_link(into: Path | None, folder: Path) -> str:
    """Return the first part of a link from the page to the folder. "" is the page's folder."""
    if into is None:
        return ""
    path = Path(os.path.relpath(folder.resolve(), into.resolve().parent)).as_posix()
    return "" if path == "." else f"{path}/"


def page_from(
    receipt: Receipt | Mapping[str, Any],
    tables: Mapping[str, Table],
    plan: Plan | None = None,
    folder: str = "",
    sequel: str = "",
) -> str:
    """Return the report as a self-contained HTML document, from a receipt and published tables.

    Args:
        receipt: the content of ``receipt.json``, schema "neyman-receipt/1".
        tables: a dict from "query.level" to a table or its open Parquet file, with columns value,
            lower, and upper. The accuracy of missing or empty tables is omitted.
        plan: the receipt's plan, if it has been read.
        folder: the first part of links to files of the release, such as "release/".
        sequel: what the ledger says happened to the release after it was published.

    Returns:
        HTML text. The same input gives the same text.

    Raises:
        ValueError: the receipt has another schema, lacks a field, or has an invalid number.
    """
    receipt, split = Receipt.read(receipt), None
    weighted = any("weight" in query for query in receipt.plan.get("query", ()))
    if plan is None:
        plan = Plan.from_dict(receipt.plan) if weighted else _plan_of(receipt)
    if weighted and plan is not None and not (plan.disjoint or plan.has_detail):
        split = best_split(plan, work=ALLOCATION_LIMITS.quick_operations)
    errors = accuracy_section.table_errors(receipt, tables)
    folds = [
        table_section.contents(receipt, tables, folder, plan),
        method_section.method(receipt),
        accuracy_section.every_error(receipt, errors),
        accuracy_section.adding_up(receipt),
        risk_section.figure(receipt),
        risk_section.levels(receipt),
        risk_section.attacks(receipt),
        risk_section.scale(receipt),
        section(receipt),
        beliefs(receipt),
        release_section.spending(receipt, split, plan.left if plan else Fraction(0)),
        risk_section.vocabularies(receipt),
        release_section.checking(receipt),
    ]
    rest = [fold for fold in folds if fold]
    more = markup.blocks(*(fold.element for fold in rest))
    body = markup.blocks(
        opening_section.opening(
            receipt, plan, accuracy_section.accuracy_lines(receipt, errors), sequel
        ),
        headline(receipt),
        accuracy_section.accuracy(receipt, errors),
        risk_section.findings(receipt),
        opening_section.caveats(receipt),
        opening_section.contents_line(rest),
        element("div", "\n", more, "\n", class_="rest"),
    )
    title = f"Privacy report: {receipt.plan.get('name', 'a release')}"
    main = element("main", "\n", body, "\n")
    return markup.document(title, main, release_section.footer(receipt))


def _plan_of(receipt: Receipt) -> Plan | None:
    """Return the receipt's plan, or None if the receipt has only a part of it."""
    try:
        return Plan.from_dict(receipt.plan)
    except PlanError:
        return None
