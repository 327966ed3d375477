"""``neyman ledger``: each command answers in words and as JSON, and its errors have their codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neyman as ny
from commands import answered
from ledger_entries import UNIT
from neyman import Ledger
from neyman.ledger import Checkpoint


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


def test_a_dataset_joins_a_population_with_what_it_has_spent(place: Path):
    for words in ("all@1 --cap 1", "people@1 --cap 1", "next@1 --cap 1 --population all@1"):
        ledger_json("create", "ledger.db", *words.split())
    spend("3/4", "a")
    edition, population = ledger_json("join", "ledger.db", "people@1", "all@1")["accounts"]
    assert (edition["population"], edition["left"]) == ("all@1", "1/4")
    assert (population["spent"], population["editions"]) == ("3/4", ["next@1", "people@1"])
    for name, left in (("next@1", "0.25"), ("people@1", "0.25")):
        assert f"spent {'0.75' if name == 'people@1' else 0} of 1, left {left}" in neyman(
            "show", "ledger.db", name
        )
    assert "people@1, of all@1" in neyman("history", "ledger.db")
    for words, refused in (
        ("all@1 next@1", "next@1 is an edition itself: name all@1"),
        ("people@1 next@1", "people@1 is an edition of all@1 and stays one"),
        ("people@1 none@1", "none@1 is not registered"),
    ):
        assert refused in ledger_json("join", "ledger.db", *words.split(), code=2)["error"]


def test_accounts_are_made_and_shown_in_exact_fractions(place: Path):
    create = "create ledger.db people@1 --cap 1/3 --delta-cap 1e-6 --part north --part south"
    product = ledger_json(*create.split())
    assert (product["cap"], product["left"], product["delta_cap"]) == ("1/3", "1/3", "1/1000000")
    assert [part["name"] for part in product["parts"]] == ["north", "south"]
    team = ledger_json("allocate", "ledger.db", "people@1", "team-a", "--cap", "0.2")
    assert (team["to"], team["of"], team["cap"]) == ("team-a", "", "1/5")
    ledger_json("allocate", "ledger.db", "people@1", "alice", "--cap", "0.1", "--of", "team-a")
    spend("1/10", "a", account="alice", part="north")
    (shown,) = ledger_json("show", "ledger.db")["accounts"]
    assert (shown["spent"], shown["left"], shown["count"]) == ("1/10", "7/30", 1)
    left = [(a["to"], a["left"]) for a in shown["allocations"]]
    assert left == [("team-a", "1/10"), ("alice", "0")]
    (entry,) = shown["entries"]
    named = (entry["id"], entry["to"], entry["part"], entry["plan"])
    assert named == (1, "alice", "north", "midwest")
    text = neyman("show", "ledger.db", "people@1")
    for words in ("spent 0.1 of 1/3", "alice, north", "team-a", "midwest", "reserved"):
        assert words in text


def test_the_exact_curve_stands_beside_the_sum_and_says_when_it_holds(place: Path):
    """Two Gaussians with sigma 2 and one with sigma 1: mu squared adds up to 3/2."""
    ledger_json("create", "ledger.db", "people@1", "--cap", "5", "--currency", "gdp")
    for key, sigma in (("a", 2), ("b", 2), ("c", 1)):
        stored = json.loads(ny.Gaussian(sigma).to_json())
        part = {"query": "q", "count": 1, "mechanism": stored}
        spend(f"1/{sigma**2}", key, [part])
    with Ledger("ledger.db") as ledger:
        ledger.void(spend(1, "void", [part]))
    (shown,) = ledger_json("show", "ledger.db")["accounts"]
    expected = ny.gdp(1.5**0.5)
    for word, own in (
        ("epsilon", expected.epsilon(delta=1e-6)),
        ("power", expected.power(level=0.05)),
    ):
        assert shown["composed"][word]["lower"] <= own.upper
        assert own.lower <= shown["composed"][word]["upper"] <= own.upper * (1 + 1e-6)
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
    assert "a typing error" in neyman("history", "ledger.db", "--last", "2")
    assert neyman("history", "ledger.db", "--last", "0").count("\n") == 5


def test_a_checkpoint_finds_what_was_restored(place: Path):
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
    for given in ("kept", line):
        result = ledger_json("verify", "ledger.db", "--checkpoint", given, code=5)
        assert not result["ok"]
        assert "rolled back" in result["problems"][0]
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
    assert list(Ledger("ledger.db").lines(after=1)) == lines[1:]


@pytest.mark.parametrize(("command", "said"), [
    *((f"{name} none.db", "no ledger at") for name in ("show", "history", "verify")),
    *((f"{name} none.db", "no ledger at") for name in ("checkpoint", "void", "export")),
    ("show ledger.db dogs@1", "not registered"), ("void ledger.db 7", "no entry 7"),
    ("allocate ledger.db people@1 a --cap 2", "must be at most that of"),
    ("verify plan.toml", "is not a Neyman ledger"),
    ("export ledger.db --out plan.toml", "must end in .jsonl"),
    ("export ledger.db --out there.jsonl", "already exists"),
    ("export ledger.db", "--out FILE"), ("key custodian", "already exists"),
    ("create ledger.db", "DATASET is missing"), ("create ledger.db a@1", "--cap is missing"),
    ("create a.db people@2 --plan plan.toml", "DATASET = 'people@2': the plan has 'people@1'"),
    (
        "create a.db --protects person --plan plan.toml",
        "--protects = 'person': the plan has 'household'",
    ),
    ("create a.db --rows 4 --plan plan.toml", "--rows = 4: the plan has 3"),
    ("create a.db --plan part.toml", "--part"),
])  # fmt: skip
def test_what_cannot_be_done_is_said_with_code_2(place: Path, command: str, said: str):
    ledger_json("create", "ledger.db", "people@1", "--cap", "1")
    product = ledger_json("key", "custodian")
    assert (product["private"], product["public"]) == ("custodian", "custodian.pub")
    Path("plan.toml").write_text(PLAN * 9 if "verify" in command else PLAN)
    Path("part.toml").write_text(PLAN.replace("table =", 'part = "north"\ntable ='))
    Path("there.jsonl").touch()
    own = {"ledger.db-shm", "ledger.db-wal"}  # SQLite's, which come and go
    before = {path.name for path in place.iterdir()} - own
    words = command.split() + (["1"] if command == "void none.db" else [])
    words += ["--out", "y.jsonl"] if command == "export none.db" else []
    assert said in ledger_json(*words, code=2)["error"]
    assert {path.name for path in place.iterdir()} - own == before


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


def test_a_plan_gives_the_terms_and_caps_that_admit_it_once(place: Path):
    Path("plan.toml").write_text(PLAN)
    account = ledger_json("create", "ledger.db", "--plan", "plan.toml")
    terms = [account[name] for name in ("dataset", "protects", "neighboring", "rows")]
    assert terms == ["people@1", "household", "add-remove", 3]
    rows = [f"home{i % 50},word{i % 2}" for i in range(150)]
    Path("people.csv").write_text("\n".join(["home,word", *rows]) + "\n")
    run = ("run", "plan.toml", "--data", "people=people.csv", "--ledger", "ledger.db", "--out")
    answered(*run, "out")
    Path("plan.toml").write_text(PLAN.replace('"words"', '"again"', 1))
    answered(*run, "again", code=3)
