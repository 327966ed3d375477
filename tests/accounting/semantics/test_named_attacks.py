"""The chance of a right guess about one record, against attacks on enumerated mechanisms."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction as F

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import neyman as ny
from neyman import Tradeoff
from neyman.accounting import sentences as words
from neyman.accounting import usual_attacks
from neyman.curves import Density

ATTACKS, MECHANISMS = 260, 40


def curve(null, laws):
    """What holds between the distribution without the record and the distribution with each record,
    both orders.
    """
    return Tradeoff.of(pair for law in laws for pair in ny.between(null, law).alternatives)


def mixed_laws(random):
    """A distribution without the target's record, and one for each record, of small rational
    numbers.
    """
    outcomes, records = (int(n) for n in random.integers(2, 6, 2))
    weights = random.integers(0, 6, (records + 1, outcomes)) ** int(random.integers(1, 4))
    weights[:, 0] += 1
    return [[F(int(w), int(row.sum())) for w in row] for row in weights]


def concave_corners(null, laws):
    """The corners of the least concave curve above the powers of all pairs in both orders."""
    corners = {(F(0), F(0)), (F(1), F(1))}
    for p, q in [pair for law in laws for pair in ((null, law), (law, null))]:
        level = power = F(0)
        for a, b in sorted(zip(p, q, strict=True), key=lambda x: -(x[1] / x[0] if x[0] else 10**9)):
            level, power = level + a, power + b
            corners.add((level, power))
    hull = []
    for x, y in sorted(corners):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (
            y - hull[-2][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    return hull


def questions(random, records):
    """What is right about which record: the record itself, a shared value, or a ball."""
    places = random.integers(0, 6, records)
    yield np.eye(records)
    yield random.integers(0, 2, (records, int(random.integers(1, 5)))).astype(float)
    yield (np.abs(places[:, None] - np.arange(6)) <= random.integers(0, 3)).astype(float)


@pytest.mark.parametrize("seed", range(MECHANISMS))
def test_no_attack_on_an_enumerated_mechanism_exceeds_the_stated_success(seed):
    random = np.random.default_rng(seed)
    null, *laws = mixed_laws(random)
    f, corners = curve(null, laws), concave_corners(null, laws)
    chances = np.array(laws, float)
    levels, powers = np.array(corners, float).T
    tested, known = 0, []
    for right in itertools.cycle(questions(random, len(laws))):
        prior = random.dirichlet(np.full(len(laws), random.choice([0.3, 1, 5])))
        baseline = float((prior @ right).max())
        # For each outcome the guess that is right with the largest probability.
        success = float(((prior[:, None] * right).T @ chances).max(axis=0).sum())
        if baseline == 0:
            continue
        # The vertical part at level 0 is left out: beyond it np.interp follows the corners.
        assert success <= np.interp(baseline, levels, powers) + 1e-12
        known.append((baseline, success))
        tested += 1
        if tested == ATTACKS:
            break
    for baseline, success in known[:3]:
        bound = f.success(min(baseline, 1.0))
        assert success <= bound.upper
        assert bound.lower - 1e-9 <= np.interp(baseline, levels, powers) <= bound.upper + 1e-12
        assert bound.width < 1e-5


def test_the_largest_power_of_several_pairs_is_no_bound_and_the_success_is_reached():
    null = [F(1, 10), F(1, 10), F(2, 5), F(2, 5)]
    rare = [F(1, 2), F(1, 18), F(2, 9), F(2, 9)]
    common = [F(1, 30), F(1, 30), F(4, 5), F(2, 15)]
    laws = [rare, [rare[1], rare[0], *rare[2:]], common, [*common[:2], common[3], common[2]]]
    f = curve(null, laws)
    reached = sum(law[i] for i, law in enumerate(laws)) / 4
    assert reached == F(13, 20) > F(f.power(0.25).upper)
    success = f.success(F(1, 4))
    assert success.lower <= reached <= success.upper < reached + F(1, 10**5)


def test_the_success_of_a_gaussian_curve_is_its_power():
    with mp.workdps(30):
        z = mp.sqrt(2) * mp.erfinv(2 * mp.mpf("0.1") - 1)
        exact = mp.ncdf(z + 1)
        success = ny.gdp(1).success("0.1")
        assert success.lower <= exact <= success.upper < exact + mp.mpf("1e-12")
    assert f"{float(exact):.5f}" == "0.38914"
    for f in (ny.gdp(1), ny.pure(1), ny.Gaussian(1).subsample(rate=0.3).tradeoff()):
        gains = [f.success(b).upper - b for b in np.linspace(0.05, 1, 39).tolist()]
        tv = f.advantage()
        assert tv.lower - 5e-3 < max(gains) <= tv.upper + 1e-9


@pytest.mark.parametrize("baseline", [1e-12, 1e-3, 0.05, 0.5, 0.97, 1])
def test_the_success_is_that_of_the_joined_curve(baseline):
    for mechanism in (
        ny.Gaussian(0.5).subsample(rate=0.1),
        ny.Gaussian(1).subsample(rate=0.01) * 300,
        ny.RandomizedResponse(1, categories=3),
        ny.NonPrivate(),
    ):
        f = mechanism.tradeoff()
        other, own = f.symmetric().power(float(baseline)), f.success(baseline)
        assert own.lower <= other.upper
        assert other.lower <= own.upper
        assert own.upper <= other.upper * (1 + 1e-8)
        assert own.upper >= f.power(float(baseline)).lower


def test_a_budget_of_success_binds_the_joined_curve():
    power, success = ny.at_most(power=0.25, level=0.05), ny.at_most(success="1/4", baseline=0.05)
    assert power.numbers == success.numbers

    def near(level, factor, second):
        """A pair with a corner near the level, by a factor above the Gaussian curve."""
        first = factor * float(mp.ncdf(mp.sqrt(2) * mp.erfinv(2 * level - 1) + power.mu))
        masses = (
            [level, second[0] - level, 1 - second[0]],
            [first, second[1] - first, 1 - second[1]],
        )
        return ny.between(*masses).alternatives

    strict, lenient = near(0.048, 1.008, (0.05, 0.2499)), near(0.052, 1.008, (0.2, 0.55))
    f = Tradeoff.of([*strict, *lenient])
    assert f.power(0.05).upper < 0.25 < f.success(0.05).lower <= 1.01 * 0.25
    assert power.admits(f)
    assert not success.admits(f)
    assert success.excess_elsewhere(f) > 0 > power.excess_elsewhere(f)
    reached = f.success(0.05)
    assert reached.lower < reached.upper
    for number, met in ((reached.lower, False), (reached.upper, True)):
        assert ny.at_most(success=F(number), baseline=0.05).admits(f) == met


def test_noise_is_calibrated_to_a_success_and_to_a_named_attack():
    sigma = ny.calibrate(ny.Gaussian, ny.at_most(success=0.3, baseline=0.1))
    assert ny.Gaussian(sigma).tradeoff().success(0.1).upper <= 0.3
    assert ny.Gaussian(sigma * 0.999).tradeoff().success(0.1).lower > 0.3
    attack = ny.risk.singling_out(units=1000, weight="1e-6")
    sigma = ny.calibrate(ny.Gaussian, attack.at_most(0.05))
    assert float(attack.success(ny.Gaussian(sigma))) <= 0.05
    assert float(attack.success(ny.Gaussian(sigma * 0.999))) > 0.05


def test_singling_out_without_a_release_is_within_its_limits():
    random = np.random.default_rng(2)
    with mp.workdps(50):
        for _ in range(400):
            n = int(10 ** random.uniform(0.4, 9))
            weight = F(float(random.random())) / n
            w = mp.mpf(weight.numerator) / weight.denominator
            exact = n * w * mp.exp((n - 1) * mp.log1p(-w))
            bound = ny.risk.singling_out(n, weight).success(ny.pure(0)).bound
            assert bound.lower <= exact <= bound.upper <= exact * (1 + 1e-14)


def test_others_who_share_a_fair_bit_give_it_away_and_the_prior_must_know_them():
    f = ny.gdp(1)
    limit = f.success(F(1, 2))
    with mp.workdps(30):
        # The sum is 0 or 100, with normal noise of deviation 1.
        success = mp.ncdf(50)
    assert float(success) == 1 > limit.upper
    # Who knows the other 99 records knows the bit before the release.
    assert f.success(1).upper == 1
    (prior, *_) = ny.risk.attribute_inference([0.5, 0.5]).success(f).conditions
    assert "after they know all other records" in prior
    assert "only if the target's record is independent" in prior
    assert "once they know all other records" in limit.method


def test_baselines_are_exact():
    risk = ny.risk
    assert risk.reidentification(candidates=40).chance == F(1, 40)
    assert risk.reidentification(prior=[0.2, 0.5, 0.3]).chance == F(1, 2)
    assert risk.attribute_inference({"yes": "1/3", "no": "2/3"}).chance == F(2, 3)
    thirds = risk.attribute_inference([1 / 3] * 3).chance
    assert F(1, 3) <= thirds <= F(1, 3) + F(1, 10**9)
    assert risk.reconstruction("1/1000").chance == F(1, 1000)
    steps = {0: "1/4", 1: "1/8", 2.5: "3/8", 9: "1/4"}
    assert risk.reconstruction(prior=steps, radius=0).chance == F(3, 8)
    assert risk.reconstruction(prior=steps, radius=0.75).chance == F(1, 2)
    assert risk.reconstruction(prior=steps, radius=1.25).chance == F(3, 4)
    assert risk.reconstruction(prior=steps, radius=9).chance == 1


def test_singling_out_is_within_its_bound_on_enumerated_releases():
    masses = [F(1, 2), F(1, 4), F(1, 8), F(1, 8)]
    rows = list(itertools.product(range(4), repeat=2))
    for keep in (F(1, 4), F(7, 10), F(19, 20)):
        # Add-remove: each row reports its value truly with a chance, else a draw without it.
        def chances(row, keep=keep):
            return [keep * (value == row) + (1 - keep) * p for value, p in enumerate(masses)]

        f = curve(masses, [chances(row) for row in range(4)])
        attack = ny.risk.singling_out(units=2, weight=F(1, 8))
        properties = [(2,), (3,), ()]
        isolated = F(0)
        for out in itertools.product(range(4), repeat=2):
            gains = []
            for has in properties:
                right = [pair for pair in rows if (pair[0] in has) != (pair[1] in has)]
                gains.append(
                    sum(
                        masses[a] * masses[b] * chances(a)[out[0]] * chances(b)[out[1]]
                        for a, b in right
                    )
                )
            isolated += max(gains)
        assert isolated <= F(attack.success(f).bound.upper)
        assert isolated >= attack.baseline == pytest.approx(2 * 1 / 8 * 7 / 8)


def test_a_number_is_printed_with_its_conditions():
    risk = ny.risk.reidentification(candidates=20).success(ny.Gaussian(1))
    assert risk.sentence() == (
        "An attacker who knows everyone else’s record and would name the right one of 20 equally "
        "likely candidates 5% of the time without the release can do so at most 26% of the time "
        "with it."
    )
    for condition in risk.conditions:
        assert condition in repr(risk)
    removed = ny.Gaussian(1).subsample(rate=0.5)
    replaced = ny.RandomizedResponse(1)
    kinds = {ny.risk.reidentification(9).success(m).conditions for m in (removed, replaced)}
    assert len(kinds) == 2
    for attack in usual_attacks():
        assert "every time" in attack.success(ny.NonPrivate()).sentence()
    assert "equally often" in words.right_guess("win", "1/3", "1/3")
    assert "1 time in 30,000 without" in words.right_guess("win", "1/30000", 0.1)
    assert "37 times in 100,000 without" in words.right_guess("win", "0.000376", 0.1)


def test_perfect_privacy_leaves_the_baseline():
    for baseline in ("0.05", "1/3", "0.9", "1e-12"):
        success = ny.perfect().success(baseline)
        low, high = (F(repr(end)) for end in (success.lower, success.upper))
        assert low <= F(baseline) <= high
        assert success.upper <= math.nextafter(success.lower, 1)
    assert str(ny.perfect().success(0.7)) == "0.7"
    attacks = [ny.risk.reidentification(n) for n in (3, 20)] + [ny.risk.singling_out(10, "0.1")]
    for attack in attacks:
        sentence = attack.success(ny.perfect()).sentence()
        assert sentence.endswith("can do so at most equally often with it.")


def test_what_an_attack_rests_on_is_printed_with_its_number():
    single = ny.risk.singling_out(units=10, weight="0.1").success(ny.gdp(1))
    assert single.sentence() == (
        "An attacker who would name a property of weight at most 0.1 that exactly one of 10 "
        "records has 38.7% of the time without the release might do so every time with it."
    )
    assert "There are 10 units. The largest weight, 0.1, is stated" in single.conditions[0]
    shown = single.to_dict()
    assert (shown["units"], shown["weight"]) == (10, 0.1)
    assert shown["baseline"] == pytest.approx(0.9**9)
    near = ny.risk.reconstruction(prior={20: "1/2", 40: "1/2"}, radius="2.5").success(ny.gdp(1))
    assert "would come within 2.5 of the record of a person 50%" in near.sentence()
    assert "A guess is right up to the distance 2.5." in near.conditions
    assert near.to_dict()["radius"] == 2.5
    with pytest.raises(TypeError, match="must be a mapping from each number"):
        ny.risk.reconstruction(prior=[0.5, 0.5], radius=1)


def test_an_estimate_and_the_statements_of_a_user_are_never_shown_as_a_guarantee():
    f = ny.between(stats.norm(1), stats.norm(0))
    risk, safe = ny.risk.reidentification(20).success(f), f.gdp(levels=(1e-4, 0.5))
    for text in (repr(risk), risk.sentence(), risk.conditions[0], repr(safe), safe.sentence):
        assert "estimate" in text.lower()
        assert "two distributions seen in cells" in text
    shown = risk.to_dict()
    assert "estimate" in shown["method"]
    assert (shown["safe"], shown["sources"]) == ("upper", list(f.sources))
    certain = ny.risk.reidentification(20).success(ny.gdp(1))
    for text in (repr(certain), repr(ny.gdp(1).gdp(levels=(1e-4, 0.5)))):
        assert "estimate" not in text.lower()
    law = Density(
        log_density=lambda x: -np.abs(x) - math.log(2), low=-200.0, high=200.0, tails=2e-87,
        breaks=(0.0,), curvature=0.0, log_concave=True,
    )  # fmt: skip
    g = ny.between(law.shifted(1), law)
    under = ny.risk.reidentification(20).success(g)
    assert len(g.statements) > 2
    for statement in g.statements:
        assert f"stated, and not proven here: {statement}" in under.conditions
    assert under.to_dict()["statements"] == list(g.statements)


@pytest.mark.parametrize("given", [{"success": 0.5}, {"power": 0.5}, {"power": 1, "success": 1}])
def test_a_budget_names_the_number_that_is_missing(given):
    with pytest.raises(TypeError, match=re.compile("missing|not both")):
        ny.at_most(**given)
