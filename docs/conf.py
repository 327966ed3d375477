"""The documentation site: ``sphinx-build -W docs build/docs``. Needs no network.

The build runs the code of every page. ``-t pages_only`` leaves that out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "site"))
# The pages' matrices are small: threads would wait for each other (streams.md 73 s instead of 11).
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pages

import neyman

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


def run_pages(app: Any) -> None:
    """Run the code of every page. A page that shows another result fails the build."""
    from sphinx.util import logging

    if "pages_only" in app.tags:  # a tag, because a value may not have a function's name
        return
    log = logging.getLogger("neyman.pages")
    for name in pages.pages():
        log.info("running %s", name)
        with tempfile.TemporaryDirectory() as folder:
            try:
                pages.run(name, Path(folder))
            except AssertionError as wrong:
                log.warning("%s", wrong)


def escape_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """In a docstring |x| is an absolute value, for Sphinx a substitution."""
    lines[:] = [line if "`" in line else line.replace("|", "\\|") for line in lines]


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("builder-inited", run_pages)
    app.connect("autodoc-process-docstring", escape_bars)
