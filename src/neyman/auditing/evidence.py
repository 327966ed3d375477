"""Represent the evidence from an attack: the claims that it refutes, with a stated confidence."""

# Arguments of Matplotlib's methods have no types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtri

from neyman.accounting.semantics.digits import number
from neyman.auditing.one_run_bounds import Guesses, polygon_level
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.display.plots.direct_labels import COLORS, PALE, fresh
from neyman.mechanisms.base import Mechanism
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.atoms import UNIT
from neyman.numerics.bound import directed
from neyman.numerics.relation import Relation, unified
from neyman.numerics.rounding import below, down

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# slack: a_refuted_mu_is_at_most_the_difference_of_quantiles
NDTRI_RELATIVE_ERROR = 64 * UNIT  # relative error of SciPy's ndtri, with room


@dataclass(frozen=True)
class Evidence(ABC):
    """Represent the result of an audit: evidence against privacy claims, never a proof of one.

    If a claim is true, `refutes` returns True with probability at most 1 - confidence. The numbers
    are floats, rounded down.

    Args:
        confidence: exact, in (0, 1).
        neighboring: the neighboring relation that the audit tested.

    Examples:
        >>> import neyman as ny
        >>> shown = ny.audit.one_run(canaries=1000, guesses=1000, correct=900)
        >>> shown.refutes(ny.Gaussian(sigma=2)), shown.refutes(ny.Gaussian(sigma=1))
        (True, False)
        >>> isinstance(shown, ny.audit.Evidence)
        True
    """

    confidence: Fraction
    neighboring: Relation
    is_evidence: ClassVar[bool] = True
    """True: code that needs a guarantee refuses an object with this attribute."""

    def refutes(self, claim: object) -> bool:
        """Return True if the evidence refutes the claim at this confidence.

        If the claim's certified interval leaves doubt, the result is False.

        Args:
            claim: a `Tradeoff`, a `Mechanism`, a calibrated plan, or a budget. A curve of one order
                is read as f-DP, which holds for every ordered pair.

        Raises:
            TypeError: the claim has no trade-off curve.
            ValueError: the claim is about another neighboring relation.
        """
        curve = claimed_curve(claim)
        try:
            unified(self.neighboring, curve.neighboring)
        except ValueError:
            raise ValueError(
                f"claim: it holds under neighboring = {curve.neighboring!r}, but the audit has "
                f"neighboring = {self.neighboring!r}; audit under the relation of the claim"
            ) from None
        return self._refutes(curve)

    @abstractmethod
    def _refutes(self, curve: Tradeoff) -> bool: ...

    @abstractmethod
    def epsilon(self, delta: float = 0.0) -> float:
        """Return the largest epsilon for which (epsilon, delta)-DP is refuted, or 0.

        Args:
            delta: in [0, 1).
        """

    @abstractmethod
    def gdp(self) -> float:
        """Return the largest mu for which mu-GDP is refuted, or 0.

        The result is about Gaussian curves only. A mechanism can satisfy epsilon = 5 and still
        refute mu = 1, so do not convert this mu to an epsilon.
        """

    @abstractmethod
    def power_at_least(self, level: float) -> float:
        """Return a lower bound on the best test's power at this level.

        It holds for at least one of the two orders of the datasets.

        Args:
            level: false positive rate, in [0, 1].
        """

    @property
    @abstractmethod
    def best_case(self) -> Evidence:
        """Return the strongest evidence that this design could give: the test makes no error."""

    @abstractmethod
    def _limits(self) -> str: ...

    def sentence(self, claim: object = None) -> str:
        """Return a sentence that states the evidence.

        Args:
            claim: as for `refutes`, or None for the largest refuted epsilon.
        """
        sure = number(100 * self.confidence, 12, up=False)
        if claim is not None:
            name = "the claimed curve" if isinstance(claim, Tradeoff) else repr(claim)
            if self.refutes(claim):
                return f"With {sure}% confidence, this mechanism does not satisfy {name}."
            return (
                f"With {sure}% confidence, this audit does not refute {name}. That is not a proof."
            )
        largest = self.epsilon()
        if not largest:
            return f"With {sure}% confidence, this audit refutes no epsilon. That is not a proof."
        shown = directed(math.nextafter(largest, 0.0), 3, up=False)
        return f"With {sure}% confidence, this mechanism does not satisfy epsilon = {shown}."

    def __str__(self) -> str:
        mu = self.gdp()
        text = [self.sentence()]
        if mu:
            shown = directed(math.nextafter(mu, 0.0), 3, up=False)
            text.append(f"Among Gaussian guarantees, it refutes mu = {shown}.")
        return " ".join([*text, self._limits()])

    def figure(self, claim: object, *, axes: Axes | None = None) -> Axes:
        """Draw the claimed curve, the confidence region, and the part that is refuted.

        Args:
            claim: as for `refutes`.
            axes: the axes to draw on; a new figure by default.

        Returns:
            The axes: type II error against type I error. With the stated confidence, the
            mechanism's curve passes below the region's edge. The claim is refuted if the lower end
            of its curve is above the edge anywhere.

        Raises:
            ImportError: matplotlib is not installed.
        """
        self.refutes(claim)  # an error about the claim comes first
        curve = claimed_curve(claim)
        levels = np.unique(
            np.concatenate([np.geomspace(1e-6, 0.05, 60), np.linspace(0, 1, 161), self._corners()])
        )
        claimed = np.array([1 - b.upper for b in curve.powers(levels)])
        edge = np.array([1 - self.power_at_least(float(a)) for a in levels])
        axes = fresh(axes)
        ink = str(axes.xaxis.label.get_color())
        axes.fill_between(levels, 0, edge, color=COLORS[4], alpha=0.25, linewidth=0)
        axes.plot(levels, edge, color=COLORS[4], label="the evidence leaves room below")
        axes.plot(levels, claimed, color=ink, label="claim")
        worse = claimed > edge
        if worse.any():
            axes.fill_between(
                levels, edge, claimed, where=worse, color=COLORS[1], alpha=0.6, linewidth=0,
                label="refuted part of the claim", interpolate=True,
            )  # fmt: skip
        axes.plot([0, 1], [1, 0], color=PALE, linewidth=1, dashes=(4, 3), label="perfect privacy")
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.set_xlabel("type I error (false positive rate)")
        axes.set_ylabel("type II error (false negative rate)")
        axes.legend(loc="upper right", frameon=False, fontsize="small")
        return axes

    def _corners(self) -> Array:
        return np.array([0.0, 1.0])


@dataclass(frozen=True)
class ManyRuns(Evidence):
    """Represent evidence from many independent runs with each of two neighboring datasets.

    Args:
        points: upper limits on the two error rates of one or more tests. With the stated
            confidence, all limits hold at once.
        errorless: the limits of a test without an error.
        one_run: True if the "runs" are canaries of one run, which are assumed to be independent.
    """

    points: tuple[tuple[float, float], ...]
    negatives: int
    positives: int
    errorless: tuple[float, float]
    one_run: bool = field(default=False, kw_only=True)

    @property
    def _trials(self) -> str:
        noun = "canaries" if self.one_run else "runs"
        return f"{self.negatives:,} + {self.positives:,} {noun}"

    def sentence(self, claim: object = None) -> str:
        """Return a sentence that states the evidence, after what it assumes about canaries."""
        text = super().sentence(claim)
        if not self.one_run:
            return text
        return "If the scores of canaries are independent: " + text[0].lower() + text[1:]

    def _refutes(self, curve: Tradeoff) -> bool:
        return any(a + b < 1 and (curve(a).lower > b or curve(b).lower > a) for a, b in self.points)

    def __repr__(self) -> str:
        shown = (
            f"epsilon > {directed(self.epsilon(), 4, up=False)}, "
            f"mu > {directed(self.gdp(), 4, up=False)}"
        )
        return (
            f"<{type(self).__name__}: {shown} at confidence {self.confidence}, from "
            f"{self._trials}, neighboring={self.neighboring!r}>"
        )

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the largest epsilon that is refuted at delta, or 0."""
        rest = 1 - Fraction(_delta(delta))
        ratios = [
            (rest - Fraction(miss)) / Fraction(alarm)
            for a, b in self.points
            for alarm, miss in ((a, b), (b, a))
        ]
        largest = below(max(ratios, default=Fraction(0)))
        # slack: a_refuted_epsilon_is_at_most_the_logarithm_of_a_ratio
        # same: > 1 -> >= 1: The logarithm of 1 is 0.
        return max(math.log(largest) * (1 - 8 * UNIT), 0.0) if largest > 1 else 0.0

    def gdp(self) -> float:
        """Return the largest mu that is refuted, or 0."""
        return max((_mu(a, b) for a, b in self.points), default=0.0)

    def power_at_least(self, level: float) -> float:
        """Return a lower bound on the best test's power at this level, in one of both orders."""
        at = Fraction(check.probability("level", level))
        best = at
        for a, b in self.points:
            for alarm, miss in ((Fraction(a), Fraction(b)), (Fraction(b), Fraction(a))):
                if at <= alarm:
                    best = max(best, at * (1 - miss) / alarm if alarm else 1 - miss)
                else:
                    best = max(best, 1 - miss * (1 - at) / (1 - alarm))
        return below(best)

    @property
    def best_case(self) -> ManyRuns:
        """Return the evidence of this design if the test made no error."""
        return replace(self, points=(self.errorless,))

    def _limits(self) -> str:
        most = directed(self.best_case.epsilon(), 4, up=True)
        mu = directed(self.best_case.gdp(), 4, up=True)
        return f"This design ({self._trials}) never shows more than epsilon = {most} or mu = {mu}."

    def _corners(self) -> Array:
        return np.array([rate for point in self.points for rate in point])


@dataclass(frozen=True)
class OneRun(Evidence):
    """Represent evidence from one run with many canaries, each in the data by its own coin.

    Args:
        canaries, guesses, correct: numbers of canaries, guesses, and correct guesses.
    """

    canaries: int
    guesses: int
    correct: int

    @cached_property
    def _guesses(self) -> Guesses:
        chance = below(1 - self.confidence)
        return Guesses(self.canaries, self.guesses, self.correct, chance)

    def _refutes(self, curve: Tradeoff) -> bool:
        shown = self._guesses
        if curve.pure().upper < self.epsilon() or curve.gdp_above() < self._mu:
            return True
        failure = max(c.infinite for c in curve.directions)
        for delta in (failure, *(shown.chance / self.canaries * x for x in (0.001, 0.02, 0.2))):
            largest = self.epsilon(delta) if 0 < delta < 1 else 0.0
            if largest and curve.epsilon(delta).upper < largest:
                return True
        return any(shown.refutes(polygon_level(*tangents)) for tangents in self._polygons(curve))

    @cached_property
    def _mu(self) -> float:
        return self._guesses.gdp()

    def _polygons(self, curve: Tradeoff) -> Iterator[tuple[Array, Array]]:
        """Yield tangents of a curve as epsilons and upper bounds on delta: a few, then more.

        The further ones are at levels that the recursion of `Guesses.refutes` reaches.
        """
        chance = self._guesses.chance
        end = min(math.log(self.canaries / chance) + 2, 30.0)
        end = min(curve.epsilon(chance / self.canaries).upper, end)
        first = np.linspace(-end, end, 81)
        deltas = curve.deltas_above(first)
        yield first, deltas
        start = min(curve.epsilon(chance).upper, end)
        finer = np.linspace(max(start - (end - start), -end), end, 161)
        both = np.concatenate([first, finer])
        order = np.argsort(both)
        yield both[order], np.concatenate([deltas, curve.deltas_above(finer)])[order]

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the largest epsilon that is refuted at delta, or 0."""
        return self._guesses.epsilon(_delta(delta))

    def gdp(self) -> float:
        """Return the largest mu that is refuted, or 0."""
        return self._mu

    def power_at_least(self, level: float) -> float:
        """Return a lower bound on the best test's power at this level, in one of both orders.

        Suppose the power were lower in both orders of the datasets. Then the tangent to the
        trade-off curve at this level would be an (epsilon, delta) guarantee that the evidence
        refutes. Between two computed epsilons, the bound uses the smaller slope and delta.
        """
        at = check.probability("level", level)
        epsilons, deltas = self._refuted_pairs
        e, most = epsilons[:-1], at + deltas[1:]
        # The second is 1 - e^-e (1 - most), as a sum of positive terms: a difference would be
        # rounded by more than a tiny power.
        powers = [*(np.exp(e) * at + deltas[1:]), *(-np.expm1(-e) + np.exp(-e) * most)]
        return max(at, min(1.0, down(float(min(powers)) * (1 - 1e-12))))

    @cached_property
    def _refuted_pairs(self) -> tuple[Array, Array]:
        end = self._guesses.epsilon(0.0)
        epsilons = np.append(np.linspace(0.0, max(end, 1e-3), 48), 60.0)
        deltas = np.array([self._guesses.delta(float(e)) for e in epsilons[:-1]] + [0.0])
        return epsilons, np.maximum.accumulate(deltas[::-1])[::-1]

    @property
    def best_case(self) -> OneRun:
        """Return the evidence of this design if each guess were correct."""
        return OneRun(self.confidence, self.neighboring, self.canaries, self.guesses, self.guesses)

    def most_gdp_at_this_accuracy(self) -> float:
        """Return the largest mu that one run can show at this accuracy, for any number of canaries.

        It is z(1 - t (1 - a) s) - z(1 - t a s), with the normal quantile z, the accuracy a, s =
        guesses / canaries, and t = 1 - confidence. A mechanism that, with probability t, answers
        for a share s with accuracy a, and otherwise reveals nothing, has this mu.
        """
        return self._guesses.most_gdp()

    def _limits(self) -> str:
        if 2 * self.correct <= self.guesses:
            return "The guesses are no better than coins."
        most = directed(self.best_case.gdp(), 4, up=True)
        text = f"This design ({self.guesses:,} guesses) never shows more than mu = {most}."
        if self.correct < self.guesses:
            mu = directed(self.most_gdp_at_this_accuracy(), 3, up=True)
            share = directed(100 * self.correct / self.guesses, 3, up=True)
            text += f" At {share}% accuracy, no number of canaries shows more than mu = {mu}."
        return text


def claimed_curve(claim: object) -> Tradeoff:
    """Return the trade-off curve of a claim.

    Raises:
        TypeError: the claim has no curve.
    """
    if not isinstance(claim, (Mechanism, Tradeoff)) and not isinstance(claim, type):
        for name in ("tradeoff", "mechanism"):  # a budget has the first, a plan the second
            ask = getattr(claim, name, None)
            described = ask() if callable(ask) else None
            if isinstance(described, (Mechanism, Tradeoff)):
                claim = described
                break
    curve = check.described("claim", claim).tradeoff()
    assert isinstance(curve, Tradeoff)
    return curve


def _delta(value: float) -> float:
    delta = check.probability("delta", value)
    if delta == 1:
        raise ValueError("delta = 1 must be below 1")
    return delta


def _mu(alarm: float, miss: float) -> float:
    """Return z(1 - alarm) - z(miss), rounded down: mu from two error rates, z a normal quantile."""
    if alarm >= 1 or miss >= 1:
        return 0.0
    first, second = -float(ndtri(alarm)), -float(ndtri(miss))
    return max(first + second - NDTRI_RELATIVE_ERROR * (1 + abs(first) + abs(second)), 0.0)
