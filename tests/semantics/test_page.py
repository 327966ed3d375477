"""The page for policy makers shows what its example computes."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "semantics.py"))
PAGE = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
BLOCKS = [block.strip("\n") for block in PAGE.split("```text")[1:]]
BLOCKS = [block.split("\n```")[0] for block in BLOCKS]


@pytest.mark.parametrize("title", EXAMPLE["SECTIONS"])
def test_the_page_shows_each_part_of_the_example(title):
    """Every section that the example prints stands on the page, letter by letter."""
    assert "\n".join(EXAMPLE["SECTIONS"][title]()) in BLOCKS


def test_the_page_shows_nothing_else():
    """No block of numbers is on the page that the example does not print."""
    assert len(BLOCKS) == len(EXAMPLE["SECTIONS"])
