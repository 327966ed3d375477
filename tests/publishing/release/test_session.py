"""Questions one by one: what each charges and when, what is refused, what a failure leaves."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import neyman as ny
from kill_points import forked
from neyman import Release
from neyman.display import page
from neyman.ledger import NOTICE, BudgetRefused, ChargedError, LedgerError
from neyman.publishing import DataError, PlanError, verify

PEOPLE = pa.table({"sex": ["f", "m", "f"] * 500, "age": [i % 90 for i in range(1500)]})
PERSON = ny.Unit("person", neighboring="replace-one", rows=1)
COLUMNS = {"sex": ny.keys(["f", "m"]), "age": {"integer": True}}
FIRST = {"zcdp": "1/1000"}


def registered(folder: Path, **terms) -> ny.Ledger:
    ledger = ny.Ledger(folder / "ledger.db")
    terms = {"protects": "person", "neighboring": "replace-one", "cap": 1, **terms}
    ledger.create("people@1", **terms)
    return ledger


def session(ledger, data=PEOPLE, **more) -> ny.Session:
    more = {"unit": PERSON, "columns": COLUMNS, **more}
    return ny.Session(data, ledger=ledger, dataset="people@1", **more)


def test_a_question_is_charged_exactly_and_its_release_verifies(tmp_path):
    ledger = registered(tmp_path)
    asking = session(ledger)
    answer = asking.ask(ny.query.count(by="sex"), **FIRST)
    assert answer.table.column_names == ["sex", "value", "standard_error", "lower", "upper"]
    assert (answer.charge, asking.left) == (Fraction(1, 1000), Fraction(999, 1000))
    assert (asking.left_delta, answer.charge_delta) == (0, 0)
    assert answer.tradeoff().zcdp().upper == pytest.approx(1e-3)
    folder = answer.save(tmp_path / "saved")
    checks = verify(folder, {"report.html": page}, ledger=tmp_path / "ledger.db")
    assert [check for check in checks if not check.ok] == []
    assert Release.load(folder).tables["count.all"].equals(answer.table)
    assert NOTICE not in repr(answer) + repr(asking) + page(Release.load(folder))
    assert "Charged 0.001 (zcdp, replace-one) to people@1, entry 1." in repr(answer)
    long = asking.ask(ny.query.count(by="sex"), gdp="0.03123")
    assert Fraction("0.000487") < long.charge < Fraction("0.000488")
    assert "Charged 0.000488 (zcdp, replace-one) to people@1, entry 2." in repr(long)


CLIP, EDGES = (0, 100), [0, 30, 60, 90]
QUICK = [
    ny.query.quantiles("age", edges=EDGES, quantiles=["1/4", "1/2"]),
    ny.query.median("age", clip=CLIP, method="inverse-sensitivity"),
    ny.query.count(where="age >= 18", name="adults"),
]
OTHERS = [
    ny.query.distinct("sex"),
    ny.query.mean("age", clip=CLIP),
    ny.query.ratio("age", over="age", clip=CLIP, clip_over=(1, 100)),
    ny.query.histogram("age", edges=EDGES),
]


@pytest.mark.parametrize("questions", [QUICK, OTHERS])
def test_every_measure_can_be_asked(questions):
    asking = session(ny.throwaway(1))
    for number, question in enumerate(questions, 1):
        answer = asking.ask(question, **FIRST)
        assert answer.charge <= Fraction(1, 1000)
        assert answer.entry == number
        assert answer.table.num_rows >= 1
    spent = sum(entry.charge for entry in asking.ledger.entries("people@1"))
    assert 0 <= 1 - spent - asking.left < len(questions) * Fraction(1, 720_720_000_000)


@pytest.mark.parametrize("budget", [{"gdp": "1/50"}, {"power": "0.06", "level": "0.05"}])
def test_a_budget_of_another_kind_is_charged_in_the_currency_of_the_ledger(budget):
    asking = session(ny.throwaway(1))
    answer = asking.ask(ny.query.count(), **budget)
    assert 0 < answer.charge < Fraction(1, 100)
    assert 0 <= 1 - answer.charge - asking.left < Fraction(1, 10**11)


def test_keys_of_the_data_and_places_can_be_asked():
    places = {"place": {"levels": ["state", "city"], "keys": [["A", "x"], ["A", "y"]]}}
    data = pa.table({"word": ["a", "b"] * 400, "state": ["A"] * 800, "city": ["x", "y"] * 400})
    asking = session(
        ny.throwaway(2, delta_cap="1e-6"), data, columns={"word": {"discover": True}},
        hierarchy=places,
    )  # fmt: skip
    words = asking.ask(ny.query.units(by="word", delta="1e-9"), zcdp="1/2", delta="1e-7")
    assert words.table["word"].to_pylist() == ["a", "b"]
    assert asking.left_delta == Fraction(1, 10**6) - words.charge_delta < Fraction(1, 10**6)
    assert "and delta" in words.note
    by_place = asking.ask(ny.query.count(at=["state", "city"]), **FIRST)
    assert list(by_place.tables) == ["count.state", "count.city"]
    with pytest.raises(ValueError, match=r"several tables.*count\.city"):
        by_place.table  # noqa: B018
    with pytest.raises(BudgetRefused, match="delta"):
        asking.ask(ny.query.units(by="word", delta="1e-6"), zcdp="1/10", delta="1e-4")


def test_the_same_question_is_a_new_charge_with_new_noise(tmp_path):
    ledger = registered(tmp_path)
    asking = session(ledger)
    first, second = (asking.ask(ny.query.count(by="sex"), zcdp="1/100000") for _ in range(2))
    assert first.table["value"] != second.table["value"]
    assert asking.left == 1 - Fraction(2, 100_000)
    later = session(ny.Ledger(tmp_path / "ledger.db"))
    assert later.answer(first.entry).table.equals(first.table)
    assert later.left == 1 - Fraction(2, 100_000)


@pytest.mark.parametrize(("question", "budget", "says"), [
    (ny.query.count(by="sx"), FIRST, r"by\[0\].*'sx'.*did you mean 'sex'"),
    (ny.query.count(by="sex"), {}, "budget has nothing: must be"),
    (ny.query.count(by="sex"), {"rho": 1}, "budget.rho = 1: there is no field 'rho'"),
    (ny.query.count(by="sex"), {"zcdp": -1}, "budget.zcdp = -1: must be above 0"),
    (ny.query.count(by="sex"), {"zcdp": 2}, "asked for 2 zCDP rho, and 1 of 1 is left"),
    (3, FIRST, r"query\[0\] = 3: must be a section"),
    ({"measure": "average"}, FIRST, "did you mean 'mean'"),
    (ny.query.sum("pay", clip=(0, 1)), FIRST, "'pay'"),
    (ny.query.sum("sex", clip=(0, 1)), FIRST, "sex"),
    (ny.query.count(public={"all": 3}), FIRST, "nothing is measured"),
])  # fmt: skip
def test_a_refused_question_leaves_the_ledger_unchanged(question, budget, says, tmp_path):
    ledger = registered(tmp_path)
    asking = session(ledger)
    before = list(ledger.lines())
    with pytest.raises((PlanError, DataError, BudgetRefused), match=says):
        asking.ask(question, **budget)
    assert list(ledger.lines()) == before


def test_a_session_is_refused_where_no_question_could_be_asked(tmp_path, monkeypatch):
    ledger = registered(tmp_path)
    scanner = ds.dataset(PEOPLE).scanner()
    for stream in (PEOPLE.to_reader(), scanner, ds.dataset(PEOPLE)):
        with pytest.raises(DataError, match=r"data may be a stream.*an Arrow table"):
            session(ledger, stream)
    with pytest.raises(DataError, match="cannot be read"):
        session(ledger, tmp_path / "none.parquet")
    with pytest.raises(LedgerError, match="registered for"):
        session(ledger, unit=ny.Unit("person", neighboring="add-remove", rows=1))
    with pytest.raises(LedgerError, match="not registered"):
        ny.Session(PEOPLE, ledger=ledger, dataset="others@1", unit=PERSON, columns=COLUMNS)
    with pytest.raises(PlanError, match="there is no field 'kies'"):
        session(ledger, columns={"sex": {"kies": []}})
    pq.write_table(PEOPLE, file := str(tmp_path / "people.parquet"))
    (tmp_path / "people.csv").write_text("sex\nf\nm\n")
    monkeypatch.chdir(tmp_path)  # where the files of a session's keys are
    listed = {"sex": ny.keys({"file": "people.csv", "column": "sex"})}
    with pytest.raises(PlanError, match="is also data of this run"):
        session(ledger, str(tmp_path), columns=listed)
    session(ledger, file, columns=listed)
    with pytest.raises(ValueError, match="cap = 0"):
        ny.throwaway(0)
    with pytest.raises(ValueError, match="currency = 'curve'"):
        ny.throwaway(1, currency="curve")
    asking = session(ledger)
    with pytest.raises(LedgerError, match="entry 5"):
        asking.answer(5)
    ledger.create("others@1", protects="person", neighboring="replace-one", cap=1)
    other = ny.Session(PEOPLE, ledger=ledger, dataset="others@1", unit=PERSON, columns=COLUMNS)
    answer = other.ask(ny.query.count(), zcdp="1/10")
    with pytest.raises(LedgerError, match="entry 1 is of others@1"):
        asking.answer(answer.entry)


@pytest.mark.parametrize("currency", ["pure", "zcdp", "gdp", "renyi:8"])
def test_each_currency_has_a_filter_and_pays_for_what_it_can(currency):
    asking = session(ny.throwaway(4, currency=currency))
    if currency == "pure":
        with pytest.raises(ValueError, match="no finite amount pays"):
            asking.ask(ny.query.count(), **FIRST)
        assert asking.left == 4
    question = ny.query.median("age", clip=(0, 100), method="inverse-sensitivity")
    answer = asking.ask(question, **FIRST)
    assert answer.receipt.ledger.currency == currency
    entry = asking.ledger.entry(answer.entry)
    assert 0 < entry.charge == answer.charge
    assert asking.left <= 4 - answer.charge


def test_an_allocation_pays_where_one_is_named(tmp_path):
    ledger = registered(tmp_path)
    ledger.allocate("people@1", "team", cap="1/100")
    asking = session(ledger, account="team")
    asking.ask(ny.query.count(), **FIRST)
    assert asking.left == Fraction(9, 1000)
    with pytest.raises(BudgetRefused, match="allocation team"):
        asking.ask(ny.query.count(), zcdp="1/10")


def test_every_output_of_a_throwaway_ledger_says_that_it_is_one(tmp_path):
    ledger = ny.throwaway(1)
    asking = session(ledger)
    answer = asking.ask(ny.query.count(by="sex"), **FIRST)
    folder = answer.save(tmp_path / "saved")
    receipt = json.loads((folder / "receipt.json").read_text())
    assert receipt["ledger"]["throwaway"] is True
    checks = verify(folder)
    assert all(check.ok for check in checks)
    said = [repr(ledger), repr(asking), repr(answer), answer.note, answer._repr_html_()]
    said += [answer.table.schema.metadata[b"neyman"].decode(), page(Release.load(folder))]
    said += [next(check.detail for check in checks if check.name == "charge")]
    assert [text for text in said if NOTICE not in text] == []
    receipt["ledger"]["throwaway"] = "no"
    (folder / "receipt.json").write_text(json.dumps(receipt))
    assert not all(check.ok for check in verify(folder))


def test_a_release_on_a_throwaway_ledger_says_so_too(tmp_path):
    ledger = ny.throwaway(1)
    ledger.register("people@1", protects="person", neighboring="replace-one", rows=1)
    plan = ny.Plan(
        name="once", dataset="people@1", table="people", unit=PERSON, columns=COLUMNS,
        queries=[ny.query.count(by="sex")], budget=FIRST,
    )  # fmt: skip
    release = ny.run(plan, PEOPLE, ledger, tmp_path / "out")
    assert release.receipt.ledger.throwaway
    assert NOTICE in (tmp_path / "out" / "report.html").read_text()


def test_a_throwaway_ledger_is_removed_and_a_fork_leaves_it_alone():
    code = """if True:
        import os, neyman as ny
        ledger = ny.throwaway(1)
        folder = os.path.dirname(ledger._store.where)
        if os.fork() == 0:
            raise SystemExit
        os.wait()
        print(folder, os.path.isdir(folder))"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    )
    folder, alive = done.stdout.split()
    assert alive == "True"
    assert not Path(folder).exists()


class Losing(ny.Ledger):
    """A ledger of a disk from which a file vanishes, right after the charge is durable."""

    lost: Path

    def begin(self, entry):
        entry = super().begin(entry)
        self.lost.unlink()
        return entry


def test_data_that_go_away_after_the_charge_leave_the_charge_in_force(tmp_path):
    registered(tmp_path)
    file = tmp_path / "people.parquet"
    pq.write_table(PEOPLE, file)
    ledger = Losing(tmp_path / "ledger.db")
    ledger.lost = file
    asking = session(ledger, file)
    with pytest.raises(ChargedError, match=r"entry 1.*ask again is a new charge"):
        asking.ask(ny.query.count(by="sex"), **FIRST)
    assert asking.left == Fraction(999, 1000)
    with pytest.raises(LedgerError, match="entry 1 is of people@1 and reading"):
        asking.answer(1)
    with pytest.raises(DataError, match="cannot be read"):
        asking.ask(ny.query.count(by="sex"), **FIRST)
    assert asking.left == Fraction(999, 1000)
    pq.write_table(PEOPLE, file)
    assert (
        session(ny.Ledger(tmp_path / "ledger.db"), file).ask(ny.query.count(), **FIRST).entry == 2
    )
    assert asking.left == Fraction(998, 1000)


def test_a_column_that_changed_its_type_between_questions_is_refused_before_the_charge(tmp_path):
    file = tmp_path / "people.parquet"
    pq.write_table(PEOPLE, file)
    asking = session(registered(tmp_path), file)
    pq.write_table(pa.table({"sex": [["f"]] * 9, "age": PEOPLE["age"][:9]}), file)
    with pytest.raises(DataError, match="sex"):
        asking.ask(ny.query.count(by="sex"), **FIRST)
    assert asking.left == 1


def test_an_answer_says_which_rows_do_not_count_and_no_key_reaches_the_terminal_raw(tmp_path):
    """100 rows of one id count as four, and a key with an escape sequence is printed in words."""
    ids = [1] * 100 + list(range(2, 102))
    table = pa.table({"id": ids, "town": ["a\x1b]0;b"] * 200})
    unit = ny.Unit("person", neighboring="replace-one", id="id", rows=4)
    columns = {"town": {"discover": True}}
    session = ny.Session(
        table, ledger=ny.throwaway(99, delta_cap=0.1), dataset="d@1", unit=unit, columns=columns
    )
    answer = session.ask(ny.query.count(), zcdp=9)
    (note,) = answer.notes
    assert note.startswith("At most 4 rows per person count; rows without an id are not counted.")
    assert note in repr(answer)
    assert 90 < answer.table["value"][0].as_py() < 120
    assert note in session.sql("SELECT COUNT(*) FROM data", zcdp=9).notes
    keys = session.ask(ny.query.units(by="town", delta="1e-3"), zcdp=9, delta=0.01)
    assert keys.table["town"].to_pylist() == ["a\x1b]0;b"]
    assert "\x1b" not in repr(keys)
    plain = ny.Unit("row", neighboring="replace-one", rows=1)
    every = ny.Session(table, ledger=ny.throwaway(9), dataset="d@1", unit=plain)
    assert every.ask(ny.query.count(), zcdp=9).notes == ()


def test_a_data_frame_can_be_asked_more_than_once(tmp_path):
    pq.write_to_dataset(PEOPLE, tmp_path / "people")
    stored = ds.dataset(tmp_path / "people")
    for data in (PEOPLE.to_pandas(), stored, PEOPLE.to_batches()[0]):
        asking = session(ny.throwaway(1), data)
        values = [
            asking.ask(ny.query.count(), zcdp="1/4").table["value"][0].as_py() for _ in range(2)
        ]
        assert values == pytest.approx([1500, 1500], abs=40)


def test_threads_that_ask_at_once_never_exceed_the_cap(tmp_path):
    ledger = registered(tmp_path, cap="1/250")
    asking = session(ledger)
    results: list[str] = []

    def work() -> None:
        try:
            asking.ask(ny.query.count(), **FIRST)
            results.append("granted")
        except BudgetRefused:
            results.append("refused")

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (results.count("granted"), results.count("refused")) == (4, 8)
    assert asking.left == 0
    assert ledger.verify().problems == ()


def test_a_process_that_is_killed_between_questions_or_in_one_keeps_charges(tmp_path, monkeypatch):
    ledger = registered(tmp_path)
    file = tmp_path / "people.parquet"
    pq.write_table(PEOPLE, file)

    def work(tell):
        asking = session(ny.Ledger(tmp_path / "ledger.db"), file)
        answer = asking.ask(ny.query.count(), **FIRST)
        tell(answer.entry)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    states, left = set(), set()
    steps = len(forked(work, None, tmp_path).steps)
    for step in (*range(1, steps, steps // 10), None):
        before = ledger.account("people@1").spent
        said = forked(work, step, tmp_path)
        left |= {path.name[:11] for path in tmp_path.glob("neyman-*-*")}
        after = ledger.account("people@1").spent
        last = ledger.entries("people@1", 1)
        states.add(last[0].state if after > before else "none")
        if said.messages:
            assert after == before + Fraction(1, 1000)
        assert after - before in (0, Fraction(1, 1000))
        assert ledger.verify().problems == ()
    assert {"none", "reading", "released"} <= states
    assert "neyman-answ" in left  # of the killed, until the next start
    assert list(tmp_path.glob("neyman-*-*")) == []


def test_what_a_killed_process_left_of_a_throwaway_ledger_is_removed_later(tmp_path, monkeypatch):
    code = """if True:
        import os, signal, neyman as ny
        ledger = ny.throwaway(1)
        ledger.register("t@1", protects="person", neighboring="add-remove", rows=1)
        os.kill(os.getpid(), signal.SIGKILL)"""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "neyman-throwaway-abcdefg1").mkdir()
    (tmp_path / "neyman-throwaway-abcdefg1" / "letter.txt").write_text("mine")
    alive = ny.throwaway(1)
    alive.register("t@1", protects="person", neighboring="add-remove", rows=1)
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    assert len(list(tmp_path.glob("neyman-throwaway-*"))) == 3
    ny.throwaway(1)
    gc.collect()
    assert len(list(tmp_path.glob("neyman-throwaway-*"))) == 2
    assert alive.account("t@1").left == 1


SELECTED = [
    "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM data GROUP BY k ORDER BY total DESC, k",
    "SELECT k AS key, COUNT(x) c FROM data GROUP BY 1 HAVING c > 40 AND k <> 'a' ORDER BY key",
    "SELECT COUNT(*) n, k FROM data GROUP BY k HAVING NOT COUNT(*) <= 50 OR k IN ('b') ORDER BY 2",
    "SELECT k, w, SUM(x) FROM data GROUP BY w, k HAVING SUM(x) BETWEEN -9.5 AND 60 "
    "ORDER BY 3 DESC, 1, 2",
    "SELECT k, COUNT(*) AS n FROM data WHERE x > 0 GROUP BY k ORDER BY n, k LIMIT 2 OFFSET 1",
    "SELECT w, COUNT(*) FROM data GROUP BY w HAVING w >= 2 ORDER BY w DESC LIMIT 1",
    "SELECT k AS key, COUNT(*) AS k FROM data GROUP BY data.k ORDER BY 1",
    "SELECT k, AVG(x) AS m FROM data GROUP BY k HAVING AVG(x) IS NOT NULL ORDER BY k",
]


@pytest.mark.parametrize("text", SELECTED)
def test_sql_selects_from_published_rows_what_duckdb_selects(text):
    draw = random.Random(5)
    rows = 300
    data = pa.table({
        "k": draw.choices(["a", "b", "c", "d"], [1, 2, 3, 4], k=rows),
        "w": draw.choices([1, 2, 3], k=rows),
        "x": pa.array(draw.choices([*range(-4, 5), None], k=rows), pa.int64()),
    })  # fmt: skip
    asking = ny.Session(
        data, ledger=ny.throwaway(10_000), dataset="people@1", unit=PERSON,
        columns={"k": ny.keys(list("abcd")), "w": ny.keys([1, 2, 3]), "x": {"integer": True}},
    )  # fmt: skip
    clips = {"x": (-4, 4)} if "(x)" in text.replace("COUNT(x)", "") else {}
    answer = asking.sql(text, clips=clips, zcdp=5000)
    right = duckdb.sql(text).to_arrow_table()
    shown = [tuple(row.values()) for row in answer.table.to_pylist()]
    assert shown == [tuple(map(_plain, row.values())) for row in right.to_pylist()]
    assert all("standard_error" in table.column_names for table in answer.tables.values())
    assert repr(answer).startswith("SELECT\n")
    assert "published numbers alone" in repr(answer)
    assert "published numbers alone" in answer._repr_html_()


def _plain(value):
    return int(value) if isinstance(value, Decimal) else value


def test_columns_of_extremes_say_that_they_are_quantiles():
    people = pa.table({"age": [i % 40 for i in range(4000)]})
    session = ny.Session(
        people, ledger=ny.throwaway(99), dataset="d@1",
        unit=ny.Unit("person", neighboring="replace-one", rows=1),
        columns={"age": {"integer": True}},
    )  # fmt: skip
    text = "SELECT MAX(age) AS oldest, MIN(age), MEDIAN(age) AS m FROM data HAVING oldest > 1"
    answer = session.sql(text, clips={"age": (0, 100)}, zcdp=9)
    assert answer.table.column_names == ["oldest (99% quantile)", "min_age (1% quantile)", "m"]
    assert answer.tables["oldest.all"]["quantile"].to_pylist() == [0.99]
    assert answer.tables["min_age.all"]["quantile"].to_pylist() == [0.01]
    assert "quantile" not in answer.tables["m.all"].column_names


def test_sql_is_one_charge_and_a_refusal_is_none(tmp_path):
    asking = session(registered(tmp_path), table="people")
    clips = {"age": (0, 100)}
    answer = asking.sql(
        "SELECT sex, AVG(age), COUNT(*) FROM people GROUP BY sex", clips=clips, **FIRST
    )
    assert answer.table.column_names == ["sex", "avg_age", "count"]
    assert set(answer.tables) == {"avg_age.all", "count.all"}
    assert (answer.charge, asking.left) == (Fraction(1, 1000), Fraction(999, 1000))
    assert asking.answer(answer.entry).tables == answer.tables
    for text, given, problem in (
        ("SELECT AVG(age), name FROM people", clips, "line 1, column 18, 'name'"),
        (
            "SELECT COUNT(*), AVG(age) FROM people",
            {"age": (9, 1)},
            "column 18, 'AVG.age.': query.1",
        ),
        ("DROP TABLE people", None, "only a SELECT"),
    ):
        with pytest.raises(PlanError, match=problem):
            asking.sql(text, clips=given, **FIRST)
    assert asking.left == Fraction(999, 1000)


def test_no_key_that_a_question_discovers_is_obeyed_by_a_terminal():
    key = "a\x1b[2J\x07\x9b1m\u202e\u200f\r\n\x00z"
    asking = ny.Session(
        pa.table({"word": [key] * 500}), ledger=ny.throwaway(10, delta_cap="1/100"),
        dataset="people@1", unit=PERSON, columns={"word": {"discover": True}},
    )  # fmt: skip
    answers = [
        asking.ask(ny.query.count(by="word", delta="1e-6"), zcdp=5, delta="1e-4"),
        asking.sql(
            "SELECT word, COUNT(*) FROM data GROUP BY word", zcdp=5, delta="1e-4", key_delta="1e-6"
        ),
    ]
    for answer in answers:
        for text in (str(answer), repr(answer), answer._repr_html_()):
            assert r"\u001b[2J" in text or r"\x1b[2J" in text
            assert not set(text) & set("\x1b\x07\x9b\u202e\r\x00")
            assert "\n\x00z" not in text


def test_sql_joins_the_keys_that_its_queries_discover(tmp_path):
    words = pa.table({"word": ["a"] * 500 + ["b"] * 300, "x": [1] * 500 + [0] * 300})
    columns = {"word": {"discover": True}, "x": {"integer": True}}
    asking = ny.Session(
        words,
        ledger=ny.throwaway(10, delta_cap="1/100"),
        dataset="people@1",
        unit=PERSON,
        columns=columns,
    )
    text = (
        "SELECT word, COUNT(*) AS n, COUNT_IF(x = 1) AS ones FROM data GROUP BY word ORDER BY ones"
    )
    answer = asking.sql(text, key_delta="1e-6", zcdp=5, delta="1e-4")
    assert [row["word"] for row in answer.table.to_pylist()] == ["a", "b"]
    assert answer.table["ones"][1].as_py() is None
