"""The public namespace `ny.estimate`."""

from __future__ import annotations

from neyman.analysis.estimators.ball_mean import mean
from neyman.analysis.estimators.density import histogram
from neyman.analysis.estimators.grid_quantile import quantile
from neyman.analysis.estimators.logistic import logistic
from neyman.analysis.estimators.regression import regression
from neyman.analysis.estimators.second_moments import covariance
from neyman.analysis.estimators.unbounded_mean import normal_mean

__all__ = ["Estimators", "estimate"]


class Estimators:
    """Release private estimates of parameters, each with an interval, a receipt, and its gap.

    `mean` and `covariance` are for records in a ball, `normal_mean` for normal records without a
    bound on their mean, `histogram` for a density, and `quantile` for values on a grid.
    `regression` estimates the coefficients of a linear model, and `logistic` those of a logistic
    model with a penalty. Each returns an `Estimate`.

    Examples:
        >>> import neyman as ny
        >>> ledger = ny.throwaway("1/2")
        >>> estimate = ny.estimate.mean([0.2, 0.4] * 1000, radius=1, budget=ny.zcdp("1/8"),
        ...                             ledger=ledger, dataset="survey@1")
        >>> ledger.account("survey@1").left
        Fraction(3, 8)
    """

    mean = staticmethod(mean)
    normal_mean = staticmethod(normal_mean)
    covariance = staticmethod(covariance)
    histogram = staticmethod(histogram)
    quantile = staticmethod(quantile)
    regression = staticmethod(regression)
    logistic = staticmethod(logistic)

    def __repr__(self) -> str:
        return "ny.estimate"


estimate = Estimators()
"""The public object."""
