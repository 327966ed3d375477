"""Quantiles by inverse sensitivity in a plan: published near the truth, verified, and refused."""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from neyman.display.report.report import page
from neyman.ledger.ledger import Ledger
from neyman.noise import Bits
from neyman.publishing.engines.cells import Cells
from neyman.publishing.plan.measurement import rate_of
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import PlanError
from neyman.publishing.planning.accuracy import errors
from neyman.publishing.release.add_noise import noisy_part
from neyman.publishing.release.receipt import draft
from neyman.publishing.release.verify.verification import verify
from neyman.publishing.tables.forms import forms
from plans import release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

METHOD = {"method": "inverse-sensitivity", "column": "paid", "clip": [0, 100]}
PLAN = {
    "schema": 1,
    "name": "pay",
    "dataset": "pay@1",
    "table": "people",
    "unit": {"protects": "person", "neighboring": "replace-one"},
    "columns": {"sex": {"keys": ["f", "m"]}, "paid": {"decimals": 2, "parse": True}},
    "budget": {"zcdp": 2},
    "query": [
        {"name": "middle", "measure": "median", **METHOD, "by": ["sex"], "share": "1/4"},
        {
            "name": "parts",
            "measure": "quantiles",
            **METHOD,
            "quantiles": ["1/4", "1/2", "0.9"],
            "share": "1/4",
        },
        {"name": "most", "measure": "max", **METHOD, "where": "sex == 'f'", "share": "1/4"},
        {"name": "people", "measure": "count", "by": ["sex"], "share": "1/4"},
    ],
}


class Words(Bits):
    """Words that are the same in every run."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)

    def words(self, count):
        """So many words."""
        return self.draw.integers(0, 2**64, count, dtype=np.uint64)


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
    """Charged is at most the plan's rho; the plan of the receipt is the plan."""
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


@pytest.mark.parametrize(
    ("budget", "noise"),
    [
        ({"power": 0.3, "level": 0.05}, "discrete-gaussian"),
        ({"gdp": 1}, "discrete-gaussian"),
        ({"epsilon": 2, "delta": 1e-6}, "discrete-gaussian"),
        ({"gdp": 1}, "rounded-gaussian"),
    ],
)
def test_every_kind_of_budget_is_met_beside_each_kind_of_noise(budget, noise):
    """A median and a count together: the calibrated mechanism is admitted."""
    middle, *_, people = PLAN["query"]
    query = [{**middle, "share": "1/2"}, {**people, "share": "1/2"}]
    plan = Plan.from_dict({**PLAN, "budget": budget, "noise": noise, "query": query})
    assert plan.admits(plan.mechanism())
    assert [entry.rounded for entry in plan.entries()] == [False, noise == "rounded-gaussian"]


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_a_plan_spends_is_its_share(relation, rows):
    """rho of the mechanism is below share times rho, and the rate is the most that it allows."""
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
    """Of 200 medians of 4,000 lognormal values, in 64 bins of one width and drawn: below 1/3."""
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
        measure, bits = form.entries[0][0].measure, Words(4)
        ranks = []
        for _ in range(200):
            noisy = noisy_part(form, {("m", "all", measure): exact}, range(form.cells), bits)
            (answer,) = form.build(noisy)["value"].to_pylist()
            ranks.append(np.searchsorted(values, answer, "left") - 2000)
        off[name] = math.sqrt(np.mean(np.square(ranks)))
        (error,) = errors(asked, rows=(4000,))
        assert off[name] == pytest.approx(error.by_rows[0][1] * 4000, rel=0.25) or name == "bins"
    assert off["drawn"] <= off["bins"] / 3


def test_the_margin_of_ranks_holds_whatever_the_rows_are():
    """Exact distributions of small tables: ranks are off by more with a chance of at most 10%."""
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
    """A value that changes moves its own group by one rank; a key moves two groups by a half."""
    plan = Plan.from_dict({**PLAN, "query": [{**PLAN["query"][0], "share": 1}]})
    rate = Fraction(plan.mechanism().to_dict()["rate"])
    for name, vectors in (("paid", [[2]]), ("sex", [[1, 1]])):
        content = plan.concerning(name).to_dict()
        assert (content["sensitivity"], Fraction(content["rate"])) == (vectors, rate)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip": None}, "needs clip = [low, high]"),
        ({"edges": [0, 1]}, "takes none with method = 'inverse-sensitivity'; leave it out"),
        ({"method": "exact"}, "must be 'bins', 'inverse-sensitivity', or"),
        ({"method": "bins"}, "clip (of query 'middle') = [0, 100]: a median takes none"),
        ({"clip": [0, "0.001"]}, "must be numbers of at most 2 decimals"),
        ({"clip": [5, 5]}, "the low end must be below the high end"),
        ({"measure": "count", "clip": None, "column": None}, "a count takes none"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    """Each error names the field, its value, and what is right."""
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
    """Every value is of the grid, and the files verify."""
    Ledger(tmp_path / "l.db").create("pay@1", protects="person", neighboring="replace-one", cap=2)
    table = pa.table({"sex": pa.array([], pa.string()), "paid": pa.array([], pa.string())})
    out = release(Plan.from_dict(PLAN), table, tmp_path / "l.db", tmp_path / "out")
    values = [
        x for t in ("middle", "parts", "most") for x in out.tables[f"{t}.all"]["value"].to_pylist()
    ]
    assert len(Counter(values)) == 6
    assert all(0 <= value <= 100 for value in values)
    assert [c for c in verify(out.folder) if not c.ok] == []


def test_the_scenarios_of_a_receipt_have_the_noise_of_the_release():
    """Drawn quantiles cost less than their share, so the rho that is charged is not the plan's."""
    queries = [{**query, "share": "1/3"} for query in PLAN["query"][:3]]
    plan = Plan.from_dict({**PLAN, "query": queries, "budget": {"power": 0.25, "level": 0.05}})
    receipt = draft(plan, plan.calibrated(), "zcdp")
    (paid,) = (one for one in receipt.guarantee.scenarios if one.attributes == ("paid",))
    right = plan.concerning("paid").tradeoff().power(level=0.05)
    (said,) = (point for point in paid.power if point.level == 0.05)
    assert said.upper >= right.lower
    assert said.upper == pytest.approx(right.upper, rel=1e-9)
    assert plan.mechanism().rho() < 1 / plan.scale
