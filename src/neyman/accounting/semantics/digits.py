"""Write numbers as digits, rounded in one way.

The convention, everywhere: **a rounded number never favors the release.** An attacker's abilities
(power, epsilon, a posterior, a standard error) are rounded up. Advantages of the release (a share
of accurate cells, noise saved) are rounded down. A number that needs no rounding is printed
exactly. A level is given, not computed. It is printed in full up to four digits and rounded down
beyond, because power at a smaller level is no greater. A float counts as its shortest decimal, as
in a receipt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import TypeAlias

from neyman.numerics import check

Numeric: TypeAlias = float | int | str | Fraction | Decimal

_THOUSANDS = {6: "a million", 9: "a billion", 12: "a trillion"}
_NAMES = _THOUSANDS | {
    n + k: f"{10**k} {name[2:]}" for n, name in _THOUSANDS.items() for k in (1, 2)
}
_WIDE = Context(prec=40, Emax=10**17, Emin=-(10**17))
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def value(name: str, x: Numeric) -> Fraction | float:
    """Return the exact rational of the shortest decimal of ``x``. Infinities stay floats.

    Args:
        name: name of ``x`` in an error.
        x: a number, or a string such as "0.25", "1/4" or "inf".

    Raises:
        ValueError, TypeError: ``x`` is no number.
    """
    infinite = math.isinf(x) if isinstance(x, float) else str(x) in ("inf", "-inf")
    return float(x) if infinite else check.exact(name, x)


def number(x: Numeric, digits: int = 3, *, up: bool = True) -> str:
    """Write ``x`` in ``digits`` significant digits, rounded up (or down), "∞" if infinite.

    Args:
        x: any number; see `value`.
        digits: largest number of significant digits. Whole numbers below 10^15 have all their
            digits.
        up: True to round toward plus infinity, else toward minus infinity.
    """
    exact = value("x", x)
    if not isinstance(exact, Fraction):
        return "∞" if exact > 0 else "−∞"
    if exact == 0:
        return "0"
    size = _magnitude(exact)
    if -5 < size < 15:
        return _decimal_text(exact, max(0, digits - 1 - size), up)
    scaled = exact / Fraction(10) ** size
    mantissa = _decimal_text(scaled, digits - 1, up)
    if abs(Fraction(mantissa.replace("−", "-"))) == 10:
        mantissa, size = mantissa.replace("10", "1", 1), size + 1
    return f"{mantissa} × 10{str(size).translate(_SUPERSCRIPT)}"


def percent(x: Numeric, *, up: bool = True) -> str:
    """Return the proportion ``x`` in percent, rounded up (or down) to a tenth.

    Near 0% and 100%, the distance from it has two significant digits, down to 10^-9. So a number
    that is only close is not printed as "0%" or "100%".

    Raises:
        ValueError: ``x`` is outside [0, 1].
    """
    exact = proportion("x", x)
    gap = min(exact, 1 - exact) * 100
    if gap == 0:
        return f"{exact * 100}%"
    places = max(1, 1 - _magnitude(gap))
    digits = _decimal_text(exact * 100, min(places, 9), up)
    return f"{Fraction(digits) if Fraction(digits) in (0, 100) else digits}%"


def chance(x: Numeric, *, up: bool = True) -> str:
    """Return the proportion ``x`` as "5 in 100" or "1 in a million", rounded up (or down).

    The denominator is the smallest power of ten, from 100, that changes ``x`` by less than 5%.
    """
    exact = proportion("x", x)
    if exact == 0:
        return "0 in 100"
    size = max(2, -_magnitude(exact))
    while abs(cases(exact, size, up) - exact * 10**size) > exact * 10**size / 20:
        size += 1
    count = cases(exact, size, up)
    while size > 2 and count % 10 == 0:  # 10 in 10 million is 1 in a million
        count, size = count // 10, size - 1
    return f"{count:,} {out_of(size).replace('of', 'in')}"


def shares(parts: Sequence[Fraction]) -> list[str]:
    """Return proportions with sum 1 as percentages (without the sign) with sum exactly 100.

    Each is rounded down to tenths. Then the largest remainders get the missing tenths.
    """
    tenths = [math.floor(part * 1000) for part in parts]
    first = sorted(range(len(parts)), key=lambda i: tenths[i] - parts[i] * 1000)
    for i in first[: 1000 - sum(tenths)]:
        tenths[i] += 1
    return [f"{n // 10}.{n % 10}" if n % 10 else f"{n // 10}" for n in tenths]


def delta(x: Numeric) -> str:
    """Return a delta in scientific notation: "10⁻⁶", rounded up."""
    return number(x).removeprefix("1 × ")


def proportion(name: str, x: Numeric) -> Fraction:
    """Return ``x`` as an exact proportion. Refuse numbers outside [0, 1]."""
    exact = value(name, x)
    if not isinstance(exact, Fraction) or not 0 <= exact <= 1:
        raise ValueError(f"{name} = {x!r} must be between 0 and 1")
    return exact


def given_level(level: Numeric) -> Fraction:
    """Return a level, in (0, 1), rounded down to four significant digits."""
    a = proportion("level", level)
    if not 0 < a < 1:
        raise ValueError(f"level = {level!r} must be above 0 and below 1")
    unit = Fraction(10) ** (_magnitude(a) - 3)
    return a // unit * unit


def level_percent(level: Numeric) -> str:
    """Return a level, in (0, 1), in percent: in full up to four digits, and rounded down beyond."""
    exact = given_level(level) * 100
    return f"{_decimal_text(exact, max(0, 3 - _magnitude(exact)), up=False)}%"


def _magnitude(x: Fraction) -> int:
    """Return floor(log10 |x|), exactly."""
    x = abs(x)
    size = len(str(x.numerator)) - len(str(x.denominator))
    return size if x >= Fraction(10) ** size else size - 1


def _decimal_text(x: Fraction, places: int, up: bool) -> str:
    """Return ``x`` with at most ``places`` decimals and no trailing zeros."""
    scaled = x * 10**places
    units = math.ceil(scaled) if up else math.floor(scaled)
    digits = str(abs(units)).rjust(places + 1, "0")
    front, back = digits[: len(digits) - places], digits[len(digits) - places :]
    back = back.rstrip("0")
    return ("−" if units < 0 else "") + f"{int(front):,}" + (f".{back}" if back else "")


def cases(x: Fraction, size: int, up: bool = True) -> int:
    """Return x * 10^size, the number of cases among 10^size, rounded up (or down)."""
    return math.ceil(x * 10**size) if up else math.floor(x * 10**size)


_YOU = re.compile(r"u(?:ni(?!n|m|d)|[st](?=[aei])|biq|ran[iu]|rolog|kr|ku)|eu|ewe|onc?e\b", re.I)
_SILENT = re.compile(r"hour|hono|hones|heir", re.I)


def article(noun: str) -> str:
    """Return "a" or "an" by the noun's first sound: a user, an hour, an HR record."""
    word = re.match(r"\w*", check.text("subject", noun, "person"))
    first = word.group() if word else ""
    if first.isdigit():
        return "an" if first[0] == "8" or first in ("11", "18") else "a"
    if first.isupper() and (len(first) > 1 or len(noun) == 1):  # its letters are read one by one
        return "an" if first[0] in "AEFHILMNORSX" else "a"
    if _YOU.match(first) or not first:
        return "a"
    return "an" if first[0].lower() in "aeiou" or _SILENT.match(first) else "a"


def plural(noun: str) -> str:
    """Return the plural of a noun: "people", "households", "entries"."""
    if noun == "person":
        return "people"
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else noun + "s"


def many(count: int, noun: str) -> str:
    """Return a count with its noun: "1 entry", "2 entries", "1,000 cells"."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def out_of(size: int) -> str:
    """Return 10^size in words: "of 100", "in a million"."""
    if size < 6:
        return f"of {10**size:,}"
    return f"in {_NAMES[size]}" if size in _NAMES else f"in 10{str(size).translate(_SUPERSCRIPT)}"


def size_for_level(level: Fraction) -> int:
    """Return the smallest n of at least 2 for which level * 10^n is a whole number."""
    size = 2
    while (level * 10**size).denominator != 1:
        size += 1
    return size


def size_for_power(b: Fraction) -> int:
    """Return the smallest n of at least 2 for which "k in 10^n" rounds b up by at most 5%.

    Up to n = 4, it also avoids "10^n in 10^n" for b below 1.
    """
    size = 2
    while cases(b, size) > b * 10**size * Fraction(21, 20):
        size += 1
    while b < 1 and size < 4 and cases(b, size) == 10**size:
        size += 1
    return size


def factor_of(e: Fraction) -> str:
    """Return e^x as text for x = ``e``, rounded up to three digits."""
    if e == 0:
        return "1"
    exact = _WIDE.divide(Decimal(e.numerator), Decimal(e.denominator))
    power = _WIDE.exp(_WIDE.next_plus(exact))  # every step errs by a unit in the 40th digit at most
    if power.adjusted() >= 300:
        return f"10{str(power.adjusted() + 1).translate(_SUPERSCRIPT)}"
    above = Fraction(_WIDE.next_plus(power))
    return number(above if above < 1000 else Fraction(-(-above.numerator // above.denominator)))


def plain(number: Fraction) -> str:
    """Return a number as text: exact in 12 digits or as a short fraction, else "about ..."."""
    ends = Decimal(number.numerator), Decimal(number.denominator)
    if Fraction(short := Context(prec=12).divide(*ends)) == number:
        return plain_decimal(short)
    ratio = f"{ends[0]:f}/{ends[1]:f}"
    return ratio if len(ratio) <= 5 else f"about {plain_decimal(Context(prec=6).divide(*ends))}"


def plain_decimal(number: Decimal) -> str:
    """Return a decimal number, without an exponent if its size is easy to read."""
    number = number.normalize()
    return f"{number:f}" if -7 < number.adjusted() < 13 else f"{number:e}"


def exact_text(value: Fraction) -> str:
    """Return a rational as a decimal if it is exact and short, else as ``p/q``."""
    for digits in range(19):
        if (10**digits) % value.denominator == 0:
            scaled = abs(value.numerator) * 10**digits // value.denominator
            sign = "-" if value < 0 else ""
            quotient, part = divmod(scaled, 10**digits)
            return f"{sign}{quotient}.{part:0{digits}d}" if digits else f"{sign}{quotient}"
    return str(value)


def short_text(value: Fraction) -> str:
    """Return a rational for a message: exact if short, else rounded with "about"."""
    text = exact_text(value) if value.denominator < 10**40 and value < 10**40 else ""
    return text if 0 < len(text) <= 40 else plain(value)
