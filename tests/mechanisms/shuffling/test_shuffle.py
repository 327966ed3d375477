"""Shuffled local reports as mechanisms."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise

import pytest

from neyman import Gaussian, Laplace, LocalRandomizer, Mechanism, RandomizedResponse


def shuffled_law(laws):
    """The distribution of the counts of each category, by all outcomes."""
    by_key = {(0,) * len(laws[0]): Fraction(1)}
    for law in laws:
        more = {}
        for counts, mass in by_key.items():
            for i, p in enumerate(law):
                key = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                more[key] = more.get(key, 0) + mass * p
        by_key = more
    return by_key


def worst(users, categories, odds, t):
    """The largest delta over all data of the others, by enumeration."""
    other = Fraction(1, odds + categories - 1)
    truth = [
        [odds * other if i == v else other for i in range(categories)] for v in range(categories)
    ]
    result = Fraction(0)
    for others in combinations_with_replacement(range(categories), users - 1):
        rest = [truth[v] for v in others]
        p, q = shuffled_law([truth[0], *rest]), shuffled_law([truth[1], *rest])
        result = max(result, sum(max(p[x] - t * q[x], 0) for x in p))
    return result


@pytest.mark.parametrize(
    ("users", "categories"), [(1, 3), (2, 2), (4, 2), (2, 3), (4, 3), (6, 3), (3, 4), (4, 5)]
)
@pytest.mark.parametrize("odds", [Fraction(3, 2), 3, 20])
def test_delta_covers_all_data_of_the_others(users, categories, odds):
    """Delta is at most ours for all data of the others, and at least our lower end for some."""
    f = RandomizedResponse(math.log(odds), categories).shuffle(users=users).tradeoff()
    for t in (1, Fraction(11, 10), Fraction(7, 5), Fraction(5, 2), 10):
        true, delta = worst(users, categories, odds, t), f.delta(epsilon=math.log(t))
        assert delta.lower * (1 - 1e-11) - 1e-15 <= true <= delta.upper * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize(
    "local",
    [LocalRandomizer(1.5), RandomizedResponse(2.0), RandomizedResponse(1.0, 3), Laplace(scale=1)],
)
def test_more_people_hide_better(local):
    """Delta, epsilon and power fall with the number of people, and no one hides the only one."""
    alone = local.shuffle(users=1).tradeoff()
    assert alone.delta(epsilon=0.5).upper >= local.tradeoff().delta(epsilon=0.5).lower
    results = [local.shuffle(users=n).tradeoff() for n in (1, 10, 1000, 30_000)]
    for asked in (lambda f: f.delta(epsilon=0.01), lambda f: f.power(level=0.05)):
        answers = [asked(f) for f in results]
        assert all(a.upper > b.upper for a, b in pairwise(answers))
        assert all(b.lower <= b.upper for b in answers)


def test_only_what_is_attained_is_claimed_from_below():
    """Of Laplace noise nothing is claimed from below, of the worst report much is."""
    laplace = Laplace(scale=1).shuffle(users=1000).tradeoff().delta(epsilon=0.1)
    worst_report = LocalRandomizer(1).shuffle(users=1000).tradeoff().delta(epsilon=0.1)
    assert laplace.upper == worst_report.upper
    assert laplace.lower == 0 < worst_report.lower


@pytest.mark.parametrize(
    "local", [LocalRandomizer(1.5), RandomizedResponse(Fraction(1, 3), 4), Laplace(scale=2)]
)
def test_descriptions_survive_json(local):
    """A shuffled mechanism is read back as it was."""
    shuffled = local.shuffle(users=123)
    assert Mechanism.from_json(shuffled.to_json()) == shuffled
    assert shuffled.neighboring == "replace-one"


def test_what_is_not_proven_is_refused():
    """No amplification for noise that is not pure, for add-remove, or for no one."""
    with pytest.raises(ValueError, match="not pure"):
        Gaussian(1).shuffle(users=100)
    with pytest.raises(ValueError, match="add-remove"):
        Laplace(scale=1).subsample(rate=0.1).shuffle(users=100)
    for users in (0, -3, 10**11):
        with pytest.raises(ValueError, match="users"):
            LocalRandomizer(1).shuffle(users=users)
    with pytest.raises(ValueError, match="not pure"):
        LocalRandomizer(301).shuffle(users=100)


def test_releases_compose_between_both_sides():
    """Three releases are between one and what three deltas add up to, and the ends are ordered."""
    shuffled = LocalRandomizer(4.0).shuffle(users=2000)
    one, three = shuffled.tradeoff(), (shuffled * 3).tradeoff()
    for epsilon in (0.1, 0.5, 1.0):
        delta = three.delta(epsilon=epsilon)
        assert one.delta(epsilon=epsilon).lower <= delta.lower * (1 + 1e-3)
        assert delta.lower <= delta.upper
        assert delta.upper <= 3 * one.delta(epsilon=epsilon / 3).upper
    assert three.epsilon(delta=1e-6).upper < 3 * one.epsilon(delta=1e-6 / 3).upper
