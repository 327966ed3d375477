"""One printed number or formula, and ours beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from neyman import Bound
from neyman.numerics import directed

__all__ = ["Entry", "Verdict", "formula", "given", "misprint", "missing", "number", "uncomputed"]

Verdict = Literal["agree", "differ", "input", "not computed", "missing"]
Relation = Literal["=", "<=", ">="]
TOLERANCE = 1e-6  # relative: a formula is evaluated in floats


@dataclass(frozen=True)
class Entry:
    """One printed number or formula.

    Args:
        section: of the text; "0" before the first.
        place: a table, an equation, an example, or "text".
        what: what the number states.
        printed: the number or the formula, in Markdown.
        ours: our number, in Markdown; empty for an input.
        verdict: "missing" if the text at hand lost the number.
        why: the reason of a verdict other than "agree"; else a remark or empty.
        at: the point at which a formula is compared.
        numerals: the numerals of the text that this entry accounts for, as they are printed there.
    """

    section: str
    place: str
    what: str
    printed: str
    ours: str
    verdict: Verdict
    why: str = ""
    numerals: tuple[str, ...] = ()
    at: str = ""

    def covers(self, numerals: str) -> Entry:
        """Return the entry with the numerals that it accounts for, without 0 and 1.

        Args:
            numerals: divided by spaces, each as often as it is printed.
        """
        return replace(self, numerals=tuple(n for n in numerals.split() if n not in ("0", "1")))


def number(
    section: str,
    place: str,
    what: str,
    printed: str,
    ours: Bound | float,
    *,
    relation: Relation = "=",
    why: str = "",
    remark: str = "",
) -> Entry:
    """Compare a printed number with an enclosure of ours, at the precision that is printed.

    Args:
        section: of the text.
        place: within the section.
        what: what the number states.
        printed: the number as a decimal, such as "0.370" or "3e-6".
        ours: an enclosure, or an exact value.
        relation: "=" if the text states the number, "<=" if it states that the truth is at most
            the printed number, ">=" if at least.
        why: the reason for which the two differ.
        remark: text beside the verdict.

    Raises:
        ArithmeticError: they differ without a reason, or agree in spite of one.
    """
    low, high = (ours.lower, ours.upper) if isinstance(ours, Bound) else (ours, ours)
    value = Decimal(printed)
    exponent = value.as_tuple().exponent
    half = Decimal(5).scaleb(int(exponent) - 1)
    if relation == "=":
        agree = value - half <= Decimal(low) and Decimal(high) <= value + half
    else:
        agree = Decimal(high) <= value if relation == "<=" else Decimal(low) >= value
    sign = {"=": "", "<=": "at most ", ">=": "at least "}[relation]
    entry = Entry(
        section, place, what, sign + printed, shown(low, high), _verdict(agree, why), why or remark
    )
    _checked(entry, agree, why)
    return entry.covers(printed)


def formula(
    section: str,
    place: str,
    what: str,
    printed: str,
    at: str,
    value: float,
    ours: Bound | float,
    *,
    relation: Relation = "=",
    why: str = "",
    remark: str = "",
    within: float = TOLERANCE,
) -> Entry:
    """Compare what a printed formula gives at one point with an enclosure of ours.

    Args:
        section: of the text.
        place: within the section.
        what: what the formula states.
        printed: the formula, in Markdown.
        at: the point, such as "ε = 1".
        value: what the formula gives there, in floats.
        ours: an enclosure, or an exact value.
        relation: "<=" if the formula is an upper bound on ours, ">=" if it is a lower bound.
        why: the reason for which the two differ.
        remark: text beside the verdict.
        within: how far apart the two may be, as a share: above the default for a limit.

    Raises:
        ArithmeticError: they differ without a reason, or agree in spite of one.
    """
    low, high = (ours.lower, ours.upper) if isinstance(ours, Bound) else (ours, ours)
    room = within * max(abs(value), abs(low))
    agree = (relation == ">=" or high <= value + room) and (relation == "<=" or low >= value - room)
    if relation == "=":
        agree = agree and low - room <= value <= high + room
    text, at_point = shown(low, high), f"{value:.6g}"
    text += "" if at_point == text else f", the formula {at_point}"
    verdict = _verdict(agree, why)
    entry = Entry(section, place, what, printed, text, verdict, why or remark, at=at)
    _checked(entry, agree, why)
    return entry


def given(section: str, place: str, what: str, printed: str, why: str = "") -> Entry:
    """List a number that a computation starts from, a date, or a definition's constant."""
    return Entry(section, place, what, printed, "", "input", why)


def uncomputed(section: str, place: str, what: str, printed: str, why: str) -> Entry:
    """List a number that we cannot compute, with the reason."""
    return Entry(section, place, what, printed, "", "not computed", why)


def misprint(section: str, place: str, what: str, printed: str, why: str) -> Entry:
    """List a misprint in which no number can be compared, such as two names for one count."""
    return Entry(section, place, what, printed, "", "differ", why)


def missing(section: str, place: str, what: str, ours: Bound | float, why: str = "") -> Entry:
    """List a number that the text at hand lost, with ours."""
    low, high = (ours.lower, ours.upper) if isinstance(ours, Bound) else (ours, ours)
    return Entry(section, place, what, "", shown(low, high), "missing", why)


def shown(low: float, high: float) -> str:
    """Write the digits on which two ends agree, at most six; below three, both ends, outward."""
    for digits in range(6, 2, -1):
        text = f"{low:.{digits}g}"
        if text == f"{high:.{digits}g}":
            return text
    return f"{directed(low, 3, up=False)} to {directed(high, 3, up=True)}"


def _verdict(agree: bool, why: str) -> Verdict:
    return "agree" if agree and not why else "differ"


def _checked(entry: Entry, agree: bool, why: str) -> None:
    if agree == bool(why):
        problem = "agree, but a reason is given" if agree else "differ, and no reason is given"
        raise ArithmeticError(
            f"section {entry.section}, {entry.place}: {entry.what}: printed {entry.printed}, "
            f"ours {entry.ours}: {problem}"
        )
