"""The list of printed numbers: complete, compared, and with a reason for each that differs."""

import re
from pathlib import Path

import pytest

import neyman as ny
from reproductions.facts import ALLOCATION, PUBLISHED
from reproductions.printed_numbers import coverage, texts
from reproductions.printed_numbers.entry import formula, number
from reproductions.printed_numbers.page import VERDICTS, summary
from reproductions.printed_numbers.published import ELSEWHERE

PAGE = Path(__file__).parents[2] / "docs" / "reproduced.md"


@pytest.mark.parametrize("name", ["su", "kifer-abowd", "duchi", "student"])
def test_the_entries_account_for_each_numeral_that_a_text_prints(name):
    assert coverage.problems(name, coverage.stored()[name]) == []


def test_the_entries_account_for_each_number_of_the_published_facts():
    assert coverage.problems("published", coverage.published_numerals()) == []
    assert set(ELSEWHERE) < set(PUBLISHED)


@pytest.mark.parametrize("name", texts.TEXTS)
def test_each_entry_that_does_not_agree_has_a_reason(name):
    entries = texts.entries(name)
    assert {entry.verdict for entry in entries} <= set(VERDICTS)
    assert all(entry.why for entry in entries if entry.verdict in ("differ", "not computed"))
    assert all(entry.ours for entry in entries if entry.verdict in ("agree", "missing"))


def test_a_numeral_that_is_left_out_or_invented_is_reported():
    printed = {section: dict(part) for section, part in coverage.stored()["duchi"].items()}
    printed["0"]["17.91"] = 1
    assert coverage.problems("duchi", printed) == ["duchi, section 0: no entry for 17.91 (1 times)"]
    del printed["0"]["17.91"], printed["0"]["2025"]
    assert coverage.problems("duchi", printed) == ["duchi, section 0: not printed: 2025 (1 times)"]


def test_numerals_of_citations_indices_and_headings_are_names():
    text = (
        "## 4 Tables\n\nBy Theorem 6.3 of [14, 52] and [DRS22], $x_{12}^2 = 5.50$ in 1,234 cells, "
        "at $10^{-5}$ (see Tables 2 and 3).\n\n## References\n\n- [1] 1999\n"
    )
    assert coverage.numerals_in(text) == {"4": {"2": 1, "5.50": 1, "1,234": 1, "10": 1, "5": 1}}


@pytest.mark.parametrize(
    ("printed", "ours", "relation"),
    [
        ("0.37", ny.Bound(0.3651, 0.3749), "="),
        ("3e-6", 2.76e-6, "="),
        ("0.37", ny.Bound(0.3, 0.3699), "<="),
        ("0.37", ny.Bound(0.3701, 0.4), ">="),
    ],
)
def test_a_number_agrees_if_the_enclosure_rounds_to_it_or_lies_on_its_side(printed, ours, relation):
    assert number("1", "text", "a number", printed, ours, relation=relation).verdict == "agree"


@pytest.mark.parametrize(
    ("printed", "ours", "relation"),
    [
        ("0.370", ny.Bound(0.3694, 0.3694), "="),
        ("0.37", ny.Bound(0.3651, 0.3751), "="),
        ("0.37", ny.Bound(0.3, 0.3701), "<="),
        ("0.37", ny.Bound(0.3699, 0.4), ">="),
    ],
)
def test_a_number_that_differs_needs_a_reason(printed, ours, relation):
    with pytest.raises(ArithmeticError, match="no reason"):
        number("1", "text", "a number", printed, ours, relation=relation)
    entry = number("1", "text", "a number", printed, ours, relation=relation, why="a misprint")
    assert entry.verdict == "differ"


@pytest.mark.parametrize(("value", "relation"), [(0.5, "="), (0.5, "<="), (0.4, ">=")])
def test_a_formula_that_misses_the_enclosure_needs_a_reason(value, relation):
    ours = ny.Bound(0.5 + 1e-5, 0.5 + 2e-5) if relation != ">=" else 0.3
    with pytest.raises(ArithmeticError, match="no reason"):
        formula("1", "text", "a formula", "x", "x = 1", value, ours, relation=relation)


def test_a_reason_for_a_number_that_agrees_is_refused():
    with pytest.raises(ArithmeticError, match="but a reason"):
        number("1", "text", "a number", "0.37", 0.37, why="a misprint")


def test_the_summary_stands_on_the_page():
    assert summary() in PAGE.read_text(encoding="utf-8")


def test_each_share_of_the_census_stands_in_the_list():
    shown = " ".join(e.printed for e in texts.entries("kifer-abowd"))
    shares = {s for row in ALLOCATION["query_proportions"].values() for s in row.values()}
    assert shares - {"0/1"} <= set(re.findall(r"\d+/\d+", shown))
