"""Write the sections of a report on margins of error and consistent tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from neyman.accounting.optimality.table_gap import GAP, cell_gap
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.digits import many
from neyman.display.report import html as markup
from neyman.display.report.measurement_units import unit_of_values
from neyman.display.report.receipt_view import Entries, is_quantile, name, size, tables_of
from neyman.display.report.table_accuracy import Table, TableAccuracy
from neyman.display.report.table_accuracy import accuracy as accuracy_of
from neyman.elements import Node, element
from neyman.publishing.plan.measures import INVERSE_SENSITIVITY, Distinct
from neyman.publishing.release.receipt_format import Receipt, TableName


@dataclass(frozen=True)
class Limits:
    """Limit the number of tables in a part of the report."""

    tables: int = 5  # on two printed pages
    lines: int = 3  # on the first screen


LIMITS = Limits()
_CLOSE = (0.01, 0.05)  # shares of a cell's own value


@dataclass(frozen=True)
class ReportedError:
    """Hold the error of a published table.

    Args:
        entries: the receipt's entries that make the table.
        accuracy: the accuracy read from the published table. None if the table is missing or
            empty, or if it has quantiles without an interval, whose error is known in ranks alone.
    """

    entries: Entries
    accuracy: TableAccuracy | None


def table_errors(receipt: Receipt, tables: Mapping[str, Table]) -> list[ReportedError]:
    """Return the error of each noisy table, in the order of the plan."""
    errors: list[ReportedError] = []
    alone = [
        q["name"] for q in receipt.plan.get("query", ()) if q.get("method") == INVERSE_SENSITIVITY
    ]
    for entries in tables_of(receipt):
        table = tables.get(f"{entries[0].query}.{entries[0].level}")
        if entries[0].query in alone:
            table = None
        known = accuracy_of(table, _CLOSE) if table is not None else None
        errors.append(ReportedError(entries, known))
    return errors


def accuracy(receipt: Receipt, errors: Sequence[ReportedError]) -> Node:
    """Return the section on margins of error. If there are many tables, list the least accurate."""
    if not errors:
        return ""
    shown, left = _least_accurate(errors, LIMITS.tables), ""
    if len(errors) > LIMITS.tables:
        left = markup.paragraph(
            f"These are the {LIMITS.tables} of {many(len(errors), 'table')} with the smallest "
            "share of cells within 5%. ",
            markup.link("errors", "See all tables"),
            ".",
        )
    rows = [
        [_table_name(receipt, error.entries), *(_fit(error)[i] for i in (0, 1, 3))]
        for error in shown
    ]
    table = markup.table(
        ["Table", "Median value", "Margin of error (90%)", "Cells within 5%"],
        rows,
        key=2,
        kind="accuracy",
    )
    return markup.section(
        "accuracy",
        "Accuracy",
        table,
        left,
        markup.paragraph(
            markup.strong("Published values are noisy."),
            " Counts can be negative and need not add up. ",
            _consistent_place(receipt),
        ),
        markup.note(
            "The exact value is computed from the rows that count, after clipping. With "
            "probability at least 90%, a published value is within its margin of error of the "
            "exact value, except for a ratio or quantile without rows. "
            "Each row gives the table’s median margin. It covers noise only. "
            "It does not cover rows that do not count, or errors in the data. “Cells within 5%” "
            "counts cells whose margin is below 5% of the published value."
        ),
    )


def accuracy_lines(receipt: Receipt, errors: Sequence[ReportedError]) -> Node:
    """Return one line per table with its margin of error, or only the least accurate of many."""
    lines: list[Node] = []
    for error in _least_accurate(errors, LIMITS.lines if len(errors) <= LIMITS.lines else 1):
        value, margin, _, _ = _fit(error)
        measured = unit_of_values(receipt, error.entries[0].query, declared=True)
        near = "" if value == "–" else f" at a median value of {value}"
        in_ranks = error.accuracy is None and error.entries[0].measure == "rank"
        unit = f" {measured}" if measured and not in_ranks else ""
        margin = markup.strong(f"{margin}{unit}")
        lines.append([f"{name(receipt, error.entries[0])}: ", margin, f" (90%){near}"])
    if len(errors) > LIMITS.lines:
        lines.append(markup.link("accuracy", "see more tables"))
    return element("span", markup.lines(lines), class_="on-screen") if lines else ""


def _least_accurate(errors: Sequence[ReportedError], most: int) -> list[ReportedError]:
    """Return the errors in order, or the largest ones if there are more than ``most``.

    Readers who see some of the tables must not assume that the others are worse.
    """
    if len(errors) <= most:
        return [*errors]

    def share(error: ReportedError) -> Fraction:
        return error.accuracy.within[1] if error.accuracy else Fraction(2)

    return sorted(errors, key=share)[:most]


def every_error(receipt: Receipt, errors: Sequence[ReportedError]) -> markup.Fold | None:
    """Return the section that lists each table's margin of error, or None without tables.

    Its last column compares the error with the least error that is possible.
    """
    if not errors:
        return None
    rows = [
        [
            _table_name(receipt, error.entries),
            size(error.entries),
            *_fit(error),
            _gap(receipt, error.entries),
        ]
        for error in errors
    ]
    head = [
        "Table",
        "Cells",
        "Median value",
        "Margin of error (90%)",
        "Cells within 1%",
        "Cells within 5%",
        "Times the least error",
    ]
    table = markup.table(head, rows, key=3, kind="errors")
    named = [" ", markup.link("contents", "What each table contains"), " gives it."]
    note = markup.note(
        "Values and margins are in the unit of the table.",
        named if receipt.plan.get("query") else "",
        " For means, variances, and quantiles the probability can be larger than 90%. “Cells "
        "within 1%” counts cells whose margin is below 1% of the published value.",
    )
    last = markup.note(
        f"Last column: {GAP.format('this many')} It compares standard errors on the worst data, "
        "for releases with the zCDP guarantee of that table alone. A dash means that no bound is "
        "proven."
    )
    title, about = "Accuracy of every table", "Cells, margins, and the least error"
    return markup.Fold("errors", title, about, markup.blocks(table, note, last))


def _table_name(receipt: Receipt, entries: Entries) -> Node:
    measured = unit_of_values(receipt, entries[0].query, declared=True)
    return markup.below(name(receipt, entries[0]), f"in {measured}" if measured else "")


def _fit(error: ReportedError) -> list[str]:
    """Return the median value, the margin, and the shares of cells within 1% and 5%."""
    accuracy, entries = error.accuracy, error.entries
    if accuracy is None:
        # A mean consists of two noisy integers, and its margin is neither's margin.
        margin = words.number(entries[0].half_width_90) if len(entries) == 1 else None
        if margin and entries[0].measure == "rank":
            margin += " ranks"
        return ["–", f"± {margin}" if margin else "–", "–", "–"]
    return [
        words.number(accuracy.value, up=False),
        f"± {words.number(accuracy.margin)}",
        *(words.percent(share, up=False) for share in accuracy.within),
    ]


def _gap(receipt: Receipt, entries: Entries) -> str:
    """Return a table's error divided by the least possible error, as text.

    Return a dash if the receipt alone proves no bound.
    """
    (part, *others) = entries
    mechanism = part.mechanism or {}
    if others or part.delta is not None or part.measure in Distinct.tables:
        return "–"
    queries = [query for query in receipt.plan.get("query", ()) if query["name"] == part.query]
    if any("detail" in query or is_quantile(query) for query in queries):
        return "–"
    vectors = mechanism.get("sensitivity")
    one = [[vectors]] if isinstance(vectors, int) else vectors
    rho = words.value("zcdp", part.zcdp)
    exact = receipt.guarantee.held  # no bound is proved beside exact totals
    if not one or receipt.clips or exact or not isinstance(rho, Fraction):
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


def _consistent_place(receipt: Receipt) -> Node:
    """Say where the consistent tables are, or that there are none."""
    if receipt.consistency is None:
        return "This release has no consistent tables."
    nonnegative = receipt.consistency.method != "least-squares"
    also = ", without negative counts" if nonnegative else ""
    return [f"Tables that add up{also} are in ", markup.code("tables/consistent/"), "."]


_METHODS = {
    "least-squares": "The adjustment is weighted least squares. It is unbiased, and no table "
    "becomes less accurate.",
    "nonnegative": "The adjustment is weighted least squares with values of at least 0. On "
    "average, small cells are too large, and large cells beside them are too small.",
    "integer": "The adjustment is weighted least squares with whole numbers of at least 0. On "
    "average, small cells are too large, and large cells beside them are too small.",
}


def adding_up(receipt: Receipt) -> markup.Fold | None:
    """Return the section on consistent tables, if there are any."""
    consistency = receipt.consistency
    if consistency is None:
        return None

    def listed(tables: Sequence[TableName]) -> str:
        return "; ".join(name(receipt, table) for table in tables)

    exact, out = consistency.invariants, consistency.left_out
    what = markup.paragraph(
        markup.code("tables/consistent/"),
        " holds the same tables, adjusted so that places and keys add up to their totals. "
        f"{_METHODS[consistency.method]} The adjustment uses only published numbers, so it reveals "
        "nothing more.",
    )
    totals = markup.paragraph(
        f"Invariants: {listed(exact)}. These totals were declared public. The guarantee does not "
        "cover them, or what follows from them alone."
    )
    left = markup.paragraph(f"Left out: {listed(out)}.")
    held = markup.paragraph(
        "Tables of counts without a filter add up to the exact totals. Where rows of unlisted "
        "places or keys are dropped, they do so only by what each row has."
    )
    body = markup.blocks(
        what, totals if exact else "", held if receipt.guarantee.held else "", left if out else ""
    )
    return markup.Fold("adding", "Consistent tables", "The same tables, which add up", body)
