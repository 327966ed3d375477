"""docs/definitions.md row by row, published numbers, and no arrow is tighter than what came in."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from neyman.accounting import conversions
from neyman.curves import garbling
from neyman.mechanisms import CircularGaussian
from random_laws import examples
from reproductions import composition_bounds

PAGE = (Path(__file__).parents[1] / "docs" / "definitions.md").read_text()
LEVELS = np.concatenate([np.geomspace(1e-9, 0.1, 9), np.linspace(0.2, 1.0, 5)])
DELTAS = (1e-9, 1e-6, 1e-3)
CLOSE = 1e-6


def rows(heading):
    """The cells of the table under a heading of the page."""
    (_, section) = PAGE.split(f"\n## {heading}\n")
    section = section.split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def code(cell):
    """What stands between backticks."""
    (result,) = re.findall(r"`(.*)`", cell)
    return result


def held(bound, answer):
    """Whether a bound is what the page says: "= x" to six digits, "<= x" not exact, "> x" lost."""
    sign, text = answer.split()
    value = float(text)
    if sign == ">":
        assert bound.lower > value
        return
    if math.isinf(value):
        assert bound.upper == value
        return
    assert float(bound) == pytest.approx(value, rel=CLOSE, abs=1e-12)
    if sign == "=":
        assert bound.width <= CLOSE * max(value, 1e-6)
    else:
        assert sign == "<="
        assert bound.lower < value


@pytest.mark.parametrize("row", rows("In") + rows("Of mechanisms"), ids=lambda row: row[0])
def test_what_comes_in_can_be_asked_back(row):
    _, product, _, asked, answer, _ = row
    f = eval(code(product), {"ny": ny, "CircularGaussian": CircularGaussian})
    held(eval(code(asked), {"f": f}), answer)


@pytest.mark.parametrize("row", rows("Out"), ids=lambda row: row[0])
def test_every_question_has_an_answer(row):
    curve = ny.between([0.6, 0.3, 0.1], [0.2, 0.3, 0.5])
    result = eval(code(row[1]), {"f": curve})
    assert result.lower <= result.upper
    assert result.upper > 0 or result.method


@pytest.mark.parametrize("row", rows("From one to another"), ids=lambda row: f"{row[0]}, {row[1]}")
def test_one_definition_says_of_another(row):
    held(eval(code(row[2]), {"ny": ny, "conversions": conversions}), row[3])


MECHANISMS = st.one_of(
    st.floats(0.4, 8).map(ny.Gaussian),
    st.floats(0.4, 8).map(ny.Laplace),
    st.floats(0.1, 3).map(ny.RandomizedResponse),
    st.tuples(st.floats(0.6, 3), st.floats(0.01, 0.5)).map(
        lambda v: ny.Gaussian(v[0]).subsample(rate=v[1]) * 3
    ),
    st.tuples(st.floats(0.6, 3), st.floats(0.6, 3)).map(
        lambda v: ny.Gaussian(v[0]) + ny.Laplace(v[1])
    ),
)
# A mechanism's answer to the question of a definition, as that definition: (curve, asked again).
ARROWS = {
    "pure": lambda f: (ny.pure(f.pure().upper), lambda g: g.pure()),
    "approximate": lambda f: (ny.approximate(0.7, f.delta(0.7).upper), lambda g: g.delta(0.7)),
    "profile": lambda f: (
        ny.from_profile({e: f.delta(e).upper for e in (0.0, 0.4, 0.7, 1.5)}),
        lambda g: g.delta(0.7),
    ),
    "total variation": lambda f: (ny.total_variation(f.advantage().upper), lambda g: g.advantage()),
    "gdp": lambda f: (ny.gdp(f.gdp().upper), lambda g: g.gdp()),
    "zcdp": lambda f: (ny.zcdp(f.zcdp().upper), lambda g: g.zcdp()),
    "renyi": lambda f: (ny.renyi({a: f.renyi(a).upper for a in (1, 2, 5)}), lambda g: g.renyi(2)),
    "pbdp": lambda f: (ny.pbdp(0.7, f.pbdp(0.7).upper), lambda g: g.pbdp(0.7)),
    "points": lambda f: (
        ny.from_points(
            [0.0, 0.01, 0.2, 0.6, 1.0], [f(a).lower for a in (0.0, 0.01, 0.2, 0.6)] + [0.0]
        ),
        lambda g: g(0.2),
    ),
}


@cache
def curve(mechanism):
    """Its curve, the same for each definition: what is computed of it is computed once."""
    return mechanism.tradeoff()


@pytest.mark.parametrize("name", ARROWS)
@settings(max_examples=6)
@given(mechanism=MECHANISMS)
def test_out_and_in_again_is_never_tighter(name, mechanism):
    f = curve(mechanism)
    if name == "points":
        f = f.symmetric()
    try:
        implied, again = ARROWS[name](f)
    except ValueError:
        # There is no such guarantee: a Gaussian is not pure, a delta of 1 is refused.
        assert name in ("pure", "gdp", "zcdp")
        return
    powers, promised = f.powers(LEVELS), implied.powers(LEVELS)
    for level, a, b in zip(LEVELS, powers, promised, strict=True):
        if name == "points":  # a polygon lies above the curve between its corners
            if level in (0.0, 0.2, 0.6):
                assert b.upper >= a.lower * (1 - 1e-9)
        else:
            assert b.upper >= a.lower * (1 - 1e-9), level
    for delta in DELTAS if name != "points" else ():
        assert implied.epsilon(delta).upper >= f.epsilon(delta).lower - 1e-9
    came, back = again(f), again(implied)
    if back.safe == "upper":
        assert back.upper >= came.lower * (1 - 1e-9)
    else:
        assert back.lower <= came.upper + 1e-9


@settings(max_examples=examples(24))
@given(rho=st.floats(1e-3, 4), order=st.floats(1.2, 60), delta=st.sampled_from(DELTAS))
def test_named_conversions_are_never_tighter_than_the_curve(rho, order, delta):
    best = conversions.optimal(ny.zcdp(rho), delta)
    good = conversions.canonne_kamath_steinke_zcdp(rho, delta)
    assert best.lower <= good.upper
    assert good.lower <= conversions.bun_steinke(rho, delta).upper
    one = conversions.optimal(ny.renyi({order: order * rho}), delta)
    good = conversions.canonne_kamath_steinke(order, order * rho, delta)
    assert one.lower <= good.upper + 1e-9
    assert good.lower <= conversions.mironov(order, order * rho, delta).upper
    assert best.lower <= one.upper + 1e-9


b = math.exp(-1)  # discrete Laplace noise of ratio b plus a uniform one
NUMBERS = [
    (lambda: ny.gdp(1).renyi(order=2), 1, 1e-12),
    (lambda: ny.gdp(1).advantage(), 0.38292492254802624, 1e-12),
    (lambda: ny.RandomizedResponse(1).tradeoff().gdp(), 1.2320354, 5e-8),
    (lambda: composition_bounds.optimal(Fraction(1, 10), 0, 30, 1e-6), 2.34589, 5e-6),
    (lambda: (ny.pure(0.1) ** 30).epsilon(1e-6), 2.34589, 5e-6),
    (lambda: (ny.RandomizedResponse(0.1) * 30).tradeoff().epsilon(1e-6), 2.34589, 5e-6),
    (lambda: ny.pure(1)(0.268941), 0.268941, 2e-6),
    (lambda: ny.CanonicalNoise(ny.pure(1)).variance(), 1.9247, 5e-5),
    (lambda: ny.CanonicalNoise(ny.pure(1)).variance(), 2 * b / (1 - b) ** 2 + 1 / 12, 1e-9),
    (lambda: (ny.zcdp(0.01) ** 100).epsilon(1e-6), 7.77, 5e-3),  # as curves it would be 9.22
]


@pytest.mark.parametrize(("ask", "value", "close"), NUMBERS)
def test_a_published_number_is_between_close_ends(ask, value, close):
    result = ask()
    assert value - close <= result.lower <= result.upper <= value + close


def test_the_smallest_gaussian_that_is_garbled_into_response_of_one_is_refuted_just_below():
    f = ny.RandomizedResponse(1).tradeoff()
    assert f >= ny.gdp(1.2320355)
    assert not f >= ny.gdp(1.2320353)
    assert ny.compare(f, ny.gdp(1.2320353)) == "incomparable"


def response(epsilon):
    """Randomized response as two distributions of the same two outcomes."""
    share = 1 / (1 + math.exp(-epsilon))
    return [share, 1 - share], [1 - share, share]


def test_response_of_one_is_garbled_into_response_of_a_half():
    """By the channel (.7650, .2350), which certainly exists and does what it says."""
    (p, q), (p2, q2) = response(1), response(0.5)
    result = garbling(p, q, p2, q2)
    assert result.channel == pytest.approx(np.array([[0.7650, 0.2350], [0.2350, 0.7650]]), abs=5e-5)
    assert np.array(p) @ result.channel == pytest.approx(np.array(p2), abs=1e-12)
    assert np.array(q) @ result.channel == pytest.approx(np.array(q2), abs=1e-12)
    assert garbling(p2, q2, p, q).test is not None  # and not the other way


@pytest.mark.parametrize(("mu", "apart"), [(1, 0.0030), (2, 0.021), (3, 0.057)])
def test_canonical_noise_of_gdp_is_not_normal(mu, apart):
    """The distribution functions differ by .0030, .021 and .057."""
    x = np.linspace(-4, 0, 4001)
    normal = np.array([0.5 * math.erfc(-mu * v / math.sqrt(2)) for v in x])
    noise = ny.CanonicalNoise(ny.gdp(mu))
    assert np.abs(noise.cdf(x) - normal).max() == pytest.approx(apart, rel=0.03)
    pure = ny.CanonicalNoise(ny.pure(1)).cdf([-0.5, -1])
    assert pure == pytest.approx([0.268941, 0.183940], abs=5e-7)
