"""Which files a source names, and input that will not do: refused before a row is read."""

import gc
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_engine import small_plan

from neyman import Ledger
from neyman.publishing import DataError, close_table, open_table, rehearse
from plain_engine import counted, fetched
from plans import release


def people(path, males, females=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"sex": [0] * males + [1] * females}), path)
    return path


def count(source, engine="duckdb"):
    return counted(small_plan(), source, engine)["q", "all", "count"][:2]


@pytest.mark.parametrize(("name", "other"), [
    ("data[1].parquet", "data1.parquet"), ("data*.parquet", "data12.parquet"),
    ("data?.parquet", "data1.parquet"), ("data{1,2}.parquet", "data1.parquet"),
    ("[d]ata[!x].parquet", "data1.parquet"), ("**.parquet", "data1.parquet"),
    ("data%31 #1?x=.parquet", "data1.parquet"),
])  # fmt: skip
def test_a_file_whose_name_is_a_pattern_is_read_and_no_other(engine, tmp_path, name, other):
    path = people(tmp_path / name, 10, 1)
    people(tmp_path / other, 5, 50)
    assert count(path, engine) == [10, 1]
    assert count(str(path), engine) == [10, 1]


def test_a_folder_whose_name_is_a_pattern_is_read_and_no_other(engine, tmp_path):
    people(tmp_path / "year[1]" / "x.parquet", 3, 1)
    people(tmp_path / "year1" / "x.parquet", 50, 50)
    assert count(tmp_path / "year[1]", engine) == [3, 1]
    assert count(tmp_path / "year[1]" / "x.parquet", engine) == [3, 1]


def test_files_of_a_folder_are_not_patterns_for_each_other(engine, tmp_path):
    people(tmp_path / "x1.parquet", 10, 1)
    people(tmp_path / "x[1].parquet", 5, 2)
    people(tmp_path / "x*.parquet", 1, 4)
    assert count(tmp_path, engine) == [16, 7]


def test_the_schema_is_that_of_the_file_that_is_named(engine, tmp_path):
    path = people(tmp_path / "data[1].parquet", 1)
    pq.write_table(pa.table({"other": ["x"]}), tmp_path / "data1.parquet")
    assert open_table(path, engine, rows=False).columns == ("sex",)
    path.unlink()
    path.write_bytes((tmp_path / "data1.parquet").read_bytes())
    people(tmp_path / "data1.parquet", 1)
    assert open_table(path, engine, rows=False).columns == ("other",)


def test_a_name_that_duckdb_cannot_be_given_is_refused(tmp_path):
    path = people(tmp_path / "a\\[1].parquet", 1)
    with pytest.raises(DataError, match="rename the file"):
        open_table(path, rows=False)


def test_leftovers_of_a_failed_job_are_not_counted(engine, tmp_path):
    people(tmp_path / "part-0.parquet", 2, 1)
    people(tmp_path / "day=1" / "part-1.parquet", 3)
    for name in ("_temporary/0/task/part-0", "day=1/_temporary/x", ".staging/x", "_x", ".x"):
        people(tmp_path / f"{name}.parquet", 100)
    right = [5, 1]
    assert count(tmp_path, engine) == right
    for pattern in ("**/*.parquet", "**", "*"):
        assert count(tmp_path / pattern, engine) == right
    assert count(tmp_path / "*.parquet", engine) == [2, 1]
    assert count(tmp_path / "day=*", engine) == [3, 0]


def test_a_file_under_several_names_is_read_once(engine, tmp_path):
    folder = tmp_path / "people"
    path = people(folder / "deep" / "b.parquet", 2, 1)
    (folder / "a.parquet").symlink_to(path)
    os.link(path, folder / "hard.parquet")
    (folder / "again").symlink_to(folder / "deep")
    (folder / "deep" / "circle").symlink_to(folder)
    assert count(folder, engine) == [2, 1]
    assert count(folder / "**" / "*.parquet", engine) == [2, 1]
    assert count([folder, path, folder / "a.*", folder / "hard.parquet"], engine) == [2, 1]
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    assert count([link, str(link), path], engine) == [2, 1]
    (tmp_path / "linked").symlink_to(folder)
    assert count([tmp_path / "linked", folder], engine) == [2, 1]


@pytest.mark.parametrize("link", ["x.parquet", "deep/x.parquet", "other"])
def test_a_link_that_leads_out_of_a_folder_is_refused(tmp_path, link):
    people(tmp_path / "elsewhere" / "secret.parquet", 5)
    folder = tmp_path / "people"
    people(folder / "a.parquet", 1)
    (folder / "deep").mkdir()
    target = tmp_path / "elsewhere" / ("" if link == "other" else "secret.parquet")
    (folder / link).symlink_to(target)
    for source in (folder, folder / "**" / "*", tmp_path / "peop*"):
        with pytest.raises(DataError, match="leads out of the folder"):
            open_table(source, rows=False)
    people(folder / "b.parquet", 1)
    assert count([folder / "a.parquet", folder / "b.parquet", target]) == [7, 0]


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    people(tmp_path / "a.parquet", 1)
    (tmp_path / "b.parquet").symlink_to(tmp_path / "gone.parquet")
    with pytest.raises(DataError, match=r"'.*b\.parquet' cannot be read: No such file"):
        open_table(tmp_path, rows=False)


def test_files_are_found_in_folders_whose_names_begin_with_a_dot_if_they_are_named(tmp_path):
    path = people(tmp_path / "_old" / ".x" / "a.parquet", 4)
    for source in (tmp_path / "_old" / ".x", tmp_path / "_*" / ".x" / "*", path):
        assert count(source) == [4, 0]


@pytest.mark.parametrize("source", [[], ["a.parquet", 5], [None]])
def test_a_list_holds_paths_and_at_least_one(source):
    with pytest.raises(DataError, match=r"data is a list|data = \[\]"):
        open_table(source, rows=False)


def test_files_of_two_kinds_are_refused(tmp_path):
    people(tmp_path / "a.parquet", 1)
    (tmp_path / "a.csv").write_text("sex\n0\n")
    with pytest.raises(DataError, match="all of one kind"):
        open_table([tmp_path / "a.parquet", tmp_path / "a.csv"], rows=False)
    with pytest.raises(DataError, match=r"must be Parquet \(\.parquet\) or CSV"):
        open_table(tmp_path / "a.*", rows=False)


def test_csv_files_of_a_list_are_one_table(tmp_path):
    for name, row in (("a", "0"), ("b[1]", "1")):
        (tmp_path / f"{name}.csv").write_text(f"sex\n{row}\n")
    assert count([tmp_path / "a.csv", tmp_path / "b[1].csv"]) == [1, 1]


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as product:
        product.bind(str(path))


KINDS = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/null"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_pipe_a_socket_or_a_device_is_refused_at_once_and_nothing_is_charged(
    tmp_path, monkeypatch, kind, suffix
):
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    folder = tmp_path / "people"
    people(folder / "a.parquet", 1)
    KINDS[kind](tmp_path / f"odd{suffix}")
    sources = [tmp_path / f"odd{suffix}", [f"odd{suffix}"]]
    if suffix == ".parquet" and kind != "a device":
        os.rename(f"odd{suffix}", folder / "odd.parquet")
        sources = [folder / "odd.parquet", folder, [folder], "people/*.parquet"]
    ledger = Ledger("ledger.db")
    ledger.create("test@1", protects="person", neighboring="replace-one", cap=1)
    for source in sources:
        with pytest.raises(DataError, match=f"is {kind}") as caught:
            release(small_plan(), source, ledger, tmp_path / "out")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert ledger.account("test@1").spent == 0


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_a_column_whose_type_changes_between_files_is_refused_by_file_and_column(engine, tmp_path):
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
    path = write(tmp_path / "a.parquet", sex=list(range(1000)))
    total = path.read_bytes()
    for length in (0, 3, 4, 100, len(total) // 2, len(total) - 1):
        path.write_bytes(total[:length])
        with pytest.raises(DataError, match=r"not readable Parquet.*whole") as caught:
            open_table(tmp_path, engine, rows=False)
        assert str(path) in str(caught.value)


def test_names_that_stand_for_two_columns_are_refused(engine, tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "sex"])
    path = tmp_path / "a.parquet"
    pq.write_table(twice, path)
    for place in (twice, path):
        with pytest.raises(DataError, match="2 columns called 'x'"):
            open_table(place, engine, ["x"], rows=False)
    cased = write(path, Race=["a"], race=["b"], sex=[1])
    with pytest.raises(DataError, match="if case is ignored"):
        open_table(cased, engine, ["race"], rows=False)


def test_a_rehearsal_on_the_engine_reads_no_row(engine, tmp_path):
    path = write(tmp_path / "a.parquet", sex=[1, 0])
    table = open_table(path, engine, rows=False)
    if engine == "spark":
        path.unlink()
    rehearse(small_plan(), table)


def test_a_missing_extra_names_itself():
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
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )  # fmt: skip
    assert "needs Java 17" in result.stdout
    assert "UnsupportedClassVersionError: too old" in result.stdout
    assert result.stderr == ""


def test_a_file_that_spark_would_skip_is_refused_there(engine, tmp_path):
    for name in ("_a.parquet", ".a.parquet"):
        path = write(tmp_path / name, sex=[1])
        if engine == "spark":
            with pytest.raises(DataError, match="rename"):
                open_table(path, engine)
        else:
            assert fetched(open_table(path, engine)).num_rows == 1


def test_closing_a_table_twice_or_one_of_the_caller_does_no_harm(tmp_path, monkeypatch):
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
