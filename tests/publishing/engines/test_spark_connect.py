"""Spark Connect: a plan's cells through a server, in CI too, and what only a server has.

`make test-connect` runs all Spark tests through one.
"""

import ibis
import pyarrow as pa
import pytest
from test_databases import ROWS, a_plan, in_parquet, ledger, small, spent, twice, wide
from test_engine import small_plan as of_sex

import neyman as ny
from neyman.publishing import DataError, close_table, open_table
from neyman.publishing.engines import spark
from plain_engine import Plain, counted

__all__ = ["ledger"]


@pytest.fixture
def server(spark_running, monkeypatch):
    """The address of a server, which is where Spark runs in a test."""
    monkeypatch.setattr(spark, "_MASTER", spark_running)
    return spark_running


@pytest.mark.parametrize("bounded", [False, True])
def test_a_server_gives_the_cells_of_plain_python(bounded, server, tmp_path):
    """From files that it reads itself, and from rows of this process."""
    table = open_table(in_parquet(tmp_path), "spark")
    assert "connect" in type(table.get_backend()._session).__module__
    right = Plain(a_plan(bounded), twice(ROWS)).tables()
    assert counted(a_plan(bounded), table, "spark") == right
    close_table(table)
    if not bounded:
        assert counted(a_plan(), wide(), "spark") == right


def test_a_run_names_the_server_as_the_master(spark_running, ledger, tmp_path):
    """Its session ends with the run, and another one of the caller is left alone."""
    people = pa.table({"s": ["a"] * 50 + ["A"]})
    given = {"engine": "spark", "master": spark_running}
    release = ny.run(small(), {"people": people}, ledger, tmp_path / "release", **given)
    assert len(release.tables["s.all"]) == 2
    own = spark.connect(master=spark_running)
    own._session.createDataFrame(people).createOrReplaceTempView("people")
    session = ibis.pyspark.connect(own._session)
    assert counted(small(), session.table("people"), "spark")["s", "all", "count"] == [50, 1]
    assert own._session.range(2).count() == 2
    spark.close(own)


def test_a_server_that_cannot_be_used_is_refused_before_the_charge(ledger, tmp_path, monkeypatch):
    """It takes no bound on memory, and its address, which can hold a token, is not repeated, nor is
    one with a blank, in big letters, or for another engine."""
    monkeypatch.setattr(spark, "_ANSWER_SECONDS", 0.2)
    people = pa.table({"s": ["a"]})
    refused = [
        (
            {"master": "sc://127.0.0.1:1/;token=se-cret", "memory": "1GB"},
            "memory is for a Spark of",
        ),
        ({"master": "sc://127.0.0.1:none/;token=se-cret"}, "no session"),
        ({"master": "sc://127.0.0.1:15002;token=se-cret"}, "no session"),
        ({"master": "sc://127.0.0.1:15002/;token se-cret"}, "no session"),
        ({"master": "sc://127.0.0.1:1/;token=se-cret"}, "no server answers"),
        ({"master": " sc://127.0.0.1:1/;token=se-cret"}, "no server answers"),
        ({"master": "SC://127.0.0.1:1/;token=se-cret"}, "no server answers"),
        ({"master": "sc://127.0.0.1:1/;token=se-cret", "engine": "duckdb"}, "engine = 'spark'"),
        ({"master": "sc:/127.0.0.1:1/;token=se-cret", "engine": "duckdb"}, "engine = 'spark'"),
        ({"master": "local[1]", "engine": "duckdb"}, r"master = 'local\[1\]': is for engine"),
        ({"master": 3}, "master = 3: must be a text"),
    ]
    for given, words in refused:
        with pytest.raises(DataError, match=words) as error:
            ny.run(small(), people, ledger, tmp_path / "out", **{"engine": "spark", **given})
        assert "cret" not in str(error.value)
    assert spent(ledger) == 0


def test_a_time_limit_of_the_caller_is_not_taken_for_a_fault_of_the_server(monkeypatch):
    """A handler of a signal can raise while the server is waited for."""

    def late(channel):
        raise TimeoutError("the caller's")

    monkeypatch.setattr(pytest.importorskip("grpc"), "channel_ready_future", late)
    with pytest.raises(TimeoutError, match="the caller's"):
        spark.connect(master="sc://127.0.0.1:1")


def test_a_table_on_a_spark_session_with_other_settings_is_refused(spark_running):
    """Without ANSI casts, with another time zone or names without case, answers would differ."""
    connection = spark.connect()
    session = connection._session
    session.createDataFrame(pa.table({"sex": [1, 0]})).createOrReplaceTempView("mine")
    table = connection.table("mine")
    assert counted(of_sex(), table, "spark")["q", "all", "count"] == [1, 1, 0]
    session.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(DataError, match=r"spark\.sql\.ansi\.enabled = true"):
        open_table(table, "spark")
    with pytest.raises(DataError, match="duckdb"):
        open_table(table)
    with pytest.raises(DataError, match="spark"):
        open_table(open_table(pa.table({"sex": [1]})), "spark")
