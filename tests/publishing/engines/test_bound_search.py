"""Bounds that follow from noisy histograms: one cell per unit, one curve for each bound."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import neyman as ny
from neyman.accounting import charge
from neyman.display import page
from neyman.publishing import (
    ClipSearch,
    Plan,
    PlanError,
    aggregate_cells,
    chosen_clip,
    chosen_clips,
    close_table,
    forms,
    forms_with,
    moved,
    open_table,
    search_notes,
    verify,
)
from plain_engine import KEY

COLUMNS = {"sex": ny.keys(["f", "m"]), "pay": {"integer": True}}


def a_plan(clip: Any = "discover", rows: Any = 1, neighboring: Any = "replace-one", **more) -> Plan:
    many: Any = {"rows": 1} if rows == 1 else {"rows": rows, "id": "id"}
    queries = [
        ny.query.sum("pay", clip=clip, by="sex"),
        ny.query.mean("pay", clip=clip),
        ny.query.count(by="sex"),
    ]
    fields: Any = {"queries": queries, "budget": {"zcdp": "1/100"}, **more}
    return Plan(
        name="bounds", dataset="d@1", table="t", columns=COLUMNS, noise="rounded-gaussian",
        unit=ny.Unit("person", neighboring=neighboring, **many), **fields,
    )  # fmt: skip


def people(rows) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    kinds = (pa.int64(), pa.string(), pa.int64())
    return pa.table(
        {n: pa.array(c, k) for n, c, k in zip(("id", "sex", "pay"), columns, kinds, strict=True)}
    )


def released(tmp_path, plan, data, **more):
    ledger = ny.throwaway(10)
    terms = {"protects": "person", "neighboring": plan.unit.neighboring}
    ledger.register("d@1", rows=plan.unit.rows, **terms)
    return ny.run(plan, data, ledger, tmp_path / "out", **{"pages": {}, **more})


def searches(tables):
    """The search for each clip and for the rows, by the names that bounds have."""
    by_query = {form.query.name: form.query.search for form in tables}
    by_query["unit-rows"] = tables[0].plan.unit.search
    return {name: search for name, search in by_query.items() if search}


def edges_of(most, signed):
    """The edges of cells that end at powers of two: [0, 1], (1, 2], (2, 4], and their mirrors."""
    left = [-(2**j) for j in reversed(range(most + 1))] if signed else [0]
    return (*left, 2, *(2**j + 1 for j in range(1, most + 1)))


# The rule


@pytest.mark.parametrize("signed", [False, True])
def test_each_value_is_in_the_cell_of_the_least_candidate_that_holds_it(signed):
    search = ClipSearch("h", Fraction(1, 10), Fraction(1, 100), signed, 6)
    edges = edges_of(6, signed)
    histogram = a_plan("discover-signed" if signed else "discover").query("sum-clip")
    assert histogram.bins == edges_of(30, signed)
    for value in range(-64 if signed else 0, 65):
        counts = [0] * (len(edges) - 1)
        counts[int(np.searchsorted(edges, value, side="right")) - 1] = 10**6
        low, high = chosen_clip(search, counts, Fraction(1))
        assert high == 1 << (max(abs(value), 1) - 1).bit_length()
        assert low == (-high if signed else 0)


@settings(max_examples=100)
@given(st.lists(st.integers(-(10**9), 10**9), min_size=13, max_size=13), st.booleans())
def test_every_noisy_histogram_leads_to_a_candidate(counts, signed):
    search = ClipSearch("h", Fraction(1, 10), Fraction(1, 100), signed, 6)
    counts = counts if signed else counts[:7]
    _, high = chosen_clip(search, counts, Fraction(50))
    assert high in [2**j for j in range(7)]
    needed = [abs(6 - i) if signed else i for i in range(len(counts))]
    if high > 1:
        outside = [n for n, j in zip(counts, needed, strict=True) if 2**j >= high]
        excess = sum(outside) - Fraction(max(sum(counts), 0), 100)
        assert excess > 0
        assert excess**2 > 4 * len(outside) * 50


# The guarantee


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
@pytest.mark.parametrize("clip", ["discover", "discover-signed"])
def test_every_candidate_has_the_same_rho_and_mu(clip, neighboring):
    plan = a_plan(clip, neighboring=neighboring)
    assert charge(plan.mechanism(), "zcdp") == (Fraction(1, 100), 0)
    tables = forms(plan, plan.calibrated())
    top = {(e.query, e.measure): (e.squared, s) for e, s in plan.calibrated()}
    for exponent in range(31):
        ends = (-(2**exponent) if "signed" in clip else 0, 2**exponent)
        bounded = forms_with(tables, dict.fromkeys(searches(tables), ends))
        assert any(form.query.clip == ends for form in bounded)
        for form in bounded:
            for entry, sigma_squared in form.entries:
                squared, most = top[entry.query, entry.measure]
                assert entry.squared * most == squared * sigma_squared
        own = bounded[0].plan
        for attribute in ("sex", "pay"):
            assert own.concerning(attribute).rho() == plan.concerning(attribute).rho()
    assert plan.mechanism().tradeoff().gdp().upper == pytest.approx(0.02**0.5)


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
@pytest.mark.parametrize("clip", ["discover", (-2, 10)])
def test_every_number_of_rows_has_the_same_rho(clip, neighboring):
    plan = a_plan(clip, "discover", neighboring)
    tables = forms(plan, plan.calibrated())
    for rows in (2**j for j in range(10)):
        for form in forms_with(tables, {"unit-rows": (0, rows)}):
            assert form.plan.unit.rows == rows
            for entry, sigma_squared in form.entries:
                assert entry.squared / sigma_squared == 2 * entry.share / plan.scale


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
def test_scenarios_cover_every_number_of_rows(neighboring):
    sums = ny.query.sum("pay", clip=(-2, 10), by="sex", groups=2, rows_per_group=3)
    queries = [
        sums, ny.query.count(by="sex"), ny.query.mean("pay", clip="discover", where="pay > 1"),
    ]  # fmt: skip
    plan = a_plan("discover", "discover", neighboring, queries=queries)
    tables = forms(plan, plan.calibrated())
    clips = dict.fromkeys(searches(tables), (0, 8))
    for attribute in ("sex", "pay"):
        own = {(e.query, e.measure): s for e, s in plan.calibrated()}
        actual: dict[Any, list[Fraction]] = {}
        for rows in (2**j for j in range(10)):
            bounded = forms_with(tables, {**clips, "unit-rows": (0, rows)})
            noise = {(e.query, e.measure): s for form in bounded for e, s in form.entries}
            for entry in moved(bounded[0].plan, (attribute,)):
                table = (entry.query, entry.measure)
                actual.setdefault(table, []).append(entry.squared / noise[table])
        # A squared shift is a whole number: it is rounded up.
        largest = [
            math.ceil(max(ratios) * own[table]) / own[table] for table, ratios in actual.items()
        ]
        assert plan.concerning(attribute).rho() == sum(largest) / 2


VERSIONS = [
    [("f", 1)], [("f", 7)], [("m", -3)], [("m", 10**12)], [("f", None)], [(None, 5)],
    [("f", 1), ("m", 900)], [("f", 2)] * 5, [("f", 1), ("f", 40), ("m", 3)], [],
]  # fmt: skip


def test_one_unit_moves_one_cell_of_each_histogram_and_two_if_it_is_replaced(engine):
    plan = a_plan("discover-signed", "discover")
    names = [q.name for q in plan.queries if q.searched]
    assert names == ["unit-rows", "sum-clip", "mean-clip"]
    plan = plan.changed(queries=tuple(q for q in plan.queries if q.searched))
    others = [(1, "f", 3), (1, "m", 30), (2, "f", 300)]
    exact = []
    for version in VERSIONS if engine == "duckdb" else VERSIONS[6:8]:
        table = people([*others, *((9, *row) for row in version)])
        cells = aggregate_cells(plan, open_table(table, engine), KEY)
        exact.append({key: value.dense() for key, value in cells.items()})
        units = Counter([1, 1, 2, *(9 for _ in version)])
        counted = [0] * 10
        for size in units.values():
            counted[(size - 1).bit_length()] += 1
        assert exact[-1]["unit-rows", "all", "rows"].tolist() == counted
        farthest: dict[int, int] = {}
        known = [(9, pay) for _, pay in version if pay is not None]
        for unit, value in [(1, 30), (2, 300), *known]:
            ranked = (farthest.get(unit, 0), value)
            farthest[unit] = max(ranked, key=lambda v: (abs(v), v))
        for name in names[1:]:
            most = len(exact[-1][name, "all", "count"]) // 2
            histogram = [0] * (2 * most + 1)
            for value in farthest.values():
                away = min((max(abs(value), 1) - 1).bit_length(), most)
                histogram[most + (away if value > 0 else -away)] += 1
            assert exact[-1][name, "all", "count"].tolist() == histogram
    for one, other in itertools.combinations(exact, 2):
        for key in one:
            moved = np.abs(one[key] - other[key])
            assert (moved.max(), moved.sum()) <= (1, 2)


MOST = 2  # the largest candidate is 4, so that every histogram can be tried


def small(neighboring):
    """A plan of one sum whose histogram has three cells."""
    plan = a_plan(
        rows=3, neighboring=neighboring, budget={"zcdp": 4},
        queries=[ny.query.sum("pay", clip="discover", clip_share="1/3", clip_above="1/4")],
    )  # fmt: skip
    search = ClipSearch("sum-clip", Fraction(1, 3), Fraction(1, 4), False, MOST)
    histogram, main = plan.queries
    histogram = replace(histogram, bins=edges_of(MOST, False))
    return plan.changed(queries=(histogram, replace(main, clip=(0, 2**MOST), search=search)))


def counted(plan, rows):
    """The exact histogram of a dataset, and its exact sum with each clip."""
    tables = forms(plan, plan.calibrated())
    bounded = [forms_with(tables, {"sum": (0, 2**j)})[0].plan for j in range(MOST + 1)]
    rows = open_table(people(rows), "duckdb")
    histogram = aggregate_cells(plan, rows, KEY)["sum-clip", "all", "count"].dense()
    return histogram, [
        int(aggregate_cells(p, rows, KEY)["sum", "all", "sum"].dense()[0]) for p in bounded
    ]


def law(sigma_squared, reach):
    edges = (np.arange(-reach, reach + 2) - 0.5) / float(sigma_squared) ** 0.5
    return np.diff(ndtr(edges))


def clips_of(tables):
    """The clip that each outcome of the noisy histogram leads to."""
    ((_, noise),) = tables[0].entries
    outcomes = itertools.product(range(-8, 12), repeat=3)
    search = searches(tables)["sum"]
    return np.array([chosen_clip(search, outcome, noise)[1] for outcome in outcomes])


def laws(tables, chosen, one, other):
    """For each clip the distributions of histogram and sum of two datasets, as matrices."""
    ((_, noise),) = tables[0].entries
    chance = np.pad(law(noise, 8), (0, 3))  # of counts of up to 3
    parts = [
        np.einsum("i,j,k->ijk", *(np.roll(chance, n) for n in histogram)).ravel()
        for histogram, _ in (one, other)
    ]
    for number, high in enumerate(2**j for j in range(MOST + 1)):
        (form,) = [f for f in forms_with(tables, {"sum": (0, high)}) if not f.query.searched]
        ((_, sigma_squared),) = form.entries
        own = law(sigma_squared, int(8 * float(sigma_squared) ** 0.5) + 13)
        moved_by = other[1][number] - one[1][number]
        p, q = (part[chosen == high, None] for part in parts)
        yield p * own, q * np.roll(own, moved_by)


@pytest.mark.parametrize("neighboring", ["replace-one", "add-remove"])
def test_a_histogram_and_the_sum_that_follows_from_it_have_the_claimed_curve(neighboring):
    plan = small(neighboring)
    claimed = [plan.mechanism().tradeoff().delta(epsilon) for epsilon in (0.5, 2.0, 5.0)]
    tables = forms(plan, plan.calibrated())
    chosen, largest = clips_of(tables), [0.0] * 3
    for others in ([(1, "f", 4), (1, "f", 1), (2, "m", 4)], [(1, "m", 1), (2, "m", 2)]):
        units = [(), (0,), (9, 9, 9), (4, 1), (1, 1, 1), (4, 4, 4, 4)]
        exact = [counted(plan, others + [(9, "f", pay) for pay in unit]) for unit in units]
        pairs = list(itertools.combinations(exact, 2))
        if neighboring == "add-remove":
            pairs = [(exact[0], other) for other in exact[1:]]
        for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
            both = list(laws(tables, chosen, one, other))
            for number, epsilon in enumerate((0.5, 2.0, 5.0)):
                delta = sum(np.maximum(p - np.exp(epsilon) * q, 0).sum() for p, q in both)
                largest[number] = max(largest[number], delta)
    for delta, bound in zip(largest, claimed, strict=True):
        assert 0.8 * bound.lower <= delta <= bound.upper + 1e-12


# A release


@pytest.mark.parametrize("rows", [1, "discover"])
def test_a_release_has_its_bounds_and_verifies_and_a_changed_bound_fails(rows, tmp_path):
    data = people([(i // 3, "fm"[i % 2], i % 100) for i in range(30_000)])
    # Noise alone leads to a larger bound with probability below 1e-7.
    plan = a_plan("discover", rows, budget={"zcdp": 1})
    release = released(tmp_path, plan, data, pages={"report.html": page})
    checks = verify(release.folder, {"report.html": page})
    assert [check for check in checks if not check.ok] == []
    clips = {part.bounds: part.clip for part in release.receipt.clips}
    assert clips["sum"] == clips["mean"] == ("0", "128")
    assert clips.get("rows", ("0", "4")) == ("0", "4")
    text = (release.folder / "report.html").read_text()
    assert "These follow from published noisy histograms" in text
    errors = release.tables["sum.all"]["standard_error"].to_pylist()
    sigma_squared = Fraction(release.receipt.clips[-2].mechanisms[0].mechanism["sigma_squared"])
    assert errors == pytest.approx([float(sigma_squared) ** 0.5] * 2, rel=1e-3)
    truth = sum(data["pay"].to_pylist())
    noisy = sum(release.tables["sum.all"]["value"].to_pylist())
    assert noisy == pytest.approx(truth, abs=10 * errors[0])
    receipt = json.loads((release.folder / "receipt.json").read_text())
    receipt["clips"][0]["clip"][1] = "64"
    (release.folder / "receipt.json").write_text(json.dumps(receipt))
    assert [c.name for c in verify(release.folder) if not c.ok] == ["tables"]


@pytest.mark.parametrize(
    "rows", [[], [(None, "f", 5)] * 3, [(1, None, 2**62), (1, "f", -(2**63)), (2, "f", None)]]
)
def test_no_data_raise(rows, tmp_path):
    release = released(tmp_path, a_plan("discover-signed", "discover"), people(rows))
    assert [part.bounds for part in release.receipt.clips] == ["rows", "sum", "mean"]
    plan = a_plan("discover-signed", "discover")
    clips = chosen_clips(forms(plan, plan.calibrated()), release.folder)
    for part, (_, high) in zip(release.receipt.clips, clips.values(), strict=True):
        assert part.clip[1] == str(high)
        assert high & (high - 1) == 0


# The plan


def test_a_plan_with_bounds_to_discover_reads_back_with_the_same_hash():
    for plan in (
        a_plan("discover-signed", "discover"),
        a_plan(queries=[ny.query.sum("pay", clip="discover", clip_share="1/3", clip_above="1/7")]),
    ):
        same = Plan.from_dict(plan.canonical())
        assert (same.hash, same.queries, same.unit) == (plan.hash, plan.queries, plan.unit)
        assert sum(query.share for query in plan.queries) == 1


def test_a_search_is_explained_beside_a_declared_total():
    total, pay = ny.query.count(name="n", public={"all": 100}), ny.query.sum("pay", clip="discover")
    unit = ny.Unit("person", neighboring="replace-one", rows=1)
    terms = {"name": "a", "dataset": "a@1", "table": "t", "noise": "rounded-gaussian"}
    columns = {"pay": {"integer": True}}
    terms |= {"unit": unit, "columns": columns, "budget": ny.zcdp("1/10")}
    plan = ny.Plan(**terms, queries=[total, pay])
    (note,) = search_notes(plan)
    assert "'sum-clip'" in note


GOOD: dict[str, Any] = {
    "name": "bounds", "dataset": "d@1", "table": "t", "columns": COLUMNS,
    "budget": {"zcdp": "1/10"},
    "unit": ny.Unit("person", neighboring="replace-one", rows=1), "noise": "rounded-gaussian",
    "queries": [ny.query.sum("pay", clip="discover")],
}  # fmt: skip


@pytest.mark.parametrize(("more", "says"), [
    ({"queries": [ny.query.variance("pay", clip="discover")]}, "is for a sum or a mean"),
    ({"queries": [ny.query.sum("pay", clip="find")]}, "must be .*'discover'"),
    ({"queries": [ny.query.sum("pay", clip=(0, 1), clip_share="1/2")]}, "is for clip = 'discover'"),
    ({"queries": [ny.query.sum("pay", clip="discover", clip_above=2)]}, "must be below 1"),
    ({"noise": "discrete-gaussian"}, "needs noise = 'rounded-gaussian'"),
    ({"consistency": "least-squares"}, "leave that out"),
    ({"unit": {"protects": "p", "neighboring": "replace-one", "rows": "discover"}}, "unit.id"),
    ({"unit": ny.Unit("p", neighboring="replace-one", rows_share="1/2")}, "rows = 'discover'"),
    (
        {"queries": [ny.query.count(name="sum-clip"), ny.query.sum("pay", clip="discover")]},
        "differ in",
    ),
    ({"queries": [ny.query.sum("pay", clip="discover", name="unit-rows")]}, "differ in"),
])  # fmt: skip
def test_what_does_not_go_with_a_search_is_refused_by_name(more, says):
    assert Plan(**GOOD).queries
    with pytest.raises(PlanError, match=says):
        Plan(**{**GOOD, **more})


def test_a_server_counts_the_same_histograms(postgres):
    psycopg = pytest.importorskip("psycopg")
    plan = a_plan("discover-signed", "discover", "add-remove")
    plan = plan.changed(queries=tuple(query for query in plan.queries if query.searched))
    rows = [(i // 3, "fm"[i % 2], i % 100 - 30) for i in range(300)]
    rows += [(None, "f", 9), (1, None, None), (7, "m", -(2**62))]
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute("CREATE TABLE pays (id bigint, sex text, pay bigint)")
        owner.cursor().executemany("INSERT INTO pays VALUES (%s, %s, %s)", rows)
    table = open_table(postgres.url(table="public.pays"), "duckdb", ("id", "sex", "pay"))
    on_server = aggregate_cells(plan, table, KEY)
    here = aggregate_cells(plan, open_table(people(rows), "duckdb"), KEY)
    assert on_server.keys() == here.keys()
    for key, cells in here.items():
        assert on_server[key].dense().tolist() == cells.dense().tolist()
        assert cells.dense().sum() == 100
    close_table(table)
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute("DROP TABLE pays")
