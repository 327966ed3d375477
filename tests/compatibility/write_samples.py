"""Write samples of every stored format: `python tests/compatibility/write_samples.py`.

Run it after a change of a format, or of what follows from a plan. ``test_compatibility.py`` fails
until then. ``plans.toml``, ``places.csv``, and the mechanisms below are the inputs.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

import neyman as ny
from neyman.analysis.training import checkpoint
from neyman.analysis.training.terms import Terms
from neyman.analysis.training.training_plan import TrainingPlan
from neyman.ledger import VERSION
from neyman.ledger.postgres.schema import schema_of
from neyman.ledger.sqlite.location import FILE_SCHEMA
from neyman.mechanisms import (
    Alternatives,
    BallsInBins,
    Choice,
    CircularGaussian,
    Triangular,
    square_root,
)
from neyman.mechanisms.matrix_mechanism.blocks import Binned, Tree
from neyman.publishing import EstimateReceipt, Receipt, TestReceipt, TrainingReceipt, create_key

__all__ = ["HERE", "formats", "mechanisms", "plan_of", "plans", "write"]

HERE = Path(__file__).parent
RELEASED = "measures"
"""The plan that is released."""

EXPRESSIONS = [
    "BallsInBins(square_root(8), 2, 4)",
    "Alternatives([ny.Gaussian(2), ny.Gaussian(3) + ny.Laplace(4)]) + ny.Gaussian(5)",
    "ny.CanonicalNoise(ny.pure(1)) * 3", "ny.CategoryResponse(1, 4)",
    "Choice(((0.25, ny.Laplace(1)), (0.75, ny.Laplace(2))))",
    "CircularGaussian(361, F(81, 2), 30) * 2", "ny.DPSGD(n=1000, batch=100, sigma=2, epochs=3)",
    "ny.DPSGD(60_000, 256, 1.3, 15, records_per_user={1: 20_000, 8: 5_000})",
    "ny.DiscreteGaussian(5, squared_norm=4) * 3",
    "ny.DiscreteGaussian(sigma=3, sensitivity=[(1, 1), (2, 0)]) * 5",
    "ny.DiscreteLaplace(4, 2) * 6", "ny.ExponentialMechanism(1)",
    "ny.Federated(clients=10, sigma=2, rounds=9, record_rate=.1, records=50, local_steps=2)",
    "ny.Federated(clients=20, sigma=1, rounds=9, secure_aggregation=True, least_participants=15)",
    "ny.Gaussian(F('0.8')).subsample(rate=256 / 60_000) * 14_062 + ny.Laplace(scale=20)",
    "ny.Gaussian(1).shuffled_batches(10) * 3", "ny.Gaussian(2).random_allocation(4) * 2",
    "ny.GaussianMixture(sigma=1, sensitivities=[0, 1, 2], probabilities=[.5, .3, .2])",
    "ny.HadamardResponse(1, 7)",
    "ny.InverseSensitivity(F(1, 4), [(1, 1), (2,)], draws=2) + ny.Gaussian(3)",
    "ny.Laplace(1).subsample(size=10, population=100) * 5", "ny.LocalRandomizer(1) * 2",
    "ny.Marginals({'a': 2, 'b': 3}, {('a',): 1, (): 2, ('b',): 3, ('a', 'b'): 4})",
    "ny.MatrixMechanism(square_root(16), 2, participations=2, separation=4)",
    "ny.MatrixMechanism(Binned(9), 2)", "ny.MatrixMechanism(Tree(8), 2)",
    "ny.MatrixMechanism(Triangular([(65536,), (30000, 65536)]), 2)", "ny.NonPrivate()",
    "ny.NoisyCyclicGradientDescent(100, 10, 3, sigma=1, sensitivity=1, contraction=F('0.9'))",
    "ny.NoisyGradientDescent(n=100, steps=10, sigma=1, sensitivity=1, contraction=F('0.9'))",
    "ny.NoisyStochasticGradientDescent(100, 10, 5, sigma=1, sensitivity=1, contraction=F('0.9'))",
    "ny.PersonalBudgets(ny.Laplace(1), (F(1, 3), 0.5, 2)) * 3",
    "ny.PosteriorSample(lipschitz=1, convexity=4, exact=False, total_variation=1e-9)",
    "ny.PosteriorSample(lipschitz=1, convexity=4, exact=False, wasserstein=.01, sigma=.1) * 2",
    "ny.ProposeTestRelease(ny.DiscreteLaplace(F(3, 2)), ny.DiscreteLaplace(4, 2), 1e-6) * 2",
    "ny.RandomSubset(10, 1000)", "ny.RandomizedResponse(1, 4).shuffle(users=1000)",
    "ny.ReportNoisyMax(scale=2)", "ny.RoundedGaussian(3, squared_norm=3) * 5",
    "ny.SmoothNoise('student', 3, 0.1, F(3, 10)) * 2",
    "ny.SparseVector(threshold_scale=2, query_scale=4, answers=3)",
    "ny.Staircase(F(3, 2), 2, cost='squared') * 2 + ny.Staircase(1, gamma=F(1, 3))",
    "ny.UnaryEncoding(1, 4)", "ny.select_best(ny.Laplace(4), runs=ny.Runs.poisson(3)) * 2",
]  # fmt: skip
"""Mechanisms. Together they have every type, and every kind of strategy."""

DATA: dict[str, Any] = {
    "race": ["a", "b", "c"] * 20, "age": list(range(20, 80)),
    "pay": [float(number) for number in range(100, 400, 5)], "state": ["A"] * 40 + ["B"] * 20,
    "county": [7] * 20 + [8] * 20 + [9] * 20,
}  # fmt: skip
"""A made-up table for the released plan."""


def mechanisms() -> list[dict[str, Any]]:
    names = {"ny": ny, "F": Fraction, "CircularGaussian": CircularGaussian}
    names |= {"Binned": Binned, "Tree": Tree, "Triangular": Triangular, "square_root": square_root}
    names |= {"BallsInBins": BallsInBins}
    names |= {"Alternatives": Alternatives, "Choice": Choice}
    samples = [cast(ny.Mechanism, eval(expression, names)) for expression in EXPRESSIONS]
    return [
        {"expression": expression, "mechanism": one.to_dict()}
        for expression, one in zip(EXPRESSIONS, samples, strict=True)
    ]


def plan_of(name: str) -> ny.Plan:
    sections = tomllib.loads((HERE / "plans.toml").read_text("utf-8"))
    return ny.Plan.from_dict(sections[name], folder=HERE)


def plans() -> dict[str, dict[str, Any]]:
    every = {name: plan_of(name) for name in tomllib.loads((HERE / "plans.toml").read_text())}
    return {name: {"hash": one.hash, "canonical": one.canonical()} for name, one in every.items()}


def _fields_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Each field of a receipt, at any depth, with whether it is required."""
    for name, field in model.model_fields.items():
        path = f"{above}{field.alias or name}"
        yield f"{path}: {'required' if field.is_required() else 'optional'}"
        kinds = [field.annotation]
        for kind in kinds:
            kinds += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _fields_of(kind, f"{path}.")


def formats() -> dict[str, Any]:
    """What each format is made of: the fields of receipts and training, the rules of ledgers."""
    run = Terms.of("m", "d@1", TrainingPlan(ny.DPSGD(8, 4, 1, 1), grid=64), 0.5, [0.0])
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder), checkpoint.State(run.key, 1, 0, 0, 0), np.zeros(1))
        head = json.loads((Path(folder) / checkpoint.CHECKPOINT).read_bytes().partition(b"\n")[0])
    receipts = (Receipt, EstimateReceipt, TestReceipt, TrainingReceipt)
    rules = {"SQLite": FILE_SCHEMA, "PostgreSQL": "\n".join(schema_of("neyman"))}
    return {
        f"neyman-ledger/{VERSION}": {
            name: hashlib.sha256(text.encode()).hexdigest() for name, text in rules.items()
        },
        head["schema"]: sorted(head),
        run.to_dict()["schema"]: sorted(run.to_dict()),
        **{kind.SCHEMA: list(_fields_of(kind)) for kind in receipts},
    }


def _release(folder: Path, work: Path) -> None:
    """Write a ledger in which every kind of event and state occurs, and a release's receipt."""
    public, _ = create_key(work / "key")
    one: dict[str, Any] = {"protects": "person", "neighboring": "replace-one"}
    dataset = f"{RELEASED}@1"
    with ny.Ledger(work / "first.db") as ledger:
        ledger.create(dataset, **one, currency="zcdp", cap=3, delta_cap="1/10")
        for currency in ("pure", "gdp", "renyi:8"):
            parts = ["west", "east"] if currency == "gdp" else []
            ledger.create(
                f"{currency.replace(':', '-')}@1", **one, currency=currency, cap="0.7", parts=parts
            )
        ledger.create("pure-late@1", **one, currency="pure", cap=1, approval="required")
        ledger.allocate(dataset, "team", cap=1)
        ledger.allocate(dataset, "project", cap="1/2", of="team")
        asked = {"charge": "1/8", "mechanisms": [], "plan": "{}", "rows": 1, **one}
        ledger.void(ledger.reserve(dataset, key="void", **asked), "a sample")
        ledger.begin(ledger.reserve(dataset, key="reading", **asked, account="project"))
        ledger.reserve(dataset, key="reserved", **asked)
        ledger.join("pure-late@1", "pure@1")
        for key, corrects in (("old", None), ("new", 4)):
            entry = ledger.begin(ledger.reserve("pure@1", key=key, **asked))
            ledger.finish(entry, {"a": key.encode()}, corrects=corrects, why="a sample")
        ledger.withdraw(5, "a sample")
        ledger.approve("pure@1", "plan", plan="a sample", who="a person", purpose="samples")
        ledger.revoke("pure@1", "plan", who="a person")
    (work / "first.db").rename(work / "ledger.db")
    with ny.Ledger(work / "ledger.db") as ledger:
        ledger.confirm_location("a sample")
        out = work / "release"
        plan = plan_of(RELEASED)
        ny.run(plan, pa.table(DATA), ledger, out, sign=work / "key", account="project")
        _put(
            folder / "ledger.json",
            {"lines": list(ledger.lines()), "checkpoint": str(ledger.checkpoint()),
             "key": public.read_text()},
        )  # fmt: skip
    shutil.copy(work / "ledger.db", folder / "ledger.db")
    shutil.copy(out / "receipt.json", folder / "receipt.json")


def _put(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write(folder: Path) -> None:
    """Write all samples into a folder, in place of those that it has."""
    _put(folder / "mechanisms.json", mechanisms())
    _put(folder / "plans.json", plans())
    _put(folder / "formats.json", formats())
    with tempfile.TemporaryDirectory() as work:
        _release(folder, Path(work))


if __name__ == "__main__":
    write(HERE)
