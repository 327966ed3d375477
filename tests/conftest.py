"""What holds for every test."""

from __future__ import annotations

import os
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import mpmath
import pytest
from hypothesis import HealthCheck, settings

import attacks
import machine
import random_laws
import tiers
from postgres_server import PostgresServer
from spark_cluster import free_port

# The Java of a test ends before its second compiler has paid off: half the time of Spark's tests.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# A run in the background, or below nohup, inherits that Ctrl-C is ignored. So would the programs
# that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Warnings of libraries about each other: Ibis calls DuckDB, and PySpark pandas, by names that newer
# versions announce to go away, and PySpark leaves it to Python to close a socket after use.
_NOT_OURS = (
    "ignore:fetch_:DeprecationWarning",
    "ignore:The copy keyword is deprecated",
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:os.fork:RuntimeWarning",  # JAX, which synthetic data load into the process
)


# The same examples in every run but `make fuzz`, which draws new ones. Nothing is kept in the
# checkout, which may be read-only, and a slow machine fails no test.
settings.register_profile(
    "neyman", database=None, deadline=None,
    derandomize=not random_laws.INPUTS and attacks.SIZE == 1,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("neyman")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "which cases a run takes (tests/tiers.py)")
    group.addoption("--tier", choices=tiers.TIERS, default="night", help="the largest tier")
    group.addoption("--beyond", choices=tiers.TIERS, help="leave out what this tier has run")
    group.addoption("--durations-file", action="store_true", help="measure and write the times")
    group.addoption("--reverse", action="store_true", help="run the last case first")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["NEYMAN_TIER"] = config.getoption("tier")
    if config.getoption("durations_file"):
        config.pluginmanager.register(tiers.Recorder())
    for line in _NOT_OURS:
        config.addinivalue_line("filterwarnings", line)
    config.addinivalue_line("markers", "needs(name): what the machine must have; see machine.NEEDS")
    config.addinivalue_line("markers", "attack: attacks the product; see attacks.ATTACKS")
    config.addinivalue_line("markers", "random: draws its examples; `make fuzz` draws new ones")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the cases of the tier, the longest group first, before pytest-xdist reads the groups."""
    for item in items:
        if attacks.attack_of(item.nodeid) is not None:
            item.add_marker("attack")
        if item.nodeid.startswith("tests/fuzz/") or random_laws.is_random(item):
            item.add_marker("random")
    if os.environ.get("NEYMAN_SPARK") == "connect":  # without those that start Java themselves
        items[:] = [i for i in items if all("java" not in m.args for m in i.iter_markers("needs"))]
    durations, largest = tiers.Durations.read(), config.getoption("tier")
    chosen = items if largest == "night" else durations.chosen(items, largest)
    if config.getoption("beyond"):
        before = set(durations.chosen(items, config.getoption("beyond")))
        chosen = [item for item in chosen if item not in before or random_laws.grows(item)]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = chosen
    if getattr(config.option, "loadgroup", False):  # of a process of pytest-xdist
        items[:] = tiers.in_order(items, durations)
    if config.getoption("reverse"):
        items.reverse()


@pytest.fixture
def attempts(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Add to the number of attempts that the summary of the attacks has for this test."""
    return attacks.attempts(request.node)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for as long as this process tests."""
    machine.need("postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def spark_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One small Spark for all tests of a process; tables open sessions of their own on it.

    It has the plugin of Spark Connect, and this is its address there. With NEYMAN_SPARK=connect the
    sessions are those of this server, and tests that start Java themselves are left out.
    """
    machine.need("java")
    from pyspark.sql import SparkSession

    from neyman.publishing.engines import spark

    port = free_port()
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port), "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }  # fmt: skip
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    own, address = spark._MASTER, f"sc://127.0.0.1:{port}"
    if os.environ.get("NEYMAN_SPARK") == "connect":
        spark._MASTER = address
    yield address
    spark._MASTER = own
    session.stop()


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
def pytest_runtest_makereport(call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if call.excinfo and (lack := machine.lack(call.excinfo.value)):
        report.outcome, report.longrepr = "skipped", f"Skipped: {lack}"
    _refuse(report)
    return report


class _TestFile(pytest.Module):
    """A file of tests. It is skipped if a package that it imports is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if (lack := machine.lack(error.__cause__)) is None:
                raise
            pytest.skip(lack, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return _TestFile.from_parent(parent, path=module_path)


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


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made: a test that asks for it runs once on each store."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(schema=f"t{secrets.token_hex(6)}")


@pytest.fixture
def writer(postgres: PostgresServer) -> Iterator[tuple[str, str, str]]:
    """A ledger's URL for its owner, and for a user with the rights that the docs give.

    The third is the user's URL without the ledger. They have a schema of their own, `mine`.
    """
    import psycopg

    from ledger_entries import NAME, UNIT
    from neyman import Ledger

    owner = postgres.url(schema="rights")
    text = (Path(__file__).parents[1] / "docs/howto/operate-ledger.md").read_text()
    grants = text.partition("```sql\n")[2].partition("```")[0].replace("neyman", "rights")
    Ledger(owner).create(NAME, cap=1, **UNIT)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE writer LOGIN")
        connection.execute("CREATE SCHEMA mine AUTHORIZATION writer")
        connection.execute(grants)  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        yield owner, postgres.url(schema="rights", user="writer"), postgres.url(user="writer")
    finally:
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute("DROP OWNED BY writer CASCADE")
            connection.execute("DROP ROLE writer")
            connection.execute("DROP SCHEMA rights CASCADE")


@pytest.fixture
def share(size: int) -> int:
    """Of so many steps of a process one is tried as the last before a kill."""
    return 1 if size > 1 else 20 if random_laws.is_small() else 3


@pytest.fixture(scope="session", params=["duckdb", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine that a test is run on."""
    if request.param == "spark":
        request.getfixturevalue("spark_running")
    return request.param
