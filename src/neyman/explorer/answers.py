"""What the page asks for and has no closed form of: certified, as JSON types."""

from __future__ import annotations

import copy
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neyman.explorer.curve_outline import outline
from neyman.explorer.toml_text import toml_text
from neyman.mechanisms.additive import DiscreteGaussian, Gaussian, Laplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.randomized_response import RandomizedResponse
from neyman.numerics.bound import Bound
from neyman.profiles.profile import Engine
from neyman.semantics import sentences as words
from neyman.tradeoff import guarantees as families
from neyman.tradeoff.tradeoff import Tradeoff

if TYPE_CHECKING:
    from neyman.plan.plan import Plan
    from neyman.plan.promise import Promise

__all__ = ["Desk", "Opened", "opened_from"]

Json = Any
Question = Mapping[str, Any]

LEVELS = tuple(0.5 - 0.5 * math.cos(math.pi * k / 36) for k in range(1, 36))
FEW = tuple(0.2 * (k / 16) ** 2 for k in range(1, 17))  # of scenarios, up to the level 0.2
EPSILONS = 28
_RANGES = {
    "sigma": (1e-2, 1e4),
    "scale": (1e-2, 1e4),
    "loss": (1e-3, 50.0),
    "rate": (1e-6, 1.0),
    "rho": (1e-9, 1e3),
    "mu": (1e-4, 100.0),
    "epsilon": (0.0, 50.0),
    "chance": (0.0, 0.999),
    "level": (1e-12, 0.999),
    "delta": (1e-300, 0.999),
    "upto": (1e-9, 1e4),
}
_STEPS, _CATEGORIES = (1, 10**6), (2, 10**6)


@dataclass(frozen=True)
class Opened:
    """What the explorer was given to look at.

    Args:
        name: the file's name; "" without one.
        sections: of the plan as it was written, for writing it again.
        plan: nothing where there is no file, or a receipt whose plan cannot be read.
        receipt: path of the receipt, if it is one.
        problem: why there is no plan, in words.
    """

    name: str = ""
    sections: Mapping[str, Any] | None = None
    plan: Plan | None = None
    receipt: Path | None = None
    problem: str = ""


def opened_from(path: str | None) -> Opened:
    """The plan or receipt in a file.

    Raises:
        ValueError: it is neither, or a plan with mistakes.
    """
    if path is None:
        return Opened()
    from neyman.plan.plan import Plan
    from neyman.release.folder import MOST_RECEIPT
    from neyman.storage.reading import read_file

    file = Path(path)
    file = file / "receipt.json" if file.is_dir() else file
    if file.suffix == ".toml":
        plan = Plan.load(file)
        text = file.read_text(encoding="utf-8-sig")
        return Opened(file.name, tomllib.loads(text, parse_float=Decimal), plan)
    try:
        receipt = json.loads(read_file(file, MOST_RECEIPT))
        if not isinstance(receipt, dict) or "plan" not in receipt:
            raise ValueError("it has no plan in it")
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path!r} is neither a plan (a file that ends in .toml) nor a receipt: {error}"
        ) from None
    try:
        return Opened(file.name, receipt["plan"], Plan.from_dict(receipt["plan"]), file)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        why = " ".join(str(error).split())[:300]
        return Opened(file.name, receipt=file, problem=f"its plan cannot be read: {why}")


class Desk:
    """Answers questions about one opened file; what was worked out last is kept for the next."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._last_curve: tuple[str, Tradeoff] | None = None
        self._moved: tuple[str, tuple[Plan, Fraction]] | None = None

    def opening(self) -> Json:
        """What the page has to know of the file before anything is asked."""
        plan = self.opened.plan
        content = {
            "file": self.opened.name,
            "receipt": self.opened.receipt is not None,
            "problem": self.opened.problem,
            "claims": {name: words.claim(name) for name in ("replace-one", "add-remove")},
            "plan": None,
        }
        if plan is not None:
            weights = _weights([query.share for query in self._measured])
            content["plan"] = {
                "name": plan.name,
                "dataset": plan.dataset,
                "protects": plan.unit.protects,
                "neighboring": plan.unit.neighboring,
                "claim": words.claim(plan.unit.neighboring, plan.unit.protects, plan.unit.rows),
                "rho": float(1 / plan.scale),
                "queries": [query.name for query in self._measured],
                "weights": weights,
            }
        return content

    def answer(self, question: Question) -> Json:
        """The answer to what a page asks.

        Args:
            question: ``ask`` ("curve", "headline", "profile"; of a plan also "tables",
                "scenarios", "toml"), ``about`` ("mechanism", "guarantee", "plan") with its
                parameters, and ``level``, ``delta`` or ``upto`` where it needs them.

        Raises:
            ValueError: there is no such question, or a number is out of its range.
        """
        asked = _among(question, "ask", _ASKED)
        return _ASKED[asked](self, question)

    def headline(self, question: Question) -> Json:
        """Power at the level and epsilon at the delta."""
        curve, promise = self._curve(question), self._promise(question)
        level, delta = _number(question, "level"), _number(question, "delta")
        power, epsilon = curve.power(level), curve.epsilon(delta)
        if promise is not None:
            power, epsilon = promise.power(level, power), promise.epsilon(delta, epsilon)
        return {"power": _ends(power), "epsilon": _ends(epsilon)}

    def curve(self, question: Question) -> Json:
        """Upper bounds of power over levels, of power at the level, and of epsilon at the delta.

        Where every power is a search, all are bounded at once: ``exact`` is false then, and
        `headline` has a closer power.
        """
        curve, level = self._curve(question), _number(question, "level")
        exact = curve.profiles[0].engine != Engine.CONTOUR
        if exact:
            powers, power = [p.upper for p in curve.powers(LEVELS)], curve.power(level).upper
        else:
            powers, power = outline(curve, LEVELS, level)
        delta, promise = _number(question, "delta"), self._promise(question)
        bound = curve.epsilon(delta)
        epsilon = _ends(bound if promise is None else promise.epsilon(delta, bound))["upper"]
        points = [list(point) for point in zip(LEVELS, powers, strict=True)]
        return {"power": power, "epsilon": epsilon, "points": points, "exact": exact or power == 1}

    def profile(self, question: Question) -> Json:
        """Upper bounds of delta over epsilons."""
        curve, most = self._curve(question), _number(question, "upto")
        epsilons = [most * k / (EPSILONS - 1) for k in range(EPSILONS)]
        deltas = curve.deltas_above(np.array(epsilons))
        return [[e, float(delta)] for e, delta in zip(epsilons, deltas, strict=True)]

    def tables(self, question: Question) -> Json:
        """The error of every table, before any data.

        ``adding_up`` is the widest half of a published interval after the tables were made to add
        up, where the plan asks for that and the table takes part.
        """
        from neyman.consistency.adjusted_tables import Z90
        from neyman.planning.accuracy import errors

        plan, scale = self._split(question)
        rows = []
        for error in errors(plan, scale):
            largest = error.consistent and error.consistent[1]
            half = Z90 * largest + 0.5 if largest else largest
            rows.append(error.to_dict() | {"adding_up": half})
        return rows

    def scenarios(self, question: Question) -> Json:
        """What could be found out about single attributes, side by side."""
        from neyman.plan.scenarios import concerning, usual

        plan, scale = self._split(question)
        level = _number(question, "level")
        answers: dict[Mechanism, dict[str, Any]] = {}
        scenarios = []
        for attributes, within in usual(plan):
            mechanism = concerning(plan, attributes, within, scale)
            if mechanism not in answers:  # where units have ids, most move the same tables
                curve = mechanism.tradeoff()
                here, *powers = curve.powers([level, *FEW])
                points = zip(FEW, powers, strict=True)
                answers[mechanism] = {
                    "power": max(level, here.upper),
                    "curve": [[0.0, 0.0], *([a, max(a, p.upper)] for a, p in points)],
                }
            scenarios.append(
                {"attributes": list(attributes), "within": within, **answers[mechanism]}
            )
        return scenarios

    def toml(self, question: Question) -> Json:
        """The plan with the budget and the shares of the screen."""
        _, scale = self._split(question)
        plan, sections = self.opened.plan, self.opened.sections
        if plan is None or sections is None:
            raise ValueError("there is no plan to write")
        written = copy.deepcopy(dict(sections))
        given = self._weights_asked(question)
        split = given != _weights([query.share for query in self._measured])
        if split or scale != plan.scale:
            # Another promise would be met with other noise than that on the screen.
            outright = sum((entry.failure for entry in plan.entries()), Fraction(0))
            more = {"delta": str(outright)} if outright else {}
            written["budget"] = {"zcdp": str(1 / scale), **more}
        if split:
            shares = dict(zip((q.name for q in self._measured), given, strict=True))
            for query in written["query"]:
                if query["name"] in shares:
                    part = Fraction(shares[query["name"]], sum(given))
                    query["share"] = f"{part.numerator}/{part.denominator}"
        return toml_text(written)

    def _curve(self, question: Question) -> Tradeoff:
        names = (
            "about",
            "kind",
            "promise",
            "sigma",
            "scale",
            "loss",
            "categories",
            "rate",
            "steps",
            "epsilon",
            "chance",
            "mu",
            "rho",
            "weights",
        )
        key = json.dumps([question.get(name) for name in names])
        if self._last_curve is None or self._last_curve[0] != key:
            self._last_curve = key, self._build_curve(question)
        return self._last_curve[1]

    def _build_curve(self, question: Question) -> Tradeoff:
        match _among(question, "about", ("mechanism", "guarantee", "plan")):
            case "mechanism":
                return _mechanism(question).tradeoff()
            case "guarantee":
                return _guarantee(question)
            case _:
                plan, scale = self._split(question)
                return plan.at_scale(scale).tradeoff()

    def _promise(self, question: Question) -> Promise | None:
        """What the opened plan's budget proves, where the noise is the plan's own."""
        if question.get("about") != "plan":
            return None
        plan, scale = self._split(question)
        return self._own if plan is self.opened.plan and scale == plan.scale else None

    @cached_property
    def _own(self) -> Promise | None:
        from neyman.plan.promise import Promise

        plan = self.opened.plan
        return None if plan is None else Promise.of(plan, plan.mechanism())

    @cached_property
    def _measured(self) -> list[Any]:
        """The queries that take a part of the budget."""
        plan = self.opened.plan
        if plan is None:
            raise ValueError("no plan was opened: start with neyman explore plan.toml")
        taking = {entry.query for entry in plan.entries() if entry.public is None}
        return [query for query in plan.queries if query.name in taking]

    def _weights_asked(self, question: Question) -> list[int]:
        given, queries = question.get("weights"), self._measured
        if given is None:
            return _weights([query.share for query in queries])
        good = isinstance(given, list) and len(given) == len(queries)
        if not good or not all(type(w) is int and 0 < w <= 1000 for w in given):
            raise ValueError(f"weights must be {len(queries)} whole numbers from 1 to 1000")
        return given

    def _split(self, question: Question) -> tuple[Plan, Fraction]:
        """The plan with other shares, and 1/rho."""
        key = json.dumps([question.get("rho"), question.get("weights")])
        if self._moved is None or self._moved[0] != key:
            self._moved = key, self._resplit(question)
        return self._moved[1]

    def _resplit(self, question: Question) -> tuple[Plan, Fraction]:
        measured, plan = self._measured, self.opened.plan
        assert plan is not None
        scale = plan.scale
        if question.get("rho") is not None:
            scale = 1 / Fraction(repr(_number(question, "rho")))
        given = self._weights_asked(question)
        if given == _weights([query.share for query in measured]):
            return plan, scale
        total = sum((query.share for query in measured), Fraction(0))
        shares = {
            query.name: total * Fraction(weight, sum(given))
            for query, weight in zip(measured, given, strict=True)
        }
        queries = tuple(
            replace(query, share=shares.get(query.name, query.share)) for query in plan.queries
        )
        return replace(plan, queries=queries), scale


_ASKED: dict[str, Callable[[Desk, Question], Json]] = {
    each.__name__: each
    for each in (
        Desk.headline,
        Desk.curve,
        Desk.profile,
        Desk.tables,
        Desk.scenarios,
        Desk.toml,
    )
}


def _mechanism(question: Question) -> Mechanism:
    steps = _integer(question, "steps", *_STEPS)
    match _among(question, "kind", ("gaussian", "laplace", "discrete", "response", "sampled")):
        case "gaussian":
            return Gaussian(sigma=_number(question, "sigma")) * steps
        case "laplace":
            return Laplace(scale=_number(question, "scale")) * steps
        case "discrete":
            return DiscreteGaussian(sigma=_number(question, "sigma")) * steps
        case "response":
            categories = _integer(question, "categories", *_CATEGORIES)
            return RandomizedResponse(_number(question, "loss"), categories=categories) * steps
        case _:
            noise = Gaussian(sigma=_number(question, "sigma"))
            return noise.subsample(rate=_number(question, "rate")) * steps


def _guarantee(question: Question) -> Tradeoff:
    match _among(question, "promise", ("approximate", "gdp", "zcdp")):
        case "approximate":
            return families.approximate(_number(question, "epsilon"), _number(question, "chance"))
        case "gdp":
            return families.gdp(_number(question, "mu"))
        case _:
            return families.zcdp(_number(question, "rho"))


def _weights(shares: list[Fraction]) -> list[int]:
    """Shares in thousandths that add up to 1000, none below one."""
    total = sum(shares, Fraction(0))
    exact = [1000 * share / total for share in shares]
    parts = [max(1, math.floor(part)) for part in exact]
    order = sorted(range(len(exact)), key=lambda k: parts[k] - exact[k])
    for k in order[: max(0, 1000 - sum(parts))]:
        parts[k] += 1
    return parts


def _ends(bound: Bound) -> Json:
    return {
        name: x if math.isfinite(x) else "inf"
        for name, x in (("lower", bound.lower), ("upper", bound.upper))
    }


def _number(question: Question, name: str) -> float:
    low, high = _RANGES[name]
    given = question.get(name)
    if not isinstance(given, int | float) or isinstance(given, bool) or not low <= given <= high:
        raise ValueError(f"{name} = {given!r} must be a number from {low:g} to {high:g}")
    return float(given)


def _integer(question: Question, name: str, low: int, high: int) -> int:
    given = question.get(name)
    if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
        raise ValueError(f"{name} = {given!r} must be a whole number from {low:,} to {high:,}")
    return given


def _among(question: Question, name: str, known: Any) -> str:
    given = question.get(name)
    if not isinstance(given, str) or given not in known:
        raise ValueError(f"{name} = {str(given)[:40]!r} must be one of {', '.join(known)}")
    return given
