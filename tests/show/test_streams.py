"""The page of sums over a stream: its numbers, its figures and its code."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from neyman.show import streams

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def files():
    return streams.pages()


@pytest.mark.slow
def test_the_page_is_what_the_code_writes(files):
    """Word for word."""
    assert (DOCS / "streams.md").read_text(encoding="utf-8") == files["streams.md"]


@pytest.mark.slow
def test_the_figures_are_what_the_code_draws(files):
    """To a tenth of a unit, with every word inside, and linked."""
    drawn = {name: text for name, text in files.items() if name.endswith(".svg")}
    assert set(re.findall(r"\]\((streams-\w+\.svg)\)", files["streams.md"])) == set(drawn)
    for name, text in drawn.items():
        before, again = (
            re.split(r"(-?\d+(?:\.\d+)?)", t)
            for t in ((DOCS / name).read_text(encoding="utf-8"), text)
        )
        assert before[::2] == again[::2], name
        pairs = zip(before[1::2], again[1::2], strict=True)
        assert max(abs(float(a) - float(b)) for a, b in pairs) < 0.15, name
        root = ElementTree.fromstring(text)
        for words in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(words.attrib["x"]) <= float(root.attrib["width"]), words.text
            assert 0 < float(words.attrib["y"]) < float(root.attrib["height"]), words.text


def test_the_code_of_the_page_runs():
    """All of it in one go, as a reader would."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / "streams.md").read_text(), re.S))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, timeout=120, capture_output=True
    )
    assert len(done.stdout.splitlines()) == 5
