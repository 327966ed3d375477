"""How long a release takes, from opening the data to the published files, and in how much memory.

`python benchmarks/release.py` prints the table and which goals are met; `--only demo` takes one row
(`demo`, `expressions`, `process`, `plans`, `cells`), `--cells 1e6` makes the large table smaller,
`--json FILE` keeps all numbers. Wall seconds decide, because these are goals of what a user waits
for; CPU seconds of all threads stand beside them, since other work may share the machine. CPU
seconds decide for `plans`.

- demo: 42,008,942 people, from opening the file to noisy tables in memory, beside DuckDB's own
  GROUP BY GROUPING SETS over the same groups, in turn in one process.
- expressions: a filter, two derived columns, and a lookup on the same people, beside the same in
  plain SQL, in turn in one process.
- process: the demo as the whole `neyman run`, with guarantee, report and ledger.
- plans: small plans of every kind on 2,000 rows, from the plan to the published files without the
  engine's part, and the verification of each.
- cells: a table of 10^8 cells of which one in a hundred is not empty: noise alone, the published
  files, and the whole run from a file of a million rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

RUNS = 5
ONLY = ("demo", "expressions", "process", "plans", "cells")
PLAN_CPU = 3.0  # seconds outside the engine of a plan of fewer than ten queries
ROWS = 10**6  # of the data of the large table
ROW = dict[str, Any]


def clock() -> tuple[float, float]:
    """Wall and CPU seconds."""
    return time.perf_counter(), time.process_time()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds that some work takes."""
    wall, cpu = clock()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def middle(times: list[tuple[float, float]]) -> tuple[float, float]:
    """The medians of wall and CPU seconds."""
    return statistics.median(wall for wall, _ in times), statistics.median(c for _, c in times)


def peak() -> float:
    """The most memory that this process has had, in MB; what its parent had does not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the system does not say how much memory was used")


def row(what: str, seconds: tuple[float, float], goal: float | None, **more: Any) -> ROW:
    """One line of the table."""
    wall, cpu = seconds
    return {
        "what": what,
        "wall": wall,
        "cpu": cpu,
        "goal": goal,
        "mb": None,
        "most_mb": None,
        "cpu_goal": None,
    } | more


def demo() -> list[ROW]:
    """Counting and noise of the demo beside the same groups in plain SQL."""
    import duckdb

    from neyman.cli.demo.midwest import write_people, write_plan
    from neyman.noise import SecureBits
    from neyman.publishing import Plan, Source, aggregate_cells, forms, noisy_part
    from neyman.publishing.engines.data_schema import columns_needed

    with tempfile.TemporaryDirectory() as folder:
        people = Path(folder) / "people.parquet"
        write_people(people)
        plan = Plan.load(write_plan(Path(folder)))
        tables = forms(plan, plan.calibrated())
        source = Source(people, "duckdb")
        columns = columns_needed(plan, list(source.rehearse(plan).columns))  # before the charge
        cells = 0

        def ours() -> None:
            nonlocal cells
            exact = aggregate_cells(plan, source.open(columns))
            bits = SecureBits()
            noisy = [noisy_part(form, exact, range(form.cells), bits) for form in tables]
            cells = sum(len(values) for part in noisy for values in part.values())

        def plain() -> None:
            with duckdb.connect() as connection:
                connection.execute(
                    f"SELECT state, county, race, count(*) FROM '{people}' GROUP BY GROUPING SETS"
                    " ((state), (state, county), (race), (state, race), (state, county, race))"
                ).fetchall()

        ours()
        plain()
        both = [(timed(ours), timed(plain)) for _ in range(RUNS)]
    seconds = middle([ours for ours, _ in both])
    own = middle([plain for _, plain in both])
    goal = 1.3 * own[0] + 0.2
    return [
        row("demo: plain GROUPING SETS", own, None),
        row(f"demo: to {cells:,} noisy cells in memory", seconds, goal),
    ]


WHERE = "state in ['IL', 'OH', 'MI', 'WI'] and race != 'other'"
SIDES = {"white": "w", "black": "b", "american_indian": "n", "asian": "n"}


def expressions() -> list[ROW]:
    """A filter, two derived columns, and a lookup on the demo's people, beside plain SQL."""
    import duckdb

    from neyman.cli.demo.midwest import counted, write_people
    from neyman.publishing import Plan, Source, aggregate_cells, columns_read, prepared

    letter = {one["county"]: "abcdefgh"[sum(map(ord, one["county"])) % 8] for one in counted()}
    content = {
        "schema": 2,
        "name": "expressions",
        "dataset": "midwest-1990@1",
        "table": "people",
        "where": WHERE,
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {name: {"type": "text"} for name in ("state", "county", "race")},
        "derive": {
            "side": {"map": "race", "to": SIDES, "unknown": "x"},
            "kind": {
                "case": [
                    ["state == 'IL' and race == 'white'", "A"],
                    ["state in ['OH', 'MI']", "B"],
                ],
                "unknown": "C",
            },
        },
        "lookup": {"letter": {"column": "county", "keys": [list(one) for one in letter.items()]}},
        "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "by": ["side", "kind", "letter"], "share": 1}],
    }
    with tempfile.TemporaryDirectory() as folder:
        people = Path(folder) / "people.parquet"
        write_people(people)
        plan = Plan.from_dict(content)
        source = Source(people, "duckdb")
        columns = columns_read(plan, list(source.rehearse(plan).columns))  # before the charge
        totals: set[int] = set()

        def ours() -> None:
            with prepared(plan, source.open(columns)) as rows:
                (cells,) = aggregate_cells(plan, rows).values()
            totals.add(int(cells.values.sum()))

        def plain() -> None:
            sides = " ".join(f"WHEN '{race}' THEN '{side}'" for race, side in SIDES.items())
            with duckdb.connect() as connection:
                connection.execute("CREATE TABLE letters (county VARCHAR, letter VARCHAR)")
                connection.executemany("INSERT INTO letters VALUES (?, ?)", list(letter.items()))
                counts = connection.execute(
                    f"SELECT CASE race {sides} ELSE 'x' END, CASE WHEN state = 'IL' AND race = "
                    "'white' THEN 'A' WHEN state IN ('OH', 'MI') THEN 'B' ELSE 'C' END, letter, "
                    f"count(*) FROM '{people}' LEFT JOIN letters USING (county) WHERE state IN "
                    "('IL', 'OH', 'MI', 'WI') AND race <> 'other' GROUP BY ALL"
                ).fetchall()
            totals.add(sum(count for *_, count in counts))

        ours()
        plain()
        both = [(timed(ours), timed(plain)) for _ in range(RUNS)]
        if len(totals) > 1:
            raise RuntimeError(f"the counts differ: {totals}")
    own = middle([plain for _, plain in both])
    seconds = middle([ours for ours, _ in both])
    name = "demo: a filter, two derived columns, and a lookup"
    return [
        row(f"{name}, plain SQL", own, None),
        row(name, seconds, 1.15 * own[0] + 0.2, mb=peak(), most_mb=10240.0),
    ]


def process() -> list[ROW]:
    """The demo as `neyman run`, from the start of the process to its end."""
    from neyman import Ledger
    from neyman.cli.demo.midwest import write_people, write_plan

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_people(folder / "people.parquet")
        write_plan(folder)
        Ledger(folder / "ledger.db").create(
            "midwest-1990@1", protects="person", neighboring="replace-one", cap="1/2"
        )
        answer = run_command(folder, "people")
    return [
        row("demo: neyman run, whole process", (answer["wall"], answer["cpu"]), 8, **answer["use"])
    ]


def run_command(folder: Path, table: str) -> ROW:
    """`neyman run` in its own process: its seconds, its memory."""
    args = ["run", "plan.toml", "--data", f"{table}={table}.parquet", "--ledger", "ledger.db"]
    code = (
        "import sys, time; from pathlib import Path; from neyman.cli.main import app\n"
        f"app({[*args, '--out', 'release', '--json']!r}, standalone_mode=False)\n"
        "said = Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "print(said, time.process_time(), file=sys.stderr)"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    kilobytes, cpu = done.stderr.split()[-2:]
    use = {"mb": int(kilobytes) / 1024, "most_mb": 2048.0}
    return {"wall": wall, "cpu": float(cpu), "use": use}


PAY: ROW = {"column": "pay", "clip": [0, 1000]}
AGES: ROW = {"column": "age", "quantiles": [0.25, 0.5, 0.75]}
QUERIES: dict[str, ROW] = {
    "count": {"measure": "count", "by": ["sex"]},
    "races": {"measure": "count", "by": ["race"]},
    "places": {"measure": "count", "at": ["state", "county"]},
    "mean": {"measure": "mean", **PAY},
    "sum": {"measure": "sum", **PAY},
    "small sum": {"measure": "sum", "column": "pay", "clip": [0, 5]},
    "searched mean": {"measure": "mean", "column": "pay", "clip": "discover"},
    "searched sum": {"measure": "sum", "column": "pay", "clip": "discover"},
    "bins": {"measure": "quantiles", **AGES, "edges": [0, 20, 40, 60, 120]},
    "drawn": {"measure": "quantiles", **AGES, "clip": [0, 120], "method": "inverse-sensitivity"},
    "ages": {"measure": "histogram", "column": "age", "edges": [0, 5, 20, 60, 120]},
    "variance": {"measure": "variance", **PAY},
    "deviation": {"measure": "standard_deviation", **PAY},
    "ratio": {"measure": "ratio", **PAY, "over": "age", "clip_over": [16, 80]},
    "jobs": {"measure": "units", "by": ["job"], "delta": 1e-13},
    "bounded": {"measure": "sum", **PAY, "by": ["race"], "groups": 3, "rows_per_group": 4},
}
NINE = "count races mean sum bins ages variance deviation ratio"
BUDGETS: dict[str, ROW] = {
    "power": {"power": 0.25, "level": 0.05},
    "zcdp": {"zcdp": 10, "delta": 1e-9},
    "gdp": {"gdp": 0.5},
    "epsilon": {"epsilon": 1, "delta": 1e-6},
}
ROUNDED, DISCRETE = "rounded-gaussian", "discrete-gaussian"
PLANS: list[tuple[str, str, str, str]] = [  # the queries, the budget, the noise, the unit
    ("count", "power", DISCRETE, "person"),
    ("drawn", "power", DISCRETE, "person"),
    ("drawn", "gdp", DISCRETE, "person"),
    ("bins drawn", "epsilon", DISCRETE, "person"),
    (NINE, "power", DISCRETE, "person"),
    ("jobs count", "epsilon", DISCRETE, "id"),
    ("bounded races", "power", DISCRETE, "id"),
    ("places mean", "power", DISCRETE, "person"),
    ("count", "zcdp", ROUNDED, "person"),
    ("small sum", "power", ROUNDED, "person"),
    ("searched mean", "zcdp", ROUNDED, "person"),
    ("searched sum", "power", ROUNDED, "person"),
    ("bins drawn", "power", ROUNDED, "person"),
    ("count mean", "power", ROUNDED, "rows"),
    ("places mean", "gdp", ROUNDED, "person"),
    (NINE, "power", ROUNDED, "id"),
    (NINE, "epsilon", ROUNDED, "person"),
]


def small_plan(names: str, budget: str, noise: str, unit: str) -> ROW:
    """A plan of few queries."""
    queries = [names] if names in QUERIES else names.split()
    of_unit: ROW = {"protects": "person", "neighboring": "replace-one"}
    of_unit |= {"id": "id", "rows": 20} if unit == "id" else {}
    of_unit |= {"id": "id", "rows": "discover", "rows_share": "1/10"} if unit == "rows" else {}
    numbers = BUDGETS[budget] if budget != "zcdp" or "jobs" in names else {"zcdp": 10}
    keys = [["IL", "Cook"], ["IL", "Lake"], ["OH", "Lake"]]
    place = {"levels": ["state", "county"], "keys": keys, "unknown": "drop"}
    content: ROW = {
        "schema": 2,
        "name": "small",
        "dataset": "people@1",
        "table": "people",
        "unit": of_unit,
        "columns": {
            "sex": {"keys": ["f", "m"]},
            "race": {"keys": ["a", "b", "n", "w"]},
            "pay": {"integer": True},
            "age": {"integer": True},
            "job": {"discover": True},
        },
        "budget": numbers,
        "noise": noise,
        "query": [QUERIES[one] | {"name": one, "share": f"1/{len(queries)}"} for one in queries],
    }
    if "jobs" not in queries:
        del content["columns"]["job"]
    return content | ({"hierarchy": {"place": place}} if "places" in queries else {})


def plans() -> list[ROW]:
    """The CPU seconds of plans of fewer than ten queries, beside those of the engine."""
    import numpy as np
    import pyarrow as pa

    from neyman import Ledger, run
    from neyman.publishing import Plan, errors

    receipt, steps = (
        import_module(f"neyman.publishing.release.{name}") for name in ("receipt", "run")
    )
    random = np.random.default_rng(0)
    size = 2000
    people = pa.table(
        {
            "id": random.integers(0, 500, size),
            "sex": random.choice(["f", "m"], size),
            "race": random.choice(["a", "b", "n", "w"], size),
            "pay": random.integers(0, 900, size),
            "age": random.integers(0, 100, size),
            "job": random.choice(["x", "y", "z"], size),
            "state": ["IL"] * size,
            "county": ["Cook"] * size,
        }
    )
    engine = [0.0]

    def apart(home: Any, name: str) -> None:
        work = getattr(home, name)

        def counted(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            try:
                return work(*args, **options)
            finally:
                engine[0] += time.process_time() - start

        setattr(home, name, counted)

    for name in ("aggregate_cells", "discover"):
        apart(steps, name)
    apart(steps.Source, "rehearse")
    apart(steps.Source, "open_tables")

    def released(folder: Path, content: ROW) -> None:
        plan = Plan.from_dict(content)
        list(errors(plan))
        book = Ledger(str(folder / "ledger.db"))
        book.create(
            plan.dataset,
            protects="person",
            neighboring="replace-one",
            cap=100,
            delta_cap="1/10",
            rows=plan.unit_rows,
        )
        run(plan, people, book, folder / "release")

    rows: list[ROW] = []
    with tempfile.TemporaryDirectory() as first:  # imports and the first connection do not count
        released(Path(first), small_plan("mean", "power", DISCRETE, "person"))
    for kind in PLANS:
        queries, budget, noise, unit = kind
        said = "nine queries" if queries == NINE else queries
        what = f"plan: {said}; {budget}, {noise.split('-')[0]}, {unit}"
        with tempfile.TemporaryDirectory() as folder:
            engine[0] = 0.0
            wall, cpu = timed(partial(released, Path(folder), small_plan(*kind)))
            rows.append(row(what, (wall, cpu - engine[0]), None, cpu_goal=PLAN_CPU))
            receipt._answers.cache_clear()  # as in a process of its own
            receipt._findings.cache_clear()
            again = timed(partial(verified, Path(folder) / "release"))
            rows.append(row(f"{what}: verified", again, None, cpu_goal=PLAN_CPU))
    return rows


def large_plan(cells: int) -> str:
    """A plan of one table by two columns of text keys."""
    side = round(cells**0.5)
    keys = {name: json.dumps([f"{name} {i:05}" for i in range(side)]) for name in ("from", "to")}
    return f"""
schema = 2
name = "large"
dataset = "trips@1"
table = "trips"
[unit]
protects = "trip"
neighboring = "replace-one"
[columns.from]
keys = {keys["from"]}
[columns.to]
keys = {keys["to"]}
[budget]
zcdp = 0.01
[[query]]
name = "trips"
measure = "count"
by = ["from", "to"]
share = 1
"""


def cells(size: int) -> list[ROW]:
    """A large table that is mostly empty."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    from neyman import Ledger
    from neyman.noise import SecureBits, discrete_gaussian
    from neyman.publishing import Cells, Plan, forms, listing, noisy_part, parts
    from neyman.publishing.release.folder import staging
    from neyman.publishing.release.table_files import write

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.toml").write_text(large_plan(size))
        plan = Plan.load(folder / "plan.toml")
        (form,) = forms(plan, plan.calibrated())
        sigma_squared = form.entries[0][1]
        random = np.random.default_rng(0)
        side = round(size**0.5)
        trips = [random.integers(0, side, ROWS) for _ in range(2)]
        index, counts = np.unique(trips[0] * side + trips[1], return_counts=True)
        exact = {("trips", "all", "count"): Cells(form.cells, index, counts.astype(np.int64))}

        def draw() -> None:
            with ThreadPoolExecutor(2) as pool:
                for _ in pool.map(
                    lambda part: discrete_gaussian(sigma_squared, len(part), SecureBits()).size,
                    parts(form),
                ):
                    pass

        def publish() -> None:
            with staging(folder / "out") as stage:
                bits = SecureBits()
                product = (
                    form.build(noisy_part(form, exact, part, bits), part.start)
                    for part in parts(form)
                )
                files = listing(form.query.name, form.level, form.rows)
                write(stage, files, form.schema, product)
                stage.publish()

        noise = timed(draw)
        published = timed(publish)
        most = peak()
        megabytes = sum(file.stat().st_size for file in (folder / "out").rglob("*")) / 1e6
        names = [pa.array([f"{end} {i:05}" for i in range(side)]) for end in ("from", "to")]
        table = {
            end: pa.DictionaryArray.from_arrays(pa.array(trip.astype(np.int32)), keys)
            for end, trip, keys in zip(("from", "to"), trips, names, strict=True)
        }
        pyarrow.parquet.write_table(pa.table(table), folder / "trips.parquet", store_schema=False)
        Ledger(folder / "ledger.db").create(
            "trips@1", protects="trip", neighboring="replace-one", cap=1
        )
        answer = run_command(folder, "trips")
        checked = timed(lambda: verified(folder / "release"))
    total = answer["use"] | {"most_mb": None}
    return [
        row(f"{size:.0e} cells: noise, two threads", noise, 6),
        row(
            f"{size:.0e} cells: noise, keys, intervals, {megabytes:.0f} MB of Parquet",
            published,
            40,
            mb=most,
            most_mb=1024,
        ),
        row(f"{size:.0e} cells: neyman run", (answer["wall"], answer["cpu"]), None, **total),
        row(f"{size:.0e} cells: verified with its report", checked, None),
    ]


def verified(folder: Path) -> None:
    """Refuse a release that does not stand."""
    from neyman.display import page
    from neyman.publishing import verify

    failed = [check for check in verify(folder, {"report.html": page}) if not check.ok]
    if failed:
        raise RuntimeError(str(failed))


def show(rows: list[ROW]) -> int:
    """Print the table; how many goals are missed."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "wall s", "goal", "CPU s", "goal", "peak MB", "at most", "", box=None)
    for name in ("wall s", "goal", "CPU s", "peak MB", "at most"):
        next(c for c in table.columns if c.header == name).justify = "right"
    missed = 0
    for one in rows:
        late = one["goal"] is not None and one["wall"] > one["goal"]
        late |= one["cpu_goal"] is not None and one["cpu"] > one["cpu_goal"]
        large = one["most_mb"] is not None and one["mb"] > one["most_mb"]
        goals = any(one[goal] is not None for goal in ("goal", "cpu_goal", "most_mb"))
        missed += late + large
        table.add_row(
            one["what"],
            f"{one['wall']:.2f}",
            "" if one["goal"] is None else f"{one['goal']:.2f}",
            f"{one['cpu']:.2f}",
            "" if one["cpu_goal"] is None else f"{one['cpu_goal']:.2f}",
            "" if one["mb"] is None else f"{one['mb']:.0f}",
            "" if one["most_mb"] is None else f"{one['most_mb']:.0f}",
            "missed" if late or large else "met" if goals else "",
        )
    Console(width=120).print(table)
    print(f"{missed} goals missed" if missed else "all goals met")
    return missed


def main() -> None:
    """Each row in its own process, so that memory counts for it alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=ONLY)
    parser.add_argument("--cells", type=float, default=1e8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        by_key = {"demo": demo, "expressions": expressions, "process": process}
        by_key["plans"] = plans
        by_key |= {"cells": lambda: cells(int(given.cells))}
        print(json.dumps(by_key[given.only]()))
        return
    rows: list[ROW] = []
    for name in [given.only] if given.only else ONLY:
        command = [
            sys.executable,
            __file__,
            "--inside",
            "--only",
            name,
            "--cells",
            str(given.cells),
        ]
        print(f"{time.strftime('%H:%M:%S')}  {name}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(1 if show(rows) else 0)


if __name__ == "__main__":
    main()
