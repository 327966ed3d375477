"""Seconds and memory of making tables add up: the demo's, and a tree with 10^7 blocks.

`python benchmarks/consistent.py` prints a line for each; each runs in a process of its own, so that
its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

BLOCKS = {
    "nation": 1,
    "state": 51,
    "county": 3_143,
    "tract": 84_000,
    "block group": 240_000,
    "block": 10_000_000,
}


def demo() -> None:
    """The tables of the 42-million-person demo, from noisy ones."""
    from neyman.publishing.consistency.adjusted_tables import consistent_tables
    from reproductions.consistency.page import demo_plan, noisy_tables, true_tables

    with tempfile.TemporaryDirectory() as folder:
        plan = demo_plan(Path(folder))
    noisy = noisy_tables(plan, true_tables(plan), 1)
    for method in ("least-squares", "nonnegative", "integer"):
        times = []
        for _ in range(5):
            start = time.process_time()
            consistent_tables(plan, noisy, method)
            times.append(time.process_time() - start)
        cells = sum(len(values) for values, _ in noisy.values())
        print(
            f"demo, {cells:,} cells, {method}: {1e3 * times[0]:.1f} ms at first, "
            f"{1e3 * sorted(times)[2]:.1f} ms again"
        )


def blocks() -> None:
    """A nation down to 10^7 blocks, all levels measured."""
    from neyman.publishing.consistency.tree import PlaceTree

    rng = np.random.default_rng(1)
    sizes = list(BLOCKS.values())
    parents = [
        np.concatenate([np.arange(upper), rng.integers(0, upper, lower - upper)])
        for upper, lower in pairwise(sizes)
    ]
    values = [np.rint(rng.normal(33, 40, sizes[-1]))]
    for upper, above in zip(sizes[-2::-1], parents[::-1], strict=True):
        values.insert(0, np.bincount(above, weights=values[0], minlength=upper))
    variances = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    noisy = [v + s**0.5 * rng.normal(size=len(v)) for v, s in zip(values, variances, strict=True)]
    before = _peak()
    start = time.process_time()
    tree = PlaceTree(parents, variances)
    result = tree.fit(noisy)
    took = time.process_time() - start
    print(
        f"{len(values[-1]):,} blocks on {len(sizes)} levels, values and standard errors: "
        f"{took:.1f} s of CPU, {_peak():.2f} GiB at the peak ({before:.2f} before: the tables)"
    )
    for name, truth, noise, estimate, variance in zip(
        BLOCKS, values, noisy, result, tree.after, strict=True
    ):
        rms = [np.sqrt(np.mean((table - truth) ** 2)) for table in (noise, estimate)]
        print(
            f"  {name:12} rms error {rms[0]:.4f} -> {rms[1]:.4f} "
            f"(stated {np.sqrt(variance.mean()):.4f})"
        )
    alone = [size * variance for size, variance in zip(sizes, variances, strict=True)]
    print(
        f"  national total: variance {tree.after[0][0]:.6f}, "
        f"best single level alone {min(alone):.6f}"
    )


def crossed() -> None:
    """Counts and counts by 10 keys at all levels, down to 10^6 blocks, mostly of no one."""
    from neyman.publishing.consistency.margins import Margin, Margins
    from neyman.publishing.consistency.nonnegative import nonnegative

    rng = np.random.default_rng(1)
    sizes = [1, 51, 3_143, 84_000, 1_000_000]
    parents = [
        np.concatenate([np.arange(upper), rng.integers(0, upper, lower - upper)])
        for upper, lower in pairwise(sizes)
    ]
    truth = [rng.poisson(0.3, size=(sizes[-1], 10, 1)).astype(float)]
    for upper, above in zip(sizes[-2::-1], parents[::-1], strict=True):
        sums = np.zeros((upper, 10, 1))
        np.add.at(sums, above, truth[0])
        truth.insert(0, sums)
    kinds = [(level, by) for level in range(5) for by in (frozenset[int](), frozenset([0]))]
    noisy = []
    for level, by in kinds:
        table = truth[level] if by else truth[level].sum(axis=1, keepdims=True)
        noisy.append(table + np.rint(2 * rng.normal(size=table.shape)))
    cells = sum(table.size for table in noisy)
    start = time.process_time()
    margins = Margins([Margin(level, by, 4.0) for level, by in kinds], [10], parents)
    margins.fit(noisy)
    print(
        f"crossed, {cells:,} cells on {len(sizes)} levels: least squares "
        f"{time.process_time() - start:.1f} s of CPU, {_peak():.2f} GiB at the peak"
    )
    start = time.process_time()
    result = nonnegative(margins, noisy)
    print(
        f"crossed, nonnegative: {time.process_time() - start:.1f} s of CPU, {result.steps} steps, "
        f"residual {result.residual:.1e}, {_peak():.2f} GiB at the peak"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", choices=["demo", "blocks", "crossed"])
    chosen = parser.parse_args().only
    if chosen:
        {"demo": demo, "blocks": blocks, "crossed": crossed}[chosen]()
    else:
        for name in ("demo", "blocks", "crossed"):
            subprocess.run([sys.executable, __file__, name], check=True)
