"""The figures of the census page, each as the text of an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from neyman import Bound, posterior_ratio, zcdp
from neyman.accounting import posterior_ratios
from reproductions.census_2020 import redistricting as census
from reproductions.panels import Axis, Label, Line, Panel, figure

__all__ = [
    "LEVELS",
    "NOISE",
    "TABLE",
    "Asked",
    "apart",
    "decade",
    "delta_figure",
    "discrete_figure",
    "few_digits",
    "nearest",
    "posterior_figure",
    "power_figure",
]

Point = tuple[float, float]

LEVELS = np.concatenate(
    [[1e-6, 1e-4, 1e-3, 5e-3], 0.01 * np.arange(1, 20), 0.05 * np.arange(4, 20)]
)
SMALL = 10.0 ** np.arange(-12, -0.1, 0.2)  # levels at which posteriors are asked
TEN = math.log(10)
TABLE, NOISE = slice(0, len(census.TESTED)), slice(len(census.TESTED), None)


@dataclass(frozen=True)
class Asked:
    """What was asked of one scenario.

    Args:
        scenario: whose concern it is.
        rho: the sum of the budgets.
        count: of queries.
        powers: at the levels of the tables.
        curves: over `LEVELS`.
        true_record: epsilon, and the chance that the true record's posterior grows by e^epsilon.
        ten: the probabilities of growing more than tenfold: of the true record and of any
            statement, exact and by rho.
    """

    scenario: census.Scenario
    rho: Fraction
    count: int
    powers: census.Powers
    curves: census.Powers
    true_record: list[Point]
    ten: tuple[Bound, Bound, Bound, Bound]

    @staticmethod
    def of(scenario: census.Scenario) -> Asked:
        """Everything that the page needs."""
        chosen = scenario.queries()
        mechanism = census.release(chosen)
        curve, bare = mechanism.tradeoff(), zcdp(mechanism.rho())
        powers = census.Powers.of(mechanism, [*census.TESTED, *LEVELS], curve)
        return Asked(
            scenario,
            mechanism.rho(),
            len(chosen),
            powers.part(TABLE),
            powers.part(NOISE),
            census.true_record(curve, SMALL.tolist()),
            (
                posterior_ratio(curve, TEN, "arbitrary-prior"),
                posterior_ratio(bare, TEN, "arbitrary-prior"),
                posterior_ratio(curve, TEN, "knows-the-rest"),
                posterior_ratio(bare, TEN, "knows-the-rest"),
            ),
        )


PER_CENT = tuple((k / 4, f"{25 * k}%") for k in range(5))
LEVEL = Axis("false positive rate (level)", PER_CENT, few=2)
POWER = Axis("true positive rate (power)", PER_CENT, few=2)


def power_figure(asked: Sequence[Asked]) -> str:
    """Power against level, one panel per scenario."""
    panels = []
    for a in asked:
        first = a is asked[0]
        result = 100 * float(nearest(a.powers.exact[1], 3))
        panels.append(
            Panel(
                *_heading(a),
                (
                    Line([(0, 0), (1, 1)], "guess", _text(first, "guessing", (0.64, 0.58))),
                    Line(
                        _curve(a.curves.zcdp),
                        "bound",
                        _text(
                            first,
                            f"any release with ρ {float(a.rho):.2f},\nat most",
                            (0.24, 0.62),
                            (0.045, 0.93),
                        ),
                    ),
                    Line(
                        _curve(a.curves.exact),
                        "exact",
                        _text(first, "this release, exact", (0.24, 0.78), (0.085, 0.82)),
                    ),
                ),
                ((0.05, a.powers.exact[1].upper),),
                (Label(f"{result:.1f}% at level 5%", (0.97, 0.06), anchor="end"),),
            )
        )
    return figure(panels, LEVEL, POWER, title="Power against level for each scenario")


def posterior_figure(asked: Sequence[Asked]) -> str:
    """How probably a posterior grows by more than a factor, one panel a scenario."""
    x = Axis(
        "factor by which a posterior grows because of the record",
        tuple((10.0**k, f"×{10**k:,}" if k < 4 else f"×10{'⁴⁵⁶'[k - 4]}") for k in range(7)),
        logarithmic=True,
        few=2,
    )
    panels = []
    for a in asked:
        first = a is asked[0]
        factors = np.geomspace(1, 1e6, 49)
        logs = np.log(factors).tolist()
        bare = zcdp(a.rho)
        certain, other = (
            _points(factors.tolist(), posterior_ratios(bare, logs, who))
            for who in ("arbitrary-prior", "knows-the-rest")
        )
        exact = [(1.0, 1.0), *((math.exp(e), p) for e, p in reversed(a.true_record))]
        # Who knows the rest has e^-epsilon times as much: see `posterior_ratio`.
        panels.append(
            Panel(
                *_heading(a),
                (
                    Line(certain, "bound", _text(first, "the true record,\nby ρ", (4e3, 0.4))),
                    Line(
                        other,
                        "bound",
                        _text(first, "any statement,\nby ρ", (52, 0.025)),
                        dashed=True,
                    ),
                    Line(exact, "exact", _text(first, "the true record,\nexact", (1.3e3, 3e-4))),
                    Line(
                        [(f, p / f) for f, p in exact],
                        "exact",
                        _text(first, "any statement,\nexact", (22, 1e-5)),
                        dashed=True,
                    ),
                ),
            )
        )
    return figure(
        panels,
        x,
        _chances("probability of more, at most", 6, 2),
        title="How probably a posterior grows, for each scenario",
    )


def delta_figure(total: Asked) -> str:
    """How probably epsilon is exceeded, by the noise itself and by rho."""
    curve, bare = total.scenario.release().tradeoff(), zcdp(total.rho)
    epsilons = np.arange(0.25, 18.01, 0.25).tolist()
    delta = [(e, curve.delta(e).upper) for e in epsilons]
    far = 10.0 ** np.arange(-19, -0.1, 0.5)
    implied = [(0.0, 1.0), *reversed(census.true_record(bare, far.tolist()))]
    usual = _points(epsilons, posterior_ratios(bare, epsilons, "arbitrary-prior"))
    exact = [(0.0, 1.0), *reversed(census.true_record(curve, far.tolist()))]
    x = Axis("ε", tuple((3.0 * k, f"{3 * k}") for k in range(7)))
    panel = Panel(
        "Anything",
        f"ρ {float(total.rho):.2f}",
        (
            Line(delta, "other", Label("δ of (ε, δ), exact", (0.6, 1e-6), _at(delta, 3e-7))),
            Line(exact, "exact", Label("odds, exact", (0.6, 1e-4), _at(exact, 1e-4))),
            Line(
                usual,
                "bound",
                Label(
                    "odds, by ρ: formula\n(dashed: all it implies)", (10.2, 0.3), _at(usual, 0.03)
                ),
            ),
            Line(implied, "fourth", dashed=True),
        ),
    )
    return figure(
        [panel],
        x,
        _chances("probability of more, at most", 10),
        columns=1,
        title="How probably epsilon is exceeded",
    )


def discrete_figure(total: Asked, alone: census.Powers) -> str:
    """Exact and Gaussian power: one query of two cells with all of rho, and all queries."""
    panels = []
    for head, curves in (
        ("One query of two cells", alone),
        (f"{total.count} queries", total.curves),
    ):
        exact, normal = curves.exact, curves.gaussian
        far = f"up to {few_digits(apart(curves))}"
        if curves is not alone:
            far = f"less than {decade(apart(curves))}"
        panels.append(
            Panel(
                head,
                f"ρ {float(total.rho):.2f}; apart by {far}",
                (
                    Line([(0, 0), (1, 1)], "guess"),
                    Line(_curve(normal), "other", Label("Gaussian", (0.3, 0.7), (0.12, 0.87))),
                    Line(
                        _curve(exact),
                        "exact",
                        Label("exact", (0.3, 0.6), (0.035, 0.68)),
                        dashed=curves is not alone,
                    ),
                ),
            )
        )
    return figure(
        panels, LEVEL, POWER, title="Discrete is not Gaussian", columns=2, large=1, cell=(410, 340)
    )


def _chances(title: str, decades: int, few: int = 1) -> Axis:
    ticks = tuple((10.0**-k, _ten_to(-k)) for k in range(decades, -1, -1))
    return Axis(title, ticks, logarithmic=True, few=few)


def _points(at: Iterable[float], bounds: Iterable[Bound]) -> list[Point]:
    return [(x, bound.upper) for x, bound in zip(at, bounds, strict=True)]


def _curve(bounds: Iterable[Bound]) -> list[Point]:
    return [(0.0, 0.0), *_points(LEVELS.tolist(), bounds), (1.0, 1.0)]


def _at(points: Sequence[Point], height: float) -> Point:
    """Where a falling line passes a height, about."""
    return min(points, key=lambda p: abs(math.log(max(p[1], 1e-300) / height)))


def _text(wanted: bool, text: str, at: Point, to: Point | None = None) -> Label | None:
    return Label(text, at, to) if wanted else None


def nearest(bound: Bound, digits: int) -> str:
    """Round to the nearest, which both ends must share; else to the safe end, up."""
    low, high = f"{bound.lower:.{digits}f}", f"{bound.upper:.{digits}f}"
    return high if low == high else f"{math.ceil(bound.upper * 10**digits) / 10**digits:.{digits}f}"


def few_digits(x: float) -> str:
    """Two significant digits, rounded up."""
    if x <= 0:
        return "0"
    size = math.floor(math.log10(x))
    most = math.ceil(x / 10.0 ** (size - 1) * (1 - 1e-12))
    size, most = (size + 1, 10) if most == 100 else (size, most)
    if size >= -3:
        return f"{most * 10.0 ** (size - 1):.2g}"
    return f"{most / 10:.1f}×{_ten_to(size)}"


def decade(x: float) -> str:
    """Return the power of ten next above, for a size below 1 whose digits say nothing."""
    return _ten_to(math.floor(math.log10(x)) + 1)


def _ten_to(size: int) -> str:
    return "1" if size == 0 else f"10⁻{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(c)] for c in str(-size))}"


def apart(powers: census.Powers) -> float:
    """Return the largest distance between the Gaussian and the exact power, both ends counted."""
    return max(
        max(g.upper - e.lower, e.upper - g.lower)
        for g, e in zip(powers.gaussian, powers.exact, strict=True)
    )


def _heading(a: Asked) -> tuple[str, str]:
    """Head and note of a scenario's panel."""
    rho = f"ρ {float(a.rho):.2f}"
    if a.scenario.name == "all":
        return "Anything", f"{rho}, {a.count} queries"
    short = a.scenario.concern.replace(", and", ",").replace(" and", ",")
    short = short.replace("block within block group", "block").replace("within", "in")
    return f"{a.scenario.name}: {rho}", short
