"""The census on a laptop: every redistricting query of a simulated nation, state by state.

    python -m reproductions.census_2020.nation --out build/census --blocks WY
    python -m reproductions.census_2020.nation --out build/two --states VT WY --blocks VT

All states are measured before any is fitted: noise is added to the counts of its people, and what
follows reads noisy numbers and the exact populations of the states alone, which are public. The
blocks of one state are written. Of all others the noise of every cell is drawn too, and summed by
block group, since the fit above the blocks needs no more. A run that was interrupted goes on with
the first state that is not done; noise that was written is not drawn again.

The folder gets:

- ``measurements/STATE/LEVEL.parquet``: the noisy cells of each query; by block group also
  ``blocks.QUERY``, the sums of the noisy cells of its blocks;
- ``tables/STATE/LEVEL.parquet``: estimates that add up, with their standard errors: one per place
  and query, or one for households, institutions, and other quarters;
- ``summary.json``: errors, cells, seconds, bytes.

Only the errors are computed from the people again, to be compared with their bound; nobody who
publishes has them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from neyman.noise import Bits, SecureBits, discrete_gaussian
from reproductions.census_2020 import redistricting as census
from reproductions.census_2020.nation_fit import CELLS, GROUPS, Fit, Weights, add_up, sums
from reproductions.census_2020.simulated_nation import County, State, states

__all__ = ["LEVELS", "QUERIES", "Nation"]

Integers = NDArray[np.int64]
Tables = Mapping[str, NDArray[Any]]
Facts = dict[str, Any]

LEVELS = census.PLACES
QUERIES: Mapping[str, tuple[census.Query, ...]] = {
    level: tuple(q for q in census.queries(census.PRODUCTION) if q.persons and q.place == level)
    for level in LEVELS
}
CELLS_AT_A_TIME = 1 << 21  # of blocks, whose noise is drawn
PLACES_AT_A_TIME = 1024  # in one part of a file

_WEIGHTS = {level: Weights(queries) for level, queries in QUERIES.items()}
_BELOW = dict(pairwise(LEVELS))
_ABOVE = {below: above for above, below in _BELOW.items()}
_STAGES = ("measurements", "tables")
_UPWARD = ("block_group", "tract", "county", "state")


@dataclass
class Nation:
    """A run in a folder.

    Args:
        folder: where everything is written; new, or of the same run.
        states: those that make up the nation.
        blocks: the code of the state whose blocks are written; None for none.
        bits: a source of random bits, for tests.
        tell: called with a line about each part that is done.
    """

    folder: Path
    states: Sequence[State]
    blocks: str | None = None
    bits: Bits = field(default_factory=SecureBits)
    tell: Callable[[str], None] = print

    def run(self) -> Facts:
        """Do what is not done, write the summary, and return it.

        Raises:
            ValueError: the folder holds something else, a state is there twice, or ``blocks`` is
            none of the states.
        """
        self._begin()
        names = [state.name for state in self.states]
        self._stage("measurements", names, self._measure)
        self._stage("measurements", ["US"], self._measure_nation)
        self._stage("tables", ["US"], self._publish_nation)
        self._stage("tables", names, self._fit)
        summary = self._summary()
        (self.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        return summary

    def _begin(self) -> None:
        names = [state.name for state in self.states]
        if self.blocks is not None and self.blocks not in names:
            raise ValueError(f"blocks = {self.blocks!r}: must be one of {', '.join(names)}")
        if len(set(names)) < len(names):
            raise ValueError(f"states = {names}: names a state twice; name each once")
        run = {"states": names, "people": sum(s.people for s in self.states), "blocks": self.blocks}
        mark = self.folder / "run.json"
        other = f"folder = {str(self.folder)!r}: holds something else; name a new one"
        if mark.exists():
            try:
                begun = json.loads(mark.read_text())
            except (ValueError, IsADirectoryError):
                raise ValueError(other) from None
            if begun != run:
                raise ValueError(
                    f"folder = {str(self.folder)!r}: has the run {begun}; name another"
                )
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(other) from None
        if any(self.folder.iterdir()):
            raise ValueError(other)
        mark.write_text(json.dumps(run))

    def _stage(self, stage: str, names: Sequence[str], work: Callable[[str, Path], Facts]) -> None:
        """Do the parts that are not done; a part's folder gets its name when it is whole."""
        for number, name in enumerate(names, 1):
            done = self.folder / stage / name
            if done.exists():
                continue
            partial = done.with_name(f"{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            began, cpu = time.monotonic(), time.process_time()
            facts = work(name, partial)
            facts["seconds"] = time.monotonic() - began
            facts["cpu_seconds"] = time.process_time() - cpu
            facts["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            (partial / "facts.json").write_text(json.dumps(facts))
            os.replace(partial, done)
            spent = f"{facts['cpu_seconds']:.1f} s of CPU"
            self.tell(f"{stage} {name} ({number} of {len(names)}): {spent}")

    # ---- measurement ------------------------------------------------------------------------

    def _measure(self, name: str, folder: Path) -> Facts:
        places = _Places(self._state(name))
        blocks = _Writer(folder / "block.parquet", places.names("block"), "zstd")
        parts = [
            self._measure_blocks(county, blocks if name == self.blocks else None)
            for county in places.state.counties
        ]
        blocks.close()
        cells = int(places.children["block_group"].sum()) * sum(q.cells for q in QUERIES["block"])
        counts = np.concatenate([counts for counts, _ in parts])
        summed = {
            f"blocks.{q.name}": np.concatenate([t[q.name] for _, t in parts])
            for q in QUERIES["block"]
        }
        del parts
        for level in _UPWARD:
            if level != "block_group":
                counts, summed = add_up(counts, places.children[level]), {}
            tables = self._noisy(counts, level)
            cells += sum(table.size for table in tables.values())
            with _Writer(folder / f"{level}.parquet", places.names(level), "zstd") as writer:
                for some in _parts(len(counts)):
                    writer.write({n: table[some] for n, table in (tables | summed).items()})
        return {"cells": cells, "places": {level: places.count(level) for level in LEVELS[1:]}}

    def _measure_blocks(
        self, county: County, writer: _Writer | None
    ) -> tuple[NDArray[np.int32], Tables]:
        """Count a county's block groups, and add up the noisy cells of their blocks."""
        at, cell = county.rows()
        counts = _by_group(county, at, cell)
        # What is summed over the blocks is the same integers, whether their counts come in first.
        summed = {q.name: sums(counts, q).astype(np.int32) for q in QUERIES["block"]}
        for groups, blocks in _chunks(county):
            size = blocks.stop - blocks.start
            noise = {q.name: self._noise(q, size) for q in QUERIES["block"]}
            for query, table in noise.items():
                summed[query][groups] += add_up(table, county.blocks[groups]).astype(np.int32)
            if writer is not None:
                some = slice(*np.searchsorted(at, [blocks.start, blocks.stop]))
                own = _counts(at[some] - blocks.start, cell[some], size)
                writer.write(
                    {
                        q.name: (noise[q.name] + sums(own, q)).astype(np.int32)
                        for q in QUERIES["block"]
                    }
                )
        return counts, summed

    def _measure_nation(self, _: str, folder: Path) -> Facts:
        tables = self._noisy(self._people(), "us")
        with _Writer(folder / "us.parquet", {}, "zstd") as writer:
            writer.write(tables)
        return {"cells": sum(table.size for table in tables.values()), "places": {"us": 1}}

    def _noise(self, query: census.Query, places: int) -> Integers:
        noise = discrete_gaussian(1 / query.rho, places * query.cells, self.bits)
        return noise.reshape(places, query.cells)

    def _noisy(self, counts: NDArray[Any], level: str) -> dict[str, NDArray[np.int32]]:
        """Return the noisy cells of each query."""
        tables: dict[str, NDArray[np.int32]] = {}
        for query in QUERIES[level]:
            table = tables[query.name] = np.empty((len(counts), query.cells), np.int32)
            for some in _parts(len(counts)):
                exact = sums(counts[some], query)
                table[some] = exact + self._noise(query, len(exact))
        return tables

    def _people(self) -> Integers:
        """Return the detailed counts of the nation."""
        counts = np.zeros((1, CELLS), np.int64)
        for state in self.states:
            for county in state.counties:
                counts[0] += np.bincount(county.rows()[1], minlength=CELLS)
        return counts

    # ---- fit ----------------------------------------------------------------------------------

    @cached_property
    def _tops(self) -> dict[str, Fit]:
        """The final estimates of the nation and of each state."""
        parts = [self._up(state.name)["state"][1] for state in self.states]
        together = Fit(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.groups for part in parts], axis=1),
            np.concatenate([part.rest for part in parts], axis=1),
        )
        children = np.array([len(parts)])
        below = together.up(children)
        tables = _read(pq.read_table(self.folder / "measurements" / "US" / "us.parquet"))
        nation = below.joined(_WEIGHTS["us"].estimates(tables), _WEIGHTS["us"])
        final = together.down(below, nation, children)
        by_name = {state.name: final.take(slice(i, i + 1)) for i, state in enumerate(self.states)}
        return {"US": nation, **by_name}

    def _up(self, name: str) -> dict[str, tuple[Fit, Fit]]:
        """By level of a state the estimates from below, and those with the level's own tables."""
        folder, state = self.folder / "measurements" / name, self._state(name)
        children = _Places(state).children
        steps: dict[str, tuple[Fit, Fit]] = {}
        below: Fit | None = None
        for level in _UPWARD:
            tables = _read(pq.read_table(folder / f"{level}.parquet"))
            if below is None:
                summed = {q.name: tables.pop(f"blocks.{q.name}") for q in QUERIES["block"]}
                below = _WEIGHTS["block"].of_sums(summed, children[level])
            joined = below.joined(_WEIGHTS[level].estimates(tables), _WEIGHTS[level])
            if level == "state":
                joined = joined.with_totals(np.array([state.people]))
            steps[level] = below, joined
            if level != "state":
                below = joined.up(children[_ABOVE[level]])
        return steps

    def _publish_nation(self, name: str, folder: Path) -> Facts:
        errors: Facts = {}
        _publish(folder, {}, self._tops[name], self._people(), "us", errors)
        return {"errors": errors}

    def _fit(self, name: str, folder: Path) -> Facts:
        places, final, steps = _Places(self._state(name)), self._tops[name], self._up(name)
        counts = {
            "block_group": np.concatenate([_by_group(c, *c.rows()) for c in places.state.counties])
        }
        for level in _UPWARD[1:]:
            counts[level] = add_up(counts[_BELOW[level]], places.children[level])
        errors: Facts = {}
        below, _ = steps.pop("state")
        _publish(folder, places.names("state"), final, counts["state"], "state", errors)
        for level in reversed(_UPWARD[:-1]):
            deeper, joined = steps.pop(level)
            final = joined.down(below, final, places.children[_ABOVE[level]])
            below = deeper
            _publish(folder, places.names(level), final, counts.pop(level), level, errors)
        facts: Facts = {"errors": errors}
        if name == self.blocks:
            began = time.process_time()
            self._fit_blocks(places, folder, below, final, errors)
            facts["block_cpu_seconds"] = time.process_time() - began
        return facts

    def _fit_blocks(
        self, places: _Places, folder: Path, below: Fit, above: Fit, errors: Facts
    ) -> None:
        path = self.folder / "measurements" / places.state.name / "block.parquet"
        first, number = 0, 0
        with (
            pq.ParquetFile(path) as noisy,
            _Writer(folder / "block.parquet", places.names("block"), "none") as writer,
        ):
            for county in places.state.counties:
                at, cell = county.rows()
                for groups, blocks in _chunks(county):
                    tables = _read(noisy.read_row_group(number))
                    own = _WEIGHTS["block"].alone(tables)
                    over = slice(first + groups.start, first + groups.stop)
                    final = own.down(below.take(over), above.take(over), county.blocks[groups])
                    some = slice(*np.searchsorted(at, [blocks.start, blocks.stop]))
                    counts = _counts(at[some] - blocks.start, cell[some], len(own.values))
                    _write_estimates(writer, final, counts, "block", errors)
                    number += 1
                first += len(county.blocks)

    # ---- summary ------------------------------------------------------------------------------

    def _summary(self) -> Facts:
        facts = {
            stage: [
                json.loads(path.read_text()) for path in self.folder.glob(f"{stage}/*/facts.json")
            ]
            for stage in _STAGES
        }
        every = [fact for stage in facts.values() for fact in stage]
        places: dict[str, int] = {}
        for fact in facts["measurements"]:
            for level, count in fact["places"].items():
                places[level] = places.get(level, 0) + count
        return {
            "states": len(self.states),
            "people": sum(state.people for state in self.states),
            "blocks_of": self.blocks,
            "places": {level: places[level] for level in LEVELS},
            "cells": sum(fact["cells"] for fact in facts["measurements"]),
            "cpu_seconds": {s: sum(fact["cpu_seconds"] for fact in facts[s]) for s in facts},
            "seconds": sum(fact["seconds"] for fact in every),
            "peak_bytes": max(fact["peak_bytes"] for fact in every),
            "bytes": {s: _bytes(self.folder / s) for s in facts},
            "blocks_written": self._written(),
            "errors": _pooled([fact["errors"] for fact in facts["tables"]]),
        }

    def _written(self) -> Facts | None:
        """Return what the blocks of the chosen state took; their noise is drawn in any case."""
        if self.blocks is None:
            return None
        facts = json.loads((self.folder / "tables" / self.blocks / "facts.json").read_text())
        files = {
            s: self.folder / s / self.blocks / "block.parquet" for s in ("measurements", "tables")
        }
        return {
            "blocks": _Places(self._state(self.blocks)).count("block"),
            "cpu_seconds": facts["block_cpu_seconds"],
            "bytes": {stage: path.stat().st_size for stage, path in files.items()},
        }

    def _state(self, name: str) -> State:
        return next(state for state in self.states if state.name == name)


@dataclass(frozen=True)
class _Places:
    """The places of a state; the children of one place lie together."""

    state: State

    @cached_property
    def children(self) -> dict[str, Integers]:
        """By level, how many places of the next level each place has."""
        counties = self.state.counties
        return {
            "state": np.array([len(counties)]),
            "county": np.array([len(county.groups) for county in counties]),
            "tract": np.concatenate([county.groups for county in counties]),
            "block_group": np.concatenate([county.blocks for county in counties]),
        }

    def count(self, level: str) -> int:
        """Return the number of places of a level."""
        return 1 if level == "state" else int(self.children[_ABOVE[level]].sum())

    def names(self, level: str) -> dict[str, Integers]:
        """Return the columns that name a level's places below the state, each within the last."""
        if level == "state":
            return {}
        names = {"county": np.array([int(county.code) for county in self.state.counties])}
        for upper in LEVELS[LEVELS.index("county") : LEVELS.index(level)]:
            children = self.children[upper]
            names = {name: np.repeat(column, children) for name, column in names.items()}
            first = np.repeat(np.cumsum(children) - children, children)
            names[_BELOW[upper]] = np.arange(len(first)) - first + 1
        return names


def _counts(place: Integers, cell: Integers, places: int) -> Integers:
    """Return counts of people, of shape (places, 2016)."""
    counts = np.bincount(place * CELLS + cell, minlength=places * CELLS)
    return counts.reshape(places, CELLS)


def _by_group(county: County, at: Integers, cell: Integers) -> NDArray[np.int32]:
    """Return counts of the people of a county's block groups, from their blocks and cells."""
    group = np.repeat(np.arange(len(county.blocks)), county.blocks)
    return _counts(group[at], cell, len(county.blocks)).astype(np.int32)


def _chunks(county: County) -> Iterator[tuple[slice, slice]]:
    """Yield runs of block groups with their blocks: one group, or ``CELLS_AT_A_TIME`` cells.

    A run has at most that many cells, or is a single block group.
    """
    first = np.concatenate([[0], np.cumsum(county.blocks)])
    step = max(1, CELLS_AT_A_TIME // (CELLS * int(county.blocks.max())))
    for start in range(0, len(county.blocks), step):
        end = min(start + step, len(county.blocks))
        yield slice(start, end), slice(int(first[start]), int(first[end]))


def _parts(places: int) -> Iterator[slice]:
    return (slice(i, min(i + PLACES_AT_A_TIME, places)) for i in range(0, places, PLACES_AT_A_TIME))


def _publish(
    folder: Path,
    names: Mapping[str, Integers],
    fit: Fit,
    counts: NDArray[Any],
    level: str,
    errors: Facts,
) -> None:
    with _Writer(folder / f"{level}.parquet", names, "none") as writer:
        for some in _parts(len(counts)):
            _write_estimates(writer, fit.take(some), counts[some], level, errors)


def _write_estimates(
    writer: _Writer, fit: Fit, counts: NDArray[Any], level: str, errors: Facts
) -> None:
    """Write the estimates and standard errors of some places, and add up their squared errors."""
    detailed = fit.detailed()
    tables: dict[str, NDArray[Any]] = {}
    for query in QUERIES[level]:
        estimate, variances = sums(detailed, query), fit.variances(query)
        tables[query.name] = estimate
        tables[f"standard_error.{query.name}"] = np.sqrt(np.maximum(variances, 0))
        alike = {"hhinstlevels": np.ones(3)}.get(query.name, np.array(GROUPS))
        share = alike / alike.sum() if variances.shape[1] > 1 else np.ones(1)
        own = errors.setdefault(level, {}).setdefault(
            query.name, {"cells": 0, "squared": 0.0, "bound": 0.0}
        )
        own["cells"] += estimate.size
        own["squared"] += float(((estimate - sums(counts, query)) ** 2).sum())
        own["bound"] += float((variances @ share).sum() * query.cells)
    writer.write(tables)


class _Writer:
    """A Parquet file with a row per place: its names, and a list of cells for each table.

    Args:
        names: by column, a number for each place.
        compression: of the cells.
    """

    def __init__(self, path: Path, names: Mapping[str, Integers], compression: str) -> None:
        self._path, self._names, self._compression = path, names, compression
        self._file: pq.ParquetWriter | None = None
        self._written = 0

    def write(self, tables: Tables) -> None:
        """Write the tables of the next places, each of shape (places, cells)."""
        end = self._written + len(next(iter(tables.values())))
        columns: dict[str, Any] = {
            name: pa.array(column[self._written : end].astype(np.int32))
            for name, column in self._names.items()
        }
        for name, table in tables.items():
            flat = pa.array(np.ascontiguousarray(table).reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, table.shape[1])
        batch = pa.table(columns)
        if self._file is None:
            self._file = pq.ParquetWriter(
                self._path,
                batch.schema,
                compression=self._compression,
                compression_level=1 if self._compression == "zstd" else None,
                use_dictionary=False,
                write_statistics=False,
            )
        self._file.write_table(batch, row_group_size=len(batch))
        self._written = end

    def close(self) -> None:
        """End the file; without any rows there is none."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _read(table: pa.Table) -> dict[str, NDArray[Any]]:
    """Return the cells of each table, of shape (places, cells)."""
    tables: dict[str, NDArray[Any]] = {}
    for name in table.column_names:
        column: Any = table.column(name).combine_chunks()
        if pa.types.is_fixed_size_list(column.type):
            flat = column.flatten().to_numpy(zero_copy_only=False)
            tables[name] = flat.reshape(len(column), -1)
    return tables


def _pooled(parts: Sequence[Facts]) -> Facts:
    """Root mean squared errors by level and query, beside their bound and what the noise has."""
    total: dict[tuple[str, str], dict[str, float]] = {}
    for part in parts:
        for level, by_query in part.items():
            for query, own in by_query.items():
                pool = total.setdefault((level, query), dict.fromkeys(own, 0.0))
                for key, value in own.items():
                    pool[key] += value
    pooled: Facts = {}
    for level in LEVELS:
        for query in QUERIES[level]:
            if own := total.get((level, query.name)):
                pooled.setdefault(level, {})[query.name] = {
                    "cells": int(own["cells"]),
                    "noise": math.sqrt(1 / query.rho),
                    "error": math.sqrt(own["squared"] / own["cells"]),
                    "bound": math.sqrt(max(own["bound"], 0.0) / own["cells"]),
                }
    return pooled


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder, new or of the same run")
    parser.add_argument("--states", nargs="+", help="codes of the states; all if not given")
    parser.add_argument("--blocks", help="code of the state whose blocks are written")
    given = parser.parse_args()
    every = {state.name: state for state in states()}
    names = given.states or list(every)
    if unknown := [name for name in names if name not in every]:
        sys.exit(f"--states {unknown[0]}: must be of {', '.join(every)}")
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:7.0f} s  {line}", flush=True)

    try:
        summary = Nation(given.out, [every[name] for name in names], given.blocks, tell=tell).run()
    except ValueError as error:
        sys.exit(str(error))
    print(json.dumps({key: summary[key] for key in summary if key != "errors"}, indent=1))


if __name__ == "__main__":
    _main()
