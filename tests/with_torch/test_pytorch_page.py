"""The page on PyTorch: each block runs, in order, and what readers are not shown checks them."""

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
    text = (DOCS.parent / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    said = re.search(r"epsilon\(delta=1e-5\)\) +# ([\d.]+)$", code, re.M)
    pages.run_blocks("pytorch.md", f"```python\n{code}```\n" + CHECK.format(said[1]), tmp_path)


def test_the_first_two_screens_are_short():
    for code in re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)[:2]:
        assert code.count("\n") <= 25


def test_the_constraints_fit_all_that_torch_and_opacus_require():
    lines = (DOCS.parent / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pairs}
    queue, packages = ["torch", "opacus"], set()
    while queue:
        packages.add(name := queue.pop())
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # of another platform
            continue
        for one in needed:
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                key = canonicalize_name(one.name)
                assert key not in pins or one.specifier.contains(pins[key]), (name, str(one))
                queue += [key] if key not in packages else []
    assert "mpmath" in packages
