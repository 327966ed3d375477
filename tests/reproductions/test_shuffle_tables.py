"""Both published tables of shuffling, every cell; their page: test_docs."""

import math
import re
from pathlib import Path

import pytest

from neyman import LocalRandomizer
from reproductions.facts import PUBLISHED
from reproductions.shuffling import tables as shuffle

FACTS = PUBLISHED["shuffled_mechanism"]


def test_the_setting_is_the_published_one():
    """n = 10^4 and epsilon_0 = 4.444, where the closed form just holds at delta 1e-6."""
    assert round(shuffle.LOCAL, 3) == 4.444
    assert shuffle.largest_local(shuffle.USERS, 1e-6) == shuffle.LOCAL


def test_the_page_prints_the_local_epsilon_that_its_example_computes():
    """Six decimals, cut: at a larger one the closed form does not hold."""
    page = (Path(__file__).parents[2] / "docs" / "shuffle.md").read_text()
    printed = set(re.findall(r"ε₀ = ([\d.]*\d)", page))
    assert printed == {"4.444478"}
    assert float("4.444478") <= shuffle.LOCAL < 4.444479


def test_every_delta_of_table_2():
    """The closed form is the printed one; printed f-DP figures are not below ours, rounded."""
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
    """Ours round to the printed f-DP row; the printed lower row is below a true lower bound."""
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
    """Below delta 1e-6 the condition is named; inside, the exact curve is below it."""
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
