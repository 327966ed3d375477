"""Which cases a run takes, by the measured CPU time of each case.

A tier holds the cases up to its time (`LARGEST_SECONDS`). Of each test the cheapest case is in
`test` up to 1.2 seconds (the cheapest test of a file: up to 3), and in `ci` beyond, so that CI
tests each sentence. A test without a measurement is in `test`.

`make record-durations` measures every case on a quiet machine and writes `durations.json`: for each
file and test the CPU seconds of the largest case, or of each case if one is over the time of
`fast`. A time counts the test's process and all processes that it starts, without the fixtures that
several tests share.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from own_process import children

__all__ = ["TIERS", "Durations", "Recorder", "Tier", "cpu_seconds", "group_of", "in_order"]

Tier = Literal["fast", "test", "ci", "night"]
TIERS: tuple[Tier, ...] = get_args(Tier)
LARGEST_SECONDS: dict[Tier, float] = {"fast": 0.03, "test": 0.12, "ci": 0.5, "night": float("inf")}
"""The CPU time of a case up to which it belongs to a tier, and to each larger one."""
FILE = Path(__file__).with_name("durations.json")

SERVERS = {"spark_running": "spark", "postgres": "postgresql", "own_server": "postgresql"}
"""Fixtures for which a run starts a program once: their tests go to one process of the run."""
NEEDS = {"java": "spark", "postgresql": "postgresql", "chromium": "browser", "strace": "strace"}
"""What a mark `needs` asks for, and the group of such tests."""


PROGRAMS = tuple({**NEEDS, **SERVERS, "mount": "mount"}.values())


def _name(node: str) -> tuple[str, str, str]:
    """The file below tests/, the test, and its case."""
    path, _, rest = node.partition("::")
    test, bracket, case = rest.partition("[")
    return path.removeprefix("tests/"), test, bracket + case


class Durations:
    """The measured CPU times of the cases.

    Args:
        by_file: seconds by file and test; of each case where one is over the time of `fast`.
    """

    def __init__(self, by_file: dict[str, dict[str, float | dict[str, float]]]) -> None:
        self.by_file = by_file

    @classmethod
    def read(cls, path: Path = FILE) -> Durations:
        """Return the measurements of a file, or none if there is no file."""
        return cls(json.loads(path.read_text()) if path.exists() else {})

    def seconds(self, file: str, test: str, case: str) -> float | None:
        """Return the CPU seconds of a case, or None if its test was not measured.

        A case that is newer than the measurement of its test has the test's least time.
        """
        measured = self.by_file.get(file, {}).get(test)
        if isinstance(measured, dict):
            return measured.get(case, min(measured.values()))
        return measured

    def of(self, node: str) -> float | None:
        """Return the CPU seconds of a case by the name that pytest gives it."""
        return self.seconds(*_name(node))

    def tiers(self, nodes: Iterable[str]) -> dict[str, Tier]:
        """Return the smallest tier of each case, by the names that pytest gives them."""
        by_test: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
        tiers: dict[str, Tier] = {}
        for node in nodes:
            file, test, case = _name(node)
            seconds = self.seconds(file, test, case)
            if seconds is None:
                tiers[node] = "test"
                continue
            by_test[file, test].append((seconds, node))
            tiers[node] = next(tier for tier in TIERS if seconds <= LARGEST_SECONDS[tier])
        cheapest = {test: min(cases) for test, cases in by_test.items()}
        least: dict[str, float] = defaultdict(lambda: math.inf)  # by file
        for (file, _), (seconds, _) in cheapest.items():
            least[file] = min(least[file], seconds)
        for (file, _), (seconds, node) in cheapest.items():
            if tiers[node] != "fast":
                here = seconds <= (3 if seconds == least[file] else 1.2)
                tiers[node] = "test" if here else "ci"
        return tiers

    def chosen(self, items: list[pytest.Item], largest: Tier) -> list[pytest.Item]:
        """Return the cases of a tier and of the smaller ones; those of `fast` need no server."""
        tiers = self.tiers(item.nodeid for item in items)
        inside = TIERS[: TIERS.index(largest) + 1]
        return [
            item
            for item in items
            if tiers[item.nodeid] in inside
            and (largest != "fast" or not group_of(item).startswith(PROGRAMS))
        ]

    def total(self, nodes: Iterable[str]) -> float:
        """Return the CPU seconds of cases; those without a measurement count as nothing."""
        return sum(self.of(node) or 0.0 for node in nodes)


def group_of(item: pytest.Item) -> str:
    """Return what a case shares with others of its process: a server, or else its file."""
    for mark in item.iter_markers("needs"):
        for need in mark.args:
            if need in NEEDS:
                return NEEDS[need]
    names = getattr(item, "fixturenames", ())
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    parameters = {value for value in values if isinstance(value, str)}
    if "spark" in parameters:
        return "spark"
    for fixture, group in SERVERS.items():
        if fixture in names:
            return group
    if "postgresql" in parameters:
        return "postgresql"
    file = _name(item.nodeid)[0]
    return "browser" if file.startswith("browser/") else file


def in_order(items: list[pytest.Item], durations: Durations) -> list[pytest.Item]:
    """Return the cases by group, the longest group first, and mark each for one process."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        group = group_of(item)
        item.add_marker(pytest.mark.xdist_group(group))
        groups[group].append(item)
    totals = {group: durations.total(item.nodeid for item in groups[group]) for group in groups}
    return [
        item for group in sorted(groups, key=lambda group: -totals[group]) for item in groups[group]
    ]


def _without_group(node: str) -> str:
    """The name of a case without the group that pytest-xdist adds to it."""
    name, _, group = node.rpartition("@")
    return name if group.endswith(".py") or group in PROGRAMS else node


# ---- measurement ------------------------------------------------------------------------------


def cpu_seconds(root: int | None = None) -> float:
    """Return the CPU seconds of a process, or of this one, and of all that it has started."""
    ticks, root = 0, root or os.getpid()
    for process in (root, *children(root)):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Recorder:
    """A plugin that measures each case, and writes `durations.json` at the end of the run."""

    def __init__(self) -> None:
        self.shared = 0.0  # CPU seconds of fixtures that several tests share
        self.start = 0.0
        self.by_case: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        start, before = cpu_seconds(), self.shared
        answer = yield
        if fixturedef.scope != "function":
            self.shared = before + cpu_seconds() - start
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self.start = cpu_seconds() - self.shared
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            seconds = cpu_seconds() - self.shared - self.start
            report.user_properties = [("cpu_seconds", round(max(seconds, 0.0), 2))]
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        for key, value in report.user_properties:
            if key == "cpu_seconds":
                self.by_case[_without_group(report.nodeid)] += value

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        old = Durations.read()
        new = self.measured(old)
        FILE.write_text(json.dumps(new.by_file, indent=0, sort_keys=True) + "\n")
        self.report(old.tiers(self.by_case), new.tiers(self.by_case))

    def report(self, old: dict[str, Tier], new: dict[str, Tier]) -> None:
        """Print the sum of each tier, and the cases that have moved to another."""
        for node, tier in new.items():
            if tier != old[node]:
                print(f"{old[node]} -> {tier}  {self.by_case[node]:.2f} s  {node}")
        for index, tier in enumerate(TIERS):
            inside = [node for node in new if new[node] in TIERS[: index + 1]]
            seconds = sum(self.by_case[node] for node in inside)
            print(f"{tier:6} {len(inside):6} cases {seconds:8.0f} s of CPU")

    def measured(self, old: Durations) -> Durations:
        """Return the measurements of this run, and the old ones of the tests that it left out."""
        by_test: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for node, seconds in self.by_case.items():
            file, test, case = _name(node)
            by_test[file, test][case] = seconds
        by_file: dict[str, dict[str, float | dict[str, float]]] = {}
        for file, tests in old.by_file.items():
            path = FILE.parent / file
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if tests_left := {
                test: tests[test] for test in tests if test.rpartition("::")[2] in text
            }:
                by_file[file] = tests_left
        for (file, test), run in by_test.items():
            earlier = old.by_file.get(file, {}).get(test)
            # With the cases of a larger tier, which this run left out.
            cases = earlier | run if isinstance(earlier, dict) else run
            largest = max(cases.values())
            few = largest <= LARGEST_SECONDS["fast"] or len(cases) == 1
            by_file.setdefault(file, {})[test] = largest if few else cases
        return Durations(by_file)
