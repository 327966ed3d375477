"""Figures: what is drawn is the certified side, names keep off lines, bad requests are named."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from scipy.special import ndtr, ndtri

import neyman as ny
from neyman.cli.demo.midwest import write_plan
from neyman.display.plots import direct_labels as lines
from neyman.display.plots import figures as plots

matplotlib.use("agg")
MU = 0.5
NOISE = ny.Gaussian(2)
SEVERAL = {
    "Gaussian": ny.Gaussian(1),
    "Laplace": ny.Laplace(1),
    "a pair": ny.approximate(1, 0.05),
    "GDP .3": ny.gdp(0.3),
}
ALL = (plots.tradeoff, plots.power, plots.profile, plots.posterior, plots.composition)


@pytest.fixture(autouse=True)
def closed():
    """No figure outlives its test."""
    plt.close("all")  # of a test of another file
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The demo's plan, with a hierarchy and five tables."""
    return ny.Plan.load(write_plan(tmp_path_factory.mktemp("plan")))


def picture(axes):
    """Points of the first line."""
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
    shares = [bar.get_width() for bar in axes.patches]
    assert shares == pytest.approx([1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6], rel=1e-12)
    said = [t.get_text() for t in axes.texts]
    assert said[:2] == ["total by state", "25%, noise ± 2.91"]
    axes = plots.budget(ny.Gaussian(2) * 3 + ny.Laplace(1))
    rho = np.array([3 / 8, math.exp(-1)])  # that of Laplace noise at epsilon 1
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(rho / rho.sum())


def test_colors_stay_apart_and_names_can_be_read():
    """Okabe and Ito's; letters have a contrast of 4.5 with white or more (WCAG 2)."""
    assert len(set(lines.COLORS)) == 7
    for color in (*lines.COLORS, lines.PALE):
        channels = np.array(to_rgb(lines.readable(color)))
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("ask", "said"),
    [
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
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(ask, said):
    with pytest.raises((TypeError, ValueError), match=said):
        ask()
    assert not plt.get_fignums()


def test_matplotlib_is_imported_when_a_figure_is_drawn_and_named_where_it_is_missing():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import neyman as ny; from neyman.display.plots import figures as plots\n"
        "try: plots.power(ny.Gaussian(1))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "figures need matplotlib: pip install 'neyman[release]'\n"
