"""Kifer, Abowd et al. (2022), section by section."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import exp, sqrt

import neyman as ny
from reproductions.census_2020 import printed_figures
from reproductions.census_2020 import redistricting as census
from reproductions.facts import ALLOCATION
from reproductions.printed_numbers.entry import Entry, formula, given, missing, number, uncomputed

__all__ = ["SOURCE", "entries"]

SOURCE = "Kifer, Abowd et al. (2022), semantics of differential privacy"
LEVELS = "0.01 0.05 0.10"
SCENARIO_SECTIONS = {"B": "8.2.2", "C": "8.2.3", "D": "8.2.4", "E": "8.2.5", "F": "8.2.6"}
RHO_SECTIONS = {"all": "8.1", "A": "8.2.1", **SCENARIO_SECTIONS, "G": "8.2.7", "H": "8.2.8"}


def entries() -> Iterator[Entry]:
    """All entries, in the order of the text's sections."""
    yield from sorted(_unordered(), key=lambda e: [int(part) for part in e.section.split(".")])


def _unordered() -> Iterator[Entry]:
    cells = list(printed_figures.cells())
    yield from _before_the_tables()
    yield given(
        "6.1", "table 1", "epsilons and levels", "0.1, 0.5, 1, 2, 4; 0.01, 0.05, 0.10"
    ).covers(f"0.1 0.5 2 4 {LEVELS}")
    yield from _table(cells, "power_of_pure_dp", "6.1", "table 1, power", 3)
    yield given("6.3", "text", "the year of the census", "2020, twice").covers("2020 2020")
    yield given(
        "6.3",
        "text",
        "samples of each simulation",
        "one million",
        "we compose the noise exactly instead",
    )
    yield given("6.3", "table 2", "levels", "0.01, 0.05, 0.10").covers(LEVELS)
    yield from _table(cells, "power_of_2020_redistricting_release", "6.3", "table 2, power", 2)
    yield from _posteriors()
    yield from _allocation()
    yield given("8.2.1", "table 6", "levels", "0.01, 0.05, 0.10").covers(LEVELS)
    yield from _table(cells, "power_in_scenario_A", "8.2.1", "table 6, power", 2)
    yield from _scenarios()
    yield given("9", "sections 9 and 10", "years", "2020, three times").covers("2020 2020 2020")


def _before_the_tables() -> Iterator[Entry]:
    yield given("0", "abstract", "date of the release", "12 August 2021, 2020 census").covers(
        "2020 2020 12 2021"
    )
    yield given("1", "text", "years", "2006; 2020, four times").covers("2006 2020 2020 2020 2020")
    yield given("2", "text", "years of a study on cancer", "1952, 1972").covers("1952 1972 1972")
    yield given("2", "example", "ages of two records", "52, 60").covers("52 52 60")
    yield number(
        "2",
        "example",
        "count of women of age 52 without the record, from 523 with it",
        "522",
        523.0 - 1,
    ).covers("523 523 523 523 523 523 523 522 522 522 522 522")
    yield uncomputed(
        "2", "text", "opinions in a room", "23 among 10 people", "a figure of speech"
    ).covers("10 23")
    yield given(
        "4", "text", "people counted, and the date of that number", "331,449,281; 26 April 2021"
    ).covers("2020 331,449,281 26 2021")
    yield uncomputed(
        "4.2",
        "text",
        "errors in earlier microdata, about people over 65",
        "up to 15%",
        "a result of others, about confidential records",
    ).covers("15 65")
    yield given("4.2", "text", "years of earlier censuses", "2000, 2010").covers("2000 2000 2010")
    yield from _mechanisms()
    yield given("5.2.1", "text", "the year of the census", "2020, three times").covers(
        "2020 2020 2020"
    )
    yield given("6.4", "example", "years added to an age", "5").covers("5")


def _mechanisms() -> Iterator[Entry]:
    """Formulas of sections 4 and 5 that the text at hand lost, each at one point."""
    coin, normal = ny.RandomizedResponse(1), ny.gdp(1)
    q = 1 - float(coin.tradeoff().loss.cdf(0.5))
    yield missing("4.1", "example 4.3", "chance that the loss is ε, at ε = 1", q)
    yield formula(
        "4.1",
        "example 4.4",
        "the geometric mechanism has the loss of randomized response",
        "the same",
        "ε = 1: total variation",
        float(coin.tradeoff().advantage()),
        ny.DiscreteLaplace(1).tradeoff().advantage(),
    )
    yield missing("4.1", "example 4.5", "mean of the loss, 1/(2σ²), at σ = 1", normal.loss.mean)
    yield missing(
        "4.1", "example 4.5", "variance of the loss, 1/σ², at σ = 1", normal.loss.variance
    )
    subset = ny.RandomSubset(10, 100).tradeoff()
    yield missing(
        "4.1", "example 4.7", "chance of infinite loss, 10 of 100 records", subset.delta(50)
    )
    both = (coin * 2).tradeoff()
    tail = 1 - float(both.loss.cdf(0.999))
    yield missing(
        "4.2",
        "example 4.9",
        "chance that the loss of two answers is at least 1, at ε = 1 for each",
        tail,
        f"after one answer is dropped it is {q:.4f}, and after both 0",
    )
    yield missing(
        "5",
        "text",
        "largest change of the odds by two answers, at ε = 1 for each",
        exp(both.pure().upper),
    )
    yield formula(
        "5.1",
        "text",
        "δ at ε = 0 is the total variation",
        "the same",
        "the Gaussian mechanism of μ = 1",
        float(normal.delta(0)),
        normal.advantage(),
    )
    mu = sqrt(2 * 2.63)
    yield missing("5.2.1", "text", "μ = √(2ρ) of the 2020 release, at ρ = 2.63", mu)
    yield missing("5.2.1", "example 5.10", "probabilistic δ, at μ = 1, ε = 1", normal.pbdp(1))
    yield missing(
        "5.3",
        "after definition 5.12",
        "bound on the tail by ρ, at ρ = 2.63, ε = 10",
        exp(-((10 - 2.63) ** 2) / (4 * 2.63)),
        f"by the noise of μ = {mu:.4f} itself: {ny.gdp(mu).pbdp(10):.2g}",
    )
    yield missing(
        "6.2",
        "theorem 6.2",
        "power at level 0.05, at ε = 1, δ = 0.1",
        ny.approximate(1, 0.1).power(0.05),
    )


def _table(
    cells: list[printed_figures.Cell], table: str, section: str, place: str, digits: int
) -> Iterator[Entry]:
    """Yield the cells of one printed table of powers."""
    for cell in cells:
        if cell.table == table:
            what = ", ".join(part.replace("_", " ") for part in cell.place)
            printed = f"{cell.printed:.{digits}f}"
            yield number(
                section, place, what, printed, ny.Bound(cell.lower, cell.upper), why=cell.why
            )


def _posteriors() -> Iterator[Entry]:
    yield uncomputed(
        "7", "text", "largest δ of a theorem of others", "1/4", "a condition of a cited theorem"
    ).covers("4")
    yield formula(
        "7.3",
        "theorem",
        "ratio of posteriors under pure privacy",
        "at most e^ε",
        "ε = 1: chance of more",
        0.0,
        ny.posterior_ratio(ny.pure(1), 1),
        remark="the formula is missing in the text at hand",
    )
    yield missing("7.3", "footnote 13", "the factor for a default record, e^(2ε), at ε = 1", exp(2))
    yield given("7.3", "text", "an unreasonable prior", "3 arms").covers("3")
    yield given("7.3", "example 7.1", "other people, and possible datasets", "99; 2").covers(
        "99 99 2"
    )
    prior, value = 0.01, 100
    likelihoods = [exp(-((value - n) ** 2 - (value - 1) ** 2) / 2) for n in (1, 0)]
    posterior = prior * likelihoods[0] / (prior * likelihoods[0] + (1 - prior) * likelihoods[1])
    yield number(
        "7.3",
        "example 7.1",
        "ratio of posteriors",
        "100",
        posterior / prior,
        remark="“almost 100”. The prior 1/100, the noise N(0, 1), and the output 100 "
        "are missing in the text at hand",
    )
    yield given("7.4.1", "text", "the year of the census", "2020").covers("2020")
    yield given("7.4.2", "text", "the year of the census", "2020").covers("2020")


def _allocation() -> Iterator[Entry]:
    facts = ALLOCATION
    yield uncomputed(
        "8", "text", "people in an average block", "50", "about the confidential records"
    ).covers("50 2020")
    yield given("8.1", "text", "year, directive, and law", "2020; 15 of 1997").covers(
        "2020 15 1997"
    )
    yield given("8.1", "text", "voting age", "18 and over, 17 and under").covers(
        "18 18 18 17 17 17"
    )
    yield number(
        "8.1", "text, table 5", "races: combinations of six, none left out", "63", 2.0**6 - 1
    ).covers("63 63 63 63 63")
    yield given("8.1", "text", "kinds of group quarters", "7").covers("7")
    for name, cells in (
        ("HHGQ", "8"),
        ("HISPANIC × CENRACE, and VOTINGAGE × CENRACE", "126"),
        ("VOTINGAGE × HISPANIC", "4"),
        ("VOTINGAGE × HISPANIC × CENRACE", "252"),
        ("HHGQ × VOTINGAGE × HISPANIC × CENRACE", "2016"),
    ):
        ours = {"8": 7 + 1, "126": 2 * 63, "4": 2 * 2, "252": 2 * 2 * 63, "2016": 8 * 2 * 2 * 63}[
            cells
        ]
        covered = {"126": "126 126 126", "2016": "2,016"}.get(cells, cells)
        yield number("8.1", "table 5", f"{name}: cells", cells, float(ours)).covers(covered)
    yield given("8.1", "table 5", "HISPANIC, VOTINGAGE, and HHINSTLEVELS: cells", "2, 2, 3").covers(
        "2 2 3"
    )
    yield given("8.1", "table 3", "ρ of persons and of housing units", "2.56, 0.07").covers(
        "2.56 2.56 0.07 0.07"
    )
    yield given("8.1", "text", "entries at the level of states", "more than 51").covers("51")
    for level, persons in facts["geolevel_persons"].items():
        housing = facts["geolevel_housing"][level]
        again = f"{persons} 12 4097".replace("/", " ") if level == "State" else ""
        yield given(
            "8.1",
            "table 4",
            f"{level.replace('_', ' ')}: shares of persons, housing units",
            f"{persons}, {housing}",
        ).covers(f"{persons} {housing} {again}".replace("/", " "))
    for query in facts["queries"]:
        row = [facts["query_proportions"][level][query] for level in facts["geolevels"]]
        text = ", ".join("0" if share == "0/1" else share for share in row)
        yield given(
            "8.1", "table 5", f"{query.replace('*', ' × ')}: shares, nation to block", text
        ).covers(text.replace("/", " ").replace(",", ""))
    yield formula(
        "8.1",
        "table 4",
        "shares of persons sum to",
        "1",
        "all levels",
        1.0,
        _sum(facts["geolevel_persons"]),
    )
    yield formula(
        "8.1",
        "table 4",
        "shares of housing units sum to",
        "1",
        "all levels",
        1.0,
        _sum(facts["geolevel_housing"]),
    )
    for level in facts["geolevels"]:
        yield formula(
            "8.1",
            "table 5",
            "shares of a level sum to",
            "1",
            level.replace("_", " "),
            1.0,
            _sum(facts["query_proportions"][level]),
        )
    county = Fraction("0.07") * Fraction(facts["geolevel_housing"]["County"])
    state = Fraction("2.56") * Fraction(facts["geolevel_persons"]["State"]) * Fraction(12, 4097)
    yield missing("8.1", "text", "ρ of the occupancy status of a county", float(county))
    yield missing("8.1", "text", "ρ of VOTINGAGE × CENRACE in a state", float(state))


def _sum(shares: dict[str, str]) -> float:
    """Return the sum of exact shares."""
    return float(sum(map(Fraction, shares.values())))


def _scenarios() -> Iterator[Entry]:
    for scenario in census.SCENARIOS:
        section = RHO_SECTIONS[scenario.name]
        rho = scenario.release().rho()
        yield missing(section, "text", f"ρ: {scenario.concern}", float(rho))
        if scenario.name in "CDEF":
            for level, power in zip(
                census.TESTED, ny.gdp(sqrt(2 * rho)).powers(census.TESTED), strict=True
            ):
                yield missing(section, "text", f"level {level:.2f}: Gaussian power", power)
