"""Write a report's opening, and its section on what the limits do not cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics import unchecked_claims as unchecked
from neyman.accounting.semantics.digits import many, plural
from neyman.display.report import html as markup
from neyman.display.report.headline import kinds_of_disclosure, strength
from neyman.display.report.receipt_view import listing, tables_of, title, unit
from neyman.elements import Element, Node, element
from neyman.ledger.throwaway import NOTICE
from neyman.publishing.plan.expression_words import words as expression_words
from neyman.publishing.plan.plan import Plan
from neyman.publishing.planning.counted_rows import counted_rows
from neyman.publishing.planning.missing_values import missing_by_sentence
from neyman.publishing.release.approval import UNSIGNED
from neyman.publishing.release.receipt_format import ApprovalPart, Receipt
from neyman.publishing.release.signing import fingerprint


@dataclass(frozen=True)
class Limits:
    """Limit the queries and letters that fit on two printed pages."""

    queries: int = 3  # queries, and tables of each, that two printed pages have room for


LIMITS = Limits()


def opening(
    receipt: Receipt, plan: Plan | None = None, accuracy: Node = "", sequel: str = ""
) -> Element:
    """Return the header: who is protected, how well, how accurate tables are, which rows count.

    Args:
        plan: the receipt's plan. None omits which rows count.
        accuracy: the margins of error of a few tables.
        sequel: what the ledger says happened to the release after it was published.
    """
    subject, rows = unit(receipt)
    noisy, public = tables_of(receipt), tables_of(receipt, public=True)
    each = "one record each" if rows == 1 else f"up to {rows:,} records each"
    exact = (
        "Declared public: exact totals that are not protected. They include rows dropped elsewhere."
    )
    approval = receipt.ledger.approval
    facts: list[tuple[str, Node]] = [
        ("Warning", markup.strong(NOTICE) if receipt.ledger.throwaway else ""),
        ("As the ledger says", markup.strong(sequel) if sequel else ""),
        ("Corrects", _corrects(receipt)),
        ("Who is protected", f"every {subject} in the data, {each}"),
        ("How well", strength(receipt)),
        ("How accurate", accuracy),
        ("Which rows count", _row_counts(receipt, plan) if noisy else ""),
        ("Missing values", _missing_values(receipt, plan)),
        ("Filter", _filter(receipt)),
        ("Noisy tables", listing(receipt, noisy, LIMITS.queries) or "none"),
        (
            "Invariants",
            markup.lines([listing(receipt, public, LIMITS.queries), exact]) if public else "",
        ),
        ("Exact totals", _totals(receipt, plan)),
        ("Purpose", approval.purpose if approval else ""),
        ("Approved by", _approved(approval) if approval else ""),
        ("Publisher", str(receipt.plan.get("publisher") or "not declared in the plan")),
        ("Date", f"{receipt.ledger.date} (UTC), the day of the charge in the ledger"),
    ]
    limits = markup.paragraph(
        f"{many(len(noisy), 'noisy table')} from dataset ",
        markup.code(receipt.dataset),
        f". This report states a limit on what they can reveal about any one {subject}.",
    )
    content = markup.blocks(
        markup.paragraph("Privacy report", class_="eyebrow"),
        element("h1", str(receipt.plan.get("name", "A release"))),
        limits,
        markup.facts(facts),
    )
    return element("header", "\n", content, "\n")


def _approved(approval: ApprovalPart) -> str:
    """Name who approved the plan, and how far that is certain."""
    until = f", to be run until {approval.until}" if approval.until else ""
    key = approval.public and f"signed by the key {fingerprint(bytes.fromhex(approval.public))}"
    return f"{approval.who} on {approval.date}{until}. Approval {key or UNSIGNED}."


def _corrects(receipt: Receipt) -> str:
    """Name the release that this one replaces, why, and what was copied from it."""
    old = receipt.plan.get("corrects")
    if not old:
        return ""
    copied = ", ".join(title(receipt, name) for name in old.get("copied", ()))
    copies = f" Copied from it, at no charge: {copied}." if copied else ""
    replaced = f"entry {old['entry']} of the same ledger, which this release replaces"
    return f"{replaced}: {old['why']}.{copies}"


def _totals(receipt: Receipt, plan: Plan | None) -> str:
    """Describe the groups of the exact totals, and name the queries that they fix."""
    sections = receipt.plan.get("totals", ())
    names = "; ".join(f"by {', '.join(each['by'])}" for each in sections)
    if not names:
        return ""
    fixed = ", ".join(title(receipt, query.name) for query in plan.fixed) if plan else ""
    also = f" Fixed by the totals, and not measured: {fixed}." if fixed else ""
    return f"Rows {names}. Declared public: exact, and not protected.{also}"


def _row_counts(receipt: Receipt, plan: Plan | None) -> str:
    """Say which rows count, and how the other rows affect the tables. Return "" without a plan."""
    if plan is None:
        return ""
    return " ".join(filter(None, counted_rows(plan, receipt.rows_per_unit)))


def _missing_values(receipt: Receipt, plan: Plan | None) -> Node:
    """Say what happens to rows without a number, one line per sentence."""
    sentences = {} if plan is None else missing_by_sentence(plan)
    lines: list[Node] = [
        [markup.strong(", ".join(title(receipt, name) for name in names)), f": {sentence}"]
        for sentence, names in [*sentences.items()][: LIMITS.queries]
    ]
    if len(sentences) > LIMITS.queries:
        lines.append(markup.link("contents", "see all tables"))
    return markup.lines(lines)


def _filter(receipt: Receipt) -> Node:
    texts: list[str] = []
    if receipt.plan.get("where") is not None:
        text = expression_words(str(receipt.plan["where"]))
        short = (
            f"only rows where {text}"
            if len(text) <= 160  # letters of a filter
            else "a filter on all rows"
        )
        texts.append(short)
    own = sum(query.get("where") is not None for query in receipt.plan.get("query", ()))
    if own:
        texts.append(f"{many(own, 'query filter')}")
    if not texts:
        return ""
    return [f"{'; '.join(texts)} (", markup.link("method", "see the filters"), ")"]


def caveats(receipt: Receipt) -> Element:
    """Return the section on what the limits do not cover, and what cannot be verified."""
    subject, rows = unit(receipt)
    lines = [
        kinds_of_disclosure(receipt),
        f"The limits are for this release alone. Each other release about the same {subject} adds "
        "to the risk.",
    ]
    if balance := receipt.ledger.balance:
        spent, cap, left = (
            words.number(text) for text in (balance.spent, balance.cap, balance.left)
        )
        lines.append(
            f"As the ledger said (event {balance.events} of {balance.account}), {spent} of {cap} "
            f"in {receipt.ledger.currency} had been charged for these {plural(subject)} apart from "
            f"this release, and {left} was left. Releases outside it are not counted."
        )
    column = receipt.plan.get("unit", {}).get("id")
    if unchecked.one_row_each(subject, column):
        most = "one row" if rows == 1 else f"{rows:,} rows"
        lines.append(
            f"They hold if no {subject} has more than {most} in the data. Nothing checks that."
        )
    elif column is not None:
        lines.append(
            f"They hold if every row of one {subject} has the same id. Nothing checks that."
        )
    if "totals" in receipt.plan:
        lines.append("They do not cover what the exact totals reveal: these are not protected.")
    if tables_of(receipt, public=True):
        lines.append("They do not cover the invariants, which are exact.")
    if receipt.plan.get("part"):
        lines.append(unchecked.disjoint_parts(receipt.dataset, subject))
    lines.append(unchecked.dataset_names(subject))
    items = element("ul", *(element("li", line) for line in lines))
    return markup.section("caveats", "What the limits do not cover", items)


def contents_line(folds: Sequence[markup.Fold]) -> Element:
    """Return a line on where the rest of the report is. Only printed pages show it."""
    titles = "; ".join(fold.title for fold in folds)
    return markup.paragraph(
        "More is in ",
        markup.code("report.html"),
        f": {titles}. A section that is open there is printed after these pages.",
        class_="printed note",
    )
