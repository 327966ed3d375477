"""What a type checker sees of the public API; `test_typing.py` runs pyright on this file.

Nothing here runs. Each `assert_type` is what a user's editor shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, assert_type

import numpy.typing as npt
import pandas as pd
import pyarrow as pa

import neyman as ny
from neyman.accounting import AtMost, Estimate, Filter, central_limit
from neyman.analysis import BinomialTest, GoodnessOfFitTest, MeanTest, ProportionsTest, TestResult
from neyman.curves import NearestGaussian, PrivacyLoss
from neyman.ledger import Account, Entry
from neyman.publishing import Answer, DataCheck


def mechanisms() -> None:
    """Combinations of mechanisms are mechanisms."""
    gaussian = ny.Gaussian(sigma=2)
    assert_type(gaussian, ny.Gaussian)
    assert_type(gaussian + ny.Laplace(scale=1), ny.Mechanism)
    assert_type(gaussian * 10, ny.Mechanism)
    assert_type(10 * gaussian, ny.Mechanism)
    assert_type(sum([gaussian * 2, gaussian * 3], ny.Mechanism.nothing()), ny.Mechanism)
    assert_type(sum([gaussian * 2, gaussian * 3]), ny.Mechanism | Literal[0])
    assert_type(gaussian.subsample(rate=0.1), ny.Mechanism)
    assert_type(gaussian.subsample(size=10, population=100), ny.Mechanism)
    assert_type(gaussian.shuffled_batches(10), ny.Mechanism)
    assert_type(gaussian.random_allocation(10), ny.Mechanism)
    assert_type(ny.LocalRandomizer(1).shuffle(users=100), ny.Mechanism)
    assert_type(ny.Mechanism.nothing(), ny.Mechanism)
    assert_type(ny.ProposeTestRelease(ny.Laplace(2)).threshold, int | float)
    assert_type(ny.SmoothNoise("student", 3, 0.1, 0.3).epsilon(), ny.Bound)
    assert_type(gaussian.tradeoff(), ny.Tradeoff)
    assert_type(gaussian.rho(), Fraction)
    assert_type(gaussian.neighboring, Literal["any", "add-remove", "replace-one"])
    assert_type(gaussian.to_json(), str)
    assert_type(ny.Mechanism.from_json("{}"), ny.Mechanism)


def private_tests(test: BinomialTest) -> None:
    """A test has a power before it has data; a release has a p-value."""
    assert_type(test.power(truth=0.6, level="0.05"), ny.Bound)
    result = test.release(30)
    assert_type(result, TestResult)
    assert_type(result.p_value, ny.Bound)
    assert_type(result.interval, tuple[float, float] | None)
    assert_type(result.rejects(0.05), bool)
    two = ProportionsTest(n=(10, 20), alternative="less", budget=ny.gdp(1))
    assert_type(two.release((3, 4)), TestResult)
    shares = GoodnessOfFitTest(["1/2", "1/2"], n=10, budget=ny.zcdp(1))
    assert_type(shares.release([4, 6]), TestResult)
    center = MeanTest(null=0, n=3, clip=2, alternative="greater", budget=ny.gdp(1))
    assert_type(center.release([1, 2, 3]), TestResult)


def questions(f: ny.Tradeoff) -> None:
    """Numerical answers are bounds."""
    bound = f.epsilon(delta=1e-5)
    assert_type(bound, ny.Bound)
    assert_type(bound.lower, float)
    assert_type(bound.upper, float)
    assert_type(bound.safe, Literal["lower", "upper"])
    assert_type(float(bound), float)
    assert_type(round(bound), int)
    assert_type(round(bound, 3), float)
    assert_type(bound < 1, bool)
    assert_type(bound >= Fraction(1, 3), bool)
    assert_type(bound < bound, bool)
    assert_type(f"{bound:.3f}", str)
    assert_type(f.epsilon(log_delta=-900), ny.Bound)
    assert_type(f.delta(epsilon=1), ny.Bound)
    assert_type(f.log_delta(epsilon=1), ny.Bound)
    assert_type(f.power(level=0.05), ny.Bound)
    assert_type(f.power(log_level=-100), ny.Bound)
    assert_type(f.powers([0.01, 0.05]), list[ny.Bound])
    assert_type(f.epsilons([1e-6, 1e-5]), list[ny.Bound])
    assert_type(f.deltas([0.5, 1]), list[ny.Bound])
    assert_type(f(0.05), ny.Bound)
    assert_type(f.advantage(), ny.Bound)
    assert_type(f.renyi(order=8), ny.Bound)
    assert_type(f.zcdp(), ny.Bound)
    assert_type(f.gdp(), ny.Bound)
    assert_type(f.pure(), ny.Bound)
    assert_type(f.pbdp(epsilon=4), ny.Bound)
    assert_type(f.conjugate(-1.0), ny.Bound)
    assert_type(f.nearest_gaussian(), NearestGaussian)
    assert_type(f.nearest_gaussian().mu, ny.Bound)
    assert_type(f.nearest_gaussian().distance, ny.Bound)
    assert_type(f.loss, PrivacyLoss)
    assert_type(f.loss.cdf(1), ny.Bound)
    assert_type(f.loss.tail(1), ny.Bound)
    assert_type(f.loss.mean, ny.Bound)
    assert_type(f.loss.variance, ny.Bound)
    assert_type(f.loss.infinite, ny.Bound)
    assert_type(f.loss.sample(5), npt.NDArray[Any])


def guarantees(f: ny.Tradeoff, g: ny.Tradeoff) -> None:
    """Guarantees are trade-off functions, and their operations are too."""
    assert_type(ny.pure(1), ny.Tradeoff)
    assert_type(ny.approximate(1, 1e-6), ny.Tradeoff)
    assert_type(ny.gdp(1), ny.Tradeoff)
    assert_type(ny.zcdp("0.1"), ny.Tradeoff)
    assert_type(ny.tcdp("0.1", 10), ny.Tradeoff)
    assert_type(ny.renyi({2: 0.1}), ny.Tradeoff)
    assert_type(ny.pbdp(1, "0.01"), ny.Tradeoff)
    assert_type(ny.perfect(), ny.Tradeoff)
    assert_type(ny.total_variation(0.1), ny.Tradeoff)
    assert_type(ny.between([0.5, 0.5], [0.9, 0.1]), ny.Tradeoff)
    assert_type(ny.from_points([0, 1], [1, 0]), ny.Tradeoff)
    assert_type(ny.from_profile({1.0: 1e-5}), ny.Tradeoff)
    assert_type(ny.mixture([0.5, 0.5], [f, g]), ny.Tradeoff)
    assert_type(f @ g, ny.Tradeoff)
    assert_type(f**10, ny.Tradeoff)
    assert_type(f.inverse(), ny.Tradeoff)
    assert_type(f.symmetric(), ny.Tradeoff)
    assert_type(f.mutual(), ny.Tradeoff)
    assert_type(f.group(4), ny.Tradeoff)
    assert_type(f >= g, bool)
    assert_type(f <= g, bool)
    assert_type(
        ny.compare(f, g), Literal["at-least", "at-most", "equal", "incomparable", "undecided"]
    )


def accounting(f: ny.Tradeoff, m: ny.Mechanism) -> None:
    """Targets, calibration, and estimates, which are no bounds."""
    target = ny.at_most(power=0.1, level=0.05)
    assert_type(target, AtMost)
    assert_type(target.admits(m), bool)
    assert_type(f.admits(m), bool)
    assert_type(ny.calibrate(ny.Gaussian, target), float)
    assert_type(central_limit(m), Estimate)
    assert_type(ny.posterior_ratio(f, epsilon=1, attacker="true-record"), ny.Bound)
    assert_type(Filter("zcdp", Fraction(1)).admits((Fraction(1, 2), Fraction(0))), bool)


def releases(plan: ny.Plan, ledger: ny.Ledger, data: pa.Table, out: Path) -> None:
    """A plan, a ledger, and data make a release."""
    assert_type(ny.Plan.load("plan.toml"), ny.Plan)
    assert_type(plan.mechanism(), ny.Mechanism)
    assert_type(plan.concerning("race", within="state"), ny.Mechanism)
    assert_type(plan.hash, str)
    assert_type(plan.errors(), pd.DataFrame)
    people = ny.Unit("person", neighboring="replace-one", rows=1)
    queries = [ny.query.count(by=["sex"], share="1/2"), ny.query.mean("pay", clip=(0, 100))]
    budget = ny.zcdp("1/10")
    assert_type(
        ny.Plan(
            name="a", dataset="a@1", table="a", unit=people, queries=queries, budget=budget,
            columns={"sex": ny.keys(["f", "m"]), "pay": {"integer": True}},
        ),
        ny.Plan,
    )  # fmt: skip
    release = ny.run(plan, data, ledger, out)
    assert_type(release, ny.Release)
    assert_type(release.tables, Mapping[str, pa.Table])
    assert_type(release.tradeoff(), ny.Tradeoff)
    assert_type(release.plan, ny.Plan)
    assert_type(release.published_before, bool)
    assert_type(ledger.create("d@1", protects="person", neighboring="replace-one", cap=1), Account)
    assert_type(ledger.entries("d@1"), tuple[Entry, ...])
    assert_type(ny.check_data(plan, data), DataCheck)
    with ny.Ledger("ledger.db") as book:
        assert_type(book, ny.Ledger)


def session(data: pa.Table) -> None:
    """A session answers one question at a time."""
    people = ny.Unit("person", neighboring="replace-one", rows="discover", id="id")
    asking = ny.Session(data, ledger=ny.throwaway(1), dataset="d@1", unit=people)
    answer = asking.ask(ny.query.sum("pay", clip="discover"), zcdp="1/1000")
    assert_type(answer, Answer)
    assert_type(answer.table, pa.Table)
    assert_type(asking.left, Fraction)
    assert_type(asking.answer(answer.entry), Answer)


shown = ny.audit.counts(false_positives=1, negatives=9, false_negatives=1, positives=9)
assert_type(shown.refutes(ny.gdp(1)), bool)
assert_type(shown.epsilon(delta=1e-5), float)
assert_type(ny.audit.one_run(canaries=9, guesses=9, correct=8).gdp(), float)
assert_type(ny.audit.canaries(9, norm=1).one_run([0.0] * 209).gdp(), float)
