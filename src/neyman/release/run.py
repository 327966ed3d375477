"""The main job: a plan and private data go in, a release comes out, charged to the ledger first.

The order is the promise: what can be checked is checked; then the charge is reserved, durably; then
the ledger is told that reading begins; and only then is the first private row read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neyman.release.consistent import check_consistency
from neyman.release.consistent.published import (
    FOLDER,
    ConsistentForm,
    consistent_forms,
    from_published,
    told,
)
from neyman.release.engine import (
    Cells,
    DataError,
    aggregate_cells,
    check_schema,
    close_table,
    columns_needed,
    discover,
    open_table,
    rehearse,
)
from neyman.release.folder import (
    OutputError,
    Release,
    Staging,
    check_folder,
    resolved,
    staging,
    sweep,
)
from neyman.release.ledger import Ledger
from neyman.release.ledger.account import ChargedError, LedgerError
from neyman.release.plan import Entry, Plan, PlanError
from neyman.release.plan.document import suggest
from neyman.release.receipt import SCHEMA, guarantee, mechanism_list, receipt_bytes, versions
from neyman.release.selection import selected, threshold
from neyman.release.signing import SIGNATURE
from neyman.release.signing import sign as signed
from neyman.release.table_files import listing, parts, write
from neyman.release.tables import Form, forms

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
    *,
    memory: str | None = None,
    master: str | None = None,
    account: str | None = None,
    charge_again: bool = False,
    sign: str | Path | None = None,
    pages: Pages | None = None,
    progress: Progress | None = None,
) -> Release:
    """Make the release that a plan describes, and charge it to the ledger before reading the data.

    The same plan again gives the same bytes and costs nothing. A run that is killed leaves no
    output folder. If it had begun to read, its charge stays, and running the plan again is refused
    unless ``charge_again`` is given.

    Args:
        plan: a plan or the path of one.
        data: the private table: what ``open_table`` takes, or a mapping of the plan's table name
            to it.
        ledger: a ledger or the path of one, with the plan's dataset registered.
        out: the output folder: new, empty, or holding this very release. A symbolic link leads to
            where the release will be.
        engine: "duckdb" or "spark".
        memory: the most memory that the engine may take, such as "4GB"; beyond it, it spills.
        master: where Spark runs, such as "local[2]".
        account: the sub-allocation of the dataset's account that is charged.
        charge_again: whether to charge a plan again whose earlier run did not finish.
        sign: the path of an Ed25519 private key, with which the receipt is signed.
        pages: further files to publish, made from the release: ``{"report.html": page}``.
        progress: called with a stage's name and the fraction done.

    Raises:
        PlanError, DataError, OutputError: the plan, the data's schema or the folder will not do.
        LedgerError, BudgetRefused: the dataset is not registered so, too little is left, or an
            earlier run of the plan did not finish.
        ImportError: the engine is not installed; the message names the extra that it comes with.
        In each of these cases nothing is spent and nothing written.
        ChargedError: the run failed after its charge, which stands.
    """
    tell = progress or (lambda stage, fraction: None)
    tell("checking the plan", 0.0)
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    book = ledger if isinstance(ledger, Ledger) else Ledger(str(ledger))
    out = resolved(out)
    unit: dict[str, Any] = {
        "protects": plan.unit.protects,
        "neighboring": plan.unit.neighboring,
        "rows": plan.unit.rows,
    }
    paid_by: dict[str, Any] = {"to": account or "", "part": plan.part or ""}
    registered = book.check(plan.dataset, **unit, **paid_by, charge=0, delta=0)
    published = book.published(plan.dataset, plan.hash)
    if published is not None:
        _, files = published
        check_folder(out, files)
        if not out.is_dir() or not any(out.iterdir()):
            with staging(out) as stage:
                stage.replace(files)
                stage.publish()
        sweep(out)
        tell("published before: the same files", 1.0)
        return Release.load(out, published_before=True)
    check_folder(out, None)

    if sign is not None:
        signed(b"", sign)  # a key that cannot sign is refused here
    tell("looking at the data's form", 0.02)
    source = Source(_bound(plan, data), engine, memory, master)
    rehearsed = source.rehearse(plan)  # kept, so that Spark is started once
    tell("finding the least noise", 0.05)
    mechanism = plan.mechanism()
    calibrated = plan.calibrated()
    _check_noise(calibrated)
    tables = forms(plan, calibrated)
    _rehearse_tables(tables)
    if plan.consistency is not None:
        check_consistency(plan, plan.consistency)
    mechanisms = mechanism_list(plan, calibrated)
    from neyman.accounting.adaptive import charge

    charged, charged_delta = charge(mechanism, registered.currency)
    tell("computing the guarantee", 0.3)
    receipt = {
        "schema": SCHEMA,
        "plan": plan.canonical(),
        "plan_hash": plan.hash,
        "dataset": plan.dataset,
        "unit": {"protects": plan.unit.protects, "rows": plan.unit.rows},
        "neighboring": plan.unit.neighboring,
        "mechanisms": mechanisms,
        "guarantee": guarantee(mechanism, plan),
        "budget": plan.budget_dict(),
        "tables": [],
        "ledger": {
            "account": plan.dataset,
            "entry": "",
            "currency": registered.currency,
            "charged": str(charged),
            "charged_delta": str(charged_delta),
        },
        "versions": versions(),
    }
    with staging(out) as stage:
        tell("reserving in the ledger", 0.5)
        entry = book.reserve(
            plan.dataset,
            key=plan.hash,
            **unit,
            **paid_by,
            charge=charged,
            delta=charged_delta,
            mechanisms=mechanisms,
            plan=json.dumps(plan.canonical(), ensure_ascii=False),
            again=charge_again,
        )
        # From here on the charge stands, whatever happens; before, no row had been read.
        book.begin(entry.id)
        receipt["ledger"]["entry"] = str(entry.id)

        def work(tell: Progress) -> Release:
            tell("counting", 0.55)
            table = source.open(columns_needed(plan, list(rehearsed.columns)))
            exact = _count(plan, table, tables, tell)
            close_table(table)
            receipt["tables"] = _write_tables(stage, tables, exact, tell)
            if plan.consistency is not None:
                tell("making the tables add up", 0.88)
                found = from_published(plan, tables, stage.folder)
                receipt["consistency"] = told(found)
                receipt["tables"] += _write_consistent(stage, consistent_forms(found, tables))
            content = receipt_bytes(receipt)
            stage.write("receipt.json", content)
            if sign is not None:
                stage.write(SIGNATURE, signed(content, sign))
            tell("writing the report", 0.9)
            _add_pages(stage, pages or {})
            tell("keeping a copy in the ledger", 0.92)
            winner = book.finish(entry.id, stage.files())
            again = book.published(plan.dataset, plan.hash) if winner.id != entry.id else None
            if again is not None:
                # Another run of the same plan published first: its bytes are the release.
                stage.replace(again[1])
            tell(_LAST, 0.95)
            stage.publish()
            return Release.load(out)

        made = _charged(f"entry {entry.id} of {plan.dataset}", work, tell)
    tell("done", 1.0)
    return made


@dataclass(frozen=True)
class Exact:
    """What was counted, private, without noise.

    Args:
        cells: by (query, level, measure).
        found: by (query, level), keys that are there and how many units have them.
    """

    cells: Mapping[tuple[str, str, str], Cells]
    found: Mapping[tuple[str, str], tuple[pa.Table, NDArray[np.int64]]]


def _count(plan: Plan, table: ibis.Table, tables: tuple[Form, ...], tell: Progress) -> Exact:
    cells = aggregate_cells(plan, table, progress=lambda part: tell("counting", 0.55 + 0.15 * part))
    return Exact(
        cells,
        {
            (form.query.name, form.level): discover(plan, form.query, form.level, table)
            for form in tables
            if form.discovered
        },
    )


@dataclass(frozen=True)
class Source:
    """The private table, not opened yet.

    Args:
        data: what ``open_table`` takes.
        engine: "duckdb" or "spark".
        memory: the most memory that the engine may take.
        master: where Spark runs.
    """

    data: Any
    engine: str
    memory: str | None = None
    master: str | None = None

    def open(self, columns: tuple[str, ...] | None = None, *, rows: bool = True) -> ibis.Table:
        """The table; without ``rows`` only its form is looked at."""
        given = {"memory": self.memory, "master": self.master}
        limits = {name: value for name, value in given.items() if value is not None}
        # A plan that only counts rows still needs one column, to have rows at all.
        return open_table(self.data, self.engine, columns or None, rows=rows, **limits)

    def rehearse(self, plan: Plan) -> ibis.Table:
        """The form alone, once the tables of a plan are known to follow from it."""
        form = self.open(rows=False)
        check_schema(plan, form, self.data)
        rehearse(plan, form)
        return form


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
        then = "running the plan again is refused, unless it is to be charged again"
    if not reason:
        then += ". What failed is logged at debug level only: it may hold values of the data"
    raise ChargedError(f"failed while {at}; the charge stands ({entry}); {reason}{then}")


def _bound(plan: Plan, data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    if plan.table not in data:
        raise DataError(f"data has no table {plan.table!r}; {suggest(plan.table, data)}")
    return data[plan.table]


def _check_noise(calibrated: Iterable[tuple[Entry, Fraction]]) -> None:
    for entry, sigma_squared in calibrated:
        if sigma_squared > _MOST_SIGMA_SQUARED:
            raise PlanError(
                [
                    f"query {entry.query!r} at {entry.level!r} would get noise of standard error "
                    f"{float(sigma_squared) ** 0.5:.3g}, and the most is 2^50; give it a larger "
                    "share, or the plan a larger budget"
                ]
            )


def _rehearse_tables(tables: Iterable[Form]) -> None:
    """Build a part of every table from zeros, so that no key can fail after the charge."""
    for form in tables:
        zeros = np.zeros(len(next(parts(form), ())), dtype=np.int64)
        try:
            if form.schema and not form.discovered:
                form.build({entry.measure: zeros for entry, _ in form.entries})
        except (ValueError, OverflowError, KeyError) as error:
            raise PlanError(
                [f"query {form.query.name!r} at {form.level!r}: its table cannot be made: {error}"]
            ) from None


def _write_tables(
    stage: Staging, tables: tuple[Form, ...], exact: Exact, tell: Progress
) -> list[dict[str, Any]]:
    """Draw the noise and write every table, a part at a time; what the receipt lists of them."""
    from neyman.noise import SecureBits

    bits = SecureBits()
    cells, done = sum(form.cells for form in tables), 0

    def made(form: Form) -> Iterator[pa.Table]:
        nonlocal done
        for part in parts(form):
            yield form.build(noisy_part(form, exact.cells, part, bits), part.start)
            done += len(part)
            tell("drawing noise and writing", 0.7 + 0.2 * done / cells)

    listed: list[dict[str, Any]] = []
    tell("drawing noise and writing", 0.7)
    for form in tables:
        if form.discovered:
            table = found_table(form, *exact.found[form.query.name, form.level], bits)
            files = listing(form.query.name, form.level, table.num_rows)
            listed += write(stage, files, form.schema, [table])
        else:
            files = listing(form.query.name, form.level, form.rows)
            listed += write(stage, files, form.schema, made(form))
    return listed


def _write_consistent(stage: Staging, tables: Iterable[ConsistentForm]) -> list[dict[str, Any]]:
    """Write the tables that add up; what the receipt lists of them."""
    listed: list[dict[str, Any]] = []
    for table in tables:
        form = table.form
        files = listing(form.query.name, form.level, form.rows, FOLDER)
        listed += write(stage, files, table.schema, map(table.build, parts(form)))
    return listed


def found_table(form: Form, keys: pa.Table, counts: NDArray[np.int64], bits: Bits) -> pa.Table:
    """The table of the keys whose noisy number of units reaches the threshold.

    Args:
        form: the table, whose keys are found in the data.
        keys: those that are there.
        counts: their exact numbers of units, at least 1.
        bits: where the noise comes from.
    """
    from neyman.noise import discrete_gaussian

    entry, sigma_squared = form.entries[0]
    noisy = counts + discrete_gaussian(sigma_squared, len(counts), bits)
    least = threshold(sigma_squared, entry.delta or Fraction(0))
    return form.named(*selected(keys, noisy, least))


def noisy_part(
    form: Form, exact: Mapping[tuple[str, str, str], Cells], part: range, bits: Bits
) -> dict[str, NDArray[np.int64]]:
    """By measure, the noisy integers of some cells of a table.

    Args:
        form: the table.
        exact: the private integers, by (query, level, measure).
        part: which cells.
        bits: where the noise comes from.
    """
    from neyman.noise import discrete_gaussian

    found: dict[str, NDArray[np.int64]] = {}
    for entry, sigma_squared in form.entries:
        if entry.public is not None:
            found[entry.measure] = np.full(len(part), entry.public, np.int64)
            continue
        truth = exact[entry.query, entry.level, entry.measure]
        noise = discrete_gaussian(sigma_squared, len(part), bits)
        found[entry.measure] = np.add(truth.dense(part.start, part.stop), noise, out=noise)
    return found


def _add_pages(stage: Staging, pages: Pages) -> None:
    made = Release.load(stage.folder)
    for path, page in pages.items():
        try:
            stage.write(path, page(made).encode())
        except Exception:
            # The charge stands: a page that fails must not cost the tables. It can be made later.
            _log.exception("could not make %s; the release has its tables and receipt", path)
