"""What the library can do about a problem, beside the least error."""

import numpy as np
import pytest
from scipy.special import ndtri

import neyman as ny

SCORES = ndtri((np.arange(101) + 0.5) / 101)


@pytest.mark.parametrize(
    ("problem", "more", "best"),
    [
        ("mean", {"n": 500}, {"rounded Gaussian", "discrete Gaussian"}),
        ("histogram", {"categories": 4}, {"rounded Gaussian", "discrete Gaussian"}),
        ("median", {"values": SCORES, "radius": 10}, {"inverse sensitivity"}),
    ],
)
def test_options_are_sorted_above_the_least_error_and_one_is_recommended(problem, more, best):
    result = ny.alike(ny.gdp(0.5), problem=problem, **more)
    errors = [option.error for option in result.options]
    assert errors == sorted(errors)
    assert all(option.times_least >= 1 for option in result.options)
    assert result.recommended.name in best
    assert f"Recommended: {result.recommended.name}" in str(result)


def test_pure_privacy_recommends_discrete_laplace_noise():
    """Gaussian noise cannot meet it, so it is left out."""
    result = ny.alike(ny.pure(1), problem="histogram", categories=4)
    assert {option.name for option in result.options} == {"Laplace", "discrete Laplace"}
    assert result.recommended.name == "discrete Laplace"
    assert result.recommended.times_least < 2.4


def test_the_error_of_a_draw_is_that_of_its_law():
    """E of the squared distance at epsilon 1, on a grid; theory has .0510519 for E|error|."""
    result = ny.alike(ny.pure(1), problem="median", values=SCORES, radius=10)
    assert result.recommended.scale == pytest.approx(0.5, rel=1e-6)
    assert 0.0510519 < result.recommended.error < 0.08


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"problem": "mode"}, "problem = 'mode' must be one of"),
        ({"problem": "mean"}, "n: a mean needs"),
        ({"problem": "histogram"}, "categories: a histogram needs"),
        ({"problem": "median"}, "values: a median needs"),
        ({"problem": "median", "values": [1.0, 2.0, 3.0], "radius": 2}, "clip them first"),
        ({"n": 5}, "needs problem="),
    ],
)
def test_a_missing_argument_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        ny.alike(ny.gdp(1), **arguments)
