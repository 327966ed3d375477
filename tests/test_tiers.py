"""Tiers follow from measured times, and no test leaves CI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import tiers
from tiers import LARGEST_SECONDS, TIERS, Durations

ROOT = Path(__file__).parents[1]
GROWING = "tests/curves/tradeoff/test_safe_mu.py"  # laws, which try more in a larger tier
MEASURED = {
    "a/test_a.py": {
        "test_cheap": 0.01,
        "test_some": {"[1]": 0.2, "[2]": 0.4, "[3]": 50.0},
        "test_heavy": {"[1]": 70.0, "[2]": 30.0},
        "test_long": {"[1]": 1.1},
        "test_longer": {"[1]": 1.3},
    },
    "b/test_b.py": {"test_only": {"[1]": 2.9}},
}
NODES = [
    f"tests/a/test_a.py::{name}"
    for name in (
        "test_cheap",
        *(f"test_some[{k}]" for k in (1, 2, 3)),
        "test_heavy[1]",
        "test_heavy[2]",
        "test_long[1]",
        "test_longer[1]",
    )
] + ["tests/b/test_b.py::test_only[1]"]


def test_a_case_is_in_the_smallest_tier_with_room_and_of_each_test_the_cheapest_stays():
    assert [*Durations(MEASURED).tiers(NODES).values()] == [
        "fast",
        "test",
        "ci",
        "night",
        "night",
        "ci",
        "test",
        "ci",
        "test",
    ]


def test_a_test_without_a_measurement_is_in_test():
    new = ["tests/a/test_a.py::test_new", "tests/a/test_new.py::test_cheap[x]"]
    assert [*Durations(MEASURED).tiers(new).values()] == ["test", "test"]
    assert Durations(MEASURED).seconds("a/test_a.py", "test_some", "[new]") == 0.2


def test_a_run_beyond_a_tier_has_what_the_tier_left_out_and_what_grows():
    def names(*options: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-o", "addopts=", "-q"]
        command += ["-p", "no:cacheprovider", *options, "tests/test_tiers.py", GROWING]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return {line for line in done.stdout.splitlines() if "::" in line}

    small, large = names("--tier", "test"), names("--tier", "ci")
    more = names("--tier", "ci", "--beyond", "test")
    assert more | small == large
    again = more & small
    assert {name.partition("::")[0] for name in again} == {GROWING}


def test_tiers_grow_and_the_largest_has_room_for_all():
    assert sorted(LARGEST_SECONDS.values()) == [LARGEST_SECONDS[tier] for tier in TIERS]
    assert LARGEST_SECONDS["night"] == float("inf")


def test_a_measurement_replaces_that_of_its_cases_and_keeps_that_of_others():
    recorder = tiers.Recorder()
    recorder.by_case.update({NODES[1]: 0.02, NODES[2]: 0.01, NODES[4]: 1.5, NODES[5]: 0.4})
    # The third case of test_some is of a larger tier, which the run left out.
    old = {**MEASURED, "test_tiers.py": {"test_tiers_grow_and_the_largest_has_room_for_all": 0.1}}
    by_file = recorder.measured(Durations({**old, "test_skips.py": {"test_gone": 0.1}})).by_file
    assert "test_skips.py" not in by_file
    assert by_file["test_tiers.py"] == old["test_tiers.py"]
    assert by_file["a/test_a.py"] == {
        "test_some": {"[1]": 0.02, "[2]": 0.01, "[3]": 50.0},
        "test_heavy": {"[1]": 1.5, "[2]": 0.4},
    }


def test_the_cases_of_a_group_go_to_one_process(tmp_path):
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(
            "import os, pytest\n@pytest.mark.parametrize('case', range(8))\n"
            "def test_process(case, record_property): record_property('process', os.getpid())\n"
        )
    folder = Path(tiers.__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    run = [*command, "--no-loadscope-reorder", "-p", "conftest", "--junit-xml=out.xml", "."]
    subprocess.run(run, cwd=tmp_path, check=True, env=os.environ | {"PYTHONPATH": str(folder)})
    processes = defaultdict(set)
    for case in ElementTree.parse(tmp_path / "out.xml").iter("testcase"):
        processes[case.get("classname")].add(case.find("properties/property").get("value"))
    assert [*map(len, processes.values())] == [1, 1, 1]
    assert len(set.union(*processes.values())) == 2


def test_work_is_counted_with_the_processes_that_it_starts():
    before = tiers.cpu_seconds()
    subprocess.run([sys.executable, "-c", "sum(i * i for i in range(5_000_000))"], check=True)
    assert tiers.cpu_seconds() - before > 0.1
