"""The report of a release: one HTML file that needs nothing else, for somebody who sets policy.

Everything on the page follows from the receipt and the published tables. The page loads nothing
(its content security policy forbids it), and its few lines of script only repeat what it already
says. Numbers are rounded by `neyman.semantics.words`: never in the release's favor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from neyman.show import learned, made, markup
from neyman.show.accuracy import Table
from neyman.show.reading import Receipt
from neyman.show.scenarios import beliefs, section

if TYPE_CHECKING:
    from neyman.release.folder import Release

__all__ = ["page", "page_from"]


def page(release: Release) -> str:
    """The report of a release as one self-contained HTML document.

    Args:
        release: a `Release`: its receipt, and its tables read a part at a time.

    Raises:
        ValueError: see `page_from`.
    """
    tables = {name: release.parquet(name) for name in release.tables}
    return page_from(release.receipt, tables)


def page_from(receipt: Receipt, tables: Mapping[str, Table]) -> str:
    """The report as one self-contained HTML document, from a receipt and the published tables.

    Args:
        receipt: the content of ``receipt.json``, schema "neyman-receipt/1".
        tables: "query.level" to a table, or to the open Parquet file of one, with columns value,
            lower, upper among others; those that are missing or empty leave their accuracy out.

    Returns:
        HTML text, the same for the same input. All text from the receipt is escaped.

    Raises:
        ValueError: the receipt has another schema, lacks a field, or a number in it is none.
    """
    schema = receipt.get("schema")
    if schema != "neyman-receipt/1":
        raise ValueError(
            f"receipt's schema = {schema!r} must be 'neyman-receipt/1': "
            "use the version of neyman that wrote it"
        )
    try:
        body = "\n".join(
            [
                made.opening(receipt),
                learned.headline(receipt),
                learned.findings(receipt),
                learned.figure(receipt),
                learned.levels(receipt),
                # Older receipts have no scenarios.
                *filter(None, [section(receipt), beliefs(receipt)]),
                made.spending(receipt),
                made.accuracy(receipt, tables),
                made.adding_up(receipt),
                learned.vocabularies(receipt),
                made.checking(receipt),
            ]
        )
        title = f"Privacy report: {receipt['plan'].get('name', 'a release')}"
        footer = made.footer(receipt)
    except KeyError as missing:
        raise ValueError(
            f"receipt has no field {missing}: take receipt.json as it was written"
        ) from None
    return markup.document(title, f"<main>\n{body}\n</main>\n{footer}")
