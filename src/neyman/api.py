"""Making a release together with the page that says what it reveals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from neyman.ledger.ledger import Ledger
from neyman.plan.plan import Plan
from neyman.release.folder import Release
from neyman.release.run import WAIT, release
from neyman.report.report import page

__all__ = ["run"]


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
    wait: float = WAIT,
    progress: Callable[[str, float], None] | None = None,
) -> Release:
    """Make the release that a plan describes: noisy tables, a receipt and a report.

    Everything that can be checked is checked first; then the charge is reserved in the ledger,
    durably, and only then is the private table read. The same plan again gives the same bytes and
    costs nothing.

    Args:
        plan: a `Plan`, or the path of one.
        data: the private table: a path to Parquet or CSV, an Ibis table, an Arrow table or a data
            frame; or a mapping of the plan's table name to it.
        ledger: a `Ledger`, or its path, in which the plan's dataset is registered.
        out: the folder for the release: new or empty.
        engine: "duckdb", or "spark" where the data outgrow a machine (``neyman[spark]``, Java 17);
            both count the same.
        memory: the most memory that the engine may take, such as "4GB"; beyond it, it spills to
            disk.
        master: where Spark runs, such as "local[2]" or a cluster's address.
        account: the sub-allocation of the dataset's account that is charged, such as "team-a".
        charge_again: charge a plan once more whose earlier run began to read and did not finish;
            without it such a plan is refused, because its noise may be known to somebody.
        sign: the path of an Ed25519 private key in PEM: ``receipt.sig`` is written beside the
            receipt.
        wait: seconds to wait, at most, while another process runs the same plan on the same
            ledger. This run then gives the files of that one.
        progress: called with a stage's name and the part done, in [0, 1].

    Returns:
        The release: ``.tables``, ``.receipt``, ``.tradeoff()``, and ``.published_before``, true
        where an earlier run made it and this one charged nothing. Tables are read from the folder
        when they are asked for.

    Raises:
        PlanError, DataError, OutputError: plan, data's schema or folder will not do.
        LedgerError, BudgetRefused: the dataset is not registered so, too little is left, an
            earlier run of the plan did not finish, or another still goes on after ``wait`` seconds.
        ImportError: the engine is not installed; the message names the extra. In all of these cases
            nothing is spent and nothing is written.
        ChargedError: the run failed after its charge, which stands.

    Examples:
        >>> import neyman as ny
        >>> import pyarrow as pa
        >>> people = pa.table({"sex": ["male", "female", "female"] * 1000})
        >>> plan = ny.Plan.from_dict({
        ...     "schema": 1, "name": "survey", "dataset": "survey@1", "table": "people",
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
    return release(
        plan,
        data,
        ledger,
        out,
        engine,
        memory=memory,
        master=master,
        account=account,
        charge_again=charge_again,
        sign=sign,
        wait=wait,
        pages={"report.html": page},
        progress=progress,
    )
