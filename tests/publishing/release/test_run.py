"""The main job: what is charged, when, what is written, and that it can be checked without data."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from places import files_of

from neyman import Ledger, Release, zcdp
from neyman.accounting import Zcdp
from neyman.ledger import BudgetRefused, ChargedError, LedgerError
from neyman.publishing import (
    Cells,
    DataError,
    Form,
    Plan,
    PlanError,
    forms,
    mechanism_list,
    noisy_part,
    open_table,
    verify,
)
from neyman.publishing import run as run_module
from plans import release
from seeded import Seeded

# Ibis still calls DuckDB by a name that newer versions of DuckDB announce to go away.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

PLAN = """
schema = 2
name = "small"
dataset = "people@1"
table = "people"
[unit]
protects = "person"
neighboring = "replace-one"
[columns.race]
keys = ["white", "black"]
[columns.age]
integer = true
[hierarchy.place]
levels = ["state", "county"]
keys = [["IL", "Adams"], ["IL", "Cook"], ["IN", "Adams"]]
[budget]
zcdp = 0.5
[[query]]
name = "total"
measure = "count"
at = ["state", "county"]
share = "1/2"
[[query]]
name = "race"
measure = "count"
by = ["race"]
share = "1/4"
[[query]]
name = "age"
measure = "mean"
column = "age"
clip = [0, 10]
at = ["state"]
share = "1/4"
"""
COUNTS = {("IL", "Adams"): 700, ("IL", "Cook"): 400, ("IN", "Adams"): 300}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    keys = [key for key, count in COUNTS.items() for _ in range(count)]
    table = pa.table({
        "state": [state for state, _ in keys], "county": [county for _, county in keys],
        "race": ["white", "black"] * (len(keys) // 2), "age": [i % 11 for i in range(len(keys))],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "people.parquet")
    Ledger(tmp_path / "ledger.db").create(
        "people@1", protects="person", neighboring="replace-one", cap="1.25"
    )
    return tmp_path


def make(place, out="out", plan="plan.toml", data="people.parquet", **kwargs):
    return release(place / plan, place / data, place / "ledger.db", place / out, **kwargs)


def spent(place):
    return Ledger(place / "ledger.db").account("people@1").spent


def other_plan(place, text, name="other.toml"):
    (place / name).write_text(text)
    return name


def test_a_release_has_its_tables_receipt_and_pages_and_is_charged_once(place):
    mechanism = make(place, pages={"report.html": lambda r: f"<p>{r.receipt['dataset']}"})
    names = ["total.state", "total.county", "race.all", "age.state"]
    assert sorted(mechanism.tables) == sorted(names)
    assert set(files_of(place / "out")) == {
        "receipt.json",
        "report.html",
        *(f"tables/{name}.{ending}" for name in names for ending in ("csv", "parquet")),
    }
    assert spent(place) == Fraction(1, 2)
    assert mechanism.tables["total.county"].column_names == [
        "state", "county", "value", "standard_error", "lower", "upper",
    ]  # fmt: skip
    assert mechanism.tables["race.all"].column_names[0] == "race"
    with pytest.raises(KeyError, match=r"no table 'race': the release has \['"):
        mechanism.tables["race"]
    assert not [path for path in place.iterdir() if path.name.startswith(".")]
    assert mechanism.receipt["ledger"]["charged"] == "1/2"
    assert list(mechanism.receipt)[:3] == ["schema", "plan", "plan_hash"]


def test_the_same_plan_again_gives_the_same_bytes_and_costs_nothing(place):
    first = make(place)
    again = make(place, out="second")
    assert dict(first.files) == dict(again.files) == files_of(place / "second")
    make(place)  # onto itself
    assert spent(place) == Fraction(1, 2)


def test_a_folder_that_holds_anything_else_is_refused_and_nothing_is_spent(place):
    (place / "out").mkdir()
    (place / "out" / "mine.txt").write_text("x")
    with pytest.raises(ValueError, match="out"):
        make(place)
    assert spent(place) == 0
    assert [path.name for path in (place / "out").iterdir()] == ["mine.txt"]
    (place / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        make(place, out="file")


def test_another_plan_over_the_cap_is_refused_and_nothing_is_written(place):
    make(place)
    bigger = other_plan(place, PLAN.replace("zcdp = 0.5", "zcdp = 1"))
    with pytest.raises(BudgetRefused) as refused:
        make(place, out="more", plan=bigger)
    assert refused.value.left == Fraction(3, 4)
    with pytest.raises(BudgetRefused):
        make(place, out="new/folders/more", plan=bigger)
    assert not (place / "more").exists()
    assert not (place / "new").exists()
    assert spent(place) == Fraction(1, 2)


def test_bad_plans_data_and_units_spend_nothing_and_write_nothing(place):
    cases = [
        (PlanError, PLAN.replace('"1/2"', '"1/3"'), "people.parquet"),
        (LedgerError, PLAN.replace("people@1", "people@2"), "people.parquet"),
        (LedgerError, PLAN.replace('protects = "person"', 'protects = "family"'), "people.parquet"),
        (DataError, PLAN.replace("race", "rase"), "people.parquet"),
        (DataError, PLAN, "nowhere.parquet"),
    ]
    for error, text, data in cases:
        with pytest.raises(error):
            make(place, plan=other_plan(place, text), data=data)
        assert spent(place) == 0
        assert not (place / "out").exists()
    with pytest.raises(DataError, match="'people'"):
        release(place / "plan.toml", {"persons": 1}, place / "ledger.db", place / "out")
    assert spent(place) == 0


def test_a_failing_page_does_not_cost_the_tables(place):
    def fails(product):
        raise RuntimeError("no page")

    mechanism = make(place, pages={"report.html": fails})
    assert "report.html" not in mechanism.files
    assert len(mechanism.tables) == 4


def test_nothing_private_is_read_before_the_charge_is_on_the_disk(place, monkeypatch):
    observations = []

    def reading(plan, table, **_):
        observations.append(spent(place))
        raise RuntimeError("stopped while counting")

    monkeypatch.setattr(run_module, "aggregate_cells", reading)
    with pytest.raises(ChargedError, match="the charge stands"):
        make(place)
    assert observations == [Fraction(1, 2)]
    assert spent(place) == Fraction(1, 2)  # and it stays spent
    assert not (place / "out").exists()
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_the_ledger_knows_that_reading_begins_before_a_row_is_opened(place, monkeypatch):
    observations = []

    def opening(*args, rows=True, **options):
        entries = Ledger(place / "ledger.db").entries("people@1")
        observations.append((rows, [entry.state for entry in entries]))
        return open_table(*args, rows=rows, **options)

    monkeypatch.setattr(run_module, "open_table", opening)
    make(place)
    assert observations == [(False, []), (True, ["reading"])]
    entries = Ledger(place / "ledger.db").entries("people@1")
    assert [entry.state for entry in entries] == ["released"]


def test_an_unfinished_plan_is_refused_until_it_is_to_be_charged_again(place, monkeypatch):
    def reading(plan, table, **_):
        raise RuntimeError("stopped while counting")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "aggregate_cells", reading)
        with pytest.raises(ChargedError, match="refused, unless it is to be charged again"):
            make(place)
    with pytest.raises(LedgerError, match="--charge-again"):
        make(place)
    assert spent(place) == Fraction(1, 2)
    assert not (place / "out").exists()
    make(place, charge_again=True)
    assert spent(place) == 1
    assert make(place, out="second").published_before
    assert spent(place) == 1


def test_a_run_that_ended_before_it_read_anything_is_replaced_at_no_charge(place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    total = other_plan(place, PLAN.replace("zcdp = 0.5", "zcdp = 1.25"))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(place, plan=total)
    make(place, plan=total)
    entries = Ledger(place / "ledger.db").entries("people@1")
    assert [entry.state for entry in entries] == ["void", "released"]
    assert spent(place) == Fraction(5, 4)


def test_nobody_reads_on_an_entry_that_was_made_void(place):
    book = Ledger(place / "ledger.db")

    class Replaced(Ledger):
        def begin(self, entry):
            book.void(entry)
            return super().begin(entry)

    with pytest.raises(LedgerError, match="void"):
        release(
            place / "plan.toml",
            place / "people.parquet",
            Replaced(place / "ledger.db"),
            place / "out",
        )
    assert spent(place) == 0
    assert not [path for path in place.iterdir() if "out" in path.name]


def test_a_sub_allocation_pays_and_cannot_be_exceeded(place):
    book = Ledger(place / "ledger.db")
    book.allocate("people@1", "team-a", cap="1/2")
    make(place, account="team-a")
    assert book.account("people@1", "team-a").spent == book.account("people@1").spent
    other = other_plan(place, PLAN.replace('"small"', '"other"'))
    with pytest.raises(BudgetRefused):
        make(place, out="other", plan=other, account="team-a")
    with pytest.raises(LedgerError, match="team-b"):
        make(place, out="other", plan=other, account="team-b")
    assert spent(place) == Fraction(1, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"engine": "dask"}, "dask"), ({"master": "local[2]"}, "local"), ({"memory": "lots"}, "lots")],
)
def test_an_engine_that_will_not_do_is_refused_before_anything_is_spent(place, options, said):
    with pytest.raises(DataError, match=said):
        make(place, **options)
    assert spent(place) == 0
    assert not (place / "out").exists()


def test_a_release_loads_again_and_recomputes_its_curve(place):
    mechanism = make(place)
    again = Release.load(place / "out")
    assert again.receipt == mechanism.receipt
    answer = again.receipt["guarantee"]["epsilon"][1]
    epsilon = again.tradeoff().epsilon(delta=answer["delta"])
    assert answer["lower"] <= epsilon.upper
    assert epsilon.lower <= answer["upper"]
    with pytest.raises(ValueError, match="receipt"):
        Release.load(place)


def test_intervals_cover_as_they_say(place):
    """90% intervals of 400 releases with fixed bits; binomial, false alarms 1e-6 (4.9 sigma)."""
    plan = Plan.load(place / "plan.toml")
    exact = {}
    for entry in plan.entries():
        # Ages are 5 on average, the middle of the clip, from which their distances are summed.
        values = np.full(entry.cells, 0 if entry.measure == "offset" else 1_000)
        if (entry.query, entry.level) == ("total", "county"):
            values = np.array(list(COUNTS.values()))
        cells = Cells(entry.cells, np.arange(entry.cells), values)
        exact[entry.query, entry.level, entry.measure] = cells
    bits, runs = Seeded(0), 400
    tables = forms(plan, plan.calibrated())
    truths = {"total.county": list(COUNTS.values()), "age.state": [5, 5]}
    covered = dict.fromkeys(["total.county", "age.state"], 0)
    for _ in range(runs):
        for form in tables:
            name = f"{form.query.name}.{form.level}"
            if name not in truths:
                continue
            truth = truths[name]
            noisy = noisy_part(form, exact, range(form.cells), bits)
            table = form.build(noisy)
            lower, upper = (table[side].to_numpy() for side in ("lower", "upper"))
            covered[name] += int(np.sum((lower <= truth) & (truth <= upper)))
    for name, cells in (("total.county", 3), ("age.state", 2)):
        n = runs * cells
        assert covered[name] >= 0.9 * n - 4.9 * (0.09 * n) ** 0.5
    assert covered["total.county"] <= runs * 3 * 0.99


RUN = """
import sys
from pathlib import Path
from neyman.api import run
place = Path(sys.argv[1])
def tell(stage, fraction):
    print(stage, flush=True)
run(place / "plan.toml", place / "people.parquet", place / "ledger.db", place / "out",
    charge_again=True, pages={}, progress=tell)
"""


@pytest.mark.parametrize(("wait", "later"), [
    ("counting", 0.004), ("reserving", 0), ("drawing", 0.008), ("writing", 0.012),
    ("writing", 0.016),
])  # fmt: skip
def test_a_run_killed_at_any_moment_leaves_the_ledger_right_and_no_half_a_folder(
    place, wait, later
):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", RUN, str(place)], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line.startswith(wait):
            break
    time.sleep(later)
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.read()
    process.stdout.close()
    process.wait()
    book = Ledger(place / "ledger.db")
    before = book.account("people@1")
    assert before.spent == Fraction(1, 2) * before.entries
    assert before.entries == 1 or (before.entries == 0 and wait == "reserving")
    if (place / "out").exists():
        assert all(check.ok for check in verify(place / "out"))
        shutil.rmtree(place / "out")
    done = book.published("people@1", Plan.load(place / "plan.toml").hash)
    waiting = [e for e in book.entries("people@1") if e.state == "reserved"]
    mechanism = make(place, charge_again=True)
    # What never began to read is replaced; everything else is charged again.
    again = 0 if done or waiting else Fraction(1, 2)
    assert book.account("people@1").spent == before.spent + again
    assert all(check.ok for check in verify(place / "out"))
    assert files_of(place / "out") == dict(mechanism.files)
    assert not [path for path in place.iterdir() if path.name.startswith(".out")]


def test_an_interrupted_run_cleans_up_and_keeps_the_charge(place):
    def interrupt(stage, fraction):
        if stage == "writing the report":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(place, progress=interrupt)
    assert spent(place) == Fraction(1, 2)
    assert not (place / "out").exists()
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_a_declared_total_is_published_as_declared_without_error_or_charge(place):
    text = (
        PLAN.replace('levels = ["state",', 'levels = ["all of it", "state",')
        .replace('["IL", "Ad', '["M", "IL", "Ad')
        .replace('["IL", "Co', '["M", "IL", "Co')
        .replace('["IN", "Ad', '["M", "IN", "Ad')
        .replace('at = ["state", "county"]', 'at = ["all of it", "state", "county"]')
        .replace('share = "1/2"', 'share = "1/2"\npublic = { "all of it" = 77 }')
    )
    mechanism = make(place, plan=other_plan(place, text))
    assert mechanism.tables["total.all of it"].to_pylist() == [
        {"all of it": "M", "value": 77, "standard_error": 0.0, "lower": 77, "upper": 77}
    ]
    assert all(check.ok for check in verify(place / "out"))
    assert spent(place) == Fraction(1, 2)


@pytest.mark.parametrize("budget", [
    *("power = 0.25\nlevel = 0.05", "power = 0.22\nlevel = 0.1", "gdp = 1"),
    *("epsilon = 2\ndelta = 1e-6", "epsilon = 4.7\ndelta = 1e-9"),
])  # fmt: skip
def test_every_kind_of_budget_is_met_closely_and_the_route_by_zcdp_needs_more_noise(place, budget):
    counts = PLAN[: PLAN.rindex("[[query]]")].replace('"1/4"', '"1/2"')
    mechanism = make(place, plan=other_plan(place, counts.replace("zcdp = 0.5", budget)))
    assert all(check.ok for check in verify(place / "out"))
    plan = Plan.from_dict(mechanism.receipt["plan"])
    assert plan.admits(plan.at_scale(plan.scale))
    assert not plan.admits(plan.at_scale(plan.scale * Fraction(98, 100)))
    route = mechanism.receipt["guarantee"]["zcdp_route"]
    if not budget.startswith("gdp"):  # which no rho implies
        assert route["variance_ratio"] >= 1
        assert plan.budget.claimed_by(zcdp(Fraction(route["rho"])))


def test_a_repeat_says_that_it_was_published_before_and_needs_no_data(place, caplog):
    first = make(place)
    assert caplog.text == ""
    for number, data in enumerate((None, place / "people.parquet")):
        caplog.clear()
        out = place / f"again{number}"
        again = release(place / "plan.toml", data, place / "ledger.db", out)
        assert (first.published_before, again.published_before) == (False, True)
        assert "published before: nothing was charged, and the data were not read" in caplog.text
        assert files_of(out) == dict(first.files)
    stages = []
    make(place, out="told", progress=lambda stage, _: stages.append(stage))
    assert stages[-1] == "published before: nothing was charged, and the data were not read"


def test_a_repeat_refuses_data_that_could_not_have_been_meant(place):
    with pytest.raises(DataError, match="not published yet"):
        release(place / "plan.toml", None, place / "ledger.db", place / "none")
    make(place)
    other = pa.table({"colour": ["red"]})
    for data in (place / "nowhere.parquet", other, {"people": other}):
        with pytest.raises(DataError, match=r"This plan is published, .* give data = None"):
            release(place / "plan.toml", data, place / "ledger.db", place / "second")
    assert not (place / "second").exists()
    assert spent(place) == Fraction(1, 2)


@pytest.mark.parametrize(("argument", "value", "error"), [
    ("engine", "sqlite", DataError), ("memory", "much", DataError),
    ("master", "local[2]", DataError), ("account", "nobody", LedgerError),
    ("sign", "no.key", (OSError, ValueError)), ("wait", -1, ValueError),
    ("wait", "long", (TypeError, ValueError)),
])  # fmt: skip
def test_each_argument_is_checked_for_a_published_plan_too(place, argument, value, error):
    make(place)
    with pytest.raises(error):
        make(place, out="second", **{argument: value})
    for data in ({"persons": "people.parquet"}, 7):
        with pytest.raises(DataError):
            release(place / "plan.toml", data, place / "ledger.db", place / "second")
    assert not (place / "second").exists()
    assert spent(place) == Fraction(1, 2)


def test_a_symbolic_link_is_followed_before_anything_is_spent(place):
    (place / "real").mkdir()
    (place / "link").symlink_to(place / "real")
    (place / "dangling").symlink_to(place / "later" / "there")
    mechanism = make(place, out="link")
    assert mechanism.folder == place / "real"
    assert (place / "link").is_symlink()
    assert files_of(place / "real") == dict(mechanism.files)
    make(place, out="dangling")
    assert files_of(place / "later" / "there") == dict(mechanism.files)
    (place / "round").symlink_to(place / "round")
    other = other_plan(place, PLAN.replace('"small"', '"other"'))
    with pytest.raises(ValueError, match="round"):
        make(place, out="round", plan=other)
    assert spent(place) == Fraction(1, 2)


def test_a_second_run_into_the_same_folder_is_refused_before_it_is_charged(place):
    other = other_plan(place, PLAN.replace('"small"', '"other"'))
    refused = []

    def race(stage, fraction):
        if stage == "counting" and not refused:
            with pytest.raises(ValueError, match="another run") as error:
                make(place, plan=other)
            refused.append(error)

    make(place, progress=race)
    assert len(refused) == 1
    assert spent(place) == Fraction(1, 2)
    assert all(check.ok for check in verify(place / "out"))


def test_of_two_runs_of_one_plan_the_first_to_finish_is_what_both_publish(place, monkeypatch):
    monkeypatch.setattr(Ledger, "turn", lambda *_: nullcontext())
    others = []

    def race(stage, fraction):
        if stage == "writing the report":
            others.append(make(place, out="other", charge_again=True))

    late = make(place, progress=race, pages={"report.html": lambda product: "a page"})
    assert dict(late.files) == dict(others[0].files)
    assert "report.html" not in late.files
    assert all(check.ok for check in verify(place / "out"))
    assert spent(place) == 1


def test_a_run_waits_for_its_plan_no_longer_than_it_is_asked_to_and_spends_nothing(place):
    said = []

    def race(stage, fraction):
        if stage == "counting" and not said:
            for out in ("out", "other"):
                with pytest.raises(LedgerError, match=r"within 0.1 s, and this run spent") as error:
                    make(place, out=out, wait=0.1)
                said.append(str(error.value))

    make(place, progress=race)
    assert len(said) == 2
    assert spent(place) == Fraction(1, 2)
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_an_unfinished_plan_is_refused_at_once_and_not_waited_for(place, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(run_module.FirstRun, "_write", lambda *_: 1 / 0)
        with pytest.raises(ChargedError):
            make(place)
    (place / f".ledger.db.{'0' * 16}.run").touch()  # as a kill leaves one
    with pytest.raises(LedgerError, match=r"charge_again|charge-again"):
        make(place, wait=3600)


def test_only_what_a_killed_run_left_is_removed(place):
    selection = [place / f".out.neyman-{end}" for end in ("notes", "abcdefgh", "backup_of_2025")]
    for folder in selection:
        folder.mkdir()
        (folder / "mine.txt").write_text("x")
    left = place / ".out.neyman-a1b2c3_4"
    left.mkdir()
    (left / "neyman-staging").write_text("")
    (left / "release").mkdir()
    make(place)
    assert all((folder / "mine.txt").exists() for folder in selection)
    assert not left.exists()


def test_a_folder_filled_while_the_run_goes_on_costs_no_second_charge(place):
    def fill(stage, fraction):
        if stage == "putting in place":
            (place / "out").mkdir()
            (place / "out" / "mine.txt").write_text("x")

    with pytest.raises(ChargedError, match="no charge"):
        make(place, progress=fill)
    assert [path.name for path in (place / "out").iterdir()] == ["mine.txt"]
    make(place, out="second")
    assert spent(place) == Fraction(1, 2)


def test_an_error_after_the_charge_tells_nothing_of_the_data(place, monkeypatch, caplog):
    def reading(plan, table, **_):
        raise ValueError("bad value: Jane Doe")

    monkeypatch.setattr(run_module, "aggregate_cells", reading)
    with caplog.at_level("INFO"), pytest.raises(ChargedError) as failed:
        make(place)
    answer = "".join(traceback.format_exception(failed.value, chain=True))
    assert "Jane Doe" not in answer + caplog.text
    assert failed.value.__context__ is None
    assert "failed while counting; the charge stands (entry 1 of people@1)" in answer
    with caplog.at_level("DEBUG"), pytest.raises(ChargedError):
        make(place, charge_again=True)
    assert "Jane Doe" in caplog.text
    assert spent(place) == 1


def test_a_ledger_that_fails_after_the_charge_says_so(place, monkeypatch):
    def full(*_):
        raise LedgerError("ledger.db could not be written (No space left)")

    monkeypatch.setattr(Ledger, "finish", full)
    with pytest.raises(ChargedError, match=r"stands \(entry 1 of people@1\); ledger.db could not"):
        make(place)
    assert spent(place) == Fraction(1, 2)


def test_what_would_fail_while_counting_is_found_before_the_charge(place, monkeypatch):
    def rehearsing(plan, table):
        raise DataError("the columns do not fit")

    monkeypatch.setattr(run_module, "rehearse", rehearsing)
    with pytest.raises(DataError, match="do not fit"):
        make(place)
    monkeypatch.undo()

    def building(*_):
        raise OverflowError("int too big to convert")

    monkeypatch.setattr(Form, "build", building)
    with pytest.raises(PlanError, match="total"):
        make(place)
    assert spent(place) == 0
    assert not (place / "out").exists()


def test_names_of_columns_need_not_fit_files(place):
    text = PLAN.replace("[columns.race]", '[columns."größe (cm)/€"]').replace(
        'by = ["race"]', 'by = ["größe (cm)/€"]'
    )
    table = pq.read_table(place / "people.parquet")
    names = [name if name != "race" else "größe (cm)/€" for name in table.column_names]
    pq.write_table(table.rename_columns(names), place / "named.parquet")
    mechanism = make(place, plan=other_plan(place, text), data="named.parquet")
    assert mechanism.tables["race.all"].column_names[0] == "größe (cm)/€"
    assert all(check.ok for check in verify(place / "out"))


@pytest.mark.needs("java")
@pytest.mark.filterwarnings("ignore")  # of Spark and its streams
def test_a_release_made_on_spark_has_the_same_tables_but_for_the_noise(place):
    sharp = PLAN.replace("zcdp = 0.5", "zcdp = 100").replace("people@1", "people@2")
    (place / "plan.toml").write_text(sharp)
    Ledger(place / "ledger.db").create(
        "people@2", protects="person", neighboring="replace-one", cap=100
    )
    mechanism = make(place, engine="spark", master="local[2]", memory="1GB")
    assert all(check.ok for check in verify(place / "out"))
    for row in mechanism.tables["total.county"].to_pylist():
        assert abs(row["value"] - COUNTS[row["state"], row["county"]]) < 10  # sigma 0.2


def test_a_column_of_the_wrong_type_is_refused_with_its_file(place):
    table = pq.read_table(place / "people.parquet")
    floats = pa.array([0.5] * len(table))
    at = table.column_names.index("race")
    pq.write_table(table.set_column(at, "race", floats), place / "people.parquet")
    with pytest.raises(DataError, match=r"people\.parquet.*'race'"):
        make(place)
    assert spent(place) == 0


def test_a_column_that_only_folders_name_is_explained_before_the_charge(place):
    table = pq.read_table(place / "people.parquet")
    for race in ("white", "black"):
        (place / "by" / f"race={race}").mkdir(parents=True)
        pq.write_table(table.drop(["race"]), place / "by" / f"race={race}" / "x.parquet")
    with pytest.raises(DataError, match=r"'race': only the names of its folders have it") as caught:
        make(place, data="by")
    assert "white" not in str(caught.value)
    assert spent(place) == 0


def test_columns_that_a_plan_does_not_use_take_little_time(place):
    """8 times as many columns take at most 16 times as long: the work was quadratic."""

    def seconds(columns):
        table = pq.read_table(place / "people.parquet")
        for number in range(columns):
            table = table.append_column(f"c{number}", pa.nulls(table.num_rows, pa.string()))
        pq.write_table(table, place / f"wide{columns}.parquet")
        source = run_module.Source.of(plan, place / f"wide{columns}.parquet", "duckdb", None, None)
        start = time.process_time()
        source.rehearse(plan)
        return time.process_time() - start

    plan = Plan.load(place / "plan.toml")
    seconds(1)
    assert seconds(3200) < 16 * seconds(400)


WARNINGS_RAISED = """
import pyarrow as pa, pyarrow.csv as pc, pyarrow.parquet as pq, neyman as ny
t = pa.table({"g": ["a", "b", "a"]})
pq.write_table(t, "t.parquet"); pc.write_csv(t, "t.csv")
book = ny.Ledger("ledger.db")
book.create("d@1", protects="person", neighboring="add-remove", cap=10**6)
for number, data in enumerate([t, t.to_pandas(), "t.parquet", "t.csv"]):
    plan = ny.Plan.from_dict({
        "schema": 2, "name": f"small {number}", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": "add-remove", "rows": 1},
        "columns": {"g": {"keys": ["a", "b"]}}, "budget": {"zcdp": "4000"},
        "query": [{"measure": "count", "by": ["g"], "share": 1}],
    })
    done = ny.run(plan, data, book, f"out{number}")
    print(done.tables["count.all"]["value"].to_pylist())
    print(ny.check_data(plan, data).rows)
"""


def test_warnings_that_are_raised_end_no_release(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WARNINGS_RAISED], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2, 1]\n3\n" * 4


@pytest.mark.parametrize(("error", "kind"), [
    (DeprecationWarning("old"), DeprecationWarning),
    (MemoryError(), MemoryError),
    (PermissionError(13, "Permission denied"), PermissionError),
    (ModuleNotFoundError("no module"), ModuleNotFoundError),
    (TypeError("Jane Doe"), DataError),
    (OSError("Couldn't deserialize"), DataError),
])  # fmt: skip
def test_only_an_error_of_data_is_blamed_on_the_data_and_none_costs_a_charge(tmp_path, error, kind):
    class Table:
        def __arrow_c_stream__(self, requested_schema=None):
            raise error

    (tmp_path / "plan.toml").write_text(PLAN)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    with pytest.raises(kind) as caught:
        release(tmp_path / "plan.toml", Table(), ledger, tmp_path / "out")
    assert ("data is a" in str(caught.value)) == (kind is DataError)
    assert "Jane Doe" not in str(caught.value)
    assert ledger.account("people@1").spent == 0
    assert ledger.entries("people@1") == ()


LEAVES = PLAN.replace("zcdp = 0.5", 'zcdp = 0.5\nunspent = "1/8"').replace('"1/2"', '"3/8"')


def test_a_release_is_charged_without_what_its_plan_leaves(place):
    book = Ledger(place / "half.db")
    book.create("people@1", protects="person", neighboring="replace-one", cap="1/2")
    one = PLAN[: PLAN.index("[[query]]")] + (
        '[[query]]\nname = "rest"\nmeasure = "count"\nby = ["race"]\nshare = 1\n'
    )

    def run(text, out):
        return release(place / other_plan(place, text), place / "people.parquet", book, place / out)

    receipt = run(LEAVES, "out").receipt
    assert book.account("people@1").spent == Fraction(7, 16)
    assert Fraction(receipt.ledger.charged) == Fraction(7, 16)
    assert receipt.guarantee.rho.upper == pytest.approx(0.4375, rel=1e-12)
    checks = {check.name: check for check in verify(place / "out")}
    assert all(check.ok for check in checks.values())
    assert "and the 0.125 of it that they leave" in checks["budget"].detail
    with pytest.raises(BudgetRefused):
        run(one.replace("zcdp = 0.5", 'zcdp = "63/1000"'), "more")
    run(one.replace("zcdp = 0.5", 'zcdp = "1/16"'), "rest")
    assert book.account("people@1").spent == Fraction(1, 2)


def test_a_receipt_with_the_noise_of_the_whole_budget_is_refused(place):
    make(place, plan=other_plan(place, LEAVES))
    path = place / "out/receipt.json"
    receipt = json.loads(path.read_text())
    plan = Plan.from_dict(receipt["plan"])
    louder = plan.changed(budget=Zcdp(Fraction(4, 7)))
    assert louder.mechanism().rho() == plan.budget.rho
    receipt["mechanisms"] = [one.to_dict() for one in mechanism_list(louder, louder.calibrated())]
    path.write_text(json.dumps(receipt))
    checks = {check.name: check for check in verify(place / "out")}
    assert checks["mechanisms"].ok
    assert not checks["budget"].ok
    assert "that they leave" in checks["budget"].detail
