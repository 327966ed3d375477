"""Check the arguments of private tests before the ledger is charged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast, get_args

from neyman.accounting.semantics.budget import AtMost
from neyman.curves.tradeoff.curve import Described
from neyman.curves.tradeoff.guarantees import gdp
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.canonical.canonical_noise import CanonicalNoise
from neyman.mechanisms.canonical.polygon_noise import polygons
from neyman.numerics import check

Alternative = Literal["greater", "less", "two-sided"]
ALTERNATIVES = get_args(Alternative)


@dataclass(frozen=True)
class Limits:
    """Limit the inputs of a test."""

    records: int = 10**9
    released_size: int = 1 << 61  # more than any noisy count or sum
    least_level: Fraction = Fraction(1, 10**8)  # above the absolute errors of tails


LIMITS = Limits()


def records(name: str, value: object) -> int:
    """Return a public number of records, at most 10^9."""
    number = check.integer(name, value, 1)
    if number > LIMITS.records:
        raise ValueError(f"{name} = {number} must be at most {LIMITS.records:g}")
    return number


def inside(name: str, value: object) -> Fraction:
    """Return an exact number between 0 and 1, both excluded."""
    exact = check.exact(name, value)
    if not 1e-300 <= exact < 1:
        raise ValueError(
            f"{name} = {value!r} must be between 0 and 1, both excluded, and at least 1e-300"
        )
    return exact


def alternative_of(value: object) -> Alternative:
    """Return the alternative if it is valid."""
    return cast(Alternative, check.one_of("alternative", value, ALTERNATIVES))


def noise_of(budget: Described) -> CanonicalNoise:
    """Return canonical noise that is certified to meet a budget [PT-2].

    A budget of rho-zCDP gets the noise of the Gaussian curve G_mu with mu^2 = 2 rho, because the
    noise of the curve that zCDP implies need not meet zCDP.

    Raises:
        ValueError: no canonical noise meets the budget.
    """
    curve = check.described("budget", budget).tradeoff()
    if not isinstance(curve, Tradeoff):
        raise TypeError(f"budget = {budget!r} must be a budget, such as ny.gdp(1) or ny.pure(1)")
    if curve.neighboring == "add-remove":
        raise ValueError(
            f"budget = {budget!r} is stated under 'add-remove'; these tests need 'replace-one', "
            "because n is public. Give a curve by its name, such as ny.gdp(0.5)"
        )
    given, rho = curve, curve.bare_rho()
    if rho is not None and rho > 0:
        curve = gdp(_root_below(2 * rho))
    elif isinstance(budget, AtMost):  # a parameter that is rounded up does not meet it
        curve = gdp(budget.mu * (1 - 1e-9))
    try:
        noise = CanonicalNoise(curve)
        polygons(curve)
    except ValueError as error:
        raise ValueError(f"budget: {error}") from None
    try:
        admitted: bool = getattr(budget, "admits", given.admits)(noise)
    except ValueError:  # no parameter of the budget's kind is proven for this noise
        admitted = False
    if not admitted:
        raise ValueError(
            f"budget = {budget!r}: canonical noise of its curve does not meet it, because it bounds"
            " more than a curve. Give a curve, such as ny.gdp(0.5) or ny.approximate(1, 1e-6)"
        )
    return noise


def _root_below(value: Fraction) -> float:
    """Return a float at or below the square root of an exact number."""
    near = math.sqrt(value)
    while Fraction(near) ** 2 > value:
        near = math.nextafter(near, 0.0)
    return near


def clipped_count(value: object, n: int) -> int:
    """Return a count, rounded down and clipped to 0, ..., n. Return 0 if it is not a number."""
    try:
        if isinstance(value, int):
            return min(max(value, 0), n)
        number = float(cast(float, value))
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return n if number > 0 else 0
        return min(max(math.floor(cast(float, value)), 0), n)
    except Exception:
        return 0


def released_number(value: object) -> Fraction:
    """Return a noisy count from a receipt, as an exact number."""
    place = check.exact("released", value)
    if abs(place) > LIMITS.released_size:
        raise ValueError("released must be a noisy count from a receipt, from -2^61 to 2^61")
    return place


def released_integer(value: object) -> int:
    """Return a noisy integer from a receipt."""
    number = check.integer("released", value, -LIMITS.released_size)
    if number > LIMITS.released_size:
        raise ValueError("released must be a noisy number from a receipt, from -2^61 to 2^61")
    return number


def tested_level(value: object) -> Fraction:
    """Return the level of a test whose power is computed."""
    level = inside("level", value)
    if level < LIMITS.least_level:
        raise ValueError(f"level = {value!r} must be at least 1e-8, where tails have their digits")
    return level
