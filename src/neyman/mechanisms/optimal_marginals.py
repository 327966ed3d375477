"""Find the noise that minimizes the error of marginals, and prove its gap to the optimum.

With a_B = prod n_i^2 / s_B^2, the precision of part B (`neyman.mechanisms.marginals`), the variance
of a cell of marginal A is the sum of c(A, B) / a_B over B within A. A change D of a record costs
the sum of p_B(D) a_B, which is 2 rho for this change: p_B(D) is the squared shift of part B over
prod n_i^2. Take weights mu of marginals and lambda of changes, each with sum 1, and v = c^T mu, q =
p^T lambda. Then for every unbiased Gaussian mechanism on linear answers, the largest variance times
the largest cost is at least (sum over B of sqrt(v_B q_B))^2. For the best weights, the precisions
a_B = sqrt(v_B / q_B) attain this bound [MA-6].

The square root of the bound is concave in mu and lambda. The algorithm raises it by multiplying
mu_A by variance_A and lambda_D by cost_D, until the lower and upper bounds agree within a
tolerance. A weighted sum of variances fixes mu, and "add-remove" has one change. If both hold, the
first step is optimal.

Source: Xiao, He, Zhang, Kifer 2023 (the sum of variances in closed form; optimality).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from neyman.curves.losses.discrete_gaussian import LIMITS as DISCRETE_GAUSSIAN_LIMITS
from neyman.mechanisms.description import exact_above_zero
from neyman.mechanisms.marginals import LIMITS as MARGINALS_LIMITS
from neyman.mechanisms.marginals import Marginals, checked_sizes, ordered, share
from neyman.mechanisms.marginals_sensitivity import (
    Part,
    few_changes,
    isomorphic,
    largest,
    largest_shift,
    shift_squared,
    subsets,
    worst_change,
)
from neyman.numerics import check
from neyman.numerics.relation import MOVES, Neighboring, neighboring_of, size_known

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """Limit the effort of the optimization, and the ratio of weights."""

    relative_width: float = 1e-4
    steps: int = 20_000
    rounds: int = 200
    precision_digits: int = 10  # significant digits of a precision


LIMITS = Limits()


@dataclass(frozen=True)
class Compared:
    """Compare the error of one marginal at rho = 1/2 for three ways to spend rho.

    For another rho, multiply the variances by 1 / (2 rho).

    Args:
        variance: variance of each cell with the optimized noise.
        independent: variance with the same noise on each marginal of the workload.
        equal: variance with the same noise, after least squares for consistency.
    """

    marginal: Part
    cells: int
    variance: float
    independent: float
    equal: float


@dataclass(frozen=True)
class MarginalStrategy:
    """Describe the precision of each part, up to a factor from the budget.

    Build it with `optimal_marginals`.

    Args:
        weights: weight of a cell's variance for each marginal of the workload.
        objective: "total" or "largest".
        precisions: exact multiple of 1 / s_B^2 for each part B.
        lower: lower bound on the objective of every unbiased Gaussian mechanism at rho = 1/2.
    """

    sizes: Mapping[str, int]
    weights: Mapping[Part, float]
    objective: str
    neighboring: Neighboring
    precisions: Mapping[Part, Fraction]
    lower: float

    def mechanism(self, rho: float | Fraction | str) -> Marginals:
        """Return the measurement whose `rho` is exactly this number.

        Args:
            rho: zCDP budget, above 0.
        """
        cost, _ = largest(self.sizes, self.precisions, self.neighboring)
        scale = cost / (2 * exact_above_zero("rho", rho))
        check.exact("noise at rho", scale)
        return Marginals(
            self.sizes, {part: scale / k for part, k in self.precisions.items()}, self.neighboring
        )

    def compared(self) -> list[Compared]:
        """Compare each marginal's error with simpler ways to spend rho."""
        best = self.mechanism(Fraction(1, 2))
        noise = len(self.weights) * MOVES[self.neighboring]
        known = size_known(self.neighboring)
        parts: dict[Part, float] = {}
        for of in self.weights:
            for part in subsets(of):
                spread = math.prod(self.sizes[name] for name in of if name not in part)
                parts[part] = parts.get(part, 0.0) + 1 / (noise * spread)
        rows: list[Compared] = []
        for of in self.weights:
            equal = math.fsum(
                share(of, part, self.sizes) / parts[part]
                for part in subsets(of)
                if part or not known
            )
            cells = math.prod(self.sizes[name] for name in of)
            rows.append(Compared(of, cells, best.variance(of), float(noise), equal))
        return rows

    def value(self) -> float:
        """Return the objective of the measurement at rho = 1/2."""
        best = self.mechanism(Fraction(1, 2))
        return _objective(
            self.objective,
            [w * best.variance(of) for of, w in self.weights.items()],
            [math.prod(self.sizes[name] for name in of) for of in self.weights],
        )

    def gap(self) -> float:
        """Bound the relative excess of the objective over the best possible objective."""
        return self.value() / self.lower - 1

    def gains(self) -> tuple[float, float]:
        """Return the factors by which independent and equal noise raise the objective.

        `Compared` defines both.
        """
        compared = self.compared()
        cells = [c.cells for c in compared]
        weights = list(self.weights.values())

        def of(variances: Iterable[float]) -> float:
            weighed = [w * v for w, v in zip(weights, variances, strict=True)]
            return _objective(self.objective, weighed, cells)

        own = self.value()
        return of(c.independent for c in compared) / own, of(c.equal for c in compared) / own


def optimal_marginals(
    sizes: Mapping[str, int],
    workload: Iterable[Iterable[str]] | Mapping[Part, float],
    *,
    objective: Literal["total", "largest"] = "total",
    neighboring: Neighboring = "add-remove",
) -> MarginalStrategy:
    """Return the noise that minimizes the error of marginals at a given rho.

    Args:
        sizes: number of values of each attribute, at least 2.
        workload: the attributes of each marginal, or a dict from marginals to weights above 0. A
            weight multiplies the variance of the cells. The default is 1.
        objective: "total" for the sum of variances over all cells of all marginals, "largest" for
            the largest variance.
        neighboring: "add-remove" or "replace-one".

    Returns:
        The strategy. ``.mechanism(rho)`` returns the measurement. ``.gap()`` bounds the distance
        from the optimum: only rounding for "total" under "add-remove", else
        1e-4. It is up to 1e-3 if there are too many changes of a record to list, and larger if the
        worst change is unknown.

    Examples:
        >>> import neyman as ny
        >>> sizes = {"age": 10, "sex": 2, "race": 5}
        >>> found = ny.optimal_marginals(sizes, [("age", "sex"), ("age", "race")])
        >>> mechanism = found.mechanism(rho=0.1)
        >>> round(float(mechanism.tradeoff().epsilon(delta=1e-6)), 3)
        1.995
    """
    own = checked_sizes(sizes)
    weights = _weights_of(workload, own)
    check.one_of("objective", objective, ("total", "largest"))
    neighboring_of(neighboring)
    known = size_known(neighboring)
    parts = sorted(
        {part for of in weights for part in subsets(of) if part or not known},
        key=lambda part: (len(part), part),
    )
    kinds = {part: weights.get(part, 0.0) for part in parts}
    orbits = _orbits(parts, isomorphic(own, kinds))
    variances = _variances(own, weights, parts, objective)
    norms = np.array([math.prod(own[name] for name in part) ** 2 for part in parts], dtype=float)

    def cost(changed: Part | None) -> Floats:
        moved = [shift_squared(part, changed, own) for part in parts]
        return _orbit_means(np.array(moved, dtype=float) / norms, orbits)

    if neighboring == "add-remove":
        precisions, lower = _balance(variances, np.array([cost(None)]))[:2]
    elif (few := few_changes(own, kinds)) is not None:
        precisions, lower = _balance(variances, np.array([cost(c) for c in few]))[:2]
    else:
        precisions, lower = _against_worst(own, parts, variances, cost, norms)
    precisions = _orbit_means(precisions, orbits) / norms
    return MarginalStrategy(
        own,
        weights,
        objective,
        neighboring,
        {
            p: Fraction(f"{k:.{LIMITS.precision_digits - 1}e}")
            for p, k in zip(parts, precisions, strict=True)
        },
        lower * (1 - 1e-9),  # covers floating-point errors
    )


def _weights_of(
    workload: Iterable[Iterable[str]] | Mapping[Part, float], sizes: Mapping[str, int]
) -> Mapping[Part, float]:
    given = cast(Mapping[Part, float], workload) if isinstance(workload, Mapping) else None
    each = check.several(
        "workload",
        cast("object", workload) if given is None else list(given),
        "[('age', 'sex'), ('race',)]",
    )
    weights: dict[Part, float] = {}
    for names in each:
        weight = 1.0 if given is None else given[names]
        of = ordered("workload", names, sizes)
        if of in weights:
            raise ValueError(f"workload has the marginal {of} twice")
        if (cells := math.prod(sizes[name] for name in of)) > DISCRETE_GAUSSIAN_LIMITS.numbers:
            raise ValueError(f"workload: {of} has {cells} cells; at most 2^60 are possible")
        weights[of] = check.positive(f"workload[{of}]", weight)
    if not any(weights):
        raise ValueError("workload must have a marginal with an attribute")
    weight_ratio = 1e24  # largest ratio of weights: above, noise overflows 64-bit integers
    if max(weights.values()) / weight_ratio > min(weights.values()):
        raise ValueError(f"workload: weights must be within a factor of {weight_ratio:g}")
    if sum(2 ** len(of) for of in weights) > 8 * MARGINALS_LIMITS.parts:
        raise ValueError(
            f"workload has more than {8 * MARGINALS_LIMITS.parts} parts in all; take fewer "
            "marginals, or by fewer attributes"
        )
    return weights


def _objective(objective: str, weighed: Iterable[float], cells: Iterable[int]) -> float:
    if objective == "largest":
        return max(weighed)
    return math.fsum(v * n for v, n in zip(weighed, cells, strict=True))


def _orbits(parts: Iterable[Part], classes: Iterable[Part]) -> list[list[int]]:
    """Return the orbits, as lists of positions in ``parts``.

    Two parts are in one orbit if exchanges of equivalent attributes (in one of ``classes``) turn
    one into the other.
    """
    number = {name: i for i, group in enumerate(classes) for name in group}
    orbits: dict[tuple[int, ...], list[int]] = {}
    for at, part in enumerate(parts):
        orbits.setdefault(tuple(sorted(number[name] for name in part)), []).append(at)
    return list(orbits.values())


def _orbit_means(values: Floats, orbits: Iterable[list[int]]) -> Floats:
    """Replace the value of each part by the mean over its orbit; see `_orbits`."""
    averaged = np.empty(len(values))
    for orbit in orbits:
        averaged[orbit] = math.fsum(values[orbit]) / len(orbit)
    return averaged


def _variances(
    sizes: Mapping[str, int], weights: Mapping[Part, float], parts: list[Part], objective: str
) -> Floats:
    """Return weight times `share`, by marginal and part.

    For "total", return one row: the sum over the cells of all marginals.
    """
    from scipy.sparse import csr_array  # pyright: ignore[reportMissingTypeStubs]

    place = {part: i for i, part in enumerate(parts)}
    entries: list[tuple[int, int, float]] = []
    for row, (of, weight) in enumerate(weights.items()):
        cells = math.prod(sizes[name] for name in of)
        factor = weight * cells if objective == "total" else weight
        for part in subsets(of):
            if part in place:
                at = 0 if objective == "total" else row
                entries.append((at, place[part], factor * share(of, part, sizes)))
    rows, columns, values = (np.array(column) for column in zip(*entries, strict=True))
    if objective == "total":
        return np.bincount(columns, weights=values, minlength=len(parts)).astype(float)[None, :]
    shown = [i for i, of in enumerate(weights) if any(p in place for p in subsets(of))]
    table = csr_array((values, (rows, columns)), shape=(len(weights), len(parts)))
    return cast(Any, table)[shown]  # the sparse array has all operators that are used


def _balance(variances: Floats, costs: Floats) -> tuple[Floats, float, Floats]:
    """Return precisions a_B, a lower bound, and the weights mu that prove it [MA-6].

    The bound is on the largest variance times the largest cost. ``variances`` has a row per
    marginal, ``costs`` a row per change, and both have a column per part.
    """
    mu = np.full(variances.shape[0], 1 / variances.shape[0])
    by_change = np.full(len(costs), 1 / len(costs))
    best = (math.inf, np.ones(costs.shape[1]))
    lower, proof = 0.0, mu
    for _ in range(LIMITS.steps):
        v, q = variances.T @ mu, by_change @ costs
        ratio = np.sqrt(v / q)
        variance, cost = variances @ (1 / ratio), costs @ ratio
        bound = float(np.sum(np.sqrt(v * q))) ** 2
        if bound > lower:
            lower, proof = bound, mu
        best = min(best, (float(variance.max() * cost.max()), ratio), key=lambda pair: pair[0])
        if best[0] <= lower * (1 + LIMITS.relative_width):
            break
        mu, by_change = mu * variance, by_change * cost
        mu, by_change = mu / mu.sum(), by_change / by_change.sum()
    return best[1], lower, proof


def _against_worst(
    sizes: Mapping[str, int],
    parts: list[Part],
    variances: Floats,
    cost: Callable[[Part | None], Floats],
    norms: Floats,
) -> tuple[Floats, float]:
    """Return precisions and the lower bound, if there are too many changes to list.

    Each round adds the change with the largest ``cost`` to the known changes. ``norms`` has prod
    n_i^2 for each part.
    """
    known: list[Part] = [tuple(sizes), *((name,) for name in sizes)]
    costs = np.array([cost(changed) for changed in known])
    best, precision, lower = math.inf, np.ones(len(parts)), 0.0
    for _ in range(LIMITS.rounds):
        precisions, bound, _ = _balance(variances, costs)
        lower = max(lower, bound)
        worst = worst_change(sizes, dict(zip(parts, precisions / norms, strict=True)))
        if worst is None:
            break
        row = cost(worst)
        upper = float(
            (variances @ (1 / precisions)).max() * max(row @ precisions, (costs @ precisions).max())
        )
        if upper < best:
            best, precision = upper, precisions
        if best <= lower * (1 + 10 * LIMITS.relative_width) or worst in known:
            return precision, lower
        known.append(worst)
        costs = np.vstack([costs, row])
    if best < math.inf:
        return precision, lower
    # The worst change is unknown. The largest shifts of the parts give an upper bound, and a random
    # replacement (two independent random records) gives a lower bound.
    most = np.array([[largest_shift(part, sizes) for part in parts]], dtype=float) / norms
    random = np.array([2 * shift_squared(part, None, sizes) for part in parts], dtype=float) / norms
    precisions, _, proof = _balance(variances, most)
    return precisions, max(lower, float(np.sum(np.sqrt((variances.T @ proof) * random))) ** 2)
