"""A correction replaces a release: right tables are copied, and all others get new noise."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import neyman as ny
from commands import answered
from kill_points import forked
from ledger_entries import UNIT
from neyman import Ledger
from neyman.ledger import LedgerError
from neyman.publishing import PlanError
from plans import SMALL, release

PEOPLE = pa.table({"race": ["white", "black"] * 400, "sex": ["m", "f", "f", "m"] * 200})
FIXED = pa.table({"race": ["white", "black"] * 400, "sex": ["f"] * 7 + ["m"] * 793})
QUERIES = [
    {"name": name, "measure": "count", "by": [name], "share": "1/2"} for name in ("race", "sex")
]
PLAN = SMALL | {
    "columns": {"race": {"keys": ["white", "black"]}, "sex": {"keys": ["m", "f"]}},
    "query": QUERIES,
}


def plan(**more: Any) -> ny.Plan:
    return ny.Plan.from_dict(PLAN | more)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tables").iterdir()}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.chdir(tmp_path)
    book = Ledger("ledger.db")
    book.create("people@1", cap=9, **UNIT)
    release(plan(), PEOPLE, book, "old")
    return book


def correct(ledger: Ledger, out: str, of: str = "old", data: Any = PEOPLE, **more: Any) -> Any:
    own = more.pop("plan", None) or plan(name=out)
    given: dict[str, Any] = {"corrects": of, "why": "a slip"} | more
    return release(own, data, ledger, out, **given)


def test_a_copied_table_has_the_same_bytes_and_costs_nothing(ledger: Ledger):
    before = ledger.account("people@1").spent
    new = correct(ledger, "new", copied=["race"])
    old, now = files(Path("old")), files(Path("new"))
    assert old.keys() == now.keys()
    for name in old:
        assert (old[name] == now[name]) == name.startswith("race."), name
    assert ledger.account("people@1").spent == before + before / 2
    assert [one.mechanisms for one in ledger.entries("people@1")][1] == [
        part.to_dict() for part in new.receipt.mechanisms if part.query == "sex"
    ]
    for given in ({}, {"ledger": "ledger.db"}):
        assert all(check.ok for check in ny_verify("new", **given))


def ny_verify(folder: str, **given: Any) -> list[Any]:
    from neyman import publishing

    return publishing.verify(folder, **given)


def test_a_wrong_title_is_corrected_without_data_and_without_a_charge(ledger: Ledger):
    before = ledger.account("people@1").spent
    titled = plan(name="title", query=[QUERIES[0], QUERIES[1] | {"title": "People by sex"}])
    new = correct(ledger, "title", data=None, plan=titled, copied=["race", "sex"])
    assert files(Path("old")) == files(Path("title"))
    assert (new.receipt.plan["name"], new.receipt.ledger.charged) == ("title", "0")
    assert ledger.account("people@1").spent == before
    assert all(check.ok for check in ny_verify("title", ledger="ledger.db"))


def test_verify_and_the_report_of_a_superseded_release_name_the_newest(ledger: Ledger):
    correct(ledger, "second")
    correct(ledger, "third", "second", why="another slip")
    (said,) = (c for c in ny_verify("old", ledger="ledger.db") if c.name == "published")
    assert said.ok
    assert "SUPERSEDED" in said.detail
    assert "a slip. The newest is entry 3" in said.detail
    assert "superseded" not in str(ny_verify("old")).lower()
    answered("report", "old", "--out", "old.html", "--ledger", "ledger.db")
    assert "SUPERSEDED" in Path("old.html").read_text()
    assert "SUPERSEDED" not in ny_page("third")
    assert "entry 2 of the same ledger, which this release replaces: another slip" in ny_page(
        "third"
    )


def ny_page(folder: str) -> str:
    answered("report", folder, "--out", "page.html", "--ledger", "ledger.db")
    return Path("page.html").read_text()


def test_what_is_no_correction_is_refused_in_words_and_spends_nothing(ledger: Ledger):
    ledger.create("other@1", cap=9, **UNIT)
    other = Ledger("other.db")
    other.create("people@1", cap=9, **UNIT)
    release(plan(name="theirs"), PEOPLE, other, "theirs")
    correct(ledger, "second")
    ledger.withdraw(correct(ledger, "third", "second").receipt.ledger.entry and 3, "taken back")
    release(plan(name="more"), PEOPLE, ledger, "more")
    keys = {"race": {"keys": ["white"], "unknown": "drop"}, "sex": {"keys": ["m", "f"]}}
    before = ledger.checkpoint()
    for error, refused, of, given in (
        (LedgerError, "corrected already: the newest is entry 3, which was withdrawn", "old", {}),
        (LedgerError, "entry 3 of people@1 is withdrawn", "third", {}),
        (LedgerError, "the release is of another ledger", "theirs", {"_": other}),
        (LedgerError, "is of people@1, and the plan is of other@1", "more", {
            "plan": plan(dataset="other@1"),
        }),
        (PlanError, "why", "more", {"why": ""}),
        (PlanError, "'age' is a query of only one of the two plans", "more", {"copied": ["age"]}),
        (PlanError, "'race' is not the published table: the two plans differ in columns", "more", {
            "plan": plan(columns=keys), "copied": ["race"],
        }),
        (PlanError, "differ in noise", "more", {
            "plan": plan(budget={"zcdp": "1/4"}), "copied": ["sex"],
        }),
    ):  # fmt: skip
        shutil.copytree(of, f"copy of {of}", dirs_exist_ok=True)
        if "_" in given:  # the numbers of entries agree, and the receipts do not
            folder = Path(f"copy of {of}/receipt.json")
            content = json.loads(folder.read_text())
            content["ledger"]["entry"] = "4"
            folder.write_text(json.dumps(content))
        with pytest.raises(error, match=refused):
            correct(
                ledger, "refused", f"copy of {of}", **{k: v for k, v in given.items() if k != "_"}
            )
    assert ledger.checkpoint() == before
    assert not Path("refused").exists()
    # The key list of race was wrong: the table of the other column is still the published one.
    wrong = plan(name="keys", columns=keys)
    assert (
        correct(ledger, "keys", "more", plan=wrong, copied=["sex"]).receipt.ledger.charged == "1/4"
    )


def test_a_release_that_adds_old_noise_to_new_data_gives_the_change_away(ledger: Ledger):
    """The difference of such a pair is the exact change; that of a correction is not."""
    truth = {"m": 793 - 400, "f": 7 - 400}

    def values(folder: str) -> dict[str, int]:
        table = ny.Release.load(folder).tables["sex.all"]
        return dict(zip(*(table[name].to_pylist() for name in ("sex", "value")), strict=True))

    old = values("old")
    noise = {key: old[key] - 400 for key in old}
    reused = {key: {"m": 793, "f": 7}[key] + noise[key] for key in old}
    assert {key: reused[key] - old[key] for key in old} == truth
    # Noise of standard deviation sqrt(2)/... repeats itself 12 times with probability below 1e-6.
    for number in range(12):
        of = str(number - 1) if number else "old"
        correct(ledger, str(number), of, FIXED)
        if {key: values(str(number))[key] - values("old")[key] for key in old} != truth:
            break
    else:
        pytest.fail("twelve corrections repeat the noise")
    with pytest.raises(PlanError, match="is not the published table"):
        correct(
            ledger, "x", str(number), FIXED,
            plan=plan(name="x", where="race == 'white'"), copied=["sex"],
        )  # fmt: skip


def test_corrected_data_are_an_edition_of_the_same_population(ledger: Ledger):
    ledger.create("people@2", cap=9, **UNIT)
    fixed = plan(name="fixed", dataset="people@2")
    with pytest.raises(LedgerError, match="an edition of the same population"):
        correct(ledger, "fixed", data=FIXED, plan=fixed, copied=["race"])
    ledger.create("all@1", cap=1, **UNIT)
    for name in ("people@1", "people@2"):
        ledger.join(name, "all@1")
    correct(ledger, "fixed", data=FIXED, plan=fixed, copied=["race"])
    assert str(ledger.account("all@1").spent) == "3/4"
    assert [one.entry for one in ledger.sequels(1)] == [2]


def test_a_correction_killed_at_any_step_is_recorded_with_its_release_or_not_at_all(
    share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in itertools.count(1, max(1, share // 2)):
        place = tmp_path / f"at {number}"
        place.mkdir()
        monkeypatch.chdir(place)
        with Ledger("ledger.db") as book:
            book.create("people@1", cap=9, **UNIT)
            release(plan(), PEOPLE, book, "old")
        said = forked(
            lambda tell: correct(Ledger("ledger.db"), "new", data=None, copied=["race", "sex"]),
            number, place,
        )  # fmt: skip
        with Ledger("ledger.db") as book:
            states = [entry.state for entry in book.entries("people@1")]
            assert (book.sequels(1) != ()) == (states[1:] == ["released"]), states
            assert book.verify().ok
        if not said.killed:
            assert said.done, said.lines
            return


def test_the_receipt_has_the_balance_as_the_ledger_said_it_unless_it_is_left_out(ledger: Ledger):
    first = json.loads(Path("old/receipt.json").read_text())["ledger"]["balance"]
    assert first == {"account": "people@1", "spent": "0", "left": "17/2", "cap": "9", "events": 4}
    ledger.create("all@1", cap=2, **UNIT)
    ledger.join("people@1", "all@1")
    second = ny.run(plan(name="second"), PEOPLE, ledger, "second")
    assert second.receipt.ledger.balance is not None
    own = second.receipt.ledger.balance
    assert (own.account, own.spent, own.left, own.cap) == ("all@1", "1/2", "1", "2")
    report = Path("second/report.html").read_text()
    charged = "0.5 of 2 in zcdp had been charged for these people apart from this release"
    assert f"{charged}, and 1 was left" in report
    assert "multiplies the odds that an attacker holds for a true claim" in report
    assert all(check.ok for check in ny_verify("second", ledger="ledger.db"))
    third = release(plan(name="third"), PEOPLE, ledger, "third", balance=False)
    assert third.receipt.ledger.balance is None
