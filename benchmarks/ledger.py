"""Durable reservations a second from racing processes, on SQLite and on PostgreSQL, and a ledger of
a million spends.

    python benchmarks/ledger.py [--store sqlite] [--processes 8] [--seconds 5] [--spends 1000000]
                                [--folder /tmp] [--json numbers.json]

Beside it the disk's own fdatasync: a reservation is on the disk when it is answered, so no single
writer can be faster than that. After each race the ledger is counted: none lost, none doubled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from rich import box
from rich.console import Console
from rich.table import Table

from neyman import Ledger
from neyman.ledger import BudgetRefused, SQLiteFile, digest, line_between
from neyman.ledger.chain import line_around
from neyman.ledger.postgres.connection import sql

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import PostgresServer

STORES = ("sqlite", "postgresql")
NAME = "census@1"
UNIT = {"protects": "person", "neighboring": "replace-one", "rows": 1}
MECHANISMS = [
    {"query": query, "measure": "count", "count": 437, "sigma_squared": "9/4"}
    for query in ("total", "race", "income")
]
PLAN = json.dumps({"name": "midwest", "queries": ["count of persons by county"] * 20})
GOAL_RATE, GOAL_MILLISECONDS = 2000, 50


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def fdatasync(folder: Path) -> float:
    """Median seconds of a 4 kB write and its fdatasync, in a file that is long already."""
    with tempfile.TemporaryFile(dir=folder) as stream:
        number = stream.fileno()
        os.pwrite(number, bytes(1 << 22), 0)
        os.fsync(number)
        took = []
        for turn in range(1000):
            start = time.perf_counter()
            os.pwrite(number, b"\1" * 4096, turn % 1000 * 4096)
            os.fdatasync(number)
            took.append(time.perf_counter() - start)
    return statistics.median(took)


def reserve(ledger: Ledger, key: str, charge: Any = "1/3") -> Any:
    return ledger.reserve(NAME, key=key, charge=charge, mechanisms=MECHANISMS, plan=PLAN, **UNIT)


def work(url: str, worker: int, seconds: float, start: float) -> dict[str, Any]:
    """One process: reserve until the time is up."""
    ledger = Ledger(url)
    ledger.account(NAME)
    took, numbers = [], []
    time.sleep(max(0.0, start - time.monotonic()))
    cpu, end = time.process_time(), start + seconds
    while (now := time.monotonic()) < end:
        numbers.append(reserve(ledger, f"{worker}-{len(numbers)}").id)
        took.append(time.monotonic() - now)
    return {"took": took, "numbers": numbers, "cpu": time.process_time() - cpu}


def race(url: str, processes: int, seconds: float, folder: Path) -> dict[str, Any]:
    """All processes at once on one account, and what the ledger says afterwards."""
    Ledger(url).create(NAME, cap=10**6, **UNIT)
    start, children = time.monotonic() + 1.0, []
    for worker in range(processes):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                done = work(url, worker, seconds, start)
                (folder / f"{worker}.json").write_text(json.dumps(done))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    said = [json.loads((folder / f"{w}.json").read_text()) for w in range(processes) if not failed]
    took = [done["took"] for done in said]
    numbers = [number for done in said for number in done["numbers"]]
    account = Ledger(url).account(NAME)
    stored = [entry.id for entry in Ledger(url).entries(NAME)]
    return {
        "failed": failed,
        "reservations": len(numbers),
        "rate": len(numbers) / seconds,
        "lost": len(set(numbers) - set(stored)),
        "doubled": len(stored) - len(set(numbers)) + len(numbers) - len(set(numbers)),
        "spent": str(account.spent),
        "right": account.spent * 3 == len(numbers) == account.entries,
        "fewest": min(map(len, took)),
        "most": max(map(len, took)),
        "median_ms": 1e3 * statistics.median(t for own in took for t in own),
        "slowest_p99_ms": 1e3 * max(percentile(own, 0.99) for own in took),
        "longest_ms": 1e3 * max(map(max, took)),
        "cpu_us": 1e6 * sum(done["cpu"] for done in said) / max(len(numbers), 1),
    }


@contextmanager
def store(kind: str, above: str) -> Iterator[tuple[str, Path]]:
    """An empty place for a ledger, and the folder that the store's files are in."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=above)))
        if kind == "sqlite":
            yield str(folder / "ledger.db"), folder
        else:
            server = stack.enter_context(PostgresServer(above=above))
            yield server.url("bench"), server.folder


def fill(url: str, spends: int) -> float:
    """A ledger with so many spends, each an event of the chain; seconds that it took."""
    start = time.monotonic()
    with Ledger(url) as ledger:
        ledger.create(NAME, cap=1000, **UNIT)
        fields = {"dataset": NAME, "to": "", "part": "", "charge": "1/1000000", "units": 720_720}
        fields |= {"delta": "0/1", "delta_units": 0, "mechanisms": "[]", "plan": PLAN}
        line, head = line_around("reserve", fields | {"key": "KEY"}), ledger.checkpoint().head
        events, entries = [], []
        for entry in range(1, spends + 1):
            text = line_between(line, entry, entry + 2, head).replace("KEY", f"k{entry}", 1)
            head = digest(text)
            events.append((entry + 2, text, head))
            entries.append((entry, NAME, "", "", f"k{entry}", "reserved", 720_720, 0, entry + 2))
            if entry % 2_000 == 0 or entry == spends:
                insert(ledger._store, {"event": events, "entry": entries})
                events, entries = [], []
        assert ledger.account(NAME).entries == spends
        assert ledger.entries(NAME, last=1)[0].id == spends
    return time.monotonic() - start


COLUMNS = {
    "event": "number, line, hash",
    "entry": "id, dataset, holder, part, key, state, charge, delta, event",
}


def insert(store: Any, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    """Insert many rows at once, in SQLite's or in PostgreSQL's own way; the triggers charge them.

    PostgreSQL's rules on events want the rows of each event before the next. The owner turns these
    rules off for as long as a million events are loaded, as for a backup that is restored.
    """
    if not isinstance(store, SQLiteFile):
        schema = store.address.schema
        rules = [("event", "event_next"), ("event", "event_applied"), ("entry", "entry_new")]
        with psycopg.connect(**store.address.parameters) as connection:
            for table, rule in rules:
                connection.execute(sql(f"ALTER TABLE {schema}.{table} DISABLE TRIGGER {rule}"))
            for table, listed in rows.items():
                into = f"{schema}.{table} ({COLUMNS[table]})"
                with connection.cursor().copy(sql(f"COPY {into} FROM STDIN")) as copy:
                    for row in listed:
                        copy.write_row(row)
            for table, rule in rules:
                always = f"ALTER TABLE {schema}.{table} ENABLE ALWAYS TRIGGER {rule}"
                connection.execute(sql(always))
        return
    with store.writing() as db:
        for table, listed in rows.items():
            marks = ", ".join("?" * len(listed[0]))
            query = f"INSERT INTO {table} ({COLUMNS[table]}) VALUES ({marks})"
            db.connection.executemany(query, listed)


def refuse(url: str) -> list[float]:
    """Milliseconds from naming the ledger to its refusal, 21 times, each time anew."""
    took = []
    for turn in range(21):
        start = time.monotonic()
        with Ledger(url) as ledger:
            try:
                reserve(ledger, f"new {turn}", charge=10**4)
                raise AssertionError("it was granted")
            except BudgetRefused:
                took.append(1e3 * (time.monotonic() - start))
    return took


def measure(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    above = arguments.folder
    with store(kind, above) as (url, folder), tempfile.TemporaryDirectory() as notes:
        by_key: dict[str, Any] = {"store": kind, "fdatasync_us": 1e6 * fdatasync(folder)}
        by_key |= race(url, arguments.processes, arguments.seconds, Path(notes))
        by_key["fdatasync_after_us"] = 1e6 * fdatasync(folder)
    if arguments.spends:
        with store(kind, above) as (url, _):
            by_key |= {"spends": arguments.spends, "filled_s": fill(url, arguments.spends)}
            took = refuse(url)
            by_key |= {"refused_first_ms": took[0], "refused_ms": statistics.median(took)}
    return by_key


def print_table(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    table.title = f"{arguments.processes} processes on one account for {arguments.seconds:g} s"
    words = {
        "rate": ("reservations a second", ",.0f"),
        "fdatasync_us": ("the disk's fdatasync before, microseconds", ",.0f"),
        "fdatasync_after_us": ("and after", ",.0f"),
        "median_ms": ("one reservation, median ms", ".2f"),
        "slowest_p99_ms": ("99th percentile of the slowest process, ms", ".1f"),
        "longest_ms": ("longest, ms", ".1f"),
        "fewest": ("reservations of the least served process", ",d"),
        "most": ("of the best served", ",d"),
        "cpu_us": ("CPU of the process for one, microseconds", ",.0f"),
        "lost": ("lost", "d"),
        "doubled": ("doubled", "d"),
        "spends": ("spends in the big ledger", ",d"),
        "filled_s": ("seconds to fill it", ".0f"),
        "refused_first_ms": ("opens it and refuses, first time, ms", ".1f"),
        "refused_ms": ("median, ms", ".1f"),
    }
    table.add_column("")
    for row in rows:
        table.add_column(row["store"], justify="right")
    for name, (label, form) in words.items():
        if name in rows[0]:
            table.add_row(label, *(format(row[name], form) for row in rows))
    Console().print(table)


def missed(row: dict[str, Any]) -> list[str]:
    """What was promised and is not kept."""
    said = []
    if row["failed"] or row["lost"] or row["doubled"] or not row["right"]:
        said.append("reservations were lost or doubled")
    if row["rate"] < GOAL_RATE:
        said.append(f"{row['rate']:,.0f} reservations a second, not {GOAL_RATE:,}")
    if row["fewest"] < row["most"] / 4:
        said.append("a process was starved")
    if row.get("refused_first_ms", 0) > GOAL_MILLISECONDS:
        said.append(f"{row['refused_first_ms']:.0f} ms to refuse, not {GOAL_MILLISECONDS}")
    return [f"{row['store']}: {text}" for text in said]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", choices=STORES, action="append")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--spends", type=int, default=1_000_000, help="0: no big ledger")
    parser.add_argument("--folder", default="/tmp", help="in /dev/shm no disk is waited for")
    parser.add_argument("--json", type=Path, help="keep all numbers in this file")
    arguments = parser.parse_args()
    rows = [measure(kind, arguments) for kind in arguments.store or STORES]
    print_table(rows, arguments)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    for text in (text for row in rows for text in missed(row)):
        print(f"missed: {text}")


if __name__ == "__main__":
    main()
