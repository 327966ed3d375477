"""The notebooks in examples run from the top, and hold no output that could go stale."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_there_are_two_notebooks():
    assert NOTEBOOKS == ["accounting.ipynb", "release.ipynb"]


@pytest.fixture(autouse=True)
def folder_of_ipython(tmp_path, monkeypatch):
    """IPython warns where it cannot write to a home."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs(name):
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) >= 5
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in codes)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_its_results(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(FOLDER / name, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    kinds = {
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for kind in output.get("data", {})
    }
    assert kinds >= {"text/html", "image/png"}


def test_a_run_shows_its_progress_in_one_line_that_changes(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    plan = {
        "schema": 2, "name": "small", "dataset": "d@1", "table": "t", "budget": {"zcdp": "1/2"},
        "unit": {"protects": "person", "neighboring": "add-remove", "rows": 1},
        "columns": {"g": {"keys": ["a", "b"]}},
        "query": [{"measure": "count", "by": ["g"], "share": 1}],
    }  # fmt: skip
    setting = (
        "import warnings, neyman as ny, pyarrow as pa\n"
        "warnings.simplefilter('ignore')\n"
        f"plan, data = ny.Plan.from_dict({plan!r}), pa.table({{'g': ['a', 'b']}})\n"
        "book = ny.Ledger('ledger.db')\n"
        "book.create('d@1', protects='person', neighboring='add-remove', cap=1);"
    )
    runs = [f"ny.run(plan, data, book, 'out{number}');" for number in range(2)]
    runs.append("ny.audit.search(lambda x: x, 1, 0, claim=ny.gdp(1), runs=60, seed=1);")
    cells = [nbformat.v4.new_code_cell(text) for text in (setting, *runs)]
    document = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        document,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    shown = [[output["data"]["text/html"] for output in cell["outputs"]] for cell in cells[1:]]
    before = "published before: nothing was charged, and the data were not read"
    assert shown == [
        ["<p>done (100%)</p>"],
        [f"<p>{before} (100%)</p>"],
        ["<p>audit: 60 runs are done (100%)</p>"],
    ]
