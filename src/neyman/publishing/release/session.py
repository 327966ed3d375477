"""Ask questions about private data one by one, each charged before the data are read."""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from neyman import notebook
from neyman.accounting.filters import Filter
from neyman.accounting.semantics import digits
from neyman.accounting.semantics.unchecked_claims import rows_not_stated
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.elements import Node
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import ChargedError, Entry, LedgerError
from neyman.ledger.throwaway import NOTICE
from neyman.numerics import check
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.engines.data_frames import Frame
from neyman.publishing.plan.document import parse
from neyman.publishing.plan.field_types import PlanError
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import NoiseKind
from neyman.publishing.plan.query_part import VALUE_COLUMNS
from neyman.publishing.plan.sections import Exact, Pair, Section, Unit, count, document_of
from neyman.publishing.plan.sql import Statement, translate
from neyman.publishing.planning.counted_rows import counted_rows
from neyman.publishing.release.charged_call import Payer, opened
from neyman.publishing.release.folder import resolved
from neyman.publishing.release.private_key_files import check_key_files
from neyman.publishing.release.receipt import mechanism_of
from neyman.publishing.release.receipt_format import Receipt
from neyman.publishing.release.run import FirstRun, Remedy, Source, copy_published
from neyman.storage.private_folder import private_folder
from neyman.storage.visible_text import visible

_MAX_ROWS_SHOWN = 20  # rows


class BudgetFields(TypedDict, total=False):
    """Define the fields of a plan's budget."""

    zcdp: Exact
    gdp: Exact
    power: Exact
    level: Exact
    epsilon: Exact
    delta: Exact
    unspent: Exact


class Sections(TypedDict, total=False):
    """Define the sections of a plan that all questions of a session share."""

    derive: Mapping[str, Any]
    lookup: Mapping[str, Any]
    hierarchy: Mapping[str, Any]
    where: str
    most_rows: int
    source: Mapping[str, Any]
    noise: NoiseKind
    publisher: str
    folder: str | Path


@dataclass(frozen=True, repr=False, eq=False)
class Answer:
    """Hold the noisy tables of one question, with the receipt of their guarantee.

    Args:
        tables: the tables by ``"query.level"``, with the columns of a release.
        receipt: the receipt of this answer alone.
        charge: the exact charge, in the ledger's currency.
        charge_delta: the exact charge of delta.
        entry: the number of the ledger's entry.
        files: the published files, as the ledger stores them.
        selected: for `Session.sql`, the columns and rows that the statement selects.
        notes: sentences on which rows do not count, if any, and for `Session.sql` on how the answer
            differs from SQL.
    """

    tables: Mapping[str, pa.Table]
    receipt: Receipt
    charge: Fraction
    charge_delta: Fraction
    entry: int
    files: Any
    selected: pa.Table | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, entry: Entry, files: Mapping[str, bytes]) -> Answer:
        """Return the answer that a ledger entry has published."""
        receipt = Receipt.read(json.loads(files["receipt.json"]))
        paths = [PurePosixPath(one.path) for one in receipt.tables]
        note = {b"neyman": _note(entry.charge, entry.delta, receipt).encode()}
        tables = {
            path.stem: pq.read_table(pa.BufferReader(files[str(path)]), use_threads=False)
            for path in paths
            if path.suffix == ".parquet"
        }
        noted = {name: table.replace_schema_metadata(note) for name, table in tables.items()}
        which, effect = counted_rows(Plan.from_dict(receipt.plan), receipt.rows_per_unit)
        notes = (f"{which} {effect}",) if effect else ()
        return cls(noted, receipt, entry.charge, entry.delta, entry.id, files, notes=notes)

    @property
    def table(self) -> pa.Table:
        """Return the question's only table. For SQL, return the rows that the statement selects.

        Raises:
            ValueError: the question has several tables.
        """
        if self.selected is not None:
            return self.selected
        if len(self.tables) > 1:
            raise ValueError(
                f"the answer has several tables: take one of .tables, {[*self.tables]}"
            )
        return next(iter(self.tables.values()))

    @property
    def note(self) -> str:
        """Return the charge in words, rounded up. For a throwaway ledger, add the warning."""
        return _note(self.charge, self.charge_delta, self.receipt)

    def tradeoff(self) -> Tradeoff:
        """Recompute the trade-off curve of this answer alone from its receipt."""
        return mechanism_of(self.receipt).tradeoff()

    def save(self, out: str | Path) -> Path:
        """Write the published files to a new or empty folder, at no charge.

        `neyman verify` checks the folder, and `neyman report` writes its report.

        Raises:
            OutputError: the folder holds something else.
        """
        folder = resolved(out)
        copy_published(self.files, folder)
        return folder

    def __repr__(self) -> str:
        rows = {name: table.slice(0, _MAX_ROWS_SHOWN) for name, table in self._parts().items()}
        shown = (
            f"{name}\n{rows[name].to_pandas().to_string(index=False)}{_more(table)}"
            for name, table in self._parts().items()
        )
        return visible("\n".join([*shown, *self.notes, self.note]))

    def _parts(self) -> Mapping[str, pa.Table]:
        """Return the tables to display, by name."""
        selected = {} if self.selected is None else {"SELECT": self.selected}
        return {**selected, **self.tables}

    def _repr_html_(self) -> str:
        return notebook.safe_html(self._shown, self)

    def _shown(self) -> Iterator[Node]:
        """Yield the parts of the notebook's view."""
        for name, table in self._parts().items():
            rows = table.slice(0, _MAX_ROWS_SHOWN).to_pylist()
            yield notebook.title(name)
            yield notebook.table(table.column_names, [list(row.values()) for row in rows])
            yield notebook.paragraph(_more(table))
        yield from map(notebook.paragraph, (*self.notes, self.note))


class Session:
    """Ask private data questions one by one, each charged before the data are read.

    A question is a plan of one or more queries. The question and its budget may depend on earlier
    answers. The ledger is a filter, so its cap bounds what all answers reveal together, however
    they are chosen [CH-2]. Threads and processes may ask at the same time.

    Args:
        data: private data as for `run`, but no stream, since each question reads the data again.
            The data of a dataset version must not change.
        ledger: a `Ledger` with the registered dataset, or its path, or a `throwaway`.
        dataset: "name@version".
        unit: a `Unit`, the privacy unit.
        columns: the section of each column that questions use, as for `Plan`.
        table: the name of the table, if ``data`` is a mapping of names to tables.
        engine, memory, master: as for `run`.
        account: the allocation of the dataset's account that is charged.
        **sections: further sections that all questions share: ``derive``, ``lookup``,
            ``hierarchy``, ``where``, ``most_rows``, ``source``, ``noise``, ``publisher``,
            ``folder``.

    Warns:
        UserWarning: the unit states neither ``id`` nor ``rows``; see `Plan`.

    Raises:
        PlanError, DataError: a section or the form of the data is invalid.
        LedgerError: the dataset is not registered with this unit.
        ValueError: the account's currency has no filter.
        ImportError: the engine is not installed. In all of these cases nothing is spent.

    Examples:
        >>> import neyman as ny
        >>> import pyarrow as pa
        >>> people = pa.table({"sex": ["male", "female", "female"] * 1000})
        >>> session = ny.Session(
        ...     people, ledger=ny.throwaway("1/10"), dataset="survey@1",
        ...     unit=ny.Unit("person", neighboring="replace-one", rows=1),
        ...     columns={"sex": ny.keys(["male", "female"])},
        ... )
        >>> answer = session.ask(ny.query.count(by="sex"), zcdp="1/1000")
        >>> answer.table.column_names
        ['sex', 'value', 'standard_error', 'lower', 'upper']
        >>> session.left
        Fraction(99, 1000)
    """

    def __init__(
        self,
        data: object,
        *,
        ledger: Ledger | str | Path,
        dataset: str,
        unit: Unit | Mapping[str, Any],
        columns: Mapping[str, Any] | None = None,
        table: str = "data",
        engine: str = "duckdb",
        memory: str | None = None,
        master: str | None = None,
        account: str | None = None,
        **sections: Unpack[Sections],
    ) -> None:
        # Each question is its own plan. The session warns once for all of them.
        one_unit, given = _with_rows(unit)
        self._sections: dict[str, Any] = {"dataset": dataset, "table": table, "unit": one_unit}
        self._sections |= {"columns": dict(columns or {}), **sections}
        trial = self._plan([count()], {"zcdp": 1})
        warning = rows_not_stated(trial.unit.protects, trial.unit.id, rows_given=given)
        if warning:
            warnings.warn(warning, stacklevel=2)
        check_key_files(trial, data)
        self._data, self.dataset, self._account = data, dataset, account or ""
        self.ledger = opened(ledger)
        protected = trial.unit
        terms = protected.protects, protected.neighboring, protected.rows
        payer = Payer(self.ledger, dataset, *terms, self._account)
        self._source = Source.of(trial, data, engine, memory, master)
        if isinstance(self._source.data, Frame) and self._source.data.single_use:
            raise DataError(
                "data may be a stream, whose rows come once, and each question reads the data: "
                "give a path, an Arrow table, a Dataset of files, a data frame, or an Ibis table"
            )
        self._source.rehearse(trial)
        payer.register()
        paid = payer.check(0)
        Filter(paid.currency, paid.cap, delta=paid.delta_cap)  # refuses a currency without a filter
        self.currency, self._payer = paid.currency, Payer.of(self.ledger, paid)

    def __repr__(self) -> str:
        warning = f". {NOTICE}" if self.ledger.throwaway else ""
        return visible(f"<Session on {self.dataset}: {self.left} left in {self.currency}{warning}>")

    @property
    def left(self) -> Fraction:
        """Return the remaining budget, exact, in the ledger's currency."""
        return self.ledger.account(self.dataset, self._account).left

    @property
    def left_delta(self) -> Fraction:
        """Return the remaining delta, exact."""
        return self.ledger.account(self.dataset, self._account).left_delta

    def ask(self, question: Section | Sequence[Section], **budget: Unpack[BudgetFields]) -> Answer:
        """Charge a question to the ledger, read the data, and return the question's noisy tables.

        All checks without the data come first. Then the ledger records the charge durably. Only
        then is a row read. A repeated question is a new charge with new noise; see `answer`.

        Args:
            question: a query, such as ``ny.query.count(by="sex")``, or a list of queries that share
                one charge. Of queries with provably disjoint filters, only the worst is charged.
            **budget: the fields of a plan's budget: ``zcdp``; ``gdp``; ``power`` and ``level``;
                ``epsilon`` and ``delta``; ``delta`` beside ``zcdp`` for discovered keys.

        Raises:
            PlanError, DataError: the question, its budget, or the form of the data is invalid.
            BudgetRefused: the charge exceeds the remaining budget.
            ValueError: the currency cannot pay for this question. In all of these cases the ledger
                is unchanged.
            ChargedError: the question failed after its charge, which stands.
        """
        questions: Any = question if isinstance(question, (list, tuple)) else [question]
        return self._ask_plan(self._plan(questions, budget))

    def sql(
        self,
        statement: str,
        *,
        clips: Mapping[str, Pair | str] | None = None,
        key_delta: Exact | None = None,
        **budget: Unpack[BudgetFields],
    ) -> Answer:
        """Translate a SELECT statement to queries of one plan, and ask the queries as `ask` does.

        Each aggregate is a query with an equal share of the budget. The statement is never
        executed. ``answer.table`` has the columns that it selects. ``answer.tables`` has the table
        of each query, with its errors.

        Args:
            statement: such as ``"SELECT sex, AVG(age) FROM people GROUP BY sex"``.
            clips: a dict from a column or alias to the clip of its aggregates, such as ``{"age":
                (0, 120)}``.
            key_delta: the probability, for each query with discovered keys, that Neyman publishes a
                key that only one unit has.
            **budget: as for `ask`.

        Raises:
            PlanError: the statement cannot be translated. The message gives the place. Other errors
                are as for `ask`.
        """
        fields = {name: part for name, part in self._sections.items() if name != "folder"}
        fields |= {"name": "SQL", "queries": [count()], "budget": budget}
        document, folder = parse(document_of(fields)), Path(self._sections.get("folder") or "")
        translated = translate(statement, document, clips, delta=key_delta, folder=folder)
        derive = {**self._sections.get("derive", {}), **translated.derive}
        try:
            plan = self._plan(translated.queries, budget, derive)
        except PlanError as error:
            raise translated.placed(error) from None
        answer = self._ask_plan(plan)
        selected = _selected_rows(translated, answer.tables)
        return replace(answer, selected=selected, notes=(*translated.notes, *answer.notes))

    def _ask_plan(self, plan: Plan) -> Answer:
        check_key_files(plan, self._data)
        run = FirstRun(plan, self._source, self._payer, None, {}, _REMEDY)
        folder = private_folder("answer")
        try:
            above = folder.path / "release"  # a run locks the folder above its own
            above.mkdir()
            release = run.make(resolved(above / "answer"), lambda stage, part: None)
        finally:
            folder.remove()
        entry = int(release.receipt.ledger.entry)
        try:
            return self.answer(entry)
        except LedgerError as error:
            text = f"failed after the charge, which stands (entry {entry}): {error}; "
            # Guards against a ledger that is lost after the charge.
            raise ChargedError(text + _REMEDY.published) from None

    def answer(self, entry: int) -> Answer:
        """Return an earlier answer from the ledger, at no charge and without the data.

        Args:
            entry: the number of the ledger's entry.

        Raises:
            LedgerError: the entry has no answer, or belongs to another dataset.
        """
        asked = self.ledger.entry(entry)
        published = self.ledger.published(asked.dataset, asked.key)
        if asked.dataset != self.dataset or published is None:
            state = f"is of {asked.dataset} and {asked.state}"
            raise LedgerError(
                f"entry {entry} {state}: give a released entry of {self.dataset}, as "
                f"ledger.entries({self.dataset!r}) lists them"
            )
        return Answer.of(*published)

    def _plan(
        self, questions: Sequence[Section], budget: Mapping[str, Any], derive: Section | None = None
    ) -> Plan:
        """Return the plan of one question, with a new name so that no earlier noise is reused."""
        name = f"question {secrets.token_hex(16)}"
        sections: dict[str, Any] = {**self._sections, **({"derive": derive} if derive else {})}
        disjoint = len(questions) > 1 or None
        return Plan(name=name, queries=questions, budget=budget, disjoint=disjoint, **sections)


_LEVELS = {"min": " (1% quantile)", "max": " (99% quantile)"}  # what these columns are


def _selected_rows(statement: Statement, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows that a statement selects from its queries' tables."""
    selection = statement.selection
    columns = selection.columns
    by_name = {query["name"]: query for query in statement.queries}
    own = {
        query["name"]: tables[f"{query['name']}.{selection.level}"] for query in statement.queries
    }
    keys = [name for name in next(iter(own.values())).column_names if name not in VALUE_COLUMNS]
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for query, table in own.items():
        for record in table.to_pylist():
            row = rows.setdefault(tuple(record[key] for key in keys), {})
            for label, name, kind in columns:
                if kind is not None:
                    row[label] = record[name]
                elif name == query:
                    row[label] = record["value"]
    empty = dict.fromkeys(label for label, _, _ in columns)
    taken = selection.rows({**empty, **row} for row in rows.values())
    arrays: dict[str, pa.Array] = {}
    for label, name, kind in columns:
        source = own[name]["value"] if kind is None else next(iter(own.values()))[name]
        level = _LEVELS.get(by_name[name]["measure"], "") if kind is None else ""
        arrays[f"{label}{level}"] = pa.array([row[label] for row in taken], source.type)
    return pa.table(arrays)


_REMEDY = Remedy(
    unpublished="to ask again is a new charge with new noise",
    published="the answer is in the ledger: `session.answer(entry)` returns it at no charge",
)


def _with_rows(unit: Unit | Mapping[str, Any]) -> tuple[Unit | Mapping[str, Any], bool]:
    """Return the unit with ``rows`` filled in, and True if ``rows`` was given."""
    if isinstance(unit, Unit):
        return (unit, True) if unit.rows is not None else (replace(unit, rows=1), False)
    given = not check.is_mapping(unit) or "rows" in unit
    return (unit if given else {**unit, "rows": 1}), given


def _note(charge: Fraction, delta: Fraction, receipt: Receipt) -> str:
    ledger = receipt.ledger
    beside = f" and delta {digits.delta(delta)}" if delta else ""
    text = (
        f"Charged {digits.number(charge)}{beside} ({ledger.currency}, {receipt.neighboring}) to "
        f"{ledger.account}, entry {ledger.entry}."
    )
    return f"{text} {NOTICE}" if ledger.throwaway else text


def _more(table: pa.Table) -> str:
    left = table.num_rows - _MAX_ROWS_SHOWN
    return f"\n... {left} more rows" if left > 0 else ""
