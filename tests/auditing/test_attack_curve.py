"""An attack's curve from simulation: a band that holds at all levels, and never a guarantee."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import neyman as ny
from neyman.accounting import Filter, Odometer, PersonalFilter, posterior_chance, posterior_ratios
from neyman.curves import garbling
from neyman.publishing import PlanError


def simulated(seed, mu=1.0, runs=2000, **others):
    rng = np.random.default_rng(seed)
    return ny.audit.attack_curve(
        lambda rows: mu * len(rows) + rng.normal(), [1], [], statistic=float, runs=runs, **others
    )


def test_the_band_holds_the_attacks_own_curve_at_every_level_at_once():
    """Of 200 simulations at 90%, at most 20 miss on average; 34 have a chance below 0.001.

    The statistic is the best one here, so the truth is the Gaussian curve.
    """
    levels = np.linspace(0.001, 0.999, 60)
    exact = ndtr(-1.0 - ndtri(levels))
    missed = 0
    for seed in range(200):
        shown = simulated(seed, runs=300, confidence=0.9)
        bands = [shown.band(float(a)) for a in levels]
        missed += any(not low <= b <= high for (low, high), b in zip(bands, exact, strict=True))
    assert missed <= 34


def test_a_true_claim_is_refuted_at_most_as_often_as_stated():
    """The rate is at most 10% of 200, and 34 have a chance below 0.001."""
    refuted = sum(
        simulated(seed, runs=300, confidence=0.9).refutes(ny.gdp(1)) for seed in range(200, 400)
    )
    assert refuted <= 34


def test_rates_of_laws_with_ties_stay_within_their_limits():
    p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.3, 0.2, 0.1])
    alarms, misses = np.append(np.cumsum(q[::-1])[::-1], 0.0), np.append(0.0, np.cumsum(p))
    missed = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        members, others = (rng.choice(4, 200, p=law).astype(float) for law in (p, q))
        scores = {(1,): iter(members), (): iter(others)}
        shown = ny.audit.attack_curve(
            lambda rows, scores=scores: next(scores[tuple(rows)]), [1], [], statistic=float,
            runs=400, confidence="9/10",
        )  # fmt: skip
        lower, upper = (
            np.interp(alarms, *zip(*[(0, 1), *corners, (1, 0)], strict=True))
            for corners in (shown.floor, shown.points)
        )
        # The rates are those of the best tests, so they lie on the attack's curve.
        missed += bool(np.any(misses < lower - 1e-9) or np.any(misses > upper + 1e-9))
    assert missed <= 34


def test_a_false_claim_is_refuted_with_its_level_and_the_confidence():
    shown = simulated(5, mu=2.0, runs=4000)
    refutation = shown.refutation(ny.gdp(1))
    assert shown.refutes(ny.gdp(1))
    assert refutation is not None
    assert refutation.confidence == Fraction(19, 20)
    assert 0 < refutation.level < 1
    assert refutation.error < refutation.claimed <= float(ny.gdp(1)(refutation.level)) * (1 + 1e-9)
    assert repr(refutation).startswith("<Refutation: at level 0.")
    assert simulated(5).refutation(ny.gdp(1)) is None
    assert "does not satisfy" in shown.sentence(ny.gdp(1))


def test_a_refutation_says_no_more_than_the_claim_allows():
    shown = simulated(4)
    for i in range(60):
        claim = ny.gdp(Fraction(i + 1, 200))
        refutation = shown.refutation(claim)
        assert refutation is not None
        power = claim.power(level=refutation.level).upper
        assert refutation.error < refutation.claimed <= 1 - Fraction(power)


def test_the_band_is_about_as_narrow_as_the_inequality_says():
    shown = simulated(7, runs=20_000)
    widest = math.sqrt(math.log(8 / 0.05) / (2 * 10_000))
    for level in (0.01, 0.1, 0.5):
        low, high = shown.band(level)
        slope = math.exp(-ndtri(level) - 0.5) if level < 0.5 else 1.0
        assert high - low < 2.2 * widest * (1 + slope)
    # At a small level the limits at all counts are far below the inequality's.
    assert shown.points[0][0] < widest / 4


EVIDENCE = simulated(1, runs=100)


def ledger(folder):
    book = ny.Ledger(folder / "ledger.db")
    book.create("survey@1", protects="person", neighboring="replace-one", cap=1)
    return book


UNIT = {"protects": "person", "neighboring": "replace-one", "rows": 1}
OPERATORS = {
    "f >= e": lambda e: ny.gdp(1) >= e,
    "e >= f": lambda e: e >= ny.gdp(1),
    "f @ e": lambda e: ny.gdp(1) @ e,
    "m + e": lambda e: ny.Gaussian(1) + e,
    "e + m": lambda e: e + ny.Gaussian(1),
    "sum": lambda e: sum([ny.Gaussian(1), e]),
    "e * 2": lambda e: e * 2,
}
FUNCTIONS = {
    "compare": lambda e: ny.compare(ny.gdp(1), e),
    "compare first": lambda e: ny.compare(e, ny.gdp(1)),
    "admits": ny.gdp(1).admits,
    "excess": ny.gdp(1).excess,
    "zcdp admits": ny.zcdp(1).admits,
    "at_most admits": ny.at_most(power=0.25, level=0.05).admits,
    "calibrate": lambda e: ny.calibrate(ny.Gaussian, budget=e),
    "calibrate makes it": lambda e: ny.calibrate(lambda s: e, budget=ny.gdp(1)),
    "alike": ny.alike,
    "mixture": lambda e: ny.mixture([1], [e]),
    "between": lambda e: ny.between(e, e),
    "from_points": lambda e: ny.from_points(e, e),
    "from_profile": ny.from_profile,
    "garbling": lambda e: garbling(e, e, e, e),
    "best_test": lambda e: ny.best_test(e, e, 0.05),
    "canonical noise": ny.CanonicalNoise,
    "posterior_ratio": lambda e: ny.posterior_ratio(e, epsilon=1),
    "posterior_ratios": lambda e: posterior_ratios(e, [1.0]),
    "posterior_chance": lambda e: posterior_chance(e, prior=0.1, posterior=0.5),
    "least_error": lambda e: ny.least_error("bounded-mean", budget=e, n=100, radius=1),
    "refutes": EVIDENCE.refutes,
    "filter": lambda e: Filter("zcdp", e),
    "filter admits": Filter("zcdp", Fraction(1)).admits,
    "filter after": Filter("zcdp", Fraction(1)).after,
    "odometer after": Odometer("zcdp", Fraction(1)).after,
    "personal filter": lambda e: PersonalFilter(budget=e, sigma=1, people=2),
    "from_dict": ny.Mechanism.from_dict,
    "explore": ny.explore,
    "run": lambda e: ny.run(e, None, "ledger.db", "out"),
    "at_most": lambda e: ny.at_most(power=e, level=0.05),
    "pure": ny.pure,
}
LEDGERS = {
    "create": lambda b, e: b.create("b@1", protects="person", neighboring="add-remove", cap=e),
    "allocate": lambda b, e: b.allocate("survey@1", "team", cap=e),
    "check": lambda b, e: b.check("survey@1", **UNIT, charge=e),
    "reserve": lambda b, e: b.reserve(
        "survey@1", key="k", **UNIT, charge=e, mechanisms=[], plan="{}"
    ),
}


@pytest.mark.parametrize("name", [*OPERATORS, *FUNCTIONS])
def test_nothing_that_takes_a_guarantee_takes_evidence(name):
    with pytest.raises(TypeError, match="AttackCurve"):
        (OPERATORS | FUNCTIONS)[name](EVIDENCE)


@pytest.mark.parametrize("name", LEDGERS)
def test_no_ledger_takes_evidence_and_nothing_is_spent(name, tmp_path):
    book = ledger(tmp_path)
    with pytest.raises(TypeError, match="AttackCurve"):
        LEDGERS[name](book, EVIDENCE)
    with pytest.raises(ValueError, match="AttackCurve"):
        book.reserve("survey@1", key="k", **UNIT, charge=1, mechanisms=[EVIDENCE], plan="{}")
    assert [account.spent for account in book.datasets()] == [0]


def test_a_plan_refuses_evidence_as_a_budget():
    with pytest.raises(PlanError, match="AttackCurve"):
        ny.Plan.from_dict({"schema": 2, "budget": EVIDENCE})
