"""The sections of a report that say what could be learned about one person."""

from __future__ import annotations

import json
from fractions import Fraction
from html import escape

from neyman.release.receipt_format import Ends, EpsilonPoint, OutrightPart, Receipt, RoutePart
from neyman.report import html as markup
from neyman.report.receipt_view import chosen, limit_curve, number, proportion, unit
from neyman.semantics import sentences as words
from neyman.semantics.budget_warnings import budget_warnings

__all__ = ["figure", "findings", "headline", "levels", "vocabularies"]

_PRIORS = tuple(
    Fraction(n, 1000)
    for n in (1, 10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999)
)  # the places of the slider


def headline(receipt: Receipt) -> str:
    """The one sentence that matters, and what it is about."""
    subject, rows = unit(receipt)
    level, power = chosen(receipt)
    return f"""<section aria-labelledby="reveals">
<h2 id="reveals">What the release can reveal</h2>
<p class="sentence">{escape(words.power(level, power, subject))}</p>
<p class="note">{escape(words.claim(receipt.neighboring, subject, rows))} The best test is that
of somebody with unlimited computing power who knows the plan and everybody else’s records: no real
attacker does better. What the tables say about groups, and would say without the {escape(subject)}
in question, is not counted.</p>
<p class="note">The limit that was chosen: {escape(words.budget(receipt.budget.to_dict()))}.</p>
{_budget_warnings(receipt)}</section>"""


def _budget_warnings(receipt: Receipt) -> str:
    """A paragraph for each way in which the budget protects almost nothing."""
    budget = receipt.budget
    fields = {
        "zcdp": budget.rho,
        "gdp": budget.mu,
        "power": budget.power,
        "level": budget.level,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
    }
    numbers = {name: Fraction(text) for name, text in fields.items() if text}
    return "".join(
        f'<p class="warning">{escape(warning)}</p>\n' for warning in budget_warnings(numbers)
    )


def findings(receipt: Receipt) -> str:
    """What a positive answer of the test means, by how likely the claim was before."""
    level, power = chosen(receipt)
    claims = 10_000
    while level * claims < 20 and claims < 10**12:
        claims *= 10
    rows: list[list[str]] = []
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


def figure(receipt: Receipt) -> str:
    """Power against level, with the numbers behind it."""
    level, power = chosen(receipt)
    subject, _ = unit(receipt)
    budget = receipt.budget
    guarantee = receipt.guarantee
    known = {number(p.level): number(p.upper) for p in guarantee.curve}
    known |= {number(p.level): number(p.upper) for p in guarantee.power}
    curve = sorted((known | {float(level): float(power)}).items())
    limit = limit_curve(budget)
    chart = markup.chart("tradeoff", {"level": float(level), "limit": limit or []})
    priors = [
        {"text": words.percent(prior), "finding": words.finding_right(prior, "{right}")}
        for prior in _PRIORS
    ]
    keys = [
        markup.key("release", "this release, certified: no test does better"),
        markup.key("guessing", "perfect privacy"),
    ]
    if limit:
        through = ", through the chosen point" if budget.kind == "at_most" else ""
        keys.insert(1, markup.key("limit", f"the limit that was chosen{through}"))
    rows = "".join(_curve_row(x, y, subject) for x, y in curve)
    return f"""<section aria-labelledby="curve">
<h2 id="curve">The same at every level</h2>
<p>A test can be lenient, taking many false claims for true, or strict. The higher the blue curve
stands above the diagonal, the more the release gives away; a curve through the upper left corner
would give away everything.</p>
<figure>
{chart}
<ul class="legend">{"".join(keys)}</ul>
<div class="reading" hidden data-priors="{escape(json.dumps(priors))}">
<label for="walk">Level: move along the curve</label>
<input id="walk" type="range" min="0" max="1" step="1" value="0">
<label for="prior">Prior: how likely a claim is before the test</label>
<input id="prior" type="range" min="0" max="1" step="1" value="0">
<output for="walk prior" aria-live="polite"></output>
</div>
<details><summary>The numbers behind the curve</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Numbers behind the curve"><table>
<thead><tr><th scope="col">False claims taken for true</th>
<th scope="col">True claims found out, at most</th></tr></thead>
<tbody>{rows}</tbody></table></div></details>
</figure>
</section>"""


def levels(receipt: Receipt) -> str:
    """Power at a few levels."""
    rows: list[list[str]] = []
    for point in receipt.guarantee.power:
        level = proportion(point.level)
        power = max(level, proportion(point.upper))
        rows.append(
            [
                words.percent(level, up=False),
                words.percent(level, up=False),
                words.percent(power),
                words.percent(words.posterior(level, power, Fraction(1, 2))),
            ]
        )
    first = chosen(receipt)[0]
    here = [proportion(p.level) == first for p in receipt.guarantee.power]
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


def vocabularies(receipt: Receipt) -> str:
    """The guarantee in experts' terms."""
    guarantee = receipt.guarantee
    subject, rows_each = unit(receipt)
    change = words.change(receipt.neighboring, subject, rows_each)
    rows: list[list[str]] = []
    for index, point in enumerate(guarantee.epsilon):
        delta = point.delta
        text = words.epsilon(point.upper, delta, change)
        rows.append([f"epsilon, delta {words.delta(delta)}", _value(point), escape(text)])
        if index:
            rows[-1][2] = escape(text.replace(f", {change}.", "."))
    rows += [
        ["mu (Gaussian)", _value(guarantee.mu), words.gdp(guarantee.mu.upper)],
        ["rho (zCDP)", _value(guarantee.rho), words.zcdp(guarantee.rho.upper)],
        [
            "total variation",
            _value(guarantee.total_variation),
            words.total_variation(guarantee.total_variation.upper),
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
{_outright(guarantee.outright, subject)}
{_route(guarantee.zcdp_route)}
</section>"""


def _outright(failing: OutrightPart | None, subject: str) -> str:
    """What keys that are found in the data add: a chance of being told outright."""
    if not failing:
        return ""
    return (
        f"<p>Keys that were found in the data are shown where enough {words.plural(subject)} have "
        f"them. A key that only one {escape(subject)} has is shown all the same with probability "
        f"up to {words.chance(failing.delta)}, for all the keys and tables of one "
        f"{escape(subject)} together, and then it is known outright. All numbers above count "
        "this, and because of it no finite rho or mu describes the release as a whole; without "
        f"that chance its rho is {words.number(failing.rho)}.</p>"
    )


def _route(route: RoutePart | None) -> str:
    if not route:
        return ""
    ratio = words.value("variance_ratio", route.variance_ratio)
    if ratio <= 1:
        return ""
    return (
        "<p>The noise was set from the exact guarantee. Accounting by zCDP alone would have needed "
        f"{words.number(ratio, up=False)} times the noise variance for the same promise "
        f"({escape(route.promise)}).</p>"
    )


def _curve_row(level: float, power: float, subject: str) -> str:
    """A row of the numbers behind the curve, with what the page's script says of it."""
    shown, share = words.percent(level, up=False), words.percent(power)
    if 0 < level < 1:
        says = words.power(level, power, subject)
        right = [words.percent(words.posterior(level, power, prior)) for prior in _PRIORS]
    else:
        says = (
            f"A test that takes {shown} of false claims for true finds out at most {share} of true "
            "ones."
        )
        right = []
    return (
        f'<tr data-level="{level!r}" data-power="{power!r}" data-says="{escape(says)}" '
        f'data-right="{" ".join(right)}"><td>{shown}</td><td>{share}</td></tr>'
    )


def _value(bound: Ends | EpsilonPoint) -> str:
    """A bound's upper end; both ends where they differ by more than a hundredth."""
    lower = words.value("lower", bound.lower)
    upper = words.value("upper", bound.upper)
    text = words.number(upper)
    if upper == lower or (isinstance(upper, Fraction) and upper - lower <= upper / 100):
        return text
    return f'{text}<br><span class="note">at least {words.number(lower, up=False)}</span>'
