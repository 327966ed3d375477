"""The explorer's widget: its module in a real browser, joined to the Python class by a comm."""

import base64
import gc
import queue
import sys
import time
import tomllib
from decimal import Decimal
from fractions import Fraction

import comm
import pytest
import traitlets
from axe_playwright_python.sync_playwright import Axe
from comm.base_comm import BaseComm
from playwright.sync_api import Page

import neyman as ny
from neyman.accounting import sentences as words

# A model as the front ends of Jupyter give to a widget's module.
MODEL = """([state, address]) => import(address).then(({ default: module }) => {
  const heard = {};
  const fire = (name, ...more) => [...(heard[name] ?? [])].forEach((each) => each(...more));
  let changed = {};
  const put = (name, value) => {
    if (JSON.stringify(state[name]) === JSON.stringify(value)) return false;
    state[name] = value;
    fire(`change:${name}`);
    return true;
  };
  const model = {
    get: (name) => state[name],
    set: (name, value) => { if (put(name, value)) changed[name] = value; },
    save_changes: () => { toPython({ method: "update", state: changed }); changed = {}; },
    on: (name, each) => (heard[name] ??= []).push(each),
    off: (name, each) => (heard[name] = (heard[name] ?? []).filter((one) => one !== each)),
    send: (content) => toPython({ method: "custom", content }),
  };
  window.fromPython = ({ method, state: given, content }) => {
    if (method === "update") for (const [name, value] of Object.entries(given)) put(name, value);
    if (method === "custom") fire("msg:custom", content);
  };
  const el = document.createElement("div");
  document.querySelector("main").append(el);
  window.leave = module.render({ model, el });
})"""
SHELL = (
    '<!DOCTYPE html><html lang="en"><title>Notebook</title><body style="{}"><main></main></body>'
)


class Wire(BaseComm):
    def __init__(self, **more) -> None:
        self.sent: queue.Queue = queue.Queue()
        super().__init__(**more)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys) -> None:
        if msg_type == "comm_msg":
            self.sent.put(data)


class Notebook:
    def __init__(self, page: Page, widget, style: str = "") -> None:
        self.page, self.widget = page, widget
        page.set_content(SHELL.format(style))
        page.expose_function("toPython", self._from_page)
        module = base64.b64encode(widget._esm.encode()).decode()
        names = {"_opening", "level", "prior", "delta", "rho", "weights", "settings"}
        page.evaluate(MODEL, [widget.get_state(names), f"data:text/javascript;base64,{module}"])

    def _from_page(self, data) -> None:
        self.widget.comm.handle_msg({"content": {"data": data}, "buffers": []})

    def until(self, done) -> None:
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, self.page.locator("#sentence").inner_text()
            while not self.widget.comm.sent.empty():
                self.page.evaluate("fromPython", self.widget.comm.sent.get())
            self.page.wait_for_timeout(20)

    def sentence(self) -> str:
        return self.page.locator("#sentence").inner_text()


@pytest.fixture
def plan():
    return ny.Plan(
        name="survey", dataset="survey@1", table="people",
        unit=ny.Unit("person", neighboring="replace-one", rows=1),
        columns={"sex": ny.keys(["f", "m"]), "race": ny.keys(["a", "b", "c"])},
        queries=[
            ny.query.count(by="sex", share="1/4"),
            ny.query.count(by="race", name="races", share="3/4"),
        ],
        budget={"zcdp": "1/8"},
    )  # fmt: skip


@pytest.fixture
def explore(monkeypatch):
    """Widgets whose comm leads to the page; their processes end with the test."""
    monkeypatch.setattr(comm, "create_comm", Wire)
    widgets = []

    def make(*args):
        widgets.append(ny.explore(*args))
        return widgets[-1]

    yield make
    for each in widgets:
        each.close()


def sentence_of(plan, level):
    return words.power(level, plan.mechanism().tradeoff().power(level).upper)


@pytest.mark.parametrize("of", [5, "nothing.toml"])
def test_a_source_that_cannot_be_read_is_refused_without_a_second_error(of, monkeypatch):
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(ValueError, match=r"of = 5 must be a plan|nothing\.toml' cannot be read"):
        ny.explore(of)
    gc.collect()
    assert not ignored


def test_the_screen_and_python_share_one_state(plan, explore, look):
    widget = explore(plan)
    notebook = Notebook(look("about:blank"), widget)
    page = notebook.page
    notebook.until(lambda: notebook.sentence() == sentence_of(plan, 0.05))
    assert widget.plan.hash == plan.hash
    assert widget.shares == {widget.queries[0]: Fraction(1, 4), "races": Fraction(3, 4)}

    page.locator("#level-value").fill("0.01")
    notebook.until(lambda: widget.level == 0.01)
    notebook.until(lambda: notebook.sentence() == sentence_of(plan, 0.01))

    page.locator("#weight-1-value").fill("40")
    notebook.until(lambda: widget.weights == [600, 400])
    chosen = widget.plan
    assert [query.share for query in chosen.queries] == [Fraction(3, 5), Fraction(2, 5)]
    assert widget.shares["races"] == Fraction(2, 5)
    notebook.until(lambda: notebook.sentence() == sentence_of(chosen, 0.01))
    notebook.until(lambda: page.locator("#toml.late").count() == 0)
    shown = tomllib.loads(page.locator("#toml").inner_text(), parse_float=Decimal)
    assert ny.Plan.from_dict(shown).hash == chosen.hash

    widget.level, widget.weights, widget.rho = 0.2, [500, 500], 0.5
    notebook.until(lambda: page.locator("#level-value").input_value() == "0.2")
    notebook.until(lambda: page.locator("#weight-0-value").input_value() == "50")
    notebook.until(lambda: page.locator("#budget-value").input_value() == "0.5")
    assert widget.plan.scale == 2
    notebook.until(lambda: notebook.sentence() == sentence_of(widget.plan, 0.2))
    for wrong in ([500], [600, 500], [0, 1000]):
        with pytest.raises(traitlets.TraitError, match="2 whole numbers of at least 1"):
            widget.weights = wrong
    with pytest.raises(traitlets.TraitError):
        widget.level = 0


def test_two_views_do_not_mix_and_keep_nobody_out(plan, explore, look):
    dark = Notebook(look("about:blank"), explore(plan), "background: #111")
    page = dark.page
    dark.until(lambda: dark.sentence() == sentence_of(plan, 0.05))
    dark.until(lambda: page.locator(".late").count() == 0)
    ink = page.locator("#sentence").evaluate("e => getComputedStyle(e).color")
    assert ink == "rgb(231, 233, 235)"
    violations = Axe().run(page).response["violations"]
    assert [(each["id"], [n["target"] for n in each["nodes"]]) for each in violations] == []

    mechanism = explore()
    light = Notebook(look("about:blank"), mechanism)
    light.page.locator("#sigma-value").fill("1")
    expected = words.power(0.05, ny.Gaussian(1).tradeoff().power(0.05).upper)
    light.until(lambda: light.sentence() == expected)
    light.until(lambda: "sigma=1" in mechanism.settings)
    with pytest.raises(ValueError, match="no plan is open"):
        _ = mechanism.plan
    assert dark.sentence() == sentence_of(plan, 0.05)
