"""Both published tables of shuffling, every cell; their page: test_docs."""

import math
import re
from pathlib import Path

import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from neyman import LocalRandomizer
from reproductions.facts import PUBLISHED
from reproductions.shuffling import tables as shuffle
from reproductions.shuffling.random_initialization import from_a_random_start

FACTS = PUBLISHED["shuffled_mechanism"]


def test_the_setting_is_the_published_one():
    assert round(shuffle.LOCAL, 3) == 4.444
    assert shuffle.largest_local(shuffle.USERS, 1e-6) == shuffle.LOCAL


def test_the_page_prints_the_local_epsilon_that_its_example_computes():
    page = (Path(__file__).parents[2] / "docs" / "shuffle.md").read_text()
    printed = set(re.findall(r"ε₀ = ([\d.]*\d)", page))
    assert printed == {"4.444478"}
    assert float("4.444478") <= shuffle.LOCAL < 4.444479


def test_every_delta_of_table_2():
    rows = list(shuffle.rows("delta_by_epsilon"))
    assert [row.given for row in rows] == FACTS["delta_by_epsilon"]["epsilon"]
    for row in rows:
        figure = row.printed["closed_form"]
        # .9494 is cut off, not rounded: .94947
        assert abs(row.formula - figure) < (1e-4 if figure > 1e-3 else 1e-5)
        assert row.closed == row.formula  # all are at deltas where it holds
        # printed with one digit: ours rounds to it or is below, never by more than a factor 2.2
        assert row.ours.upper < 1.5 * row.printed["f_dp"]
        assert float(f"{row.ours.upper:.0e}") <= row.printed["f_dp"] < 2.2 * row.ours.upper
        assert 0.6 * row.ours.upper < row.ours.lower < row.ours.upper < row.closed


def test_every_epsilon_of_table_3():
    rows = list(shuffle.rows("epsilon_by_delta"))
    assert [row.given for row in rows] == FACTS["epsilon_by_delta"]["delta"]
    for row in rows:
        assert round(row.ours.upper, 1) == row.printed["f_dp"]
        assert row.printed["numerical_lower"] < row.ours.lower
        assert row.ours.lower > 0.99 * row.ours.upper
        upper = shuffle.LOCAL if row.closed is None else row.closed
        assert round(upper, 3) == row.printed["numerical_upper"]
        assert (row.closed is None) == (row.given < 1e-6)


def test_the_closed_form_is_refused_outside_its_range():
    with pytest.raises(ValueError, match="the closed form holds up to"):
        shuffle.closed_form(shuffle.USERS, shuffle.LOCAL, 1e-7)
    with pytest.raises(ValueError, match="delta"):
        shuffle.largest_local(100, 0)
    for users, local, delta in ((10**4, 1.0, 1e-6), (10**6, 3.0, 1e-9), (300, 0.5, 0.1)):
        above = shuffle.closed_form(users, local, delta)
        assert (
            LocalRandomizer(local).shuffle(users=users).tradeoff().epsilon(delta=delta).upper
            < above
        )
        assert math.isclose(shuffle.closed_form_delta(users, local, above), delta, rel_tol=1e-9)


# ---- a step of noisy gradient descent from a random start


def gaussian_delta(mu, epsilon):
    """delta of G_mu, by the closed form."""
    if mu < 1e-12:
        return 0.0
    return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.5), (-0.3, 0.0), (0.0, 1.2)])
def test_delta_is_the_integral_over_the_start(slope, offset):
    epsilons = [0.0, 0.5, 1.0, 2.0]
    for e, answer in zip(epsilons, from_a_random_start(slope, offset, epsilons), strict=True):
        true = quad(
            lambda z, e=e: gaussian_delta(abs(slope * z + offset), e) * math.exp(-z * z / 2),
            -12,
            12,
            limit=400,
            points=[-offset / slope] if slope else None,
        )[0] / math.sqrt(math.tau)
        assert answer.lower <= true * (1 + 1e-8)
        assert true * (1 - 1e-8) <= answer.upper
        assert answer.upper - answer.lower < 0.1 * answer.upper + 1e-6
