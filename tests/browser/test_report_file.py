"""The report of a release as a file in a real browser."""

import itertools
import json
import re

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from hostile_pages import page_from
from neyman import Release
from neyman.accounting import sentences as words
from random_laws import is_small

OPEN_ALL = "document.querySelectorAll('.fold > details').forEach(fold => (fold.open = true))"


def pages(content: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", content))


def test_the_report_is_interactive_without_a_server(folder, look):
    file = folder / "release" / "report.html"
    assert file.stat().st_size < 2_000_000
    page = look(f"file://{file}")
    page.locator("#curve").click()
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
    page = look(f"file://{folder / 'release' / 'report.html'}")
    assert page.locator("main b:not(.bar b)").count() == 0
    page.evaluate(OPEN_ALL)
    names = page.locator("[data-beside] svg text[class$='-name']")
    heights = sorted(
        float(y) for y in names.evaluate_all("all => all.map(e => e.getAttribute('y'))")
    )
    assert len(heights) >= 3
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 17


def test_it_fits_prints_and_keeps_nobody_out(folder, look):
    address = f"file://{folder / 'release' / 'report.html'}"
    for width in (360, 1280, 3840):
        page = look(address, width=width)
        page.evaluate(OPEN_ALL)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(media="print")
    expect(page.locator("[data-tradeoff] .drawn-chart")).to_be_visible()
    screens = list(itertools.product(("light", "dark"), (390, 1280)))
    for scheme, width in screens[1:3] if is_small() else screens:
        page = look(address, width=width, color_scheme=scheme)
        for opened in (OPEN_ALL,) if is_small() else ("", OPEN_ALL):
            page.evaluate(opened)
            result = Axe().run(page).response["violations"]
            assert [(each["id"], [n["target"] for n in each["nodes"]]) for each in result] == []


def test_a_policy_maker_gets_two_printed_pages(folder, look):
    page = look(f"file://{folder / 'release' / 'report.html'}")
    for paper in ("A4", "Letter"):
        assert pages(page.pdf(format=paper)) == 2
    page.emulate_media(media="print")
    expect(page.locator(".printed")).to_contain_text("Guarantee in standard definitions")
    expect(page.locator("#levels")).to_be_hidden()
    page.emulate_media(media="screen")
    page.locator("a[href='#levels']").click()
    expect(page.locator("#levels ~ *").first).to_be_visible()
    expect(page.get_by_text("True positive rate (at most)").locator("visible=true")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator("#levels")).to_be_visible()
    expect(page.locator("#curve")).to_be_hidden()
    assert pages(page.pdf(format="A4")) == 3


def test_a_hundred_tables_with_long_names_and_filters_still_take_two_pages(folder, look, tmp_path):
    receipt = json.loads((folder / "release" / "receipt.json").read_text())
    query, entry = receipt["plan"]["query"][0], receipt["mechanisms"][0]
    names = [f"{'long name ' * 6}{number:03}" for number in range(100)]
    receipt["plan"]["name"] = names[0]
    receipt["plan"]["publisher"] = "x" * 100
    receipt["plan"]["where"] = " and ".join(["age >= 18"] * 50)
    receipt["plan"]["query"] = [query | {"name": name, "where": "age < 65"} for name in names]
    receipt["mechanisms"] = [entry | {"query": name} for name in names]
    table = Release.load(folder / "release").tables["total.state"]
    html = page_from(receipt, {f"{name}.state": table for name in names})
    (tmp_path / "report.html").write_text(html, "utf-8")
    page = look(f"file://{tmp_path / 'report.html'}")
    for paper in ("A4", "Letter"):
        assert pages(page.pdf(format=paper)) <= 2


def test_screen(folder, look):
    address = f"file://{folder / 'release' / 'report.html'}"
    look.picture(look(address, width=900, height=1100), "report")
