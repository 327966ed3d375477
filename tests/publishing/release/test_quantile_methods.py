"""Quantiles by inverse sensitivity in a plan: published near the truth, verified, and refused."""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from neyman import InverseSensitivity, Ledger
from neyman.accounting import sentences as words
from neyman.display import page
from neyman.publishing import Cells, Plan, PlanError, errors, forms, noisy_part, rate_of, verify
from plans import release
from seeded import Seeded

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

METHOD = {"method": "inverse-sensitivity", "column": "paid", "clip": [0, 100]}
PLAN = {
    "schema": 2, "name": "pay", "dataset": "pay@1", "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {"sex": {"keys": ["f", "m"]}, "paid": {"decimals": 2, "parse": True}},
    "budget": {"zcdp": 2},
    "query": [
        {"name": "middle", "measure": "median", **METHOD, "by": ["sex"], "share": "1/4"},
        {"name": "parts", "measure": "quantiles", **METHOD, "quantiles": ["1/4", "1/2", "0.9"],
         "share": "1/4"},
        {"name": "most", "measure": "max", **METHOD, "where": "sex == 'f'", "share": "1/4"},
        {"name": "people", "measure": "count", "by": ["sex"], "share": "1/4"},
    ],
}  # fmt: skip


def a_plan(**changes):
    first = {**PLAN["query"][0], "share": 1, **changes}
    query = {name: value for name, value in first.items() if value is not None}
    return Plan.from_dict({**PLAN, "query": [query]})


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    place = tmp_path_factory.mktemp("pay")
    draws = random.Random(3)
    rows = {
        "sex": [draws.choice("fm") for _ in range(5000)],
        "paid": [f"{min(draws.lognormvariate(3, 0.8), 99):.2f}" for _ in range(5000)],
    }
    Ledger(place / "l.db").create("pay@1", protects="person", neighboring="replace-one", cap=2)
    out = release(
        Plan.from_dict(PLAN), pa.table(rows), place / "l.db", place / "out", pages={"p.html": page}
    )
    return rows, out


def rank(values, x):
    """How many ranks x has, at least and at most, as parts of the rows."""
    return sum(v < x for v in values) / len(values), sum(v <= x for v in values) / len(values)


def test_each_quantile_is_within_its_margin_of_ranks(released):
    """Three times the 90% margin: a false alarm below 1e-10 for each."""
    rows, out = released
    paid = [float(x) for x in rows["paid"]]
    own = {s: [x for x, t in zip(paid, rows["sex"], strict=True) if t == s] for s in "fm"}
    margin = {e.query: e.by_rows[0][2] for e in errors(Plan.from_dict(PLAN), rows=(2000,))[:3]}
    asked = [
        (row["value"], own[row["sex"]], 0.5, "middle")
        for row in out.tables["middle.all"].to_pylist()
    ]
    asked += [
        (row["value"], paid, row["quantile"], "parts")
        for row in out.tables["parts.all"].to_pylist()
    ]
    asked += [(out.tables["most.all"]["value"][0].as_py(), own["f"], 0.99, "most")]
    assert len(asked) == 6
    for value, values, level, name in asked:
        low, high = rank(values, float(value))
        assert low - 3 * margin[name] <= level <= high + 3 * margin[name]
    for row in out.tables["middle.all"].to_pylist():
        assert (row["lower"], row["upper"]) == (0, 100)
        assert row["value"].as_tuple().exponent == -2
    values = out.tables["parts.all"]["value"].to_pylist()
    assert values == sorted(values)


def test_the_release_verifies_and_its_receipt_names_the_mechanism(released):
    _, out = released
    assert [c for c in verify(out.folder, {"p.html": page}) if not c.ok] == []
    parts = {m["query"]: m for m in out.receipt["mechanisms"]}
    assert parts["middle"]["mechanism"]["type"] == "InverseSensitivity"
    assert (parts["middle"]["measure"], parts["middle"]["cells"]) == ("rank", 2)
    assert parts["parts"]["mechanism"]["draws"] == 3
    assert Fraction(out.receipt["ledger"]["charged"]) <= 2
    plan = Plan.from_dict(PLAN)
    assert Plan.from_dict(out.receipt["plan"]).hash == plan.hash
    assert "edges" not in out.receipt["plan"]["query"][0]


@pytest.mark.parametrize(("budget", "noise"), [
    ({"power": 0.3, "level": 0.05}, "discrete-gaussian"),
    ({"gdp": 1}, "discrete-gaussian"),
    ({"epsilon": 2, "delta": 1e-6}, "discrete-gaussian"),
    ({"gdp": 1}, "rounded-gaussian"),
])  # fmt: skip
def test_every_kind_of_budget_is_met_beside_each_kind_of_noise(budget, noise):
    middle, *_, people = PLAN["query"]
    query = [{**middle, "share": "1/2"}, {**people, "share": "1/2"}]
    plan = Plan.from_dict({**PLAN, "budget": budget, "noise": noise, "query": query})
    assert plan.admits(plan.mechanism())
    assert [entry.rounded for entry in plan.entries()] == [False, noise == "rounded-gaussian"]


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_a_plan_spends_is_its_share(relation, rows):
    unit = {"protects": "person", "neighboring": relation, "rows": rows, "id": "id"}
    plan = Plan.from_dict({**PLAN, "unit": unit})
    for entry in plan.entries()[:3]:
        sigma_squared = entry.sigma_squared(plan.scale)
        mechanism = entry.noise(sigma_squared)
        most = entry.share * 2
        assert mechanism.rho() <= most
        rate = rate_of(sigma_squared)
        assert (
            rate**2 * entry.squared / 2
            <= most
            < (rate * (1 + Fraction(1, 10**14))) ** 2 * entry.squared / 2
        )
    assert plan.admits(plan.mechanism())


def test_at_equal_rho_the_rank_error_is_at_most_a_third_of_that_of_64_bins():
    clip, rho = (0, 10_000), Fraction(1, 10)
    values = np.sort(np.random.default_rng(8).lognormal(8, 0.7, 4000).astype(int).clip(0, 10_000))
    plan = {**PLAN, "columns": {"paid": {"integer": True}}, "budget": {"zcdp": str(rho)}}
    query = {"name": "m", "measure": "median", "column": "paid", "share": 1}
    edges = [round(i * (clip[1] + 1) / 64) for i in range(65)]
    off = {}
    for name, fields in (
        ("bins", {"edges": edges}),
        ("drawn", {"method": "inverse-sensitivity", "clip": list(clip)}),
    ):
        asked = Plan.from_dict({**plan, "query": [{**query, **fields}]})
        (form,) = forms(asked, asked.calibrated())
        held = np.searchsorted(edges, values, "right") - 1 if name == "bins" else values
        index, counts = np.unique(held, return_counts=True)
        exact = Cells(64 if name == "bins" else clip[1] + 1, index, counts)
        measure, bits = form.entries[0][0].measure, Seeded(4)
        ranks = []
        for _ in range(200):
            noisy = noisy_part(form, {("m", "all", measure): exact}, range(form.cells), bits)
            (answer,) = form.build(noisy)["value"].to_pylist()
            ranks.append(np.searchsorted(values, answer, "left") - 2000)
        off[name] = math.sqrt(np.mean(np.square(ranks)))
        (error,) = errors(asked, rows=(4000,))
        assert off[name] == pytest.approx(error.by_rows[0][1] * 4000, rel=0.25) or name == "bins"
    assert off["drawn"] <= off["bins"] / 3


def an_interval(level="1/2", relation="add-remove", rho="1/10", clip=(0, 100), **fields):
    """A plan of one quantile with a drawn interval, of whole numbers."""
    return Plan.from_dict({
        "schema": 2, "name": "pay", "dataset": "pay@1", "table": "people",
        "unit": {"protects": "person", "neighboring": relation, "rows": 1},
        "columns": {"paid": {"integer": True}}, "budget": {"zcdp": rho},
        "query": [
            {"name": "m", "measure": "quantiles", "quantiles": [level], "column": "paid",
             "method": "inverse-sensitivity-interval", "clip": list(clip), "share": 1, **fields},
        ],
    })  # fmt: skip


def published_rows(plan, values, times, seed):
    """The rows that so many releases of these values publish."""
    (form,) = forms(plan, plan.calibrated())
    assert form.query.bins is not None
    low, high = form.query.bins[0], form.query.bins[-1]
    index, counts = np.unique(np.asarray(values) - low, return_counts=True)
    exact, bits = {("m", "all", "rank"): Cells(high - low, index, counts)}, Seeded(seed)
    for _ in range(times):
        yield from form.build(noisy_part(form, exact, range(form.cells), bits)).to_pylist()


@pytest.mark.parametrize(("values", "level"), [
    ([7] * 30 + [90], "1/2"), (list(range(101)) * 2, "1/2"), (list(range(0, 101, 10)), "1/10"),
    ([0, 100], "1/2"), ([3], "0.99"),
])  # fmt: skip
def test_an_interval_holds_the_quantile(values, level):
    """300 releases, also with less rows than the margin: at least 90% of the intervals.

    At a coverage of 90%, fewer than 235 have a chance of 1e-9: a false alarm below 1e-8 in all.
    """
    n, q = len(values), Fraction(level)
    right = [
        t for t in range(101) if sum(x < t for x in values) <= q * n <= sum(x <= t for x in values)
    ]
    held = 0
    for row in published_rows(an_interval(level), values, 300, 11):
        assert 0 <= row["lower"] <= row["value"] <= row["upper"] <= 100
        held += row["lower"] <= right[0] and right[-1] <= row["upper"]
    assert held >= 235


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_an_interval_is_about_as_wide_as_its_margin(relation):
    """60 intervals of 2,001 values, a rank apart: half a width within 10% of the margin.

    An end is Laplace about its rank, with standard deviation below a sixth of the margin. So the
    mean of 60 half widths has a standard deviation below 1.6%: a false alarm below 1e-9.
    """
    plan = an_interval(relation=relation, clip=(0, 2000))
    margin = errors(plan, rows=(10**6,))[0].by_rows[0][2] * 10**6
    rows = list(published_rows(plan, range(2001), 60, 5))
    half = np.mean([row["upper"] - row["lower"] for row in rows]) / 2
    assert half == pytest.approx(margin, rel=0.1)
    assert np.mean([abs(row["value"] - 1000) for row in rows]) < margin / 5


def test_an_interval_costs_two_more_draws():
    alone = an_interval(method="inverse-sensitivity").mechanism()
    paid = an_interval().mechanism()
    assert isinstance(alone, InverseSensitivity)
    assert isinstance(paid, InverseSensitivity)
    assert (alone.draws, paid.draws) == (1, 3)
    assert float(alone.rate / paid.rate) == pytest.approx(math.sqrt(3), rel=1e-12)
    assert paid.rho() <= Fraction(1, 10)


@pytest.mark.parametrize(("clip", "rho", "most_rows", "method"), [
    ((0, 1), "1/10", None, 2),  # a bin for each value
    ((0, 10), "1/10", None, 11),
    ((0, 100), "1/10", None, "drawn"),
    ((0, 10**5), "1/1000", None, 64),  # a wide clip, and much noise
    ((0, 10**5), "1/1000", 50, 64),
    ((0, 10**5), "1", None, "drawn"),  # of 1,000 rows a bin holds more than the margin
    ((0, 10**6), "1/2", 100, 64),  # of 100 rows it holds less
    ((0, 10**6), "1/2", None, "drawn"),
])  # fmt: skip
def test_a_clip_without_a_method_gets_the_narrower_interval(clip, rho, most_rows, method):
    content = an_interval(clip=clip, rho=rho).canonical()
    del content["query"][0]["method"]
    plan = Plan.from_dict(content | ({"most_rows": most_rows} if most_rows else {}))
    chosen = plan.canonical()
    (query,) = chosen["query"]
    if method == "drawn":
        assert query["method"] == "inverse-sensitivity-interval"
        assert query["clip"] == list(clip)
    else:
        assert {"method", "clip"}.isdisjoint(query)
        assert len(query["edges"]) == method + 1
        assert (query["edges"][0], query["edges"][-1]) == (clip[0], clip[1] + 1)
    assert Plan.from_dict(chosen).hash == plan.hash
    for other in ("1/100000", "100"):
        again = Plan.from_dict(chosen | {"budget": {"zcdp": other}})
        assert again.canonical()["query"] == chosen["query"]


def test_no_screen_shows_half_the_clip_as_an_error(tmp_path):
    Ledger(tmp_path / "l.db").create("pay@1", protects="person", neighboring="replace-one", cap=2)
    draws = random.Random(4)
    rows = {
        "sex": [draws.choice("fm") for _ in range(3000)],
        "paid": [f"{draws.uniform(20, 30):.2f}" for _ in range(3000)],
    }
    first = {**PLAN["query"][0], "share": "1/2"}
    query = [
        {**first, "name": "alone"},
        {**first, "name": "ends", "method": "inverse-sensitivity-interval"},
    ]
    plan = Plan.from_dict({**PLAN, "schema": 2, "query": query})
    out = release(plan, pa.table(rows), tmp_path / "l.db", tmp_path / "out", pages={"p.html": page})
    assert [c for c in verify(out.folder, {"p.html": page}) if not c.ok] == []
    alone, ends = (out.tables[f"{name}.all"].to_pylist() for name in ("alone", "ends"))
    assert [row["standard_error"] for row in alone] == [math.inf, math.inf]
    assert all(20 <= row["lower"] <= row["value"] <= row["upper"] <= 30 for row in ends)
    text = (out.folder / "p.html").read_text("utf-8")
    ranks = next(m for m in out.receipt["mechanisms"] if m["query"] == "alone")["half_width_90"]
    assert f"± {words.number(ranks)} ranks" in text
    assert "± 50" not in text
    assert "of the n rows of a cell, fewer than qn + " in text


def test_the_margin_of_ranks_holds_whatever_the_rows_are():
    plan = a_plan(clip=[0, "0.05"], by=None)
    (form,) = forms(plan, plan.calibrated())
    ((_, _, half),) = errors(plan, rows=(10**6,))[0].by_rows
    half *= 10**6
    rate = float(rate_of(form.entries[0][1])) * 2
    for table in itertools.combinations_with_replacement(range(6), 5):
        away = [
            max(0, sum(x < t for x in table) - 2.5, 2.5 - sum(x <= t for x in table))
            for t in range(6)
        ]
        weights = np.exp([-rate * d for d in away])
        assert weights[np.array(away) > half].sum() <= 0.1 * weights.sum()


def test_a_plan_s_attributes_move_ranks_as_a_row_does():
    plan = Plan.from_dict({**PLAN, "query": [{**PLAN["query"][0], "share": 1}]})
    rate = Fraction(plan.mechanism().to_dict()["rate"])
    for name, vectors in (("paid", [[2]]), ("sex", [[1, 1]])):
        content = plan.concerning(name).to_dict()
        assert (content["sensitivity"], Fraction(content["rate"])) == (vectors, rate)


@pytest.mark.parametrize(("changes", "words"), [
    ({"clip": None}, "needs clip = [low, high]"),
    ({"edges": [0, 1]}, "takes none with method = 'inverse-sensitivity'; leave it out"),
    ({"method": "exact"}, "must be 'bins', 'inverse-sensitivity', or"),
    ({"method": "bins"}, "clip (of query 'middle') = [0, 100]: a median takes none"),
    ({"clip": [0, "0.001"]}, "must be numbers of at most 2 decimals"),
    ({"clip": [5, 5]}, "the low end must be below the high end"),
    ({"measure": "count", "clip": None, "column": None}, "a count takes none"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(PlanError) as error:
        a_plan(**changes)
    assert words in str(error.value)


def test_too_many_points_are_refused_before_any_data():
    """2^62 points of a table's grids are the most that its integers can number."""
    columns = {**PLAN["columns"], "place": {"keys": [f"{i}" for i in range(2000)]}}
    query = {**PLAN["query"][0], "clip": [0, 2**46], "by": ["place"], "share": 1}
    with pytest.raises(PlanError, match="narrow the clip"):
        Plan.from_dict({**PLAN, "columns": columns, "query": [query]})


def test_empty_groups_and_no_rows_give_points_of_the_clip(tmp_path):
    Ledger(tmp_path / "l.db").create("pay@1", protects="person", neighboring="replace-one", cap=2)
    table = pa.table({"sex": pa.array([], pa.string()), "paid": pa.array([], pa.string())})
    out = release(Plan.from_dict(PLAN), table, tmp_path / "l.db", tmp_path / "out")
    values = [
        x for t in ("middle", "parts", "most") for x in out.tables[f"{t}.all"]["value"].to_pylist()
    ]
    assert len(Counter(values)) == 6
    assert all(0 <= value <= 100 for value in values)
    assert [c for c in verify(out.folder) if not c.ok] == []


def test_the_scenarios_of_a_receipt_have_the_noise_of_the_release(tmp_path):
    query = {**PLAN["query"][0], "share": 1}
    plan = Plan.from_dict({**PLAN, "query": [query], "budget": {"power": 0.25, "level": 0.05}})
    Ledger(tmp_path / "l.db").create("pay@1", protects="person", neighboring="replace-one", cap=2)
    out = release(
        plan, pa.table({"sex": ["f"], "paid": ["1"]}), tmp_path / "l.db", tmp_path / "out"
    )
    scenarios = out.receipt["guarantee"]["scenarios"]
    (paid,) = (one for one in scenarios if one["attributes"] == ["paid"])
    right = plan.concerning("paid").tradeoff().power(level=0.05)
    (said,) = (point for point in paid["power"] if point["level"] == 0.05)
    assert said["upper"] >= right.lower
    assert said["upper"] == pytest.approx(right.upper, rel=1e-9)
    assert plan.mechanism().rho() < 1 / plan.scale
