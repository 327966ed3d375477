"""dp_accounting beside Neyman: events, its calibration, its loss distributions, both ways."""

from __future__ import annotations

import math
import subprocess
import sys

import dp_accounting
import mpmath as mp
import numpy as np
import pytest
from dp_accounting import dp_event as ev
from dp_accounting import privacy_accountant_test as peer_tests
from dp_accounting.pld import PLDAccountant, common
from dp_accounting.pld import privacy_loss_distribution as peer

import neyman as ny
from neyman import NonPrivate
from neyman.accounting import NeymanAccountant, from_dp_event, from_pld, to_pld

ADD, REPLACE, SPECIAL = dp_accounting.NeighboringRelation
Poisson, Truncated = ev.PoissonSampledDpEvent, ev.TruncatedSubsampledGaussianDpEvent
Repeated, Without = ev.SelfComposedDpEvent, ev.SampledWithoutReplacementDpEvent
Together, Open = ev.ComposedDpEvent, ev.NonPrivateDpEvent
RELATION = {ADD: "add-remove", REPLACE: "replace-one"}
GAUSS = ev.GaussianDpEvent(1.1)
INTERVAL = 1e-3

FLAT = ev.LaplaceDpEvent(1.7)
SUPPORTED = {
    "nothing": ev.NoOpDpEvent(),
    "not private": Open(),
    "gaussian": GAUSS,
    "gaussian without noise": ev.GaussianDpEvent(0.0),
    "laplace": FLAT,
    "laplace without noise": ev.LaplaceDpEvent(0.0),
    "discrete laplace": ev.DiscreteLaplaceDpEvent(0.4, 3),
    "randomized response": ev.RandomizedResponseDpEvent(0.4, 5),
    "two answers": ev.RandomizedResponseDpEvent(0.7, 2),
    "truthful response": ev.RandomizedResponseDpEvent(0.0, 5),
    "one answer": ev.RandomizedResponseDpEvent(0.5, 1),
    "poisson gaussian": Poisson(0.05, GAUSS),
    "poisson laplace": Poisson(0.1, ev.LaplaceDpEvent(0.8)),
    "never": Poisson(0.0, GAUSS),
    "always": Poisson(1.0, GAUSS),
    "poisson, no noise": Poisson(0.1, ev.GaussianDpEvent(0.0)),
    "mixture": ev.MixtureOfGaussiansDpEvent(1.5, [0.0, 1.0, 2.0], [0.6, 0.3, 0.1]),
    "self-composed": Repeated(Poisson(0.05, GAUSS), 40),
    "composed": Together(
        [GAUSS, ev.LaplaceDpEvent(2.0), Repeated(ev.DiscreteLaplaceDpEvent(0.1, 1), 9)]
    ),
    "an empty list": Together([]),
}


class TestNeymanAccountant(peer_tests.PrivacyAccountantTest):
    """Every test that dp_accounting has for accountants, on both relations."""

    def _make_test_accountants(self):
        return [NeymanAccountant(relation) for relation in (ADD, REPLACE)]


def test_delta_at_infinity_is_the_mass_that_reveals_all():
    for relation in (ADD, REPLACE):
        ours = NeymanAccountant(relation)
        ours.compose(Repeated(Poisson(0.1, ev.GaussianDpEvent(0)), 2))
        assert 0.19 <= ours.get_delta(math.inf) <= 0.19 * (1 + 1e-14)
        assert ours.get_epsilon(1) == 0
        ours.compose(GAUSS)
        assert 0.19 <= ours.get_delta(math.inf) <= ours.get_delta(50)


def test_the_accountant_passes_for_a_peer_and_takes_no_arithmetic_from_it():
    assert isinstance(NeymanAccountant(), PLDAccountant)
    taken = {name for name in vars(PLDAccountant) if callable(getattr(PLDAccountant, name))}
    assert {"_maybe_compose", "get_epsilon", "get_delta", "__init__"} <= taken
    assert taken <= vars(NeymanAccountant).keys()
    for name in vars(PLDAccountant()).keys() - vars(NeymanAccountant()).keys():
        with pytest.raises(AttributeError, match=f"no {name}: it composes no distributions"):
            getattr(NeymanAccountant(), name)


def test_a_rate_may_be_an_array_of_one_number():
    rate = np.array(0.01, np.float32)
    sent, plain = (
        NeymanAccountant().compose(Poisson(one, GAUSS), 10).get_epsilon(1e-5)
        for one in (rate, float(rate))
    )
    assert sent == plain > 0


def accountant(relation):
    return PLDAccountant(relation, value_discretization_interval=INTERVAL)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("name", SUPPORTED)
def test_the_same_event_has_the_same_epsilon(name, relation):
    event = SUPPORTED[name]
    theirs = accountant(relation)
    if not theirs.supports(event):
        return
    theirs.compose(event)
    mechanism = from_dp_event(event, RELATION[relation])
    for delta in (1e-2, 1e-5):
        epsilon = theirs.get_epsilon(delta)
        ours = mechanism.tradeoff(RELATION[relation]).epsilon(delta)
        if math.isinf(epsilon):
            assert math.isinf(ours.upper)
            continue
        assert ours.lower <= epsilon * (1 + 1e-12) + 1e-12
        assert epsilon <= ours.upper * (1 + 1e-3) + 2 * INTERVAL


@pytest.mark.parametrize("name", SUPPORTED)
def test_whatever_the_peer_supports_is_supported(name):
    for relation in (ADD, REPLACE):
        if accountant(relation).supports(SUPPORTED[name]):
            assert NeymanAccountant(relation).supports(SUPPORTED[name])


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("n", "rate", "limit"), [(1000, 0.01, 20), (10, 0.9, 3), (50, 0.5, 50)])
def test_a_truncated_batch_is_no_worse_than_the_peer_says(n, rate, limit, relation):
    event = Truncated(n, rate, limit, 1.0)
    theirs = accountant(relation).compose(event)
    ours = from_dp_event(event, RELATION[relation]).tradeoff()
    plain = Poisson(0.9 * rate * limit / n, GAUSS)
    less = from_dp_event(plain, RELATION[relation]).tradeoff()
    for epsilon in (0.0, 0.3, 2.0):
        delta = ours.delta(epsilon)
        assert delta.lower <= theirs.get_delta(epsilon) * (1 + 1e-2)
        assert less.delta(epsilon).lower <= delta.upper


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("limit", "count"), [(12, 1), (12, 100), (20, 1), (20, 100)])
def test_truncated_batches_are_as_tight_as_the_peer_says(limit, count, relation):
    event = Truncated(1000, 0.01, limit, 1.0)
    theirs = PLDAccountant(relation).compose(event, count)
    ours = NeymanAccountant(relation).compose(event, count)
    assert ours.get_epsilon(1e-5) <= theirs.get_epsilon(1e-5)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 100, [3, 9, 2]])
def test_a_tree_moves_every_node_above_a_leaf(steps):
    event = ev.SingleEpochTreeAggregationDpEvent(4.0, steps)
    largest = max(steps) if isinstance(steps, list) else steps
    above = [0] * largest
    for level in range(largest.bit_length()):
        for start in range(0, largest - 2**level + 1, 2**level):
            for leaf in range(start, start + 2**level):
                above[leaf] += 1
    mu = ny.gdp(math.sqrt(max(above)) * 2 / 4.0)
    epsilon = NeymanAccountant(REPLACE).compose(event).get_epsilon(1e-6)
    assert mu.epsilon(1e-6).lower <= epsilon <= mu.epsilon(1e-6).upper * (1 + 1e-9)


def test_trees_are_checked_and_need_fixed_leaves():
    tree = ev.SingleEpochTreeAggregationDpEvent
    assert not NeymanAccountant(ADD).supports(tree(1.0, 8))
    assert NeymanAccountant(REPLACE).compose(tree(1.0, 0)).get_epsilon(0) == 0
    assert NeymanAccountant(REPLACE).compose(tree(0.0, 3)).get_epsilon(0.5) == math.inf
    for steps in ([], -1, [3, -2], 2.5):
        with pytest.raises(ValueError, match="step_counts"):
            from_dp_event(tree(1.0, steps), "replace-one")


def newer(name, **fields):
    """An event of a version of the peer that is not released: read by its name and fields."""
    event = type(name, (ev.DpEvent,), {})()
    for field, value in fields.items():
        object.__setattr__(event, field, value)
    return event


@pytest.mark.parametrize(
    ("event", "add", "replace"),
    [
        (
            newer("DiscreteGaussianDpEvent", sigma=2.0, sensitivity=1.5, dimension=1),
            ny.DiscreteGaussian(2, 1),
            ny.DiscreteGaussian(2, 3),
        ),
        (
            newer("DiscreteGaussianDpEvent", sigma=2.0, sensitivity=1.5, dimension=None),
            ny.DiscreteGaussian(2, squared_norm=2),
            ny.DiscreteGaussian(2, squared_norm=9),
        ),
        (newer("ExponentialMechanismDpEvent", epsilon=0.5), *[ny.ExponentialMechanism(0.5)] * 2),
        (
            newer("PermuteAndFlipDpEvent", epsilon=0.5),
            *[ny.ReportNoisyMax(1, 0.25, noise="exponential")] * 2,
        ),
        (
            newer("RandomAllocationDpEvent", event=GAUSS, num_selected=1, num_steps=8),
            ny.Gaussian(1.1).random_allocation(8),
            None,
        ),
        (
            newer("RandomAllocationDpEvent", event=GAUSS, num_selected=8, num_steps=8),
            ny.Gaussian(1.1) * 8,
            ny.Gaussian(1.1, 2) * 8,
        ),
        (
            newer("RandomAllocationDpEvent", event=GAUSS, num_selected=2, num_steps=8),
            ny.Gaussian(1.1).random_allocation(8, times=2),
            None,
        ),
        (newer("RandomAllocationDpEvent", event=FLAT, num_selected=1, num_steps=8), None, None),
        (
            newer("RepeatAndSelectDpEvent", event=GAUSS, mean=3.0, shape=1.0),
            ny.select_best(ny.Gaussian(1.1), runs=ny.Runs.geometric(mean=3.0)),
            ny.select_best(ny.Gaussian(1.1, 2), runs=ny.Runs.geometric(mean=3.0)),
        ),
        (
            newer("RepeatAndSelectDpEvent", event=GAUSS, mean=3.0, shape=math.inf),
            ny.select_best(ny.Gaussian(1.1), runs=ny.Runs.poisson(mean=3.0)),
            ny.select_best(ny.Gaussian(1.1, 2), runs=ny.Runs.poisson(mean=3.0)),
        ),
    ],
)
def test_events_of_the_peer_that_are_not_released_are_read_or_refused_by_name(event, add, replace):
    for relation, mechanism in (("add-remove", add), ("replace-one", replace)):
        if mechanism is None:
            with pytest.raises(ValueError, match=type(event).__name__):
                from_dp_event(event, relation)
        else:
            ours = from_dp_event(event, relation).tradeoff()
            assert ours.delta(0.7) == mechanism.tradeoff().delta(0.7)


def test_an_event_of_epsilon_and_delta_has_the_worst_curve_of_both():
    event = newer("EpsilonDeltaDpEvent", epsilon=0.5, delta=0.01)
    worst = ny.approximate(0.5, 0.01)
    mechanism = from_dp_event(event, "replace-one")
    ours, twice = mechanism.tradeoff(), (mechanism * 2).tradeoff()
    for epsilon in (0.0, 0.2, 0.5, 0.8):
        assert ours.delta(epsilon).upper == pytest.approx(worst.delta(epsilon).upper, rel=1e-9)
        pair = (worst @ worst).delta(epsilon).upper
        assert twice.delta(epsilon).upper == pytest.approx(pair, rel=1e-6)
    with pytest.raises(ValueError, match="approximate"):
        from_dp_event(event)
    pure = from_dp_event(newer("EpsilonDeltaDpEvent", epsilon=0.5, delta=0.0))
    assert pure.tradeoff().delta(0.1).upper == ny.pure(0.5).delta(0.1).upper
    everything = from_dp_event(newer("EpsilonDeltaDpEvent", epsilon=math.inf, delta=0.0))
    assert everything == ny.NonPrivate()


def test_mixtures_of_gaussians_are_as_tight_as_the_peer_says():
    event = ev.MixtureOfGaussiansDpEvent(1.5, [0.0, 1.0, 2.0], [0.6, 0.3, 0.1])
    theirs = accountant(ADD).compose(event, 10)
    ours = NeymanAccountant(ADD).compose(event, 10)
    assert ours.get_epsilon(1e-5) <= theirs.get_epsilon(1e-5)


def batch_sums(others, rate, limit, value):
    """The distribution of a truncated batch's sum: every other record is -1, the one in question a
    value.
    """
    law: dict[float, float] = {}

    def add(total, mass):
        law[total] = law.get(total, 0.0) + mass

    for k in range(others + 1):
        mass = math.comb(others, k) * rate**k * (1 - rate) ** (others - k)
        joins = 0.0 if value is None else rate * min(1.0, limit / (k + 1))
        add(-min(k, limit), mass * (1 - joins))
        if value is not None:
            add(value - min(k, limit - 1), mass * joins)
    return law


@pytest.mark.parametrize(("rate", "limit"), [(0.9, 3), (0.3, 2), (0.5, 10), (0.2, 1)])
def test_truncated_batches_never_tell_more_than_their_bound(rate, limit):
    n, y = 10, np.linspace(-24.0, 16.0, 40_001)
    event = Truncated(n, rate, limit, 1.0)

    def density(others, value):
        law = batch_sums(others, rate, limit, value)
        parts = [m * np.exp(-((y - c) ** 2) / 2) for c, m in law.items()]
        return np.sum(parts, axis=0) / math.sqrt(math.tau)

    cases = [("add-remove", m, 1.0, None) for m in (n - 1, n)]
    cases += [("replace-one", n - 1, 1.0, v) for v in (-1.0, 0.0)]
    for relation, others, value, other in cases:
        bound = from_dp_event(event, relation).tradeoff()
        p, q = density(others, value), density(others, other)
        for epsilon in (0.0, 0.4, 1.5):
            gain = max(
                np.maximum(a - math.exp(epsilon) * b, 0.0).sum() for a, b in ((p, q), (q, p))
            )
            assert gain * (y[1] - y[0]) <= bound.delta(epsilon).upper + 1e-9


def binomial(n, k, rate):
    return mp.binomial(n, k) * mp.mpf(rate) ** k * (1 - mp.mpf(rate)) ** (n - k)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("n", "rate", "limit", "sigma"),
    [(4, 0.9, 1, 0.5), (9, 0.99, 2, 0.3), (9, 0.5, 4, 1.0), (8, 1.0, 3, 1.0), (8, 0.2, 8, 0.5)],
)
def test_truncated_batches_have_the_mean_of_their_classes(n, rate, limit, sigma, relation):
    with mp.workdps(30):

        def moved(norm):
            return mp.erf(norm / (2 * mp.mpf(sigma) * mp.sqrt(2)))

        q, edge = mp.mpf(rate), mp.mpf(0)
        p = [binomial(n - 1, k, rate) for k in range(n)]
        if relation == "add-remove" and limit <= n:
            edge = p[limit - 1] * q
        below = (mp.fsum(p[:limit]) - edge) * q * moved(1 if relation == "add-remove" else 2)
        above = mp.fsum(p[k] * q * limit / (k + 1) for k in range(limit, n)) + edge * q
        truth = below + above * moved(2)
    event = Truncated(n, rate, limit, sigma)
    upper = from_dp_event(event, relation).tradeoff().delta(0).upper
    assert truth <= upper <= truth * (1 + 1e-7)


@pytest.mark.parametrize(
    ("n", "rate", "limit"), [(6, 0.3, 2), (6, 0.9, 1), (5, 1.0, 3), (5, 0.4, 9)]
)
def test_truncated_batches_without_noise_tell_who_is_in_them(n, rate, limit):
    event = Truncated(n, rate, limit, 0.0)
    p = [float(binomial(n - 1, k, rate)) for k in range(n)]
    used = math.fsum(m * rate * min(1, limit / (k + 1)) for k, m in enumerate(p))
    delta = from_dp_event(event, "replace-one").tradeoff().delta(0.5)
    assert delta.lower * (1 - 1e-8) <= used <= delta.upper * (1 + 1e-15)
    f = from_dp_event(event, "add-remove").tradeoff()
    for others in (n - 1, n):
        there, away = {"in it": 0.0}, {"in it": 0.0}
        for k in range(others + 1):
            mass, size = float(binomial(others, k, rate)), min(k, limit)
            share = rate * min(1, limit / (k + 1))
            there["in it"] += mass * share
            there[size] = there.get(size, 0.0) + mass * (1 - share)
            away[size] = away.get(size, 0.0) + mass
        for epsilon in (0.0, 0.05, 0.7):
            for a, b in ((there, away), (away, there)):
                gain = math.fsum(max(a[x] - math.exp(epsilon) * b[x], 0.0) for x in a)
                assert gain <= f.delta(epsilon).upper * (1 + 1e-12)


@pytest.mark.parametrize(
    ("n", "rate"), [(50, 0.3), (10**5, 0.01), (10**6, 0.3), (10**9, 1e-4), (10**12, 1e-8)]
)
def test_tails_of_the_batch_size_are_certified(n, rate):
    def tail(k, n):
        first = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
        term, total = mp.exp(first + k * mp.log(rate) + (n - k) * mp.log1p(-mp.mpf(rate))), 0
        for j in range(k, n + 1):
            total += term
            term *= mp.mpf(n - j) / (j + 1) * rate / (1 - mp.mpf(rate))
            if term < total * mp.mpf(10) ** -16:
                break
        return total

    spread = math.sqrt(n * rate * (1 - rate))
    for limit in (math.ceil(n * rate + z * spread) for z in (0.1, 1, 3)):
        event = Truncated(n, rate, limit, 0.0)
        delta = from_dp_event(event, "replace-one").tradeoff().delta(0.5)
        with mp.workdps(40):
            missed = tail(limit, n - 1) - mp.mpf(limit) / n / rate * tail(limit + 1, n)
            truth = (1 - missed) * rate
            assert delta.lower * (1 - 1e-8) <= truth <= delta.upper * (1 + 1e-15)
            assert delta.width <= 1e-7 * truth


def test_a_batch_that_is_never_full_is_poisson():
    event = Truncated(100, 0.01, 60, 1.0)
    plain = ny.Gaussian(1).subsample(rate=0.01).tradeoff().epsilon(1e-6)
    epsilon = from_dp_event(event).tradeoff().epsilon(1e-6)
    assert epsilon.upper == pytest.approx(plain.upper, rel=1e-9)


REFUSED = {
    "UnsupportedDpEvent": ev.UnsupportedDpEvent(),
    "SampledWithReplacementDpEvent": ev.SampledWithReplacementDpEvent(100, 5, GAUSS),
    "SingleEpochTreeAggregationDpEvent": ev.SingleEpochTreeAggregationDpEvent(1.0, 8),
    "RepeatAndSelectDpEvent": ev.RepeatAndSelectDpEvent(Open(), 2.0, 1.0),
    "ZCDpEvent": ev.ZCDpEvent(0.1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_certified_loss_is_refused_by_name(name):
    for event in (REFUSED[name], Together([GAUSS, REFUSED[name]])):
        with pytest.raises(ValueError, match=name):
            from_dp_event(event)
        assert not NeymanAccountant().supports(event)
        with pytest.raises(dp_accounting.UnsupportedEventError, match=name):
            NeymanAccountant().compose(event)


@pytest.mark.parametrize(
    ("event", "neighboring", "said"),
    [
        (ev.RandomizedResponseDpEvent(0.5, 3), "add-remove", "replace-one"),
        (SUPPORTED["mixture"], "replace-one", "add-remove"),
        (Without(100, 5, GAUSS), "add-remove", "replace-one"),
        (Poisson(0.1, SUPPORTED["discrete laplace"]), "replace-one", "proven"),
        (Poisson(0.1, SUPPORTED["two answers"]), "replace-one", "add-remove"),
        (GAUSS, "special", "neighboring"),
        (Without(4, 5, GAUSS), "replace-one", "sample_size = 5 must be at most 4"),
        (Without(10**19, 5, GAUSS), "replace-one", "ReplacementDpEvent.*population"),
        (Without(4, 2, Without(50, 1, GAUSS)), "replace-one", "needs 50 records"),
        (Without(4, 2, Without(50, 1, Open())), "replace-one", "needs 50 records"),
        (Without(9, 2, Together([GAUSS, Without(3, 1, GAUSS)])), "replace-one", "needs 3 records"),
        (Without(9, 2, Truncated(7, 0.1, 5, 1.0)), "replace-one", "needs 7 records"),
        (Poisson(0.5, Truncated(7, 0.1, 5, 1.0)), "add-remove", "no fixed size"),
        (ev.GaussianDpEvent(-1.0), "add-remove", "noise_multiplier = -1.0"),
        (ev.GaussianDpEvent(math.nan), "add-remove", "noise_multiplier = nan"),
        (ev.LaplaceDpEvent(math.inf), "add-remove", "noise_multiplier = inf"),
        (ev.DiscreteLaplaceDpEvent(0.0, 1), "add-remove", "noise_parameter = 0.0"),
        (Poisson(1.2, GAUSS), "add-remove", "sampling_probability = 1.2"),
        (Repeated(GAUSS, -1), "add-remove", "count = -1"),
        (ev.MixtureOfGaussiansDpEvent(1.0, [1.0], [0.5]), "add-remove", "probabilities"),
        (Truncated(0, 0.1, 5, 1.0), "add-remove", "dataset_size = 0"),
        (Truncated(10**400, 0.1, 5, 1.0), "add-remove", "dataset_size = 1"),
        (Poisson(5e-324, GAUSS), "add-remove", "sampling_probability = 5e-324"),
        (Poisson(1e-200, Poisson(1e-200, GAUSS)), "add-remove", "rate = "),
        (Poisson(1e-200, Poisson(1e-200, Open())), "add-remove", "rate = "),
        (3, "add-remove", "event = 3"),
    ],
)
def test_events_that_cannot_be_read_are_refused_by_name(event, neighboring, said):
    with pytest.raises((TypeError, ValueError), match=said):
        from_dp_event(event, neighboring)


def test_replacing_moves_twice_as_far():
    assert from_dp_event(GAUSS, "replace-one") == ny.Gaussian(1.1, 2)
    assert from_dp_event(ev.LaplaceDpEvent(2.0), "replace-one") == ny.Laplace(2.0, 2)
    fixed = from_dp_event(Without(100, 5, GAUSS), "replace-one")
    assert fixed == ny.Gaussian(1.1, 2).subsample(size=5, population=100)
    poisson = from_dp_event(Poisson(0.1, GAUSS), "replace-one")
    assert poisson.neighboring == "replace-one"


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_poisson_sample_of_a_poisson_sample_is_one(relation):
    event = Poisson(0.5, Poisson(0.25, GAUSS))
    result = from_dp_event(event, relation)
    assert result == ny.Gaussian(1.1).subsample(rate=0.125, neighboring=relation)
    sampled = ny.Gaussian(1.1).subsample(rate=0.25, neighboring=relation)
    assert result == sampled.subsample(rate=0.5, neighboring=relation)


def test_rates_multiply_where_all_is_revealed():
    revealed = Poisson(0.5, Open())
    event = Without(10, 5, revealed)
    delta = from_dp_event(event, "replace-one").tradeoff().delta(1.0)
    assert delta.lower <= 0.25 <= delta.upper < 0.2500001
    nested = Without(10, 5, Without(5, 1, Open()))
    assert from_dp_event(nested, "replace-one").rate == pytest.approx(0.1)


def test_more_is_supported_than_the_peer_supports():
    for inner in (
        Repeated(GAUSS, 3),
        Together([GAUSS, ev.LaplaceDpEvent(1.0)]),
        ev.DiscreteLaplaceDpEvent(0.5, 2),
        Poisson(0.5, GAUSS),
    ):
        curve = from_dp_event(Poisson(0.1, inner)).tradeoff()
        total = from_dp_event(inner).tradeoff()
        assert curve.delta(0.2).upper < total.delta(0.2).lower


# The accountant


def test_the_accountant_adds_up_and_answers_with_the_safe_end():
    """As the mechanism that was composed; its ledger is the peer's own."""
    step = Poisson(0.02, GAUSS)
    a = NeymanAccountant().compose(step, 300).compose(ev.LaplaceDpEvent(5.0))
    assert a.mechanism == ny.Gaussian(1.1).subsample(rate=0.02) * 300 + ny.Laplace(5.0)
    f = a.mechanism.tradeoff()
    assert a.get_epsilon(1e-6) == f.epsilon(1e-6).upper
    assert a.get_delta(1.0) == pytest.approx(f.delta(1.0).upper, rel=1e-8)
    assert a.get_epsilon(1e-30) == pytest.approx(f.epsilon(1e-30).upper, rel=1e-8)
    assert isinstance(a.ledger, Together)
    assert NeymanAccountant().get_epsilon(1e-6) == 0
    assert a.get_epsilon(1.0) == 0
    with pytest.raises(ValueError, match=r"target_delta = 1\.5"):
        a.get_epsilon(1.5)
    assert NeymanAccountant().compose(Open()).get_epsilon(1e-6) == math.inf


def test_the_relation_decides():
    assert NeymanAccountant(REPLACE).compose(GAUSS).get_epsilon(1e-5) == pytest.approx(
        ny.Gaussian(1.1, 2).tradeoff().epsilon(1e-5).upper
    )
    with pytest.raises(ValueError, match="neighboring_relation"):
        NeymanAccountant(SPECIAL)


def test_their_calibration_finds_a_noise_that_keeps_the_promise():
    target = ny.approximate(2.0, 1e-6)

    def event(sigma):
        return Repeated(Poisson(0.01, ev.GaussianDpEvent(sigma)), 2_000)

    sigma = dp_accounting.calibrate_dp_mechanism(
        NeymanAccountant, event, 2.0, 1e-6, dp_accounting.ExplicitBracketInterval(0.3, 10.0)
    )
    assert from_dp_event(event(sigma)).tradeoff().epsilon(1e-6).upper <= 2.0
    own = ny.calibrate(lambda s: ny.Gaussian(s).subsample(rate=0.01) * 2_000, target)
    assert abs(sigma - own) <= 2e-6


def test_their_calibration_starts_at_no_noise_at_all():
    sigma = dp_accounting.calibrate_dp_mechanism(
        NeymanAccountant, ev.GaussianDpEvent, 1.0, 1e-5, tol=1e-4
    )
    assert ny.Gaussian(sigma).tradeoff().epsilon(1e-5).upper <= 1.0
    assert ny.Gaussian(sigma - 2e-4).tradeoff().epsilon(1e-5).lower > 1.0

    def truncated(sigma):
        return Truncated(50, 0.1, 8, sigma)

    sigma = dp_accounting.calibrate_dp_mechanism(NeymanAccountant, truncated, 1.0, 1e-5, tol=1e-2)
    assert from_dp_event(truncated(sigma)).tradeoff().epsilon(1e-5).upper <= 1.0


def test_their_calibration_counts_steps():
    step = Poisson(0.01, GAUSS)
    steps = dp_accounting.calibrate_dp_mechanism(
        NeymanAccountant,
        lambda n: Repeated(step, n),
        1.0,
        1e-6,
        dp_accounting.ExplicitBracketInterval(1, 5_000),
        discrete=True,
    )
    one = from_dp_event(step)
    assert (one * steps).tradeoff().epsilon(1e-6).upper <= 1.0
    assert (one * (steps + 1)).tradeoff().epsilon(1e-6).lower > 1.0


# Loss distributions

MECHANISMS = {
    "laplace": ny.Laplace(1),
    "gaussian": ny.Gaussian(1),
    "poisson gaussian": ny.Gaussian(1).subsample(rate=0.1),
    "training": ny.Gaussian(1).subsample(rate=0.01) * 500,
    "response": ny.RandomizedResponse(1.0, 3) * 4,
    "discrete gaussian": ny.DiscreteGaussian(3),
    "a guarantee": ny.approximate(0.5, 1e-3),
    "nothing": ny.perfect(),
    "not private": NonPrivate(),
}
EPSILONS = np.array([-6.0, -2.0, -0.3, 0.0, 0.2505, 0.7, 1.9, 4.0])


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_is_exported_dominates(name):
    f = MECHANISMS[name].tradeoff()
    pld = to_pld(f, 2e-3)
    result = pld.get_delta_for_epsilon(EPSILONS)
    low = np.max([p.log_deltas(EPSILONS)[0] for p in f.profiles], axis=0)
    high = np.max([p.log_deltas(EPSILONS)[1] for p in f.profiles], axis=0)
    assert np.all(result * (1 + 1e-14) >= np.exp(low))
    assert np.all(result <= np.exp(high) * (1 + 1e-4) + 1e-14)


def test_what_is_exported_keeps_its_directions_apart():
    m = ny.Gaussian(1).subsample(rate=0.1)
    pld = to_pld(m, INTERVAL).self_compose(30)
    ours = (m * 30).tradeoff()
    theirs = peer.from_gaussian_mechanism(
        1.0, value_discretization_interval=INTERVAL, sampling_prob=0.1
    ).self_compose(30)
    for epsilon in (0.5, 2.0):
        result = pld.get_delta_for_epsilon(epsilon)
        assert ours.delta(epsilon).lower <= result
        assert result == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-5)


def test_an_export_composes_with_their_distributions():
    ours = to_pld(ny.Laplace(2))
    both = ours.compose(peer.from_laplace_mechanism(1.0))
    truth = (ny.Laplace(2) + ny.Laplace(1)).tradeoff().epsilon(1e-3)
    assert truth.lower <= both.get_epsilon_for_delta(1e-3) <= truth.upper + 1e-4


def test_several_shifts_are_all_dominated():
    m = ny.DiscreteGaussian(1, [(2,), (1, 1, 1, 1)])
    pld = to_pld(m, INTERVAL)
    for epsilon in (0.1, 1.0, 3.0):
        assert pld.get_delta_for_epsilon(epsilon) >= m.tradeoff().delta(epsilon).lower


def theirs(**options):
    return peer.from_gaussian_mechanism(
        1.0, value_discretization_interval=2e-3, sampling_prob=0.2, **options
    )


IMPORTED = {
    "dots": theirs,
    "buckets": lambda: theirs(use_connect_dots=False),
    "composed": lambda: theirs().self_compose(20),
    "laplace": lambda: peer.from_laplace_mechanism(0.7, value_discretization_interval=2e-3),
    "sparse": lambda: peer.from_randomized_response(0.3, 4, value_discretization_interval=2e-3),
    "guarantee": lambda: peer.from_privacy_parameters(
        common.DifferentialPrivacyParameters(1.0, 1e-3), value_discretization_interval=2e-3
    ),
    "identity": lambda: peer.identity(2e-3),
}


@pytest.mark.parametrize("name", IMPORTED)
def test_what_is_imported_is_what_was_stated(name):
    pld = IMPORTED[name]()
    f = from_pld(pld, 2e-3, "add-remove")
    assert f.neighboring == "add-remove"
    reference = pld.get_delta_for_epsilon(EPSILONS)
    low = np.max([p.log_deltas(EPSILONS)[0] for p in f.profiles], axis=0)
    high = np.max([p.log_deltas(EPSILONS)[1] for p in f.profiles], axis=0)
    # Masses of theirs may add up to a little more than 1, which is not taken over.
    slack = np.where(EPSILONS < 0, 1e-10, 0.0)
    assert np.all(np.exp(high) * (1 + 1e-12) + slack >= reference)
    assert np.all(np.exp(low) <= reference * (1 + 1e-8) + 1e-14)
    assert f.delta(0.1).method.startswith("upper bound stated by a pessimistic PLD")
    if name != "identity":
        assert "not certified here" in f.power(0.05).method
        said = ny.risk.reidentification(20).success(f).sentence()
        assert said.startswith("Upper bound stated by a pessimistic PLD, not certified here. An at")


@pytest.mark.parametrize("name", ["dots", "buckets", "sparse"])
def test_what_is_imported_composes(name):
    pld = IMPORTED[name]()
    f = from_pld(pld, 2e-3) ** 6
    total = pld.self_compose(6)
    for delta in (1e-2, 1e-6):
        epsilon = f.epsilon(delta)
        assert epsilon.upper == pytest.approx(total.get_epsilon_for_delta(delta), rel=1e-6)


def test_what_is_imported_composes_with_a_mechanism():
    f = from_pld(theirs(), 2e-3) @ ny.Gaussian(2).tradeoff()
    truth = (ny.Gaussian(1).subsample(rate=0.2) + ny.Gaussian(2)).tradeoff().epsilon(1e-5)
    epsilon = f.epsilon(1e-5)
    assert truth.lower <= epsilon.upper <= truth.upper * (1 + 1e-3)
    assert "stated by" in epsilon.method


def test_what_reveals_everything_is_imported_too():
    pld = to_pld(NonPrivate(), INTERVAL)
    assert from_pld(pld, INTERVAL).delta(5.0).upper == 1


def test_an_optimistic_estimate_is_refused():
    for make in (
        theirs(pessimistic_estimate=False, use_connect_dots=False),
        peer.identity(2e-3, pessimistic_estimate=False),
    ):
        with pytest.raises(ValueError, match="pessimistic_estimate=True"):
            from_pld(make, 2e-3)


def test_intervals_are_checked():
    with pytest.raises(ValueError, match="is not this"):
        from_pld(theirs())
    with pytest.raises(ValueError, match="too small"):
        to_pld(ny.Laplace(0.01), 1e-5)
    for call in (from_pld, to_pld):
        with pytest.raises(ValueError, match="interval"):
            call(ny.Laplace(1) if call is to_pld else theirs(), 0.0)
    with pytest.raises(ValueError, match="tail"):
        to_pld(ny.Laplace(1), 1e-2, tail=0.0)


def test_what_is_no_distribution_and_no_curve_is_refused_by_name():
    for wrong in (None, 3, "pld", ny.Laplace(1)):
        with pytest.raises(TypeError, match="pld = "):
            from_pld(wrong)
    for wrong in (None, 3, ny.Laplace):
        with pytest.raises(TypeError, match="of = "):
            to_pld(wrong)
    with pytest.raises(ValueError, match=r"'foo'.*'any', 'add-remove', 'replace-one'"):
        from_pld(theirs(), 2e-3, neighboring="foo")


# The extra


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_a_missing_extra_names_itself():
    code = """
import sys
sys.modules["dp_accounting"] = None
import neyman as ny
from neyman import accounting
for call in (
    lambda: accounting.from_dp_event(None),
    lambda: accounting.NeymanAccountant,
    lambda: accounting.to_pld(ny.Laplace(1), 1e-2),
):
    try:
        call()
    except ModuleNotFoundError as missing:
        assert "pip install 'neyman[dp-accounting]'" in str(missing), missing
    else:
        raise AssertionError("not refused")
"""
    run(code)


def test_it_is_imported_only_when_it_is_used():
    code = """
import sys
import neyman as ny
from neyman import accounting
ny.Laplace(1).tradeoff().epsilon(0.1)
assert not any(name.startswith("dp_accounting") for name in sys.modules)
assert accounting.NeymanAccountant().get_epsilon(0.1) == 0
"""
    run(code)
