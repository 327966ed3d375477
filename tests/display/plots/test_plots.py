"""Figures and charts: what is drawn is the certified side, and names keep off lines."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction
from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from scipy.special import ndtr, ndtri

import neyman as ny
from mixed_plan import MIXED
from neyman.display import figures as plots
from reproductions.svg_chart import Area, Axis, Line, Note, chart

matplotlib.use("agg")
MU = 0.5
NOISE = ny.Gaussian(2)
SEVERAL = {
    "Gaussian": ny.Gaussian(1), "Laplace": ny.Laplace(1), "a pair": ny.approximate(1, 0.05),
    "GDP .3": ny.gdp(0.3),
}  # fmt: skip
ALL = (plots.tradeoff, plots.power, plots.profile, plots.posterior, plots.composition)


@pytest.fixture(autouse=True)
def closed():
    plt.close("all")  # of a test of another file
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(MIXED.replace("[unit]", "[unit]\nrows = 1"))
    return ny.Plan.load(path)


def picture(axes):
    x, y = axes.lines[0].get_data()
    return np.asarray(x, float), np.asarray(y, float)


def above(result, true):
    """On the safe side of what is true, and close to it."""
    assert (result >= true * (1 - 1e-12) - 1e-15).all()
    assert result == pytest.approx(true, rel=1e-6, abs=1e-9)


def gaussian_power(levels):
    with np.errstate(divide="ignore"):
        return ndtr(ndtri(levels) + MU)


def test_errors_of_type_two_are_drawn_from_below():
    """Against the closed form of a Gaussian; between two points off by less than a line's width."""
    x, y = picture(plots.tradeoff(NOISE))
    above(1 - y, gaussian_power(x))
    assert (x[0], x[-1], y[-1]) == (0, 1, 0)
    middle = (x[1:] + x[:-1]) / 2
    assert ((y[1:] + y[:-1]) / 2 - (1 - gaussian_power(middle))).max() < 2e-3


def test_power_delta_and_epsilon_are_drawn_from_above():
    """Against the closed forms of the Gaussian."""
    x, y = picture(plots.power(NOISE))
    above(y, gaussian_power(x))
    x, y = picture(plots.profile(NOISE, least=1e-8))
    delta = ndtr(MU / 2 - x / MU) - np.exp(x) * ndtr(-MU / 2 - x / MU)
    above(y, delta)
    assert y[-1] == pytest.approx(1e-8, rel=1e-6)
    x, y = picture(plots.composition(NOISE, most=20, delta=1e-5))
    mu = MU * np.sqrt(x)
    left = ndtr(mu / 2 - y / mu) - np.exp(y) * ndtr(-mu / 2 - y / mu)
    assert left == pytest.approx(1e-5, rel=1e-6)


def test_a_finding_is_worth_what_bayes_says():
    x, y = picture(plots.posterior(NOISE, level=0.1))
    power = gaussian_power(0.1)
    above(y, x * power / (x * power + (1 - x) * 0.1))


@pytest.mark.parametrize("draw", ALL)
def test_names_stand_in_the_frame_apart_and_off_the_lines(draw):
    axes = draw(SEVERAL)
    axes.figure.canvas.draw()
    frame = axes.get_window_extent()
    boxes = [text.get_window_extent() for text in axes.texts]
    finite = [line for line in axes.lines if np.isfinite(line.get_ydata()).any()]
    assert {t.get_text() for t in axes.texts} >= set(SEVERAL) - {"a pair"}
    for box in boxes:
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
        assert frame.y0 <= box.y0 < box.y1 <= frame.y1
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    for line in finite:
        path = axes.transData.transform(np.column_stack(line.get_data()))
        steps = np.linspace(0, 1, 50)[:, None, None]
        dense = (path[:-1] * (1 - steps) + path[1:] * steps).reshape(-1, 2)
        for box in boxes:
            inside = (dense > [box.x0, box.y0]) & (dense < [box.x1, box.y1])
            assert not inside.all(axis=1).any(), line


@pytest.mark.parametrize("draw", [*ALL, plots.budget])
def test_given_axes_are_drawn_in_and_returned(draw):
    figure, axes = plt.subplots()
    assert draw(NOISE, axes=axes) is axes
    assert plt.get_fignums() == [figure.number]
    assert axes.get_xlabel()
    assert axes.get_ylabel() or draw is plots.budget


def test_a_plan_and_a_release_are_asked_like_mechanisms(plan):
    one, other = picture(plots.power(plan)), picture(plots.power(plan.mechanism()))
    assert np.array_equal(one, other)
    texts = {t.get_text() for t in plots.power([plan, ny.Laplace(3)]).texts}
    assert {plan.name, "Laplace(scale=3, sensitivity=1)"} <= texts


def test_a_budget_is_drawn_as_it_is_shared(plan):
    axes = plots.budget(plan)
    shares = {}
    for entry in plan.entries():
        shares[entry.query, entry.level] = shares.get((entry.query, entry.level), 0) + entry.share
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == pytest.approx([float(share) for share in shares.values()], rel=1e-12)
    assert axes.texts[0].get_text() == "total by state"
    assert axes.texts[1].get_text().startswith("12%, noise ± ")
    sections = plan.canonical()
    for query in sections["query"]:
        query["share"] = str(Fraction(query["share"]) * 3 / 4)
    sections["budget"]["unspent"] = "1/4"
    axes = plots.budget(ny.Plan.from_dict(sections))
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(
        [*(0.75 * np.array(widths)), 0.25]
    )
    assert [text.get_text() for text in axes.texts[-2:]] == ["left unspent", "25%"]
    axes = plots.budget(ny.Gaussian(2) * 3 + ny.Laplace(1))
    rho = np.array([3 / 8, math.exp(-1)])  # that of Laplace noise at epsilon 1
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(rho / rho.sum())


def test_colors_stay_apart_and_names_can_be_read():
    """Okabe and Ito's; letters have a contrast of 4.5 with white or more (WCAG 2)."""
    axes = plots.power({f"mu {k}": ny.gdp(k / 4) for k in range(1, 8)})
    curves = {line.get_color() for line in axes.lines if len(line.get_xdata()) > 9}
    assert len(curves) >= 7
    for text in axes.texts:
        channels = np.array(to_rgb(text.get_color()))
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) >= 4.5


@pytest.mark.parametrize(("ask", "said"), [
    (lambda: plots.tradeoff(1), "of = 1 must be a mechanism"),
    (lambda: plots.tradeoff([]), "of has 0 curves"),
    (lambda: plots.power([NOISE] * 8), "of has 8 curves"),
    (lambda: plots.power(NOISE, least=0), "least = 0"),
    (lambda: plots.profile(NOISE, least=1), "least = 1"),
    (lambda: plots.profile(ny.total_variation(0.3)), "no epsilon"),
    (lambda: plots.posterior(NOISE, level=0), "level = 0"),
    (lambda: plots.composition(NOISE, most=1), "most = 1"),
    (lambda: plots.composition(NOISE, delta=1.5), "delta = 1.5"),
    (lambda: plots.budget(ny.gdp(1)), "plan or a mechanism"),
    (lambda: plots.budget(ny.NonPrivate()), "zCDP"),
    (lambda: plots.budget(ny.Mechanism.nothing()), "only a finite rho"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused_by_name(ask, said):
    with pytest.raises((TypeError, ValueError), match=said):
        ask()
    assert not plt.get_fignums()


def test_matplotlib_is_imported_when_a_figure_is_drawn_and_named_where_it_is_missing():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import neyman as ny; from neyman.display import figures as plots\n"
        "try: plots.power(ny.Gaussian(1))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "figures need matplotlib: pip install 'neyman[release]'\n"


SVG = "{http://www.w3.org/2000/svg}"


def chart_of(marks, **more):
    return ET.fromstring(chart(Axis(0, 10, "across"), Axis(0, 1, "up"), marks, title="t", **more))


def words(root):
    return [
        (e.text or "", float(e.attrib["x"]), float(e.attrib["y"])) for e in root.iter(f"{SVG}text")
    ]


def test_ticks_are_round_numbers_or_powers_of_ten():
    assert [t for _, t in Axis(0, 1).marks()] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [v for v, _ in Axis(0, 10_000).marks()] == [0, 2000, 4000, 6000, 8000, 10_000]
    assert [t for _, t in Axis(10, 10_000, log=True).marks()] == ["10", "100", "1000", "10000"]
    assert Axis(0, 1, ticks=((0.5, "half"),)).marks() == ((0.5, "half"),)


@pytest.mark.parametrize(("axis", "value"), [(Axis(2, 4), 3.0), (Axis(1, 100, log=True), 10.0)])
def test_the_middle_of_an_axis(axis, value):
    assert axis.share(value) == pytest.approx(0.5)


def test_names_beside_lines_that_end_together_do_not_overlap():
    ends = [0.5 + k * 1e-3 for k in range(7)]
    root = chart_of([Line([(0, 0.2), (10, y)], f"name {k}") for k, y in enumerate(ends)])
    places = {text: y for text, _, y in words(root) if text.startswith("name")}
    heights = [places[f"name {k}"] for k in range(7)]
    assert all(a - b >= 15.9 for a, b in pairwise(heights))
    assert sum(heights) / 7 == pytest.approx(heights[3], abs=0.1)


def test_names_stay_within_the_picture():
    marks = [
        Line([(0, 0.5), (10, 7.0)], "leaves"),
        *(Line([(0, 0), (10, 0)], "low") for _ in "abc"),
    ]
    for _, x, y in words(chart_of(marks, width=500, height=300)):
        assert 0 <= x <= 500
        assert 0 <= y <= 300


def test_words_are_escaped_and_nothing_is_loaded():
    text = chart(
        Axis(0, 1), Axis(0, 1),
        [
            Line([(0, 0), (1, 1)], "<b>&"), Note(0.5, 0.5, "a\nb", dot=True),
            Area([(0, 0), (1, 0), (1, 1)]),
        ],
        title="<script>", heading="h",
    )  # fmt: skip
    assert "<b>" not in text
    assert "<script" not in text
    assert not re.findall(r'(?:href|src|url)="?(?!#)', text.replace("url(#frame)", ""))
    assert {"a", "b", "h", "<b>&"} <= {t for t, _, _ in words(ET.fromstring(text))}
