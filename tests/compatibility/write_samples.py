"""Store samples of what this version writes, for all later versions to read.

    python tests/compatibility/write_samples.py [NAME]

They go into a new folder beside this file, named after the version unless a name is given. A folder
that exists is refused: stored samples are what other people hold, and never change.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.with_name("golden")))

from cases import CASES  # noqa: E402
from dp_accounting import dp_event as ev  # noqa: E402  (after the path)
from inputs import DP_EVENTS, MORE_MECHANISMS, PLANS, RELEASED, table, write_plans  # noqa: E402

import neyman as ny  # noqa: E402
from neyman.accounting.dp_accounting.privacy_loss import from_dp_event  # noqa: E402
from neyman.mechanisms.circular_gaussian import CircularGaussian  # noqa: E402
from neyman.mechanisms.matrix_mechanism.strategy import square_root  # noqa: E402
from neyman.publishing.release.signing import create_key  # noqa: E402

__all__ = [
    "event_of",
    "exact",
    "rho_of",
    "summary",
    "write",
    "write_mechanism_samples",
    "write_plan_samples",
]


def rho_of(mechanism: ny.Mechanism) -> str | None:
    """The proven zCDP parameter as text, or None where there is none."""
    try:
        return str(mechanism.rho())
    except ValueError:
        return None


def event_of(description: Mapping[str, Any]) -> Any:
    """The dp_accounting event that JSON types describe."""

    def value(field: Any) -> Any:
        if isinstance(field, list):
            return [value(item) for item in field]
        return event_of(field) if isinstance(field, Mapping) else field

    fields = {name: value(field) for name, field in description.items() if name != "type"}
    return getattr(ev, description["type"])(**fields)


def exact(record: Any) -> dict[str, Any]:
    """A record of the ledger as JSON types, its numbers as exact text."""
    return json.loads(json.dumps(asdict(record), default=str))


def summary(ledger: ny.Ledger) -> dict[str, Any]:
    """All accounts, allocations, and entries of a ledger."""
    accounts = ledger.datasets()
    return {
        "accounts": [exact(account) for account in accounts],
        "allocations": [exact(a) for one in accounts for a in ledger.allocations(one.dataset)],
        "entries": [exact(e) for one in accounts for e in ledger.entries(one.dataset)],
    }


def _put(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _mechanisms(expressions: Sequence[str]) -> list[dict[str, Any]]:
    names = {
        "ny": ny,
        "CircularGaussian": CircularGaussian,
        "from_dp_event": from_dp_event,
        "ev": ev,
        "F": Fraction,
        "square_root": square_root,
    }
    results = []
    for expression in expressions:
        one = eval(expression, names)
        about = {"expression": expression, "rho": rho_of(one), "neighboring": one.neighboring}
        results.append({**about, "mechanism": one.to_dict()})
    return results


def _release(folder: Path, work: Path) -> None:
    """Release some of the plans, and store the ledger in which every kind of event occurs."""
    public, _ = create_key(work / "key")
    shutil.copy(public, folder / "key.pub")
    with ny.Ledger(work / "first.db") as ledger:
        for name, currency in RELEASED.items():
            unit = ny.Plan.load(folder / "plans" / f"{name}.toml").unit
            terms: dict[str, Any] = {
                "protects": unit.protects,
                "neighboring": unit.neighboring,
                "rows": unit.rows,
            }
            parts = ["west", "east"] if name == "gdp" else []
            ledger.create(
                f"{name}@1", **terms, currency=currency, cap=3, delta_cap="1/10", parts=parts
            )
        for name in ("pure", "renyi:8"):
            dataset = f"{name.replace(':', '-')}@1"
            terms = {"protects": "person", "neighboring": "replace-one"}
            ledger.create(dataset, **terms, currency=name, cap="0.7")
        ledger.allocate("measures@1", "team", cap=1)
        ledger.allocate("measures@1", "project", cap="1/2", of="team")
        one = {"protects": "person", "neighboring": "replace-one", "rows": 1}
        asked = {"charge": "1/8", "mechanisms": [], "plan": "{}", **one}
        ledger.void(ledger.reserve("measures@1", key="void", **asked), "a sample")
        ledger.begin(ledger.reserve("measures@1", key="reading", **asked, account="project"))
        ledger.reserve("measures@1", key="reserved", **asked)
    (work / "first.db").rename(work / "ledger.db")
    with ny.Ledger(work / "ledger.db") as ledger:
        ledger.confirm_location("a sample")
        for name in RELEASED:
            plan = folder / "plans" / f"{name}.toml"
            to = "project" if name == "measures" else None
            out = folder / "releases" / name
            ny.run(plan, table(), ledger, out, sign=work / "key", account=to)
        ledger.keep_checkpoint(folder / "ledger.checkpoint")
        (folder / "ledger.jsonl").write_text("".join(f"{line}\n" for line in ledger.lines()))
        _put(folder / "ledger.json", summary(ledger))
    shutil.copy(work / "ledger.db", folder / "ledger.db")


def write_mechanism_samples(folder: Path, expressions: Sequence[str]) -> None:
    """Store mechanisms by their expressions, with their rho, in a folder that exists."""
    _put(folder / "mechanisms.json", _mechanisms(expressions))


def write_plan_samples(folder: Path) -> None:
    """Store the plans, with their hashes and canonical forms, in a folder that exists."""
    write_plans(folder / "plans")
    plans = {name: ny.Plan.load(folder / "plans" / f"{name}.toml") for name in PLANS}
    _put(
        folder / "plans.json",
        {name: {"hash": p.hash, "canonical": p.canonical()} for name, p in plans.items()},
    )


def write(folder: Path) -> None:
    """Write all samples into a folder that does not exist.

    Raises:
        FileExistsError: it exists.
    """
    if folder.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    with tempfile.TemporaryDirectory() as work:
        samples = Path(work) / "samples"
        samples.mkdir()
        _write(samples, Path(work))
        shutil.copytree(samples, folder)


def _write(folder: Path, work: Path) -> None:
    write_mechanism_samples(folder, [*CASES, *MORE_MECHANISMS])
    write_plan_samples(folder)
    events = [
        {
            "event": description,
            "neighboring": relation,
            "mechanism": from_dp_event(event_of(description), relation).to_dict(),
        }
        for description, relation in DP_EVENTS
    ]
    _put(folder / "dp_events.json", events)
    (folder / "releases").mkdir()
    _release(folder, work)


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else version("neyman")
    try:
        write(HERE / name)
    except FileExistsError as error:
        sys.exit(f"{error.filename} exists, and stored samples never change: give another name")
    print(f"{HERE / name} written")
