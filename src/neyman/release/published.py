"""Checks of the files that a release published: its tables, its pages, and nothing else."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from neyman.release.compare import Differs, same, short
from neyman.release.folder import Release, read_parquet
from neyman.release.receipt import versions
from neyman.release.tables import build

if TYPE_CHECKING:
    from neyman.release.verify import Case

__all__ = ["Files", "Page", "TableFile"]

_REPORT = "report.html"


@dataclass(frozen=True)
class TableFile:
    """One file of a table: its bytes are those listed, its content has the form that follows."""

    query: str
    level: str
    ending: str

    def __call__(self, case: Case) -> str:
        """What was found, if the file is right."""
        content = self._listed(case, self.ending)
        own = self._form(case)
        table = read_parquet(content if self.ending == "parquet" else self._listed(case, "parquet"))
        if not table.schema.equals(own.schema, check_metadata=True):
            raise Differs(f"its columns are {short(table.schema.names)} of other types or names")
        if table.num_rows != own.num_rows:
            raise Differs(f"{table.num_rows} rows for {own.num_rows} cells")
        if self.ending == "csv":
            if not _csv(content, own.schema).equals(table):
                raise Differs("it does not say what the Parquet file says")
            return f"{own.num_rows} cells, as in the Parquet file"
        self._values(case, own, table)
        return f"{own.num_rows} cells"

    def _listed(self, case: Case, ending: str) -> bytes:
        path = f"tables/{self.query}.{self.level}.{ending}"
        content = (case.folder / path).read_bytes()
        listed = next(one for one in case.told["tables"] if one["path"] == path)
        same("sha256", hashlib.sha256(content).hexdigest(), listed["sha256"])
        return content

    def _form(self, case: Case) -> pa.Table:
        """The table if every noisy number were 0, or the declared value."""
        noisy = {
            entry.measure: (np.full(entry.cells, entry.public or 0, np.int64), sigma_squared)
            for entry, sigma_squared in case.entries[self.query, self.level]
        }
        return build(case.plan, case.plan.query(self.query), self.level, noisy)

    def _values(self, case: Case, own: pa.Table, table: pa.Table) -> None:
        measured = ("value", "standard_error", "lower", "upper")
        if any(table.column(name).null_count for name in measured):
            raise Differs("a value is missing")
        for name in own.column_names[: -len(measured)]:
            if not table.column(name).equals(own.column(name)):
                raise Differs(f"the keys in column {name!r} are not the public ones, in order")
        query = case.plan.query(self.query)
        entry = case.entries[self.query, self.level][0][0]
        value, error, lower, upper = (table.column(name).to_numpy() for name in measured)
        of_zero = {name: own.column(name).to_numpy() for name in measured}
        if query.measure == "mean":
            low, high = query.clip or (0, 1)
            fits = (low <= lower) & (lower <= value) & (value <= upper) & (upper <= high)
            if not np.all(fits & (error >= 0) & (error <= high - low)):
                raise Differs("a mean, its error or its interval is impossible")
            return
        if not np.allclose(error, of_zero["standard_error"], rtol=1e-9, atol=0):
            raise Differs("the standard error is not that of the noise")
        below, above = of_zero["value"] - of_zero["lower"], of_zero["upper"] - of_zero["value"]
        if not (np.array_equal(value - lower, below) and np.array_equal(upper - value, above)):
            raise Differs("the intervals are not those of the noise")
        if entry.public is not None and not np.array_equal(value, of_zero["value"]):
            raise Differs("the value is not the declared one")


def _csv(content: bytes, schema: pa.Schema) -> pa.Table:
    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=max(1 << 20, len(content) + 1)
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=schema, strings_can_be_null=False, null_values=[]
        ),
    ).combine_chunks()


@dataclass(frozen=True)
class Files:
    """Nothing lies in the folder but what the receipt lists, and pages."""

    pages: Mapping[str, Any] | None

    def __call__(self, case: Case) -> str:
        """What was found, if nothing else is there."""
        known = {f"tables/{q}.{level}.{e}" for q, level in case.entries for e in ("parquet", "csv")}
        known |= {case.path.name, *(self.pages or (_REPORT,))}
        there = set()
        for root, folders, files in os.walk(case.folder):
            linked = [name for name in folders if (Path(root) / name).is_symlink()]
            for name in (*files, *linked):
                path = (Path(root) / name).relative_to(case.folder).as_posix()
                if path not in known:
                    raise Differs(f"{short(path)} lies there, and is no part of the release")
                there.add(path)
        if self.pages is None and _REPORT in there:
            return f"nothing else lies there; {_REPORT} was not looked at"
        return "nothing else lies there"


@dataclass(frozen=True)
class Page:
    """A page is the one that follows from the receipt and the tables."""

    name: str
    page: Callable[[Release], str]

    def __call__(self, case: Case) -> str:
        """What was found, if the page is right."""
        if (case.folder / self.name).read_bytes() != self.page(case.release).encode():
            made = case.told["versions"]["neyman"]
            now = versions()["neyman"]
            other = f" (it was made with {made}, and this is {now})" if made != now else ""
            raise Differs(f"is not the page that follows from the receipt{other}: make it again")
        return "follows from the receipt and the tables"
