"""The section of the census page on `nation`: what a run took, its errors, and what it protects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from neyman.accounting import percent
from neyman.accounting import sentences as words
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
        ("people", f"{run['people']:,}"),
        ("blocks", f"{places['block']:,}"),
        ("noisy cells", f"{run['cells']:,}"),
        ("CPU seconds: measurement, fit", f"{cpu['measurements']:,.0f}, {cpu['tables']:,.0f}"),
        ("seconds in all, one process", f"{run['seconds']:,.0f}"),
        ("most memory", f"{run['peak_bytes'] / 1e9:.1f} GB"),
        ("disk: measurements, tables", _gigabytes(run["bytes"].values())),
        (
            "all blocks fitted and written, estimated: CPU hours more",
            f"{share * written['cpu_seconds'] / 3600:.1f}",
        ),
        ("the same: disk", _gigabytes(share * size for size in written["bytes"].values())),
    ]
    return f"""\
## The census on a laptop

`make census` publishes every person query of the allocation for a simulated nation
([nation.py](../reproductions/census_2020/nation.py)). The populations of the states are real, and
the Bureau's estimates of July 1, 2020 share them out to the 3,143 counties. All smaller places, and
every person's place and attributes, are simulated. The errors of least squares depend on neither.

1. **Measure** every cell of every query at all six levels with exact noise, σ² = 1/ρ, state by
   state.
2. **Fit** the estimates with the least variance among all linear unbiased ones, from the noisy
   numbers and the public population of each state. They add up from blocks to the nation, and to
   each state's population exactly.
3. **Publish** the noisy and the fitted tables down to block groups, and the blocks of one state
   ({run["blocks_of"]}). The blocks of the other states are measured, and enter the fit as sums.

{table(("", "this run"), rows)}

A run that breaks off goes on with the first state that is not done. `--states VT WY` publishes some
states, and `--blocks VT` chooses the state whose blocks are written."""


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
the least-squares bound, which is the lowest root mean variance of any linear unbiased estimate, and
the σ of the noise. The error of a level with few cells is uncertain. Blocks are those of the
written state.

{table(head, rows)}"""


def _sentences() -> str:
    level = census.TESTED[1]
    powers = [
        (title, _power(census.concerning(name, budget=census.PRODUCTION), level))
        for name, title in ATTRIBUTES.items()
    ]
    for within, place in pairwise(census.PLACES[1:]):
        queries = census.concerning("block", within=within, budget=census.PRODUCTION)
        powers.append((f"{_plain(place)} within a known {_plain(within)}", _power(queries, level)))
    queries = census.concerning(*ATTRIBUTES, "block", within="state", budget=census.PRODUCTION)
    powers.append(("whole record within a known state", _power(queries, level)))
    first, power = powers[0]
    head = ("a claim about a person's", f"true claims confirmed at level {level:.0%}, at most")
    rows = [(title, percent(power)) for title, power in powers]
    return f"""\
### What it protects

The budget is the exact one of production for persons. The population of a state is exact, so **a
change of a person's state has no limit**: an attacker who knows everyone else knows it. The limits
below are about changes that no state's population shows.

> {words.concerning([first], level, power)}

{table(head, rows)}

The allocation ships as two plans in `examples/census_2020`: `persons.toml`, and
`housing_units.toml` for the queries about housing units. Commands report what they protect, exact
totals left out:

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


def _gigabytes(sizes: Iterable[float]) -> str:
    return ", ".join(f"{size / 1e9:.2f}" for size in sizes) + " GB"


def _digits(value: float) -> str:
    return "0" if value < 1e-6 else f"{value:.2f}"
