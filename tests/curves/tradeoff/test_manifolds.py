"""The page of circle and sphere: its finite pairs have the total variation of one integral.

The best test of two centers asks which is nearer. So the total variation is 2 p - 1, where p is the
chance that a point is nearer to its own center, an integral over the distance r.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path

import mpmath
import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "theory" / "canonical-noise.md").read_text()
SECTION = PAGE[PAGE.index("## Noise on a circle and a sphere") :]
NAMES: dict = {}
for block in re.findall(r"^```python\n(.*?)^```$", SECTION, re.M | re.S):
    exec(block, NAMES)
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
def test_arcs_have_the_total_variation_of_the_circle(s, shift):
    """Two points at each distance: one way the middle is at shift / 2, the other way beyond."""

    def nearer(_, middle):
        return ((middle < shift / 2) + (middle < math.pi - shift / 2)) / 2

    expected = total_variation(s, shift, lambda _: 1, nearer)
    assert float(NAMES["circle"](s, shift).advantage()) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("s", "shift"), CASES)
def test_classes_of_loss_have_the_total_variation_of_the_sphere(s, shift):
    """Points at a distance r that are nearer to the center are an arc of their circle."""

    def nearer(r, _):
        cosine = -mpmath.cot(r) * mpmath.tan(shift / 2) if r > 0 else mpmath.mpf(-1)
        return mpmath.acos(min(1, max(-1, cosine))) / mpmath.pi

    expected = total_variation(s, shift, mpmath.sin, nearer)
    assert float(NAMES["sphere"](s, shift).advantage()) == pytest.approx(expected, abs=1e-5)
    assert f"{expected:.10f}".lstrip("0") in PAGE
