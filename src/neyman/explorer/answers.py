"""Answer what the explorer's page asks: certified numbers, sentences, and data of charts."""

from __future__ import annotations

import copy
import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from neyman.consistency.adjusted_tables import Z90
from neyman.explorer.curve_outline import outline
from neyman.mechanisms.additive import DiscreteGaussian, Gaussian, Laplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.randomized_response import RandomizedResponse
from neyman.numerics.bound import Bound
from neyman.plan.plan import Plan
from neyman.plan.promise import Promise
from neyman.plan.query import Query
from neyman.plan.scenarios import concerning, usual
from neyman.planning.accuracy import TableError, errors
from neyman.planning.rewrite import toml_text
from neyman.profiles.profile import Engine
from neyman.release.folder import MOST_RECEIPT
from neyman.release.verify.verification import verify
from neyman.report.report import page
from neyman.semantics import sentences as words
from neyman.storage.reading import read_file
from neyman.tradeoff import guarantees
from neyman.tradeoff.tradeoff import Tradeoff

__all__ = ["Desk", "MarkedCurve", "Opened", "Profile", "Risk", "Scenarios", "Tables", "opened_from"]

Task = Literal["opening", "answer", "checks"]
Json = dict[str, Any] | list[dict[str, Any]]
Question = Mapping[str, object]
Point = tuple[float, float]

LEVELS = tuple(0.5 - 0.5 * math.cos(math.pi * k / 36) for k in range(1, 36))
PRIORS = tuple(0.5 - 0.5 * math.cos(math.pi * k / 60) for k in range(61))
FEW = tuple(0.2 * (k / 16) ** 2 for k in range(1, 17))  # of scenarios, up to the level 0.2
MOST_SCENARIOS = 6  # curves that a small chart can hold
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
    "prior": (1e-6, 0.999999),
    "delta": (1e-300, 0.999),
}
_STEPS, _CATEGORIES = (1, 10**6), (2, 10**6)
_SUBJECT = (
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
_CERTIFIED = "Certified upper bounds, worked out by the library."
_TWICE = (
    "This plan publishes its tables twice: with their noise, and made to add up, which costs no "
    "privacy and makes no cell less accurate on average. A half is added to those margins for "
    "safety, so some look wider. The last column is of the noisy ones."
)


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
    """Read the plan or receipt in a file.

    Raises:
        ValueError: it is neither, or a plan with mistakes.
    """
    if path is None:
        return Opened()
    file = Path(path)
    file = file / "receipt.json" if file.is_dir() else file
    if file.suffix == ".toml":
        plan = Plan.load(file)
        text = file.read_text(encoding="utf-8-sig")
        return Opened(file.name, tomllib.loads(text, parse_float=Decimal), plan)
    try:
        content = json.loads(read_file(file, MOST_RECEIPT))
        if not isinstance(content, dict) or "plan" not in content:
            raise ValueError("it has no plan in it")
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path!r} is neither a plan (a file that ends in .toml) nor a receipt: {error}"
        ) from None
    sections = cast(dict[str, Any], content)["plan"]
    try:
        return Opened(file.name, sections, Plan.from_dict(sections), file)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        why = " ".join(str(error).split())[:300]
        return Opened(file.name, receipt=file, problem=f"its plan cannot be read: {why}")


# ---- what the page shows ------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenedPlan:
    """What the page's controls need to know about the plan."""

    name: str
    rho: float
    queries: list[str]
    weights: list[int]


@dataclass(frozen=True)
class Opening:
    """What the page has to know before it asks anything."""

    file: str
    receipt: bool
    problem: str
    plan: OpenedPlan | None


@dataclass(frozen=True)
class MarkedCurve:
    """A curve of a chart and the point that is marked on it, as numbers and as text."""

    points: list[Point]
    x: float
    y: float
    x_text: str
    y_text: str


@dataclass(frozen=True)
class Risk:
    """What an attacker can learn, in sentences, numbers, and two charts.

    Args:
        exact: False where a closer power is worth asking for.
        before: power against level of the plan as it was opened, where the settings differ.
        figures: name, value, and note of each number.
    """

    exact: bool
    sentence: str
    finding: str
    how: str
    figures: list[tuple[str, str, str]]
    tradeoff: MarkedCurve
    before: list[Point]
    posterior: MarkedCurve
    python: str


@dataclass(frozen=True)
class Profile:
    """Delta against epsilon."""

    curve: MarkedCurve
    least: float


@dataclass(frozen=True)
class Tables:
    """The errors of a plan's tables, and the plan with the settings of the screen as TOML."""

    head: list[str]
    rows: list[list[str]]
    note: str
    toml: str


@dataclass(frozen=True)
class NamedCurve:
    """A curve of a chart that has its name beside it."""

    name: str
    kind: str
    points: list[Point]


@dataclass(frozen=True)
class Scenarios:
    """What an attacker can learn about single attributes."""

    head: list[str]
    rows: list[list[str]]
    curves: list[NamedCurve]
    last: float


Answer = Risk | Profile | Tables | Scenarios


class _Guarantee:
    """A trade-off function with the numbers that a page shows, each computed once.

    Args:
        tradeoff: of what is released.
        promise: what a budget proves about it.
        python: the code that makes it, as ``curve``.
        subject: who is protected.
        claim: what a claim is about, in a sentence.
        more: further figures.
    """

    def __init__(
        self,
        tradeoff: Tradeoff,
        promise: Promise,
        python: str,
        subject: str = "person",
        claim: str = "",
        more: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        self.tradeoff, self.promise, self.python = tradeoff, promise, python
        self.subject, self.claim, self.more = subject, claim, more
        # Where every power is a search, tangents bound all of them at once; see `outline`.
        self.search = tradeoff.profiles[0].engine == Engine.CONTOUR
        self.powers = lru_cache(4)(self._powers)
        self.epsilon = lru_cache(4)(self._epsilon)
        self.profile = lru_cache(4)(self._profile)
        self.closest: dict[float, float] = {}

    def _powers(self, level: float) -> tuple[list[Point], float]:
        """Upper bounds of power at many levels, and at one level."""
        if self.search:
            powers, power = outline(self.tradeoff, LEVELS, level)
        else:
            powers, power = self._all_powers, self.closer(level)
        return list(zip(LEVELS, powers, strict=True)), power

    @cached_property
    def _all_powers(self) -> list[float]:
        return [bound.upper for bound in self.tradeoff.powers(LEVELS)]

    def closer(self, level: float) -> float:
        """Return the closest upper bound of the power at a level."""
        if level not in self.closest:
            bound = self.promise.power(level, self.tradeoff.power(level))
            self.closest[level] = max(level, bound.upper)
        return self.closest[level]

    def power(self, level: float) -> float:
        """Return the closest upper bound of the power that is known without a search."""
        return self.closest.get(level) or self.powers(level)[1]

    def _epsilon(self, delta: float) -> float:
        return self.promise.epsilon(delta, self.tradeoff.epsilon(delta)).upper

    def _profile(self, upto: float) -> list[Point]:
        """Upper bounds of delta at epsilons up to one."""
        epsilons = [upto * k / (EPSILONS - 1) for k in range(EPSILONS)]
        deltas = self.tradeoff.deltas_above(np.array(epsilons))
        return [(e, float(delta)) for e, delta in zip(epsilons, deltas, strict=True)]


class Desk:
    """Answers questions about one opened file. The newest numbers stay for the next question."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._newest: tuple[str, _Guarantee] | None = None
        self._moved: tuple[str, tuple[Plan, Fraction]] | None = None

    def done(self, task: Task, content: Any) -> Json:
        """Do what the server wants, and return the result in JSON types.

        Args:
            task: what it wants.
            content: the question of "answer"; how to check the receipt for "checks".
        """
        match task:
            case "opening":
                return asdict(self.opening())
            case "answer":
                return asdict(self.answer(content))
            case "checks":
                assert self.opened.receipt is not None
                checks = verify(self.opened.receipt, {"report.html": page}, **content)
                return [asdict(check) for check in checks]

    def opening(self) -> Opening:
        """Return what the page has to know before it asks anything."""
        opened, plan = self.opened, None
        if opened.plan is not None:
            queries = self._measured
            weights = _weights([query.share for query in queries])
            rho = float(1 / opened.plan.scale)
            plan = OpenedPlan(opened.plan.name, rho, [query.name for query in queries], weights)
        return Opening(opened.name, opened.receipt is not None, opened.problem, plan)

    def answer(self, question: Question) -> Answer:
        """Answer what a page asks.

        Args:
            question: ``ask`` ("risk", "closer", "profile"; of a plan also "tables", "scenarios"),
                ``about`` ("mechanism", "guarantee", "plan") with its parameters, and ``level``,
                ``prior``, or ``delta`` where it needs them.

        Raises:
            ValueError: there is no such question, or a number is out of its range.
        """
        answers: dict[str, Callable[[Question], Answer]] = {
            "risk": self.risk,
            "closer": self.closer,
            "profile": self.profile,
            "tables": self.tables,
            "scenarios": self.scenarios,
        }
        return answers[_among(question, "ask", answers)](question)

    def risk(self, question: Question) -> Risk:
        """Bound power at all levels at once, and epsilon at the delta."""
        guarantee, level = self._guarantee(question), _number(question, "level")
        return self._risk(question, guarantee.powers(level)[1])

    def closer(self, question: Question) -> Risk:
        """Return the same answer with the closest bound of the power at the level."""
        return self._risk(question, self._guarantee(question).closer(_number(question, "level")))

    def _risk(self, question: Question, power: float) -> Risk:
        guarantee = self._guarantee(question)
        level, prior, delta = (_number(question, name) for name in ("level", "prior", "delta"))
        curve, epsilon = guarantee.powers(level)[0], guarantee.epsilon(delta)
        pure = _shortest(guarantee.tradeoff.pure())
        right = words.posterior(level, power, prior)
        figures = [
            (
                "True claims found out, at most",
                words.percent(power),
                f"guessing: {words.percent(level, up=False)}",
            ),
            (
                "A finding is right, at most",
                words.percent(right),
                f"before: {words.percent(prior, up=False)}",
            ),
            (
                f"Epsilon at delta {words.delta(delta)}",
                words.number(epsilon),
                f"at delta 0: {words.number(pure)}" if math.isfinite(pure) else "",
            ),
            *guarantee.more,
        ]
        code = [
            "import neyman as ny",
            "",
            guarantee.python,
            f"print(curve.power(level={question['level']}))",
            f"print(curve.epsilon(delta={question['delta']}))",
            "",
        ]
        before = []
        if question["about"] == "plan" and self._settings(question) != self._settings({}):
            before = self._own.powers(level)[0]
        after = [(p, p * power / (p * power + level * (1 - p))) for p in PRIORS]
        return Risk(
            exact=not guarantee.search or power in (1, guarantee.closest.get(level)),
            sentence=words.power(level, power, guarantee.subject),
            finding=words.finding(level, power, prior),
            how=f"{_CERTIFIED} {guarantee.claim}".strip(),
            figures=figures,
            tradeoff=MarkedCurve(
                curve, level, power, words.percent(level, up=False), words.percent(power)
            ),
            before=before,
            posterior=MarkedCurve(
                after, prior, float(right), words.percent(prior, up=False), words.percent(right)
            ),
            python="\n".join(code),
        )

    def profile(self, question: Question) -> Profile:
        """Bound delta over epsilons, beyond the epsilon at the delta."""
        guarantee, delta = self._guarantee(question), _number(question, "delta")
        epsilon = guarantee.epsilon(delta)
        upto = max(0.05, float(f"{1.5 * (epsilon if math.isfinite(epsilon) else 8):.2g}"))
        points = guarantee.profile(upto)
        if epsilon < upto:
            points = sorted([*points, (epsilon, delta)], key=lambda point: (point[0], -point[1]))
        # Down to 0 no sooner than it is 0.
        drawn = points[:1]
        for (_, d0), (e, d) in pairwise(points):
            drawn += [(e, d0), (e, d)] if d == 0 and d0 > 0 else [(e, d)]
        shown = MarkedCurve(
            drawn, min(epsilon, 2 * upto), delta, words.number(epsilon), words.delta(delta)
        )
        return Profile(shown, min(1e-12, delta / 100))

    def tables(self, question: Question) -> Tables:
        """Return the error of every table before any data, beside the plan's own."""
        told = errors(*self._split(question))
        twice = any(error.consistent is not None for error in told)
        rows = [
            [
                error.name.removesuffix(".all").replace(".", " by ")
                + (" (in all)" if error.level == "all" else ""),
                "found in the data" if error.cells is None else words.number(error.cells),
                _margin(error),
                *([_adding_up(error)] if twice else []),
                before,
            ]
            for error, before in zip(told, self._own_margins, strict=True)
        ]
        head = ["Table", "Cells", "Margin of error (90%)"]
        head += ["Made to add up (90%)"] * twice + ["As the plan has it"]
        return Tables(head, rows, _TWICE if twice else "", self._toml(question))

    def scenarios(self, question: Question) -> Scenarios:
        """Bound what an attacker can learn about single attributes, side by side."""
        plan, scale = self._split(question)
        level, guarantee = _number(question, "level"), self._guarantee(question)
        guessing, holder = words.percent(level, up=False), plan.unit.protects
        curves: dict[Mechanism, tuple[float, list[Point]]] = {}
        rows: list[list[str]] = []
        named: list[NamedCurve] = []
        for attributes, within in usual(plan):
            mechanism = concerning(plan, attributes, within, scale)
            if mechanism not in curves:  # where units have ids, most move the same tables
                here, *powers = mechanism.tradeoff().powers([level, *FEW])
                points = [(a, max(a, p.upper)) for a, p in zip(FEW, powers, strict=True)]
                curves[mechanism] = max(level, here.upper), [(0.0, 0.0), *points]
            power, points = curves[mechanism]
            name = " and ".join(attributes)
            known = f"{name} within a known {within}" if within else name
            rows.append([f"The {holder}’s {known}", guessing, words.percent(power)])
            short = f"{name} in {within}" if within else name
            named.append(NamedCurve(short, "scenario", points))
        if plan.unit.neighboring == "replace-one":
            found = words.percent(guarantee.power(level))
            rows.append([f"Anything in the {holder}’s record", guessing, found])
        named.sort(key=lambda curve: -curve.points[-1][1])
        head = ["A claim about", "Guessing finds", "Found out, at most"]
        return Scenarios(head, rows, named[:MOST_SCENARIOS], FEW[-1])

    def _toml(self, question: Question) -> str:
        """Write the plan with the budget and the shares of the screen."""
        _, scale = self._split(question)
        plan, sections = self._plan, self.opened.sections
        written = copy.deepcopy(dict(sections or {}))
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

    def _guarantee(self, question: Question) -> _Guarantee:
        key = json.dumps([question.get(name) for name in _SUBJECT])
        if self._newest is None or self._newest[0] != key:
            self._newest = key, self._made(question)
        return self._newest[1]

    def _made(self, question: Question) -> _Guarantee:
        match _among(question, "about", ("mechanism", "guarantee", "plan")):
            case "mechanism":
                mechanism, code = _mechanism(question)
                python = f"release = {code}\ncurve = release.tradeoff()"
                curve = mechanism.tradeoff()
                claim = "" if curve.neighboring == "any" else words.claim(curve.neighboring)
                normal = _normal(curve) if question["kind"] == "gaussian" else ()
                return _Guarantee(curve, Promise(), python, claim=claim, more=normal)
            case "guarantee":
                curve, code = _promised(question)
                normal = _normal(curve) if question["promise"] == "gdp" else ()
                return _Guarantee(curve, Promise(), f"curve = {code}", more=normal)
            case _:
                return self._of_plan(*self._split(question))

    def _of_plan(self, plan: Plan, scale: Fraction) -> _Guarantee:
        own = plan is self.opened.plan and scale == plan.scale
        mechanism, unit = plan.at_scale(scale), plan.unit
        return _Guarantee(
            mechanism.tradeoff(),
            Promise.of(plan, mechanism) if own else Promise(),
            'plan = ny.Plan.load("plan.toml")  # as below\ncurve = plan.mechanism().tradeoff()',
            unit.protects,
            words.claim(unit.neighboring, unit.protects, unit.rows),
            [("Rho (zCDP)", words.number(float(1 / scale)), "of all tables together")],
        )

    @property
    def _plan(self) -> Plan:
        if self.opened.plan is None:
            raise ValueError("no plan was opened: start with neyman explore plan.toml")
        return self.opened.plan

    @cached_property
    def _own(self) -> _Guarantee:
        """The guarantee of the plan as it was opened."""
        return self._of_plan(self._plan, self._plan.scale)

    @cached_property
    def _own_margins(self) -> list[str]:
        return [_margin(error) for error in errors(self._plan)]

    @cached_property
    def _measured(self) -> list[Query]:
        """The queries that take a part of the budget."""
        taking = {entry.query for entry in self._plan.entries() if entry.public is None}
        return [query for query in self._plan.queries if query.name in taking]

    def _settings(self, question: Question) -> tuple[object, list[int]]:
        return question.get("rho"), self._weights_asked(question)

    def _weights_asked(self, question: Question) -> list[int]:
        given, queries = question.get("weights"), self._measured
        if given is None:
            return _weights([query.share for query in queries])
        weights = cast(list[object], given) if isinstance(given, list) else []
        good = [w for w in weights if type(w) is int and 0 < w <= 1000]
        if len(good) != len(queries) or len(weights) != len(queries):
            raise ValueError(f"weights must be {len(queries)} whole numbers from 1 to 1000")
        return good

    def _split(self, question: Question) -> tuple[Plan, Fraction]:
        """The plan with other shares, and 1/rho."""
        key = json.dumps([question.get("rho"), question.get("weights")])
        if self._moved is None or self._moved[0] != key:
            self._moved = key, self._resplit(question)
        return self._moved[1]

    def _resplit(self, question: Question) -> tuple[Plan, Fraction]:
        plan, measured = self._plan, self._measured
        scale = plan.scale
        if question.get("rho") is not None:
            scale = 1 / Fraction(repr(_number(question, "rho")))
        given = self._weights_asked(question)
        if given == _weights([query.share for query in measured]):
            return plan, scale
        whole = sum((query.share for query in measured), Fraction(0))
        shares = {
            query.name: whole * Fraction(weight, sum(given))
            for query, weight in zip(measured, given, strict=True)
        }
        queries = tuple(
            replace(query, share=shares.get(query.name, query.share)) for query in plan.queries
        )
        return replace(plan, queries=queries), scale


# ---- mechanisms and guarantees, and the Python that makes them ----------------------------------


def _mechanism(question: Question) -> tuple[Mechanism, str]:
    steps = _whole(question, "steps", *_STEPS)
    kinds = ("gaussian", "laplace", "discrete", "response", "sampled")
    kind = _among(question, "kind", kinds)
    name = {"laplace": "scale", "response": "loss"}.get(kind, "sigma")
    size, text = _number(question, name), str(question[name])
    match kind:
        case "gaussian":
            mechanism, code = Gaussian(sigma=size), f"ny.Gaussian(sigma={text})"
        case "laplace":
            mechanism, code = Laplace(scale=size), f"ny.Laplace(scale={text})"
        case "discrete":
            mechanism, code = DiscreteGaussian(sigma=size), f"ny.DiscreteGaussian(sigma={text})"
        case "response":
            categories = _whole(question, "categories", *_CATEGORIES)
            mechanism = RandomizedResponse(size, categories=categories)
            code = f"ny.RandomizedResponse({text}, categories={categories})"
        case _:
            rate = _number(question, "rate")
            mechanism = Gaussian(sigma=size).subsample(rate=rate)
            code = f"ny.Gaussian(sigma={text}).subsample(rate={question['rate']})"
    return mechanism * steps, code if steps == 1 else f"{code} * {steps}"


def _promised(question: Question) -> tuple[Tradeoff, str]:
    match _among(question, "promise", ("approximate", "gdp", "zcdp")):
        case "approximate":
            curve = guarantees.approximate(
                _number(question, "epsilon"), _number(question, "chance")
            )
            return curve, f"ny.approximate({question['epsilon']}, {question['chance']})"
        case "gdp":
            return guarantees.gdp(_number(question, "mu")), f"ny.gdp({question['mu']})"
        case _:
            return guarantees.zcdp(_number(question, "rho")), f"ny.zcdp({question['rho']})"


def _normal(curve: Tradeoff) -> list[tuple[str, str, str]]:
    """Mu and rho of a curve that has both in closed form."""
    mu, rho = _shortest(curve.gdp()), _shortest(curve.zcdp())
    return [("Mu (Gaussian)", words.number(mu), f"rho (zCDP): {words.number(rho)}")]


# ---- numbers and text ---------------------------------------------------------------------------


def _shortest(bound: Bound) -> float:
    """The upper end, or a number of 12 digits inside the interval: 1 is not to become 1.01."""
    short = float(f"{bound.upper:.12g}")
    return short if bound.lower <= short <= bound.upper else bound.upper


def _margin(error: TableError) -> str:
    if error.standard_error == 0:
        return "exact: declared"
    if error.half_width is not None:
        return f"±\u00a0{words.number(error.half_width)}"
    if not error.by_rows:
        return "–"
    rows, _, half = error.by_rows[-1]
    return f"±\u00a0{words.number(half)} (of {words.number(rows)} rows)"


def _adding_up(error: TableError) -> str:
    """The widest half of a published interval after the tables were made to add up."""
    if error.consistent is None:
        return "–"
    largest = error.consistent[1]
    return f"±\u00a0{words.number(Z90 * largest + 0.5)}" if largest else "exact"


def _weights(shares: list[Fraction]) -> list[int]:
    """Shares in thousandths that add up to 1000, none below one."""
    whole = sum(shares, Fraction(0))
    exact = [1000 * share / whole for share in shares]
    weights = [max(1, math.floor(part)) for part in exact]
    order = sorted(range(len(exact)), key=lambda k: weights[k] - exact[k])
    for k in order[: max(0, 1000 - sum(weights))]:
        weights[k] += 1
    return weights


def _number(question: Question, name: str) -> float:
    low, high = _RANGES[name]
    given = question.get(name)
    if not isinstance(given, int | float) or isinstance(given, bool) or not low <= given <= high:
        raise ValueError(f"{name} = {given!r} must be a number from {low:g} to {high:g}")
    return float(given)


def _whole(question: Question, name: str, low: int, high: int) -> int:
    given = question.get(name)
    if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
        raise ValueError(f"{name} = {given!r} must be a whole number from {low:,} to {high:,}")
    return given


def _among(question: Question, name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    given = question.get(name)
    if not isinstance(given, str) or given not in known:
        raise ValueError(f"{name} = {str(given)[:40]!r} must be one of {', '.join(known)}")
    return given
