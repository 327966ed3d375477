"""How fast exact tables are made: against DuckDB alone, with many rows a unit, and on Spark.

    python benchmarks/engine.py demo            # 42 million people, against GROUPING SETS
    python benchmarks/engine.py units           # 100 million rows, 10 million units, 5 rows a unit
    python benchmarks/engine.py spark           # rows a second on both engines, and where time goes
    python benchmarks/engine.py cluster         # 100 million rows on one and two workers of Spark
    python benchmarks/engine.py postgres        # against the plain query in the server

`--rows` makes all but the demo smaller. Each prints its goal, what was measured, and whether it is
met.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa

from neyman.cli.demo.midwest import counted, write_people, write_plan
from neyman.publishing import (
    Plan,
    aggregate_cells,
    backend_of,
    check_schema,
    close_table,
    listed,
    open_table,
    rehearse,
)
from neyman.publishing.engines.aggregate import buckets_of
from neyman.publishing.engines.backends import fetched, fresh_key
from neyman.publishing.engines.bounding import first_rows
from neyman.publishing.engines.encoding import Coding, names_of

SETS = "(state), (state, county), (race), (state, race), (state, county, race)"


def report_row(what: str, value: float, unit: str, most: float | None = None) -> None:
    goal = (
        "" if most is None else f"   goal {most:.3g} {unit}: {'met' if value <= most else 'MISSED'}"
    )
    print(f"{what:<58} {value:8.3f} {unit}{goal}", flush=True)


def timed(work: Callable[[], Any], times: int = 1) -> tuple[float, Any]:
    """The least seconds of several runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def demo(folder: Path) -> None:
    people = folder / "people.parquet"
    write_people(people)
    plan = Plan.load(write_plan(folder))

    def alone() -> Any:
        with duckdb.connect() as connection:
            return connection.execute(
                f"SELECT state, county, race, count(*) FROM '{people}' "
                f"GROUP BY GROUPING SETS ({SETS})"
            ).fetchall()

    def ours() -> Any:
        table = open_table(people, columns=("state", "county", "race"))
        return aggregate_cells(plan, table)

    def before() -> Any:
        form = open_table(people, rows=False)
        check_schema(plan, form, people)
        rehearse(plan, form)

    timed(ours)  # imports
    plain, rows = timed(alone, 5)
    exact, result = timed(ours, 5)
    report_row("DuckDB's GROUP BY GROUPING SETS", plain, "s")
    report_row("from opening the data to exact tables", exact, "s", 1.3 * plain + 0.2)
    report_row("before the charge: schema and rehearsal", timed(before, 3)[0], "s")
    totals = {row[0]: row[3] for row in rows if row[0] and not row[1] and not row[2]}
    states = [path[-1] for path in plan.hierarchy.paths("state")] if plan.hierarchy else []
    assert result["total", "state", "count"].dense().tolist() == [totals[s] for s in states]


def many(path: Path, number: int) -> None:
    """So many rows, one in ten as many units, at random places."""
    places = counted()
    with duckdb.connect(
        config={"memory_limit": "4GB", "temp_directory": str(path.parent)}
    ) as product:
        product.register(
            "places",
            pa.table(
                {
                    "i": list(range(len(places))),
                    "state": [row["state"] for row in places],
                    "county": [row["county"] for row in places],
                }
            ),
        )
        product.execute(
            f"COPY (SELECT (hash(r) % {number // 10})::BIGINT AS person, state, county FROM "
            f"(SELECT range AS r, (hash(range + 7777777777) % {len(places)})::BIGINT AS i "
            f"FROM range({number})) JOIN places USING (i)) TO '{path}' (FORMAT parquet)"
        )


def of_units(folder: Path, rows: int = 5) -> Plan:
    places = [["Midwest", row["state"], row["county"]] for row in counted()]
    query = {"name": "q", "measure": "count", "at": ["state", "county"], "share": 1}
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "units",
            "dataset": "units@1",
            "table": "t",
            "unit": {
                "protects": "person",
                "neighboring": "add-remove",
                "rows": rows,
                "id": "person",
            },
            "hierarchy": {"place": {"levels": ["region", "state", "county"], "keys": places}},
            "budget": {"zcdp": 1},
            "query": [query],
        }
    )


@contextmanager
def watched(folder: Path) -> Iterator[dict[str, float]]:
    """The most memory of this process, and of files in a folder, in GB, while something runs."""
    by_key = {"memory": 0.0, "spill": 0.0}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            resident = int(Path("/proc/self/statm").read_text().split()[1])
            by_key["memory"] = max(by_key["memory"], resident * resource.getpagesize() / 1e9)
            size = 0
            for file in folder.rglob("*"):
                try:
                    size += file.stat().st_size
                except OSError:
                    continue
            by_key["spill"] = max(by_key["spill"], size / 1e9)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield by_key
    finally:
        done.set()
        watcher.join()


def units(folder: Path, number: int, memory: str) -> None:
    path = folder / "many.parquet"
    if not path.exists():
        many(path, number)
    plan = of_units(folder)
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    tempfile.tempdir = str(spill)
    start = time.perf_counter(), time.process_time()
    said = -1
    with watched(spill) as observation:
        table = open_table(path, columns=("person", "state", "county"), memory=memory)

        def tell(part: float) -> None:
            nonlocal said
            if int(10 * part) > said:
                said = int(10 * part)
                print(f"  {part:.0%} {time.perf_counter() - start[0]:.0f} s", flush=True)

        result = aggregate_cells(plan, table, progress=tell)
        close_table(table)
    wall, spent = time.perf_counter() - start[0], time.process_time() - start[1]
    report_row(f"{number / 1e6:.0f} million rows, at most 5 a unit: time", wall, "s", 180)
    report_row("  processor time", spent, "s")
    report_row("  memory", observation["memory"], "GB", 6)
    report_row("  spilled", observation["spill"], "GB", 20)
    report_row("  million rows a second", number / 1e6 / wall, "")
    selection = result["q", "county", "count"].dense().sum()
    with duckdb.connect(config={"memory_limit": "3GB", "temp_directory": str(spill)}) as check:
        right = check.execute(
            f"SELECT sum(least(n, 5)) FROM (SELECT count(*) n FROM '{path}' GROUP BY person)"
        ).fetchone()
    assert right is not None
    assert selection == right[0]


def stages(path: Path | str, engine: str, plan: Plan) -> None:
    """Where the time goes: each stage is run with all before it, and what it adds is told."""
    query = plan.queries[0]
    table = open_table(path, engine, ("state", "county", "person"))
    coding = Coding(plan, tuple(table.columns))
    axes = coding.axes(query, coding.lowest(query))
    names = names_of(axes)
    with backend_of(table).secret(fresh_key()) as key, listed(coding, table, axes) as keys:

        def work(stage: str) -> None:
            for bucket in buckets_of(plan, table):
                rows: Any = coding.read(bucket, axes, unit=True)
                if stage != "reading":
                    rows = coding.looked_up(rows, axes, keys)
                if stage in ("hashing and ranking", "grouping"):
                    rows = first_rows(rows, names, plan.unit.rows, key, 0)
                if stage == "grouping":
                    rows = rows.group_by(*names).aggregate(n=rows.count())
                # A server has no greatest one of bytes.
                greatest = "count" if table.get_backend().name == "postgres" else "max"
                measures = {
                    f"m{i}": getattr(rows[c], greatest)() for i, c in enumerate(rows.columns)
                }
                fetched(rows.aggregate(**measures))

        before = 0.0
        for stage in ("reading", "looking keys up", "hashing and ranking", "grouping"):
            seconds, _ = timed(lambda stage=stage: work(stage), 2)
            report_row(f"  of which {stage}", seconds - before, "s")
            before = seconds
    close_table(table)


def engines(folder: Path, number: int) -> None:
    """The same work on both, with and without bounds."""
    path = folder / "both.parquet"
    many(path, number)
    bounded = of_units(folder)
    free = Plan.from_dict(
        {**bounded.canonical(), "unit": {"protects": "row", "neighboring": "add-remove", "rows": 1}}
    )
    results = []
    for engine in ("duckdb", "spark"):
        opened, form = timed(lambda e=engine: open_table(path, e, rows=False))
        report_row(f"{engine}: opened", opened, "s")
        for name, plan in (("counted", free), ("at most 5 rows a unit", bounded)):
            columns = ("state", "county") + (("person",) if plan is bounded else ())
            seconds, result = timed(
                lambda e=engine, p=plan, c=columns: aggregate_cells(p, open_table(path, e, c)), 2
            )
            report_row(f"{engine}: {name}, {number / 1e6:.0f} million rows", seconds, "s")
            report_row("  million rows a second", number / 1e6 / seconds, "")
            results.append(result["q", "county", "count"].dense())
        stages(path, engine, bounded)
        close_table(form)
    assert (results[0] == results[2]).all()
    assert results[1].sum() == results[3].sum()


def postgres(number: int) -> None:
    """On a server, one row and several rows of each unit, against plain queries there."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from postgres_server import PostgresServer  # pyright: ignore[reportMissingImports]

    places = [(row["state"], row["county"]) for row in counted()]
    with PostgresServer() as server, psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE places (i serial, state text, county text)")
        with connection.cursor().copy("COPY places (state, county) FROM STDIN") as copy:
            for place in places:
                copy.write_row(place)
        connection.execute(
            "CREATE UNLOGGED TABLE many AS SELECT (hashint8extended(r, 1) & 2147483647) %% %s AS"
            " person, state, county FROM generate_series(1, %s) r JOIN places"
            " ON i = 1 + (hashint8extended(r, 2) & 2147483647) %% %s",
            (number // 10, number, len(places)),
        )
        connection.execute("VACUUM ANALYZE many")
        url = server.url(table="many")
        group = "FROM many GROUP BY state, county"
        ranked = (
            "FROM (SELECT state, county, row_number() OVER (PARTITION BY person) AS n FROM many) m"
            " WHERE n <= 5 GROUP BY state, county"
        )
        bounded = of_units(Path())
        free = Plan.from_dict(
            {
                **bounded.canonical(),
                "unit": {"protects": "row", "neighboring": "add-remove", "rows": 1},
            }
        )
        for name, plan, rest, goal in (
            ("one row a unit", free, group, 1.15),
            ("at most 5 rows a unit", bounded, ranked, None),
        ):
            query = f"SELECT state, county, count(*) {rest}"
            times = 5 if plan is free else 2
            timed(lambda query=query: connection.execute(query).fetchall())
            table = open_table(url, columns=("state", "county", "person"))
            plain = ours = float("inf")
            for _ in range(times):  # in turn, so that both meet the same load
                one, rows = timed(lambda query=query: connection.execute(query).fetchall())
                other, result = timed(lambda p=plan, t=table: aggregate_cells(p, t))
                plain, ours = min(plain, one), min(ours, other)
            report_row(f"{name}, {number / 1e6:g} million rows: the plain query", plain, "s")
            report_row("  the same by a plan", ours, "s", goal and goal * plain)
            report_row("  ratio", ours / plain, "")
            close_table(table)
            selection = result["q", "county", "count"].dense().sum()
            assert selection == sum(row[2] for row in rows), (selection, name)
        stages(url, "duckdb", bounded)


PLAIN = (
    "SELECT state, county, count(*) FROM (SELECT state, county, row_number() OVER (PARTITION BY"
    " person ORDER BY sha2(concat('{key}', state, ',', county, ',', person), 256)) AS n"
    " FROM people) WHERE n <= 5 GROUP BY state, county"
)
"""The plain query: at most 5 rows of each unit, in an order that is random for who lacks a key."""


def cluster(folder: Path, number: int) -> None:
    """At most 5 rows of each unit on one worker and on two, against plain Spark SQL there."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from spark_cluster import SparkCluster  # pyright: ignore[reportMissingImports]
    from tiers import cpu_seconds  # pyright: ignore[reportMissingImports]

    path = folder / "cluster.parquet"
    many(path, number)
    plan, key, columns = of_units(folder), fresh_key(), ("person", "state", "county")
    right = aggregate_cells(plan, open_table(path, columns=columns), key)["q", "county", "count"]
    plain_query = PLAIN.format(key=key.hex())
    walls: dict[int, float] = {}
    for workers in (1, 2):
        with SparkCluster(workers, {}, above=str(folder)) as spark:
            table = open_table(path, "spark", columns, master=spark.url)
            session: Any = table.get_backend()

            def cpu(spark: Any = spark) -> list[float]:
                return [cpu_seconds(worker.pid) for worker in spark.workers]

            def count(table: Any = table) -> Any:
                return aggregate_cells(plan, table, key)["q", "county", "count"]

            def query(session: Any = session) -> Any:
                return sum(session._session.sql(plain_query).toArrow()[2].to_pylist())

            by_work: dict[str, float] = {}
            for name, work in (("plain Spark SQL", query), ("the same by a plan", count)):
                before = cpu()
                by_work[name], result = timed(work)
                spent = [after - start for start, after in zip(before, cpu(), strict=True)]
                report_row(f"{workers} of Spark's workers: {name}", by_work[name], "s")
                report_row("  processor time of the workers", sum(spent), "s")
                report_row("  of which the busiest", max(spent), "s")
                dense = right.dense()
                same = result == dense.sum() if work is query else (result.dense() == dense).all()
                assert same, name
            plain, walls[workers] = by_work.values()
            report_row("  against plain Spark SQL", walls[workers], "s", 1.3 * plain + 5)
            close_table(table)
    report_row("one worker's time over two workers'", walls[1] / walls[2], "")
    report_row("  two workers' time", walls[2], "s", walls[1] / 1.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", default=["demo", "units", "spark"])
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--folder", type=Path, default=None, help="kept, with what is made in it")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    print(f"{os.cpu_count()} cores, DuckDB {duckdb.__version__}")
    with tempfile.TemporaryDirectory() as product:
        folder = given.folder or Path(product)
        for which in given.which:
            if which == "demo":
                demo(folder)
            elif which == "postgres":
                postgres(given.rows or 10_000_000)
            elif which == "cluster":
                cluster(folder, given.rows or 100_000_000)
            elif which == "units":
                units(folder, given.rows or 100_000_000, given.memory)
            else:
                engines(folder, given.rows or 10_000_000)


if __name__ == "__main__":
    main()
