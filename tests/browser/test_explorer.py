"""The explorer's page in a real browser."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

import neyman as ny
from forging import forged
from neyman.accounting import sentences as words
from neyman.publishing import create_key, sign
from random_laws import is_small

GAUSSIAN = "#about=mechanism"
SAMPLED = "#about=mechanism&kind=sampled&sigma=0.8&rate=0.004&steps=14000"
RARE = "#about=mechanism&kind=sampled&sigma=0.3&rate=0.0001&steps=1000"


def settled(page: Page) -> None:
    expect(page.locator("#sentence")).not_to_be_empty()
    expect(page.locator(".late")).to_have_count(0)
    expect(page.locator("#sentence")).not_to_contain_text("Working")


def sentence(page: Page) -> str:
    return page.locator("#sentence").inner_text()


def accessible(page: Page) -> None:
    result = Axe().run(page).response["violations"]
    assert [(each["id"], [n["target"] for n in each["nodes"]]) for each in result] == []


def test_a_slider_changes_the_sentence(served, look):
    page = served.enter(look, GAUSSIAN)
    settled(page)
    before = sentence(page)
    page.get_by_role("slider", name=re.compile("^Noise")).focus()
    for _ in range(60):
        page.keyboard.press("ArrowLeft")
    settled(page)
    sigma = float(page.locator("#sigma-value").input_value())
    assert sigma < 2
    after = sentence(page)
    assert after != before
    level, power = 0.05, ny.Gaussian(sigma).tradeoff().power(0.05).upper
    assert after == words.power(level, power)
    assert page.locator("#finding").inner_text() == words.finding(level, power, 0.5)
    expect(page.locator("#spoken")).to_contain_text(after)
    assert page.locator("#sigma-slider").get_attribute("aria-valuetext") == words.number(sigma)


def test_what_has_no_closed_form_comes_from_the_library(served, look):
    page = served.enter(look, SAMPLED)
    settled(page)
    for steps in ("1000", "2000", "500", "3000"):  # faster than answers come
        page.locator("#steps-value").fill(steps)
    settled(page)
    curve = (ny.Gaussian(0.8).subsample(rate=0.004) * 3000).tradeoff()
    assert sentence(page) == words.training(0.05, curve.power(0.05).upper)
    epsilon = words.number(curve.epsilon(1e-6).upper)
    assert page.locator("#figures dd").nth(2).inner_text().split()[0] == epsilon


def test_undo_redo_and_links_lead_back(served, look):
    page = served.enter(look, GAUSSIAN)
    settled(page)
    first = sentence(page)
    expect(page.locator("#undo")).to_be_disabled()
    page.locator("#sigma-value").fill("0.7")
    expect(page).to_have_url(re.compile("sigma=0.7"))
    settled(page)
    second = sentence(page)
    page.locator("#level-value").fill("0.01")
    expect(page).to_have_url(re.compile("level=0.01"))
    settled(page)
    third = sentence(page)
    page.locator("#undo").click()
    settled(page)
    assert sentence(page) == second
    page.locator("#sentence").click()
    page.keyboard.press("Control+z")
    settled(page)
    assert sentence(page) == first
    expect(page.locator("#undo")).to_be_disabled()
    page.keyboard.press("Control+Shift+Z")
    page.locator("#redo").click()
    settled(page)
    assert sentence(page) == third
    other = look(page.url)
    settled(other)
    assert sentence(other) == third
    other.goto(f"{served.address}#about=guarantee&promise=gdp&mu=0.5&level=9&kind=<b>&sigma=x")
    settled(other)
    power = ny.gdp(0.5).power(0.05).upper
    assert sentence(other) == words.power(0.05, power)


def test_a_number_out_of_range_is_told_and_changes_nothing(served, look):
    page = served.enter(look, GAUSSIAN)
    settled(page)
    before = sentence(page)
    for wrong in ("0", "-1", "1e9", ""):
        page.locator("#sigma-value").fill(wrong)
        expect(page.locator("#sigma-wrong")).to_contain_text("from 0.1 to 200")
    assert sentence(page) == before


def test_shares_are_dragged_and_both_sides_move(served, look):
    page = served.enter(look)
    settled(page)
    margins = page.locator("#tables-body td.now")
    before = margins.all_inner_texts()
    answer = page.locator("#scenarios-body td.now").all_inner_texts()
    slider = page.locator("#weight-0")
    box = slider.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.15 * box["width"], box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()
    settled(page)
    after = margins.all_inner_texts()
    assert page.locator("#tables-body tr td:nth-last-child(2)").all_inner_texts() == before

    def size(text):
        return float(text.removeprefix("±").strip().replace(",", ""))

    assert size(after[0]) > size(before[0])
    assert size(after[-1]) < size(before[-1])
    assert page.locator("#scenarios-body td.now").all_inner_texts() != answer
    shown = tomllib.loads(page.locator("#toml").inner_text(), parse_float=Decimal)
    moved = ny.Plan.from_dict(shown)
    weights = [round(float(query.share) * 1000) for query in moved.queries]
    assert weights[0] < 300
    assert f"weights={weights[0]}%2C{weights[1]}" in page.url
    power = moved.mechanism().tradeoff().power(0.05).upper
    assert sentence(page) == words.power(0.05, power)


def test_many_queries_leave_the_analysis_settings_in_view(several, look):
    page = several.enter(look)
    settled(page)
    names = ["level", "prior", "delta"]
    if several.queries == 8:
        names.append("weight-7")
    for name in names:
        box = page.locator(f"#{name}-value").bounding_box()
        assert box
        assert 0 < box["y"] < box["y"] + box["height"] <= 900
    assert page.evaluate("window.scrollY") == 0
    for scrolled in ("#released", "#looked"):
        fits = "e => e.scrollHeight <= e.clientHeight"
        assert page.locator(scrolled).evaluate(fits)


def test_shares_are_a_table_with_search(several, look):
    page = several.enter(look)
    settled(page)
    count = several.queries
    rows = page.locator("table.shares tbody tr:visible")
    expect(rows).to_have_count(count)
    marks = page.locator("table.shares .mark").all_inner_texts()
    assert len(set(marks)) == count  # no two queries have one mark
    accessible(page)
    page.locator("#weight-2-value").fill("50")
    expect(page.locator("#toml.late")).to_have_count(0, timeout=60_000)
    shares = page.locator("table.shares input[type=number]")
    given = [Decimal(shares.nth(k).input_value()) for k in range(count)]
    assert given[2] == 50
    assert sum(given) == 100
    weights = [round(10 * share) for share in given]
    expect(page).to_have_url(re.compile(re.escape("weights=" + "%2C".join(map(str, weights)))))
    written = ny.Plan.from_dict(
        tomllib.loads(page.locator("#toml").inner_text(), parse_float=Decimal)
    )
    assert [1000 * query.share for query in written.queries] == weights
    search = page.locator("#shares-search")
    if count == 8:
        expect(search).to_have_count(0)
        return
    search.fill("MN3")
    assert rows.locator("label").all_inner_texts() == ["3\ncolumn3"]
    expect(page.locator("#shares-found")).to_have_text("1 of 13 queries")
    page.locator("#undo").click()
    expect(page.locator("#weight-2-value")).to_have_value("7.7")
    expect(rows).to_have_count(1)
    search.fill("nothing like it")
    expect(rows).to_have_count(0)


@pytest.mark.parametrize(
    "fragment", [GAUSSIAN, SAMPLED, "#about=guarantee", "#about=mechanism&kind=response&loss=2"]
)
def test_the_python_on_the_screen_gives_the_numbers_on_the_screen(served, look, fragment):
    page = served.enter(look, fragment)
    settled(page)
    code = page.locator("#python").inner_text().replace("print(", "found.append(")
    results = []
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, {"found": results})
    power, epsilon = results
    said = words.training if fragment == SAMPLED else words.power
    assert sentence(page) == said(0.05, power.upper)
    assert page.locator("#figures dd").nth(2).inner_text().split()[0] == words.number(epsilon.upper)


def test_a_drag_of_a_slider_or_the_curve_is_answered_while_it_goes_on(served, look):
    page = served.enter(look, GAUSSIAN)
    settled(page)
    page.evaluate("""() => {
      window.seen = new Set();
      const note = () => window.seen.add(document.getElementById("sentence").textContent);
      new MutationObserver(note).observe(document.getElementById("sentence"), {childList: true});
    }""")
    slider = page.locator("#sigma-slider")
    box = slider.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=40)
    during = page.evaluate("window.seen.size")
    page.mouse.up()
    settled(page)
    assert during >= 5
    sigma = float(page.locator("#sigma-value").input_value())
    assert sentence(page) == words.power(0.05, ny.Gaussian(sigma).tradeoff().power(0.05).upper)
    box = page.locator("#tradeoff").bounding_box()  # a press on the figure sets the level there
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    first = float(page.locator("#level-value").input_value())
    page.mouse.move(box["x"] + 0.4 * box["width"], middle, steps=5)
    page.mouse.up()
    settled(page)
    level = float(page.locator("#level-value").input_value())
    assert 0.02 < first < 0.2
    assert 0.25 < level < 0.45
    assert sentence(page) == words.power(level, ny.Gaussian(sigma).tradeoff().power(level).upper)


def test_what_takes_too_long_is_told_and_the_page_goes_on(serve, look):
    serving = serve(None, seconds=1.0)
    process, _ = serving.explorer.answering._worker._running
    os.kill(process.pid, signal.SIGSTOP)  # it answers nothing, however fast the machine is
    page = serving.enter(look, RARE)
    expect(page.locator("#how")).to_contain_text("Too slow")
    page.locator("#kind").select_option("laplace")
    page.locator("#steps-value").fill("1")
    settled(page)
    assert sentence(page) == words.power(0.05, ny.Laplace(1).tradeoff().power(0.05).upper)


def test_a_server_that_stops_loses_nothing(folder, look):
    command = [sys.executable, "-m", "neyman", "explore", folder / "plan.toml", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().removeprefix("Open ").strip()
        page = look(address + GAUSSIAN)
        settled(page)
        process.terminate()
    page.locator("#sigma-value").fill("0.6")
    expect(page.locator("#notices")).to_contain_text("has stopped")
    expect(page.locator("#how")).to_have_text("The last answer before the explorer stopped.")
    pale = page.locator("#words, #figures, #how, .chart, pre").evaluate_all(
        "all => all.map(e => { let o = 1;"
        " for (; e; e = e.parentElement) o *= getComputedStyle(e).opacity; return o; })"
    )
    assert len(pale) >= 8
    assert max(pale) < 0.8
    accessible(page)
    assert sentence(page) == words.power(0.05, ny.Gaussian(2).tradeoff().power(0.05).upper)
    expect(page).to_have_url(re.compile("sigma=0.6"))
    page.close()
    look.complaints.clear()  # the browser tells of each connection that is refused


def test_two_explorers_at_once_do_not_mix(serve, served, folder, look):
    second = serve(None)
    one, two = served.enter(look), second.enter(look)
    settled(one)
    settled(two)
    assert "three states" in one.locator("h1").inner_text()
    assert "three states" not in two.locator("h1").inner_text()
    one.reload()
    settled(one)


def test_the_printed_address_is_good_once(serve, look):
    serving = serve(None)
    page = look(f"{serving.explorer.address}#mu=2&about=guarantee&promise=gdp")
    settled(page)
    assert "token" not in page.url
    assert sentence(page) == words.power(0.05, ny.gdp(2).power(0.05).upper)
    look.context.clear_cookies()
    again = look(serving.explorer.address)
    assert "used before" in again.locator("body").inner_text()
    assert any("403" in each for each in look.complaints)
    look.complaints.clear()


def test_a_receipt_is_checked_on_the_page(serve, folder, look, tmp_path):
    key = str(folder / "key.pem.pub")
    page = serve(folder / "release", witness={"key": key}).enter(look)
    checks = page.locator("#checks")
    expect(checks).to_contain_text("follows from its plan")
    expect(checks).to_contain_text("signed by")
    settled(page)
    copy = tmp_path / "copy"
    shutil.copytree(folder / "release", copy)
    receipt = json.loads((copy / "receipt.json").read_text())
    receipt["guarantee"]["power"][0]["upper"] = 0.01
    (copy / "receipt.json").write_text(json.dumps(receipt))
    page = serve(copy, witness={"key": key}).enter(look)
    checks = page.locator("#checks")
    expect(checks).to_contain_text("fails verification")
    expect(checks).to_contain_text("guarantee")
    expect(checks).to_contain_text("signature: the signature is not of this receipt")


def test_a_forgery_that_fits_together_fails_by_who_vouches_for_it(serve, folder, look, tmp_path):
    ledger, selection = folder / "ledger.db", tmp_path / "checkpoint"
    with ny.Ledger(ledger) as book:
        book.keep_checkpoint(selection)
    copy = forged(folder / "release", tmp_path / "forged", "race.region")

    def witness_checks(**witness):
        given = {name: str(path) for name, path in witness.items()}
        checks = serve(copy, witness=given).enter(look).locator("#checks")
        expect(checks).not_to_contain_text("being checked")
        return checks

    (copy / "receipt.sig").unlink()
    (copy / "receipt.json.sshsig").unlink()
    unsigned = witness_checks()
    expect(unsigned).to_contain_text("follows from its plan")
    expect(unsigned).to_contain_text("a forgery that is consistent would pass")
    if not is_small():
        expect(witness_checks(key=folder / "key.pem.pub")).to_contain_text(
            "has not signed this release"
        )
    create_key(tmp_path / "forger")
    (copy / "receipt.sig").write_bytes(
        sign((copy / "receipt.json").read_bytes(), tmp_path / "forger")
    )
    key = {"key": folder / "key.pem.pub"}
    book = {"ledger": ledger, "checkpoint": selection}
    signed = witness_checks(**key, **(book if is_small() else {}))
    expect(signed).to_contain_text("fails verification")
    expect(signed).to_contain_text("someone else has signed it")
    published = signed if is_small() else witness_checks(**book)
    expect(published).to_contain_text("fails verification")
    expect(published).to_contain_text("is not the file that entry 1 published")
    if is_small():
        return  # the page of each witness, and of another ledger, is seen in CI
    own = tmp_path / "own.db"
    with ny.Ledger(own) as book:
        book.create("three-states@1", protects="person", neighboring="replace-one", cap="2")
    expect(witness_checks(ledger=own, checkpoint=selection)).to_contain_text(
        "another ledger was put in its place"
    )


@pytest.mark.parametrize(
    ("width", "fragment"),
    [(360, ""), (360, GAUSSIAN), (360, "#about=guarantee"), (768, ""), (3840, "")],
)
def test_no_width_scrolls_sideways(served, look, width, fragment):
    page = served.enter(look, fragment, width=width)
    settled(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    chart = page.evaluate("document.querySelector('#tradeoff svg').getBoundingClientRect().width")
    assert chart > 0.2 * min(width, 1600)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("fragment", ["", GAUSSIAN])
def test_nothing_keeps_anybody_out(served, look, fragment, scheme):
    page = served.enter(look, fragment, color_scheme=scheme, reduced_motion="reduce")
    settled(page)
    accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    settled(page)
    accessible(page)


def test_it_prints(served, look):
    page = served.enter(look)
    settled(page)
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    expect(page.locator("#sentence")).to_be_visible()
    expect(page.locator("#undo")).to_be_hidden()


@pytest.mark.parametrize(
    ("name", "width", "height", "fragment"),
    [("explorer", 1280, 1030, ""), ("explorer-narrow", 390, 844, SAMPLED)],
)
def test_screens(serve, folder, look, name, width, height, fragment):
    """NEYMAN_DEMO names the plan that `neyman demo` has written, for the pictures of the docs."""
    serving = serve(Path(os.environ.get("NEYMAN_DEMO", folder / "plan.toml")))
    page = serving.enter(look, fragment, width=width, height=height)
    settled(page)
    look.picture(page, name)
