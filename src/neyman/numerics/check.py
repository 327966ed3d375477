"""Check arguments. Each error shows the argument's name, its value, and the valid values."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, TypeGuard, TypeVar, cast

Choice = TypeVar("Choice", bound=str)

MAX_EXPONENT = 300  # largest exponent of an exact number, near the range of floats
_MAX_NUMBER = 10**MAX_EXPONENT
_FOR_SEVERAL = {
    "alpha": "; for several levels use f.powers(levels), which returns 1 minus these errors",
    "level": "; for several levels use f.powers(levels) of a trade-off curve f",
    "delta": "; for several deltas use f.epsilons(deltas) of a trade-off curve f",
    "epsilon": "; for several epsilons use f.deltas(epsilons) of a trade-off curve f",
}


def finite(name: str, value: object) -> float:
    """Return ``value`` as a float. Refuse anything but a finite real number."""
    if isinstance(value, (bool, str, bytes)) or not isinstance(value, (Real, Decimal)):
        several = hasattr(value, "__iter__") and not isinstance(value, (str, bytes))
        hint = _FOR_SEVERAL.get(name, "") if several else ""
        raise TypeError(f"{name} = {_shown(value)} must be a real number{hint}")
    try:
        number = float(value)
    except (OverflowError, ValueError):  # too large; a signaling NaN
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} = {value!r} must be finite")
    return number


def positive(name: str, value: object) -> float:
    """Return ``value`` as a float above zero."""
    number = finite(name, value)
    if number <= 0:
        raise ValueError(f"{name} = {value!r} must be above 0")
    return number


def non_negative(name: str, value: object) -> float:
    """Return ``value`` as a float of at least zero."""
    number = finite(name, value)
    if number < 0:
        raise ValueError(f"{name} = {value!r} must be at least 0")
    return number


def between(name: str, value: object, low: float, high: float) -> float:
    """Return ``value`` as a float in ``[low, high]``."""
    number = finite(name, value)
    if not low <= number <= high:
        raise ValueError(f"{name} = {value!r} must be between {low:g} and {high:g}")
    return number


def number(name: str, value: object) -> int | float | Fraction:
    """Return ``value`` as a plain int, float, or fraction, which JSON descriptions can store."""
    finite(name, value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, (Fraction, Decimal)):
        return exact(name, value)
    return finite(name, value)


def probability(name: str, value: object) -> float:
    """Return ``value`` as a float in [0, 1]."""
    return between(name, value, 0.0, 1.0)


def integer(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return ``value`` as an int from ``least`` to ``most``. Refuse every float."""
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"{name} = {_shown(value)} must be a whole number (int)")
    if not isinstance(value, Integral):
        raise ValueError(f"{name} = {_shown(value)} must be a whole number (int)")
    number = int(value)
    if number < least:
        raise ValueError(f"{name} = {_shown(value)} must be at least {least}")
    if most is not None and number > most:
        raise ValueError(f"{name} = {_shown(value)} must be at most {most:g}")
    return number


def exact(name: str, value: object) -> Fraction:
    """Return ``value`` as a fraction. It may be an int, a fraction, a decimal, "3/7", or "0.1".

    A float is read as the shortest decimal that prints it: 0.1 is 1/10.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name} = {value!r} must be a number, not a truth value")
    kind: type[Exception] = TypeError
    try:
        if isinstance(value, Rational):  # NumPy's integers overflow, Python's do not
            return _in_range(Fraction(int(value.numerator), int(value.denominator)))
        if isinstance(value, str) and "/" in value:
            top, _, bottom = value.partition("/")
            return _in_range(_decimal(top) / _decimal(bottom))
        if isinstance(value, (str, Decimal)):
            return _decimal(value)
        if isinstance(value, Real):
            return _decimal(repr(float(value)))
    except (ValueError, OverflowError, InvalidOperation, ZeroDivisionError):
        kind = ValueError
    raise kind(f"{name} = {_shown(value)} must be a finite number such as 0.25, '0.25' or '1/4'")


def plain(name: str, value: object) -> object:
    """Return text such as "0.1" or "3/7" as an exact number, and any other value unchanged."""
    return exact(name, value) if isinstance(value, str) else value


def truth(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} = {_shown(value)} must be True or False")
    return value


def text(name: str, value: object, example: str) -> str:
    """Return ``value`` if it is a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {_shown(value)} must be a text, such as {example!r}")
    return value


def path(name: str, value: object) -> str:
    """Return the path of a file, if the system can have it."""
    kind = ValueError if isinstance(value, (str, os.PathLike)) else TypeError
    with suppress(UnicodeEncodeError, TypeError):
        given = os.fspath(cast("str", value))
        if isinstance(given, str) and given and b"\0" not in os.fsencode(given):  # pyright: ignore[reportUnnecessaryIsInstance]
            return given
    raise kind(
        f"{name} = {_shown(cast('object', value))} must be the path of a file, such as {name!r}"
    )


def mapping(name: str, value: object, example: str) -> Mapping[Any, Any]:
    """Return ``value`` if it is a mapping."""
    if not is_mapping(value):
        raise TypeError(f"{name} = {_shown(value)} must be a mapping, such as {example}")
    return value


def several(name: str, values: object, example: str = "[0.5, 0.5]") -> list[Any]:
    """Return ``values`` as a list in order. Refuse scalars, text, sets, and mappings."""
    items = cast("Iterable[object]", values)
    if not isinstance(values, (str, bytes, Mapping, AbstractSet)):
        try:
            entries = iter(items)
        except TypeError:
            pass
        else:
            return list(entries)
    raise TypeError(f"{name} = {_shown(items)} must be a sequence, such as {example}")


def one_of(name: str, value: object, known: Iterable[Choice], why: str = "") -> Choice:
    """Return ``value`` if it is one of the ``known`` texts. ``why`` ends the message."""
    for one in known:
        if isinstance(value, str) and value == one:
            return one
    texts = list(map(repr, known))
    listed = " or ".join(texts) if len(texts) < 3 else f"one of {', '.join(texts)}"
    raise ValueError(f"{name} = {_shown(value)} must be {listed}{why}")


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return True for a list, such as a JSON array."""
    return isinstance(value, list)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return True for a mapping, such as a JSON object."""
    return isinstance(value, Mapping)


def no_evidence(name: str, value: object) -> None:
    """Refuse a ``value`` that is evidence from an attack, because a guarantee is needed."""
    if getattr(value, "is_evidence", False):
        raise TypeError(
            f"{name} = {_shown(value)} is evidence from an attack. It can refute a guarantee, and "
            "is none: give a mechanism or a curve"
        )


def described(name: str, value: object) -> Any:
    """Return ``value`` itself. Refuse evidence, and an object without a trade-off curve."""
    no_evidence(name, value)
    if isinstance(value, type) or not callable(getattr(value, "tradeoff", None)):
        raise TypeError(
            f"{name} = {_shown(value)} must be a mechanism or a curve, such as ny.Gaussian(2) or "
            "ny.gdp(1)"
        )
    return value


def _decimal(value: str | Decimal) -> Fraction:
    """Return a decimal as a fraction. Refuse huge exponents before they fill the memory."""
    number = value if isinstance(value, Decimal) else Decimal(value.strip())
    if not number.is_finite() or (number and abs(number.adjusted()) > 4 * MAX_EXPONENT):
        raise ValueError
    if len(number.as_tuple().digits) > 4 * MAX_EXPONENT:
        raise ValueError
    return _in_range(Fraction(number))


def _in_range(number: Fraction) -> Fraction:
    if abs(number) > _MAX_NUMBER or (number and not float(number)):
        raise ValueError  # no float can hold it
    return number


def _shown(value: object) -> str:
    return shortened(repr(value))


def shortened(text: str, most: int = 80) -> str:
    """Return a text for an error message, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def log_probability(name: str, value: float | None, logarithm: float | None) -> float:
    """Return the logarithm of a probability. Exactly one of both must be given."""
    if (value is None) == (logarithm is None):
        raise ValueError(f"give exactly one of {name}= and log_{name}=")
    if value is not None:
        number = probability(name, value)
        return math.log(number) if number > 0 else -math.inf
    if isinstance(logarithm, float) and logarithm == -math.inf:
        return -math.inf
    number = finite(f"log_{name}", logarithm)
    if number > 0:
        raise ValueError(f"log_{name} = {logarithm!r} must be at most 0")
    return number
