"""The documentation site: ``sphinx-build -W docs build/docs``. Needs no network.

The tests run the code of every page (tests/test_docs.py).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "site"))

import command_reference

import neyman
from benchmarks import league

project = "Neyman"
author = "the authors of Neyman"
release = version = neyman.__version__
html_title = f"Neyman {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["site"]
nitpicky = False

# Anchors as on the usual hosts of Markdown, so that a page reads and links the same there and here.
myst_heading_anchors = 3
# Pages outside the site that are linked to: they come along as files.
suppress_warnings: list[str] = []

default_role = "code"  # docstrings write `name`
napoleon_custom_sections = [("Source", "notes_style"), ("Sources", "notes_style")]
napoleon_use_rtype = False  # "The release: what it has" names no type
autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "site" / "search_scorer.js")
html_show_search_summary = False  # an excerpt needs a fetch, which browsers refuse to a file
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    # The reader's own fonts: nothing is fetched.
    "light_css_variables": {"font-stack": "system-ui, -apple-system, 'Segoe UI', sans-serif"}
}


def escape_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """In a docstring |x| is an absolute value, for Sphinx a substitution."""
    lines[:] = [line if "`" in line else line.replace("|", "\\|") for line in lines]


def add_anchors(app: Any, page: str, source: list[str]) -> None:
    """Put the anchor of its label before each statement of a certificate: UN-1 is #un-1."""
    if page.startswith("certificates/"):
        head = re.compile(r"(?<!\)=\n\n)^\*\*([A-Z]{1,2}-\d+)\. ", re.M)
        source[0] = head.sub(lambda m: f"({m[1].lower()})=\n\n{m[0]}", source[0])


def fill_tables(app: Any, page: str, source: list[str]) -> None:
    """Add what is computed and not stored: the list of commands, and the tables of the league."""
    if page == "cli":
        source[0] += command_reference.reference()
    if page == "league":
        source[0] = league.filled(source[0])


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("source-read", fill_tables)
    app.connect("env-get-outdated", lambda *_: ["cli", "league"])  # they change with the code
    app.connect("source-read", add_anchors)
    app.connect("autodoc-process-docstring", escape_bars)
