"""Run a plan: publish tables with a receipt and a report, and charge the ledger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neyman import notebook
from neyman.display.report.report import page
from neyman.extras import library_warnings
from neyman.ledger.ledger import Ledger
from neyman.publishing.engines.csv_reader import DataError
from neyman.publishing.plan.plan import Plan
from neyman.publishing.release.charged_call import Payer, opened
from neyman.publishing.release.correction import Replaced, correcting
from neyman.publishing.release.folder import Release, check_folder, resolved
from neyman.publishing.release.private_key_files import check_key_files
from neyman.publishing.release.run import (
    WAIT_SECONDS,
    FirstRun,
    Pages,
    Progress,
    Source,
    check_key,
    copy_published,
)

_log = logging.getLogger("neyman")
_BEFORE = "published before: nothing was charged, and the data were not read"


def run(
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
    wait: float = WAIT_SECONDS,
    corrects: Release | str | Path | None = None,
    why: str = "",
    copied: Sequence[str] = (),
    balance: bool = True,
    pages: Pages | None = None,
    progress: Progress | None = None,
) -> Release:
    """Run a plan: publish noisy tables, a receipt, and a report, and charge the ledger.

    The run first checks everything that can be checked. Then it durably reserves the charge in the
    ledger. Only then does it read the private table. A killed run leaves no output folder.

    A repeated run of the same plan returns the same bytes and costs nothing. It does not read the
    data, even if they have changed. It logs that the plan was published before, and refuses data
    that are missing or lack the plan's columns.

    Args:
        plan: a `Plan`, or the path of one.
        data: the private table: a path to Parquet or CSV, the URL of a table in a database
            (``postgresql://role@host/db?table=people``), an Ibis table, an Arrow table or a data
            frame; or a mapping from the plan's table name to the table. A plan of several tables
            needs a mapping with all of them. None if the plan is published: the run then copies its
            files from the ledger.
        ledger: a `Ledger` or its path. The plan's dataset must be registered in it.
        out: the folder for the release: new or empty.
        engine: "duckdb", or "spark" if the data are too large for one machine (``neyman[spark]``,
            Java 17). Both return the same counts.
        memory: the largest memory of the engine, such as "4GB". Beyond it, the engine spills to
            disk.
        master: where Spark runs, such as "local[2]" or a cluster's address.
        account: the sub-allocation of the dataset's account that is charged, such as "team-a".
        charge_again: True to charge again if an earlier run began to read the data and did not
            finish. If False, the run is refused, because someone may know its noise.
        sign: the path of an Ed25519 private key in PEM: the run writes ``receipt.sig`` beside the
            receipt, and ``receipt.json.sshsig`` for ``ssh-keygen -Y verify``.
        wait: largest number of seconds to wait while another process runs the same plan on the same
            ledger. This run then copies the other's files.
        corrects: the release that this one replaces, or its folder. The ledger records it.
        why: what was wrong, for the reports of both.
        copied: names of queries whose tables were right, and are copied from the old release. They
            cost nothing. All other tables get new noise. A run that copies every table needs no
            data.
        balance: False to leave out of the receipt what the ledger says was spent before.
        pages: the pages to publish beside the tables, each computed from the release:
            ``{"report.html": page}`` if not given.
        progress: function of a stage's name and the part done, in [0, 1]. By default, a notebook
            shows them in a line.

    Returns:
        The release: ``.tables``, ``.receipt``, ``.tradeoff()``, and ``.published_before``, True if
        an earlier run published it and this run charged nothing. Tables are read from the folder at
        first use.

    Raises:
        PlanError, DataError, OutputError: the plan, the data's schema, or the folder is not valid.
        LedgerError, BudgetRefused: the dataset is not registered this way, the balance is too
            small, an earlier run of the plan did not finish, or another run continues after
            ``wait`` seconds.
        ImportError: the engine is not installed; the message names the extra. After any of these
            errors, nothing is spent and nothing is written.
        ChargedError: the run failed after its charge. The charge stands.

    Examples:
        >>> import neyman as ny
        >>> import pyarrow as pa
        >>> people = pa.table({"sex": ["male", "female", "female"] * 1000})
        >>> plan = ny.Plan.from_dict({
        ...     "schema": 2, "name": "survey", "dataset": "survey@1", "table": "people",
        ...     "unit": {"protects": "person", "neighboring": "replace-one"},
        ...     "columns": {"sex": {"keys": ["male", "female"]}},
        ...     "budget": {"power": 0.25, "level": 0.05},
        ...     "query": [{"name": "sex", "measure": "count", "by": ["sex"], "share": 1}],
        ... })
        >>> ledger = ny.Ledger("ledger.db")
        >>> account = ledger.create(
        ...     "survey@1", protects="person", neighboring="replace-one", cap=1
        ... )
        >>> release = ny.run(plan, people, ledger, out="release")
        >>> release.tables["sex.all"].column_names
        ['sex', 'value', 'standard_error', 'lower', 'upper']
        >>> round(float(release.tradeoff().power(level=0.05)), 2)
        0.25
    """
    tell = progress or notebook.progress_line()
    tell("checking the plan", 0.0)
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    plan = correcting(plan, corrects, why, copied)
    check_key_files(plan, data)
    book = opened(ledger)
    out = resolved(out)
    if sign is not None:
        check_key(sign)
    unit = plan.unit.protects, plan.unit.neighboring, plan.unit_rows
    part = plan.part or ""
    own = Payer(book, plan.dataset, *unit, account or "", part, totals=plan.totals_hash)
    payer = Payer.of(book, own.check(0), part, own.totals)
    # Check each argument, even if the plan is published and the data are not read. The data
    # come last, because a stream is asked for its schema once.
    source = None if data is None else Source.of(plan, data, engine, memory, master)
    tell("waiting for other runs of this plan", 0.01)
    old = plan.corrects
    with book.turn(f"{plan.dataset} {plan.hash}" if old is None else f"{old.entry}", wait):
        # The process before has published by now, or has left an unfinished entry.
        published = book.published(plan.dataset, plan.hash)
        if published is None:
            replaced = Replaced.of(plan, book)
            if replaced and replaced.has_all_of(plan):
                source = None
            elif source is None:
                raise DataError(
                    "data is missing, and this plan is not published yet: give its private table"
                )
            check_folder(out, None)
            files = {"report.html": page} if pages is None else pages
            first = FirstRun(
                plan,
                source,
                payer,
                sign,
                files,
                again=charge_again,
                replaced=replaced,
                balance=balance,
            )
            return first.make(out, tell)
        if source is not None:
            _check_meant(source, plan)
        copy_published(published[1], out)
    tell(_BEFORE, 1.0)
    if progress is None and not notebook.is_notebook():
        _log.warning("plan %s of %s was %s", plan.name, plan.dataset, _BEFORE)
    return Release.load(out, published_before=True)


@library_warnings()
def _check_meant(source: Source, plan: Plan) -> None:
    """Refuse data that cannot belong to the published plan, although the run does not read them."""
    try:
        source.columns(plan)
    except DataError as error:
        raise DataError(
            f"{error}. This plan is published, and its data are not read again: give data = None, "
            "or leave --data out, to copy the release from the ledger"
        ) from None
