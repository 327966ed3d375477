"""The checker, which shares no code with the library, judges receipts, questions, and forgeries."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import neyman as ny
from neyman.publishing import guarantee, verify
from plans import SMALL, release

pytest.importorskip("flint")
PROGRAM = Path(__file__).parents[1] / "checker" / "check.py"


@pytest.fixture(scope="module")
def judged() -> Callable[[str], list[tuple[str, str, str]]]:
    """The function that returns verdicts on a text, each with its claim and its own number."""
    spec = importlib.util.spec_from_file_location("check", PROGRAM)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    sys.modules["check"] = module
    spec.loader.exec_module(module)
    return module.judged


def ends(bound: Any) -> dict[str, Any]:
    return {"lower": float(bound.lower), "upper": float(bound.upper)}


def receipt(mechanism: ny.Mechanism, deltas: Any = (), levels: Any = ()) -> dict[str, Any]:
    """What a receipt of one mechanism says about these questions."""
    curve = mechanism.tradeoff()
    epsilons = [{"delta": d, **ends(curve.epsilon(delta=d))} for d in deltas]
    powers = [{"level": a, **ends(curve.power(level=a))} for a in levels]
    said = {"mechanism": mechanism.to_dict()}
    where = {"terms": said} if isinstance(mechanism, ny.DPSGD) else said  # as training writes it
    return where | {"guarantee": {"epsilon": epsilons, "power": powers}}


def random_mechanism(rng: random.Random) -> ny.Mechanism:
    """A random mechanism of the kinds that the checker covers."""

    def share(low: float, high: float) -> Fraction:
        return Fraction(round(rng.uniform(low, high) * 1000), 1000)

    noise = [
        lambda: ny.Gaussian(share(0.5, 9), share(0.1, 2)),
        lambda: ny.DiscreteGaussian(sigma_squared=rng.randint(1, 12), sensitivity=shift),
        lambda: ny.DiscreteLaplace(share(1, 9), rng.randint(1, 4)),
        lambda: ny.RandomizedResponse(share(0.1, 3), rng.choice([2, 3, 50])),
        lambda: ny.Laplace(share(1, 9)),
    ]
    shift = rng.choice([1, 3, [(1, 1)], [(1, 1, 1, 1), (2,)]])
    match rng.randrange(10):
        case 0:
            step = ny.Gaussian(share(0.7, 2)).subsample(rate=share(0.005, 0.1))
            return step * rng.randint(50, 2000) + noise[0]() * rng.randint(0, 1)
        case 1:
            response = ny.RandomizedResponse(share(0.1, 3), rng.choice([2, 3]))
            return response.subsample(size=rng.randint(1, 9), population=9) * rng.randint(1, 50)
        case 2:
            shift = rng.choice([1, 3])
            return rng.choice(noise[:3] + noise[4:])().subsample(rate=share(0.01, 0.9))
        case 3:
            return noise[4]() + noise[0]() * rng.randint(1, 5)
        case _:
            return noise[rng.randrange(4)]() * rng.randint(1, 9) + noise[0]() * rng.randint(0, 2)


def test_the_engines_and_the_checker_never_exclude_each_other(judged: Any):
    rng, verdicts = random.Random(20), list[str]()
    while len(verdicts) < (300 if os.environ.get("NEYMAN_TIER") == "night" else 60):
        mechanism = random_mechanism(rng)
        said = receipt(mechanism, [10 ** rng.uniform(-12, -2)], [10 ** rng.uniform(-4, -0.1)])
        verdicts += [verdict for verdict, _, _ in judged(json.dumps(said))]
        assert verdicts[-2:].count("refuted") == 0, said
    assert verdicts.count("proved") >= 0.8 * len(verdicts)


LISTED = [
    ny.DiscreteGaussian("0.7") + ny.RandomizedResponse(2) * 2 + ny.Gaussian(1, Fraction(1, 2)),
    ny.Laplace(2) + ny.Gaussian(1) + ny.RandomizedResponse(Fraction(3, 10), 5) * 3,
    ny.DiscreteGaussian(1, [(2, 1)]),
    ny.RandomizedResponse(Fraction(1, 100)) * 5000,
    ny.DPSGD(n=1000, batch=10, sigma=1, epochs=10),
    ny.Laplace(20).subsample(rate=0.4),
    (ny.Gaussian(1) + ny.Laplace(1)).subsample(rate=0.125),
]


@pytest.mark.parametrize("mechanism", LISTED)
def test_a_listed_mechanism_is_proved_at_small_and_large_deltas_and_levels(
    mechanism: ny.Mechanism, judged: Any
):
    said = receipt(mechanism, [1e-12, 1e-5, 0.03], [1e-8, 1e-3, 0.05, 0.6])
    answers = judged(json.dumps(said))
    assert [verdict for verdict, _, _ in answers] == ["proved"] * 7, answers


def test_a_number_that_is_too_small_by_more_than_its_interval_is_refuted(judged: Any):
    rng, mutants = random.Random(7), 0
    while mutants < 50:
        deltas, levels = [10 ** rng.uniform(-9, -2)], [10 ** rng.uniform(-3, -0.3)]
        said = receipt(random_mechanism(rng), deltas, levels)
        for points in said["guarantee"].values():
            less = max(points[0]["lower"] - 1.000001e-6, 0)
            points.append(points[0] | {"lower": less / 2, "upper": less})
        verdicts = [verdict for verdict, _, _ in judged(json.dumps(said))]
        claims = zip(said["guarantee"].values(), verdicts[::2], verdicts[1::2], strict=True)
        for (_, claim), honest, mutant in claims:
            if honest == "proved" and claim["upper"] > claim.get("level", 0):
                assert mutant == "refuted", said
                mutants += 1


def drafted(plan: ny.Plan) -> dict[str, Any]:
    """What the receipt of a plan states about its mechanism."""
    mechanism = plan.mechanism()
    said = guarantee(mechanism, plan, plan.scale).to_dict()
    return {"mechanism": mechanism.to_dict(), "guarantee": said, "budget": plan.budget_dict()}


def test_the_plans_of_the_census_state_no_number_that_the_checker_refutes(judged: Any):
    for name in ("housing_units", "persons"):
        plan = ny.Plan.load(PROGRAM.parents[1] / "examples" / "census_2020" / f"{name}.toml")
        verdicts = [verdict for verdict, _, _ in judged(json.dumps(drafted(plan)))]
        assert verdicts.count("proved") > 50
        assert "refuted" not in verdicts


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        # 9.99999973611040e-6 and 9.99999999614635e-6, by a program for these two questions.
        ("Gaussian(sigma=1).subsample(rate=1/100) * 1000; 1.82823667; 9.9999997362e-6", "proved"),
        ("Gaussian(sigma=1).subsample(rate=1/100) * 1000; 1.82823667; 9.9999997361e-6", "refuted"),
        (
            "Gaussian(4/5).subsample(rate=256/60000) * 14062; 4.5498387258; 9.999999996147e-6",
            "proved",
        ),
        (
            "Gaussian(4/5).subsample(rate=256/60000) * 14062; 4.5498387258; 9.999999996146e-6",
            "refuted",
        ),
        ("Laplace(scale=1); 1; 0", "proved"),
        ("Laplace(scale=1); .999; 0", "refuted"),
        ("Staircase(1); 1; 0", "not covered"),
        ("DiscreteLaplace(2).subsample(rate=1/2) * 2; 1; .1", "not covered"),
    ],
)
def test_a_line_of_mechanism_epsilon_and_delta_is_judged(line: str, verdict: str, judged: Any):
    ((answer, _, _),) = judged(line)
    assert answer == verdict


@pytest.mark.parametrize(
    "text",
    [
        '{"guarantee": 3, "mechanisms": []}',
        '{"guarantee": {"epsilon": [{"delta": "x"}], "power": []}, "mechanisms": []}',
        '{"guarantee": {"epsilon": []}, "mechanism": {"type": "Gaussian", "sigma": "a"}}',
        f'{{"guarantee": {{"epsilon": [], "power": []}}, "n": 1{"0" * 5000}}}',
        '{"a":' + "[" * 100_000,
        "Gaussian(1; 1; 1",
        "Gaussian(sigma=0); 1; 1e-5",
        "Gaussian(sigma=1e999999999); 1; 1e-5",
    ],
)
def test_what_cannot_be_read_gets_one_line_and_no_traceback(text: str):
    command = [sys.executable, "-I", str(PROGRAM), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (2, "", 1)
    assert done.stdout.startswith("-: cannot be judged: ")


def independent(folder: Path, program: Path) -> list[Any]:
    checks = verify(folder, independent=program)
    return [check for check in checks if check.name == "independent"]


def test_verify_says_that_an_independent_program_checked_only_if_it_did(tmp_path: Path):
    ny.Ledger(tmp_path / "ledger.db").create(
        "people@1", protects="person", neighboring="replace-one", cap=1
    )
    plan, data = ny.Plan.from_dict(SMALL), {"people": pa.table({"race": ["white", "black"] * 50})}
    folder = release(plan, data, tmp_path / "ledger.db", tmp_path / "out").folder
    (checked,) = independent(folder, PROGRAM)
    assert checked.ok
    assert checked.detail.startswith("checked by an independent program: ")
    for text, why in [
        ("", "gave no verdict"),
        ("print('no numbers')", "gave no verdict"),
        ("print('0 proved, 0 refuted, 3 not covered')", "none of the 3 numbers"),
        ("print('3 proved, 0 refuted, 0 not covered'); raise SystemExit(1)", "so nothing"),
        (
            "print('refuted x\\n2 proved, 1 refuted, 0 not covered')",
            "1 number refuted, such as ref",
        ),
    ]:
        program = tmp_path / "other.py"
        program.write_text(text)
        (other,) = independent(folder, program)
        assert not other.ok
        assert why in other.detail
        assert "checked by" not in other.detail
    with pytest.raises(ValueError, match=r"independent = .*nothing.py' is no file"):
        independent(folder, tmp_path / "nothing.py")


def test_the_checker_imports_nothing_of_the_library():
    assert not re.search(r"^ *(from|import) (neyman|numpy|scipy|mpmath)", PROGRAM.read_text(), re.M)
