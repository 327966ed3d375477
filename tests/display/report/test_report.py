"""The page: self-contained, true to the receipt, and whole for every receipt."""

import copy
import json
import math
import re
import shutil
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import neyman as ny
from commands import answered
from hostile_pages import Structure, page_from
from neyman import accounting
from neyman.accounting import digits
from neyman.accounting import sentences as words
from neyman.display import page, registry_text
from neyman.publishing import Plan, Receipt, counted_rows, guarantee, verify
from plans import SMALL
from plans import release as release_of
from random_laws import examples, is_small


def bound(x, gap=1e-9):
    return {"lower": x if x == "inf" else x * (1 - gap), "upper": x}


def a_table(values, margin=5):
    values = np.asarray(values, dtype=np.int64)
    columns = {"place": [str(i) for i in range(len(values))], "value": values}
    columns["standard_error"] = np.full(len(values), margin / 1.645)
    return pa.table(columns | {"lower": values - margin, "upper": values + margin})


def an_entry(query, level, share="1/2", zcdp="47/200", cells=2, **more):
    return {
        "query": query, "level": level, "measure": "count", "count": 1, "share": share,
        "cells": cells, "zcdp": zcdp, "standard_error": 2.91, "half_width_90": 5,
        "mechanism": {"kind": "DiscreteGaussian"},
    } | more  # fmt: skip


def a_file(query, level, path, cells):
    return {"query": query, "level": level, "path": path, "cells": cells, "sha256": "0" * 64}


def a_receipt():
    mu = 0.97
    levels = [*np.geomspace(1e-4, 0.99, 59).tolist(), 1.0]
    curve = [{"level": a, **bound(float(ndtr(ndtri(a) + mu)))} for a in levels]
    public = {"zcdp": "0", "standard_error": 0, "half_width_90": 0, "public": True}
    return {
        "schema": "neyman-receipt/1",
        "plan": {"schema": 2, "name": "midwest"},
        "plan_hash": "sha256:" + "9f3a" * 16,
        "dataset": "midwest-1990@1",
        "unit": {"protects": "person", "rows": 1},
        "neighboring": "replace-one",
        "mechanisms": [
            an_entry("total", "region", "0", cells=1, mechanism=None) | public,
            an_entry("total", "state"),
            an_entry("total", "county", cells=4),
        ],
        "guarantee": {
            "epsilon": [
                {"delta": d, **bound(e)}
                for d, e in ((1e-3, 2.7183), (1e-6, 4.0123), (1e-9, 5.41), (1e-12, 6.37))
            ],
            "mu": bound(0.97041),
            "rho": bound(0.47),
            "total_variation": bound(0.37213),
            "power": [
                {"level": 0.01, **bound(0.0872)},
                {"level": 0.05, **bound(0.2499999)},
                {"level": 0.10, **bound(0.378)},
            ],
            "curve": curve,
            "zcdp_route": {"rho": "47/100", "variance_ratio": 1.1479, "promise": "power < 1/4"},
            "posterior": [],
            "scenarios": [],
        },
        "budget": {"kind": "at_most", "power": "0.25", "level": "0.05"},
        "tables": [],
        "ledger": {
            "account": "midwest-1990@1",
            "entry": "e7b1",
            "currency": "zcdp",
            "charged": "47/100",
            "charged_delta": "0",
            "date": "2026-11-23",
        },
        "versions": {"neyman": "0.1.0", "python": "3.11.9"},
    }


TABLES = {
    "total.region": a_table([42_008_942], 0),
    "total.state": a_table([11_430_602, 5_544_159]),
    "total.county": a_table([66_090, 400, 90, -3]),
}


def text_of(receipt, tables=TABLES):
    return Structure(page_from(receipt, tables)).words


def figure_data(receipt, figure):
    """What the script of the page draws a figure from."""
    (content,) = Structure(page_from(receipt, TABLES)).values(f"data-{figure}")
    return json.loads(content)


def test_the_scale_has_a_bar_up_to_the_power_and_a_mark_at_that_of_the_census():
    """Shares of the way from no information, the level 5%, to the data themselves."""
    census = (accounting.deployments.census_power(0.05) - 0.05) / 0.95
    bar = f'<i style="width:{0.2 / 0.95:.2%}"></i><b style="left:{census:.2%}">'
    assert bar in page_from(a_receipt(), TABLES)


def test_the_page_is_one_whole_file():
    html = page_from(a_receipt(), TABLES)
    reader = Structure(html)
    assert html.startswith("<!DOCTYPE html>")
    assert ("html", {"lang": "en"}) in reader.elements
    assert "viewport" in reader.values("name")
    assert not re.search(r"https?:|@import|url\(", html)
    tags = {tag for tag, _ in reader.elements}
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & tags
    for _, attributes in reader.elements:
        assert not {"src", "srcset", "data", "xlink:href", "action"} & set(attributes)
    (policy,) = (a["content"] for _, a in reader.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("; base-uri 'none'; form-action 'none'")
    assert page_from(a_receipt(), TABLES) == html  # no clock and no randomness
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    named = " ".join(reader.values("aria-labelledby") + reader.values("for")).split()
    links = reader.values("href")
    assert all(link.startswith("#") for link in links)
    assert {*named, *(link[1:] for link in links)} <= set(ids)


def test_numbers_equal_the_receipts_rounded_against_the_release():
    text = text_of(a_receipt())
    for said in (
        words.power("0.05", "0.25"),
        "8.8% 89.8%",  # .0872 at .01, and its posterior .08972 / ...
        "37.8% 79.1%",
        "1 in 100 100 25 495 4.9%",
        "1 in 10 1,000 250 450 35.8%",
        "5,000 1,250 250 83.4%",
        "epsilon, delta 0.001 2.72",
        "epsilon, delta 10⁻⁶ 4.02",
        "a factor of 55.3, plus a probability of 1 in a million",
        "mu, 0.01% to 50% 0.971 At every",
        "mu (Gaussian) 0.971",
        "rho (zCDP) 0.47 ",
        "total variation 0.373",
        "1.14 times the noise variance",
        "Charged 0.47 (zcdp)",
    ):
        assert said in text, said


@pytest.mark.parametrize(("upper", "said"), [(1.0458, "1.05"), ("inf", "∞")])
def test_a_wide_bound_shows_both_ends(upper, said):
    receipt = a_receipt()
    receipt["guarantee"]["mu"] = {"lower": 0.9049, "upper": upper}
    assert f"{said} at least 0.904" in text_of(receipt)


def test_the_mu_of_usual_levels_follows_from_the_powers_where_none_covers_all():
    receipt = a_receipt()
    receipt["guarantee"]["mu"] = {"lower": 0.9049, "upper": "inf"}
    levels = [ndtr(-3.75 + 7.5 * k / 59) for k in range(60)]
    receipt["guarantee"]["curve"] = [
        {"level": float(a), **bound(float(ndtr(ndtri(a) + 0.97)))} for a in levels
    ]
    (mu,) = re.findall(r"mu, 0\.01% to 50% (\S+)", text_of(receipt))
    assert 0.97 <= float(mu) <= 1.02
    receipt["guarantee"]["curve"] = receipt["guarantee"]["power"] = [{"level": 0.05, **bound(1)}]
    assert "a test may never be wrong" in text_of(receipt)


def test_of_two_powers_at_one_level_the_larger_is_shown():
    receipt = a_receipt()
    powers, less = receipt["guarantee"]["power"], {"level": 0.05, **bound(0.06)}
    for both in ([*powers, less], [less, *powers]):
        receipt["guarantee"]["power"] = both
        assert words.power("0.05", "0.25") in text_of(receipt)


def test_accuracy_is_rounded_down():
    text = text_of(a_receipt())
    # 66090 and 400 have margins of less than 5%; only 66090 of less than 1%; median (400 + 90)/2.
    assert "total, by county 4 245 ± 5 25% 50%" in text
    assert "total, by state 2 8,487,380 ± 5 100% 100%" in text


def test_a_mean_is_one_table_of_two_entries():
    receipt = a_receipt()
    parts = [("offset", "1/10"), ("count", "3/10")]
    receipt["mechanisms"] = [
        an_entry("age", "all", zcdp=z, cells=1, measure=m, half_width_90=77) for m, z in parts
    ] + [an_entry("total", "state", zcdp="6/10")]
    row = {"value": [-41.26], "standard_error": [0.2], "lower": [-41.6], "upper": [-40.96]}
    text = text_of(receipt, {"age.all": pa.table(row)})
    assert "2 noisy tables" in text
    assert "age overall (1 cell) total by state (2 cells)" in text
    assert "age, overall 1 40%" in text
    assert re.search(r"age, overall 1 −41\.3 ± 0\.34\d? 100% 100%", text)
    assert "77" not in text_of(receipt, {})


def a_scenario(attributes, power, within=None, tables=("race.state",), rho=0.2):
    """A scenario as a receipt has it, with power ``power`` at level 5%."""
    mu = ndtri(power) - ndtri(0.05)
    powers = {a: float(ndtr(ndtri(a) + mu)) for a in (0.01, 0.05, 0.1, 0.2)} | {0.05: power}
    points = [{"level": a, **bound(b)} for a, b in powers.items()]
    return {
        "attributes": list(attributes), "within": within, "tables": list(tables), "rho": bound(rho),
        "power": points[:3], "curve": points, "posterior": beliefs(0.31),
    }  # fmt: skip


def beliefs(chance):
    return [
        {"attacker": attacker, "epsilon": epsilon, **bound(chance * share / factor)}
        for attacker, share in (("arbitrary-prior", 1), ("knows-the-rest", 0.1))
        for epsilon, factor in ((0.693, 1), (2.302, 10), (4.605, 100))
    ]


SCENARIOS = [
    a_scenario(["race"], 0.169, tables=("race.state", "race.county")),
    a_scenario(["county"], 0.1551, "state", ("total.county", "race.all")),
]


def with_scenarios(scenarios=SCENARIOS):
    receipt = a_receipt()
    receipt["guarantee"]["scenarios"] = copy.deepcopy(scenarios)
    return receipt


def test_scenarios_stand_side_by_side_rounded_up():
    none = a_scenario(["sex"], 0.05 * (1 + 1e-12), tables=(), rho=0.0)  # no rounding above 5%
    text = text_of(with_scenarios([*SCENARIOS, none]))
    assert words.concerning(["race"], "0.05", "0.169") in text
    for said in (
        r"race 5\.\d% 16\.9% [\d.]+% 0\.2 race by state, by county",
        r"county within a known state [\d.]+% 15\.6% [\d.]+% 0\.2 total by county; race overall",
        r"sex 1% 5% 10% 0 none: no risk",
        r"whole record 8\.8% 25% 37\.8% 0\.47 all",
    ):
        assert re.search(said, text), said
    receipt = with_scenarios()
    receipt["neighboring"] = "add-remove"  # its limits are about presence alone
    assert "whole record" not in text_of(receipt)


def test_beliefs_stand_side_by_side_and_the_worst_is_said():
    receipt = with_scenarios()
    receipt["guarantee"]["scenarios"][1]["posterior"] = beliefs(0.41)
    receipt["guarantee"]["posterior"] = beliefs(0.72)
    text = text_of(receipt).partition("Effect on an attacker’s beliefs")[2]
    assert "race 31% 3.1% 0.31% 0.31%" in text
    assert "county within a known state 41% 4.1% 0.41% 0.41%" in text
    assert "whole record 72% 7.2% 0.72% 0.72%" in text
    for attacker, chance in (("arbitrary-prior", 0.041), ("knows-the-rest", 0.0041)):
        said = words.belief_sentence(attacker, 2.302, chance, about="county", within="state")
        assert said in text
    posterior = receipt["guarantee"]["scenarios"][0]["posterior"]
    for one, upper in zip(posterior, (9.99e-6, 0.0, 1.01e-5), strict=False):
        one |= {"upper": upper, "lower": 0.0}
    assert "race under 0.001% 0% 0.0011%" in text_of(receipt)


def test_many_scenarios_keep_a_small_figure_readable():
    many = [a_scenario([f"attribute number {i}"], 0.1 + 0.001 * (i // 2)) for i in range(40)]
    curves = figure_data(with_scenarios(many), "beside")["curves"]
    assert [curve["kind"] for curve in curves] == ["release"] + ["scenario"] * 6
    assert curves[1]["name"] == "attribute number 38 +1"
    said = "These share a line: attribute number 38, attribute number 39; "
    assert said in text_of(with_scenarios(many))


def test_an_attribute_with_the_curve_of_the_whole_record_shares_its_label():
    receipt = with_scenarios([a_scenario(["race"], 0.25), a_scenario(["sex"], 0.1)])
    mu = float(ndtri(0.25) - ndtri(0.05))
    levels = sorted([*ndtr(np.linspace(-3.75, 3.75, 60)).tolist(), 0.01, 0.05, 0.1, 0.2])
    receipt["guarantee"]["curve"] = [
        {"level": a, **bound(float(ndtr(ndtri(a) + mu)))} for a in levels
    ]
    names = [curve["name"] for curve in figure_data(receipt, "beside")["curves"]]
    assert names == ["whole record +1", "sex"]


@settings(max_examples=15 if is_small() else 100)
@given(st.lists(st.fractions(0, 1, max_denominator=10**6), min_size=1, max_size=40).filter(any))
def test_shares_add_up_to_a_hundred(parts):
    receipt = a_receipt()
    receipt["mechanisms"] = [an_entry(f"q{i}", "x", zcdp=str(p)) for i, p in enumerate(parts)]
    section = budget_section(page_from(receipt, {}))
    shares = [Fraction(x) for x in re.findall(r"q\d+, by x 2 ([\d.]+)%", section)]
    assert sum(shares) == 100
    for part, share in zip(parts, shares, strict=True):
        assert abs(part / sum(parts) * 100 - share) <= Fraction(1, 10)


@settings(max_examples=examples(100))
@given(st.floats(1e-9, 0.999), st.floats(0, 1), st.floats(0, 1))
def test_no_number_on_the_page_favors_the_release(level, above, tv):
    power = max(level, above)
    receipt = a_receipt()
    receipt["guarantee"] |= {
        "power": [{"level": level, "lower": level, "upper": power}],
        "curve": [{"level": level, "lower": level, "upper": power}],
        "total_variation": bound(tv),
    }
    receipt["budget"] = {"kind": "gdp", "mu": "1"}
    text = text_of(receipt)
    a, b = Fraction(repr(level)), Fraction(repr(power))
    row = re.search(r"even odds \(at most\) ([\d.]+)% ([\d.]+)% ([\d.]+)% ([\d.]+)% Risk", text)
    assert row
    level_said, guess, power_said, right = (Fraction(x) / 100 for x in row.groups())
    assert a * Fraction(999, 1000) <= level_said <= a
    assert guess == level_said
    assert power_said >= b
    assert right >= b / (level_said + b)


@pytest.mark.parametrize(
    ("level", "power"), [(0.05, 0.25), (0.001, 1.0), (0.3, 0.3), (0.01, 0.517), (0.125, 0.7071)]
)
def test_the_people_of_a_finding_are_its_printed_share(level, power):
    receipt = a_receipt()
    receipt["guarantee"]["power"] = [{"level": level, **bound(power, 0)}]
    receipt["budget"] = {"kind": "at_most", "power": repr(power), "level": repr(level)}
    html = page_from(receipt, {})
    counts = r"at most ([\d.]+) of them. 50 are false, and it confirms ([\d.]+). .*? most ([\d.]+%)"
    ((true, false, share),) = re.findall(counts, Structure(html).words)
    assert digits.percent(Fraction(true) / (Fraction(true) + Fraction(false))) == share
    for kind, number in (("confirmed", 50 * power), ("wrong", 50 * level)):
        drawing = rf'<svg[^>]*width="([0-9.]+)"[^>]*><path[^>]*class="{kind}"'
        assert sum(map(float, re.findall(drawing, html))) / 12 == pytest.approx(number, abs=1e-3)


def no_promise(r):
    r["guarantee"] |= {
        "epsilon": [{"delta": 1e-6, **bound("inf")}], "mu": bound("inf"), "rho": bound("inf"),
        "total_variation": bound(1.0), "power": [{"level": 0.05, **bound(1.0)}],
        "curve": [{"level": a, **bound(1.0)} for a in (1e-4, 0.5, 1.0)], "zcdp_route": None,
    }  # fmt: skip
    r["budget"] = {"kind": "approximate", "epsilon": "1000000", "delta": "0.5"}
    r["mechanisms"][1]["zcdp"] = r["mechanisms"][2]["zcdp"] = "inf"


def perfect(r):
    r["guarantee"]["epsilon"] = [{"delta": 0.0, "lower": 0.0, "upper": 0.0}]
    for name in ("mu", "rho", "total_variation"):
        r["guarantee"][name] = {"lower": 0.0, "upper": 0.0}
    for name in ("power", "curve"):
        for point in r["guarantee"][name]:
            point |= {"lower": point["level"], "upper": point["level"]}
    r["budget"] = {"kind": "zcdp", "rho": "0"}
    for m in r["mechanisms"]:
        m["zcdp"] = "0"


def long_names(r):
    r["plan"]["name"] = r["dataset"] = "n" * 5000
    r["mechanisms"] = [an_entry("q" * 3000, "l" * 3000, "1")]


def add_remove(r):
    r["neighboring"] = "add-remove"
    r["unit"] = {"protects": "household", "rows": 5}
    r["budget"] = {"kind": "gdp", "mu": "97/100"}
    r["ledger"]["charged_delta"] = "1e-12"


TINY = {"kind": "at_most", "power": "0.0000012", "level": "0.000001"}


@pytest.mark.parametrize(("change", "said"), [
    (no_promise, "This gives no useful guarantee"),
    (no_promise, "might correctly confirm a true claim every time"),
    (perfect, "The cost is zero"),
    (perfect, "confirm a true claim at most equally often"),
    (lambda r: r.update(budget=TINY), "confirm a true claim at most 12 times in 10 million"),
    (long_names, "n" * 5000),
    (lambda r: r.update(mechanisms=[]), "0 noisy tables"),
    (lambda r: r.update(mechanisms=r["mechanisms"][:1]), "The cost is zero"),
    (lambda r: r["guarantee"].update(curve=[]), "Guessing would confirm"),
    (add_remove, "one household’s records (up to 5) added or removed"),
    (add_remove, "with delta 10⁻¹²"),
])  # fmt: skip
@pytest.mark.parametrize("tables", [TABLES, {}, {"total.county": a_table([])}])
def test_extreme_receipts_make_a_whole_page_with_its_headline(change, said, tables):
    receipt = a_receipt()
    change(receipt)
    assert said in text_of(receipt, tables)


def test_a_large_table_does_not_make_a_large_page():
    small = page_from(a_receipt(), {"total.county": a_table([7])})
    large = page_from(a_receipt(), {"total.county": a_table(range(5000))})
    assert abs(len(small) - len(large)) < 100


@pytest.mark.parametrize(("query", "table", "noise", "said"), [
    # Four medians follow from counts in 20 bins, whose least error is not that of a median.
    (
        {"measure": "median", "column": "age", "edges": [0, 20, 40, 60, 80, 99]},
        a_table([31, 40, 52, 47]),
        "9",
        "q, overall 4 43.5 ± 5 0% 0% – Values",
    ),
    # Of four keys, a constant 2 is off by 2 at most, whatever the noise of the release.
    (
        {"measure": "distinct", "column": "race"},
        a_table([4], 156),
        "9000",
        "q, overall 1 4 ± 156 0% 0% – Values",
    ),
])  # fmt: skip
def test_no_least_error_is_stated_where_none_is_proven(query, table, noise, said):
    receipt = a_receipt()
    mechanism = {"type": "DiscreteGaussian", "sigma_squared": noise, "sensitivity": [[1, 1]]}
    cells = 20 if query["measure"] == "median" else 1
    more = {"cells": cells, "measure": query["measure"], "mechanism": mechanism}
    receipt["plan"] = {"query": [{"name": "q", **query}]}
    receipt["mechanisms"] = [an_entry("q", "all", "1", **more)]
    receipt["tables"] = [a_file("q", "all", "tables/a.csv", len(table))]
    assert said in text_of(receipt, {"q.all": table})


def keys_with(unknown):
    columns = {"kind": {"keys": [unknown, 7], "unknown": unknown}}
    return {"columns": columns, "query": [{"name": "n", "measure": "count", "by": ["kind"]}]}


@pytest.mark.parametrize(("plan", "said"), [
    (
        {"hierarchy": {"place": {"levels": ["state", "county"], "unknown": "drop"}}}
        | {"query": [{"name": "n", "measure": "count", "at": ["state"]}]},
        "place : listed paths of state, county; other paths: the row is dropped",
    ),
    (  # which takes rows without an age
        {"where": "age > 17 or age is None", "query": [{"name": "n", "measure": "count"}]},
        "only rows where age is above 17 or age is missing. A row counts if its condition",
    ),
    (  # both conditions hold
        {"where": "age >= 18 or pay > 0"}
        | {"query": [{"name": "n", "measure": "count", "where": "sex == 'f' or pay < 9"}]},
        "(age is at least 18 or pay is above 0) and (sex is “f” or pay is below 9)",
    ),
    (keys_with(0), "kind : 2 listed keys; other values: counted as 0"),
    (keys_with(False), "kind : 2 listed keys; other values: counted as False"),
])  # fmt: skip
def test_a_report_says_which_rows_a_table_counts(plan, said):
    assert said in text_of(a_receipt() | {"plan": plan})


def budget_section(html):
    text = Structure(html).words
    return text[text.rindex("Privacy budget by table") : text.rindex("Guarantee in standard")]


def a_plan(**more):
    """A plan of two counts, whose errors count as 9 to 1."""
    columns = {n: ny.keys(k) for n, k in (("sex", ["f", "m"]), ("age", ["young", "old"]))}
    queries = [
        ny.query.count(name="both", by=["sex", "age"], share="3/4", weight=9),
        ny.query.count(name="sex", by=["sex"], share="1/4"),
    ]
    fields = {"name": "w", "dataset": "w@1", "table": "t", "columns": columns, "queries": queries}
    unit = ny.Unit("household", neighboring="replace-one", rows=1)
    return ny.Plan(**fields | {"unit": unit, "budget": {"zcdp": "1/10"}} | more)


def released(plan, data, folder, **more):
    ledger = ny.throwaway(1)
    unit = plan.unit
    ledger.register(
        plan.dataset, protects=unit.protects, neighboring=unit.neighboring, rows=unit.rows
    )
    return ny.run(plan, data, ledger, folder, **more)


@pytest.fixture(scope="module")
def weighed(tmp_path_factory):
    data = pa.table({"sex": ["f", "m"] * 20, "age": ["young", "old"] * 20})
    return released(a_plan(), data, tmp_path_factory.mktemp("weighed") / "out")


def test_shares_of_disjoint_tables_are_of_the_charge_and_may_sum_to_more(tmp_path):
    wheres = (("young", "age < 10"), ("old", "age >= 10"), ("all", "age > 5"))
    plan = a_plan(
        unit=ny.Unit("infant", neighboring="add-remove", rows=1),
        columns={"age": {"type": "whole"}},
        queries=[ny.query.count(name=name, where=where) for name, where in wheres],
        disjoint=True,
    )
    section = budget_section(page(released(plan, pa.table({"age": [1, 20]}), tmp_path / "out")))
    assert section.count(" 1 50%") == 3
    assert "100%" not in section.partition("All 3")[0]


def test_a_report_says_how_much_of_the_budget_its_tables_leave(tmp_path):
    budget = {"zcdp": "1/10", "unspent": "1/5"}
    data = pa.table({"sex": ["f", "m"], "age": ["young", "old"]})
    weighed = budget_section(page(released(a_plan(budget=budget), data, tmp_path / "out")))
    assert "both, overall 4 9 60% sex, overall 2 1 20% Left unspent 20% All 6 100%" in weighed
    assert "The tables leave 20% of the budget: their noise is as large as if one more" in weighed
    assert "No other shares would lower it by as much as 1%." in weighed
    other = budget_section(page(released(a_plan(), data, tmp_path / "whole")))
    assert "leave" not in other


def test_a_headline_between_the_levels_of_a_receipt_is_that_of_the_tables(tmp_path):
    budget = {"power": "0.25", "level": "0.03", "unspent": "1/2"}
    plan = a_plan(budget=budget)
    data = pa.table({"sex": ["f", "m"], "age": ["young", "old"]})
    text = Structure(page(released(plan, data, tmp_path / "out"))).words
    power = plan.mechanism().tradeoff().power(level=0.03).upper
    shown = float(re.search(r"confirms at most ([0-9.]+)% of true claims, and 3%", text)[1])
    assert 100 * power < shown < 105 * power + 0.5


def test_a_split_is_explained_where_the_plan_states_weights(weighed, tmp_path):
    html = (weighed.folder / "report.html").read_text(encoding="utf-8")
    section = budget_section(html)
    assert "both, overall 4 9 75% sex, overall 2 1 25% All 6 100%" in section
    # 9 / .75 + 1 / .25 = 16 is the least of all shares' sums, and 20 that of halves.
    assert "the sum of squared errors is 20% less than with equal shares" in section
    assert "No other shares would lower it by as much as 1%." in section
    assert page(weighed) == html
    assert all(check.ok for check in verify(weighed.folder, {"report.html": page}))
    shutil.copytree(weighed.folder, tmp_path / "out")
    path = tmp_path / "out" / "report.html"
    path.write_text(html.replace("is 20% less", "is 30% less"), encoding="utf-8")
    (wrong,) = [c for c in verify(path.parent, {"report.html": page}) if not c.ok]
    assert wrong.name == "report.html"


@pytest.mark.parametrize(("budget", "points"), [
    ({"kind": "at_most", "power": "1/4", "level": "0.05"}, {0.05: 0.25}),
    ({"kind": "gdp", "mu": "1"}, {0.5: ndtr(1.0)}),
    (
        {"kind": "approximate", "epsilon": "1", "delta": "0.01"},
        {0.0: 0.01, 0.1: 0.01 + 0.1 * math.e},
    ),
    ({"kind": "zcdp", "rho": "1"}, {}),
    ({"kind": "at_most", "power": "1", "level": "0.05"}, {}),
])  # fmt: skip
def test_limit_curves_pass_where_the_budget_says(budget, points):
    """At-most passes through its point; GDP and (epsilon, delta) follow their formulas."""
    receipt = a_receipt() | {"budget": budget}
    for point in receipt["guarantee"]["curve"]:
        point.update(bound(point["level"]))
    curve = figure_data(receipt, "tradeoff")["limit"]
    assert bool(curve) == bool(points)
    if points:
        assert curve[-1] == [1.0, 1.0]
        assert all(y >= x - 1e-12 for x, y in curve)
        at = np.interp([*points], *zip(*curve, strict=True))
        assert at == pytest.approx([*points.values()], abs=1e-3)


COINCIDE = "The chosen limit coincides with the blue curve in this figure. They differ by at most "


@settings(max_examples=examples(12))
@given(st.floats(0.05, 3), st.floats(-0.3, 0.3).map(lambda x: x**3), st.sampled_from([9, 60]))
def test_one_line_is_drawn_only_of_curves_that_nowhere_differ_by_more_than_is_said(mu, more, count):
    """By brute force: between its points a curve is straight, and may leave the limit there."""
    receipt = a_receipt() | {"budget": {"kind": "gdp", "mu": repr(mu)}}
    other = max(mu + more, 0.01)
    levels = ndtr(np.linspace(-3.75, 3.75, count))
    powers = ndtr(ndtri(levels) + other)
    receipt["guarantee"]["curve"] = [
        {"level": a, **bound(b, 0)} for a, b in zip(levels.tolist(), powers.tolist(), strict=True)
    ]
    receipt["guarantee"]["power"] = [{"level": 0.05, **bound(float(ndtr(ndtri(0.05) + other)), 0)}]
    shown = Structure(page_from(receipt, {}))
    one = json.loads(shown.values("data-tradeoff")[0])["limit"] == []
    share = re.search(COINCIDE + r"([\d.]+)%", shown.words)
    assert one == bool(share)
    if share:
        far = float(share[1]) / 100
        points = {0.0: powers[0], 0.05: ndtr(ndtri(0.05) + other), 1.0: 1.0}
        points |= dict(zip(levels, powers, strict=True))
        xs, ys = zip(*sorted(points.items()), strict=True)
        grid = np.linspace(0, 1, 50_001)
        with np.errstate(divide="ignore"):
            limit = ndtr(ndtri(grid) + mu)
        assert np.all(np.interp(grid - far, xs, ys, left=0) - far <= limit)
        assert np.all(limit <= np.interp(np.minimum(grid + far, 1), xs, ys) + far)
    assert one or count == 9 or abs(mu - other) > 0.005


def test_the_first_rows_are_shown_and_only_files_in_the_folder_are_links():
    receipt = a_receipt()
    receipt["plan"]["query"] = [{"name": "total", "measure": "count", "at": ["state"]}]
    paths = ["tables/two words.csv", "../secret.csv", "javascript:alert(1)", "/etc/passwd"]
    receipt["tables"] = [a_file("total", "state", path, 1) for path in paths]
    hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'</style>"
    keys = pa.array([hostile, "k" * 500, None, "d", "e"])
    table = a_table(range(5)).set_column(0, "place", keys)
    for folder, leads in (("", ""), ("../out put/", "../out%20put/")):
        reader = Structure(page_from(receipt, {"total.state": table}, folder=folder))
        links = {link for link in reader.values("href") if not link.startswith("#")}
        assert f"{leads}tables/two%20words.csv" in links
        assert links <= {
            f"{leads}{p}" for p in ("tables/two%20words.csv", "javascript%3Aalert%281%29")
        }
    for said in (hostile[:39] + "… 0", "k" * 39 + "… 1", "– 2"):
        assert said in reader.words
    assert "d 3" not in reader.words


def test_first_rows_have_every_digit_of_whole_numbers_and_keys_stay_as_they_are():
    receipt = a_receipt()
    receipt["plan"]["query"] = [{"name": "total", "measure": "count", "at": ["state"]}]
    for value, said in (
        (15_546_150, "2024 15,546,150"),
        (10**18, f"2024 {10**18:,}"),
        (-98_765.5, "2024 -98,765.5"),
        (0.0000123456789, "2024 0.0000123457"),
    ):
        values = {"year": [2024], "value": [value]}
        values |= {name: [float(value)] for name in ("standard_error", "lower", "upper")}
        assert said in text_of(receipt, {"total.state": pa.table(values)}), said


def test_of_many_tables_the_least_accurate_come_first():
    receipt = a_receipt()
    receipt["mechanisms"] = [an_entry(f"q{i}", "x", "1/10") for i in range(10)]
    tables = {f"q{i}.x": a_table([1000] * i + [1] * (10 - i)) for i in range(10)}
    text = text_of(receipt, tables)
    text = text[text.index("Cells within 5%") : text.index("See all tables")]
    assert re.findall(r"q(\d), by x", text) == ["0", "1", "2", "3", "4"]


def test_values_are_in_the_unit_that_the_plan_declares():
    receipt = a_receipt()
    receipt["plan"]["columns"] = {
        "pay": {"integer": True, "measurement_unit": "USD"},
        "time": {"integer": True, "measurement_unit": "hours"},
        "age": {"integer": True},
    }
    queries = {
        "USD": {"measure": "sum", "column": "pay"},
        "the square of USD": {"measure": "variance", "column": "pay"},
        "USD per hours": {"measure": "ratio", "column": "pay", "over": "time"},
        "rows": {"measure": "histogram", "column": "pay", "edges": ["0", "1"]},
        "distinct values": {"measure": "distinct", "column": "town"},
        "not declared; values are as the column has them": {"measure": "mean", "column": "age"},
    }
    receipt["plan"]["query"] = [part | {"name": f"q{i}"} for i, part in enumerate(queries.values())]
    said = re.findall(r"Unit of the values (.*?) Privacy unit", text_of(receipt, {}))
    assert said == [*queries]


def a_plan_of_patients(**unit):
    """Three tables of visits: a count by ward, all visits, and a mean of a column with NULLs."""
    return {
        "schema": 2, "name": "midwest", "dataset": "d@1", "table": "visits",
        "unit": {"protects": "patient", "neighboring": "replace-one", **unit},
        "columns": {"ward": {"keys": ["S", "T"]}, "cost": {"integer": True}},
        "budget": {"power": "0.25", "level": "0.05"},
        "query": [
            {"name": "wards", "measure": "count", "by": ["ward"], "share": "1/4"},
            {"name": "visits", "measure": "count", "share": "1/4"},
            {"name": "cost", "measure": "mean", "column": "cost", "clip": [0, 9], "share": "1/2"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize("unit", [{"id": "id", "rows": 20}, {"rows": 1}])
def test_the_first_screen_states_which_rows_count(unit):
    plan = Plan.from_dict(a_plan_of_patients(**unit))
    text = text_of(a_receipt() | {"plan": plan.canonical()})
    first = text[: text.index("Disclosure risk for one")]
    assert " ".join(counted_rows(plan)) in first
    assert ("rows without an id are not counted" in first) == ("id" in unit)


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, "Every row counts."), ({"where": "cost > 2"}, "Every row that the filter takes counts.")],
)
def test_a_release_that_drops_no_row_states_no_loss(change, said):
    plan = a_plan_of_patients() | change
    plan["unit"]["protects"] = "record"
    plan["columns"]["ward"]["unknown"] = "T"
    plan["query"] = [plan["query"][0] | {"share": "1"}]
    text = text_of(a_receipt() | {"plan": Plan.from_dict(plan).canonical()})
    assert f"Which rows count {said} " in text
    assert "unknown amount" not in text


@pytest.mark.parametrize(("protects", "column", "assumed"), [
    ("household", None, True), ("person", None, True), ("household", "house", False),
    ("row", None, False), ("Record", None, False),
])  # fmt: skip
def test_the_assumption_of_one_row_each_stands_below_the_headline(protects, column, assumed):
    receipt = a_receipt()
    receipt["unit"]["protects"] = protects
    receipt["plan"] |= {"unit": {"protects": protects, "id": column}}
    headline = words.power("0.05", "0.25", protects)
    said = f"{headline} The guarantee assumes that each {protects} has at most one row."
    assert (said in text_of(receipt)) == assumed


@pytest.mark.parametrize(("mechanism", "above"), [
    (ny.Gaussian(1), 1e-9),
    (ny.DiscreteGaussian(sigma=4, sensitivity=[(3,), (1, 2, 1)]), 0.03),
    (ny.Gaussian(0.5).subsample(rate=0.1), 0.03),
    (ny.ExponentialMechanism(epsilon=2) + ny.Laplace(1), 0.06),
    (ny.RandomSubset(size=1, population=20), 0.03),
])  # fmt: skip
def test_the_success_that_follows_from_a_receipt_is_above_the_curves(mechanism, above):
    receipt = Receipt.read(a_receipt()).model_copy(update={"guarantee": guarantee(mechanism)})
    table = text_of(receipt.to_dict()).partition("Chance with it (at most)")[2]
    rows = re.findall(r"([\d.]+)% ([\d.]+)%", table.partition("Conditions")[0])
    assert len(rows) > 6
    for baseline, said in rows:
        exact = mechanism.tradeoff().success(float(baseline) / 100)
        shown = float(said) / 100
        assert exact.lower <= shown + 1e-12
        assert shown <= exact.upper + above + max(1e-3, 0.02 * exact.upper)


def test_the_median_of_more_cells_than_are_sorted_is_that_of_all(tmp_path):
    count = 2**22 + 3
    value = np.random.default_rng(1).permutation(count)
    for outliers in (0, 3):
        value[:outliers] = 10**15
        table = pa.table({"value": value, "lower": value - 4, "upper": value + 4})
        pq.write_table(table, tmp_path / "t.parquet")
        with pq.ParquetFile(tmp_path / "t.parquet") as file:
            text = text_of(a_receipt(), {"total.county": file})
        assert f"total, by county 4 {int(np.median(value)):,} ± 4" in text


# The registry's schema at the commit that the module names: required fields.
REQUIRED = {
    "deployment": "name data_curator description intended_use data_product_type "
    "data_product_region publication_date",
    "dp_flavor": "name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_parameters",
    "model": "model_name",
    "accounting": "post_processing composition",
    "implementation": "pre_processing_eda_hyperparameter_tuning mechanisms justification",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return a_small_release(tmp_path_factory.mktemp("registry"), SMALL)


def a_small_release(folder, plan):
    ledger = ny.Ledger(folder / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    (folder / "people.csv").write_text("race\nwhite\nblack\n")
    return release_of(Plan.from_dict(plan), folder / "people.csv", ledger, folder / "out")


def deployment_of(receipt):
    return yaml.safe_load(registry_text(receipt))["deployment"]


def test_the_record_has_every_field_that_the_schema_requires(small, tmp_path):
    path = tmp_path / "registry.yaml"
    answered("report", small.folder, "--registry", "--out", path)
    assert path.read_text() == registry_text(small.receipt)
    hostile = 'a: "b"\n# c\nstatus: Approved'
    for dataset in ("people@1", hostile):
        text = registry_text(small.receipt.model_copy(update={"dataset": dataset}))
        content = yaml.safe_load(text)
        assert set(content) == {"status", "registry_authors", "tier", "deployment"}
        assert content["status"] != "Approved"
        assert content["tier"] == 1
        deployment = content["deployment"]
        assert dataset in deployment["description"]
        for part, names in REQUIRED.items():
            fields = deployment if part == "deployment" else deployment[part]
            assert {*names.split()} <= set(fields), part


def test_what_the_receipt_does_not_know_is_labeled(small):
    receipt = small.receipt
    deployment = deployment_of(receipt)
    for name in ("data_curator", "intended_use", "data_product_region", "publication_date"):
        assert deployment[name].startswith("NOT IN THE RECEIPT: ")
    plan = receipt.plan | {"publisher": "Office <of> Statistics"}
    deployment = deployment_of(receipt.model_copy(update={"plan": plan}))
    assert deployment["data_curator"] == "Office <of> Statistics"
    said = f"; the ledger was charged on {receipt.ledger.date} (UTC)"
    assert deployment["publication_date"].endswith(said)


def test_the_numbers_of_a_record_follow_from_the_receipt(small, tmp_path):
    receipt = small.receipt
    rho = deployment_of(receipt)["privacy_loss"]["privacy_parameters"]["rho"]
    assert receipt.guarantee.rho.upper <= rho <= receipt.guarantee.rho.upper * 1.00001
    unit = {"protects": "person", "id": "who", "rows": 3}
    plan = receipt.plan | {"unit": unit, "tables": {"people": {"rows": 1}, "drugs": {"rows": 5}}}
    loss = deployment_of(receipt.model_copy(update={"plan": plan}))["privacy_loss"]
    assert "all rows of one person (9 rows at most)" in loss["privacy_unit_description"]
    total = {"name": "all", "measure": "count", "public": {"all": 2}}
    more = SMALL | {"consistency": {"method": "least-squares"}, "query": [*SMALL["query"], total]}
    said = deployment_of(a_small_release(tmp_path, more).receipt)["description"]
    assert said == "1 noisy table of people@1"
