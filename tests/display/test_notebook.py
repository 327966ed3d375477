"""What a notebook shows of results, and their short text."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neyman as ny
from hostile_pages import Structure
from neyman.accounting import sentences
from plans import release

HOSTILE = "<img src=x onerror=alert(1)>&\"'"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("notebook")
    ledger = ny.Ledger(folder / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="replace-one", cap=1)
    values = [HOSTILE] * 900 + ["b"] * 77 + ["only in the private data"]
    data = folder / "people.parquet"
    pq.write_table(pa.table({"race": values}), data)
    plan = ny.Plan(
        name="survey", dataset="people@1", table="people",
        unit=ny.Unit("person", neighboring="replace-one", rows=1),
        columns={"race": ny.keys([HOSTILE, "b"], unknown="drop")},
        queries=[ny.query.count(by=["race"])], budget=ny.zcdp("1/2"),
    )  # fmt: skip
    return release(plan, data, ledger, folder / "out"), ledger, plan


@pytest.mark.parametrize("shown", [0, 1, 2])
def test_every_view_is_closed_html_without_script_or_a_text_that_is_not_escaped(published, shown):
    page = Structure(published[shown]._repr_html_())
    allowed = ["div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "caption"]
    assert {tag for tag, _ in page.elements} <= {*allowed}
    assert {name for _, attributes in page.elements for name in attributes} <= {
        "class", "scope", "style",
    }  # fmt: skip


def test_a_release_shows_its_sentence_and_what_it_published_alone(published):
    result = published[0]
    page = Structure(result._repr_html_())
    at = next(p for p in result.receipt.guarantee.power if p.level == 0.05)
    assert sentences.power(0.05, at.upper) in page.text
    counts = result.tables["count.all"].column("value").to_pylist()
    assert all(str(value) in page.text for value in counts)
    assert "only in the private data" not in page.text
    assert "onerror" in page.text  # a key, as text


def test_a_release_that_hides_presence_alone_shows_the_sentence_about_presence(published, tmp_path):
    content = published[2].canonical()
    content["unit"] |= {"neighboring": "add-remove"}
    ledger = ny.Ledger(tmp_path / "ledger.db")
    ledger.create("people@1", protects="person", neighboring="add-remove", cap=1)
    data = tmp_path / "people.parquet"
    pq.write_table(pa.table({"race": ["b"] * 77}), data)
    result = release(ny.Plan.from_dict(content), data, ledger, tmp_path / "out")
    at = next(p for p in result.receipt.guarantee.power if p.level == 0.05)
    words = Structure(result._repr_html_()).text
    assert sentences.power(0.05, at.upper, neighboring="add-remove") in words
    assert "confirm a true claim" not in words


def test_a_table_file_that_is_damaged_is_named_with_what_to_do(published, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(published[0].folder, folder)
    (folder / "tables" / "count.all.parquet").write_bytes(b"no Parquet file")
    damaged = ny.Release.load(folder)
    with pytest.raises(ValueError, match=r"count\.all\.parquet' must be .* get the release again"):
        damaged.parquet("count.all")


def test_a_plan_shows_the_error_of_each_table_rounded_up(published):
    plan = published[2]
    page = plan._repr_html_()
    error = plan.errors()["standard_error"][0]
    (shown,) = [float(x) for x in re.findall(r"<td>(\d+\.\d+)</td>", page)][:1]
    assert error <= shown <= error * 1.01
    assert "person" in page


def test_a_ledger_shows_its_balance_and_writes_nothing(published, tmp_path):
    ledger = published[1]
    path = Path(str(ledger._store.where))
    ledger.close()
    before = hashlib.sha256(path.read_bytes()).digest()
    words = Structure(ledger._repr_html_()).text
    ledger.close()
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert ledger.verify().ok
    for text in ("people@1", "person, replace-one", "zcdp", "0.5"):
        assert text in words
    absent = ny.Ledger(tmp_path / "absent.db")
    assert "no ledger" in Structure(absent._repr_html_()).text
    assert list(tmp_path.iterdir()) == []
    # A view must neither wait for a server nor change one that a newer version opens first.
    server = ny.Ledger("postgresql://nobody@127.0.0.1:1/none")
    assert ".datasets()" in server._repr_html_()
    (tmp_path / "a.db").write_bytes(b"<b>no database</b>" * 100)
    assert "not a Neyman ledger" in Structure(ny.Ledger(tmp_path / "a.db")._repr_html_()).text


def test_a_bound_and_a_curve_show_both_ends_rounded_outward():
    f = ny.Gaussian(1).tradeoff()
    bound = f.epsilon(1e-6)
    low, high = (float(x) for x in re.findall(r"<td>([0-9.]+)</td>", bound._repr_html_())[:2])
    assert low <= bound.lower <= bound.upper <= high
    page = f._repr_html_()
    ends = [float(x) for x in re.findall(r"<td>([0-9.]+)</td>", page)]
    assert ends[0] <= f.power(0.01).lower <= f.power(0.01).upper <= ends[1]
    assert {tag for tag, _ in Structure(page).elements} >= {"svg", "polyline", "table"}


def test_an_estimate_is_not_called_certified():
    estimate = ny.Bound(1, 2, method="estimate: by hand")
    assert "certified" not in estimate._repr_html_()
    assert "estimate" in estimate._repr_html_()


def test_the_drawn_curve_is_the_upper_end_at_its_levels():
    f = ny.Laplace(1).tradeoff()
    points = re.findall(r'<polyline points="([^"]+)"', f._repr_html_())[1].split()
    heights = [1 - (float(p.partition(",")[2]) - 4) / 160 for p in points]
    levels = [(float(p.partition(",")[0]) - 26) / 160 for p in points]
    for level, height in zip(levels[2:-1], heights[2:-1], strict=True):
        assert height == pytest.approx(f.power(level).upper, abs=0.01)


def test_a_curve_and_a_release_draw_themselves(published):
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot as plt

    for result in (ny.gdp(1), published[0]):
        axes = result.plot()
        assert axes.get_xlim() == (0, 1)
        assert result.plot(axes=axes) is axes
        plt.close(axes.figure)
