"""The search for counterexamples to axioms: what it finds is one, and what holds has none."""

from __future__ import annotations

import math
from fractions import Fraction as F
from itertools import permutations

import numpy as np
import pytest

import neyman as ny
from neyman.accounting import composition, convexity, post_processing

FEW = 600  # channels


def approximate(t, delta):
    """(log t, delta), with exact numbers."""

    def holds(channel):
        return all(
            sum(max(a - t * b, 0) for a, b in zip(p, q, strict=True)) <= delta
            for p, q in permutations(channel, 2)
        )

    return holds


def tail(t, delta):
    """Probabilistic privacy: the loss is above log t with a chance of at most delta."""

    def holds(channel):
        return all(
            sum(a for a, b in zip(p, q, strict=True) if a > t * b) <= delta
            for p, q in permutations(channel, 2)
        )

    return holds


def event(t, delta):
    """No test with a loss above log t rejects with a chance above delta: a knapsack."""

    def worst(p, q):
        mass, room = F(0), F(0)
        pairs = [(a, b) for a, b in zip(p, q, strict=True) if a or b]
        for a, b in sorted(pairs, key=lambda x: -x[0] / sum(x)):
            gain = a - t * b
            if room + gain < 0:
                return mass + a * room / -gain
            mass, room = mass + a, room + gain
        return mass

    return lambda channel: all(worst(p, q) <= delta for p, q in permutations(channel, 2))


def mean_loss(most):
    """The mean of the absolute privacy loss."""

    def holds(channel):
        for p, q in permutations(channel, 2):
            if any(a and not b for a, b in zip(p, q, strict=True)):
                return False
            losses = (a * abs(math.log(a / b)) for a, b in zip(p, q, strict=True) if a)
            if sum(losses) > most:
                return False
        return True

    return holds


def kl(most):
    """The mean of the loss itself, which convexity and post-processing do not raise."""

    def holds(channel):
        for p, q in permutations(channel, 2):
            if any(a and not b for a, b in zip(p, q, strict=True)):
                return False
            if sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a) > most + 1e-12:
                return False
        return True

    return holds


def blank(channel):
    """Some output has the same chance under all datasets."""
    return any(len(set(column)) == 1 and column[0] for column in zip(*channel, strict=True))


def crowd(k):
    """Each output is possible under at least k datasets: the idea of k-anonymity."""
    return lambda channel: all(
        sum(x > 0 for x in column) >= k for column in zip(*channel, strict=True) if any(column)
    )


def floats(channel):
    return np.array([[float(x) for x in row] for row in channel])


def assert_stochastic(*channels):
    for channel in channels:
        assert all(sum(row) == 1 and min(row) >= 0 for row in channel)
        assert all(isinstance(x, F) for row in channel for x in row)


@pytest.mark.parametrize("definition", [tail(2, F(1, 3)), mean_loss(0.5), blank])
def test_a_counterexample_to_post_processing_is_a_product_of_matrices(definition):
    example = post_processing(definition).counterexample
    (channel,) = example.satisfied
    assert_stochastic(channel, example.garbling, example.violated)
    assert definition(channel)
    assert not definition(example.violated)
    np.testing.assert_allclose(floats(channel) @ floats(example.garbling), floats(example.violated))


@pytest.mark.parametrize(
    "definition", [blank, tail(2, F(1, 3)), event(2, F(1, 3)), event(3, F(1, 4))]
)
def test_a_counterexample_to_convexity_is_a_mixture(definition):
    example = convexity(definition).counterexample
    one, other = example.satisfied
    assert_stochastic(one, other, example.violated)
    assert definition(one)
    assert definition(other)
    assert not definition(example.violated)
    a, b, mixed = map(floats, (*example.satisfied, example.violated))
    share = float(F(example.step.split("chance ")[1].split(",")[0]))
    if "hidden" in example.step:
        np.testing.assert_allclose(share * a + (1 - share) * b, mixed)
    else:
        np.testing.assert_allclose(np.hstack([share * a, (1 - share) * b]), mixed)


COMPOSED = [
    (approximate(2, 0), approximate(2, 0), approximate(3, 0), 2),
    (approximate(2, F(1, 10)), approximate(3, F(1, 5)), approximate(6, F(1, 5)), 2),
    (crowd(2), crowd(2), crowd(2), 4),
]


@pytest.mark.parametrize(("first", "second", "together", "datasets"), COMPOSED)
def test_a_counterexample_to_composition_is_a_product_of_rows(first, second, together, datasets):
    example = composition(first, second, together, datasets=datasets).counterexample
    one, other = example.satisfied
    assert_stochastic(one, other, example.violated)
    assert first(one)
    assert second(other)
    assert not together(example.violated)
    expected = [np.outer(a, b).ravel() for a, b in zip(floats(one), floats(other), strict=True)]
    np.testing.assert_allclose(np.array(expected), floats(example.violated))


@pytest.mark.parametrize(
    "definition",
    [approximate(2, 0), approximate(2, F(1, 10)), approximate(1, F(1, 4)), kl(0.3), crowd(2)],
)
def test_definitions_that_keep_both_axioms_have_no_counterexample(definition):
    for search in (post_processing, convexity):
        result = search(definition, channels=FEW)
        assert result.counterexample is None
        assert result.channels == FEW
        assert result.satisfied > 50
        assert result.checks > 1000


@pytest.mark.parametrize("datasets", [2, 3])
def test_what_is_not_changed_by_post_processing_may_still_be_no_convex_definition(datasets):
    """The least bound on tails that no processing raises (Kifer, Abowd et al. 2022, 5.6)."""
    definition = event(2, F(1, 2))
    result = post_processing(definition, channels=FEW, datasets=datasets)
    assert result.counterexample is None
    assert convexity(definition, datasets=datasets).counterexample is not None


def test_the_sum_of_both_parameters_composes():
    claims = approximate(2, F(1, 10)), approximate(3, F(1, 5)), approximate(6, F(3, 10))
    assert composition(*claims, channels=FEW).counterexample is None


def test_a_counterexample_agrees_with_the_curves_of_both_channels():
    example = composition(*COMPOSED[1][:3]).counterexample
    deltas = []
    for channel in (*example.satisfied, example.violated):
        f = ny.between(*channel).symmetric()
        deltas.append([f.delta(math.log(t)) for t in (2, 3, 6)])
    assert deltas[0][0].lower <= 0.1
    assert deltas[1][1].lower <= 0.2
    assert deltas[2][2].upper > 0.2


def test_a_search_that_is_too_large_is_refused_by_name():
    for size in ("datasets", "outputs", "channels"):
        with pytest.raises(ValueError, match=f"{size} = 10000000000 must be at most"):
            post_processing(approximate(2, 0), **{size: 10**10})


def test_a_search_repeats_and_another_generator_gives_another_one():
    def satisfied(seed=None):
        rng = None if seed is None else np.random.default_rng(seed)
        return post_processing(approximate(2, 0), channels=100, generator=rng).satisfied

    assert satisfied() == satisfied()
    assert len({satisfied(), *map(satisfied, range(6))}) > 1
