"""Samples are stored of every format, so that a change of a format is noticed.

If a test fails after a deliberate change: raise the number in the format's name, say so in the
change log, and run `python tests/compatibility/write_samples.py`.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from write_samples import HERE, RELEASED, formats, mechanisms, plan_of, plans, write

import neyman as ny
from neyman.ledger import KINDS, START, Checkpoint, Entry, digest
from neyman.mechanisms import MODULES, Strategy
from neyman.publishing import MEASURES, Receipt, verify


def stored(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def plain(content: Any) -> Any:
    return json.loads(json.dumps(content))


def names(description: Any) -> Iterator[str]:
    """Every type and kind that a description names, at any depth."""
    if isinstance(description, dict):
        yield from (description[word] for word in ("type", "kind") if word in description)
        description = list(description.values())
    if isinstance(description, list):
        for value in description:
            yield from names(value)


def test_each_mechanism_is_written_as_it_was_and_read_back():
    assert plain(mechanisms()) == stored("mechanisms")
    for sample in stored("mechanisms"):
        one = ny.Mechanism.from_dict(sample["mechanism"])
        assert plain(one.to_dict()) == sample["mechanism"]
        assert ny.Mechanism.from_json(one.to_json()) == one


def test_a_sample_is_stored_of_each_type_of_mechanism_and_strategy():
    every = set(names(stored("mechanisms")))
    own = {kind for kind, of in Strategy._kinds.items() if of.__module__.startswith("neyman.")}
    assert (set(MODULES) | own) - every == set()


def test_each_plan_has_the_hash_that_it_had():
    assert plain(plans()) == stored("plans")
    for sample in stored("plans").values():
        assert ny.Plan.from_dict(sample["canonical"]).hash == sample["hash"]


def test_receipts_training_and_the_rules_of_ledgers_are_of_the_stored_format():
    assert formats() == stored("formats")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ny.Ledger]:
    """A copy of the stored ledger, confirmed where it now is."""
    shutil.copyfile(HERE / "ledger.db", tmp_path / "ledger.db")
    with ny.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.confirm_location("read again")
        yield ledger


def test_the_stored_ledger_is_replayed(ledger: ny.Ledger):
    lines, checkpoint = stored("ledger")["lines"], Checkpoint.parse(stored("ledger")["checkpoint"])
    assert ledger.verify(checkpoint).problems == ()
    assert list(ledger.lines())[: len(lines)] == lines
    previous = START
    for line in lines:
        assert json.loads(line)["previous"] == previous
        previous = digest(line)
    assert previous == checkpoint.head


def test_the_stored_release_verifies(ledger: ny.Ledger, tmp_path: Path):
    plan = plan_of(RELEASED)
    if plan.hash != stored("plans")[RELEASED]["hash"]:
        pytest.fail("the released plan has another hash: write the samples again")
    before = ledger.account(plan.dataset)
    release = ny.run(plan, None, ledger, tmp_path / "again")
    assert release.published_before
    assert ledger.account(plan.dataset) == before
    assert release.files["receipt.json"] == (HERE / "receipt.json").read_bytes()
    for name in ("key", "checkpoint"):
        (tmp_path / name).write_text(stored("ledger")[name])
    checks = verify(
        release.folder,
        key=tmp_path / "key",
        ledger=tmp_path / "ledger.db",
        checkpoint=tmp_path / "checkpoint",
    )
    assert [check for check in checks if not check.ok] == []


def test_a_new_ledger_and_a_new_receipt_have_the_stored_fields(tmp_path: Path):
    def events(ledger: dict[str, Any]) -> set[tuple[str, ...]]:
        return {(event["kind"], *event) for event in map(json.loads, ledger["lines"])}

    def fields(value: Any, path: str = "") -> Iterator[str]:
        inner = value.items() if isinstance(value, dict) else ()
        inner = enumerate(value) if isinstance(value, list) else inner
        yield path
        for name, one in inner:
            yield from fields(one, f"{path}.{name}")

    write(tmp_path)
    new, new_receipt = (
        json.loads((tmp_path / f"{name}.json").read_text("utf-8")) for name in ("ledger", "receipt")
    )
    assert events(new) == events(stored("ledger"))
    assert list(fields(new_receipt)) == list(fields(stored("receipt")))
    assert Receipt.read(stored("receipt")).to_bytes() == (HERE / "receipt.json").read_bytes()


def test_a_sample_is_stored_of_each_kind_of_ledger_event_and_state(ledger: ny.Ledger):
    assert {json.loads(line)["kind"] for line in stored("ledger")["lines"]} == set(KINDS)
    accounts = ledger.datasets()
    states = {entry.state for one in accounts for entry in ledger.entries(one.dataset)}
    assert states == set(get_args(get_type_hints(Entry)["state"]))
    currencies = {one.currency.split(":")[0] for one in accounts}
    assert currencies == {"pure", "zcdp", "gdp", "renyi"}


def test_a_sample_is_stored_of_each_field_of_a_plan():
    every = list(tomllib.loads((HERE / "plans.toml").read_text("utf-8")).values())
    schema = ny.Plan.schema()

    def parts(name: str, plan: dict[str, Any]) -> list[dict[str, Any]]:
        """Each part of a section: of a dictionary, of a list, or the section itself."""
        part = plan.get(name, {})
        return list(part.values()) if isinstance(part, dict) else part

    columns = [one for plan in every for one in parts("columns", plan)]
    listed = [keys for one in columns if isinstance(keys := one.get("keys"), dict)]
    queries = [query for plan in every for query in plan["query"]]
    alone = {"UnitPart": "unit", "BudgetPart": "budget", "SourcePart": "source"}
    alone |= {"ConsistencyPart": "consistency", "CorrectsPart": "corrects"}
    named = {"TablePart": "tables", "DerivePart": "derive", "LookupPart": "lookup"}
    named |= {"TotalsPart": "totals", "HierarchyPart": "hierarchy"}
    sections = {
        **{kind: [plan[name] for plan in every if name in plan] for kind, name in alone.items()},
        **{kind: [p for plan in every for p in parts(name, plan)] for kind, name in named.items()},
        "ColumnPart": columns,
        "KeyRangePart": [keys for keys in listed if "from" in keys],
        "KeyFilePart": [keys for keys in listed if "file" in keys],
        "KeyPart": [part for query in queries for part in query.get("parts", {}).values()],
        **{kind.__name__: queries for kind in MEASURES.values()},
        "PrintPart": [query["print"] for query in queries if "print" in query],
    }
    assert {query["measure"] for query in queries} == {*MEASURES}
    assert set(sections) == set(schema["$defs"])
    for name, section in (*schema["$defs"].items(), ("the plan", schema)):
        written = sections.get(name, every)
        for field, about in section["properties"].items():
            assert any(field in one for one in written), f"{name}.{field}"
            if field in ("method", "neighboring"):
                options = next(one for one in (about, *about.get("anyOf", ())) if "enum" in one)
                given = {one[field] for one in written if field in one}
                assert given == set(options["enum"]), f"{name}.{field}"
                assert "anyOf" in about or all(field in one for one in written)
