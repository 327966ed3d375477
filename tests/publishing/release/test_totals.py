"""Exact totals: what a plan, its ledger, its receipt, and its tables that add up make of them."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neyman as ny
from commands import answered
from neyman.display import page
from neyman.ledger import ChargedError, LedgerError
from neyman.publishing import FirstRun, PlanError, joined_order, toml_text, totals_notes, verify
from plans import COUNTIES as PLACES
from plans import STATE_TOTAL as STATE
from plans import TOTALS as SECTIONS
from plans import YEAR_TOTAL as YEAR
from plans import plan_with_totals as plan
from plans import release

PEOPLE = pa.Table.from_pylist(
    [
        {"nation": "US", "state": "Ohio" if i < 60 else "Iowa"}
        | {"county": PLACES[i % 2 if i < 60 else 2 + i % 2][2]}
        | {"race": ("white", "black", "?")[i % 3], "year": 2020 if i % 10 < 7 else 2021}
        for i in range(100)
    ]
)


def marked(path: Path, own: ny.Plan) -> ny.Ledger:
    """A ledger in which the dataset is registered with a plan's totals."""
    ledger = ny.Ledger(path)
    ledger.create(
        "people@1", protects="person", neighboring="replace-one", cap=10, totals=own.totals_hash
    )
    return ledger


# ---- the plan ------------------------------------------------------------------------------------

COUNTIES = {"by": ["county"], "values": [[*place, 25] for place in PLACES]}


def pairs(*names: str) -> dict[str, Any]:
    """Totals of 100 rows by two columns, in one cell."""
    keys = {"race": ["white", "black", "other"], "year": [2020, 2021], "sex": ["f", "m"]}
    cells = list(itertools.product(*(keys[name] for name in names)))
    return {"by": [*names], "values": [[*cell, 100 * (not i)] for i, cell in enumerate(cells)]}


@pytest.mark.parametrize(("totals", "more", "said"), [
    ([STATE, COUNTIES], {}, "for US, Ohio they add up to 60 and 50"),
    ([STATE, {**YEAR, "values": [[2020, 70], [2021, 31]]}], {}, "for all rows .* 100 and 101"),
    ([STATE, STATE], {}, "are one table"),
    ([{**STATE, "values": [["US", "Ohio", 60]]}], {}, "has no total for 'US', 'Iowa'"),
    ([{**STATE, "values": [["US", "Ohio", 60]] * 2}], {}, "repeats the keys"),
    (
        [{**STATE, "values": [["Ohio", 60]]}],
        {},
        "none of the plan's; give nation, state, total",
    ),
    ([{**YEAR, "values": [[2020, -1], [2021, 3]]}], {}, "the total -1 must be a whole number"),
    ([{**YEAR, "values": [[2020, True], [2021, 3]]}], {}, "the total True must be a whole"),
    ([{**YEAR, "values": [[2020, 2**53], [2021, 3]]}], {}, "more than 2\\^53"),
    ([{**YEAR, "values": []}], {}, "has no total for '2020'"),
    ([{**YEAR, "values": "no.csv"}], {}, "cannot read 'no.csv'"),
    ([{**YEAR, "values": "../no.csv"}], {}, "cannot read '../no.csv'"),
    ([{"by": ["year"]}], {}, "values is missing"),
    ([{**YEAR, "by": ["state", "county"]}], {}, "names several levels"),
    ([{**YEAR, "by": ["sex"]}], {}, "'sex': is not a column with listed keys and no level"),
    ([{**YEAR, "by": ["year", "year"]}], {}, "is listed twice"),
    ([STATE], {"most_rows": 99}, "most_rows = 99: the totals by state add up to 100"),
    ([STATE], {"where": "race == 'white'"}, "a total counts all rows"),
    ([STATE], {"part": "north"}, "part = 'north'"),
    ([STATE], {"disjoint": True}, "disjoint = true"),
    ([STATE], {"unit": {**SECTIONS["unit"], "neighboring": "add-remove"}}, "replace-one"),
    ([STATE], {"unit": {**SECTIONS["unit"], "id": "id"}}, "unit.id = 'id'"),
    (
        [STATE],
        {"hierarchy": SECTIONS["hierarchy"] | {"job": {"levels": ["job"], "keys": [["x"]]}}},
        "one hierarchy, or none, and this one has .*, job; leave the totals out",
    ),
    (
        [STATE],
        {
            "query": [
                {"measure": "count", "detail": [[], ["race"]], "thresholds": [5], "share": 1}
            ]
        },
        r"detail .*: no charge for it is proved beside \[\[totals\]\]",
    ),
    (
        [YEAR],
        {"columns": {**SECTIONS["columns"], "year": {"keys": [2020, 2021]}}},
        "columns.year.unknown = 'drop'",
    ),
    (
        [STATE],
        {"query": [{"measure": "count", "at": ["nation", "county"], "share": 1}]},
        "at 'nation': no change of one row that keeps the totals by state moves its count",
    ),
    (
        [STATE],
        {
            "query": [
                *SECTIONS["query"],
                {"name": "n", "measure": "count", "at": ["nation"], "public": {"nation": 99}},
            ]
        },
        "public.nation = 99: the totals by state add up to 100",
    ),
    (
        [pairs("race", "year"), pairs("year", "sex"), pairs("race", "sex")],
        {"columns": {**SECTIONS["columns"], "sex": {"keys": ["f", "m"], "unknown": "f"}}},
        "close a cycle",
    ),
])  # fmt: skip
def test_totals_that_cannot_be_are_refused_with_the_field_and_the_numbers(totals, more, said):
    with pytest.raises(PlanError, match=said):
        plan(*totals, **more)


def fixed_query(*by: str, **more: Any) -> dict[str, Any]:
    return {"name": "fixed", "measure": "count", "by": list(by), **more}


def with_fixed(query: dict[str, Any], *totals: Any, **more: Any) -> ny.Plan:
    return plan(*totals, query=[query, *SECTIONS["query"]], **more)


@pytest.mark.parametrize(("query", "totals"), [
    (fixed_query(at=["state"]), [STATE]),
    (fixed_query(at=["nation", "state"]), [YEAR, STATE]),
    (fixed_query(), [YEAR]),
    (fixed_query("year"), [pairs("race", "year")]),
    (fixed_query("year", "race", measure="units"), [pairs("race", "year")]),
    (fixed_query(at=["county"]), [COUNTIES]),
])  # fmt: skip
def test_a_query_that_the_totals_fix_takes_no_share_and_is_not_measured(query, totals):
    own, without = with_fixed(query, *totals), plan(*totals)
    assert [one.name for one in own.fixed] == ["fixed"]
    assert own.entries() == without.entries()
    assert own.mechanism() == without.mechanism()
    assert own.queries == without.queries
    assert totals_notes(own)[0] == "Fixed by the totals, and not measured: fixed."
    again = ny.Plan.from_dict(own.canonical())
    assert (again, again.hash) == (own, own.hash)
    assert own.hash != without.hash
    with pytest.raises(PlanError, match=r"share .* = 0.5: all its levels are fixed .*leave it out"):
        with_fixed(query | {"share": "1/2"}, *totals)


@pytest.mark.parametrize(("query", "totals"), [
    (fixed_query("year", "race"), [YEAR, pairs("race")]),  # known by row alone
    (fixed_query("year", at=["state"]), [YEAR, STATE]),
    (fixed_query(at=["state", "county"]), [STATE]),
    (fixed_query(at=["state"], where="year == 2020"), [STATE]),
    (fixed_query(measure="distinct", column="race", at=["state"]), [STATE]),
])  # fmt: skip
def test_a_query_that_no_table_of_totals_gives_needs_a_share(query, totals):
    with pytest.raises(PlanError, match=r"share .* is missing"):
        with_fixed(query, *totals)


def test_the_proposed_share_leaves_out_a_query_that_the_totals_fix():
    queries = [fixed_query(at=["state"]), *(fixed_query("race") | {"name": name} for name in "ab")]
    with pytest.raises(PlanError, match=r"is missing; .* such as '1/2'"):
        plan(STATE, query=queries)


def test_a_plan_of_fixed_queries_alone_is_refused():
    with pytest.raises(PlanError, match="public or fixed by the totals, so nothing is measured"):
        plan(STATE, query=[fixed_query(at=["state"])])


def test_relative_shares_leave_out_a_query_that_the_totals_fix():
    sections = {name: part for name, part in SECTIONS.items() if name not in ("schema", "query")}
    queries = [ny.query.count(at=["state"], name="fixed"), ny.query.count(by=["race"], name="race")]
    queries.append(ny.query.count(by=["year"], name="year", share=3))
    own = ny.Plan(**sections, queries=queries, totals=[STATE])
    assert [str(query.share) for query in own.queries] == ["1/4", "3/4"]
    assert [query.name for query in own.fixed] == ["fixed"]


def test_a_release_lists_what_the_totals_fix_and_publishes_no_table_of_it(tmp_path):
    query = fixed_query(at=["state"], title="People by state")
    own = with_fixed(query, STATE, consistency={"method": "integer"})
    ledger = marked(tmp_path / "l.db", own)
    product = ny.run(own, PEOPLE, ledger, tmp_path / "out")
    assert {name.rpartition("/")[2] for name in product.tables} == {"all.county", "race.county"}
    assert product.receipt.ledger.charged == "1/10"
    assert all(check.ok for check in verify(product.folder, {"report.html": page}))
    report = (product.folder / "report.html").read_text()
    assert "Fixed by the totals, and not measured: People by state." in report
    (tmp_path / "plan.toml").write_text(toml_text(own.canonical()))
    said = answered("plan", "check", tmp_path / "plan.toml")
    assert "Fixed by the totals, and not measured: fixed." in said
    assert "Fixed by the totals" in own._repr_html_()


def test_totals_come_from_a_file_in_the_plans_folder_as_from_a_list(tmp_path):
    (tmp_path / "totals.csv").write_text("total,state,nation\n40,Iowa,US\n60,Ohio,US\n")
    listed = plan({"by": ["state"], "values": [["US", "Iowa", 40], ["US", "Ohio", "60"]]})
    own = plan({"by": ["state"], "values": "totals.csv"}, folder=tmp_path)
    assert own.hash == listed.hash == plan(STATE).hash
    assert ny.Plan.from_dict(own.canonical()).hash == own.hash
    (tmp_path / "plan.toml").write_text(toml_text(own.canonical()))
    assert ny.Plan.load(tmp_path / "plan.toml").hash == own.hash
    with pytest.raises(PlanError, match="is also data of this run"):
        ny.run(own, tmp_path / "totals.csv", marked(tmp_path / "l.db", own), out=tmp_path / "out")


def test_a_plan_without_totals_keeps_its_canonical_form():
    own = plan()
    assert "totals" not in own.canonical()
    assert own.totals_hash == ""
    assert own.held == ()


@pytest.mark.parametrize("row", [[], ["US"], ["US", "Ohio"], [60]])
def test_a_row_of_totals_without_its_keys_or_number_is_refused_by_its_place(row):
    with pytest.raises(PlanError, match=r"totals\[0\].values: row 1 = .* nation, state, total"):
        plan({"by": ["state"], "values": [row]})


def test_the_mark_is_of_the_cells_in_which_rows_count():
    own, other = plan(STATE, YEAR), dict(SECTIONS["columns"])
    alone = [{**SECTIONS["query"][0], "share": 1}]
    turned = plan(YEAR, {**STATE, "values": STATE["values"][::-1]}, query=alone)
    assert own.totals_hash == turned.totals_hash != plan(STATE).totals_hash
    other["year"] = {"keys": [2020, 2021], "unknown": 2021}
    assert plan(STATE, YEAR, columns=other).totals_hash != own.totals_hash
    place = SECTIONS["hierarchy"]["place"]
    more = {"place": {**place, "keys": [*PLACES, ["US", "Ohio", "Wood"]]}}
    assert plan(STATE, YEAR, hierarchy=more).totals_hash != own.totals_hash
    bands = {"by": ["band"], "values": [["a", 30], ["b", 70]]}
    marks = {
        plan(
            bands, columns={**SECTIONS["columns"], "age": {"integer": True}}, derive={"band": cut}
        ).totals_hash
        for cut in (
            {"cut": "age", "edges": [0, 18, 99], "labels": ["a", "b"], "unknown": "a"},
            {"cut": "age", "edges": [0, 21, 99], "labels": ["a", "b"], "unknown": "a"},
        )
    }
    assert len(marks) == 2
    read = [
        plan(
            {"by": ["coded"], "values": [["no", 3], ["yes", 5]]},
            hierarchy={"geo": {"levels": ["block"], "keys": keys, "unknown": keys[0]} | form},
            derive={"coded": {"case": [["block is None", "no"]], "unknown": "yes"}},
            query=[{"name": "n", "measure": "count", "by": ["race", "coded"], "share": 1}],
        ).totals_hash
        for keys, form in (
            ([["7"], ["8"]], {}),
            ([["7"], ["8"]], {"integer": ["block"]}),
            ([["2020-01-01"], ["8"]], {}),
        )
    ]
    assert len({*read}) == 3


def test_the_order_of_totals_is_found_where_their_columns_close_no_cycle():
    """Against every order: a set of sets has one exactly if some order works."""
    draw = random.Random(3)
    cycles = 0
    for _ in range(300):
        sets = [
            frozenset(draw.sample("abcd", draw.randint(1, 3))) for _ in range(draw.randint(1, 4))
        ]

        def works(order: tuple[int, ...], sets: list[frozenset[str]] = sets) -> bool:
            for k in range(1, len(order)):
                before = [sets[i] for i in order[:k]]
                common = sets[order[k]] & frozenset[str]().union(*before)
                if not any(common <= one for one in before):
                    return False
            return True

        order = joined_order(sets)
        exists = any(map(works, itertools.permutations(range(len(sets)))))
        assert (order is not None) == exists
        assert order is None or works(order)
        cycles += order is None
    assert cycles > 5


# ---- the ledger ----------------------------------------------------------------------------------


def test_a_ledger_and_its_plans_state_the_same_totals(tmp_path):
    own = plan(STATE, YEAR)
    plain = ny.Ledger(tmp_path / "plain.db")
    plain.create("people@1", protects="person", neighboring="replace-one", cap=10)
    with pytest.raises(LedgerError, match="registered for person, replace-one, at most 1 row"):
        release(own, PEOPLE, plain, out=tmp_path / "a")
    ledger = marked(tmp_path / "ledger.db", own)
    release(own, PEOPLE, ledger, out=tmp_path / "b")
    same = plan(YEAR, STATE, budget={"zcdp": "1/20"})
    release(same, PEOPLE, ledger, out=tmp_path / "c")
    others = [plan(), plan(STATE), plan(STATE, {**YEAR, "values": [[2020, 71], [2021, 29]]})]
    for other in others:
        with pytest.raises(LedgerError, match="publish by plans with the registered"):
            release(other, PEOPLE, ledger, out=tmp_path / "d")
    with pytest.raises(LedgerError, match="keeping totals"):
        ny.Session(
            PEOPLE,
            ledger=ledger,
            dataset="people@1",
            unit=ny.Unit("person", rows=1, neighboring="replace-one"),
        )
    account = ny.Ledger(tmp_path / "ledger.db").account("people@1")
    assert (account.neighboring, account.totals) == ("replace-one", own.totals_hash)
    assert account.entries == 2
    assert "keeping totals sha256:" in repr(account)
    with pytest.raises(LedgerError, match="is registered with neighboring"):
        ledger.create("people@1", protects="person", neighboring="replace-one", cap=10)
    assert ledger.verify().ok


@pytest.mark.parametrize("mark", ["x", "sha256:12", "sha256:" + "g" * 64])
def test_a_mark_is_a_hash_and_goes_with_replace_one(tmp_path, mark):
    ledger, terms = ny.Ledger(tmp_path / "l.db"), {"protects": "person", "cap": 1}
    with pytest.raises(ValueError, match="totals_hash of a plan"):
        ledger.create("a@1", neighboring="replace-one", totals=mark, **terms)
    with pytest.raises(ValueError, match="under 'replace-one'"):
        ledger.create("a@1", neighboring="add-remove", totals=plan(STATE).totals_hash, **terms)


def test_an_estimate_is_not_charged_to_a_marked_dataset(tmp_path):
    ledger = marked(tmp_path / "l.db", plan(STATE))
    with pytest.raises(LedgerError, match="keeping totals"):
        ny.estimate.mean(
            [1.0, 2.0, 3.0] * 100, radius=4, budget=ny.zcdp(1), ledger=ledger, dataset="people@1"
        )
    assert ledger.account("people@1").entries == 0


def test_a_run_that_fails_after_its_charge_is_spent_and_publishes_nothing(tmp_path, monkeypatch):
    own = plan(STATE, YEAR, consistency={"method": "integer"})
    ledger = marked(tmp_path / "l.db", own)
    write = FirstRun._write

    def fail(*_: object) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(FirstRun, "_write", fail)
    with pytest.raises(ChargedError):
        release(own, PEOPLE, ledger, out=tmp_path / "out")
    monkeypatch.setattr(FirstRun, "_write", write)
    assert not (tmp_path / "out").exists()
    assert ledger.account("people@1").entries == 1
    with pytest.raises(LedgerError, match="unfinished"):
        release(own, PEOPLE, ledger, out=tmp_path / "out")
    done = release(own, PEOPLE, ledger, out=tmp_path / "out", charge_again=True)
    assert ledger.account("people@1").entries == 2
    assert all(check.ok for check in verify(done.folder))


# ---- what is published ---------------------------------------------------------------------------


def test_a_release_names_the_claims_that_no_total_moves(tmp_path):
    own = plan(STATE, YEAR, consistency={"method": "integer"})
    done = release(own, PEOPLE, marked(tmp_path / "l.db", own), out=tmp_path / "out")
    receipt = done.receipt
    assert receipt.guarantee.held == ("state", "year")
    limits = {(each.attributes, each.within): each.no_limit for each in receipt.guarantee.scenarios}
    assert limits == {
        (("race",), None): False, (("year",), None): True, (("state",), "nation"): True,
        (("county",), "state"): False,
    }  # fmt: skip
    for each in receipt.guarantee.scenarios:
        assert (each.power[0].upper == 1) == each.no_limit
    text = page(done)
    assert "a false claim about a person with a known state and year 5% of the time" in text
    assert "The limit is for claims that no total moves: race; county within a known state." in text
    assert "All candidates and records have the same state and year." in text
    assert "person, replace-one with the same state and year; rho 0.1" in repr(own)
    assert "Every other claim has no limit: year; state within a known nation, and each" in text
    assert text.count("no limit</td>") >= 8
    assert '"whole record"' not in text
    assert ">whole record<" not in text
    assert all(check.ok for check in verify(done.folder))
    table = pq.read_table(done.folder / "tables/consistent/all.county.parquet").to_pylist()
    sums: dict[object, int] = {}
    for row in table:
        for key in (row["state"], row["year"]):
            sums[key] = sums.get(key, 0) + row["value"]
    assert sums == {"Ohio": 60, "Iowa": 40, 2020: 70, 2021: 30}


def test_a_total_that_no_query_reads_is_named_as_a_claim_without_a_limit(tmp_path):
    query = {"name": "race", "measure": "count", "by": ["race"], "share": "1"}
    own = plan(YEAR, query=[query])
    words = "no total moves: race. Every other claim has no limit: year, and each claim"
    assert words in totals_notes(own)[0]
    done = release(own, PEOPLE, marked(tmp_path / "l.db", own), out=tmp_path / "out")
    scenarios = {each.attributes: each.no_limit for each in done.receipt.guarantee.scenarios}
    assert scenarios == {("race",): False, ("year",): True}
    text = page(done)
    assert words in text
    assert "exact totals</td>" in text
    assert "none: no risk" not in text
    assert all(check.ok for check in verify(done.folder))


@pytest.mark.parametrize("forged", ["totals", "held", "no_limit", "value"])
def test_verification_finds_a_receipt_that_states_other_totals(tmp_path, forged):
    own = plan(STATE, YEAR, consistency={"method": "nonnegative"})
    done = release(own, PEOPLE, marked(tmp_path / "l.db", own), out=tmp_path / "out")
    path = done.folder / "receipt.json"
    content = json.loads(path.read_text())
    if forged == "totals":
        del content["plan"]["totals"]
    elif forged == "held":
        content["guarantee"]["held"] = ["state"]
    elif forged == "no_limit":
        content["guarantee"]["scenarios"] = [
            {name: value for name, value in each.items() if name != "no_limit"}
            for each in content["guarantee"]["scenarios"]
        ]
    else:
        content["plan"]["totals"][0]["values"][0][-1] += 1
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    assert not all(check.ok for check in verify(done.folder))


def test_the_command_registers_a_dataset_with_the_totals_of_a_plan(tmp_path):
    path, ledger = tmp_path / "plan.toml", tmp_path / "l.db"
    path.write_text(toml_text(plan(STATE, YEAR).canonical()))
    checked = " ".join(answered("plan", "check", path).split())
    assert "Every other claim has no limit: year; state within a known nation" in checked
    answered("ledger", "create", ledger, "--plan", path)
    assert ny.Ledger(ledger).account("people@1").totals == plan(STATE, YEAR).totals_hash


# ---- tables that add up --------------------------------------------------------------------------
