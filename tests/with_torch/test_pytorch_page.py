"""The page on PyTorch: each block runs, in order, and what readers are not shown checks them."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "site"))
import pages  # noqa: E402 (docs/site/pages.py, which the site's build runs too)

TEXT = (DOCS / "pytorch.md").read_text()


def test_the_code_of_the_page_runs(tmp_path):
    pages.run_blocks("pytorch.md", TEXT, tmp_path)


def test_the_first_two_screens_are_short():
    for code in re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)[:2]:
        assert code.count("\n") <= 25
