"""The page on PyTorch: each block runs, in order, and what readers are not shown checks them."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "site"))
import pages  # noqa: E402 (docs/site/pages.py, which the site's build runs too)

TEXT = (DOCS / "pytorch.md").read_text()
CHECK = """<!-- run
assert {0} - 0.01 < trained.tradeoff().epsilon(delta=1e-5).upper <= {0}
-->
"""


def test_the_code_of_the_page_runs(tmp_path):
    pages.run_blocks("pytorch.md", TEXT, tmp_path)


def test_the_training_of_the_readme_runs_and_prints_its_epsilon(tmp_path):
    """The README leaves the block out of its own test, which has no torch."""
    text = (DOCS.parent / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    said = re.search(r"epsilon\(delta=1e-5\)\) +# ([\d.]+)$", code, re.M)
    pages.run_blocks("pytorch.md", f"```python\n{code}```\n" + CHECK.format(said[1]), tmp_path)


def test_the_first_two_screens_are_short():
    for code in re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)[:2]:
        assert code.count("\n") <= 25
