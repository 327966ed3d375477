"""Define the expressions by which engines read keys and numbers, with equal results on each.

An expression is a column that the engine computes. A plan writes no SQL: `row_values` compiles its
conditions and derived columns to these expressions.

- NaN is tested by a function, and is NULL from then on.
- No value is cast if the cast could fail or round. Patterns extract the digits of a text, decimals
  are read as text, and doubles are clipped and floored first.
- Sums are sums of integers in `decimal(38, 0)`: 2^63 rows of 2^62 stay below 10^38.
- Keys and units compare as bytes.
- No `hash`, `random`, or `upper`. Rows are sorted only in windows, by named columns.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import pairwise, zip_longest

import ibis

from neyman.publishing.engines.backends import Backend, Value, hexadecimal, step_function
from neyman.publishing.engines.cells import MAX_CELL_SIZE
from neyman.publishing.plan.column import KeyKind
from neyman.publishing.plan.derived import ISO_DATE
from neyman.publishing.plan.plan_fields import SourcePart

_NUMBER = r"^-?([0-9]{1,120}(\.[0-9]{0,120})?|\.[0-9]{1,120})([eE][-+]?[0-9]{1,4})?\z"
_PLAIN = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?\z"
_INFINITE = r"^-?[iI]nf(inity)?\z"
_TRUE, _FALSE = r"^(true|True|TRUE|t|T)\z", r"^(false|False|FALSE|f|F)\z"
_INTEGER_DECIMAL = r"^-?[0-9]*\.0+\z"
_ALIKE = {" ": " \u00a0\u202f", "'": "'\u2019"}  # characters that a thousands mark matches
_EXPONENT = r"(?:[eE][-+]?[0-9]{1,4})?"
_HOUR, _SIXTY = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
OFFSET = f"(?:[Zz]|[+-]{_HOUR}(?::?{_SIXTY})?)"
_CLOCK = f"[T ]{_HOUR}:{_SIXTY}(?::{_SIXTY}(?:[.,][0-9]+)?)?"
TIME_OF_DAY = f"(?:{_CLOCK}{OFFSET}?)?"
_FOUR_DIGITS = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"  # except 0000
DAY = rf"^{_FOUR_DIGITS}-[0-9]{{2}}-[0-9]{{2}}{TIME_OF_DAY}\z"  # a date, perhaps with a time
INSTANT = rf"^{_FOUR_DIGITS}-[0-9]{{2}}-[0-9]{{2}}{_CLOCK}{OFFSET}\z"  # a time with its offset


@dataclass(frozen=True)
class Limits:
    """Limit numbers to those that all engines read the same way, by their size and digits."""

    clip: int = 2**60  # beyond every clip, and small enough that nothing here overflows


LIMITS = Limits()


def without_empty_text(table: ibis.Table, coded: Collection[str] = ()) -> ibis.Table:
    """Return a table in which empty texts are missing, as in CSV. Skip the columns ``coded``."""
    texts = [name for name, kind in table.schema().items() if kind.is_string()]
    empty: Value = ""
    known = {name: table[name].nullif(empty) for name in texts if name not in coded}
    return table.mutate(**known) if known else table


def raw_key(column: Value, backend: Backend) -> Value:
    """Return `Backend.group_key`. Of a float, return the integer that it equals, or NULL."""
    if column.type().is_floating():
        return _integer_of_float(column)
    return backend.group_key(column)


def key_bytes(column: Value, backend: Backend, kind: KeyKind = "text") -> Value:
    """Return the bytes of the key that a value represents; NULL if it represents no key.

    Args:
        column: a column of the data, or the result of `raw_key`.
        kind: "text" for the value's own text. "whole" for the digits of an integer: 1, 1.0, 01 and
            1e0 are one key, as text and as numbers. "boolean" for true (true, True, TRUE, t, T, and
            the number 1) and false (false, False, FALSE, f, F, and the number 0).
    """
    if kind == "text":
        return column if column.type().is_binary() else backend.plain_bytes(_text(column))
    if column.type().is_binary():
        # DuckDB writes non-ASCII bytes with backslashes, which no number has.
        column = column.cast("string")
    if column.type().is_boolean():
        return backend.plain_bytes(_text(column))
    is_text = column.type().is_string()
    digits = _text_of_integer(column) if is_text else _text(raw_key(column, backend))
    if kind == "whole":
        return backend.plain_bytes(digits)
    cases = [(digits == "1", "true"), (digits == "0", "false")]
    if is_text:
        # Texts come before numbers, which take longer.
        cases = [(column.re_search(_TRUE), "true"), (column.re_search(_FALSE), "false"), *cases]
    return backend.plain_bytes(ibis.cases(*cases))


def _text(column: Value) -> Value:
    """Return the canonical text of a column; NULL for a value without a canonical text."""
    kind = column.type()
    if kind.is_string():
        return column
    if kind.is_boolean():
        return ibis.cases((column, "true"), (~column, "false"))
    if kind.is_date():
        return ibis.cases((known_day(column), column.cast("string")))
    text = column.cast("string")
    if kind.is_decimal() and kind.scale != 0:
        digits = text.re_replace(r"\.0+\z", "")
        # DuckDB writes 0 as .0 if there is no digit before the point.
        return ibis.cases(
            (~text.re_search(_INTEGER_DECIMAL), None), (digits == "", "0"), else_=digits
        )
    return text


def known_day(column: Value) -> Value:
    """Return True for dates in the years 1 to 9999. Outside, the engines' calendars differ."""
    return column.between(date(1, 1, 1), date(9999, 12, 31))


def scaled_integer(
    column: Value, backend: Backend, decimals: int, low: int, high: int, unknown: int | None
) -> Value:
    """Return the integer floor(x 10^decimals) of a value x, clipped to [low, high].

    A text, a decimal, or an integer is read exactly. A text is digits with at most a minus, a
    point, and an exponent (up to 120 digits on each side of the point, 4 in the exponent), or
    ``inf``, as programs write numbers. A double is multiplied by 10^decimals in double arithmetic.
    If the product is below 2^49 in size and within relative 2^-50 of an integer, the result is this
    integer (0.29 gives 29 hundredths, although the double is slightly less). Otherwise the product
    is rounded down. For single floats the bounds are 2^21 and 2^-22. A value that is no number
    (NULL, NaN, other text) counts as ``unknown``.

    Args:
        column: text, numbers, or truth values.
        decimals: 0 to 9.
        low, high: scaled integers within 2^53.
        unknown: replaces a value that is no number, and is also clipped; None for low - 1, which no
            number becomes.
    """
    number = integer_of(column, backend, decimals)
    if unknown is None:
        known = inside(number.coalesce(low), low, high).cast("int64")
        return ibis.cases((number.notnull(), known), else_=low - 1)
    return inside(ibis.coalesce(number, min(max(unknown, low), high)), low, high).cast("int64")


def integer_of(column: Value, backend: Backend, decimals: int, most: int = LIMITS.clip) -> Value:
    """Return the integer of `scaled_integer` within +-most; NULL if the value is no number.

    Args:
        decimals: 0 to 9.
        most: a multiple of 10^9 from 10^15 to 2^60, or 2^60.
    """
    kind = column.type()
    if kind.is_floating():
        return _of_float(column, decimals, most)
    if kind.is_boolean() or (kind.is_integer() and str(kind) != "uint64"):
        widest = most // 10**decimals
        bounded = inside(column.cast("int64").coalesce(0), -widest, widest) * 10**decimals
        return ibis.cases((column.notnull(), bounded))
    own = backend.integer_value(column, decimals, most)
    return _of_text(column.cast("string"), decimals, most) if own is None else own


def inside(number: Value, low: Value, high: Value) -> Value:
    """Clip a number that is not NULL to [low, high]. Ibis's ``clip`` would compute it twice."""
    return ibis.least(ibis.greatest(number, low), high)


def _of_float(column: Value, decimals: int, most: int) -> Value:
    bits = 22 if str(column.type()) == "float32" else 50
    scale = 10.0**decimals
    known = column.notnull() & ~column.isnan()
    number: Value = ibis.cases((known, column), else_=0.0).cast("float64")
    # A floor is a cast to an integer, so even an unused argument must not be large.
    scaled = inside(number, -most / scale, most / scale) * scale
    near = (scaled + 0.5).floor().cast("int64")
    close = (near.cast("float64") - scaled).abs() <= scaled.abs() * 2.0**-bits
    small = scaled.abs() < 2.0 ** (bits - 1)
    return ibis.cases((~known, None), (close & small, near), else_=scaled.floor().cast("int64"))


def _integer_of_float(column: Value) -> Value:
    """Return the 64-bit integer that a float equals, or NULL."""
    known = column.notnull() & ~column.isnan()
    number: Value = ibis.cases((known, column), else_=0.5).cast("float64")
    # The largest double that is a whole number of 64 bits.
    # A floor is a cast to an integer, so even an unused argument must not be large.
    bounded = inside(number, -(2.0**63), 2.0**63 - 1024)
    floor = bounded.floor().cast("int64")
    return ibis.cases((floor.cast("float64") == number, floor))


def _text_of_integer(text: Value) -> Value:
    plain = text.re_search(r"^(0|-?[1-9][0-9]{0,36})\z")
    digits, rest = _digits(text, 0)
    minus: Value = ibis.literal("-")
    signed: Value = ibis.cases((text.startswith("-"), minus.concat(digits)), else_=digits)
    size = ibis.cases((digits == "", "0"), else_=signed)
    return ibis.cases((plain, text), (text.re_search(_NUMBER) & ~rest.re_search("[1-9]"), size))


def _digits(text: Value, decimals: int) -> tuple[Value, Value]:
    """Return the digits of floor(|x| 10^decimals) for a text x, and the digits that follow.

    If ``decimals`` is 0, the digits have no leading zeros, and 0 gives an empty text.
    """
    before = text.re_extract(r"^-?0*([0-9]*)", 1)
    after = text.re_extract(r"\.([0-9]+)", 1)
    digits, rest = before, after
    if decimals:
        digits = before.concat(after.concat("0" * decimals).substr(0, decimals))
        rest = after.substr(decimals)
    power = text.re_extract(r"[eE][+]?(-?[0-9]{1,4})\z", 1).try_cast("int64").coalesce(0)
    # Digits before the point: more than 240, so that the only small number there is 0.
    integer_digits = 300
    places = inside(before.length() + power + decimals, 0, integer_digits).cast("int64")
    both = before.concat(after)
    moved = both.concat("0" * integer_digits).substr(0, places).re_replace("^0+", "")
    # Few texts have an exponent, and moving the point takes longer than everything else.
    is_moved = text.contains("e") | text.contains("E")
    return (
        ibis.cases((is_moved, moved), else_=digits),
        ibis.cases((is_moved, both.substr(places)), else_=rest),
    )


def _of_text(text: Value, decimals: int, most: int) -> Value:
    """Return the integer floor(y 10^decimals) of a text y, within +-most; NULL if y is no number.

    Let x = y 10^decimals be less than 10^14 in size. If the text has at most 14 characters, x is an
    integer, or at least 10^-14 |x| away from each integer. The product of doubles is within 2^-52
    |x| of x. Adding 2^-50 |x| raises it to x or more, but not to the next integer. So, rounded
    down, it is floor(x). In a longer text, the digits up to the last decimal are extracted, and
    their double is rounded. Both ways are faster than decimals.
    """
    scale = 10.0**decimals
    near = text.try_cast("float64") * scale
    double_digits = 14  # digits that doubles have to spare
    few = (
        (text.length() <= double_digits)
        & text.re_search(_PLAIN)
        & (near.abs() < 10.0**double_digits)
    )
    floor = (near + near.abs() * 2.0**-50).floor().cast("int64")
    cut = text.re_search(rf"^-?[0-9]{{1,{double_digits - decimals}}}(\.[0-9]{{0,120}})?\z")
    point = rf"(\.[0-9]{{1,{decimals}}})?" if decimals else ""
    counted = text.re_extract(f"^-?[0-9]+{point}", 0).try_cast("float64") * scale
    below = text.re_search(rf"^-[0-9]+\.[0-9]{{{decimals}}}[0-9]*[1-9]").cast("int64")
    return ibis.cases(
        (few, floor),
        (cut, counted.round().cast("int64") - below),
        else_=_of_long_text(text, decimals, most),
    )


def _of_long_text(text: Value, decimals: int, most: int) -> Value:
    digits, rest = _digits(text, decimals)
    zero: Value = ibis.literal("0")
    # Digits, which fit in decimal(38, 0).
    few: Value = ibis.cases((digits.length() <= 37, zero.concat(digits)))
    exact: Value = few.try_cast("decimal(38, 0)").coalesce(_decimal(most))
    size = ibis.least(exact, _decimal(most)).cast("int64")
    negative = text.startswith("-")
    more = (negative & rest.re_search("[1-9]")).cast("int64")
    sign: Value = ibis.cases((negative, -1), else_=1)
    return ibis.cases(
        (text.re_search(_NUMBER), ibis.greatest(size * sign - more, -most)),
        (text.re_search(_INFINITE), most * sign),
    )


def _decimal(number: int) -> Value:
    return ibis.literal(Decimal(number), "decimal(38, 0)")


def bin_of(number: Value, edges: Sequence[int], *, optional: bool = False) -> Value:
    """Return the bin i with edges[i] <= ``number`` < edges[i + 1].

    Args:
        edges: rising integers. The caller ensures that the number is inside them.
        optional: True if a number below the first edge means a missing number (see
            `scaled_integer`). Its bin is then the number of bins, the code for unknown values.
    """
    if optional:
        inside_edges = ibis.greatest(number, edges[0])
        return ibis.cases((number < edges[0], len(edges) - 1), else_=bin_of(inside_edges, edges))
    steps = {1} if isinstance(edges, range) else {b - a for a, b in pairwise(edges)}
    if len(steps) > 1:
        return step_function(number, list(edges[1:-1]), list(range(len(edges) - 1)))
    (step,) = steps
    above = number - edges[0]
    if step == 1:
        return above
    # The division is exact and the quotient is below 2^51, so rounding its double is exact.
    return ((above - above % step) / step).round().cast("int64")


def quotient(number: Value, k: int) -> Value:
    """Return the quotient of an integer by a positive integer k, rounded down.

    The caller ensures that the number is within +-2^53, or that k is a multiple of a million and
    the quotient is within +-2^38, or that k is a power of two and the quotient is within +-2^53.
    Then the result is exact.
    """
    # The dividend is exactly divisible, so rounding the double of the quotient is exact.
    return ((number - remainder(number, k)) / k).round().cast("int64")


def day_number(year: Value, month: Value, day: Value) -> Value:
    """Return the number of a day, 1 for 0001-01-01. The formula begins each year in March."""
    early = (month < 3).cast("int64")
    year, month = year - early, month + early * 12 - 3
    leaps = quotient(year, 4) - quotient(year, 100) + quotient(year, 400)
    return year * 365 + leaps + quotient(month * 153 + 2, 5) + day - 306


def remainder(number: Value, k: int) -> Value:
    """Return the remainder of an integer divided by k, from 0 to k - 1."""
    # A remainder has the sign of the number. A second remainder corrects this.
    return (number % k + k) % k


def total(column: Value) -> Value:
    """Return the exact sum of a column of integers, clipped to +-2^62; 0 for no integers."""
    sum_of_column = column.cast("decimal(38, 0)").sum().coalesce(_decimal(0))
    return inside(sum_of_column, _decimal(-MAX_CELL_SIZE), _decimal(MAX_CELL_SIZE)).cast("int64")


def digest(key: Value, numbers: Sequence[Value], unit: Value) -> Value:
    """Return the keyed SHA-256 of each row, in hexadecimal digits.

    The hashed text is the key, the numbers in decimal digits (bytes in hexadecimal, ``-`` if
    missing), each followed by a comma, then a colon, and the unit's bytes in hexadecimal. The key
    has a fixed length, numbers contain no comma or colon, and the unit is the rest. So different
    inputs have different texts.
    """
    text = key
    for number in numbers:
        digits: Value = (
            ibis.coalesce(hexadecimal(number), "-")
            if number.type().is_binary()
            else number.cast("string")
        )
        text = text.concat(digits).concat(",")
    return text.concat(":").concat(hexadecimal(unit)).hexdigest("sha256")


def written_number(text: Value, source: SourcePart) -> Value:
    """Rewrite a number in a plan's marks as a text that `integer_of` reads; NULL for other texts.

    A mark can separate groups of digits. Each group has three digits, except the first, which has
    one to three and does not begin with 0. So 0.123 is no number if the point separates groups. A
    text that is no number by these marks is NULL, even if other marks would make it a number. A
    blank also stands for no-break blanks, and an apostrophe for a curly apostrophe.
    """
    mark, before, plain = f"[{source.decimal}]", "[0-9]{1,120}", text
    if source.thousands is not None:
        group = f"[{_ALIKE.get(source.thousands, source.thousands)}]"
        before = f"(?:{before}|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}}){{1,39}})"
        plain = text.re_replace(group, "")
    if source.decimal != ".":
        plain = plain.replace(source.decimal, ".")
    number = f"(?:{before}(?:{mark}[0-9]{{0,120}})?|{mark}[0-9]{{1,120}})"
    known = text.re_search(rf"^-?{number}{_EXPONENT}\z")
    return ibis.cases((known, plain), (text.re_search(_INFINITE), text))


def written_boolean(text: Value, source: SourcePart) -> Value:
    """Return the text of a truth value. The numbers 1 and 0 may have a plan's marks."""
    words = text.re_search(_TRUE) | text.re_search(_FALSE)
    return ibis.cases((words, text), else_=written_number(text, source))


def written_date(text: Value, dates: str) -> Value:
    """Return the text YYYY-MM-DD of a date in a plan's form, such as "%d.%m.%Y"; else NULL.

    A year has four digits. A day and a month have two digits, or one if the form has marks between
    all three parts. Text from a blank or a T on is copied unchanged. The day need not exist, as in
    2024-02-31.
    """
    iso, pattern = _iso_date(text, dates)
    rest = text.re_extract(rf"{pattern}([T ].+)\z", 1)
    return ibis.cases((text.re_search(rf"{pattern}(?:[T ].+)?\z"), iso.concat(rest)))


def written_day(text: Value, dates: str) -> Value:
    """Return the key of a date in a plan's form: the text YYYY-MM-DD, without the time of day.

    Other texts stay unchanged, but a text YYYY-MM-DD that the form does not read becomes NULL.
    """
    iso, pattern = _iso_date(text, dates)
    return ibis.cases(
        (text.re_search(rf"{pattern}{TIME_OF_DAY}\z"), iso),
        (text.re_search(rf"^{ISO_DATE}\z"), ibis.null("string")),
        else_=text,
    )


def _iso_date(text: Value, dates: str) -> tuple[Value, str]:
    """Return the text YYYY-MM-DD of a date in the form ``dates``, and a pattern of such dates."""
    forms = re.split(r"%([Ymd])", dates)
    names, between = forms[1::2], forms[2:-1:2]
    few = "[0-9]{1,2}" if all(between) else "[0-9]{2}"
    digits = {"Y": "[0-9]{4}", "m": few, "d": few}

    def pattern(captured: str | None) -> str:
        parts = [f"({digits[name]})" if name == captured else digits[name] for name in names]
        marks = ["".join(f"[{mark}]" for mark in mark) for mark in between]
        return "^" + "".join(map("".join, zip_longest(parts, marks, fillvalue="")))

    def part(name: str) -> Value:
        number = text.re_extract(pattern(name), 1)
        zero: Value = ibis.literal("0")
        return ibis.cases((number.length() == 1, zero.concat(number)), else_=number)

    return part("Y").concat("-", part("m"), "-", part("d")), pattern(None)
