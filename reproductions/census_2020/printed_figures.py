"""Every figure that the census papers print, beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from neyman import pure
from reproductions.census_2020 import dhc
from reproductions.census_2020 import redistricting as census
from reproductions.facts import PUBLISHED

__all__ = ["Cell", "cells"]


@dataclass(frozen=True)
class Cell:
    """One printed figure.

    Args:
        table: its key in the facts.
        place: where in the table it stands: row and column.
        printed: the figure.
        digits: how many decimals the table has.
        lower: ours is at least this, ...
        upper: ... and at most this.
        why: what is wrong with the printed one; empty where nothing is known to be.
    """

    table: str
    place: tuple[str, ...]
    printed: float
    digits: int
    lower: float
    upper: float
    why: str = ""

    @property
    def ours(self) -> float:
        """Ours to as many decimals.

        Raises:
            ArithmeticError: what is known of ours does not say.
        """
        low, high = round(self.lower, self.digits), round(self.upper, self.digits)
        if low != high:
            raise ArithmeticError(f"{self.place}: between {self.lower} and {self.upper}")
        return low

    @property
    def agrees(self) -> bool:
        """Whether ours rounds to the printed figure."""
        return self.ours == self.printed


def cells() -> Iterator[Cell]:
    """All of them, in the order of the facts."""
    yield from _power_of_pure_dp("power_of_pure_dp", 3)
    yield from _powers("power_of_2020_redistricting_release", "all", 2)
    yield from _powers("power_in_scenario_A", "A", 2)
    yield from _certificates("redistricting_epsilon_at_delta_1e-10", 2)
    yield from _levels("dhc_f_dp", 2)


def _power_of_pure_dp(table: str, digits: int) -> Iterator[Cell]:
    facts = PUBLISHED[table]
    for level, row in facts["level"].items():
        for epsilon, figure in zip(facts["epsilon"], row, strict=True):
            bound = pure(epsilon).power(float(level))
            wrong = f"{level},{epsilon:g}" in facts["misprints"]
            why = f"a misprint: the formula gives {bound.upper:.4f}" if wrong else ""
            place = (f"level {level}", f"epsilon {epsilon:g}")
            yield Cell(table, place, figure, digits, bound.lower, bound.upper, why)


def _powers(table: str, scenario: str, digits: int) -> Iterator[Cell]:
    facts = PUBLISHED[table]
    (chosen,) = (s for s in census.SCENARIOS if s.name == scenario)
    result = census.Powers.of(chosen.release(), facts["level"])
    columns = {
        "gaussian": result.gaussian,
        "discrete_gaussian": result.exact,
        "zcdp_upper_bound": result.zcdp,
    }
    for column, bounds in columns.items():
        for level, figure, bound in zip(facts["level"], facts[column], bounds, strict=True):
            place = (f"level {level:.2f}", column)
            yield Cell(table, place, figure, digits, bound.lower, bound.upper)


def _certificates(table: str, digits: int) -> Iterator[Cell]:
    for certificate in census.certificates():
        bound = certificate.epsilon()
        figure: Any = PUBLISHED[table]
        for key in certificate.name.split("."):
            figure = figure[key]
        yield Cell(table, (certificate.name,), figure, digits, bound.lower, bound.upper)


def _levels(table: str, digits: int) -> Iterator[Cell]:
    march, august = (PUBLISHED[table][when] for when in ("march_2022", "august_2022"))
    levels = {(when, x.place): x for when, a in dhc.ALLOCATIONS.items() for x in a.levels}
    us = levels["march_2022", "us"].epsilons
    for name, bound in (("bun_steinke_epsilon", us.bun_steinke), ("exact_epsilon", us.exact)):
        figure = march["us_level"][name]
        yield Cell(table, ("march_2022", "us", name), figure, digits, bound.lower, bound.upper)
    epsilons = "reduction_of_epsilon_vs_bun_steinke_percent"
    noise = "reduction_of_noise_variance_percent"
    for label, figure in august[epsilons].items():
        low, high = levels["august_2022", _place(label)].epsilons.reduction
        yield Cell(table, ("august_2022", label, epsilons), figure, digits, low, high)
    for label, figure in august[noise].items():
        level = levels["august_2022", _place(label)]
        result = level.noise_saved(level.epsilons.bun_steinke.upper)
        yield Cell(table, ("august_2022", label, noise), figure, digits, result, result)


def _place(label: str) -> str:
    """Return the level in "smallest (state)"."""
    return label.partition("(")[2].rstrip(")")
