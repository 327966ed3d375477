"""Represent the result of a private test: a p-value, a decision, an interval, and a receipt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from neyman.analysis.hypothesis_tests.arguments import inside
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.base import Mechanism
from neyman.numerics.bound import Bound

KIND: tuple[str, Literal["test"]] = ("private-tests", "test")
"""Private tests have this page of certificates and this kind of release."""


@dataclass(frozen=True, eq=False, repr=False)
class TestResult:
    """Represent a private test's result, computed only from noisy numbers and public arguments.

    Args:
        p_value: bounds on the p-value of the null hypothesis; the upper bound is safe.
        estimate: the estimate of the parameter, or None.
        interval: both ends of a confidence interval for the parameter, or None.
        confidence: smallest probability that the interval covers the parameter, or None.
        receipt: the record of the released numbers, the guarantee, and the charge.
        mechanism: the mechanism whose guarantee the release has.

    Examples:
        >>> import neyman as ny
        >>> from neyman.analysis.hypothesis_tests.binomial_test import BinomialTest
        >>> test = BinomialTest(n=500, null="1/2", alternative="greater", budget=ny.gdp(1))
        >>> result = test.release(successes=320)
        >>> result.rejects(level=0.05), result.receipt["ledger"]["charged"]
        (True, 'nothing')
    """

    __test__ = False  # it is no test of pytest's

    p_value: Bound
    estimate: float | None
    interval: tuple[float, float] | None
    confidence: float | None
    receipt: Mapping[str, Any]
    mechanism: Mechanism

    @classmethod
    def of(
        cls, receipt: Mapping[str, Any], method: str, confidence: float | None, mechanism: Mechanism
    ) -> TestResult:
        """Read the result from a receipt."""
        result = receipt["result"]
        p = Bound(result["p_value"]["lower"], result["p_value"]["upper"], "upper", method)
        ends = result.get("interval")
        interval = None if ends is None else (float(ends[0]), float(ends[1]))
        return cls(p, result.get("estimate"), interval, confidence, receipt, mechanism)

    def rejects(self, level: object) -> bool:
        """Return True if the upper end of the p-value is at most the level.

        Under the null hypothesis, the probability of this is at most the level.

        Args:
            level: the level of the test, in (0, 1).
        """
        return self.p_value.upper <= inside("level", level)

    def tradeoff(self) -> Tradeoff:
        """Return the trade-off curve of this release."""
        return self.mechanism.tradeoff()

    def to_json(self) -> str:
        """Return the receipt as JSON text."""
        return json.dumps(self.receipt, indent=2, sort_keys=True) + "\n"

    def __repr__(self) -> str:
        ledger = self.receipt["ledger"]
        paid = ledger["charged"]
        charged = paid if paid == "nothing" else f"{paid} in {ledger['currency']}"
        return f"<{self.receipt['test']}: p-value at most {self.p_value:.3g}; charged {charged}>"
