"""The report of a release as a file in a real browser."""

import itertools
import json
import os
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from neyman.semantics import sentences as words

SCREENS = os.environ.get("NEYMAN_SCREENS")


def test_the_report_is_interactive_without_a_server(folder, look):
    """Level and prior are moved by keys; what it says is the receipt's, in the library's words."""
    file = folder / "release" / "report.html"
    assert file.stat().st_size < 2_000_000
    page = look(f"file://{file}")
    says = page.locator(".reading output")
    curve = json.loads((folder / "release" / "receipt.json").read_text())["guarantee"]
    known = {point["level"]: point["upper"] for point in curve["curve"] + curve["power"]}
    known[0.05] = min(known[0.05], 0.25)  # the budget's promise bounds it as well
    start = says.inner_text()
    assert start.startswith(words.power(0.05, known[0.05]))
    page.locator("#prior").focus()
    page.keyboard.press("Home")
    assert words.finding(0.05, known[0.05], 0.001) in says.inner_text()
    page.locator("#walk").focus()
    page.keyboard.press("ArrowRight")
    level = min(level for level in known if level > 0.05)
    assert says.inner_text().startswith(words.power(level, known[level]))
    box = page.locator("[data-tradeoff]").bounding_box()
    assert box
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"])
    assert not says.inner_text().startswith(words.power(level, known[level]))


def test_markup_in_keys_and_names_stays_text(folder, look):
    """Nothing of the plan becomes an element, and no name overlaps another in the small figure."""
    page = look(f"file://{folder / 'release' / 'report.html'}")
    assert page.locator("main b:not(.bar b)").count() == 0
    names = page.locator("[data-beside] svg text[class$='-name']")
    heights = sorted(
        float(y) for y in names.evaluate_all("all => all.map(e => e.getAttribute('y'))")
    )
    assert len(heights) >= 3
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 17


def test_it_fits_prints_and_keeps_nobody_out(folder, look):
    """No width scrolls sideways, it prints to PDF with its figures, and axe finds no fault."""
    address = f"file://{folder / 'release' / 'report.html'}"
    for width in (360, 1280, 3840):
        page = look(address, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    expect(page.locator("[data-tradeoff] .drawn-chart")).to_be_visible()
    for scheme in ("light", "dark"):
        page = look(address, color_scheme=scheme)
        result = Axe().run(page).response["violations"]
        assert [(each["id"], [n["target"] for n in each["nodes"]]) for each in result] == []


def test_screen(folder, look):
    """A picture for the README and the docs, where NEYMAN_SCREENS names a folder for it."""
    page = look(f"file://{folder / 'release' / 'report.html'}", width=900, height=1100)
    picture = page.screenshot()
    assert len(picture) < 200_000
    if SCREENS:
        (Path(SCREENS) / "report.png").write_bytes(picture)
