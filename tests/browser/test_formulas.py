"""What the page works out by itself against the library: never on the release's side."""

import math
import random
from pathlib import Path

import pytest

import neyman as ny
from neyman.semantics import sentences as words

FOLDER = Path(__file__).parents[2] / "src" / "neyman" / "explorer" / "static"
LEVELS = [1e-9, 1e-4, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999]
DELTAS = [1e-300, 1e-15, 1e-10, 1e-6, 1e-3, 0.1, 0.4]
EPSILONS = [0, 1e-3, 0.1, 0.5, 1, 3, 10, 100]
CURVES = [
    *((f"numbers.gaussian({mu})", ny.gdp(mu)) for mu in (1e-3, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30)),
    *(
        (f"numbers.laplace({1 / scale})", ny.Laplace(scale).tradeoff())
        for scale in (0.1, 0.5, 1, 4, 128)
    ),
    *(
        (f"numbers.response({e}, {k})", ny.RandomizedResponse(e, categories=k).tradeoff())
        for e in (0.01, 1, 5, 12)
        for k in (2, 3, 1000)
    ),
    *(
        (f"numbers.approximate({e}, {d})", ny.approximate(e, d))
        for e in (0.01, 1, 5, 20)
        for d in (1e-12, 1e-6, 0.1)
    ),
]


@pytest.fixture(scope="module")
def page(browser):
    result = browser.new_page()
    for name in ("numbers", "words"):
        result.evaluate((FOLDER / f"{name}.js").read_text() + f"\nwindow.{name} = {name};")
    yield result
    result.close()


@pytest.mark.parametrize(("code", "curve"), CURVES, ids=[code for code, _ in CURVES])
def test_closed_forms_are_the_librarys_and_a_little_above(page, code, curve):
    """Power, epsilon and delta in the page are at least the certified bound, and within 1e-8."""
    answer = page.evaluate(
        f"([a, d, e]) => {{ const c = {code}; const say = (x) => String(x);"
        "return [a.map(c.power), d.map(c.epsilon), e.map(c.delta)].map((x) => x.map(say)); }",
        [LEVELS, DELTAS, EPSILONS],
    )
    wanted = (
        [curve.power(a) for a in LEVELS],
        [curve.epsilon(d) for d in DELTAS],
        [curve.delta(e) for e in EPSILONS],
    )
    for mine, bounds in zip(answer, wanted, strict=True):
        for text, bound in zip(mine, bounds, strict=True):
            number = float(text.replace("Infinity", "inf"))
            assert number >= bound.upper
            if math.isfinite(bound.upper):
                assert number <= bound.upper * (1 + 1e-8) + 1e-300


WHO = ["person", "household", "official", "user", "unit", "hour", "HR record", "8-year-old"]


def test_sentences_and_rounding_are_those_of_the_library(page):
    """On a grid of levels, powers and priors the page says the same words, digit for digit."""
    draw = random.Random(5)
    asked = []
    for _ in range(600):
        level = min(0.99, float(f"{10 ** draw.uniform(-7, -0.01):.{draw.choice([1, 2, 3, 16])}g}"))
        near = 1 - 10 ** draw.uniform(-12, -0.1)
        power = min(1.0, max(level, draw.choice([level ** draw.random(), near, level, 1.0])))
        prior = draw.choice([0.5, 0.01, 0.1, 0.25, round(draw.random(), 3), draw.random()])
        asked.append([level, power, prior, draw.choice(WHO)])
    answer = page.evaluate(
        "(all) => all.map(([a, b, p, who]) => [words.power(a, b, who), words.finding(a, b, p),"
        "words.percent(b), words.percent(a, false), words.number(b / a), words.number(a, 3, false),"
        "words.delta(a)])",
        asked,
    )
    for (level, power, prior, who), mine in zip(asked, answer, strict=True):
        assert mine == [
            words.power(level, power, who),
            words.finding(level, power, prior),
            words.percent(power),
            words.percent(level, up=False),
            words.number(power / level),
            words.number(level, up=False),
            words.delta(level),
        ]
