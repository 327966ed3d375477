"""What a run prints: its attacks, and each skip with its reason, which CI refuses."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace

import pytest

import machine
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
    lines = summary([
        report(f"{race}[sqlite-2]", "passed", "setup", attempts=0),
        report(f"{race}[sqlite-2]", "passed", attempts=59),
        report(f"{race}[sqlite-3]", "failed", attempts=1),
        report(f"{race}[postgresql-2]", "skipped", "setup"),
        report(f"{kill}[unlink]", "passed"),
        report("tests/test_docs.py::test_every_figure_stands_on_a_page", "failed"),
    ])  # fmt: skip
    by_key = {line[:37].strip(): line[37:].split() for line in lines}
    assert len(by_key) == 1 + len(ATTACKS)
    assert by_key["races for one budget"][:4] == ["2", "1", "1", "60"]
    assert by_key["races for one budget"][-3:] == ["DOES", "NOT", "HOLD"]
    assert by_key["kills"] == ["1", "1", "0", "1", *ATTACKS["kills"].unit.split()]
    assert by_key["the samplers of noise"][:4] == ["0", "0", "0", "0"]
    assert summary([report("tests/test_docs.py::test_pages", "passed")]) == []


def test_attempts_add_up(request: pytest.FixtureRequest):
    add = attempts(request.node)
    add(3)
    add(4)
    assert attack_of(request.node.nodeid) is None
    assert ("attempts", 7) in request.node.user_properties


TESTS = """
import pytest
import machine

machine.NEEDS["nothing"] = machine.Need("a program that no machine has", "impossible", bool)
machine.NEEDS["mount"] = machine.Need(machine.NEEDS["mount"].what, "as root", bool)

@pytest.mark.needs("nothing")
def test_marked():
    raise AssertionError("this ran")

@pytest.fixture
def program():
    machine.need("nothing")

def test_by_its_fixture(program):
    raise AssertionError("this ran")

@pytest.mark.needs("mount")
def test_that_mounts():
    raise AssertionError("this ran")

@pytest.mark.xfail(strict=True)
def test_that_is_known_to_fail():
    raise AssertionError
"""


def run(folder: Path, skips: str) -> tuple[int, str]:
    """The exit code and the output of these tests, with the plugins of this folder."""
    (folder / "test_these.py").write_text(TESTS)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "NEYMAN_SKIPS": skips, "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test_these.py"], cwd=folder, env=env, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_skips_are_counted_by_reason_and_the_run_succeeds(tmp_path: Path):
    code, said = run(tmp_path, "")
    assert code == 0, said
    assert "skipped tests: 3" in said
    assert "     2  needs a program that no machine has (impossible)" in said
    assert f"     1  needs {machine.NEEDS['mount'].what}" in said


def test_where_skips_are_refused_each_is_a_failure_except_a_forbidden_mount(tmp_path: Path):
    code, said = run(tmp_path, "refuse")
    assert code == 1, said
    # Where CI is set, pytest's summary repeats each message, so the messages are counted above it.
    errors, _, _ = said.partition("short test summary")
    assert errors.count("NEYMAN_SKIPS=refuse does not allow this skip") == 2, said
    assert "2 errors in" in said
    assert "skipped tests: 1" in said
    assert f"     1  needs {machine.NEEDS['mount'].what}" in said


@pytest.mark.parametrize("name", machine.NEEDS)
def test_each_need_is_had_or_skips_with_the_way_to_get_it(name: str):
    if machine.has(name):
        machine.need(name)
    else:
        with pytest.raises(pytest.skip.Exception, match=re.escape(machine.NEEDS[name].install)):
            machine.need(name)
