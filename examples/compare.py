"""Draw docs/compare: composition theorems compared on the same releases.

Many Laplace releases, private training, and the textbook's Gaussian rule. The tables of
docs/comparison.md are what this prints.
"""

import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root of the repository

import neyman as ny
from neyman.accounting import conversions
from neyman.accounting.compare_noise import alike
from neyman.accounting.literature import approximations as limits
from reproductions import composition_bounds as bounds
from reproductions.svg_chart import Area, Axis, Line, Note, chart

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / "compare"
BLACK, BLUE, TEAL, VIOLET = "#111111", "#1a5fb4", "#0b7568", "#6d3f9e"
RED, ORANGE, PINK, OLIVE = "#b3261e", "#b85c00", "#b0297a", "#6b7000"
DASHES = ("6 4", "2 3", "8 3 2 3", "11 4")
NAMES = ("central limit", "Edgeworth 1", "Edgeworth 2", "Edgeworth 3")


def solid(name, color, points):
    """A proven bound."""
    return Line(points, name, color)


def exact(points):
    """A curve that is certified on both sides."""
    return Line(points, "exact", BLACK, 3.2)


def estimates(points):
    """Four estimates, dashed."""
    colors = (RED, ORANGE, PINK, OLIVE)
    return [
        Line(at, f"{name} (estimate)", color, 1.7, dash)
        for name, color, dash, at in zip(NAMES, colors, DASHES, points, strict=True)
    ]


def table(head, rows):
    """Print a table in Markdown: the first column is words."""
    print("\n|" + "|".join(head) + "|\n|---|" + "--:|" * (len(head) - 1))
    for name, *numbers in rows:
        text = f"*{name}, estimate*" if name in NAMES else name
        print(f"|{text}|" + "|".join(f"{x:.4g}" for x in numbers) + "|")


def two_digits_above(x):
    """The least number of two digits that is not below x > 0."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / unit) * unit


def renyi(f, delta):
    """Renyi's route: the best order's divergence turned into epsilon by Mironov's formula."""
    orders = (1 + np.geomspace(0.3, 300, 40)).tolist()
    return min(conversions.mironov(a, f.renyi(a).upper, delta).upper for a in orders)


def many(counts, delta, mechanism, bounded):
    """Epsilons of the bounds (by name), the exact one and the four estimates, at each count."""
    rows = {name: [] for name in (*bounded, "exact", *NAMES)}
    for n in counts:
        total = mechanism * n
        f = total.tradeoff()
        for name, bound in bounded.items():
            rows[name].append(bound(n, f))
        rows["exact"].append(f.epsilon(delta).upper)
        for order, name in enumerate(NAMES):
            rows[name].append(limits.edgeworth(total, order).epsilon(delta).value)
    return rows


def laplace():
    """Laplace noise of epsilon .1, released 1 to 100 times, at delta 1e-6."""
    delta, counts = 1e-6, [1, 2, 3, 4, 6, 8, *range(10, 30, 2), *range(30, 101, 5)]
    rho = Fraction(1, 200)  # epsilon^2 / 2
    rows = many(
        counts,
        delta,
        ny.Laplace(10),
        {
            "basic": lambda n, f: bounds.basic(["0.1"] * n).epsilon.upper,
            "advanced": lambda n, f: bounds.advanced("0.1", 0, n, delta).epsilon.upper,
            "zCDP, Bun-Steinke": lambda n, f: conversions.bun_steinke(rho * n, delta).upper,
            "zCDP, CKS": (
                lambda n, f: conversions.canonne_kamath_steinke_zcdp(rho * n, delta).upper
            ),
            "zCDP, optimal": lambda n, f: conversions.optimal(ny.zcdp(rho * n), delta).upper,
            "Renyi": lambda n, f: renyi(f, delta),
            "optimal for pure": lambda n, f: bounds.optimal("0.1", 0, n, delta).upper,
        },
    )
    picked = [counts.index(n) for n in (1, 10, 30, 100)]
    table(
        ["epsilon at delta 1e-6, by number of releases", "1", "10", "30", "100"],
        [(name, *(row[i] for i in picked)) for name, row in rows.items()],
    )
    at = {name: list(zip(counts, row, strict=True)) for name, row in rows.items()}
    ratio = {
        name: [(n, e / x) for n, e, x in zip(counts, row, rows["exact"], strict=True)]
        for name, row in rows.items()
    }
    across = Axis(0, 100, "releases, each of epsilon 0.1")
    answers = [
        ("basic", "basic: sum of epsilons", RED),
        ("advanced", "advanced (Dwork, Rothblum, Vadhan)", VIOLET),
        ("zCDP, Bun-Steinke", "zCDP by Bun and Steinke", BLUE),
        ("zCDP, optimal", "zCDP, the optimal way", TEAL),
    ]
    lines = [solid(name, color, at[key]) for key, name, color in answers]
    save("epsilon", across, Axis(0, 10, "epsilon at delta = 1e-6"), [*lines, exact(at["exact"])])
    answers = [
        ("basic", "", BLACK),
        ("advanced", "advanced", VIOLET),
        ("zCDP, Bun-Steinke", "zCDP, Bun-Steinke", BLUE),
        ("Renyi", "Renyi (Mironov)", BLUE),
        ("zCDP, optimal", "zCDP, optimal (and CKS)", TEAL),
        ("optimal for pure", "optimal for any pure", BLACK),
    ]
    lines = [solid(name, color, ratio[key]) for key, name, color in answers]
    save(
        "ratio",
        across,
        Axis(0.8, 1.6, "epsilon, times the exact one"),
        [
            *lines,
            *estimates([ratio[n] for n in NAMES]),
            exact(ratio["exact"]),
            Note(43, 1.54, "basic", BLACK, "end"),
        ],
    )


def training():
    """Gaussian noise of sigma 1 on Poisson samples of rate .01, at delta 1e-5."""
    delta = 1e-5
    counts = [round(n) for n in np.geomspace(10, 10_000, 25)]
    rows = many(
        counts, delta, ny.Gaussian(1).subsample(rate=0.01), {"Renyi": lambda n, f: renyi(f, delta)}
    )
    picked = [0, 8, 16, 24]
    table(
        ["epsilon at delta 1e-5, by number of steps", *(str(counts[i]) for i in picked)],
        [(name, *(row[i] for i in picked)) for name, row in rows.items()],
    )
    at = {
        name: [(n, e / x) for n, e, x in zip(counts, row, rows["exact"], strict=True)]
        for name, row in rows.items()
    }
    save(
        "training",
        Axis(10, 10_000, "steps of training", log=True),
        Axis(0, 2, "epsilon, times the exact one"),
        [
            solid("Renyi (Mironov)", TEAL, at["Renyi"]),
            *estimates([at[n] for n in NAMES]),
            exact(at["exact"]),
        ],
    )


def bands():
    """How far the estimates of a thousand Laplace releases may be off, and how far they are."""
    mechanism, rows = ny.Laplace(20) * 1000, []
    truth = mechanism.tradeoff().delta(1)
    for order, name in enumerate(NAMES):
        said = limits.edgeworth(mechanism, order).delta(1)
        off = max(abs(said.value - bound) for bound in (truth.lower, truth.upper))
        rows.append((name, said.value, two_digits_above(off), said.within))
    rows.append(("exact", truth.upper, *[two_digits_above(truth.upper - truth.lower)] * 2))
    words = "delta at epsilon 1 of 1000 Laplace releases"
    table([words, "delta", "off by at most", "proven within"], rows)


def textbook():
    """The textbook's sigma over the least that is enough."""
    epsilons = np.geomspace(0.05, 30, 49)
    lines = []
    for text, color in (("1e-3", VIOLET), ("1e-5", BLUE), ("1e-9", TEAL)):
        points = [(e, bounds.textbook_waste(float(e), text).lower) for e in epsilons]
        lines.append(solid(f"delta = {text}", color, points))
    y = Axis(0.5, 1.7, "textbook sigma, times the least that is enough")
    save(
        "textbook",
        Axis(
            0.05,
            30,
            "epsilon",
            log=True,
            ticks=tuple((t, f"{t:g}") for t in (0.05, 0.1, 0.3, 1, 3, 10, 30)),
        ),
        y,
        [
            Area([(0.05, 0.5), (0.05, 1), (30, 1), (30, 0.5)], "#f9e3e0"),
            Line([(1, 0.5), (1, 1.7)], color="#5c5c5c", dash="3 3"),
            *lines,
            Line([(0.05, 1), (30, 1)], color=BLACK, width=1.2),
            Note(0.06, 0.92, "below 1 the guarantee fails", RED),
            Note(1.07, 1.64, "the rule is not proven\nfrom epsilon 1 on"),
            Note(0.06, 1.05, "above 1 it wastes noise"),
        ],
    )
    cases = (("0.1", "1e-5"), ("0.5", "1e-5"), ("1", "1e-5"), ("4", "1e-5"), ("10", "1e-5"))
    rows = []
    for epsilon, delta in cases:
        ratio = bounds.textbook_waste(epsilon, delta).lower
        least = ny.calibrate(ny.Gaussian, ny.approximate(epsilon, float(delta)))
        spent = ny.Gaussian(ratio * least).tradeoff().delta(float(epsilon)).upper
        rows.append((f"epsilon {epsilon}", least, ratio * least, ratio**2, spent))
    table(["at delta 1e-5", "least sigma", "textbook sigma", "variance, times", "its delta"], rows)


def noises():
    """Laplace, geometric, Gaussian and discrete Gaussian noise at the same guarantee."""
    for target, count in ((ny.approximate(1, 1e-6), 1), (ny.approximate(1, 1e-6), 30)):
        result = alike(target, count)
        table(
            [
                f"(1, 1e-6), {count} release{'s' * (count > 1)}",
                "scale",
                "variance",
                "mean error",
                "5% beyond",
                "0.1% beyond",
                "1e-9 beyond",
            ],
            [
                (
                    k.kind,
                    k.scale,
                    k.variance.upper,
                    k.mean_error.upper,
                    *(t.upper for _, t in k.tails),
                )
                for k in result.kinds
            ],
        )


def save(name, x, y, marks):
    """Write one picture."""
    OUT.mkdir(parents=True, exist_ok=True)
    title = f"{y.label} against {x.label}"
    (OUT / f"{name}.svg").write_text(chart(x, y, marks, title=title), encoding="utf-8")


laplace()
training()
bands()
textbook()
noises()
