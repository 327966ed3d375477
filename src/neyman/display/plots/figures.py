"""Draw figures for a slide or a paper. Each function returns the axes.

Figures show the certified side: lower bounds on type II errors, and upper bounds otherwise. Lines
carry their names, in colors that everyone can distinguish (Okabe and Ito's). Sizes follow
matplotlib's ``font.size``. Figures need matplotlib (``pip install 'neyman[release]'``), which is
imported at the first figure.
"""

# Some methods of matplotlib have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from neyman.accounting.semantics.testing import positive_predictive_value
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.display.plots.direct_labels import (
    COLORS,
    PALE,
    LabeledLine,
    draw,
    fresh,
    name_lines,
    percent,
)
from neyman.mechanisms.base import Composed, Mechanism
from neyman.numerics import check
from neyman.numerics.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["budget", "composition", "posterior", "power", "profile", "tradeoff"]

LOG_AXIS_ZERO = 1e-300  # stands for zero on a logarithmic axis


def tradeoff(of: Any, *, axes: Axes | None = None) -> Axes:
    """Draw the trade-off curve: the least type II error at each type I error.

    Args:
        of: a mechanism, curve, plan, or release, or several in a list or a dict. The keys of a
            dict, or the printed forms in a list, are the names of the lines.
        axes: the axes to draw on. The default is a new figure.

    Returns:
        The axes. The lines show the lower end of each `Bound`, the safe side, at 240 levels.
        Between the levels they are straight, above a convex curve by less than a line's width.

    Raises:
        TypeError: ``of`` has no trade-off curve.
        ImportError: matplotlib is not installed.

    Examples:
        >>> import neyman as ny
        >>> from neyman.display.plots import figures as plots
        >>> axes = plots.tradeoff({"once": ny.Gaussian(2), "ten times": ny.Gaussian(2) * 10})
        >>> axes.figure.savefig("tradeoff.svg")
    """
    levels = np.concatenate([np.geomspace(1e-6, 0.05, 80), np.linspace(0.055, 1.0, 160)])
    asked = _figure_items(of)
    axes = fresh(axes)
    lines: list[LabeledLine] = []
    for name, curve, color in asked:
        errors = [1.0 - curve.power(0.0).upper, *(1 - b.upper for b in curve.powers(levels))]
        lines.append(draw(axes, name, [0.0, *levels], errors, color))
    lines.append(draw(axes, "perfect privacy", [0, 1], [1, 0], PALE, linewidth=1, dashes=(4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("type I error (false positive rate)")
    axes.set_ylabel("type II error: true claims missed, at least")
    name_lines(axes, lines)
    return axes


def power(of: Any, *, least: float = 1e-4, axes: Axes | None = None) -> Axes:
    """Draw the power of the best test at each level, on logarithmic axes.

    Args:
        of, axes: the arguments of `tradeoff`.
        least: the smallest level, in (0, 0.1].

    Returns:
        The axes. The lines show the upper end of each `Bound`, the safe side. At each level, power
        divided by level is the factor by which a positive result multiplies odds.

    Raises:
        ValueError: ``least`` is out of range.
        TypeError, ImportError: `tradeoff` would raise it.

    Examples:
        >>> import neyman as ny
        >>> from neyman.display.plots import figures as plots
        >>> axes = plots.power(ny.Laplace(1), least=1e-6)
        >>> axes.figure.savefig("power.svg")
    """
    if not 0 < check.number("least", least) <= 0.1:
        raise ValueError(f"least = {least!r} must be above 0 and at most 0.1")
    levels = np.geomspace(least, 1.0, 160)
    asked = _figure_items(of)
    axes = fresh(axes)
    lines: list[LabeledLine] = []
    for name, curve, color in asked:
        powers = [bound.upper for bound in curve.powers(levels)]
        lines.append(draw(axes, name, levels, powers, color))
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
    lines.append(draw(axes, "guessing", [least, 1], [least, 1], PALE, linewidth=1, dashes=(4, 3)))
    axes.set_xlabel("false positive rate (level)")
    axes.set_ylabel("true positive rate (power), at most")
    name_lines(axes, lines)
    return axes


def profile(of: Any, *, least: float = 1e-10, axes: Axes | None = None) -> Axes:
    """Draw the privacy profile: delta at each epsilon.

    Args:
        of, axes: the arguments of `tradeoff`.
        least: the smallest delta that is drawn, in (0, 0.1].

    Returns:
        The axes, from epsilon 0 until the last curve falls below ``least``. The lines show the
        upper end of each `Bound`, the safe side, at 160 epsilons.

    Raises:
        ValueError: ``least`` is out of range, or no curve ever falls so low.
        TypeError, ImportError: `tradeoff` would raise it.

    Examples:
        >>> import neyman as ny
        >>> from neyman.display.plots import figures as plots
        >>> axes = plots.profile([ny.Laplace(1), ny.Gaussian(2)])
        >>> axes.figure.savefig("profile.svg")
    """
    if not 0 < check.number("least", least) <= 0.1:
        raise ValueError(f"least = {least!r} must be above 0 and at most 0.1")
    curves = list(_figure_items(of))
    ends = [curve.epsilon(least).upper for _, curve, _ in curves]
    finite = [end for end in ends if math.isfinite(end) and end > 0]
    if not finite:
        raise ValueError(
            f"of = {of!r}: no epsilon above 0 has a delta of {least:g}; give least = a larger delta"
        )
    last = max(finite)
    axes = fresh(axes)
    lines: list[LabeledLine] = []
    for name, curve, color in curves:
        epsilons: Array = np.linspace(0.0, float(last), 160)
        deltas = [max(curve.delta(float(e)).upper, LOG_AXIS_ZERO) for e in epsilons]
        lines.append(draw(axes, name, epsilons, deltas, color))
    axes.set(yscale="log", xlim=(0, last), ylim=(least, 1))
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta, at most")
    name_lines(axes, lines)
    return axes


def posterior(of: Any, *, level: float = 0.05, axes: Axes | None = None) -> Axes:
    """Draw the posterior of a claim after the best test confirms it, against its prior.

    The posterior is prior power / (prior power + (1 - prior) level).

    Args:
        of, axes: the arguments of `tradeoff`.
        level: probability that the test confirms a false claim, in (0, 1).

    Returns:
        The axes. The lines use the upper end of the power, the safe side. They assume tests at this
        level, and an attacker for whom the other records say nothing about the person.

    Raises:
        ValueError: ``level`` is out of range.
        TypeError, ImportError: `tradeoff` would raise it.

    Examples:
        >>> import neyman as ny
        >>> from neyman.display.plots import figures as plots
        >>> axes = plots.posterior(ny.Gaussian(2), level=0.01)
        >>> axes.figure.savefig("posterior.svg")
    """
    if not 0 < check.number("level", level) < 1:
        raise ValueError(f"level = {level!r} must be above 0 and below 1")
    priors = np.linspace(0.0, 1.0, 121)
    asked = _figure_items(of)
    axes = fresh(axes)
    lines: list[LabeledLine] = []
    for name, curve, color in asked:
        most = min(curve.power(level).upper, 1.0)
        after = [positive_predictive_value(most, level, float(p)) for p in priors]
        lines.append(draw(axes, name, priors, after, color))
    lines.append(draw(axes, "nothing learned", [0, 1], [0, 1], PALE, linewidth=1, dashes=(4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel(f"prior probability of the claim (test at level {level:g})")
    axes.set_ylabel("posterior after a positive result, at most")
    percent(axes.xaxis, axes.yaxis)
    name_lines(axes, lines)
    return axes


def composition(
    of: Any, *, most: int = 1000, delta: float = 1e-6, axes: Axes | None = None
) -> Axes:
    """Draw epsilon at a delta against the number of releases.

    Args:
        of, axes: the arguments of `tradeoff`. Mechanisms compose by their losses, and bare
            guarantees in their own currency.
        most: the largest number of releases, at least 2.
        delta: the delta of each epsilon, in (0, 1).

    Returns:
        The axes, both logarithmic. The lines show the upper end of each `Bound`, the safe side, at
        up to 16 numbers of releases, if it is finite.

    Raises:
        ValueError: an argument is out of range.
        TypeError, ImportError: `tradeoff` would raise it.

    Examples:
        >>> import neyman as ny
        >>> from neyman.display.plots import figures as plots
        >>> axes = plots.composition(ny.Gaussian(10), most=100)
        >>> axes.figure.savefig("composition.svg")
    """
    most = check.integer("most", most, 2)
    if not 0 < check.number("delta", delta) < 1:
        raise ValueError(f"delta = {delta!r} must be above 0 and below 1")
    counts = sorted({round(c) for c in np.geomspace(1, most, 16)})
    asked = _figure_items(of, _composable)
    axes = fresh(axes)
    lines: list[LabeledLine] = []
    for name, given, color in asked:
        curves = [given * n if isinstance(given, Mechanism) else given**n for n in counts]
        epsilons = [_curve(curve).epsilon(delta).upper for curve in curves]
        lines.append(draw(axes, name, counts, epsilons, color))
    axes.set(xscale="log", yscale="log", xlim=(1, most))
    axes.set_xlabel("releases")
    axes.set_ylabel(f"epsilon at delta {delta:g}, at most")
    name_lines(axes, lines)
    return axes


def budget(of: Any, *, axes: Axes | None = None) -> Axes:
    """Draw the share of a budget for each table of a plan, or each part of a composition.

    Args:
        of: a plan, or a mechanism.
        axes: as for `tradeoff`.

    Returns:
        The axes, with one bar per part. Its length is the share of rho (zCDP). A table's bar also
        has the standard deviation of its noise.

    Raises:
        TypeError: ``of`` is neither a plan nor a mechanism.
        ValueError: the total rho is 0 or infinite, so there are no shares.
        ImportError: matplotlib is not installed.

    Examples:
        >>> import neyman as ny
        >>> from neyman.display.plots import figures as plots
        >>> axes = plots.budget(ny.Gaussian(5) * 10 + ny.DiscreteGaussian(3))
        >>> axes.figure.savefig("budget.svg")
    """
    parts = _parts(of)
    total = sum(rho for _, rho, _ in parts)
    if not 0 < total < math.inf:
        raise ValueError(f"of = {of!r}: its rho is {total}; only a finite rho above 0 has shares")
    alone, axes = axes is None, fresh(axes)
    if alone:
        cast("Figure", axes.figure).set_figheight(1.0 + 0.65 * len(parts))
    places = range(len(parts))
    shares = [float(rho / total) for _, rho, _ in parts]
    axes.barh(places, shares, color=COLORS[0], height=0.36)
    beside: dict[str, Any] = {"textcoords": "offset fontsize", "va": "center"}
    for place, share, (name, _, said) in zip(places, shares, parts, strict=True):
        axes.annotate(name, (0, place - 0.36), xytext=(0, 0), **beside)
        text = f"{share:.0%}" + (f", {said}" if said else "")
        axes.annotate(text, (share, place), xytext=(0.4, 0), **beside)
    axes.set(ylim=(len(parts) - 0.6, -0.7), xlim=(0, max(shares) * 1.45))
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(f"share of the budget (all: rho = {float(total):.3g})")
    return axes


# ---- what is asked -----------------------------------------------------------------------------


def _curve(of: Any) -> Tradeoff:
    if isinstance(of, Tradeoff):
        return of
    described = _composable(of)
    return described if isinstance(described, Tradeoff) else described.tradeoff()


def _composable(of: Any) -> Mechanism | Tradeoff:
    """Return a mechanism or curve that can be composed."""
    if isinstance(of, (Mechanism, Tradeoff)):
        return of
    for name in ("mechanism", "tradeoff"):  # a plan has the first, a release or a budget the second
        ask = getattr(of, name, None)
        if callable(ask):
            answer = ask()
            if isinstance(answer, (Mechanism, Tradeoff)):
                return answer
    raise TypeError(
        f"of = {of!r} must be a mechanism, a curve, a plan or a release, several of them in a list "
        "or a mapping from names"
    )


def _figure_items(of: Any, read: Callable[[Any], Any] = _curve) -> list[tuple[str, Any, str]]:
    """Return the name, the object to draw (by ``read``), and the color of each line."""
    if isinstance(of, Mapping):
        items = [(str(name), one) for name, one in cast(Mapping[Any, Any], of).items()]
    elif isinstance(of, (list, tuple)):
        items = [(_label(one), one) for one in cast(Sequence[Any], of)]
    else:
        items = [("", of)]
    if not items or len(items) > len(COLORS):
        raise ValueError(f"of has {len(items)} curves: give 1 to {len(COLORS)} in one figure")
    return [(name, read(one), COLORS[i]) for i, (name, one) in enumerate(items)]


def _label(one: Any) -> str:
    return str(getattr(one, "name", "") or repr(one))


def _parts(of: Any) -> list[tuple[str, Fraction, str]]:
    """Return name, rho, and a note for each part of a plan or a mechanism."""
    if hasattr(of, "calibrated"):
        by_name: dict[str, tuple[Fraction, str]] = {}
        for entry, squared in of.calibrated():
            if squared:
                name = (
                    entry.query if entry.level in ("", "all") else f"{entry.query} by {entry.level}"
                )
                rho = entry.squared / (2 * squared)
                before, words = by_name.get(name, (Fraction(0), ""))
                deviation = f"noise ± {math.sqrt(squared):.3g}"
                by_name[name] = (before + rho, words if before else deviation)
        left = [("left unspent", of.left / of.scale, "")] if of.left else []
        return [(name, rho, words) for name, (rho, words) in by_name.items()] + left
    if isinstance(of, Mechanism):
        parts = of.parts if isinstance(of, Composed) else ((of, 1),)
        return [(f"{m!r} × {n:,}" if n > 1 else repr(m), n * m.rho(), "") for m, n in parts]
    raise TypeError(f"of = {of!r} must be a plan or a mechanism")
