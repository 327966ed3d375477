"""Arguments far out are refused by name, and errors show no private count."""

from __future__ import annotations

import pytest

import neyman as ny
from neyman.analysis import BinomialTest, MeanTest, ProportionsTest

BINOMIAL = BinomialTest(n=50, null="1/2", alternative="greater", budget=ny.gdp(1))


@pytest.mark.parametrize("released", [10**299, -(10**299)])
def test_a_released_count_far_out_is_refused(released):
    with pytest.raises(ValueError, match="released"):
        BINOMIAL.p_value(released)


def test_a_level_below_the_digits_of_a_tail_is_refused():
    with pytest.raises(ValueError, match="level"):
        BINOMIAL.power(truth=0.6, level=1e-291)


@pytest.mark.parametrize("released", [(10**400, 5), (1, 2, 3), 5])
def test_released_sums_of_a_mean_test_are_two_numbers(released):
    test = MeanTest(n=50, null=0, clip=1, alternative="greater", budget=ny.gdp(1))
    with pytest.raises((TypeError, ValueError), match="released"):
        test.p_value(released)


def test_a_budget_that_hides_nothing_is_called_so():
    with pytest.raises(ValueError, match="hides so little"):
        BinomialTest(n=50, null="1/2", alternative="greater", budget=ny.gdp(50))


def test_a_count_beyond_the_floats_is_clipped_to_n():
    test = BinomialTest(n=50, null="1/2", alternative="greater", budget=ny.gdp(10))
    assert test.release(10**400).p_value.upper < 0.01


def test_errors_show_no_private_count():
    test = ProportionsTest(n=(900, 800), alternative="greater", budget=ny.gdp(1))
    with pytest.raises(TypeError) as error:
        test.release(517)
    assert "517" not in str(error.value)
