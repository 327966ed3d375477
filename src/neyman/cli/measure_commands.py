"""Run ``neyman account`` and ``neyman calibrate``: the cost of noise, and the noise at a cost."""

# Arguments of Matplotlib's methods have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import neyman
from neyman import accounting, curves, publishing
from neyman.cli.commands import command
from neyman.cli.plan_commands import error_lines
from neyman.cli.terminal import Answer, check_suffix, columns, ends, working, write
from neyman.numerics.bound import Bound, directed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neyman.accounting.calibrate import Budget

MAX_MU_RATIO = 1.5  # show a supremum up to this multiple of the nearest mu

_Row = tuple[str, dict[str, float], Bound]


@command("account", "'Gaussian(sigma=2) * 10' --delta 1e-6")
def account(
    mechanism: str,
    *,
    delta: list[float] = [1e-6],  # noqa: B006 (typer copies it)
    epsilon: list[float] = [],  # noqa: B006
    level: list[float] = [0.01, 0.05, 0.10],  # noqa: B006
    baseline: list[float] = [],  # noqa: B006
) -> Answer:
    """Compute certified epsilon, delta, and power, and success at a baseline.

    Args:
        mechanism: A mechanism: 'Gaussian(sigma=2) * 10 + Laplace(scale=20)'.
        delta: Delta at which to report epsilon.
        epsilon: Epsilon at which to report delta.
        level: Level (false positive rate) at which to report power.
        baseline: Best chance of a right guess without the release, at which to report the success
            of re-identification, attribute inference, or reconstruction.
    """
    from neyman.cli.expression import mechanism_from

    described = mechanism_from(mechanism)
    curve = described.tradeoff()
    low, high = curves.USUAL_LEVELS
    with working("computing bounds"):
        nearest = curve.nearest_gaussian()
        safe = curve.gdp(levels=curves.USUAL_LEVELS)
        epsilons, deltas = curve.epsilons(delta), curve.deltas(epsilon)
        powers = {a: curve.power(a) for a in (low, *level)}
        rows: list[_Row] = [
            *(("epsilon", {"delta": d}, bound) for d, bound in zip(delta, epsilons, strict=True)),
            ("safe_mu", {"low": low, "high": high}, safe.mu),
            *(("delta", {"epsilon": e}, bound) for e, bound in zip(epsilon, deltas, strict=True)),
            *(("power", {"level": a}, bound) for a, bound in powers.items()),
            *(("success", {"baseline": b}, curve.success(b)) for b in baseline),
            ("advantage", {}, curve.advantage()),
            ("nearest_gaussian_mu", {}, nearest.mu),
            ("nearest_gaussian_distance", {}, nearest.distance),
            ("gdp", {}, curve.gdp()),
            ("zcdp", {}, curve.zcdp()),
            ("pure", {}, curve.pure()),
        ]

    def lines() -> Iterator[RenderableType]:
        note = curves.source_note(curve.sources)
        yield repr(described)
        if note:
            yield note.strip()
        yield columns(("question", "at least", "at most"), _questions(rows, nearest.mu))
        yield f"\nsafe_mu: {safe.sentence}. nearest_gaussian_mu is not a guarantee."
        yield from map(accounting.stated_condition, curve.statements)
        a = level[len(level) // 2] if level else 0.0
        if 0 < a < 1:
            power, neighboring = powers[a].upper, curve.neighboring
            yield f"\n{note}{accounting.sentences.power(a, power, neighboring=neighboring)}"
            yield f"\n{note}{accounting.scale_sentence(a, max(a, power))}"
        if baseline:
            shared = (accounting.PRIOR_CONDITION, *accounting.conditions_of(curve.neighboring))
            yield f"\nConditions of success: {' '.join(shared)}"

    answers = [{"question": name, **at, **ends(bound)} for name, at, bound in rows]
    return Answer({"mechanism": described.to_dict(), "answers": answers}, lines())


def _questions(rows: list[_Row], nearest: Bound) -> Iterator[tuple[str, str, str]]:
    """Yield each question and its bounds, but a supremum only if it is near the nearest mu."""
    for name, at, bound in rows:
        mu = {"gdp": bound.upper, "zcdp": math.sqrt(2 * bound.upper)}.get(name)
        if mu is None or mu <= MAX_MU_RATIO * nearest.upper < math.inf:
            # In full: a rounded level beside a bound of nine digits states a false bound.
            where = ", ".join(f"{k}={float(v)!r}".removesuffix(".0") for k, v in at.items())
            low, high = directed(bound.lower, 9, up=False), directed(bound.upper, 9, up=True)
            yield f"{name}({where})", low, high


@command("calibrate", "'Gaussian(x) * 10' --power 0.1 --level 0.05")
def calibrate(
    mechanism: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    gdp: float | None = None,
    zcdp: float | None = None,
    power: float | None = None,
    level: float | None = None,
    success: float | None = None,
    baseline: float | None = None,
    error: Annotated[tuple[str, float] | None, typer.Option(metavar="TABLE NUMBER")] = None,
    interval: bool = False,
    consistent: bool = False,
    out: Path | None = None,
) -> Answer:
    """Find the parameter value that just meets a target.

    With a plan (plan.toml), find the smallest privacy loss that gives a table its target error, as
    in --error 'county total' 25, or the smallest error of each table under a target.

    Args:
        mechanism: A mechanism with x for the unknown, 'Gaussian(x) * 10', or a plan.toml.
        epsilon: Target: epsilon, with --delta.
        delta: With --epsilon: delta, 0 if not given.
        gdp: Target: mu of Gaussian DP.
        zcdp: Target: rho of zCDP.
        power: Target: largest true positive rate of an attacker, with --level.
        level: With --power: false positive rate of the attacker.
        success: Target: largest chance of a right guess, with --baseline.
        baseline: With --success: best chance of a right guess without the release.
        error: With a plan: a table and its target standard error.
        interval: With --error: the number is half the 90% interval.
        consistent: With --error: the number is the error after least squares.
        out: With a plan: the SVG file for the curve.
    """
    from neyman.cli.expression import mechanism_from

    options = {
        "epsilon": epsilon,
        "delta": delta,
        "gdp": gdp,
        "zcdp": zcdp,
        "power": power,
        "level": level,
        "success": success,
        "baseline": baseline,
    }
    budget = {name: value for name, value in options.items() if value is not None}
    if mechanism.endswith(".toml"):
        return _calibrate_plan(Path(mechanism), budget, error, interval, consistent, out)
    if error is not None or interval or consistent or out is not None:
        raise ValueError(
            "--error, --interval, --consistent and --out are for a plan: give the path of a "
            "file that ends in .toml"
        )
    target = _target(budget)
    if mechanism_from(mechanism, x=1.0) == mechanism_from(mechanism, x=2.0):
        raise ValueError(
            f"mechanism = {mechanism!r} has no x: write x for the unknown number, "
            "as in 'Gaussian(x) * 10'"
        )
    with working("finding the parameter"):
        x = neyman.calibrate(lambda value: mechanism_from(mechanism, x=value), target)
    result = mechanism_from(mechanism, x=x)
    return Answer({"x": x, "mechanism": result.to_dict()}, [f"x = {x!r}", repr(result)])


def _target(budget: Mapping[str, float]) -> Budget:
    match list(budget):
        case ["epsilon"] | ["epsilon", "delta"]:
            return neyman.approximate(budget["epsilon"], budget.get("delta", 0.0))
        case ["gdp"]:
            return neyman.gdp(budget["gdp"])
        case ["zcdp"]:
            return neyman.zcdp(budget["zcdp"])
        case ["power", "level"] | ["success", "baseline"]:
            return neyman.at_most(**budget)
        case given:
            raise ValueError(
                "give one target: --epsilon with --delta, --gdp, --zcdp, --power with --level, or "
                "--success with --baseline; given: "
                + (", ".join(f"--{name}" for name in given) or "none")
            )


def _calibrate_plan(
    path: Path,
    budget: dict[str, float],
    error: tuple[str, float] | None,
    interval: bool,
    consistent: bool,
    out: Path | None,
) -> Answer:
    """Report the cost of an error, or errors at a guarantee.

    Exactly one is given: ``error``, a table and its target, or ``budget``, fields of a plan's
    budget. The plan's own budget is ignored. ``out`` is the SVG file for the curve.
    """
    if (error is None) == (not budget):
        raise ValueError(
            "give --error with a table and a number, or one target (--zcdp, --gdp, --power "
            "with --level, --success with --baseline, --epsilon with --delta), and not both"
        )
    if error is None and (interval or consistent):
        raise ValueError("--interval and --consistent modify --error; give --error")
    check_suffix(out, ".svg")
    plan = neyman.Plan.load(path)
    with working("finding the noise"):
        if error is None:
            result = publishing.at_guarantee(plan, budget)
        else:
            result = publishing.at_error(plan, *error, interval=interval, consistent=consistent)
    if out is not None:
        write(out, _figure(result), "w")
    return Answer(result.to_dict(), _calibration_lines(result, plan, out))


def _calibration_lines(
    result: publishing.Calibration, plan: neyman.Plan, out: Path | None
) -> Iterator[RenderableType]:
    words, point = accounting.digits, result.point
    yield from error_lines(result.errors, plan)
    fields = result.budget | plan.unspent_field()
    yield "\n[budget] " + ", ".join(f'{name} = "{value}"' for name, value in fields.items())
    yield (
        f"epsilon {words.number(point.epsilon)} at delta 1e-6; power "
        f"{words.percent(point.power)} at level 5%\n"
    )
    rows = (
        (
            f"{at.error:.4g} {'●' if math.isclose(at.error, point.error, rel_tol=1e-6) else '·'}",
            words.number(at.rho),
            words.number(at.epsilon),
            words.percent(at.power),
            "█" * max(1, round(24 * at.power)),
        )
        for at in result.curve
    )
    yield columns((f"error of {result.named}", "rho", "epsilon", "power", ""), rows)
    if out is not None:
        yield str(out)


def _figure(result: publishing.Calibration) -> str:
    """Draw epsilon against the error of the table, as SVG."""
    shown = [p for p in result.curve if 0 < p.epsilon < math.inf and p.error > 0]
    if len(shown) < 2:
        raise ValueError(
            "--out: there is no curve to draw; its epsilon or its error is 0 or infinite throughout"
        )
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    from neyman.display.plots.direct_labels import COLORS, fresh

    picture, here = Figure(figsize=(7.2, 4.4), layout="constrained"), result.point
    axes = fresh(picture.subplots())
    axes.loglog([p.error for p in shown], [p.epsilon for p in shown], color=COLORS[0])
    axes.plot(here.error, here.epsilon, "o", color=COLORS[1])
    label = f"{here.error:.4g}: epsilon {here.epsilon:.3g}"
    axes.annotate(
        label, (here.error, here.epsilon), (8, 0), textcoords="offset points", va="center"
    )
    axes.set_xlabel(f"standard error of a cell of {result.named}")
    axes.set_ylabel("epsilon at delta 1e-6")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    svg, title = io.StringIO(), f"What {result.table} costs at each standard error"
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "neyman"}):
        picture.savefig(svg, format="svg", metadata={"Title": title, "Date": None})
    return svg.getvalue()
