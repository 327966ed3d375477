"""The page: self-contained, escaped, true to the receipt, and whole for every receipt."""

import copy
import json
import math
import re
import shutil
import tomllib
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import neyman as ny
from neyman.accounting import budget_of, digits
from neyman.accounting import sentences as words
from neyman.accounting.semantics.bayes import ATTACKERS
from neyman.display.report import html as markup
from neyman.display.report import receipt_view as reading
from neyman.display.report import report
from neyman.display.report.measurement_units import unit_of_values
from neyman.display.report.risk_section import LIMITS as RISK_LIMITS
from neyman.display.report.risk_section import PEOPLE, one_line, people, success_above
from neyman.display.report.table_section import first_rows
from neyman.elements import element
from neyman.publishing import Plan, Receipt, counted_rows, guarantee, mechanism_list, verify
from random_laws import examples, is_small

# DuckDB's own Arrow reader calls a method that it has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Reader(HTMLParser):
    """Text, tags and attributes; fails on tags that are not closed in order."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def bound(x, gap=1e-9):
    return {"lower": x if x == "inf" else x * (1 - gap), "upper": x}


def a_table(values, margin=5):
    values = np.asarray(values, dtype=np.int64)
    columns = {"place": [str(i) for i in range(len(values))], "value": values}
    columns["standard_error"] = np.full(len(values), margin / 1.645)
    return pa.table(columns | {"lower": values - margin, "upper": values + margin})


def an_entry(query, level, share="1/2", zcdp="47/200", cells=2, **more):
    return {
        "query": query,
        "level": level,
        "measure": "count",
        "count": 1,
        "share": share,
        "cells": cells,
        "zcdp": zcdp,
        "standard_error": 2.91,
        "half_width_90": 5,
        "mechanism": {"kind": "DiscreteGaussian"},
    } | more


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
    return Reader(report.page_from(receipt, tables)).text


def test_the_page_is_one_whole_file():
    html = report.page_from(a_receipt(), TABLES)
    reader = Reader(html)
    assert html.startswith("<!DOCTYPE html>")
    tags = dict(reader.elements)
    assert tags["html"] == {"lang": "en"}
    assert any(a.get("name") == "viewport" for t, a in reader.elements if t == "meta")
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert "url(" not in html
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(tags)
    for _, attributes in reader.elements:
        assert not {"src", "srcset", "data", "xlink:href", "action"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    policy = next(a["content"] for _, a in reader.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("; base-uri 'none'; form-action 'none'")


def test_links_labels_and_headings_have_their_targets():
    reader = Reader(report.page_from(a_receipt(), TABLES))
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in reader.elements:
        for name in ("aria-labelledby", "for"):
            assert set(attributes.get(name, ids[0]).split()) <= set(ids)
        if "href" in attributes:
            assert attributes["href"][1:] in ids


def test_the_sentence_comes_before_every_other_number():
    text = text_of(a_receipt())
    order = [
        "midwest",
        "every person in the data",
        "5%: no information",
        "(90%) at a median value of",
        words.power("0.05", "0.25"),
        "Margin of error (90%)",
        "Counts can be negative and need not add up.",
        "at most 12.5 of them. 50 are false, and it confirms 2.5. So a positive result is correct "
        "at most 83.4% of the time, rounded up.",
        "Presence in the data is not protected.",
        "Trade-off curve",
        "Risk at other false positive rates",
        "Privacy budget by table",
        "Guarantee in standard definitions",
        "neyman verify receipt.json",
    ]
    places = [
        text.index(part, text.index("one person")) if i else 0 for i, part in enumerate(order)
    ]
    assert places == sorted(places)


def test_numbers_equal_the_receipts_rounded_against_the_release():
    text = text_of(a_receipt())
    for said in (
        "8.8% 89.8%",  # .0872 at .01, and its posterior .08972 / ...
        "25% 83.4%",
        "37.8% 79.1%",
        "1 in 100 100 25 495 4.9%",
        "1 in 10 1,000 250 450 35.8%",
        "5,000 1,250 250 83.4%",
        "epsilon, delta 0.001 2.72",
        "epsilon, delta 10⁻⁶ 4.02",
        "a factor of 55.3, plus a probability of 1 in a million",
        "mu, 0.01% to 50% 0.971 At every false positive rate from 0.01% to 50%",
        "mu (Gaussian) 0.971",
        "rho (zCDP) 0.47 ",
        "total variation 0.373",
        "1.14 times the noise variance",
        "(power < 1/4)",
        "Charged 0.47 (zcdp)",
    ):
        assert said in text, said


def test_a_wide_bound_shows_both_ends():
    receipt = a_receipt()
    receipt["guarantee"]["mu"] = {"lower": 0.9049, "upper": 1.0458}
    assert "1.05 at least 0.904" in text_of(receipt)
    receipt["guarantee"]["mu"] = {"lower": 0.9049, "upper": "inf"}
    assert "∞ at least 0.904" in text_of(receipt)


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
    powers = receipt["guarantee"]["power"]
    for extra in (
        [*powers, {"level": 0.05, **bound(0.06)}],
        [{"level": 0.05, **bound(0.06)}, *powers],
    ):
        receipt["guarantee"]["power"] = extra
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


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (None, "Whole numbers drawn exactly from the discrete Gaussian distribution"),
        ("discrete-gaussian", "Whole numbers drawn exactly from the discrete Gaussian"),
        ("rounded-gaussian", "Normal noise, drawn exactly and rounded to whole numbers"),
    ],
)
def test_the_kind_of_noise_is_said_in_words(noise, said):
    receipt = a_receipt()
    receipt["plan"] |= {"noise": noise} if noise else {}
    assert said in text_of(receipt)
    receipt["mechanisms"] = [part | {"measure": "rank"} for part in receipt["mechanisms"]]
    assert said not in text_of(receipt)
    assert "Quantiles drawn at random" in text_of(receipt)


def test_public_tables_are_named_and_not_counted():
    text = text_of(a_receipt())
    assert "Invariants total by region (1 cell) Declared public" in text
    assert "total, by region" not in text
    assert "2 noisy tables" in text


def a_scenario(attributes, power, within=None, tables=("race.state",), rho=0.2):
    """A scenario as a receipt has it, with power ``power`` at level 5%."""
    mu = ndtri(power) - ndtri(0.05)
    powers = {a: float(ndtr(ndtri(a) + mu)) for a in (0.01, 0.05, 0.1, 0.2)} | {0.05: power}
    points = [{"level": a, **bound(b)} for a, b in powers.items()]
    return {
        "attributes": list(attributes),
        "within": within,
        "tables": list(tables),
        "rho": bound(rho),
        "power": points[:3],
        "curve": points,
        "posterior": beliefs(0.31),
    }


def beliefs(chance):
    """Bounds on posteriors as a receipt has them."""
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
    text = text_of(with_scenarios())
    assert "Risk for one person’s race or county" in text
    assert words.concerning(["race"], "0.05", "0.169") in text
    assert re.search(r"race 5\.\d% 16\.9% [\d.]+% 0\.2 race by state, by county", text)
    assert re.search(
        r"county within a known state [\d.]+% 15\.6% [\d.]+% 0\.2 total by county; race overall",
        text,
    )
    assert re.search(r"whole record 8\.8% 25% 37\.8% 0\.47 all", text)
    order = ["Risk at other false", "Risk for one person’s", "Privacy budget by table"]
    assert sorted(order, key=text.index) == order


def test_beliefs_stand_side_by_side_and_the_worst_is_said():
    receipt = with_scenarios()
    receipt["guarantee"]["scenarios"][1]["posterior"] = beliefs(0.41)
    receipt["guarantee"]["posterior"] = beliefs(0.72)
    text = text_of(receipt)
    text = text[text.index("Effect on an attacker’s beliefs") :]
    assert "race 31% 3.1% 0.31% 0.31%" in text
    assert "county within a known state 41% 4.1% 0.41% 0.41%" in text
    assert "whole record 72% 7.2% 0.72% 0.72%" in text
    for attacker, chance in (("arbitrary-prior", 0.041), ("knows-the-rest", 0.0041)):
        assert (
            words.belief_sentence(attacker, 2.302, chance, about="county", within="state") in text
        )


def test_a_rare_belief_is_not_a_row_of_zeros():
    """Below 0.001% the table says so; a chance of exactly nothing, or of more, is printed."""
    receipt = with_scenarios()
    rare, never, limit = (receipt["guarantee"]["scenarios"][0]["posterior"][i] for i in (0, 1, 2))
    rare |= {"upper": 9.99e-6, "lower": 0.0}
    never |= {"upper": 0.0, "lower": 0.0}
    limit |= {"upper": 1.01e-5, "lower": 0.0}
    assert "race under 0.001% 0% 0.0011%" in text_of(receipt)


def test_without_bounds_on_posteriors_nothing_is_said_of_beliefs():
    receipt = with_scenarios()
    assert "attacker’s beliefs" in text_of(receipt)
    assert "whole record 31%" not in text_of(receipt)


def test_a_receipt_without_scenarios_has_no_section_about_attributes():
    assert "Risk for one" not in text_of(with_scenarios([]))


def test_what_no_table_can_tell_is_said_to_be_nothing():
    none = a_scenario(["sex"], 0.05 * (1 + 1e-12), tables=(), rho=0.0)
    text = text_of(with_scenarios([*SCENARIOS, none]))
    assert "sex 1% 5% 10% 0 none: no risk" in text


def test_under_add_remove_scenarios_are_not_compared_with_the_whole():
    receipt = with_scenarios()
    receipt["neighboring"] = "add-remove"
    text = text_of(receipt)
    assert "whole record" not in text
    assert "These limits can exceed those above, which are about presence in the data" in text
    assert "The limits above cover presence in the data. These cover one attribute" in text
    assert "claims about anything in a record" not in text


def test_a_guarantee_without_a_finite_rho_says_why():
    endless = bound(0.2) | {"upper": "inf"}
    receipt = with_scenarios([a_scenario(["race"], 0.169) | {"rho": endless}])
    text = text_of(receipt)
    assert "∞" in text
    assert "Tables with discovered keys have no finite rho" in text
    assert "no finite rho." not in text_of(with_scenarios())
    assert re.search(r"All [\d,]+ 100%", text_of(receipt))
    receipt["mechanisms"][-1]["cells"] = None
    assert "All – 100%" in text_of(receipt)


def test_an_id_that_ties_all_attributes_together_is_explained():
    receipt = with_scenarios()
    receipt["plan"]["unit"] = {"protects": "person", "id": "who"}
    assert "one attribute can change every table" in text_of(receipt)


def test_many_scenarios_keep_a_small_figure_readable():
    many = [a_scenario([f"attribute number {i}"], 0.1 + 0.001 * (i // 2)) for i in range(40)]
    reader = Reader(report.page_from(with_scenarios(many), TABLES))
    (figure,) = [a["data-beside"] for _, a in reader.elements if "data-beside" in a]
    curves = json.loads(figure)["curves"]
    assert [curve["kind"] for curve in curves] == ["release"] + ["scenario"] * 6
    assert curves[1]["name"] == "attribute number 38 +1"
    assert "These share a line: attribute number 38, attribute number 39; " in reader.text
    assert "one person’s attributes" in reader.text


@settings(max_examples=15 if is_small() else 100)
@given(st.lists(st.fractions(0, 1, max_denominator=10**6), min_size=1, max_size=40))
def test_shares_add_up_to_a_hundred(parts):
    """Printed shares add up to exactly 100, each within its own tenth."""
    total = sum(parts)
    if total == 0:
        return
    receipt = a_receipt()
    receipt["mechanisms"] = [an_entry(f"q{i}", "x", zcdp=str(p)) for i, p in enumerate(parts)]
    section = budget_section(report.page_from(receipt, {}))
    shares = [Fraction(x) for x in re.findall(r"q\d+, by x 2 ([\d.]+)%", section)]
    assert sum(shares) == 100
    for part, share in zip(parts, shares, strict=True):
        assert abs(part / total * 100 - share) <= Fraction(1, 10)


@given(
    st.sampled_from(["0.0001", "0.01", "0.05", "0.125", "0.3"]).map(Fraction), st.fractions(0, 1)
)
def test_the_printed_counts_of_people_give_the_printed_share(level, above):
    said = str(people(level, level + (1 - level) * above))
    true, false, share = re.search(
        r"at most ([\d.]+) of them. 50 are false, and it confirms ([\d.]+). .* most ([\d.]+%)", said
    ).groups()
    assert digits.percent(Fraction(true) / (Fraction(true) + Fraction(false))) == share


@settings(max_examples=examples(100))
@given(st.floats(1e-9, 0.999), st.floats(0, 1), st.floats(0, 1))
def test_no_number_on_the_page_favors_the_release(level, above, tv):
    power = max(level, above)
    receipt = a_receipt()
    guarantee = receipt["guarantee"]
    guarantee["power"] = [{"level": level, "lower": level, "upper": power}]
    guarantee["curve"] = [{"level": level, "lower": level, "upper": power}]
    guarantee["total_variation"] = bound(tv)
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


HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'</style>"


def test_names_from_the_receipt_stay_text():
    def poison(node):
        if isinstance(node, dict):
            return {name: poison(value) for name, value in node.items()}
        if isinstance(node, list):
            return [poison(value) for value in node]
        selection = r"[\d./]+|inf|replace-one|at_most|" + "|".join(ATTACKERS)
        return HOSTILE if isinstance(node, str) and not re.fullmatch(selection, node) else node

    plain = with_scenarios()
    receipt = poison(plain)
    receipt["schema"] = plain["schema"]
    receipt["versions"] = {HOSTILE: HOSTILE}
    reader = Reader(report.page_from(receipt, {}))
    assert [tag for tag, _ in reader.elements].count("script") == 1
    assert "img" not in [tag for tag, _ in reader.elements]
    assert HOSTILE in reader.text
    for _, attributes in reader.elements:
        assert not [name for name in attributes if name.startswith("on")]


def extreme(change):
    receipt = copy.deepcopy(a_receipt())
    change(receipt)
    return receipt


def no_promise(r):
    r["guarantee"] = {
        "epsilon": [{"delta": 1e-6, **bound("inf")}],
        "mu": bound("inf"),
        "rho": bound("inf"),
        "total_variation": bound(1.0),
        "power": [{"level": 0.05, **bound(1.0)}],
        "curve": [{"level": a, **bound(1.0)} for a in (1e-4, 0.5, 1.0)],
        "zcdp_route": None,
        "posterior": [],
        "scenarios": [],
    }
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


def tiny_level(r):
    r["budget"] = {"kind": "at_most", "power": "0.0000012", "level": "0.000001"}


def long_names(r):
    r["plan"]["name"] = r["dataset"] = "n" * 5000
    r["mechanisms"] = [an_entry("q" * 3000, "l" * 3000, "1")]


def nothing_released(r):
    r["mechanisms"] = []


def only_public(r):
    r["mechanisms"] = r["mechanisms"][:1]


def no_curve(r):
    r["guarantee"]["curve"] = []


def add_remove(r):
    r["neighboring"] = "add-remove"
    r["unit"] = {"protects": "household", "rows": 5}
    r["budget"] = {"kind": "gdp", "mu": "97/100"}
    r["ledger"]["charged_delta"] = "1e-12"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (no_promise, "This gives no useful guarantee"),
        (no_promise, "might correctly confirm a true claim every time"),
        (perfect, "The cost is zero"),
        (perfect, "confirm a true claim at most equally often"),
        (tiny_level, "can correctly confirm a true claim at most 12 times in 10 million"),
        (long_names, "n" * 5000),
        (nothing_released, "0 noisy tables"),
        (only_public, "The cost is zero"),
        (no_curve, "Guessing would confirm"),
        (add_remove, "one household’s records (up to 5) added or removed"),
        (add_remove, "with delta 10⁻¹²"),
    ],
)
@pytest.mark.parametrize("tables", [TABLES, {}, {"total.county": a_table([])}])
def test_extreme_receipts_make_a_whole_page(change, said, tables):
    assert said in text_of(extreme(change), tables)


def test_a_large_table_does_not_make_a_large_page():
    """The page summarizes: 5000 cells take no more room than one."""
    small = report.page_from(a_receipt(), {"total.county": a_table([7])})
    large = report.page_from(a_receipt(), {"total.county": a_table(range(5000))})
    assert abs(len(small) - len(large)) < 100


def test_the_page_is_the_same_for_the_same_receipt():
    assert report.page_from(a_receipt(), TABLES) == report.page_from(a_receipt(), TABLES)


def test_each_table_states_its_measure_bounds_filter_and_files():
    receipt = a_receipt()
    receipt["plan"] |= {
        "where": "age >= 18",
        "columns": {
            "pay": {"decimals": 2, "unknown": "12.5", "measurement_unit": "USD"},
            "race": {"keys": ["a", "b"], "unknown": "drop"},
            "town": {"discover": True},
        },
        "hierarchy": {"place": {"levels": ["state"], "unknown": "X"}},
        "query": [
            {
                "name": "pay",
                "measure": "sum",
                "column": "pay",
                "clip": ["0", "500"],
                "at": ["state"],
            },
            {"name": "bins", "measure": "histogram", "column": "pay", "edges": ["0", "100", "500"]},
            {"name": "towns", "measure": "units", "by": ["race", "town"], "groups": 3},
        ],
    }
    receipt["mechanisms"].append(an_entry("towns", "all", "1") | {"threshold": 7})
    receipt["tables"] = [a_file("pay", "state", "tables/pay.state.csv", 2)]
    text = text_of(receipt)
    for said in (
        "Measure Sum of pay , by state Unit of the values USD Privacy unit one person, with at "
        "most 1 row in this table Coverage place : listed places; other values: counted as X",
        "Clip pay 0 to 500 Filter age is at least 18 Missing values pay : counted as 12.5 Files "
        "tables/pay.state.csv",
        "Number of rows per bin of pay Unit of the values rows",
        "Bins 0; 100; 500; numbers outside count in the first or the last bin",
        "Number of people, by race , town Unit of the values people Privacy unit one person, with "
        "at most 1 row in this table; at most 3 cells Coverage race : 2 listed keys; other values: "
        "the row is dropped town : discovered keys; missing values are dropped",
        "Threshold of discovered keys overall: a noisy count of 7",
    ):
        assert said in text, said


def test_a_table_of_quantiles_has_its_published_cells_and_no_least_error():
    """Four medians follow from counts in 20 bins, whose least error is not that of a median."""
    receipt = a_receipt()
    noise = {"type": "DiscreteGaussian", "sigma_squared": "9", "sensitivity": [[1, 1]]}
    receipt["plan"] = {
        "query": [
            {"name": "ages", "measure": "median", "column": "age", "edges": [0, 20, 40, 60, 80, 99]}
        ]
    }
    receipt["mechanisms"] = [an_entry("ages", "all", "1", cells=20, mechanism=noise)]
    receipt["tables"] = [a_file("ages", "all", "tables/a.csv", 4)]
    text = text_of(receipt, {"ages.all": a_table([31, 40, 52, 47])})
    assert "ages overall (4 cells)" in text
    assert "ages, overall 4 43.5 ± 5 0% 0% – Values and margins" in text


def test_a_report_states_no_least_error_of_a_number_of_distinct_keys():
    """Of four keys, a constant 2 is off by 2 at most, whatever the noise of the release."""
    receipt = a_receipt()
    noise = {"type": "DiscreteGaussian", "sigma_squared": "9000", "sensitivity": [[1]]}
    entry = an_entry("kinds", "all", "1", cells=1, measure="distinct", mechanism=noise)
    receipt["plan"] = {"query": [{"name": "kinds", "measure": "distinct", "column": "race"}]}
    receipt["mechanisms"] = [entry]
    text = text_of(receipt, {"kinds.all": a_table([4], 156)})
    assert "kinds, overall 1 4 ± 156 0% 0% – Values and margins" in text


def test_a_report_says_that_a_place_is_a_whole_path():
    receipt = a_receipt()
    receipt["plan"] = {
        "hierarchy": {"place": {"levels": ["state", "county"], "unknown": "drop"}},
        "query": [{"name": "states", "measure": "count", "at": ["state"]}],
    }
    said = "place : listed paths of state, county; other paths: the row is dropped"
    assert said in text_of(receipt)


def test_a_report_does_not_say_that_a_row_with_a_missing_value_never_counts():
    """A filter such as ``age > 17 or age is None`` takes rows without an age."""
    receipt = a_receipt()
    receipt["plan"] = {
        "where": "age > 17 or age is None",
        "query": [{"name": "n", "measure": "count"}],
    }
    text = text_of(receipt)
    assert (
        "only rows where age is above 17 or age is missing. A row counts if its condition" in text
    )
    assert "does not count." not in text


def test_a_report_names_the_private_table_of_a_query_and_the_zone_of_a_day():
    receipt = a_receipt()
    receipt["plan"] = {
        "table": "visits",
        "unit": {"protects": "person", "id": "who", "rows": 2},
        "tables": {"people": {"rows": 1}},
        "columns": {"arrived": {"type": "date", "zone": "Europe/Berlin"}},
        "derive": {"twice": {"expression": "n if sick else m", "range": [0, 9]}},
        "query": [
            {"name": "visits", "measure": "count"},
            {"name": "people", "measure": "count", "table": "people"},
        ],
    }
    text = text_of(receipt)
    assert "Number of rows Private table visits" in text
    assert "Number of rows Private table people" in text
    assert "Time zones arrived has days and hours of Europe/Berlin" in text
    assert "twice n if sick, else m; clipped to 0 to 9" in text


def test_the_filter_of_a_query_says_that_both_conditions_hold():
    receipt = a_receipt()
    receipt["plan"] = {
        "where": "age >= 18 or pay > 0",
        "query": [{"name": "pay", "measure": "count", "where": "sex == 'f' or pay < 9"}],
    }
    said = "(age is at least 18 or pay is above 0) and (sex is “f” or pay is below 9)"
    assert f"Filter {said}" in text_of(receipt)


@pytest.mark.parametrize("unknown", [0, False])
def test_a_report_says_what_unlisted_values_count_as_if_it_is_zero_or_false(unknown):
    receipt = a_receipt()
    keys = [False, True] if unknown is False else [0, 1]
    receipt["plan"] = {
        "columns": {"kind": {"keys": keys, "unknown": unknown}},
        "query": [{"name": "kinds", "measure": "count", "by": ["kind"]}],
    }
    said = f"kind : 2 listed keys; other values: counted as {unknown}"
    assert said in text_of(receipt)


def test_a_limit_on_top_of_its_own_curve_is_a_sentence_and_not_a_second_line():
    receipt = a_receipt()
    receipt["budget"] = {"kind": "gdp", "mu": "1"}
    for point in receipt["guarantee"]["curve"]:
        point.update(bound(float(ndtr(ndtri(point["level"]) + 1))))
    power = float(ndtr(ndtri(0.05) + 1))
    receipt["guarantee"]["power"] = [{"level": 0.05, **bound(power)}]
    said = "The chosen limit coincides with the blue curve in this figure."
    html = report.page_from(receipt, TABLES)
    assert said in Reader(html).text
    assert "&quot;limit&quot;: []" in html
    receipt["budget"] = {"kind": "gdp", "mu": "1.2"}
    html = report.page_from(receipt, TABLES)
    assert said not in Reader(html).text
    assert "&quot;limit&quot;: []" not in html


WEIGHED = """
schema = 2
name = "weighed"
dataset = "w@1"
table = "t"
[unit]
protects = "household"
neighboring = "replace-one"
[columns]
sex = { keys = ["f", "m"], unknown = "m" }
age = { keys = ["young", "old"], unknown = "old" }
[budget]
zcdp = 0.1
[[query]]
name = "sex and age"
measure = "count"
by = ["sex", "age"]
share = "3/4"
weight = 9
[[query]]
name = "sex"
measure = "count"
by = ["sex"]
share = "1/4"
"""


@pytest.fixture(scope="module")
def weighed(tmp_path_factory):
    """A release whose plan says how much its tables' errors count."""
    folder = tmp_path_factory.mktemp("weighed")
    (folder / "plan.toml").write_text(WEIGHED)
    (folder / "t.csv").write_text("sex,age\n" + "f,young\nm,old\n" * 20)
    ledger = ny.Ledger(str(folder / "ledger.db"))
    ledger.create("w@1", protects="household", neighboring="replace-one", cap="1")
    return ny.run(folder / "plan.toml", folder / "t.csv", ledger, folder / "out")


def budget_section(html):
    text = Reader(html).text
    return text[text.rindex("Privacy budget by table") : text.rindex("Guarantee in standard")]


def test_shares_of_disjoint_tables_are_of_the_charge_and_may_sum_to_more(tmp_path):
    ledger = ny.throwaway(1)
    ledger.register("w@1", protects="infant", neighboring="add-remove", rows=1)
    queries = [
        ny.query.count(name=name, where=where)
        for name, where in (("young", "age < 10"), ("old", "age >= 10"), ("all", "age > 5"))
    ]
    unit = ny.Unit("infant", neighboring="add-remove", rows=1)
    plan = ny.Plan(
        name="w", dataset="w@1", table="t", unit=unit,
        columns={"age": {"type": "whole"}}, queries=queries, budget={"zcdp": 1}, disjoint=True,
    )  # fmt: skip
    release = ny.run(plan, pa.table({"age": [1, 20]}), ledger, tmp_path / "out")
    html = (release.folder / "report.html").read_text(encoding="utf-8")
    section = budget_section(html)
    assert section.count(" 1 50%") == 3
    assert "100%" not in section.partition("All 3")[0]
    assert "shares may sum to more than 100%" in section
    assert "an infant is in at most one of these queries" in Reader(html).text


def test_a_split_is_explained_where_the_plan_states_weights(weighed):
    html = (weighed.folder / "report.html").read_text(encoding="utf-8")
    section = budget_section(html)
    assert "Table Cells Weight Share of the budget" in section
    assert "sex and age, overall 4 9 75% sex, overall 2 1 25% All 6 100%" in section
    # 9 / .75 + 1 / .25 = 16 is the least of all shares' sums, and 20 that of halves.
    assert "the sum of squared errors is 20% less than with equal shares" in section
    assert "No other shares would lower it by as much as 1%." in section
    assert "one household can change the table" in section
    assert report.page(weighed) == html
    assert all(check.ok for check in verify(weighed.folder, {"report.html": report.page}))


def test_better_words_for_a_split_than_its_plan_gives_are_found_out(weighed, tmp_path):
    shutil.copytree(weighed.folder, tmp_path / "out")
    path = tmp_path / "out" / "report.html"
    path.write_text(path.read_text(encoding="utf-8").replace("is 20% less", "is 30% less"))
    (wrong,) = [c for c in verify(path.parent, {"report.html": report.page}) if not c.ok]
    assert wrong.name == "report.html"


def test_shares_that_could_be_better_are_not_praised(weighed):
    said = tomllib.loads(WEIGHED, parse_float=Decimal)
    said["query"][0]["share"], said["query"][1]["share"] = "1/4", "3/4"
    plan = Plan.from_dict(said | {"consistency": {"method": "least-squares"}})
    mechanisms = [part.to_dict() for part in mechanism_list(plan, plan.calibrated())]
    by_key = {"plan": plan.canonical(), "mechanisms": mechanisms}
    receipt = weighed.receipt.to_dict() | by_key
    html = report.page_from(receipt, {})
    assert html == report.page_from(receipt, {}, plan)
    section = budget_section(html)
    assert "more than with equal shares. Other shares would lower it by" in section
    assert "<code>neyman plan split</code>" in html
    assert "after the tables are made consistent" in section


def test_a_plan_without_weights_has_the_page_it_always_had(weighed):
    receipt = weighed.receipt.to_dict()
    del receipt["plan"]["query"][0]["weight"]
    receipt["plan"]["schema"] = "not looked at"
    section = budget_section(report.page_from(receipt, {}))
    assert "Weight" not in section
    assert "squared error" not in section


def test_a_receipt_that_is_none_is_refused_by_name():
    with pytest.raises(ValueError, match="has the format None"):
        report.page_from({}, {})
    receipt = a_receipt()
    del receipt["guarantee"]["mu"]
    with pytest.raises(ValueError, match="no field 'mu'"):
        report.page_from(receipt, {})
    receipt = a_receipt()
    receipt["guarantee"]["power"][0]["upper"] = 1.5
    with pytest.raises(ValueError, match=r"1\.5 must be between 0 and 1"):
        report.page_from(receipt, {})


def test_limit_curves_pass_where_the_budget_says():
    def at(budget, level):
        curve = reading.limit_curve(budget_of(budget))
        assert curve is not None
        assert curve[-1] == (1.0, 1.0)
        assert all(y >= x - 1e-12 for x, y in curve)
        return np.interp(level, *zip(*curve, strict=True))

    point = at({"kind": "at_most", "power": "1/4", "level": "0.05"}, 0.05)
    assert point == pytest.approx(0.25, abs=1e-3)
    assert at({"kind": "gdp", "mu": "1"}, 0.5) == pytest.approx(ndtr(1.0), abs=1e-3)
    approximate = {"kind": "approximate", "epsilon": "1", "delta": "0.01"}
    assert at(approximate, 0.0) == pytest.approx(0.01)
    assert at(approximate, 0.1) == pytest.approx(0.01 + 0.1 * math.e, abs=1e-3)
    assert reading.limit_curve(budget_of({"kind": "zcdp", "rho": "1"})) is None
    assert (
        reading.limit_curve(budget_of({"kind": "at_most", "power": "1", "level": "0.05"})) is None
    )


@pytest.mark.parametrize(
    ("level", "power"), [(0.05, 0.25), (0.001, 1.0), (0.3, 0.3), (0.01, 0.517)]
)
def test_the_colored_people_are_the_share_that_a_test_confirms(level, power):
    """The widths of the colored figures sum to 50 powers and 50 levels of the width of one."""
    drawing = str(people(Fraction(level), Fraction(power)))
    for kind, share in (("confirmed", power), ("wrong", level)):
        pattern = rf'<svg[^>]*width="([0-9.]+)"[^>]*><path[^>]*class="{kind}"'
        widths = [float(width) for width in re.findall(pattern, drawing)]
        assert sum(widths) / PEOPLE.width_units == pytest.approx(50 * share, abs=1e-3)


def test_a_title_names_the_tables_of_a_query_and_is_no_markup():
    receipt = a_receipt()
    title = f"People & places {HOSTILE}"
    part = {"name": "total", "title": title, "measure": "count", "at": ["state", "county"]}
    receipt["plan"]["query"] = [part]
    text = text_of(receipt)
    assert f"{title}, by state" in text
    assert "total, by" not in text
    receipt["plan"]["query"] = [part | {"at": []}]
    assert f"{title}, by" not in text_of(receipt)
    assert title in text_of(receipt)


@pytest.mark.parametrize("value", [1234567, 1234567.25, -98765.5, 10**30, 1e21])
def test_measured_numbers_have_separators_and_keys_do_not(value):
    table = pa.table({"year": [2024], "value": [value if abs(value) < 2**63 else float(value)]})
    text = Reader(str(first_rows("q.all", {"q.all": table}))).text
    assert "2024" in text
    shown = re.findall(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
    assert len(shown) == 1
    assert float(shown[0].replace(",", "")) == pytest.approx(float(value), rel=1e-5)


def test_what_a_figure_is_drawn_from_stays_text():
    html = str(element("div", markup.chart("beside", {"name": HOSTILE + "\u2028"})))
    assert "<script" not in html
    assert "\u2028" not in html
    reader = Reader(html)
    (answer,) = [a["data-beside"] for _, a in reader.elements if "data-beside" in a]
    assert json.loads(answer) == {"name": HOSTILE + "\u2028"}


def test_the_publisher_and_the_date_are_stated():
    receipt = a_receipt()
    assert "Publisher not declared in the plan Date 2026-11-23 (UTC)" in text_of(receipt)
    receipt["plan"]["publisher"] = "Office <of> Statistics"
    said = "Publisher Office <of> Statistics Date 2026-11-23 (UTC), the day of the charge"
    assert said in text_of(receipt)


def test_the_first_rows_are_shown_and_only_files_in_the_folder_are_links():
    receipt = a_receipt()
    receipt["plan"]["query"] = [{"name": "total", "measure": "count", "at": ["state"]}]
    paths = ["tables/two words.csv", "../secret.csv", "javascript:alert(1)", "/etc/passwd"]
    receipt["tables"] = [a_file("total", "state", path, 1) for path in paths]
    table = a_table(range(5)).set_column(0, HOSTILE, pa.array([HOSTILE, "k" * 500, None, "d", "e"]))
    reader = Reader(report.page_from(receipt, {"total.state": table}))
    links = {a["href"] for _, a in reader.elements if "href" in a}
    assert {link for link in links if not link.startswith("#")} == {
        "tables/two%20words.csv",
        "javascript%3Aalert%281%29",
    }
    assert "img" not in [tag for tag, _ in reader.elements]
    assert HOSTILE[:39] + "… 0" in reader.text
    assert "k" * 39 + "… 1" in reader.text
    assert "– 2" in reader.text
    assert "d 3" not in reader.text
    reader = Reader(report.page_from(receipt, {"total.state": table}, folder="../out put/"))
    links = {a["href"] for _, a in reader.elements if "href" in a}
    assert "../out%20put/tables/two%20words.csv" in links


def test_the_fractions_of_the_first_rows_are_rounded_and_whole_numbers_are_not():
    values = {"value": [15_546_150], "error": [3.569716602196875], "mean": [15_546_150.25]}
    rows = first_rows("a.b", {"a.b": pa.table(values | {"small": [0.0000123456789], "no": [None]})})
    text = Reader(f"<p>{rows}</p>").text
    assert "15,546,150 3.56972 15546150 0.0000123457 –" in text
    assert "First rows of a.b (fractions are rounded; the files have every digit)" in text
    assert "rounded" not in str(first_rows("a.b", {"a.b": pa.table({"value": [1]})}))


def test_of_many_tables_the_least_accurate_come_first():
    """Two pages show five of ten tables, and none that is left out has fewer cells within 5%."""
    receipt = a_receipt()
    receipt["mechanisms"] = [an_entry(f"q{i}", "x", "1/10") for i in range(10)]
    tables = {f"q{i}.x": a_table([1000] * i + [1] * (10 - i)) for i in range(10)}
    text = text_of(receipt, tables)
    text = text[text.index("Cells within 5%") : text.index("See all tables")]
    assert re.findall(r"q(\d), by x", text) == ["0", "1", "2", "3", "4"]
    assert "5 of 10 tables with the smallest share of cells within 5%" in text


def test_values_are_in_the_unit_that_the_plan_declares():
    """A sum is in its column's unit, a variance in its square, a ratio in one per the other."""
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
        "rows": {"measure": "histogram", "column": "pay"},
        "distinct values": {"measure": "distinct", "column": "town"},
        "not declared; values are as the column has them": {"measure": "mean", "column": "age"},
    }
    named = [part | {"name": f"q{i}"} for i, part in enumerate(queries.values())]
    receipt["plan"]["query"] = named
    for part, said in zip(named, queries, strict=True):
        assert unit_of_values(Receipt.read(receipt), part["name"]) == said
    receipt["mechanisms"] = [an_entry("q0", "all")]
    assert "q0, overall in USD" in text_of(receipt, {})


def test_curves_that_agree_at_stored_points_alone_are_two_lines():
    limit = budget_of({"kind": "gdp", "mu": "1"}).power_limit
    assert limit is not None

    def at(levels):
        return list(zip(levels, limit(np.array(levels)).tolist(), strict=True))

    dense = ndtr(np.linspace(-3.75, 3.75, 60)).tolist()
    assert one_line(limit, at(dense))
    assert not one_line(limit, at([0.001, 0.3, 0.99]))
    assert not one_line(limit, [(a, b - 0.02) for a, b in at(dense)])
    kink = budget_of({"kind": "approximate", "epsilon": "3", "delta": "0.01"}).power_limit
    assert kink is not None
    place = 0.99 / (1 + math.exp(3))
    points = [(0.0, 0.01), (place, float(kink(np.array([place]))[0])), (1.0, 1.0)]
    assert one_line(kink, points)
    assert not one_line(kink, [points[0], points[2]])


@settings(max_examples=25)
@given(st.floats(0.05, 3), st.floats(0.05, 3))
def test_one_line_is_never_said_of_curves_that_are_farther_apart(mu, other):
    """Against a brute-force distance on a finer grid: each point has a near one on the other."""
    limit = budget_of({"kind": "gdp", "mu": str(mu)}).power_limit
    assert limit is not None
    levels = ndtr(np.linspace(-3.75, 3.75, 60))
    curve = list(zip(levels.tolist(), ndtr(ndtri(levels) + other).tolist(), strict=True))
    if one_line(limit, curve):
        xs, ys = zip((0.0, curve[0][1]), *curve, (1.0, 1.0), strict=True)
        grid = np.linspace(0, 1, 50_001)
        upper = (
            np.interp(np.minimum(grid + RISK_LIMITS.line_power, 1), xs, ys) + RISK_LIMITS.line_power
        )
        lower = np.interp(grid - RISK_LIMITS.line_power, xs, ys, left=0) - RISK_LIMITS.line_power
        assert np.all((lower <= limit(grid)) & (limit(grid) <= upper))
    assert one_line(limit, curve) or abs(mu - other) > 0.005


def test_an_attribute_with_the_curve_of_the_whole_record_shares_its_label():
    receipt = with_scenarios([a_scenario(["race"], 0.25), a_scenario(["sex"], 0.1)])
    mu = float(ndtri(0.25) - ndtri(0.05))
    levels = ndtr(np.linspace(-3.75, 3.75, 60)).tolist()
    receipt["guarantee"]["curve"] = [
        {"level": a, **bound(float(ndtr(ndtri(a) + mu)))}
        for a in sorted([*levels, 0.01, 0.05, 0.1, 0.2])
    ]
    reader = Reader(report.page_from(receipt, TABLES))
    (figure,) = [a["data-beside"] for _, a in reader.elements if "data-beside" in a]
    curves = json.loads(figure)["curves"]
    assert [curve["name"] for curve in curves] == ["whole record +1", "sex"]
    assert "These share a line: whole record, race." in reader.text


# Which rows count


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


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (
            {"id": "id", "rows": 20},
            "At most 20 rows per patient count; rows without an id are not counted. Tables by "
            "listed keys do not count the rows outside them. This lowers counts by an unknown "
            "amount, and can change other values.",
        ),
        (
            {"rows": 1},
            "Which rows count Tables by listed keys do not count the rows outside them. This "
            "lowers counts by an unknown amount. Missing values",
        ),
    ],
)
def test_the_first_screen_states_which_rows_count_and_what_happens_to_missing_values(unit, said):
    plan = ny.Plan.from_dict(a_plan_of_patients(**unit))
    text = text_of(a_receipt() | {"plan": plan.canonical()})
    first = text[: text.index("Disclosure risk for one")]
    assert said in first
    assert "cost : Rows without a number in 'cost' take no part. Numbers in 'cost' are" in first
    assert "The exact value is computed from the rows that count, after clipping." in text
    assert " ".join(counted_rows(plan)) in first


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, "Every row counts."), ({"where": "cost > 2"}, "Every row that the filter takes counts.")],
)
def test_a_release_that_drops_no_row_states_no_loss(change, said):
    plan = a_plan_of_patients() | change
    plan["unit"]["protects"] = "record"
    plan["columns"]["ward"]["unknown"] = "T"
    plan["query"] = [plan["query"][0] | {"share": "1"}]
    plan = ny.Plan.from_dict(plan)
    text = text_of(a_receipt() | {"plan": plan.canonical()})
    assert f"Which rows count {said} " in text
    assert "unknown amount" not in text


@pytest.mark.parametrize(
    ("protects", "column", "said"),
    [
        ("household", None, True),
        ("person", None, True),
        ("household", "house", False),
        ("row", None, False),
        ("Record", None, False),
    ],
)
def test_the_assumption_of_one_row_each_stands_below_the_headline(protects, column, said):
    receipt = a_receipt()
    receipt["unit"]["protects"] = protects
    receipt["plan"] |= {"unit": {"protects": protects, "id": column}}
    text = text_of(receipt)
    assumed = f"The guarantee assumes that each {protects} has at most one row."
    assert (assumed in text) == said
    if said:
        headline = words.power("0.05", "0.25", protects)
        assert f"{headline} {assumed}" in text
    assert (f"They hold if no {protects} has more than one row in the data." in text) == said


@pytest.mark.parametrize(
    ("mechanism", "above"),
    [
        (ny.Gaussian(1), 1e-9),
        (ny.DiscreteGaussian(sigma=4, sensitivity=[(3,), (1, 2, 1)]), 0.03),
        (ny.Gaussian(0.5).subsample(rate=0.1), 0.03),
        (ny.ExponentialMechanism(epsilon=2) + ny.Laplace(1), 0.06),
        (ny.RandomSubset(size=1, population=20), 0.03),
    ],
)
def test_the_success_that_follows_from_a_receipt_is_above_the_curves(mechanism, above):
    receipt = Receipt.read(a_receipt()).model_copy(update={"guarantee": guarantee(mechanism)})
    f = mechanism.tradeoff()
    for baseline in (1e-5, 0.001, 0.02, 0.05, 0.2, 0.5, 0.9, 0.999):
        exact = f.success(baseline)
        assert exact.lower <= success_above(receipt, baseline) <= exact.upper + above
