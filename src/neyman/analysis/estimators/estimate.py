"""Represent an estimate: a value, its errors, its receipt, and its gap to the least error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from neyman.accounting.optimality.guarantee import UP
from neyman.accounting.optimality.least_error import least_error
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.numerics import check
from neyman.numerics.bound import Bound
from neyman.numerics.rounding import below

MIN_MISS_PROBABILITY = Fraction(1, 10**300)  # its logarithm is a finite float
Number = float | NDArray[np.float64]
About = Literal["population", "data"]
Limits = Callable[[float, About], tuple[Number, Number]]
"""Return both ends of an interval, given the probability of a miss and the covered parameter."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Represent a private estimate with its errors and the receipt of its guarantee.

    All its content is computed from noisy statistics and public arguments, so it can be published.

    Args:
        name: name of the estimator, such as "mean".
        value: the estimate, a number or an array.
        standard_error: standard error of the value about the population's parameter, including
            sampling and noise. Each estimator states whether it is an estimate or a bound. NaN if
            it states none.
        noise_error: standard deviation of the noise alone in the value, or NaN.
        receipt: the record of the released numbers, the guarantee, and the charge.
        mechanism: the mechanism whose guarantee the estimate has.
        covers: one sentence on the parameter that an interval covers.
        limits: a function that returns the ends of an interval.
        largest_error: upper bound on the estimator's root mean squared error on its worst
            distribution, or None if unknown.
        problem: the arguments of `least_error` without its budget, or None if no bound is proven.

    Examples:
        >>> import neyman as ny
        >>> estimate = ny.estimate.mean([1.0, 2.0, 3.0] * 1000, radius=4, budget=ny.gdp(1))
        >>> lower, upper = estimate.interval(confidence=0.95)
        >>> bool(lower < 2 < upper), estimate.receipt["ledger"]["charged"]
        (True, 'nothing')
        >>> round(estimate.gap, 2)
        1.02
    """

    name: str
    value: Number
    standard_error: Number
    noise_error: Number
    receipt: Mapping[str, Any]
    mechanism: Mechanism
    covers: str
    limits: Limits
    largest_error: float | None = None
    problem: Mapping[str, Any] | None = None

    def interval(
        self, confidence: float | Fraction | str = 0.95, *, about: About = "population"
    ) -> tuple[Number, Number]:
        """Return a confidence interval for each coordinate.

        Args:
            confidence: probability that the interval covers, in (0, 1), for each coordinate by
                itself.
            about: "population" covers the parameter of the distribution that the records are drawn
                from, and includes sampling error. "data" covers the same statistic of these records
                after clipping, and includes noise alone.

        Returns:
            (lower, upper): numbers or arrays of the shape of the value.

        Raises:
            ValueError: the confidence is not between 0 and 1, or the estimator has no such
                interval.
        """
        exact = check.exact("confidence", confidence)
        if not 0 < exact < 1:
            raise ValueError(f"confidence = {confidence!r} must be between 0 and 1, both excluded")
        if 1 - exact < MIN_MISS_PROBABILITY:
            raise ValueError(f"confidence = {confidence!r} must be at most 1 - 1e-300")
        check.one_of("about", about, ("population", "data"))
        return self.limits(below(1 - exact), about)

    def tradeoff(self) -> Tradeoff:
        """Return the trade-off curve of this estimate alone."""
        return self.mechanism.tradeoff()

    @cached_property
    def least(self) -> Bound | None:
        """Return the bound of `least_error` on releases at least as private, or None.

        It bounds their mean squared errors.
        """
        if self.problem is None:
            return None
        return least_error(budget=self.mechanism, **self.problem)

    @property
    def gap(self) -> float | None:
        """Return the largest root mean squared error divided by the least one, rounded up.

        The error on the worst distribution of the problem is at most this ratio times the smallest
        error of any release with the same privacy guarantee. None if no ratio is proven.
        """
        least = self.least
        if least is None or self.largest_error is None or least.lower <= 0:
            return None
        return max(self.largest_error / math.sqrt(least.lower) * UP, 1.0)

    def to_json(self) -> str:
        """Return the receipt as JSON text."""
        return json.dumps(self.receipt, indent=2, sort_keys=True) + "\n"

    def __repr__(self) -> str:
        value = np.asarray(self.value)
        shown = f"{float(value):.6g}" if value.ndim == 0 else f"shape {value.shape}"
        error = np.asarray(self.standard_error)
        beside = f" +- {float(error):.2g}" if error.ndim == 0 and not np.isnan(error) else ""
        ledger = self.receipt["ledger"]
        paid = ledger["charged"]
        charged = paid if paid == "nothing" else f"{paid} in {ledger['currency']}"
        return f"<Estimate {self.name}: {shown}{beside}; charged {charged}>"


def shaped(values: NDArray[Any], flat: bool) -> Number:
    """Return the single entry of an array as a float if ``flat``, else a read-only copy."""
    if flat:
        return float(values.reshape(-1)[0])
    return fixed(values)


def fixed(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return a read-only copy of the values."""
    copy = np.array(values, np.float64)
    copy.setflags(write=False)
    return copy
