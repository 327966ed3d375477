"""Filters never let an adaptive adversary exceed the budget: by enumeration of every outcome."""

from __future__ import annotations

import dataclasses
import math
import random
from fractions import Fraction as F
from functools import cache

import pytest
from scipy.special import ndtri

import neyman as ny
from neyman import RandomSubset
from neyman import renyi as renyi_curve
from neyman.accounting import Currency, Filter, Odometer, charge

STRATEGIES = 1500  # of each currency
ORDERS = [1.01, 1.5, 2.0, 3.0, 5.0, 10.0, 40.0]
SLACK = 1e-9


def response(epsilon, categories=2):
    """Randomized response on two neighbors: the distribution of its answer under each."""
    top, rest = math.exp(epsilon), [1.0] * (categories - 2)
    total = top + categories - 1
    p = [top, 1.0, *rest]
    q = [1.0, top, *rest]
    return [(a / total, b / total) for a, b in zip(p, q, strict=True)]


def random_pair(rng):
    """Two distributions on two or three outcomes, all of them possible under both."""
    size = rng.choice([2, 3])
    p, q = ([rng.randint(1, 9) for _ in range(size)] for _ in range(2))
    return [(a / sum(p), b / sum(q)) for a, b in zip(p, q, strict=True)]


def swapped(pair):
    return [(q, p) for p, q in pair]


def renyi(pair, order):
    """The Renyi divergence in the worse direction."""
    sums = (math.fsum(p**order * q ** (1 - order) for p, q in x) for x in (pair, swapped(pair)))
    return max(math.log(x) / (order - 1) for x in sums)


def rho(pair):
    """The zCDP parameter over the orders that are looked at."""
    return max(renyi(pair, a) / a for a in ORDERS)


def mu(pair):
    """The GDP parameter: the largest z(power) - z(level) over the corners of the curve."""
    level = power = 0.0
    worst = 0.0
    for p, q in sorted(pair, key=lambda o: o[0] / o[1], reverse=True)[:-1]:
        level, power = level + q, power + p
        worst = max(worst, float(ndtri(power) - ndtri(level)))
    return worst


def hockey_stick(pair, epsilon):
    return math.fsum(max(p - math.exp(epsilon) * q, 0.0) for p, q in pair)


def played(rng, allowed, menu, depth):
    """The law of all outcomes of one random strategy, which the filter stops.

    At each node it stops, tosses a coin between two ways to go on, or makes a release that the
    filter admits, and goes on in another way after each answer.
    """
    if depth == 0 or rng.random() < 0.05:
        return [(1, 1)]
    if rng.random() < 0.15:
        weight = F(rng.randint(1, 7), 8)
        return [
            (w * p, w * q)
            for w in (weight, 1 - weight)
            for p, q in played(rng, allowed, menu, depth - 1)
        ]
    pair, cost = rng.choice(menu)
    if not allowed.admits(cost):
        return played(rng, allowed, menu, depth - 1)
    left = allowed.after(cost)
    answers = [(p, q, played(rng, left, menu, depth - 1)) for p, q in pair]
    return [(p * x, q * y) for p, q, further in answers for x, y in further]


def test_pure_filters_hold_for_every_outcome():
    rng = random.Random(1)
    menu = []
    for k in (1, 2, 3):
        high = F(2**k, 1 + 2**k)
        menu += [([(high, 1 - high), (1 - high, high)], k), ([(F(1), F(1))], 0)]
        # One-sided: an answer that is 2^k times as likely, the others a little less.
        menu.append(([(F(2**k, 40), F(1, 40)), (1 - F(2**k, 40), F(39, 40))], k))
    reached = set()
    for _ in range(STRATEGIES):
        budget = rng.randint(1, 5)
        law = played(rng, Filter("pure", F(budget)), menu, 4)
        assert sum(p for p, _ in law) == sum(q for _, q in law) == 1
        worst = max(max(p / q, q / p) for p, q in law)
        assert worst <= 2**budget
        reached.add(worst == 2**budget)
    assert True in reached


@pytest.mark.parametrize("currency", ["zcdp", "gdp", "renyi:2", "renyi:10"])
def test_filters_hold_for_random_strategies(currency):
    rng = random.Random(currency)
    kind, _, order = currency.partition(":")
    price = {"zcdp": rho, "gdp": lambda x: mu(x) ** 2, "renyi": lambda x: renyi(x, float(order))}[
        kind
    ]
    closest = 0.0
    for _ in range(STRATEGIES):
        pairs = [random_pair(rng) for _ in range(3)] + [response(0.5), response(1.0)]
        menu = [(pair, F(price(pair))) for pair in pairs]
        budget = F(rng.uniform(0.1, 2.0))
        spent = price(played(rng, Filter(currency, budget), menu, 3))
        assert spent <= float(budget) * (1 + SLACK)
        closest = max(closest, spent / float(budget))
    assert closest > 0.9


@pytest.mark.parametrize(
    ("currency", "budget"), [("zcdp", F(1, 2)), ("gdp", F(8, 5)), ("renyi:4", F(1))]
)
def test_the_prices_of_mechanisms_keep_the_budget(currency, budget):
    items = [
        ny.RandomizedResponse(F(e).limit_denominator(4), k)
        for e in (0.5, 0.75, 1.0)
        for k in (2, 3)
    ]
    laws = [response(float(m.epsilon), m.categories) for m in items]
    first = Filter(currency, F(4))
    costs = [first.after(m).spent for m in items]
    kind, _, order = currency.partition(":")

    def best(score):
        """The largest sum of score(P, Q) over the outcomes that any strategy reaches."""

        @cache
        def ahead(p, q, left):
            result = score(p, q)
            for law, cost in zip(laws, costs, strict=True):
                if Filter(currency, left).admits(cost):
                    after = Filter(currency, left).after(cost).left
                    result = max(result, sum(ahead(p * a, q * b, after) for a, b in law))
            return result

        return ahead(1.0, 1.0, budget)

    if kind == "renyi":
        a = float(order)
        value = best(lambda p, q: p**a * q ** (1 - a))
        assert math.log(value) / (a - 1) <= float(budget) * (1 + SLACK)
    elif kind == "zcdp":
        for a in (1.5, 3.0, 10.0):
            value = best(lambda p, q, a=a: p**a * q ** (1 - a))
            assert math.log(value) / (a - 1) <= a * float(budget) * (1 + SLACK)
    else:
        for epsilon in (0.0, 0.5, 1.0, 2.0):
            value = best(lambda p, q, e=epsilon: max(p - math.exp(e) * q, 0.0))
            assert value <= ny.gdp(math.sqrt(budget)).delta(epsilon).upper + SLACK


def failing(pair, fail, openly):
    """The pair, or with probability ``fail`` an answer that tells which neighbor it was.

    Either openly, or hidden among the pair's own answers, which are then farther apart.
    """
    selection = [((1 - fail) * p, (1 - fail) * q) for p, q in pair]
    if openly:
        return [*selection, (fail, 0.0), (0.0, fail)]
    (p, q), (r, s), *rest = selection
    return [(p + fail, q), (r, s + fail), *rest]


def test_an_account_at_an_order_that_is_no_whole_number_is_charged_by_its_divergence():
    ledger = ny.throwaway(5, currency="renyi:17/2")
    account = ledger.register("toy@1", protects="person", neighboring="add-remove", rows=1)
    assert account.currency == Currency.read("renyi:8.5").text == "renyi:17/2"
    amount, _ = charge(ny.Gaussian(2), account.currency)
    assert F(17, 16) <= amount <= F(17, 16) * F(1 + 1e-12)


@pytest.mark.parametrize("currency", ["pure", "zcdp", "gdp", "renyi:2", "renyi:10"])
def test_filters_with_a_delta_hold_for_random_strategies(currency):
    """Releases that may fail outright: what is left keeps the budget, and failures add up to delta.

    The paths without an open failure have at least the mass 1 - delta, whatever was chosen, and any
    test of the whole gains at most what the filter's own curve says.
    """
    rng = random.Random(currency + "delta")
    kind, _, order = currency.partition(":")
    price = {
        "pure": lambda x: max(abs(math.log(p / q)) for p, q in x),
        "zcdp": rho,
        "gdp": lambda x: mu(x) ** 2,
        "renyi": lambda x: renyi(x, float(order)),
    }[kind]
    pairs = [random_pair(rng) for _ in range(2)] + [response(0.5), response(1.0)]
    menu = []
    for k, pair in enumerate(pairs):
        fail = F((0, 1, 3, 6)[k], 64)
        menu.append((failing(pair, float(fail), k != 2), (F(price(pair)), fail)))
    budget, delta = F(rng.uniform(0.5, 1.5)), F(7, 64)
    start = Filter(currency, budget, delta=delta)
    curve = start.tradeoff()
    claimed = {e: curve.delta(e).upper for e in (0.0, 0.4, 1.0, 2.0)}
    closest = failed = 0.0
    for _ in range(STRATEGIES // 2):
        law = played(rng, start, menu, 3)
        selection = [(p, q) for p, q in law if p and q]
        assert min(math.fsum(x) for x in zip(*selection, strict=True)) >= float(1 - delta) - SLACK
        failed = max(failed, math.fsum(p for p, q in law if not q))
        for epsilon, most in claimed.items():
            for way in (law, swapped(law)):
                result = hockey_stick(way, epsilon)
                assert result <= most + SLACK
                closest = max(closest, result / most)
    assert failed > 0
    assert closest > 0.5


def test_filters_with_a_delta_hold_exactly_in_units_of_log_two():
    rng = random.Random(5)
    menu = []
    for k in (1, 2):
        high, fail = F(2**k, 1 + 2**k), F(k, 16)
        selection = 1 - fail
        pair = [
            (selection * high, selection * (1 - high)),
            (selection * (1 - high), selection * high),
        ]
        menu.append(([*pair, (fail, F(0)), (F(0), fail)], (k, fail)))
        menu.append(([(1 - fail, F(1)), (fail, F(0))], (0, fail)))  # there with the record only
    reached = F(0)
    for _ in range(STRATEGIES):
        budget, delta = rng.randint(0, 4), F(rng.randint(1, 4), 16)
        law = played(rng, Filter("pure", F(budget), delta=delta), menu, 4)
        for way in (law, swapped(law)):
            result = sum(max(p - 2**budget * q, F(0)) for p, q in way)
            assert result <= delta
            reached = max(reached, result / delta)
    assert reached == 1


def test_a_random_subset_is_paid_in_delta():
    now = Filter("zcdp", 1, delta="1/10").after(RandomSubset(9, 100))
    assert (now.spent, now.spent_delta, now.left_delta) == (0, F(9, 100), F(1, 100))
    assert now.admits(RandomSubset(1, 100) + ny.Gaussian(1))
    assert not now.admits(RandomSubset(11, 1000))
    assert not Filter("zcdp", 1).admits(RandomSubset(1, 10**9))
    with pytest.raises(ValueError, match=r"delta 0.011, but 0.01 .* left: 0.001 .* 1/100 fits"):
        now.after(RandomSubset(11, 1000))
    with pytest.raises(ValueError, match="an odometer does not read"):
        Odometer("zcdp", 1).after(RandomSubset(1, 100))


def test_there_is_no_natural_filter_for_curves():
    leak = [(0.3, 0.0), (0.0, 0.3), (0.7, 0.7)]
    second = {"RR(1)": response(1.0), "leak": leak}
    curves = {"RR(1)": ny.pure("1/2") @ ny.pure(1), "leak": ny.pure("1/2") @ ny.approximate(0, 0.3)}

    def law(after_first, after_second):
        follow = (second[after_first], second[after_second])
        return [
            (p * x, q * y)
            for (p, q), further in zip(response(0.5), follow, strict=True)
            for x, y in further
        ]

    for name in second:
        value = hockey_stick(law(name, name), 0.5)
        assert value <= 0.3 + 1e-12
        assert curves[name].delta(0.5).upper == pytest.approx(value, abs=1e-12)
    mixed = max(hockey_stick(law(a, b), 0.5) for a in second for b in second)
    assert round(mixed, 4) == 0.4009
    for currency in ("f-dp", "curve", "approximate", "epsilon-delta", ""):
        with pytest.raises(ValueError, match="trade-off curves"):
            Filter(currency, F(1))


def test_filters_count_exactly():
    now = Filter("zcdp", 1)
    for _ in range(10):
        now = now.after(0.1)
    assert now.left == 0
    assert now.admits(0)
    assert not now.admits("1e-9")
    assert now.after(0) == now


def test_filters_do_not_change():
    """What is spent is in the filter that is returned, not in the one that was asked."""
    first = Filter("pure", "3/2")
    second = first.after(ny.Laplace(1))
    assert (first.spent, first.left, second.spent, second.left) == (0, F(3, 2), 1, F(1, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.spent = F(1)  # type: ignore[misc]
    assert Filter("pure", "3/2", 1) == second


@pytest.mark.parametrize(
    ("currency", "release", "cost"),
    [
        ("pure", ny.Laplace(2) * 3, F(3, 2)),
        ("zcdp", ny.Gaussian(2), F(1, 8)),
        ("gdp", ny.Gaussian(1), F(1)),
        ("gdp", ny.Gaussian(2) * 3 + ny.Gaussian(1), F(7, 4)),
        ("zcdp", ny.Gaussian(1) * 0, F(0)),
    ],
)
def test_mechanisms_cost_what_is_proven(currency, release, cost):
    assert Filter(currency, cost).admits(release)
    assert Filter(currency, cost).after(release).left == 0


def test_what_nothing_pays_for_is_refused():
    large = Filter("pure", 10**6)
    assert not large.admits(ny.Gaussian(1))
    with pytest.raises(ValueError, match="costs inf in 'pure'"):
        large.after(ny.Gaussian(1))
    with pytest.raises(ValueError, match="no finite amount"):
        Odometer("pure", 1).after(ny.Gaussian(1))


def test_odometers_read_the_next_multiple():
    now = Odometer("zcdp", "1/4")
    assert now.reading == 0
    for cost, reading in ((F(1, 8), F(1, 4)), (F(1, 8), F(1, 4)), ("0.001", F(1, 2))):
        now = now.after(cost)
        assert now.reading == reading
        assert Filter("zcdp", now.reading).admits(now.spent)


def test_a_filter_knows_its_curve():
    assert Filter("pure", 1).tradeoff() == ny.pure(1)
    assert Filter("zcdp", "1/8").tradeoff() == ny.zcdp("1/8")
    curve = Filter("gdp", 2).tradeoff()
    assert curve.gdp().upper >= math.sqrt(2)
    assert curve.gdp().upper < math.sqrt(2) * (1 + 1e-12)
    assert Filter("renyi:4", "1/2").tradeoff() == renyi_curve({4: "1/2"})
    assert Filter("pure", 1, delta="1/8").tradeoff() == ny.approximate(1, 0.125)


@pytest.mark.parametrize("currency", ["pure", "zcdp", "gdp", "renyi:3"])
def test_a_delta_is_part_of_the_curve(currency):
    selection = Filter(currency, "1/2").tradeoff()
    curve = Filter(currency, "1/2", delta="1/8").tradeoff()
    for epsilon in (0.1, 0.9):
        mixed = 1 / 8 + 7 / 8 * selection.delta(epsilon).upper
        assert mixed <= curve.delta(epsilon).upper * (1 + 1e-9)
        assert curve.delta(epsilon).upper <= mixed * (1 + 1e-6)
