"""The sections of a report that say what was released, at what cost, and how to check it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import Any

from neyman.ledger.throwaway import NOTICE
from neyman.optimality.table_gap import GAP, cell_gap
from neyman.plan.clip_search import ROWS_TABLE
from neyman.plan.expression_words import words as expression_words
from neyman.plan.query import ALL
from neyman.planning.allocation import Split
from neyman.release.receipt_format import Receipt, TableName
from neyman.release.table_files import MOST_CSV_CELLS
from neyman.report import html as markup
from neyman.report.receipt_view import Entries, place, tables_of, unit
from neyman.report.table_accuracy import Table
from neyman.report.table_accuracy import accuracy as accuracy_of
from neyman.semantics import sentences as words
from neyman.semantics import unchecked_claims as unchecked
from neyman.semantics.digits import many, plain

__all__ = ["accuracy", "adding_up", "checking", "footer", "opening", "spending"]


def opening(receipt: Receipt) -> str:
    """What was released, and who is protected."""
    subject, rows = unit(receipt)
    noisy, public = tables_of(receipt), tables_of(receipt, public=True)
    each = "one record each" if rows == 1 else f"up to {rows:,} records each"
    change = words.change(receipt.neighboring, subject, rows)
    facts = [
        ("Warning", f"<strong>{escape(NOTICE)}</strong>" if receipt.ledger.throwaway else ""),
        ("Noisy tables", _listing(noisy) or "none"),
        (
            "Invariants",
            f"{_listing(public)}<br>Declared public: exact totals that are not protected. They "
            "include rows dropped elsewhere.",
        ),
        ("Noise", _noise(receipt) if noisy else ""),
        ("Filter", _filters(receipt)),
        ("Joins", _joined(receipt)),
        ("Derived columns", _computed(receipt)),
        ("Privacy unit", f"every {escape(subject)} in the data, {each}"),
        ("Contribution bounds", _bounds(receipt)),
        ("Noisy clips", _searched(receipt)),
        ("Neighboring datasets", f"this dataset, and the same {escape(change)}"),
    ]
    if not public:
        del facts[2]
    entries = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    return f"""<header>
<p class="eyebrow">Privacy report</p>
<h1>{escape(str(receipt.plan.get("name", "A release")))}</h1>
<p>{many(len(noisy), "noisy table")} from dataset {markup.code(receipt.dataset)}. This report limits
what they can reveal about any one {escape(subject)}.</p>
<dl>{entries}</dl>
</header>"""


_NOISE = {
    "discrete-gaussian": "whole numbers drawn exactly from the discrete Gaussian distribution (a "
    "bell curve on the whole numbers)",
    "rounded-gaussian": "normal noise, drawn exactly and rounded to whole numbers",
}


def _noise(receipt: Receipt) -> str:
    """The kind of noise; that of quantiles that are drawn is their own."""
    measures = {part.measure for part in receipt.mechanisms if not part.public}
    kind = str(receipt.plan.get("noise", "discrete-gaussian"))
    texts: list[str] = []
    if measures != {"rank"}:
        texts.append(f"{_NOISE.get(kind, kind)}, added to each number")
    if "rank" in measures:
        texts.append(
            "quantiles drawn at random, with higher probability near the true rank (inverse "
            "sensitivity)"
        )
    text = "; ".join(texts)
    return escape(
        f"{text[0].upper()}{text[1:]}. The draws come from the operating system, without a seed."
    )


def _filters(receipt: Receipt) -> str:
    """Which rows take part; nothing where all do."""
    plan = receipt.plan
    texts: list[str] = []
    if plan.get("where") is not None:
        texts.append(f"only rows where {escape(expression_words(str(plan['where'])))}")
    for query in plan.get("query", ()):
        if query.get("where") is not None:
            condition = escape(expression_words(str(query["where"])))
            texts.append(
                f"for <strong>{escape(str(query['name']))}</strong>, only rows where {condition}"
            )
    if not texts:
        return ""
    return (
        "<br>".join(texts) + ".<br>A row with a missing value in the condition does not count. The "
        "number of rows that count is protected."
    )


def _joined(receipt: Receipt) -> str:
    """The tables that have one row per unit, one a line."""
    plan = receipt.plan
    tables: Mapping[str, Any] = plan.get("tables", {})
    texts: list[str] = []
    for name, part in tables.items():
        if "duplicates" not in part:
            continue
        rule = {
            "drop": "has none of them",
            "least": "has the least of them",
        }[part["duplicates"]]
        several = f"A {receipt.unit.protects} with several rows in {name} {rule}."
        names = ", ".join(part.get("join", ()))
        what = f"{names} from {name} to each row of {plan['table']}. " if names else ""
        texts.append(escape(what + several))
    return "<br>".join(texts)


def _computed(receipt: Receipt) -> str:
    """The derived columns, one a line."""
    derived: Mapping[str, Any] = receipt.plan.get("derive", {})
    texts = [f"<strong>{escape(name)}</strong> {_rule(part)}" for name, part in derived.items()]
    lookups: Mapping[str, Any] = receipt.plan.get("lookup", {})
    texts += [
        f"<strong>{escape(name)}</strong> from a public list of {many(len(part['keys']), 'value')} "
        f"of {escape(expression_words(str(part['column'])))}"
        for name, part in lookups.items()
    ]
    return "<br>".join(texts)


def _rule(part: Mapping[str, Any]) -> str:
    if "cut" in part:
        edges = ", ".join(str(edge) for edge in part["edges"])
        return f"from {escape(expression_words(str(part['cut'])))}, cut at {escape(edges)}"
    if "map" in part:
        mapped = many(len(part["to"]), "text")
        return f"from {escape(expression_words(str(part['map'])))}, {mapped} mapped"
    if "case" in part:
        cases = [f"{label} if {expression_words(str(text))}" for text, label in part["case"]]
        return escape("; ".join(cases))
    ends = part.get("range")
    clipped = f", clipped to {ends[0]} to {ends[1]}" if ends else ""
    return escape(f"{expression_words(str(part['expression']))}{clipped}")


def _bounds(receipt: Receipt) -> str:
    """The contribution bounds; nothing if a unit is a row."""
    subject, rows = unit(receipt)
    plan = receipt.plan
    if plan.get("unit", {}).get("id") is None:
        return ""
    tables: Mapping[str, Any] = plan.get("tables", {})
    texts = [f"at most {many(rows, 'record')} of each {escape(subject)} counted"]
    if tables:
        bounds = {str(plan["table"]): plan["unit"]["rows"]}
        bounds |= {name: part["rows"] for name, part in tables.items()}
        each_table = [f"{bound:,} in {escape(name)}" for name, bound in bounds.items()]
        texts = [f"of the records of each {escape(subject)}, at most {', '.join(each_table)}"]
    for query in plan.get("query", ()):
        groups, each = query.get("groups"), query.get("rows_per_group")
        parts: list[str] = []
        if groups is not None:
            parts.append(f"in at most {many(groups, 'cell')}")
        if each is not None:
            parts.append(f"at most {each:,} to a cell")
        if parts:
            texts.append(f"for <strong>{escape(str(query['name']))}</strong> {', '.join(parts)}")
    return (
        "; ".join(texts) + ".<br>Records over a bound were dropped at random. How many is not "
        "published: that would be one more answer about the data."
    )


def _searched(receipt: Receipt) -> str:
    """The bounds that noisy histograms led to."""
    if not receipt.clips:
        return ""
    texts = [
        f"<strong>{escape(part.bounds)}</strong> "
        + (
            f"at most {escape(part.clip[-1])} records counted of each"
            if part.histogram == f"{ROWS_TABLE}.{ALL}"
            else f"values from {escape(part.clip[0])} to {escape(part.clip[-1])}"
        )
        + f", from {markup.code(part.histogram)}"
        for part in receipt.clips
    ]
    return (
        "<br>".join(texts)
        + ".<br>These follow from published noisy histograms. Values outside are "
        "clipped to the bound. No margin of error covers that."
    )


def spending(receipt: Receipt, split: Split | None = None) -> str:
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
            [_name(entries), _size(entries), markup.bar(cost / total), f"{share}%"]
            for entries, cost, share in zip(spent, costs, printed, strict=True)
        ]
        sizes = [_cells(entries) for entries in spent]
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
    return f"""<section aria-labelledby="budget">
<h2 id="budget">Privacy budget by table</h2>
{text}
</section>"""


def accuracy(receipt: Receipt, tables: Mapping[str, Table]) -> str:
    """The margins of error of the tables."""
    subject, _ = unit(receipt)
    rows = [[*_fit(entries, tables), _gap(receipt, entries)] for entries in tables_of(receipt)]
    if not rows:
        return ""
    table = markup.table(
        [
            "Table",
            "Cells",
            "Median value",
            "Margin of error (90%)",
            "Cells within 1%",
            "Cells within 5%",
            "Times the least error",
        ],
        rows,
        key=3,
        kind="accuracy",
    )
    return f"""<section aria-labelledby="accuracy">
<h2 id="accuracy">Accuracy</h2>
{table}
<p><strong>Published values are noisy.</strong> Counts can be negative and need not add up.
{_consistent_place(receipt)}</p>
<p class="note">A published value is within its margin of error of the value computed from the data
(after clipping) with probability at least 90%, except for ratios and quantiles of no rows. For
means, variances, and quantiles the probability can be larger. Each row gives the table’s median
margin. It covers noise only, not errors in the data. Values and margins are in the unit of the
table: for counts, records of {escape(words.plural(subject))}. “Cells within 1%” counts cells whose
margin is below 1% of the published value.</p>
<p class="note">Last column: {GAP.format("this many")} It compares standard errors on the worst
data, for releases with the zCDP guarantee of that table alone. A dash means that no bound is
proven.</p>
</section>"""


def _consistent_place(receipt: Receipt) -> str:
    """Where tables that add up are; "" if there are none."""
    if receipt.consistency is None:
        return "This release has no consistent tables."
    nonnegative = receipt.consistency.method != "least-squares"
    also = ", without negative counts" if nonnegative else ""
    return f"Tables that add up{also} are in {markup.code('tables/consistent/')}."


_METHODS = {
    "least-squares": "The adjustment is weighted least squares. It is unbiased, and no table "
    "becomes less accurate.",
    "nonnegative": "The adjustment is weighted least squares with values of at least 0. On "
    "average, small cells are too large, and large cells beside them are too small.",
    "integer": "The adjustment is weighted least squares with whole numbers of at least 0. On "
    "average, small cells are too large, and large cells beside them are too small.",
}


def adding_up(receipt: Receipt) -> str:
    """The consistent tables, if there are any."""
    consistency = receipt.consistency
    if consistency is None:
        return ""

    def listed(tables: Sequence[TableName]) -> str:
        return "; ".join(f"{escape(t.query)}, {place(t.level)}" for t in tables)

    exact, out = consistency.invariants, consistency.left_out
    notes = "".join(
        f"<p>{text}</p>"
        for text in (
            f"Invariants: {listed(exact)}. These totals were declared public. The guarantee does "
            "not cover them, or what follows from them alone."
            if exact
            else "",
            f"Left out: {listed(out)}." if out else "",
        )
        if text
    )
    return f"""<section aria-labelledby="adding">
<h2 id="adding">Consistent tables</h2>
<p>{markup.code("tables/consistent/")} holds the same tables, adjusted so that places and keys add
up to their totals. {_METHODS[consistency.method]} The adjustment uses only published numbers, so
it reveals nothing more.</p>
{notes}
</section>"""


def checking(receipt: Receipt) -> str:
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
    entries = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    large = [
        f"{escape(one.query)}, {place(one.level)}" for one in receipt.tables if one.without_csv
    ]
    left = (
        f"<p>Tables of more than {MOST_CSV_CELLS:,} cells ({'; '.join(large)}) are published as "
        "Parquet only. They are too large for a spreadsheet.</p>"
        if large
        else ""
    )
    return f"""<section aria-labelledby="check">
<h2 id="check">Verify this release</h2>
<p>Anyone can recompute the guarantee from {markup.code("receipt.json")} without the data, and check
that the tables are the published ones. Verification cannot show that the numbers come from the
data.</p>
<p>{markup.code("neyman verify receipt.json")}</p>
{left}<dl>{entries}</dl>
{_unchecked(receipt)}
</section>"""


def _unchecked(receipt: Receipt) -> str:
    """What neither the release nor its verification can show."""
    subject, _ = unit(receipt)
    sentences = [unchecked.dataset_names(subject)]
    if receipt.plan.get("part"):
        sentences.insert(0, unchecked.disjoint_parts(receipt.dataset, subject))
    return "\n".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def footer(receipt: Receipt) -> str:
    """How numbers are rounded, and what they were made with."""
    versions = ", ".join(f"{name} {version}" for name, version in receipt.versions.items())
    return (
        "<footer><p>Risks are rounded up. Accuracy is rounded down. The receipt has every digit, "
        f"with a proven lower and upper bound.</p><p>Made with {escape(versions)}.</p></footer>"
    )


def _fit(entries: Entries, tables: Mapping[str, Table]) -> list[str]:
    """A row of the accuracy table."""
    head = [_name(entries), _size(entries)]
    table = tables.get(f"{entries[0].query}.{entries[0].level}")
    accuracy = accuracy_of(table, (0.01, 0.05)) if table is not None else None
    if accuracy is None:
        # A mean is made of two noisy integers, and neither's margin is its own.
        margin = words.number(entries[0].half_width_90) if len(entries) == 1 else None
        return [*head, "–", f"± {margin}" if margin else "–", "–", "–"]
    return [
        *head,
        words.number(accuracy.value, up=False),
        f"± {words.number(accuracy.margin)}",
        *(words.percent(share, up=False) for share in accuracy.within),
    ]


def _gap(receipt: Receipt, entries: Entries) -> str:
    """Times the least error of a table; a dash where the receipt alone proves none."""
    (part, *others) = entries
    mechanism = part.mechanism or {}
    if others or part.measure == "rank" or part.delta is not None:
        return "–"
    vectors = mechanism.get("sensitivity")
    one = [[vectors]] if isinstance(vectors, int) else vectors
    rho = words.value("zcdp", part.zcdp)
    if not one or receipt.clips or not isinstance(rho, Fraction):
        return "–"
    error = float(words.value("standard_error", part.standard_error))
    gap = cell_gap(
        error,
        rho,
        [[abs(int(v)) for v in vector] for vector in one],
        part.cells,
        receipt.neighboring,
    )
    return "–" if gap is None else words.number(gap)


def _costs(tables: Sequence[Entries], field: str) -> list[Fraction]:
    """What each table cost; nothing where a cost has no finite number."""
    costs = [[words.value(field, getattr(entry, field)) for entry in entries] for entries in tables]
    finite = [[cost for cost in each if isinstance(cost, Fraction)] for each in costs]
    return [sum(each, Fraction(0)) for each in finite] if finite == costs else []


def _cells(entries: Entries) -> int | None:
    """How many cells a table has; None where its keys are found in the data."""
    return entries[0].cells


def _size(entries: Entries) -> str:
    cells = _cells(entries)
    return "–" if cells is None else words.number(cells)


def _name(entries: Entries) -> str:
    return f"{escape(entries[0].query)}, {place(entries[0].level)}"


def _listing(tables: Iterable[Entries]) -> str:
    """Tables by query, one a line: "total by state (5 cells), by county (437 cells)"."""
    queries: dict[str, list[str]] = {}
    for entries in tables:
        number = _cells(entries)
        cells = "discovered keys"
        if number is not None:
            cells = many(number, "cell")
        listed = queries.setdefault(entries[0].query, [])
        listed.append(f"{place(entries[0].level)} ({cells})")
    return "<br>".join(
        f"<strong>{escape(name)}</strong> {', '.join(places)}" for name, places in queries.items()
    )
