"""What analysis refuses, and the words that name it."""

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import neyman as ny
from neyman.analysis import BinomialTest, GoodnessOfFitTest, MeanTest, ProportionsTest

RHO = ny.zcdp("1/2")


def quantile(q=0.5, **given):
    usual = {"lower": 0, "upper": 1, "step": 1, "budget": RHO}
    return lambda: ny.estimate.quantile([1], q, **usual | given)


def mean(**given):
    arguments = {"records": [0.5], "radius": 1, "budget": RHO} | given
    return lambda: ny.estimate.mean(arguments.pop("records"), **arguments)


def binomial(**given):
    usual = {"n": 50, "null": "1/2", "alternative": "greater", "budget": ny.gdp(1)}
    return lambda: BinomialTest(**usual | given)


def center(**given):
    usual = {"null": 0, "n": 9, "clip": 1, "alternative": "greater", "budget": ny.gdp(1)}
    return MeanTest(**usual | given)


ONE = np.ones((1, 1))
FITS: list[tuple[Any, dict[str, Any]]] = [
    (ny.estimate.regression, {"radius": 1, "bound": 1, "budget": RHO}),
    (ny.estimate.logistic, {"radius": 1, "penalty": 1, "budget": RHO, "classes": (0, 1)}),
]
TWO: dict[str, Any] = {"n": (3, 4), "alternative": "less", "budget": ny.pure(1)}
REFUSED = [
    (lambda: ny.estimate.histogram([1], edges=[0, 1], budget=RHO), "edges has 2"),
    (lambda: ny.estimate.histogram([1], edges=[0, 2, 1], budget=RHO), "edges must rise"),
    (lambda: ny.estimate.histogram([1], edges=[0, 1, math.nan], budget=RHO), "edges"),
    (quantile(0), "q = 0 must be between"),
    (quantile([0.5, 2]), "q = 2 must be between"),
    (quantile([]), "q has 0 numbers"),
    (quantile([0.5] * 1001), "q has 1001 numbers"),
    (quantile(confidence=1.5), "confidence = 1.5 must be between"),
    (lambda: quantile(confidence=0.9)().interval(0.99), "confidence must be at most 0.9"),
    (quantile(step=0.3), "into a whole number of steps"),
    (quantile(lower=1, upper=0), "must be above lower"),
    (quantile(confidence=0.95, neighboring="add-remove"), "give confidence=None"),
    (lambda: ny.estimate.covariance(np.ones((1, 1)), radius=1, budget=RHO), "at least 2"),
    (
        lambda: ny.estimate.covariance(np.ones((3, 2)), radius=1, budget=ny.zcdp(1e-30)),
        "more noise than the sampler can draw",
    ),
    (lambda: ny.estimate.survival([1], [True], times=[], budget=RHO), "times has 0 numbers"),
    (lambda: ny.estimate.survival([1], [True], times=[2, 1], budget=RHO), "positive and rise"),
    (lambda: ny.estimate.normal_mean([1] * 9, sigma=1, budget=RHO), "at least"),
    (lambda: ny.estimate.normal_mean([1] * 99, sigma=1, budget=ny.gdp(0.1)), "too few"),
    (lambda: ny.estimate.normal_mean([1] * 99, sigma=0, budget=RHO), "sigma = 0"),
    (
        lambda: ny.estimate.normal_mean([1] * 999, sigma=1, budget=RHO).interval(0.99999),
        "confidence must be below",
    ),
    (mean(records=np.zeros((1, 10**6 + 1))), "records has 1000001 columns"),
    (
        lambda: ny.estimate.covariance(np.ones((3, 1025)), radius=1, budget=RHO),
        "records has 1025 columns",
    ),
    *((partial(fit, np.ones((1, 2001)), [1], **of), "x has 2001 columns") for fit, of in FITS),
    (partial(FITS[1][0], ONE, np.ones((2, 2)), **FITS[1][1]), r"labels has shape \(2, 2\)"),
    (partial(FITS[0][0], ONE, [1], center=1, intercept=False, **FITS[0][1]), "needs intercept="),
    (mean(records=[]), "records is empty"),
    (mean(records=np.zeros((2, 0))), "at least one column"),
    (mean(records=np.zeros((2, 2, 2))), r"records has shape \(2, 2, 2\)"),
    (mean(records=np.array(["a"])), "records has the type"),
    (mean(records=np.ones((2, 3)), dimension=2), "dimension = 2, and records has 3 columns"),
    (mean(clip=3), "unexpected keyword argument 'clip'"),
    (mean(budget=ny.zcdp(1e-40)), "more noise than can be drawn"),
    (mean(radius=0), "radius = 0"),
    (mean(radius=1e200), "radius"),
    (mean(budget=1), "budget = 1"),
    (mean(budget=ny.pure(1)), "none meets a pure epsilon"),
    (mean(neighboring="any"), "neighboring = 'any'"),
    (mean(dataset="toy@1"), "give ledger="),
    (mean(ledger="missing.db"), "give the dataset="),
    *((binomial(n=x), "n") for x in (0, 2.5, 10**10)),
    *((binomial(null=x), "null") for x in (0, 1, math.nan)),
    (binomial(alternative="more"), "alternative"),
    (binomial(budget=1), "budget"),
    (binomial(budget=SimpleNamespace(tradeoff=int)), "must be a budget, such as ny.gdp"),
    (binomial(budget=ny.perfect()), "budget"),
    (binomial(budget=ny.gdp(1e-6)), "too many steps; give a larger budget"),
    (binomial(budget=ny.renyi({2: 0.1})), "canonical noise of its curve does not meet it"),
    (binomial(budget=ny.from_points([0, 0.1, 1], [0.8, 0.5, 0])), "symmetric"),
    (binomial(budget=ny.Laplace(1).subsample(rate=0.1)), "replace-one"),
    (lambda: ProportionsTest(n=(3,), alternative="less", budget=ny.gdp(1)), "n ="),
    (lambda: ProportionsTest(n=(3, 0), alternative="less", budget=ny.gdp(1)), "n ="),
    (lambda: GoodnessOfFitTest([0.5, 0.4], n=9, budget=ny.gdp(1)), "shares"),
    (lambda: GoodnessOfFitTest(["1"], n=9, budget=ny.gdp(1)), "shares"),
    (lambda: ProportionsTest(**TWO).p_value([1]), "must be two numbers"),
    (lambda: ProportionsTest(**TWO).release([1]), "successes must be two numbers"),
    (lambda: center().release([1] * 8), "values has 8 numbers; it must have n = 9"),
    (
        lambda: GoodnessOfFitTest(["1/2"] * 2, n=9, budget=ny.gdp(1), simulations=10**9),
        "must be at most 1000000",
    ),
    (lambda: GoodnessOfFitTest(["0.5"], n=9, budget=ny.gdp(1)), "shares has 1 numbers"),
    (
        lambda: GoodnessOfFitTest(["1/2"] * 2, n=9, budget=ny.gdp(1)).p_value([9]),
        "released has 1 numbers",
    ),
    (lambda: GoodnessOfFitTest(["1/2"] * 2, n=9, budget=ny.pure(1)), "budget"),
    (lambda: GoodnessOfFitTest(["1/2"] * 2, n=9, budget=ny.gdp(1), simulations=9), "simulations"),
    (lambda: center(clip=0), "clip"),
    (lambda: center(null=math.nan), "null"),
    (lambda: center(alternative="up"), "alternative"),
]


@pytest.mark.parametrize(("call", "fragment"), REFUSED)
def test_a_refusal_names_the_argument(call, fragment):
    with pytest.raises((TypeError, ValueError), match=fragment):
        call()
