"""Our accounting beside dp-accounting's, in turn in one process: CPU seconds and width together.

`make bench` runs it. Medians of five; a peer's answer is what its library returns by default.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from dp_accounting.pld import privacy_loss_distribution as pld
from rich.console import Console
from rich.table import Table

import neyman as ny

RUNS = 5


def poisson(sigma: float, rate: float, steps: int, delta: float) -> tuple[str, Callable, Callable]:
    """Epsilon of a training run."""
    return (
        f"Poisson Gaussian sigma {sigma:g}, rate {rate:.3g}, {steps} steps, delta {delta:g}",
        lambda: (ny.Gaussian(sigma).subsample(rate) * steps).tradeoff().epsilon(delta),
        lambda: (
            pld.from_gaussian_mechanism(sigma, sampling_prob=rate)
            .self_compose(steps)
            .get_epsilon_for_delta(delta)
        ),
    )


WORK = [
    poisson(1.0, 0.01, 1000, 1e-5),
    poisson(0.8, 256 / 60_000, 14_062, 1e-5),
    (
        "30 x randomized response 0.1, delta 1e-6",
        lambda: (ny.RandomizedResponse(0.1) * 30).tradeoff().epsilon(1e-6),
        lambda: (
            pld.from_randomized_response(2 / (1 + 2.718281828459045**0.1), 2)
            .self_compose(30)
            .get_epsilon_for_delta(1e-6)
        ),
    ),
    (
        "6 x discrete Gaussian sigma 3, delta 1e-6",
        lambda: (ny.DiscreteGaussian(3) * 6).tradeoff().epsilon(1e-6),
        lambda: (
            pld.from_discrete_gaussian_mechanism(3, sensitivity=1)
            .self_compose(6)
            .get_epsilon_for_delta(1e-6)
        ),
    ),
    (
        "20 x Laplace 10 + Gaussian 5, delta 1e-6",
        lambda: (ny.Laplace(10) * 20 + ny.Gaussian(5)).tradeoff().epsilon(1e-6),
        lambda: (
            pld.from_laplace_mechanism(10)
            .self_compose(20)
            .compose(pld.from_gaussian_mechanism(5))
            .get_epsilon_for_delta(1e-6)
        ),
    ),
]


def timed(work: Callable) -> tuple[float, object]:
    """CPU seconds and the answer."""
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def import_seconds() -> float:
    """CPU seconds of `import neyman` in a fresh process: the median of the runs."""
    code = "import time; t = time.process_time(); import neyman; print(time.process_time() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(RUNS)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    """Time each work in turn, ours and theirs, and print the ratio."""
    table = Table(
        "work", "epsilon", "width", "CPU ms", "dp-accounting", "CPU ms", "ratio", box=None
    )
    for name, ours, theirs in WORK:
        pairs = [(timed(ours), timed(theirs)) for _ in range(RUNS)]
        own = statistics.median(p[0][0] for p in pairs)
        peer = statistics.median(p[1][0] for p in pairs)
        found = pairs[0][0][1]
        assert isinstance(found, ny.Bound)
        table.add_row(
            name, str(found), f"{found.width:.0e}", f"{1e3 * own:.1f}",
            f"{pairs[0][1][1]:.7g}", f"{1e3 * peer:.0f}", f"{peer / own:.0f}",
        )  # fmt: skip
    console = Console(width=160)
    console.print(table)
    console.print(f"\nimport neyman: {import_seconds():.2f} s of CPU")


if __name__ == "__main__":
    main()
