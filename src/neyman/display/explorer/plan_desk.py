"""Answer the page's questions about a plan or a receipt."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from neyman.accounting.optimality.table_gap import GAP
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.digits import level_percent
from neyman.display.explorer.answers import (
    Desk,
    NamedCurve,
    OpenedPlan,
    PageFacts,
    Point,
    Question,
    Scenarios,
    ShownGuarantee,
    Tables,
    number_in,
)
from neyman.display.report.report import page
from neyman.mechanisms.base import Mechanism
from neyman.publishing.consistency.adjusted_tables import Z90
from neyman.publishing.plan.document import read_sections, sections_of
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.query import Query, declared_share
from neyman.publishing.plan.scenarios import concerning, moves_total, usual
from neyman.publishing.planning.accuracy import TableError, errors
from neyman.publishing.planning.bound_search import searched
from neyman.publishing.planning.rewrite import toml_text
from neyman.publishing.release.folder import LIMITS as FOLDER_LIMITS
from neyman.publishing.release.receipt_format import SCHEMA, check_format
from neyman.publishing.release.verify.verification import verify
from neyman.storage.reading import read_file, read_json

FEW = tuple(0.2 * (k / 16) ** 2 for k in range(1, 17))  # levels of scenarios, up to 0.2
MAX_SCENARIO_CURVES = 6  # curves that a small chart can hold
_TWICE = (
    "This plan publishes its tables twice: with noise, and adjusted to add up, which costs no "
    "privacy and makes no cell less accurate on average. A half is added to those margins for "
    "safety, so some look wider. The last column is of the noisy ones."
)

_LARGEST = (
    "Bounds of this plan follow from noisy histograms. These margins are for the largest "
    "candidates, and noise is proportional to the bound."
)


# ---- what the page shows ------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """Hold the file that the explorer has opened.

    Args:
        name: the file's name. "" without a file.
        sections: the original sections of the plan, for writing it again.
        plan: the plan. None without a file, or if a receipt's plan cannot be read.
        receipt: the path of the receipt, if the file is one.
        problem: the reason if there is no plan.
    """

    name: str = ""
    sections: Mapping[str, Any] | None = None
    plan: Plan | None = None
    receipt: Path | None = None
    problem: str = ""


def opened_from(source: str | dict[str, Any]) -> Opened:
    """Read a plan or receipt from a file, or a plan from its sections.

    Raises:
        ValueError: the source is neither, or is a plan with mistakes.
    """
    if isinstance(source, dict):
        return Opened(sections=source, plan=Plan.from_dict(source))
    path, file = source, Path(source)
    file = file / "receipt.json" if file.is_dir() else file
    if file.suffix == ".toml":
        sections = read_sections(file)
        return Opened(file.name, sections, Plan.from_dict(sections, folder=file.parent))
    try:
        content = read_json(read_file(file, FOLDER_LIMITS.receipt_bytes))
        if not isinstance(content, dict) or "plan" not in content:
            raise ValueError("it has no plan in it")
        check_format(cast(dict[str, Any], content), SCHEMA)
    except OSError as error:
        raise ValueError(f"{path!r} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(
            f"{path!r} is neither a plan (a file that ends in .toml) nor a receipt: {error}"
        ) from None
    sections = cast(dict[str, Any], content)["plan"]
    try:
        return Opened(file.name, sections, Plan.from_dict(sections), file)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        why = " ".join(str(error).split())[:300]
        return Opened(file.name, receipt=file, problem=f"its plan cannot be read: {why}")


class PlanDesk(Desk):
    """Answer questions about one opened file, and about mechanisms and guarantees."""

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        self.opened = opened
        self._moved: tuple[str, tuple[Plan, Fraction]] | None = None
        self.asked |= {"tables": self.tables, "scenarios": self.scenarios}

    def opening(self) -> PageFacts:
        opened, plan = self.opened, None
        if opened.plan is not None:
            queries = self._measured_queries
            weights = _weights(self._shares)
            rho = float(1 / opened.plan.scale)
            plan = OpenedPlan(opened.plan.name, rho, [query.name for query in queries], weights)
        return PageFacts(opened.name, opened.receipt is not None, opened.problem, plan)

    def checks(self, witness: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the result of each check of the receipt, as JSON types."""
        assert self.opened.receipt is not None
        checks = verify(self.opened.receipt, {"report.html": page}, **witness)
        return [asdict(check) for check in checks]

    def before(self, question: Question) -> list[Point]:
        """Return the power of the original plan at levels, or [] if its settings are unchanged."""
        if question["about"] != "plan" or self._settings(question) == self._settings({}):
            return []
        return self._plan_guarantee.powers(number_in(question, "level"))[0]

    def of_plan(self, question: Question) -> ShownGuarantee:
        return self._guarantee_of(*self._split(question))

    def tables(self, question: Question) -> Tables:
        """Return the error of every table, beside its error in the original plan."""
        now = errors(*self._split(question))
        twice = any(error.consistent is not None for error in now)
        rows = [
            [
                error.name.removesuffix(".all").replace(".", " by ")
                + (" (overall)" if error.level == "all" else ""),
                "found in the data" if error.cells is None else words.number(error.cells),
                _margin(error),
                *([_adding_up(error)] if twice else []),
                before,
                "–" if error.gap is None else words.number(error.gap),
            ]
            for error, before in zip(now, self._own_margins, strict=True)
        ]
        head = ["Table", "Cells", "Margin of error (90%)"]
        head += ["After consistency (90%)"] * twice + ["Original plan", "Times the least error"]
        note = _TWICE if twice else _LARGEST if searched(self._plan) else ""
        note = f"{note} {GAP.format('the stated number of')}".strip()
        return Tables(head, rows, note, self._toml(question))

    def plan_with(self, question: Question) -> Plan:
        """Return the plan with the budget and the shares of a question."""
        return Plan.from_dict(sections_of(self._toml(question)))

    def scenarios(self, question: Question) -> Scenarios:
        """Bound the power of tests of claims about each single attribute."""
        plan, scale = self._split(question)
        level, guarantee = number_in(question, "level"), self.guarantee(question)
        guessing, holder = level_percent(level), plan.unit.protects
        curves: dict[Mechanism, tuple[float, list[Point]]] = {}
        rows: list[list[str]] = []
        named: list[NamedCurve] = []
        for attributes, within in usual(plan):
            name, known = " and ".join(attributes), words.about(attributes, within)
            if moves_total(plan, attributes, within):
                rows.append([f"The {holder}’s {known}", guessing, "no limit"])
                continue
            mechanism = concerning(plan, attributes, within, scale)
            if mechanism not in curves:  # if units have ids, most scenarios change the same tables
                here, *powers = mechanism.tradeoff().powers([level, *FEW])
                points = [(a, max(a, p.upper)) for a, p in zip(FEW, powers, strict=True)]
                curves[mechanism] = max(level, here.upper), [(0.0, 0.0), *points]
            power, points = curves[mechanism]
            rows.append([f"The {holder}’s {known}", guessing, words.percent(power)])
            short = f"{name} in {within}" if within else name
            named.append(NamedCurve(short, "scenario", points))
        if plan.unit.neighboring == "replace-one":
            anything = words.percent(guarantee.power(level))
            but = f" but {' and '.join(plan.held)}" if plan.held else ""
            rows.append([f"Anything{but} in the {holder}’s record", guessing, anything])
        named.sort(key=lambda curve: -curve.points[-1][1])
        head = ["A claim about", "Guessing", "True positive rate (at most)"]
        return Scenarios(head, rows, named[:MAX_SCENARIO_CURVES], FEW[-1])

    def _toml(self, question: Question) -> str:
        _, scale = self._split(question)
        plan, sections = self._plan, self.opened.sections
        written = copy.deepcopy(dict(sections or {}))
        if plan.disjoint:  # a query with a partition stands for one query per key
            canonical = plan.canonical()
            written |= {name: canonical[name] for name in ("query", "budget", "disjoint")}
        given = self._weights_asked(question)
        split = given != _weights(self._shares)
        if split or scale != plan.scale:
            # Another guarantee would need other noise than the noise on the screen.
            outright = sum((entry.failure for entry in plan.entries()), Fraction(0))
            more = {"delta": str(outright)} if outright else {}
            written["budget"] = {"zcdp": str(1 / scale), **more, **plan.unspent_field()}
        if split:
            shares = dict(zip((q.name for q in self._measured_queries), given, strict=True))
            for query in written["query"]:
                name = query.get("name", query["measure"])
                if name in shares:
                    part = (1 - plan.unspent) * Fraction(shares[name], sum(given))
                    query["share"] = f"{part.numerator}/{part.denominator}"
        return toml_text(written)

    def _guarantee_of(self, plan: Plan, scale: Fraction) -> ShownGuarantee:
        own = plan is self.opened.plan and scale == plan.scale
        mechanism, unit = plan.at_scale(scale), plan.unit
        return ShownGuarantee(
            mechanism.tradeoff(),
            plan.budget if own and plan.admits(mechanism) else None,
            'plan = ny.Plan.load("plan.toml")  # as below\ncurve = plan.mechanism().tradeoff()',
            words.known(unit.protects, plan.held),
            words.claim(unit.neighboring, unit.protects, plan.unit_rows_in_all, plan.held),
            [
                (
                    "Rho (zCDP)",
                    words.number(float((1 - plan.left) / scale)),
                    "of all tables together",
                )
            ],
        )

    @property
    def _plan(self) -> Plan:
        if self.opened.plan is None:
            raise ValueError("No plan is open. Start with: neyman explore plan.toml")
        return self.opened.plan

    @cached_property
    def _plan_guarantee(self) -> ShownGuarantee:
        return self._guarantee_of(self._plan, self._plan.scale)

    @cached_property
    def _own_margins(self) -> list[str]:
        return [_margin(error) for error in errors(self._plan)]

    @cached_property
    def _measured_queries(self) -> list[Query]:
        """Return the declared queries that take a share of the budget."""
        taking = {entry.query for entry in self._plan.entries() if entry.public is None}
        return [q for q in self._plan.queries if q.name in taking and not q.searched]

    @cached_property
    def _shares(self) -> list[Fraction]:
        """Return each measured query's share, with that of the histogram for its bounds."""
        return [declared_share(query, self._plan.unit) for query in self._measured_queries]

    def _settings(self, question: Question) -> tuple[object, list[int]]:
        return question.get("rho"), self._weights_asked(question)

    def _weights_asked(self, question: Question) -> list[int]:
        given, queries = question.get("weights"), self._measured_queries
        if given is None:
            return _weights(self._shares)
        weights = cast(list[object], given) if isinstance(given, list) else []
        good = [w for w in weights if type(w) is int and 0 < w <= 1000]
        if len(good) != len(queries) or len(weights) != len(queries):
            raise ValueError(f"weights must be {len(queries)} whole numbers from 1 to 1000")
        return good

    def _split(self, question: Question) -> tuple[Plan, Fraction]:
        """Return the plan with the shares of a question, and 1 / rho for the question's rho."""
        key = json.dumps([question.get("rho"), question.get("weights")])
        if self._moved is None or self._moved[0] != key:
            self._moved = key, self._resplit(question)
        return self._moved[1]

    def _resplit(self, question: Question) -> tuple[Plan, Fraction]:
        plan, measured = self._plan, self._measured_queries
        scale = plan.scale
        if question.get("rho") is not None:
            scale = 1 / Fraction(repr(number_in(question, "rho")))
        given = self._weights_asked(question)
        if given == _weights(self._shares):
            return plan, scale
        total = sum(self._shares, Fraction(0))
        factors: dict[str, Fraction] = {}
        for query, weight, share in zip(measured, given, self._shares, strict=True):
            factor = total * Fraction(weight, sum(given)) / share
            factors[query.name] = factor
            if query.search is not None:
                factors[query.search.histogram] = factor
            if query.detail is not None:
                factors[query.detail.first] = factor
        queries = tuple(
            replace(query, share=query.share * factors.get(query.name, 1)) for query in plan.queries
        )
        return plan.changed(queries=queries), scale


def _margin(error: TableError) -> str:
    if error.standard_error == 0:
        return "exact: declared"
    if error.half_width is not None:
        return f"±\u00a0{words.number(error.half_width)}"
    if not error.by_rows:
        return "–"
    rows, _, half = error.by_rows[-1]
    if error.by_rank:
        return f"±\u00a0{words.number(half * rows)} ranks (of {words.number(rows)} rows)"
    return f"±\u00a0{words.number(half)} (of {words.number(rows)} rows)"


def _adding_up(error: TableError) -> str:
    """Return the largest half width of a published interval after consistency, as text."""
    if error.consistent is None:
        return "–"
    largest = error.consistent[1]
    return f"±\u00a0{words.number(Z90 * largest + 0.5)}" if largest else "exact"


def _weights(shares: list[Fraction]) -> list[int]:
    """Return shares in whole thousandths of their sum, each at least 1. They add up to 1000."""
    total = sum(shares, Fraction(0))
    exact = [1000 * share / total for share in shares]
    weights = [max(1, math.floor(part)) for part in exact]
    order = sorted(range(len(exact)), key=lambda k: weights[k] - exact[k])
    for k in order[: max(0, 1000 - sum(weights))]:
        weights[k] += 1
    return weights
