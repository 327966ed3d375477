"""This version reads what earlier versions wrote, and a sample is stored of each kind of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from write_samples import HERE, event_of, rho_of, summary, write

import neyman as ny
from neyman.accounting.dp_accounting.dp_events import READERS
from neyman.accounting.dp_accounting.privacy_loss import from_dp_event
from neyman.ledger.chain import KINDS, Checkpoint, digest
from neyman.mechanisms.registry import MODULES
from neyman.publishing.plan.plan import hash_of
from neyman.publishing.release.folder import FolderFiles
from neyman.publishing.release.verify.verification import verify

VERSIONS = sorted(path for path in HERE.iterdir() if (path / "ledger.json").exists())
"""The folders of samples of every kind."""

MECHANISMS = sorted(path for path in HERE.iterdir() if (path / "mechanisms.json").exists())
"""Those that have mechanisms; one between two versions may have nothing else."""

PLANS = sorted(path for path in HERE.iterdir() if (path / "plans.json").exists())
"""Those that have plans; one between two versions may have nothing else."""


def stored(name: str) -> list[tuple[Path, Any]]:
    """A JSON file of each folder that has it."""
    paths = [path / name for path in sorted(HERE.iterdir()) if (path / name).exists()]
    return [(path.parent, json.loads(path.read_text("utf-8"))) for path in paths]


def holds(new: Any, old: Any, where: str = "") -> None:
    """All that was stored is still there and the same; fields may have been added."""
    if isinstance(old, dict):
        assert isinstance(new, dict), where
        for name, value in old.items():
            assert name in new, f"{where}.{name}"
            holds(new[name], value, f"{where}.{name}")
    elif isinstance(old, list):
        assert isinstance(new, list), where
        assert len(new) == len(old), where
        for place, (a, b) in enumerate(zip(new, old, strict=True)):
            holds(a, b, f"{where}[{place}]")
    elif isinstance(old, float):
        assert new == pytest.approx(old, rel=1e-9), where
    else:
        assert new == old, where


def types(description: Any) -> Iterator[str]:
    """Every type that a description names, at any depth."""
    if isinstance(description, dict):
        if isinstance(description.get("type"), str):
            yield description["type"]
        description = list(description.values())
    if isinstance(description, list):
        for value in description:
            yield from types(value)


@pytest.mark.parametrize("folder", MECHANISMS, ids=lambda path: path.name)
def test_stored_mechanisms_mean_what_they_meant(folder):
    """Each has the same fields and relation, no larger rho, and JSON gives an equal one."""
    for sample in json.loads((folder / "mechanisms.json").read_text("utf-8")):
        one = ny.Mechanism.from_dict(sample["mechanism"])
        holds(one.to_dict(), sample["mechanism"], sample["expression"])
        assert _is_at_most(rho_of(one), sample["rho"]), sample["expression"]
        assert one.neighboring == sample["neighboring"]
        assert ny.Mechanism.from_json(one.to_json()) == one


def _is_at_most(rho: str | None, stored: str | None) -> bool:
    """A later version may prove a smaller rho, and a rho where there was none."""
    if rho is None or stored is None:
        return stored is None
    return 0 <= Fraction(rho) <= Fraction(stored)


@pytest.mark.parametrize("folder", PLANS, ids=lambda path: path.name)
def test_stored_plans_have_the_hashes_that_they_had(folder):
    """From the plan's text, and from the canonical form that a receipt has."""
    for name, sample in json.loads((folder / "plans.json").read_text("utf-8")).items():
        plan = ny.Plan.load(folder / "plans" / f"{name}.toml")
        assert plan.canonical() == sample["canonical"]
        assert plan.hash == sample["hash"] == hash_of(sample["canonical"])
        again = ny.Plan.from_dict(sample["canonical"])
        assert again.hash == sample["hash"]


SHARPER = {("TruncatedSubsampledGaussianDpEvent", "add-remove")}
"""Events that are read as a mechanism with a smaller epsilon than in some stored sample [SA-7]."""


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_stored_events_of_dp_accounting_are_read_alike(folder):
    """Under the relation that was asked."""
    for sample in json.loads((folder / "dp_events.json").read_text("utf-8")):
        one = from_dp_event(event_of(sample["event"]), sample["neighboring"])
        if (sample["event"]["type"], sample["neighboring"]) in SHARPER:
            before = ny.Mechanism.from_dict(sample["mechanism"]).tradeoff().epsilon(1e-5)
            assert one.tradeoff().epsilon(1e-5).upper <= before.upper * (1 + 1e-9)
        else:
            holds(one.to_dict(), sample["mechanism"], str(sample["event"]))


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_a_stored_ledger_is_replayed(folder, tmp_path):
    """Its chain, balances, and entries are what they were, at the checkpoint that was written."""
    with moved_ledger(folder, tmp_path) as ledger:
        checkpoint = Checkpoint.load(folder / "ledger.checkpoint")
        report = ledger.verify(checkpoint)
        assert report.ok, report.problems
        holds(summary(ledger), json.loads((folder / "ledger.json").read_text("utf-8")))
        lines = (folder / "ledger.jsonl").read_text("utf-8").splitlines()
        assert list(ledger.lines())[: len(lines)] == lines
    previous = "0" * 64
    for line in lines:
        assert json.loads(line)["previous"] == previous
        previous = digest(line)
    assert previous == checkpoint.head


def moved_ledger(folder: Path, to: Path) -> ny.Ledger:
    """A copy of the stored ledger, confirmed where it now is."""
    shutil.copyfile(folder / "ledger.db", to / "ledger.db")
    ledger = ny.Ledger(to / "ledger.db")
    ledger.confirm_location("read again")
    return ledger


RELEASES = [release for folder in VERSIONS for release in sorted((folder / "releases").iterdir())]


@pytest.mark.parametrize(
    "release", RELEASES, ids=lambda path: f"{path.parents[1].name} {path.name}"
)
def test_a_stored_release_verifies(release, tmp_path):
    """Signature and ledger hold; the same plan gives the same files, and nothing is spent."""
    folder = release.parents[1]
    with moved_ledger(folder, tmp_path) as ledger:
        checks = verify(
            release,
            key=folder / "key.pub",
            ledger=tmp_path / "ledger.db",
            checkpoint=folder / "ledger.checkpoint",
        )
        assert not [check for check in checks if not check.ok]
        plan = ny.Plan.load(folder / "plans" / f"{release.name}.toml")
        before = ledger.account(plan.dataset)
        again = ny.run(plan, None, ledger, tmp_path / "again")
        assert again.published_before
        assert dict(again.files) == dict(FolderFiles(release))
        assert ledger.account(plan.dataset) == before


def test_a_sample_is_stored_of_each_type_of_mechanism():
    """A new type needs `write_samples.py` once more, into a new folder."""
    values = {name for _, samples in stored("mechanisms.json") for name in types(samples)}
    assert sorted(set(MODULES) - values) == []


def test_a_sample_is_stored_of_each_event_of_dp_accounting_that_is_read():
    """By the name of its class; the installed dp_accounting lacks a few that are read by name."""
    events = [sample["event"] for _, samples in stored("dp_events.json") for sample in samples]
    known = {name for name in READERS if hasattr(dp_event, name)}
    assert sorted(known - set(types(events))) == []


def test_a_sample_is_stored_of_each_kind_of_ledger_event_and_state():
    """Of events, of the states of an entry, and of the currencies of an account."""
    lines = [line for v in VERSIONS for line in (v / "ledger.jsonl").read_text().splitlines()]
    assert {json.loads(line)["kind"] for line in lines} == set(KINDS)
    ledgers = [content for _, content in stored("ledger.json")]
    states = {entry["state"] for content in ledgers for entry in content["entries"]}
    assert states == {"reserved", "reading", "released", "void"}
    currencies = {one["currency"].split(":")[0] for c in ledgers for one in c["accounts"]}
    assert currencies == {"pure", "zcdp", "gdp", "renyi"}


def test_a_sample_is_stored_of_each_field_of_a_plan():
    """And of each measure, kind of promise, method of consistency, and relation."""
    plans = [tomllib.loads(p.read_text("utf-8")) for v in PLANS for p in v.glob("plans/*.toml")]
    schema = ny.Plan.schema()
    every = [column.get("keys") for plan in plans for column in plan.get("columns", {}).values()]
    listed = [keys for keys in every if isinstance(keys, dict)]
    sections: dict[str, list[dict[str, Any]]] = {
        "UnitPart": [plan["unit"] for plan in plans],
        "BudgetPart": [plan["budget"] for plan in plans],
        "TablePart": [one for plan in plans for one in plan.get("tables", {}).values()],
        "SourcePart": [plan["source"] for plan in plans if "source" in plan],
        "ConsistencyPart": [plan["consistency"] for plan in plans if "consistency" in plan],
        "ColumnPart": [c for plan in plans for c in plan.get("columns", {}).values()],
        "KeyRangePart": [keys for keys in listed if "from" in keys],
        "KeyFilePart": [keys for keys in listed if "file" in keys],
        "DerivePart": [c for plan in plans for c in plan.get("derive", {}).values()],
        "LookupPart": [c for plan in plans for c in plan.get("lookup", {}).values()],
        "TotalsPart": [one for plan in plans for one in plan.get("totals", ())],
        "HierarchyPart": [c for plan in plans for c in plan.get("hierarchy", {}).values()],
        "KeyPart": [
            p for plan in plans for q in plan["query"] for p in q.get("parts", {}).values()
        ],
        "QueryPart": [query for plan in plans for query in plan["query"]],
    }
    assert set(sections) == set(schema["$defs"])
    for name, section in (*schema["$defs"].items(), ("the plan", schema)):
        written = sections.get(name, plans)
        for field, about in section["properties"].items():
            assert any(field in one for one in written), f"{name}.{field}"
            if field in ("measure", "method", "neighboring"):
                options = next(one for one in (about, *about.get("anyOf", ())) if "enum" in one)
                given = {one[field] for one in written if field in one}
                assert given == set(options["enum"]), f"{name}.{field}"
                assert "anyOf" in about or all(field in one for one in written)


def test_stored_samples_are_never_overwritten():
    """The script refuses a folder that exists, and leaves it as it is."""
    folder = VERSIONS[0]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError):
        write(folder)
    script = [sys.executable, HERE / "write_samples.py", folder.name]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "never change" in run.stderr
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
