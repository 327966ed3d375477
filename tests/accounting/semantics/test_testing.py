"""Posteriors of a test, against counting and against Bayes in odds."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neyman.accounting import positive_predictive_value

proportions = st.fractions(0, 1, max_denominator=1000)
inner = st.fractions(Fraction(1, 1000), Fraction(999, 1000), max_denominator=1000)


def test_positive_predictive_value_counts_cases():
    """Of 1000 true and 1000 false claims, power .25 and level .05 confirm 250 and 50."""
    assert positive_predictive_value(0.25, 0.05, 0.5) == pytest.approx(250 / 300)
    exact = positive_predictive_value(Fraction(1, 4), Fraction(1, 20), Fraction(1, 2))
    assert exact == Fraction(5, 6)
    assert isinstance(exact, Fraction)


@given(inner, inner, inner)
def test_odds_and_probability_agree(power, level, prior):
    """posterior / (1 - posterior) is the prior odds times the likelihood ratio."""
    right = positive_predictive_value(power, level, prior)
    assert right / (1 - right) == prior / (1 - prior) * power / level


@given(inner, inner, inner, inner)
def test_an_upper_bound_of_the_power_bounds_the_posterior(power, more, level, prior):
    """The posterior never falls as the power grows."""
    low, high = sorted((power, more))
    assert positive_predictive_value(low, level, prior) <= positive_predictive_value(
        high, level, prior
    )


@given(inner, proportions)
def test_guessing_leaves_the_prior(level, prior):
    """A test whose power is its level teaches nothing."""
    assert positive_predictive_value(level, level, prior) == prior


def test_extremes():
    """Certainty, impossibility and numbers whose product underflows."""
    assert positive_predictive_value(1e-200, 0.0, 1e-200) == 1.0
    assert positive_predictive_value(0.5, 0.1, 0.0) == 0.0
    assert positive_predictive_value(0.5, 0.1, 1.0) == 1.0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((1.5, 0.05, 0.5), "power = 1.5"),
        ((0.5, -0.1, 0.5), "level = -0.1"),
        ((0.5, 0.1, math.nan), "prior = nan"),
        ((0.0, 0.0, 0.5), "never confirms"),
        ((0.5, 0.0, 0.0), "never confirms"),
    ],
)
def test_wrong_arguments_are_named(arguments, name):
    """An error says which argument, and its value."""
    with pytest.raises(ValueError, match=name):
        positive_predictive_value(*arguments)
