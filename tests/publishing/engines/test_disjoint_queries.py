"""Disjoint queries: no row meets two, and no neighbor moves more than a case of the plan says.

Every row of a small grid is counted by a pool of random queries, on each engine, as a key of its
own. A unit of one row is one of these rows. So all neighbors of a plan of some of the queries are
pairs of rows, or a row and nothing.
"""

import itertools
import json
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import neyman as ny
from neyman.mechanisms import Alternatives
from neyman.publishing import (
    Plan,
    PlanError,
    aggregate_cells,
    are_disjoint,
    columns_read,
    open_table,
    prepared,
    usual,
    verify,
)
from plain_engine import KEY
from random_laws import INPUTS, is_small

GRID = {
    "race": [None, "a", "A", "b", "b "], "age": [None, 10, 17, 18, 40],
    "pay": [None, "-1.5", "0", "2.5"], "ok": [None, True, False],
}  # fmt: skip
ROWS = list(itertools.product(*GRID.values()))
COLUMNS = {
    "race": {"keys": ["a", "A", "b"]}, "age": {"integer": True}, "pay": {"decimals": 1},
    "ok": {"type": "boolean"},
}  # fmt: skip
DERIVE = {
    "band": {"cut": "age", "edges": [0, 18, 65], "labels": ["minor", "adult"], "unknown": "none"}
}
ATOMS = [
    *(f"race == '{key}'" for key in "aAb"),
    *("race != 'a'", "'b' == race", "race in ['a', 'b']", "race not in ['a', 'b ']"),
    *("race is None", "race is not None", "starts(race, 'b')", "lower(race) == 'a'"),
    *("age < 18", "age >= 18", "17 < age", "age > 17 and age < 18", "10 <= age <= 17"),
    *(
        "age == 18", "age is None", "age in [10, 40]", "age != 40", "age + 1 > 18",
        "clip(age, 0, 99) < 17.5",
    ),
    *(
        "clip(age, 0, 99) >= 17.5", "age % 2 == 0", "pay < 0", "pay > 0", "pay == 0", "pay <= 2",
        "pay is None", "ok", "not ok",
    ),
    *("ok == True", "ok is None", "band == 'minor'", "band == 'adult'", "band != 'none'"),
]  # fmt: skip
MEASURES = [
    {"measure": "count"}, {"measure": "count", "by": ["race"]},
    {"measure": "count", "by": ["band"]}, {"measure": "sum", "column": "age", "clip": [0, 30]},
    {"measure": "sum", "column": "pay", "clip": [-1, 2], "by": ["band"]},
    {"measure": "mean", "column": "age", "clip": [0, 40]},
    {"measure": "variance", "column": "pay", "clip": [-1, 2]},
    {"measure": "histogram", "column": "age", "edges": [0, 18, 99]},
    {"measure": "ratio", "column": "pay", "clip": [0, 2], "over": "age", "clip_over": [1, 40]},
]  # fmt: skip


def a_filter(draw, depth=2):
    """A random condition: an atom, or some that are joined."""
    form = draw.choice(["atom", "atom", "not", "and", "and", "or"]) if depth else "atom"
    if form == "atom":
        return draw.choice(ATOMS)
    if form == "not":
        return f"not ({a_filter(draw, depth - 1)})"
    return f"({a_filter(draw, depth - 1)}) {form} ({a_filter(draw, depth - 1)})"


def a_plan(queries, neighboring="add-remove", budget=None, **more):
    """A plan of some queries, each with a share of one over their number, unless it has one."""
    share = Fraction(1, len(queries))
    columns = {**COLUMNS, "row": {"keys": list(range(len(ROWS)))}}
    return Plan.from_dict({
        "schema": 2, "name": "disjoint", "dataset": "d@1", "table": "t",
        "unit": {"protects": "person", "neighboring": neighboring}, "columns": columns,
        "derive": DERIVE, "budget": budget or {"zcdp": 1},
        "query": [{"share": share, **query} for query in queries], "disjoint": True, **more,
    })  # fmt: skip


def table_of(rows):
    columns = dict(zip(GRID, zip(*rows, strict=True), strict=True))
    types = [pa.string(), pa.int64(), pa.string(), pa.bool_()]
    arrays = [pa.array(columns[n], t) for n, t in zip(GRID, types, strict=True)]
    return pa.table([*arrays, pa.array(range(len(rows)))], names=[*GRID, "row"])


def a_pool(seed, size):
    """Random queries, and for each the tables of every row alone."""
    draw = random.Random(seed)
    texts = [*ATOMS, *(a_filter(draw) for _ in range(size))]
    first = ["race == 'a'", "race == 'b'", "race is None", "age < 18", "18 <= age < 40", "not ok"]
    texts = [*first, *draw.sample(texts, size - 1 - len(first))]
    queries = [{"name": "every", "measure": "count"}]
    for place, text in enumerate(texts):
        queries.append({"name": f"q{place}", "where": text, **draw.choice(MEASURES)})
    return queries


def tables_of(queries, engine):
    """By query, the tables of integers of each row of the grid: rows by cells; and who is met."""
    asked = [{**query, "by": ["row", *query.get("by", ())]} for query in queries]
    for query in asked:
        query.pop("share", None)
    asked += [
        {"name": f"met {q['name']}", "measure": "count", "by": ["row"], "where": q["where"]}
        for q in queries
        if "where" in q
    ]
    plan, source = a_plan(asked), table_of(ROWS)
    opened = open_table(source, engine, columns_read(plan, source.column_names))
    with prepared(plan, opened) as ready:
        result = aggregate_cells(plan, ready, KEY)
    tables = {key: np.reshape(cells.dense(), (len(ROWS), -1)) for key, cells in result.items()}
    met = {
        query["name"]: tables[f"met {query['name']}", "all", "count"][:, 0] > 0
        for query in queries
        if "where" in query
    }
    return tables, {"every": np.ones(len(ROWS), bool), **met}


def squares(table):
    """The squared distance of each pair of rows' tables, with nothing as the last one."""
    every = np.vstack([table, np.zeros(table.shape[1], dtype=np.int64)]).astype(np.int64)
    norms = (every**2).sum(axis=1)
    return norms[:, None] + norms[None, :] - 2 * every @ every.T


@pytest.mark.parametrize("engine", ["duckdb", "spark"], indirect=True)
def test_no_neighbor_of_a_random_plan_moves_more_than_a_case_says(engine, attempts):
    size = 12 if (engine == "spark" and not INPUTS) or is_small() else 48
    plans = 20 if is_small() else 300
    queries = a_pool(7, size)
    tables, met = tables_of(queries, engine)
    draw, saved, reached, proved = random.Random(8), 0, 0, 0
    every = a_plan(queries)
    for one, other in itertools.combinations(queries[1:], 2):
        if are_disjoint(every.rows.filter(one["where"]), every.rows.filter(other["where"])):
            proved += 1
            assert not (met[one["name"]] & met[other["name"]]).any(), (one, other)
    assert proved >= size // 3
    for _ in range(plans):
        chosen = draw.sample(queries, draw.randint(2, 5))
        weights = [draw.randint(1, 5) for _ in chosen]
        shares = [{"share": Fraction(weight, sum(weights))} for weight in weights]
        asked = [query | share for query, share in zip(chosen, shares, strict=True)]
        for neighboring in ("add-remove", "replace-one"):
            plan = a_plan(asked, neighboring)
            for row in range(len(ROWS)):
                own = {query["name"] for query in chosen if met[query["name"]][row]}
                assert any(own <= together for together in plan.row_sets), (plan.row_sets, own)
            spent = 0
            for entry, sigma_squared in plan.calibrated():
                moved = squares(tables[entry.query, entry.level, entry.measure])
                moved = moved if neighboring == "replace-one" else moved[-1]
                assert moved.max() <= entry.squared
                spent = spent + moved / (2 * float(sigma_squared))
            pairs = np.asarray(spent)
            attempts(pairs.size)
            assert pairs.max() <= 1 + 1e-9, plan.canonical()
            saved += sum(entry.share for entry in plan.entries()) > 1
            reached += pairs.max() > 1 - 1e-9
            assert plan.mechanism().rho() == 1
    assert saved > plans // 4
    assert reached > plans // 4


def test_power_is_claimed_for_the_worst_neighbor_and_scenarios_are_within_it():
    queries = [
        {"name": "every", "measure": "count", "by": ["race"]},
        {"name": "a", "measure": "count", "where": "race == 'a'", "share": Fraction(1, 2)},
        {"name": "b", "measure": "sum", "column": "age", "clip": [-9, 30], "where": "race == 'b'"},
        {"name": "rest", "measure": "count", "where": "race not in ['a', 'b']", "by": ["band"]},
    ]
    queries = [{"share": Fraction(1, 6), **query} for query in queries]
    tables, _ = tables_of(queries, "duckdb")
    for neighboring in ("add-remove", "replace-one"):
        plan = a_plan(queries, neighboring, {"zcdp": "1/4"})
        claimed = plan.mechanism().tradeoff().power(0.05)
        noise = {(e.query, e.level, e.measure): s for e, s in plan.calibrated()}
        rows = range(0, len(ROWS), 12)  # each race and age
        nothing = {key: np.zeros_like(table[0]) for key, table in tables.items()}
        versions = [nothing, *({key: tables[key][row] for key in noise} for row in rows)]
        pairs = itertools.combinations(versions, 2)
        moved = {
            tuple((key, tuple(sorted(map(abs, (one[key] - other[key]).tolist())))) for key in noise)
            for one, other in pairs
            if neighboring == "replace-one" or one is nothing
        }

        def spent(shifts, noise=noise):
            return sum(sum(x * x for x in shift) / (2 * noise[key]) for key, shift in shifts)

        largest = 0
        for shifts in sorted(moved, key=spent)[-12:]:
            parts = [
                ny.DiscreteGaussian(sigma_squared=noise[key], sensitivity=[shift])
                for key, shift in shifts
                if any(shift)
            ]
            power = sum(parts, ny.Mechanism.nothing()).tradeoff().power(0.05)
            assert power.lower <= claimed.upper
            largest = max(largest, power.upper)
        assert largest >= claimed.lower * 0.95
        for names, within in usual(plan):
            part = plan.concerning(*names, within=within)
            if neighboring == "replace-one":
                assert part.rho() <= plan.mechanism().rho()
            for one, other in itertools.combinations(rows, 2):
                changed = {
                    n for n, x, y in zip(GRID, ROWS[one], ROWS[other], strict=True) if x != y
                }
                if changed == set(names):
                    spent = sum(
                        int(((tables[key][one] - tables[key][other]) ** 2).sum()) / (2 * squared)
                        for key, squared in noise.items()
                    )
                    assert spent <= part.rho(), (names, ROWS[one], ROWS[other])


PROVED = [
    ("race == 'a'", "race == 'A'"), ("race in ['a', 'b']", "not (race != 'A')"),
    ("race is None", "race != 'a'"), ("age < 18", "age >= 18"),
    ("age > 17 and age < 40", "18 > age"), ("age > 17", "age < 18"),
    ("clip(age, 0, 99) < 17.5", "clip(age, 0, 99) >= 18"),
    ("10 <= age <= 20 or age > 40", "age == 30 or age is None"),
    ("pay > 0 and race == 'a'", "ok and race == 'b'"), ("ok", "not ok"),
    ("ok and age > 1", "ok is None"), ("starts(race, 'b')", "not starts(race, 'b')"),
    ("band == 'minor'", "band == 'adult'"), ("age + 1 > 18", "age + 1 <= 18"),
    ("not (age < 18 or ok)", "age in [10, 11]"),
]  # fmt: skip
OPEN = [
    ("race == 'a'", "age < 18"), ("race != 'a'", "race == 'b'"),
    ("race == 'a'", "lower(race) == 'b'"), ("age < 18", "band == 'adult'"),
    ("age < 18", "age > 10"), ("age < 18", "age + 1 > 30"), ("age % 2 == 0", "age == 3"),
    ("pay < 0 or race == 'a'", "pay > 0 and race == 'b' or ok"), ("age <= 18", "age >= 18"),
    ("race is not None", "race == 'a'"), ("not (race == 'a' and ok)", "race == 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), [*PROVED, *OPEN])
def test_what_is_proved_and_what_stays_open(one, other):
    queries = [
        {"name": n, "measure": "count", "where": w} for n, w in zip("xy", (one, other), strict=True)
    ]
    for asked in (queries, queries[::-1]):
        plan = a_plan(asked)
        assert len(plan.row_sets) == (2 if (one, other) in PROVED else 1)
        assert plan.calibrated()[0][1] == Fraction(1, 2 if (one, other) in PROVED else 1)


def test_nothing_is_saved_with_ids_discovered_keys_or_without_the_field():
    queries = [
        {"name": n, "measure": "count", "where": f"race == '{n}'", "by": ["race"]} for n in "ab"
    ]
    assert len(a_plan(queries).row_sets) == 2
    unit = {"protects": "person", "neighboring": "add-remove", "id": "id"}
    assert len(a_plan(queries, unit=unit).row_sets) == 1
    plain = a_plan(queries, disjoint=False)
    assert len(plain.row_sets) == 1
    assert "disjoint" not in plain.canonical()
    assert Plan.from_dict(plain.canonical()).hash == plain.hash
    parallel = a_plan(queries)
    assert Plan.from_dict(parallel.canonical()).hash == parallel.hash != plain.hash
    assert parallel.entries()[0].share == 2 * plain.entries()[0].share
    columns = {**COLUMNS, "race": {"discover": True}}
    by_key = [{**query, "delta": "1e-9"} for query in queries]
    budget = {"zcdp": 1, "delta": "1e-6"}
    assert len(a_plan(by_key, budget=budget, columns=columns).row_sets) == 1


def test_the_worst_alternative_of_equal_parts_is_exact():
    queries = [
        {"name": f"q{n}", "measure": "count", "where": f"race == '{key}'"}
        for n, key in enumerate("aAb")
    ]
    added, replaced = (a_plan(queries, how) for how in ("add-remove", "replace-one"))
    assert [e.share for e in added.entries()] == [1] * 3
    assert [e.share for e in replaced.entries()] == [Fraction(1, 2)] * 3
    twice = [{**query, "by": ["ok"]} for query in queries]
    columns = {**COLUMNS, "ok": {"keys": [True, False]}}
    assert [e.share for e in a_plan(twice, "replace-one", columns=columns).entries()] == [1] * 3


def test_a_release_of_disjoint_queries_verifies_and_a_smaller_charge_does_not(tmp_path):
    queries = [
        {"name": f"q{k}", "measure": "count", "where": f"race == '{n}'", "share": Fraction(k, 6)}
        for n, k in (("a", 1), ("A", 2), ("b", 3))
    ]
    plan = a_plan(queries, "replace-one")
    with ny.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create("d@1", protects="person", neighboring="replace-one", cap=2)
        release = ny.run(plan, table_of(ROWS), ledger, tmp_path / "out")
        assert ledger.account("d@1").left == 1
        entry = ledger.entry(int(release.receipt.ledger.entry))
    assert [one["mechanism"]["type"] for one in entry.mechanisms] == ["Alternatives"]
    assert all(check.ok for check in verify(tmp_path / "out", ledger=tmp_path / "ledger.db"))
    assert release.tradeoff() == plan.mechanism().tradeoff()
    path = tmp_path / "out" / "receipt.json"
    stored = path.read_text()
    for change in (
        lambda receipt: receipt.pop("mechanism"),
        lambda receipt: receipt["mechanism"]["mechanisms"].pop(),
        lambda receipt: receipt["plan"].pop("disjoint"),
        lambda receipt: receipt["ledger"].update(charged="5/6"),
    ):
        receipt = json.loads(stored)
        change(receipt)
        path.write_text(json.dumps(receipt))
        assert not all(check.ok for check in verify(tmp_path / "out"))


@pytest.mark.parametrize("neighboring", ["add-remove", "replace-one"])
@pytest.mark.parametrize("more", [{}, {"by": ["band"]}])
def test_a_partition_and_its_column_in_by_have_one_noise(neighboring, more):
    every = {"name": "every", "measure": "count", "share": Fraction(1, 3)}
    query = {"name": "n", "measure": "count", "share": Fraction(2, 3), **more}
    plan = a_plan([every, {**query, "partition": "race"}], neighboring)
    grouped = a_plan([every, {**query, "by": ["race", *more.get("by", ())]}], neighboring)
    (every_split, *parts), (every_grouped, together) = (
        [squared for _, squared in one.calibrated()] for one in (plan, grouped)
    )
    assert every_split == every_grouped
    assert len(parts) == 3
    assert set(parts) == {together}
    assert plan.mechanism().rho() == 1
    assert Plan.from_dict(plan.canonical()).calibrated() == plan.calibrated()


@pytest.mark.parametrize(
    ("neighboring", "shares"),
    [("add-remove", ("1/2", "1/4", "1/4")), ("replace-one", ("1/3", "1/6", "1/6"))],
)
def test_the_largest_part_takes_the_share_and_others_by_proportion(neighboring, shares):
    every = {"name": "every", "measure": "count", "share": "1/2"}
    split = {"name": "n", "measure": "count", "share": "1/2", "partition": "race"}
    queries = [every, {**split, "parts": {"a": {"share": 2}}}]
    given = [entry.share for entry in a_plan(queries, neighboring).entries()]
    assert given == [Fraction(1, 2), *map(Fraction, shares)]
    unit = {"protects": "person", "neighboring": neighboring, "id": "id"}
    given = [entry.share for entry in a_plan(queries, unit=unit).entries()]
    assert given == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8), Fraction(1, 8)]


SPLIT = {"name": "pay", "measure": "sum", "column": "pay", "clip": [0, 2], "partition": "race"}


@pytest.mark.parametrize("unknown", ["drop", "b"])
def test_a_partition_has_the_tables_of_its_keys_each_with_its_own_terms(unknown):
    """By brute force beside a query by the column; every row is in one part at most."""
    columns = {**COLUMNS, "race": {"keys": ["a", "A", "b"], "unknown": unknown}}
    parts = {"A": {"clip": [-1, 1], "share": 3}}
    by_key = {"name": "by", "measure": "sum", "column": "pay", "clip": [0, 2], "by": ["race"]}
    half = {"share": Fraction(1, 2)}
    plan = a_plan([{**SPLIT, "parts": parts, **half}, {**by_key, **half}], columns=columns)
    assert [query.name for query in plan.queries[:3]] == ["pay 1", "pay 2", "pay 3"]
    shares = [Fraction(1, 6), Fraction(1, 2), Fraction(1, 6), Fraction(1, 2)]
    assert [entry.share for entry in plan.entries()] == shares
    assert plan.disjoint
    assert Plan.from_dict(plan.canonical()).hash == plan.hash
    assert len(plan.row_sets) == 3
    with prepared(plan, open_table(table_of(ROWS))) as ready:
        tables = aggregate_cells(plan, ready, KEY)
    sums = [int(tables[f"pay {place}", "all", "sum"].dense()[0]) for place in (1, 2, 3)]
    every = tables["by", "all", "sum"].dense().tolist()
    assert (sums[0], sums[2]) == (every[0], every[2])
    assert sums[1] == -10 * 15 + 10 * 15  # -1.5 and 2.5 of the 15 rows with each, clipped
    assert every[2] == (3 if unknown == "b" else 1) * every[0]


@pytest.mark.parametrize(("change", "says"), [
    ({"partition": "age"}, r"partition .* 'age': must be a column with listed keys; .*'race'"),
    ({"partition": "rase"}, "did you mean 'race'"),
    ({"partition": "row"}, "has 300 keys, and the most is 64; list it in 'by'"),
    ({"parts": {"c": {"share": 2}}}, "parts.c is for no key; there are 'a', 'A', 'b'"),
    ({"parts": {"a": {"shares": 2}}}, r"parts.a.shares.*there is no field"),
    ({"parts": {"a": {"at": ["state"]}}}, r"query 'pay 1'\) = 'state': is not a level"),
    ({"partition": None, "parts": {"a": {}}}, "is for a query with partition"),
    ({"where": "rase == 'a'"}, "'rase': is not a declared column"),
    ({"by": ["no"]}, r"^query\[0\].by\[0\] \(of query 'pay'\) = 'no': is not a column"),
])  # fmt: skip
def test_a_wrong_partition_is_refused_by_name(change, says):
    with pytest.raises(PlanError, match=says):
        a_plan([{**SPLIT, **change}])


def test_an_error_after_a_partition_names_the_query_as_it_is_written():
    wrong = {"name": "n", "measure": "count", "by": ["no"]}
    with pytest.raises(PlanError, match=r"^query\[1\].by\[0\] \(of query 'n'\) = 'no'"):
        a_plan([SPLIT, wrong])
    with pytest.raises(PlanError, match=r"disjoint = false: query\[0\].partition"):
        a_plan([SPLIT], disjoint=False)
    long = {**SPLIT, "name": "more", "where": "age > 3" + " " * 1990}  # too long with a key
    with pytest.raises(PlanError, match=r"^query\[1\].where \(of query 'more'\) .* is 2000$"):
        a_plan([SPLIT, long])


def test_a_filter_with_a_comment_is_joined_to_each_key():
    plan = a_plan([{**SPLIT, "where": "age > 3 # adults"}])
    assert plan.queries[1].where == "(age > 3) and (race == 'A')"
    plan = a_plan([{**SPLIT, "where": " race != 'C#'"}])
    assert plan.queries[1].where == "( race != 'C#') and (race == 'A')"


def test_a_partition_by_a_name_that_python_would_change_reads_its_own_column():
    """Python's parser reads a wide letter as a narrow one, which is another column."""
    names = ["\uff4e", "n"]
    query = {"name": "n", "measure": "count", "partition": names[0]}
    plan = a_plan([query], columns={name: {"keys": ["a", "b"]} for name in names}, derive={})
    table = pa.table({names[0]: ["a"] * 5, names[1]: ["b"] * 5})
    with prepared(plan, open_table(table)) as ready:
        tables = aggregate_cells(plan, ready, KEY)
    counts = [int(tables[f"n {key}", "all", "count"].dense()[0]) for key in "ab"]
    assert counts == [5, 0]


def test_several_questions_of_a_session_share_a_charge():
    rows = pa.table({"race": ["a", "b"] * 50})
    unit, columns = ny.Unit("person", neighboring="add-remove", rows=1), {"race": COLUMNS["race"]}
    session = ny.Session(rows, ledger=ny.throwaway(1), dataset="d@1", unit=unit, columns=columns)
    asked = [ny.query.count(name=f"q{n}", where=f"race == '{n}'") for n in "ab"]
    both = session.ask(asked, zcdp="1/8")
    assert session.left == Fraction(7, 8)
    one = session.ask(asked[0], zcdp="1/8")
    assert session.left == Fraction(3, 4)
    errors = {table["standard_error"][0] for table in (*both.tables.values(), one.table)}
    assert {error.as_py() for error in errors} == {2.0}
    assert both.tradeoff() == one.tradeoff()


@pytest.mark.parametrize("noise", ["discrete-gaussian", "rounded-gaussian"])
@pytest.mark.parametrize("budget", [{"gdp": 1}, {"power": "1/4", "level": "1/20"}])
def test_parts_of_one_kind_get_the_noise_of_one_part_alone(noise, budget):
    queries = [
        {"name": f"q{n}", "measure": "count", "where": f"race == '{key}'", "by": ["band"]}
        for n, key in enumerate("aAb")
    ]
    one, every = (a_plan(q, budget=budget, noise=noise) for q in (queries[:1], queries))
    assert {sigma for _, sigma in every.calibrated()} == {one.calibrated()[0][1]}
    assert every.admits(every.mechanism())
    uneven = [{**q, "share": Fraction(n, 6)} for n, q in enumerate(queries, 1)]
    plan = a_plan(uneven, "replace-one", budget, noise=noise)
    assert plan.admits(plan.mechanism())


def test_alternatives_are_the_worst_of_their_mechanisms():
    base, others = ny.Gaussian(4), [ny.Gaussian(2), ny.Laplace(2) * 2, ny.Gaussian(3)]
    worst = Alternatives.of([base, *(base + other for other in others)])
    assert worst == base + Alternatives(tuple(others))
    assert ny.Mechanism.from_json(worst.to_json()) == worst
    assert worst.rho() == max((base + other).rho() for other in others)
    for level in (0.01, 0.2, 0.9):
        powers = [(base + other).tradeoff().power(level) for other in others]
        assert worst.tradeoff().power(level).upper >= max(power.lower for power in powers)
        assert worst.tradeoff().power(level).lower <= max(power.upper for power in powers)
    assert Alternatives.of([base, base + others[0]]) == base + others[0]
    many = Alternatives(tuple(ny.DiscreteGaussian(sigma) for sigma in range(1, 300)))
    assert many.tradeoff().bare_rho() == many.rho() == Fraction(1, 2)
    with pytest.raises(ValueError, match="at least one mechanism"):
        ny.Mechanism.from_dict({"type": "Alternatives", "mechanisms": []})
