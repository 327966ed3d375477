"""Read, write, and check a finished training run: parameters, a receipt, and a report."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.charges import charge
from neyman.accounting.semantics import digits, sentences
from neyman.analysis.training.checkpoint import CheckpointError
from neyman.analysis.training.terms import RunTerms, price
from neyman.analysis.training.training_plan import TrainingPlan, hash_of
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.ledger.throwaway import NOTICE
from neyman.mechanisms.dp_sgd import DPSGD
from neyman.numerics import check
from neyman.publishing.release import receipt_format
from neyman.publishing.release.charged_call import call_guarantee
from neyman.publishing.release.field_comparison import Differs, intervals
from neyman.publishing.release.receipt import versions
from neyman.storage.reading import read_file, read_json

REPORT, PARAMETERS, NETWORK = "report.md", "parameters.npy", "parameters.npz"
_MAX_RESULT_BYTES = 1 << 40

CONDITIONS = (
    "The gradient of a row is a function of that row, of the parameters, and of nothing else: no "
    "other row, no count of rows, no earlier call.",
    "The gradient raises an error for no row, and stores nothing.",
    "The first parameters, the terms, and the code are chosen without the data, or are paid for.",
    "No one restores an older copy of the ledger, which counts the steps that have begun.",
    "No one sees the batches, the exact sums, or the times of the steps.",
)
CORRELATED = (
    "- The strategy of the mechanism correlates the noise of the steps: each step's noise cancels "
    "a part of the noise before it."
)
ALONE = (
    "This counts one run. Other runs on these rows add to it and are not counted here: give all of "
    "them one ledger=."
)
PLACES = (
    "A record that is replaced by another keeps its place: the order of the rows does not depend "
    "on private values."
)
TOGETHER = (
    "One call computed the gradients of up to {piece} rows. That a row's gradient does not depend "
    "on the other rows of a call, in any bit that changes its rounded value, is assumed. With "
    "piece=1 it is not needed."
)


@dataclass(frozen=True)
class Setting:
    """Hold the parts of a receipt that are not in the terms or their hash.

    Args:
        conditions: the conditions in addition to those of every run.
        environments: the device and the settings of each process of the run.
        path: the file of the parameters.
    """

    conditions: tuple[str, ...] = ()
    environments: tuple[dict[str, Any], ...] = ()
    path: str = PARAMETERS


@dataclass(frozen=True, eq=False, repr=False)
class Trained:
    """Represent a trained model with the receipt of its guarantee.

    Args:
        parameters: the last parameters. For a network, all trained parameters in one array, in the
            order of their names.
        receipt: the content of ``receipt.json``.
        report: the content of ``report.md``.
        folder: the folder of the files.
        state: a dict from names to the arrays of a network, for ``load_state_dict``. A bfloat16
            becomes float32. The dict is empty after `ny.train`.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.training.result import Trained
        >>> ledger = ny.throwaway(5, currency="renyi:8")
        >>> account = ledger.register(
        ...     "toy@1", protects="person", neighboring="add-remove", rows=1
        ... )
        >>> trained = ny.train(
        ...     lambda w, rows: w - rows[:, None], start=[0.0], rows=4,
        ...     mechanism=ny.DPSGD(n=4, batch=2, sigma=3, epochs=2), clip=2, step_size=0.1,
        ...     ledger=ledger, dataset="toy@1", out="trained-model",
        ... )
        >>> again = Trained.load("trained-model")
        >>> bool((again.parameters == trained.parameters).all()), again.problems()
        (True, [])
        >>> round(float(again.tradeoff().power(level=0.05)), 3)
        0.098
    """

    parameters: NDArray[np.float64]
    receipt: Mapping[str, Any]
    report: str
    folder: Path
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])

    def __repr__(self) -> str:
        ledger = receipt_format.TrainingReceipt.read(self.receipt).ledger
        paid = (
            f"charged {digits.number(Fraction(ledger.charged))} in {ledger.currency}, delta "
            f"{digits.number(Fraction(ledger.charged_delta))}"
        )
        notes = [NOTICE] if ledger.throwaway else [ledger.note] if ledger.note else []
        return "\n".join([f"<Trained {self.folder.name!r}: {paid}>", *notes])

    @classmethod
    def load(cls, folder: str | Path) -> Trained:
        """Load a finished run.

        Raises:
            CheckpointError: the folder holds no finished run, or its parameters do not match the
                receipt.
        """
        folder = Path(folder)
        try:
            receipt = read_json(read_file(folder / receipt_format.RECEIPT))
            read = receipt_format.TrainingReceipt.read(receipt)
            text = read_file(folder / REPORT).decode()
            path = NETWORK if read.parameters.path == NETWORK else PARAMETERS
            content = read_file(folder / path, _MAX_RESULT_BYTES)
            arrays = np.load(io.BytesIO(content), allow_pickle=False)
            state = {} if path == PARAMETERS else dict(arrays)
            parameters = joined(state, read.terms["shapes"]) if state else arrays
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
            raise CheckpointError(
                f"folder = {str(folder)!r} holds no finished run that can be read ({error})"
            ) from None
        if hashlib.sha256(content).hexdigest() != read.parameters.sha256:
            raise CheckpointError(
                f"folder = {str(folder)!r}: {path} has another hash than its receipt states"
            )
        return cls(parameters, receipt, text, folder, state)

    @property
    def mechanism(self) -> DPSGD:
        """Return the mechanism that the receipt states."""
        return self.plan.mechanism

    @property
    def plan(self) -> TrainingPlan:
        """Return the plan that the receipt states."""
        return TrainingPlan.from_dict(self.receipt["terms"]["plan"])

    def tradeoff(self) -> Tradeoff:
        """Recompute the trade-off curve from the receipt's mechanism."""
        return self.mechanism.tradeoff()

    def problems(self) -> list[str]:
        """Return a text for each statement of the receipt that does not follow from its terms.

        The check recomputes the guarantee, the noise, and the charge. It needs no data, and cannot
        show that the run took place.
        """
        receipt = receipt_format.TrainingReceipt.read(self.receipt)
        plan, terms, ledger = self.plan, receipt.terms, receipt.ledger
        mechanism = plan.mechanism
        wrong: list[str] = []
        try:
            # Another version may enclose the same numbers in other intervals.
            own = call_guarantee(mechanism).to_dict()
            list(intervals("guarantee", own, self.receipt["guarantee"]))
        except Differs as error:
            wrong.append(f"guarantee: {error}")
        if Fraction(terms["noise"]["sigma_squared"]) != plan.variance:
            wrong.append(f"noise: its variance is not {plan.variance}")
        if terms["divisor"] != mechanism.batch:
            wrong.append("divisor: it is not the declared batch size")
        delta = Fraction(ledger.charged_delta)
        if ledger.currency == "pure":
            owed = price(mechanism, "pure", delta)
        else:
            owed = charge(mechanism, ledger.currency)
        if Fraction(ledger.charged) < owed[0] or delta < owed[1]:
            wrong.append(f"ledger: the charge is below {owed[0]}")
        if receipt.unit.rows not in plan.rows:
            wrong.append(f"unit: its rows are not {plan.mechanism.most_records}")
        if ledger.note:
            wrong.append(f"ledger: {ledger.note}")
        if hash_of(terms) != receipt.key:
            wrong.append("key: it is not the hash of the terms")
        if receipt.steps.run + receipt.steps.lost != mechanism.steps:
            wrong.append("steps: run and lost steps do not add up to the mechanism's steps")
        return wrong


def joined(state: Mapping[str, NDArray[Any]], names: Iterable[str]) -> NDArray[Any]:
    """Join the named arrays of a state dict into one array, in the order of the names."""
    return np.concatenate([state[name].ravel() for name in sorted(names)])


def draft(
    terms: RunTerms,
    lost: int,
    unit: receipt_format.ReceiptUnit,
    ledger: receipt_format.LedgerPart,
    content: bytes,
    setting: Setting,
) -> receipt_format.TrainingReceipt:
    """Return the receipt of a run. ``content``: the bytes of the parameters' file.

    Args:
        lost: number of steps that were charged and have no result.
    """
    last = 9 if setting.path == NETWORK else 4
    where = {"environments": setting.environments} if setting.environments else {}
    if terms.plan.mechanism.user_sampling == "users":
        persons = "Each row is one item with all data of one person."
    else:
        persons = f"Each person has at most {'one row' if unit.rows == 1 else f'{unit.rows} rows'}."
    places = (PLACES,) if terms.plan.mechanism.sampling == "cyclic" else ()
    proof = f"TR-1 to TR-{last} of docs/certificates/training.md"
    if terms.plan.mechanism.strategy is not None:
        proof += ", MM-1 to MM-10 of docs/certificates/matrix-mechanism.md"
    return receipt_format.TrainingReceipt(
        schema=receipt_format.TrainingReceipt.SCHEMA,
        terms=json.loads(terms.to_json()),
        key=terms.key,
        unit=unit,
        neighboring=terms.plan.mechanism.neighboring,
        guarantee=call_guarantee(terms.plan.mechanism),
        proof=proof,
        conditions=(*CONDITIONS, persons, *places, *setting.conditions),
        steps=receipt_format.StepsPart(run=terms.plan.mechanism.steps - lost, lost=lost),
        ledger=ledger,
        parameters=receipt_format.ParametersPart(
            path=setting.path, sha256=hashlib.sha256(content).hexdigest(), shape=terms.shape
        ),
        seeds=None,
        versions=versions(),
        **where,
    )


def report(receipt: receipt_format.TrainingReceipt) -> str:
    """Return the report of a run as Markdown, from its receipt."""
    terms, guarantee = receipt.terms, receipt.guarantee
    plan = TrainingPlan.from_dict(terms["plan"])
    mechanism = plan.mechanism
    power = next(point for point in guarantee.power if point.level == 0.05)
    if receipt.neighboring == "add-remove":
        sentence = sentences.training(Fraction(1, 20), power.upper)
    else:
        most = digits.percent(power.upper)
        sentence = (
            "An attacker who sees every training step and wrongly confirms a false claim about a "
            f"training record 5% of the time can correctly confirm a true claim at most {most} of "
            "the time. Guessing would confirm it 5% of the time."
        )
    steps, ledger, sigma = receipt.steps, receipt.ledger, check.exact("sigma", mechanism.sigma)
    were = "was" if steps.lost == 1 else "were"
    many = digits.many(steps.lost, "step")
    lost = f"- {many} more {were} charged, without a result: a process stopped."
    norm = str(plan.norm) if plan.norm.denominator < 1 << 20 else digits.number(plan.norm)
    lines = [
        f"# Training run {terms['name']}",
        "",
        *([f"**{NOTICE}**", ""] if ledger.throwaway else []),
        *([f"**{ledger.note}**", ""] if ledger.note else []),
        f"Dataset {terms['dataset']}. Each record is about one {receipt.unit.protects}. "
        f"Neighboring datasets: {receipt['neighboring']}.",
        "",
        "## Disclosure risk for one record",
        "",
        sentence,
        "",
        "|False positive rate|True positive rate (at most)|",
        "|---:|---:|",
        *(
            f"|{digits.percent(point.level)}|{digits.percent(point.upper)}|"
            for point in guarantee.power
        ),
        "",
        "|Delta|Epsilon (at most)|",
        "|---:|---:|",
        *(
            f"|{point.delta:g}|{digits.number(math.inf if point.upper is None else point.upper)}|"
            for point in guarantee.epsilon
        ),
        "",
        "## What ran",
        "",
        f"- {steps.run} steps with {mechanism.sampling} batches of {mechanism.batch} "
        f"records in expectation, of {mechanism.n} declared records.",
        *([lost] if steps.lost else []),
        f"- Gradients were clipped to norm {norm} and rounded to 1/{plan.grid} of it.",
        f"- Rounded Gaussian noise with sigma {digits.plain(sigma)} times the largest change of a "
        "sum, drawn exactly.",
        *([CORRELATED] if mechanism.strategy is not None else []),
        f"- Sums were divided by {terms['divisor']}, the declared batch size.",
        f"- Ledger entry {ledger.entry}: {digits.number(Fraction(ledger.charged))} in "
        f"{ledger.currency}, delta {ledger.charged_delta}.",
        *(f"- Computed on {at['device']} by {at['framework']}." for at in receipt.environments),
        "",
        "## Conditions",
        "",
        "The guarantee includes floating-point arithmetic. It holds under these conditions:",
        "",
        *(f"- {text}" for text in receipt.conditions),
        "",
    ]
    return "\n".join(lines)
