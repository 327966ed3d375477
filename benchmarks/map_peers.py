"""Other libraries at the points of the map: their epsilon, and their CPU time.

    python benchmarks/map_peers.py dp-accounting     # beside build/map.jsonl, with its points
    python benchmarks/map_peers.py opake             # with a Python that has opake
    python benchmarks/map_peers.py --summary         # ours beside theirs

Each answer has a process of its own and 60 seconds of CPU time, at the library's defaults. This
file imports no part of Neyman, so that a library that needs another Python can be asked.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

LIMIT = 60  # seconds of CPU time for one answer
MEMORY = 12 << 30
SLACK = 1e-9  # relative, by which ours may be above theirs

Point = dict[str, float]
Ask = Callable[[Point], float]


def dp_accounting() -> dict[str, Ask]:
    """Upper ends of epsilon by privacy loss distributions (dp-accounting)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    def composed(build: Callable[[Point], object]) -> Ask:
        return lambda p: (
            build(p).self_compose(int(p["steps"])).get_epsilon_for_delta(p["delta"])  # type: ignore[attr-defined]
        )

    def response(p: Point) -> object:
        k = 2 + int(10 * p["rate"])
        return pld.from_randomized_response(k / (k - 1 + math.exp(1 / p["sigma"])), k)

    families: dict[str, Callable[[Point], object]] = {
        "Poisson Gaussian": lambda p: pld.from_gaussian_mechanism(
            p["sigma"], sampling_prob=p["rate"]
        ),
        "Poisson Gaussian, replace-one": lambda p: pld.from_gaussian_mechanism(
            p["sigma"], sampling_prob=p["rate"], neighboring_relation=pld.NeighborRel.REPLACE_ONE
        ),
        "Poisson Laplace": lambda p: pld.from_laplace_mechanism(
            p["sigma"], sampling_prob=p["rate"]
        ),
        "discrete Gaussian": lambda p: pld.from_discrete_gaussian_mechanism(p["sigma"]),
        "discrete Laplace": lambda p: pld.from_discrete_laplace_mechanism(1 / p["sigma"]),
        "k-ary response": response,
        "Gaussian mixture": lambda p: pld.from_mixture_gaussian_mechanism(
            p["sigma"], [0.0, 1.0], [1 - p["rate"], p["rate"]]
        ),
    }
    return {name: composed(build) for name, build in families.items()}


def opake() -> dict[str, Ask]:
    """Epsilon of sampled Gaussian steps (opake)."""
    from opake.dpsgd import accounting  # pyright: ignore[reportMissingImports]

    def gaussian(p: Point) -> float:
        step = accounting.poisson(accounting.gaussian(p["sigma"]), p["rate"])
        return (step * int(p["steps"])).epsilon_at(p["delta"])

    return {"Poisson Gaussian": gaussian}


PEERS = {"dp-accounting": dp_accounting, "opake": opake}


def answer(ask: Ask, point: Point) -> dict[str, float | str]:
    """One answer in its own process: epsilon and CPU seconds, or what went wrong."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        start = time.process_time()
        try:
            result: dict[str, float | str] = {"high": float(ask(point))}
        except BaseException as error:
            result = {"error": type(error).__name__}
        result["cpu"] = time.process_time() - start
        os.write(write, json.dumps(result).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "time or memory", "cpu": float(LIMIT)}


def summary(ours: Path, theirs: Path) -> str:
    """One row for each library and family, of the points that both answered."""
    own = {(r["family"], r["index"]): r for r in rows(ours) if r["question"] == "epsilon"}
    groups: dict[tuple[str, str], list[tuple[dict, dict]]] = {}
    for row in rows(theirs):
        if (row["family"], row["index"]) in own:
            pair = own[row["family"], row["index"]], row
            groups.setdefault((row["peer"], row["family"]), []).append(pair)
    lines = [
        "|library|family|points|no answer|infinite|ours larger|theirs / ours, median|90%"
        "|CPU, median of ours|of theirs|",
        "|---|---|" + "---:|" * 8,
    ]
    for (peer, family), pairs in groups.items():
        known = [(a["high"], b["high"]) for a, b in pairs if "high" in a and "high" in b]
        finite = [(a, b) for a, b in known if b < math.inf]
        larger = sum(a > b * (1 + SLACK) for a, b in finite)
        ratios = sorted(b / a for a, b in finite if a > 0) or [math.nan]
        cpu = [
            statistics.median(r["cpu"] for r in side) * 1000 for side in zip(*pairs, strict=True)
        ]
        lines.append(
            f"|{peer}|{family}|{len(pairs)}|{len(pairs) - len(known)}|{len(known) - len(finite)}"
            f"|{larger}|{ratios[len(ratios) // 2]:.6g}|{ratios[int(0.9 * len(ratios))]:.4g}"
            f"|{cpu[0]:.0f} ms|{cpu[1]:.0f} ms|"
        )
    return "\n".join(lines)


def rows(path: Path) -> list[dict]:
    """The answers in a file; none where there is no file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def main() -> None:
    """Ask a library at the points that the file lacks, or print the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("peer", nargs="?", choices=list(PEERS))
    parser.add_argument("--ours", type=Path, default=Path("build/map.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("build/map-peers.jsonl"))
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.summary or not options.peer:
        print(summary(options.ours, options.out))
        return
    families = PEERS[options.peer]()
    done = {(r["peer"], r["family"], r["index"]) for r in rows(options.out)}
    with options.out.open("a", encoding="utf-8") as file:
        for row in rows(options.ours):
            key = options.peer, row["family"], row["index"]
            asked = row["question"] == "epsilon" and row["index"] < options.points
            if not asked or row["family"] not in families or key in done:
                continue
            result = answer(families[row["family"]], row)
            record = {"peer": options.peer, "family": row["family"], "index": row["index"]}
            file.write(json.dumps({**record, **result}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
