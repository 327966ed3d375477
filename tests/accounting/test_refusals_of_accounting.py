"""What accounting refuses, and the words that name it."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import neyman as ny
from neyman.accounting import (
    Filter,
    Odometer,
    PersonalFilter,
    calibrate_exact,
    charge,
    conversions,
    convexity,
    positive_predictive_value,
    posterior_chance,
)
from neyman.accounting import approximations as limits
from neyman.accounting import sentences as words


def least(problem, **given):
    return lambda: ny.least_error(problem, budget=ny.gdp(1), **given)


EVIDENCE = ny.audit.counts(false_positives=0, negatives=9, false_negatives=0, positives=9)
FAR = ny.Gaussian(1e-140), ny.Gaussian(1e140), ny.RandomizedResponse(1e-100) * 3
CURRENCIES = [
    "pure",
    "euro",
    "",
    "renyi",
    "renyi:",
    "renyi:0.5",
    "renyi:nan",
    "zcdp:2",
    None,
    3,
    b"zcdp",
    [],
]
REFUSED = [
    (lambda: ny.alike(ny.gdp(1), count=0), "count = 0"),
    (lambda: ny.alike(ny.gdp(1), sensitivity=0), "sensitivity = 0"),
    (lambda: ny.alike(ny.gdp(1), kinds=["uniform"]), "'uniform' must be one of"),
    (lambda: ny.alike(ny.gdp(1), count=2, kinds=["canonical"]), "'canonical' must be one of"),
    (lambda: ny.alike(ny.gdp(1), problem="mode"), "problem = 'mode' must be one of"),
    (lambda: ny.alike(ny.gdp(1), problem="mean"), "n: a mean needs"),
    (lambda: ny.alike(ny.gdp(1), problem="histogram"), "categories: a histogram needs"),
    (lambda: ny.alike(ny.gdp(1), problem="median"), "values: a median needs"),
    (
        lambda: ny.alike(ny.gdp(1), problem="median", values=[1.0, 2.0, 3.0], radius=2),
        "clip them first",
    ),
    (lambda: ny.alike(ny.gdp(1), n=5), "needs problem="),
    (lambda: limits.edgeworth(ny.zcdp(0.1)), "no distribution"),
    (lambda: limits.edgeworth(ny.NonPrivate()), "no distribution"),
    (lambda: limits.edgeworth(ny.Gaussian(1)).delta(-1), "epsilon = -1"),
    (lambda: limits.edgeworth(ny.Gaussian(1)).power(2), "level = 2"),
    (lambda: limits.sampled_gaussian(0, 0.1, 3), "sigma = 0"),
    (lambda: limits.sampled_gaussian(1, 1.5, 3), "rate = 1.5"),
    *((partial(limits.edgeworth, one), "standard deviation") for one in FAR),
    (lambda: limits.normal(-1.0), "mu = -1"),
    (lambda: Filter("zcdp", 1, 2), "spent = 2"),
    (lambda: Filter("renyi:x", 1), "renyi:x"),
    (lambda: Odometer("zcdp", 0), "step = 0"),
    (lambda: Odometer("zcdp", 1, -1), "spent = -1"),
    (lambda: Filter("zcdp", 1, delta=1), "delta = 1"),
    (lambda: Filter("zcdp", 1, delta="1/4", spent_delta="1/2"), "spent_delta = 1/2"),
    (lambda: Filter("zcdp", 1).admits((1, 2)), r"release = \(1, 2\)"),
    *((partial(ny.gdp(1).success, x), f"baseline = {x} must be above 0") for x in (0, -0.1, 1.5)),
    (lambda: ny.gdp(1).success(math.nan), "baseline = nan must be a finite number"),
    (lambda: ny.risk.attribute_inference([0.5, 0.4]), "prior sums to 0.9: .* must sum to 1"),
    (lambda: ny.risk.attribute_inference([math.nan, 1]), "prior = nan must be a finite"),
    (lambda: ny.risk.attribute_inference([-0.5, 1.5]), "probabilities of at least 0"),
    (lambda: ny.risk.attribute_inference([]), "probabilities of at least 0"),
    (ny.risk.reidentification, "exactly one of candidates and prior"),
    (lambda: ny.risk.reidentification(0), "candidates = 0 must be at least 1"),
    (lambda: ny.risk.reconstruction(0), "mass = 0 must be above 0"),
    (lambda: ny.risk.reconstruction(prior={1: 1}), "a prior with a radius"),
    (lambda: ny.risk.reconstruction(prior={1: 1}, radius=-1), "radius = -1 must be at least 0"),
    (lambda: ny.risk.singling_out(10, 0.2), "weight = 0.2 .* at most 1 / units = 1/10"),
    (lambda: ny.risk.reidentification(10).at_most(0.1), "must be above the baseline = 0.1"),
    (lambda: ny.at_most(success=0.1, baseline=0.2), "success = 0.1 must be above baseline"),
    (lambda: ny.at_most(success=0.1, baseline=0), "baseline = 0 must be between 0 and 1"),
    (lambda: ny.posterior_ratio(ny.gdp(1), -1), "epsilon"),
    (lambda: ny.posterior_ratio(ny.gdp(1), 1, "someone"), "knows-the-rest"),
    (lambda: ny.posterior_ratio(0.5, 1), "guarantee"),
    (lambda: ny.posterior_ratio(ny.Gaussian(1).subsample(rate=0.1), 1), "replace-one"),
    (lambda: posterior_chance(ny.gdp(1), 0, 0.5), "prior"),
    (lambda: posterior_chance(ny.gdp(1), 0.5, 0.4), "posterior"),
    (lambda: posterior_chance(ny.gdp(1), 0.5, 1), "posterior"),
    (lambda: positive_predictive_value(1.5, 0.05, 0.5), "power = 1.5"),
    (lambda: positive_predictive_value(0.5, -0.1, 0.5), "level = -0.1"),
    (lambda: positive_predictive_value(0.5, 0.1, math.nan), "prior = nan"),
    (lambda: positive_predictive_value(0.0, 0.0, 0.5), "never confirms"),
    (lambda: positive_predictive_value(0.5, 0.0, 0.0), "never confirms"),
    (lambda: convexity(bool, datasets=1), "datasets"),
    (lambda: convexity(bool, outputs=9), "outputs"),
    (lambda: convexity(bool, channels=0), "channels"),
    (lambda: convexity(bool, channels=10**9), "channels"),
    (lambda: convexity(bool, generator=3), "generator"),
    (least("mean", n=5), "problem = 'mean' must be one of"),
    (least("share"), "no bound is proven"),
    (least("share", n=0), "n = 0"),
    (least("share", n=10, prior=0.6), "outside the parameter set"),
    (least("share", n=10, radius=1), "radius = 1 is not used"),
    (least("share", n=10, model="shuffled"), "model = 'shuffled'"),
    (least("normal-mean", n=10), "sigma: 'normal-mean' needs it"),
    (least("normal-mean", n=10, sigma=1, radius=1, prior=2), "outside the parameter"),
    (least("ball-mean", n=10, radius=-1, dimension=2), "radius = -1"),
    (least("histogram", n=10, categories=1), "categories = 1"),
    (least("histogram", n=10, categories=3, model="local"), "no bound is proven"),
    (least("quantile", values=[1.0]), "at least 3"),
    (least("normal-mean", n=3, sigma=1e200), "sigma = 1e[+]200 must be from 1e-100 to 1e[+]100"),
    (least("normal-mean", n=3, sigma=1e-200), "sigma = 1e-200 must be from"),
    (least("normal-mean", n=3, sigma=1, radius=1e-300), "radius = 1e-300 must be from"),
    (least("share", n=3, prior=1e-200), "prior = 1e-200 must be from"),
    (least("bounded-mean", n=3, radius=1e300), "radius = 1e[+]300 must be from"),
    (least("ball-mean", n=3, radius=1, dimension=10**400), "dimension = a number of more"),
    (least("category-shares", n=3, categories=10**9), "categories = .* from 2 to 1,000,000"),
    (least("quantile", values=[-1e200, 0, 1e200]), "values has -1e[+]200"),
    (least([], n=3), "problem = .* must be one of"),
    (lambda: ny.at_most(power=0.25, level=0), "level = 0 must be between 0 and 1"),
    (lambda: ny.at_most(power=0.25, level=1), "level = 1 must be between 0 and 1"),
    (lambda: ny.at_most(power=0.05, level=0.05), "power = 0.05 must be above level = 0.05"),
    (
        lambda: ny.at_most(power=1, level=0.05),
        "power = 1 must be above level = 0.05, .*and below 1",
    ),
    (lambda: ny.at_most(power=0.25, level=9e-13), "the level must be at least 1e-12"),
    (lambda: ny.at_most(power=0.25 + 1e-12, level=0.25), "the power clearly above it"),
    (lambda: PersonalFilter(budget=0, sigma=1, people=1), "budget = 0 must be"),
    (lambda: PersonalFilter(budget=-1, sigma=1, people=1), "budget = -1 must be"),
    (lambda: PersonalFilter(budget=1, sigma=0, people=1), "sigma = 0 must be"),
    (lambda: PersonalFilter(budget=1, sigma=2**53, people=1), f"sigma = {2**53} must be"),
    (lambda: PersonalFilter(budget=1, sigma=10**18, people=1), f"sigma = {10**18} must be"),
    (lambda: PersonalFilter(budget=1, sigma=1, people=-1), "people = -1 must be"),
    (lambda: PersonalFilter(budget=1, sigma=1, people=10**8 + 1), f"people = {10**8 + 1} must be"),
    (lambda: PersonalFilter(budget=1, sigma=1, people=10**15), f"people = {10**15} must be"),
    (lambda: PersonalFilter(budget=1, sigma=1, people=10**30), f"people = {10**30} must be"),
    (lambda: words.power(0.05, 0.01), "power = 0.01"),
    (lambda: words.power(0.0, 0.5), "level = 0"),
    (lambda: words.power(1.0, 1.0), "level = 1"),
    (lambda: words.power(0.05, 1.01), "power = 1.01"),
    (lambda: words.power(0.05, math.nan), "power = nan"),
    (lambda: words.power("x", 0.5), "level = 'x'"),
    (lambda: words.belief_sentence("a friend", 1, 0.1), "attacker"),
    (lambda: words.belief_sentence("true-record", "inf", 0.1), "epsilon"),
    (lambda: words.belief(0.5, 0.4, 0.1), "posterior"),
    (lambda: words.concerning("race", 0.1, 0.2), "attributes"),
    (lambda: Filter("zcdp", 1, "1/2").after("3/4"), "costs 0.75 .* 0.5 is left: 0.25 .* 1/2 fits"),
    *((lambda x=x: Filter("zcdp", 1).admits(x), "release = ") for x in ((), (1,), (1, 0, 0))),
    *((lambda x=x: ny.at_most(0.25, level=x), "level") for x in (0, 1, -1, math.nan, None, 1e-13)),
    *(
        (lambda x=x: ny.at_most(x, level=0.05), "power")
        for x in (0.04, math.nan, "x", True, math.inf)
    ),
    *(
        (lambda x=x: calibrate_exact(ny.Gaussian, ny.gdp(0.37), digits=x), "digits")
        for x in (0, 1, -3, 2.0, "5", None)
    ),
    *((lambda x=x: ny.calibrate(ny.Gaussian, x), "budget") for x in (3, None, "gdp")),
    (lambda: ny.calibrate(ny.Gaussian, ny.pure(1)), "parameter"),
    (lambda: ny.calibrate(ny.Gaussian, ny.perfect()), "parameter"),
    (lambda: ny.calibrate(lambda x: ny.Gaussian(1), ny.gdp(2)), "parameter"),
    (lambda: ny.calibrate(lambda n: ny.RandomizedResponse(1), ny.pure(2), whole=True), "whole num"),
    (
        lambda: ny.calibrate(lambda q: ny.Gaussian(100).subsample(rate=q), ny.approximate(5, 1e-5)),
        "to 1: the end",
    ),
    (
        lambda: calibrate_exact(lambda x: ny.Gaussian(1 / x), ny.gdp(1)),
        "privacy falls with the parameter",
    ),
    *((partial(conversions.bun_steinke, 1, x), f"delta = {x} must be") for x in (0, 1)),
    (least("quantile", values=[1, 2], n=3), "n = 3 is not used by 'quantile'"),
    (lambda: ny.posterior_ratio(EVIDENCE, 1), "is evidence from an attack"),
    (
        lambda: PersonalFilter(budget=1, sigma=1, people=1).step(np.zeros((1, 0), int)),
        "0 numbers per row",
    ),
    (lambda: replace(ny.deployments[0], rho=None, epsilon=None).tradeoff(), "needs rho, or epsi"),
    *((partial(charge, ny.Gaussian(1), x), "currency") for x in CURRENCIES),
]


@pytest.mark.parametrize(("call", "fragment"), REFUSED)
def test_a_refusal_names_the_argument(call, fragment):
    with pytest.raises((TypeError, ValueError), match=fragment):
        call()
