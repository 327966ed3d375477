"""Run a private training: charge the ledger, count and take the steps, save, and publish.

`run` takes a `Job`: an array of parameters (`ny.train`), or a network with its optimizer
(`ny.torch.train`). Only this module sets the order of the charge, the count of begun steps, and
random draws.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.semantics import digits
from neyman.analysis.training.checkpoint import CHECKPOINT, CheckpointError, State, other_terms
from neyman.analysis.training.result import ALONE, REPORT, Setting, Trained, draft, report
from neyman.analysis.training.terms import RunTerms, price, warn_caller
from neyman.analysis.training.training_plan import check_delta
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account, ChargedError, Entry, LedgerError
from neyman.ledger.units import DELTA, MOST_CAP
from neyman.notebook import progress_line
from neyman.numerics import check
from neyman.publishing.release.charged_call import ChargedCall, Payer, opened
from neyman.publishing.release.receipt_format import (
    RECEIPT,
    LedgerPart,
    ReceiptUnit,
    TrainingReceipt,
)
from neyman.publishing.release.signing import SIGNATURE
from neyman.publishing.release.signing import sign as signed
from neyman.storage.durable import make_folder, replace_file
from neyman.storage.locks import lock

_log = logging.getLogger(__name__)
Result = TypeVar("Result")

OWN_LEDGER = ".ledger.db"
LOCK_WAIT_SECONDS = 60.0  # seconds to wait for another run of the same terms


class Job(Protocol):
    """Define the methods of a training that `run` calls."""

    @property
    def terms(self) -> RunTerms:
        """Return the public description of the run."""
        ...

    def check(self) -> None:
        """Refuse a run that would fail for any data. The ledger is charged after this check."""

    def load(self, folder: Path) -> State | None:
        """Load a checkpoint that has the same terms. Return its state, or None.

        A checkpoint with other terms is not loaded.
        """

    def save(self, folder: Path, state: State) -> None:
        """Write a checkpoint, durably. See `checkpoint.write`."""

    def step(self, step: int, batch: NDArray[np.int64]) -> None:
        """Draw the noise of a step, and update the parameters."""

    def setting(self) -> Setting:
        """Return the parts of the receipt that are not in the terms."""
        ...

    def content(self) -> bytes:
        """Return the bytes of the file for the parameters."""
        ...


@dataclass(frozen=True)
class Request:
    """Hold arguments of training without private data: the output, and the account to charge.

    Args:
        ledger: the ledger that pays. With None, a file beside ``out`` holds this run alone.
        delta: the delta of a charge in "pure".
        calibrated: True if the plan reaches an epsilon at ``delta``, whatever the currency.
    """

    out: str | Path
    ledger: Ledger | str | Path | None = None
    delta: float | Fraction | str = 0
    account: str | None = None
    charge_again: bool = False
    sign: str | Path | None = None
    calibrated: bool = False


def run(job: Job, rows: int, request: Request) -> Trained:
    """Charge a training run, take its steps, and publish it, or continue an earlier run.

    If the run is already finished, return its result.
    """
    terms = job.terms
    many = check.integer("rows", rows)
    mechanism = terms.plan.mechanism
    mechanism.batches(many)  # refuses another number of rows if it is public
    delta = check.exact("delta", request.delta)
    book = own_ledger(terms, request) if request.ledger is None else opened(request.ledger)
    note = {"note": ALONE} if request.ledger is None else {}
    paid = book.account(terms.dataset, request.account or "")
    _check_unit(terms, paid)
    unit = ReceiptUnit(protects=paid.protects, rows=paid.rows)
    if request.calibrated and paid.currency != "pure":
        delta = Fraction(0)
    if delta and paid.currency != "pure":
        raise ValueError(
            f"delta = {request.delta!r} goes with a dataset in 'pure', and {terms.dataset} is in "
            f"{paid.currency!r}; leave it out"
        )
    if request.sign is not None:
        signed(b"", request.sign)
    turn = book.turn(f"{terms.dataset} {terms.key}", LOCK_WAIT_SECONDS)
    with turn, _folder(Path(request.out)) as folder:
        published = book.published(terms.dataset, terms.key)
        if published is not None:
            return _load_finished_run(folder, published[1][RECEIPT])
        # Errors that need no data are raised before the charge.
        unpaid = LedgerPart.of(terms.dataset, paid.currency, 0, 0, throwaway=book.throwaway)
        job.check()
        report(draft(terms, 0, unit, unpaid, b"", job.setting()))
        payer = Payer.of(book, paid)
        state, entry = _reserve_run(job, payer, folder, delta, again=request.charge_again)
        with ChargedCall(
            payer,
            entry,
            message=lambda kind, text: _failure_message(text or kind, entry, folder),
            public_errors=(OSError,),  # errors about our own files
            unchanged_errors=(ChargedError, LedgerError, CheckpointError),
            logs_errors=True,
        ) as call:
            state = _take_steps(job, state, many, folder, book)
            part = payer.ledger_part(entry).model_copy(update=note)
            content = job.content()
            receipt = draft(terms, state.lost, unit, part, content, job.setting())
            files = {RECEIPT: receipt.to_bytes(), REPORT: report(receipt).encode()}
            if request.sign is not None:
                files[SIGNATURE] = signed(files[RECEIPT], request.sign)
            replace_file(folder / receipt.parameters.path, content)
            for path, text in files.items():
                replace_file(folder / path, text)
            call.finish(files)
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return Trained.load(folder)


def without_content(function: Callable[[], Result], what: str) -> Result:
    """Call a function of the user. If it fails, the raised error has only the failure's type.

    Args:
        what: the name of the function, with its article.
    """
    failure = ""
    try:
        return function()
    except Exception as error:
        failure = type(error).__name__
        _log.debug("%s failed", what, exc_info=True)
    raise ChargedError(
        f"{what} raised {failure}, and the charge stands. The same call goes on; steps that had "
        "begun are lost. The error is logged at debug level only: it may hold values of the data"
    )


def _failure_message(failure: str, entry: Entry, folder: Path) -> str:
    return (
        f"failed after the charge, which stands (entry {entry.id} of {entry.dataset}): "
        f"{failure}. The same call with out = {str(folder)!r} goes on; steps "
        "that had begun are lost. The error is logged at debug level only: it may hold values of "
        "the data"
    )


def _take_steps(job: Job, state: State, rows: int, folder: Path, book: Ledger) -> State:
    """Take the steps of a charged run. ``rows``: the actual number of rows."""
    mechanism, every = job.terms.plan.mechanism, job.terms.plan.save_every
    steps, together = mechanism.steps, mechanism.pass_steps
    first = min(-(-state.begun // together) * together, steps)
    if first > state.done:
        warn_caller(
            f"an earlier process was stopped: {first - state.done} of {steps} steps are charged"
            " and have no result, because their randomness may be known; the run goes on "
            f"with step {first}"
        )
    state = replace(state, done=first, begun=first, lost=state.lost + first - state.done)
    batches = mechanism.batches(rows, after=first)
    counted = book.steps(state.entry)
    tell = progress_line()
    while state.done < steps:
        ahead = min(state.done + every, steps)
        # Durable before the first random bit of these steps [TR-4].
        job.save(folder, replace(state, begun=ahead))
        book.count_steps(state.entry, counted, ahead)
        counted = ahead
        for step in range(state.done, ahead):
            tell(f"training: step {step + 1} of {steps}", step / steps)
            job.step(step, next(batches))
        state = replace(state, done=ahead, begun=ahead)
    job.save(folder, state)
    tell(f"trained in {steps} steps", 1.0)
    return state


def own_ledger(terms: RunTerms, request: Request) -> Ledger:
    """Return the ledger of a run without ``ledger=``: a file beside ``out``.

    Warn with the sum of what the files beside it, of other runs, have charged.

    Raises:
        ValueError: no delta is given, or it is 1 / n or more.
    """
    mechanism, out = terms.plan.mechanism, Path(request.out).absolute()
    delta = check_delta(request.delta, mechanism.n)
    own = out.with_name(f"{out.name}{OWN_LEDGER}")
    zero = Fraction(0)
    spent: list[tuple[Fraction, Fraction]] = []
    for path in out.parent.glob(f"*{OWN_LEDGER}"):
        with suppress(LedgerError), Ledger(path) as book:
            entries = [x for account in book.datasets() for x in book.entries(account.dataset)]
            paid = [x for x in entries if x.state != "void" and x.key != terms.key]
            spent.append((sum((x.charge for x in paid), zero), sum((x.delta for x in paid), zero)))
    spent = [charge for charge in spent if charge[0]]
    if spent:
        spent.append(price(mechanism, "pure", delta))
        epsilon, total = map(sum, zip(*spent, strict=True))
        warn_caller(
            f"runs beside out = {str(request.out)!r} have ledgers of their own. With this run, "
            f"they reveal epsilon {digits.number(epsilon)} at delta {digits.number(total)} about a "
            "row that all of them used, and no cap limits the sum. Give all of them one ledger=. "
            "ny.select_best charges a search less than all its runs"
        )
    book = Ledger(own)
    if not book.exists():
        book.create(
            terms.dataset,
            protects="row",
            neighboring=mechanism.neighboring,
            currency="pure",
            cap=MOST_CAP,
            delta_cap=1 - Fraction(1, DELTA),
        )
    return book


def _check_unit(terms: RunTerms, paid: Account) -> None:
    """Refuse a dataset with another neighboring relation, or several rows per privacy unit."""
    sampling, relation = terms.plan.mechanism.sampling, terms.plan.mechanism.neighboring
    if paid.neighboring != relation:
        raise ValueError(
            f"mechanism.sampling = {sampling!r} is described under {relation!r}, "
            f"and {paid.dataset} is registered under {paid.neighboring!r}. The sigma of one "
            "relation is not the sigma of the other: its unit is clip under add-remove, and 2 clip "
            "under replace-one. Choose a sampling of the dataset's relation, and calibrate again"
        )
    if paid.rows not in terms.plan.rows:
        raise ValueError(
            f"{paid.dataset} has up to {paid.rows} rows per {paid.protects}, and mechanism has "
            f"records_per_user={terms.plan.mechanism.most_records} with user_sampling="
            f"{terms.plan.mechanism.user_sampling!r}. Draw and clip single rows with "
            f"records_per_user={paid.rows}, or give each {paid.protects} one item with all of "
            "their rows, a loss that adds up over it, and user_sampling='users', where n and batch "
            "count users"
        )


def _reserve_run(
    job: Job, payer: Payer, folder: Path, delta: Fraction, *, again: bool
) -> tuple[State, Entry]:
    """Return the state and ledger entry of an earlier run in the folder, or charge a new run.

    ``again``: ``charge_again`` of `ny.train`.
    """
    book, terms = payer.ledger, job.terms
    state = job.load(folder)
    if state is not None:
        if state.key != terms.key:
            raise other_terms(folder)
        entry = book.entry(state.entry)
        if (entry.dataset, entry.key) != (terms.dataset, terms.key) or entry.state == "void":
            raise LedgerError(
                f"out = {str(folder)!r} holds a run that this ledger has not charged (entry "
                f"{state.entry}); give the ledger that it was charged to"
            )
        if (book.steps(entry) or 0) > state.begun:
            raise LedgerError(
                f"out = {str(folder)!r} holds step {state.begun} of a run that has begun step "
                f"{book.steps(entry)} by the ledger: it is a copy or an older state, and its steps "
                "would be drawn twice. Give the folder in which the run went on, or a new folder "
                "with charge_again=True"
            )
        return state, entry
    if others := [path.name for path in folder.iterdir() if not path.name.startswith(".")]:
        raise CheckpointError(
            f"out = {str(folder)!r} holds {others[0]}, which is not a run; give a new or an empty "
            "folder"
        )
    entry = payer.reserve(
        *price(terms.plan.mechanism, payer.currency, delta),
        key=terms.key,
        mechanisms=[{"mechanism": terms.plan.mechanism.to_dict(), "count": 1}],
        plan=terms.to_json(),
        again=again,
    )
    state = State(terms.key, entry.id, 0, 0, 0)
    job.save(folder, state)
    return state, entry


def _load_finished_run(folder: Path, receipt: bytes) -> Trained:
    path = folder / RECEIPT
    if not path.is_file() or path.read_bytes() != receipt:
        first = TrainingReceipt.read(json.loads(receipt))
        raise LedgerError(
            f"this run is finished (entry {first.ledger.entry} of "
            f"{first.terms['dataset']}), and out = {str(folder)!r} does not hold its result: "
            "give the folder that does, or another name= for a new run, which is charged"
        )
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return Trained.load(folder)


@contextmanager
def _folder(out: Path) -> Generator[Path]:
    """Lock the output folder, so that one process at a time runs in it."""
    folder = out.resolve()  # follow a link to a larger disk once
    make_folder(folder, 0o700)
    try:
        handle = lock(folder)
    except BlockingIOError:
        raise CheckpointError(
            f"out = {str(out)!r} is in use by another process; wait for it, or give another folder"
        ) from None
    try:
        yield folder
    finally:
        if handle is not None:
            os.close(handle)
