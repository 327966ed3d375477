"""Write the sections of a report on its cost, and on how to verify it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from neyman.accounting.semantics import digits
from neyman.accounting.semantics.digits import plain
from neyman.display.report import html as markup
from neyman.display.report.receipt_view import Entries, name, size, tables_of, unit
from neyman.elements import Element, Node, element, joined
from neyman.publishing.planning.allocation import Split
from neyman.publishing.release.receipt_format import Receipt
from neyman.publishing.release.table_files import LIMITS as TABLE_FILES_LIMITS


def spending(
    receipt: Receipt, split: Split | None = None, left: Fraction = Fraction(0)
) -> markup.Fold:
    """Return the section with each table's share of the budget.

    Args:
        split: the budget split of the plan, if it gives weights of the tables' errors.
        left: the part of the budget that the tables leave.
    """
    spent, are_disjoint = tables_of(receipt), bool(receipt.plan.get("disjoint"))
    costs = _costs(spent, "share") if are_disjoint else _costs(spent, "zcdp")
    costs = costs or _costs(spent, "share")
    total = sum(costs, Fraction(0))
    if total == 0:
        text = markup.paragraph("The cost is zero: no table depends on the data.")
    else:
        parts = costs if are_disjoint else [cost / total * (1 - left) for cost in costs]
        head = ["Table", "Cells", "", "Share of the budget"]
        rows = _share_rows(receipt, spent, parts, left)
        reasons: Node = ""
        measured = ""
        if split is not None:
            weights = {(part.query, part.level): plain(part.weight) for part in split.parts}
            texts = [weights[e[0].query, e[0].level] for e in spent]
            texts += [""] * (len(rows) - len(texts))
            for row, weight in zip([head, *rows], ["Weight", *texts], strict=True):
                row.insert(2, weight)
            command = "neyman plan split"
            parts = " ".join(split.standing()).split(command)
            reasons = markup.paragraph(joined(markup.code(command), parts))
            measured = f" {split.measured(unit(receipt)[0])}"
        rule = "Shares of the zCDP cost are rounded to 0.1% and sum to 100%."
        if are_disjoint:
            rule = (
                f"A share is of the charge for one {unit(receipt)[0]}, rounded up. Tables whose "
                "filters exclude each other have one charge, so shares may sum to more than 100%."
            )
        text = [
            markup.table(head, rows, key=len(head) - 1),
            _leaves(left),
            reasons,
            markup.note(f"A larger share means less noise. {rule}{measured}"),
        ]
    title = "Privacy budget by table"
    return markup.Fold("budget", title, "Share of the budget that each table takes", text)


def _share_rows(
    receipt: Receipt, spent: Sequence[Entries], parts: Sequence[Fraction], left: Fraction
) -> list[list[Node]]:
    """Return a row for each table, for the part that is left, and for all of them."""
    are_disjoint = bool(receipt.plan.get("disjoint"))
    printed = [*map(digits.percent, parts), digits.percent(left, up=False)]
    if not are_disjoint:
        printed = [f"{share}%" for share in digits.shares([*parts, left])]
    rows: list[list[Node]] = [
        [name(receipt, entries[0]), size(entries), markup.bar(part), share]
        for entries, part, share in zip(spent, parts, printed[:-1], strict=True)
    ]
    if left:
        rows.append(["Left unspent", "", markup.bar(left), printed[-1]])
    sizes = [entries[0].cells for entries in spent]
    known = [size for size in sizes if size is not None]
    every = digits.number(sum(known)) if known == sizes else "–"
    rows.append(["All", every, "", "" if are_disjoint else "100%"])
    return rows


def _leaves(left: Fraction) -> Node:
    if not left:
        return ""
    return markup.paragraph(
        f"The tables leave {digits.percent(left, up=False)} of the budget: their noise is as large "
        "as if one more Gaussian release took it, and the ledger was not charged for it."
    )


def checking(receipt: Receipt) -> markup.Fold:
    """Return the section on what identifies the release, and how to verify it."""
    ledger = receipt.ledger
    charged = f"{digits.number(ledger.charged)} ({ledger.currency})"
    if digits.value("charged_delta", ledger.charged_delta):
        charged += f", with delta {digits.delta(ledger.charged_delta)}"
    facts = [
        ("Plan", markup.code(receipt.plan_hash)),
        ("Dataset", markup.code(receipt.dataset)),
        ("Part", markup.code(str(part)) if (part := receipt.plan.get("part")) else ""),
        (
            "Ledger",
            ["account ", markup.code(ledger.account), ", entry ", markup.code(ledger.entry)],
        ),
        ("Charged", charged),
    ]
    large = [name(receipt, one) for one in receipt.tables if one.without_csv]
    left = markup.paragraph(
        f"Tables of more than {TABLE_FILES_LIMITS.csv_cells:,} cells ({'; '.join(large)}) are "
        "published as Parquet only. They are too large for a spreadsheet."
    )
    body = markup.blocks(
        markup.paragraph(
            "Anyone can recompute the guarantee from ",
            markup.code("receipt.json"),
            " without the data, and check that the tables are the published ones. Verification "
            "cannot show that the numbers come from the data.",
        ),
        markup.paragraph(markup.code("neyman verify receipt.json")),
        left if large else "",
        markup.facts(facts),
    )
    return markup.Fold("check", "Verify this release", "Plan, dataset, and ledger entry", body)


def footer(receipt: Receipt) -> Element:
    """Return the footer: how numbers are rounded, and which software made them."""
    versions = ", ".join(f"{name} {version}" for name, version in receipt.versions.items())
    rounded = (
        "Risks are rounded up. Accuracy is rounded down. The receipt has every digit, with a "
        "proven lower and upper bound."
    )
    software = markup.paragraph(f"Made with {versions}.")
    return element("footer", markup.paragraph(rounded), software)


def _costs(tables: Sequence[Entries], field: str) -> list[Fraction]:
    """Return the cost of each table, or [] if one is infinite. ``field`` names the cost."""
    costs = [
        [digits.value(field, getattr(entry, field)) for entry in entries] for entries in tables
    ]
    finite = [[cost for cost in each if isinstance(cost, Fraction)] for each in costs]
    return [sum(each, Fraction(0)) for each in finite] if finite == costs else []
