"""A run on a Spark cluster, a worker of which is killed while it has a task.

This file is also the script that its processes run (see `own_process`).
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

import duckdb
import pytest
from places import PLAN, Place, release

from ledger_entries import UNIT
from neyman import Ledger
from neyman.publishing import Plan, aggregate_cells
from neyman.publishing import run as run_module
from own_process import answer, main
from plain_engine import KEY, counted
from spark_cluster import SparkCluster

FEW = 10**5
ROWS = int(os.environ.get("NEYMAN_CLUSTER_ROWS", FEW))  # `make test-cluster`: 10^8
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TABLES = """
[unit]
protects = "person"
neighboring = "replace-one"
id = "person"
rows = 5
[columns.race]
keys = ["a", "A", "b", "c"]
[columns.county]
keys = [1, 2, 3, 4, 5, 6, 7, 8, 9]
unknown = 9
[columns.income]
integer = true
[budget]
zcdp = 0.5
[[query]]
name = "both"
measure = "count"
by = ["race", "county"]
share = "1/4"
[[query]]
name = "sum"
measure = "sum"
column = "income"
clip = [-9, 50]
by = ["race"]
share = "1/4"
[[query]]
name = "few"
measure = "count"
by = ["county"]
groups = 3
rows_per_group = 1
share = "1/4"
[[query]]
name = "people"
measure = "units"
by = ["race"]
share = "1/4"
"""


def write_rows(path: Path, rows: int) -> None:
    """Ten rows of each unit, at random places, some of them equal, and some of them not known."""
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT nullif(hash(r) % {rows // 10}, 7)::BIGINT AS person, "
            "['a', 'A', 'b', 'c', 'd', '', NULL][1 + (hash(r + 10**9) % 7)::INT] AS race, "
            "nullif(hash(r + 2 * 10**9) % 11, 5)::INT AS county, "
            "nullif(hash(r + 3 * 10**9) % 70, 0)::INT - 20 AS income "
            f"FROM range({rows}) AS t(r)) TO '{path}' (FORMAT parquet)"
        )


def killed_with_a_task(cluster: SparkCluster) -> threading.Thread:
    """Stop a worker now, and kill it when a stage has waited for 2 seconds."""
    from pyspark import SparkContext

    cluster.signal_worker(0, signal.SIGSTOP)
    tracker: Any = SparkContext._active_spark_context.statusTracker()  # pyright: ignore[reportOptionalMemberAccess, reportPrivateUsage]

    def kill() -> None:
        before, waited = set[int](), 0
        while waited < 20:
            active = set(tracker.getActiveStageIds())
            waited = waited + 1 if active & before else 0
            before = active
            time.sleep(0.1)
        cluster.signal_worker(0, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def worker_killed(folder: str, rows: str) -> object:
    """A run on two workers, one of which is killed; how many units its first query has."""
    warnings.simplefilter("ignore")
    above = Path(folder)
    data = above / "people.parquet"
    write_rows(data, int(rows))
    plan = Plan.from_dict(tomllib.loads(PLAN.partition("[unit]")[0] + TABLES))
    place = Place(above, str(above / "ledger.db"), plan)
    with Ledger(place.url) as book:
        book.create(plan.dataset, cap=9, **{**UNIT, "rows": plan.unit.rows})
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.network.crypto.enabled": "true",
    }
    if int(rows) <= FEW:
        settings |= {
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "4",
        }
    exact: dict[Any, Any] = {}

    def with_key(plan: Plan, table: Any, key: None = None, progress: Any = None) -> Any:
        exact.update(aggregate_cells(plan, table, KEY, progress))
        return exact

    run_module.aggregate_cells = with_key
    killers: list[threading.Thread] = []

    with SparkCluster(2, settings) as cluster:
        os.environ["SPARK_CONF_DIR"] = str(cluster.conf)

        def at(stage: str, part: float) -> None:
            if stage == "counting" and part > 0 and not killers:
                killers.append(killed_with_a_task(cluster))

        given: dict[str, Any] = {"engine": "spark", "master": cluster.url}
        release(place.plan, data, place.url, place.out, progress=at, **given)
        assert cluster.workers[0].wait() == -signal.SIGKILL
        killers[0].join()
    place.checked()
    assert place.states() == ["released"]
    assert {path.name for path in above.iterdir()} >= {"out", "people.parquet"}
    assert not any(path.name.startswith(".out") for path in above.iterdir())
    right = counted(plan, data)
    assert {key: cells.dense().tolist() for key, cells in exact.items()} == right
    return sum(right["both", "all", "count"])


@pytest.mark.needs("java")
def test_a_run_on_a_cluster_ends_whole_though_a_worker_is_killed(tmp_path: Path):
    seconds = 900 + ROWS / 10**4
    assert answer(__file__, "worker_killed", tmp_path, ROWS, seconds=seconds) > ROWS / 10


if __name__ == "__main__":
    main(globals())
