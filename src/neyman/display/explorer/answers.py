"""Answer the explorer's page: certified numbers, sentences, and chart data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from neyman.accounting.literature.deployments import scale_sentence
from neyman.accounting.semantics import digits
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.attacks import PRIOR_CONDITION, conditions_of, usual_attacks
from neyman.accounting.semantics.budget import PlanBudget, within_limit
from neyman.curves.losses.composition import Composition
from neyman.curves.profiles.profile import Engine
from neyman.curves.tradeoff import guarantees
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.display.explorer.curve_outline import outline
from neyman.mechanisms.additive import DiscreteGaussian, Gaussian, Laplace
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.randomized_response import RandomizedResponse
from neyman.numerics.bound import Bound

Task = Literal["opening", "answer", "checks"]
Json = dict[str, Any] | list[dict[str, Any]]
Question = Mapping[str, object]
Point = tuple[float, float]

LEVELS = tuple(0.5 - 0.5 * math.cos(math.pi * k / 36) for k in range(1, 36))
PRIORS = tuple(0.5 - 0.5 * math.cos(math.pi * k / 60) for k in range(61))


@dataclass(frozen=True)
class Limits:
    """Limit the points of a chart, and the ordered pairs of a summary."""

    epsilons: int = 28  # points of a chart of delta against epsilon


LIMITS = Limits()

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
_CERTIFIED = "Certified upper bounds."


@dataclass(frozen=True)
class OpenedPlan:
    """Hold the facts about the plan that the page's controls need."""

    name: str
    rho: float
    queries: list[str]
    weights: list[int]


@dataclass(frozen=True)
class PageFacts:
    """Hold the facts that the page needs before its first question."""

    file: str
    receipt: bool
    problem: str
    plan: OpenedPlan | None


@dataclass(frozen=True)
class MarkedCurve:
    """Hold a curve of a chart and its marked point, as numbers and as text."""

    points: list[Point]
    x: float
    y: float
    x_text: str
    y_text: str


@dataclass(frozen=True)
class Risk:
    """Describe what an attacker can learn, in sentences, numbers, and two charts.

    Args:
        exact: False if a closer bound on the power is worth a second question.
        before: power against level for the original plan, if the settings differ.
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
class ShownProfile:
    """Hold points of delta against epsilon, and the least delta that the chart shows."""

    curve: MarkedCurve
    least: float


@dataclass(frozen=True)
class Tables:
    """Hold the errors of a plan's tables, and the plan with the current settings as TOML."""

    head: list[str]
    rows: list[list[str]]
    note: str
    toml: str


@dataclass(frozen=True)
class NamedCurve:
    """Hold a curve of a chart with its name."""

    name: str
    kind: str
    points: list[Point]


@dataclass(frozen=True)
class Scenarios:
    """Describe what an attacker can learn about single attributes, at levels up to ``last``."""

    head: list[str]
    rows: list[list[str]]
    curves: list[NamedCurve]
    last: float


@dataclass(frozen=True)
class NamedAttacks:
    """Describe the success of named attacks, and compare the power with published deployments."""

    sentences: list[str]
    conditions: str
    scale: str


Answer = Risk | ShownProfile | Tables | Scenarios | NamedAttacks


class ShownGuarantee:
    """Compute the numbers that a page shows for a trade-off function, each once.

    Args:
        met: a budget that the function meets, which implies further bounds.
        python: Python code that assigns the function to ``curve``.
        claim: a sentence that says what a claim is.
        more: further numbers: name, value, and note of each.
        training: True for a training run on random batches of records.
    """

    def __init__(
        self,
        tradeoff: Tradeoff,
        met: PlanBudget | None,
        python: str,
        subject: str = "person",
        claim: str = "",
        more: Sequence[tuple[str, str, str]] = (),
        training: bool = False,
    ) -> None:
        self.tradeoff, self.met, self.python = tradeoff, met, python
        self.subject, self.claim, self.more = subject, claim, more
        self.training = training
        # If every power needs a search, tangents bound all powers at once: see `outline`.
        self.search = tradeoff.profiles[0].engine == Engine.CONTOUR
        self.powers = lru_cache(4)(self._powers)
        self.epsilon = lru_cache(4)(self._epsilon)
        self.profile = lru_cache(4)(self._profile)
        self.closest: dict[float, float] = {}

    def sentence(self, level: float, power: float) -> str:
        """Return the headline: the attacker, and both of their error rates."""
        if self.training:
            return words.training(level, power)
        return words.power(level, power, self.subject, self.tradeoff.neighboring)

    def summarized(self, answer: Risk) -> Risk:
        """Return an answer whose numbers include mu of the nearest Gaussian curve."""
        return replace(answer, figures=[*answer.figures, *self._summary])

    @cached_property
    def _summary(self) -> list[tuple[str, str, str]]:
        # Ordered pairs that get the nearest Gaussian curve.
        if self.more or len(self.tradeoff.profiles) > 4:
            return []
        # On a copy: earlier questions to a contour change the last digits of later answers.
        fresh = tuple(Composition(c.parts) for c in self.tradeoff.alternatives)
        nearest = replace(self.tradeoff, alternatives=fresh).nearest_gaussian()
        if not math.isfinite(nearest.mu.upper):
            return []
        mu, gap = digits.number(nearest.mu.upper), digits.percent(nearest.distance.upper)
        about = f"a summary, no guarantee: powers differ by up to {gap}"
        return [("Mu of the nearest Gaussian", mu, about)]

    @cached_property
    def attacks(self) -> list[str]:
        """Return a sentence per usual attack, from a copy of the curve, as in ``_summary``."""
        fresh = tuple(Composition(c.parts) for c in self.tradeoff.alternatives)
        curve = replace(self.tradeoff, alternatives=fresh)
        return [each.success(curve).sentence(self.subject) for each in usual_attacks()]

    def _powers(self, level: float) -> tuple[list[Point], float]:
        if self.search:
            powers, power = outline(self.tradeoff, LEVELS, level)
        else:
            powers, power = self._all_powers, self.closer(level)
        return list(zip(LEVELS, powers, strict=True)), power

    @cached_property
    def _all_powers(self) -> list[float]:
        return [bound.upper for bound in self.tradeoff.powers(LEVELS)]

    def closer(self, level: float) -> float:
        """Return the closest upper bound on the power at a level."""
        if level not in self.closest:
            bound = within_limit(self.met, "power", self.tradeoff.power(level), level)
            self.closest[level] = max(level, bound.upper)
        return self.closest[level]

    def power(self, level: float) -> float:
        """Return the closest upper bound on the power that needs no new search."""
        return self.closest.get(level) or self.powers(level)[1]

    def _epsilon(self, delta: float) -> float:
        bound = self.tradeoff.epsilon(delta)
        return within_limit(self.met, "epsilon", bound, delta).upper

    def _profile(self, upto: float) -> list[Point]:
        """Return upper bounds on delta, at epsilons from 0 to ``upto``."""
        epsilons = [upto * k / (LIMITS.epsilons - 1) for k in range(LIMITS.epsilons)]
        deltas = self.tradeoff.deltas_above(np.array(epsilons))
        return [(e, float(delta)) for e, delta in zip(epsilons, deltas, strict=True)]


class Desk:
    """Answer questions about mechanisms and guarantees. Store the newest numbers for reuse."""

    def __init__(self) -> None:
        self._newest: tuple[str, ShownGuarantee] | None = None
        self.asked: dict[str, Callable[[Question], Answer]] = {
            "risk": self.risk,
            "closer": self.closer,
            "profile": self.profile,
            "attacks": self.attacks,
        }

    def done(self, task: Task, content: Any) -> Json:
        """Do a task ("opening", "answer", or "checks"), and return the result in JSON types.

        Args:
            content: the question for "answer", or the options of the check for "checks".
        """
        if task == "opening":
            return asdict(self.opening())
        if task == "answer":
            return asdict(self.answer(content))
        return self.checks(content)

    def opening(self) -> PageFacts:
        """Return the facts that the page needs before its first question."""
        return PageFacts("", False, "", None)

    def checks(self, witness: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the results of checking the receipt. Without a receipt, there are none."""
        return []

    def answer(self, question: Question) -> Answer:
        """Answer a question of the page.

        Args:
            question: ``ask`` ("risk", "closer", "profile", "attacks"; for a plan also "tables" and
                "scenarios"), ``about`` ("mechanism", "guarantee", "plan") with its parameters, and
                ``level``, ``prior``, or ``delta`` if needed.

        Raises:
            ValueError: there is no such question, or a number is out of its range.
        """
        return self.asked[_among(question, "ask", self.asked)](question)

    def risk(self, question: Question) -> Risk:
        """Bound the power at all levels at once, and epsilon at the question's delta."""
        guarantee, level = self.guarantee(question), number_in(question, "level")
        answer = self._risk(question, guarantee.powers(level)[1])
        return answer if guarantee.search else guarantee.summarized(answer)

    def closer(self, question: Question) -> Risk:
        """Return the answer to "risk" with the closest bound on the power at the level."""
        guarantee = self.guarantee(question)
        answer = self._risk(question, guarantee.closer(number_in(question, "level")))
        return guarantee.summarized(answer)

    def _risk(self, question: Question, power: float) -> Risk:
        guarantee = self.guarantee(question)
        level, prior, delta = (number_in(question, name) for name in ("level", "prior", "delta"))
        curve, epsilon = guarantee.powers(level)[0], guarantee.epsilon(delta)
        pure = _shortest(guarantee.tradeoff.pure())
        right = words.posterior(digits.given_level(level), power, prior)
        figures = [
            (
                "True positive rate (at most)",
                digits.percent(power),
                f"guessing: {digits.level_percent(level)}",
            ),
            (
                "Correct positive results (at most)",
                digits.percent(right),
                f"prior: {digits.percent(prior, up=False)}",
            ),
            (
                f"Epsilon at delta {digits.delta(delta)}",
                digits.number(epsilon),
                f"at delta 0: {digits.number(pure)}" if math.isfinite(pure) else "",
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
        after = [(p, p * power / (p * power + level * (1 - p))) for p in PRIORS]
        return Risk(
            exact=not guarantee.search or power in (1, guarantee.closest.get(level)),
            sentence=guarantee.sentence(level, power),
            finding=words.finding(level, power, prior),
            how=f"{_CERTIFIED} {guarantee.claim}".strip(),
            figures=figures,
            tradeoff=MarkedCurve(
                curve, level, power, digits.level_percent(level), digits.percent(power)
            ),
            before=self.before(question),
            posterior=MarkedCurve(
                after, prior, float(right), digits.percent(prior, up=False), digits.percent(right)
            ),
            python="\n".join(code),
        )

    def before(self, question: Question) -> list[Point]:
        """Return points of the original plan's power. Without a plan, there are none."""
        return []

    def profile(self, question: Question) -> ShownProfile:
        """Bound delta at epsilons from 0 to above the epsilon that has the question's delta."""
        guarantee, delta = self.guarantee(question), number_in(question, "delta")
        epsilon = guarantee.epsilon(delta)
        upto = max(0.05, float(f"{1.5 * (epsilon if math.isfinite(epsilon) else 8):.2g}"))
        points = guarantee.profile(upto)
        if epsilon < upto:
            points = sorted([*points, (epsilon, delta)], key=lambda point: (point[0], -point[1]))
        # Show 0 only if delta is 0.
        outline_points = points[:1]
        for (_, d0), (e, d) in pairwise(points):
            outline_points += [(e, d0), (e, d)] if d == 0 and d0 > 0 else [(e, d)]
        shown = MarkedCurve(
            outline_points,
            min(epsilon, 2 * upto),
            delta,
            digits.number(epsilon),
            digits.delta(delta),
        )
        return ShownProfile(shown, min(1e-12, delta / 100))

    def attacks(self, question: Question) -> NamedAttacks:
        """Bound the success of each usual attack. Compare the power with published deployments."""
        guarantee, level = self.guarantee(question), number_in(question, "level")
        shared = PRIOR_CONDITION, *conditions_of(guarantee.tradeoff.neighboring)
        return NamedAttacks(
            guarantee.attacks,
            f"Conditions: {' '.join(shared)}",
            scale_sentence(level, guarantee.power(level)),
        )

    def guarantee(self, question: Question) -> ShownGuarantee:
        """Return the guarantee that a question is about."""
        key = json.dumps([question.get(name) for name in _SUBJECT])
        if self._newest is None or self._newest[0] != key:
            self._newest = key, self._build_curve(question)
        return self._newest[1]

    def _build_curve(self, question: Question) -> ShownGuarantee:
        match _among(question, "about", ("mechanism", "guarantee", "plan")):
            case "mechanism":
                mechanism, code = _mechanism(question)
                python = f"release = {code}\ncurve = release.tradeoff()"
                curve = mechanism.tradeoff()
                claim = "" if curve.neighboring == "any" else words.claim(curve.neighboring)
                normal = _normal(curve) if question["kind"] == "gaussian" else ()
                sampled = question["kind"] == "sampled"
                return ShownGuarantee(
                    curve, None, python, claim=claim, more=normal, training=sampled
                )
            case "guarantee":
                curve, code = _guarantee_curve(question)
                normal = _normal(curve) if question["promise"] == "gdp" else ()
                return ShownGuarantee(curve, None, f"curve = {code}", more=normal)
            case _:
                return self.of_plan(question)

    def of_plan(self, question: Question) -> ShownGuarantee:
        """Return the guarantee of the open plan with the settings of a question."""
        raise ValueError("No plan is open. Start with: neyman explore plan.toml")


# ---- mechanisms and guarantees, and the Python that makes them ----------------------------------


def _mechanism(question: Question) -> tuple[Mechanism, str]:
    steps = _integer(question, "steps", *_STEPS)
    kinds = ("gaussian", "laplace", "discrete", "response", "sampled")
    kind = _among(question, "kind", kinds)
    name = {"laplace": "scale", "response": "loss"}.get(kind, "sigma")
    size, text = number_in(question, name), str(question[name])
    match kind:
        case "gaussian":
            mechanism, code = Gaussian(sigma=size), f"ny.Gaussian(sigma={text})"
        case "laplace":
            mechanism, code = Laplace(scale=size), f"ny.Laplace(scale={text})"
        case "discrete":
            mechanism, code = DiscreteGaussian(sigma=size), f"ny.DiscreteGaussian(sigma={text})"
        case "response":
            categories = _integer(question, "categories", *_CATEGORIES)
            mechanism = RandomizedResponse(size, categories=categories)
            code = f"ny.RandomizedResponse({text}, categories={categories})"
        case _:
            rate = number_in(question, "rate")
            mechanism = Gaussian(sigma=size).subsample(rate=rate)
            code = f"ny.Gaussian(sigma={text}).subsample(rate={question['rate']})"
    return mechanism * steps, code if steps == 1 else f"{code} * {steps}"


def _guarantee_curve(question: Question) -> tuple[Tradeoff, str]:
    match _among(question, "promise", ("approximate", "gdp", "zcdp")):
        case "approximate":
            curve = guarantees.approximate(
                number_in(question, "epsilon"), number_in(question, "chance")
            )
            return curve, f"ny.approximate({question['epsilon']}, {question['chance']})"
        case "gdp":
            return guarantees.gdp(number_in(question, "mu")), f"ny.gdp({question['mu']})"
        case _:
            return guarantees.zcdp(number_in(question, "rho")), f"ny.zcdp({question['rho']})"


def _normal(curve: Tradeoff) -> list[tuple[str, str, str]]:
    """Return name, value, and note of mu and rho, if a curve has both in closed form."""
    mu, rho = _shortest(curve.gdp()), _shortest(curve.zcdp())
    return [("Mu (Gaussian)", digits.number(mu), f"rho (zCDP): {digits.number(rho)}")]


# ---- numbers and text ---------------------------------------------------------------------------


def _shortest(bound: Bound) -> float:
    """Return a bound's upper end, rounded to 12 digits if the result is in the interval."""
    short = float(f"{bound.upper:.12g}")
    return short if bound.lower <= short <= bound.upper else bound.upper


def number_in(question: Question, name: str) -> float:
    """Return a number of a question. Raise ValueError if it is outside its range."""
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


def _among(question: Question, name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    given = question.get(name)
    if not isinstance(given, str) or given not in known:
        raise ValueError(f"{name} = {str(given)[:40]!r} must be one of {', '.join(known)}")
    return given
