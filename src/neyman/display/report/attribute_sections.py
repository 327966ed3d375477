"""Write the sections of a report on single attributes: risk and beliefs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.digits import factor_of, plural
from neyman.display.report import html as markup
from neyman.display.report.receipt_view import about, chosen, number, place, proportion, unit
from neyman.elements import Node, element
from neyman.publishing.release.receipt_format import (
    Ends,
    PosteriorPoint,
    PowerPoint,
    Receipt,
    Scenario,
)

Points: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Limits:
    """Hold the sizes, the level, and the epsilon of the sections on attributes."""

    curves: int = 6  # curves that a small figure can hold
    # The level of the sentence, if the receipt lacks the chosen level.
    sentence_level: Fraction = Fraction(1, 20)
    line_power: float = 0.0005  # in power: less than half the width of a line in the figure
    tenfold_epsilon: Fraction = Fraction("2.302")  # the epsilon of the sentences


LIMITS = Limits()


def section(receipt: Receipt) -> markup.Fold | None:
    """Return the section on risk for single attributes, or None if the receipt has none."""
    scenarios = receipt.guarantee.scenarios
    if not scenarios:
        return None
    subject, _ = unit(receipt)
    levels = [proportion(point.level) for point in scenarios[0].power]
    limited = [each for each in scenarios if not each.no_limit]
    rows = [
        [
            about(each),
            *["no limit"] * (len(levels) + 1),
            "; ".join(["exact totals", *([_tables(each.tables)] if each.tables else [])]),
        ]
        if each.no_limit
        else _row(about(each), each.power, each.rho, _tables(each.tables))
        for each in scenarios
    ]
    all_powers = {proportion(p.level): p for p in receipt.guarantee.power}
    if _comparable(receipt) and all(level in all_powers for level in levels):
        powers = [all_powers[level] for level in levels]
        rows.append(_row(_all_claims(receipt), powers, receipt.guarantee.rho, "all"))
    table = markup.table(
        [
            f"One {subject}’s",
            *(f"True positive rate at {words.percent(level, up=False)}" for level in levels),
            "rho",
            "From tables of",
        ],
        rows,
        key=1 + _level_index(receipt, levels),
        left=(2 + len(levels),),
        kind="scenarios",
    )
    covered = (
        "presence in the data"
        if receipt.neighboring == "add-remove"
        else "claims about anything in a record"
    )
    body = markup.blocks(
        markup.paragraph(
            f"The limits above cover {covered}. These cover one attribute, so they count only the "
            "tables that it can change."
        ),
        markup.paragraph(_sentence(receipt, limited, levels)) if limited else "",
        table,
        element("figure", "\n", _figure(receipt, limited), "\n") if limited else "",
        markup.note(_notes(receipt)),
    )
    title = f"Risk for one {_heading(subject, scenarios)}"
    return markup.Fold("attributes", title, "Claims about one attribute alone", body)


def beliefs(receipt: Receipt) -> markup.Fold | None:
    """Return the section on beliefs about single attributes, or None if the receipt has none."""
    scenarios = receipt.guarantee.scenarios
    if not scenarios:
        return None
    subject, _ = unit(receipt)
    limited = [each for each in scenarios if not each.no_limit]
    labeled = [(about(each), each.posterior) for each in limited]
    if receipt.guarantee.posterior:
        labeled.append((_all_claims(receipt), receipt.guarantee.posterior))
    uncertain = [p for p in scenarios[0].posterior if p.attacker == "arbitrary-prior"]
    factors = [_epsilon(point) for point in uncertain]
    rows: list[list[str]] = []
    for label, posterior in labeled:
        points = {(p.attacker, _epsilon(p)): p.upper for p in posterior}
        asked = [("arbitrary-prior", factor) for factor in factors]
        asked.append(("knows-the-rest", LIMITS.tenfold_epsilon))
        rows.append([label, *(_chance_text(proportion(points[a])) for a in asked)])
    rows += [
        [about(each), *["no limit"] * (len(factors) + 1)] for each in scenarios if each.no_limit
    ]
    table = markup.table(
        [
            f"One {subject}’s",
            *(f"True value, over {factor_of(factor)}×" for factor in factors),
            "Given statement, over 10×",
        ],
        rows,
        key=1 + factors.index(LIMITS.tenfold_epsilon),
        caption=f"Upper bound on the chance that the {subject}’s own data multiply a belief by "
        "more than the stated factor.",
        kind="scenarios",
    )
    worst = max(limited, key=_tenfold, default=None)
    body = markup.blocks(
        markup.paragraph(
            "This section compares two beliefs. The first is an attacker’s belief after the "
            "release. The second is their belief after a release in which a prediction from the "
            "other data replaces this value. Both include group patterns: what the tables say "
            f"about everyone, including this {subject}."
        ),
        [markup.paragraph(text) for text in (belief_sentences(worst, subject) if worst else ())],
        _odds(receipt, subject),
        table,
        markup.note(
            f"For a true value, the attacker may be uncertain about other {plural(subject)}. "
            "For a given statement, true or false, they know every other record. Chances are "
            "averages over a calibrated prior: one whose probabilities are right on average. A "
            "wrong prior can mislead an attacker more often."
        ),
    )
    title = "Effect on an attacker’s beliefs"
    return markup.Fold("beliefs", title, "How much a belief can grow", body)


def _odds(receipt: Receipt, subject: str) -> list[Node]:
    """Say how far the whole record can raise the odds of a true claim."""
    return [
        markup.paragraph(words.odds_sentence(point.epsilon, point.upper, subject))
        for point in receipt.guarantee.posterior
        if point.attacker == "arbitrary-prior" and _epsilon(point) == LIMITS.tenfold_epsilon
    ]


def belief_sentences(scenario: Scenario, subject: str) -> list[str]:
    """Return how often a belief grows tenfold, in one sentence per kind of attacker."""
    about = " and ".join(scenario.attributes)
    return [
        words.belief_sentence(p.attacker, p.epsilon, p.upper, subject, about, scenario.within)
        for p in scenario.posterior
        if _epsilon(p) == LIMITS.tenfold_epsilon
    ]


def _chance_text(chance: Fraction) -> str:
    rare_chance = Fraction(1, 100_000)  # a smaller one has too many zeros to count
    return (
        f"under {words.percent(rare_chance)}" if 0 < chance < rare_chance else words.percent(chance)
    )


def _tenfold(scenario: Scenario) -> Fraction:
    """Return the largest probability that a belief grows tenfold."""
    points = scenario.posterior
    return max(proportion(p.upper) for p in points if _epsilon(p) == LIMITS.tenfold_epsilon)


def _epsilon(point: PosteriorPoint) -> Fraction:
    exact = words.value("epsilon", point.epsilon)
    if not isinstance(exact, Fraction):
        raise ValueError(f"epsilon in the receipt = {exact!r} must be finite")
    return exact


def power_points(powers: Iterable[PowerPoint], rho: Ends) -> list[tuple[Fraction, Fraction]]:
    """Return each level with an upper bound on the power. If rho is 0, the power is the level."""
    nothing = words.value("rho", rho.upper) == 0
    points = [(proportion(p.level), proportion(p.upper)) for p in powers]
    return [(level, level if nothing else max(level, power)) for level, power in points]


def _row(label: str, points: Iterable[PowerPoint], rho: Ends, tables: str) -> list[str]:
    powers = [words.percent(power) for _, power in power_points(points, rho)]
    return [label, *powers, words.number(rho.upper), tables]


def _tables(listed: Sequence[str]) -> str:
    """Return text such as "race by region, by state". A level "all" is the table of all rows."""
    if not listed:
        return "none: no risk"
    queries: dict[str, list[str]] = {}
    for each in listed:
        query, _, level = each.partition(".")
        queries.setdefault(query, []).append(place(level))
    return "; ".join(f"{query} {', '.join(places)}" for query, places in queries.items())


def _heading(subject: str, scenarios: Sequence[Scenario]) -> str:
    names = list(dict.fromkeys(a for each in scenarios for a in each.attributes))
    if len(names) > 4:
        return f"{subject}’s attributes"
    *others, last = names
    return f"{subject}’s {', '.join(others)}{' or ' if others else ''}{last}"


def _level_index(receipt: Receipt, levels: Sequence[Fraction]) -> int:
    """Return the index of the chosen level, or else of 5%, or else of the last level."""
    for level in (chosen(receipt)[0], LIMITS.sentence_level):
        if level in levels:
            return levels.index(level)
    return len(levels) - 1


def _sentence(receipt: Receipt, scenarios: Sequence[Scenario], levels: Sequence[Fraction]) -> str:
    """Describe the scenario with the largest risk."""
    at = _level_index(receipt, levels)
    worst = max(scenarios, key=lambda each: power_points(each.power, each.rho)[at][1])
    level, power = power_points(worst.power, worst.rho)[at]
    return words.concerning(worst.attributes, level, power, unit(receipt)[0], worst.within)


def _lines(scenarios: Sequence[Scenario]) -> list[tuple[Points, list[str]]]:
    """Return curves with the names that share their line, the largest curve first."""
    lines: list[tuple[Points, list[str]]] = []
    known = [(_points(each.curve), about(each)) for each in scenarios]
    for points, label in sorted(known, key=lambda item: -item[0][-1][1]):
        same = next((names for curve, names in lines if _one_line(curve, points)), None)
        if same is None:
            lines.append((points, [label]))
        else:
            same.append(label)
    return lines


def _figure(receipt: Receipt, scenarios: Sequence[Scenario]) -> Node:
    """Draw the curves of the release and of the riskiest scenarios. Equal curves share a line."""
    most = _lines(scenarios)[: LIMITS.curves]
    last = most[0][0][-1][0]
    curve_points = sorted((number(p.level), number(p.upper)) for p in receipt.guarantee.curve)
    inside = [point for point in curve_points if point[0] < last]
    beyond = [point for point in curve_points if point[0] >= last]
    curves = [(_short_names(names), "scenario", points) for points, names in most]
    groups = [names for _, names in most]
    if _comparable(receipt) and inside and beyond:
        (x, y), (x2, y2) = inside[-1], beyond[0]
        edge = (last, y + (y2 - y) * (last - x) / (x2 - x))
        record_curve = (*inside, edge)
        first = most[0]
        if _one_line(record_curve, first[0]):
            groups[0] = [_all_claims(receipt), *first[1]]
            curves[0] = (_short_names(groups[0]), "release", record_curve)
        else:
            curves.insert(0, (_all_claims(receipt), "release", record_curve))
    shown = [{"name": name, "kind": kind, "points": points} for name, kind, points in curves]
    alike = "; ".join(", ".join(names) for names in groups if len(names) > 1)
    same = element("figcaption", f"These share a line: {alike}.", class_="note") if alike else ""
    return [markup.chart("beside", {"curves": shown, "last": last}), same]


def _points(powers: Iterable[PowerPoint]) -> Points:
    return tuple((number(p.level), number(p.upper)) for p in powers)


def _one_line(larger: Points, points: Points) -> bool:
    """Return True if two curves look like one line in the figure."""
    levels, powers = (np.array(part) for part in zip(*points, strict=True))
    known, bounds = (np.array(part) for part in zip(*larger, strict=True))
    above = np.interp(levels, known, bounds)
    return bool(np.all(np.abs(above - powers) < LIMITS.line_power))


def _short_names(names: Sequence[str]) -> str:
    """Return the first name of a line, cut to fit, and the number of its other names."""
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    text = names[0].replace(" within a known ", " in ")
    label_letters = 22  # letters of a label beside it
    return (text if len(text) <= label_letters else text[: label_letters - 1] + "…") + more


def _all_claims(receipt: Receipt) -> str:
    """Describe the claims that the entire guarantee covers, beside single attributes."""
    held = receipt.guarantee.held
    return f"all but {' and '.join(held)}" if held else "whole record"


def _comparable(receipt: Receipt) -> bool:
    """Return True if the guarantee is about a changed record, like the limits for attributes."""
    return receipt.neighboring == "replace-one"


def _notes(receipt: Receipt) -> str:
    subject, _ = unit(receipt)
    held = receipt.guarantee.held
    text = "All numbers are upper bounds, each for one claim by itself."
    if _comparable(receipt):
        text += " The last row covers claims about the whole record" + (
            f", with the same {' and '.join(held)}." if held else "."
        )
    else:
        text += (
            f" Here the {subject} is in the data, and the claim is about their record. These "
            "limits can exceed those above, which are about presence in the data."
        )
    if any(
        number(each.rho.upper) == math.inf and not each.no_limit
        for each in receipt.guarantee.scenarios
    ):
        text += " Tables with discovered keys have no finite rho."
    if receipt.plan.get("unit", {}).get("id") is not None:
        text += (
            f" A change of any attribute can change which records of one {subject} count. So one "
            "attribute can change every table."
        )
    return text
