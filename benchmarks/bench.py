"""Our accounting beside dp-accounting's, in turn in one process: CPU seconds, error, width.

`make bench` runs it; docs/benchmarks.md says how to read it. `--rows poisson` takes the rows whose
names begin so, `--json FILE` stores all numbers, `--keep` appends a line to history.jsonl.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rows import ROWS, Goal

from neyman.numerics.array_cache import CACHE

HERE = Path(__file__).resolve().parent
MOST_MEMORY = 8 << 30  # bytes of address space: a row that wants more fails alone
MOST_OURS, MOST_PEERS = 60, 300  # seconds
LONG = 5.0  # CPU seconds from which once is enough


@dataclass
class Measured:
    """One row, as far as it came."""

    name: str
    words: str
    shown: str = ""
    error: float | None = None
    inside: bool | None = None
    width: float | None = None
    cold: float | None = None  # CPU milliseconds
    warm: float | None = None
    runs: int = 0
    megabytes: float | None = None
    failure: str = ""
    peer_shown: str = ""
    peer_error: float | None = None
    peer_relative: float | None = None
    peer_cpu: float | None = None
    peer_runs: int = 0
    peer_failure: str = ""
    faster: float | None = None
    tighter: float | None = None
    missed: tuple[str, ...] = ()

    def judge(self, goal: Goal, peers: bool) -> None:
        """What the goal asks and the row does not reach. What came to nothing is missed."""
        checks = [
            ("width", self.width, goal.width, False),
            ("CPU", self.cold, goal.milliseconds, False),
            ("faster", self.faster, goal.faster if peers else None, True),
            ("tighter", self.tighter, goal.tighter if peers else None, True),
        ]
        missed = [
            name
            for name, value, wanted, least in checks
            if wanted is not None
            and (value is None or not (value >= wanted if least else value <= wanted))
        ]
        if not self.inside:
            missed.insert(0, "truth")
        if self.megabytes is None or self.megabytes > 100:
            missed.append("memory")
        self.missed = tuple(missed)


@contextmanager
def at_most(seconds: int):
    """Ends what takes longer, with a TimeoutError."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def clear_caches() -> None:
    """Forgets all that Neyman's memoized functions remember."""
    CACHE.clear()
    for name, module in list(sys.modules.items()):
        if name != "neyman" and not name.startswith("neyman."):
            continue
        owners = [module, *(v for v in vars(module).values() if isinstance(v, type))]
        for owner in owners:
            for value in vars(owner).values():
                clear = getattr(getattr(value, "__func__", value), "cache_clear", None)
                if callable(clear):
                    clear()


def timed(work: Callable[[], Any], limit: int) -> tuple[float, Any]:
    """CPU seconds of all threads, and the answer."""
    gc.collect()
    with at_most(limit):
        start = time.process_time()
        answer = work()
        return time.process_time() - start, answer


def measure(name: str, runs: int, peers: bool) -> Measured:
    """One row: ours with empty caches, ours again, and the peer, in turn."""
    row = ROWS[name]
    result = Measured(name, row.words)
    print(f"{time.strftime('%H:%M:%S')}  {name}", file=sys.stderr, flush=True)
    references = json.loads((HERE / "references.json").read_text())
    reference = references[row.reference or name]["value"]
    cold, warm, peer = [], [], []
    answer = theirs = None
    try:
        timed(row.work, MOST_OURS)  # once, for what Python and NumPy load when first used
    except Exception as error:
        result.failure = _said(error)
    for _ in range(runs):
        if not result.failure and (not cold or statistics.median(cold) < LONG):
            try:
                clear_caches()
                cpu, answer = timed(row.work, MOST_OURS)
                cold.append(cpu)
                warm.append(timed(row.work, MOST_OURS)[0])
            except Exception as error:
                result.failure = _said(error)
        again = row.peer and peers and not result.peer_failure
        if again and row.peer and (not peer or statistics.median(peer) < LONG):
            try:
                cpu, theirs = timed(row.peer, MOST_PEERS)
                peer.append(cpu)
            except Exception as error:
                result.peer_failure = _said(error)
    if cold and not result.failure:
        result.cold, result.warm = 1e3 * statistics.median(cold), 1e3 * statistics.median(warm)
        result.runs = len(cold)
        try:
            with at_most(MOST_OURS):
                judged = row.judge(answer, reference)
            result.shown, result.error = judged.shown, judged.error
            result.inside, result.width = judged.inside, judged.width
        except Exception as error:
            result.failure = _said(error)
    if peer and row.judge_peer and not result.peer_failure:
        result.peer_cpu, result.peer_runs = 1e3 * statistics.median(peer), len(peer)
        try:
            with at_most(MOST_PEERS):
                judged = row.judge_peer(theirs, reference)
            result.peer_shown, result.peer_error = judged.shown, judged.error
            result.peer_relative = judged.relative
        except Exception as error:
            result.peer_failure = _said(error)
    if result.cold and result.peer_cpu:
        result.faster = result.peer_cpu / result.cold
    if result.peer_relative is not None and result.width is not None and result.inside:
        result.tighter = abs(result.peer_relative) / max(result.width, 1e-16)
    if not result.failure:
        result.megabytes, result.failure = memory(name)
    result.judge(row.goal, peers)
    return result


def memory(name: str) -> tuple[float | None, str]:
    """Megabytes above `import neyman` that a row needs at its peak, in its own process."""
    command = [sys.executable, str(HERE / "bench.py"), "--memory-of", name]
    try:
        run = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=2 * MOST_OURS
        )
    except subprocess.TimeoutExpired:
        return None, f"memory: more than {2 * MOST_OURS} s"
    if run.returncode:
        lines = run.stderr.strip().splitlines()
        return None, f"memory: {lines[-1] if lines else run.returncode}"
    return float(run.stdout), ""


def print_memory(name: str) -> None:
    """The row in this process, which imports nothing else: the peak above what the import left.

    `getrusage` alone misleads on Linux, where a child inherits its parent's peak; there the
    kernel's own mark is reset after the import, which counts from what is then in use.
    """
    gc.collect()
    before = _peak(reset=True)
    ROWS[name].work()
    print((_peak() - before) / 1e6)


def _peak(*, reset: bool = False) -> float:
    """Bytes in use at the peak since the mark was last reset."""
    status, mark = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if status.exists():
        if reset:
            mark.write_text("5")
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024.0 * int(fields["VmHWM"].split()[0])
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(used) if sys.platform == "darwin" else 1024.0 * used


def import_seconds(module: str, runs: int) -> float:
    """CPU seconds of an import in a fresh process: the median of the runs."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    results = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(runs)
    ]
    return statistics.median(float(run.stdout) for run in results)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:100]


def _small(x: float | None, sign: str = "") -> str:
    if x is None or math.isnan(x):
        return "-"
    return "0" if x == 0 else format(x, f"{sign}.0e")


def _plain(x: float | None, digits: str = ".1f") -> str:
    return "-" if x is None else format(x, digits)


def _table(title: str, *headings: str) -> Table:
    """Columns that never wrap; ">" puts one to the right."""
    table = Table(box=box.SIMPLE, title=title, title_justify="left", padding=(0, 1))
    for heading in headings:
        side: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
        table.add_column(heading.lstrip(">"), justify=side, no_wrap=True)
    return table


def ours_table(result: list[Measured], runs: int) -> Table:
    """What Neyman answers, beside what was asked of it."""
    table = _table(
        "Neyman",
        "work",
        "answer",
        ">error",
        "inside",
        ">width",
        ">goal",
        ">CPU ms",
        ">goal",
        ">again",
        ">MB",
        "goals met",
    )
    for m in result:
        goal = ROWS[m.name].goal
        if m.failure and m.cold is None:
            table.add_row(m.words, "failed: see below", *[""] * 8, "no")
            continue
        met = "yes" if not m.missed else "no: " + ", ".join(m.missed)
        table.add_row(
            m.words,
            m.shown or "failed: see below",
            _small(m.error),
            "-" if m.inside is None else "yes" if m.inside else "NO",
            _small(m.width),
            _small(goal.width),
            _plain(m.cold) + ("" if m.runs == runs else f" ({m.runs})"),
            _plain(goal.milliseconds, "g"),
            _plain(m.warm),
            _plain(m.megabytes, ".0f"),
            met,
        )
    return table


def peer_table(result: list[Measured]) -> Table:
    """The peer's answers, and the ratios."""
    title = f"Beside dp-accounting {version('dp-accounting')}, default settings"
    table = _table(
        title,
        "work",
        "its answer",
        ">error",
        ">in delta",
        ">CPU ms",
        ">runs",
        ">faster",
        ">goal",
        ">tighter",
        ">goal",
        "note",
    )
    for m in result:
        row = ROWS[m.name]
        note = ""
        if row.peer is None:
            note = "it has no such answer"
        elif m.peer_error is not None and m.peer_error < 0:
            note = "too small: unsafe"
        elif m.peer_shown == "inf":
            note = "it has no answer"
        table.add_row(
            m.words,
            "failed" if m.peer_failure else m.peer_shown,
            _small(m.peer_error, "+"),
            _small(m.peer_relative, "+"),
            _plain(m.peer_cpu, ".0f"),
            str(m.peer_runs or ""),
            _plain(m.faster, ".2g" if (m.faster or 0) < 10 else ".0f"),
            _plain(row.goal.faster, "g"),
            _plain(m.tighter, ".2g"),
            _plain(row.goal.tighter, "g"),
            note,
        )
    return table


def history(results: list[Measured]) -> dict[str, Any]:
    """What one run stores: of each row the width, the error, CPU milliseconds, and megabytes."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, check=False
    )
    fields = ("inside", "width", "error", "cold", "warm", "megabytes", "failure")
    return {
        "when": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
        "commit": commit.stdout.decode().strip(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: version(name) for name in ("neyman", "numpy", "scipy")},
        "rows": {one.name: {field: getattr(one, field) for field in fields} for one in results},
    }


def main() -> None:
    """Measure the rows and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=[""], help="beginnings of names; all if none")
    parser.add_argument("--runs", type=int, default=5, help="of each, in turn (default 5)")
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--json", type=Path, help="where to keep all numbers")
    parser.add_argument("--keep", action="store_true", help="append a line to history.jsonl")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or hard > MOST_MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, hard))
    if asked.memory_of:
        print_memory(asked.memory_of)
        return
    names = [n for n in ROWS if any(n.startswith(begin) for begin in asked.rows or [""])]
    if not names:
        parser.error(f"no row begins so; rows are {', '.join(ROWS)}")
    results = [measure(name, asked.runs, not asked.no_peer) for name in names]
    imports = {m: import_seconds(m, asked.runs) for m in ("neyman", "dp_accounting.pld")}
    console = Console(width=160)
    console.print(ours_table(results, asked.runs))
    if not asked.no_peer:
        console.print(peer_table(results))
    for m in results:
        for whose, failure in (("", m.failure), ("dp-accounting: ", m.peer_failure)):
            if failure:
                console.print(f"{m.name}: {whose}{failure}", markup=False)
    said = ", ".join(f"import {m} {s:.2f} s" for m, s in imports.items())
    machine = f"Python {platform.python_version()}, {platform.machine()}"
    console.print(f"CPU of {said}; medians of {asked.runs}; {machine}", markup=False)
    if asked.json:
        rows = [asdict(m) for m in results]
        asked.json.write_text(json.dumps({"rows": rows, "imports": imports}, indent=1) + "\n")
    if asked.keep:
        with (HERE / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(history(results)) + "\n")


if __name__ == "__main__":
    main()
