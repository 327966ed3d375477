"""The public namespace `ny.estimate`."""

from __future__ import annotations

from neyman.estimators.ball_mean import mean
from neyman.estimators.logistic import logistic
from neyman.estimators.regression import regression

__all__ = ["Estimators", "estimate"]


class Estimators:
    """Release private estimates of parameters, each with an interval, a receipt, and its gap.

    `mean` estimates the mean of records in a ball, `regression` the coefficients of a linear model,
    and `logistic` those of a logistic model with a penalty. Each returns an `Estimate`.

    Examples:
        >>> import neyman as ny
        >>> ledger = ny.throwaway("1/2")
        >>> estimate = ny.estimate.mean([0.2, 0.4] * 1000, radius=1, budget=ny.zcdp("1/8"),
        ...                             ledger=ledger, dataset="survey@1")
        >>> ledger.account("survey@1").left
        Fraction(3, 8)
    """

    mean = staticmethod(mean)
    regression = staticmethod(regression)
    logistic = staticmethod(logistic)

    def __repr__(self) -> str:
        return "ny.estimate"


estimate = Estimators()
"""The public object."""
