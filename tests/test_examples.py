"""What the README's commands and the examples say runs; the code of pages: test_docs."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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


OTHERS = sorted({path.stem for path in (ROOT / "examples").glob("*.py")} - {"compare", "gallery"})


@pytest.mark.parametrize("name", OTHERS)
def test_each_example_runs(name, tmp_path):
    """Those whose pages are not held against them below."""
    ran(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compare", "gallery"])
def test_a_page_says_what_its_example_prints(name, tmp_path):
    """Every line that is printed stands in the page, and every picture is one that is drawn."""
    page = (ROOT / "docs" / f"{name}.md").read_text()
    for line in ran(name, tmp_path).splitlines():
        assert line in page, line
    drawn = {path.name for path in (tmp_path / name).iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs" / name).iterdir()}
    assert drawn == set(re.findall(rf"\({name}/([^)]+)\)", page))


def ran(name, folder):
    """What an example prints when it is told to draw there."""
    command = [sys.executable, "-W", "error", ROOT / "examples" / f"{name}.py", folder]
    done = subprocess.run(command, check=True, timeout=300, cwd=ROOT, capture_output=True)
    return done.stdout.decode()
