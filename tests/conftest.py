"""What holds for every test."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import mpmath
import pytest

import attacks
import machine

# The Java of a test ends before its second compiler has paid off: half the time of Spark's tests.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(name): what the machine must have; see machine.NEEDS")
    config.addinivalue_line("markers", "attack: attacks the product; see attacks.ATTACKS")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if attacks.attack_of(item.nodeid) is not None:
            item.add_marker("attack")


@pytest.fixture
def attempts(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Add to the number of attempts that the summary of the attacks has for this test."""
    return attacks.attempts(request.node)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test starts with the same digits, whatever the test before it has set."""
    mpmath.mp.dps = 60
    for mark in item.iter_markers("needs"):
        machine.need(*mark.args)


@pytest.fixture
def size() -> int:
    """How many times as many attempts an attack makes as in `make test`."""
    return attacks.SIZE


def _reason(report: Any) -> str:
    """The reason of a skip, without its place."""
    answer = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return answer.removeprefix("Skipped: ")


def _refuse(report: Any) -> None:
    """Turn a skip into a failure where skips are refused."""
    if report.skipped and not hasattr(report, "wasxfail") and machine.refused(_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"NEYMAN_SKIPS=refuse does not allow this skip: {_reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the attacks came to, how many tests were skipped, and why."""
    ended = [
        each
        for key in ("passed", "failed", "error", "skipped")
        for each in terminalreporter.stats.get(key, ())
    ]
    if lines := attacks.summary(each for each in ended if hasattr(each, "when")):
        terminalreporter.section(f"attacks, at size {attacks.SIZE}")
        for line in lines:
            terminalreporter.write_line(line)
    skips = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if skips:
        terminalreporter.section(f"skipped tests: {skips.total()}")
        for answer, count in skips.most_common():
            terminalreporter.write_line(f"{count:6}  {answer}")
