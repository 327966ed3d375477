"""The page of circle and sphere: finite pairs have the total variation of one integral.

The best test of two centers asks which is nearer. So the total variation is 2 p - 1, where p is the
chance that a point is nearer to its own center, an integral over the distance r.
"""

import math
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import neyman as ny
from neyman.mechanisms import CircularGaussian

PAGE = (Path(__file__).parents[3] / "docs" / "theory" / "canonical-noise.md").read_text()
CASES = [(1, 0.5), (2, 0.5), (2, math.pi / 2)]


def circle(s, shift, arcs=360):
    """The curve of two centers on the unit circle, from the masses of arcs.

    The cuts include the centers, the points opposite to them, and the two points in the middle
    between them. So no arc mixes outcomes that speak for different answers.
    """
    cuts = [0, shift, shift / 2, shift / 2 - np.pi, shift - np.pi]
    edges = np.unique([*np.linspace(-np.pi, np.pi, arcs + 1), *cuts])
    pair = []
    for center in (0, shift):
        away = abs(edges - center)
        mass = abs(np.diff(ndtr(np.minimum(away, 2 * np.pi - away) / s)))
        pair.append(mass / mass.sum())
    return ny.between(*pair)


def mechanism(s, shift, points=10**6 + 1):
    """The curve of the mechanism on a circle of so many points."""
    place = points / (2 * np.pi)
    return CircularGaussian(points, sigma=s * place, sensitivity=round(shift * place)).tradeoff()


def sphere(s, shift, steps=200, classes=200):
    """The curve of two centers on the unit sphere, from classes of equal loss.

    A point has the angle a from the direction between the centers, and the angle b around it.
    """
    a = (np.arange(steps) + 0.5)[:, None] / steps * np.pi
    b = (np.arange(2 * steps) + 0.5) / (2 * steps) * np.pi
    pair = []
    for side in (-1, 1):
        along = side * np.cos(a) * np.sin(shift / 2) + np.sin(a) * np.cos(b) * np.cos(shift / 2)
        mass = np.sin(a) * np.exp(-(np.arccos(np.clip(along, -1, 1)) ** 2) / (2 * s * s))
        pair.append(mass.ravel() / mass.sum())
    loss = np.log(pair[0] / pair[1])
    edges = np.linspace(loss.min(), loss.max(), classes + 1)[1:-1]
    return ny.between(*(np.bincount(np.digitize(loss, edges), mass) for mass in pair))


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
    assert float(circle(s, shift).advantage()) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("s", "shift"), CASES)
def test_classes_of_loss_have_the_total_variation_of_the_sphere(s, shift):
    """Points at a distance r that are nearer to the center are an arc of their circle."""

    def nearer(r, _):
        cosine = -mpmath.cot(r) * mpmath.tan(shift / 2) if r > 0 else mpmath.mpf(-1)
        return mpmath.acos(min(1, max(-1, cosine))) / mpmath.pi

    expected = total_variation(s, shift, mpmath.sin, nearer)
    assert float(sphere(s, shift).advantage()) == pytest.approx(expected, abs=1e-5)
    assert f"{expected:.10f}".lstrip("0") in PAGE


@pytest.mark.parametrize(("s", "shift"), CASES)
def test_the_page_has_the_total_variation_of_circle_and_line(s, shift):
    """The mechanism has that of the arcs, to the digits of the page."""
    on_circle, line = mechanism(s, shift).advantage(), ny.gdp(shift / s).advantage()
    assert f"{float(on_circle):.5f}" == f"{float(circle(s, shift).advantage()):.5f}"
    assert f"| {float(on_circle):.5f} | {float(line):.5f} |" in PAGE
