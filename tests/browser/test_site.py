"""The site of the documentation: it builds, opens from the file system, and can be searched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "site"))
import pages  # noqa: E402 (docs/site/pages.py)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", DOCS, folder]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(site):
    for name in pages.pages():
        html = (site / name).with_suffix(".html").read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\ssrc="([^"]*)"', html)
        loaded += re.findall(
            r'<link[^>]*rel="(?:stylesheet|preload|icon)"[^>]*href="([^"]*)"', html
        )
        assert loaded
        assert not [url for url in loaded if re.match(r"\w+:|//", url) and url[:5] != "data:"]
    for sheet in site.rglob("*.css"):
        for url in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", sheet.read_text()):
            assert not re.match(r"https?:|//", url), (sheet, url)


def test_the_search_of_the_site_works_from_the_file_system(site, look):
    requests: list[str] = []
    look.context.on("request", lambda request: requests.append(request.url))
    page = look((site / "index.html").as_uri())
    page.fill("input[name=q]", "calibrate")
    page.press("input[name=q]", "Enter")
    page.get_by_text("Search finished").wait_for(timeout=60_000)
    links = page.locator("#search-results a").evaluate_all("each => each.map(a => a.href)")
    assert any("howto/accuracy.html" in link for link in links)
    assert {link.split("/")[0] for link in [*links, *requests]} <= {"file:", "data:"}


def test_the_search_finds_the_page_of_a_job_first_and_decisions_last(site, look):
    first = {
        "DP-SGD": "pytorch.html", "pytorch": "pytorch.html", "postgresql": "howto/sources.html",
        "missing values": "howto/missing-values.html", "synthetic data": "howto/synthetic.html",
        "install": "start.html",
    }  # fmt: skip
    for query, wanted in first.items():
        page = look(f"{(site / 'search.html').as_uri()}?q={query.replace(' ', '+')}")
        page.get_by_text("Search finished").wait_for(timeout=60_000)
        links = page.locator("#search-results a").evaluate_all("each => each.map(a => a.href)")
        places = [link.removeprefix(f"{site.as_uri()}/") for link in links]
        assert places[0].split("?")[0].split("#")[0] == wanted, (query, places[:5])
        last = [place.startswith(("certificates/", "decisions.html")) for place in places]
        assert last == sorted(last), (query, places)
