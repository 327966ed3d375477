"""Groups whose first noisy count decides how detailed their table is: the shifts, the exact law,
and the release.

A unit may be in several groups, each at a level of detail of its own. So each pair of versions of a
unit is tried with every outcome of the levels.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from forging import rewrite
from neyman.auditing import audit_plan
from neyman.display import page
from neyman.publishing import (
    Plan,
    PlanError,
    aggregate_cells,
    best_split,
    open_table,
    synthesize,
    verify,
)
from plain_engine import KEY, counted

RELATIONS = ("add-remove", "replace-one")
COLUMNS = {"k": ny.keys(["x", "y", "z"]), "sex": ny.keys(["f", "m"]), "age": ny.keys([1, 2, 30])}
DETAIL: dict[str, Any] = {"by": "k", "detail": [[], ["sex"], ["sex", "age"]], "thresholds": [2, 4]}


def a_plan(neighboring="replace-one", rows=1, queries=(), budget="1", **more) -> Plan:
    unit = {"id": "id"} if rows > 1 else {}
    fields: Any = {"columns": COLUMNS, "budget": {"zcdp": budget}, **more}
    return Plan(
        name="detail", dataset="d@1", table="t", queries=queries or [ny.query.count(**DETAIL)],
        unit=ny.Unit("person", neighboring=neighboring, rows=rows, **unit), **fields,
    )  # fmt: skip


def fits(away, shift) -> bool:
    """Whether the cells that move can be put within the parts of a shift [UN-3]."""
    return _fits(tuple(sorted(abs(int(cell)) for cell in away if cell)), shift)


@cache
def _fits(away, shift) -> bool:
    return any(
        all(
            sum(cell for cell, at in zip(away, spots, strict=True) if at == part) <= most
            for part, most in enumerate(shift)
        )
        for spots in itertools.product(range(len(shift)), repeat=len(away))
    )


# The shifts


@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize(("groups", "cells", "rows", "most_groups", "in_a_group"), [
    (1, 2, 1, None, None), (2, 2, 1, None, None), (2, 2, 3, None, None), (2, 2, 3, 1, None),
    (2, 2, 3, None, 1), (3, 2, 2, 2, 1), (2, 3, 2, 1, 2),
])  # fmt: skip
def test_one_listed_shift_covers_every_outcome_of_a_pair_and_the_largest_is_reached(
    neighboring, groups, cells, rows, most_groups, in_a_group
):
    every = list(itertools.product(range(groups), range(cells)))
    bounds = {"groups": most_groups, "rows_per_group": in_a_group}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    plan = a_plan(
        neighboring, rows, [ny.query.count(by="k", detail=[[], ["c"]], thresholds=[5], **given)],
        columns={"k": ny.keys(list(range(groups))), "c": ny.keys(list(range(cells)))},
    )  # fmt: skip
    first, second = plan.entries()
    versions = [
        Counter(own)
        for size in range(rows + 1)
        for own in itertools.combinations_with_replacement(every, size)
        if len({k for k, _ in own}) <= (most_groups or rows)
        and max(Counter(k for k, _ in own).values(), default=0) <= (in_a_group or rows)
    ]
    pairs = itertools.combinations(versions, 2)
    if neighboring == "add-remove":
        pairs = ((Counter(), version) for version in versions[1:])
    largest = 0
    for one, other in pairs:
        inside = [[one[k, c] - other[k, c] for c in range(cells)] for k in range(groups)]
        assert any(fits([sum(cell) for cell in inside], shift) for shift in first.shifts)
        outcomes = {
            tuple(sorted(abs(x) for part in parts for x in part if x))
            for parts in itertools.product(*([[sum(cell)], cell] for cell in inside))
        }
        assert any(all(fits(o, shift) for o in outcomes) for shift in second.shifts), outcomes
        squared = max(sum(x * x for x in outcome) for outcome in outcomes)
        assert squared <= second.squared
        largest = max(largest, squared)
    assert largest == second.squared


KINDS = [("x", "f"), ("x", "m"), ("x", None), ("y", "f"), (None, "f")]
VERSIONS = [v for n in range(4) for v in itertools.combinations_with_replacement(KINDS, n)]
BOUNDS: list[dict[str, int]] = [{}, {"groups": 1, "rows_per_group": 1}]


def test_rows_that_are_kept_are_the_same_at_each_level_on_each_engine(engine):
    """A unit with 2 rows kept, of 56 versions (on Spark 12): no outcome is beyond a listed shift.

    A row without a sex is dropped from tables by sex after the rows of a unit are chosen, and not
    before: else a unit bounded to one group could be in another one at each level. Each row has one
    age, so a table by age has a cell for each group.
    """
    names, bounds = ["id", "v", "k", "sex"], BOUNDS if engine == "duckdb" else BOUNDS[1:]
    versions = VERSIONS if engine == "duckdb" else VERSIONS[:12]
    listed = [(f"{i}", f"{i}", *row) for i, rows in enumerate(versions) for row in rows]
    data = {
        n: pa.array(c, pa.string()) for n, c in zip(names, zip(*listed, strict=True), strict=True)
    }
    data["age"] = pa.array([1] * len(listed))
    detail = {"detail": [["age"], ["sex"]], "thresholds": [5]}
    keys = ny.keys([f"{i}" for i in range(len(versions))])
    columns = {**COLUMNS, "v": keys, "age": ny.keys([1])}

    def asked(by):
        return [
            ny.query.count(name=f"q{i}", by=by, **detail, **own) for i, own in enumerate(bounds)
        ]

    plan = a_plan("replace-one", 2, asked(["v", "k"]), columns=columns)
    result = {
        key: np.reshape(cells, (len(versions), 3, -1))
        for key, cells in counted(plan, pa.table(data), engine).items()
    }
    for neighboring in RELATIONS:
        entries = {e.query: e for e in a_plan(neighboring, 2, asked(["k"])).entries()}
        for number in range(len(bounds)):
            coarse, fine = (result[f"q{number}#{level}", "all", "count"] for level in (0, 1))
            assert coarse.sum() >= fine.sum() > 0
            for i, j in itertools.combinations(range(len(versions)), 2):
                if neighboring == "add-remove" and i > 0:  # the first version has no row
                    continue
                change = result[f"q{number}-first", "all", "count"]
                away = (change[i] - change[j]).ravel()
                assert any(fits(away, shift) for shift in entries[f"q{number}-first"].shifts)
                parts = [(coarse[i] - coarse[j])[group] for group in range(3)]
                split = [(fine[i] - fine[j])[group] for group in range(3)]
                shifts = entries[f"q{number}"].shifts
                outcomes = [
                    [int(x) for part in outcome for x in part if x]
                    for outcome in itertools.product(*zip(parts, split, strict=True))
                ]
                assert any(
                    all(fits(o, s) for o in outcomes) for s in shifts
                ), (number, versions[i], versions[j])  # fmt: skip


# The exact law

REACH = 9  # beyond which noise of variance 1 has probability below 1e-17


def law(sigma_squared: Fraction) -> list[int]:
    """The weights of discrete Gaussian noise on -REACH, ..., REACH, as whole numbers."""
    with localcontext() as context:
        context.prec = 50
        rate = Decimal(sigma_squared.denominator) / (2 * sigma_squared.numerator)
        return [int((-x * x * rate).exp().scaleb(30)) for x in range(-REACH, REACH + 1)]


def statistic(weights, moves) -> tuple[Any, Any]:
    """The distributions of sum(move x cell), the likelihood ratio's statistic, without the move and
    with.
    """
    both: list[Any] = [np.array([1], dtype=object)] * 2
    for move in filter(None, moves):
        size = abs(move)
        for side, start in enumerate((0, size)):
            own = np.zeros((2 * REACH + size) * size + 1, dtype=object)
            own[[(x + start) * size for x in range(2 * REACH + 1)]] = weights
            both[side] = np.convolve(both[side], own)
    return both[0], both[1]


def exact_delta(plan, before, after, ratio: Fraction) -> Fraction:
    """P - ratio Q, where positive, of the first counts and the tables that they lead to.

    Outcomes of the first counts are enumerated, and of the second stage the values of the statistic
    that the likelihood ratio depends on. Groups that do not change have the same law.
    """
    (_, first), (_, second) = plan.calibrated()
    detail = plan.queries[-1].detail
    one, two = law(first), law(second)
    touched = [
        k for k in "xyz" if [r for r in before if r[0] == k] != [r for r in after if r[0] == k]
    ]
    counts = [
        [Counter(k for k, *_ in rows)[group] for group in touched] for rows in (before, after)
    ]
    low, high = min(map(min, *counts)) - REACH, max(map(max, *counts)) + REACH
    noisy = list(itertools.product(range(low, high + 1), repeat=len(touched)))

    def weight(outcome, exact):
        parts = (n - x + REACH for n, x in zip(outcome, exact, strict=True))
        return math.prod(one[i] if 0 <= i < len(one) else 0 for i in parts)

    by_levels: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for outcome in noisy:
        levels = tuple(sum(n >= t for t in detail.thresholds) for n in outcome)
        pair = weight(outcome, counts[0]), weight(outcome, counts[1])
        if any(pair):
            by_levels.setdefault(levels, []).append(pair)
    total = Fraction(0)
    for levels, pairs in by_levels.items():
        moves: list[int] = []
        for group, level in zip(touched, levels, strict=True):
            names = [["sex", "age"].index(name) + 1 for name in detail.levels[level]]
            cells = Counter(tuple(row[i] for i in names) for row in before if row[0] == group)
            cells.subtract(tuple(row[i] for i in names) for row in after if row[0] == group)
            moves += cells.values()
        p, q = statistic(two, moves)
        scale = sum(one) ** len(touched) * sum(two) ** len([*filter(None, moves)])
        ends = np.array(pairs, dtype=object)
        excess = ratio.denominator * np.outer(ends[:, 0], p) - ratio.numerator * np.outer(
            ends[:, 1], q
        )
        total += Fraction(int(excess[excess > 0].sum()), scale * ratio.denominator)
    return total


F, M = ("f", 1), ("m", 30)
OTHERS = {
    "near": [("x", *F)] * 2 + [("y", *M)] * 3 + [("z", *F)],
    "far": [("x", *F)] * 40 + [("y", *M)] * 40 + [("z", *F)] * 40,
}
REMOVED = [[("x", *F)], [("z", *M)]]
REPLACED = [([("x", *F)], [("y", *F)]), ([("x", *F)], [("x", *M)]), ([("z", *F)], [("x", "f", 30)])]


@pytest.mark.parametrize("neighboring", RELATIONS)
def test_first_counts_and_the_tables_that_follow_have_the_claimed_curve(neighboring):
    query = ny.query.count(**DETAIL, first_share="1/2")
    plan = a_plan(neighboring, queries=[query], budget="2")
    pairs = [([], row) for row in REMOVED] if neighboring == "add-remove" else REPLACED
    claimed = plan.mechanism().tradeoff()
    for ratio in (Fraction(1), Fraction(5), Fraction(40)):
        bound, largest = claimed.delta(epsilon=math.log(ratio)), 0.0
        for others in OTHERS.values():
            for one, other in pairs:
                for a, b in ((one, other), (other, one)):
                    delta = float(exact_delta(plan, others + a, others + b, ratio))
                    assert delta <= bound.upper + 1e-12
                    largest = max(largest, delta)
        assert largest >= bound.lower - 1e-9


def test_a_unit_of_two_rows_moves_both_stages_in_all_of_its_groups():
    query = ny.query.count(
        by="k", detail=[[], ["sex"]], thresholds=[2], rows_per_group=1, first_share="1/2"
    )
    two = [("x", *F), ("y", *M)]
    for neighboring, pairs in (
        ("add-remove", [([], two)]),
        ("replace-one", [(two, [("y", *F), ("z", *M)]), (two, [("x", *M), ("y", *F)])]),
    ):
        plan = a_plan(neighboring, 2, [query], budget="4")
        claimed, largest = plan.mechanism().tradeoff(), 0.0
        bound = claimed.delta(epsilon=math.log(4))
        for others in OTHERS.values():
            for one, other in pairs:
                delta = float(exact_delta(plan, others + one, others + other, Fraction(4)))
                assert delta <= bound.upper + 1e-12
                largest = max(largest, delta)
        assert largest >= bound.lower * (1 if neighboring == "add-remove" else 0.5) - 1e-9


# Plans


def test_a_plan_charges_one_second_stage_and_keeps_its_hash():
    plan = a_plan(
        queries=[ny.query.count(**DETAIL, first_share="1/4", share=3), ny.query.count(name="n")]
    )
    assert {e.query: e.share for e in plan.entries()} == {
        "count-first": Fraction(3, 16), "count": Fraction(9, 16), "n": Fraction(1, 4)
    }  # fmt: skip
    assert [e.cells for e in plan.entries()] == [3, 18, 1]
    assert plan.mechanism().rho() == 1
    assert Plan.from_dict(plan.canonical()).hash == plan.hash
    assert plan.canonical()["query"][0]["detail"] == [[], ["sex"], ["sex", "age"]]


def test_an_attribute_of_the_detail_moves_the_second_stage_alone():
    for neighboring in RELATIONS:
        plan = a_plan(neighboring)
        noise = {e.query: s for e, s in plan.calibrated()}
        assert plan.concerning("sex").rho() == plan.concerning("age").rho() == 1 / noise["count"]
        assert plan.concerning("k").rho() == 1 / noise["count"] + 1 / noise["count-first"]


def test_disjoint_queries_with_detail_are_charged_for_the_worst():
    query = ny.query.count(
        partition="k", detail=[[], ["sex"]], thresholds=[5], at=["state"], name="part"
    )
    hierarchy = {"place": {"levels": ["state"], "keys": [["IL"], ["OH"]]}}
    plan = a_plan("add-remove", queries=[query], hierarchy=hierarchy)
    names = [f"part {key}" for key in "xyz"]
    assert [q.name for q in plan.queries] == [*(f"{n}-first" for n in names), *names]
    assert sum(e.share for e in plan.entries()) == 3
    assert plan.mechanism().rho() == 1


@pytest.mark.parametrize(("change", "words"), [
    ({"detail": [[]]}, "must list 2 to 16 different levels"),
    ({"detail": [["sex"], ["sex"]]}, "must list 2 to 16 different levels"),
    ({"detail": [[], ["k"]]}, "is in by already"),
    ({"detail": [[], ["sex", "sex"]]}, "is in this level already"),
    ({"detail": [[], ["height"]]}, "is not a column with listed keys"),
    ({"detail": [[], [3]]}, "detail"),
    ({"thresholds": [2]}, "must list 2 rising whole numbers, one fewer than detail"),
    ({"thresholds": [4, 2]}, "must list 2 rising whole numbers"),
    ({"thresholds": [0, 2]}, "thresholds[0]"),
    ({"thresholds": [1.5, 2]}, "thresholds[0]"),
    ({"detail": None}, "is for a query with detail"),
    ({"first_share": 1}, "first_share (of query 'count') = 1: must be below 1"),
    ({"measure": "units"}, "a units takes none, only a count; leave it out"),
    ({"public": {"all": 5}, "by": []}, "a table with detail is measured"),
    ({"by": ["word"], "delta": "1e-9"}, "is for groups of listed keys"),
    ({"name": "count-first"}, ""),
    ({"by": ["first_count"]}, "the tables use the name 'first_count'"),
    ({"detail": [[], ["below"], ["sex"]]}, "the tables use the name 'below'"),
    ({"detail": [[], ["total"], ["sex"]]}, "two levels would have one name in the table"),
])  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(change, words):
    columns = {**COLUMNS, "word": {"discover": True}} | {
        name: ny.keys(["a"]) for name in ("first_count", "below", "total")
    }
    fields = {"measure": "count", "by": ["k"], **{n: v for n, v in DETAIL.items() if n != "by"}}
    query = {name: value for name, value in (fields | change).items() if value is not None}
    if not words:
        assert a_plan(queries=[query], columns=columns).queries[0].name == "count-first-first"
        return
    with pytest.raises(PlanError) as error:
        a_plan(queries=[query], columns=columns)
    assert words in str(error.value)
    assert "query[0]." in str(error.value)


@pytest.mark.parametrize(("more", "words"), [
    ({"consistency": "least-squares"}, "its tables take no part in [consistency]"),
    (
        {"unit": ny.Unit("p", neighboring="replace-one", rows="discover", id="id"),
         "noise": "rounded-gaussian"},
        "does not go with unit.rows = 'discover'",
    ),
    (
        {"hierarchy": {n: {"levels": [n], "keys": [["a"]]} for n in ("place", "job")}},
        "is for a plan with one hierarchy, or none",
    ),
    (
        {"queries": [ny.query.count(**DETAIL), ny.query.count(name="Count-First")]},
        "queries need names that differ",
    ),
])  # fmt: skip
def test_what_does_not_go_with_detail_is_refused_by_name(more, words):
    fields: dict[str, Any] = {"queries": [ny.query.count(**DETAIL)], **more}
    unit = fields.pop("unit", ny.Unit("p", neighboring="replace-one", rows=1))
    with pytest.raises(PlanError) as error:
        Plan(
            name="d", dataset="d@1", table="t", unit=unit, columns=COLUMNS, budget={"zcdp": 1},
            **fields,
        )  # fmt: skip
    assert words in str(error.value)


def test_best_shares_the_audit_of_a_release_and_rows_from_its_tables_are_refused(tmp_path):
    """None of these knows what a first count decides."""
    with pytest.raises(ValueError, match="a query with detail: how much its first counts"):
        best_split(a_plan())
    with pytest.raises(ValueError, match="queries with detail, which this audit does not test"):
        audit_plan(a_plan())
    query = ny.query.count(**DETAIL, where="sex == 'f'")
    release = released(
        tmp_path, a_plan(queries=[query]), pa.table({"k": ["x"], "sex": ["f"], "age": [1]})
    )
    with pytest.raises(ValueError, match=r"count.all: its groups differ in detail"):
        synthesize(release)


# A release

SURE = {"budget": "1000"}  # noise that is 0 but for chances below 1e-30


def released(tmp_path, plan, data, **more):
    ledger = ny.throwaway(10**6)
    terms: Any = {"protects": "person", "neighboring": plan.unit.neighboring}
    ledger.register("d@1", rows=plan.unit.rows, **terms)
    return ny.run(plan, data, ledger, tmp_path / "out", **{"pages": {}, **more})


PLACES = {"place": {"levels": ["state", "county"],
                    "keys": [["IL", "Cook"], ["IL", "Lake"], ["OH", "Lake"]]}}  # fmt: skip


@pytest.mark.parametrize("several", [False, True])
def test_a_table_has_the_level_that_each_first_count_leads_to(several, tmp_path):
    """Against counts in plain Python, at each place; rows without a key of the detail left out."""
    rng = np.random.default_rng(5)
    size = 60
    rows = list(
        zip(
            *(
                rng.choice(keys, size).tolist()
                for keys in (["IL", "OH"], ["Lake"], ["x", "x", "y"])
            ),
            rng.choice(["f", "m", "?"], size).tolist(),
            rng.choice([1, 2, 30, 31], size).tolist(),
            strict=True,
        )
    )
    names = ["state", "county", "k", "sex", "age"]
    data = pa.table({n: list(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)})
    data = data.append_column("id", pa.array([i // 2 for i in range(size)]))
    detail = {**DETAIL, "detail": [[], ["age", "sex"], ["age"]], "thresholds": [5, 20]}
    query = ny.query.count(at=["state", "county"], name="q", **detail)
    plan = a_plan("add-remove", 2 if several else 1, [query], **SURE, hierarchy=PLACES)
    release = released(tmp_path, plan, data, pages={"report.html": page})
    assert [c for c in verify(release.folder, {"report.html": page}) if not c.ok] == []
    levels_had = set()
    for level, depth in (("state", 1), ("county", 2)):
        groups = [
            *dict.fromkeys(key[:depth] for key in (("IL", "Cook"), ("IL", "Lake"), ("OH", "Lake")))
        ]
        expected = []
        for place, k in itertools.product(groups, "xyz"):
            own = [row for row in rows if row[:depth] == place and row[2] == k]
            first = len(own)
            number = (first >= 5) + (first >= 20)
            levels_had.add(number)
            keys = [[(None, None)], list(itertools.product([1, 2, 30], "fm")),
                    [(age, None) for age in (1, 2, 30)]][number]  # fmt: skip
            ends = [(None, 5), (5, 20), (20, None)][number]
            for age, sex in keys:
                value = sum(age in (None, row[4]) and sex in (None, row[3]) for row in own)
                text = ["total", "age, sex", "age"][number]
                expected.append((*place, k, age, sex, text, first, *ends, value))
        table = release.tables[f"q.{level}"]
        listed = [tuple(row.values())[:-3] for row in table.to_pylist()]
        assert listed == expected
        assert table.column_names[depth + 1 :] == [
            *("age", "sex", "detail", "first_count", "at_least", "below"),
            *("value", "standard_error", "lower", "upper"),
        ]
        assert table.schema.field("age").type == pa.int64()
    assert levels_had == {0, 1, 2}
    text = (release.folder / "report.html").read_text()
    assert "total; age × sex from 5; age from 20" in text
    assert "The thresholds are public" in text
    assert f"by county ({release.tables['q.county'].num_rows} cells)" in text
    csv = (release.folder / "tables" / "q.state.csv").read_text().splitlines()
    assert csv[-1].startswith('"OH","z",,,"total",0,,5,0,')


def test_no_data_and_values_without_keys_give_tables_of_totals(tmp_path):
    empty = pa.table({name: pa.array([], pa.string()) for name in ("k", "sex", "age")})
    odd = pa.table({"k": [None, "w", "x"], "sex": [None, "f", "?"], "age": ["1", "é", None]})
    for number, data in enumerate((empty, odd)):
        (tmp_path / str(number)).mkdir()
        release = released(tmp_path / str(number), a_plan(**SURE), data)
        assert release.tables["count.all"]["detail"].to_pylist() == ["total"] * 3
        assert sum(release.tables["count.all"]["value"].to_pylist()) == number


def test_a_changed_level_or_first_count_fails_the_verification(tmp_path):
    data = pa.table({"k": ["x"] * 9, "sex": ["f"] * 9, "age": [1] * 9})
    release = released(tmp_path, a_plan(**SURE), data)
    folder = release.folder
    assert [c for c in verify(folder) if not c.ok] == []
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def replaced(column, change):
        def edit(table):
            place = table.column_names.index(column)
            values = pa.array(change(table[column].to_pylist()), table[column].type)
            return table.set_column(place, column, values)

        return edit

    for name, edit in (
        ("count.all", replaced("detail", lambda texts: ["total", *texts[1:]])),
        ("count.all", replaced("first_count", lambda counts: [1, *counts[1:]])),
        ("count.all", replaced("sex", lambda keys: [None, *keys[1:]])),
        ("count.all", replaced("age", lambda keys: [*keys[:-1], 1])),
        ("count-first.all", replaced("value", lambda values: [1, *values[1:]])),
        ("count.all", lambda table: table.slice(1)),
    ):
        rewrite(folder, name, edit)
        failed = {c.name for c in verify(folder) if not c.ok}
        assert any("count" in one or one == "tables" for one in failed)
        for path, content in before.items():
            path.write_bytes(content)
    receipt = json.loads((folder / "receipt.json").read_text())
    for listed in receipt["tables"]:
        listed["cells"] += 6 * (listed["query"] == "count")
    (folder / "receipt.json").write_text(json.dumps(receipt))
    assert [c.name for c in verify(folder) if not c.ok] == ["tables"]


def test_a_session_answers_a_query_with_detail():
    data = pa.table({"k": ["x"] * 9, "sex": ["f"] * 9, "age": [1] * 9})
    session = ny.Session(
        data, ledger=ny.throwaway("3000"), dataset="d@1", columns=COLUMNS,
        unit=ny.Unit("person", neighboring="add-remove", rows=1),
    )  # fmt: skip
    answer = session.ask(ny.query.count(**DETAIL), zcdp=1000)
    assert sorted(answer.tables) == ["count-first.all", "count.all"]
    assert answer.tables["count.all"]["value"].to_pylist() == [9, 0, 0, 0, 0, 0, 0, 0]
    assert session.left == 2000


def test_dropped_rows_are_counted_for_groups():
    data = pa.table({"k": ["x", "x", "w"], "sex": ["f", "?", "f"], "age": [1, 1, 1]})
    (rows,) = ny.check_data(a_plan(), data).queries
    assert (rows.query, rows.taken, rows.unknown, rows.counted) == ("count", 3, 1, 2)
    cells = aggregate_cells(a_plan(), open_table(data, "duckdb"), KEY)
    assert [int(cells[f"count#{n}", "all", "count"].dense().sum()) for n in range(3)] == [2, 1, 1]
