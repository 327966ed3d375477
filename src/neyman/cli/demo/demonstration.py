"""Run the demo: publish a release from a plan for 42 million people, and report its risk."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from neyman.api import run
from neyman.cli.demo.midwest import PLAN, write_people, write_plan
from neyman.ledger.ledger import Ledger
from neyman.publishing.engines.duckdb import OFFLINE
from neyman.publishing.release.folder import Release

CAP = "1/2"  # zCDP: what the custodian allows for this dataset


def demonstrate(
    folder: Path, progress: Callable[[str, float], None]
) -> tuple[Release, dict[str, float]]:
    """Make the person table, register it, and run the plan, as a user would.

    Args:
        folder: folder for all files. Existing files are kept: a second run returns the same
            release, or runs an edited ``plan.toml``.
        progress: a function of a stage's name and the share done.

    Returns:
        The release, and the seconds of each stage.
    """
    folder.mkdir(parents=True, exist_ok=True)
    people = folder / "people.parquet"
    start = time.perf_counter()
    if not people.exists():
        write_people(people, lambda part: progress("making 42,008,942 people", 0.6 * part))
    rebuilt = time.perf_counter()
    plan = _plan(folder)
    ledger = Ledger(str(folder / "ledger.db"))
    ledger.create("midwest-1990@1", protects="person", neighboring="replace-one", cap=CAP)
    release = run(
        plan,
        {"people": people},
        ledger,
        folder / "release",
        progress=lambda stage, part: progress(stage, 0.6 + 0.35 * part),
    )
    released = time.perf_counter()
    progress("plain aggregation, to compare", 0.97)
    _aggregate(people)
    done = time.perf_counter()
    progress("done", 1.0)
    return release, {
        "people": rebuilt - start,
        "release": released - rebuilt,
        "aggregation": done - released,
    }


def edited(folder: Path) -> bool:
    """Return True if the plan in the demo's folder differs from the demo's own."""
    return (folder / "plan.toml").read_text(encoding="utf-8") != PLAN


def _plan(folder: Path) -> Path:
    """Return the path of the demo's plan. Write the plan and its list of places if missing."""
    with tempfile.TemporaryDirectory() as fresh:
        for file in (write_plan(Path(fresh)), Path(fresh) / "places.csv"):
            if not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    return folder / "plan.toml"


def _aggregate(people: Path) -> None:
    path = str(people).replace("'", "''")
    with duckdb.connect(config=dict(OFFLINE)) as connection:
        connection.execute(
            f"SELECT state, county, race, count(*) FROM '{path}' GROUP BY ALL"
        ).fetchall()
