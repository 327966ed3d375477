"""The page for policy makers shows what its example computes (test_docs), and nothing else."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "semantics.py"))
PAGE = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
BLOCKS = [block.strip("\n") for block in PAGE.split("```text")[1:]]
BLOCKS = [block.split("\n```")[0] for block in BLOCKS]


def test_the_page_shows_nothing_else():
    """No block of numbers is on the page that the example does not print."""
    assert len(BLOCKS) == len(EXAMPLE["SECTIONS"])
