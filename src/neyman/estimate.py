"""Estimate parameters privately, with an interval, a receipt, and an optimality gap: `ny.estimate`.

`mean` and `covariance` are for records in a ball, `normal_mean` for normal records without a bound
on their mean, `histogram` for a density, and `quantile` for values on a grid. `regression` fits a
linear model, `logistic` a logistic model with a penalty, and `linear_model` a model with Huber's, a
smooth hinge, or Poisson's loss. `survival` estimates a survival curve at declared times.
`posterior_draw` draws once from the posterior of a normal mean. Each returns an `Estimate`.

Examples:
    >>> import neyman as ny
    >>> ledger = ny.throwaway("1/2")
    >>> estimate = ny.estimate.mean([0.2, 0.4] * 1000, radius=1, budget=ny.zcdp("1/8"),
    ...                             ledger=ledger, dataset="survey@1")
    >>> ledger.account("survey@1").left
    Fraction(3, 8)
"""

from neyman.analysis.estimators.ball_mean import mean
from neyman.analysis.estimators.density import histogram
from neyman.analysis.estimators.estimate import Estimate
from neyman.analysis.estimators.grid_quantile import quantile
from neyman.analysis.estimators.linear_model import linear_model
from neyman.analysis.estimators.logistic import logistic
from neyman.analysis.estimators.posterior_draw import posterior_draw
from neyman.analysis.estimators.regression import regression
from neyman.analysis.estimators.second_moments import covariance
from neyman.analysis.estimators.survival import SurvivalCurve, survival, survival_curve
from neyman.analysis.estimators.unbounded_mean import normal_mean

__all__ = [
    "Estimate",
    "SurvivalCurve",
    "covariance",
    "histogram",
    "linear_model",
    "logistic",
    "mean",
    "normal_mean",
    "posterior_draw",
    "quantile",
    "regression",
    "survival",
    "survival_curve",
]
