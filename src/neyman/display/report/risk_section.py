"""Write the sections of a report on what could be learned about one person."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import ndtr, ndtri

from neyman.accounting.literature import deployments
from neyman.accounting.semantics import digits
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.attacks import PRIOR_CONDITION, conditions_of, usual_attacks
from neyman.accounting.semantics.budget import AtMost
from neyman.curves.tradeoff.safe_mu import USUAL_LEVELS
from neyman.display.report import html as markup
from neyman.display.report.receipt_view import (
    Powers,
    chosen,
    limit_curve,
    number,
    proportion,
    safe_mu,
    subject_of,
    unit,
)
from neyman.elements import Element, Node, element
from neyman.numerics.relation import Neighboring
from neyman.publishing.release import receipt_format


@dataclass(frozen=True)
class Limits:
    """Hold the precision of the lines and bounds in the sections on risk."""

    # Share of the figure's width and height: less than the width of its lines.
    line_power: float = 0.005
    rounding: float = 1e-12  # relative rounding error of a bound computed from a receipt's numbers
    epsilon: float = 700.0  # its exponential is a finite float
    grid_steps: int = 2000  # steps of the grid on which lines are compared


LIMITS = Limits()

_NORMAL_QUANTILES = np.linspace(-10.0, 10.0, 20_001)

_BASELINES = tuple(Fraction(n, 1000) for n in (1, 10, 50, 100, 200, 500, 800, 950))

_PRIORS = tuple(
    Fraction(n, 1000)
    for n in (1, 10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999)
)  # the positions of the slider


def findings(receipt: receipt_format.Receipt) -> Element:
    """Return the section on how often a positive result is correct, by the claim's prior."""
    level, power = chosen(receipt)
    level = digits.given_level(level)
    claims = 10_000
    while level * claims < 20 and claims < 10**12:
        claims *= 10
    rows: list[list[Node]] = []
    for prior in words.PRIORS:
        true = prior * claims
        right = words.posterior(level, power, prior)
        rows.append(
            [
                f"1 in {prior.denominator}" + (" (even odds)" if prior.denominator == 2 else ""),
                digits.number(true),
                digits.number(true * power),
                digits.number((claims - true) * level, up=False),
                markup.bar(right, mark=prior),
                f"{digits.percent(right)}",
            ]
        )
    table = markup.table(
        [
            "Prior",
            f"True claims of {digits.number(claims)}",
            "True positives (at most)",
            "False positives",
            "",
            "Correct positive results (at most)",
        ],
        rows,
        caption="Bar: share of positive results that are correct. Upright mark: the prior.",
        key=5,
        kind="findings",
    )
    return markup.section(
        "findings",
        "Reading a positive result",
        people(level, power),
        markup.paragraph("The rarer true claims are, the fewer positive results are correct:"),
        table,
        markup.note(
            "This is for a test with a false positive rate of "
            f"{digits.level_percent(level)}. A stricter test confirms fewer claims, but its "
            "positive results can be correct more often: ",
            markup.link("levels", "see other false positive rates"),
            ".",
        ),
    )


def people(level: Fraction, power: Fraction) -> Element:
    """Draw 100 claims about people, half of them true, and mark those that a test confirms.

    Args:
        level: the share of false claims that the test confirms, in [0, 1].
        power: an upper bound on the share of true claims that the test confirms, in [0, 1].
    """
    size = PEOPLE.rows * PEOPLE.columns
    even = digits.percent(words.posterior(level, power, Fraction(1, 2)))
    true = false = ""
    for places in range(3, 9):  # enough digits for the printed counts to give the printed share
        true = digits.number(size * power, places)
        false = digits.number(size * level, places, up=False)
        if "×" in true + false or even == digits.percent(
            Fraction(true) / (Fraction(true) + Fraction(false) or 1)
        ):
            break
    said = (
        f"100 people, with one claim about each. {size} claims are true, and the test confirms at "
        f"most {true} of them. {size} are false, and it confirms {false}. So a positive result is "
        f"correct at most {even} of the time, rounded up."
    )
    width = PEOPLE.columns * PEOPLE.width_units
    true_claims = _crowd(size * power, 0, "confirmed")
    false_claims = _crowd(size * level, width + PEOPLE.gap_units, "wrong")
    box = f"0 0 {2 * width + PEOPLE.gap_units} {PEOPLE.rows * PEOPLE.height_units}"
    drawing = element(
        "svg", true_claims, false_claims, viewBox=box, class_="people", aria_hidden="true"
    )
    names = [element("span", "true claims"), element("span", "false claims")]
    heads = element("div", *names, class_="people-names", aria_hidden="true")
    return element("figure", heads, drawing, element("figcaption", said))


@dataclass(frozen=True)
class People:
    """Hold the sizes, in SVG units, of the drawing of two groups of people."""

    rows: int = 5
    columns: int = 10
    width_units: int = 12  # width of a person, with the space around them
    height_units: int = 22
    gap_units: int = 16  # between the groups


PEOPLE = People()

_BODY = "M6 2a3 3 0 1 1 0 6a3 3 0 1 1 0-6M2 20v-7q0-4 4-4t4 4v7z"


def _crowd(count: Fraction, left: int, kind: str) -> Node:
    """Draw a group of people from x = ``left`` on. Color ``count`` of them, the last in part."""
    figures: list[Node] = []
    for index in range(PEOPLE.rows * PEOPLE.columns):
        column, row = divmod(index, PEOPLE.rows)
        x, y = left + column * PEOPLE.width_units, row * PEOPLE.height_units
        place = {"transform": f"translate({x} {y})"}
        figures.append(element("path", d=_BODY, class_="person", **place))
        part = min(Fraction(1), max(Fraction(0), count - index))
        if part:
            size = float(part * PEOPLE.width_units)
            box = {"width": f"{size:.3f}", "height": f"{PEOPLE.height_units}"}
            view = f"0 0 {size:.3f} {PEOPLE.height_units}"
            color = element("path", d=_BODY, class_=kind)
            figures.append(element("svg", color, x=f"{x}", y=f"{y}", viewBox=view, **box))
    return figures


def attacks(receipt: receipt_format.Receipt) -> markup.Fold:
    """Return the section on named attacks: sentences, other baselines, and conditions."""
    subject = subject_of(receipt)
    sentences = [
        attack.sentence(success_above(receipt, float(attack.baseline)), subject)
        for attack in usual_attacks()
    ]
    rows: list[list[Node]] = []
    for baseline in _BASELINES:
        success = Fraction(success_above(receipt, float(baseline)))
        rows.append(
            [digits.percent(baseline), markup.bar(success, mark=baseline), digits.percent(success)]
        )
    table = markup.table(
        ["Best chance without the release", "", "Chance with it (at most)"],
        rows,
        caption="Bar: chance of a right guess with the release. Upright mark: without it.",
        key=2,
        kind="findings",
    )
    held = words.held_conditions(receipt.guarantee.held)
    conditions = (*held, PRIOR_CONDITION, *conditions_of(receipt.neighboring))
    body = markup.blocks(
        markup.paragraph(
            "Each attack guesses something about one record. Its limit follows from the best "
            "chance of a right guess without the release."
        ),
        element("ul", *(element("li", sentence) for sentence in sentences)),
        table,
        markup.note(f"Conditions of these numbers: {' '.join(conditions)}"),
    )
    about = "Re-identification, attribute inference, and reconstruction"
    return markup.Fold("attacks", "Risk of named attacks", about, body)


def success_above(receipt: receipt_format.Receipt, baseline: float) -> float:
    """Bound `Tradeoff.success` at a baseline from a receipt alone [RK-2].

    Return the least of these concave bounds on the power of all pairs in both orders, at the
    baseline: the Gaussian curve of mu, the lines of (epsilon, delta) and of the total variation,
    and the hull of the curve's points. A power between two levels is at most the power at the
    higher level.
    """
    guarantee = receipt.guarantee
    known = {number(p.level): number(p.upper) for p in (*guarantee.curve, *guarantee.power)}
    levels, powers = np.array([(0.0, 0.0), *sorted(known.items()), (1.0, 1.0)]).T
    starts, tops = levels[:-1], np.maximum.accumulate(powers)[1:]
    slopes = np.diff(tops) / np.diff(starts)
    hull = np.max(tops[:, None] - slopes * starts[:, None], axis=0) + slopes * baseline
    lines = [(number(p.upper), number(p.delta)) for p in guarantee.epsilon]
    bounds = [math.exp(e) * baseline + delta for e, delta in lines if e < LIMITS.epsilon]
    bounds.append(baseline + number(guarantee.total_variation.upper))
    mu = number(guarantee.mu.upper)
    normal = float(ndtr(ndtri(baseline) + mu)) if mu < math.inf else 1.0
    return min(1.0, min(*bounds, normal, *hull.tolist()) * (1 + LIMITS.rounding))


def scale(receipt: receipt_format.Receipt) -> markup.Fold:
    """Return the section that compares the power of this release with published deployments."""
    level, power = chosen(receipt)
    here = deployments.Mark("This release", "", float(power), "")
    marks = sorted([*deployments.scale(float(level)), here], key=lambda mark: mark.power)
    marks.sort(key=lambda mark: mark.name == deployments.DATA_THEMSELVES)
    known = {"noise": "noise", "guarantee": "guarantee alone", "": ""}
    rows: list[list[Node]] = [
        [
            markup.below(mark.name, mark.note),
            markup.bar(min(Fraction(mark.power), Fraction(1))),
            digits.percent(power if mark is here else mark.power),
            known[mark.known],
        ]
        for mark in marks
    ]
    table = markup.table(
        ["Release", "", "True positive rate (at most)", "Published"],
        rows,
        key=2,
        left=(3,),
        here=[mark is here for mark in marks],
        kind="findings",
    )
    rate = digits.level_percent(level)
    body = markup.blocks(
        markup.paragraph(
            f"The scale is the true positive rate at a {rate} false positive rate. Its ends are a "
            f"release without information ({rate}) and the data themselves (100%). Units of "
            "privacy differ: a day of one user is less than a person, so a smaller number for it "
            "is no stronger protection. Where a guarantee alone is published, the noise may "
            "reveal less."
        ),
        table,
        element(
            "details",
            element("summary", "Where these parameters are published"),
            element(
                "ul",
                *(
                    element(
                        "li",
                        f"{d.name}: {d.citation}, ",
                        markup.code(d.url.removeprefix("https://")),
                    )
                    for d in deployments.deployments
                ),
            ),
        ),
    )
    title = "Comparison with published deployments"
    return markup.Fold("scale", title, "Is this a strong or a weak limit?", body)


def figure(receipt: receipt_format.Receipt) -> markup.Fold:
    """Return the section with the trade-off curve and the numbers behind it."""
    level, power = chosen(receipt)
    subject = subject_of(receipt)
    budget = receipt.budget
    guarantee = receipt.guarantee
    known = {number(p.level): number(p.upper) for p in guarantee.curve}
    known |= {number(p.level): number(p.upper) for p in guarantee.power}
    curve = sorted((known | {float(level): float(power)}).items())
    limit, limit_power = limit_curve(budget), budget.power_limit
    priors = [
        {"text": digits.percent(prior), "finding": words.finding_right(prior, "{right}")}
        for prior in _PRIORS
    ]
    keys = [
        markup.key("release", "this release: a certified upper bound"),
        markup.key("guessing", "guessing: perfect privacy"),
    ]
    beside: Node = ""
    if limit_power and one_line(limit_power, curve):
        limit = None
        beside = markup.paragraph(
            "The chosen limit coincides with the blue curve in this figure. They differ by at "
            "most 0.5% of its size."
        )
    if limit:
        through = ", through the chosen point" if isinstance(budget, AtMost) else ""
        keys.insert(1, markup.key("limit", f"the chosen limit{through}"))
    chart = markup.chart("tradeoff", {"level": float(level), "limit": limit or []})
    head = ("False positive rate", "True positive rate (at most)")
    numbers = element(
        "table",
        element("thead", element("tr", *(element("th", text, scope="col") for text in head))),
        element("tbody", *(_curve_row(x, y, subject, receipt.neighboring) for x, y in curve)),
    )
    reading = markup.blocks(
        *_slider("walk", "False positive rate (level)"),
        *_slider("prior", "Prior probability of the claim"),
        element("output", for_="walk prior", aria_live="polite"),
    )
    parts = markup.blocks(
        chart,
        element("ul", *keys, class_="legend"),
        element("div", reading, class_="reading", hidden=True, data_priors=json.dumps(priors)),
        element(
            "details",
            element("summary", "The numbers behind the curve"),
            markup.scroll("Numbers behind the curve", numbers),
        ),
    )
    said = markup.paragraph(
        "An attacker can choose a strict or a lenient test. The blue curve bounds the true "
        "positive rate at each false positive rate. The diagonal is guessing (perfect privacy). A "
        "curve nearer the upper left corner reveals more."
    )
    body = markup.blocks(said, beside, element("figure", parts))
    about = "The limit at every false positive rate, with your own prior"
    return markup.Fold("curve", "Trade-off curve", about, body)


def _slider(ident: str, label: str) -> tuple[Element, Element]:
    ends = {"min": "0", "max": "1", "step": "1", "value": "0"}
    return element("label", label, for_=ident), element("input", id=ident, type="range", **ends)


def levels(receipt: receipt_format.Receipt) -> markup.Fold:
    """Return the section with the power at a few levels."""
    rows: list[list[str]] = []
    for point in receipt.guarantee.power:
        level = digits.given_level(point.level)
        power = max(level, proportion(point.upper))
        rows.append(
            [
                digits.level_percent(level),
                digits.level_percent(level),
                digits.percent(power),
                digits.percent(words.posterior(level, power, Fraction(1, 2))),
            ]
        )
    first = chosen(receipt)[0]
    here = [proportion(p.level) == first for p in receipt.guarantee.power]
    table = markup.table(
        [
            "False positive rate",
            "Guessing",
            "True positive rate (at most)",
            "Correct positive results at even odds (at most)",
        ],
        rows,
        key=2,
        here=here,
    )
    said = markup.paragraph(
        "A stricter test confirms fewer claims, but its positive results can be correct more often."
    )
    body = markup.blocks(said, table)
    title = "Risk at other false positive rates"
    return markup.Fold("levels", title, "Stricter and more lenient tests", body)


def vocabularies(receipt: receipt_format.Receipt) -> markup.Fold:
    """Return the section on epsilon and delta, mu, rho, and total variation."""
    guarantee = receipt.guarantee
    subject, rows_each = unit(receipt)
    change = words.change(receipt.neighboring, subject, rows_each, guarantee.held)
    rows: list[list[Node]] = []
    for index, point in enumerate(guarantee.epsilon):
        delta = point.delta
        text = words.epsilon(point.upper, delta, change)
        said = text.replace(f", {change}.", ".") if index else text
        rows.append([f"epsilon, delta {digits.delta(delta)}", _value(point), said])
    mu = digits.value("mu", safe_mu(receipt))
    rows.append(["mu, 0.01% to 50%", digits.number(mu), words.safe_mu(mu, USUAL_LEVELS)])
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
    body = markup.blocks(
        markup.paragraph("All rows describe this one release. Do not add them up."),
        table,
        _outright(guarantee.outright, subject),
        _route(guarantee.zcdp_route),
    )
    title = "Guarantee in standard definitions"
    return markup.Fold("vocabulary", title, "Epsilon and delta, mu, rho, and total variation", body)


def _outright(failing: receipt_format.OutrightPart | None, subject: str) -> Node:
    """State the chance that a discovered key reveals its only owner outright."""
    if not failing:
        return ""
    return markup.paragraph(
        f"A discovered key is published if enough {digits.plural(subject)} have it. A key that "
        f"only one {subject} has is still published with probability at most "
        f"{digits.chance(failing.delta)}, for all the keys and tables of one {subject} "
        "together. That would reveal it outright. All numbers in this report include this "
        "probability. Because of it, no finite rho or mu describes the whole release. Without it, "
        f"rho is {digits.number(failing.rho)}."
    )


def _route(route: receipt_format.RoutePart | None) -> Node:
    if not route:
        return ""
    ratio = digits.value("variance_ratio", route.variance_ratio)
    if ratio <= 1:
        return ""
    return markup.paragraph(
        "The noise was calibrated to the exact guarantee. Accounting with zCDP alone needs "
        f"{digits.number(ratio, up=False)} times the noise variance for the same guarantee "
        f"({route.promise})."
    )


def _curve_row(level: float, power: float, subject: str, neighboring: Neighboring) -> Element:
    """Return a row of the curve's numbers, with the sentence that the page's script shows."""
    shown, share = digits.percent(level, up=False), digits.percent(power)
    if 0 < level < 1:
        says = words.power(level, power, subject, neighboring)
        right = [digits.percent(words.posterior(level, power, prior)) for prior in _PRIORS]
    else:
        says = f"At a false positive rate of {shown}, the true positive rate is at most {share}."
        right = []
    cells = element("td", shown), element("td", share)
    data = {"data-level": repr(level), "data-power": repr(power)}
    return element("tr", *cells, **data, data_says=says, data_right=" ".join(right))


def _value(bound: receipt_format.Ends | receipt_format.EpsilonPoint) -> Node:
    """Return a bound's upper end, or both ends if they differ by more than 1%."""
    lower = digits.value("lower", bound.lower)
    upper = digits.value("upper", bound.upper)
    text = digits.number(upper)
    if upper == lower or (isinstance(upper, Fraction) and upper - lower <= upper / 100):
        return text
    return markup.below(text, f"at least {digits.number(lower, up=False)}")


def one_line(
    limit: Callable[[Powers], Powers],
    curve: Sequence[tuple[float, float]],
    most: float = LIMITS.line_power,
) -> bool:
    """Return True if two rising curves are at most ``most`` apart at every level.

    This means f(a - most) - most <= g(a) <= f(a + most) + most for each level a. Both curves rise.
    So for points a < b of a grid, f(b - most) - most <= g(a) and g(b) <= f(a + most) + most imply
    it on [a, b]. False can also mean that the grid is too coarse. Both curves are 0 left of level
    0, as the figure's axis shows.

    Args:
        limit: the power g of the first curve at levels in [0, 1], rising to 1 at level 1.
        curve: points (level, power) of the second curve f, by level. As in the figure, f starts
            with the first power at level 0, is straight between the points, and ends at (1, 1).
        most: the largest distance, in [0, 1].
    """
    first = curve[0][1] if curve else 0.0
    levels, powers = map(np.array, zip((0.0, first), *curve, (1.0, 1.0), strict=True))
    powers = np.maximum.accumulate(powers)
    even = np.linspace(0.0, 1.0, LIMITS.grid_steps + 1)
    grid = np.unique(np.concatenate([even, ndtr(_NORMAL_QUANTILES), levels, [0.0, 1.0]]))
    low, high = grid[:-1], grid[1:]
    limits = np.asarray(limit(grid))
    above = np.interp(np.minimum(low + most, 1.0), levels, powers) + most
    below = np.where(high < most, 0.0, np.interp(high - most, levels, powers)) - most
    return bool(np.all(limits[1:] <= above) and np.all(below <= limits[:-1]))
