"""Check a release without the data: does its receipt say what follows from its own plan?"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet

from neyman.release.plan import Plan, hash_of
from neyman.release.receipt import SCHEMA, composed, guarantee, mechanism_list

__all__ = ["Check", "verify"]


@dataclass(frozen=True)
class Check:
    """One thing checked: its name, whether it holds, and what was found."""

    name: str
    ok: bool
    detail: str


def verify(receipt: str | Path) -> list[Check]:
    """Recompute what a receipt claims, from the receipt and the published files alone.

    Args:
        receipt: path of a ``receipt.json``; its tables are looked for beside it.

    Returns:
        Checks in order; the release stands where all are ok. A receipt that cannot be read gives
        a single check that fails.
    """
    path = Path(receipt)
    path = path / "receipt.json" if path.is_dir() else path
    try:
        told = json.loads(path.read_bytes())
        schema = told["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [Check("receipt", False, f"{str(path)!r} is no receipt that can be read: {error}")]
    if schema != SCHEMA:
        return [Check("schema", False, f"{schema!r}: this version reads {SCHEMA!r}")]
    found = [Check("schema", True, SCHEMA)]
    for name, check in (
        ("plan hash", _plan_hash),
        ("plan", _plan),
        ("mechanisms", _mechanisms),
        ("budget", _budget),
        ("charge", _charge),
        ("guarantee", _guarantee),
    ):
        found.append(_tried(name, check, told))
    return [*found, *_tables(path.parent, told)]


def _tried(name: str, check: Any, told: Mapping[str, Any]) -> Check:
    try:
        ok, detail = check(told)
    except Exception as error:
        return Check(name, False, f"cannot be recomputed: {type(error).__name__}: {error}")
    return Check(name, ok, detail)


def _plan_hash(told: Mapping[str, Any]) -> tuple[bool, str]:
    own = hash_of(told["plan"])
    return own == told["plan_hash"], f"{own}, the receipt says {told['plan_hash']}"


def _plan(told: Mapping[str, Any]) -> tuple[bool, str]:
    plan = Plan.from_dict(told["plan"])
    unit = {"protects": plan.unit.protects, "rows": plan.unit.rows}
    same = (
        plan.hash == told["plan_hash"]
        and plan.dataset == told["dataset"]
        and unit == told["unit"]
        and plan.unit.neighboring == told["neighboring"]
        and plan.budget_dict() == told["budget"]
    )
    detail = "dataset, unit, neighboring and budget are the plan's"
    return same, detail if same else f"not so: {detail}"


def _scale(told: Mapping[str, Any]) -> Fraction:
    """1/rho of the whole, from the entries' exact parts."""
    return 1 / sum((Fraction(listed["zcdp"]) for listed in told["mechanisms"]), Fraction(0))


def _mechanisms(told: Mapping[str, Any]) -> tuple[bool, str]:
    plan, scale = Plan.from_dict(told["plan"]), _scale(told)
    own = mechanism_list(
        plan,
        [
            (entry, Fraction(0) if entry.public is not None else entry.sigma_squared(scale))
            for entry in plan.entries()
        ],
    )
    exact = ("query", "level", "measure", "count", "share", "cells", "zcdp", "mechanism")
    if len(own) != len(told["mechanisms"]):
        return False, f"the plan has {len(own)} entries, the list {len(told['mechanisms'])}"
    for ours, theirs in zip(own, told["mechanisms"], strict=True):
        for field in exact:
            if ours[field] != theirs.get(field):
                where = f"{ours['query']}.{ours['level']}: {field}"
                return False, f"{where} is {theirs.get(field)!r}, and follows as {ours[field]!r}"
    return True, f"all {len(own)} entries follow from the plan"


def _budget(told: Mapping[str, Any]) -> tuple[bool, str]:
    plan = Plan.from_dict(told["plan"])
    ok = plan.admits(composed(told["mechanisms"]))
    return ok, f"{told['budget']} {'admits' if ok else 'does not admit'} the mechanisms"


def _charge(told: Mapping[str, Any]) -> tuple[bool, str]:
    from neyman.accounting.adaptive import charge

    said = told["ledger"]
    own = tuple(str(x) for x in charge(composed(told["mechanisms"]), said["currency"]))
    ok = own == (said["charged"], said["charged_delta"])
    return ok, f"{own[0]} and delta {own[1]} in {said['currency']}"


def _guarantee(told: Mapping[str, Any]) -> tuple[bool, str]:
    own, said = guarantee(composed(told["mechanisms"])), told["guarantee"]
    numbers = 0
    for where, ours, theirs in _pairs("guarantee", own, said):
        low, high = _ends(ours)
        said_low, said_high = _ends(theirs)
        # What is published must be able to be true, and must not promise more than is known.
        if not (said_low <= high and low <= said_high and said_high >= low):
            return False, f"{where} is told in [{said_low}, {said_high}], found in [{low}, {high}]"
        numbers += 1
    return numbers > 0, f"{numbers} numbers recomputed from the mechanisms, none contradicted"


def _ends(told: Mapping[str, Any]) -> tuple[float, float]:
    return float(told["lower"]), float(told["upper"])


def _pairs(where: str, own: Any, said: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every interval in ours, with the receipt's."""
    if isinstance(own, Mapping):
        if "lower" in own:
            same = [key for key in ("level", "delta") if key in own]
            if any(own[key] != said[key] for key in same):
                raise ValueError(f"{where} is at another {same[0]}")
            yield where, own, said
        else:
            for key, value in own.items():
                yield from _pairs(f"{where}.{key}", value, said[key])
    elif isinstance(own, list):
        for index, value in enumerate(own):
            yield from _pairs(f"{where}[{index}]", value, said[index])


def _tables(folder: Path, told: Mapping[str, Any]) -> Iterator[Check]:
    expected = {
        (listed["query"], listed["level"]): listed["cells"] for listed in told["mechanisms"]
    }
    listed_paths = {(t["query"], t["level"]) for t in told["tables"]}
    missing = sorted(set(expected) - listed_paths)
    yield Check("tables", not missing, f"not listed: {missing}" if missing else "all are listed")
    for listed in told["tables"]:
        name = listed["path"]
        yield _tried(name, lambda one: _table(folder, one, expected), listed)


def _table(
    folder: Path, listed: Mapping[str, Any], expected: Mapping[tuple[str, str], int]
) -> tuple[bool, str]:
    content = (folder / listed["path"]).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != listed["sha256"]:
        return False, f"sha256 is {digest}, the receipt says {listed['sha256']}"
    read = (
        pyarrow.parquet.read_table if listed["path"].endswith(".parquet") else pyarrow.csv.read_csv
    )
    rows = read(io.BytesIO(content)).num_rows
    cells = expected[listed["query"], listed["level"]]
    ok = rows == cells == listed["cells"]
    return ok, f"{rows} cells" if ok else f"{rows} rows for {cells} cells"
