"""Bind what the guarantee and the result of a private training depend on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self, cast

from neyman.accounting.calibrate import calibrate_exact
from neyman.analysis.training.clipping import LIMITS as CLIPPING_LIMITS
from neyman.curves.tradeoff.guarantees import approximate
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.dp_sgd import DPSGD
from neyman.mechanisms.matrix_mechanism.noise_stream import CorrelatedNoise
from neyman.mechanisms.matrix_mechanism.strategy import STRATEGY_UNIT
from neyman.noise.bits import SecureBits
from neyman.noise.rejection import LIMITS as REJECTION_LIMITS
from neyman.numerics import check
from neyman.numerics.relation import MOVES

Clip = float | Fraction | str
Groups = Mapping[str, Sequence[str]]

MAX_STEPS = 10**7


@dataclass(frozen=True)
class TrainingPlan:
    """Bind the mechanism, the clipping, and the precision of a training, and how it is computed.

    Two plans are equal, and have one hash, if the same mechanism, clip, groups, grid, and precision
    define them. The later fields only say how a machine computes the same sums.

    Args:
        mechanism: the mechanism that is accounted and that draws the batches.
        clip: the largest l2 norm of a row's gradient, above 0. With ``groups``, one shared norm, or
            one norm per group.
        groups: names of parameters or modules by group. Each group is clipped separately. With
            "layers", each module is a group.
        grid: number of units in ``clip``.
        autocast: "bfloat16" or "float16" for the forward pass in mixed precision.
        microbatch: number of rows per pass through the model. More than 1 adds an assumption to the
            receipt. With 1, rows are independent of each other, but the run is slower. By default,
            a batch, or the largest equal piece of one that fits into memory.
        compiled: True to write out the gradient of each row, and clip it by kernels of
            ``torch.compile``, which needs a compiler. Without it, layers whose gradients are
            products of small matrices have exact sums of these products [TR-9].
        save_every: number of steps between durable checkpoints; see `ny.train`.
        processes: number of processes that share each batch; see `ny.torch.serve`.

    Raises:
        TypeError, ValueError: an argument is wrong, or no run can have this mechanism.

    Examples:
        >>> import neyman as ny
        >>> plan = ny.torch.TrainingPlan(ny.DPSGD(n=200, batch=50, sigma=2, epochs=5), clip="1/2")
        >>> print(plan)
        DPSGD(n=200, batch=50, sigma=2, epochs=5, sampling='poisson')
        clip 1/2, grid 1048576
        >>> ny.torch.TrainingPlan.from_dict(plan.to_dict()) == plan
        True
    """

    mechanism: DPSGD
    clip: Clip | Mapping[str, Clip] = 1
    groups: Groups | str | None = None
    grid: int = 1 << 20
    autocast: str | None = None
    microbatch: int | None = field(default=None, compare=False)
    compiled: bool = field(default=False, compare=False)
    save_every: int = field(default=100, compare=False)
    processes: int = field(default=1, compare=False)

    def __post_init__(self) -> None:
        mechanism = self.mechanism
        if not isinstance(mechanism, DPSGD):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"mechanism = {mechanism!r} must be a ny.DPSGD: it draws the batches, so that what "
                "is accounted is what the loop does"
            )
        if mechanism.steps > MAX_STEPS:
            raise ValueError(f"mechanism has {mechanism.steps} steps; at most {MAX_STEPS:g} run")
        given = self.clip
        mapped = isinstance(given, Mapping)
        clip = {k: _norm(x) for k, x in given.items()} if mapped else _norm(given)
        object.__setattr__(self, "clip", clip)
        if isinstance(self.groups, Mapping):
            object.__setattr__(self, "groups", {k: [*x] for k, x in self.groups.items()})
        most = CLIPPING_LIMITS.clip_units
        if check.integer("grid", self.grid, 1) > most:
            raise ValueError(f"grid = {self.grid} must be between 1 and {most}")
        if self.variance > REJECTION_LIMITS.sigma_squared:
            raise ValueError(
                f"grid = {self.grid} with {mechanism!r}: sigma_squared of the noise is above (2^53 "
                "- 1)^2 units; take a coarser grid"
            )
        if self.autocast is not None:
            check.one_of("autocast", self.autocast, ("bfloat16", "float16"))
        if self.microbatch is not None:
            check.integer("microbatch", self.microbatch, 1)
        check.integer("save_every", self.save_every, 1)
        check.integer("processes", self.processes, 1)

    @classmethod
    def reaching(
        cls,
        epsilon: float | Fraction | str,
        delta: float | Fraction | str,
        *,
        n: int,
        batch: int,
        epochs: float | Fraction,
        sampling: str = "poisson",
        **fields: Any,
    ) -> Self:
        """Return the plan with the least sigma that reaches (epsilon, delta), certified.

        Args:
            epsilon, delta: the guarantee of the whole run. Epsilon is above 0, and delta between 0
                and 1 / n, both ends excluded: a run with a delta of 1 / n may publish one row.
            n: public number of rows.
            batch, epochs, sampling: as in `ny.DPSGD`.
            fields: the other fields of the plan.

        Raises:
            ValueError: an argument is out of its range, or no sigma reaches epsilon.

        Examples:
            >>> import neyman as ny
            >>> plan = ny.torch.TrainingPlan.reaching(2, 1e-5, n=1437, batch=256, epochs=20)
            >>> float(plan.mechanism.sigma), float(plan.mechanism.tradeoff().epsilon(1e-5)) <= 2
            (3.95965599, True)
        """
        rows = check.integer("n", n, 1)
        exact, small = check.exact("epsilon", epsilon), check_delta(delta, rows)
        if exact <= 0:
            raise ValueError(f"epsilon = {epsilon!r} must be above 0; take 1, or 8 at most")

        def plan(sigma: Fraction) -> Self:
            return cls(DPSGD(rows, batch, sigma, epochs, sampling), **fields)

        plan(Fraction(1))  # an error of another argument
        budget = approximate(exact, small)
        try:
            sigma = calibrate_exact(lambda sigma: plan(sigma).mechanism, budget)
        except ValueError as error:
            raise ValueError(
                f"epsilon = {epsilon!r} with delta = {delta!r}: no sigma reaches it ({error}). "
                "Give a larger epsilon, fewer epochs, or a smaller batch"
            ) from error
        return plan(sigma)

    def __str__(self) -> str:
        clip, groups = self.clip, self.groups
        shown = [f"{k}: {x}" for k, x in clip.items()] if isinstance(clip, Mapping) else [str(clip)]
        parts = [f"clip {', '.join(shown)}", f"grid {self.grid}"]
        if groups is not None:
            parts.append(f"groups {groups if isinstance(groups, str) else ', '.join(groups)}")
        if self.autocast is not None:
            parts.append(f"forward passes in {self.autocast}")
        return f"{self.mechanism!r}\n{', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """Return what defines the plan, as JSON types: the section "plan" of a receipt."""
        clip = self.clip
        given = {
            "mechanism": self.mechanism.to_dict(),
            "clip": {k: str(x) for k, x in clip.items()}
            if isinstance(clip, Mapping)
            else str(clip),
            "groups": self.groups,
            "grid": self.grid,
            "autocast": self.autocast,
        }
        return {k: value for k, value in given.items() if value is not None}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the plan of a receipt's section "plan"."""
        others = {name: value for name, value in content.items() if name != "mechanism"}
        return cls(cast(DPSGD, Mechanism.from_dict(content["mechanism"])), **others)

    @property
    def hash(self) -> str:
        """Return the SHA-256 hash of what defines the plan."""
        return hash_of(self.to_dict())

    @property
    def norm(self) -> Fraction:
        """Return the largest norm of a row's gradient: the root of the sum of squared clips."""
        clip = self.clip
        if isinstance(clip, Mapping):
            return Fraction(math.sqrt(sum(Fraction(x) ** 2 for x in clip.values())))
        return Fraction(clip)

    @property
    def rows(self) -> tuple[int, ...]:
        """Return the rows per unit with which a dataset may be registered.

        With ``user_sampling="users"``, an item has all rows of a user, so both 1 item and the rows
        in it describe the same units.
        """
        most = self.mechanism.most_records
        return (most,) if self.mechanism.user_sampling == "examples" else (1, most)

    @property
    def variance(self) -> Fraction:
        """Return the variance of the noise before rounding, in squared grid units, exact.

        It is (sigma grid)^2 under add-remove, and (2 sigma grid)^2 under replace-one. With a
        strategy, whose rows are scaled to integers, it is 65536^2 times larger.
        """
        sigma = check.exact("sigma", self.mechanism.sigma)
        scale = 1 if self.mechanism.strategy is None else STRATEGY_UNIT
        return (MOVES[self.mechanism.neighboring] * sigma * self.grid * scale) ** 2

    def correlated_noise(self, size: int) -> CorrelatedNoise | None:
        """Return the noise that the mechanism's strategy correlates, or None without a strategy.

        Args:
            size: the number of parameters.
        """
        strategy = self.mechanism.strategy
        return None if strategy is None else strategy.noise(self.variance, size, SecureBits())


def check_delta(delta: float | Fraction | str, n: int) -> Fraction:
    """Return an exact delta. Refuse one that is not above 0 and below 1 / n."""
    exact = check.exact("delta", delta)
    if not 0 < exact < Fraction(1, n):
        raise ValueError(
            f"delta = {delta!r} must be above 0 and below 1 / n = {1 / n:g}: a run with a larger "
            "delta may publish a whole row. Give a delta far below it, such as delta="
            f"{1 / (100 * n):.0e}"
        )
    return exact


def hash_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of JSON types. Equal content gives an equal hash."""
    return hashlib.sha256(json_of(content).encode()).hexdigest()


def json_of(content: Mapping[str, Any]) -> str:
    """Return JSON types as text. Equal content gives equal text."""
    return json.dumps(content, sort_keys=True)


def _norm(clip: Clip) -> Fraction:
    """Return an exact clipping norm. Refuse one that is not above 0, or has no float."""
    exact = check.exact("clip", clip)
    least = Fraction(1, 10**100)  # its inverse is the largest clip
    if not least <= exact <= 1 / least:
        raise ValueError(f"clip = {clip!r} must be above 0, and between 1e-100 and 1e100")
    return exact
