"""The tables of Su's review: last iterates, shuffled reports, and the census."""

from __future__ import annotations

from collections.abc import Iterator

import neyman as ny
from reproductions.census_2020 import dhc
from reproductions.dp_sgd import last_iterate
from reproductions.printed_numbers.entry import Entry, number
from reproductions.shuffling import tables

__all__ = ["iterates", "levels", "shuffles"]


def iterates(section: str, place: str) -> Iterator[Entry]:
    """Yield the epsilons of the last iterate, at three numbers of epochs."""
    names = {"composition": "composition", "renyi": "Rényi", "f_dp": "f-DP"}
    for cell in last_iterate.cells():
        epochs, column = cell.place
        printed = f"{cell.printed:.2f}"
        yield number(
            section,
            place,
            f"{epochs}, {names[column]}: ε",
            printed,
            ny.Bound(cell.lower, cell.upper),
        ).covers(f"{epochs.split()[0]} {printed}" if column == "composition" else printed)


def shuffles(section: str, deltas: str, epsilons: str) -> Iterator[Entry]:
    """Yield the two tables about shuffled reports."""
    above = "printed above ours: on the safe side"
    for row in tables.rows("delta_by_epsilon"):
        at, ours = f"ε = {row.given:g}", row.ours
        closed, curve = row.printed["closed_form"], row.printed["f_dp"]
        yield number(
            section,
            deltas,
            f"{at}: δ, closed form",
            _decimal(closed),
            row.formula,
            why="cut off, not rounded" if closed == 0.9494 else "",
        ).covers(f"{_given(row.given)} {_scientific(closed)}")
        yield number(
            section,
            deltas,
            f"{at}: δ by f-DP",
            _decimal(curve),
            ours.upper,
            why=above if row.given >= 0.7 else "",
        ).covers(_scientific(curve))
    for row in tables.rows("epsilon_by_delta"):
        at = f"δ = {row.given:g}"
        curve = row.printed["f_dp"]
        yield number(section, epsilons, f"{at}: ε by f-DP", f"{curve:.1f}", row.ours.upper).covers(
            f"{_scientific(row.given)} {curve}"
        )
        yield number(
            section,
            epsilons,
            f"{at}: ε, upper bound",
            f"{row.printed['numerical_upper']:.3f}",
            row.closed or tables.LOCAL,
        )
        yield number(
            section,
            epsilons,
            f"{at}: ε, lower bound",
            f"{row.printed['numerical_lower']:.3f}",
            row.ours,
            relation=">=",
            remark="coarser than ours",
        )
    yield number(
        section, epsilons, "caption: the trivial bound, ε of one report", "4.444", tables.LOCAL
    )
    yield number(
        section,
        epsilons,
        "caption: the closed form is invalid at δ of at most",
        "1e-7",
        tables.LOCAL_DELTA,
        relation=">=",
        remark="it holds down to δ = 1e-6",
    ).covers("10 7")


def _decimal(value: float) -> str:
    return f"{value:.0e}" if value < 1e-3 else f"{value:.4f}"


def _given(value: float) -> str:
    return f"{value:.1f}"


def _scientific(value: float) -> str:
    """Return the numerals of a number that is printed as a product by a power of ten."""
    if value >= 1e-3:
        return f"{value:.4f}"
    digit, exponent = f"{value:.0e}".split("e-")
    return f"{'' if digit == '1' else digit} 10 {int(exponent)}"


def levels(section: str, place: str) -> Iterator[Entry]:
    """Yield the national level of March 2022."""
    us = dhc.ALLOCATIONS["march_2022"].levels[0].epsilons
    yield number(
        section,
        place,
        "US level, δ = 1e-11: ε by Rényi divergences",
        "2.63",
        us.bun_steinke,
        remark="the conversion of Bun and Steinke. It is not the ρ = 2.63 of redistricting",
    )
    yield number(section, place, "US level, δ = 1e-11: ε by f-DP", "2.32", us.exact)
