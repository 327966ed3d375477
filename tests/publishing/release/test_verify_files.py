"""Verification of hostile folders: links, pipes, and small files that stand for much memory."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import answered
from function_calls import function_calls
from neyman import Ledger
from neyman.publishing import SIGNATURE, Plan, PlanError, SignatureError, sign, verify
from plans import release

pytestmark = [
    pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning"),
    pytest.mark.skipif(os.name == "nt", reason="links and pipes are those of POSIX"),
]

CODES = [f"{number:04}" for number in range(3000)]
PLAN = {
    "schema": 2,
    "name": "codes",
    "dataset": "people@1",
    "table": "people",
    "noise": "rounded-gaussian",  # its guarantee takes the least time
    "unit": {"protects": "person", "neighboring": "add-remove", "id": "who"},
    "columns": {"code": {"keys": CODES}, "job": {"discover": True}},
    "budget": {"zcdp": 1, "delta": "1/1000"},
    "query": [
        {"name": "code", "measure": "count", "by": ["code"], "share": "1/2"},
        {"name": "job", "measure": "units", "by": ["job"], "delta": "1/100000", "share": "1/2"},
    ],
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    people = pa.table({"code": CODES[:1000], "job": ["smith", "cook"] * 500, "who": range(1000)})
    with Ledger(folder / "l.db") as book:
        book.create(
            "people@1", protects="person", neighboring="add-remove", cap=2, delta_cap="1/100"
        )
        release(Plan.from_dict(PLAN), people, book, folder / "out")
    return folder / "out"


@pytest.fixture
def folder(honest, tmp_path):
    shutil.copytree(honest, tmp_path / "out")
    return tmp_path / "out"


def failed(folder, **limits):
    return {check.name: check.detail for check in verify(folder, **limits) if not check.ok}


def put(folder, name, table, **writing):
    """Another table in place of one, with a receipt that fits."""
    path = f"tables/{name}.parquet"
    pq.write_table(table, folder / path, **writing)
    content = json.loads((folder / "receipt.json").read_text())
    for listed in content["tables"]:
        if listed["path"].rpartition(".")[0] == f"tables/{name}":
            listed["cells"] = len(table)
            listed["sha256"] = hashlib.sha256((folder / listed["path"]).read_bytes()).hexdigest()
    (folder / "receipt.json").write_text(json.dumps(content))


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def memory_of(folder):
    """The most memory that checking a release takes in its own process, in bytes."""
    code = """
import resource, sys
from neyman.publishing import verify
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
failed = [check.name for check in verify(sys.argv[1]) if not check.ok]
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before), *failed)
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    used, *names = done.stdout.split()
    return int(used), names


def test_a_long_text_that_is_repeated_takes_no_memory(folder):
    table = pq.read_table(folder / "tables" / "code.all.parquet")
    one = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), ["x" * 1_000_000])
    table = table.set_column(0, "code", one)
    put(folder, "code.all", table, store_schema=False, dictionary_pagesize_limit=1 << 24)
    assert size(folder) < 400_000
    used, names = memory_of(folder)
    assert "tables/code.all.parquet" in names
    assert "tables/code.all.csv" in names
    assert used < 400e6


def test_a_row_that_is_repeated_a_hundred_million_times_is_refused_by_its_footer(folder):
    schema = pq.read_schema(folder / "tables" / "job.all.parquet")
    path = folder / "tables" / "job.all.parquet"
    rows = 5_000_000  # in each of 20 groups
    words = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x"])
    part = pa.table(
        {
            field.name: words
            if pa.types.is_string(field.type)
            else pa.repeat(100, rows).cast(field.type)
            for field in schema
        }
    )
    with pq.ParquetWriter(path, part.schema, store_schema=False) as writer:
        for _ in range(20):
            writer.write_table(part)
    content = json.loads((folder / "receipt.json").read_text())
    listed = [t for t in content["tables"] if t["query"] != "job"]
    one = {"query": "job", "level": "all", "path": "tables/job.all.parquet", "cells": 20 * rows}
    one |= {"without_csv": "more than 1000000 cells"}
    listed.append(one | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    (folder / "receipt.json").write_text(json.dumps(content | {"tables": listed}))
    (folder / "tables" / "job.all.csv").unlink()
    assert size(folder) < 3_000_000
    used, names = memory_of(folder)
    assert "tables/job.all.parquet" in names
    assert used < 400e6
    assert "memory = '4GB'" in failed(folder)["tables/job.all.parquet"]


DISCOVERY = {
    **PLAN,
    "columns": {"a": {"discover": True}, "b": {"keys": ["x", "y"]}, "c": {"discover": True}},
    "query": [
        {"name": "ab", "measure": "units", "by": ["a", "b"], "delta": "1/100000", "share": "1/2"},
        {"name": "ac", "measure": "units", "by": ["a", "c"], "delta": "1/100000", "share": "1/2"},
    ],
}


@pytest.fixture(scope="module")
def discovery(tmp_path_factory):
    """A release of two tables whose keys were found in the data: one row each."""
    folder = tmp_path_factory.mktemp("found")
    people = pa.table({"a": ["1"] * 999, "b": ["x"] * 999, "c": ["2"] * 999, "who": range(999)})
    with Ledger(folder / "l.db") as book:
        book.create(
            "people@1", protects="person", neighboring="add-remove", cap=2, delta_cap="1/100"
        )
        release(Plan.from_dict(DISCOVERY), people, book, folder / "out")
    return folder / "out"


def with_keys(discovery, tmp_path, name, columns):
    """The release with other keys, whose rows are all as its one row."""
    folder = tmp_path / "forged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(discovery, folder)
    table = pq.read_table(folder / f"tables/{name}.all.parquet")
    rows = len(columns[0])
    numbers = [table.column(k).take(np.zeros(rows, int)) for k in range(2, 6)]
    put(folder, f"{name}.all", pa.table([*columns, *numbers], table.schema), store_schema=False)
    return folder


def test_keys_that_were_found_are_in_the_order_of_their_bytes_each_once(discovery, tmp_path):
    keys = list(product(["a", "\u00e4"], ["x", "y", "z"]))
    right = 0
    for pair in product(keys, repeat=2):
        columns = [pa.array(column) for column in zip(*pair, strict=True)]
        folder = with_keys(discovery, tmp_path, "ab", columns)
        refusal = "tables/ab.all.parquet" in failed(folder)
        one, other = (tuple(key.encode() for key in row) for row in pair)
        expected = one < other and {row[1] for row in pair} <= {"x", "y"}
        assert refusal is not expected, pair
        right += expected
    assert right == 6


def test_a_million_rows_of_a_thousand_keys_take_no_work_row_by_row(discovery, tmp_path):
    keys, numbers = [f"{k:04}" for k in range(1000)], np.arange(1000, dtype=np.int32)
    columns = [
        pa.DictionaryArray.from_arrays(np.repeat(numbers, 1000), keys),
        pa.DictionaryArray.from_arrays(np.tile(numbers, 1000), keys),
    ]
    folder = with_keys(discovery, tmp_path, "ac", [column.cast(pa.string()) for column in columns])
    checks = []
    assert function_calls(lambda: checks.append(failed(folder))) < 300_000
    assert "tables/ac.all.parquet" not in checks[0]


def test_a_codec_that_no_release_uses_is_refused(folder):
    table = pq.read_table(folder / "tables" / "code.all.parquet")
    put(folder, "code.all", table, store_schema=False, compression="gzip")
    assert "GZIP" in failed(folder)["tables/code.all.parquet"]


def test_the_limit_of_memory_is_the_readers_to_set(folder):
    assert failed(folder, memory="100MB") == {}
    assert "1KB" in failed(folder, memory="1KB")["receipt"]
    assert "1MB" in failed(folder, memory="1MB")["tables/code.all.parquet"]
    for wrong in ("", "4", "GB", "-1GB", "0MB", "1 PB", None):
        with pytest.raises(ValueError, match=f"memory = {wrong!r}"):
            verify(folder, memory=wrong)


def test_the_command_takes_a_limit_of_memory(folder):
    for limit, code in (("500MB", 0), ("1KB", 5), ("a lot", 2)):
        answered("verify", folder, "--json", "--memory", limit, code=code)


@pytest.mark.parametrize(
    "path", ["tables/code.all.parquet", "tables/code.all.csv", "receipt.json", "tables"]
)
def test_a_link_in_place_of_a_part_of_the_release_fails(folder, tmp_path, path):
    (folder / path).rename(tmp_path / "elsewhere")
    (folder / path).symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in failed(folder)["files"]


def test_a_link_within_the_release_fails_too(folder):
    shutil.copy(folder / "tables" / "code.all.csv", folder / "tables" / "same.csv")
    (folder / "tables" / "code.all.csv").unlink()
    (folder / "tables" / "code.all.csv").symlink_to("same.csv")
    assert "files" in failed(folder)


@pytest.mark.parametrize("path", ["more", "tables/more", "tables/consistent", ".hidden/deeper"])
def test_an_empty_folder_that_is_no_part_of_the_release_fails(folder, path):
    (folder / path).mkdir(parents=True)
    assert list(failed(folder)) == ["files"]


@pytest.mark.parametrize(
    "path",
    ["receipt.json", "tables/code.all.parquet", "tables/code.all.csv", "report.html", SIGNATURE],
)
def test_a_named_pipe_in_place_of_a_file_fails_and_is_not_waited_for(folder, path):
    (folder / path).unlink(missing_ok=True)
    os.mkfifo(folder / path)
    assert failed(folder)
    assert "ordinary" in " ".join(failed(folder).values())
    with pytest.raises(ValueError, match=re.escape("ordinary file")):
        raise ValueError(" ".join(failed(folder, key=folder / path).values()))


def test_keys_and_plans_that_are_named_pipes_or_devices_are_refused(tmp_path):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(PlanError, match="not an ordinary file"):
            Plan.load(path)
        with pytest.raises(SignatureError, match="not an ordinary file"):
            sign(b"{}", path)


def test_a_plan_of_more_than_the_most_bytes_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "plan.toml").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room
    with pytest.raises(PlanError, match="more than 268,435,456 bytes"):
        Plan.load(tmp_path / "plan.toml")
