"""The page of circle and sphere: the total variation of two centers is one integral.

The best test of two centers asks which is nearer. So the total variation is 2 p - 1, where p is the
chance that a point is nearer to its own center, an integral over the distance r.
"""

import math
from itertools import pairwise
from pathlib import Path

import mpmath
import pytest

import neyman as ny
from neyman.mechanisms import CircularGaussian

PAGE = (Path(__file__).parents[3] / "docs" / "theory" / "canonical-noise.md").read_text()
CASES = [(1, 0.5), (2, 0.5), (2, math.pi / 2)]


def total_variation(s, shift, length, nearer):
    """Integrate over r: the length of the circle at r, and its share that is nearer."""
    places = sorted([0, shift / 2, math.pi / 2, math.pi - shift / 2, mpmath.pi])
    total, own = mpmath.mpf(0), mpmath.mpf(0)

    def weight(r):
        return mpmath.exp(-r * r / (2 * s * s)) * length(r)

    for low, high in pairwise(places):
        middle = (low + high) / 2
        total += mpmath.quad(weight, [low, high])
        own += mpmath.quad(lambda r, m=middle: weight(r) * nearer(r, m), [low, high])
    return float(2 * own / total - 1)


@pytest.mark.parametrize(("s", "shift"), CASES)
def test_the_mechanism_and_the_page_have_the_total_variation_of_the_circle(s, shift):
    """Two points at each distance: one way the middle is at shift / 2, the other way beyond."""

    def nearer(_, middle):
        return ((middle < shift / 2) + (middle < math.pi - shift / 2)) / 2

    place = (10**6 + 1) / (2 * math.pi)
    noise = CircularGaussian(10**6 + 1, sigma=s * place, sensitivity=round(shift * place))
    on_circle, line = noise.tradeoff().advantage(), ny.gdp(shift / s).advantage()
    expected = total_variation(s, shift, lambda _: 1, nearer)
    assert float(on_circle) == pytest.approx(expected, abs=2e-6)
    assert on_circle.width < 1e-6
    assert f"| {expected:.5f} | {float(line):.5f} |" in PAGE


@pytest.mark.parametrize(("s", "shift"), CASES)
def test_the_page_has_the_total_variation_of_the_sphere(s, shift):
    """Points at a distance r that are nearer to the center are an arc of their circle."""

    def nearer(r, _):
        cosine = -mpmath.cot(r) * mpmath.tan(shift / 2) if r > 0 else mpmath.mpf(-1)
        return mpmath.acos(min(1, max(-1, cosine))) / mpmath.pi

    expected = total_variation(s, shift, mpmath.sin, nearer)
    assert f"{expected:.10f}".lstrip("0") in PAGE
