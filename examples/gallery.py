"""Draw docs/gallery: private training, and Laplace noise beside it, in every definition.

The training is 1000 steps of Gaussian noise, sigma 1, on Poisson samples of rate .01; the Laplace
noise has epsilon 1. Two figures of Su's review (2024) follow, and the cost of dimension and
sparsity. The text of docs/gallery.md is what
this prints.
"""

import math
import sys
from pathlib import Path

import numpy as np
from scipy.special import ndtri

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root of the repository

import neyman as ny
from neyman.accounting import conversions
from neyman.accounting.literature import approximations
from reproductions.svg_chart import Axis, Line, Note, chart

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / "gallery"
BLUE, BROWN, PALE = "#1a5fb4", "#a34a00", "#6b6b6b"
BLACK, GREEN = "#111111", "#0b7568"

training = (ny.Gaussian(1).subsample(rate=0.01) * 1000).tradeoff()
laplace = ny.Laplace(1).tradeoff()
SHOWN: list[tuple[str, str]] = []
BOTH = (("training", training, BLUE, ""), ("Laplace", laplace, BROWN, "7 3"))
LEVELS = np.concatenate([[1e-9], np.linspace(0.002, 0.05, 20), np.linspace(0.06, 1, 60)])
SMALL = np.geomspace(1e-9, 0.9, 60)
wide = np.concatenate([np.linspace(0, 0.95, 30), [0.99, 0.9999, 1.0001], np.linspace(1.05, 4, 40)])


def picture(name, heading, x, y, value, places, names, *, more=(), sentence):
    """One picture: both mechanisms' value at each place, where their names stand; a sentence."""
    lines, words = [], []
    for (who, f, color, dash), (a, b, anchor) in zip(BOTH, names, strict=True):
        lines.append(Line([(float(p), value(f, float(p))) for p in places], "", color, 2.2, dash))
        words.append(Note(a, b, who, color, anchor))
    write(name, heading, x, y, [*more, *lines, *words], sentence)


def write(name, heading, x, y, marks, sentence):
    """The file, and its lines in the page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    draws = chart(
        x, y, marks, title=f"{heading}. {sentence}", width=400, height=290, heading=heading
    )
    (FOLDER / f"{name}.svg").write_text(draws, encoding="utf-8")
    SHOWN.append((f"![{heading}](gallery/{name}.svg)", sentence))


def say(bound, digits=4):
    """The safe end, in few digits."""
    return f"{float(bound):.{digits}g}"


def mu_at(f, level):
    """The mu of the Gaussian curve through the point of this level."""
    return float(ndtri(f.power(level).upper) - ndtri(level))


def density(f, places):
    """Of the loss of the first pair under P, where it is smooth: delta'' - delta'."""
    one = ny.Tradeoff(f.alternatives[:1], ordered=True)
    h = 0.02
    low, middle, high = (one.deltas_above(places + k * h) for k in (-1, 0, 1))
    return np.maximum((high - 2 * middle + low) / h**2 - (high - low) / (2 * h), 0)


def after(prior, level, f):
    """Return an attacker's posterior after a positive result at a level, from their prior."""
    power = f.power(level).upper
    return prior * power / (prior * power + (1 - prior) * level)


level = Axis(0, 1, "false positive rate (level)")
picture(
    "tradeoff",
    "Trade-off curve",
    level,
    Axis(0, 1, "misses, at least"),
    lambda f, a: f(a).lower,
    LEVELS,
    ((0.262, 0.4, "start"), (0.2, 0.24, "end")),
    more=[Line([(0, 1), (1, 0)], "", PALE, 1)],
    sentence="The fewest misses of any test at each false positive rate, "
    f"`f(alpha)`. At .05 the training has {say(training(0.05))}, Laplace noise "
    f"{say(laplace(0.05))}. The straight line is guessing. Every other picture follows from "
    "this one.",
)
tenths = tuple((10.0**-k, f"1e-{k}" if k else "1") for k in (12, 9, 6, 3, 0))
small = Axis(1e-9, 1, "false positive rate (level)", log=True, ticks=tenths[1:])
picture(
    "power",
    "Power at small levels",
    small,
    Axis(1, 100, "power / level, at most", log=True),
    lambda f, a: f.power(a).upper / a,
    SMALL,
    ((3e-6, 14, "start"), (3e-6, 2, "end")),
    sentence="The power of an attacker who is rarely wrong. "
    f"`f.power(1e-6)` is {say(training.power(1e-6))} for the training and "
    f"{say(laplace.power(1e-6))} for Laplace noise, whose power is at most e times the level.",
)
picture(
    "profile",
    "Privacy profile",
    Axis(0, 4, "epsilon"),
    Axis(1e-12, 1, "delta, at most", log=True, ticks=tenths),
    lambda f, e: max(f.delta(e).upper, 1e-15),
    wide,
    ((2.3, 1e-5, "start"), (0.9, 1e-6, "end")),
    sentence=f"`f.delta(epsilon)`. The training is both ({say(training.epsilon(1e-5))}, 1e-5) and "
    f"({say(training.epsilon(1e-9))}, 1e-9). Laplace noise has delta 0 from epsilon 1 on.",
)
orders = np.sort(np.concatenate([np.geomspace(1, 64, 40), np.linspace(7.5, 9.5, 30)]))
order = Axis(1, 64, "order", True, tuple((float(k), str(k)) for k in (1, 2, 4, 8, 16, 32, 64)))
picture(
    "renyi",
    "Renyi divergences",
    order,
    Axis(0, 3, "D, at most"),
    lambda f, a: f.renyi(a).upper,
    orders,
    ((7.6, 2.2, "end"), (20, 1.14, "start")),
    sentence=f"`f.renyi(order)`. At order 2 the training has {say(training.renyi(2))}, less than "
    f"Laplace noise's {say(laplace.renyi(2))}. At order 16 it has {say(training.renyi(16))} "
    f"against {say(laplace.renyi(16))}.",
)
picture(
    "zcdp",
    "zCDP",
    order,
    Axis(0, 0.6, "D / order, at most"),
    lambda f, a: f.renyi(a).upper / a,
    orders,
    ((8.6, 0.5, "end"), (2.6, 0.34, "start")),
    sentence="`f.zcdp()` bounds the largest D / order. Laplace noise has "
    f"{laplace.zcdp().upper:.3g}. The training's ratio rises to {say(training.zcdp())}, as "
    "without the samples: zCDP does not see the sampling.",
)
picture(
    "gdp",
    "Gaussian privacy",
    small,
    Axis(0, 1.2, "mu of the Gaussian curve through the point"),
    mu_at,
    SMALL,
    ((1e-7, 0.55, "start"), (0.02, 0.95, "end")),
    sentence="`f.gdp()` bounds the largest mu at any level. "
    f"Laplace noise has its largest, {max(mu_at(laplace, a) for a in LEVELS[1:-1]):.3g}, at a "
    f"level of .3. The training's rises from {mu_at(training, 0.5):.3g} at level .5 to "
    f"{mu_at(training, 1e-9):.3g} at 1e-9. Its proven bound is {say(training.gdp())}, as "
    "without the samples.",
)
picture(
    "pbdp",
    "Probabilistic bounds",
    Axis(0, 4, "epsilon"),
    Axis(1e-12, 1, "power of such a test, at most", log=True, ticks=tenths),
    lambda f, e: max(f.pbdp(e).upper, 1e-15),
    wide,
    ((2.3, 1e-4, "start"), (0.9, 1e-6, "end")),
    sentence="`f.pbdp(epsilon)` is the largest power of a test whose power is more than e^epsilon "
    f"times its level. At epsilon 2 it is {say(training.pbdp(2))} for the training, and delta "
    f"is {say(training.delta(2))}.",
)
priors = np.linspace(0, 1, 61)
picture(
    "posterior",
    "Posterior after a positive result",
    Axis(0, 1, "prior"),
    Axis(0, 1, "posterior"),
    lambda f, p: after(p, 0.001, f),
    priors,
    ((0.2, 0.64, "end"), (0.225, 0.39, "start")),
    more=[Line([(0, 0), (1, 1)], "", PALE, 1)],
    sentence="After a positive result of the best test of level .001, a "
    f"prior of 10% becomes a posterior of {100 * after(0.1, 0.001, training):.0f}% with the "
    f"training and {100 * after(0.1, 0.001, laplace):.0f}% with Laplace noise.",
)
places = np.linspace(-2.5, 2.98, 138)
curve = list(zip(places.tolist(), density(training, places).tolist(), strict=True))
inner = np.linspace(-1, 1, 40)
write(
    "loss",
    "Privacy loss",
    Axis(-2.5, 3, "privacy loss"),
    Axis(0, 1.2, "density (stems: mass)"),
    [
        Line(curve, "", BLUE, 2.2),
        Line([(float(v), math.exp((v - 1) / 2) / 4) for v in inner], "", BROWN, 2.2, "7 3"),
        *(Line([(v, 0), (v, m)], "", BROWN, 2.2) for v, m in ((-1, math.exp(-1) / 2), (1, 0.5))),
        Note(0.5, 0.8, "training", BLUE),
        Note(1.15, 0.22, "Laplace", BROWN),
        Note(-1, math.exp(-1) / 2, ".18", BROWN, "end", dot=True),
        Note(1, 0.5, ".50", BROWN, "start", dot=True),
    ],
    "The logarithm of the likelihood ratio. Laplace noise has its largest value, 1, with "
    "probability one half. The training's is nearly a bell, with a longer tail to the right.",
)
picture(
    "advantage",
    "Advantage",
    level,
    Axis(0, 0.45, "power - level, at most"),
    lambda f, a: f.power(a).upper - a,
    np.linspace(0, 1, 101),
    ((0.42, 0.185, "middle"), (0.5, 0.35, "start")),
    sentence="`f.advantage()` is the largest difference of power and level (total variation): "
    f"{say(training.advantage())} for the training, {say(laplace.advantage())} for Laplace noise.",
)

FIGURES = len(SHOWN)

# Figure 1 of the review: three mechanisms, and a curve f that one of them meets.
f = ny.gdp(1)
THREE = (
    ("Laplace, scale 1.5", ny.Laplace(1.5).tradeoff(), BLUE, "7 3", (0.42, 0.86)),
    ("response, epsilon 1", ny.RandomizedResponse(1).tradeoff(), BROWN, "", (0.42, 0.77)),
    ("Gaussian, sigma .6", ny.Gaussian(0.6).tradeoff(), GREEN, "", (0.42, 0.68)),
)
assert [ny.compare(g, f) for _, g, _, _, _ in THREE] == ["at-least", "incomparable", "at-most"]
curves: list[Line | Note] = [Line([(a, f(a).lower) for a in LEVELS.tolist()], "", BLACK, 3.0)]
for name, g, color, dash, (a, b) in THREE:
    curves.append(Line([(p, g(p).lower) for p in LEVELS.tolist()], "", color, 2.0, dash))
    curves.append(Note(a, b, name, color))
write(
    "admissible",
    "Three curves, one admissible",
    level,
    Axis(0, 1, "misses, at least"),
    [Line([(0, 1), (1, 0)], "", PALE, 1), *curves, Note(0.42, 0.95, "f, mu = 1", BLACK)],
    "f-DP, for the black f of mu = 1, needs a curve that is nowhere below f. Only the dashed "
    f"one is. At level .3 f allows {say(f(0.3))}, Laplace noise leaves {say(THREE[0][1](0.3))}, "
    f"randomized response {say(THREE[1][1](0.3))}, and the narrow Gaussian "
    f"{say(THREE[2][1](0.3))}.",
)

# Figure 2 of the review: ways to count the same rounds.
SIGMA, RATE, DELTA = 0.8, 0.01, 1e-5
ORDERS = (1 + np.geomspace(0.5, 63, 24)).tolist()
counts = [50, *range(100, 1001, 100)]
ways: dict[str, list[float]] = {"RDP": [], "exact": [], "Edgeworth": [], "GDP": []}
for count in counts:
    rounds = ny.Gaussian(SIGMA).subsample(rate=RATE) * count
    g = rounds.tradeoff()
    limit = approximations.normal(approximations.sampled_gaussian(SIGMA, RATE, count))
    orders = [conversions.mironov(a, g.renyi(a).upper, DELTA).upper for a in ORDERS]
    ways["RDP"].append(min(orders))
    ways["exact"].append(g.epsilon(DELTA).upper)
    ways["Edgeworth"].append(approximations.edgeworth(rounds, 1).epsilon(DELTA).value)
    ways["GDP"].append(limit.epsilon(DELTA).value)
    assert g.epsilon(DELTA).width < 1e-6
STYLES = {
    "RDP": (BROWN, ""),
    "exact": (BLACK, ""),
    "Edgeworth": (GREEN, "7 3"),
    "GDP": (BLUE, "7 3"),
}
write(
    "accountants",
    "Four accountants",
    Axis(0, 1000, "rounds"),
    Axis(0, 6, f"epsilon at delta {DELTA:g}"),
    [
        Line(list(zip(map(float, counts), ways[name], strict=True)), name, color, 2.0, dash)
        for name, (color, dash) in STYLES.items()
    ],
    f"Rounds of Gaussian noise, sigma {SIGMA}, on Poisson samples of rate {RATE}, in our own "
    f"setting, because the review prints none. After {counts[-1]} rounds the certified epsilon is "
    f"{ways['exact'][-1]:.4g}, and Renyi's route has "
    f"{ways['RDP'][-1]:.4g}. Edgeworth's expansion of first order, {ways['Edgeworth'][-1]:.4g}, "
    f"and the central limit, {ways['GDP'][-1]:.4g}, are estimates without a safe side.",
)

# Cost against the number of cells, and against how many of them have people.
REVIEW = len(SHOWN)
PEOPLE, EPSILON, CELLS = 10_000, 1.0, 100_000
sizes = np.geomspace(2, CELLS, 40)
ratio = math.exp(-EPSILON / 2)  # discrete Laplace noise: a person who moves changes two cells by 1
variance = 2 * ratio / (1 - ratio) ** 2
chance = 1 / (math.exp(EPSILON) + 1)  # of a 1 for a cell that is not the person's
spread = 0.25 + (sizes - 1) * chance * (1 - chance)  # of a person's report, over all cells
errors = {
    "sampling": np.sqrt((1 - 1 / sizes) / PEOPLE),
    "noise on the counts": np.sqrt(sizes * variance) / PEOPLE,
    "local reports": np.sqrt(spread / PEOPLE) / (0.5 - chance),
}
TENS = tuple((10.0**k, f"{10**k:,}") for k in range(1, 5))
STROKES = {
    "sampling": (PALE, "2 4"),
    "noise on the counts": (BLUE, ""),
    "local reports": (BROWN, "7 3"),
}
PLACES = {"sampling": (3, 0.0145), "noise on the counts": (300, 0.0011), "local reports": (20, 0.5)}
even = PEOPLE / variance
worse = errors["local reports"] / errors["sampling"]
write(
    "dimension",
    "Cost against dimension",
    Axis(2, CELLS, "cells", log=True, ticks=TENS),
    Axis(1e-4, 10, "error of the shares, root of the sum of squares", log=True),
    [
        mark
        for name, (color, dash) in STROKES.items()
        for mark in (
            Line(list(zip(sizes.tolist(), errors[name].tolist(), strict=True)), "", color, 2, dash),
            Note(*PLACES[name], name, color),
        )
    ],
    f"A histogram of {PEOPLE:,} people in equally large cells at epsilon {EPSILON:g}. Noise grows "
    "with the square root of the number of cells, and the sampling error hardly depends on it. "
    f"Noise on the counts is below the sampling error up to about {even:,.0f} cells. Local "
    f"reports (unary encoding) have {worse[0]:.2g} times the sampling error for two cells, and "
    f"{worse[-1]:,.0f} times for {CELLS:,}.",
)

least = math.ceil(math.log(CELLS / (1 + ratio)) / -math.log(ratio))  # one false cell is expected
noise = np.arange(-400, 401)
mass = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)


def cost(counts, threshold):
    """Expected absolute error of all cells for each person; filled cells have `counts` people."""
    filled = PEOPLE / counts
    value = counts[:, None] + noise
    answer = np.where(value >= threshold, value, 0)
    wrong = np.abs(answer - counts[:, None]) @ mass
    empty = np.where(noise >= threshold, np.abs(noise), 0) @ mass
    return (filled * wrong + (CELLS - filled) * empty) / PEOPLE


counts_each = np.arange(1, 1001)[::-1]
filled_cells = (PEOPLE / counts_each).tolist()
every, large = cost(counts_each, -math.inf), cost(counts_each, least)
write(
    "sparsity",
    "Cost against sparsity",
    Axis(8, 1.5 * PEOPLE, f"cells with people, of {CELLS:,}", log=True, ticks=TENS),
    Axis(1e-3, 100, "expected absolute error for each person", log=True),
    [
        Line(list(zip(filled_cells, every.tolist(), strict=True)), "", BROWN, 2, "7 3"),
        Line(list(zip(filled_cells, large.tolist(), strict=True)), "", BLUE, 2),
        Line([(PEOPLE / least, 1e-3), (PEOPLE / least, 100)], "", PALE, 1, "2 4"),
        Note(12, 32, "every cell", BROWN),
        Note(12, 0.045, f"cells of at least {least}", BLUE),
        Note(PEOPLE / least * 0.9, 0.0016, f"{least} people in each", PALE, "end"),
    ],
    f"The same people and noise in {CELLS:,} cells, most of them empty. With every cell "
    f"released, the noise of the empty cells adds up to {every[0]:.0f} per person. With noisy "
    f"counts below {least} set to 0, the error is "
    f"{large[0]:.2g} if the people are in 10 cells. If they are in {filled_cells[-1]:,.0f}, nearly "
    f"every count is lost: the error is {large[-1]:.2g}.",
)

for first, last in ((0, FIGURES), (FIGURES, REVIEW), (REVIEW, len(SHOWN))):
    print("\n" * bool(first) + "| | |\n|---|---|")
    for left, right in zip(SHOWN[first:last:2], SHOWN[first + 1 : last : 2], strict=True):
        for row in zip(left, right, strict=True):
            print("| " + " | ".join(row) + " |")
