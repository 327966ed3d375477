"""Federated learning: each curve is that of known parts, and no attack on small runs beats it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import neyman as ny
from random_laws import examples

GRID = np.linspace(-14, 14, 4001)
EPSILONS = (0.0, 0.3, 1.0, 2.5)


def normal(center, deviation):
    """A density on the grid."""
    z = (GRID - center) / deviation
    return np.exp(-z * z / 2) / (deviation * math.sqrt(2 * math.pi))


def attained(p, q, epsilon):
    """The delta that the best test of one density against another attains, both orders."""
    step = GRID[1] - GRID[0]
    a = np.maximum(p - math.exp(epsilon) * q, 0).sum() * step
    b = np.maximum(q - math.exp(epsilon) * p, 0).sum() * step
    return max(a, b)


def holds(f, p, q):
    """No test of the two densities does better than the curve."""
    for epsilon in EPSILONS:
        assert attained(p, q, epsilon) <= f.delta(epsilon=epsilon).upper + 1e-6


def record(**more):
    base = {"clients": 10, "sigma": 1, "rounds": 20, "record_rate": 0.1}
    return ny.Federated(**{**base, **more})


def client(**more):
    base = {"clients": 10, "sigma": 2, "rounds": 20, "protects": "client"}
    return ny.Federated(**{**base, **more})


def test_record_against_the_server_is_local_training():
    """A check value: rate 0.05, sigma 1, 200 steps, 4.765919349 at 1e-5."""
    f = record(record_rate=0.05, rounds=200).tradeoff()
    assert 4.763919 < f.epsilon(delta=1e-5).upper < 4.767919
    assert record(local_steps=4).made_of() == ny.Gaussian(1).subsample(rate=0.1) * 80


@pytest.mark.parametrize(
    ("more", "honest"),
    [
        ({"against": "server", "least_participants": 8}, 1),
        ({"against": "server", "least_participants": 8, "secure_aggregation": True}, 8),
        (
            {
                "against": "server",
                "least_participants": 8,
                "secure_aggregation": True,
                "colluding": 3,
            },
            5,
        ),
        ({"against": "clients"}, 1),
        ({"against": "clients", "least_participants": 8}, 7),
        ({"against": "clients", "least_participants": 8, "colluding": 3}, 5),
        ({"against": "clients", "least_participants": 8, "colluding": 9}, 1),
        ({"against": "public", "least_participants": 8}, 8),
        ({"against": "public", "least_participants": 8, "colluding": 1}, 7),
    ],
)
def test_only_the_noise_of_honest_clients_counts(more, honest):
    for make in (record, client):
        mechanism = make(**more)
        assert mechanism.honest == honest
        (part, count), *rest = mechanism.made_of().leaves
        assert count == 20
        assert rest == []
        inner = getattr(part, "mechanism", part)
        assert float(inner.sigma) ** 2 <= float(mechanism.sigma) ** 2 * honest
        assert float(inner.sigma) == pytest.approx(float(mechanism.sigma) * math.sqrt(honest))


def test_local_steps_have_the_noise_of_others_once_a_round():
    mechanism = record(against="public", least_participants=4, local_steps=3)
    step = ny.Gaussian(1).subsample(rate=0.1)
    assert mechanism.made_of() == (step * 2 + ny.Gaussian(2.0).subsample(rate=0.1)) * 20


def test_a_client_is_a_gaussian_or_a_sample_of_fixed_size():
    assert client().made_of() == ny.Gaussian(2) * 20
    assert client(local_steps=7, record_rate=0.1, records=5).made_of() == ny.Gaussian(2) * 20
    hidden = client(client_rate=Fraction(2, 5), against="public", least_participants=4)
    assert hidden.made_of() == ny.Gaussian(4.0).subsample(size=4, population=10) * 20
    joined = client(client_rate=0.4, against="clients", least_participants=4, colluding=0)
    (part, _), *_ = joined.made_of().leaves
    assert (part.size, part.population) == (4, 9)
    all_others = client(client_rate=0.4, against="clients", least_participants=4, colluding=9)
    assert all_others.made_of() == ny.Gaussian(2) * 20


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"against": "server"}, "sees who takes part"),
        ({"against": "server", "secure_aggregation": True}, "sees who takes part"),
        ({"against": "clients", "secure_aggregation": True}, "see who takes part"),
        ({"against": "public", "secure_aggregation": True, "colluding": 1}, "see who takes part"),
        ({"against": "public", "least_participants": 3}, "drop out"),
        ({"against": "public", "least_participants": None}, "drop out"),
        ({"against": "public", "protects": "record"}, "other records show"),
        ({"against": "clients", "protects": "record"}, "other records show"),
    ],
)
def test_sampling_that_the_observer_sees_is_refused(more, why):
    with pytest.raises(ValueError, match=why) as refused:
        client(**{"client_rate": 0.4, "least_participants": 4, **more})
    assert "client_rate = 0.4" in str(refused.value)
    assert "client_rate=1" in str(refused.value)


def test_a_sample_of_clients_goes_through_client_rate():
    with pytest.raises(ValueError, match="client_rate="):
        client().subsample(size=10, population=20)
    assert record().subsample(rate=0.5).neighboring == "add-remove"


def test_json_batch_and_relations():
    mechanism = client(
        client_rate=Fraction(2, 5), against="public", least_participants=4, records=30
    )
    assert ny.Mechanism.from_json(mechanism.to_json()) == mechanism
    assert mechanism.neighboring == "replace-one"
    assert record(records=30).batch == 3
    assert record().neighboring == "add-remove"
    assert ny.Mechanism.from_json(record().to_json()) == record()
    with pytest.raises(ValueError, match="records"):
        record().batch  # noqa: B018
    bad = record().to_dict() | {"sigma": "x"}
    with pytest.raises(ValueError, match="sigma"):
        ny.Mechanism.from_dict(bad)


@settings(max_examples=25)
@given(
    others=st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=4),
    values=st.sampled_from([(-0.5, 0.5), (0.5, -0.5), (0.0, 0.5), (0.3, -0.2)]),
    size=st.integers(1, 3),
    colluding=st.integers(0, 2),
    sigma=st.sampled_from([0.6, 1.0, 2.0]),
)
def test_no_attack_on_a_sample_of_clients_beats_the_curve(others, values, size, colluding, sigma):
    n = len(others) + 1
    f = ny.Federated(
        clients=n,
        client_rate=Fraction(size, n),
        sigma=sigma,
        rounds=1,
        protects="client",
        against="public",
        least_participants=size,
        colluding=min(colluding, n - 1),
    ).tradeoff()
    spies = set(range(1, 1 + min(colluding, n - 1)))
    laws = []
    for own in values:
        updates = [own, *others]
        parts = {}
        for chosen in itertools.combinations(range(n), size):
            known = frozenset(chosen) & spies
            honest = size - len(known)
            center = sum(updates[i] for i in chosen)
            density = normal(center, sigma * math.sqrt(honest)) if honest else 0 * GRID
            parts[known] = parts.get(known, 0) + density / math.comb(n, size)
        laws.append(parts)
    step = GRID[1] - GRID[0]
    for epsilon in EPSILONS:
        for p, q in (laws, laws[::-1]):
            best = sum(
                (np.maximum(p[known] - math.exp(epsilon) * q[known], 0).sum()) * step for known in p
            )
            assert best <= f.delta(epsilon=epsilon).upper + 1e-6


@settings(max_examples=examples(40))
@given(
    rate=st.sampled_from([0.2, 0.7, 1.0]),
    gain=st.sampled_from([-3.0, -1.0, 0.0, 1.0, 5.0]),
    honest=st.integers(1, 3),
    first=st.sampled_from([1.0, -1.0, 0.4]),
    follow=st.sampled_from([1.0, -1.0]),
)
def test_no_attack_on_two_local_steps_beats_the_curve(rate, gain, honest, first, follow):
    f = record(
        rounds=1, record_rate=rate, local_steps=2, against="public", least_participants=honest
    ).tradeoff()
    z = np.linspace(-6, 6, 481)
    weight = np.exp(-z * z / 2)
    weight /= weight.sum()

    def law(present):
        total = 0 * GRID
        for a, b in itertools.product((0, 1), repeat=2) if present else [(0, 0)]:
            chance = math.prod(rate if x else 1 - rate for x in (a, b)) if present else 1.0
            if not chance:
                continue
            one = a * first + z
            # The client's other records, and this one, react to where the first step led.
            centers = one + gain * np.tanh(one) + b * follow * np.sign(one - first / 2)
            deviation = math.sqrt(honest)
            for center, share in zip(centers, weight, strict=True):
                if share > 1e-9:
                    total = total + chance * share * normal(center, deviation)
        return total

    holds(f, law(True), law(False))


def test_updates_that_lie_far_apart_would_be_refuted():
    claim = ny.Gaussian(1).subsample(size=1, population=2).tradeoff().power(level=0.001)
    # Of two clients one is drawn. The other one's update is far away, so the draw is seen.
    threshold = NormalDist().inv_cdf(1 - 0.002)
    assert 0.5 * NormalDist().cdf(1 - threshold) > 1.5 * claim.upper
    # In one ball the updates 0 and 1 of both clients are the worst, and the claim holds.
    for other in (0.0, 0.5, 1.0):
        power = max(
            0.5 * (NormalDist().cdf(1 - t) + NormalDist().cdf(other - t))
            for t in np.linspace(-4, 6, 2001)
            if 0.5 * (NormalDist().cdf(-t) + NormalDist().cdf(other - t)) <= 0.001
        )
        assert power <= claim.upper


def test_the_product_of_both_rates_would_be_refuted():
    """A record's client shows by its other records whether it takes part [FE-4].

    One round draws the client with probability q; its other records move the sum by 8.
    """
    q, sigma = 0.2, 1.0
    absent = (1 - q) * normal(0, sigma) + q * normal(8, sigma)
    present = (1 - q) * normal(0, sigma) + q * normal(9, sigma)
    claimed = ny.Gaussian(sigma).subsample(rate=q).tradeoff()
    assert attained(present, absent, 1.0) > 3 * claimed.delta(epsilon=1).upper
    holds(ny.Gaussian(sigma).tradeoff(), present, absent)


def test_client_sampling_with_noise_that_tells_the_number_would_be_refuted():
    """If the number of participants is random, the size of the noise tells it [FE-4].

    In d coordinates its squared length is chi-squared. The other four clients are known to take
    part. The client takes part with probability q and has an update of norm 1.
    """
    q, d, others = 0.2, 4000, 4
    middle = (others + 0.5) * d
    wrong = 1 - ndtr((middle - others * d) / (others * math.sqrt(2 * d)))
    right = ndtr(((others + 1) * d - middle) / ((others + 1) * math.sqrt(2 * d)))
    best = q * right - wrong * math.e  # delta at epsilon 1 of "is it there at all"
    claimed = ny.Gaussian(math.sqrt(others)).subsample(rate=q).tradeoff()
    assert best > 100 * claimed.delta(epsilon=1).upper
    with pytest.raises(ValueError, match="drop out"):
        ny.Federated(
            clients=5, client_rate=q, sigma=1, rounds=1, protects="client", against="public"
        )


def test_more_collusion_and_fewer_participants_tell_more():
    for make in (record, client):
        previous = 0.0
        for least, colluding in ((9, 0), (9, 2), (6, 2), (6, 8)):
            mechanism = make(against="public", least_participants=least, colluding=colluding)
            epsilon = mechanism.tradeoff().epsilon(delta=1e-5).upper
            assert epsilon > previous
            previous = epsilon


def test_a_draw_that_is_repeated_until_all_answer_would_be_refuted():
    """Half of the clients are away: a round that counts has all others [FE-4]."""
    claimed = client(client_rate=0.5, against="public", least_participants=5, rounds=1).tradeoff()
    present, absent = normal(1, 2 * math.sqrt(5)), normal(0, 2 * math.sqrt(5))
    assert attained(present, absent, 0) > 1.5 * claimed.delta(epsilon=0).upper
    answering = client(clients=5, against="public", least_participants=5, rounds=1)
    holds(answering.tradeoff(), present, absent)
