"""What a shell asks of the command line: the version, help, completion, and every mechanism."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import neyman as ny
from commands import neyman
from neyman.cli.expression import MECHANISMS, mechanism_from
from neyman.mechanisms import CircularGaussian, square_root

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "site"))
import command_reference

# A text for each public mechanism, and the same in Python.
TEXTS = {
    "CanonicalNoise(gdp(1))": lambda: ny.CanonicalNoise(ny.gdp(1)),
    "CategoryResponse(1, categories=4)": lambda: ny.CategoryResponse(1, categories=4),
    "CircularGaussian(points=361, sigma='81/2', sensitivity=30)": lambda: CircularGaussian(
        361, 40.5, 30
    ),
    "DPSGD(n=1000, batch=100, sigma=2, epochs=3)": lambda: ny.DPSGD(1000, 100, 2, 3),
    "DiscreteGaussian(sigma=3, sensitivity=[(1, 1)])": lambda: ny.DiscreteGaussian(
        sigma=3, sensitivity=[(1, 1)]
    ),
    "DiscreteLaplace(scale=2)": lambda: ny.DiscreteLaplace(2),
    "ExponentialMechanism(1)": lambda: ny.ExponentialMechanism(1),
    "Federated(clients=10, client_rate=1, records=5, record_rate=0.5, sigma=2, rounds=3, "
    "protects='record', against='server')": lambda: ny.Federated(
        clients=10,
        client_rate=1,
        records=5,
        record_rate=0.5,
        sigma=2,
        rounds=3,
        protects="record",
        against="server",
    ),
    "Gaussian(2) * 10": lambda: ny.Gaussian(2) * 10,
    "GaussianMixture(1, [0, 1], [0.9, 0.1])": lambda: ny.GaussianMixture(1, [0, 1], [0.9, 0.1]),
    "HadamardResponse(1, categories=256)": lambda: ny.HadamardResponse(1, categories=256),
    "InverseSensitivity('1/2')": lambda: ny.InverseSensitivity("1/2"),
    "Laplace(scale=20)": lambda: ny.Laplace(20),
    "LocalRandomizer(2).shuffle(users=10000)": lambda: ny.LocalRandomizer(2).shuffle(users=10_000),
    "Marginals({'sex': 2}, noise={(): 100, ('sex',): 100})": lambda: ny.Marginals(
        {"sex": 2}, noise={(): 100, ("sex",): 100}
    ),
    "MatrixMechanism(square_root(steps=8), sigma=4)": lambda: ny.MatrixMechanism(
        square_root(steps=8), sigma=4
    ),
    "NoisyCyclicGradientDescent(100, 5, 10, sigma=1, sensitivity=1, contraction=0.9)": lambda: (
        ny.NoisyCyclicGradientDescent(100, 5, 10, sigma=1, sensitivity=1, contraction=0.9)
    ),
    "NoisyGradientDescent(1000, 50, sigma=0.1, sensitivity=20, contraction=0.9)": lambda: (
        ny.NoisyGradientDescent(1000, 50, sigma=0.1, sensitivity=20, contraction=0.9)
    ),
    "NoisyStochasticGradientDescent(100, 5, 10, sigma=1, sensitivity=1, contraction=0.9)": lambda: (
        ny.NoisyStochasticGradientDescent(100, 5, 10, sigma=1, sensitivity=1, contraction=0.9)
    ),
    "NonPrivate().subsample(rate=0.01)": lambda: ny.NonPrivate().subsample(rate=0.01),
    "PersonalBudgets(Laplace(1), budgets=[0.1, 0.5, 1])": lambda: ny.PersonalBudgets(
        ny.Laplace(1), budgets=[0.1, 0.5, 1]
    ),
    "PosteriorSample(lipschitz=2, convexity=16, exact=False, total_variation=1e-9)": lambda: (
        ny.PosteriorSample(lipschitz=2, convexity=16, exact=False, total_variation=1e-9)
    ),
    "ProposeTestRelease(DiscreteLaplace(2), DiscreteLaplace(2), delta=1e-6)": lambda: (
        ny.ProposeTestRelease(ny.DiscreteLaplace(2), ny.DiscreteLaplace(2), delta=1e-6)
    ),
    "RandomSubset(size=10, population=1000)": lambda: ny.RandomSubset(10, 1000),
    "RandomizedResponse(1)": lambda: ny.RandomizedResponse(1),
    "ReportNoisyMax(scale=2)": lambda: ny.ReportNoisyMax(scale=2),
    "RoundedGaussian(2, squared_norm=4)": lambda: ny.RoundedGaussian(2, squared_norm=4),
    "SmoothNoise('student', degrees=3, smoothness=0.1, scale=0.3)": lambda: ny.SmoothNoise(
        "student", degrees=3, smoothness=0.1, scale=0.3
    ),
    "SparseVector(4, 8, answers=2)": lambda: ny.SparseVector(4, 8, answers=2),
    "Staircase(1, cost='squared')": lambda: ny.Staircase(1, cost="squared"),
    "UnaryEncoding(1, categories=4)": lambda: ny.UnaryEncoding(1, categories=4),
    "optimal_marginals({'age': 10, 'sex': 2}, [('age', 'sex')]).mechanism(1)": lambda: (
        ny.optimal_marginals({"age": 10, "sex": 2}, [("age", "sex")]).mechanism(1)
    ),
    "select_best(Gaussian(4), runs=Runs.geometric(mean=10))": lambda: ny.select_best(
        ny.Gaussian(4), runs=ny.Runs.geometric(mean=10)
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_each_public_mechanism_is_the_mechanism_of_the_same_python(text):
    assert mechanism_from(text) == TEXTS[text]()


def test_every_public_mechanism_has_a_text():
    """A new one must be readable on the command line: `account` and `calibrate` read texts."""
    public = {name for name in dir(ny) if isinstance(getattr(ny, name), type)}
    kinds = {n for n in public if issubclass(getattr(ny, n), ny.Mechanism)} - {"Mechanism"}
    assert kinds <= MECHANISMS
    assert {name for name in MECHANISMS if not any(name in text for text in TEXTS)} == set()


@pytest.mark.parametrize(
    "text",
    [
        "Mechanism.from_json('{}')",
        "Gaussian.__init__(1)",
        "Gaussian._from_fields({})",
        "Runs.geometric(10)",
        "run('plan.toml', 'a', 'b', 'c')",
        "Ledger('a.db')",
        "throwaway()",
        "Gaussian(1).tradeoff()",
        "gdp(1)",
        "Gaussian(True)",
        "open('/etc/passwd')",
        "PersonalBudgets(Laplace(1), budgets=[x for x in (1, 2)])",
        "Marginals({**{}}, noise={})",
    ],
)
def test_a_text_calls_no_other_function(text):
    with pytest.raises(ValueError, match=r"mechanism|sigma"):
        mechanism_from(text)


def test_the_version_is_printed_and_nothing_else(tmp_path):
    for option in ("--version", "-V"):
        assert neyman(option, cwd=tmp_path).stdout == f"neyman {ny.__version__}\n"


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


def test_a_name_that_is_nearly_public_is_suggested_once():
    with pytest.raises(AttributeError) as error:
        ny.Gausian  # noqa: B018
    assert str(error.value).endswith("Did you mean 'Gaussian'?")
    assert error.value.obj is None  # Python would add its own hint
    with pytest.raises(AttributeError, match=r"'qqqq'$"):
        ny.qqqq  # noqa: B018
    assert not hasattr(ny, "Gausian")


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
    page = command_reference.pages()["cli.md"]
    for parameters in COMMANDS:
        words, parser = parameters.values
        section = page.split(f"### neyman {' '.join(words)}\n")[1].split("\n### ")[0]
        for each in parser.params:
            for option in (*each.opts, *each.secondary_opts):
                written = option if option.startswith("-") else each.name.upper()
                assert f"`{written}`" in section, (words, option)
