"""Describe a training run by its public terms, their hash, and their price in a ledger."""

from __future__ import annotations

import hashlib
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.charges import charge
from neyman.analysis.training.clipping import LIMITS as CLIPPING_LIMITS
from neyman.analysis.training.training_plan import TrainingPlan, hash_of, json_of
from neyman.mechanisms.dp_sgd import DPSGD
from neyman.numerics import check
from neyman.numerics.rounding import below


@dataclass(frozen=True)
class RunTerms(ABC):
    """Hold the public terms of every run: its name, its dataset, and its plan.

    Args:
        name: the name of the run. Another model or gradient needs another name.
    """

    name: str
    dataset: str
    plan: TrainingPlan

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"name = {self.name!r} must be text that names the model and its gradient"
            )
        size = math.prod(self.shape)
        if not 0 < size <= CLIPPING_LIMITS.parameters:
            raise ValueError(
                f"{size} parameters train; a run must have 1 to {CLIPPING_LIMITS.parameters}"
            )
        if self.plan.grid < (least := 16 * max(1, math.isqrt(size))):
            raise ValueError(
                f"grid = {self.plan.grid} must be between {least} and "
                f"{CLIPPING_LIMITS.clip_units}: with {size} parameters a coarser grid loses the "
                "gradient to rounding"
            )

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the parameters."""

    @property
    def unit(self) -> float:
        """Return the size of one grid unit, clip / grid, rounded. Privacy does not depend on it."""
        return float(self.plan.norm) / self.plan.grid

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as JSON types."""
        return {
            "name": self.name,
            "dataset": self.dataset,
            "plan": self.plan.to_dict(),
            "noise": {"law": "rounded-gaussian", "sigma_squared": str(self.plan.variance)},
            "divisor": self.plan.mechanism.batch,
        }

    def to_json(self) -> str:
        """Return the terms as text. Equal terms give equal text."""
        return json_of(self.to_dict())

    @property
    def key(self) -> str:
        """Return the hash of the terms, which identifies the run in the ledger."""
        return hash_of(self.to_dict())


@dataclass(frozen=True)
class Terms(RunTerms):
    """Describe a run of `ny.train` in public terms, which do not depend on the data.

    Args:
        step_size: one number per step, or one number for all steps.
        start: the first parameters.
        piece: number of rows in one call of the gradient.
    """

    step_size: float | tuple[float, ...]
    start: NDArray[np.float64]
    piece: int

    @classmethod
    def of(
        cls,
        name: str,
        dataset: str,
        plan: TrainingPlan,
        step_size: float | Sequence[float],
        start: object,
        piece: int = 1,
    ) -> Terms:
        """Return the terms. Check the arguments of `ny.train`."""
        parameters = np.array(start, np.float64)
        if not np.isfinite(parameters).all():
            raise ValueError("start must be finite in every entry")
        steps = plan.mechanism.steps
        return cls(name, dataset, plan, _step_sizes(step_size, steps), parameters, piece)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the parameters."""
        return self.start.shape

    def at(self, step: int) -> float:
        """Return the step size of a step."""
        return self.step_size[step] if isinstance(self.step_size, tuple) else self.step_size

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as JSON types."""
        content = np.ascontiguousarray(self.start, "<f8").tobytes()
        return {
            **super().to_dict(),
            "schema": "neyman-training/1",
            "piece": self.piece,
            "step_size": self.step_size,
            "start": {"shape": self.start.shape, "sha256": hashlib.sha256(content).hexdigest()},
        }


def warn_caller(message: str) -> None:
    """Warn the user, at the line outside the package that called a public function."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("neyman."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def price(mechanism: DPSGD, currency: str, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Return the charge of a run: the amount in the currency, and the delta.

    Args:
        currency: "pure", "zcdp", "gdp", or "renyi:ORDER".
        delta: the delta of a charge in "pure", above 0. The amount is then epsilon(delta).

    Raises:
        ValueError: no finite amount pays for the run.
    """
    if currency == "pure":
        if not 0 < delta < 1:
            raise ValueError(
                f"delta = {delta} must be between 0 and 1: the account's currency is pure epsilon, "
                "and normal noise has a finite epsilon at a delta above 0 only, such as 1e-6"
            )
        # With weight 1 - delta, the distributions meet epsilon [CH-3].
        epsilon = mechanism.tradeoff().epsilon(below(delta)).upper
        if not math.isfinite(epsilon):
            raise ValueError(
                f"delta = {delta}: no finite epsilon pays for {mechanism!r}; give a larger delta, "
                "or more noise"
            )
        return Fraction(epsilon), delta
    if currency == "zcdp" and mechanism.sampling not in ("shuffled", "cyclic"):
        warn_caller(
            "the account is in zCDP, which has no amplification by sampling: the charge is for "
            "a run whose batches everyone sees, often 30 times what is needed. Register the "
            "dataset in 'renyi:ORDER', or in 'pure' with a delta_cap"
        )
    if currency.startswith("renyi") and mechanism.sampling in ("allocated", "k-of-t", "bins"):
        raise ValueError(
            f"the account is in {currency!r}, and no finite Renyi divergence is proven for "
            f"sampling={mechanism.sampling!r}; register the dataset in 'pure' with a delta_cap, "
            "and give delta="
        )
    return charge(mechanism, currency)


def _step_sizes(step_size: float | Sequence[float], steps: int) -> float | tuple[float, ...]:
    if isinstance(step_size, (int, float)):
        return check.positive("step_size", step_size)
    sizes = tuple(check.positive("step_size", x) for x in check.several("step_size", step_size))
    if len(sizes) != steps:
        raise ValueError(f"step_size has {len(sizes)} numbers; the run has {steps} steps")
    return sizes
