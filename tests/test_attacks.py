"""Which tests are attacks, and what the summary says of them."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace

import pytest

from attacks import ATTACKS, attack_of, attempts, summary

HERE = Path(__file__).parent


def report(nodeid: str, outcome: str, when: str = "call", **properties: int) -> SimpleNamespace:
    """What a run tells about a test."""
    answers = list(properties.items())
    return SimpleNamespace(nodeid=nodeid, outcome=outcome, when=when, user_properties=answers)


@pytest.mark.parametrize("name", ATTACKS)
def test_each_pattern_has_a_test(name: str):
    for pattern in ATTACKS[name].tests:
        file, _, functions = pattern.partition("::")
        results = [
            node.name
            for path in HERE.glob(file)
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef) and fnmatchcase(node.name, functions)
        ]
        assert any(each.startswith("test_") for each in results), pattern


def test_each_test_that_the_page_names_is_there():
    """docs/trust.md gives the test of each finding."""
    page = (HERE.parent / "docs" / "trust.md").read_text()
    named = re.findall(r"(tests/[\w/.]+\.py)::(\w+)", page)
    assert named
    for file, test in named:
        assert f"def {test}(" in (HERE.parent / file).read_text(), (file, test)


def test_an_attack_that_fails_and_one_that_was_skipped_are_in_the_summary():
    race = "tests/ledger/test_ledger_races.py::test_racing_processes_are_granted_all_and_no_more"
    kill = "tests/ledger/test_ledger_faults.py::test_killed_at_each_system_call"
    lines = summary(
        [
            report(f"{race}[sqlite-2]", "passed", "setup", attempts=0),
            report(f"{race}[sqlite-2]", "passed", attempts=59),
            report(f"{race}[sqlite-3]", "failed", attempts=1),
            report(f"{race}[postgresql-2]", "skipped", "setup"),
            report(f"{kill}[unlink]", "passed"),
            report("tests/test_docs.py::test_every_figure_stands_on_a_page", "failed"),
        ]
    )
    by_key = {line[:37].strip(): line[37:].split() for line in lines}
    assert len(by_key) == 1 + len(ATTACKS)
    assert by_key["races for one budget"][:4] == ["2", "1", "1", "60"]
    assert by_key["races for one budget"][-3:] == ["DOES", "NOT", "HOLD"]
    assert by_key["kills"] == ["1", "1", "0", "1", *ATTACKS["kills"].unit.split()]
    assert by_key["the samplers of noise"][:4] == ["0", "0", "0", "0"]


def test_a_run_without_attacks_has_no_summary():
    assert summary([report("tests/test_docs.py::test_pages", "passed")]) == []


def test_attempts_add_up(request: pytest.FixtureRequest):
    add = attempts(request.node)
    add(3)
    add(4)
    assert ("attempts", 7) in request.node.user_properties


def test_a_test_that_is_no_attack_has_none():
    assert attack_of("tests/test_attacks.py::test_attempts_add_up") is None
