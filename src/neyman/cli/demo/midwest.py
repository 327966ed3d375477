"""Rebuild persons from the 1990 census counts of 437 Midwestern counties by race.

The counts are public. One row per person gives a table with the size and shape of an agency's
table, on which the demo can run from plan to release.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from neyman.publishing.engines.duckdb import OFFLINE
from neyman.publishing.engines.progress import followed

PEOPLE = 42_008_942
RACES = ("white", "black", "american_indian", "asian", "other")
_COUNTS = files("neyman.cli.demo") / "midwest_1990_county_race.csv"

PLAN = f"""\
schema = 2
name = "midwest"
dataset = "midwest-1990@1"            # declared name and version, registered in the ledger
table = "people"                      # bound to data when the plan is run

[unit]
protects = "person"
neighboring = "replace-one"
rows = 1

[columns.race]
keys = {list(RACES)!r}
unknown = "drop"

[hierarchy.place]
levels = ["region", "state", "county"]
keys = "places.csv"                   # public: one row a county
unknown = "drop"

[budget]                              # the limit on what an attacker can learn
power = 0.25
level = 0.05

[[query]]
name = "total"
measure = "count"
at = ["region", "state", "county"]
public = {{ region = {PEOPLE} }}         # replacing a person does not change it: it is declared
share = "1/2"

[[query]]
name = "race"
measure = "count"
by = ["race"]
at = ["region", "state", "county"]
share = "1/2"
""".replace("'", '"')


def counted() -> list[dict[str, str]]:
    """Return the census counts, one row per county: state, name, and people of each race."""
    return list(csv.DictReader(_COUNTS.read_text(encoding="utf-8").splitlines()))


def write_plan(folder: Path) -> Path:
    """Write ``plan.toml`` and its public ``places.csv`` into a folder. Return the plan's path."""
    with (folder / "places.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["region", "state", "county"])
        writer.writerows(["Midwest", row["state"], row["county"]] for row in counted())
    path = folder / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    return path


def write_people(path: Path, progress: Callable[[float], None] | None = None) -> None:
    """Write the person table as Parquet: 42,008,942 rows of state, county, and race.

    Args:
        path: path of the file. It is written under another name first, so it is complete or absent.
        progress: a function of the share done, in [0, 1].
    """
    rows = counted()
    counts = pa.table(
        {
            "state": [row["state"] for row in rows for _ in RACES],
            "county": [row["county"] for row in rows for _ in RACES],
            "race": [race for _ in rows for race in RACES],
            "people": pa.array([int(row[race]) for row in rows for race in RACES], pa.int64()),
        }
    )
    part = path.with_suffix(".part")
    text = str(part).replace("'", "''")
    copy = (
        f"COPY (SELECT state, county, race FROM counts, range(people)) TO '{text}' (FORMAT parquet)"
    )
    with duckdb.connect(config=dict(OFFLINE)) as connection:
        connection.register("counts", counts)
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
        followed(connection, lambda: connection.execute(copy), progress or (lambda part: None))
    part.replace(path)
