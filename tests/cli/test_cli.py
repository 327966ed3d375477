"""The command line: answers, exit codes, refusals, and what a shell asks of it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import unicodedata
from fractions import Fraction
from pathlib import Path

import pytest

import neyman as ny
from commands import NEYMAN, answered, app, neyman
from mixed_plan import MIXED
from neyman.cli.expression import MECHANISMS, mechanism_from
from neyman.cli.terminal import CODES
from neyman.mechanisms import CircularGaussian, square_root

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import command_reference  # noqa: E402 (docs/site/command_reference.py)

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
    (tmp_path / "mixed.toml").write_text(MIXED.replace("[unit]", "[unit]\nrows = 1"))
    (tmp_path / "people.csv").write_text("race\n" + "a\nb\nb\nzebra\n\n" * 20)
    (tmp_path / "latin.csv").write_bytes("größe\n".encode("latin-1"))
    (tmp_path / "broken.parquet").write_text("x")
    answered("ledger", "create", tmp_path / "ledger.db", "tiny@1", "--cap", "0.5")
    return tmp_path


RUN = ("run", "plan.toml", "--data", "people=people.csv", "--ledger", "ledger.db", "--out", "out")


def entries_of(folder, dataset="tiny@1"):
    with ny.Ledger(folder / "ledger.db") as ledger:
        return ledger.entries(dataset)


def test_a_plan_becomes_a_release_that_verifies_and_a_second_run_gives_the_same_bytes(folder):
    first = json.loads(neyman(*RUN, "--json", cwd=folder).stdout)
    assert first["receipt"]["guarantee"]["power"][1]["upper"] <= 0.25
    assert json.loads(neyman("verify", "out/receipt.json", "--json", cwd=folder).stdout)["ok"]
    (folder / "people.csv").unlink()
    assert "This plan is published" in neyman(*RUN, cwd=folder, check=2).stderr
    again = neyman(*RUN[:2], *RUN[4:-1], "again", "--json", cwd=folder)
    assert json.loads(again.stdout)["published_before"] is True
    for file in filter(Path.is_file, (folder / "out").rglob("*")):
        same = folder / "again" / file.relative_to(folder / "out")
        assert file.read_bytes() == same.read_bytes()
    assert len(entries_of(folder)) == 1
    neyman("report", "out", "--out", "page.html", cwd=folder)
    # The same page, but for its links, which lead to the release from where the page is.
    page, own = (folder / "page.html").read_text(), (folder / "out" / "report.html").read_text()
    assert own.count('href="tables/') == page.count('href="out/tables/') > 0
    assert page.replace('href="out/tables/', 'href="tables/') == own
    neyman("report", "out/receipt.json", "--out", "out/again.html", cwd=folder)
    assert (folder / "out" / "again.html").read_text() == own


def test_checking_a_plan_says_what_could_be_found_out_about_an_attribute(folder):
    asked = ("plan", "check", folder / "plan.toml")
    content = json.loads(answered(*asked, "--concerning", "race", "--json"))["concerning"]
    expected = (["race"], None, ["race.all"])
    assert (content["attributes"], content["within"], content["tables"]) == expected
    assert 0.24 < content["power"][1]["upper"] <= 0.25
    fields = {"plan_hash", "mechanisms", "errors", "noise", "source", "keys", "warnings", "rows"}
    plain = json.loads(answered(*asked, "--json"))
    assert set(plain) == fields | {"attacks", "disjoint", "detail"}


def test_a_table_or_page_or_receipt_that_was_edited_fails_verification_with_code_5(folder):
    neyman(*RUN, cwd=folder)
    out = folder / "out"
    for file in ("tables/race.all.csv", "report.html", "receipt.json"):
        before = (out / file).read_text()
        (out / file).write_text(before.replace("a", "b", 1))
        assert "FAILED" in neyman("verify", "out", cwd=folder, check=5).stdout
        (out / file).write_text(before)
    neyman("verify", "out", cwd=folder)


def test_a_second_release_over_the_cap_is_refused_with_code_3_and_leaves_nothing(folder):
    neyman(*RUN, cwd=folder)
    (folder / "more.toml").write_text(PLAN.replace('"tiny"', '"other"'))
    done = neyman("run", "more.toml", *RUN[2:-1], "out2", "--json", cwd=folder, check=3)
    assert json.loads(done.stdout)["exit_code"] == 3
    assert "would fit" in done.stderr
    assert not (folder / "out2").exists()
    assert len(entries_of(folder)) == 1


WITH = "--ledger ledger.db --out out"
SPLIT = "plan split mixed.toml --out"
REFUSED = {
    "account 'Gaussian(sigma=-1)'": "sigma = -1",
    "account '__import__(1)'": "is not allowed here",
    "account 'Gaussian(1) +'": "cannot be read",
    "account 'Gaussian(1)' --delta 2": "delta = 2",
    "calibrate 'Gaussian(x)' --power 0.1": "given: --power",
    "calibrate 'Gaussian(x)' --gdp 1 --delta 1e-6": "given: --delta, --gdp",
    "calibrate 'Gaussian(2) * 10' --gdp 1": "has no x",
    "calibrate 'Gaussian(x)' --epsilon 1": "no parameter",
    "calibrate 'Gaussian(x)' --error rase 10": "are for a plan",
    "calibrate mixed.toml": "give --error",
    "calibrate mixed.toml --error race 10 --zcdp 1": "not both",
    "calibrate mixed.toml --zcdp 1 --interval": "modify --error",
    "calibrate mixed.toml --error rase 10": "no such table",
    "calibrate mixed.toml --error pay 1": "must be between 1e-15 and 1e4",
    "calibrate mixed.toml --zcdp 1 --out curve.png": "must end in .svg",
    "verify nothing.json": "nothing.json", "report nothing": "nothing",
    "report nothing --out page.pdf": "must end in .html", "ledger show nothing.db": "nothing.db",
    "ledger create l.db people --cap 1": "people", "ledger create l.db people@1 --cap nan": "nan",
    f"run nothing.toml --data people=people.csv {WITH}": "nothing.toml",
    f"run plan.toml --data people {WITH}": "TABLE=PATH",
    f"run plan.toml --data people=a.csv --data people=b.csv {WITH}": "the table 'people' twice",
    f"run plan.toml --data persons=people.csv {WITH}": "people",
    f"run plan.toml --data people=people.csv {WITH} --engine dask": "dask",
    f"run plan.toml --data people=people.csv {WITH} --sign nothing.pem": "nothing.pem",
    f"run plan.toml --data people=people.csv {WITH} --account team-a": "team-a",
    "data check plan.toml --data people": "must be TABLE=PATH",
    "data check plan.toml --data people=nothing.csv": "'nothing.csv'",
    "plan check nothing.toml": "nothing.toml",
    "plan check plan.toml --within state": "--within 'state'",
    f"{SPLIT} split.json": "must end in .toml",
    f"{SPLIT} x.toml --weight race": "must be TABLE=NUMBER",
    f"{SPLIT} /nowhere/x.toml": "in the folder of the plan",
    f"{SPLIT} mixed.toml": "already exists: name a new file",
    "plan init plan.toml --out new.toml": "ends in .parquet, .csv",
    "plan init people.csv --out plan.toml": "already exists",
    "plan init people.csv --out new.toml --id who": "--id 'who': the file has 0 columns of that",
    "plan init people.csv --out new.toml --delimiter x": "delimiter = 'x'",
    "plan init people.csv --out new.toml --protects ' '": "--protects",
    "plan init people.csv --out new.toml --neighboring any": "must be 'replace-one' or",
    "plan from-sql plan.toml 'SELECT 1' --out new.toml --clip 9": "must be COLUMN=LOW,HIGH",
    "verify plan.toml --checkpoint kept": "add --ledger",
    "plan init none.csv --out new.toml": "No such file",
    "plan init broken.parquet --out new.toml": "not a Parquet file",
    "plan init latin.csv --out new.toml": "give --encoding",
    "plan init latin.csv --out new.toml --encoding nothing": "encoding = 'nothing'",
}  # fmt: skip


@pytest.mark.parametrize("command", REFUSED)
def test_bad_input_is_one_message_that_names_it_and_code_2(folder, command, monkeypatch):
    monkeypatch.chdir(folder)

    def files():  # SQLite's own files beside a ledger come and go
        others = (path for path in folder.iterdir() if not path.name.startswith("ledger.db"))
        return {path.name: path.read_bytes() for path in others}

    before = files()
    failure = json.loads(answered(*shlex.split(command), "--json", code=2))
    assert REFUSED[command] in failure["error"]
    assert files() == before
    assert not entries_of(folder)


def test_the_explorer_refuses_a_checkpoint_without_its_ledger_and_a_port_that_is_none(folder):
    for option, said in (("--checkpoint", "add --ledger"), ("--port", "from 0 (any free one)")):
        done = neyman("explore", "plan.toml", option, "70000", cwd=folder, check=2)
        assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(("command", "said"), [
    ("account", "'mechanism'; see neyman account --help"),
    ("account 'Gaussian(1)' --delta few", "'--delta'"),
    ("acount 'Gaussian(1)'", "'acount'"),
    ("run plan.toml", "'--ledger'"),
    ("ledger void ledger.db one", "'entry'"),
])  # fmt: skip
def test_a_usage_error_is_one_message_and_one_document(folder, command, said):
    done = neyman(*shlex.split(command), "--json", cwd=folder, check=2)
    assert said in done.stderr
    content = json.loads(done.stdout)
    assert content["exit_code"] == 2
    assert "--help" in content["error"]


@pytest.mark.parametrize(
    "args", [("plan", "schema"), ("account", "Gaussian(1)"), ("ledger", "export", "ledger.db")]
)
def test_a_reader_that_leaves_is_no_error(folder, args):
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
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*NEYMAN, *RUN, *form], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "what was done stands" in done.stderr
    assert "Traceback" not in done.stderr
    neyman("verify", "out", "--ledger", "ledger.db", cwd=folder)


def test_a_terminal_that_lacks_letters_gets_others_and_machines_get_them_all(folder):
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


def patched(folder, change, *more):
    """A run in which the counting of cells is changed."""
    code = (
        "import os, neyman.publishing.release.run as run\n"
        f"def change(*_, **__): {change}\n"
        "run.aggregate_cells = change\n"
        "from neyman.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, *RUN, *more]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_failure_after_the_charge_is_code_1_with_one_message_and_no_traceback(folder):
    done = patched(folder, "raise ValueError('Jane Doe')", "--json")
    assert done.returncode == 1
    failure = json.loads(done.stdout)
    assert "failed while counting; the charge stands (entry 1 of tiny@1)" in failure["error"]
    assert "Jane Doe" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert [entry.state for entry in entries_of(folder)] == ["reading"]


def test_a_plan_that_did_not_finish_is_run_again_only_with_charge_again(folder):
    (folder / "plan.toml").write_text(PLAN.replace("tiny@1", "twice@1"))
    neyman("ledger", "create", "ledger.db", "twice@1", "--cap", "1", cwd=folder)
    assert patched(folder, "os._exit(9)").returncode == 9
    assert "--charge-again" in neyman(*RUN, cwd=folder, check=2).stderr
    neyman(*RUN, "--charge-again", cwd=folder)
    states = [entry.state for entry in entries_of(folder, "twice@1")]
    assert states == ["reading", "released"]
    neyman("verify", "out", cwd=folder)


def test_what_nothing_checks_is_said_where_it_is_declared_and_in_the_report(folder, monkeypatch):
    monkeypatch.chdir(folder)
    parts = "Nothing checks that the parts of parted@1 are disjoint"
    data = "Nothing checks that two dataset names hold different data"

    def on_one_line(*command):
        return " ".join(answered(*command).split())

    create = ("parted@1", "--cap", "0.5", "--part", "north", "--part", "south")
    said = on_one_line("ledger", "create", "ledger.db", *create)
    assert parts in said
    assert data in said
    assert data not in on_one_line("ledger", "create", "new.db", *create)
    plan = PLAN.replace("tiny@1", "parted@1").replace("[unit]", 'part = "north"\n[unit]')
    (folder / "part.toml").write_text(plan)
    assert parts in on_one_line("run", "part.toml", *RUN[2:-1], "part")
    assert "Nothing checks" not in on_one_line(*RUN)
    reports = [(folder / out / "report.html").read_text() for out in ("part", "out")]
    assert [parts in report for report in reports] == [True, False]
    assert [data in report for report in reports] == [True, True]


def test_brackets_in_a_name_are_printed_as_they_are(folder, monkeypatch):
    monkeypatch.chdir(folder)
    plan = PLAN.replace('"person"', '"person [/x]"').replace("tiny@1", "other@1")
    (folder / "plan.toml").write_text(plan)
    answered("ledger", "create", "ledger.db", "--plan", "plan.toml")
    assert "person [/x]" in answered(*RUN)
    assert "person [/x]" in answered("ledger", "show", "ledger.db")


def test_every_command_and_every_exit_code_is_in_the_docs():
    docs = (ROOT / "docs/cli.md").read_text() + command_reference.reference()
    names = [c.name or c.callback.__name__ for c in app.registered_commands]
    for group in app.registered_groups:
        inner = group.typer_instance.registered_commands
        names += [f"{group.name} {c.name or c.callback.__name__}" for c in inner]
    for name in names:
        assert f"neyman {name}" in docs, name
    for code, meaning in CODES.items():
        assert re.search(rf"\b{code} {meaning}", docs), code


def answers_of(*command):
    return {a["question"]: a for a in json.loads(answered(*command, "--json"))["answers"]}


def test_answers_of_account_hold_both_ends():
    answers = answers_of("account", "Gaussian(sigma=1) * 4", "--epsilon", "1")
    assert answers["gdp"]["lower"] <= 2 <= answers["gdp"]["upper"]
    assert answers["pure"]["upper"] == "inf"
    assert answers["delta"]["lower"] < answers["delta"]["upper"]


def test_account_prints_each_level_in_full():
    """At 0.0123457, the level rounded to six digits, the power exceeds the printed bound."""
    said = answered("account", "Gaussian(sigma=1)", "--level", "0.012345678")
    assert "power(level=0.012345678)" in said
    assert "power(level=0.0001)" in said


def test_account_of_a_training_run_has_the_safe_mu_and_no_supremum_of_rare_losses():
    training = "Gaussian(sigma=0.8).subsample(rate=0.01) * 1000"
    shown = answered("account", training)
    assert "gdp()" not in shown
    assert "zcdp()" not in shown
    answers = answers_of("account", training)
    assert answers["nearest_gaussian_mu"]["upper"] < 0.6 < 30 < answers["gdp"]["upper"]
    safe = answers_of("account", training.replace("0.8", "1"))["safe_mu"]
    assert (safe["low"], safe["high"]) == (1e-4, 0.5)
    assert 0.45407 < safe["lower"] <= safe["upper"] < 0.45408


def test_calibrate_meets_a_success_at_a_baseline():
    asked = ("--success", "0.3", "--baseline", "0.1", "--json")
    answer = json.loads(answered("calibrate", "Gaussian(x)", *asked))
    assert answer["x"] == ny.calibrate(ny.Gaussian, ny.at_most(success=0.3, baseline=0.1))


def test_a_mechanism_as_text_is_read_and_never_evaluated():
    text = "DiscreteGaussian(sigma_squared='1/3', sensitivity=[(1, 1)]) * 2 + Laplace(scale=x)"
    result = mechanism_from(text, x=3.0)
    assert repr(result).count("Laplace(scale=3.0") == 1
    assert mechanism_from("Gaussian(x / 2) * (4 / 2)", x=3.0) == ny.Gaussian(1.5) * 2
    for bad in ("().__class__", "lambda: 1", "Gaussian(**{})", "Gaussian", "1", "x", "(" * 5000):
        with pytest.raises(ValueError, match="mechanism"):
            mechanism_from(bad)
    with pytest.raises(ValueError, match="is nested too deeply"):
        mechanism_from("-" * 1200 + "1")


@pytest.mark.parametrize(("text", "mechanism"), [
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
])  # fmt: skip
def test_a_number_of_a_mechanism_may_be_arithmetic_and_is_exact(text, mechanism):
    assert mechanism_from(text) == mechanism
    assert mechanism_from(repr(mechanism)) == mechanism


@pytest.mark.parametrize("number", [
    *("1/0", "(-8)**(1/3)", "9**9**9**9", "10**400", "2**(1/3)**-999", "1e200*1e200"),
    *("'a'*3", "5%2", "2 if 1 else 3", "1<2", "~1", "1@2", "not 1"),
    *("Fraction(1, 0)", "Fraction('1e999999999')"),
])  # fmt: skip
def test_arithmetic_that_gives_no_number_is_refused_by_its_text(number):
    with pytest.raises(ValueError, match=r"^mechanism|^Fraction = "):
        mechanism_from(f"Gaussian({number})")


# Texts of all public mechanisms, each also an expression of Python.
TEXTS = [
    "CanonicalNoise(gdp(1))",
    "CategoryResponse(1, categories=4)",
    "CircularGaussian(points=361, sigma='81/2', sensitivity=30)",
    "DPSGD(n=1000, batch=100, sigma=2, epochs=3)",
    "DiscreteGaussian(sigma=3, sensitivity=[(1, 1)])",
    "DiscreteLaplace(scale=2)",
    "ExponentialMechanism(1)",
    "Federated(clients=10, client_rate=1, records=5, record_rate=0.5, sigma=2, rounds=3, "
    "protects='record', against='server')",
    "Gaussian(2) * 10",
    "Gaussian(covariance=[[1, 0], [0, 2]], shifts=[[1, 1]])",
    "Gaussian(1).subsample(size=3, population=9) * 4",
    "Gaussian(1).random_allocation(4, times=2)",
    "(Gaussian(1) + Laplace(2)).subsample(rate=Fraction(1, 3)) * 3",
    "GaussianMixture(1, [0, 1], [0.9, 0.1])",
    "HadamardResponse(1, categories=256)",
    "InverseSensitivity('1/2')",
    "Laplace(scale=20)",
    "LocalRandomizer(2).shuffle(users=10000)",
    "Marginals({'sex': 2}, noise={(): 100, ('sex',): 100})",
    "MatrixMechanism(square_root(steps=8), sigma=4)",
    "NoisyCyclicGradientDescent(100, 5, 10, sigma=1, sensitivity=1, contraction=0.9)",
    "NoisyGradientDescent(1000, 50, sigma=0.1, sensitivity=20, contraction=0.9)",
    "NoisyStochasticGradientDescent(100, 5, 10, sigma=1, sensitivity=1, contraction=0.9)",
    "NonPrivate().subsample(rate=0.01)",
    "PersonalBudgets(Laplace(1), budgets=[0.1, 0.5, 1])",
    "PosteriorSample(lipschitz=2, convexity=16, exact=False, total_variation=1e-9)",
    "ProposeTestRelease(DiscreteLaplace(2), DiscreteLaplace(2), delta=1e-6)",
    "RandomSubset(size=10, population=1000)",
    "RandomizedResponse(1)",
    "ReportNoisyMax(scale=2)",
    "RoundedGaussian(2, squared_norm=4)",
    "SmoothNoise('student', degrees=3, smoothness=0.1, scale=0.3)",
    "SparseVector(4, 8, answers=2)",
    "Staircase(1, cost='squared')",
    "UnaryEncoding(1, categories=4)",
    "optimal_marginals({'age': 10, 'sex': 2}, [('age', 'sex')]).mechanism(1)",
    "select_best(Gaussian(4), runs=Runs.geometric(mean=10))",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_each_public_mechanism_is_the_mechanism_of_the_same_python(text):
    names = {name: getattr(ny, name) for name in dir(ny) if name != "torch"}
    names |= {"CircularGaussian": CircularGaussian, "square_root": square_root}
    names |= {"Fraction": Fraction}
    mechanism = eval(text, names)
    assert mechanism_from(text) == mechanism
    if not text.startswith(("CanonicalNoise", "MatrixMechanism")):  # their texts are short
        assert eval(repr(mechanism), names) == mechanism


def test_every_public_mechanism_has_a_text():
    public = {name for name in dir(ny) if isinstance(getattr(ny, name), type)}
    kinds = {n for n in public if issubclass(getattr(ny, n), ny.Mechanism)} - {"Mechanism"}
    assert kinds <= MECHANISMS
    assert {name for name in MECHANISMS if not any(name in text for text in TEXTS)} == set()


@pytest.mark.parametrize("text", [
    "Mechanism.from_json('{}')", "Gaussian.__init__(1)", "Gaussian._from_fields({})",
    "Runs.geometric(10)", "run('plan.toml', 'a', 'b', 'c')", "Ledger('a.db')", "throwaway()",
    "Gaussian(1).tradeoff()", "gdp(1)", "Gaussian(True)", "open('/etc/passwd')",
    "PersonalBudgets(Laplace(1), budgets=[x for x in (1, 2)])", "Marginals({**{}}, noise={})",
])  # fmt: skip
def test_a_text_calls_no_other_function(text):
    with pytest.raises(ValueError, match=r"mechanism|sigma"):
        mechanism_from(text)


def test_h_is_help_of_every_command(tmp_path):
    for command in ([], ["account"], ["plan"], ["ledger", "show"]):
        short = neyman(*command, "-h", cwd=tmp_path)
        assert short.stdout == neyman(*command, "--help", cwd=tmp_path).stdout
        assert short.stdout.startswith("Usage: neyman")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_lists_the_commands_that_begin_so(shell, tmp_path, monkeypatch):
    # Else the shell is the one that runs the tests, if one does.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_NEYMAN_COMPLETE" in neyman("--show-completion", shell, cwd=tmp_path).stdout
    monkeypatch.setenv("_NEYMAN_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", "neyman ledger ver")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "neyman ledger ver")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert "verify" in neyman(cwd=tmp_path).stdout


def test_no_text_of_others_reaches_the_terminal_as_a_command(capsys):
    from rich.text import Text

    from neyman.cli import terminal

    letters = [chr(code) for code in (*range(256), 0x61C, *range(0x2000, 0x2070))]
    hostile = "".join(letters).replace("\n", "")
    table = terminal.columns(["a", hostile], [[hostile, hostile]])
    answer = terminal.Answer({hostile: hostile}, [hostile, Text(hostile), table])
    terminal.warn(hostile)
    for as_json in (False, True):
        terminal.print_answer(answer, as_json)
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


SLOW = ["numpy", "scipy", "duckdb", "ibis", "pyarrow", "rich", "apsw"]


@pytest.mark.parametrize(("command", "words", "said"), [
    ("--version", None, f"neyman {ny.__version__}\n"),
    ("--help", None, "Usage: neyman"),
    ("", "neyman pl", "plan\n"),
    ("", "neyman run --le", "--ledger\n"),
    ("plan check --help", None, "Usage: neyman"),
    ("run --help", None, "Usage: neyman"),
    ("ledger show --help", None, "Usage: neyman"),
])  # fmt: skip
def test_version_help_and_completion_load_no_library_but_typer(command, words, said):
    slow = SLOW if len(command.split()) > 1 else [*SLOW, "pydantic"]
    code = STARTED + (
        f"atexit.register(lambda: print(sorted({{*{slow}}} & {{*sys.modules}}), file=sys.stderr))\n"
        "main()"
    )
    asked = dict(os.environ)
    if words:
        asked |= {"_NEYMAN_COMPLETE": "complete_bash", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(words.count(" "))
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=True,
        env=asked,
    )  # fmt: skip
    assert done.stderr == "[]\n"
    assert said in done.stdout if "help" in command else done.stdout == said


def test_a_command_leaves_what_its_process_does_at_ctrl_c():
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
                capture_output=True, text=True, check=False,
                env={**os.environ, "IMPORTS": str(number)},
            )  # fmt: skip
            assert done.returncode == 4, (number, done.stderr)
            assert done.stderr.startswith("interrupted: ")
            assert done.stderr.count("\n") == 1
            if more:
                failure = json.loads(done.stdout)
                assert (failure["exit_code"], failure["meaning"]) == (4, "interrupted")
                assert failure["error"] in done.stderr


# Words and parser of each command.
COMMANDS = [
    pytest.param([*filter(None, [group]), name], parser, id=f"{group} {name}")
    for group, parsers in command_reference.groups()
    for name, parser in parsers.commands.items()
    if not hasattr(parser, "commands")
]


@pytest.mark.parametrize(("words", "parser"), COMMANDS)
def test_the_help_of_a_command_ends_with_an_example_that_it_accepts(words, parser):
    line = shlex.split(command_reference.example(parser))
    assert line[: 1 + len(words)] == ["neyman", *words]
    context = parser.make_context(" ".join(words), line[1 + len(words) :])
    given = [each.name for each in parser.params if each.required]
    assert all(context.params[name] is not None for name in given)
    with pytest.raises(Exception, match="--no-such-option"):
        parser.make_context(" ".join(words), [*line[1 + len(words) :], "--no-such-option"])


def test_the_reference_lists_every_option_of_every_command():
    page = command_reference.reference()
    for parameters in COMMANDS:
        words, parser = parameters.values
        section = page.split(f"### neyman {' '.join(words)}\n")[1].split("\n### ")[0]
        for each in parser.params:
            for option in (*each.opts, *each.secondary_opts):
                written = option if option.startswith("-") else each.name.upper()
                assert f"`{written}`" in section, (words, option)
