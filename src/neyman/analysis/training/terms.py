"""Describe a training run by its public terms, their hash, and their price in a ledger."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.charges import charge
from neyman.analysis.training.clipping import LIMITS as CLIPPING_LIMITS
from neyman.mechanisms.dp_sgd import DPSGD
from neyman.mechanisms.matrix_mechanism.noise_stream import CorrelatedNoise
from neyman.mechanisms.matrix_mechanism.strategy import STRATEGY_UNIT
from neyman.noise.bits import SecureBits
from neyman.noise.rejection import LIMITS as REJECTION_LIMITS
from neyman.numerics import check
from neyman.numerics.relation import MOVES
from neyman.numerics.rounding import below

MAX_STEPS = 10**7
ROWS_OF_USERS = (
    "To protect all records of a person, give each person one row with all of them, as a dimension "
    "more, and a loss that adds up over it. Register the dataset with rows=1, and describe persons "
    "with user_sampling='users'"
)


@dataclass(frozen=True)
class RunTerms(ABC):
    """Hold the public terms of every run: its name, accounting, clipping, and dataset.

    Args:
        name: the name of the run. Another model or gradient needs another name.
        clip: the largest l2 norm of a record's gradient, exact.
        grid: number of units in ``clip``.
        piece: number of rows in one call of the gradient.
    """

    name: str
    dataset: str
    mechanism: DPSGD
    clip: Fraction
    grid: int
    piece: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the parameters."""

    @property
    def unit(self) -> float:
        """Return the size of one grid unit, clip / grid, rounded. Privacy does not depend on it."""
        return float(self.clip) / self.grid

    @property
    def sigma_squared(self) -> Fraction:
        """Return the variance of the noise before rounding, in squared grid units, exact."""
        return noise_variance(self.mechanism, self.grid)

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as JSON types."""
        return {
            "name": self.name,
            "dataset": self.dataset,
            "mechanism": self.mechanism.to_dict(),
            "clip": str(self.clip),
            "grid": self.grid,
            "noise": {"law": "rounded-gaussian", "sigma_squared": str(self.sigma_squared)},
            "divisor": self.mechanism.batch,
            "piece": self.piece,
        }

    def to_json(self) -> str:
        """Return the terms as text. Equal terms give equal text."""
        return _json(self.to_dict())

    @property
    def key(self) -> str:
        """Return the hash of the terms, which identifies the run in the ledger."""
        return key_of(self.to_dict())


def common_terms(
    name: str,
    dataset: str,
    mechanism: object,
    clip: object,
    grid: object,
    piece: object,
    *,
    size: int,
) -> tuple[str, str, DPSGD, Fraction, int, int]:
    """Return the fields of `RunTerms`. Refuse terms that no run can have.

    Args:
        size: the number of parameters.
    """
    if not isinstance(mechanism, DPSGD):
        raise TypeError(
            f"mechanism = {mechanism!r} must be a ny.DPSGD: it draws the batches, so that what "
            "is accounted is what the loop does"
        )
    if mechanism.most_records > 1 and mechanism.user_sampling == "examples":
        raise ValueError(
            f"mechanism = {mechanism!r}: a run cannot check how many rows a person has, and "
            f"its receipt says one. {ROWS_OF_USERS}"
        )
    if mechanism.steps > MAX_STEPS:
        raise ValueError(f"mechanism has {mechanism.steps} steps; at most {MAX_STEPS:g} run")
    if not name or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"name = {name!r} must be text that names the model and its gradient")
    exact = check.exact("clip", clip)
    if exact <= 0:
        raise ValueError(f"clip = {clip!r} must be above 0")
    units = check.integer("grid", grid, 1)
    least = 16 * max(1, int(size**0.5))
    if not least <= units <= CLIPPING_LIMITS.clip_units:
        raise ValueError(
            f"grid = {units} must be between {least} and {CLIPPING_LIMITS.clip_units}: with {size} "
            "parameters a coarser grid loses the gradient to rounding"
        )
    if noise_variance(mechanism, units) > REJECTION_LIMITS.sigma_squared:
        raise ValueError(
            f"grid = {units} with {mechanism!r}: sigma_squared of the noise is above (2^53 - 1)^2 "
            "units; take a coarser grid"
        )
    return name, dataset, mechanism, exact, units, check.integer("piece", piece, 1)


@dataclass(frozen=True)
class Terms(RunTerms):
    """Describe a run of `ny.train` in public terms, which do not depend on the data.

    Args:
        step_size: one number per step, or one number for all steps.
        start: the first parameters.
    """

    step_size: float | tuple[float, ...]
    start: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        name: str,
        dataset: str,
        mechanism: object,
        clip: object,
        grid: object,
        step_size: float | Sequence[float],
        start: object,
        piece: object,
    ) -> Terms:
        """Return the terms. Check each argument of `ny.train`."""
        parameters = np.array(start, np.float64)
        common = common_terms(name, dataset, mechanism, clip, grid, piece, size=parameters.size)
        if not 0 < parameters.size <= CLIPPING_LIMITS.parameters:
            raise ValueError(
                f"start has {parameters.size} numbers; it must have 1 to "
                f"{CLIPPING_LIMITS.parameters}"
            )
        if not np.isfinite(parameters).all():
            raise ValueError("start must be finite in every entry")
        return cls(*common, _step_sizes(step_size, common[2].steps), parameters)

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
            "step_size": self.step_size,
            "start": {"shape": self.start.shape, "sha256": hashlib.sha256(content).hexdigest()},
        }


def noise_variance(mechanism: DPSGD, grid: int) -> Fraction:
    """Return the variance of a run's noise, in squared grid units, exactly.

    It is (sigma grid)^2 under add-remove, and (2 sigma grid)^2 under replace-one. With a strategy,
    whose rows are scaled to integers, it is 65536^2 times larger.

    Args:
        mechanism: the mechanism of the run. Its sigma is relative to the largest change of a sum.
        grid: number of units in the clipping norm.
    """
    sigma = check.exact("sigma", mechanism.sigma)
    scale = 1 if mechanism.strategy is None else STRATEGY_UNIT
    return (MOVES[mechanism.neighboring] * sigma * grid * scale) ** 2


def correlated_noise(mechanism: DPSGD, grid: int, size: int) -> CorrelatedNoise | None:
    """Return the noise that a mechanism's strategy correlates, or None without a strategy.

    Args:
        size: the number of parameters.
    """
    if mechanism.strategy is None:
        return None
    return mechanism.strategy.noise(noise_variance(mechanism, grid), size, SecureBits())


def key_of(terms: Mapping[str, Any]) -> str:
    """Return the hash of terms in JSON types, which identifies the run in the ledger."""
    return hashlib.sha256(_json(terms).encode()).hexdigest()


def _json(terms: Mapping[str, Any]) -> str:
    return json.dumps(terms, sort_keys=True)


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
