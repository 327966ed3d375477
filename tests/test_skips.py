"""A skip is counted with its reason, and is a failure where skips are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import machine

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
        [*command, "test_these.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
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
