"""A nation of 331,449,281 simulated people in 8 million simulated blocks.

The 51 state populations are those of the 2020 Census. They are shared out to the 3,143 counties in
proportion to the Census Bureau's estimates of July 1, 2020. Everything below a county is simulated:
tracts, block groups, and blocks of about the usual sizes, and each person's block, race, ethnicity,
age group, and quarters. A county's shares are drawn around rounded shares of the nation. The same
people come back each time: these draws have a seed. The noise has none.

Source: the county estimates are in the public domain, and were taken from the Python package
delphi_utils 0.3.24 (``data/2020/fips_pop.csv``). The state counts are those that the Bureau
published on April 26, 2021.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

__all__ = ["County", "State", "states"]

Integers = NDArray[np.int64]

TRACT_PEOPLE = 3930  # people of a tract, on average
MOST_GROUPS = 5  # block groups of a tract; the average is near 2.85
BLOCKS = (10, 57)  # of a block group, least and most
EVENNESS = 0.35  # of a county's blocks: most have few people, and some have many

# Rounded shares of the nation. Several races share theirs in proportion to the product of each.
RACES = (0.616, 0.124, 0.011, 0.060, 0.002, 0.084)
SEVERAL_RACES = 0.103
ETHNICITY = (0.813, 0.187)
VOTING_AGE = (0.221, 0.779)
QUARTERS = (0.9752, 0.0059, 0.0002, 0.0049, 0.0002, 0.0084, 0.0010, 0.0042)
SPREAD = 0.6  # of the logarithms of a county's shares


@dataclass(frozen=True)
class County:
    """A county and its places.

    Args:
        code: the FIPS code, which seeds its draws.
        people: how many.
        groups: how many block groups each tract has.
        blocks: how many blocks each block group has.
    """

    code: str
    people: int
    groups: Integers
    blocks: Integers

    def rows(self) -> tuple[Integers, Integers]:
        """Return each person's block in the county and detailed cell, by block."""
        random = np.random.default_rng([int(self.code), 1])
        sizes = random.gamma(EVENNESS, size=int(self.blocks.sum())) + 1e-9
        people = random.multinomial(self.people, sizes / sizes.sum())
        edges = np.cumsum(_shares(random))
        cells = np.searchsorted(edges[:-1], random.random(self.people), side="right")
        return np.repeat(np.arange(len(people)), people), cells


@dataclass(frozen=True)
class State:
    """A state, by its postal code.

    Args:
        people: its exact population.
    """

    name: str
    people: int
    counties: tuple[County, ...]


def states() -> Iterator[State]:
    """Yield the 51 states, DC among them, by their postal codes."""
    estimates: dict[str, list[tuple[str, int]]] = {}
    for row in _read("county_population_2020.csv"):
        estimates.setdefault(row["state"], []).append((row["county"], int(row["estimate"])))
    for row in _read("state_population_2020.csv"):
        name, people = row["state"], int(row["census"])
        codes, weights = zip(*estimates[name], strict=True)
        shared = _shared(people, np.array(weights))
        counties = (_county(c, int(n)) for c, n in zip(codes, shared, strict=True))
        yield State(name, people, tuple(counties))


def _read(name: str) -> list[dict[str, str]]:
    text = (files("reproductions") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _shared(total: int, weights: Integers) -> Integers:
    """Whole numbers that add up, by largest remainder."""
    parts, rest = np.divmod(total * weights, weights.sum())
    parts[np.argsort(-rest, kind="stable")[: total - int(parts.sum())]] += 1
    return parts


def _county(code: str, people: int) -> County:
    random = np.random.default_rng([int(code), 0])
    tracts = max(1, round(people / TRACT_PEOPLE))
    groups = 1 + random.binomial(MOST_GROUPS - 1, 0.4625, size=tracts)
    blocks = random.integers(*BLOCKS, size=int(groups.sum()), endpoint=True)
    return County(code, people, groups, blocks)


def _shares(random: np.random.Generator) -> NDArray[np.float64]:
    """Return a county's share of each detailed cell; quarters come first, and races last."""
    alone = np.array(RACES)
    several = [[i for i in range(6) if code >> i & 1] for code in range(1, 64)]
    several = sorted((kinds for kinds in several if len(kinds) > 1), key=lambda k: (len(k), k))
    products = np.array([alone[kinds].prod() for kinds in several])
    race = np.concatenate([alone, SEVERAL_RACES * products / products.sum()])
    result: NDArray[np.float64] = np.ones(1)
    for shares in (QUARTERS, VOTING_AGE, ETHNICITY, race):
        local = np.asarray(shares) * np.exp(SPREAD * random.standard_normal(len(shares)))
        result = (result[:, None] * (local / local.sum())).ravel()
    return result
