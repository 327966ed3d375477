"""Input that will not do, and engines that are not there: refused before a row is read."""

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_engine import small_plan

from neyman.publishing import DataError, close_table, open_table, rehearse
from plain_engine import counted, fetched


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_a_column_whose_type_changes_between_files_is_refused_by_file_and_column(engine, tmp_path):
    """The file that differs is named, and the column; columns that are not needed may differ."""
    write(tmp_path / "a.parquet", sex=pa.array([1], pa.int64()), other=["x"])
    write(tmp_path / "b.parquet", sex=["1"], other=[2])
    with pytest.raises(DataError, match="one type in all files") as caught:
        open_table(tmp_path, engine, ["sex"], rows=False)
    assert "'sex' has type string, and int64" in str(caught.value)
    assert repr(str(tmp_path / "b.parquet")) in str(caught.value)
    write(tmp_path / "b.parquet", sex=pa.array([1, 0], pa.int64()), other=[2, 3])
    columns = ["sex"]
    table = open_table(tmp_path, engine, columns)
    assert sorted(fetched(table)["sex"].to_pylist()) == [0, 1, 1]


def test_a_parquet_file_that_is_cut_off_is_refused_by_name(engine, tmp_path):
    """Wherever it is cut: what a Parquet file holds is told at its end."""
    path = write(tmp_path / "a.parquet", sex=list(range(1000)))
    total = path.read_bytes()
    for length in (0, 3, 4, 100, len(total) // 2, len(total) - 1):
        path.write_bytes(total[:length])
        with pytest.raises(DataError, match=r"not readable Parquet.*whole") as caught:
            open_table(tmp_path, engine, rows=False)
        assert str(path) in str(caught.value)


def test_names_that_stand_for_two_columns_are_refused(engine, tmp_path):
    """Twice the same name, or two in a file that differ in case: which is meant is not known."""
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "sex"])
    path = tmp_path / "a.parquet"
    pq.write_table(twice, path)
    for place in (twice, path):
        with pytest.raises(DataError, match="2 columns called 'x'"):
            open_table(place, engine, ["x"], rows=False)
    cased = write(path, Race=["a"], race=["b"], sex=[1])
    with pytest.raises(DataError, match="if case is ignored"):
        open_table(cased, engine, ["race"], rows=False)
    assert counted(small_plan(), open_table(cased, engine, ["sex"]), engine)
    both = pa.table({"Race": ["a", "a"], "race": ["b", "b"]})
    with pytest.raises(DataError, match="if case is ignored"):
        open_table(both, engine, ["Race"])


def test_a_rehearsal_on_the_engine_reads_no_row(engine, tmp_path):
    """What counting needs runs without a row: on Spark a file that is gone is not missed."""
    path = write(tmp_path / "a.parquet", sex=[1, 0])
    table = open_table(path, engine, rows=False)
    if engine == "spark":
        path.unlink()
    rehearse(small_plan(), table)


def test_a_missing_extra_names_itself():
    """Without PySpark everything else works, and engine = 'spark' says what to install."""
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'pyspark' else find(name)\n"
        "import pyarrow as pa\n"
        "from neyman.publishing.engines.source import open_table\n"
        "open_table(pa.table({'x': [1]}))\n"
        "try: open_table('nowhere.parquet', 'spark', rows=False)\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'neyman[spark]'" in result.stdout, result.stderr


@pytest.mark.needs("java")
def test_a_spark_of_ours_is_quiet_and_stopped_and_leaves_nothing(tmp_path):
    """In a process of its own: two tables share one Spark, the last one stops it; nothing is
    printed by Java, no row stays, and after the process no folder, also not where it started."""
    path = write(tmp_path / "a.parquet", sex=[1, 0, 1])
    code = f"""
import gc, glob, tempfile
from neyman.publishing.engines.aggregate import aggregate_cells
from neyman.publishing.engines.source import close_table, open_table
from pyspark.sql import SparkSession
import sys; sys.path[:0] = {[str(Path(__file__).parents[i]) for i in (0, 2)]!r}
from test_engine import small_plan
tempfile.tempdir = {str(tmp_path)!r}
form = open_table({str(path)!r}, "spark", rows=False)
context = form.get_backend()._session.sparkContext
said = [context.master, context.uiWebUrl, context.getConf().get("spark.eventLog.enabled")]
table = open_table({str(path)!r}, "spark", ["sex"])
assert table.get_backend()._session.sparkContext is context
close_table(form)
said += aggregate_cells(small_plan(), table)["q", "all", "count"].dense().tolist()
del table, form
gc.collect()
left = glob.glob({str(tmp_path)!r} + "/neyman-*/*/*")  # Java uses its folders as long as it runs
said += [SparkSession.getActiveSession(), context._jsc, left]
print(said)
"""
    here = tmp_path / "here"
    here.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here
    )
    right = "['local[2]', None, 'false', 1, 2, 0, None, None, []]"
    assert (result.stdout.strip(), result.stderr) == (right, "")
    assert not list(here.iterdir())
    assert not list(tmp_path.glob("neyman-*"))


def test_a_spark_that_does_not_start_says_what_java_said(tmp_path):
    """In its own process: a Java that is too old is told from the error, which is ours."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'UnsupportedClassVersionError: too old' >&2\nexit 1\n")
    java.chmod(0o700)
    code = (
        "import pyarrow as pa\n"
        "from neyman.publishing.engines.csv_reader import DataError\n"
        "from neyman.publishing.engines.source import open_table\n"
        "try: open_table(pa.table({'x': [1]}), 'spark')\n"
        "except DataError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )
    assert "needs Java 17" in result.stdout
    assert "UnsupportedClassVersionError: too old" in result.stdout
    assert result.stderr == ""


def test_a_file_that_spark_would_skip_is_refused_there(engine, tmp_path):
    """DuckDB reads it by its name; Spark leaves out names with '_' or '.' in front, silently."""
    for name in ("_a.parquet", ".a.parquet"):
        path = write(tmp_path / name, sex=[1])
        if engine == "spark":
            with pytest.raises(DataError, match="rename"):
                open_table(path, engine)
        else:
            assert fetched(open_table(path, engine)).num_rows == 1


def test_types_that_no_plan_uses_stop_nothing_where_they_are_not_needed(engine, tmp_path):
    """Times, lists and structures may stand beside what is counted."""
    odd = pa.table(
        {
            "sex": [1],
            "at": pa.array([10**18], pa.timestamp("ns", "UTC")),
            "time": pa.array([1], pa.time64("us")),
            "list": [[1]],
            "struct": [{"a": 1}],
        }
    )
    pq.write_table(odd, tmp_path / "a.parquet")
    plan = small_plan()
    assert counted(plan, tmp_path / "a.parquet", engine)["q", "all", "count"] == [0, 1, 0]


def test_closing_a_table_twice_or_one_of_the_caller_does_no_harm(tmp_path, monkeypatch):
    """What is ours is removed once; a connection of the caller's stays open."""
    mine = ibis.duckdb.connect()
    mine.raw_sql("create table t as select 1 as sex")
    close_table(open_table(mine.table("t")))
    assert mine.table("t").to_pyarrow()["sex"].to_pylist() == [1]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = open_table(pa.table({"sex": [1]}))
    assert list(tmp_path.iterdir())
    close_table(ours)
    close_table(ours)
    gc.collect()
    assert not list(tmp_path.iterdir())
