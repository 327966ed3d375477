"""The examples run; the code of pages: test_docs, the README's commands: show/test_demo."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))
from pages import DOCS, PRINTED, pages  # noqa: E402 (docs/site/pages.py)

EXAMPLES = {path.stem for path in (ROOT / "examples").glob("*.py")}
HELD = {result for name in pages() for result, _ in PRINTED.findall((DOCS / name).read_text())}


@pytest.mark.parametrize("name", sorted(EXAMPLES - HELD))
def test_each_example_runs(name, tmp_path):
    # DuckDB's own Arrow reader calls a method that it has renamed.
    duckdb = ["-W", "ignore:fetch_:DeprecationWarning"]
    command = [sys.executable, "-W", "error", *duckdb, ROOT / "examples" / f"{name}.py", tmp_path]
    subprocess.run(command, check=True, timeout=300, cwd=ROOT, capture_output=True)
