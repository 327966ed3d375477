"""The census on a laptop: its fit against plain least squares, its stream, its plans."""

from __future__ import annotations

import itertools
import json
import re
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array, kron, vstack
from scipy.sparse.linalg import LinearOperator, cg

import neyman as ny
from neyman.accounting import conversions
from neyman.noise import Bits, SecureBits
from reproductions.census_2020 import nation, nation_fit
from reproductions.census_2020 import redistricting as census
from reproductions.census_2020.nation import LEVELS, QUERIES, Nation
from reproductions.census_2020.nation_fit import CELLS, sums
from reproductions.census_2020.nation_page import RECORD
from reproductions.census_2020.simulated_nation import County, State, states
from reproductions.facts import read

PLANS = Path(__file__).parents[2] / "examples" / "census_2020"
CODES = itertools.count(1)


def state(name: str, *counties: tuple[list[int], list[int]], people: int = 90) -> State:
    """A small state: for each county the block groups of its tracts and the blocks of those."""
    built = [
        County(str(next(CODES)), people, np.array(groups), np.array(blocks))
        for groups, blocks in counties
    ]
    return State(name, people * len(built), tuple(built))


def cells(path: Path) -> dict[str, NDArray[Any]]:
    """The tables of a file, in rows of places."""
    table = pq.read_table(path)
    return {
        name: np.array(table.column(name).to_pylist())
        for name in table.column_names
        if name not in LEVELS
    }


# Every block group of B has one block, so the sums of its blocks are their tables.
A = state("A", ([1], [2]), ([1, 1], [2, 1]))
B = state("B", ([1], [1]), ([2], [1, 1]))
MEMBERS = {  # of the eight blocks, by level: the place of each
    "us": [0] * 8,
    "state": [0] * 5 + [1] * 3,
    "county": [0, 0, 1, 1, 1, 2, 3, 3],
    "tract": [0, 0, 1, 1, 2, 3, 4, 4],
    "block_group": [0, 0, 1, 1, 2, 3, 4, 5],
    "block": list(range(8)),
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both states in parts of two places, as a large state needs several parts."""
    folder = tmp_path_factory.mktemp("nation") / "toy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nation_fit, "AT_A_TIME", 2)
        patch.setattr(nation, "PLACES_AT_A_TIME", 2)
        patch.setattr(nation, "CELLS_AT_A_TIME", CELLS)
        Nation(folder, [A, B], blocks="A", tell=lambda line: None).run()
    assert pq.ParquetFile(folder / "measurements" / "A" / "block.parquet").num_row_groups == 3
    return folder


# ---- the fit ----------------------------------------------------------------------------------


class Reference:
    """Least squares over every cell of every block, by conjugate gradients.

    Changes that would move a state's total are projected out.
    """

    def __init__(self) -> None:
        matrices, precision, self.rows, start = [], [], {}, 0
        for level in LEVELS:
            places = np.array(MEMBERS[level])
            member = csr_array((np.ones(8), (places, np.arange(8))), shape=(places.max() + 1, 8))
            for query in QUERIES[level]:
                matrices.append(kron(member, csr_array(sums(np.eye(CELLS), query).T), format="csr"))
                end = start + matrices[-1].shape[0]
                self.rows[level, query.name], start = slice(start, end), end
                precision.append(np.full(matrices[-1].shape[0], float(query.rho)))
            if level == "state":
                self.totals = kron(member, csr_array(np.ones((1, CELLS))), format="csr")
        self.matrix, self.precision = vstack(matrices, format="csr"), np.concatenate(precision)

    def even(self, totals: NDArray[Any]) -> NDArray[Any]:
        """Spread totals of the states evenly over their cells."""
        return self.totals.T @ (totals / self.totals.sum(axis=1))

    def solve(self, right: NDArray[Any]) -> NDArray[Any]:
        """Return N^-1 right, N being the normal matrix without the totals."""

        def apply(x: NDArray[Any]) -> NDArray[Any]:
            x = x - self.even(self.totals @ x)
            y = self.matrix.T @ (self.precision * (self.matrix @ x))
            return y - self.even(self.totals @ y)

        size = self.matrix.shape[1]
        right = right - self.even(self.totals @ right)
        x, failed = cg(LinearOperator((size, size), matvec=apply), right, rtol=1e-11)
        assert failed == 0
        return x

    def fit(self, noisy: NDArray[Any], totals: NDArray[Any]) -> NDArray[Any]:
        """Return the estimates of all cells of all queries."""
        base = self.even(totals)
        right = self.matrix.T @ (self.precision * (noisy - self.matrix @ base))
        return self.matrix @ (base + self.solve(right))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def _each(folder: Path, level: str, query: str) -> NDArray[Any]:
    """A query's numbers of all places of a level."""
    if level == "us":
        return cells(folder / "US" / "us.parquet")[query]
    if level == "block" and folder.name == "measurements":
        alone = cells(folder / "B" / "block_group.parquet")[f"blocks.{query}"]
        return np.concatenate([cells(folder / "A" / "block.parquet")[query], alone])
    return np.concatenate([cells(folder / n / f"{level}.parquet")[query] for n in ("A", "B")])


def test_the_tables_are_the_least_squares_fit_of_the_measurements(toy, reference):
    names = [(level, q.name) for level in LEVELS for q in QUERIES[level]]
    noisy = np.concatenate([_each(toy / "measurements", *name).ravel() for name in names])
    fitted = reference.fit(noisy.astype(float), np.array([A.people, B.people]))
    for level, query in names:
        if level == "block":
            table = cells(toy / "tables" / "A" / "block.parquet")[query]
            expected = fitted[reference.rows[level, query]].reshape(8, -1)[:5]
        else:
            table = _each(toy / "tables", level, query)
            expected = fitted[reference.rows[level, query]].reshape(table.shape)
        assert np.allclose(table, expected, atol=1e-7), (level, query)


@pytest.mark.parametrize(
    ("level", "query", "place", "cell", "kind"),
    [
        ("us", "hispanic", 0, 1, 0),
        ("us", "hhinstlevels", 0, 0, 0),
        ("state", "cenrace", 1, 40, 0),
        ("county", "hhinstlevels", 0, 1, 1),
        ("tract", "votingage*cenrace", 1, 100, 0),
        ("block_group", "hhgq", 1, 6, 2),
        ("block_group", "total", 0, 0, 0),
        ("block", "detailed", 3, 252 * 2 + 5, 1),
    ],
)
def test_a_standard_error_is_that_of_the_least_squares_fit(
    toy, reference, level, query, place, cell, kind
):
    name = "A" if level != "us" else "US"
    name, row = ("B", 0) if (level, place) == ("state", 1) else (name, place)
    published = cells(toy / "tables" / name / f"{level}.parquet")[f"standard_error.{query}"]
    rows = reference.rows[level, query]
    width = (rows.stop - rows.start) // (max(MEMBERS[level]) + 1)
    a = reference.matrix[[rows.start + place * width + cell]].toarray()[0]
    variance = a @ (solved := reference.solve(a)) - a @ reference.even(reference.totals @ solved)
    assert published[row, kind] == pytest.approx(np.sqrt(variance), rel=1e-6)


# ---- the stream -------------------------------------------------------------------------------


def test_the_population_of_each_state_is_exact(toy):
    for one in (A, B):
        tables = cells(toy / "tables" / one.name / "state.parquet")
        for query in QUERIES["state"]:
            assert tables[query.name].sum() == pytest.approx(one.people, abs=1e-8)
        assert tables["standard_error.total"] == pytest.approx(0, abs=1e-6)


def test_a_place_is_the_sum_of_its_places(toy):
    for level, below in itertools.pairwise(LEVELS[:-1]):
        upper, lower = (_each(toy / "tables", x, "detailed") for x in (level, below))
        parent = dict(zip(MEMBERS[below], MEMBERS[level], strict=True))
        summed = np.zeros_like(upper)
        np.add.at(summed, [parent[i] for i in range(len(lower))], lower)
        assert np.allclose(summed, upper, atol=1e-9)
        for query in QUERIES[below]:
            assert np.allclose(sums(lower, query), _each(toy / "tables", below, query.name))


def test_noise_of_the_allocation_is_added_to_the_counts_of_people(toy):
    true = np.zeros((5, CELLS), np.int64)
    for first, county in zip((0, 2), A.counties, strict=True):
        at, cell = county.rows()
        np.add.at(true, (first + at, cell), 1)
    noisy = cells(toy / "measurements" / "A" / "block.parquet")
    group = cells(toy / "measurements" / "A" / "block_group.parquet")
    for query in QUERIES["block"]:
        noise = noisy[query.name] - sums(true, query)
        scaled = float((noise.astype(float) ** 2).mean() * query.rho)
        # Of n draws the mean square is within 8 standard deviations, the root of 2 / n.
        assert abs(scaled - 1) < 8 * (2 / noise.size) ** 0.5 + 1e-9, query.name
        summed = np.add.reduceat(noisy[query.name], [0, 2, 4])
        assert (group[f"blocks.{query.name}"] == summed).all()


def test_the_summary_counts_every_cell_and_sets_errors_beside_their_bounds(toy):
    summary = json.loads((toy / "summary.json").read_text())
    sizes = {level: len(set(MEMBERS[level])) for level in LEVELS}
    assert summary["places"] == sizes
    assert summary["cells"] == sum(sizes[x] * q.cells for x in LEVELS for q in QUERIES[x])
    for level, by_query in summary["errors"].items():
        own = by_query["detailed"]
        assert own["bound"] < own["noise"]
        assert own["error"] == pytest.approx(own["bound"], rel=0.1), level
    assert summary["errors"]["block"]["detailed"]["cells"] == 5 * CELLS


class Counted(Bits):
    """Secure bits that break off after some words."""

    def __init__(self, most: float) -> None:
        self.left, self.bits = most, SecureBits()

    def words(self, n: int) -> NDArray[np.uint64]:
        self.left -= n
        if self.left < 0:
            raise InterruptedError
        return self.bits.words(n)


def test_a_run_that_breaks_off_draws_no_written_noise_again(tmp_path):
    folder, lines = tmp_path / "run", []
    first = Counted(50_000)
    pair = [B, state("C", ([1] * 40, [9] * 40))]
    with pytest.raises(InterruptedError):
        Nation(folder, pair, bits=first, tell=lines.append).run()
    files = sorted((folder / "measurements" / "B").iterdir())
    before = [path.read_bytes() for path in files]
    assert not (folder / "measurements" / "C").exists()
    Nation(folder, pair, tell=lines.append).run()
    assert [path.read_bytes() for path in files] == before
    assert (folder / "summary.json").exists()
    lines.clear()
    Nation(folder, pair, bits=Counted(0), tell=lines.append).run()
    assert lines == []


def test_a_run_that_makes_no_sense_is_refused(toy, tmp_path):
    with pytest.raises(ValueError, match=r"has the run .*'blocks': 'A'"):
        Nation(toy, [A, B], blocks="B").run()
    with pytest.raises(ValueError, match="blocks = 'Z': must be one of A, B"):
        Nation(tmp_path / "new", [A, B], blocks="Z").run()
    with pytest.raises(ValueError, match="names a state twice"):
        Nation(tmp_path / "new", [A, A]).run()
    mine, junk = tmp_path / "mine.txt", tmp_path / "junk"
    mine.write_text("x")
    junk.mkdir()
    (junk / "run.json").write_text("{")
    for folder in (tmp_path, mine, mine / "below", junk):
        with pytest.raises(ValueError, match=re.escape(f"{str(folder)!r}: holds something else")):
            Nation(folder, [A, B]).run()


def test_memory_does_not_grow_with_the_states(tmp_path):
    peaks = []
    for count in (2, 8):
        many = [state(f"S{i}", ([8] * 4, [2] * 32)) for i in range(count)]
        tracemalloc.start()
        Nation(tmp_path / str(count), many, tell=lambda line: None).run()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.15 * peaks[0]


def test_the_people_are_those_of_the_2020_census_by_state():
    every = list(states())
    assert sum(one.people for one in every) == 331_449_281
    assert all(one.people == sum(c.people for c in one.counties) for one in every)
    assert sum(len(one.counties) for one in every) == 3143
    blocks = sum(int(c.blocks.sum()) for one in every for c in one.counties)
    assert 8_000_000 <= blocks <= 8_100_000
    county = next(c for one in every for c in one.counties if c.code == "56001")
    at, cell = county.rows()
    assert len(at) == county.people
    assert at.max() < county.blocks.sum()
    assert cell.max() < CELLS
    assert (np.diff(at) >= 0).all()
    assert (county.rows()[1] == cell).all()


def test_the_recorded_run_is_that_of_the_page():
    run = read(RECORD)
    assert run["states"] == 51
    assert run["people"] == 331_449_281
    assert run["cells"] == sum(run["places"][x] * q.cells for x in LEVELS for q in QUERIES[x])
    for level in LEVELS:
        for query in QUERIES[level]:
            own = run["errors"][level][query.name]
            assert own["noise"] == pytest.approx(float(query.rho) ** -0.5)
            assert own["bound"] < own["noise"]
            if own["cells"] > 50_000:
                assert own["error"] == pytest.approx(own["bound"], rel=0.03), (level, query.name)


# ---- the plans --------------------------------------------------------------------------------

NAMES = {"race": "cenrace", "ethnicity": "hispanic"}


@pytest.fixture(scope="module")
def plans() -> dict[bool, ny.Plan]:
    names = {True: "persons", False: "housing_units"}
    return {persons: ny.Plan.load(PLANS / f"{name}.toml") for persons, name in names.items()}


def test_the_plans_have_the_noise_of_the_2020_allocation(plans):
    for persons, plan in plans.items():
        noise = {(e.query, e.level): sigma_squared for e, sigma_squared in plan.calibrated()}
        assert noise == {
            (q.name.replace("*", "_"), q.place): 1 / q.rho
            for q in census.queries(census.PRODUCTION)
            if q.persons == persons
        }


def _changes() -> Iterator[tuple[tuple[str, ...], str | None]]:
    for size in range(5):
        for personal in itertools.combinations(census.ATTRIBUTES, size):
            for within in (None, *census.PLACES[:-1]):
                if personal or within:
                    yield personal, within


def test_the_plans_say_of_each_attribute_what_the_bureau_certified(plans):
    for personal, within in _changes():
        attributes = [NAMES.get(name, name) for name in personal]
        if within:
            attributes.append(census.PLACES[census.PLACES.index(within) + 1])
        own = census.concerning(
            *personal, *(["block"] if within else []), within=within, budget=census.PRODUCTION
        )
        rho = sum((q.rho for q in own if q.persons), Fraction(0))
        assert plans[True].concerning(*attributes, within=within).rho() == rho, attributes


def test_the_plans_have_the_published_epsilons(plans):
    for persons, rho, epsilon in ((True, 2.56, 17.14), (False, 0.07, 2.47)):
        own = plans[persons].mechanism().rho()
        assert round(float(own), 2) == rho
        bound = conversions.canonne_kamath_steinke_zcdp(own, census.CERTIFICATE_DELTA)
        assert round(bound.upper, 2) == epsilon
