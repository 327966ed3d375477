"""Check without the data that a release states exactly what follows from its own plan.

Everything in a receipt, except the ledger's entry, the versions, and the tables' digests, follows
from the plan and its charge. The check recomputes and compares every field. Missing, extra, and
different fields fail.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from neyman.accounting.charges import charge
from neyman.accounting.currency import Currency
from neyman.accounting.semantics.digits import many, plain
from neyman.ledger.throwaway import NOTICE
from neyman.numerics.check import is_list, is_mapping
from neyman.publishing.consistency.published_forms import FOLDER
from neyman.publishing.plan.measures import SEARCHES
from neyman.publishing.plan.plan import hash_of
from neyman.publishing.release.clip_tables import clip_parts
from neyman.publishing.release.field_comparison import (
    MACHINE_TOLERANCE,
    Differs,
    intervals,
    keys,
    number,
    ratio,
    same,
    short,
)
from neyman.publishing.release.folder import LIMITS as FOLDER_LIMITS
from neyman.publishing.release.folder import Release
from neyman.publishing.release.receipt import guarantee, mechanism_list, new_part, versions
from neyman.publishing.release.receipt_format import FIRST, SCHEMA, ReceiptConsistency, check_format
from neyman.publishing.release.verify import external_checks as evidence
from neyman.publishing.release.verify import publication_checks as publication
from neyman.publishing.release.verify.case import Case
from neyman.publishing.release.verify.size_limits import MEMORY, MemoryLimit
from neyman.storage.reading import read_file

_ROUTE_TOLERANCE = 1e-3  # the route by zCDP is searched for to four digits


@dataclass(frozen=True)
class Check:
    """Report one check: its name, whether it passed, and a detail."""

    name: str
    ok: bool
    detail: str


def verify(
    receipt: str | Path,
    pages: Mapping[str, Callable[[Release], str]] | None = None,
    *,
    key: str | Path | None = None,
    ledger: str | Path | None = None,
    checkpoint: str | Path | None = None,
    independent: str | Path | None = None,
    memory: str = MEMORY,
) -> list[Check]:
    """Recompute the claims of a release from the receipt and the published files alone.

    This shows whether the release is consistent. Only a ``key`` or a ``ledger`` shows who made it.

    Args:
        receipt: the path of a ``receipt.json``, with its tables beside it.
        pages: functions that make further files, ``{"report.html": page}``. Each such file that
            exists is made again and compared. Without ``pages`` a report is not checked.
        key: the path of the public key that must have signed the receipt.
        ledger: the path or address of the ledger, which must be valid and have published these
            files.
        checkpoint: the file of a checkpoint that the ledger's history must contain.
        independent: the path of a program of Python, such as ``checker/check.py`` of Neyman's
            repository, that checks the receipt's numbers in a process of its own.
        memory: the largest memory for the check, such as "4GB", estimated from the sizes that the
            files state. A file that needs more fails.

    Returns:
        The checks in order. The release is valid if all are ok. An unreadable receipt gives a
        single failed check. No file content can raise an error here.

    Raises:
        ValueError: ``memory`` is no amount of memory, or there is no such program.
    """
    limit = MemoryLimit.of(memory)
    if independent is not None and not Path(independent).is_file():
        raise ValueError(
            f"independent = {str(independent)!r} is no file; give the path of checker/check.py, "
            "which is in Neyman's repository"
        )
    path = Path(receipt)
    try:
        path = path / "receipt.json" if path.is_dir() else path
        limit.check_receipt(path)
        content = read_file(path, FOLDER_LIMITS.receipt_bytes)
        content_fields = _read(content)
        if not is_mapping(content_fields):
            raise ValueError("it is not a JSON object")
    except (Differs, OSError, ValueError, RecursionError, MemoryError) as error:
        return [
            Check("receipt", False, f"{str(path)!r} is not a receipt that can be read: {error}")
        ]
    try:
        check_format(content_fields, SCHEMA)
    except (ValueError, RecursionError) as error:
        return [Check("schema", False, str(error))]
    case = Case(path, content_fields, content, limit)
    checks = [_try_check(name, partial(check, case)) for name, check in _CHECKS.items()]
    if checks[-1].ok:
        for one in case.files:
            ending = one.path.rpartition(".")[2]
            added_up = one.path.startswith(FOLDER)
            look = publication.check_consistent if added_up else publication.check_table
            checks.append(_try_check(one.path, partial(look, case, one.query, one.level, ending)))
    checks.append(_try_check("files", partial(publication.check_files, case, pages)))
    checks.append(_try_check("signature", partial(evidence.check_signed, case, key)))
    if ledger is not None:
        checks.append(_try_check("ledger", partial(evidence.check_ledger, ledger, checkpoint)))
        checks.append(_try_check("published", partial(evidence.check_published, case, ledger)))
    if independent is not None:
        check = partial(evidence.check_independent, case, independent)
        checks.append(_try_check("independent", check))
    if pages and all(check.ok for check in checks):
        for name, page in pages.items():
            if (path.parent / name).exists():
                checks.append(_try_check(name, partial(publication.check_page, case, name, page)))
    return checks


def _try_check(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except Differs as error:
        return Check(name, False, str(error))
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return Check(name, False, f"cannot be recomputed: {type(error).__name__}: {text}")


def _read(content: bytes) -> object:
    """Return the parsed JSON. Refuse a repeated field and NaN, which Neyman never writes."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            raise ValueError("it gives a field twice")
        return content

    def refuse(name: str) -> None:
        raise ValueError(f"it holds {name}")

    return json.loads(content, object_pairs_hook=unique, parse_constant=refuse)


def _schema(case: Case) -> str:
    more = ("consistency",) if "consistency" in case.receipt["plan"] else ()
    more += ("clips",) if _searches(case.receipt["plan"]) else ()
    more += ("mechanism",) if "disjoint" in case.receipt["plan"] else ()
    keys("the receipt", dict.fromkeys((*FIRST, *more)), case.receipt)
    said = case.receipt["versions"]
    keys("versions", versions(), said)
    for name, version in said.items():
        if not isinstance(version, str) or not re.fullmatch(r"[0-9A-Za-z.+!_-]{1,60}", version):
            raise Differs(f"versions.{name} is {short(version)}, which is not a version")
    return SCHEMA


def _searches(plan: Mapping[str, Any]) -> bool:
    clips = any(query.get("clip") in SEARCHES for query in plan["query"])
    return clips or plan["unit"].get("rows") == "discover"


def _plan_hash(case: Case) -> str:
    own = hash_of(case.receipt["plan"])
    same("plan_hash", own, case.receipt["plan_hash"])
    return own


def _plan(case: Case) -> str:
    plan = case.plan
    own = {
        "plan_hash": plan.hash,
        "dataset": plan.dataset,
        "unit": {"protects": plan.unit.protects, "rows": plan.unit_rows},
        "neighboring": plan.unit.neighboring,
        "budget": plan.budget_dict(),
    }
    for name, value in own.items():
        same(name, value, case.receipt[name])
    return "dataset, unit, neighboring and budget are the plan's"


def _mechanisms(case: Case) -> str:
    own = [part.to_dict() for part in mechanism_list(case.plan, case.calibrated)]
    same("mechanisms", own, case.receipt["mechanisms"])
    return f"as they follow from the plan ({many(len(own), 'entry')})"


def _budget(case: Case) -> str:
    budget = case.plan.budget_dict()
    numbers = " and ".join(f"{name} = {value}" for name, value in budget.items() if name != "kind")
    said = f"{budget['kind']} with {numbers}"
    left = f" and the {plain(case.plan.left)} of it that they leave" if case.plan.left else ""
    if not case.plan.admits(case.mechanism + case.plan.rest(case.scale)):
        raise Differs(f"{said} does not admit the mechanisms{left}")
    return f"{said} admits the mechanisms{left}"


def _is_date(text: object) -> bool:
    """Return True for a calendar day in the form 2026-11-23."""
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", str(text), re.ASCII):
        return False
    try:
        date.fromisoformat(str(text))
    except ValueError:
        return False
    return True


def _charge(case: Case) -> str:
    said = case.receipt["ledger"]
    fields = ("account", "entry", "currency", "charged", "charged_delta", "date")
    marked = said.get("throwaway", False)
    more = [name for name in ("throwaway", "approval", "balance") if name in said]
    keys("ledger", (*fields, *more), said)
    if not _is_date(said["date"]):
        raise Differs(
            f"ledger.date is {short(said['date'])}, which is not a date such as 2026-11-23"
        )
    if "throwaway" in said:
        same("ledger.throwaway", True, marked)
    same("ledger.account", case.plan.dataset, said["account"])
    if not isinstance(said["entry"], str) or not re.fullmatch("[1-9][0-9]{0,18}", said["entry"]):
        raise Differs(f"ledger.entry is {short(said['entry'])}, which is not a number of an entry")
    listed = mechanism_list(case.plan, case.calibrated)
    own, own_delta = charge(new_part(case.plan, listed, case.mechanism), said["currency"])
    charged = ratio(said["charged"])
    # A zCDP charge is exact. Other currencies are computed, and machines differ slightly.
    least = (
        own if Currency.read(said["currency"]).exact else own * (1 - Fraction(MACHINE_TOLERANCE))
    )
    if charged < least:
        raise Differs(f"ledger.charged is {short(said['charged'])}, and is recomputed as {own}")
    same("ledger.charged_delta", str(own_delta), said["charged_delta"])
    looser = charged > own * (1 + Fraction(MACHINE_TOLERANCE))
    needed = f" (a looser proof than today's, which needs {plain(own)})" if looser else ""
    paid = f"{plain(charged)} and delta {plain(own_delta)} in {said['currency']}{needed}"
    return f"{paid}. {NOTICE}" if marked else paid


def _guarantee(case: Case) -> str:
    own = guarantee(case.mechanism, case.plan, case.scale).to_dict()
    said = case.receipt["guarantee"]
    keys("guarantee", own, said)
    route, said_route = own.pop("zcdp_route"), said["zcdp_route"]
    proven = list(intervals("guarantee", own, {k: said[k] for k in own}))
    numbers, near = len(proven), proven.count(False)
    note = f"; {near} of them to 1 part in 1,000, as versions differ" if near else ""
    if route is None or said_route is None:
        same("guarantee.zcdp_route", route, said_route)
        return f"{many(numbers, 'number')} recomputed from the mechanisms{note}"
    keys("guarantee.zcdp_route", route, said_route)
    same("guarantee.zcdp_route.promise", route["promise"], said_route["promise"])
    for name, value in (
        ("rho", float(ratio(said_route["rho"]))),
        ("variance_ratio", number("variance_ratio", said_route["variance_ratio"])),
    ):
        ours = float(Fraction(route[name]))
        if not math.isclose(value, ours, rel_tol=_ROUTE_TOLERANCE):
            raise Differs(
                f"guarantee.zcdp_route.{name} is {value!r}, and is recomputed as {ours!r}"
            )
    return f"{many(numbers + 1, 'number')} recomputed from the mechanisms{note}"


def _listing(case: Case) -> str:
    own, said = [part.to_dict() for part in case.files], case.receipt["tables"]
    if not is_list(said) or len(said) != len(own):
        length = len(said) if is_list(said) else short(said)
        raise Differs(f"the plan makes {many(len(own), 'file')}, and the receipt lists {length}")
    for index, (ours, theirs) in enumerate(zip(own, said, strict=True)):
        where = f"tables[{index}]"
        keys(where, ours, theirs)
        same(where, ours, {**theirs, "sha256": ""})
    if case.clips:
        clips = [part.to_dict() for part in clip_parts(case.widest, case.clips)]
        same("clips", clips, case.receipt["clips"])
    if case.added_up is not None:
        same(
            "consistency",
            ReceiptConsistency.of(case.added_up).to_dict(),
            case.receipt["consistency"],
        )
    left = sum("without_csv" in one for one in own)
    return "all are listed, as Parquet and as CSV" + (f"; {left} without CSV" if left else "")


_CHECKS = {
    "schema": _schema,
    "plan hash": _plan_hash,
    "plan": _plan,
    "mechanisms": _mechanisms,
    "budget": _budget,
    "charge": _charge,
    "guarantee": _guarantee,
    "tables": _listing,
}
"""The checks of the receipt itself, in order, by name."""
