"""The sections of a report that state its cost, and how to check it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from html import escape

from neyman.planning.allocation import Split
from neyman.release.receipt_format import Receipt
from neyman.release.table_files import MOST_CSV_CELLS
from neyman.report import html as markup
from neyman.report.receipt_view import Entries, name, place, size, tables_of, unit
from neyman.semantics import sentences as words
from neyman.semantics.digits import plain

__all__ = ["checking", "footer", "spending"]


def spending(receipt: Receipt, split: Split | None = None) -> markup.Fold:
    """The share of the budget of each table.

    Args:
        receipt: of the release.
        split: of its plan, where that says how much each table's error counts.
    """
    spent = tables_of(receipt)
    costs = _costs(spent, "zcdp") or _costs(spent, "share")
    total = sum(costs, Fraction(0))
    if total == 0:
        text = "<p>The cost is zero: no table depends on the data.</p>"
    else:
        printed = words.shares([cost / total for cost in costs])
        head = ["Table", "Cells", "", "Share of the budget"]
        rows = [
            [name(entries), size(entries), markup.bar(cost / total), f"{share}%"]
            for entries, cost, share in zip(spent, costs, printed, strict=True)
        ]
        sizes = [entries[0].cells for entries in spent]
        known = [size for size in sizes if size is not None]
        every = words.number(sum(known)) if known == sizes else "–"
        rows.append(["All", every, "", "100%"])
        reasons = measured = ""
        if split is not None:
            weights = {(part.query, part.level): plain(part.weight) for part in split.parts}
            texts = [weights[e[0].query, e[0].level] for e in spent]
            for row, weight in zip([head, *rows], ["Weight", *texts, ""], strict=True):
                row.insert(2, weight)
            command = "neyman plan split"
            texts = escape(" ".join(split.standing())).replace(command, markup.code(command))
            reasons = f"<p>{texts}</p>"
            measured = escape(" " + split.measured(unit(receipt)[0]))
        text = (
            markup.table(head, rows, key=len(head) - 1)
            + f'{reasons}<p class="note">A larger share means less noise. Shares of the zCDP cost '
            "are rounded to 0.1% and sum to 100%."
            f"{measured}</p>"
        )
    title = "Privacy budget by table"
    return markup.Fold("budget", title, "Share of the budget that each table takes", text)


def checking(receipt: Receipt) -> markup.Fold:
    """What identifies the release, and the command that recomputes its guarantee."""
    ledger = receipt.ledger
    charged = f"{words.number(ledger.charged)} ({escape(ledger.currency)})"
    if words.value("charged_delta", ledger.charged_delta):
        charged += f", with delta {words.delta(ledger.charged_delta)}"
    facts = [
        ("Plan", markup.code(receipt.plan_hash)),
        ("Dataset", markup.code(receipt.dataset)),
        ("Part", markup.code(str(part)) if (part := receipt.plan.get("part")) else ""),
        (
            "Ledger",
            f"account {markup.code(ledger.account)}, entry {markup.code(ledger.entry)}",
        ),
        ("Charged", charged),
    ]
    large = [
        f"{escape(one.query)}, {place(one.level)}" for one in receipt.tables if one.without_csv
    ]
    left = (
        f"<p>Tables of more than {MOST_CSV_CELLS:,} cells ({'; '.join(large)}) are published as "
        "Parquet only. They are too large for a spreadsheet.</p>"
        if large
        else ""
    )
    body = f"""<p>Anyone can recompute the guarantee from {markup.code("receipt.json")} without the
data, and check that the tables are the published ones. Verification cannot show that the numbers
come from the data.</p>
<p>{markup.code("neyman verify receipt.json")}</p>
{left}{markup.facts(facts)}"""
    return markup.Fold("check", "Verify this release", "Plan, dataset, and ledger entry", body)


def footer(receipt: Receipt) -> str:
    """How numbers are rounded, and what they were made with."""
    versions = ", ".join(f"{name} {version}" for name, version in receipt.versions.items())
    return (
        "<footer><p>Risks are rounded up. Accuracy is rounded down. The receipt has every digit, "
        f"with a proven lower and upper bound.</p><p>Made with {escape(versions)}.</p></footer>"
    )


def _costs(tables: Sequence[Entries], field: str) -> list[Fraction]:
    """What each table cost; nothing where a cost has no finite number."""
    costs = [[words.value(field, getattr(entry, field)) for entry in entries] for entries in tables]
    finite = [[cost for cost in each if isinstance(cost, Fraction)] for each in costs]
    return [sum(each, Fraction(0)) for each in finite] if finite == costs else []
