"""``neyman ledger``: each command answers in words and as JSON, and its errors have their codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neyman as ny
from commands import answered
from neyman import Ledger
from neyman.ledger import Checkpoint

UNIT = {"protects": "person", "neighboring": "replace-one", "rows": 1}


def listed(mechanism: ny.Mechanism, count: int = 1) -> list[dict[str, Any]]:
    """A mechanism list as a run stores it, as far as it is composed of."""
    return [{"query": "q", "count": count, "mechanism": json.loads(mechanism.to_json())}]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def neyman(*words: object, code: int = 0) -> str:
    return answered("ledger", *words, code=code)


def ledger_json(*words: object, code: int = 0) -> dict[str, Any]:
    return json.loads(neyman(*words, "--json", code=code))


def spend(charge: object, key: str, mechanisms: object = (), **more: Any) -> int:
    with Ledger("ledger.db") as ledger:
        return ledger.reserve(
            "people@1",
            key=key,
            charge=charge,
            mechanisms=list(mechanisms),  # pyright: ignore[reportArgumentType]
            plan='{"name": "midwest"}',
            **UNIT,
            **more,
        ).id


def test_accounts_are_made_and_shown(place: Path):
    product = ledger_json(
        "create",
        "ledger.db",
        "people@1",
        "--cap",
        "1/3",
        "--delta-cap",
        "1e-6",
        "--part",
        "north",
        "--part",
        "south",
    )
    assert (product["cap"], product["left"], product["delta_cap"]) == ("1/3", "1/3", "1/1000000")
    assert [part["name"] for part in product["parts"]] == ["north", "south"]
    team = ledger_json("allocate", "ledger.db", "people@1", "team-a", "--cap", "0.2")
    assert (team["to"], team["of"], team["cap"]) == ("team-a", "", "1/5")
    ledger_json("allocate", "ledger.db", "people@1", "alice", "--cap", "0.1", "--of", "team-a")
    spend("1/10", "a", account="alice", part="north")
    (shown,) = ledger_json("show", "ledger.db")["accounts"]
    assert (shown["spent"], shown["left"], shown["count"]) == ("1/10", "7/30", 1)
    assert [(a["to"], a["left"]) for a in shown["allocations"]] == [
        ("team-a", "1/10"),
        ("alice", "0"),
    ]
    (entry,) = shown["entries"]
    assert (entry["id"], entry["to"], entry["part"], entry["plan"]) == (
        1,
        "alice",
        "north",
        "midwest",
    )
    text = neyman("show", "ledger.db", "people@1")
    for words in ("spent 0.1 of 1/3", "alice, north", "team-a", "midwest", "reserved"):
        assert words in text


def test_parts_under_replace_one_say_what_they_stand_on(place: Path):
    """A replacement that moves from part to part changes both, and would double the cap."""
    parts = ("--part", "north", "--part", "south")
    text = neyman("create", "ledger.db", "people@1", "--cap", 1, *parts)
    assert "where that is not so, parts add up" in text.replace("\n", " ")
    text = neyman("create", "ledger.db", "b@1", "--cap", 1, *parts, "--neighboring", "add-remove")
    assert "parts add up" not in text
    assert "parts add up" not in neyman("create", "ledger.db", "c@1", "--cap", 1)


def test_the_exact_curve_stands_beside_the_sum_and_says_when_it_holds(place: Path):
    """Two Gaussians with sigma 2 and one with sigma 1: mu squared adds up to 3/2."""
    ledger_json("create", "ledger.db", "people@1", "--cap", "5", "--currency", "gdp")
    for key, sigma in (("a", 2), ("b", 2), ("c", 1)):
        spend(f"1/{sigma**2}", key, listed(ny.Gaussian(sigma)))
    with Ledger("ledger.db") as ledger:
        ledger.void(spend(1, "void", listed(ny.Gaussian(1))))
    (shown,) = ledger_json("show", "ledger.db")["accounts"]
    expected = ny.gdp(1.5**0.5)
    for word, own in (
        ("epsilon", expected.epsilon(delta=1e-6)),
        ("power", expected.power(level=0.05)),
    ):
        assert shown["composed"][word]["lower"] <= own.upper
        assert own.lower <= shown["composed"][word]["upper"] <= own.upper * (1 + 1e-6)
    text = neyman("show", "ledger.db")
    assert "exact only if the plans were fixed in advance" in text
    assert ledger_json("show", "ledger.db", "--no-curve")["accounts"][0]["composed"] is None
    spend(1, "d", ["what another program stored"])
    why = ledger_json("show", "ledger.db")["accounts"][0]["composed"]["why"]
    assert "cannot be composed" in why


def test_history_tells_what_happened_in_order(place: Path):
    ledger_json("create", "ledger.db", "people@1", "--cap", "1")
    entry = spend("0.25", "a")
    assert ledger_json("void", "ledger.db", entry, "--why", "a typing error")["state"] == "void"
    events = ledger_json("history", "ledger.db")["events"]
    assert [e["kind"] for e in events] == ["ledger", "account", "reserve", "void"]
    assert "plan" not in events[2]
    text = neyman("history", "ledger.db", "--last", "2")
    assert "0.25 of people@1" in text
    assert "a typing error" in text
    assert "cap 1 in" not in text
    assert neyman("history", "ledger.db", "--last", "0").count("\n") == 5


def test_a_checkpoint_finds_what_was_restored(place: Path):
    """Printed or kept in a file; verify has code 5 then, and commands that write have code 2."""
    ledger_json("create", "ledger.db", "people@1", "--cap", "1")
    backup = Path("ledger.db").read_bytes()
    neyman("checkpoint", "ledger.db", "--out", "kept")
    neyman("allocate", "ledger.db", "people@1", "a", "--cap", "1", "--checkpoint", "kept")
    line = neyman("checkpoint", "ledger.db").strip()
    assert str(Checkpoint.load("kept")) == line
    assert "It was at the checkpoint; events since then: 0" in neyman(
        "verify", "ledger.db", "--checkpoint", line
    )
    Path("ledger.db").write_bytes(backup)
    assert "keep a checkpoint elsewhere" in neyman("verify", "ledger.db").replace("\n", " ")
    for given in ("kept", line):
        result = ledger_json("verify", "ledger.db", "--checkpoint", given, code=5)
        assert not result["ok"]
        assert "rolled back" in result["problems"][0]
    assert "FAILED" in neyman("verify", "ledger.db", "--checkpoint", "kept", code=5)
    for command in (
        ("create", "ledger.db", "more@1", "--cap", "1"),
        ("allocate", "ledger.db", "people@1", "b", "--cap", "1"),
    ):
        failed = ledger_json(*command, "--checkpoint", "kept", code=2)
        assert "rolled back" in failed["error"]


def test_the_export_is_the_chain(place: Path):
    ledger_json("create", "ledger.db", "people@1", "--cap", "1")
    lines = list(Ledger("ledger.db").lines())
    assert neyman("export", "ledger.db").splitlines() == lines
    assert ledger_json("export", "ledger.db", "--out", "x.jsonl")["events"] == 2
    assert Path("x.jsonl").read_text().splitlines() == lines
    ledger_json("export", "ledger.db", "--out", "x.jsonl", code=2)
    assert (
        "must end in .jsonl"
        in ledger_json("export", "ledger.db", "--out", "x.csv", code=2)["error"]
    )
    assert list(Ledger("ledger.db").lines(after=1)) == lines[1:]
    assert "--out FILE" in ledger_json("export", "ledger.db", code=2)["error"]
    ledger_json("export", "missing.db", "--out", "y.jsonl", code=2)
    assert not Path("y.jsonl").exists()


def test_a_key_is_made_once(place: Path):
    product = ledger_json("key", "custodian")
    assert (product["private"], product["public"]) == ("custodian", "custodian.pub")
    assert len(product["fingerprint"].split(":")) == 8
    assert "another.pub: the public key" in neyman("key", "another")
    assert "already exists" in ledger_json("key", "custodian", code=2)["error"]


def test_what_cannot_be_done_is_said_with_code_2(place: Path):
    for words in ("show", "history", "verify", "checkpoint"):
        assert "no ledger at" in ledger_json(words, "ledger.db", code=2)["error"]
    assert "no ledger at" in ledger_json("void", "ledger.db", 1, code=2)["error"]
    ledger_json("create", "ledger.db", "people@1", "--cap", "1")
    assert "not registered" in ledger_json("show", "ledger.db", "dogs@1", code=2)["error"]
    assert "no entry 7" in ledger_json("void", "ledger.db", 7, code=2)["error"]
    large = ledger_json("allocate", "ledger.db", "people@1", "a", "--cap", "2", code=2)
    assert "must be at most that of" in large["error"]
    Path("text").write_text("x" * 5000)
    assert "is not a Neyman ledger" in ledger_json("verify", "text", code=2)["error"]


PLAN = """
schema = 2
name = "words"
dataset = "people@1"
table = "people"
[unit]
protects = "household"
neighboring = "add-remove"
id = "home"
rows = 3
[columns.word]
discover = true
[budget]
epsilon = 2
delta = 1e-6
[[query]]
name = "words"
measure = "units"
by = ["word"]
delta = 1e-9
share = "1"
"""


@pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")
def test_a_plan_gives_the_terms_and_caps_that_admit_it_once(place: Path):
    Path("plan.toml").write_text(PLAN)
    account = ledger_json("create", "ledger.db", "--plan", "plan.toml")
    assert account["dataset"] == "people@1"
    assert (account["protects"], account["neighboring"], account["rows"]) == (
        "household",
        "add-remove",
        3,
    )
    rows = [f"home{i % 50},word{i % 2}" for i in range(150)]
    Path("people.csv").write_text("\n".join(["home,word", *rows]) + "\n")
    run = ("run", "plan.toml", "--data", "people=people.csv", "--ledger", "ledger.db", "--out")
    answered(*run, "out")
    Path("plan.toml").write_text(PLAN.replace('"words"', '"again"', 1))
    answered(*run, "again", code=3)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("people@2",), "DATASET = 'people@2': the plan has 'people@1'"),
        (("--protects", "person"), "--protects = 'person': the plan has 'household'"),
        (("--rows", "4"), "--rows = 4: the plan has 3"),
    ],
)
def test_a_term_that_the_plan_says_otherwise_is_refused(place: Path, more, text):
    Path("plan.toml").write_text(PLAN)
    failure = ledger_json("create", "ledger.db", *more, "--plan", "plan.toml", code=2)
    assert text in failure["error"]
    assert not Path("ledger.db").exists()


def test_a_part_of_a_plan_must_be_declared(place: Path):
    Path("plan.toml").write_text(PLAN.replace("table =", 'part = "north"\ntable ='))
    create = ("create", "ledger.db", "--plan", "plan.toml")
    assert "--part" in ledger_json(*create, code=2)["error"]
    ledger_json(*create, "--part", "north", "--part", "south")


def test_without_a_plan_a_dataset_and_a_cap_are_needed(place: Path):
    assert "DATASET is missing" in ledger_json("create", "ledger.db", code=2)["error"]
    assert "--cap is missing" in ledger_json("create", "ledger.db", "a@1", code=2)["error"]
