"""Run the code of a page, and hold what it prints against what the page says.

In a page, in order and in one folder:

- a block of ``python`` is run; one of ``pycon`` is run and must print what it shows ("..." stands
  for anything, spaces do not count);
- in a block of ``console`` each line after "$ " is run and must print what follows; only `neyman`;
- a block whose first line is a comment with a file's name ("# plan.toml") is written there;
- a comment ``<!-- run`` ... ``-->`` is code that readers are not shown: it checks the text;
- ``<!-- not run: why -->`` before a block leaves it out;
- ``<!-- Written by `python -m module docs` ... -->``: what the module's ``pages()`` gives must be
  the page and its figures; `python docs/site/module.py docs` names a module of this folder;
- ``<!-- Printed by `python examples/name.py` -->``: every paragraph that the example prints, its
  own headings aside, must stand on the page, and its figures be those in docs/name.

Figures may differ by a tenth of a unit; numbers that an example measures by what its comment says.

``python docs/site/pages.py`` runs all pages, or those that are named, and copies the
figures that they draw into docs/figures.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

DOCS = Path(__file__).parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]*-->\s*)?^```(?P<kind>\w+)\n(?P<code>.*?)^```$"
    r"|^<!-- run\n(?P<hidden>.*?)^-->$",
    re.M | re.S,
)
# What a page takes for granted: said above its first block, or in the text.
BEFORE = {
    "design.md": "import neyman as ny; g = ny.gdp(1)",
    "interop.md": "import dp_accounting",
    "local.md": "from neyman import HadamardResponse; values = [0, 7, 255] * 10",
    "shuffle.md": "import neyman as ny",
    "strategies.md": """if True:
        from numpy import ones
        tables = {
            ("age", "sex"): ones((10, 2), int) * 20,
            ("age", "race"): ones((10, 5), int) * 8,
            ("race", "income"): ones((5, 8), int) * 10,
        }""",
}
# Pages whose code is run elsewhere.
ELSEWHERE = {"pytorch.md": "needs torch: tests/with_torch/test_pytorch_page.py runs it"}
FILE = re.compile(r"# ([\w-]+\.(?:toml|csv|py))\n")
WRITTEN = re.compile(r"^<!-- Written by `python (?:-m |docs/site/)([\w.]+?)(?:\.py)? docs`", re.M)
PRINTED = re.compile(
    r"^<!-- Printed by `python examples/(\w+)\.py`(?:, to within ([\d.]+))? -->", re.M
)
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)")
A_TENTH = 0.15  # of a unit of a drawing, and what rounding to tenths adds


def pages() -> list[str]:
    """Every page of the site, as a path from docs."""
    results = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    return [name for name in results if not name.startswith("site/")]


def computed(name: str) -> bool:
    """Whether something on the page is computed when it is run."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return bool(WRITTEN.search(text) or PRINTED.search(text) or any(blocks(text)))


def blocks(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, code and line of each block that is run."""
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("hidden" if match["hidden"] else "code"))
        if match["hidden"]:
            yield ("pycon" if ">>> " in match["hidden"] else "python"), match["hidden"], line
        elif not match["skip"] and match["kind"] in ("python", "pycon", "console", "toml"):
            yield match["kind"], match["code"], line


def run(name: str, folder: Path) -> None:
    """Run a page in a folder, which must be empty.

    Raises:
        AssertionError: something is printed that the page does not say, or fails; what and where.
    """
    (folder / "figures").mkdir()
    if name in ELSEWHERE:
        return
    text = (DOCS / name).read_text(encoding="utf-8")
    if by := WRITTEN.search(text):
        files = importlib.import_module(by[1]).pages()
        assert name in files, f"docs/{name} is not written by {by[1]}"
        held(files, text)
    if by := PRINTED.search(text):
        _printed(by[1], float(by[2] or 0), text, folder)
    run_blocks(name, text, folder)


def run_blocks(name: str, text: str, folder: Path) -> None:
    """Run the blocks of a page's text in a folder.

    Raises:
        AssertionError: something is printed that the page does not say, or fails; what and where.
    """
    names: dict[str, object] = {"__name__": "__main__", "__file__": str(DOCS / name)}
    exec(BEFORE.get(name, ""), names)
    with contextlib.chdir(folder), warnings.catch_warnings(), quiet_figures():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "fetch_", DeprecationWarning)  # Ibis's name for DuckDB's
        for kind, code, line in blocks(text):
            where = f"docs/{name}:{line}"
            if file := FILE.match(code):
                Path(file[1]).write_text(code, encoding="utf-8")
            if kind == "python":
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(compile("\n" * line + code, DOCS / name, "exec"), names)
                except Exception as error:
                    raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
            elif kind == "pycon":
                _interact(code, names, where, line)
            elif kind == "console":
                _command(code, where)


def same(said: str, result: str, far: float) -> bool:
    """Whether two texts have the same words, and numbers that are no farther than that apart."""
    one, other = NUMBER.split(said), NUMBER.split(result)
    return one[::2] == other[::2] and all(
        abs(float(a) - float(b)) <= far for a, b in zip(one[1::2], other[1::2], strict=True)
    )


def held(files: Mapping[str, str], page: str, folder: str = "") -> None:
    """Files of docs are what was found again, and all figures stand on the page, and no other."""
    for name, result in files.items():
        said = (DOCS / folder / name).read_text(encoding="utf-8")
        if name.endswith(".svg"):
            assert same(said, result, A_TENTH), f"docs/{folder}{name} is not what is drawn"
        else:
            lines = zip_longest(said.splitlines(), result.splitlines(), fillvalue="nothing")
            wrong = [f"the page says  {a}\nit should be   {b}" for a, b in lines if a != b]
            assert said == result, f"docs/{name}:\n" + "\n".join(wrong[:5])
    values = {folder + name for name in files if name.endswith(".svg")}
    assert values == set(re.findall(rf"\]\(({folder}[\w-]+\.svg)\)", page)), values


def _printed(name: str, far: float, page: str, folder: Path) -> None:
    """Every paragraph that an example prints stands on the page, and so do its figures."""
    command = [sys.executable, "-W", "error", DOCS.parent / "examples" / f"{name}.py", folder]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    said = [part.strip("\n") for part in re.split(r"\n\n|^```\w*$", page, flags=re.M)]
    for result in done.stdout.strip("\n").split("\n\n"):
        assert result.startswith("## ") or any(same(part, result, far) for part in said), (
            f"examples/{name}.py prints what the page does not say:\n{result}"
        )
    figures = {path.name: path.read_text(encoding="utf-8") for path in folder.glob(f"{name}/*")}
    if figures:
        held(figures, page, f"{name}/")


def _interact(code: str, names: dict[str, object], where: str, line: int) -> None:
    test = doctest.DocTestParser().get_doctest(code, names, where, None, line)
    test.globs = names
    answer = io.StringIO()
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(
        test, out=answer.write, clear_globs=False
    )
    assert not failed, answer.getvalue()


def _command(code: str, where: str) -> None:
    checker = doctest.OutputChecker()
    for part in re.split(r"^\$ ", code, flags=re.M)[1:]:
        line, _, expected = part.partition("\n")
        program, *arguments = shlex.split(line, comments=True)
        assert program == "neyman", f"{where}: only neyman is run, not {program!r}"
        done = subprocess.run(
            [sys.executable, "-m", "neyman", *arguments],
            check=False, capture_output=True, text=True, timeout=120,
            env={**os.environ, "COLUMNS": "100"},
        )  # fmt: skip
        printed = done.stdout or done.stderr
        assert checker.check_output(expected, printed, FLAGS), (
            f"{where}: $ {line}\n--- the page says\n{expected}--- it printed\n{printed}"
        )


@contextlib.contextmanager
def quiet_figures() -> Iterator[None]:
    """Figures are drawn without a screen and alike each time."""
    import matplotlib

    style = {
        "svg.hashsalt": "neyman", "svg.fonttype": "none", "savefig.transparent": False,
        "font.family": "sans-serif", "figure.figsize": (6.0, 4.2), "font.size": 11,
    }  # fmt: skip
    matplotlib.use("agg")
    was = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in a picture
    try:
        with matplotlib.rc_context(style):
            yield
    finally:
        from matplotlib import pyplot as plt

        plt.close("all")
        if was is None:
            del os.environ["SOURCE_DATE_EPOCH"]
        else:
            os.environ["SOURCE_DATE_EPOCH"] = was


def drawings(folder: Path) -> set[str]:
    """The figures that a page has drawn there."""
    return {path.name for path in (folder / "figures").iterdir()}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or pages():
        with tempfile.TemporaryDirectory() as fresh:
            run(chosen, Path(fresh))
            for figure in sorted((Path(fresh) / "figures").iterdir()):
                shutil.copyfile(figure, DOCS / "figures" / figure.name)
        print(chosen, flush=True)
