"""The first and the last words of a report's two printed pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from neyman.ledger.throwaway import NOTICE
from neyman.plan.clip_search import ROWS_TABLE
from neyman.plan.expression_words import words as expression_words
from neyman.plan.plan import Plan
from neyman.plan.query import ALL
from neyman.planning.counted_rows import counted_rows
from neyman.planning.missing_values import missing_by_sentence
from neyman.release.receipt_format import Receipt
from neyman.report import html as markup
from neyman.report.receipt_view import listing, tables_of, unit
from neyman.semantics import unchecked_claims as unchecked
from neyman.semantics.digits import many

__all__ = ["caveats", "contents_line", "opening"]

_MOST_LISTED = 4  # queries, and tables of each, that two printed pages have room for
_MOST_LETTERS = 160  # of a filter


def opening(receipt: Receipt, plan: Plan | None = None) -> str:
    """What was released, by whom and when, who is protected, and which rows count.

    Args:
        receipt: of the release.
        plan: the receipt's; None leaves out which rows count.
    """
    subject, rows = unit(receipt)
    noisy, public = tables_of(receipt), tables_of(receipt, public=True)
    each = "one record each" if rows == 1 else f"up to {rows:,} records each"
    date = receipt.ledger.date
    facts = [
        ("Warning", f"<strong>{escape(NOTICE)}</strong>" if receipt.ledger.throwaway else ""),
        ("Publisher", escape(str(receipt.plan.get("publisher") or "not declared in the plan"))),
        (
            "Date",
            f"{escape(date)} (UTC), the day of the charge in the ledger"
            if date
            else "not in the receipt",
        ),
        ("Privacy unit", f"every {escape(subject)} in the data, {each}"),
        ("Noisy tables", listing(noisy, _MOST_LISTED) or "none"),
        (
            "Invariants",
            f"{listing(public, _MOST_LISTED)}<br>Declared public: exact totals that are not "
            "protected. They include rows dropped elsewhere."
            if public
            else "",
        ),
        ("Filter", _filter(receipt)),
        ("Rows that count", _counted(receipt, plan) if noisy else ""),
        ("Missing values", _missing(plan)),
    ]
    return f"""<header>
<p class="eyebrow">Privacy report</p>
<h1>{escape(str(receipt.plan.get("name", "A release")))}</h1>
<p>{many(len(noisy), "noisy table")} from dataset {markup.code(receipt.dataset)}. This report limits
what they can reveal about any one {escape(subject)}.</p>
{markup.facts(facts)}
</header>"""


def _counted(receipt: Receipt, plan: Plan | None) -> str:
    """Which rows count, and what it does to the tables that the others do not; HTML."""
    if plan is None:
        return ""
    bounds = [part.clip[-1] for part in receipt.clips if part.histogram == f"{ROWS_TABLE}.{ALL}"]
    return escape(" ".join(filter(None, counted_rows(plan, int(bounds[0]) if bounds else None))))


def _missing(plan: Plan | None) -> str:
    """What happens to rows without a number, a line per sentence; HTML."""
    sentences = {} if plan is None else missing_by_sentence(plan)
    lines = [
        f"<strong>{escape(', '.join(names))}</strong>: {escape(sentence)}"
        for sentence, names in [*sentences.items()][:_MOST_LISTED]
    ]
    if len(sentences) > _MOST_LISTED:
        lines.append('<a href="#contents">see all tables</a>')
    return "<br>".join(lines)


def _filter(receipt: Receipt) -> str:
    """Which rows take part, in short; HTML."""
    texts: list[str] = []
    if receipt.plan.get("where") is not None:
        text = expression_words(str(receipt.plan["where"]))
        short = f"only rows where {text}" if len(text) <= _MOST_LETTERS else "a filter on all rows"
        texts.append(escape(short))
    own = sum(query.get("where") is not None for query in receipt.plan.get("query", ()))
    if own:
        texts.append(f"{many(own, 'query filter')}")
    if not texts:
        return ""
    return f'{"; ".join(texts)} (<a href="#method">see the filters</a>)'


def caveats(receipt: Receipt) -> str:
    """What the limits do not cover, and what nothing checks."""
    subject, rows = unit(receipt)
    person = escape(subject)
    lines = [
        f"The limits are for this release alone. Each other release about the same {person} adds "
        "to the risk.",
    ]
    column = receipt.plan.get("unit", {}).get("id")
    if unchecked.one_row_each(subject, column):
        most = "one row" if rows == 1 else f"{rows:,} rows"
        lines.append(
            f"They hold if no {person} has more than {most} in the data. Nothing checks that."
        )
    elif column is not None:
        lines.append(
            f"They hold if every row of one {person} has the same id. Nothing checks that."
        )
    if tables_of(receipt, public=True):
        lines.append("They do not cover the invariants, which are exact.")
    if receipt.plan.get("part"):
        lines.append(escape(unchecked.disjoint_parts(receipt.dataset, subject)))
    lines.append(escape(unchecked.dataset_names(subject)))
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"""<section aria-labelledby="caveats">
<h2 id="caveats">What the limits do not cover</h2>
<ul>{items}</ul>
</section>"""


def contents_line(folds: Sequence[markup.Fold]) -> str:
    """Where the rest of the report is: shown where the page is printed."""
    titles = escape("; ".join(fold.title for fold in folds))
    return (
        f'<p class="printed note">More is in {markup.code("report.html")}: {titles}. A section '
        "that is open there is printed after these pages.</p>"
    )
