"""The names of `import neyman`: light to import, and errors that name the argument."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import neyman as ny
from neyman.accounting import (
    Filter,
    central_limit,
    edgeworth,
    posterior_chance,
    posterior_ratios,
    to_pld,
)
from neyman.curves import garbling

NAN, INF = float("nan"), float("inf")


@pytest.mark.needs("release")
def test_every_name_of_the_stub_is_public_and_has_a_docstring():
    tree = ast.parse(Path(ny.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    observations = [name.asname for node in imports for name in node.names]
    assert sorted(observations) == dir(ny)
    assert ny.__all__ == dir(ny)
    for name in dir(ny):
        assert getattr(ny, name).__doc__, name
    with pytest.raises(AttributeError, match=r"'Gaussan'.* Did you mean 'Gaussian'\?$") as error:
        ny.Gaussan  # noqa: B018
    assert error.value.obj is None  # Python would add its own hint


@pytest.mark.needs("release")
def test_no_package_or_module_has_the_name_of_a_public_name():
    folder = Path(ny.__file__).parent
    modules = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
    public = {name for name in ny.__all__ if isinstance(getattr(ny, name), ModuleType)}
    expected = {"audit", "estimate", "query", "risk", "torch"}
    assert (modules & set(ny.__all__), public) == (public, expected)


def fresh(code):
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout


def test_importing_loads_neither_numpy_nor_an_extra():
    answer = "print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'scipy'}))"
    assert fresh(f"import sys, neyman; {answer}") == "[]\n"
    rare = "scipy.stats scipy.optimize pydantic ibis duckdb pyarrow matplotlib apsw cryptography"
    rare = [*rare.split(), "typer", "torch"]
    code = "import sys, neyman as ny; ny.Gaussian(1).tradeoff().epsilon(1e-6)"
    assert fresh(f"{code}; print([m for m in {rare} if m in sys.modules])") == "[]\n"


def test_a_description_is_read_where_no_mechanism_was_imported():
    for mechanism in (ny.RandomizedResponse(1), ny.Laplace(2), ny.SparseVector(2, 4)):
        code = f"import neyman as ny; print(ny.Mechanism.from_json({mechanism.to_json()!r}))"
        assert fresh(code) == f"{mechanism}\n"


@pytest.mark.needs("release")
def test_without_torch_an_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'neyman\[torch\]'"):
        ny.torch.NoisyGradient(None, None, None)


CURVE, NOISE = ny.gdp(1), ny.Gaussian(1)
NUMBERS = [None, "x", "", b"1", NAN, INF, -INF, -1, 1j, object(), [], [1], {}, {2: None}, int]
NUMBERS += [np.bool_(True), True, np.array([0.5]), Decimal("NaN"), Decimal("sNaN"), "1/0", 10**400]
CURVES = [None, "x", 0, 1.0, NAN, [], {}, int, ny.Gaussian, np.float64(1), lambda: 1]
MANY = [None, 1, 0.5, NAN, "0.5", b"1", {}, {1: 1}, {0.5}, np.array(0.5), int, [NAN], [None], ["x"]]
AUDIT = partial(ny.audit.counts, false_positives=0, negatives=10, false_negatives=0, positives=10)
ONE_RUN = partial(ny.audit.one_run, canaries=10, guesses=8, correct=8)
# What is called, the argument that its errors name, and what it must refuse.
REFUSED = [
    (ny.Gaussian, "sigma", [*NUMBERS, 0]),
    (lambda x: ny.Gaussian(1, x), "sensitivity", NUMBERS),
    (ny.Laplace, "scale", [*NUMBERS, 0]),
    (ny.DiscreteGaussian, "sigma", [x for x in [*NUMBERS, 0] if x is not None]),
    (ny.DiscreteLaplace, "scale", [*NUMBERS, 0]),
    (ny.RandomizedResponse, "epsilon", NUMBERS),
    (lambda x: ny.RandomizedResponse(1, x), "categories", [*NUMBERS, 0, 1, 2.0]),
    (ny.LocalRandomizer, "epsilon", NUMBERS),
    (ny.ExponentialMechanism, "epsilon", NUMBERS),
    (lambda x: ny.RandomSubset(x, 9), "size", [*NUMBERS, 10, 0.5]),
    (ny.CanonicalNoise, "tradeoff", CURVES),
    (lambda x: ny.GaussianMixture(1, x, [1]), "sensitivities", [*MANY, [], [-1]]),
    (lambda x: ny.GaussianMixture(1, [1], x), "probabilities", [*MANY, [], [-1]]),
    (lambda x: NOISE * x, "count", [x for x in NUMBERS if isinstance(x, (int, float))][:4]),
    (lambda x: NOISE.subsample(rate=x), "rate", [x for x in NUMBERS if x is not None]),
    (ny.pure, "epsilon", NUMBERS),
    (ny.gdp, "mu", NUMBERS),
    (ny.zcdp, "rho", NUMBERS),
    (lambda x: ny.approximate(1, x), "delta", [*NUMBERS, 1.5]),
    (ny.total_variation, "v", [*NUMBERS, 1.5]),
    (lambda x: ny.pbdp(1, x), "delta", [*NUMBERS, 1.5]),
    (lambda x: ny.tcdp(1, x), "omega", [x for x in NUMBERS if x is not INF] + [1, 0.5]),
    (ny.from_profile, "profile", [None, 1, "x", {None: 1}, {1: NAN}, {-1: 0.1}, {}]),
    (lambda x: ny.between(x, [0.5, 0.5]), "p", [*MANY, [], [0.5], [2, -1]]),
    (lambda x: ny.from_points(x, [1, 0]), "alphas", MANY),
    (lambda x: garbling([1], x, [1], [1]), "q", [*MANY, [], [0.5]]),
    (lambda x: ny.mixture([1], x), "curves", [*MANY, [], [1], [NOISE]]),
    (lambda x: ny.best_test(x, [1], 0.1), "null", [*MANY, [], [0.5]]),
    (lambda x: ny.best_test([1], [1], 0.1, outcomes=x), "outcomes", [1, NAN, "a", int, ["a", "b"]]),
    (CURVE.delta, "epsilon", NUMBERS[:4] + NUMBERS[7:]),
    (CURVE.epsilon, "delta", [x for x in NUMBERS if x is not None] + [1.5]),
    (CURVE.power, "level", [x for x in NUMBERS if x is not None] + [1.5]),
    (CURVE.powers, "level", MANY),
    (CURVE.epsilons, "delta", [*MANY, [1], [-0.1]]),
    (CURVE.deltas, "epsilon", [*MANY, [INF], [-1]]),
    (CURVE, "alpha", [*NUMBERS, 1.5]),
    (CURVE.renyi, "order", [x for x in NUMBERS if x is not INF] + [0.5]),
    (CURVE.pbdp, "epsilon", NUMBERS),
    (CURVE.group, "size", [*NUMBERS[:-1], 0, 2.0]),
    (CURVE.admits, "mechanism", CURVES),
    (ny.at_most(0.1, 0.05).admits, "mechanism", CURVES),
    (ny.zcdp(1).admits, "mechanism", CURVES),
    (lambda x: ny.compare(CURVE, x), "g", [*CURVES, NOISE]),
    (lambda x: ny.calibrate(x, CURVE), "make", [None, "x", 1, lambda s: s, lambda s: None]),
    (lambda x: ny.calibrate(ny.Gaussian, x), "budget", [None, "x", 1, NOISE]),
    (central_limit, "mechanism", CURVES),
    (edgeworth, "mechanism", CURVES),
    (lambda x: edgeworth(NOISE, x), "order", [*NUMBERS, 4, 1.0]),
    (lambda x: to_pld(NOISE, x), "interval", [*NUMBERS, 0, 1e-308, 1e20]),
    (to_pld, "of", CURVES),
    (lambda x: ny.alike(CURVE, kinds=x), "kinds", [1, NAN, "Gaussian", ["Gauss"]]),
    (lambda x: ny.alike(CURVE, tails=x), "tails", [*MANY, [0], [1], [2]]),
    (lambda x: ny.posterior_ratio(x, 1), "guarantee", CURVES),
    (lambda x: ny.posterior_ratio(CURVE, x), "epsilon", NUMBERS),
    (lambda x: ny.posterior_ratio(CURVE, 1, x), "attacker", [None, 1, "", "me"]),
    (lambda x: posterior_ratios(CURVE, x), "epsilon", MANY),
    (lambda x: posterior_chance(CURVE, x, 0.5), "prior", [*NUMBERS, 0, 1]),
    (lambda x: AUDIT(confidence=x), "confidence", [*NUMBERS, 0, 1, 95]),
    (lambda x: AUDIT(neighboring=x), "neighboring", [None, 1, "", "swap"]),
    (lambda x: AUDIT(false_positives=x), "false_positives", [*NUMBERS, 0.5, 11]),
    (lambda x: AUDIT(positives=x), "positives", [*NUMBERS, 0, 0.5, 10**10]),
    (lambda x: ny.audit.scores(x, [0]), "members", [*MANY, [], [INF], [[1]]]),
    (lambda x: ny.audit.scores([0], x), "others", [*MANY, [], [INF], [[1]]]),
    (lambda x: ny.audit.scores([1], [0], threshold=x), "threshold", [*NUMBERS[:7], "both", [], {}]),
    (lambda x: ONE_RUN(canaries=x), "canaries", [*NUMBERS, 0, [1, 1]]),
    (lambda x: ONE_RUN(guesses=x), "guesses", [*NUMBERS, 11]),
    (lambda x: ONE_RUN(correct=x), "correct", [*NUMBERS, 9]),
    (AUDIT().refutes, "claim", CURVES),
    (AUDIT().epsilon, "delta", [*NUMBERS, 1, 1.5]),
    (AUDIT().power_at_least, "level", [*NUMBERS, 1.5]),
    (lambda x: Filter(x, Fraction(1)), "currency", [None, 1, "", "euro", "renyi:0.5"]),
    (lambda x: Filter("zcdp", x), "budget", NUMBERS),
    (Filter("zcdp", Fraction(1)).admits, "release", [*NUMBERS, ()]),
    (ny.Mechanism.from_json, "text", [None, 1, "", "x", "{"]),
]


@pytest.mark.parametrize(("ask", "argument", "bad"), REFUSED, ids=lambda x: x if x is str else None)
def test_what_is_no_answerable_question_is_refused_by_name(ask, argument, bad):
    for value in bad:
        with pytest.raises((ValueError, TypeError)) as refused:
            ask(value)
        said = str(refused.value)
        assert re.search(rf"\b{argument}s?\b", said), (argument, value, said)


def test_whole_numbers_of_numpy_are_whole_numbers():
    for kind in (np.int8, np.int32, np.int64, np.uint64):
        three = kind(3)
        assert ny.DiscreteGaussian(three) == ny.DiscreteGaussian(3)
        assert ny.DiscreteLaplace(three) == ny.DiscreteLaplace(3)
        assert ny.pure(three) == ny.pure(3)
        assert ny.zcdp(Fraction(three, kind(7))) == ny.zcdp(Fraction(3, 7))
        assert ny.tcdp(three, 10) == ny.tcdp(3, 10)
        assert ny.pbdp(three, 0.1).pbdp(3) == ny.pbdp(3, 0.1).pbdp(3)
    wide = np.int64(4_000_000_000)  # its square is beyond 64 bits
    assert ny.DiscreteGaussian(wide).rho() == ny.DiscreteGaussian(4_000_000_000).rho()


def test_questions_at_the_end_of_the_floats_have_answers():
    for epsilon in (1e6, 1e16, 1e20):
        result = ny.posterior_ratio(CURVE, epsilon, "true-record")
        assert 0 <= result.lower <= result.upper < 1e-300
    f = ny.GaussianMixture(1e20, [0, 1], [0.5, 0.5]).tradeoff()
    assert f.advantage().lower <= 0.5e-20 / math.sqrt(math.tau) <= f.advantage().upper
    assert f.epsilon(1e-6).lower <= 1e-20
    wide = ny.DiscreteGaussian(2, sensitivity=10**9).tradeoff()
    assert wide.gdp().upper == math.inf  # nothing is claimed so far out
    assert wide.advantage().upper == 1


@pytest.mark.parametrize("name", ["epsilon", "delta", "power", "powers", "zcdp", "gdp", "loss"])
@pytest.mark.parametrize("mechanism", [ny.Gaussian(1), ny.Laplace(2) * 3, ny.RandomSubset(1, 9)])
def test_a_question_to_a_mechanism_is_led_to_its_curve(mechanism, name):
    with pytest.raises(AttributeError, match=rf"use \.tradeoff\(\)\.{name}$") as error:
        getattr(mechanism, name)
    assert hasattr(eval("mechanism" + str(error.value).split(" use ")[1].rpartition(".")[0]), name)
    with pytest.raises(AttributeError, match=r"has no attribute 'colour'$"):
        mechanism.colour  # noqa: B018


@pytest.mark.parametrize(("kind", "name", "meant"), [
    (ny.DPSGD, "noise_multiplier", "sigma"),
    (ny.DPSGD, "batch_size", "batch"),
    (ny.DPSGD, "steps", "epochs"),
    (ny.Gaussian, "std", "sigma"),
    (ny.Gaussian, "scale", "sigma"),
    (ny.Gaussian, "l2_sensitivity", "sensitivity"),
    (ny.Laplace, "sigma", "scale"),
    (ny.Federated, "noise_multiplier", "sigma"),
    (ny.Federated, "q", "client_rate"),
    (ny.RandomizedResponse, "eps", "epsilon"),
    (ny.RandomizedResponse, "catgories", "categories"),
])  # fmt: skip
def test_an_argument_by_the_name_of_another_library_gets_the_name_here(kind, name, meant):
    with pytest.raises(TypeError, match=f"no argument '{name}'; it takes .*Did you mean {meant}?"):
        kind(**{name: 1})


@pytest.mark.parametrize("kind", [ny.Gaussian, ny.Laplace, ny.DiscreteLaplace, ny.ReportNoisyMax])
@pytest.mark.parametrize("name", ["epsilon", "delta", "rho", "gdp"])
def test_a_target_as_an_argument_gets_a_call_of_calibrate_that_works(kind, name):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no argument '{name}'") as error:
        kind(**{name: 1})
    parameter = eval(str(error.value).split(" use ")[1], {"ny": ny})
    assert kind(parameter).tradeoff().delta(1) <= 1e-6


def test_several_levels_are_asked_of_powers():
    f = ny.gdp(1)
    for ask in (f, f.power):
        with pytest.raises(TypeError, match=r"for several levels use f\.powers\(levels\)"):
            ask([0.05, 0.1])
    with pytest.raises(TypeError, match=r"must be a real number$"):
        f.power("0.05")
    powers = eval("f.powers(levels)", {"f": f, "levels": [0.05, 0.1]})
    assert powers == [f.power(a) for a in (0.05, 0.1)]
    with pytest.raises(TypeError, match=r"for several deltas use f\.epsilons\(deltas\)"):
        f.epsilon([1e-6, 1e-5])
    with pytest.raises(TypeError, match=r"for several epsilons use f\.deltas\(epsilons\)"):
        f.delta([1, 2])


def test_mixed_relations_name_both_parts_and_what_to_write():
    sampled, local = ny.Gaussian(1).subsample(rate=0.1), ny.RandomizedResponse(1)
    with pytest.raises(ValueError, match="cannot be mixed") as error:
        sampled * 2 + ny.Laplace(3) + local
    text = str(error.value)
    assert repr(sampled) in text
    assert repr(local) in text
    proposed = text.split(" as ")[1]
    under = eval(proposed, {"Gaussian": ny.Gaussian})
    assert (under * 2 + ny.Laplace(3) + local).neighboring == "replace-one"
    with pytest.raises(ValueError, match="Neither has a proof under the other relation"):
        ny.DiscreteGaussian(2).subsample(rate=0.1) + local


def test_the_repr_of_evidence_is_its_numbers():
    rng = np.random.default_rng(1)
    shown = ny.audit.scores(rng.normal(3, 1, 400), rng.normal(0, 1, 400))
    text = repr(shown)
    epsilon, mu = (float(x) for x in re.findall(r"> ([\d.]+)", text))
    assert 0 <= shown.epsilon() - epsilon < 1e-3
    assert 0 <= shown.gdp() - mu < 1e-3
    assert "at confidence 19/20, from 400 + 400 runs, neighboring='any'" in text
