"""A dataset that needs approvals refuses what a second person did not approve."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.parquet
import pytest

import neyman as ny
from commands import answered
from ledger_entries import UNIT, reserve
from neyman import Ledger
from neyman.ledger import LedgerError

PLAN = """schema = 2
name = "small"
dataset = "people@1"
table = "people"
unit = { protects = "person", neighboring = "replace-one", rows = 1 }
columns.race = { keys = { file = "races.csv", column = "race" } }
budget = { zcdp = "1/2" }
query = [{ name = "race", measure = "count", by = ["race"], share = "1" }]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(PLAN)
    Path("races.csv").write_text("race\nwhite\nblack\n")
    pyarrow.parquet.write_table(pa.table({"race": ["white", "black"] * 40}), "people.parquet")
    for name in ("approver", "publisher"):
        answered("ledger", "key", name)


def create(*more: str) -> None:
    answered("ledger", "create", "ledger.db", "people@1", "--cap", "9", *more)


def approve(*more: str, code: int = 0, plan: str = "plan.toml") -> dict[str, Any]:
    words = ("plan", "approve", plan, "--ledger", "ledger.db", "--who", "A. Person")
    return json.loads(answered(*words, *more, "--json", code=code))


def run(*more: str, code: int = 0, out: str = "out") -> Any:
    words = ("run", "plan.toml", "--data", "people=people.parquet", "--ledger", "ledger.db")
    return json.loads(answered(*words, "--out", out, *more, "--json", code=code))


def test_only_the_exact_plan_that_was_approved_is_run(monkeypatch: pytest.MonkeyPatch):
    create("--approval", "required")
    assert "needs an approval of each charge" in run(code=2)["error"]
    assert not approve("--purpose", "the yearly table")["signed"]
    assert "is approved already, by A. Person" in approve(code=2)["error"]
    Path("races.csv").write_text("race\nwhite\nblack\nother\n")
    refused = run(code=2)["error"]
    assert "A plan named 'small' was approved, and it is not this one" in refused
    assert "its key files changed" in refused
    Path("races.csv").write_text("race\nwhite\nblack\n")
    run()
    report = Path("out/report.html").read_text()
    for words in (
        "the yearly table",
        "A. Person on",
        "not signed: anyone who can write the ledger",
    ):
        assert words in report
    checks = {c["name"]: c for c in verified("--ledger", "ledger.db")}
    assert checks["published"]["ok"]
    assert "approved by A. Person, not signed" in checks["published"]["detail"]


def verified(*more: str) -> list[dict[str, Any]]:
    return json.loads(answered("verify", "out", *more, "--json"))["checks"]


def test_an_approval_is_taken_back_for_the_future():
    create("--approval", "required")
    approve()
    run()
    approve("--revoke")
    assert "is not approved, so nothing is taken back" in approve("--revoke", code=2)["error"]
    assert run(out="again")["published_before"]  # the same bytes at no charge
    (said,) = (c for c in verified("--ledger", "ledger.db") if c["name"] == "published")
    assert "the approval was revoked since" in said["detail"]
    Path("plan.toml").write_text(PLAN.replace("small", "other"))
    approve()
    approve("--revoke")
    assert "or the approval was revoked" in run(code=2, out="other")["error"]


def test_with_keys_an_approver_signs_who_is_not_the_publisher():
    create("--approver", "approver.pub")
    assert "approval of a second person, signed by one of 1 key" in answered(
        "ledger", "show", "ledger.db"
    )
    assert "this one is not signed" in approve(code=2)["error"]
    assert "by another key" in approve("--key", "publisher", code=2)["error"]
    assert approve("--key", "approver")["signed"]
    assert "two people, with two keys" in run("--sign", "approver", code=2)["error"]
    run("--sign", "publisher")
    assert "signed by the key" in Path("out/report.html").read_text()
    assert "approved by A. Person, signed" in str(verified("--ledger", "ledger.db"))


def test_a_signature_of_something_else_is_refused():
    create("--approver", "approver.pub")
    plan = ny.Plan.load("plan.toml")
    with Ledger("ledger.db") as ledger:
        public = ledger.account("people@1").approvers[0]
        ledger.approve(
            "people@1", plan.hash, plan=plan.name, who="B", public=public, signature="00" * 64
        )
    assert "a signature of something else" in run(code=2)["error"]


def test_an_approval_ends_with_its_last_day(monkeypatch: pytest.MonkeyPatch):
    create("--approval", "required")
    today = datetime.now(UTC).date().isoformat()
    assert "is over" in approve("--until", "2020-01-01", code=2)["error"]
    assert "must be a day" in approve("--until", "soon", code=2)["error"]
    plan = ny.Plan.load("plan.toml")
    with Ledger("ledger.db") as ledger:
        ledger.approve("people@1", plan.hash, plan=plan.name, who="B", until="2020-01-01")
    assert "ended on 2020-01-01" in run(code=2)["error"]
    approve("--revoke")
    approve("--until", today)
    run()


def test_a_plan_that_cannot_be_read_is_not_approved():
    create("--approval", "required")
    Path("bad.toml").write_text("schema = 2")
    assert "is missing" in approve(code=2, plan="bad.toml")["error"]
    Path("races.csv").unlink()
    assert "races.csv" in approve(code=2)["error"]


def test_any_other_charge_of_such_a_dataset_is_refused_unless_it_was_approved():
    create("--approval", "required")
    people = pa.table({"race": ["white", "black"] * 40})
    session = ny.Session(
        people, ledger="ledger.db", dataset="people@1", table="people",
        unit=ny.Unit("person", neighboring="replace-one", rows=1),
        columns={"race": ny.keys(["white", "black"])},
    )  # fmt: skip
    values = [0.5] * 40
    for call in (
        lambda: session.ask(ny.query.count(by=["race"]), zcdp="1/9"),
        lambda: session.sql("SELECT race, COUNT(*) FROM people GROUP BY race", zcdp="1/9"),
        lambda: ny.estimate.mean(
            values, radius=1, budget=ny.zcdp("1/9"), ledger="ledger.db", dataset="people@1"
        ),
    ):
        with pytest.raises(LedgerError, match="needs an approval of each charge"):
            call()
    with Ledger("ledger.db") as ledger:
        with pytest.raises(LedgerError, match="needs an approval"):
            reserve(ledger, 1, "its own key", dataset="people@1")
        ledger.approve("people@1", "its own key", plan="training", who="B")
        reserve(ledger, 1, "its own key", dataset="people@1")
        assert ledger.account("people@1").spent == 1


def test_another_program_cannot_charge_what_was_not_approved():
    create("--approval", "required")
    with Ledger("ledger.db") as ledger:
        number = ledger.checkpoint().events
    with pytest.raises(apsw.ConstraintError, match="has account and approval"):
        apsw.Connection("ledger.db").execute(
            "INSERT INTO entry (id, dataset, holder, part, key, state, charge, delta, event)"
            " VALUES (1, 'people@1', '', '', 'k', 'reserved', 0, 0, ?)",
            (number,),
        )


def test_terms_of_approvals_do_not_change_and_are_checked():
    create()
    words = ("ledger", "create", "ledger.db", "people@1", "--cap", "9", "--json")
    refused = json.loads(answered(*words, "--approval", "required", code=2))["error"]
    assert "registered with approval" in refused
    assert (
        "must be 'required'" in json.loads(answered(*words, "--approval", "maybe", code=2))["error"]
    )
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        Ledger("l.db").create("a@1", cap=1, approval="required", approvers=["x"], **UNIT)
