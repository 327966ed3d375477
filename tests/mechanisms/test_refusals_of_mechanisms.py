"""What makes no sense, or has no proof, is refused by name: arguments of mechanisms."""

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

import neyman as ny
from neyman.mechanisms import Binned, CircularGaussian, Toeplitz, Tree, square_root

N, ROUNDS = 1000, 16
distance, smooth = ny.distance_to_instability, ny.smooth_sensitivity
UNPROVEN = ("fixed", "shuffled", "allocated", "k-of-t")
RATES = (-0.1, 1.5, math.nan, math.inf, "a")
GAUSSIAN, LAPLACE, RESPONSE = ny.Gaussian(2), ny.Laplace(Fraction(5, 4)), ny.RandomizedResponse(1)
GEOMETRIC = ny.Runs.geometric(mean=4)
BAD: list[Any] = [10, {3: 1.0}]
COLUMN: Any = "budget"
NUMBER: Any = 5
CURVE: Any = ny.pure(1)
CLASS: Any = ny.Laplace


def each(make, **bad):
    """Calls with one bad argument, and the name that their refusals begin with."""
    return [(partial(make, **{name: x}), rf"\b{name}\b") for name in bad for x in bad[name]]


def refused(make, bad):
    """Calls by the words of their refusals: arguments by name, or by position."""
    given = {words: bad[words] if isinstance(bad[words], dict) else {} for words in bad}
    return [(partial(make, *(() if given[w] else bad[w]), **given[w]), w) for w in bad]


def stream():
    return ny.MatrixMechanism(square_root(steps=8, band=2), 2)


def training(**more):
    return ny.DPSGD(**{"n": N, "batch": 64, "sigma": 0.9, "epochs": 2, **more})


def users(**more):
    return ny.DPSGD(100, 10, 2, 1, **more)


def federated(**more):
    terms = {"clients": 10, "sigma": 1, "rounds": 20, "record_rate": 0.1}
    return ny.Federated(**{**terms, **more})


def posterior(**more):
    return ny.PosteriorSample(**{"lipschitz": 1, "convexity": 4, **more})


def contraction(step_size, strong_convexity, smoothness):
    terms = {"strong_convexity": strong_convexity, "smoothness": smoothness}
    ny.NoisyGradientDescent.langevin(
        n=9, steps=3, step_size=step_size, temperature=1, sensitivity=1, **terms
    )


PAIRS = [(), ("a",), ("b",), ("a", "b")]
WIDE, MANY = dict.fromkeys("ab", 2**31), {f"a{i}": 2 for i in range(25)}
POINTS = ny.from_points([0, 0.1, 0.3, 0.6, 1], [0.9, 0.5, 0.3, 0.1, 0])
CANONICAL = [  # curves and arguments without canonical noise
    *[((f,), "perfect privacy") for f in (ny.perfect(), ny.pure(0), ny.gdp(0))],
    ((ny.Gaussian(1).subsample(rate=0.1),), r"tradeoff\.symmetric\(\)"),
    ((ny.DiscreteGaussian(1, [(2,), (1, 1, 1, 1)]).tradeoff(),), r"tradeoff\.symmetric\(\)"),
    ((POINTS,), r"tradeoff\.symmetric\(\)"),
    ((ny.NonPrivate(),), "hides nothing"),
    ((1.0,), "must be a Tradeoff"),
    ((ny.pure(1), 0), r"sensitivity = 0 must be above 0"),
    *[((f,), "almost nothing") for f in (ny.gdp(1000), ny.pure(1000), ny.approximate(1000, 0.5))],
    ((ny.gdp(1e8),), "from 0 to 1"),  # its total variation is unknown
    ((ny.ReportNoisyMax(1),), "between two others"),
    ((ny.SparseVector(1, 1),), "between two others"),
    ((ny.ExponentialMechanism(1) * 5,), "between two others"),
    ((ny.ReportNoisyMax(100, noise="exponential"),), "between two others"),
]
CURVED = ny.CanonicalNoise(ny.from_points([0, 0.2, 0.5, 1], [1, 0.5, 0.2, 0]))
# Calls, and the words of their refusals.
REFUSED = [
    *[(partial(ny.CanonicalNoise, *given), words) for given, words in CANONICAL],
    (CURVED.to_json, "give the mechanism"),
    (lambda: ny.GaussianMixture(1, [0, 1e200], [0.5, 0.5]), r"sensitivities / sigma = 1e\+200"),
    (lambda: ny.CanonicalNoise(ny.pure(1)).ppf(1.5), r"u = 1\.5 must be between 0 and 1"),
    (lambda: ny.CanonicalNoise(ny.pure(1)).cdf(math.nan), "not nan"),
    (lambda: ny.CanonicalNoise(ny.pure(1)).pdf("0"), "must be a real number"),
    (lambda: ny.CanonicalNoise(ny.approximate(1, 1e-6)).rho(), "no zCDP parameter is proven"),
    (lambda: ny.CanonicalNoise(ny.Gaussian(1e18) + ny.Laplace(1e20)), "from perfect privacy"),
    (
        lambda: ny.CanonicalNoise(ny.RandomizedResponse(1) * 3).cdf(1e9),
        "more than 100000 sensitivities from 0",
    ),
    *refused(
        ny.Runs.negative_binomial,
        {
            "too near -1 for mean": {"mean": 10**6, "shape": -1 + 1e-9},
            "at most 1e.06": {"mean": 2, "shape": 10**6 + 1},
            "shape": {"mean": 2, "shape": -1},
            "poisson": {"mean": 2, "shape": math.inf},
        },
    ),
    (lambda: ny.UnaryEncoding(1, 3).frequencies(np.zeros((0, 3))), r"the shape \(0, 3\)"),
    (lambda: [*map(ny.MatrixMechanism(square_root(steps=1), 2).stream().step, [[0]] * 2)], "last"),
    (
        lambda: ny.NoisyGradientDescent.langevin(
            n=9,
            steps=3,
            step_size=1e-200,
            temperature=1e200,
            sensitivity=1,
            strong_convexity=0,
            smoothness=1,
        ),
        "between 1e-300 and 1e300",
    ),
    (lambda: ny.Marginals(WIDE, {(): 9}), "must have a part with an attribute"),
    (
        lambda: ny.Marginals({"a": 2, "b": 2}, {(): 9, ("a",): 9}).reconstruct(
            {(): np.zeros(()), ("a",): np.zeros(2)}, [("b",)]
        ),
        "was not measured",
    ),
    *refused(
        training,
        {
            "must give at most 1e": {"epochs": 1e18},
            "n = .* at most": {"n": 10**19},
            "batch = 1001 must be at most n = 1000": {"batch": N + 1},
            "'poisson', 'allocated', 'k-of-t', 'bins', 'fixed'": {"sampling": "shuffle"},
            "epochs = 1.5 must be whole": {"sampling": "shuffled", "epochs": 1.5},
            "epochs = 0.5 must be whole": {"sampling": "allocated", "epochs": 0.5},
            "must be a Strategy such as": {"strategy": "square_root"},
            "goes with 'poisson', 'bins', or 'cyclic'": {
                "sampling": "fixed",
                "strategy": square_root(32),
            },
            "a band of at most n / batch = 15.625": {"strategy": square_root(32, 16)},
            "a band of at most n / batch": {"strategy": Binned(32)},
            "user_sampling='users'": {"strategy": square_root(32, 2), "records_per_user": 2},
            "has 9 steps, and the run has 32": {"sampling": "cyclic", "strategy": square_root(9)},
            "one row for each step": {"sampling": "cyclic", "strategy": Tree(2 * ROUNDS)},
            "a band of at most 16": {
                "sampling": "cyclic",
                "strategy": Toeplitz(2 * ROUNDS, (9, -1) + (1,) * ROUNDS),
            },
        },
    ),
    (lambda: training(records_per_user=2).user(3), "whole users already"),
    (lambda: federated().batch, "records = None"),
    (lambda: ny.HadamardResponse(1, 4).frequencies(np.array([[4, 1]])), "columns from 0 to 3"),
    (lambda: ny.Runs.poisson(mean=2).halting, "no halting probability"),
    (lambda: ny.Runs.from_dict({"mean": "2"}), "fields mean and shape"),
    (lambda: ny.Marginals(WIDE, dict.fromkeys(PAIRS, 9)), "numbers in all; at most"),
    (lambda: ny.Marginals(WIDE, dict.fromkeys(PAIRS[:3], 1e-30)), "least, 1e-30, is too small"),
    *refused(
        ny.optimal_marginals,
        {
            "4611686018427387904 cells": (WIDE, PAIRS),
            "more than 1048576 parts in all": (MANY, [MANY]),
            "at least 2": ({"a": 1}, [("a",)]),
            "sizes": ({}, [("a",)]),
            "'b' is not an attribute": ({"a": 2}, [("b",)]),
            "twice": ({"a": 2}, [("a", "a")]),
            "above 0": ({"a": 2}, {("a",): 0.0}),
            "a marginal with an attribute": ({"a": 2}, [()]),
        },
    ),
    (lambda: ny.Marginals(WIDE, dict.fromkeys(PAIRS[:3], 9)).measure({}), "none has all of"),
    (lambda: distance.median([1], bound=9, lower=0, upper=9), "bound = 9 must"),
    (lambda: distance.median([1], bound=-1, lower=0, upper=9), "bound = -1"),
    (lambda: distance.median([], bound=1, lower=0, upper=9), "values has 0"),
    (lambda: distance.interquartile_range([1], bound=1, lower=0, upper=9), "at least 2"),
    (lambda: distance.median([1], bound=1, lower=9, upper=0), "upper = 0"),
    (lambda: distance.median([1], bound=1, lower=0, upper=9, step=2), "step = 2 must divide"),
    (lambda: distance.mode("a", keys="a"), "keys"),
    (lambda: distance.mode("", keys="ab"), "values has no rows"),
    (lambda: distance.mode("a", keys="ab", neighboring="any"), "neighboring"),
    (lambda: smooth.median([1], lower=0, upper=9, smoothness=0), "smoothness = 0 must be above 0"),
    (lambda: smooth.quantile([1], 0, lower=0, upper=9, smoothness=1), "q = 0 must be"),
    (lambda: smooth.variance([1], lower=0, upper=9, smoothness=1), "at least 2"),
    *refused(
        ny.ProposeTestRelease,
        {
            "test = ": (ny.Gaussian(1),),
            "sensitivity 1": (ny.Laplace(1, 2),),
            "release = 3": (ny.Laplace(1), 3),
            "delta = 0 must": (ny.Laplace(1), None, 0),
            "delta = 0.3": (ny.Laplace(1), None, 0.3),
        },
    ),
    (lambda: ny.ProposeTestRelease(ny.Laplace(1)).draw(1, 1), "exact sampler"),
    (
        lambda: ny.ProposeTestRelease(ny.DiscreteLaplace(1), ny.Laplace(1)).draw(1, 1),
        "exact sampler",
    ),
    (lambda: ny.ProposeTestRelease(ny.DiscreteLaplace(1)).draw(1.5, 1), "distance is a float"),
    (lambda: ny.ProposeTestRelease(ny.DiscreteLaplace(1)).rho(), "no zCDP"),
    *refused(
        ny.SmoothNoise,
        {
            "noise = 'laplace'": ("laplace", 3, 0.1, 0.3),
            "degrees = 0": ("student", 0, 0.1, 0.3),
            "smoothness = 0": ("student", 3, 0, 0.3),
            "scale = 0": ("student", 3, 0.1, 0),
            "scale = 21": ("student", 3, 0.1, 21),
            "give epsilon = .* above 100; lower them": ("student", 1000, 20, 20),
        },
    ),
    (lambda: ny.Gaussian(1).random_allocation(0), "batches"),
    (lambda: ny.Gaussian(1).random_allocation(10**10), "batches = .* at most"),
    (lambda: ny.Gaussian(0.05).random_allocation(10), "hides nothing"),
    (lambda: ny.Laplace(1).random_allocation(10), "Gaussian noise only"),
    (lambda: ny.Gaussian(1).subsample(rate=0.1).random_allocation(10), "Gaussian noise only"),
    (lambda: ny.RandomizedResponse(1).random_allocation(10), "add-remove"),
    (lambda: stream().random_allocation(4), "steps of its own"),
    (lambda: (ny.Gaussian(1) + stream()).random_allocation(4), "steps of its own"),
    (lambda: stream().shuffled_batches(4), "steps of its own"),
    (lambda: stream().subsample(rate=0.1), "is a stream"),
    (lambda: stream().subsample(size=10, population=100), "is a stream"),
    (lambda: training(sampling="allocated").random_allocation(4), "steps of its own"),
    (lambda: training(sampling="shuffled").shuffled_batches(4), "steps of its own"),
    (lambda: ny.Gaussian(1).shuffled_batches(3).shuffled_batches(4), "steps of its own"),
    (lambda: ny.Gaussian(1).random_allocation(3).random_allocation(4), "steps of its own"),
    (lambda: ny.RandomizedResponse(1).shuffle(users=99).shuffle(users=9), "once"),
    *refused(
        CircularGaussian,
        {
            "points = 360 must be odd": (360, 10),
            "points": (1, 10),
            "sigma": (9, 0),
            "sigma = 91 must be at most 10 times": (9, 91),
            "sensitivity = 5 must be at most 4": (9, 1, 5),
            "sensitivity": (9, 1, 0),
            "at most 60 sigma": (1001, 1, 61),
        },
    ),
    (lambda: CircularGaussian(2**41 + 1, 2**40), "points"),
    (lambda: CircularGaussian(9, float("nan")), "sigma"),
    (ny.Gaussian, "exactly one of sigma= and covariance="),
    *refused(
        ny.Gaussian,
        {
            "exactly one of sigma= and covariance=": {"sigma": 1, "covariance": [[1]]},
            "goes with covariance=": {"sigma": 1, "shifts": [[1]]},
            "positive definite": {"covariance": [[1, 2], [2, 1]]},
            r"symmetric: entry \[1\]\[0\] is 1.0": {"covariance": [[1, 2], [1, 1]]},
            "must be square": {"covariance": [[1, 2]]},
            "has 0 rows": {"covariance": []},
            "has 65 rows": {"covariance": np.eye(65)},
            r"covariance\[0\]\[0\] = 'a'": {"covariance": [["a"]]},
            "no vector": {"covariance": [[1]], "shifts": []},
            r"shifts\[0\] has 2 numbers": {"covariance": [[1]], "shifts": [[1, 2]]},
            "does not go with shifts": {"covariance": [[1]], "sensitivity": 2, "shifts": [[1]]},
            "from 1e-150 to 1e150": {"covariance": [[1e-300]], "sensitivity": 1e300},
            "sensitivity = -1 must be at least 0": {"covariance": [[1]], "sensitivity": -1},
        },
    ),
    (lambda: ny.Gaussian(covariance=[[1, 1], [1, 1]]), "positive definite"),
    (lambda: ny.Gaussian(covariance=[[1e300]], sensitivity=1e-300), "from 1e-150 to 1e150"),
    *each(
        federated,
        clients=(0, 2.5),
        client_rate=(0.25, 0, 1.5),
        record_rate=(-0.1,),
        records=(0,),
        sigma=(0, math.nan),
        rounds=(0,),
        protects=("person",),
        against=("world",),
        local_steps=(0,),
        secure_aggregation=(1,),
        least_participants=(11, 0),
        colluding=(10, -1),
    ),
    (lambda: federated(secure_aggregation=True), r"\bleast_participants = "),
    *refused(
        ny.InverseSensitivity,
        {
            "rate = 0 must be above 0": {"rate": 0},
            "draws": {"rate": 1, "draws": 0},
            "at most one": {"rate": 1, "sensitivity": [(1,)], "squared_norm": 2},
            "squared_norm": {"rate": 1, "squared_norm": 0},
        },
    ),
    (lambda: ny.NoisyCyclicGradientDescent(100, 30, 5, 1, 1, contraction=0.5), "must divide"),
    (lambda: ny.NoisyGradientDescent(100, 5, 1, 1), "contraction="),
    (lambda: ny.NoisyGradientDescent(100, 5, 1, 1, contraction=1.1), "contraction"),
    (lambda: ny.NoisyGradientDescent(100, 5, 1, 1, contraction=0.5, diameter=1), "either"),
    (lambda: ny.NoisyGradientDescent(100, 5, 1, 1, diameter=1), "step_size"),
    (lambda: ny.NoisyGradientDescent(100, 0, 1, 1, contraction=0.5), "steps"),
    (lambda: ny.NoisyGradientDescent(100, 5, 0, 1, contraction=0.5), "sigma"),
    (lambda: ny.NoisyStochasticGradientDescent(10, 11, 5, 1, 1, contraction=0.5), "batch"),
    (lambda: contraction(3.0, 0.1, 1.0), "step_size"),
    (lambda: contraction(0.1, 2.0, 1.0), "strong_convexity"),
    (lambda: ny.optimal_marginals({"a": 2}, [("a",), ("a",)]), "twice"),
    *refused(
        ny.PersonalBudgets,
        {
            "replaced": (ny.Laplace(1), (1,), "replace-one"),
            "private": (ny.Laplace(1), COLUMN),
            "mechanism = 5 must be a mechanism": (NUMBER, [1]),
            "must be a mechanism": (CURVE, [1]),
            "pure": (ny.Gaussian(1), (1,)),
            "replace-one": (ny.RandomizedResponse(1), (1,)),
            "budgets": (ny.Laplace(1), ()),
            "above 0": (ny.Laplace(1), (0,)),
        },
    ),
    (lambda: ny.PersonalBudgets(CLASS, [1]), "must be a mechanism"),
    (lambda: ny.PersonalBudgets(ny.Laplace(1), (1,)).rate(2), "one of"),
    (lambda: ny.PersonalBudgets(ny.Laplace(1), (1,)).draw([1, 2]), "one of"),
    *refused(
        posterior,
        {
            "certified distance": {"exact": False},
            "one certified": {"exact": False, "total_variation": 0.1, "wasserstein": 1, "sigma": 1},
            "go together": {"exact": False, "wasserstein": 1},
            "exact=False": {"total_variation": 0.1},
            "total_variation": {"exact": False, "total_variation": 0},
            "Phi": {"exact": False, "total_variation": 0.45},
            "wasserstein": {"exact": False, "wasserstein": 1e200, "sigma": 1e-200},
        },
    ),
    (lambda: posterior(exact=False, total_variation=0.1, sigma=1), "go together"),
    *each(posterior, exact=(1,), lipschitz=(0, 1e200), convexity=(0, math.inf)),
    (lambda: posterior(sigma=1), "exact=False"),
    *(
        (partial(ny.RoundedGaussian, **given), "sigma|sensitivity|squared|shift")
        for given in [
            {},
            {"sigma": 0},
            {"sigma": -1},
            {"sigma": 1, "sigma_squared": 1},
            {"sigma_squared": "1e-5"},
            {"sigma": 1, "sensitivity": -1},
            {"sigma": 1, "sensitivity": 2, "squared_norm": 4},
            {"sigma": 1, "squared_norm": 0},
            {"sigma": 1, "sensitivity": 10**7},
        ]
    ),
    (lambda: ny.ExponentialMechanism(1e7), "epsilon = 10000000.0"),
    (lambda: ny.ReportNoisyMax(0), "scale = 0"),
    (lambda: ny.ReportNoisyMax(1, -1), "sensitivity = -1"),
    (lambda: ny.ReportNoisyMax(1, noise="cauchy"), "noise = 'cauchy'"),
    (lambda: ny.ReportNoisyMax(1e-9), "epsilon of scale and sensitivity = 2"),
    (lambda: ny.SparseVector(0, 1), "threshold_scale = 0"),
    (lambda: ny.SparseVector(1, math.inf), "query_scale = inf"),
    (lambda: ny.SparseVector(1, 1, answers=0), "answers = 0"),
    (lambda: ny.RandomSubset(0, 0), "population = 0"),
    *each(training, n=(0,), batch=(0,), sigma=(0, math.nan), epochs=(0,)),
    *refused(
        ny.Staircase,
        {
            "epsilon": {"epsilon": 0},
            "gamma": {"epsilon": 1, "gamma": 2},
            "cost": {"epsilon": 1, "gamma": "1/2", "cost": "squared"},
            "sensitivity": {"epsilon": 1, "sensitivity": 0},
        },
    ),
    (lambda: ny.Staircase(epsilon=701), "epsilon"),
    (lambda: ny.Staircase(epsilon=1, cost="cubed"), "cost"),
    (lambda: RESPONSE.subsample(0.1), "described under 'replace-one'"),
    (lambda: RESPONSE.subsample(0.1, neighboring="replace-one"), "presence of one"),
    *refused(
        LAPLACE.subsample,
        {
            "sample of fixed size": {"size": 1, "population": 9, "neighboring": "add-remove"},
            "give either rate=": {"size": 3},
        },
    ),
    (lambda: LAPLACE.subsample(0.1).subsample(size=1, population=9), "needs 'replace-one'"),
    (lambda: LAPLACE.subsample(0.1).shuffled_batches(3), "needs 'replace-one'"),
    (lambda: (LAPLACE * 2).subsample(0.1, neighboring="replace-one"), "proven"),
    (lambda: ny.DiscreteGaussian(2).subsample(0.1, neighboring="replace-one"), "proven"),
    (lambda: LAPLACE.subsample(0.1, neighboring="swap"), "neighboring = 'swap'"),
    (lambda: ny.DiscreteGaussian(1, [(2,), (1, 1, 1, 1)]).subsample(0.1), "2 possible losses"),
    *(
        (partial(LAPLACE.subsample, size=size, population=population), name)
        for name, size, population in [
            ("population", 1, 10**18 + 1),
            ("population", 10**400, 10**400),
            ("size", 11, 10),
            ("size", -1, 10),
            ("size", 2.5, 10),
            ("population", 0, 0),
            ("population", 1, 9.5),
        ]
    ),
    *refused(
        users,
        {
            "cannot have more records than the data": {"records_per_user": 101},
            "records_per_user = 0": {"records_per_user": 0},
            "adds up to 90 records, and n = 100": {"records_per_user": {1: 50, 8: 5}},
            "adds up to 50 users": {"records_per_user": {1: 50}, "user_sampling": "users"},
            "at least one number": {"records_per_user": {}},
            "each once": {"records_per_user": [(1, 50), (1, 50)]},
            "a number of records with a number of users": {"records_per_user": [8, 2]},
            "nothing is": {"records_per_user": 2, "sampling": "fixed", "user_sampling": "users"},
            "must be 'examples' or 'users'": {"user_sampling": "people"},
        },
    ),
    (lambda: users(records_per_user={101: 1}), "cannot have more records than the data"),
    *((partial(users, records_per_user=2, sampling=x), "nothing is proven") for x in UNPROVEN),
    (lambda: ny.select_best(ny.Gaussian(1), runs=BAD[0]), "mechanism \\* runs"),
    (lambda: ny.select_best(ny.Gaussian(1), runs=BAD[1]), "proven bound"),
    (lambda: ny.select_best(BAD[0], runs=GEOMETRIC), "one run"),
    (lambda: ny.select_best(ny.NonPrivate(), runs=GEOMETRIC), "outright"),
    (
        lambda: ny.select_best(ny.RandomSubset(1, 10) + ny.RandomizedResponse(1), runs=GEOMETRIC),
        "RandomSubset",
    ),
    (lambda: ny.Runs.geometric(mean=0.9), "at least one run"),
    (lambda: ny.Runs.poisson(mean=0), "mean"),
    (lambda: ny.Runs.geometric(mean=10**9 + 1), "at most 1e.09 runs"),
    (lambda: ny.Runs.poisson(mean=math.inf), "mean"),
    (lambda: ny.select_best(ny.Gaussian(1), runs=GEOMETRIC).renyi(0.9), "at least 1"),
    (lambda: LAPLACE.shuffled_batches(0), "batches"),
    (LAPLACE.subsample, "give either rate="),
    (lambda: LAPLACE.subsample(population=3), "give either rate="),
    (lambda: LAPLACE.subsample(rate=0.1, size=3), "give either rate="),
    (lambda: ny.Gaussian(1).shuffle(users=100), "not pure"),
    (lambda: ny.Laplace(scale=1).subsample(rate=0.1).shuffle(users=100), "add-remove"),
    *each(ny.LocalRandomizer(1).shuffle, users=(0, -3, 10**11)),
    (lambda: ny.LocalRandomizer(301).shuffle(users=100), "not pure"),
    (lambda: ny.ReportNoisyMax(1, monotone=1), "monotone"),
    (lambda: ny.SparseVector(1, 1, monotone="no"), "monotone"),
    *each(GAUSSIAN.subsample, rate=RATES),
    *each(partial(GAUSSIAN.subsample, neighboring="replace-one"), rate=RATES),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_makes_no_sense_or_has_no_proof_is_refused_by_name(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()
