"""Published figures that no other page compares: certificates, levels of place, parameters."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import neyman as ny
from reproductions.census_2020 import printed_figures
from reproductions.census_2020 import redistricting as census
from reproductions.dp_sgd import last_iterate
from reproductions.facts import ALLOCATION, PUBLISHED
from reproductions.printed_numbers import su_tables
from reproductions.printed_numbers.entry import Entry, formula, given, number

__all__ = ["ELSEWHERE", "SOURCE", "entries"]

SOURCE = "published certificates and figures"
ELSEWHERE = {
    "power_of_pure_dp": "kifer-abowd",
    "power_of_2020_redistricting_release": "kifer-abowd",
    "power_in_scenario_A": "kifer-abowd",
    "shuffled_mechanism": "su",
}
"""Tables of the facts that stand on the page of the text that prints them."""
CERTIFICATES, LEVELS, ITERATES = (
    "redistricting_epsilon_at_delta_1e-10",
    "dhc_f_dp",
    "noisy_cyclic_gradient_descent",
)


def entries() -> Iterator[Entry]:
    """All entries, table by table of the facts."""
    cells = list(printed_figures.cells())
    yield from _certificates(cells)
    yield from _levels(cells)
    yield from _iterates()


def _certificates(cells: list[printed_figures.Cell]) -> Iterator[Entry]:
    place = "U.S. Census Bureau"
    for cell, certificate in zip(
        [c for c in cells if c.table == CERTIFICATES], census.certificates(), strict=True
    ):
        yield number(
            CERTIFICATES,
            f"{place}, ε at δ = 1e-10",
            certificate.concern,
            f"{cell.printed:.2f}",
            ny.Bound(cell.lower, cell.upper),
        ).covers(str(cell.printed))
    rho = ALLOCATION["rho"]
    for who in ("persons", "housing"):
        exact = Fraction(rho[f"{who}_production_exact"])
        yield number(
            CERTIFICATES,
            place,
            f"ρ of {who}, rounded, from {exact}",
            rho[f"{who}_rounded"],
            float(exact),
        ).covers("")


def _levels(cells: list[printed_figures.Cell]) -> Iterator[Entry]:
    facts: Any = PUBLISHED[LEVELS]
    for when, total in (("march_2022", 665), ("august_2022", 1000)):
        title, allocation = when.replace("_", " ").capitalize(), facts[when]
        place = f"Su, Su and Wang (2024), {title}"
        shares = allocation[f"shares_per_{total}"]
        yield given(LEVELS, place, "queries per level", str(allocation["n"])).covers(
            str(allocation["n"])
        )
        yield given(LEVELS, place, "ρ of all levels", str(allocation["rho"])).covers(
            str(allocation["rho"])
        )
        yield given(
            LEVELS,
            place,
            f"shares per {total}, nation to block",
            ", ".join(map(str, shares.values())),
            "the share of the level below the county is what the other seven leave",
        ).covers(" ".join(map(str, shares.values())))
        yield formula(
            LEVELS, place, "shares sum to", str(total), "eight levels", total, sum(shares.values())
        )
    names = {
        "reduction_of_epsilon_vs_bun_steinke_percent": "reduction of ε, percent",
        "reduction_of_noise_variance_percent": "reduction of the noise variance, percent",
    }
    yield from (
        e.covers(e.numerals[0])
        for e in su_tables.levels(LEVELS, "Su, Su and Wang (2024), March 2022")
    )
    for cell in cells:
        if cell.table == LEVELS and cell.place[0] == "august_2022":
            _, level, what = cell.place
            yield number(
                LEVELS,
                "Su, Su and Wang (2024), August 2022",
                f"{names[what]}: {level}",
                f"{cell.printed:.2f}",
                ny.Bound(cell.lower, cell.upper),
            ).covers(str(cell.printed))


def _iterates() -> Iterator[Entry]:
    place = "Bok, Su and Altschuler (2024), table 1"
    facts: Any = PUBLISHED[ITERATES]
    for name, value in facts["parameters"].items():
        yield given(ITERATES, place, name.replace("_", " "), str(value)).covers(str(value))
    p = facts["parameters"]
    yield number(
        ITERATES,
        place,
        "contraction, 1 − step size × regularization",
        str(p["contraction"]),
        1 - p["step_size"] * p["regularisation"],
    ).covers("")
    for entry, cell in zip(su_tables.iterates(ITERATES, place), last_iterate.cells(), strict=True):
        epochs, column = cell.place
        shown = epochs.split()[0] + " " if column == "composition" else ""
        yield entry.covers(f"{shown}{cell.printed}")
