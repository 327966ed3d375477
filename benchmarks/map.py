"""The map: random points of every family, with the width, CPU time, and errors of each answer.

    python benchmarks/map.py --points 200 --out build/map.jsonl     # ours, in this process
    python benchmarks/map.py --summary build/map.jsonl              # a table of what was stored
    python benchmarks/map.py --referee before.jsonl.gz --out build/map.jsonl  # do both agree?
    python benchmarks/map.py --figure docs/figures/map.svg --before before.jsonl  # both as curves

A seed fixes the points; none is chosen by its result. Rates run from 1e-7 to .3, noise from .3 to
10, steps from 1 to 10^6, delta from 1e-3 to 1e-30, and levels from 1e-30 to .999, spread evenly in
their logarithms. Each line of the file is one answer, so a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import questions
from matplotlib.ticker import PercentFormatter

import neyman as ny

LIMIT = 10  # seconds of CPU time for one answer
LEAST = 1e-300  # 1 - power that counts as nothing
QUESTIONS = ("epsilon", "power")
RANDOM_QUESTIONS = [kind for kind in questions.QUESTIONS if kind != "powers"]

Point = dict[str, float]


def gaussian(p: Point, **how: Any) -> Any:
    """Steps of Gaussian noise on Poisson samples."""
    return ny.Gaussian(p["sigma"]).subsample(rate=p["rate"], **how) * int(p["steps"])


def memory(field: str) -> int:
    """Bytes of this process: in use now (`VmRSS`) or at the mark's highest (`VmHWM`), on Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.split(field + ":")[1].split()[0])


AT_IMPORT = memory("VmRSS")

FAMILIES: dict[str, Callable[[Point], Any]] = {
    "Poisson Gaussian": gaussian,
    "Poisson Gaussian, replace-one": lambda p: gaussian(p, neighboring="replace-one"),
    "Gaussian, fixed size": lambda p: (
        ny.Gaussian(p["sigma"]).subsample(size=math.ceil(p["rate"] * 10**7), population=10**7)
        * int(p["steps"])
    ),
    "Poisson Laplace": lambda p: ny.Laplace(p["sigma"]).subsample(rate=p["rate"]) * int(p["steps"]),
    "discrete Gaussian": lambda p: ny.DiscreteGaussian(p["sigma"]) * int(p["steps"]),
    "discrete Laplace": lambda p: ny.DiscreteLaplace(p["sigma"]) * int(p["steps"]),
    "k-ary response": lambda p: (
        ny.RandomizedResponse(1 / p["sigma"], 2 + int(10 * p["rate"])) * int(p["steps"])
    ),
    "Gaussian mixture": lambda p: (
        ny.GaussianMixture(p["sigma"], [0, 1], [1 - p["rate"], p["rate"]]) * int(p["steps"])
    ),
}
RANDOM = questions.FAMILIES
"""Families of the fuzz: their points are mechanisms and questions of one seed each."""


def points(seed: int, count: int) -> Iterator[Point]:
    """Random points, the same for every family and question."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        u = rng.random(5)
        yield {
            "rate": float(10 ** (-7 + u[0] * (math.log10(0.3) + 7))),
            "sigma": float(10 ** (math.log10(0.3) + u[1] * (1 - math.log10(0.3)))),
            "steps": float(round(10 ** (6 * u[2]))),
            "delta": float(10 ** (-3 - 27 * u[3])),
            "level": float(min(10 ** (-30 * (1 - u[4])), 0.999)),
        }


def point_answer(f: Any, question: str, p: Point) -> Any:
    """The epsilon or the power of a point; near 1 the type II error, with its own digits."""
    bound = f.epsilon(p["delta"]) if question == "epsilon" else f.power(level=p["level"])
    return f(p["level"]) if question == "power" and bound.lower > 0.5 else bound


def random_text(family: str, kind: str, index: int) -> tuple[str, str]:
    """A random mechanism of a family, as the fuzz draws it, and a random question of a kind."""
    draw = random.Random(f"{family} {kind} {index}")
    of = questions.mechanism(draw, family) if family in RANDOM else ""
    return of, questions.question(draw, kind)


def random_answer(family: str, kind: str, p: Point) -> Any:
    """The answer to a random question about a random mechanism, or about that of a point."""
    of, ask = random_text(family, kind, int(p["index"]))
    mechanism = eval(of, {"ny": ny}) if of else FAMILIES[family](p)
    answer = eval(ask, {"ny": ny, "f": mechanism.tradeoff()})
    return answer.mu if kind == "nearest_gaussian" else answer


def answer(family: str, question: str, p: Point) -> dict[str, Any]:
    """One answer: its ends, relative width, CPU time, memory, and method, or its error."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the mark falls to VmRSS
    start = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
        bound = (
            random_answer(family, question, p)
            if family in RANDOM or question not in QUESTIONS
            else point_answer(FAMILIES[family](p).tradeoff(), question, p)
        )
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        low, high = bound.lower, bound.upper
        width = (high - low) / max(high, LEAST) if high > low else 0.0
        result = {"low": low, "high": high, "width": width, "method": bound.method}
    except TimeoutError:
        result = {"error": "time"}
    except Exception as error:
        result = {"error": type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    cpu = time.process_time() - start
    return {**result, "cpu": cpu, "peak": memory("VmHWM") - AT_IMPORT}


def summary(path: Path) -> str:
    """One row for each family and question: shares of widths, times, and errors."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        rows[record["family"], record["question"]].append(record)
    head = "|family|question|answers|errors|width > 1e-6|> 1e-3|CPU median|95%|largest|memory|"
    lines = [head, "|---|---|" + "---:|" * 8]
    for (family, question), records in rows.items():
        widths = np.array([r.get("width", math.inf) for r in records])
        cpu = np.array([r["cpu"] for r in records]) * 1000
        errors = sum("error" in r for r in records)
        lines.append(
            f"|{family}|{question}|{len(records)}|{errors}|{(widths > 1e-6).mean():.1%}"
            f"|{(widths > 1e-3).mean():.1%}|{np.median(cpu):.0f} ms"
            f"|{np.quantile(cpu, 0.95):.0f} ms|{cpu.max():.0f} ms"
            f"|{max(r.get('peak', 0) for r in records) / 2**20:.0f} MiB|"
        )
    return "\n".join(lines)


def agreement(before: Path, after: Path) -> str:
    """One row for each family: how often two files disagree, and how the widths changed.

    Two intervals of one answer must meet, which proves little unless both are narrow. An upper end
    may rise by 1e-6 of itself.
    """
    old, new = (records(path) for path in (before, after))
    head = (
        "|family|shared|both narrower than 1e-6|apart|upper end rose|wider|narrower|CPU before|now|"
    )
    lines = [head, "|---|" + "---:|" * 8]
    notes: list[str] = []
    for family in dict.fromkeys(key[0] for key in old):
        pairs = {k: (old[k], new[k]) for k in old if k[0] == family and k in new}
        counts = dict.fromkeys(("narrow", "apart", "rose", "wider", "narrower"), 0)
        for key, (was, now) in pairs.items():
            if "error" in was or "error" in now:
                if was.get("error") != now.get("error"):
                    notes.append(f"{key}: {was.get('error')} before, {now.get('error')} now")
                continue
            width, wide = (max(r["width"], 1e-12) for r in (was, now))
            changes = {
                "narrow": max(width, wide) <= 1e-6,
                "apart": was["low"] > now["high"] or now["low"] > was["high"],
                "rose": now["high"] > was["high"] + 1e-6 * abs(was["high"]),
                "wider": wide > max(2 * width, 1e-9),
                "narrower": width > max(2 * wide, 1e-9),
            }
            for name, holds in changes.items():
                counts[name] += holds
            if changes["apart"] or changes["rose"]:
                ends = [(r["low"], r["high"]) for r in (was, now)]
                notes.append(f"{key}: {ends[0]} before, {ends[1]} now; {random_text(*key)}")
        cpu = [f"{sum(r[k]['cpu'] for r in pairs.values()):.1f} s" for k in (0, 1)]
        row = [family, len(pairs), *counts.values(), *cpu]
        lines.append("|" + "|".join(map(str, row)) + "|")
    return "\n".join([*lines, "", *notes])


def figure(before: Path, after: Path, to: Path) -> None:
    """Shares of answers by their width and by their CPU time, of both files' common points."""
    old, new = (records(path) for path in (before, after))
    shared = old.keys() & new.keys()
    matplotlib.use("svg")
    plt.rcParams.update({"svg.hashsalt": "neyman", "font.size": 9})
    drawing, axes = plt.subplots(2, 2, figsize=(7.2, 5.4), sharey=True, layout="constrained")
    measures = (
        ("width", "relative width", 1e-13, [1e-12, 1e-9, 1e-6, 1e-3, 1], [1e-6, 1e-3]),
        ("cpu", "CPU time in seconds", 1e-3, [1e-3, 1e-2, 0.1, 1, 10], [0.1, 2]),
    )
    for column, (measure, label, least, ticks, targets) in enumerate(measures):
        for axis, question in zip(axes[:, column], QUESTIONS, strict=True):
            for name, of, color in (("before", old, "#8a8a8a"), ("after", new, "#1f5fa8")):
                values = [
                    math.inf if "error" in of[key] and measure == "width" else of[key][measure]
                    for key in shared
                    if key[1] == question
                ]
                place = np.sort(np.maximum(values, least))
                share = np.arange(1, len(place) + 1) / len(place)
                axis.step(place, share, where="post", color=color, linewidth=1.8)
                k = int(0.62 * len(place)) if name == "before" else int(0.3 * len(place))
                axis.annotate(
                    name, (place[k], share[k]), (5, -10), textcoords="offset points", color=color
                )
            for target in targets:
                axis.axvline(target, color="#b0541a", linewidth=0.8, linestyle=":")
            axis.set(xscale="log", xlim=(least, ticks[-1] * 1.5), ylim=(0, 1.02), xticks=ticks)
            axis.set_title(f"{question}, {sum(key[1] == question for key in shared)} questions")
            axis.spines[["top", "right"]].set_visible(False)
        axes[1, column].set_xlabel(label)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of answers")
        axis.yaxis.set_major_formatter(PercentFormatter(1))
    drawing.savefig(to, metadata={"Date": None})


def records(path: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The answers of a file by family, question, and point."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {(line["family"], line["question"], line["index"]): line for line in lines}


def main() -> None:
    """Answer the points that the file lacks, or print its summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--families", nargs="*", default=[*FAMILIES, *RANDOM])
    parser.add_argument("--questions", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("build/map.jsonl"))
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--referee", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    if options.figure:
        figure(options.before, options.out, options.figure)
        return
    if options.referee:
        print(agreement(options.referee, options.out))
        return
    if options.summary:
        print(summary(options.summary))
        return

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGVTALRM, stop)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    ordinary = {"rate": 0.01, "sigma": 2.0, "steps": 100.0, "delta": 1e-6, "level": 0.01}
    for family in set(options.families) & set(FAMILIES):  # what Python loads when first used
        for question in QUESTIONS:
            answer(family, question, {**ordinary, "index": 0.0})
    done = {(r["family"], r["question"], r["index"]) for r in map(json.loads, text.splitlines())}
    with options.out.open("a", encoding="utf-8") as file:
        for index, point in enumerate(points(options.seed, options.points)):
            for family in options.families:
                usual = RANDOM_QUESTIONS if family in RANDOM else QUESTIONS
                for question in options.questions or usual:
                    if (family, question, index) in done:
                        continue
                    record = {"family": family, "question": question, "index": index, **point}
                    record |= answer(family, question, {**point, "index": float(index)})
                    file.write(json.dumps(record) + "\n")
                    file.flush()
    print(summary(options.out), file=sys.stderr)


if __name__ == "__main__":
    main()
