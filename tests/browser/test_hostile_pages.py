"""Pages full of hostile texts in a real browser: no script, no element, no address of theirs."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from hostile_pages import BENIGN, HOSTILE, page_from, poisoned, poisoned_tables, published
from neyman import Release
from random_laws import is_small

OPEN_ALL = "document.querySelectorAll('.fold > details').forEach(fold => (fold.open = true))"
ELEMENTS = """() => [...document.querySelectorAll("*")].map((each) =>
    [each.tagName, ...each.getAttributeNames()].join(" "))"""
TEXT = '"><img src=x onerror=hit()></title>&lt;'


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A release of a benign plan, and one of the same plan with a hostile text in each place."""
    results = {}
    for text in (BENIGN, TEXT):
        results[text] = tmp_path_factory.mktemp("hostile")
        published(results[text], text)
    return results


class Watched:
    """A page, the requests that it makes, and the scripts of hostile texts that ran on it."""

    def __init__(self, browser, protected: bool = False) -> None:
        self.context = browser.new_context(bypass_csp=not protected)
        self.asked: list[str] = []
        self.hits = 0
        self.context.expose_function("hit", self._hit)
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()

    def _hit(self, *_) -> None:
        self.hits += 1

    def _route(self, route) -> None:
        self.asked.append(route.request.url)
        if "e.example" in route.request.url:
            route.abort()
        else:
            route.continue_()

    def open(self, address: str) -> list[str]:
        """The elements of a page, once all that it might do of its own has been done."""
        self.page.goto(address)
        self.page.evaluate(OPEN_ALL)
        self.page.wait_for_timeout(200)  # a redirect after 0 s
        self.page.mouse.move(300, 300)
        return self.page.evaluate(ELEMENTS)

    @property
    def harm(self) -> list[str]:
        """Requests to the address of the texts, and scripts that ran."""
        return [url for url in self.asked if "e.example" in url] + ["hit"] * self.hits


@pytest.fixture
def watched(browser):
    watching = Watched(browser)
    yield watching
    watching.context.close()


def test_the_texts_do_harm_on_a_page_that_does_not_escape_them(watched, tmp_path):
    harm = {"https://e.example/", "https://e.example/x.js", "hit"}
    for number, text in enumerate(HOSTILE[:7] if is_small() else HOSTILE):
        path = tmp_path / f"{number}.html"
        path.write_text(f'<title>{text}</title><p title="{text}">{text}</p>', "utf-8", "replace")
        watched.context.new_page().goto(f"file://{path}", wait_until="commit")
    for _ in range(600):  # each page stays open: a busy machine reads it late
        if harm <= set(watched.harm):
            break
        watched.page.wait_for_timeout(50)
    assert set(watched.harm) == harm


def test_a_report_that_holds_every_hostile_text_is_the_benign_page(watched, folders, tmp_path):
    sample = Release.load(folders[BENIGN] / "out")
    receipt = json.loads((sample.folder / "receipt.json").read_text("utf-8"))
    pages = []
    for name, text in (("benign", " \n"), ("hostile", f" {' '.join(HOSTILE)}")):
        tables = poisoned_tables(sample.tables, text)
        path = tmp_path / f"{name}.html"
        path.write_text(page_from(poisoned(receipt, text), tables), "utf-8")
        watched.asked.clear()
        pages.append(watched.open(f"file://{path}"))
        assert watched.asked == [f"file://{path}"]
        assert watched.page.url == f"file://{path}"
    assert watched.harm == []
    benign, hostile = ([each for each in page if not each.startswith("A ")] for page in pages)
    assert hostile == benign
    assert "<script>hit()</script>" in watched.page.locator("body").inner_text()


def test_the_report_of_a_hostile_plan_is_the_benign_page(watched, folders):
    pages = [watched.open(f"file://{folders[text] / 'out' / 'report.html'}") for text in folders]
    assert pages[1] == pages[0]
    assert watched.harm == []
    expect(watched.page.get_by_text(f"A key that only one patient {TEXT} has")).to_be_visible()


def test_the_explorer_of_a_hostile_plan_and_receipt_is_the_benign_page(watched, folders, serve):
    pages = []
    for text in folders:
        served = serve(folders[text] / "out")
        cookie = {"name": served.explorer.cookie, "value": served.explorer.session}
        watched.context.add_cookies([{**cookie, "url": served.address}])
        watched.open(served.address)
        expect(watched.page.locator("#checks")).to_contain_text("Who made it", timeout=30_000)
        expect(watched.page.locator("#toml")).to_contain_text("unit")
        expect(watched.page.locator("#sentence")).to_contain_text(text)
        pages.append(watched.page.evaluate(ELEMENTS))
    assert pages[1] == pages[0]
    assert watched.harm == []


def test_a_notebook_that_shows_hostile_results_is_the_benign_page(watched, folders, tmp_path):
    pages = []
    for text in folders:
        shown = Release.load(folders[text] / "out")
        path = tmp_path / f"{len(pages)}.html"
        path.write_text(f"<!DOCTYPE html><title>x</title>{shown._repr_html_()}", "utf-8")
        pages.append(watched.open(f"file://{path}"))
    assert pages[1] == pages[0]
    assert watched.harm == []


def test_the_policy_refuses_what_markup_could_ask_for(browser, folders, tmp_path):
    text = (folders[BENIGN] / "out" / "report.html").read_text("utf-8")
    slipped = (
        "<script>hit()</script><img src=https://e.example/i onerror=hit()>"
        "<base href=https://e.example/><form action=https://e.example/f><button id=b></form>"
    )
    path = tmp_path / "slipped.html"
    path.write_text(text.replace("<main>", f"<main>{slipped}", 1), "utf-8")
    watched = Watched(browser, protected=True)
    watched.open(f"file://{path}")
    watched.page.evaluate("document.getElementById('b').form.requestSubmit()")
    watched.page.wait_for_timeout(200)
    assert watched.asked == [f"file://{path}"]
    assert watched.hits == 0
    assert watched.page.url == watched.page.evaluate("document.baseURI") == f"file://{path}"
    watched.context.close()
