"""What the explorer's server takes for an answer, control by control, as a slider is dragged along.

`python benchmarks/explore.py` prints for each control the milliseconds, of CPU and of the wall,
until the sentence is there (the curve, with its power and epsilon) and until everything is: median
and worst over the slider's places. BLAS should have one thread (OMP_NUM_THREADS=1), or its idle
threads count as work.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from neyman.cli.demo.midwest import write_plan
from neyman.display.explorer.plan_desk import PlanDesk, opened_from

GOAL = 100  # milliseconds
PLACES = 12

Question = dict[str, Any]
Spent = tuple[float, float]

AT = {"level": 0.05, "prior": 0.5, "delta": 1e-6}
PLAN: Question = {"about": "plan", "rho": None, "weights": [500, 500], **AT}


def spread(low: float, high: float) -> list[float]:
    """Places of a slider, in two digits as the page has them."""
    ratio = high / low
    return [float(f"{low * ratio ** (k / (PLACES - 1)):.2g}") for k in range(PLACES)]


def mechanism(kind: str, **given: float) -> Question:
    return {"about": "mechanism", "kind": kind, **AT, **given}


def sliders() -> Iterator[tuple[str, list[Question]]]:
    """Each control with the questions along its slider."""
    sgd = mechanism("sampled", sigma=0.8, rate=0.004, steps=14_000)
    laplace = mechanism("laplace", scale=5, steps=10)
    discrete = mechanism("discrete", sigma=2, steps=10)
    many = [round(n) for n in spread(1, 100_000)]
    yield "DP-SGD: sigma", [{**sgd, "sigma": x} for x in spread(0.4, 10)]
    yield "DP-SGD: steps", [{**sgd, "steps": n} for n in many if n >= 1000]
    yield "DP-SGD: few steps", [{**sgd, "steps": n} for n in many if n < 1000]
    yield "DP-SGD: rate", [{**sgd, "rate": x} for x in spread(0.0005, 0.5)]
    yield "DP-SGD: level", [{**sgd, "level": x} for x in spread(1e-4, 0.5)]
    yield "DP-SGD: delta", [{**sgd, "delta": x} for x in spread(1e-12, 0.1)]
    yield "Laplace: scale", [{**laplace, "scale": x} for x in spread(0.2, 100)]
    yield "Laplace: steps", [{**laplace, "steps": n} for n in many]
    yield "Laplace: level", [{**laplace, "level": x} for x in spread(1e-4, 0.5)]
    yield "discrete Gaussian: sigma", [{**discrete, "sigma": x} for x in spread(0.3, 100)]
    yield "discrete Gaussian: steps", [{**discrete, "steps": n} for n in many]
    response = mechanism("response", loss=1, categories=5, steps=10)
    yield "randomized response: loss", [{**response, "loss": x} for x in spread(0.05, 5)]
    zcdp = {"about": "guarantee", "promise": "zcdp", **AT}
    yield "zCDP: rho", [{**zcdp, "rho": x} for x in spread(0.001, 10)]
    yield "plan: shares", [{**PLAN, "weights": [w, 1000 - w]} for w in range(40, 1000, 80)]
    yield "plan: budget", [{**PLAN, "rho": x} for x in spread(0.01, 10)]
    yield "plan: level", [{**PLAN, "level": x} for x in spread(1e-4, 0.5)]


def spent(work: Callable[[], Any]) -> tuple[Spent, Any]:
    """Processor and wall milliseconds, and the answer."""
    cpu, wall = time.process_time(), time.perf_counter()
    answer = work()
    return (1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)), answer


def asked(desk: PlanDesk, question: Question) -> tuple[Spent, Spent]:
    """Until the sentence is there, and until everything is that a page asks."""
    first, risk = spent(lambda: desk.answer({**question, "ask": "risk"}))
    more = ["profile", *(["tables", "scenarios"] if question["about"] == "plan" else [])]
    more += [] if risk.exact else ["closer"]
    rest = [spent(lambda a=a: desk.answer({**question, "ask": a}))[0] for a in more]
    cpu, wall = (math.fsum(column) for column in zip(first, *rest, strict=True))
    return first, (cpu, wall)


def main() -> None:
    """Print the table."""
    print(f"{'':<28}{'sentence: CPU':>16}{'wall':>16}{'everything: CPU':>20}{'wall':>16}")
    pair = f"{'worst':>8}{'median':>8}{'worst':>8}"
    print(f"{'':<28}{'median':>8}{pair}{'median':>12}{pair}")
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        desk = PlanDesk(opened_from(str(write_plan(Path(folder)))))
        desk.opening()
        desk.answer({**PLAN, "ask": "scenarios"})
        for name, questions in sliders():
            both = [asked(desk, question) for question in questions]
            line = f"{name:<28}"
            for part, wide in ((0, 8), (1, 12)):
                for clock in (0, 1):
                    times = [each[part][clock] for each in both]
                    line += f"{statistics.median(times):>{wide if clock == 0 else 8}.0f}"
                    line += f"{max(times):>8.0f}"
            print(line, flush=True)
            if max(first[0] for first, _ in both) > GOAL:
                missed.append(name)
    print(f"goal: the sentence within {GOAL} ms of CPU; missed at worst by: {missed or 'none'}")


if __name__ == "__main__":
    main()
