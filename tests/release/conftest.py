"""What the tests of releases share: each test of the engine runs on DuckDB and on Spark, each of a
ledger on SQLite and on PostgreSQL."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import tuples

import random_laws
from postgres_server import PostgresServer


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
    from entries import NAME, UNIT

    from neyman.ledger.ledger import Ledger

    owner = postgres.url(schema="rights")
    text = (Path(__file__).parents[2] / "docs/howto/operate-ledger.md").read_text()
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


def on_each(*strategies, examples: int = 12):
    """A law for both engines: one example on Spark, where each query takes tenths of a second.

    On DuckDB there are half of ``examples``, at least 3, or 2 in `make test`, the same each time;
    `make fuzz` tries new ones, ten times ``examples``. The test gets the engine, pytest's folders,
    and a value of each strategy.
    """
    many = random_laws.examples(examples, least=2 if random_laws.is_small() else 3)

    def law(test):
        def run(engine, tmp_path_factory):
            few = many if engine == "duckdb" else 2
            tried = 0

            # What fails on Spark is shown as it is: to make it small would take minutes.
            spark = {} if engine == "duckdb" else {"phases": [Phase.generate]}

            @settings(max_examples=few, **spark)
            @given(tuples(*strategies))
            def holds(values):
                nonlocal tried
                tried += 1
                # The first example is the simplest one, often without a row: DuckDB has that.
                if engine == "duckdb" or tried > 1:
                    test(engine, tmp_path_factory, *values)

            holds()

        run.__name__, run.__doc__, run.draws = test.__name__, test.__doc__, many
        return run

    return law
