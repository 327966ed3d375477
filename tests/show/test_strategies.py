"""The page on noise that serves many tables."""

import re
from pathlib import Path

import pytest

from neyman.show.strategies import pages


@pytest.mark.slow
def test_the_page_is_what_the_code_writes():
    """Word for word, and the figure to a tenth of a unit."""
    docs = Path(__file__).parents[2] / "docs"
    files = pages()
    assert (docs / "strategies.md").read_text(encoding="utf-8") == files["strategies.md"]
    drawn, again = (
        re.split(r"(-?\d+(?:\.\d+)?)", text)
        for text in ((docs / "strategies.svg").read_text("utf-8"), files["strategies.svg"])
    )
    assert drawn[::2] == again[::2]
    far = [abs(float(a) - float(b)) for a, b in zip(drawn[1::2], again[1::2], strict=True)]
    assert max(far) < 0.15
