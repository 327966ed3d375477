"""What k-anonymity promises and what it keeps: an attack by subtraction, on it and on a release.

A table of exact counts is k-anonymous if nobody is in a group of fewer than k. Two offices publish
the same 42,008,942 people by county and race: one merges races where they are few, the other merges
counties. Each table is 5-anonymous. Who has both subtracts one from the other and reads what both
took care to hide: the exact size of groups of one, two, three or four people.

The same questions are then put to the demo's differentially private release, with the noise drawn
for real: reading the small counts, and, for an attacker who knows everyone else's record, the best
test of a claim about one person's race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neyman.cli.demo.midwest import RACES, counted, write_plan
from neyman.noise import SecureBits, discrete_gaussian

if TYPE_CHECKING:
    from neyman.noise import Bits
    from neyman.publishing import Plan

__all__ = [
    "Claims",
    "Group",
    "K",
    "Readings",
    "Subtracted",
    "claims_against_release",
    "claims_against_tables",
    "demo_plan",
    "differenced",
    "merged_counties",
    "merged_races",
    "people",
    "readings_of_release",
    "small_cells",
    "subtracted",
]

K = 5
"""The smallest group that the k-anonymous tables publish."""

Cell = tuple[str, str, str]
"""State, county and race."""

Counts = Mapping[Cell, int]


@dataclass(frozen=True)
class Group:
    """A line of a k-anonymous table: cells that are counted together, and their people."""

    cells: frozenset[Cell]
    people: int


@dataclass(frozen=True)
class Subtracted:
    """What subtraction tells of the cells that both tables hide.

    Args:
        hidden: cells with fewer than k people.
        recovered: those of them whose exact count follows from the tables.
        right: those of them whose count is the true one.
        exposed: people in a recovered cell, each in a group of fewer than k.
        alone: those of them who are alone in it.
    """

    hidden: int
    recovered: int
    right: int
    exposed: int
    alone: int


@dataclass(frozen=True)
class Readings:
    """How often small counts were read right from noisy ones.

    Args:
        hidden: how many cells were read.
        right: share of the readings that were right.
        guessing: the share that is right if the commonest count is read everywhere.
    """

    hidden: int
    right: float
    guessing: float


@dataclass(frozen=True)
class Claims:
    """How claims about a person's race fared.

    Args:
        tried: true claims that were tested, and as many false ones.
        level: share of the false ones that the test took for true.
        power: share of the true ones that it found out.
        promised: the most power that the guarantee allows at the test's exact level; None where
            there is no guarantee.
        exact_level: the test's level, by its own threshold.
    """

    tried: int
    level: float
    power: float
    promised: float | None
    exact_level: float


def people() -> dict[Cell, int]:
    """Return the exact counts by county and race."""
    return {
        (row["state"], row["county"], race): int(row[race]) for row in counted() for race in RACES
    }


def small_cells(counts: Counts, k: int = K) -> tuple[Cell, ...]:
    """Return the cells that a k-anonymous table must not show
    by themselves: fewer than k people.
    """
    return tuple(cell for cell, count in counts.items() if count < k)


# ---- two tables, each of them k-anonymous -----------------------------------------------------


def merged_races(counts: Counts, k: int = K) -> tuple[Group, ...]:
    """Exact counts by county, where races with fewer than k people are counted together.

    Args:
        counts: people by cell.
        k: the smallest group to publish, at least 1.

    Returns:
        A table in which every group has k people or more: in each county the small races share a
        group, which takes in the next smallest one until it is large enough.
    """
    return _merged(counts, k, lambda cell: cell[:2])


def merged_counties(counts: Counts, k: int = K) -> tuple[Group, ...]:
    """Exact counts by race, where counties of a state with fewer than k are counted together.

    Args:
        counts: people by cell.
        k: the smallest group to publish, at least 1.
    """
    return _merged(counts, k, lambda cell: (cell[0], cell[2]))


def _merged(counts: Counts, k: int, key: Callable[[Cell], tuple[str, ...]]) -> tuple[Group, ...]:
    families: dict[tuple[str, ...], list[Cell]] = {}
    for cell in counts:
        families.setdefault(key(cell), []).append(cell)
    results: list[Group] = []
    for cells in families.values():
        ordered = sorted(cells, key=lambda cell: (counts[cell], cell))
        together = [cell for cell in ordered if counts[cell] < k]
        apart = ordered[len(together) :]
        while apart and together and sum(counts[cell] for cell in together) < k:
            together.append(apart.pop(0))
        groups = [together] * bool(together) + [[cell] for cell in apart]
        results += [Group(frozenset(g), sum(counts[cell] for cell in g)) for g in groups]
    return tuple(results)


# ---- the attack by subtraction ----------------------------------------------------------------


def differenced(*tables: Iterable[Group]) -> dict[Cell, int]:
    """Return what follows from tables of exact counts: each cell that subtraction gives.

    A group of which all cells but one are known gives that one; so does a group that is known to be
    empty for all of its cells. This is repeated until nothing more follows.
    """
    groups = [group for table in tables for group in table]
    known: dict[Cell, int] = {}
    while True:
        before = len(known)
        for group in groups:
            unknown = [cell for cell in group.cells if cell not in known]
            left = group.people - sum(known.get(cell, 0) for cell in group.cells)
            if len(unknown) == 1 or left == 0:
                known |= dict.fromkeys(unknown, left)
        if len(known) == before:
            return known


def subtracted(counts: Counts, *tables: Iterable[Group], k: int = K) -> Subtracted:
    """How far subtraction gets with these tables, measured against the true counts."""
    known = differenced(*tables)
    hidden = small_cells(counts, k)
    results = [cell for cell in hidden if cell in known]
    return Subtracted(
        hidden=len(hidden),
        recovered=len(results),
        right=sum(known[cell] == counts[cell] for cell in results),
        exposed=sum(counts[cell] for cell in results),
        alone=sum(counts[cell] == 1 for cell in results),
    )


def claims_against_tables(counts: Counts, k: int = K) -> Claims:
    """Claims that a person of a small cell is of its race and not white, on `merged_races` alone.

    The attacker knows everyone else's record, makes the table for either answer, and compares with
    what was published: nothing is left to chance, and one k-anonymous table is enough.
    """
    result = 0
    taken = 0
    targets = [cell for cell in small_cells(counts, k) if counts[cell]]
    published = {cell[:2]: frozenset(merged_races(_county(counts, cell), k)) for cell in targets}
    for cell in targets:
        here, white = _county(counts, cell), (*cell[:2], "white")
        # A true claim: the other answer is that the person is white.
        other = here | {cell: here[cell] - 1, white: here[white] + 1}
        result += frozenset(merged_races(other, k)) != published[cell[:2]]
        # A false claim about a white person of the county: the answer claimed is this race.
        claimed = here | {cell: here[cell] + 1, white: here[white] - 1}
        taken += frozenset(merged_races(claimed, k)) == published[cell[:2]]
    tried = len(targets)
    return Claims(tried, taken / tried, result / tried, None, 0.0)


def _county(counts: Counts, cell: Cell) -> dict[Cell, int]:
    return {(*cell[:2], race): counts[(*cell[:2], race)] for race in RACES}


# ---- the same against the release -------------------------------------------------------------


def demo_plan() -> Plan:
    """Return the demo's plan: totals and races by region, state and county."""
    from neyman.publishing import Plan

    with TemporaryDirectory() as folder:
        return Plan.load(write_plan(Path(folder)))


def readings_of_release(
    plan: Plan, counts: Counts, releases: int, bits: Bits | None = None, k: int = K
) -> Readings:
    """How often the small cells are read right from the noisy table of races by county.

    The attacker knows which cells have fewer than k people, and takes the possible count that is
    nearest to the published one: the likeliest of them.

    Args:
        plan: has the query "race" by county.
        counts: people by cell.
        releases: how often the release is made, each time with fresh noise.
        bits: where the noise comes from; the operating system if nothing is given.
        k: what counts as small.
    """
    (sigma_squared,) = (s for e, s in plan.calibrated() if (e.query, e.level) == ("race", "county"))
    truth = np.array([counts[cell] for cell in small_cells(counts, k)])
    noise = discrete_gaussian(sigma_squared, releases * len(truth), bits or SecureBits())
    read = np.clip(truth + noise.reshape(releases, -1), 0, k - 1)
    most = np.bincount(truth).max()
    return Readings(len(truth), float(np.mean(read == truth)), float(most / len(truth)))


def claims_against_release(
    plan: Plan, level: Fraction, releases: int, bits: Bits | None = None
) -> Claims:
    """Return the best test of a claim about a person's race, by an attacker who knows all else.

    In each table by race two cells are in question, that of the race claimed and that of the other
    answer. Less what everyone else adds, their difference is the noise, shifted by 2 if the claim
    is true. The sum of these over the tables, each divided by its sigma^2, is the logarithm of the
    likelihood ratio but for constants; the claim is believed above a threshold.

    Args:
        plan: whose tables by race have two cells moved by one, with one sigma^2 for all of them.
        level: the most false claims to take for true, in (0, 1).
        releases: how many true claims are tried, and as many false ones, each on a release with
            fresh noise.
        bits: where the noise comes from; the operating system if nothing is given.

    Returns:
        What was measured, with what `plan.concerning("race")` promises at the test's exact level.

    Raises:
        ValueError: for a plan of another kind.
    """
    from neyman.publishing import moved

    entries = moved(plan, ("race",))
    noise = {(e.query, e.level, e.measure): s for e, s in plan.calibrated()}
    scales = {noise[e.query, e.level, e.measure] for e in entries}
    if any(e.shifts != ((1, 1),) for e in entries) or len(scales) != 1:
        raise ValueError("plan: its tables by race must be counts with one and the same noise")
    (sigma_squared,) = scales
    cells = 2 * len(entries)
    source = bits or SecureBits()

    def sums() -> NDArray[np.int64]:
        return discrete_gaussian(sigma_squared, releases * cells, source).reshape(-1, cells).sum(1)

    threshold, exact_level = _threshold(float(sigma_squared), cells, float(level))
    return Claims(
        tried=releases,
        level=float(np.mean(sums() >= threshold)),
        power=float(np.mean(sums() + cells >= threshold)),
        promised=plan.concerning("race").tradeoff().power(exact_level).upper,
        exact_level=exact_level,
    )


def _threshold(sigma_squared: float, cells: int, level: float) -> tuple[int, float]:
    """Return the least sum of so many noises that is reached with probability at most ``level``."""
    half = int(12 * sigma_squared**0.5) + 12
    one = np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * sigma_squared))
    mass: Sequence[float] | NDArray[np.float64] = [1.0]
    for _ in range(cells):
        mass = np.convolve(mass, one / one.sum())
    above = np.cumsum(np.asarray(mass)[::-1])[::-1]
    first = int(np.argmax(above <= level))
    return first - half * cells, float(above[first])
