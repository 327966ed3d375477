"""Define frozen dataclasses whose fields say how to check, store, and write their values."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache, singledispatch
from operator import index
from typing import Any, ClassVar, Self, SupportsIndex, TypeVar, cast

from neyman.curves.losses.finite import LEAST_EPSILON, MOST_EPSILON
from neyman.numerics import check


@dataclass(frozen=True)
class Limits:
    """Limit the numbers in a description: counts, probabilities, and variances of integer noise."""

    count: int = 10**18  # largest number of releases, and of records
    least_share: float = 1e-300  # below, derived numbers underflow
    variance: int = 10**30  # integer noise


LIMITS = Limits()

Keep = Callable[[str, object], object]
T = TypeVar("T")


def form(
    keep: Keep | None = None,
    *,
    write: Callable[[Any], object] | None = None,
    read: Callable[[Any], object] | None = None,
    shown: Callable[[Any], bool] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a field: ``field(metadata=form(...))``.

    Args:
        keep: takes the field's name and the given value, and returns the value to store, or raises
            an error that names both. A default of None is stored unchanged.
        write: converts the value to JSON types. The default is `to_json`.
        read: the inverse of ``write``. By default, the annotation decides.
        shown: returns True if a description's JSON has the field. By default, JSON has all fields
            that are not None.
    """
    given = {"keep": keep, "write": write, "read": read, "shown": shown}
    return {name: value for name, value in given.items() if value}


def integer(least: int = 0, most: int | None = None) -> dict[str, Any]:
    """Return the metadata of an integer field, from ``least`` to ``most``."""

    def keep(name: str, value: object) -> int:
        number = check.integer(name, value, least)
        if most is not None and number > most:
            raise ValueError(f"{name} = {number!r} must be at most {most:,}")
        return number

    return form(keep)


def probability(name: str, value: object) -> float | Fraction:
    """Return the checked ``value``, a probability: 0, or from 1e-300 to 1.

    A smaller probability could underflow to 0, and a non-private mechanism would seem private.
    """
    value = check.plain(name, value)
    near, given = check.probability(name, value), cast("Fraction", value)
    if (given > 0 and near < LIMITS.least_share) or given < 0 or given > 1:
        raise ValueError(f"{name} = {value!r} must be 0, or from {LIMITS.least_share:g} to 1")
    return check.number(name, value)


def positive(name: str, value: object) -> float | Fraction:
    """Return the checked ``value``, a number above 0."""
    value = check.plain(name, value)
    check.positive(name, value)
    return check.number(name, value)


def _non_negative(name: str, value: object) -> float | Fraction:
    value = check.plain(name, value)
    check.non_negative(name, value)
    return check.number(name, value)


def pure_epsilon(name: str, value: object) -> float | Fraction:
    """Return the checked ``value``, an epsilon: 0, or from 1e-150 to a million."""
    epsilon = _non_negative(name, value)
    if epsilon and not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise ValueError(
            f"{name} = {float(epsilon)!r} must be 0, or from 1e-150 to {MOST_EPSILON:g}"
        )
    return epsilon


def exact_above_zero(name: str, value: object) -> Fraction:
    """Return the checked ``value``, a number above 0, as an exact rational."""
    exact = check.exact(name, value)
    if exact <= 0:
        raise ValueError(f"{name} = {value!r} must be above 0")
    return exact


def exact_variance(
    sigma: float | Fraction | str | None, sigma_squared: float | Fraction | str | None
) -> Fraction:
    """Return sigma^2 of integer noise, exact, from one of the two arguments.

    Raises:
        ValueError: none or both are given, or sigma^2 is not from 1e-4 to 1e30.
    """
    if (sigma is None) == (sigma_squared is None):
        raise ValueError("give exactly one of sigma= and sigma_squared=")
    name, given = ("sigma", sigma) if sigma_squared is None else ("sigma_squared", sigma_squared)
    exact = exact_above_zero(name, given)
    exact = exact**2 if sigma_squared is None else exact
    if not Fraction(1, 10**4) <= exact <= LIMITS.variance:
        raise ValueError(
            f"{name} = {given!r}: sigma^2 must be between 1e-4 and 1e30. Below, hardly any noise "
            "is ever added; above, 64-bit integers no longer hold it"
        )
    return exact


NUMBER = form(check.number)
POSITIVE = form(positive)
NON_NEGATIVE = form(_non_negative)
EXACT_POSITIVE = form(exact_above_zero)
PROBABILITY = form(probability)
EPSILON = form(pure_epsilon)
COUNT = integer(1, LIMITS.count)
TRUTH = form(check.truth)
UNLESS_NORM = form(shown=lambda described: described.squared_norm is None)
"""Metadata for shifts: JSON has them unless their largest squared norm replaces them."""


def rational(number: float | Fraction) -> Fraction:
    """Return a checked number as an exact rational. A float means the decimal that it prints."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def private_rational(name: str, value: object) -> Fraction:
    """Return a private number as an exact rational. An error names only its type."""
    try:
        return Fraction(cast(Fraction, value))
    except (TypeError, ValueError, ArithmeticError):
        pass  # raise outside, so that the error has no context that shows the value
    raise TypeError(f"{name} is a {type(value).__name__}; it must be a finite number")


def private_integer(name: str, value: object) -> int:
    """Return a private integer. An error names only its type."""
    try:
        return index(cast(SupportsIndex, value))
    except TypeError:
        pass  # raise outside, so that the error has no context that shows the value
    raise TypeError(f"{name} is a {type(value).__name__}; it must be a whole number")


class Description(ABC):
    """Check the fields of a frozen dataclass once. JSON stores the name of its type.

    A direct subclass is a family, such as `Mechanism`. Its ``from_dict`` reads all types of the
    family.
    """

    _families: ClassVar[dict[str, type[Description]]] = {}
    _kinds: ClassVar[dict[str, type[Self]]]

    def __init_subclass__(cls) -> None:
        if Description in cls.__bases__:
            Description._families[cls.__name__] = cls
            cls._kinds = {}
        else:
            cls._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        self._keep(**{name: getattr(self, name) for name in _keepers(type(self))})

    def _keep(self, **values: object) -> None:
        """Set fields to the checked form of the values."""
        keepers = _keepers(type(self))
        for name, value in values.items():
            keep = keepers.get(name)
            object.__setattr__(self, name, value if keep is None else keep(name, value))

    def _fields(self) -> dict[str, Any]:
        """Return the fields as JSON types. By default, omit a field that is None."""
        written: dict[str, Any] = {}
        for one in fields(cast(Any, self)):
            value, shown = getattr(self, one.name), one.metadata.get("shown")
            if value is not None if shown is None else shown(self):
                written[one.name] = one.metadata.get("write", to_json)(value)
        return written

    @classmethod
    def _from_fields(cls, given: Mapping[str, Any]) -> Self:
        """Return the description with these values, each read by its field's rule."""
        values: dict[str, Any] = {}
        lacking: dict[str, Callable[[Self], bool]] = {}
        for one in fields(cast(Any, cls)):
            name, kind, metadata = one.name, str(one.type), one.metadata
            if name in given:
                read = metadata.get("read")
                values[name] = read(given[name]) if read else from_json(kind, given[name])
            elif "shown" in metadata:
                lacking[name] = metadata["shown"]
            elif not kind.endswith("| None"):
                raise KeyError(name)
        description = cls(**values)
        for name, shown in lacking.items():
            if shown(description):
                raise KeyError(name)
        return description


@cache
def _keepers(kind: type[Description]) -> Mapping[str, Keep]:
    """Return the ``keep`` function of each field that has one."""
    keepers: dict[str, Keep] = {}
    for one in fields(cast(Any, kind)):
        if (keep := one.metadata.get("keep")) is not None:
            keepers[one.name] = _unless_none(keep) if one.default is None else keep
    return keepers


def _unless_none(keep: Keep) -> Keep:
    return lambda name, value: None if value is None else keep(name, value)


@singledispatch
def to_json(value: object) -> object:
    """Return the value of a field as JSON types. A fraction becomes text."""
    return cast(Any, value).to_dict() if hasattr(value, "to_dict") else value


@to_json.register
def _(value: Fraction) -> str:
    return str(value)


@to_json.register(tuple)
@to_json.register(list)
def _(value: list[object]) -> list[object]:
    return [to_json(one) for one in value]


def from_json_number(value: T) -> T | Fraction:
    """Return the number that `to_json` wrote."""
    return check.exact("number", value) if isinstance(value, str) else value


def from_json(kind: str, value: object) -> object:
    """Return the value that `to_json` wrote, for a field whose annotation is ``kind``."""
    first = kind.partition(" | ")[0].rpartition(".")[2]
    for name, family in Description._families.items():  # pyright: ignore[reportPrivateUsage]
        if first == name or first in family._kinds:  # pyright: ignore[reportPrivateUsage]
            return cast(Any, family).from_dict(value)
    if "Fraction" not in kind:
        return value
    if "tuple" not in kind:
        return from_json_number(value)
    return [from_json_number(x) for x in cast("list[object]", value)]
