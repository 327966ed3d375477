"""Former names of arguments, fields, and public names work, and name the new one."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import neyman as ny
from neyman.analysis.hypothesis_tests.binomial_test import BinomialTest
from neyman.analysis.hypothesis_tests.proportions_test import ProportionsTest
from neyman.analysis.hypothesis_tests.released_test import TestResult
from neyman.former_names import FORMER_NAMES, former_arguments
from neyman.ledger.records import Entry

CURVE = ny.gdp(1)
ESTIMATE = ny.estimate.mean([1.0] * 99, radius=1, budget=CURVE)
TEST = BinomialTest(n=9, null="1/2", alternative="greater", budget=CURVE)
UNIT = {"dataset": "survey@1", "protects": "person", "neighboring": "replace-one", "rows": 1}
PLAN = {"key": "k", "mechanisms": [], "plan": "{}"}
BALL = {"radius": 1, "budget": CURVE}
LEDGER = ny.throwaway("1/2")
LEDGER.create(**UNIT, cap="1/2")
PAIR = ProportionsTest(n=(9, 9), alternative="greater", budget=CURVE)
# A former argument, the new one, the call, the other arguments by name, and the value.
FORMER_ARGUMENTS = [
    ("target", "budget", ny.calibrate, {"make": ny.Gaussian}, CURVE),
    ("target", "budget", ny.alike, {"kinds": ["Gaussian"]}, CURVE),
    ("level", "confidence", ESTIMATE.interval, {}, "1/2"),
    ("rows", "records", ny.estimate.mean, BALL, [1.0]),
    ("rows", "records", ny.estimate.covariance, {**BALL, "dimension": 1}, [[1.0], [0.0]]),
    ("coverage", "confidence", TEST.release, {"successes": 3}, 0.5),
    ("coverage", "confidence", PAIR.release, {"successes": (3, 4)}, 0.5),
    ("to", "account", LEDGER.account, {"dataset": "survey@1"}, ""),
    ("to", "account", LEDGER.allocate, {"dataset": "survey@1", "cap": "1/4"}, "team"),
    ("to", "account", LEDGER.check, {**UNIT, "charge": "1/8"}, "team"),
    ("to", "account", LEDGER.reserve, {**UNIT, "charge": 0, **PLAN}, "team"),
]


def view(result):
    """What does not depend on the noise, or on the time."""
    if isinstance(result, TestResult):
        return result.confidence
    if isinstance(result, ny.estimate.Estimate):
        return result.name, result.mechanism
    return result.to if isinstance(result, Entry) else result


@pytest.mark.parametrize(("former", "new", "call", "given", "value"), FORMER_ARGUMENTS)
def test_a_former_argument_works_and_names_the_new_one(former, new, call, given, value):
    expected = view(call(**given, **{new: value}))
    with pytest.warns(DeprecationWarning, match=rf"^{former}= is now {new}=$") as warnings:
        observed = call(**given, **{former: value})
    assert (view(observed), len(warnings), warnings[0].filename) == (expected, 1, __file__)
    with pytest.raises(TypeError, match=f"{former}= is now {new}=: give one"):
        call(**given, **{former: value, new: value})
    assert former not in inspect.signature(call).parameters


def test_a_former_field_of_a_result_works():
    result: Any = ny.alike(CURVE, kinds=["Gaussian"])
    with pytest.warns(DeprecationWarning, match=r"^\.target is now \.budget$"):
        assert result.target is result.budget
    with pytest.raises(AttributeError, match="no attribute 'aim'"):
        result.aim  # noqa: B018
    assert "target" not in dir(result)


def test_a_former_argument_beside_its_position_is_refused():
    """Both would name one argument."""

    @former_arguments(before="after")
    def identity(after: int, **_: int) -> int:
        return after

    with (
        pytest.warns(DeprecationWarning, match="before="),
        pytest.raises(TypeError, match="multiple values for argument 'after'"),
    ):
        identity(1, before=2)


@pytest.mark.parametrize("name", FORMER_NAMES)
def test_a_former_public_name_works_and_names_the_new_place(name):
    module = importlib.import_module(FORMER_NAMES[name])
    message = rf"^neyman\.{name} is now {re.escape(module.__name__)}\.{name}$"
    with pytest.warns(DeprecationWarning, match=message) as warnings:
        observed = getattr(ny, name)
    assert (observed, len(warnings), warnings[0].filename) == (getattr(module, name), 1, __file__)
    assert name not in dir(ny)


def public_functions() -> Iterator[Callable[..., Any]]:
    """Each function, constructor, and method that is public."""
    for name in dir(ny):
        thing = getattr(ny, name)
        module = isinstance(thing, ModuleType)
        for part in [getattr(thing, key) for key in thing.__all__] if module else [thing]:
            if callable(part):
                yield part
            for key, member in inspect.getmembers(part):
                is_method = inspect.isfunction(member) or inspect.ismethod(member)
                if isinstance(part, type) and is_method and not key.startswith("_"):
                    yield getattr(member, "__func__", member)


def test_the_table_of_parameters_has_those_of_many_functions_and_no_former_one():
    variadic = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    count = Counter(
        name
        for function in dict.fromkeys(public_functions())
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in variadic and name not in {"self", "cls"}
    )
    page = (Path(__file__).parents[1] / "docs" / "design.md").read_text()
    table = page.partition("## Parameters")[2].partition("\n## ")[0]
    names = re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.M)
    many = {name for name, times in count.items() if times >= 5}
    assert (many - set(names), set(names) - set(count)) == (set(), set())
    assert names == sorted(set(names))
    assert {"coverage", "target", "to"}.isdisjoint(count)
