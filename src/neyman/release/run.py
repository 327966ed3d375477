"""The main job: a plan and private data go in, a release comes out, charged to the ledger first."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np

from neyman.release.engine import (
    DataError,
    aggregate,
    check_schema,
    columns_needed,
    open_table,
    rehearse,
)
from neyman.release.folder import OutputError, Release, check_folder, resolved, staging
from neyman.release.ledger import Ledger
from neyman.release.ledger.account import ChargedError, LedgerError
from neyman.release.plan import Entry, Plan, PlanError
from neyman.release.plan.document import suggest
from neyman.release.receipt import SCHEMA, guarantee, mechanism_list, receipt_bytes, versions
from neyman.release.tables import build, csv_bytes, parquet_bytes

if TYPE_CHECKING:
    from neyman.noise import Bits

__all__ = ["ChargedError", "DataError", "OutputError", "Release", "release"]

Progress = Callable[[str, float], None]
Pages = Mapping[str, Callable[[Release], str]]

_log = logging.getLogger("neyman")
_MOST_SIGMA_SQUARED = 2**100
_LAST = "putting in place"


def release(
    plan: Plan | str | Path,
    data: Any,
    ledger: Ledger | str | Path,
    out: str | Path,
    engine: str = "duckdb",
    pages: Pages | None = None,
    progress: Progress | None = None,
) -> Release:
    """Make the release that a plan describes, and charge it to the ledger before reading the data.

    The same plan again gives the same bytes and costs nothing. A run that is killed keeps its
    charge and leaves no output folder; running the plan again is then charged again.

    Args:
        plan: a plan or the path of one.
        data: the private table: what ``open_table`` takes, or a mapping of the plan's table name
            to it.
        ledger: a ledger or the path of one, with the plan's dataset registered.
        out: the output folder: new, empty, or holding this very release. A symbolic link leads to
            where the release will be.
        engine: "duckdb".
        pages: further files to publish, made from the release: ``{"report.html": page}``.
        progress: called with a stage's name and the fraction done.

    Raises:
        PlanError, DataError, OutputError: the plan, the data's schema or the folder will not do.
        LedgerError, BudgetRefused: the dataset is not registered so, or too little is left.
        In each of these cases nothing is spent and nothing written.
        ChargedError: the run failed after its charge, which stands.
    """
    from neyman.noise import SecureBits

    return _release(plan, data, ledger, out, engine, pages, progress, bits=SecureBits)


def _release(
    plan: Plan | str | Path,
    data: Any,
    ledger: Ledger | str | Path,
    out: str | Path,
    engine: str = "duckdb",
    pages: Pages | None = None,
    progress: Progress | None = None,
    *,
    bits: Callable[[], Bits],
) -> Release:
    tell = progress or (lambda stage, fraction: None)
    tell("checking the plan", 0.0)
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    book = ledger if isinstance(ledger, Ledger) else Ledger(str(ledger))
    out = resolved(out)
    unit = {
        "protects": plan.unit.protects,
        "neighboring": plan.unit.neighboring,
        "rows": plan.unit.rows,
    }
    account = book.check(plan.dataset, **unit, charge=0, delta=0)
    published = book.published(plan.dataset, plan.hash)
    if published is not None:
        _, files = published
        check_folder(out, files)
        if not out.is_dir() or not any(out.iterdir()):
            with staging(out) as stage:
                stage.publish(files)
        tell("published before: the same files", 1.0)
        return Release.of_files(out, files, published_before=True)
    check_folder(out, None)

    source = _bound(plan, data)
    schema = open_table(source, engine, rows=False)
    columns = columns_needed(plan, list(schema.columns))
    check_schema(plan, schema)
    rehearse(plan, schema)

    tell("finding the least noise", 0.05)
    mechanism = plan.mechanism()
    calibrated = plan.calibrated()
    _check_noise(plan, calibrated)
    _rehearse_tables(plan, calibrated)
    mechanisms = mechanism_list(plan, calibrated)
    from neyman.accounting.adaptive import charge

    charged, charged_delta = charge(mechanism, account.currency)
    book.check(plan.dataset, **unit, charge=charged, delta=charged_delta)
    tell("computing the guarantee", 0.3)
    promised = guarantee(mechanism, plan)

    with staging(out) as stage:
        tell("reserving in the ledger", 0.5)
        entry = book.reserve(
            plan.dataset,
            key=plan.hash,
            **unit,
            charge=charged,
            delta=charged_delta,
            mechanisms=mechanisms,
            plan=json.dumps(plan.canonical(), ensure_ascii=False),
        )

        def work(tell: Progress) -> Release:
            tell("counting", 0.55)
            exact = aggregate(plan, _open(source, engine, columns))
            tell("drawing noise", 0.85)
            files, listed = _tables(plan, exact, calibrated, bits())
            receipt = {
                "schema": SCHEMA,
                "plan": plan.canonical(),
                "plan_hash": plan.hash,
                "dataset": plan.dataset,
                "unit": {"protects": plan.unit.protects, "rows": plan.unit.rows},
                "neighboring": plan.unit.neighboring,
                "mechanisms": mechanisms,
                "guarantee": promised,
                "budget": plan.budget_dict(),
                "tables": listed,
                "ledger": {
                    "account": plan.dataset,
                    "entry": str(entry.id),
                    "currency": account.currency,
                    "charged": str(charged),
                    "charged_delta": str(charged_delta),
                },
                "versions": versions(),
            }
            files["receipt.json"] = receipt_bytes(receipt)
            tell("writing", 0.9)
            _add_pages(files, out, pages or {})
            winner = book.finish(entry.id, files)
            if winner.id != entry.id:
                # Another run of the same plan published first: its bytes are the release.
                again = book.published(plan.dataset, plan.hash)
                files = again[1] if again else files
            tell(_LAST, 0.95)
            stage.publish(files)
            return Release.of_files(out, files)

        made = _charged(f"entry {entry.id} of {plan.dataset}", work, tell)
    tell("done", 1.0)
    return made


def _charged(entry: str, work: Callable[[Progress], Release], tell: Progress) -> Release:
    """Work after the charge, which stands: an error may be about private values, so none is told.

    Raises:
        ChargedError: the work failed.
    """
    at = ""

    def following(stage: str, fraction: float) -> None:
        nonlocal at
        at = stage
        tell(stage, fraction)

    reason = ""
    try:
        return work(following)
    except (LedgerError, OutputError) as error:
        reason = f"{error}; "  # about files of ours
    except Exception:
        _log.debug("failed while %s, after the charge", at, exc_info=True)
    # Raised out here so that nothing leads back from it to the error and its values.
    if at == _LAST:
        then = "the release is in the ledger: run the same plan with an empty folder, at no charge"
    else:
        then = "running the plan again is charged again"
    if not reason:
        then += ". What failed is logged at debug level only: it may hold values of the data"
    raise ChargedError(f"failed while {at}; the charge stands ({entry}); {reason}{then}")


def _bound(plan: Plan, data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    if plan.table not in data:
        raise DataError(f"data has no table {plan.table!r}; {suggest(plan.table, data)}")
    return data[plan.table]


def _open(source: Any, engine: str, columns: tuple[str, ...]) -> ibis.Table:
    # A plan that only counts rows still needs one column, to have rows at all.
    return open_table(source, engine, columns or None)


def _check_noise(plan: Plan, calibrated: tuple[tuple[Entry, Fraction], ...]) -> None:
    for entry, sigma_squared in calibrated:
        if sigma_squared > _MOST_SIGMA_SQUARED:
            raise PlanError(
                [
                    f"query {entry.query!r} at {entry.level!r} would get noise of standard error "
                    f"{float(sigma_squared) ** 0.5:.3g}, and the most is 2^50; give it a larger "
                    "share, or the plan a larger budget"
                ]
            )


def _rehearse_tables(plan: Plan, calibrated: tuple[tuple[Entry, Fraction], ...]) -> None:
    """Build every table from zeros, so that nothing about its keys can fail after the charge."""
    parts: dict[tuple[str, str], dict[str, tuple[Any, Fraction]]] = {}
    for entry, sigma_squared in calibrated:
        zeros = np.zeros(entry.cells, dtype=np.int64)
        parts.setdefault((entry.query, entry.level), {})[entry.measure] = (zeros, sigma_squared)
    for (name, level), noisy in parts.items():
        try:
            build(plan, plan.query(name), level, noisy)
        except (ValueError, OverflowError, KeyError) as error:
            raise PlanError(
                [f"query {name!r} at {level!r}: its table cannot be made: {error}"]
            ) from None


def _tables(
    plan: Plan,
    exact: Mapping[tuple[str, str, str], Any],
    calibrated: tuple[tuple[Entry, Fraction], ...],
    bits: Bits,
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The bytes of every table's files, and the list of them."""
    from neyman.noise import discrete_gaussian

    noisy: dict[tuple[str, str], dict[str, tuple[Any, Fraction]]] = {}
    for entry, sigma_squared in calibrated:
        parts = noisy.setdefault((entry.query, entry.level), {})
        if entry.public is not None:
            parts["count"] = (np.array([entry.public], dtype=np.int64), Fraction(0))
            continue
        truth = exact[entry.query, entry.level, entry.measure]
        noise = discrete_gaussian(sigma_squared, entry.cells, bits)
        parts[entry.measure] = (truth + noise, sigma_squared)
    files: dict[str, bytes] = {}
    listed: list[dict[str, Any]] = []
    for (name, level), parts in noisy.items():
        table = build(plan, plan.query(name), level, parts)
        for ending, content in (("parquet", parquet_bytes(table)), ("csv", csv_bytes(table))):
            path = f"tables/{name}.{level}.{ending}"
            files[path] = content
            digest = hashlib.sha256(content).hexdigest()
            cells = table.num_rows
            listed.append(
                {"query": name, "level": level, "path": path, "sha256": digest, "cells": cells}
            )
    return files, listed


def _add_pages(files: dict[str, bytes], out: Path, pages: Pages) -> None:
    made = Release.of_files(out, dict(files))
    for path, page in pages.items():
        try:
            files[path] = page(made).encode()
        except Exception:
            # The charge stands: a page that fails must not cost the tables. It can be made later.
            _log.exception("could not make %s; the release has its tables and receipt", path)
