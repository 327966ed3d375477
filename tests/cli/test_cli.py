"""The command line: answers, exit codes, and that nothing is left undocumented."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unicodedata
from fractions import Fraction
from pathlib import Path

import pytest

import neyman as ny
from commands import NEYMAN, answered, neyman
from neyman.cli.expression import mechanism_from
from neyman.cli.main import app
from neyman.cli.terminal import CODES

ROOT = Path(__file__).parents[2]

PLAN = """
schema = 2
name = "tiny"
dataset = "tiny@1"
table = "people"
[unit]
protects = "person"
neighboring = "replace-one"
rows = 1
[columns.race]
keys = ["a", "b"]
unknown = "drop"
[budget]
power = 0.25
level = 0.05
[[query]]
name = "race"
measure = "count"
by = ["race"]
share = "1"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "people.csv").write_text("race\n" + "a\nb\nb\nzebra\n\n" * 20)
    neyman("ledger", "create", "ledger.db", "tiny@1", "--cap", "0.5", cwd=tmp_path)
    return tmp_path


RUN = ("run", "plan.toml", "--data", "people=people.csv", "--ledger", "ledger.db", "--out", "out")


def test_a_plan_becomes_a_release_that_verifies_and_a_second_run_gives_the_same_bytes(folder):
    first = json.loads(neyman(*RUN, "--json", cwd=folder).stdout)
    assert first["receipt"]["guarantee"]["power"][1]["upper"] <= 0.25
    assert json.loads(neyman("verify", "out/receipt.json", "--json", cwd=folder).stdout)["ok"]
    neyman(*RUN[:-1], "again", cwd=folder)
    for file in (folder / "out").rglob("*"):
        if file.is_file():
            assert (
                file.read_bytes()
                == (folder / "again" / file.relative_to(folder / "out")).read_bytes()
            )
    entries = json.loads(neyman("ledger", "show", "ledger.db", "--json", cwd=folder).stdout)
    assert len(entries["accounts"][0]["entries"]) == 1
    neyman("report", "out", "--out", "page.html", cwd=folder)
    assert (
        "must end in .html"
        in neyman("report", "out", "--out", "page.pdf", cwd=folder, check=2).stderr
    )
    # The same page, but for its links, which lead to the release from where the page is.
    page, own = (folder / "page.html").read_text(), (folder / "out" / "report.html").read_text()
    assert own.count('href="tables/') == page.count('href="out/tables/') > 0
    assert page.replace('href="out/tables/', 'href="tables/') == own
    neyman("report", "out/receipt.json", "--out", "out/again.html", cwd=folder)
    assert (folder / "out" / "again.html").read_text() == own
    (folder / "out" / "again.html").unlink()


def test_checking_a_plan_says_what_could_be_found_out_about_an_attribute(folder):
    asked = ("plan", "check", "plan.toml", "--concerning", "race")
    content = json.loads(neyman(*asked, "--json", cwd=folder).stdout)["concerning"]
    assert (content["attributes"], content["within"], content["tables"]) == (
        ["race"],
        None,
        ["race.all"],
    )
    assert 0.24 < content["power"][1]["upper"] <= 0.25
    said = " ".join(neyman(*asked, cwd=folder).stdout.split())
    assert "wrongly confirms a false claim about a person’s race 5% of the time" in said
    plain = json.loads(neyman("plan", "check", "plan.toml", "--json", cwd=folder).stdout)
    fields = {"plan_hash", "mechanisms", "errors", "noise", "source", "keys", "warnings", "rows"}
    assert set(plain) == fields | {"attacks", "disjoint", "detail"}


def test_a_tampered_table_fails_verification_with_code_5(folder):
    neyman(*RUN, cwd=folder)
    table = folder / "out" / "tables" / "race.all.csv"
    table.write_text(table.read_text().replace("a", "b", 1))
    done = neyman("verify", "out", cwd=folder, check=5)
    assert "FAILED" in done.stdout


def test_a_second_release_over_the_cap_is_refused_with_code_3_and_leaves_nothing(folder):
    neyman(*RUN, cwd=folder)
    (folder / "more.toml").write_text(PLAN.replace('"tiny"', '"other"'))
    done = neyman("run", "more.toml", *RUN[2:-1], "out2", "--json", cwd=folder, check=3)
    assert json.loads(done.stdout)["exit_code"] == 3
    for word in ("left", "would fit"):
        assert word in done.stderr
    assert not (folder / "out2").exists()
    shown = json.loads(neyman("ledger", "show", "ledger.db", "--json", cwd=folder).stdout)
    assert len(shown["accounts"][0]["entries"]) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("account", "Gaussian(sigma=-1)"), "sigma = -1"),
        (("account", "Gaussian(sigma=1) * 2.5"), "count = 2.5"),
        (("account", "__import__('os')"), "is not allowed here"),
        (("account", "Gaussian(1) +"), "cannot be read"),
        (("account", "Gaussian(1)", "--delta", "2"), "delta = 2"),
        (("account", "Gaussian(1)", "--level", "nan"), "level = nan"),
        (("account", "Gausian(1)"), "did you mean Gaussian?"),
        (("account",), "'mechanism'; see neyman account --help"),
        (("account", "Gaussian(1)", "--delta", "few"), "'--delta'"),
        (("acount", "Gaussian(1)"), "'acount'"),
        (("calibrate", "Gaussian(x)"), "given: none"),
        (("calibrate", "Gaussian(x)", "--power", "0.1"), "given: --power\n"),
        (("calibrate", "Gaussian(x)", "--gdp", "1", "--delta", "1e-6"), "given: --delta, --gdp"),
        (("calibrate", "Gaussian(2) * 10", "--gdp", "1"), "has no x"),
        (("calibrate", "Gaussian(x)", "--epsilon", "1"), "no parameter"),
        (("verify", "nothing.json"), "nothing.json"),
        (("report", "nothing"), "nothing"),
        (("ledger", "show", "nothing.db"), "nothing.db"),
        (("ledger", "create", "l.db", "people", "--cap", "1"), "people"),
        (("ledger", "create", "l.db", "people@1", "--cap", "nan"), "nan"),
        (("run", "nothing.toml", *RUN[2:]), "nothing.toml"),
        (("run", "plan.toml", "--data", "people", *RUN[4:]), "TABLE=PATH"),
        (("run", "plan.toml", "--data", "people=none.csv", *RUN[4:]), "none.csv"),
        ((*RUN, "--data", "people=other.csv"), "names the table 'people' twice"),
        (("run", "plan.toml", "--json"), "'--ledger'"),
        (("run", "plan.toml", "--data", "persons=people.csv", *RUN[4:]), "people"),
        ((*RUN, "--engine", "dask"), "dask"),
        ((*RUN, "--master", "local[2]"), "local[2]"),
        ((*RUN, "--sign", "nothing.pem"), "nothing.pem"),
        ((*RUN, "--account", "team-a"), "team-a"),
        (("plan", "check", "nothing.toml"), "nothing.toml"),
        (("plan", "check", "plan.toml", "--concerning", "rase"), "did you mean 'race'"),
        (("plan", "check", "plan.toml", "--within", "state"), "--within 'state'"),
    ],
)
def test_bad_input_is_one_message_that_names_it_and_code_2(folder, args, said):
    done = neyman(*args, cwd=folder, check=2)
    assert said in done.stderr
    assert not (folder / "out").exists()


def test_a_usage_error_is_one_document_too(folder):
    for args in (("run", "plan.toml"), ("account",), ("ledger", "void", "ledger.db", "one")):
        content = json.loads(neyman(*args, "--json", cwd=folder, check=2).stdout)
        assert content["exit_code"] == 2
        assert "--help" in content["error"]


@pytest.mark.parametrize(
    "args", [("plan", "schema"), ("account", "Gaussian(1)"), ("ledger", "export", "ledger.db")]
)
def test_a_reader_that_leaves_is_no_error(folder, args):
    """As in `neyman ... | head -1`: the command has done its work, and says nothing more."""
    with subprocess.Popen(
        [*NEYMAN, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        assert run.stderr.read() == b""
        assert run.wait(timeout=60) == 0


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_release_whose_answer_cannot_be_printed_is_not_called_bad_input(folder, form):
    """Bad input (2) would say that nothing was spent; the release is there and was charged."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*NEYMAN, *RUN, *form],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert "what was done stands" in done.stderr
    assert "Traceback" not in done.stderr
    neyman("verify", "out", "--ledger", "ledger.db", cwd=folder)


def test_a_terminal_that_lacks_letters_gets_others_and_machines_get_them_all(folder):
    """Where stdout is ASCII a letter that it lacks is "?", and in JSON is escaped."""
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    asked = ("plan", "check", "plan.toml", "--concerning", "race")
    assert "person?s race" in neyman(*asked, cwd=folder, env=plain).stdout
    (folder / "plan.toml").write_text(PLAN.replace('["a", "b"]', '["ä", "b"]'), encoding="utf-8")
    content = json.loads(neyman(*RUN, "--json", cwd=folder, env=plain).stdout)
    assert content["receipt"]["plan"]["columns"]["race"]["keys"] == ["ä", "b"]


def test_in_a_narrow_terminal_nothing_is_cut_off(folder):
    narrow = {**os.environ, "COLUMNS": "30"}
    for args in (("plan", "check", "plan.toml"), ("ledger", "history", "ledger.db")):
        assert "…" not in neyman(*args, cwd=folder, env=narrow).stdout


def test_an_interrupted_run_ends_with_code_4_and_leaves_no_release(folder):
    with (folder / "people.csv").open("a") as file:
        file.write("a\nb\n" * 3_000_000)
    run = subprocess.Popen(
        [*NEYMAN, *RUN], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # The folder in which the release is prepared appears just before the charge is reserved.
    deadline = time.monotonic() + 60
    while not list(folder.glob(".out.neyman-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 4, errors
    assert b"if the run had begun to read the data, its charge stays spent" in errors
    assert not (folder / "out").exists()


def test_a_failure_after_the_charge_is_code_1_with_one_message_and_no_traceback(folder):
    code = (
        "import neyman.publishing.release.run as run\n"
        "def fails(*_, **__): raise ValueError('Jane Doe')\n"
        "run.aggregate_cells = fails\n"
        "from neyman.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *RUN, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    failure = json.loads(done.stdout)
    assert "failed while counting; the charge stands (entry 1 of tiny@1)" in failure["error"]
    assert "Jane Doe" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "error of ours" in failure["meaning"]
    shown = json.loads(neyman("ledger", "show", "ledger.db", "--json", cwd=folder).stdout)
    assert shown["accounts"][0]["entries"][0]["state"] == "reading"


def test_a_plan_that_did_not_finish_is_run_again_only_with_charge_again(folder):
    """`neyman run` refuses it with code 2 and names the option; with it, it is charged twice."""
    code = (
        "import os, neyman.publishing.release.run as run\n"
        "run.aggregate_cells = lambda *_, **__: os._exit(9)\n"
        "from neyman.cli.main import main; main()"
    )
    (folder / "plan.toml").write_text(PLAN.replace("tiny@1", "twice@1"))
    neyman("ledger", "create", "ledger.db", "twice@1", "--cap", "1", cwd=folder)
    killed = subprocess.run([sys.executable, "-c", code, *RUN], cwd=folder, check=False)
    assert killed.returncode == 9
    assert "--charge-again" in neyman(*RUN, cwd=folder, check=2).stderr
    neyman(*RUN, "--charge-again", cwd=folder)
    shown = json.loads(neyman("ledger", "show", "ledger.db", "--json", cwd=folder).stdout)
    twice = next(one for one in shown["accounts"] if one["dataset"] == "twice@1")
    assert [entry["state"] for entry in twice["entries"]] == ["reading", "released"]
    neyman("verify", "out", cwd=folder)


def test_a_repeat_says_that_nothing_was_charged_and_no_data_read(folder):
    first = neyman(*RUN, cwd=folder).stdout
    assert "Released 2 cells" in first
    assert "Charged" in first
    (folder / "people.csv").unlink()
    assert "This plan is published" in neyman(*RUN, cwd=folder, check=2).stderr
    without = [*RUN[:2], *RUN[4:]]
    again = neyman(*without, cwd=folder).stdout
    assert "Published before" in again
    assert "Nothing was charged" in again
    assert "the data were not read" in again
    assert json.loads(neyman(*without, "--json", cwd=folder).stdout)["published_before"] is True


def test_a_run_of_a_part_says_that_nothing_checks_that_parts_are_disjoint(folder):
    said = "Nothing checks that the parts of parted@1 are disjoint"

    def on_one_line(*command: str) -> str:
        return " ".join(neyman(*command, cwd=folder).stdout.split())

    assert "Nothing checks" not in on_one_line(*RUN)
    create = ("ledger", "create", "ledger.db", "parted@1", "--cap", "0.5")
    assert said in on_one_line(*create, "--part", "north", "--part", "south")
    for part in ("north", "south"):
        plan = PLAN.replace("tiny@1", "parted@1").replace("[unit]", f'part = "{part}"\n[unit]')
        (folder / f"{part}.toml").write_text(plan)
        spent = on_one_line("run", f"{part}.toml", *RUN[2:-1], part)
        assert f"{said}. If two parts contain the same person" in spent
        assert said in (folder / part / "report.html").read_text()
    assert said not in (folder / "out" / "report.html").read_text()
    words = on_one_line("ledger", "create", "--help").replace("│ │ ", "")
    assert "Nothing checks that parts are disjoint" in re.sub(r"[^a-zA-Z ]+ +", "", words)


def test_a_second_dataset_in_a_ledger_says_that_nothing_checks_whose_data_it_holds(folder):
    said = "Nothing checks that two dataset names hold different data"
    create = ("ledger", "create", "ledger.db", "other@1", "--cap", "0.5")
    assert said in " ".join(neyman(*create, cwd=folder).stdout.split())
    assert said not in neyman(*create[:2], "new.db", *create[3:], cwd=folder).stdout
    neyman(*RUN, cwd=folder)
    assert said in (folder / "out" / "report.html").read_text()


def test_brackets_in_a_name_are_printed_as_they_are(folder):
    (folder / "plan.toml").write_text(
        PLAN.replace('"person"', '"person [/x]"').replace("tiny@1", "other@1")
    )
    terms = ("--cap", "0.5", "--protects", "person [/x]")
    neyman("ledger", "create", "ledger.db", "other@1", *terms, cwd=folder)
    assert "person [/x]" in neyman(*RUN, cwd=folder).stdout
    assert "person [/x]" in neyman("ledger", "show", "ledger.db", cwd=folder).stdout


def test_an_absurd_cap_is_refused_and_a_huge_one_is_shown(folder):
    refused = neyman("ledger", "create", "ledger.db", "a@1", "--cap", "1e400", cwd=folder, check=2)
    assert "cap" in refused.stderr
    neyman("ledger", "create", "ledger.db", "a@1", "--cap", "1e6", cwd=folder)
    assert "a@1" in neyman("ledger", "show", "ledger.db", cwd=folder).stdout


def test_an_edited_page_or_a_receipt_of_junk_fails_verification_with_code_5(folder):
    neyman(*RUN, cwd=folder)
    (folder / "out" / "report.html").write_text("nothing at all can be learned")
    assert "FAILED report.html" in neyman("verify", "out", cwd=folder, check=5).stdout
    (folder / "out" / "report.html").unlink()
    neyman("verify", "out", cwd=folder)
    content = json.loads((folder / "out" / "receipt.json").read_text())
    content |= {"tables": [{}], "mechanisms": 1}
    (folder / "out" / "receipt.json").write_text(json.dumps(content))
    neyman("verify", "out", cwd=folder, check=5)


def test_every_command_and_every_exit_code_is_in_the_docs():
    docs = (ROOT / "README.md").read_text() + (ROOT / "docs" / "cli.md").read_text()
    names = [c.name or c.callback.__name__ for c in app.registered_commands]
    for group in app.registered_groups:
        inner = group.typer_instance.registered_commands
        names += [f"{group.name} {c.name or c.callback.__name__}" for c in inner]
    for name in names:
        assert f"neyman {name}" in docs, name
    for code, meaning in CODES.items():
        assert re.search(rf"\b{code} {meaning}", docs), code


def test_answers_of_account_hold_both_ends(tmp_path):
    done = neyman("account", "Gaussian(sigma=1) * 4", "--epsilon", "1", "--json", cwd=tmp_path)
    answers = {a["question"]: a for a in json.loads(done.stdout)["answers"]}
    assert answers["gdp"]["lower"] <= 2 <= answers["gdp"]["upper"]
    assert answers["pure"]["upper"] == "inf"
    assert answers["delta"]["lower"] < answers["delta"]["upper"]


def test_account_prints_each_level_in_full(tmp_path):
    """At 0.0123457, the level rounded to six digits, the power exceeds the printed bound."""
    said = neyman("account", "Gaussian(sigma=1)", "--level", "0.012345678", cwd=tmp_path).stdout
    assert "power(level=0.012345678)" in said
    assert "power(level=0.0001)" in said


def test_account_shows_suprema_only_near_the_nearest_gaussian(tmp_path):
    training = "Gaussian(sigma=0.8).subsample(rate=0.01) * 1000"
    shown = neyman("account", training, cwd=tmp_path).stdout
    assert "nearest_gaussian_mu()" in shown
    assert "gdp()" not in shown
    assert "zcdp()" not in shown
    answers = json.loads(neyman("account", training, "--json", cwd=tmp_path).stdout)["answers"]
    values = {a["question"]: a for a in answers}
    assert values["nearest_gaussian_mu"]["upper"] < 0.6 < 30 < values["gdp"]["upper"]
    assert "gdp()" in neyman("account", "Laplace(scale=2)", cwd=tmp_path).stdout


def test_account_and_calibrate_speak_of_success_at_a_baseline(tmp_path):
    said = neyman("account", "Gaussian(sigma=1)", "--baseline", "0.1", cwd=tmp_path).stdout
    assert "success(baseline=0.1)" in said
    assert "after they know all other records" in " ".join(said.split())
    assert "Scale at a 5% false positive rate: no information 5%; this 26%;" in said
    plain = neyman("account", "Gaussian(sigma=1)", cwd=tmp_path).stdout
    assert "Conditions" not in plain
    asked = ["--success", "0.3", "--baseline", "0.1", "--json"]
    answer = json.loads(neyman("calibrate", "Gaussian(x)", *asked, cwd=tmp_path).stdout)
    assert answer["x"] == ny.calibrate(ny.Gaussian, ny.at_most(success=0.3, baseline=0.1))


def test_account_prints_the_safe_mu_next_to_epsilon_and_the_power_at_its_low_end(tmp_path):
    training = "Gaussian(sigma=1).subsample(rate=0.01) * 1000"
    lines = neyman("account", training, "--level", "0.05", cwd=tmp_path).stdout.splitlines()
    (at,) = (i for i, line in enumerate(lines) if line.lstrip().startswith("epsilon"))
    assert "safe_mu(low=0.0001, high=0.5)" in lines[at + 1]
    assert "power(level=0.0001)" in lines[at + 2]
    assert "0.0001 to 0.5" in "".join(lines)
    assert "nearest_gaussian_mu is not a guarantee" in "".join(lines)
    answers = json.loads(neyman("account", training, "--json", cwd=tmp_path).stdout)["answers"]
    (safe,) = (a for a in answers if a["question"] == "safe_mu")
    assert (safe["low"], safe["high"]) == (1e-4, 0.5)
    assert 0.45407 < safe["lower"] <= safe["upper"] < 0.45408


def test_a_mechanism_as_text_is_read_and_never_evaluated():
    text = "DiscreteGaussian(sigma_squared='1/3', sensitivity=[(1, 1)]) * 2 + Laplace(scale=x)"
    result = mechanism_from(text, x=3.0)
    assert repr(result).count("Laplace(scale=3.0") == 1
    for bad in ("().__class__", "lambda: 1", "Gaussian(**{})", "Gaussian", "1", "x", "(" * 5000):
        with pytest.raises(ValueError, match="mechanism"):
            mechanism_from(bad)


@pytest.mark.parametrize(
    ("text", "mechanism"),
    [
        # The README's own mechanism.
        (
            "Gaussian(sigma=0.8).subsample(rate=256/60000) * 14_062",
            ny.Gaussian(0.8).subsample(rate=Fraction(256, 60_000)) * 14_062,
        ),
        ("Gaussian(0.1 + 0.2)", ny.Gaussian(Fraction(3, 10))),
        ("Gaussian(2) * (60_000 // 256) * 60", ny.Gaussian(2) * 14_040),
        ("(6 - 2*2) * Gaussian(+4/2)", ny.Gaussian(2) * 2),
        ("Laplace(-(-2**-1))", ny.Laplace(Fraction(1, 2))),
        ("Gaussian(2**0.5)", ny.Gaussian(2**0.5)),
        ("DiscreteGaussian(Fraction(1, 3))", ny.DiscreteGaussian(Fraction(1, 3))),
    ],
)
def test_a_number_of_a_mechanism_may_be_arithmetic_and_is_exact(text, mechanism):
    assert mechanism_from(text) == mechanism
    assert mechanism_from(repr(mechanism)) == mechanism


def test_an_unknown_may_be_part_of_arithmetic():
    assert mechanism_from("Gaussian(x / 2) * (4 / 2)", x=3.0) == ny.Gaussian(1.5) * 2


@pytest.mark.parametrize(
    "number",
    [
        *("1/0", "(-8)**(1/3)", "9**9**9**9", "10**400", "2**(1/3)**-999", "1e200*1e200"),
        *("'a'*3", "5%2", "2 if 1 else 3", "1<2", "~1", "1@2", "not 1"),
        *("Fraction(1, 0)", "Fraction('1e999999999')"),
    ],
)
def test_arithmetic_that_gives_no_number_is_refused_by_its_text(number):
    with pytest.raises(ValueError, match=r"^mechanism|^Fraction = "):
        mechanism_from(f"Gaussian({number})")


def test_a_count_that_comes_to_a_fraction_is_refused():
    with pytest.raises(ValueError, match=r"count = .* must be a whole number"):
        mechanism_from("Gaussian(2) * (5/2)")


def test_importing_the_package_imports_no_extras_and_no_slow_part_of_scipy():
    code = (
        "import neyman, sys; print([m for m in ('pydantic', 'ibis', 'duckdb', 'pyarrow', 'apsw', "
        "'matplotlib', 'cryptography', 'typer', 'scipy.stats', 'scipy.optimize') "
        "if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_text_of_others_reaches_the_terminal_as_a_command(capsys):
    from rich.text import Text

    from neyman.cli import terminal

    letters = [chr(code) for code in (*range(256), 0x61C, *range(0x2000, 0x2070))]
    hostile = "".join(letters).replace("\n", "")
    table = terminal.columns("a", hostile)
    table.add_row(hostile, Text(hostile))
    for write in (
        lambda: terminal.out.say(hostile),
        lambda: terminal.out.print(table),
        lambda: terminal.warn(hostile),
        lambda: terminal.answer({hostile: hostile}, True, lambda: None),
    ):
        write()
    with pytest.raises(SystemExit):
        terminal.failed(2, hostile, as_json=False)
    printed = capsys.readouterr()
    for letter in printed.out + printed.err:
        kind = unicodedata.category(letter)
        assert letter == "\n" or kind != "Cc", hex(ord(letter))
        assert unicodedata.bidirectional(letter)[:2] not in ("LR", "RL", "PD", "FS") or kind != "Cf"
    assert "\\u001b" in printed.out
    assert "\\u001b" in printed.err
    start = printed.out.rindex("{\n")
    assert json.loads(printed.out[start:]) == {hostile: hostile}


STARTED = (
    "import atexit, os, signal, sys\n"
    "sys.argv = ['neyman', *sys.argv[1:]]\n"
    "from neyman.cli.start import main\n"
)


@pytest.mark.parametrize(
    ("args", "words"),
    [(["--version"], None), (["--help"], None), ([], "neyman pl"), ([], "neyman run --le")],
)
def test_version_help_and_completion_load_no_library_but_typer(args, words):
    code = STARTED + (
        "slow = {'numpy', 'scipy', 'duckdb', 'ibis', 'pyarrow', 'pydantic', 'rich', 'apsw'}\n"
        "atexit.register(lambda: print(sorted(slow & {*sys.modules}), file=sys.stderr))\n"
        "main()"
    )
    asked = (
        {}
        if words is None
        else {
            "_NEYMAN_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **asked},
    )
    assert done.stderr == "[]\n"
    expected = {"neyman pl": "plan\n", "neyman run --le": "--ledger\n"}
    assert done.stdout == expected[words] if words else "neyman" in done.stdout


def test_help_of_a_command_loads_neither_numpy_nor_an_extra():
    code = STARTED + (
        "slow = {'numpy', 'scipy', 'duckdb', 'ibis', 'pyarrow', 'rich', 'apsw'}\n"
        "atexit.register(lambda: print(sorted(slow & {*sys.modules}), file=sys.stderr))\n"
        "main()"
    )
    for command in (["plan", "check"], ["run"], ["ledger", "show"], ["data", "check"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *command, "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "[]\n"
        assert "Usage: neyman" in done.stdout


def test_a_command_leaves_what_its_process_does_at_ctrl_c():
    """PySpark, for one, has its own handler."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        own = signal.getsignal(signal.SIGINT)
        answered("account", "Gaussian(sigma=2)")
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_the_command_line_loads_ends_with_code_4_and_one_line(tmp_path):
    code = STARTED + (
        "class Signals:\n"
        "    left = int(os.environ['IMPORTS'])\n"
        "    def find_spec(self, *_):\n"
        "        self.left -= 1\n"
        "        if self.left == 0: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Signals())\n"
        "main()"
    )
    for number in (1, 2, 40, 150, 300, 500):
        for more in ([], ["--json"]):
            done = subprocess.run(
                [sys.executable, "-c", code, "account", "Gaussian(sigma=2)", *more],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "IMPORTS": str(number)},
            )
            assert done.returncode == 4, (number, done.stderr)
            assert done.stderr.startswith("interrupted: ")
            assert done.stderr.count("\n") == 1
            if more:
                failure = json.loads(done.stdout)
                assert (failure["exit_code"], failure["meaning"]) == (4, "interrupted")
                assert failure["error"] in done.stderr
