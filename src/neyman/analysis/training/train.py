"""The training loop: charge, then draw, clip, add noise, and move, in durable steps."""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.analysis.training.checkpoint import CHECKPOINT, CheckpointError, State, load, save
from neyman.analysis.training.clipping import clipped_sum
from neyman.analysis.training.result import PARAMETERS, REPORT, Trained, draft, report
from neyman.analysis.training.terms import Terms, price
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account, ChargedError, Entry, LedgerError
from neyman.mechanisms.batches import pieces
from neyman.mechanisms.dp_sgd import DPSGD
from neyman.noise import SecureBits, rounded_gaussian
from neyman.notebook import progress_line
from neyman.numerics import check
from neyman.publishing.release.charged_call import ChargedCall, Payer, opened
from neyman.publishing.release.receipt_format import RECEIPT, LedgerPart, TrainingReceipt
from neyman.publishing.release.signing import SIGNATURE
from neyman.publishing.release.signing import sign as signed
from neyman.storage.durable import make_folder, replace_file
from neyman.storage.locks import lock

_log = logging.getLogger(__name__)

WAIT = 60.0  # seconds for another run of the same terms
APART = 1e-3  # of a gradient's norm: what a row may differ by from itself in a call alone
Gradient = Callable[[NDArray[np.float64], NDArray[np.int64]], Any]
Floats = NDArray[np.float64]


class MixedRows(ChargedError):
    """A gradient whose value for one row depends on the other rows of a call."""


def train(
    gradient: Gradient,
    *,
    start: object,
    rows: int,
    mechanism: DPSGD,
    clip: float | Fraction | str,
    step_size: float | Sequence[float],
    ledger: Ledger | str | Path,
    dataset: str,
    out: str | Path,
    name: str = "training",
    delta: float | Fraction | str = 0,
    grid: int = 1 << 20,
    piece: int = 1,
    save_every: int = 1,
    account: str | None = None,
    charge_again: bool = False,
    sign: str | Path | None = None,
) -> Trained:
    """Train with differential privacy, and write parameters, a receipt, and a report.

    In each step the loop draws a batch as the mechanism says. It clips each row's gradient to the
    norm ``clip``, rounds it to the grid of clip / grid, and checks the squared norm in integers. It
    adds up the integers, adds exact rounded Gaussian noise, divides by the declared batch size, and
    moves the parameters against the result. The ledger is charged before the first batch is drawn.
    The guarantee includes floating-point arithmetic, under the conditions in the receipt.

    A killed run stays charged. The same call with the same ``out`` goes on with it: steps that had
    begun without a durable result are lost, and are never drawn again. The folder may be moved. Of
    its copies one goes on, because the ledger counts the steps that have begun, and the others are
    refused. The same call after the end returns the same result at no charge. Another ``out`` for
    the same terms is refused.

    Args:
        gradient: called with the parameters and row numbers; returns one gradient per row, of shape
            ``(len(rows), *parameters.shape)``: a NumPy array, or a torch or JAX array.
        start: the first parameters, chosen without the data.
        rows: the actual number of rows. Under add-remove it may differ from ``mechanism.n``.
        mechanism: what is accounted, and draws the batches.
        clip: the largest l2 norm of a row's gradient, above 0.
        step_size: above 0; one number, or one per step.
        ledger: a `Ledger`, or its path. It has the dataset with the mechanism's relation and one
            row per unit. A currency "renyi:ORDER", or "pure" with a delta cap, counts sampling.
        dataset: "name@version".
        out: the folder for the result: new, empty, or that of the same run.
        name: names the model and its gradient. A run with other code needs another name.
        delta: the delta of the charge, where the currency is "pure".
        grid: number of units in ``clip``.
        piece: number of rows that one call of ``gradient`` gets. 1 makes rows independent of each
            other; more is faster, and adds an assumption to the receipt.
        save_every: number of steps between durable checkpoints: what a crash loses at most, with
            "poisson" and "fixed" batches. It loses the rest of a pass with the others.
        account: the allocation of the dataset's account that pays.
        charge_again: charge these terms once more, although an earlier run did not finish.
        sign: the path of an Ed25519 private key in PEM, for ``receipt.sig``.

    Returns:
        `Trained`, with ``.parameters``, ``.receipt``, ``.report``, and ``.tradeoff()``.

    Raises:
        TypeError, ValueError: an argument is wrong, or the relation of the dataset is not that of
            the mechanism.
        LedgerError, BudgetRefused: the dataset is not registered so, too little is left, or an
            earlier run of these terms did not finish. In all of these cases nothing is charged.
        ChargedError: the run failed after its charge, which stands.

    Examples:
        >>> import numpy as np
        >>> import neyman as ny
        >>> x = np.array([-1.0, 0.0, 1.0, 2.0])
        >>> ledger = ny.Ledger("training.db")
        >>> account = ledger.create(
        ...     "toy@1", protects="person", neighboring="add-remove", currency="renyi:8", cap=5
        ... )
        >>> trained = ny.train(
        ...     lambda w, rows: w - x[rows, None], start=[0.0], rows=4,
        ...     mechanism=ny.DPSGD(n=4, batch=2, sigma=3, epochs=2), clip=2, step_size=0.1,
        ...     ledger=ledger, dataset="toy@1", out="trained",
        ... )
        >>> trained.parameters.shape, trained.problems()
        ((1,), [])

    Source: Abadi et al. 2016; [TR-1], [TR-2], [TR-3], [TR-4].
    """
    terms = Terms.of(name, dataset, mechanism, clip, grid, step_size, start, piece)
    many = check.integer("rows", rows)
    mechanism.batches(many)  # refuses another number of rows where it is public
    every = check.integer("save_every", save_every, 1)
    beside = check.exact("delta", delta)
    book = opened(ledger)
    paid = book.account(dataset, account or "")
    _check_unit(terms, paid)
    if beside and paid.currency != "pure":
        raise ValueError(
            f"delta = {delta!r} goes with a dataset in 'pure', and {dataset} is in "
            f"{paid.currency!r}; leave it out"
        )
    if sign is not None:
        signed(b"", sign)
    with book.turn(f"{dataset} {terms.key}", WAIT), _folder(Path(out)) as folder:
        published = book.published(dataset, terms.key)
        if published is not None:
            return _finished(folder, published[1][RECEIPT])
        # What can fail without data fails before the charge.
        unpaid = LedgerPart.of(dataset, paid.currency, 0, 0, throwaway=book.throwaway)
        report(draft(terms, 0, paid.protects, unpaid, b""))
        rounded_gaussian(terms.sigma_squared, 1, SecureBits())
        payer = Payer.of(book, paid)
        state, parameters, entry = _reserved(terms, payer, folder, beside, again=charge_again)
        job = _Run(terms, gradient, many, folder, every, book)
        with ChargedCall(
            payer,
            entry,
            message=lambda kind, text: _failed(text or kind, entry, folder),
            public_errors=(OSError,),  # about files of ours
            unchanged_errors=(ChargedError, LedgerError, CheckpointError),
            logs_errors=True,
        ) as call:
            state, parameters = job.finish(state, parameters)
            part = payer.ledger_part(entry)
            receipt = draft(terms, state.lost, paid.protects, part, content := _saved(parameters))
            _publish(call, receipt, content, folder, sign)
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return Trained.load(folder)


def _failed(failure: str, entry: Entry, folder: Path) -> str:
    """Return the message of a run that failed after its charge, and what to do."""
    return (
        f"failed after the charge, which stands (entry {entry.id} of {entry.dataset}): "
        f"{failure}. The same call with out = {str(folder)!r} goes on; steps "
        "that had begun are lost. The error is logged at debug level only: it may hold values of "
        "the data"
    )


@dataclass(frozen=True)
class _Run:
    """A run whose charge stands.

    Args:
        rows: the actual number of rows.
        every: number of steps between checkpoints.
    """

    terms: Terms
    gradient: Gradient
    rows: int
    folder: Path
    every: int
    book: Ledger

    def finish(self, state: State, parameters: Floats) -> tuple[State, Floats]:
        terms = self.terms
        mechanism = terms.mechanism
        steps, together = mechanism.steps, mechanism.pass_steps
        first = min(-(-state.begun // together) * together, steps)
        if first > state.done:
            warnings.warn(
                f"an earlier process was stopped: {first - state.done} of {steps} steps are charged"
                " and have no result, because their randomness may be known; the run goes on "
                f"with step {first}",
                stacklevel=4,
            )
        state = replace(state, done=first, begun=first, lost=state.lost + first - state.done)
        batches = mechanism.batches(self.rows, after=first)
        bits = SecureBits()
        noise = np.empty(parameters.size, np.int64)
        counted = self.book.steps(state.entry)
        tell = progress_line()
        while state.done < steps:
            ahead = min(state.done + self.every, steps)
            # Durable before the first random bit of these steps [TR-4].
            save(self.folder, replace(state, begun=ahead), parameters)
            self.book.count_steps(state.entry, counted, ahead)
            counted = ahead
            for step in range(state.done, ahead):
                tell(f"training: step {step + 1} of {steps}", step / steps)
                total = self._sum(parameters, next(batches))
                # Exact: for a whole x, round(x + Z) = x + round(Z) [TR-2].
                total += rounded_gaussian(terms.sigma_squared, noise.size, bits, noise)
                mean = total.astype(np.float64) * (terms.unit / mechanism.batch)
                parameters = parameters - terms.at(step) * mean.reshape(parameters.shape)
            state = replace(state, done=ahead, begun=ahead)
        save(self.folder, state, parameters)
        tell(f"trained in {steps} steps", 1.0)
        return state, parameters

    def _sum(self, parameters: Floats, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        total = np.zeros(parameters.size, np.int64)
        clip = float(self.terms.clip)
        for part in pieces(batch, self.terms.piece) if batch.size else ():
            values = self._gradients(parameters, part)
            if part.size > 1:
                self._check_alone(parameters, part, values)
            total += clipped_sum(values, clip, self.terms.grid)
        return total

    def _gradients(self, parameters: Floats, rows: NDArray[np.int64]) -> Floats:
        """Return what the user's function gives, one row per record."""
        array = self._given(parameters, rows)
        expected = (rows.size, *parameters.shape)
        if array.shape != expected:
            raise ChargedError(
                f"gradient returned shape {array.shape} for {rows.size} rows; it must be "
                f"{expected}: one gradient per row, no sum and no mean. The charge stands"
            )
        if array.dtype.kind not in "fiub":
            raise ChargedError(
                f"gradient returned numbers of type {array.dtype}; they must be real. The charge "
                "stands"
            )
        return np.asarray(array, np.float64).reshape(rows.size, -1)

    def _given(self, parameters: Floats, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the array of the user's function, whose errors have their type alone."""
        failure = ""
        try:
            given = self.gradient(parameters.copy(), rows.copy())
            detach = getattr(given, "detach", None)  # a torch tensor
            return np.asarray(detach().cpu() if detach else given)
        except Exception as error:
            failure = type(error).__name__
            _log.debug("the gradient failed", exc_info=True)
        raise ChargedError(
            f"the gradient raised {failure}, and the charge stands. The same call with out = "
            f"{str(self.folder)!r} goes on; steps that had begun are lost. The error is logged at "
            "debug level only: it may hold values of the data"
        )

    def _check_alone(self, parameters: Floats, rows: NDArray[np.int64], values: Floats) -> None:
        """Refuse a gradient that mixes rows, as batch normalization or a mean over a call does.

        One row of each call is computed alone. For a function of single rows this never refuses,
        so that it reveals nothing of the data then.
        """
        alone = self._gradients(parameters, rows[:1])[0]
        both = np.stack([alone, values[0]])
        if not np.isfinite(both).all():
            return
        size = np.abs(both).max()
        if np.abs(both[0] - both[1]).max() > APART * size:
            raise MixedRows(
                f"gradient gave row 0 of a call of {rows.size} rows another value than in a call "
                "alone: it depends on the other rows, as with batch normalization or where a loss "
                "is divided by the number of rows. Return one gradient per row, each of its row "
                "alone. The charge stands"
            )


def _check_unit(terms: Terms, paid: Account) -> None:
    """Refuse a dataset whose unit the mechanism does not protect."""
    relation = terms.mechanism.neighboring
    if paid.neighboring != relation:
        raise ValueError(
            f"mechanism.sampling = {terms.mechanism.sampling!r} is described under {relation!r}, "
            f"and {paid.dataset} is registered under {paid.neighboring!r}. The sigma of one "
            "relation is not that of the other: it is over clip under add-remove, and over 2 clip "
            "under replace-one. Choose a sampling of the dataset's relation, and calibrate again"
        )
    if paid.rows != 1:
        raise ValueError(
            f"{paid.dataset} has up to {paid.rows} rows per {paid.protects}; clipping row by row "
            "protects one row. Register a dataset with one row per unit, such as one sum of "
            "gradients per person"
        )


def _reserved(
    terms: Terms, payer: Payer, folder: Path, delta: Fraction, *, again: bool
) -> tuple[State, Floats, Entry]:
    """Return a run that is charged, by an earlier process or by this one."""
    book = payer.ledger
    saved = load(folder)
    if saved is not None:
        state, parameters = saved
        if state.key != terms.key or parameters.shape != terms.start.shape:
            raise CheckpointError(
                f"out = {str(folder)!r} holds a run of other terms; give the call that began it, "
                "or another folder"
            )
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
        return state, parameters, entry
    if others := [path.name for path in folder.iterdir() if not path.name.startswith(".")]:
        raise CheckpointError(
            f"out = {str(folder)!r} holds {others[0]}, which is no run; give a new or an empty "
            "folder"
        )
    entry = payer.reserve(
        *price(terms.mechanism, payer.currency, delta),
        key=terms.key,
        mechanisms=[{"mechanism": terms.mechanism.to_dict(), "count": 1}],
        plan=terms.to_json(),
        again=again,
    )
    state = State(terms.key, entry.id, 0, 0, 0)
    save(folder, state, terms.start)
    return state, terms.start, entry


def _saved(parameters: Floats) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, parameters, allow_pickle=False)
    return buffer.getvalue()


def _publish(
    call: ChargedCall,
    receipt: TrainingReceipt,
    content: bytes,
    folder: Path,
    sign: str | Path | None,
) -> None:
    files = {RECEIPT: receipt.to_bytes(), REPORT: report(receipt).encode()}
    if sign is not None:
        files[SIGNATURE] = signed(files[RECEIPT], sign)
    replace_file(folder / PARAMETERS, content)
    for path, text in files.items():
        replace_file(folder / path, text)
    call.finish(files)


def _finished(folder: Path, receipt: bytes) -> Trained:
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
    """Hold the output folder, so that one process at a time runs in it."""
    folder = out.resolve()  # a link to a larger disk is followed once
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
