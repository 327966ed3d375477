"""The notebooks in examples run from the top, and hold no output that could go stale."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_there_are_two_notebooks():
    assert NOTEBOOKS == ["accounting.ipynb", "release.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs(name):
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) >= 5
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in codes)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_its_results(name, tmp_path):
    """Each cell that ends with a result has HTML, and a picture where it draws one."""
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
