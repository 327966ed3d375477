"""What the README's commands and the examples say runs; the code of pages: test_docs."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))
from pages import DOCS, PRINTED, pages  # noqa: E402 (docs/site/pages.py)


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    """One after the other, in a folder that holds what the demo leaves to start from."""
    neyman = [sys.executable, "-m", "neyman"]
    subprocess.run([*neyman, "demo", "--out", "demo"], check=True, timeout=300, cwd=tmp_path)
    shutil.rmtree(tmp_path / "demo" / "release")
    (tmp_path / "demo" / "ledger.db").unlink()
    page = (ROOT / "README.md").read_text()
    lines = re.findall(r"^neyman (.*)$", page, re.M)
    assert len(lines) == 4
    for line in [*lines, "plan schema"]:
        command = [*neyman, *shlex.split(line, comments=True)]
        subprocess.run(command, check=True, timeout=120, cwd=tmp_path / "demo")


EXAMPLES = {path.stem for path in (ROOT / "examples").glob("*.py")}
HELD = {result for name in pages() for result, _ in PRINTED.findall((DOCS / name).read_text())}


@pytest.mark.parametrize("name", sorted(EXAMPLES - HELD))
def test_each_example_runs(name, tmp_path):
    """Those whose pages are not held against them by test_docs."""
    # DuckDB's own Arrow reader calls a method that it has renamed.
    duckdb = ["-W", "ignore:fetch_:DeprecationWarning"]
    command = [sys.executable, "-W", "error", *duckdb, ROOT / "examples" / f"{name}.py", tmp_path]
    subprocess.run(command, check=True, timeout=300, cwd=ROOT, capture_output=True)
