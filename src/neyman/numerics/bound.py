"""Represent a number between two certified ends."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, SupportsFloat, overload

from neyman import notebook

TEXT_ONLY = re.compile(r"(?:(?s:.)?[<>^])?(?:[1-9]\d*)?")  # a format with only alignment and width
NUMBER = re.compile(r"(?s:.*?)(?:\.(?P<precision>\d+))?(?P<kind>[eEfFgGn%])?")
PRINTED_DIGITS = 15  # most significant digits of a printed number


@dataclass(frozen=True, slots=True)
class Bound:
    """Represent a certified interval ``[lower, upper]`` around a computed number.

    Args:
        lower: certified lower end.
        upper: certified upper end; ``lower <= upper``.
        safe: the end that is safe for privacy: "upper" for epsilon, delta and power, "lower" for a
            type II error. ``float(bound)`` is the safe end.
        method: how the number was computed. It includes "estimate" if the number is an estimate.

    Formats such as ``f"{bound:.3f}"`` and ``round(bound, 3)`` round the safe end toward the safe
    side. ``<``, ``<=``, ``>``, and ``>=`` compare with a number or another bound. They raise a
    ValueError if the ends do not decide the answer. ``==`` compares the four fields: a bound never
    equals a plain number. Bounds have no arithmetic.

    Examples:
        >>> import neyman as ny
        >>> epsilon = ny.gdp(1).epsilon(delta=1e-6)
        >>> print(epsilon)
        4.88655411747
        >>> float(epsilon) == epsilon.upper >= epsilon.lower
        True
        >>> f"{epsilon:.3f}", round(epsilon, 1), epsilon < 5
        ('4.887', 4.9, True)
        >>> ny.Bound(4.8, 4.9) < 4.85
        Traceback (most recent call last):
            ...
        ValueError: 4.85 is inside the interval [4.8, 4.9]; compare with .lower or .upper
    """

    lower: float
    upper: float
    safe: Literal["lower", "upper"] = "upper"
    method: str = ""

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            if type(end := getattr(self, name)) is not float:
                object.__setattr__(self, name, _as_float(name, end))
        if not self.lower <= self.upper:
            raise ValueError(f"lower = {self.lower!r} must not exceed upper = {self.upper!r}")
        if not isinstance(self.safe, str) or self.safe not in ("lower", "upper"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"safe = {self.safe!r} must be 'lower' or 'upper'")

    def __float__(self) -> float:
        return float(self.upper if self.safe == "upper" else self.lower)

    @property
    def width(self) -> float:
        """Return upper - lower (0 if both ends are the same infinity)."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    def __str__(self) -> str:
        return format_between(self.lower, self.upper, self.safe)

    def __repr__(self) -> str:
        how = f", method={self.method!r}" if self.method else ""
        return f"Bound({self}; lower={self.lower!r}, upper={self.upper!r}, safe={self.safe!r}{how})"

    def _repr_html_(self) -> str:
        kind = "estimate" if "estimate" in self.method else "certified"
        low, high = directed(self.lower, 9, up=False), directed(self.upper, 9, up=True)
        rows = [[low, high, f"{self.safe} end", self.method]]
        head = [f"At least ({kind})", f"At most ({kind})", "Safe side", "Method"]
        return notebook.safe_html(
            lambda: (notebook.title(str(self)), notebook.table(head, rows)), self
        )

    def __format__(self, spec: str) -> str:
        """Format the safe end as a float, rounded toward the safe side.

        Args:
            spec: as for a float, with a precision or a type. Otherwise, it may only align
                ``str(bound)``.

        Raises:
            ValueError: the format is of another kind.
        """
        if TEXT_ONLY.fullmatch(spec):
            aligned = spec if re.search("[<>^]", spec) else f">{spec}"
            return format(str(self), aligned)
        end = float(self)
        text = format(end, spec)  # raises an error for an invalid format
        form = NUMBER.fullmatch(spec)
        precision, kind = form.groups() if form else (None, None)
        if precision is None and kind is None:
            raise ValueError(f"format {spec!r} must have a precision or a type, such as '.3f'")
        if math.isinf(end):
            return text
        places = 6 if precision is None else int(precision)
        number = self._decimal()
        if kind in ("f", "F", "%"):
            number = self._quantize(number, -places - 2 * (kind == "%"))
            digits = number.adjusted() + places + 3
        else:
            digits = places + 1 if kind in ("e", "E") else max(places, 1)
            number = self._context(digits).plus(number)
        number = number or Decimal(0)  # never a negative zero
        # A float reproduces 14 digits, even after a product by 100, unless it is tiny.
        exact = digits <= 14 and (not number or abs(number) >= Decimal("2.3e-308"))
        return format(float(number) if exact else number, spec)

    @overload
    def __round__(self, ndigits: None = None) -> int: ...
    @overload
    def __round__(self, ndigits: int) -> float: ...
    def __round__(self, ndigits: int | None = None) -> int | float:
        """Round the safe end toward the safe side: to an int, or to ``ndigits`` decimals."""
        end = float(self)
        if ndigits is None:
            return math.ceil(end) if self.safe == "upper" else math.floor(end)
        places = operator.index(ndigits)
        if math.isinf(end) or places > 330:
            return end
        return float(self._quantize(self._decimal(), -places) or 0)

    def _decimal(self) -> Decimal:
        """Return the safe end exactly.

        If both ends agree, return the decimal that the float prints.
        """
        end = float(self)
        return Decimal(repr(end)) if self.lower == self.upper else Decimal(end)

    def _context(self, digits: int) -> Context:
        return Context(prec=digits, rounding=ROUND_CEILING if self.safe == "upper" else ROUND_FLOOR)

    def _quantize(self, number: Decimal, exponent: int) -> Decimal:
        digits = max(number.adjusted(), exponent) - exponent + 2
        return number.quantize(Decimal((0, (1,), exponent)), context=self._context(digits))

    def __lt__(self, other: Bound | SupportsFloat) -> bool:
        ends = _ends(other)
        return NotImplemented if ends is None else self._is_below(ends, strictly=True)

    def __le__(self, other: Bound | SupportsFloat) -> bool:
        ends = _ends(other)
        return NotImplemented if ends is None else self._is_below(ends, strictly=False)

    def __gt__(self, other: Bound | SupportsFloat) -> bool:
        ends = _ends(other)
        return NotImplemented if ends is None else not self._is_below(ends, strictly=False)

    def __ge__(self, other: Bound | SupportsFloat) -> bool:
        ends = _ends(other)
        return NotImplemented if ends is None else not self._is_below(ends, strictly=True)

    def _is_below(self, other: tuple[Any, Any], *, strictly: bool) -> bool:
        """Return True if this number is certainly below another, False if certainly not."""
        low, high = other
        if self.upper < low or (not strictly and self.upper <= low):
            return True
        if self.lower > high or (strictly and self.lower >= high):
            return False
        what = f"{low!s} is" if low == high else f"part of [{low!s}, {high!s}] is"
        raise ValueError(
            f"{what} inside the interval [{self.lower!r}, {self.upper!r}]; compare with .lower or "
            ".upper"
        )


def _as_float(name: str, end: Any) -> float:
    """Return an end as a float, rounded outward: no integer is too large."""
    if isinstance(end, (bool, str, bytes)) or not isinstance(end, (Real, Decimal)):
        raise TypeError(f"{name} = {end!r} must be a real number, as an end of an interval")
    exact: Any = end
    if isinstance(end, Decimal) and end.is_snan():
        exact = math.nan
    try:
        number = float(exact)
    except OverflowError:
        number = math.inf if exact > 0 else -math.inf
    if name == "lower":
        return math.nextafter(number, -math.inf) if number > exact else number
    return math.nextafter(number, math.inf) if number < exact else number


def _ends(other: object) -> tuple[Any, Any] | None:
    """Return the exact ends of the other operand of a comparison; None if it is not a number."""
    if isinstance(other, Bound):
        return other.lower, other.upper
    number: Any = other
    if not isinstance(other, int | float | Fraction | Decimal):
        number = _python_number(other)
        if number is None:
            return None
    if number != number:
        raise ValueError(f"{other!r} is not a number that a bound can be compared with")
    return number, number


def _python_number(scalar: Any) -> int | Fraction | float | None:
    """Return another library's scalar as an exact Python number; None if it is no number."""
    try:
        if hasattr(scalar, "__index__"):
            return operator.index(scalar)
        if not hasattr(scalar, "as_integer_ratio"):
            return None
        return Fraction(*scalar.as_integer_ratio())
    except (OverflowError, ValueError):  # infinite, or not a number
        return float(scalar)
    except TypeError:  # an array
        return None


def format_between(lower: float, upper: float, safe: str = "upper") -> str:
    """Write a number with the digits that both ends support, rounded toward the safe side.

    The printed number is the safe end, rounded away from the other end. Its last digit is the last
    that the interval's width leaves meaningful. An interval too wide for two digits prints both
    ends, rounded outward.
    """
    end = upper if safe == "upper" else lower
    if math.isinf(end):
        return "inf" if end > 0 else "-inf"
    if lower == upper:
        short = f"{end:.{PRINTED_DIGITS}g}"
        return short if float(short) == end else directed(end, PRINTED_DIGITS, up=safe == "upper")
    apart = f"between {directed(lower, 3, up=False)} and {directed(upper, 3, up=True)}"
    if math.isinf(upper - lower):
        return apart
    if end == 0:
        return "0" if upper - lower < 1e-15 else apart
    digits = math.floor(math.log10(abs(end))) - math.floor(math.log10(upper - lower))
    if digits < 2:
        return apart
    return directed(end, min(digits, PRINTED_DIGITS), up=safe == "upper")


def directed(x: float, digits: int, *, up: bool) -> str:
    """Return ``x`` in ``digits`` significant digits, rounded up or down."""
    if math.isinf(x) or x == 0:
        return format(x, "g")
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    rounded = context.create_decimal(Decimal(x))
    # A plain number if readable, else with an exponent.
    return f"{rounded:f}" if -6 <= rounded.adjusted() < 16 else f"{rounded:e}"
