"""How fast exact noise is drawn, beside OpenDP's vectors in the same run.

`python benchmarks/noise.py` prints the table, `--json FILE` keeps all numbers, `--no-peer` leaves
OpenDP out. Rates are of one thread: CPU time decides, because other work may share the machine;
wall time stands beside it. The operating system's entropy and the stream cipher are in all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from neyman.noise import SecureBits, discrete_gaussian, discrete_laplace, lookup_table, rejection
from neyman.noise.integer_noise import LIMITS as NOISE_LIMITS
from neyman.noise.large_gaussian import Strips

SCALES = (1, 10, 100, 1000, 10**4, 10**5, 10**6)
CHUNK = 1 << 20  # draws of one call: a release draws in chunks
CELLS = 10**8
GOALS = {  # draws a second on one core
    ("gaussian", 10): 60e6,
    ("gaussian", 1000): 30e6,
    ("gaussian", 10**6): 40e6,
}
FASTER = {("gaussian", 10): 500.0}  # than OpenDP
MOST_SECONDS = 6.0  # wall, for all cells on two cores


@dataclass(frozen=True)
class Row:
    """One distribution at one scale."""

    law: str
    scale: int
    engine: str
    build: float | None  # CPU milliseconds of the table
    megabytes: float | None  # that it takes
    cpu_rate: float  # draws a second
    wall_rate: float
    peer_rate: float | None
    faster: float | None
    missed: tuple[str, ...]


def rates(draw: Callable[[], int], least: float, runs: int = 5) -> tuple[float, float]:
    """Draws a CPU second and a wall second: medians of ``runs`` of at least ``least`` seconds."""
    draw()
    results: list[tuple[float, float]] = []
    for _ in range(runs):
        draws, cpu, wall = 0, time.process_time(), time.perf_counter()
        while time.process_time() - cpu < least / runs:
            draws += draw()
        results.append((draws / (time.process_time() - cpu), draws / (time.perf_counter() - wall)))
    cpu_rates, wall_rates = zip(*results, strict=True)
    return statistics.median(cpu_rates), statistics.median(wall_rates)


def sampler(law: str, scale: int, size: int) -> Callable[[], int]:
    """A call of ours that draws ``size`` and says how many."""
    bits = SecureBits()
    if law == "gaussian":
        return lambda: discrete_gaussian(Fraction(scale**2), size, bits).size
    return lambda: discrete_laplace(Fraction(scale), size, bits).size


def built(law: str, scale: int) -> tuple[float | None, float | None]:
    """CPU milliseconds and megabytes of a scale's table: None where there is none."""
    if law == "gaussian" and scale > NOISE_LIMITS.small_scale:
        start = time.process_time()
        strips = Strips(Fraction(scale**2), rounded=False)
        return 1e3 * (time.process_time() - start), strips.guide.nbytes / 1e6
    if scale > lookup_table.LIMITS.scale:
        return None, None
    a, b = Fraction(0), Fraction(0)
    if law == "gaussian":
        b = Fraction(1, 2 * scale**2)
    else:
        a = Fraction(1, scale)
    times: list[float] = []
    megabytes = 0.0
    for _ in range(5):
        lookup_table.weights_table.cache_clear()
        start = time.process_time()
        product = lookup_table.weights_table(a, b)
        times.append(time.process_time() - start)
        megabytes = sum(x.nbytes for x in (product.guide, product.first, product.thresholds)) / 1e6
    return 1e3 * statistics.median(times), megabytes


def peer(law: str, scale: int, seconds: float) -> float:
    """OpenDP's draws a CPU second, on vectors of whole numbers."""
    dp: Any = import_module("opendp.prelude")  # its stubs hide what it exports
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if law == "gaussian":
        make, metric = dp.m.make_gaussian, dp.l2_distance(T=float)
    else:
        make, metric = dp.m.make_laplace, dp.l1_distance(T=int)
    measurement = make(domain, metric, scale=float(scale))
    zeros = [0] * 5000
    return rates(lambda: len(measurement(zeros)), seconds)[0]


def measure(law: str, scale: int, seconds: float, peers: bool) -> Row:
    """One row: ours, then the peer."""
    print(f"{time.strftime('%H:%M:%S')}  {law} {scale}", file=sys.stderr, flush=True)
    build, megabytes = built(law, scale)
    cpu_rate, wall_rate = rates(sampler(law, scale, CHUNK), seconds)
    theirs = peer(law, scale, seconds) if peers else None
    faster = cpu_rate / theirs if theirs else None
    missed: list[str] = []
    if cpu_rate < GOALS.get((law, scale), 0.0):
        missed.append("rate")
    if faster is not None and faster < FASTER.get((law, scale), 0.0):
        missed.append("faster")
    wide = law == "gaussian" and scale > NOISE_LIMITS.small_scale
    engine = "rejection" if build is None else "strips" if wide else "table"
    return Row(
        law, scale, engine, build, megabytes, cpu_rate, wall_rate, theirs, faster, tuple(missed)
    )


def histogram(threads: int) -> dict[str, float]:
    """Noise of sigma 10 on ``CELLS`` counts, chunk by chunk, in threads that share nothing else."""
    chunks = iter(range(0, CELLS, CHUNK))
    lock = threading.Lock()
    bits, sigma_squared = SecureBits(), Fraction(100)
    totals: list[int] = []

    def work() -> None:
        counts, noise = np.zeros(CHUNK, np.int64), np.empty(CHUNK, np.int64)
        while True:
            with lock:
                start = next(chunks, None)
            if start is None:
                return
            size = min(CHUNK, CELLS - start)
            discrete_gaussian(sigma_squared, size, bits, noise[:size])
            noise[:size] += counts[:size]
            totals.append(int(np.abs(noise[:size]).sum()))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    cpu, wall = time.process_time(), time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {
        "threads": threads,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "mean_magnitude": sum(totals) / CELLS,
    }


def shown(rows: list[Row], cells: list[dict[str, float]], peers: bool) -> None:
    """The tables, with what was missed."""
    console = Console(width=110)
    printed = Table(box=box.SIMPLE, title="Exact draws a second, in millions (one thread)")
    for name in ("law", "scale", "by", "table, ms", "MB", "CPU", "wall", "OpenDP", "times", "goal"):
        printed.add_column(name, justify="left" if name in ("law", "by", "goal") else "right")
    for row in rows:
        goal = GOALS.get((row.law, row.scale))
        words = f"{goal / 1e6:.0f}" if goal else ""
        if (least := FASTER.get((row.law, row.scale))) and peers:
            words += f", {least:.0f} times"
        if words:
            words += f": {' and '.join(row.missed)} missed" if row.missed else ": met"
        printed.add_row(
            row.law,
            f"{row.scale:,}",
            row.engine,
            "" if row.build is None else f"{row.build:.1f}",
            "" if row.megabytes is None else f"{row.megabytes:.1f}",
            f"{row.cpu_rate / 1e6:.1f}",
            f"{row.wall_rate / 1e6:.1f}",
            "" if row.peer_rate is None else f"{row.peer_rate / 1e6:.3f}",
            "" if row.faster is None else f"{row.faster:,.0f}",
            words,
        )
    console.print(printed)
    for result in cells:
        met = (
            ""
            if result["threads"] != 2
            else f"goal {MOST_SECONDS:.0f} s wall on two cores: "
            + ("met" if result["wall"] <= MOST_SECONDS else "missed")
        )
        console.print(
            f"  {CELLS:,} cells at sigma 10, {result['threads']:.0f} thread(s): "
            f"{result['wall']:.2f} s wall, {result['cpu']:.2f} s CPU  {met}"
        )
    console.print(
        f"  {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores"
        + (f", OpenDP {version('opendp')}" if peers else "")
    )


def main() -> None:
    """Measures all rows and prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="a file for all numbers")
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU seconds a rate is taken of")
    parser.add_argument("--no-peer", action="store_true", help="leave OpenDP out")
    asked = parser.parse_args()
    peers = not asked.no_peer
    laws = ("gaussian", "laplace")
    rows = [measure(law, s, asked.seconds, peers) for law in laws for s in SCALES]
    cells = [histogram(threads) for threads in (1, 2)]
    shown(rows, cells, peers)
    if asked.json:
        by_key: dict[str, Any] = {
            "rows": [asdict(row) for row in rows],
            "cells": cells,
            "goals_missed": [f"{r.law} {r.scale}: {m}" for r in rows for m in r.missed],
            "largest_scale_by_table": lookup_table.LIMITS.scale,
            "largest_scale": rejection.LIMITS.scale,
        }
        asked.json.write_text(json.dumps(by_key, indent=1) + "\n")


if __name__ == "__main__":
    main()
