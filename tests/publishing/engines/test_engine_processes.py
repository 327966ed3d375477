"""Processes of engines: a Spark server, and private rows on disk, of which a kill leaves none."""

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import ibis
import pyarrow as pa
import pytest
from test_databases import ROWS, a_plan, in_parquet, ledger, small, spent, twice, wide
from test_engine import small_plan as of_sex

import neyman as ny
from neyman.publishing import DataError, close_table, duckdb, open_table
from neyman.publishing.engines import spark
from neyman.publishing.engines.duckdb import spill_folder
from neyman.storage.private_folder import sweep
from plain_engine import Plain, counted

SPILLING = """
import sys, time, warnings
warnings.simplefilter("ignore")
from neyman.publishing.engines import duckdb
connection = duckdb.connect("60MB")
connection.raw_sql(
    "CREATE TEMP TABLE people AS"
    " SELECT 'person-number-' || hash(i)::VARCHAR AS id FROM range(2000000) t(i)"
).fetchall()
print("spilled", flush=True)
sys.stdin.read()
"""
ON_SPARK = """
import sys, warnings
warnings.simplefilter("ignore")
from neyman.publishing.engines import spark
connection = spark.connect()
# A shuffle, of which the parts lie on the disk.
ids = connection._session.range(200000).selectExpr("concat('person-number-', id) AS id")
print("spilled", ids.repartition(4).distinct().count(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A temporary folder of the test's own, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def spilling(code):
    """A process that has written private rows to the disk, and waits."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("spilled")
    return process


def end(process, how=signal.SIGKILL):
    process.send_signal(how)
    process.communicate()


def spills(folder):
    return sorted(folder.glob("neyman-spill-*"))


def modes(folder):
    """The permissions of all files, and those of all folders, below a folder."""
    by_key = {True: set(), False: set()}
    for path in (folder, *folder.rglob("*")):
        about = path.lstat()
        by_key[stat.S_ISDIR(about.st_mode)].add(stat.S_IMODE(about.st_mode))
    return by_key[False], by_key[True]


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_rows_that_a_killed_duckdb_left_are_removed_at_the_next_start(temporary, how):
    process = spilling(SPILLING)
    (left,) = spills(temporary)
    assert modes(left) == ({0o600}, {0o700})
    assert size(left) > 10_000_000
    end(process, how)
    assert size(left) > 10_000_000, "a kill leaves the rows until the next start"
    connection = duckdb.connect()
    assert left not in spills(temporary)
    duckdb.close(connection)
    assert spills(temporary) == []


def test_the_rows_of_a_running_process_stay(temporary):
    process = spilling(SPILLING)
    (used,) = spills(temporary)
    before = size(used)
    duckdb.close(duckdb.connect())
    assert spills(temporary) == [used]
    assert size(used) == before
    end(process)


@pytest.mark.needs("java")
def test_spark_writes_to_a_private_folder_that_is_removed_after_a_kill(temporary, monkeypatch):
    disk = temporary / "large disk"
    disk.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(disk))
    process = spilling(ON_SPARK)
    (left,) = disk.iterdir()
    assert left.name.startswith("neyman-spill-")
    files, folders = modes(left)
    assert (files, folders) == ({0o600}, {0o700})
    parts = [path.read_bytes() for path in left.rglob("shuffle_*.data")]
    assert any(parts)
    assert not any(b"person-number" in part for part in parts), "encrypted"
    end(process)
    # Java may be at its own removal still.
    while left.exists():
        sweep(disk)
    assert list(disk.iterdir()) == []


@pytest.mark.needs("java")
def test_a_second_spark_of_a_process_writes_to_a_private_folder_too(temporary):
    """A Java process keeps to the folder that it began with, which must not be removed."""
    code = """
import warnings; warnings.simplefilter("ignore")
import os, stat, tempfile
from pathlib import Path
import pyarrow as pa
from neyman.publishing.engines.source import open_table, close_table
for _ in range(2):
    table = open_table(pa.table({"race": ["a"] * 100}), "spark")
    assert table.count().to_pyarrow().as_py() == 100
    above = Path(tempfile.gettempdir())
    (only,) = above.glob("neyman-spill-*")
    assert {path.name for path in only.iterdir()} > {"neyman-spill"}
    for path in (only, *only.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    close_table(table)
    assert not [path for path in only.glob("*/*") if path.is_file()]
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr[-3000:]
    assert spills(temporary) == []


def test_a_planted_folder_or_link_is_left_alone(temporary):
    mine = temporary / "mine"
    mine.mkdir()
    (mine / "neyman-spill").write_text("")
    (mine / "letter.txt").write_text("x")
    (temporary / "neyman-spill-abcdefg1").symlink_to(mine)
    (temporary / "neyman-spill-abcdefg2").mkdir()
    (temporary / "neyman-spill-abcdefg2" / "letter.txt").write_text("x")
    (temporary / "neyman-spill-abcdefg3").write_text("a file")
    (temporary / "neyman-spill-notes-of-mine").mkdir()
    os.mkfifo(temporary / "neyman-spill-abcdefg4")
    before = sorted(temporary.rglob("*"))
    sweep(temporary)
    assert sorted(temporary.rglob("*")) == before


def test_a_link_inside_of_what_a_killed_run_left_is_not_followed(temporary):
    mine = temporary / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("x")
    left = temporary / "neyman-spill-abcdefg1"
    left.mkdir()
    (left / "neyman-spill").write_text("")
    (left / "spilled").symlink_to(mine)
    (left / "file").symlink_to(mine / "letter.txt")
    sweep(temporary)
    assert not left.exists()
    assert (mine / "letter.txt").read_text() == "x"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may chown")
def test_a_folder_of_another_user_is_left_alone(temporary):
    left = temporary / "neyman-spill-abcdefg1"
    left.mkdir()
    (left / "neyman-spill").write_text("")
    (left / "rows").write_text("x")
    os.chown(left, 65534, 65534)
    sweep(temporary)
    assert (left / "rows").exists()
    os.chown(left, 0, 0)
    sweep(temporary)
    assert not left.exists()


def test_an_empty_folder_of_a_process_killed_before_its_mark_is_removed(temporary):
    (temporary / "neyman-spill-abcdefg1").mkdir()
    sweep(temporary)
    assert spills(temporary) == []


def used(above, rounds):
    """Make folders again and again, and use each: exit with 1 if one is taken away."""
    for _ in range(rounds):
        folder = spill_folder(above)
        (folder.path / "rows").write_text("x")
        sweep(Path(above))
        if not (folder.path / "rows").exists():
            sys.exit(1)
        folder.remove()
        if folder.path.exists():
            sys.exit(2)


def test_processes_that_start_at_once_never_remove_the_folder_of_another(tmp_path):
    context = multiprocessing.get_context("fork")
    work = [context.Process(target=used, args=(str(tmp_path), 150)) for _ in range(6)]
    for process in work:
        process.start()
    for process in work:
        process.join()
    assert [process.exitcode for process in work] == [0] * 6
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_cannot_be_written_is_an_error_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="set TMPDIR"):
        spill_folder(tmp_path / "file")


def test_no_query_makes_duckdb_download_or_load_an_extension():
    connection = duckdb.connect()
    query = "SELECT name, value FROM duckdb_settings() WHERE name LIKE 'auto%known_extensions'"
    assert dict(connection.raw_sql(query).fetchall()) == {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    duckdb.close(connection)


def test_every_duckdb_that_we_open_beside_the_engine_is_offline_too():
    engine = Path(duckdb.__file__).parent
    opening = [
        line.strip()
        for path in engine.parents[1].rglob("*.py")
        if path.parent != engine
        for line in path.read_text(encoding="utf-8").splitlines()
        if "duckdb.connect(" in line
    ]
    assert opening
    assert [line for line in opening if "OFFLINE" not in line] == []


__all__ = ["ledger"]


@pytest.fixture
def server(spark_running, monkeypatch):
    """The address of a server, which is where Spark runs in a test."""
    monkeypatch.setattr(spark, "_MASTER", spark_running)
    return spark_running


@pytest.mark.parametrize("bounded", [False, True])
def test_a_server_gives_the_cells_of_plain_python(bounded, server, tmp_path):
    table = open_table(in_parquet(tmp_path), "spark")
    assert "connect" in type(table.get_backend()._session).__module__
    right = Plain(a_plan(bounded), twice(ROWS)).tables()
    assert counted(a_plan(bounded), table, "spark") == right
    close_table(table)
    if not bounded:
        assert counted(a_plan(), wide(), "spark") == right


def test_a_run_names_the_server_as_the_master(spark_running, ledger, tmp_path):
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
    def late(channel):
        raise TimeoutError("the caller's")

    monkeypatch.setattr(pytest.importorskip("grpc"), "channel_ready_future", late)
    with pytest.raises(TimeoutError, match="the caller's"):
        spark.connect(master="sc://127.0.0.1:1")


def test_a_table_on_a_spark_session_with_other_settings_is_refused(spark_running):
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
