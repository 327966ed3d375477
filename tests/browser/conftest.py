"""A browser, an explorer and a release for the tests that look at pages."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import neyman as ny
from machine import need

if TYPE_CHECKING:  # an environment without these packages skips these tests
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = "/usr/bin/chromium"
SCREENS = os.environ.get("NEYMAN_SCREENS")
PLAN = """
schema = 2
name = "three states"
dataset = "three-states@1"
table = "people"
[unit]
protects = "person"
neighboring = "replace-one"
rows = 1
[columns.race]
keys = ["white", "black", "asian", "</script><b>other"]
unknown = "drop"
[hierarchy.place]
levels = ["region", "state"]
keys = [["midwest", "Illinois"], ["midwest", "Iowa"], ["midwest", "Ohio"]]
unknown = "drop"
[budget]
power = 0.25
level = 0.05
[[query]]
name = "total"
measure = "count"
at = ["state"]
share = "1/2"
[[query]]
name = "race"
measure = "count"
by = ["race"]
at = ["region", "state"]
share = "1/2"
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    need("chromium")
    from playwright.sync_api import expect, sync_playwright

    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    expect.set_options(timeout=20_000)
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=root)
        yield started
        started.close()


class Look:
    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.complaints: list[str] = []

    def __call__(self, address: str, width: int = 1280, height: int = 900, **media: str) -> Page:
        page = self.context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.set_default_timeout(15_000)
        page.emulate_media(**media)  # type: ignore[arg-type]
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)
        return page

    def _heard(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def picture(self, page: Page, name: str) -> None:
        """A small picture for the docs, where NEYMAN_SCREENS names a folder for it."""
        picture = page.screenshot()
        assert len(picture) < 200_000
        if SCREENS:
            (Path(SCREENS) / f"{name}.png").write_bytes(picture)


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """Open a page; no page may leave an error or a warning on the console."""
    context = browser.new_context()
    looking = Look(context)
    yield looking
    context.close()
    assert looking.complaints == []


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A plan with a key that is markup, people, and a signed release of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from neyman.publishing import create_key

    folder = tmp_path_factory.mktemp("three")
    (folder / "plan.toml").write_text(PLAN)
    draw = np.random.default_rng(7)
    state = draw.choice(["Illinois", "Iowa", "Ohio"], 300_000, p=[0.45, 0.12, 0.43])
    race = draw.choice(["white", "black", "asian"], 300_000, p=[0.8, 0.14, 0.06])
    region = np.full(300_000, "midwest")
    people = pa.table({"region": region, "state": state, "race": race})
    pq.write_table(people, folder / "people.parquet")
    ledger = ny.Ledger(str(folder / "ledger.db"))
    ledger.create("three-states@1", protects="person", neighboring="replace-one", cap="2")
    create_key(folder / "key.pem")
    data = {"people": folder / "people.parquet"}
    ny.run(folder / "plan.toml", data, ledger, folder / "release", sign=folder / "key.pem")
    return folder


class Served:
    """An explorer that runs in this process, and the way into it."""

    queries = 0

    def __init__(self, path: Path | None, **more) -> None:
        from neyman.display import Explorer

        self.explorer = Explorer(None if path is None else str(path), port=0, **more)
        self.thread = threading.Thread(target=self.explorer.server.serve_forever, daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.explorer.port}/"

    def enter(self, look: Look, fragment: str = "", **more) -> Page:
        """Open the page with the cookie that the printed address is exchanged for."""
        cookie = {"name": self.explorer.cookie, "value": self.explorer.session}
        look.context.add_cookies([{**cookie, "url": self.address}])
        return look(f"{self.address}{fragment}", **more)

    def stop(self) -> None:
        self.explorer.server.shutdown()
        self.explorer.close()


@pytest.fixture(scope="session")
def served(folder: Path) -> Iterator[Served]:
    serving = Served(folder / "plan.toml", seconds=2.5)
    yield serving
    serving.stop()


def many_queries(count: int) -> str:
    """Write a plan with a count by each of several columns."""
    names = [f"column{k}" for k in range(1, count + 1)]
    text = PLAN[: PLAN.index("[columns.race]")] + '[budget]\nzcdp = "1/8"\n'
    columns = "".join(f'[columns.{n}]\nkeys = ["a", "b"]\nunknown = "drop"\n' for n in names)
    queries = "".join(
        f'[[query]]\nname = "{n}"\nmeasure = "count"\nby = ["{n}"]\nshare = "1/{count}"\n'
        for n in names
    )
    return text + columns + queries


@pytest.fixture(scope="session", params=[8, 13], ids=["eight", "many"])
def several(request, tmp_path_factory) -> Iterator[Served]:
    plan = tmp_path_factory.mktemp("several") / "plan.toml"
    plan.write_text(many_queries(request.param))
    serving = Served(plan)
    serving.queries = request.param
    yield serving
    serving.stop()


@pytest.fixture
def serve() -> Iterator[type[Served]]:
    started: list[Served] = []

    def start(path: Path | None, **more) -> Served:
        started.append(Served(path, **more))
        return started[-1]

    yield start  # type: ignore[misc]
    for each in started:
        each.stop()  # closed without it, the thread would turn in circles
