"""Normal noise on a circle: against integrals over its arcs, its finite distribution, and draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as F

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import fftconvolve
from scipy.special import ndtr

import neyman as ny
from exact_draws import assert_shares
from neyman import Mechanism, Tradeoff
from neyman.curves import CircularGaussianLoss, Composition
from neyman.mechanisms import CircularGaussian
from random_laws import examples
from seeded import Seeded


def real(x):
    x = F(x)
    return mpmath.mpf(x.numerator) / x.denominator


def arc(t, c, e):
    """The ends of {L > e}, from where the distances are equal to one loss on either way around."""
    return t / 2 + e / t, c / 2 + t / 2 - e / (c - t)


def delta_of_arcs(t, c, e):
    """P(A) - e^e Q(A) for the arc A of a larger loss, from normal tails in so many digits."""
    t, c, e = map(real, (t, c, e))

    def above(x):
        return mpmath.erfc(x / mpmath.sqrt(2)) / 2

    start, end = arc(t, c, e)
    p = above(start - t) - above(end - t)
    # The distance to the center of Q grows up to c / 2, and falls from there on.
    q = above(start) - above(c / 2) + above(c - end) - above(c / 2)
    return (p - mpmath.exp(e) * q) / (1 - 2 * above(c / 2))


def curve(t, c, count=1):
    return Tradeoff.of([Composition.of([(CircularGaussianLoss(F(t), F(c)), count)])])


@settings(max_examples=examples(150))
@given(
    circumference=st.floats(-1, 2).map(lambda x: F(10**x)),
    nearness=st.one_of(st.floats(0, 1), st.floats(-12, 0).map(lambda x: 10**x), st.just(1)),
    share=st.one_of(st.just(0), st.floats(0, 0.999), st.floats(-9, 0).map(lambda x: 1 - 10**x)),
)
def test_delta_is_that_of_the_arc_with_a_larger_loss(circumference, nearness, share):
    t = min(circumference / 2 * F(nearness), F(60))
    if t < F(1, 10**14):
        return
    top = CircularGaussianLoss(t, circumference).supremum
    e = float(top * F(share))
    if e >= top:
        return
    with mpmath.workdps(150 + int(0.06 * circumference**2 + 0.45 * e)):
        exact = mpmath.log(delta_of_arcs(t, circumference, e))
        bound = curve(t, circumference).log_delta(e)
        assert bound.lower <= exact <= bound.upper
    assert bound.upper - bound.lower < 1e-9 * (1 + abs(bound.upper))


@pytest.mark.parametrize("e", [0.0, 1.0, 100.0, 199.0])
def test_a_circle_far_larger_than_the_noise_is_the_line(e):
    near, line = curve(20, 10**13).log_delta(e), ny.gdp(20).log_delta(e)
    assert abs(near.lower - line.lower) + abs(near.upper - line.upper) < 1e-11


@settings(max_examples=examples(60))
@given(st.floats(0.2, 40), st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0, 1))
def test_a_shorter_move_and_a_line_reveal_less_and_more(circumference, nearness, shorter, share):
    """[CI-2] and [CI-3] by their numbers."""
    c = F(circumference)
    t = min(c / 2 * F(nearness), F(30))
    e = share * float(CircularGaussianLoss(t, c).supremum)
    full = curve(t, c).log_delta(e)
    assert curve(t * F(shorter), c).log_delta(e).lower <= full.upper
    assert full.lower <= ny.gdp(float(t)).log_delta(e).upper


@settings(max_examples=examples(60))
@given(
    st.floats(-1, 1.7).map(lambda x: 10**x),
    st.floats(0.001, 1),
    st.sampled_from([-4.0, -0.5, 0.0, 0.5, 3.0, 100.0]),
    st.floats(-2, 4).map(lambda x: 10**x),
)
def test_the_transform_is_below_its_bound(circumference, nearness, tilt, height):
    loss = CircularGaussianLoss(F(circumference / 2 * nearness), F(circumference))
    u = height / float(loss.supremum) * np.geomspace(1, 30, 5)
    z = tilt + 1j * u
    size = np.abs(np.exp(loss.log_mgf(z) - loss.log_mgf(np.array([tilt]))))
    size = size * (1 - 1e-9) - 2 * loss.mgf_rounding(z)
    bound = np.exp(loss.decay(tilt, u))
    assert (np.maximum(size, np.append(size[1:], 0.0)) <= bound).all()


def finite_law(noise, shift=0):
    """Masses of all points around 0, moved: cells of the normal distribution, over their sum."""
    half, sigma = (noise.points - 1) // 2, real(noise.sigma)
    edges = [mpmath.ncdf((2 * k - 1) / (2 * sigma)) for k in range(-half, half + 2)]
    masses = [(b - a) / (edges[-1] - edges[0]) for a, b in itertools.pairwise(edges)]
    return [masses[(k - shift + half) % noise.points] for k in range(noise.points)]


NOISES = [
    CircularGaussian(9, 2, 4),
    CircularGaussian(9, F(1, 2), 1),
    CircularGaussian(9, 40, 3),
    CircularGaussian(101, 10, 7),
    CircularGaussian(101, 30, 50),
]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_what_is_drawn_is_as_private_as_the_curve_for_every_move(noise):
    f, p = noise.tradeoff(), finite_law(noise)
    for e in np.linspace(0, 1.1 * float(f.pure()), 7).tolist():
        upper = f.delta(e).upper
        gaps = []
        for shift in range(noise.sensitivity, 0, -math.ceil(noise.sensitivity / 6)):
            pairs = zip(p, finite_law(noise, shift), strict=True)
            got = mpmath.fsum(max(a - mpmath.exp(e) * b, 0) for a, b in pairs)
            assert got <= upper
            gaps.append(upper - got)
        assert noise.points == 9 or gaps[0] < 1e-2 * upper + 1e-3


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize(
    "noise", [CircularGaussian(9, 2, 4), CircularGaussian(101, 30, 20)], ids=repr
)
def test_several_releases_hold_those_of_a_fine_circle(noise, count):
    t, c = noise.sensitivity / noise.sigma, noise.points / noise.sigma
    top, size = float(t * (c - t) / 2), 1 << 13
    edges = np.linspace(-top, top, size + 1)
    masses = np.zeros(size)
    for m in (float(t), float(c - t)):
        masses += np.diff(ndtr(edges / m - m / 2))
    masses /= masses.sum()
    f = (noise * count).tradeoff()
    for e in (0.0, 0.3 * top, count * 0.7 * top):
        ends = []
        for places in (edges[:-1], edges[1:]):
            sums = np.array([1.0])
            for _ in range(count):
                sums = np.convolve(sums, masses)
            values = count * places[0] + (edges[1] - edges[0]) * np.arange(len(sums))
            ends.append(float(sums @ -np.expm1(np.minimum(e - values, 0.0))))
        bound = f.delta(e)
        assert bound.lower <= ends[1] + 1e-12
        assert ends[0] - 1e-12 <= bound.upper
        assert bound.upper - bound.lower < 5e-5


@pytest.mark.parametrize(("points", "count"), [(9, 1), (9, 2), (9, 10), (25, 20), (2**30 + 1, 20)])
def test_releases_on_samples_hold_those_of_a_fine_circle(points, count):
    noise, q = CircularGaussian(points, 3, 2), 0.1
    t, c = float(noise.sensitivity / noise.sigma), float(noise.points / noise.sigma)
    top = min(t * (c - t) / 2, 12 * t)
    edges = np.linspace(-top, top, (1 << 13) + 1)
    p, under_q = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for m in (t, c - t):
        p += np.diff(ndtr(edges / m - m / 2))
        under_q += np.diff(ndtr(edges / m + m / 2))
    mixture = ((1 - q) * under_q + q * p) / p.sum()
    places = np.log1p(q * np.expm1(edges))
    width = (places[-1] - places[0]) / len(mixture)
    f = (noise.subsample(rate=q) * count).tradeoff()
    for e in (0.0, 0.05, 0.2):
        ends = []
        for of, side in ((places[:-1], np.floor), (places[1:], np.ceil)):
            index = side((of - places[0]) / width).astype(int)
            one = np.bincount(index, weights=mixture).astype(float)
            sums = one
            for _ in range(count - 1):
                sums = fftconvolve(sums, one)
            values = count * places[0] + width * np.arange(len(sums))
            ends.append(float(sums @ -np.expm1(np.minimum(e - values, 0.0))))
        bound = f.delta(e)
        assert bound.lower <= ends[1] + 1e-12
        assert ends[0] - 1e-12 <= bound.upper < ends[1] + 2e-4


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("value", [0, -1, 10**30])
def test_draws_have_the_law_of_the_points(noise, value):
    """400 draws; false-alarm rate below 1e-6. Answers next to 0 go around."""
    draws = [noise.draw(value) for _ in range(400)]
    cells = [float(mass) for mass in finite_law(noise, value)]
    rare = [k for k, mass in enumerate(cells) if mass < 1e-3]
    usual = sorted({*range(noise.points)} - {*rare})
    counts = [draws.count(k) for k in usual]
    rest = max(math.fsum(cells[k] for k in rare), 1e-30)
    assert_shares([*counts, len(draws) - sum(counts)], [*(cells[k] for k in usual), rest])


def test_the_noise_and_its_attempts_do_not_depend_on_the_value():
    noise = CircularGaussian(5, 50)
    first, second = Seeded(7), Seeded(7)
    for value in range(100):
        assert (noise.draw(value, bits=first) - value) % 5 == noise.draw(0, bits=second)
    assert first.words(1) == second.words(1)


def test_it_is_stored_and_read_and_combined():
    noise = CircularGaussian(points=361, sigma="40.5", sensitivity=30)
    assert Mechanism.from_json(noise.to_json()) == noise
    assert noise.to_dict()["sigma"] == "81/2"
    assert noise.rho() == F(30 * 2, 81) ** 2 / 2
    f = (noise * 3 + ny.Gaussian(2)).tradeoff()
    line = ny.gdp(math.sqrt(3 * (60 / 81) ** 2 + 0.25))
    assert 0.8 * line.delta(1).lower < f.delta(1).lower <= f.delta(1).upper < line.delta(1).upper
    sampled = noise.subsample(rate=0.1).tradeoff()
    assert sampled.delta(0.05).upper < 0.11 * noise.tradeoff().delta(0).upper


@pytest.mark.parametrize("value", [1.5, "517x", None, F(1, 2)])
def test_an_error_about_a_private_direction_has_its_type_alone(value):
    with pytest.raises(TypeError) as error:
        CircularGaussian(9, 2).draw(value)
    assert str(error.value) == f"value is a {type(value).__name__}; it must be a whole number"
    assert error.value.__context__ is None
