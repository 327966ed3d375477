"""Guarantees in sentences that a non-specialist can act on, and the one way numbers are rounded.

The convention, everywhere: **a rounded number never favors the release.** What an attacker can do
(power, epsilon, a posterior, a standard error) is rounded up, what speaks for the release (a share
of accurate cells, noise saved) is rounded down, and a number that needs no rounding is printed as
it is. A level is given, not computed: it is printed in full up to four digits and rounded down
beyond them, because power at a smaller level is no greater. A float counts as the shortest decimal
that stands for it, which is how a receipt writes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from neyman.numerics import check
from neyman.semantics import testing

__all__ = [
    "PRIORS",
    "budget",
    "chance",
    "change",
    "claim",
    "delta",
    "epsilon",
    "finding",
    "gdp",
    "number",
    "odds",
    "percent",
    "plural",
    "posterior",
    "power",
    "shares",
    "total_variation",
    "value",
    "zcdp",
]

Numeric: TypeAlias = float | int | str | Fraction | Decimal

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))
"""The priors that a reader is shown: a long shot, a suspicion, even odds."""

_NAMES = {6: "a million", 9: "a billion", 12: "a trillion"}
_NAMES |= {n + k: f"{10**k} {_NAMES[n][2:]}" for n in (6, 9, 12) for k in (1, 2)}
_WIDE = Context(prec=40, Emax=10**17, Emin=-(10**17))
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# ---- numbers ----------------------------------------------------------------------------------


def value(name: str, x: Numeric) -> Fraction | float:
    """``x`` as the exact rational that its shortest decimal stands for; infinities stay floats.

    Args:
        name: what to call it in an error.
        x: a number, or a string such as "0.25", "1/4" or "inf".

    Raises:
        ValueError, TypeError: ``x`` is no number.
    """
    if isinstance(x, str) and x in ("inf", "-inf"):
        return float(x)
    if isinstance(x, float):
        if math.isinf(x):
            return x
        return check.exact(name, repr(float(x)))
    return check.exact(name, x)


def number(x: Numeric, digits: int = 3, *, up: bool = True) -> str:
    """``x`` in ``digits`` significant digits, rounded up (or down), "∞" where infinite.

    Args:
        x: any number; see `value`.
        digits: significant digits at most; whole numbers keep all of theirs below 10^15.
        up: round toward plus infinity, else toward minus infinity.
    """
    exact = value("x", x)
    if not isinstance(exact, Fraction):
        return "∞" if exact > 0 else "−∞"
    if exact == 0:
        return "0"
    size = _magnitude(exact)
    if -5 < size < 15:
        return _plain(exact, max(0, digits - 1 - size), up)
    scaled = exact / Fraction(10) ** size
    mantissa = _plain(scaled, digits - 1, up)
    if abs(Fraction(mantissa.replace("−", "-"))) == 10:
        mantissa, size = mantissa.replace("10", "1", 1), size + 1
    return f"{mantissa} × 10{str(size).translate(_SUPERSCRIPT)}"


def percent(x: Numeric, *, up: bool = True) -> str:
    """The proportion ``x`` in per cent, rounded up (or down) to a tenth.

    Near 0% and 100% it keeps two significant digits of the distance, down to 10^-9, so that
    neither "0%" nor "100%" is printed for what is merely close to it.

    Raises:
        ValueError: ``x`` is outside [0, 1].
    """
    exact = _proportion("x", x)
    gap = min(exact, 1 - exact) * 100
    if gap == 0:
        return f"{exact * 100}%"
    places = max(1, 1 - _magnitude(gap))
    digits = _plain(exact * 100, min(places, 9), up)
    if Fraction(digits) in (0, 100):
        return "0%" if Fraction(digits) == 0 else "100%"
    return digits + "%"


def chance(x: Numeric, *, up: bool = True) -> str:
    """The proportion ``x`` as "5 in 100" or "1 in a million", rounded up (or down).

    The denominator is the smallest power of ten, from 100, that costs less than 5% of ``x``.
    """
    exact = _proportion("x", x)
    if exact == 0:
        return "0 in 100"
    size = max(2, -_magnitude(exact))
    while abs(_cases(exact, size, up) - exact * 10**size) > exact * 10**size / 20:
        size += 1
    return f"{_cases(exact, size, up):,} {_out_of(size).replace('of', 'in')}"


def shares(parts: Sequence[Fraction]) -> list[str]:
    """Proportions that sum to 1 as per cents (without the sign) that sum to 100 exactly.

    In tenths: each is rounded down, and the largest remainders get what is then missing.
    """
    tenths = [math.floor(part * 1000) for part in parts]
    first = sorted(range(len(parts)), key=lambda i: tenths[i] - parts[i] * 1000)
    for i in first[: 1000 - sum(tenths)]:
        tenths[i] += 1
    return [f"{n // 10}.{n % 10}" if n % 10 else f"{n // 10}" for n in tenths]


def delta(x: Numeric) -> str:
    """A delta as experts write it: "10⁻⁶", rounded up."""
    text = number(x)
    return text.removeprefix("1 × ")


def plural(noun: str) -> str:
    """The plural of the noun for who is protected: "people", "households"."""
    if noun == "person":
        return "people"
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else noun + "s"


# ---- a test and what it finds -----------------------------------------------------------------


def power(level: Numeric, power: Numeric, subject: str = "person") -> str:
    """What the best test achieves at a level, in cases of a hundred (or as many as it takes).

    Args:
        level: probability that the test confirms a false claim, in (0, 1).
        power: upper bound of the probability that it confirms a true one, in [level, 1].
        subject: whom the claim is about.

    Returns:
        For .05 and .25: "Where a claim about a person is false, the best test says otherwise in 5
        cases of 100; where it is true, it finds out in at most 25. Guessing finds 5." The power is
        rounded up, by less than 5% of itself (and not to certainty before 1 - 10^-4).

    Raises:
        ValueError: a number is out of its range.
    """
    a = _given(level)
    b = _proportion("power", power)
    if b < _proportion("level", level):
        raise ValueError(
            f"power = {power!r} must be at least the level = {level!r}: guessing achieves that"
        )
    size, fine = _size(a), _size_for_power(b)
    both = max(size, fine)
    if both > 4 and _cases(b, both) > 1000:
        # One denominator would drown the power in digits: each number gets its own.
        of, found = f" {_out_of(size)}", f"{_cases(b, fine):,} {_out_of(fine)}"
    else:
        size, of, found = both, "", f"{_cases(b, both):,}"
    found = f"finds out in at most {found}"
    if _cases(b, fine) == 10**fine:
        found = "may find out every time"
    elif b == a:
        found = "finds out just as rarely"
    return (
        f"Where a claim about {_article(subject)} {subject} is false, the best test says otherwise "
        f"in {_count(a, size)} {_out_of(size)}; where it is true, it {found}. "
        f"Guessing finds {_cases(a, size):,}{of}."
    )


def finding(level: Numeric, power: Numeric, prior: Numeric, *, capital: bool = True) -> str:
    """What a positive answer of that test means for a claim of the given prior probability.

    Args:
        level: probability that the test confirms a false claim, in (0, 1).
        power: upper bound of the probability that it confirms a true one, in [level, 1].
        prior: probability of the claim before the test, in [0, 1].
        capital: begin with a capital letter.

    Returns:
        For .05, .25 and 1/2: "At even odds beforehand, a finding of this test is right at most
        83.4% of the time." The percentage is rounded up.
    """
    right = percent(posterior(level, power, prior))
    text = f"{odds(prior)}, a finding of this test is right at most {right} of the time."
    return text[0].upper() + text[1:] if capital else text


def posterior(level: Numeric, power: Numeric, prior: Numeric) -> Fraction:
    """The exact probability that a finding is right; see `testing.positive_predictive_value`."""
    return testing.positive_predictive_value(
        _proportion("power", power), _proportion("level", level), _proportion("prior", prior)
    )


def odds(prior: Numeric) -> str:
    """A prior in words: "at even odds beforehand", "where 1 of 100 such claims is true"."""
    p = _proportion("prior", prior)
    if p == Fraction(1, 2):
        return "at even odds beforehand"
    if p.numerator == 1:
        return f"where 1 in {p.denominator:,} such claims is true beforehand"
    return f"where {percent(p)} of such claims are true beforehand"


def claim(neighboring: str, subject: str = "person", rows: int = 1) -> str:
    """What kind of claim the guarantee is about, from the neighboring relation."""
    what = f"{_article(subject)} {subject}"
    held = "record says" if rows == 1 else f"records (up to {rows:,}) say"
    if neighboring == "replace-one":
        return (
            f"A claim says that {what}’s {held} one thing rather than another, whatever the two "
            "things are."
        )
    if neighboring == "add-remove":
        given = f"a given {subject}" + ("" if rows == 1 else f" (up to {rows:,} rows)")
        return f"A claim says that {given} is in the data, or that the {subject} is not."
    return f"A claim is about which of two neighboring data sets is the true one ({neighboring})."


def change(neighboring: str, subject: str = "person", rows: int = 1) -> str:
    """How neighboring data differ, as "with one person’s record replaced by any other"."""
    what = f"one {subject}’s " + ("record" if rows == 1 else f"records (up to {rows:,})")
    if neighboring == "replace-one":
        return f"with {what} replaced by any other"
    if neighboring == "add-remove":
        return f"with {what} added or removed"
    return f"with the difference between neighbors ({neighboring})"


# ---- the same guarantee in other vocabularies -------------------------------------------------


def epsilon(epsilon: Numeric, delta: Numeric, change: str) -> str:
    """(epsilon, delta) in one line: the factor e^epsilon, and what is left over.

    Args:
        epsilon: upper bound, at least 0, possibly infinite.
        delta: in [0, 1].
        change: how neighbors differ, from `change`.
    """
    e = value("epsilon", epsilon)
    d = _proportion("delta", delta)
    if not isinstance(e, Fraction) or e > 10**6 or d == 1:
        return f"Nothing of use is promised, {change}."
    rest = f", plus a chance of {chance(d)}" if d else ""
    return f"The chance of any outcome grows by at most a factor of {_factor(e)}{rest}, {change}."


def gdp(mu: Numeric) -> str:
    """Gaussian differential privacy in one line. ``mu``: an upper bound, at least 0."""
    m = value("mu", mu)
    if not isinstance(m, Fraction):
        return "No two bell curves, however far apart, are as easy to tell apart as this release."
    return (
        "To tell whether a claim is true is no easier than to tell, from one draw, which of two "
        f"bell curves it came from, when their centers lie {number(m)} standard deviations apart."
    )


def zcdp(rho: Numeric) -> str:
    """Zero-concentrated differential privacy in one line. ``rho``: an upper bound."""
    r = value("rho", rho)
    if not isinstance(r, Fraction):
        return "No finite number of this kind describes the release."
    return "A cost that adds up: releases from the same data together cost at most the sum."


def total_variation(tv: Numeric) -> str:
    """Total variation in one line. ``tv``: an upper bound, in [0, 1]."""
    t = _proportion("tv", tv)
    return (
        f"At no level does a test find more than {percent(t)[:-1]} percentage points more than "
        f"guessing; at even odds, no verdict is right more than {percent((1 + t) / 2)} of the time."
    )


def budget(budget: Mapping[str, Any]) -> str:
    """The limit that was chosen, from a receipt's budget ("kind" and its exact numbers)."""
    match budget.get("kind"):
        case "at_most":
            return (
                f"at most {percent(budget['power'])} of true claims found out by a test that takes "
                f"{percent(budget['level'], up=False)} of false ones for true"
            )
        case "zcdp":
            return f"zCDP with rho {number(budget['rho'])}"
        case "gdp":
            return f"Gaussian differential privacy with mu {number(budget['mu'])}"
        case "approximate":
            return f"epsilon {number(budget['epsilon'])} at delta {delta(budget['delta'])}"
        case _:
            return ", ".join(f"{name} {value}" for name, value in budget.items())


# ---- how a number becomes digits --------------------------------------------------------------


def _proportion(name: str, x: Numeric) -> Fraction:
    exact = value(name, x)
    if not isinstance(exact, Fraction) or not 0 <= exact <= 1:
        raise ValueError(f"{name} = {x!r} must be between 0 and 1")
    return exact


def _given(level: Numeric) -> Fraction:
    """A level, in (0, 1), cut to four significant digits."""
    a = _proportion("level", level)
    if not 0 < a < 1:
        raise ValueError(f"level = {level!r} must be above 0 and below 1")
    unit = Fraction(10) ** (_magnitude(a) - 3)
    return a // unit * unit


def _magnitude(x: Fraction) -> int:
    """floor(log10 |x|), exactly."""
    x = abs(x)
    size = len(str(x.numerator)) - len(str(x.denominator))
    return size if x >= Fraction(10) ** size else size - 1


def _plain(x: Fraction, places: int, up: bool) -> str:
    """``x`` with at most ``places`` decimals and no trailing zeros."""
    scaled = x * 10**places
    whole = math.ceil(scaled) if up else math.floor(scaled)
    digits = str(abs(whole)).rjust(places + 1, "0")
    front, back = digits[: len(digits) - places], digits[len(digits) - places :]
    back = back.rstrip("0")
    return ("−" if whole < 0 else "") + f"{int(front):,}" + (f".{back}" if back else "")


def _cases(x: Fraction, size: int, up: bool = True) -> int:
    return math.ceil(x * 10**size) if up else math.floor(x * 10**size)


def _count(x: Fraction, size: int) -> str:
    cases = _cases(x, size)
    return "1 case" if cases == 1 else f"{cases:,} cases"


def _out_of(size: int) -> str:
    if size < 6:
        return f"of {10**size:,}"
    return f"in {_NAMES[size]}" if size in _NAMES else f"in 10{str(size).translate(_SUPERSCRIPT)}"


def _size(level: Fraction) -> int:
    """The smallest power of ten, from 100, in which the level is a whole number of cases."""
    size = 2
    while (level * 10**size).denominator != 1:
        size += 1
    return size


def _size_for_power(b: Fraction) -> int:
    """The smallest power of ten, from 100, that writes a power closely enough, rounded up."""
    size = 2
    while _cases(b, size) > b * 10**size * Fraction(21, 20):
        size += 1
    while b < 1 and size < 4 and _cases(b, size) == 10**size:
        size += 1
    return size


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" and noun else "a"


def _factor(e: Fraction) -> str:
    """e^epsilon, rounded up to three digits."""
    if e == 0:
        return "1"
    exact = _WIDE.divide(Decimal(e.numerator), Decimal(e.denominator))
    power = _WIDE.exp(_WIDE.next_plus(exact))  # every step errs by a unit in the 40th digit at most
    if power.adjusted() >= 300:
        return f"10{str(power.adjusted() + 1).translate(_SUPERSCRIPT)}"
    return number(Fraction(_WIDE.next_plus(power)))
