"""The pages: their code runs and prints what they show, links lead somewhere, the site builds."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import neyman as ny
from neyman.show import plots

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))
import pages  # noqa: E402 (docs/site/pages.py, which the site's build runs too)

# Pages that make releases, run commands or compute a table of the literature.
LONG = {"tutorial.md", "reproduced.md", "sharp-edges.md"} | {
    f"{folder}.md"
    for folder in (
        "howto/accuracy", "howto/figures", "howto/ledger", "howto/verify",
        "theory/composition", "theory/shuffling",
    )
}  # fmt: skip
RUN = ["../README.md", *(n for n in pages.pages() if list(pages.blocks((DOCS / n).read_text())))]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in RUN]
)
def test_the_code_of_a_page_prints_what_the_page_shows(name, tmp_path):
    """Every block, in order; every figure that is drawn stands on the page, and no other."""
    pages.run(name, tmp_path)
    if name not in pages.ELSEWHERE:
        shown = re.findall(r"\((?:\.\./)?figures/([\w.-]+)\)", (DOCS / name).read_text())
        assert pages.drawn(tmp_path) == set(shown)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected"),
        ("```python\nx = 1\n```\n\n<!-- run\nassert x == 2\n-->\n", "AssertionError"),
        ("```console\n$ neyman plan schema\nnothing\n```\n", "the page says"),
        ("```console\n$ rm -r x\n```\n", "only neyman"),
        ("```python\nimport warnings; warnings.warn('w')\n```\n", "UserWarning"),
    ],
)
def test_a_page_that_says_something_else_fails(page, said, tmp_path):
    """Wrong output, a wrong number in the text, a failing command, a warning: each is found."""
    (tmp_path / "page.md").write_text(page)
    (tmp_path / "folder").mkdir()
    with pytest.raises(AssertionError, match=said):
        pages.run(str(tmp_path / "page.md"), tmp_path / "folder")


@pytest.mark.parametrize("page", ["../README.md", *pages.pages()])
def test_pages_link_to_files_that_are_there(page):
    """Links and pictures of every page."""
    path = DOCS / page
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", text):
        assert (path.parent / target).exists(), target


def test_every_figure_stands_on_a_page():
    """Nothing is left in docs/figures that no page shows."""
    text = "\n".join((DOCS / name).read_text() for name in pages.pages())
    assert {p.name for p in (DOCS / "figures").iterdir()} == set(
        re.findall(r"figures/([\w.-]+\.svg)\)", text)
    )


def test_every_public_name_is_in_the_reference():
    """Each name of `import neyman` once, and no other."""
    text = "\n".join(path.read_text() for path in sorted((DOCS / "api").iterdir()))
    names = re.findall(r"^\.\. auto(?:class|function):: neyman\.(\w+)$", text, re.M)
    assert sorted(names) == sorted(ny.__all__)


@pytest.mark.parametrize("name", ny.__all__)
def test_examples_in_docstrings_print_what_they_show(name):
    """Of each public name and its methods."""
    runner = doctest.DocTestRunner(optionflags=pages.FLAGS)
    told: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(getattr(ny, name), name, globs={}):
        runner.run(test, out=told.append)
    assert not told, "".join(told)


def test_the_main_names_have_examples():
    """What most people look up first shows how it is used."""
    for thing in (ny.Gaussian, ny.Mechanism, ny.Tradeoff):
        assert ">>> " in (thing.__doc__ or "")
    assert all(getattr(plots, name).__doc__ for name in plots.__all__)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    """Every page is there, and all that a browser fetches for one lies beside it."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-D", "run_pages=0", DOCS, tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name in pages.pages():
        html = (tmp_path / name).with_suffix(".html").read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]*)"', html)
        loaded += re.findall(
            r'<link[^>]*rel="(?:stylesheet|preload|icon)"[^>]*href="([^"]*)"', html
        )
        assert loaded
        assert not [url for url in loaded if re.match(r"\w+:|//", url) and url[:5] != "data:"]
    for sheet in tmp_path.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", sheet.read_text()):
            assert not re.match(r"https?:|//", url), (sheet, url)
