"""Hostile texts in plans, keys, columns, and receipts are texts on every page."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import neyman as ny
from hostile_pages import (
    BENIGN,
    HOSTILE,
    Structure,
    page_from,
    poisoned,
    poisoned_tables,
    published,
)
from neyman import notebook
from neyman.display import page
from neyman.elements import element
from neyman.publishing import Plan, Receipt, verify

TEXT = '"><img src=x onerror=hit()></title>&lt;'  # with no quote that an expression could not have


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A release of a benign plan, and one of the same plan with a hostile text in each place."""
    return [published(tmp_path_factory.mktemp("hostile"), text) for text in (BENIGN, TEXT)]


def test_the_page_of_a_hostile_plan_has_the_elements_of_a_benign_one(releases):
    benign, hostile = (
        Structure((each.folder / "report.html").read_text("utf-8")) for each in releases
    )
    assert hostile.tags == benign.tags
    assert hostile.values("href") == benign.values("href")
    for said in ("only one patient {} has", "office {}", "kg {}", "visits{}", "case{}", "look{}"):
        assert said.format(BENIGN) in benign.text
        assert said.format(TEXT) in hostile.text
    assert f"key {TEXT}"[:39] in hostile.text
    checks = verify(releases[1].folder, {"report.html": page})
    assert [check for check in checks if not check.ok] == []


def test_the_notebook_views_of_hostile_results_have_the_elements_of_benign_ones(releases):
    def views(release, text):
        unit = ny.Unit(f"patient {text}", neighboring="replace-one", rows=1)
        ledger = ny.throwaway(1)
        ledger.register("a@1", protects=unit.protects, neighboring="replace-one", rows=1)
        asking = ny.Session(
            ledger=ledger, dataset="a@1", data=pa.table({f"c{text}": [text, "b"]}), unit=unit,
            columns={f"c{text}": ny.keys([text, "b"], unknown="drop")},
        )  # fmt: skip

        def failed():
            raise ValueError(text)

        return [
            release._repr_html_(),
            Plan.from_dict(release.receipt.plan)._repr_html_(),
            asking.ask(ny.query.count(by=f"c{text}"), zcdp="1/100")._repr_html_(),
            notebook.safe_html(failed, text),
        ]

    pairs = zip(views(releases[0], BENIGN), views(releases[1], TEXT), strict=True)
    for benign, hostile in pairs:
        assert Structure(hostile).tags == Structure(benign).tags
        assert "img" in hostile


def test_each_hostile_text_in_every_place_of_a_receipt_stays_text(releases, attempts):
    receipt = json.loads((releases[0].folder / "receipt.json").read_text("utf-8"))

    def structure(text):
        tables = poisoned_tables(releases[0].tables, text)
        return Structure(page_from(poisoned(receipt, text), tables))

    def elements(page):
        # A path that leads out of the folder is no link.
        return [tag for tag in page.tags if tag[0] not in ("a", "/a")]

    benign = structure(" \n")  # which no name of a plan can have
    for text in HOSTILE:
        page = structure(f" {text}")
        assert elements(page) == elements(benign), text
        assert all(
            link.startswith(("#", "tables/")) and ":" not in link for link in page.values("href")
        )
        attempts(1)


def test_what_could_not_be_seen_is_a_code():
    page = str(element("p", "at most \u202e52\u2066%\x00\x1b\u2028\ud800", title="\u202e"))
    said = r"at most \u202e52\u2066%\x00\x1b\u2028\ud800"
    assert page == rf'<p title="\u202e">{said}</p>'
    assert page.encode("utf-8")
    assert (
        Structure(str(element("p", "שלום \u200e25% 👩\u200d🔬\n"))).text
        == "שלום \u200e25% 👩\u200d🔬\n"
    )


def test_texts_are_read_back_as_they_were_written():
    for text in filter(str.isprintable, HOSTILE):
        page = Structure(str(element("p", text, title=text)))
        assert page.tags == [("p", "title"), ("/p",)]
        assert page.text == page.values("title")[0] == text


@pytest.mark.parametrize(("name", "attributes"), [
    ("script", {}),
    ("style", {}),
    ("p><b", {}),
    ("", {}),
    ("p", {"title x": "y"}),
    ("p", {"title=''><b": "y"}),
    ("p", {"onclick": "hit()"}),
    ("a", {"href": "javascript:hit()"}),
    ("a", {"href": "https://e.example"}),
    ("a", {"href": "//e.example"}),
    ("a", {"href": "\\\\e.example"}),
    ("a", {"href": " //e.example"}),
    ("a", {"href": "\t/\n/e.example"}),
    ("a", {"href": "\x01 \\\\e.example"}),
    ("a", {"href": " java\tscript:hit()"}),
    ("a", {"href": "x\x85//e.example"}),
    ("a", {"href": "#\u2028"}),
    ("a", {"href": "\u202ex"}),
    ("a", {"HREF": "https://e.example"}),
    ("a", {"xlink:href": "//e.example"}),
    ("p", {"style": "background: url(//e.example)"}),
    ("path", {"fill": "u\\72l(//e.example)"}),
    ("base", {"href": "x"}),
    ("object", {}),
    ("p", {"ONCLICK": "hit()"}),
    ("SCRIPT", {}),
    ("img", {"src": "//e.example"}),
    ("iframe", {"srcdoc": "<b>"}),
    ("button", {"formaction": "//e.example"}),
    ("meta", {"http_equiv": "refresh"}),
])  # fmt: skip
def test_no_element_is_made_that_holds_code_or_leads_away(name, attributes):
    with pytest.raises(ValueError, match="element"):
        element(name, **attributes)


def test_no_result_of_a_hostile_release_writes_control_characters_to_a_terminal(releases, tmp_path):
    bad = "\x1b[2J\u202e"
    content = releases[0].receipt.to_dict()
    receipt = Receipt.read(content | {"dataset": f"a{bad}@1"})
    unit = content["plan"]["unit"] | {"protects": bad}
    plan = Plan.from_dict(content["plan"] | {"unit": unit})
    for result in (receipt, ny.Release(tmp_path, receipt), plan):
        assert {"\x1b", "\u202e"}.isdisjoint(repr(result))
        assert "\\u001b[2J\\u202e" in repr(result)


def test_a_receipt_of_a_plan_with_another_schema_is_refused_by_every_reader(releases, tmp_path):
    receipt = releases[0].receipt.to_dict()
    content = receipt | {"plan": receipt["plan"] | {"schema": 3}}
    (tmp_path / "receipt.json").write_text(json.dumps(content))
    for reader in (ny.Release.load, ny.explore, lambda path: page_from(content, {})):
        with pytest.raises(ValueError, match="reads plans of schema 2 only"):
            reader(tmp_path)
