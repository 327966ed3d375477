"""Make a release: run every check that needs no data, charge the ledger, and then read the data.

This order ensures the guarantee. The ledger reserves the charge durably, then records that reading
begins. Only then is the first private row read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis  # pyright: ignore[reportMissingTypeStubs]
import numpy as np

from neyman.extras import library_warnings
from neyman.ledger.records import Entry as Spend
from neyman.ledger.records import LedgerError
from neyman.numerics import check
from neyman.publishing.consistency.adjusted_tables import check_consistency
from neyman.publishing.consistency.published_forms import (
    FOLDER,
    ConsistentForm,
    consistent_forms,
    from_published,
)
from neyman.publishing.engines.aggregate import aggregate_cells, discover, rehearse
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.databases.table import (
    DatabaseTable,
    LostConnection,
    on_one_connection,
)
from neyman.publishing.engines.joins import joined_tables
from neyman.publishing.engines.source import (
    as_source,
    check_engine,
    close_table,
    column_names,
    csv_files,
    folder_columns,
    open_table,
    untyped_columns,
)
from neyman.publishing.plan.field_types import PlanError, suggest
from neyman.publishing.plan.measurement import Calibrated
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE, SourcePart
from neyman.publishing.planning.accuracy import LEAST_NOISE
from neyman.publishing.release import clip_tables
from neyman.publishing.release.add_noise import Exact, write_tables
from neyman.publishing.release.approval import checked_approval
from neyman.publishing.release.charged_call import ChargedCall, Payer
from neyman.publishing.release.correction import Replaced
from neyman.publishing.release.detail_tables import detailed_cells, forms_with_first_counts
from neyman.publishing.release.folder import (
    Contents,
    OutputError,
    Release,
    Staging,
    check_folder,
    staging,
    sweep,
)
from neyman.publishing.release.receipt import computed, draft
from neyman.publishing.release.receipt_format import (
    BalancePart,
    Receipt,
    ReceiptConsistency,
    ReceiptTable,
)
from neyman.publishing.release.signing import SIGNATURE
from neyman.publishing.release.signing import sign as signed
from neyman.publishing.release.ssh_signature import SSH_SIGNATURE, ssh_sign
from neyman.publishing.release.table_files import listing, parts, write
from neyman.publishing.tables.forms import Form, forms

Progress = Callable[[str, float], None]
Pages = Mapping[str, Callable[[Release], str]]

_log = logging.getLogger("neyman")
_MAX_SIGMA_SQUARED = 2**100
_LAST = "putting in place"


@dataclass(frozen=True)
class Remedy:
    """Hold the advice after a charged run fails, without or with its files in the ledger."""

    unpublished: str = "running the plan again is refused, unless it is to be charged again"
    published: str = (
        "the release is in the ledger: run the same plan with an empty folder, at no charge"
    )


WAIT_SECONDS = 3600.0  # seconds that a run waits for another run of its plan


@dataclass(frozen=True)
class FirstRun:
    """Make a release and its pages in the first run of a plan.

    ``again`` also charges a plan whose earlier run failed. ``source`` is None if every table is
    copied from the release that is ``replaced``. ``balance`` states in the receipt what is spent.
    """

    plan: Plan
    source: Source | None
    payer: Payer
    sign: str | Path | None
    pages: Pages
    remedy: Remedy = Remedy()
    again: bool = False
    replaced: Replaced | None = None
    balance: bool = True

    @library_warnings()
    def make(self, out: Path, tell: Progress) -> Release:
        """Run the checks, charge the ledger, read the data, and put the release at ``out``."""
        plan, payer = self.plan, self.payer
        tell("looking at the data's form", 0.02)
        form = self.source.rehearse(plan) if self.source else dict[str, ibis.Table]()
        for name in self.source.names() if self.source else ():
            tell(f"the table is {name}", 0.04)
        tell("finding the least noise", 0.05)
        calibrated = plan.calibrated()
        tables = _checked_tables(plan, calibrated)
        smallest = [pair for form in clip_tables.extreme_forms(tables) for pair in form.entries]
        if clip_tables.searches(tables):
            _checked_tables(tables[0].plan, smallest)
        tell("computing the guarantee", 0.3)
        receipt = draft(plan, calibrated, payer.currency, throwaway=payer.ledger.throwaway)
        approval = checked_approval(payer.ledger, plan.dataset, plan.hash, self.sign)
        if approval is not None:
            receipt = receipt.model_copy(update={"ledger": receipt.ledger.approved(approval)})
        with staging(out) as stage:
            tell("reserving in the ledger", 0.5)
            entry = payer.reserve(
                Fraction(receipt.ledger.charged),
                Fraction(receipt.ledger.charged_delta),
                key=plan.hash,
                mechanisms=[part.to_dict() for part in computed(plan, receipt.mechanisms)]
                if receipt.mechanism is None
                else [{"mechanism": receipt.mechanism, "count": 1}],
                plan=json.dumps(receipt.plan, ensure_ascii=False),
                again=self.again,
            )
            steps = _Steps(tell)
            # From here on the charge stands, whatever happens. Before, no row was read.
            with ChargedCall(
                payer,
                entry,
                message=lambda _, text: self._failure_text(text, steps.at, entry),
                public_errors=(LedgerError, OutputError, LostConnection),
                logs_errors=True,
            ) as call:
                if self.balance:
                    known = BalancePart.of(payer.ledger.balance(entry))
                    paid = receipt.ledger.model_copy(update={"balance": known})
                    receipt = receipt.model_copy(update={"ledger": paid})
                self._write(stage, entry, steps, form, tables, receipt)
                steps("keeping a copy in the ledger", 0.92)
                if first := call.finish(stage.files(), plan.corrects):
                    stage.replace(first)
                steps(_LAST, 0.95)
                stage.publish()
                release = Release.load(out)
        tell("done", 1.0)
        return release

    def _write(
        self,
        stage: Staging,
        entry: Spend,
        tell: Progress,
        form: Mapping[str, ibis.Table],
        tables: tuple[Form, ...],
        receipt: Receipt,
    ) -> None:
        """Read the data and write every file. ``form`` has the tables, opened without rows."""
        tell("counting", 0.55)
        files = self.replaced.copy(stage) if self.replaced else []
        copied = {one.query for one in files}
        deciding = [form for form in tables if form.query.searched]
        opened = self.source.open_tables(self.plan, form) if self.source else {}
        readied = joined_tables.prepared_tables(self.plan, opened) if opened else nullcontext([])
        with readied as prepared:
            first = _count_cells(prepared, deciding, lambda part: None)
            if deciding:
                files += write_tables(stage, deciding, first, lambda part: None)
            clips = clip_tables.chosen_clips(tables, stage.folder)
            known = forms_with_first_counts(clip_tables.forms_with(tables, clips), stage.folder)
            others = [
                form for form in known if not form.query.searched and form.query.name not in copied
            ]
            exact = _count_cells(
                prepared, others, lambda part: tell("counting", 0.55 + 0.15 * part)
            )
        for table in opened.values():
            close_table(table)
        paid = {"entry": str(entry.id), "date": entry.created[:10]}
        ledger = receipt.ledger.model_copy(update=paid)
        files += write_tables(
            stage, others, exact, lambda part: tell("drawing noise and writing", 0.7 + 0.2 * part)
        )
        places = {(form.query.name, form.level): place for place, form in enumerate(tables)}
        files.sort(key=lambda one: places[one.query, one.level])
        update: dict[str, Any] = {"ledger": ledger}
        if clips:
            update["clips"] = clip_tables.clip_parts(tables, clips)
        if self.plan.consistency is not None:
            tell("making the tables add up", 0.88)
            consistent = from_published(self.plan, tables, stage.folder)
            update["consistency"] = ReceiptConsistency.of(consistent)
            files += _write_consistent(stage, consistent_forms(consistent, tables))
        update["tables"] = tuple(files)
        content = receipt.model_copy(update=update).to_bytes()
        stage.write("receipt.json", content)
        if self.sign is not None:
            stage.write(SIGNATURE, signed(content, self.sign))
            stage.write(SSH_SIGNATURE, ssh_sign(content, self.sign))
        tell("writing the report", 0.9)
        _add_pages(stage, self.pages, self.plan)

    def _failure_text(self, text: str, at: str, entry: Spend) -> str:
        then = self.remedy.published if at == _LAST else self.remedy.unpublished
        if text:
            then = f"{text}; {then}"
        else:
            then += ". What failed is logged at debug level only: it may hold values of the data"
        charged = f"entry {entry.id} of {self.plan.dataset}"
        return f"failed while {at}; the charge stands ({charged}); {then}"


class _Steps:
    """Report each step after the charge, and store the last one for an error's message."""

    def __init__(self, tell: Progress) -> None:
        self._tell, self.at = tell, ""

    def __call__(self, stage: str, fraction: float) -> None:
        self.at = stage
        self._tell(stage, fraction)


def check_key(path: str | Path) -> None:
    """Raise SignatureError if a key cannot sign."""
    signed(b"", path)


def copy_published(files: Contents, out: Path) -> None:
    """Write the published files of an earlier run of the plan to a folder."""
    check_folder(out, files)
    if not out.is_dir() or not any(out.iterdir()):
        with staging(out) as stage:
            stage.replace(files)
            stage.publish()
    sweep(out)


def _count_cells(
    prepared: Sequence[tuple[Plan, ibis.Table]],
    tables: Sequence[Form],
    done: Callable[[float], None],
) -> Exact:
    names = {form.query.name for form in tables}
    unknown = [form for form in tables if form.discovered]
    steps = len(prepared) + len(unknown)
    numbers = iter(range(steps))

    def part() -> Callable[[float], None]:
        number = next(numbers)
        return lambda fraction: done((number + fraction) / steps)

    cells: dict[Any, Any] = {}
    discovered: dict[Any, Any] = {}
    for every, rows in prepared:
        own = _table_plan(every, tables, names) if tables else every
        if not tables or not own.queries:
            continue
        cells |= aggregate_cells(own, rows, progress=part())
        for form in unknown:
            if form.query.name in {query.name for query in own.queries}:
                query = own.query(form.query.name)
                discovered[query.name, form.level] = discover(
                    own, query, form.level, rows, progress=part()
                )
    return Exact(cells | dict(detailed_cells(tables, cells)), discovered)


def _table_plan(own: Plan, tables: Sequence[Form], names: AbstractSet[str]) -> Plan:
    """Return ``own``, the plan of one table, with only the queries ``names`` and their clips."""
    plan = tables[0].plan
    asked = (query.name for query in own.queries if query.name in names)
    queries = tuple(replace(plan.query(name), table=None) for name in asked)
    unit = plan.unit if own.table == plan.table else own.unit
    return own.changed(queries=queries, unit=unit)


@dataclass(frozen=True)
class Source:
    """Describe an unopened private table, and the plan's other tables by name.

    If the data are a stream, `as_source` has already read its schema.
    """

    data: Any
    engine: str
    memory: str | None = None
    master: str | None = None
    csv: SourcePart = PLAIN_SOURCE
    others: Mapping[str, Source] = field(default_factory=dict[str, "Source"])

    @classmethod
    @library_warnings()
    def of(
        cls, plan: Plan, data: object, engine: str, memory: str | None, master: str | None
    ) -> Source:
        """Return the tables that a plan reads. ``data`` may be a mapping of names to tables."""
        check_engine(engine, memory, master)
        given = engine, memory, master
        if not plan.tables:
            return cls(as_source(_bound(plan, data)), *given, plan.source)
        names = (plan.table, *(table.name for table in plan.tables))
        known: dict[str, Any] = {}
        for name in names:
            with joined_tables.named_errors(plan, name):
                known[name] = as_source(_bound_of_several(plan, name, data))
        on_one_connection(known.values())
        csv = {name: bool(csv_files(source)) for name, source in known.items()}
        if plan.source.form != PLAIN_SOURCE and not any(csv.values()):
            raise DataError(
                "the plan's [source] declares the form of a CSV file, and no table is one: give "
                "CSV files, or leave delimiter, encoding, and compression out of [source]"
            )
        one, *others = (
            cls(source, *given, plan.source if csv[name] else plan.source.marks)
            for name, source in known.items()
        )
        return replace(one, others=dict(zip(names[1:], others, strict=True)))

    def open(self, columns: tuple[str, ...] | None = None, *, rows: bool = True) -> ibis.Table:
        """Open and return the table. Without ``rows``, read only its schema."""
        given = {"memory": self.memory, "master": self.master}
        limits = {name: value for name, value in given.items() if value is not None}
        # A plan that only counts rows still needs one column, to have rows at all.
        return open_table(
            self.data, self.engine, columns or None, rows=rows, csv=self.csv, **limits
        )

    def names(self) -> list[str]:
        """Return the names, with schemas, of the server tables to read."""
        data = [self.data, *(other.data for other in self.others.values())]
        return [one.name for one in data if isinstance(one, DatabaseTable) and one.name]

    def by_name(self, plan: Plan) -> dict[str, Source]:
        """Return all tables by name."""
        return {plan.table: self, **self.others}

    def columns(self, plan: Plan) -> Mapping[str, tuple[str, ...]]:
        """Return the columns of each table that the plan reads. No engine starts."""
        names: dict[str, list[str]] = {}
        folders: dict[str, frozenset[str]] = {}
        for name, source in self.by_name(plan).items():
            with joined_tables.named_errors(plan, name):
                names[name] = column_names(source.data, source.csv)
                folders[name] = folder_columns(source.data)
        return joined_tables.columns_of(plan, names, folders)

    def rehearse(self, plan: Plan) -> Mapping[str, ibis.Table]:
        """Try everything that the run will compute on the tables without rows, and return these."""
        sources = self.by_name(plan)
        # Only the needed columns, as the run will read them. Other columns may hold anything.
        forms = self._open_tables(self.columns(plan), plan, rows=False)
        data = {name: one.data for name, one in sources.items()}
        untyped = {name: untyped_columns(one.data, one.csv) for name, one in sources.items()}
        joined_tables.check_tables(plan, forms, data, untyped)
        with joined_tables.prepared_tables(plan, forms) as prepared:
            for own, rows in prepared:
                with joined_tables.named_errors(plan, own.table):
                    rehearse(own, rows)
        return forms

    def open_tables(
        self, plan: Plan, forms: Mapping[str, ibis.Table], *, more: Sequence[str] = ()
    ) -> dict[str, ibis.Table]:
        """Open the tables with the columns that the plan reads, and ``more`` of its main table."""
        columns = joined_tables.columns_of(
            plan, {name: form.columns for name, form in forms.items()}
        )
        columns[plan.table] = tuple(dict.fromkeys((*columns[plan.table], *more)))
        return self._open_tables(columns, plan, rows=True)

    def _open_tables(
        self, columns: Mapping[str, tuple[str, ...]], plan: Plan, *, rows: bool
    ) -> dict[str, ibis.Table]:
        tables: dict[str, ibis.Table] = {}
        for name, source in self.by_name(plan).items():
            with joined_tables.named_errors(plan, name):
                tables[name] = source.open(columns[name], rows=rows)
        return tables


def _bound(plan: Plan, data: object) -> object:
    if not check.is_mapping(data):
        return data
    if plan.table not in data:
        raise DataError(f"data has no table {plan.table!r}; {suggest(plan.table, data)}")
    return data[plan.table]


def _bound_of_several(plan: Plan, name: str, data: object) -> object:
    if check.is_mapping(data) and name in data:
        return data[name]
    names = [plan.table, *(table.name for table in plan.tables)]
    wanted = ", ".join(f"{one!r}: ..." for one in names)
    raise DataError(
        f"data has no table of this name, and the plan reads {len(names)} tables; give "
        f"data = {{{wanted}}}"
    )


def _checked_tables(plan: Plan, calibrated: Calibrated) -> tuple[Form, ...]:
    """Return each table's `Form`. Raise PlanError if a table cannot be made."""
    for entry, sigma_squared in calibrated:
        if entry.public is None and entry.measure != "rank" and sigma_squared < LEAST_NOISE:
            raise PlanError(
                f"query {entry.query!r} at {entry.level!r} could get noise of variance below "
                "1e-4, which cannot be drawn; give the plan a smaller budget"
            )
        if sigma_squared > _MAX_SIGMA_SQUARED:
            raise PlanError(
                f"query {entry.query!r} at {entry.level!r} would get noise of standard error "
                f"{float(sigma_squared) ** 0.5:.3g}, and the most is 2^50; give it a larger "
                "share, or the plan a larger budget"
            )
    tables = forms(plan, calibrated)
    for form in tables:
        # Build part of the table from zeros, so that no key can fail after the charge.
        zeros = np.zeros(len(next(parts(form), ())), dtype=np.int64)
        try:
            if form.schema and not form.discovered:
                form.build({entry.measure: zeros for entry, _ in form.entries})
        except (ValueError, OverflowError, KeyError) as error:
            raise PlanError(
                f"query {form.query.name!r} at {form.level!r}: its table cannot be made: {error}"
            ) from None
    if plan.consistency is not None:
        check_consistency(plan, plan.consistency)
    return tables


def _write_consistent(stage: Staging, tables: Iterable[ConsistentForm]) -> list[ReceiptTable]:
    listed: list[ReceiptTable] = []
    for table in tables:
        form = table.form
        files = listing(form.query.name, form.level, form.rows, FOLDER)
        listed += write(stage, files, table.schema, map(table.build, parts(form)))
    return listed


def _add_pages(stage: Staging, pages: Pages, plan: Plan) -> None:
    release = Release.load(stage.folder, plan=plan)
    for path, page in pages.items():
        try:
            stage.write(path, page(release).encode())
        except Exception:
            # The charge stands, so a failed page must not cost the tables. It can be made later.
            _log.exception("could not make %s; the release has its tables and receipt", path)
