"""The 2020 redistricting data: what its noisy counts can tell about one person, by attribute.

People and housing units of the United States were counted at six nested levels of place, by eleven
person queries and one housing query. Neighbors differ in one record, which is replaced: it leaves
one cell of a query and enters another, so two cells move by one. A query of budget rho has discrete
Gaussian noise with sigma^2 = 1 / rho on each cell. Released were 71 queries that a record can move
(the national total is not one of them).

Who is concerned about an attribute asks only of the queries that this attribute can move.

Source: Kifer, Abowd et al. 2022, section 8 and tables 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman import Bound, DiscreteGaussian, Mechanism, Tradeoff, gdp, zcdp
from neyman.accounting.literature.conversions import canonne_kamath_steinke_zcdp
from neyman.mechanisms import Composed
from neyman.numerics import UNIT
from reproductions.facts import ALLOCATION

__all__ = [
    "ATTRIBUTES",
    "CERTIFICATE_DELTA",
    "PLACES",
    "PRODUCTION",
    "ROUNDED",
    "SCENARIOS",
    "TESTED",
    "Budget",
    "Certificate",
    "Powers",
    "Query",
    "Scenario",
    "certificates",
    "concerning",
    "queries",
    "release",
    "true_record",
]

PLACES: tuple[str, ...] = tuple(name.lower() for name in ALLOCATION["geolevels"])
ATTRIBUTES: tuple[str, ...] = tuple(
    dict.fromkeys(a for names in ALLOCATION["attributes_of_query"].values() for a in names)
)
TESTED = (0.01, 0.05, 0.10)
CERTIFICATE_DELTA = 1e-10


@dataclass(frozen=True)
class Budget:
    """The zCDP budgets (rho) of the queries about persons and about housing units, exact."""

    persons: Fraction
    housing: Fraction


def _budget(persons: str, housing: str) -> Budget:
    return Budget(Fraction(ALLOCATION["rho"][persons]), Fraction(ALLOCATION["rho"][housing]))


ROUNDED = _budget("persons_rounded", "housing_rounded")
PRODUCTION = _budget("persons_production_exact", "housing_production_exact")


@dataclass(frozen=True)
class Query:
    """One query at one level of place.

    Args:
        place: the level, as in `PLACES`.
        name: what is counted, such as "hispanic*cenrace".
        persons: whether persons are counted, not housing units.
        attributes: those that can move a record from cell to cell within its place.
        cells: how many counts it has in one place.
        rho: its budget, above 0.
    """

    place: str
    name: str
    persons: bool
    attributes: frozenset[str]
    cells: int
    rho: Fraction

    def mechanism(self) -> DiscreteGaussian:
        """Its noise: sigma^2 = 1 / rho, and two cells that move by one."""
        return DiscreteGaussian(sigma_squared=1 / self.rho, sensitivity=[(1, 1)])


def queries(budget: Budget = ROUNDED) -> tuple[Query, ...]:
    """All queries that a record can move; the national total has no budget."""
    facts, results = ALLOCATION, []
    for level, place in zip(facts["geolevels"], PLACES, strict=True):
        persons = budget.persons * Fraction(facts["geolevel_persons"][level])
        for name in facts["queries"]:
            rho = persons * Fraction(facts["query_proportions"][level][name])
            attributes = frozenset(facts["attributes_of_query"][name])
            results.append(Query(place, name, True, attributes, facts["cells"][name], rho))
        rho = budget.housing * Fraction(facts["geolevel_housing"][level])
        results.append(Query(place, "occupancy", False, frozenset(), 2, rho))
    return tuple(query for query in results if query.rho)


def concerning(
    *attributes: str, within: str | None = None, budget: Budget = ROUNDED
) -> tuple[Query, ...]:
    """Return the queries whose answers can change when only these attributes of one record do.

    Args:
        attributes: of `ATTRIBUTES`, and at most one of `PLACES`.
        within: the larger place that stays the same, where a place is among the attributes: all
            queries below it can change.
        budget: whose rho the queries have.

    Raises:
        ValueError: there is no such attribute, or ``within`` is missing, unknown or not larger.
    """
    places = [a for a in attributes if a in PLACES]
    personal = frozenset(attributes) - frozenset(PLACES)
    for name in sorted(personal - frozenset(ATTRIBUTES)):
        raise ValueError(
            f"attribute = {name!r} is not in the redistricting data: it has "
            f"{', '.join(ATTRIBUTES)}, and the places {', '.join(PLACES)}"
        )
    if not attributes or len(places) > 1:
        raise ValueError(
            f"attributes = {attributes!r} must be at least one, with one place at most"
        )
    if within is not None and not places:
        raise ValueError(f"within = {within!r} needs a place among the attributes, such as 'block'")
    moved: tuple[str, ...] = ()
    if places:
        larger = PLACES[: PLACES.index(places[0])]
        if within not in larger:
            raise ValueError(
                f"within = {within!r}: {places[0]} can be within {', '.join(larger) or 'nothing'}"
            )
        moved = PLACES[PLACES.index(within) + 1 :]
    return tuple(q for q in queries(budget) if q.place in moved or q.attributes & personal)


def release(chosen: Iterable[Query]) -> Mechanism:
    """Return the noisy answers of these queries, as one mechanism."""
    return Composed.of([(query.mechanism(), 1) for query in chosen])


@dataclass(frozen=True)
class Scenario:
    """What someone is concerned about.

    Args:
        name: its letter in section 8 of the paper; "all" is the whole release.
        concern: in words.
        attributes: of the record, as in `concerning`; none for all of them.
        within: the place that is no concern.
    """

    name: str
    concern: str
    attributes: tuple[str, ...] = ()
    within: str | None = None

    def queries(self, budget: Budget = ROUNDED) -> tuple[Query, ...]:
        """Return the queries that can change."""
        if not self.attributes:
            return queries(budget)
        return concerning(*self.attributes, within=self.within, budget=budget)

    def release(self, budget: Budget = ROUNDED) -> Mechanism:
        """Their noisy answers."""
        return release(self.queries(budget))


SCENARIOS = (
    Scenario("all", "anything"),
    Scenario("A", "block within block group", ("block",), "block_group"),
    Scenario("B", "block within tract", ("block",), "tract"),
    Scenario("C", "race", ("race",)),
    Scenario("D", "ethnicity", ("ethnicity",)),
    Scenario("E", "race, and block within tract", ("race", "block"), "tract"),
    Scenario(
        "F", "voting age, and block within block group", ("votingage", "block"), "block_group"
    ),
    Scenario(
        "G",
        "voting age and race, and block within block group",
        ("votingage", "race", "block"),
        "block_group",
    ),
    Scenario(
        "H",
        "voting age and ethnicity, and block within block group",
        ("votingage", "ethnicity", "block"),
        "block_group",
    ),
)


@dataclass(frozen=True)
class Powers:
    """What the best test finds out at each level.

    Args:
        gaussian: if the noise were Gaussian, with the same rho.
        exact: with the discrete noise that was used, all queries composed exactly.
        zcdp: the most that any mechanism with this rho allows.
    """

    gaussian: tuple[Bound, ...]
    exact: tuple[Bound, ...]
    zcdp: tuple[Bound, ...]

    def part(self, some: slice) -> Powers:
        """At some of the levels."""
        return Powers(self.gaussian[some], self.exact[some], self.zcdp[some])

    @staticmethod
    def of(
        mechanism: Mechanism, levels: Sequence[float] = TESTED, curve: Tradeoff | None = None
    ) -> Powers:
        """Return the Gaussian, exact, and zCDP powers of one mechanism, each computed by itself.

        Args:
            mechanism: what is released.
            levels: in [0, 1].
            curve: its ``tradeoff()``, where that is at hand.
        """
        rho = mechanism.rho()
        curves = gdp(math.sqrt(2 * rho)), curve or mechanism.tradeoff(), zcdp(rho)
        return Powers(*(tuple(curve.powers(levels)) for curve in curves))


def true_record(curve: Tradeoff, levels: Sequence[float]) -> list[tuple[float, float]]:
    """Points (epsilon, delta) on or above `Tradeoff.pbdp`, for little more than one costs.

    The power p at a level a gives the point (log(p / a), p): power over level never rises with the
    level, so what exceeds e^epsilon = p / a has a smaller level, and with it no more power.

    Args:
        curve: of any release.
        levels: in (0, 1]; each gives one point.
    """
    power = np.array([bound.upper for bound in curve.powers(levels)])
    epsilon = np.log(power / np.asarray(levels))
    return list(zip((epsilon + 4 * UNIT * (1 + epsilon)).tolist(), power.tolist(), strict=True))


@dataclass(frozen=True)
class Certificate:
    """One of the published privacy-loss certificates.

    Args:
        name: its path in the facts, such as "persons_within.tract".
        concern: what may change, in words.
        queries: those that it is about; persons and housing units are kept apart.
    """

    name: str
    concern: str
    queries: tuple[Query, ...]

    @property
    def rho(self) -> Fraction:
        """The sum of their budgets."""
        return sum((query.rho for query in self.queries), Fraction(0))

    def epsilon(self) -> Bound:
        """Return the epsilon that zCDP implies at delta 1e-10, by the conversion that was used."""
        return canonne_kamath_steinke_zcdp(self.rho, CERTIFICATE_DELTA)


def certificates(budget: Budget = PRODUCTION) -> tuple[Certificate, ...]:
    """All sixteen, each about the queries that a change of its kind can move."""

    def one(name: str, concern: str, chosen: Iterable[Query], persons: bool) -> Certificate:
        return Certificate(name, concern, tuple(q for q in chosen if q.persons == persons))

    total = queries(budget)
    results = [one("persons_total", "anything about a person", total, True)]
    for name, attribute in (
        ("hhgq", "hhgq"),
        ("voting_age", "votingage"),
        ("ethnicity", "ethnicity"),
        ("race", "race"),
    ):
        concern = {"hhgq": "household or kind of group quarters"}.get(name, name.replace("_", " "))
        results.append(one(name, concern, concerning(attribute, budget=budget), True))
    for what, who, persons in (("persons", "a person", True), ("units", "a housing unit", False)):
        for place in reversed(PLACES[:-1]):
            chosen = concerning("block", within=place, budget=budget)
            larger = "the US" if place == "us" else f"a {place.replace('_', ' ')}"
            concern = f"where within {larger} {who} is"
            results.append(one(f"{what}_within.{place}", concern, chosen, persons))
    return (*results, one("units_total", "anything about a housing unit", total, False))
