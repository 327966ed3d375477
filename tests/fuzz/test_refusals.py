"""Every argument of every public call with wrong values: an answer, or an error that names it."""

from __future__ import annotations

import ast
import inspect
import random
import re
import tempfile
import warnings
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hostile import at_most

import neyman as ny
from neyman import accounting, analysis, curves, mechanisms, noise, publishing  # noqa: F401
from neyman.ledger import LedgerError
from neyman.publishing import DataError, PlanError
from plans import SMALL, release
from random_laws import is_small

pytestmark = pytest.mark.needs("release")

CALLS = """
ny.alike(budget=ny.gdp(1), count=2, sensitivity=1, kinds=["Gaussian"], tails=[0.05])
ny.calibrate(make=ny.Gaussian, budget=ny.gdp(1))
ny.least_error(problem="share", n=100, budget=ny.gdp(1))
ny.least_error(problem="normal-mean", n=100, budget=ny.gdp(1), sigma=1, radius=2)
ny.posterior_ratio(guarantee=ny.gdp(1), epsilon=1, attacker="true-record")
ny.best_test(null=[0.5, 0.5], alternative=[0.1, 0.9], level=0.1, outcomes=["a", "b"])
ny.at_most(power=0.2, level=0.05)
ny.at_most(success=0.6, baseline=0.5)
ny.between(p=[0.5, 0.5], q=[0.2, 0.8])
ny.from_points(alphas=[0, 0.5, 1], betas=[1, 0.2, 0])
ny.from_profile(profile={0: 0.3, 1: 0.1}, reverse={0: 0.3})
ny.total_variation(v=0.3)
ny.approximate(epsilon=1, delta=1e-6)
ny.gdp(mu=1)
ny.pbdp(epsilon=1, delta=1e-6)
ny.pure(epsilon=1)
ny.renyi(bounds={2: 0.3})
ny.tcdp(rho=1, omega=10)
ny.zcdp(rho=0.5, delta=1e-6)
ny.mixture(weights=[0.5, 0.5], curves=[ny.gdp(1), ny.pure(1)])
ny.compare(f=ny.gdp(1), g=ny.gdp(2))
ny.gdp(1).log_delta(epsilon=1)
ny.gdp(1).delta(epsilon=1)
ny.gdp(1).deltas(epsilons=[1, 2])
ny.gdp(1).deltas_above(epsilons=[1, 2])
ny.gdp(1).epsilon(delta=1e-6)
ny.gdp(1).epsilon(log_delta=-9)
ny.gdp(1).epsilons(deltas=[1e-6])
ny.gdp(1).power(level=0.05)
ny.gdp(1).power(log_level=-9)
ny.gdp(1).powers(levels=[0.05])
ny.gdp(1).log_power(log_level=-9)
ny.gdp(1).success(baseline=0.5)
ny.gdp(1).gdp(levels=[0.1, 0.2])
ny.gdp(1).renyi(order=2)
ny.gdp(1).pbdp(epsilon=1)
ny.gdp(1).admits(mechanism=ny.Gaussian(2))
ny.gdp(1).excess(mechanism=ny.Gaussian(2))
ny.gdp(1).conjugate(slope=-1)
ny.gdp(1).group(size=2)
ny.gdp(1).plot(axes=None)
ny.throwaway(cap="1/2", currency="zcdp", delta_cap=0)
ny.DiscreteGaussian(sigma=2, sensitivity=1)
ny.DiscreteGaussian(sigma_squared=2, squared_norm=3)
ny.DiscreteLaplace(scale=2, sensitivity=1)
ny.Gaussian(sigma=1, sensitivity=1)
ny.Gaussian(covariance=[[1, 0], [0, 1]], shifts=[[1, 1]])
ny.Laplace(scale=1, sensitivity=1)
ny.Gaussian(1).renyi(order=2)
ny.Gaussian(1).tradeoff(neighboring="replace-one")
ny.Gaussian(1).subsample(rate=0.1, neighboring="add-remove")
ny.Gaussian(1).subsample(size=5, population=100)
ny.Gaussian(1).user(records=2)
ny.RandomizedResponse(1).shuffle(users=100)
ny.Gaussian(1).shuffled_batches(batches=3)
ny.Gaussian(1).random_allocation(batches=3, times=1)
ny.Mechanism.from_dict(description=ny.Gaussian(1).to_dict())
ny.Mechanism.from_json(text=ny.Gaussian(1).to_json())
ny.CanonicalNoise(tradeoff=ny.gdp(1), sensitivity=1)
ny.CanonicalNoise(ny.gdp(1)).cdf(x=0.5)
ny.CanonicalNoise(ny.gdp(1)).pdf(x=0.5)
ny.CanonicalNoise(ny.gdp(1)).ppf(u=0.5)
ny.CanonicalNoise(ny.gdp(1)).isf(u=0.5)
ny.CanonicalNoise(ny.gdp(1)).sample(size=2)
ny.DPSGD(n=100, batch=10, sigma=1, epochs=1, sampling="poisson", records_per_user=1)
ny.DPSGD(n=9, batch=3, sigma=1, epochs=1, records_per_user={1: 3,
    3: 2}).user_guarantees(delta=1e-5, level=0.05)
ny.DPSGD(n=100, batch=10, sigma=1, epochs=1).batches(rows=100, after=0)
ny.DPSGD(n=100, batch=10, sigma=1, epochs=1).noise(clip=1)
ny.Federated(clients=10, sigma=1, rounds=3, protects="client")
ny.Federated(clients=9, records=9, record_rate=0.1, sigma=1, rounds=2, local_steps=2)
ny.Federated(clients=8, client_rate=0.5, sigma=1, rounds=2, protects="client", against="clients",
    least_participants=4)
ny.Federated(clients=10, sigma=1, rounds=3).subsample(rate=0.5)
ny.NonPrivate(rate=0.5, relation="add-remove")
ny.RandomSubset(size=2, population=9)
ny.GaussianMixture(sigma=1, sensitivities=[0, 1], probabilities=[0.5, 0.5])
ny.InverseSensitivity(rate=0.5, sensitivity=1, draws=1)
ny.NoisyCyclicGradientDescent(n=9, batch=3, epochs=2, sigma=1, sensitivity=1, contraction=0.9)
ny.NoisyGradientDescent(n=9, steps=2, sigma=1, sensitivity=1, diameter=1, step_size=1)
ny.NoisyStochasticGradientDescent(n=9, batch=3, steps=2, sigma=1, sensitivity=1, contraction=0.9)
ny.NoisyGradientDescent.langevin(n=9, steps=2, step_size=0.1, temperature=1, sensitivity=1,
    strong_convexity=1, smoothness=2)
ny.CategoryResponse(epsilon=1, categories=3)
ny.HadamardResponse(epsilon=1, categories=3)
ny.UnaryEncoding(epsilon=1, categories=3, optimised=True)
ny.CategoryResponse(1, 3).report(values=[0, 1, 2])
ny.HadamardResponse(1, 3).report(values=[0, 1, 2])
ny.UnaryEncoding(1, 3).report(values=[0, 1, 2])
ny.CategoryResponse(1, 3).frequencies(reports=[0, 1, 2])
ny.HadamardResponse(1, 3).frequencies(reports=[[0, 1], [1, 2]])
ny.UnaryEncoding(1, 3).frequencies(reports=[[0, 1, 1]])
ny.CategoryResponse(1, 3).variance(share=0.1, people=9)
ny.HadamardResponse(1, 3).variance(share=0.1, people=9)
ny.UnaryEncoding(1, 3).variance(share=0.1, people=9)
ny.Marginals(sizes={"a": 2, "b": 2}, noise={("a",): 2, ("b",): 1}, neighboring="replace-one")
ny.Marginals({"a": 2}, {("a",): 2, (): 2}).measure(tables={("a",): [1, 2], (): 3})
ny.Marginals({"a": 2}, {("a",): 2, (): 2}).reconstruct(measured={("a",): [1.0, 2.0], (): 3.0},
    marginals=[("a",)])
ny.Marginals({"a": 2}, {("a",): 2, (): 2}).variance(marginal=("a",))
ny.MatrixMechanism(strategy=mechanisms.square_root(4), sigma=2, participations=1, separation=1)
ny.MatrixMechanism(strategy=mechanisms.square_root(4), sigma_squared=2, sensitivity=1)
ny.MatrixMechanism(mechanisms.square_root(4), 1).errors(workload=[[1, 0, 0, 0]])
ny.MatrixMechanism(mechanisms.square_root(4), 1).stream(width=2)
ny.optimal_marginals(sizes={"a": 2, "b": 3}, workload=[("a",), ("b",)], objective="total",
    neighboring="replace-one")
ny.optimal_marginals({"a": 2}, [("a",)]).mechanism(rho=1)
ny.PersonalBudgets(mechanism=ny.Laplace(1), budgets=[0.5, 1], relation="add-remove")
ny.PersonalBudgets(ny.Laplace(1), [0.5, 1]).rate(budget=0.5)
ny.PersonalBudgets(ny.Laplace(1), [0.5, 1]).of(budget=0.5)
ny.PersonalBudgets(ny.Laplace(1), [0.5, 1]).draw(budgets=[0.5, 1])
ny.PosteriorSample(lipschitz=1, convexity=1)
ny.PosteriorSample(lipschitz=1, convexity=1, exact=False, total_variation=0.1)
ny.PosteriorSample(lipschitz=1, convexity=1, exact=False, wasserstein=0.1, sigma=1)
ny.PosteriorSample.bounded(spread=1, neighboring="replace-one")
ny.ExponentialMechanism(epsilon=1)
ny.ReportNoisyMax(scale=1, sensitivity=1, noise="laplace", monotone=False)
ny.SparseVector(threshold_scale=1, query_scale=1, answers=2, sensitivity=1, monotone=True)
ny.LocalRandomizer(epsilon=1)
ny.RandomizedResponse(epsilon=1, categories=3)
ny.RoundedGaussian(sigma=2, sensitivity=1)
ny.RoundedGaussian(sigma_squared=2, squared_norm=3)
ny.distance_to_instability.median(values=[1, 2, 2, 3], bound=1, lower=0, upper=9, step=1)
ny.distance_to_instability.quantile(values=[1, 2, 2, 3], bound=1, q=0.5, lower=0, upper=9, step=1)
ny.distance_to_instability.interquartile_range(values=[1, 2, 2, 3], bound=1, lower=0, upper=9,
    step=1)
ny.smooth_sensitivity.median(values=[1, 2, 2, 3], lower=0, upper=9, step=1, smoothness=0.1)
ny.smooth_sensitivity.quantile(values=[1, 2, 2, 3], q=0.5, lower=0, upper=9, step=1,
    smoothness=0.1)
ny.smooth_sensitivity.variance(values=[1, 2, 2, 3], lower=0, upper=9, step=1, smoothness=0.1)
ny.distance_to_instability.mode(values=["a", "b"], keys=["a", "b"])
ny.ProposeTestRelease(test=ny.Laplace(1), release=ny.Gaussian(1), delta=1e-6)
ny.ProposeTestRelease(ny.DiscreteLaplace(1), delta=1e-6).draw(distance=9, value="a")
ny.SmoothNoise(noise="student", degrees=3, smoothness=0.1, scale=1)
ny.Staircase(epsilon=1, sensitivity=1, cost="squared")
ny.Staircase(epsilon=1, sensitivity=1, gamma=0.4)
ny.Staircase(1).draw(value=1, step=0.1)
ny.Runs(mean=3, shape=1)
ny.Runs.geometric(mean=3)
ny.Runs.logarithmic(mean=3)
ny.Runs.negative_binomial(mean=3, shape=0.5)
ny.Runs.poisson(mean=3)
ny.select_best(mechanism=ny.Gaussian(1), runs=ny.Runs.poisson(3))
ny.Unit(protects="person", neighboring="replace-one", rows=1)
ny.keys(values=["a", "b"], unknown="drop")
ny.audit.counts(false_positives=1, negatives=10, false_negatives=2, positives=10, confidence=0.9,
    neighboring="any", anytime=True)
ny.audit.one_run(canaries=10, guesses=8, correct=7, confidence=0.9, neighboring="add-remove")
ny.audit.scores(members=[1, 2], others=[0, 1], threshold="split", confidence=0.9, seed=1)
ny.audit.canaries(count=2, norm=1, silent=0, neighboring="add-remove")
ny.audit.likelihood_ratio(outputs=[0, 1], null=[0.5, 0.5], alternative=[0.1, 0.9])
ny.audit.lira(scores=[0, 1], shadows=[[0, 1]] * 4, members=[[True, False]] * 2 + [[False,
    True]] * 2)
ny.audit.counts(false_positives=1, negatives=9, false_negatives=2, positives=9).epsilon(delta=0.1)
ny.audit.counts(false_positives=1, negatives=9, false_negatives=2, positives=9).refutes(
    claim=ny.gdp(1))
ny.audit.counts(false_positives=1, negatives=9, false_negatives=2, positives=9).power_at_least(
    level=0.1)
ny.audit.counts(false_positives=1, negatives=9, false_negatives=2, positives=9).sentence(
    claim=ny.gdp(1))
ny.risk.attribute_inference(prior=[0.5, 0.5])
ny.risk.reconstruction(mass=0.1)
ny.risk.reconstruction(prior={1: 0.5, 2: 0.5}, radius=0.1)
ny.risk.reidentification(candidates=9)
ny.risk.reidentification(prior=[0.5, 0.5])
ny.risk.singling_out(units=9, weight=0.1)
ny.risk.reidentification(9).success(guarantee=ny.gdp(1))
ny.risk.reidentification(9).at_most(success=0.5)
ny.risk.reidentification(9).sentence(success=0.5, subject="person")
ny.query.count(name="a", by=["b"])
ny.query.distinct(column="a")
ny.query.histogram(column="a", edges=[0, 1, 2])
ny.query.max(column="a", edges=[0, 1, 2])
ny.query.median(column="a", edges=[0, 1])
ny.query.min(column="a", edges=[0, 1])
ny.query.standard_deviation(column="a", clip=(0, 1))
ny.query.sum(column="a", clip=(0, 1))
ny.query.units(name="a")
ny.query.variance(column="a", clip=(0, 1))
ny.query.mean(column="a", clip=(0, 1))
ny.query.quantiles(column="a", quantiles=[0.5], edges=[0, 1])
ny.query.ratio(column="a", over="b", clip=(0, 1), clip_over=(0, 1), complete=True)
ny.estimate.mean(records=np.ones((9, 2)), radius=1, budget=ny.zcdp(1), dimension=2)
ny.estimate.histogram(values=[0.1] * 9, edges=[0, 1, 2], budget=ny.zcdp(1))
ny.estimate.quantile(values=[0.1] * 9, q=0.5, lower=0, upper=1, step=0.1, budget=ny.zcdp(1))
ny.estimate.covariance(records=np.ones((9, 2)), radius=1, budget=ny.zcdp(1))
ny.estimate.normal_mean(values=[0.1] * 900, sigma=1, budget=ny.zcdp(1))
ny.estimate.posterior_draw(records=[0.1] * 9, radius=1, variance=1, prior_variance=1)
ny.estimate.regression(x=np.ones((9, 1)), y=[0.1] * 9, radius=1, bound=1, budget=ny.zcdp(1))
ny.estimate.logistic(x=np.ones((9, 1)), labels=[0, 1, 1] * 3, radius=1, penalty=1,
    budget=ny.zcdp(1))
ny.estimate.linear_model(x=np.ones((9, 1)), y=[0.1] * 9, loss="huber", radius=1, bound=1, width=1,
    penalty=0.1, budget=ny.zcdp(1))
ny.estimate.survival_curve(events=[1, 1], censored=[1, 0], later=1, sigma=1, confidence=0.9)
ny.estimate.survival(durations=[1, 2, 3], events=[1, 0, 1], times=[1, 2], budget=ny.zcdp(1))
accounting.Filter(currency="zcdp", budget=Fraction(1), spent=Fraction(0), delta=Fraction(0))
accounting.Filter("zcdp", Fraction(1)).admits(release=Fraction(1, 2))
accounting.Filter("zcdp", Fraction(1)).after(release=Fraction(1, 2))
accounting.Odometer(currency="zcdp", step=Fraction(1), spent=Fraction(0))
accounting.Odometer("zcdp", Fraction(1)).after(release=Fraction(1, 2))
accounting.PersonalFilter(budget=1, sigma=20, people=3)
accounting.PersonalFilter(budget=1, sigma=20, people=3).step(vectors=np.ones((3, 1), int))
accounting.membership_success(guarantee=ny.gdp(1), prior=0.5)
accounting.posterior_chance(guarantee=ny.gdp(1), prior=0.1, posterior=0.5, claim="record")
accounting.posterior_ratios(guarantee=ny.gdp(1), epsilons=[1, 2], attacker="true-record")
accounting.posterior_distance(guarantee=ny.gdp(1), chance=0.1)
accounting.positive_predictive_value(power=0.5, level=0.05, prior=0.1)
accounting.central_limit(mechanism=ny.Gaussian(1))
accounting.edgeworth(mechanism=ny.Gaussian(1), order=2)
accounting.high_dimensional(information=1, norm=1)
accounting.normal(mu=1)
analysis.BinomialTest(n=9, null=0.5, alternative="greater", budget=ny.gdp(1))
analysis.BinomialTest(n=9, null=0.5, alternative="less", budget=ny.gdp(1)).power(
    truth=0.7, level=0.1)
analysis.BinomialTest(n=9, null=0.5, alternative="less", budget=ny.gdp(1)).release(
    successes=3, confidence=0.9)
analysis.GoodnessOfFitTest(shares=[0.5, 0.5], n=9, budget=ny.gdp(1), simulations=999)
analysis.GoodnessOfFitTest([0.5, 0.5], n=9, budget=ny.gdp(1), simulations=999).power(
    truth=[0.4, 0.6], level=0.1, simulations=2)
analysis.GoodnessOfFitTest([0.5, 0.5], n=9, budget=ny.gdp(1), simulations=999).release(
    counts=[4, 5])
analysis.MeanTest(null=0, n=9, clip=1, alternative="two-sided", budget=ny.gdp(1))
analysis.MeanTest(null=0, n=9, clip=1, alternative="less",
    budget=ny.gdp(1)).release(values=[0] * 9)
analysis.ProportionsTest(n=[9, 9], alternative="less", budget=ny.gdp(1))
analysis.ProportionsTest(n=[9, 9], alternative="less", budget=ny.gdp(1)).release(
    successes=[3, 4], confidence=0.9)
analysis.ProportionsTest(n=[9, 9], alternative="less", budget=ny.gdp(1)).power(
    truth=[0.1, 0.2], level=0.1, simulations=2)
mechanisms.CircularGaussian(points=9, sigma=1, sensitivity=1)
mechanisms.CircularGaussian(9, 1).draw(value=3)
mechanisms.square_root(steps=8, band=2)
mechanisms.optimized_band(workload=8, band=2, objective="mean", participations=1, separation=1)
mechanisms.optimized_toeplitz(steps=8, band=2, objective="mean")
mechanisms.Toeplitz(steps=3, coefficients=[1, 2])
mechanisms.Triangular(rows=[[1], [1, 1]])
mechanisms.square_root(4).largest(participations=1, separation=1)
noise.discrete_gaussian(sigma_squared=Fraction(2), size=2, bits=noise.SecureBits())
noise.discrete_laplace(scale=Fraction(2), size=2, bits=noise.SecureBits())
noise.rounded_gaussian(sigma_squared=Fraction(2), size=2, bits=noise.SecureBits())
noise.SecureBits().words(n=2)
curves.garbling(p=[0.5, 0.5], q=[0.1, 0.9], p2=[0.5, 0.5], q2=[0.4, 0.6])
ny.Bound(lower=0, upper=1, safe="upper", method="a")
book().create(dataset="new@1", protects="person", neighboring="replace-one", rows=1, cap=1,
    currency="zcdp", delta_cap=0, parts=("a", "b"))
book().create(dataset="new@1", protects="person", neighboring="replace-one", cap=1, totals="")
book().allocate(dataset="d@1", account="team", cap="1/2", delta_cap=0, of="")
book().account(dataset="d@1", account="")
book().allocations(dataset="d@1")
book().entries(dataset="d@1", last=3)
book().entry(number=1)
book().check(dataset="d@1", protects="person", neighboring="replace-one", rows=1, charge="1/9")
book().reserve(dataset="d@1", key="k", protects="person", neighboring="replace-one", rows=1,
    charge="1/9", mechanisms=[], plan="{}")
book().begin(entry=1)
book().steps(entry=1)
begun().count_steps(entry=1, before=None, after=1)
book().void(entry=1, why="x")
begun().finish(entry=1, files={"a": b"b"}, why="x")
book().published(dataset="d@1", key="k")
book().turn(key="k", wait=0)
book().keep_checkpoint(path=FOLDER + "/kept")
book().confirm_location(why="moved")
book().verify(checkpoint=None)
book().lines(after=0)
ny.Ledger(url=FOLDER + "/ledger.db", wait=1, checkpoint=None)
ny.Plan.from_dict(data=SMALL, folder=None)
ny.Plan.load(path=FOLDER + "/plan.toml")
plan().admits(mechanism=ny.Gaussian(2))
ny.check_data(plan=plan(), data=DATA, engine="duckdb", most=3)
ny.Release.load(folder=FOLDER + "/release")
"""
"""One valid call of each. The test adds the arguments that a call leaves out."""

UNTESTED = {
    "Mechanism": "a base class",
    "Session": "tests/publishing/release: each question charges a ledger",
    "explore": "tests/display: opens a page",
    "perfect": "takes nothing",
    "deployments": "takes nothing",
    "run": "test_fuzz_releases",
    "Tradeoff": "ny.gdp and others return it",
    "audit.attack_curve": "tests/auditing: each answer runs an attack",
    "audit.search": "tests/auditing: each answer runs a search",
    "torch": "tests/with_torch",
    "train": "test_fuzz_training",
}
NAN = float("nan")
WRONG: list[Any] = [None, True, "", "x", "1/0", "a\x00\ud800", b"1", NAN, float("inf"), -1, 0, 0.5]
WRONG += [1e308, 5e-324, 2**63, 10**400, -(10**400), Fraction(1, 10**400), 1j, object(), int]
WRONG += [[], [None], [NAN], ["x"], [0.5], [[1, 2], [3]], (), {}, {None: None}, {2: None}, {0.5}]
WRONG += [np.bool_(True), np.array(0.5), np.zeros((0, 2)), np.ones((1, 1, 1)), Decimal("sNaN")]
WRONG += [ny.gdp(1), ny.Gaussian(1), lambda *_: 1]
UNIT: dict[str, Any] = {"protects": "person", "neighboring": "replace-one", "rows": 1}
DATA = pa.table({"race": ["white", "black"]})


def plan():
    return publishing.Plan.from_dict(SMALL)


def book(reserved="d@1"):
    """A ledger with one entry, its folder deleted with it."""
    result = ny.throwaway(1)
    result.create(reserved, cap=1, **UNIT)
    result.reserve(reserved, key="k", charge="1/9", mechanisms=[], plan="{}", **UNIT)
    return result


def begun():
    result = book()
    result.begin(1)
    return result


@pytest.fixture(scope="module")
def names():
    """What the calls name; their files are in one folder."""
    with tempfile.TemporaryDirectory() as folder:
        release(plan(), DATA, book("people@1"), folder + "/release")
        Path(folder + "/plan.toml").write_text(publishing.toml_text(SMALL))
        yield globals() | {"FOLDER": folder}


def statements():
    return [node.value for node in ast.parse(CALLS).body]


def faults(call, names):
    """Return the argument, value, and error of each wrong value that is neither answered nor named.

    A ledger's own errors show the value that it does not have. A number may also be refused by the
    name of another argument, which it does not fit.
    """

    def evaluated(node):
        return eval(ast.unparse(node), names)

    of, given = evaluated(call.func), {one.arg: one.value for one in call.keywords}
    of(**{name: evaluated(value) for name, value in given.items()})
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [n for n, p in inspect.signature(of).parameters.items() if p.kind in kinds]
    of = evaluated(call.func)
    for name in dict.fromkeys([*given, *others]):
        draw = random.Random(f"{ast.unparse(call)} {name}")
        for value in draw.sample(WRONG, 5) if is_small() else WRONG:
            arguments = {n: evaluated(v) for n, v in given.items() if n != name}
            try:
                of(**arguments, **{name: value})
                of = evaluated(call.func)  # what the answer has changed
            except (DataError, LedgerError, PlanError):
                pass
            except (ValueError, TypeError) as error:
                also = given if isinstance(value, float | int) else [name.rstrip("s")]
                if not re.search(rf"\b({'|'.join([name, *also])})\b", str(error)):
                    yield name, value, error
            except Exception as error:
                yield name, value, error


@pytest.mark.parametrize("call", statements(), ids=lambda call: ast.unparse(call)[:50])
def test_a_wrong_argument_is_answered_or_refused_by_name(call, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), at_most(120):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "fetch_arrow|unclosed", Warning)
        assert not list(faults(call, names))


def test_each_public_name_has_a_call():
    names = re.findall(r"\bny\.([\w.]+)\(", CALLS)
    modules = {n: getattr(ny, n) for n in ny.__all__ if isinstance(getattr(ny, n), ModuleType)}
    inner = {
        f"{n}.{one}" for n, module in modules.items() if n != "torch" for one in module.__all__
    }
    classes = {n for n in inner if isinstance(attrgetter(n)(ny), type)}  # what the functions return
    expected = {*ny.__all__, *inner} - {*modules, *classes, *UNTESTED}
    uncalled = {n for n in expected if not any(f"{one}.".startswith(f"{n}.") for one in names)}
    assert not uncalled
