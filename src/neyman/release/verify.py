"""Check a release without the data: does it say what follows from its own plan, and nothing else?

Everything in a receipt but the ledger's entry, the versions and the digests of the tables follows
from the plan and from how much it spends. All of it is made again and compared, field by field:
what is missing, and what is there beside it, fails as well as what differs.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from neyman.release.folder import Release, read_files, read_parquet
from neyman.release.plan import Entry, Plan, hash_of
from neyman.release.receipt import SCHEMA, composed, guarantee, mechanism_list, versions
from neyman.release.tables import build

__all__ = ["Check", "verify"]

_FIELDS = (
    "schema", "plan", "plan_hash", "dataset", "unit", "neighboring", "mechanisms", "guarantee",
    "budget", "tables", "ledger", "versions",
)  # fmt: skip
_REPORT = "report.html"
_TINY = 1e-6  # bounds of another machine or version may differ in their last digits
_ROUTE = 1e-3  # the route by zCDP is searched for to four digits


@dataclass(frozen=True)
class Check:
    """One thing checked: its name, whether it holds, and what was found."""

    name: str
    ok: bool
    detail: str


class _Differs(Exception):
    """What was told is not what follows."""


def verify(
    receipt: str | Path, pages: Mapping[str, Callable[[Release], str]] | None = None
) -> list[Check]:
    """Recompute what a release claims, from the receipt and the published files alone.

    Args:
        receipt: path of a ``receipt.json``; its tables are looked for beside it.
        pages: how further files were made, ``{"report.html": page}``: those that are there are
            made again and compared. Without it a report is not looked at.

    Returns:
        Checks in order; the release stands where all are ok. A receipt that cannot be read gives
        a single check that fails. Nothing that a file holds makes this raise.
    """
    path = Path(receipt)
    try:
        path = path / "receipt.json" if path.is_dir() else path
        told = _read(path.read_bytes())
        if not isinstance(told, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return [Check("receipt", False, f"{str(path)!r} is no receipt that can be read: {error}")]
    if told.get("schema") != SCHEMA:
        schema = repr(told.get("schema"))[:80]
        return [Check("schema", False, f"{schema}: this version reads {SCHEMA!r}")]
    case = _Case(path, told)
    found: list[Check] = []
    for name, check in (
        ("schema", _schema),
        ("plan hash", _plan_hash),
        ("plan", _plan),
        ("mechanisms", _mechanisms),
        ("budget", _budget),
        ("charge", _charge),
        ("guarantee", _guarantee),
        ("tables", _listing),
    ):
        found.append(_tried(name, check, case))
    if found[-1].ok:
        for query, level in case.entries:
            for ending in ("parquet", "csv"):
                name = f"tables/{query}.{level}.{ending}"
                found.append(_tried(name, _TableFile(query, level, ending), case))
    found.append(_tried("files", _Files(pages), case))
    if pages and all(check.ok for check in found):
        for name, page in pages.items():
            if (path.parent / name).exists():
                found.append(_tried(name, _Page(name, page), case))
    return found


def _tried(name: str, check: Callable[[_Case], str], case: _Case) -> Check:
    try:
        return Check(name, True, check(case))
    except _Differs as error:
        return Check(name, False, str(error))
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return Check(name, False, f"cannot be recomputed: {type(error).__name__}: {text}")


def _read(content: bytes) -> Any:
    """JSON as it is written by us: no field twice, no NaN."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("it gives a field twice")
        return found

    def refuse(name: str) -> None:
        raise ValueError(f"it holds {name}")

    return json.loads(content, object_pairs_hook=once, parse_constant=refuse)


class _Case:
    """A receipt with what follows from its plan, each worked out once."""

    def __init__(self, path: Path, told: Mapping[str, Any]) -> None:
        self.path, self.folder, self.told = path, path.parent, told

    @cached_property
    def plan(self) -> Plan:
        sections = self.told["plan"].get("hierarchy", {}).values()
        if any(not isinstance(section["keys"], list) for section in sections):
            raise _Differs("the plan names a file in place of its public keys")
        plan = Plan.from_dict(self.told["plan"])
        _same("plan", plan.canonical(), self.told["plan"])
        return plan

    @cached_property
    def calibrated(self) -> list[tuple[Entry, Fraction]]:
        """Entries with their noise, of which only the whole rho is taken from the receipt."""
        scale = 1 / sum((_ratio(listed["zcdp"]) for listed in self.told["mechanisms"]), Fraction(0))
        return [
            (entry, Fraction(0) if entry.public is not None else entry.sigma_squared(scale))
            for entry in self.plan.entries()
        ]

    @cached_property
    def mechanism(self) -> Any:
        """The whole, once the list is known to be what the plan comes to."""
        listed = mechanism_list(self.plan, self.calibrated)
        try:
            _same("mechanisms", listed, self.told["mechanisms"])
        except _Differs as error:
            raise _Differs(f"not looked at, since the mechanisms are wrong: {error}") from None
        return composed(listed)

    @cached_property
    def entries(self) -> dict[tuple[str, str], list[tuple[Entry, Fraction]]]:
        """The entries of each table."""
        found: dict[tuple[str, str], list[tuple[Entry, Fraction]]] = {}
        for entry, sigma_squared in self.calibrated:
            found.setdefault((entry.query, entry.level), []).append((entry, sigma_squared))
        return found

    @cached_property
    def release(self) -> Release:
        files = read_files(self.folder)
        return Release.of_files(self.folder, files | {"receipt.json": self.path.read_bytes()})


def _ratio(text: Any) -> Fraction:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,1300}(/[0-9]{1,1300})?", text):
        raise _Differs(f"{_short(text)} is no exact number such as '1/4'")
    return Fraction(text)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _keys(where: str, own: Any, said: Any) -> None:
    if not isinstance(said, Mapping):
        raise _Differs(f"{where} is {_short(said)}, and must be an object")
    for missing in (key for key in own if key not in said):
        raise _Differs(f"{where}.{missing} is missing")
    for extra in (key for key in said if key not in own):
        raise _Differs(f"{where}.{_short(extra)} is not part of a receipt")


def _same(where: str, own: Any, said: Any) -> None:
    """Refuse any difference of keys, lengths, types, values; floats may differ by a rounding."""
    if isinstance(own, Mapping):
        _keys(where, own, said)
        for key, value in own.items():
            _same(f"{where}.{key}", value, said[key])
    elif isinstance(own, list):
        if not isinstance(said, list) or len(said) != len(own):
            length = len(said) if isinstance(said, list) else _short(said)
            raise _Differs(f"{where} has {len(own)} items, and the receipt {length}")
        for index, value in enumerate(own):
            _same(f"{where}[{index}]", value, said[index])
    elif isinstance(own, float):
        if not math.isclose(_number(where, said), own, rel_tol=1e-9):
            raise _Differs(f"{where} is {_short(said)}, and follows as {own!r}")
    elif type(said) is not type(own) or said != own:
        raise _Differs(f"{where} is {_short(said)}, and follows as {_short(own)}")


def _number(where: str, said: Any) -> float:
    if said == "inf":
        return math.inf
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise _Differs(f"{where} is {_short(said)}, which is no number")
    return float(said)


def _schema(case: _Case) -> str:
    _keys("the receipt", dict.fromkeys(_FIELDS), case.told)
    said = case.told["versions"]
    _keys("versions", versions(), said)
    for name, version in said.items():
        if not isinstance(version, str) or not re.fullmatch(r"[0-9A-Za-z.+!_-]{1,60}", version):
            raise _Differs(f"versions.{name} is {_short(version)}, which is no version")
    return SCHEMA


def _plan_hash(case: _Case) -> str:
    own = hash_of(case.told["plan"])
    _same("plan_hash", own, case.told["plan_hash"])
    return own


def _plan(case: _Case) -> str:
    plan = case.plan
    own = {
        "plan_hash": plan.hash,
        "dataset": plan.dataset,
        "unit": {"protects": plan.unit.protects, "rows": plan.unit.rows},
        "neighboring": plan.unit.neighboring,
        "budget": plan.budget_dict(),
    }
    for name, value in own.items():
        _same(name, value, case.told[name])
    return "dataset, unit, neighboring and budget are the plan's"


def _mechanisms(case: _Case) -> str:
    own = mechanism_list(case.plan, case.calibrated)
    _same("mechanisms", own, case.told["mechanisms"])
    return f"all {len(own)} entries follow from the plan"


def _budget(case: _Case) -> str:
    if not case.plan.admits(case.mechanism):
        raise _Differs(f"{case.plan.budget_dict()} does not admit the mechanisms")
    return f"{case.plan.budget_dict()} admits the mechanisms"


def _charge(case: _Case) -> str:
    from neyman.accounting.adaptive import charge

    said = case.told["ledger"]
    keys = ("account", "entry", "currency", "charged", "charged_delta")
    _keys("ledger", dict.fromkeys(keys), said)
    _same("ledger.account", case.plan.dataset, said["account"])
    if not isinstance(said["entry"], str) or not re.fullmatch("[1-9][0-9]{0,18}", said["entry"]):
        raise _Differs(f"ledger.entry is {_short(said['entry'])}, which is no number of an entry")
    own, own_delta = charge(case.mechanism, said["currency"])
    charged = _ratio(said["charged"])
    # What zCDP costs is exact; the other currencies are computed, and machines differ a little.
    close = own == charged or (
        said["currency"] != "zcdp" and abs(charged - own) <= own * Fraction(_TINY)
    )
    if not close:
        raise _Differs(f"ledger.charged is {_short(said['charged'])}, and follows as {own}")
    _same("ledger.charged_delta", str(own_delta), said["charged_delta"])
    return f"{charged} and delta {own_delta} in {said['currency']}"


def _guarantee(case: _Case) -> str:
    own, said = guarantee(case.mechanism, case.plan), case.told["guarantee"]
    _keys("guarantee", own, said)
    route, said_route = own.pop("zcdp_route"), said["zcdp_route"]
    numbers = sum(1 for _ in _intervals("guarantee", own, {k: said[k] for k in own}))
    if route is None or said_route is None:
        _same("guarantee.zcdp_route", route, said_route)
        return f"{numbers} numbers recomputed from the mechanisms"
    _keys("guarantee.zcdp_route", route, said_route)
    _same("guarantee.zcdp_route.promise", route["promise"], said_route["promise"])
    for name, value in (
        ("rho", float(_ratio(said_route["rho"]))),
        ("variance_ratio", _number("variance_ratio", said_route["variance_ratio"])),
    ):
        ours = float(Fraction(route[name]))
        if not math.isclose(value, ours, rel_tol=_ROUTE):
            raise _Differs(f"guarantee.zcdp_route.{name} is {value!r}, and follows as {ours!r}")
    return f"{numbers + 1} numbers recomputed from the mechanisms"


def _intervals(where: str, own: Any, said: Any) -> Iterator[None]:
    """Compare what was told with ours: the same questions, and bounds that promise no more."""
    if isinstance(own, list):
        if not isinstance(said, list) or len(said) != len(own):
            length = len(said) if isinstance(said, list) else _short(said)
            raise _Differs(f"{where} has {len(own)} items, and the receipt {length}")
        for index, value in enumerate(own):
            yield from _intervals(f"{where}[{index}]", value, said[index])
        return
    _keys(where, own, said)
    if "lower" not in own:
        for key, value in own.items():
            yield from _intervals(f"{where}.{key}", value, said[key])
        return
    for key in own:
        if key not in ("lower", "upper"):
            _same(f"{where}.{key}", own[key], said[key])
    low, high = _number(where, own["lower"]), _number(where, own["upper"])
    said_low = _number(f"{where}.lower", said["lower"])
    said_high = _number(f"{where}.upper", said["upper"])
    most = 1.0 if re.search("power|curve|total_variation", where) else math.inf
    if not 0 <= said_low <= said_high <= most:
        raise _Differs(f"{where} is told in [{said_low}, {said_high}], which is no interval")
    # Wider is another version's right; narrower would claim what is not known here.
    if said_high < high * (1 - _TINY) or said_low > low * (1 + _TINY):
        raise _Differs(f"{where} is told in [{said_low}, {said_high}], found in [{low}, {high}]")
    yield


def _listing(case: _Case) -> str:
    own, said = [], case.told["tables"]
    for (query, level), entries in case.entries.items():
        for ending in ("parquet", "csv"):
            path = f"tables/{query}.{level}.{ending}"
            cells = entries[0][0].cells
            own.append({"query": query, "level": level, "path": path, "cells": cells})
    if not isinstance(said, list) or len(said) != len(own):
        length = len(said) if isinstance(said, list) else _short(said)
        raise _Differs(f"the plan makes {len(own)} files, and the receipt lists {length}")
    for index, (ours, theirs) in enumerate(zip(own, said, strict=True)):
        where = f"tables[{index}]"
        _keys(where, {**ours, "sha256": ""}, theirs)
        _same(where, ours, {key: theirs[key] for key in ours})
    return "all are listed, as Parquet and as CSV"


@dataclass(frozen=True)
class _TableFile:
    """One file of a table: its bytes are those listed, its content has the form that follows."""

    query: str
    level: str
    ending: str

    def __call__(self, case: _Case) -> str:
        content = self._listed(case, self.ending)
        own = self._form(case)
        table = read_parquet(content if self.ending == "parquet" else self._listed(case, "parquet"))
        if not table.schema.equals(own.schema, check_metadata=True):
            raise _Differs(f"its columns are {_short(table.schema.names)} of other types or names")
        if table.num_rows != own.num_rows:
            raise _Differs(f"{table.num_rows} rows for {own.num_rows} cells")
        if self.ending == "csv":
            if not _csv(content, own.schema).equals(table):
                raise _Differs("it does not say what the Parquet file says")
            return f"{own.num_rows} cells, as in the Parquet file"
        self._values(case, own, table)
        return f"{own.num_rows} cells"

    def _listed(self, case: _Case, ending: str) -> bytes:
        path = f"tables/{self.query}.{self.level}.{ending}"
        content = (case.folder / path).read_bytes()
        listed = next(one for one in case.told["tables"] if one["path"] == path)
        _same("sha256", hashlib.sha256(content).hexdigest(), listed["sha256"])
        return content

    def _form(self, case: _Case) -> pa.Table:
        """The table if every noisy number were 0, or the declared value."""
        noisy = {
            entry.measure: (np.full(entry.cells, entry.public or 0, np.int64), sigma_squared)
            for entry, sigma_squared in case.entries[self.query, self.level]
        }
        return build(case.plan, case.plan.query(self.query), self.level, noisy)

    def _values(self, case: _Case, own: pa.Table, table: pa.Table) -> None:
        measured = ("value", "standard_error", "lower", "upper")
        if any(table.column(name).null_count for name in measured):
            raise _Differs("a value is missing")
        for name in own.column_names[: -len(measured)]:
            if not table.column(name).equals(own.column(name)):
                raise _Differs(f"the keys in column {name!r} are not the public ones, in order")
        query = case.plan.query(self.query)
        entry = case.entries[self.query, self.level][0][0]
        value, error, lower, upper = (table.column(name).to_numpy() for name in measured)
        of_zero = {name: own.column(name).to_numpy() for name in measured}
        if query.measure == "mean":
            low, high = query.clip or (0, 1)
            fits = (low <= lower) & (lower <= value) & (value <= upper) & (upper <= high)
            if not np.all(fits & (error >= 0) & (error <= high - low)):
                raise _Differs("a mean, its error or its interval is impossible")
            return
        if not np.allclose(error, of_zero["standard_error"], rtol=1e-9, atol=0):
            raise _Differs("the standard error is not that of the noise")
        below, above = of_zero["value"] - of_zero["lower"], of_zero["upper"] - of_zero["value"]
        if not (np.array_equal(value - lower, below) and np.array_equal(upper - value, above)):
            raise _Differs("the intervals are not those of the noise")
        if entry.public is not None and not np.array_equal(value, of_zero["value"]):
            raise _Differs("the value is not the declared one")


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
class _Files:
    """Nothing lies in the folder but what the receipt lists, and pages."""

    pages: Mapping[str, Any] | None

    def __call__(self, case: _Case) -> str:
        known = {f"tables/{q}.{level}.{e}" for q, level in case.entries for e in ("parquet", "csv")}
        known |= {case.path.name, *(self.pages or (_REPORT,))}
        there = set()
        for root, folders, files in os.walk(case.folder):
            linked = [name for name in folders if (Path(root) / name).is_symlink()]
            for name in (*files, *linked):
                path = (Path(root) / name).relative_to(case.folder).as_posix()
                if path not in known:
                    raise _Differs(f"{_short(path)} lies there, and is no part of the release")
                there.add(path)
        if self.pages is None and _REPORT in there:
            return f"nothing else lies there; {_REPORT} was not looked at"
        return "nothing else lies there"


@dataclass(frozen=True)
class _Page:
    """A page is the one that follows from the receipt and the tables."""

    name: str
    page: Callable[[Release], str]

    def __call__(self, case: _Case) -> str:
        if (case.folder / self.name).read_bytes() != self.page(case.release).encode():
            made = case.told["versions"]["neyman"]
            now = versions()["neyman"]
            other = f" (it was made with {made}, and this is {now})" if made != now else ""
            raise _Differs(f"is not the page that follows from the receipt{other}: make it again")
        return "follows from the receipt and the tables"
