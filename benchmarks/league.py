"""Ask every library the same hundred questions, and compare the answers with truths.

    python -m benchmarks.league               # makes environments, asks, and writes league.json
    python -m benchmarks.league --figure docs # draws docs/league.svg from league.json

The site fills the tables of docs/league.md from league.json.

A truth is an interval from two routes that share no code with any library: the balls of
`checker/check.py`, which are proved, and a contour integral in 64 digits (`precise.py`) or a closed
form. Random allocation has no such route: there the interval is 5 standard errors of a simulation.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

import mpmath as mp
import numpy as np

from benchmarks import precise
from benchmarks.league_peers import PEERS, mechanism

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "checker"))
import check  # noqa: E402 (checker/check.py stands alone)

WHERE = Path(__file__).with_name("league.json")
OURS = "neyman"
SLACK = 1e-9  # relative: an answer below the truth by less is rounding

Part = list[Any]  # a kind, its numbers, and a count
Question = dict[str, Any]


def question(text: str, ask: str, at: float | None, *parts: Part) -> Question:
    return {"text": text, "ask": ask, "at": at, "parts": [list(part) for part in parts]}


def training() -> Iterator[Question]:
    """Runs of training, by the size of their data, tiny deltas, many steps, powers, and mu."""
    runs = [
        ("60,000 rows, batches of 600, 100 epochs, sigma 4", 4, 0.01, 10_000, 1e-5),
        ("60,000 rows, batches of 250, 15 epochs, sigma 1.3", 1.3, 250 / 60000, 3600, 1e-5),
        ("60,000 rows, batches of 256, 60 epochs, sigma .8", 0.8, 256 / 60000, 14062, 1e-5),
        ("50,000 rows, batches of 4,096, 250 epochs, sigma 3", 3, 4096 / 50000, 3051, 1e-5),
        ("50,000 rows, batches of 16,384, 1,000 steps, sigma 10", 10, 16384 / 50000, 1000, 1e-5),
        ("1,281,167 rows, 70,000 batches of 16,384, sigma 2.5", 2.5, 16384 / 1281167, 70_000, 8e-7),
        ("a model card: 100,000 steps, rate 4.1e-5, sigma .614", 0.614, 4.1e-5, 100_000, 1.1e-10),
        ("1e6 rows, batches of 1,000, 1e6 steps, sigma .6", 0.6, 0.001, 1_000_000, 1e-8),
        ("10,000 rows, batches of 100, 1,000 steps, sigma 1", 1, 0.01, 1000, 1e-5),
        ("1,000 rows, batches of 50, 200 steps, sigma 2", 2, 0.05, 200, 1e-4),
        ("one step on half of the rows, sigma 1", 1, 0.5, 1, 1e-6),
        ("200 steps on a tenth of the rows, sigma 2", 2, 0.1, 200, 1e-6),
    ]  # fmt: skip
    for text, sigma, rate, steps, delta in runs:
        yield question(text, "epsilon", delta, ["sampled", sigma, rate, steps])
    for delta in (1e-8, 1e-12, 1e-15, 1e-20, 1e-30, 1e-50):
        yield question(
            "1,000 steps, rate .01, sigma 1", "epsilon", delta, ["sampled", 1, 0.01, 1000]
        )
    for delta in (1e-10, 1e-20):
        yield question(
            "14,062 steps, rate 256/60,000, sigma .8",
            "epsilon",
            delta,
            ["sampled", 0.8, 256 / 60000, 14062],
        )
    for steps, sigma, rate in (
        (10**5, 1.1, 4096 / 1.2e6),
        (10**7, 2, 1e-4),
        (10**8, 1, 1e-5),
        (10**9, 1, 2e-5),
    ):
        yield question(
            f"{steps:.0e} steps, rate {rate:.4g}, sigma {sigma}",
            "epsilon",
            1e-7,
            ["sampled", sigma, rate, steps],
        )
    for level in (0.05, 0.01, 1e-4, 1e-6, 1e-9):
        yield question("1,000 steps, rate .01, sigma 1", "power", level, ["sampled", 1, 0.01, 1000])
    for level in (0.05, 1e-4, 1e-6):
        for text, sigma, rate, steps, _ in (runs[1], runs[3], runs[9], runs[2]):
            yield question(text, "power", level, ["sampled", sigma, rate, steps])
    for text, sigma, rate, steps, _ in (runs[8], runs[1], runs[9], runs[3]):
        yield question(text, "mu", None, ["sampled", sigma, rate, steps])


def alike(kind: str, number: float, count: int, ask: str, at: float | None) -> Question:
    """A question about equal releases of one kind of noise."""
    name = kind.replace("gaussian", "Gaussian").replace("laplace", "Laplace")
    scale = "scale" if "laplace" in kind else "sigma"
    return question(f"{count} {name}, {scale} {number}", ask, at, [kind, number, count])


def noise() -> Iterator[Question]:
    """Releases of tables: normal, discrete, and Laplace noise, and randomized response."""
    for sigma, count in ((1, 1), (4, 10), (0.3, 1), (20, 500)):
        yield alike("gaussian", sigma, count, "epsilon", 1e-6)
    yield alike("gaussian", 1, 1, "power", 1e-4)
    yield alike("gaussian", 4, 10, "mu", None)
    census = [["discrete gaussian", s, 1] for s in (6.5, 7.25, 8, 9.5, 11, 13.5, 16, 20.25)]
    for delta in (1e-6, 1e-10, 1e-15):
        yield question("8 discrete Gaussian, sigma 6.5 to 20.25", "epsilon", delta, *census)
    for sigma, count, ask, at in (
        (1, 1, "epsilon", 1e-6), (2, 10, "epsilon", 1e-10), (0.5, 3, "epsilon", 1e-5),
        (10, 66, "epsilon", 1e-10), (20, 300, "epsilon", 1e-9),
        (1, 1, "power", 0.05), (0.5, 3, "power", 0.01), (10, 66, "power", 1e-6),
    ):  # fmt: skip
        yield alike("discrete gaussian", sigma, count, ask, at)
    for level in (0.05, 1e-4):
        yield question("8 discrete Gaussian, sigma 6.5 to 20.25", "power", level, *census)
        yield alike("discrete gaussian", 2, 10, "power", level)
    for scale, count, ask, at in (
        (1, 1, "epsilon", 1e-6), (2, 10, "epsilon", 1e-6), (10, 100, "epsilon", 1e-6),
        (10, 100, "epsilon", 1e-12), (100, 1000, "epsilon", 1e-6), (2, 10, "power", 0.01),
    ):  # fmt: skip
        yield alike("discrete laplace", scale, count, ask, at)
    for scale, count, sigma, ask, at in (
        (1, 20, 30, "epsilon", 1e-6), (10, 100, 30, "epsilon", 1e-6),
        (50, 1000, 30, "epsilon", 1e-6), (4, 3, 30, "epsilon", 1e-6),
        (2, 50, 30, "epsilon", 1e-6), (2, 20, 3, "power", 0.01),
    ):  # fmt: skip
        text = f"{count} Laplace, scale {scale}, and a Gaussian, sigma {sigma}"
        yield question(text, ask, at, ["laplace", scale, count], ["gaussian", sigma, 1])
    for sigma, count, level in ((4, 10, 1e-6), (20, 500, 0.05)):
        yield alike("gaussian", sigma, count, "power", level)
    for epsilon, k, count, ask, at in (
        (1, 2, 20, "epsilon", 1e-6), (2, 10, 5, "epsilon", 1e-6), (0.1, 2, 1000, "epsilon", 1e-6),
        (0.5, 4, 100, "epsilon", 1e-6), (4, 2, 3, "epsilon", 1e-6),
        (1, 2, 20, "power", 0.01), (1, 2, 20, "power", 1e-6),
    ):  # fmt: skip
        text = f"{count} randomized responses, epsilon {epsilon}, {k} values"
        yield question(text, ask, at, ["response", epsilon, k, count])


def several() -> Iterator[Question]:
    """Unlike steps, and random allocation."""
    mixed = (["sampled", 1, 0.01, 500], ["sampled", 2, 0.05, 200], ["gaussian", 5, 3])
    yield question("500 + 200 steps of two kinds, and 3 Gaussian", "epsilon", 1e-6, *mixed)
    yield question("500 + 200 steps of two kinds, and 3 Gaussian", "power", 1e-3, *mixed)
    steps = [["sampled", 1 + n / 10, 0.01, 100] for n in range(10)]
    yield question("1,000 steps, rate .01, sigma 1 to 1.9", "epsilon", 1e-6, *steps)
    for sigma, t, k, delta in (
        (1, 2, 1, 1e-5),
        (1, 10, 1, 1e-5),
        (1, 100, 1, 1e-5),
        (2, 100, 1, 1e-6),
        (1, 4, 2, 1e-5),
        (1, 100, 5, 1e-5),
        (2, 50, 5, 1e-5),
        (1, 1000, 1, 1e-5),
        (0.6, 20, 1, 1e-6),
        (1, 20, 10, 1e-5),
    ):
        yield question(
            f"each row in {k} of {t} batches, sigma {sigma}",
            "epsilon",
            delta,
            ["allocation", sigma, t, k, 1],
        )


def questions() -> Iterator[Question]:
    """The hundred questions."""
    yield from (*training(), *noise(), *several())


# Truths


def proved(q: Question) -> list[float] | None:
    """The ends of the checker's ball, rounded outward; the second one is None where none is known.

    For mu, the largest of the Gaussian curves through points of the curve: no smaller mu holds.
    """
    try:
        return _judged(q)
    except check.NotCoveredError:
        return None


def _judged(q: Question) -> list[float]:
    judge = check.Judge(lambda: check.alternatives(check.expression(mechanism(q))))
    if judge.why:
        raise judge.why
    ask, at = q["ask"], q["at"]
    if ask == "mu":
        if all(part[0] == "gaussian" for part in q["parts"]):
            mu = math.sqrt(sum(n / s**2 for _, s, n in q["parts"]))
            return [mu * (1 - 1e-15), mu * (1 + 1e-15)]
        levels = [10.0**-n for n in range(1, 9)] + [0.25, 0.5, 0.75, 0.9]
        normal = NormalDist()
        powers = [(a, judge.largest(check.power_of, check.num(Fraction(a)))[0]) for a in levels]
        lower = [math.nextafter(float(p.mid()) - float(p.rad()), 0) for _, p in powers]
        both = zip(levels, lower, strict=True)
        return [max(normal.inv_cdf(p) - normal.inv_cdf(a) for a, p in both), math.inf]
    of = check.epsilon_of if ask == "epsilon" else check.power_of
    low, high = judge.largest(of, check.num(Fraction(at)))
    ends = (float(low.mid()) - float(low.rad()), float(high.mid()) + float(high.rad()))
    return [math.nextafter(ends[0], -math.inf), math.nextafter(ends[1], math.inf)]


def integrated(q: Question) -> float | None:
    """Both orders by a contour integral in 64 digits, on two lines that agree in 30 digits."""
    if q["ask"] == "mu":
        return None
    answer, at = getattr(precise, q["ask"]), precise.mpf(q["at"])
    orders = (True, False) if any(part[0] == "sampled" for part in q["parts"]) else (True,)
    by_order: list[float] = []
    for removed in orders:
        parts: precise.Parts = []
        for kind, *numbers, count in q["parts"]:
            match kind:
                case "sampled":
                    one = precise.Sampled(
                        1 / precise.mpf(numbers[0]), precise.mpf(numbers[1]), removed
                    )
                case "gaussian":
                    one = precise.gaussian(1 / precise.mpf(numbers[0]) ** 2)
                case "laplace":
                    one = precise.laplace(1 / precise.mpf(numbers[0]))
                case "discrete gaussian":
                    one = precise.Lattice(Fraction(numbers[0]))
                case _:
                    return None
            parts.append((one, count))
        try:
            by_order.append(float(mp.mpf(answer(parts, at))))
        except (ArithmeticError, ValueError):
            return None
    return max(by_order)


def one_release(kind: str, numbers: list[float]) -> tuple[dict[int, Any], Any, Any]:
    """The law of an integer J under P, and the step and offset of the loss: step J + offset."""
    if kind == "discrete gaussian":
        variance = precise.mpf(numbers[0]) ** 2
        reach = math.ceil(25 * numbers[0] + 20)
        mass = {x: mp.exp(-((x - 1) ** 2) / (2 * variance)) for x in range(1 - reach, 2 + reach)}
        total = mp.fsum(mass.values())
        return {x: m / total for x, m in mass.items()}, 1 / variance, -1 / (2 * variance)
    if kind == "discrete laplace":  # P is about 1, and Q about 0: the loss is 1 / scale from 1 on
        fall = mp.exp(-1 / precise.mpf(numbers[0]))
        return {1: 1 / (1 + fall), -1: fall / (1 + fall)}, 1 / precise.mpf(numbers[0]), mp.mpf(0)
    epsilon, k = precise.mpf(numbers[0]), int(numbers[1])
    other = 1 / (mp.exp(epsilon) + k - 1)
    law = {1: mp.exp(epsilon) * other, 0: (k - 2) * other, -1: other}
    return {j: mass for j, mass in law.items() if mass}, epsilon, mp.mpf(0)


def convolved(law: dict[int, Any], n: int, bits: int = 320) -> dict[int, Any]:
    """The law of a sum of n, in fixed point of 320 bits: products of integers with wide digits."""
    low, width = min(law), 2 * bits + 64

    def product(a: list[int], b: list[int]) -> list[int]:
        one, two = (
            int.from_bytes(b"".join(x.to_bytes(width // 8, "little") for x in y), "little")
            for y in (a, b)
        )
        size = (len(a) + len(b) - 1) * width // 8
        text = (one * two).to_bytes(size + width // 8, "little")
        return [
            int.from_bytes(text[k : k + width // 8], "little") >> bits
            for k in range(0, size, width // 8)
        ]

    power = [int(mp.ldexp(law.get(j, mp.mpf(0)), bits)) for j in range(low, max(law) + 1)]
    total, rest = [1 << bits], n
    while rest:
        if rest & 1:
            total = product(total, power)
        if rest := rest >> 1:
            power = product(power, power)
    return {n * low + k: mp.ldexp(mp.mpf(mass), -bits) for k, mass in enumerate(total) if mass}


def added(q: Question) -> float | None:
    """The epsilon or power of equal releases whose losses are on one lattice, atom by atom."""
    if len(q["parts"]) != 1 or q["ask"] == "mu":
        return None
    ((kind, *numbers, n),) = q["parts"]
    if kind not in ("discrete gaussian", "discrete laplace", "response"):
        return None
    law, step, offset = one_release(kind, numbers)
    atoms = [(step * j + n * offset, mass) for j, mass in convolved(law, n).items()]
    atoms.sort(reverse=True)
    if q["ask"] == "power":
        level, power = precise.mpf(q["at"]), mp.mpf(0)
        for loss, mass in atoms:
            cost = mass * mp.exp(-loss)
            part = min(mp.mpf(1), level / cost)
            power, level = power + part * mass, level - part * cost
            if level <= 0:
                return float(power)
    most = cost = mp.mpf(0)
    for place, (loss, mass) in enumerate(atoms):  # delta(e): the sum of P - e^e Q above e
        most, cost = most + mass, cost + mass * mp.exp(-loss)
        following = atoms[place + 1][0] if place + 1 < len(atoms) else mp.mpf(0)
        if most > q["at"] and (e := mp.log((most - q["at"]) / cost)) >= following:
            return float(max(e, mp.mpf(0)))
    return 0.0


def simulated(q: Question) -> list[float]:
    """Epsilon of random allocation, mixture first: delta by simulation, 5 standard errors around.

    The loss is log(e_k(x) / C(t, k)), x_i = exp((y_i - 1/2) / sigma^2): the mean over subsets. A
    record's own k coordinates have mean 1. Here their mean is drawn from eleven values, and the
    weight of a draw is the ratio of its density to that of the eleven together.
    """
    ((_, sigma, t, k, _),) = q["parts"]
    size = 50_000 * min(160, 4000 // t)
    draw, means = np.random.default_rng(20261130), np.linspace(0.5, 3, 11)
    losses, weights = np.empty(size), np.empty(size)
    for start in range(0, size, 50_000):
        own = np.repeat(draw.choice(means, (50_000, 1)), k, axis=1)
        sums = np.zeros((k + 1, 50_000))
        sums[0] = 1
        total = np.zeros(50_000)
        for i in range(t):
            y = draw.normal(0, sigma, 50_000) + (own[:, i] if i < k else 0)
            total += y if i < k else 0
            x = np.exp((y - 0.5) / sigma**2)
            for j in range(min(k, i + 1), 0, -1):
                sums[j] += sums[j - 1] * x
        tilts = [(total * (m - 1) - k * (m**2 - 1) / 2) / sigma**2 for m in means]
        weights[start : start + 50_000] = 1 / np.mean(np.exp(tilts), axis=0)
        losses[start : start + 50_000] = np.log(sums[k] / math.comb(t, k))

    def delta(e: float, sign: int) -> float:
        value = np.where(losses > e, -np.expm1(np.minimum(e - losses, 0)), 0) * weights
        return float(value.mean() + sign * 5 * value.std() / math.sqrt(size))

    ends: list[float] = []
    for sign in (-1, 1):
        low, high = 0.0, 60.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if delta(middle, sign) > q["at"] else (low, middle)
        ends.append(low)
    return ends


def truth(q: Question) -> dict[str, Any]:
    """The interval of the truth, and the routes that gave it.

    Raises:
        ArithmeticError: two routes disagree.
    """
    if q["parts"][0][0] == "allocation":
        return {"truth": simulated(q), "routes": "simulation"}
    ball = proved(q)
    second = integrated(q) if (exact := added(q)) is None else exact
    if ball and second is not None:
        room = 1e-9 * max(abs(second), 1e-12)
        if not ball[0] - room <= second <= ball[1] + room:
            raise ArithmeticError(f"{q['text']}: the checker has {ball}, the other route {second}")
    if ball:
        return {"truth": ball, "routes": "checker" + (", other" if second is not None else "")}
    if second is None:
        raise ArithmeticError(f"{q['text']}: no route covers {q['ask']} at {q['at']}")
    return {"truth": [second * (1 - 1e-12), second * (1 + 1e-12)], "routes": "other"}


# Answers


def environment(name: str) -> str:
    """The Python of a library: this one if it has the library, otherwise a fresh environment."""
    if name == OURS:
        return sys.executable
    own = ROOT / "build" / "league" / name
    torch = ROOT / ".venv-torch" / "bin" / "python"
    if name == "opacus" and torch.exists():
        return str(torch)
    if not (own / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", own], check=True)
        subprocess.run([own / "bin" / "python", "-m", "pip", "install", "-q", name], check=True)
    return str(own / "bin" / "python")


def verdict(answer: dict[str, Any] | None, ends: list[float], ask: str) -> tuple[str, float]:
    """How an answer stands to the truth, and by how much of it.

    An upper bound is unsafe below the least possible truth. Inside means within the interval, or
    an upper bound that is above it by less than 1e-6 of it.
    """
    if answer is None:
        return "not offered", math.nan
    if "failed" in answer or not all(math.isfinite(x) for x in answer["answer"][-1:]):
        return "no answer", math.nan
    *lower, upper = answer["answer"]
    low, high = ends
    if upper < low * (1 - SLACK):
        return "unsafe", (low - upper) / low
    if lower and lower[0] > high * (1 + SLACK):
        return "unsafe", (lower[0] - high) / high
    base = high if math.isfinite(high) else low
    excess = max(0.0, upper - base) / base
    return ("inside" if excess < 1e-6 else "safe"), excess


def asked(names: list[str]) -> dict[str, Any]:
    """Ask the libraries, and return the record of it."""
    known: dict[str, Any] = json.loads(WHERE.read_text("utf-8")) if WHERE.exists() else {}
    listed = list(questions())
    if known.get("questions") != listed:
        known = {"questions": listed, "truths": [truth(q) for q in listed], "libraries": {}}
    known["date"] = datetime.now(UTC).date().isoformat()
    for name in names:
        print(name, flush=True)
        run = subprocess.run(
            [environment(name), ROOT / "benchmarks" / "league_peers.py", name],
            input=json.dumps(listed), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode:
            print(run.stderr[-500:])
            continue
        known["libraries"][name] = json.loads(run.stdout)
    WHERE.write_text(json.dumps(known, indent=None).replace('{"text"', '\n{"text"') + "\n", "utf-8")
    return known


# The page


LABELS = {  # where a name stands beside its point if another is near
    "gdpnum": (-6, 5), "prv-accountant": (-6, -10), "riskcal": (-6, -3), "PLD_accounting": (6, -12),
}  # fmt: skip


def figure(known: dict[str, Any], path: Path) -> None:
    """Draw the error of each library against its CPU time, medians of what it answered."""
    import matplotlib.pyplot as plt

    picture, ax = plt.subplots(figsize=(6.4, 3.6))
    for name, library in known["libraries"].items():
        points: list[tuple[float, float]] = []
        for place in (0, 1):
            rows = [
                (pair[place]["cpu"], verdict(pair[place], t["truth"], q["ask"])[1])
                for q, t, pair in joined(known, library)
                if pair[place] and "answer" in pair[place]
            ]
            rows = [(cpu, max(error, 1e-9)) for cpu, error in rows if math.isfinite(error)]
            if rows:
                points.append((median(x for x, _ in rows), median(y for _, y in rows)))
        color = "C0" if name == OURS else "0.5"
        ax.plot(*zip(*points, strict=True), color=color, linewidth=0.8)
        for point, marker in zip(points, "os", strict=False):
            ax.plot(*point, marker, color=color)
        x, y = LABELS.get(name, (6, 4))
        ax.annotate(
            name, points[0], (x, y), textcoords="offset points", fontsize=8,
            ha="left" if x > 0 else "right",
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="CPU seconds per answer, median")
    ax.set_ylabel("distance from the truth, relative, median")
    ax.grid(alpha=0.3)
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})


def joined(known: dict[str, Any], library: dict[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    yield from zip(known["questions"], known["truths"], library["answers"], strict=True)


def percent(x: float) -> str:
    size, unit = (x, " times") if x >= 10 else (100 * x, "%")
    text = f"{size:.0f}" if size >= 100 else f"{size:.2g}"
    return "below 1e-6" if x < 1e-6 else text + unit


def table(known: dict[str, Any]) -> Iterator[str]:
    """The rows of the table, a library and its settings each."""
    yield "|library|settings|answers|unsafe|inside|safe, by|at most|none|s|"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for name, library in known["libraries"].items():
        differ = any(pair[0] != pair[1] for pair in library["answers"])
        for place, settings in ((0, "default"), (1, "finest")):
            if place and not differ:
                continue
            sizes: dict[str, list[float]] = {}
            cpu = [p[place]["cpu"] for p in library["answers"] if p[place] and "answer" in p[place]]
            for q, t, pair in joined(known, library):
                kind, size = verdict(pair[place], t["truth"], q["ask"])
                sizes.setdefault(kind, []).append(size)
            wide = sizes.get("safe", [])
            numbers = [len(sizes.get(kind, ())) for kind in ("unsafe", "inside")]
            by = [percent(median(wide)), percent(max(wide))] if wide else ["", ""]
            label = f"{name} {library['version']}" if not place else ""
            none = str(len(sizes.get("no answer", ())))
            shown = [str(sum(numbers) + len(wide)), *map(str, numbers), *by, none]
            yield "|".join(["", label, settings, *shown, f"{median(cpu):.2g}", ""])


def refuted(known: dict[str, Any]) -> Iterator[str]:
    """The rows of the table of unsafe answers: for each library, the five that are furthest off."""
    yield "|library|settings|question|asked|its answer|truth|"
    yield "|---|---|---|---|--:|--:|"
    for name, library in known["libraries"].items():
        rows: list[tuple[float, str]] = []
        for q, t, pair in joined(known, library):
            for place, settings in ((0, "default"), (1, "finest")):
                if pair[place] and (place == 0 or pair[0] != pair[1]):
                    kind, size = verdict(pair[place], t["truth"], q["ask"])
                    if kind == "unsafe":
                        said = " to ".join(f"{x:.7g}" for x in pair[place]["answer"])
                        row = f"|{settings}|{q['text']}|{asks(q)}|{said}|{truths(q, t)}|"
                        rows.append((size, row))
        rows.sort(key=lambda row: -row[0])
        label = name if len(rows) < 6 else f"{name}: 5 of {len(rows)}"
        for place, (_, row) in enumerate(rows[:5]):
            yield f"|{'' if place else label}{row}"


def truths(q: Question, t: dict[str, Any]) -> str:
    """The truth as a reader sees it: a number, an interval, or a lower bound."""
    low, high = t["truth"]
    if math.isinf(high):
        return f"{low:.7g} or more"
    return f"{low:.7g}" + (f" to {high:.7g}" if f"{high:.7g}" != f"{low:.7g}" else "")


def asks(q: Question) -> str:
    return {"epsilon": "epsilon at delta {:g}", "power": "power at level {:g}"}.get(
        q["ask"], "mu"
    ).format(q["at"] or 0)


def wide(known: dict[str, Any]) -> Iterator[str]:
    """The rows of the table of our answers that are not inside."""
    yield "|question|asked|ours|truth|"
    yield "|---|---|--:|--:|"
    for q, t, pair in joined(known, known["libraries"][OURS]):
        if verdict(pair[0], t["truth"], q["ask"])[0] not in ("inside", "not offered"):
            said = " to ".join(f"{x:.7g}" for x in pair[0].get("answer", [])) or pair[0]["failed"]
            yield f"|{q['text']}|{asks(q)}|{said}|{truths(q, t)}|"


def filled(text: str) -> str:
    """Return the text of docs/league.md with its tables, which comments stand for.

    Raises:
        KeyError: the text asks for another table.
    """
    known: dict[str, Any] = json.loads(WHERE.read_text("utf-8"))
    routes = Counter(t["routes"] for t in known["truths"])
    tables = {
        "answers": f"Asked on {known['date']}:\n\n" + "\n".join(table(known)),
        "unsafe answers": "\n".join(refuted(known)),
        "our answers": "\n".join(wide(known)),
        "truths": f"{routes['checker, other']} truths are intervals from both routes, which agree. "
        f"{routes['checker']} are the checker's alone.",
    }
    return re.sub(r"<!-- From league.json: ([\w ]+) -->", lambda match: tables[match[1]], text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--libraries", nargs="*", default=[*PEERS])
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.figure is None:
        start = time.monotonic()
        asked(options.libraries)
        print(f"{time.monotonic() - start:.0f} s")
        return
    figure(json.loads(WHERE.read_text("utf-8")), options.figure / "league.svg")


if __name__ == "__main__":
    main()
