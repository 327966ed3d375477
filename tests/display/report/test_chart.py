"""Charts: what is drawn stands where the axes say, names do not overlap, words are escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from reproductions.svg_chart import Area, Axis, Line, Note, chart

SVG = "{http://www.w3.org/2000/svg}"


def chart_of(marks, **more):
    return ET.fromstring(chart(Axis(0, 10, "across"), Axis(0, 1, "up"), marks, title="t", **more))


def words(root):
    return [
        (e.text or "", float(e.attrib["x"]), float(e.attrib["y"])) for e in root.iter(f"{SVG}text")
    ]


def test_ticks_are_round_numbers_or_powers_of_ten():
    """Steps of 1, 2 or 5; powers on a logarithmic axis; what was given, as it was given."""
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
        Axis(0, 1),
        Axis(0, 1),
        [
            Line([(0, 0), (1, 1)], "<b>&"),
            Note(0.5, 0.5, "a\nb", dot=True),
            Area([(0, 0), (1, 0), (1, 1)]),
        ],
        title="<script>",
        heading="h",
    )
    assert "<b>" not in text
    assert "<script" not in text
    assert not re.findall(r'(?:href|src|url)="?(?!#)', text.replace("url(#frame)", ""))
    assert {"a", "b", "h", "<b>&"} <= {t for t, _, _ in words(ET.fromstring(text))}
