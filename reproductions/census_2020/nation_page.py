"""The section of the census page on `nation`: what a run took, its errors, and what it protects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from neyman.accounting.semantics import sentences as words
from reproductions.census_2020 import redistricting as census
from reproductions.facts import read
from reproductions.markdown import table

__all__ = ["section"]

RECORD = "census_nation.json"  # of the last run that was recorded
NAMES = {
    "total": "total",
    "cenrace": "race",
    "hispanic": "ethnicity",
    "votingage": "voting age",
    "hhinstlevels": "group of quarters",
    "hhgq": "quarters",
    "hispanic*cenrace": "ethnicity × race",
    "votingage*cenrace": "voting age × race",
    "votingage*hispanic": "voting age × ethnicity",
    "votingage*hispanic*cenrace": "voting age × ethnicity × race",
    "detailed": "quarters × voting age × ethnicity × race",
}
ATTRIBUTES = {
    "race": "race",
    "ethnicity": "ethnicity",
    "votingage": "voting age",
    "hhgq": "quarters",
}


def section() -> str:
    """Return the section, in Markdown."""
    run = read(RECORD)
    return "\n\n".join([_run(run), _errors(run["errors"]), _sentences()])


def _run(run: Mapping[str, Any]) -> str:
    places, written = run["places"], run["blocks_written"]
    cpu = run["cpu_seconds"]
    share = places["block"] / written["blocks"]
    rows = [
        ("states, with DC", f"{run['states']}"),
        ("people", f"{run['people']:,}"),
        ("counties, tracts, block groups", _listed(places, "county", "tract", "block_group")),
        ("blocks", f"{places['block']:,}"),
        ("noisy cells", f"{run['cells']:,}"),
        ("noisy cells per second of one core", f"{run['cells'] / cpu['measurements']:,.0f}"),
        ("CPU seconds: measurement, fit", f"{cpu['measurements']:,.0f}, {cpu['tables']:,.0f}"),
        ("seconds in all, one process", f"{run['seconds']:,.0f}"),
        ("most memory", f"{run['peak_bytes'] / 1e9:.1f} GB"),
        ("disk: measurements, tables", _gigabytes(run["bytes"].values())),
        (
            f"of these the {written['blocks']:,} blocks of {run['blocks_of']}",
            _gigabytes(written["bytes"].values()),
        ),
        (
            "all blocks fitted and written, estimated: CPU hours more",
            f"{share * written['cpu_seconds'] / 3600:.1f}",
        ),
        ("the same: disk", _gigabytes(share * size for size in written["bytes"].values())),
    ]
    return f"""\
## The census on a laptop

`make census` publishes every person query of the allocation for a simulated nation
([nation.py](../reproductions/census_2020/nation.py)). *Real* are the populations of the states in
the 2020 Census and the Bureau's estimates of July 1, 2020 by which they are shared out to the 3,143
counties. *Simulated* are all smaller places, and every person's place and attributes. The errors of
least squares depend on neither.

1. **Measure**, state by state: exact noise with σ² = 1/ρ is drawn for every cell of every query at
   all six levels, blocks too, and added to the counts.
2. **Fit**, from noisy numbers and the population of each state, which is public: the estimates with
   the least variance among all linear unbiased ones. They add up from blocks to the nation, and to
   each state's population exactly. A state is fitted in two passes over its tree of places.
3. **Publish** the noisy and the fitted tables of every query down to block groups, and the blocks
   of one state. The blocks of the other states are measured, and enter the fit as sums. A plan's
   table has at most 10⁸ cells. A stream has no such limit.

{table(("", "this run"), rows)}

Seconds depend on what else the machine did, and CPU seconds hardly. A run that breaks off goes on
with the first state that is not done. `--states VT WY` publishes some states, and `--blocks VT`
chooses the state whose blocks are written."""


def _errors(errors: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    head = ("query", *map(_plain, census.PLACES))
    rows = [
        (
            title,
            *(
                f"{_digits(own['error'])} ({_digits(own['bound'])}; {_digits(own['noise'])})"
                if (own := errors[level].get(name))
                else ""
                for level in census.PLACES
            ),
        )
        for name, title in NAMES.items()
    ]
    return f"""\
### Errors by level

The first number is the root mean squared error over a level's cells. The numbers in brackets are
the least-squares bound and the σ of the noise. The bound is the root of the mean variance of the
fit, and no linear unbiased estimate has a lower one. A level with few cells has an uncertain error:
a single run is compared with its average. Errors of blocks are those of the state that is written.

{table(head, rows)}"""


def _sentences() -> str:
    level = census.TESTED[1]
    lines: list[str] = []
    for name, title in ATTRIBUTES.items():
        power = _power(census.concerning(name, budget=census.PRODUCTION), level)
        lines.append(words.concerning([title], level, power))
    for within, place in pairwise(census.PLACES[1:]):
        power = _power(census.concerning("block", within=within, budget=census.PRODUCTION), level)
        lines.append(words.concerning([_plain(place)], level, power, within=_plain(within)))
    every = (*ATTRIBUTES, "block")
    power = _power(census.concerning(*every, within="state", budget=census.PRODUCTION), level)
    lines.append(words.concerning(["whole record"], level, power, within="state"))
    listed = "\n".join(f"- {line}" for line in lines)
    return f"""\
### What it protects

The budget is the exact one of production for persons. The population of a state is exact, so **a
change of a person's state has no limit**: whoever knows everyone else knows it. Each sentence below
is about a change that no state's population shows.

{listed}

The allocation ships as two plans in `examples/census_2020`: `persons.toml`, and
`housing_units.toml` for the queries about housing units. Anyone can ask what they protect. The
answers leave exact totals out.

```sh
neyman plan check examples/census_2020/persons.toml --concerning cenrace
neyman plan check examples/census_2020/persons.toml --concerning block --within tract
neyman explore examples/census_2020/persons.toml
```"""


def _power(queries: Iterable[census.Query], level: float) -> float:
    persons = [query for query in queries if query.persons]
    return census.release(persons).tradeoff().power(level).upper


def _plain(place: str) -> str:
    return place.replace("_", " ")


def _listed(places: Mapping[str, int], *levels: str) -> str:
    return ", ".join(f"{places[level]:,}" for level in levels)


def _gigabytes(sizes: Iterable[float]) -> str:
    return ", ".join(f"{size / 1e9:.2f}" for size in sizes) + " GB"


def _digits(value: float) -> str:
    return "0" if value < 1e-6 else f"{value:.2f}"
