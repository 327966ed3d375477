"""The pages: their code runs and prints what they show, links lead somewhere, the site builds."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from types import FunctionType, ModuleType
from xml.etree import ElementTree

import pytest

import neyman as ny
from neyman.display import figures as plots
from plans import SMALL
from reproductions.shuffling import page as shuffle

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))
import pages  # noqa: E402 (docs/site/pages.py)

RUN = ["../README.md", *filter(pages.computed, pages.pages())]
# A public name of the reference, and its options.
DIRECTIVE = r"^\.\. auto\w+:: ([\w.]+)\n((?:   :.*\n)*)"
# Public names whose docstring has no example, and why.
WITHOUT_EXAMPLE = {
    "ny.Ledger": "the example of ny.run makes one",
    "ny.Release": "the example of ny.run reads one",
    "ny.audit.likelihood_ratio": "the guide to audits describes it",
    "ny.audit.lira": "the guide to audits describes it",
}


@pytest.mark.parametrize("name", RUN)
def test_the_code_of_a_page_prints_what_the_page_shows(name, tmp_path):
    pages.run(name, tmp_path)
    if name not in pages.ELSEWHERE:
        shown = re.findall(r"\((?:\.\./)?figures/([\w.-]+)\)", (DOCS / name).read_text())
        assert pages.drawings(tmp_path) == set(shown)


@pytest.mark.parametrize(("page", "said"), [
    ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected"),
    ("```python\nx = 1\n```\n\n<!-- run\nassert x == 2\n-->\n", "AssertionError"),
    ("```console\n$ neyman plan schema\nnothing\n```\n", "the page says"),
    ("```console\n$ rm -r x\n```\n", "only neyman"),
    ("```python\nimport warnings; warnings.warn('w')\n```\n", "UserWarning"),
    (
        "<!-- Written by `python -m reproductions.local_model.page docs`: edit that. -->\n",
        "not written by",
    ),
    ("<!-- Printed by `python examples/blackwell.py` -->\n", "does not say"),
    ("<!-- Printed by `python examples/none.py` -->\n", "No such file"),
])  # fmt: skip
def test_a_page_that_says_something_else_fails(page, said, tmp_path):
    (tmp_path / "page.md").write_text(page)
    (tmp_path / "folder").mkdir()
    with pytest.raises(AssertionError, match=said):
        pages.run(str(tmp_path / "page.md"), tmp_path / "folder")


@pytest.fixture(scope="module")
def files():
    """A page and its figure, written now."""
    return shuffle.pages()


@pytest.mark.parametrize(("file", "before", "after", "said"), [
    ("shuffle.md", "0.398", "0.397", "should be"),
    ("shuffle.md", "](shuffle.svg)", "](local.svg)", "should be"),
    ("shuffle.svg", 'width="', 'width="1', "not what is drawn"),
])  # fmt: skip
def test_a_page_that_is_not_what_its_code_writes_fails(
    file, before, after, said, files, tmp_path, monkeypatch
):
    for name, text in files.items():
        assert before in files[file]
        (tmp_path / name).write_text(text.replace(before, after, 1) if name == file else text)
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    with pytest.raises(AssertionError, match=said):
        pages.held(files, (tmp_path / "shuffle.md").read_text())


def test_numbers_may_differ_by_so_much_and_words_not_at_all():
    assert pages.same("M 1.04 -2.5 L 3", "M 1.1 -2.4 L 3", pages.A_TENTH)
    assert not pages.same("M 1.04 -2.5 L 3", "M 1.2 -2.5 L 3", pages.A_TENTH)
    assert not pages.same("M 1 2", "L 1 2", pages.A_TENTH)
    assert not pages.same("1 2", "1 2 3", pages.A_TENTH)
    assert pages.same("25 of 51: 16.55%", "25 of 51: 16.4%", 0.5)
    assert not pages.same("25 of 51: 16.55%", "24 of 51: 16.55%", 0.5)


@pytest.mark.parametrize("page", ["../README.md", *pages.pages()])
def test_pages_link_to_files_that_are_there(page):
    path = DOCS / page
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", text):
        assert (path.parent / target).exists(), target


FIGURES = sorted(DOCS.rglob("*.svg"))


def test_no_paragraph_stands_twice_on_a_page():
    for path in DOCS.rglob("*.md"):
        prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
        paragraphs = [p.strip() for p in prose.split("\n\n") if len(p.strip()) > 40]
        assert len(paragraphs) == len(set(paragraphs)), path.name


def test_every_figure_stands_on_a_page():
    shown = {
        ((DOCS / name).parent / target).resolve()
        for name in pages.pages()
        for target in re.findall(r"\]\(([\w./-]+\.svg)\)", (DOCS / name).read_text())
    }
    assert set(FIGURES) == shown


@pytest.mark.parametrize("path", [p for p in FIGURES if p.parent == DOCS], ids=lambda p: p.name)
def test_the_words_of_a_figure_stand_inside_it(path):
    root = ElementTree.parse(path).getroot()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for words in root.iter("{http://www.w3.org/2000/svg}text"):
        x, y = float(words.attrib["x"]), float(words.attrib["y"])
        wide = 6.2 * len("".join(words.itertext()))
        anchor = words.attrib.get("text-anchor", "start")
        start = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        assert start >= 0, words.text
        assert start + wide <= width + 12, words.text
        assert 0 < y < height, words.text


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text() for path in sorted((DOCS / "api").iterdir()))
    names = re.findall(r"^\.\. auto(?:class|data|function|module):: neyman\.(\w+)$", text, re.M)
    assert sorted(names) == dir(ny)


def test_every_public_method_is_in_the_reference():
    text = "\n".join(path.read_text() for path in sorted((DOCS / "api").iterdir()))
    listed = dict(re.findall(DIRECTIVE, text, re.M))
    missing = []
    for name in dir(ny):
        thing = getattr(ny, name)
        kind = thing if isinstance(thing, type) else type(thing)
        if isinstance(thing, FunctionType):
            continue
        if isinstance(thing, ModuleType):
            missing += [part for part in thing.__all__ if f"neyman.{name}.{part}" not in listed]
            continue
        options = listed[f"neyman.{name}"] + listed.get(f"{kind.__module__}.{kind.__name__}", "")
        members = re.search(r":members:(.*)", options)
        if members and not members[1].strip():
            continue
        written = set(members[1].replace(",", " ").split()) if members else set()
        inherited = {key for base in kind.__mro__[1:] for key in vars(base)}
        for key, value in vars(kind).items():
            public = not key.startswith("_") and (callable(value) or hasattr(value, "__get__"))
            if not public or key in inherited | written:
                continue
            target = getattr(thing, key)
            places = {f"{kind.__module__}.{kind.__name__}.{key}"}
            places |= {f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', '')}"}
            missing += [f"ny.{name}.{key}"] if places.isdisjoint(listed) else []
    assert missing == []


def test_the_reference_of_figures_lists_every_public_figure():
    text = (DOCS / "api" / "measuring.md").read_text()
    assert "automodule:: neyman.display.plots.figures" in text
    assert all(getattr(plots, name).__doc__ for name in plots.__all__)


def test_the_glossary_is_in_order_and_defines_only_terms_that_other_pages_use():
    entries = re.findall(
        r"^- \*\*(.+?)\*\*(.*(?:\n  .*)*)", (DOCS / "glossary.md").read_text(), re.M
    )
    terms = [term for term, _ in entries]
    assert len(terms) > 60
    assert sorted({term.casefold() for term in terms}) == [term.casefold() for term in terms]
    others = (DOCS / name for name in pages.pages() if name != "glossary.md")
    used = " ".join(" ".join(path.read_text().split()) for path in others).casefold()
    for term, definition in entries:
        assert re.search(r"\]\([\w/-]+\.md", definition), term
        assert re.search(rf"\b{re.escape(term.casefold())}", used), term


EXAMPLES = {f"ny.{n}": getattr(ny, n) for n in dir(ny)}
EXAMPLES |= {  # what the reference lists in modules below `neyman`
    path: resolve_name(path)
    for page in (DOCS / "api").iterdir()
    for path in re.findall(r"auto(?:class|function):: (neyman(?:\.\w+){3,})\n", page.read_text())
}
EXAMPLES |= {f"plots.{n}": getattr(plots, n) for n in plots.__all__}
EXAMPLES |= {
    f"ny.{name}.{part}": getattr(getattr(ny, name), part)
    for name in ("audit", "estimate", "query", "risk")
    for part in getattr(ny, name).__all__
}


@pytest.mark.parametrize("name", [each for each in EXAMPLES if each != "ny.torch"])
def test_examples_in_docstrings_print_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=pages.FLAGS)
    answers: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(EXAMPLES[name], name, globs={}):
        with pages.quiet_figures():
            runner.run(test, out=answers.append)
    assert not answers, "".join(answers)


def test_every_public_name_has_an_example():
    public = {name: thing for name, thing in EXAMPLES.items() if not name.startswith("neyman.")}
    without = {name for name, thing in public.items() if ">>> " not in (thing.__doc__ or "")}
    assert without == set(WITHOUT_EXAMPLE)


def test_no_function_of_the_configuration_has_the_name_of_a_configuration_value(tmp_path):
    """Sphinx takes such a function for the value. Version 9.1 warns, so -W fails."""
    code = (
        "import runpy, sys; from sphinx.application import Sphinx; docs, made = sys.argv[1:]\n"
        "app = Sphinx(docs, docs, made, made, 'html', status=None)\n"
        "defined = runpy.run_path(docs + '/conf.py')\n"
        "print([each.name for each in app.config if callable(defined.get(each.name))])\n"
    )
    command = [sys.executable, "-c", code, DOCS, tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout == "[]\n", done.stdout + done.stderr


EXAMPLE_FILES = {path.stem for path in (ROOT / "examples").glob("*.py")}
HELD = {
    name for page in pages.pages() for name, _ in pages.PRINTED.findall((DOCS / page).read_text())
}


@pytest.mark.parametrize("name", sorted(EXAMPLE_FILES - HELD))
def test_each_example_runs(name, tmp_path):
    # DuckDB's own Arrow reader calls a method that it has renamed.
    duckdb = ["-W", "ignore:fetch_:DeprecationWarning"]
    command = [sys.executable, "-W", "error", *duckdb, ROOT / "examples" / f"{name}.py", tmp_path]
    subprocess.run(command, check=True, timeout=300, cwd=ROOT, capture_output=True)


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Run a notebook, and return the data of the outputs of each of its cells."""
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # it warns without a home

    def run(notebook):
        resources = {"metadata": {"path": str(tmp_path)}}
        client.NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources=resources
        ).execute()
        return [[o.get("data", {}) for o in cell.get("outputs", ())] for cell in notebook.cells]

    return run


@pytest.mark.parametrize("name", ["accounting", "release"])
def test_a_notebook_is_stored_without_outputs_and_shows_its_results(name, executed):
    nbformat = pytest.importorskip("nbformat")
    path = ROOT / f"examples/{name}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) >= 5
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in codes)
    shown = executed(nbformat.read(path, as_version=4))
    assert {kind for cell in shown for data in cell for kind in data} >= {"text/html", "image/png"}


def test_a_run_shows_its_progress_in_one_line_that_changes(executed):
    nbformat = pytest.importorskip("nbformat")
    setting = (
        "import warnings, neyman as ny, pyarrow as pa\n"
        "warnings.simplefilter('ignore')\n"
        "data = pa.table({'race': ['white', 'black']})\n"
        f"plan, book = ny.Plan.from_dict({SMALL!r}), ny.Ledger('ledger.db')\n"
        "book.create('people@1', protects='person', neighboring='replace-one', cap=1);"
    )
    runs = [f"ny.run(plan, data, book, 'out{number}');" for number in range(2)]
    runs.append("ny.audit.search(lambda x: x, 1, 0, claim=ny.gdp(1), runs=60, seed=1);")
    cells = [nbformat.v4.new_code_cell(text) for text in (setting, *runs)]
    _, *shown = executed(nbformat.v4.new_notebook(cells=cells))
    before = "published before: nothing was charged, and the data were not read"
    texts = ["done", before, "audit: 60 runs are done"]
    assert [[data["text/html"] for data in cell] for cell in shown] == [
        [f"<p>{said} (100%)</p>"] for said in texts
    ]
