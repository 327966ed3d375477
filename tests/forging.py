"""What a forger does to a release: edits whose parts fit together."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import neyman as ny
from neyman.display import page

Change = Callable[[pa.Table], pa.Table]


def rewrite(folder: Path, name: str, change: Change) -> None:
    """A table changed in both files, with digests that fit."""
    table = change(pq.read_table(folder / "tables" / f"{name}.parquet"))
    pq.write_table(table, folder / "tables" / f"{name}.parquet")
    pyarrow.csv.write_csv(table, folder / "tables" / f"{name}.csv")
    answer = json.loads((folder / "receipt.json").read_text())
    for listed in answer["tables"]:
        content = (folder / listed["path"]).read_bytes()
        listed["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "receipt.json").write_text(json.dumps(answer))


def raised(table: pa.Table) -> pa.Table:
    """A table with a thousand more in its first cell, and an interval that goes along."""
    for name in ("value", "lower", "upper"):
        first, *others = table[name].to_pylist()
        values = pa.array([first + 1000, *others], table.schema.field(name).type)
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def forged(release: Path, folder: Path, name: str) -> Path:
    """A copy of a release in which a count is raised and everything else follows: page, digests."""
    shutil.copytree(release, folder)
    rewrite(folder, name, raised)
    (folder / "report.html").write_text(page(ny.Release.load(folder)), encoding="utf-8")
    return folder
