"""Train an array of parameters with a function that returns one gradient per row."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.analysis.training.checkpoint import State, load, other_terms, save
from neyman.analysis.training.clipping import clipped_sum
from neyman.analysis.training.result import TOGETHER, Setting, Trained
from neyman.analysis.training.steps import Request, run, without_content
from neyman.analysis.training.terms import Terms
from neyman.analysis.training.training_plan import TrainingPlan
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import ChargedError
from neyman.mechanisms.batches import pieces
from neyman.mechanisms.dp_sgd import DPSGD
from neyman.noise.bits import SecureBits
from neyman.noise.integer_noise import rounded_gaussian
from neyman.numerics import check

# Largest difference between a row's gradient in a call and alone, divided by its largest entry.
MAX_NORM_DIFFERENCE = 1e-3
Gradient = Callable[[NDArray[np.float64], NDArray[np.int64]], Any]
Floats = NDArray[np.float64]


class MixedRows(ChargedError):
    """Report that the gradient of one row depends on the other rows of a call."""


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

    In each step, the mechanism draws a batch. The loop clips each row's gradient to the norm
    ``clip``, rounds it to the grid of clip / grid, and checks the squared norm in integers. It adds
    up the integers, adds exact rounded Gaussian noise, divides by the declared batch size, and
    moves the parameters against the result. The ledger is charged before the first batch is drawn.
    The guarantee includes floating-point arithmetic, under the conditions in the receipt.

    A killed run stays charged. The same call with the same ``out`` continues it. Steps that had
    begun without a durable result are lost, and are never drawn again. The folder may be moved. If
    it is copied, only one copy can continue, because the ledger counts the steps that have begun.
    The same call after the end returns the same result at no charge. Another ``out`` for the same
    terms is refused.

    Args:
        gradient: function of the parameters and row numbers. It returns one gradient per row: a
            NumPy, torch, or JAX array of shape ``(len(rows), *parameters.shape)``.
        start: the first parameters, chosen without the data.
        rows: the actual number of rows. Under add-remove it may differ from ``mechanism.n``.
        mechanism: the accounted mechanism, which draws the batches.
        clip: the largest l2 norm of a row's gradient, above 0.
        step_size: one number above 0, or one per step.
        ledger: a `Ledger`, or its path. The dataset is registered with the mechanism's relation and
            one row per unit. The currencies "renyi:ORDER", and "pure" with a delta cap, benefit
            from sampling.
        dataset: the dataset's "name@version" in the ledger.
        out: the folder for the result: a new or empty folder, or the folder of the same run.
        name: name of the model and its gradient. A run with other code needs another name.
        delta: the delta of the charge, if the currency is "pure".
        grid: number of units in ``clip``.
        piece: number of rows in one call of ``gradient``. With 1, rows are independent. More is
            faster, and adds an assumption to the receipt.
        save_every: number of steps between durable checkpoints. With "poisson", "fixed", and
            "cyclic" batches, a crash loses at most this many steps. With other batches it loses the
            rest of a pass. Correlated noise is not saved, because it would reveal the data. So
            noise after a crash does not cancel noise before.
        account: the allocation of the dataset's account that pays.
        charge_again: if True, charge these terms once more, although an earlier run did not finish.
        sign: the path of an Ed25519 private key in PEM, for ``receipt.sig``.

    Returns:
        A `Trained`, with ``.parameters``, ``.receipt``, ``.report``, and ``.tradeoff()``.

    Raises:
        TypeError, ValueError: an argument is wrong, or the dataset has another relation than the
            mechanism.
        LedgerError, BudgetRefused: the dataset is not registered with these terms, too little
            budget is left, or an earlier run of these terms did not finish. In all of these cases,
            nothing is charged.
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
    plan = TrainingPlan(mechanism, clip, grid=grid, save_every=save_every)
    terms = Terms.of(name, dataset, plan, step_size, start, check.integer("piece", piece, 1))
    request = Request(out, ledger, delta, account, charge_again, sign)
    return run(_Descent(terms, gradient, terms.start), rows, request)


@dataclass
class _Descent:
    """Move an array of parameters against a noisy mean of gradients, as a `Job`.

    Args:
        parameters: the last parameters.
        bits: the source of random bits for the noise.
    """

    terms: Terms
    gradient: Gradient
    parameters: Floats
    bits: SecureBits = field(default_factory=SecureBits)

    def __post_init__(self) -> None:
        terms = self.terms
        self._correlated = terms.plan.correlated_noise(self.parameters.size)

    def check(self) -> None:
        rounded_gaussian(self.terms.plan.variance, 1, self.bits)

    def load(self, folder: Path) -> State | None:
        saved = load(folder)
        if saved is None:
            return None
        state, parameters = saved
        if parameters.shape != self.terms.shape:
            raise other_terms(folder)
        self.parameters = parameters
        return state

    def save(self, folder: Path, state: State) -> None:
        save(folder, state, self.parameters)

    def setting(self) -> Setting:
        piece = self.terms.piece
        return Setting((TOGETHER.format(piece=piece),) if piece > 1 else ())

    def content(self) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, self.parameters, allow_pickle=False)
        return buffer.getvalue()

    def step(self, step: int, batch: NDArray[np.int64]) -> None:
        terms, parameters = self.terms, self.parameters
        total = self._sum(parameters, batch)
        if self._correlated is not None:
            self._correlated.add(step, total)
        else:  # Exact: for an integer x, round(x + Z) = x + round(Z) [TR-2].
            total += rounded_gaussian(terms.plan.variance, total.size, self.bits)
        mean = total.astype(np.float64) * (terms.unit / terms.plan.mechanism.batch)
        self.parameters = parameters - terms.at(step) * mean.reshape(parameters.shape)

    def _sum(self, parameters: Floats, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        total = np.zeros(parameters.size, np.int64)
        plan = self.terms.plan
        for part in pieces(batch, self.terms.piece) if batch.size else ():
            values = self._gradients(parameters, part)
            if part.size > 1:
                self._check_alone(parameters, part, values)
            total += clipped_sum(values, float(plan.norm), plan.grid)
        return total

    def _gradients(self, parameters: Floats, rows: NDArray[np.int64]) -> Floats:
        """Return the result of the user's function, one row per record."""

        def given() -> NDArray[Any]:
            values = self.gradient(parameters.copy(), rows.copy())
            detach = getattr(values, "detach", None)  # a torch tensor
            return np.asarray(detach().cpu() if detach else values)

        array = without_content(given, "the gradient")
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

    def _check_alone(self, parameters: Floats, rows: NDArray[np.int64], values: Floats) -> None:
        """Refuse a gradient that mixes rows, such as by batch normalization or a mean over a call.

        One row of each call is also computed alone. A function of single rows is never refused, so
        the check then reveals nothing about the data.
        """
        alone = self._gradients(parameters, rows[:1])[0]
        both = np.stack([alone, values[0]])
        if not np.isfinite(both).all():
            return
        size = np.abs(both).max()
        if np.abs(both[0] - both[1]).max() > MAX_NORM_DIFFERENCE * size:
            raise MixedRows(
                f"gradient gave row 0 of a call of {rows.size} rows another value than in a call "
                "alone: it depends on the other rows, as with batch normalization or a loss that "
                "is divided by the number of rows. Return one gradient per row, computed from this "
                "row alone. The charge stands"
            )
