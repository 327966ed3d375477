"""The report of a release: one HTML file that needs nothing else, for somebody who sets policy.

Everything on the page follows from the receipt and the published tables. The page loads nothing
(its content security policy forbids it), and its few lines of script only repeat what it already
says. Numbers are rounded by `neyman.semantics.words`: never in the release's favor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman.semantics import words
from neyman.show import markup, plots

if TYPE_CHECKING:
    import pyarrow

__all__ = ["page", "page_from"]

Receipt = Mapping[str, Any]
Entries = Sequence[Receipt]


def page(release: Any) -> str:
    """The report of a release as one self-contained HTML document.

    Args:
        release: has ``.receipt`` (a mapping, "neyman-receipt/1") and ``.tables`` (query.level to
            Arrow table).

    Raises:
        ValueError: see `page_from`.
    """
    return page_from(release.receipt, release.tables)


def page_from(receipt: Receipt, tables: Mapping[str, pyarrow.Table]) -> str:
    """The report as one self-contained HTML document, from a receipt and the published tables.

    Args:
        receipt: the content of ``receipt.json``, schema "neyman-receipt/1".
        tables: "query.level" to a table with columns value, lower, upper among others; those
            that are missing or empty leave their accuracy out.

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
                _opening(receipt),
                _headline(receipt),
                _findings(receipt),
                _figure(receipt),
                _levels(receipt),
                _spending(receipt),
                _accuracy(receipt, tables),
                _vocabularies(receipt),
                _checking(receipt),
            ]
        )
        title = f"Privacy report: {receipt['plan'].get('name', 'a release')}"
        footer = _footer(receipt)
    except KeyError as missing:
        raise ValueError(
            f"receipt has no field {missing}: take receipt.json as it was written"
        ) from None
    return markup.document(title, f"<main>\n{body}\n</main>\n{footer}")


# ---- sections, in the order of the page -------------------------------------------------------


def _opening(receipt: Receipt) -> str:
    subject, rows = _unit(receipt)
    noisy, public = _tables(receipt), _tables(receipt, public=True)
    count = len(noisy)
    many = f"{count} noisy table{'' if count == 1 else 's'}"
    each = "one record each" if rows == 1 else f"up to {rows:,} records each"
    change = words.change(receipt["neighboring"], subject, rows)
    facts = [
        ("Released with noise", _listing(noisy) or "nothing"),
        (
            "Released exactly",
            f"{_listing(public)}<br>Declared public, a total of all rows (also of those that are "
            "dropped elsewhere): nothing here protects this.",
        ),
        ("Protected", f"every {escape(subject)} in the data, {each}"),
        ("Compared", f"the data as they are, and {escape(change)}"),
    ]
    if not public:
        del facts[1]
    entries = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts)
    return f"""<header>
<p class="eyebrow">Privacy report</p>
<h1>{escape(str(receipt["plan"].get("name", "A release")))}</h1>
<p>{many} made from the data set {markup.code(receipt["dataset"])}. This page says how much they can
reveal about any one {escape(subject)}, at most.</p>
<dl>{entries}</dl>
</header>"""


def _headline(receipt: Receipt) -> str:
    subject, rows = _unit(receipt)
    level, power = _chosen(receipt)
    return f"""<section aria-labelledby="reveals">
<h2 id="reveals">What the release can reveal</h2>
<p class="sentence">{escape(words.power(level, power, subject))}</p>
<p class="note">{escape(words.claim(receipt["neighboring"], subject, rows))} The best test is that
of somebody with unlimited computing power who knows the plan and everybody else’s records: no real
attacker does better. What the tables say about groups, and would say without the {escape(subject)}
in question, is not counted.</p>
<p class="note">The limit that was chosen: {escape(words.budget(receipt["budget"]))}.</p>
</section>"""


def _findings(receipt: Receipt) -> str:
    level, power = _chosen(receipt)
    claims = 10_000
    while level * claims < 20 and claims < 10**12:
        claims *= 10
    rows = []
    for prior in words.PRIORS:
        true = prior * claims
        right = words.posterior(level, power, prior)
        rows.append(
            [
                f"1 in {prior.denominator}" + (" (even odds)" if prior.denominator == 2 else ""),
                words.number(true),
                words.number(true * power),
                words.number((claims - true) * level, up=False),
                markup.bar(right, mark=prior),
                f"{words.percent(right)}",
            ]
        )
    table = markup.table(
        [
            "True before the test",
            f"Of {words.number(claims)} claims, true",
            "Of these, found out: at most",
            "False, yet taken for true",
            "",
            "So a finding is right, at most",
        ],
        rows,
        caption="Bar: how often a finding is right. Upright mark: how often the claim was true "
        "before.",
        key=5,
        kind="findings",
    )
    odds = words.percent(words.posterior(level, power, Fraction(1, 2)))
    share = words.percent(power)
    return f"""<section aria-labelledby="findings">
<h2 id="findings">What a finding would mean</h2>
<p class="warning"><strong>{share} is not the chance that a finding is right.</strong> It is the
share of true claims that the test finds. How often a finding is right depends on how likely the
claim was before: at even odds, a positive test is right at most {odds} of the time.</p>
{table}
<p class="note">This is for a test that takes {words.percent(level, up=False)} of false claims for
true. A stricter test finds less, but what it does find can be right more often:
<a href="#levels">see other levels</a>.</p>
</section>"""


def _figure(receipt: Receipt) -> str:
    level, power = _chosen(receipt)
    budget = receipt["budget"]
    guarantee = receipt["guarantee"]
    known = {_number(p["level"]): _number(p["upper"]) for p in guarantee["curve"]}
    known |= {_number(p["level"]): _number(p["upper"]) for p in guarantee["power"]}
    curve = sorted((known | {float(level): float(power)}).items())
    limit = plots.limit_curve(budget)
    said = [_reading(*point) for point in curve]
    svg = plots.tradeoff_figure(
        curve,
        limit=limit,
        chosen=(float(level), float(power)),
        label=f"level {words.percent(level, up=False)}:\nat most {words.percent(power)}",
        title=f"Power against level. {_reading(level, power)}",
    )
    keys = [
        markup.key("release", "this release, certified: no test does better"),
        markup.key("guessing", "perfect privacy"),
    ]
    if limit:
        through = ", through the chosen point" if budget.get("kind") == "at_most" else ""
        keys.insert(1, markup.key("limit", f"the limit that was chosen{through}"))
    rows = "".join(
        f'<tr data-level="{x!r}" data-power="{y!r}" data-says="{escape(text)}">'
        f"<td>{words.percent(x, up=False)}</td><td>{words.percent(y)}</td></tr>"
        for (x, y), text in zip(curve, said, strict=True)
    )
    return f"""<section aria-labelledby="curve">
<h2 id="curve">The same at every level</h2>
<p>A test can be lenient, taking many false claims for true, or strict. The higher the blue curve
stands above the diagonal, the more the release gives away; a curve through the upper left corner
would give away everything.</p>
<figure>
{svg}
<ul class="legend">{"".join(keys)}</ul>
<div class="reading" hidden data-start="{float(level)!r}">
<label for="walk">Move along the curve</label>
<input id="walk" type="range" min="0" max="1" step="1" value="0">
<output for="walk"></output>
</div>
<details><summary>The numbers behind the curve</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Numbers behind the curve"><table>
<thead><tr><th scope="col">False claims taken for true</th>
<th scope="col">True claims found out, at most</th></tr></thead>
<tbody>{rows}</tbody></table></div></details>
</figure>
</section>"""


def _levels(receipt: Receipt) -> str:
    rows = []
    for point in receipt["guarantee"]["power"]:
        level = _proportion(point["level"])
        power = max(level, _proportion(point["upper"]))
        rows.append(
            [
                words.percent(level, up=False),
                words.percent(level, up=False),
                words.percent(power),
                words.percent(words.posterior(level, power, Fraction(1, 2))),
            ]
        )
    chosen = _chosen(receipt)[0]
    here = [_proportion(p["level"]) == chosen for p in receipt["guarantee"]["power"]]
    table = markup.table(
        [
            "Level: false claims taken for true",
            "True claims found by guessing",
            "True claims found out, at most",
            "A finding at even odds is right, at most",
        ],
        rows,
        key=2,
        here=here,
    )
    return f"""<section aria-labelledby="levels">
<h2 id="levels">Stricter and more lenient tests</h2>
{table}
</section>"""


def _spending(receipt: Receipt) -> str:
    spent = _tables(receipt)
    costs = _costs(spent, "zcdp") or _costs(spent, "share")
    total = sum(costs, Fraction(0))
    if total == 0:
        text = "<p>Nothing was spent: no table depends on the data.</p>"
    else:
        printed = words.shares([cost / total for cost in costs])
        rows = [
            [_name(entries), words.number(_cells(entries)), markup.bar(cost / total), f"{share}%"]
            for entries, cost, share in zip(spent, costs, printed, strict=True)
        ]
        rows.append(["All", words.number(sum(map(_cells, spent))), "", "100%"])
        text = markup.table(["Table", "Cells", "", "Share of the budget"], rows, key=3) + (
            '<p class="note">The more a table got, the less noise it carries. Shares of the zCDP '
            "cost, rounded to tenths of a per cent that add up to 100.</p>"
        )
    return f"""<section aria-labelledby="budget">
<h2 id="budget">Where the budget went</h2>
{text}
</section>"""


def _accuracy(receipt: Receipt, tables: Mapping[str, pyarrow.Table]) -> str:
    subject, _ = _unit(receipt)
    rows = [_fit(entries, tables) for entries in _tables(receipt)]
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
        ],
        rows,
        key=3,
        kind="accuracy",
    )
    return f"""<section aria-labelledby="accuracy">
<h2 id="accuracy">How accurate the tables are</h2>
{table}
<p class="note">In about 9 of 10 cells the value in the data lies within the margin of the published
one; errors in the data themselves are not counted. Values and margins are in the unit of the table:
for counts, records of {escape(words.plural(subject))}. A cell is within 1% if its margin is less
than 1% of its own published value.</p>
</section>"""


def _vocabularies(receipt: Receipt) -> str:
    guarantee = receipt["guarantee"]
    subject, rows_each = _unit(receipt)
    change = words.change(receipt["neighboring"], subject, rows_each)
    rows = []
    for index, point in enumerate(guarantee["epsilon"]):
        delta = point["delta"]
        text = words.epsilon(point["upper"], delta, change)
        rows.append([f"epsilon, delta {words.delta(delta)}", _value(point), escape(text)])
        if index:
            rows[-1][2] = escape(text.replace(f", {change}.", "."))
    rows += [
        ["mu (Gaussian)", _value(guarantee["mu"]), words.gdp(guarantee["mu"]["upper"])],
        ["rho (zCDP)", _value(guarantee["rho"]), words.zcdp(guarantee["rho"]["upper"])],
        [
            "total variation",
            _value(guarantee["total_variation"]),
            words.total_variation(guarantee["total_variation"]["upper"]),
        ],
    ]
    table = markup.table(
        ["Measure", "At most", "In words"], rows, key=1, left=(2,), kind="vocabulary"
    )
    return f"""<section aria-labelledby="vocabulary">
<h2 id="vocabulary">The same guarantee, in other words</h2>
<p>Experts state such guarantees in several ways. These all describe this one release; none is an
addition to what stands above.</p>
{table}
{_route(guarantee.get("zcdp_route"))}
</section>"""


def _checking(receipt: Receipt) -> str:
    ledger = receipt["ledger"]
    charged = f"{words.number(ledger['charged'])} ({escape(str(ledger['currency']))})"
    if words.value("charged_delta", ledger.get("charged_delta", "0")):
        charged += f", with delta {words.chance(ledger['charged_delta'])}"
    facts = [
        ("Plan", markup.code(receipt["plan_hash"])),
        ("Data set", markup.code(receipt["dataset"])),
        (
            "Ledger",
            f"account {markup.code(ledger['account'])}, entry {markup.code(ledger['entry'])}",
        ),
        ("Charged", charged),
    ]
    entries = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts)
    return f"""<section aria-labelledby="check">
<h2 id="check">How to check this</h2>
<p>Beside this page lie the published tables and {markup.code("receipt.json")}, which says how
they were made. Without access to the data, anybody can recompute the guarantee from it, and see
whether the tables are those that were published:</p>
<p>{markup.code("neyman verify receipt.json")}</p>
<dl>{entries}</dl>
</section>"""


def _footer(receipt: Receipt) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in receipt["versions"].items())
    return (
        "<footer><p>Rounded numbers never favor the release: what can be learned is rounded up, "
        "what speaks for the release is rounded down. The receipt has every digit, with a proven "
        f"lower and upper bound.</p><p>Made with {escape(versions)}.</p></footer>"
    )


# ---- what a section is made of ----------------------------------------------------------------


def _chosen(receipt: Receipt) -> tuple[Fraction, Fraction]:
    """The level and the certified power that the page puts first."""
    budget = receipt["budget"]
    at_most = budget.get("kind") == "at_most"
    level = _proportion(budget["level"]) if at_most else Fraction(1, 20)
    known: dict[Fraction, Fraction] = {}
    for told in receipt["guarantee"]["power"]:
        at, upper = _proportion(told["level"]), _proportion(told["upper"])
        known[at] = max(upper, known.get(at, upper))
    if not at_most and level not in known and known:
        level = min(known)
    # Both the budget that was met and the computed power are upper bounds.
    powers = [_proportion(budget["power"])] if at_most else []
    if level in known:
        powers.append(known[level])
    if not powers:
        raise ValueError("receipt's guarantee.power is empty: it must give the power at a level")
    return level, max(level, min(powers))


def _route(route: Receipt | None) -> str:
    if not route:
        return ""
    ratio = words.value("variance_ratio", route["variance_ratio"])
    if ratio <= 1:
        return ""
    return (
        "<p>The noise was set from the exact guarantee. Accounting by zCDP alone would have needed "
        f"{words.number(ratio, up=False)} times the noise variance for the same promise "
        f"({escape(str(route['promise']))}).</p>"
    )


def _fit(entries: Entries, tables: Mapping[str, pyarrow.Table]) -> list[str]:
    """A row of the accuracy table."""
    head = [_name(entries), words.number(_cells(entries))]
    table = tables.get(f"{entries[0]['query']}.{entries[0]['level']}")
    if table is None or table.num_rows == 0:
        # A mean is made of two noisy integers, and neither's margin is its own.
        margin = words.number(entries[0]["half_width_90"]) if len(entries) == 1 else None
        return [*head, "–", f"± {margin}" if margin else "–", "–", "–"]
    value, lower, upper = (
        np.asarray(table.column(name).to_numpy(), dtype=float)
        for name in ("value", "lower", "upper")
    )
    margins = np.maximum(value - lower, upper - value)
    shares = [Fraction(int(np.sum(margins < p * abs(value))), len(value)) for p in (0.01, 0.05)]
    return [
        *head,
        words.number(float(np.median(value)), up=False),
        f"± {words.number(float(np.median(margins)))}",
        *(words.percent(share, up=False) for share in shares),
    ]


def _reading(level: float | Fraction, power: float | Fraction) -> str:
    return (
        f"A test that takes {words.percent(level, up=False)} of false claims for true finds out at "
        f"most {words.percent(power)} of true ones."
    )


def _value(bound: Receipt) -> str:
    """A bound's upper end; both ends where they differ by more than a hundredth."""
    lower = words.value("lower", bound["lower"])
    upper = words.value("upper", bound["upper"])
    text = words.number(upper)
    if upper == lower or (isinstance(upper, Fraction) and upper - lower <= upper / 100):
        return text
    return f'{text}<br><span class="note">at least {words.number(lower, up=False)}</span>'


def _tables(receipt: Receipt, *, public: bool = False) -> list[Entries]:
    """The entries of each table, in order: one for a count or a sum, two for a mean."""
    found: dict[tuple[str, str], list[Receipt]] = {}
    for entry in receipt["mechanisms"]:
        if bool(entry.get("public", False)) is public:
            found.setdefault((str(entry["query"]), str(entry["level"])), []).append(entry)
    return list(found.values())


def _costs(tables: Sequence[Entries], field: str) -> list[Fraction]:
    """What each table cost; nothing where a cost has no finite number."""
    costs = [[words.value(field, entry[field]) for entry in entries] for entries in tables]
    finite = [[cost for cost in each if isinstance(cost, Fraction)] for each in costs]
    return [sum(each, Fraction(0)) for each in finite] if finite == costs else []


def _cells(entries: Entries) -> int:
    return int(entries[0]["cells"])


def _name(entries: Entries) -> str:
    return f"{escape(str(entries[0]['query']))}, {_place(entries)}"


def _place(entries: Entries) -> str:
    level = str(entries[0]["level"])
    return "in all" if level == "all" else f"by {escape(level)}"


def _listing(tables: Iterable[Entries]) -> str:
    """Tables by query, one a line: "total by state (5 cells), by county (437 cells)"."""
    queries: dict[str, list[str]] = {}
    for entries in tables:
        cells = f"{_cells(entries):,} cell{'' if _cells(entries) == 1 else 's'}"
        queries.setdefault(str(entries[0]["query"]), []).append(f"{_place(entries)} ({cells})")
    return "<br>".join(
        f"<strong>{escape(name)}</strong> {', '.join(places)}" for name, places in queries.items()
    )


def _unit(receipt: Receipt) -> tuple[str, int]:
    unit = receipt["unit"]
    return str(unit["protects"]), int(unit.get("rows", 1))


def _number(x: Any) -> float:
    return float(words.value("number in the receipt", x))


def _proportion(x: Any) -> Fraction:
    exact = words.value("number in the receipt", x)
    if not isinstance(exact, Fraction) or not 0 <= exact <= 1:
        raise ValueError(f"number in the receipt = {x!r} must be between 0 and 1")
    return exact
