"""The rows of the bench: what is computed, by Neyman and by the peer, and how it is judged.

A row's work starts from the description each time: no object outlives a run. The peer is imported
where it is used, so that memory can be measured without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from cases import (
    CALIBRATED,
    CURVE,
    DELTA,
    DISCRETE,
    GAUSSIANS,
    LAPLACES,
    LEVELS,
    POISSON,
    SAMPLED,
    Poisson,
    key,
)

import neyman as ny

__all__ = ["ROWS", "Answer", "Goal", "PeerAnswer", "Row"]

ROUNDING = Fraction(1, 2**51)  # of the parameters, which are floats; not of the answer


@dataclass(frozen=True)
class Goal:
    """What is asked of a row; None where nothing is."""

    width: float | None = None  # relative, in delta (in the power, in sigma)
    milliseconds: float | None = None
    faster: float | None = None
    tighter: float | None = None


@dataclass(frozen=True)
class Answer:
    """Our answer beside the reference."""

    shown: str
    error: float  # of the safe end; of epsilon, else relative
    inside: bool  # whether the certified intervals hold the references
    width: float


@dataclass(frozen=True)
class PeerAnswer:
    """The peer's answer beside the reference: None where it has none."""

    shown: str
    error: float | None  # of epsilon (relative: of sigma); negative is the unsafe side
    relative: float | None  # in delta, at the true epsilon


@dataclass(frozen=True)
class Row:
    """One row: `work` is timed, `judge` is not; so for the peer."""

    words: str
    work: Callable[[], Any]
    judge: Callable[[Any, Any], Answer]
    goal: Goal = Goal()
    peer: Callable[[], Any] | None = None
    judge_peer: Callable[[Any, Any], PeerAnswer] | None = None
    reference: str = ""  # the row whose reference it shares; its own if empty


# Epsilon


def both_directions(make: Callable[[], ny.Mechanism], delta: float) -> Callable[[], Any]:
    """Epsilon of each ordered pair, each with the curve that gave it."""

    def work() -> list[tuple[ny.Tradeoff, ny.Bound]]:
        f = make().tradeoff()
        pairs = dict.fromkeys(c for a in f.alternatives for c in (a, a.reverse()))
        curves = [ny.Tradeoff((c,), neighboring=f.neighboring, ordered=True) for c in pairs]
        return [(curve, curve.epsilon(delta)) for curve in curves]

    return work


def true_epsilons(reference: Any) -> list[Fraction]:
    """Of each direction, the larger first."""
    digits = (
        [reference]
        if isinstance(reference, str)
        else [reference[side] for side in ("remove", "add", "both") if side in reference]
    )
    return sorted(map(Fraction, digits), reverse=True)


def judge_epsilons(answers: list[tuple[ny.Tradeoff, ny.Bound]], reference: Any) -> Answer:
    """The worst error and width over the directions."""
    truths = true_epsilons(reference)
    ordered = sorted(answers, key=lambda a: -a[1].upper)
    if len(ordered) != len(truths):
        raise ValueError(f"{len(ordered)} directions answered, {len(truths)} references")
    error = width = 0.0
    inside = True
    for (curve, bound), truth in zip(ordered, truths, strict=True):
        error = max(error, _gap(bound.upper, truth))
        inside = inside and _holds(bound, truth)
        width = max(width, math.expm1(min(curve.log_delta(bound.upper).width, 700.0)))
    return Answer(str(ordered[0][1]), error, inside, width)


def _gap(value: float, truth: Fraction) -> float:
    return abs(float(Fraction(value) - truth)) if math.isfinite(value) else math.inf


def _holds(bound: ny.Bound, truth: Fraction) -> bool:
    room = truth * ROUNDING
    above = bound.upper == math.inf or truth <= Fraction(bound.upper) + room
    return above and Fraction(bound.lower) - room <= truth


def judge_peer_epsilon(delta: float) -> Callable[[Any, Any], PeerAnswer]:
    """Its error in epsilon, and in delta at the true epsilon."""

    def judge(answer: tuple[Any, float], reference: Any) -> PeerAnswer:
        curve, epsilon = answer
        truth = true_epsilons(reference)[0]
        if not math.isfinite(epsilon):
            return PeerAnswer(str(epsilon), None, None)
        relative = float(curve.get_delta_for_epsilon(float(truth))) / delta - 1
        return PeerAnswer(f"{epsilon:.9g}", float(Fraction(epsilon) - truth), relative)

    return judge


def epsilon_row(
    words: str, make: Callable[[], ny.Mechanism], peer: Callable[[], Any], delta: float, goal: Goal
) -> Row:
    """Epsilon at a delta, both directions."""

    def ask_peer() -> tuple[Any, float]:
        curve = peer()
        return curve, curve.get_epsilon_for_delta(delta)

    return Row(
        words,
        both_directions(make, delta),
        judge_epsilons,
        goal,
        ask_peer,
        judge_peer_epsilon(delta),
    )


def losses() -> Any:
    """The peer's module of loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def composed(parts: list[Any]) -> Any:
    """The peer's composition of different parts."""
    return reduce(lambda a, b: a.compose(b), parts)


def poisson_row(case: Poisson, goal: Goal) -> Row:
    """A training run."""
    sigma, rate, steps, delta = key(case)
    return epsilon_row(
        f"Poisson {case.sigma}, {rate:.3g}, {steps:.6g}, {case.delta}",
        lambda: ny.Gaussian(sigma).subsample(rate=rate) * steps,
        lambda: losses().from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps),
        delta,
        goal,
    )


def question_row(name: str, case: Poisson, goal: Goal) -> Row:
    """The same run as a user asks: one epsilon, which is the larger one, as the peer's is."""
    sigma, rate, steps, delta = key(case)
    both = poisson_row(case, goal)

    def work() -> tuple[ny.Tradeoff, ny.Bound]:
        f = (ny.Gaussian(sigma).subsample(rate=rate) * steps).tradeoff()
        return f, f.epsilon(delta)

    def judge(answer: tuple[ny.Tradeoff, ny.Bound], reference: Any) -> Answer:
        curve, bound = answer
        truth = true_epsilons(reference)[0]
        width = math.expm1(min(curve.log_delta(bound.upper).width, 700.0))
        return Answer(str(bound), _gap(bound.upper, truth), _holds(bound, truth), width)

    words = both.words.replace("Poisson", "one question,")
    return Row(words, work, judge, goal, both.peer, both.judge_peer, name)


def many() -> ny.Mechanism:
    """300 mechanisms, no two alike."""
    parts: list[ny.Mechanism] = [ny.Gaussian(float(s)) for s in GAUSSIANS]
    parts += [ny.Laplace(float(b)) for b in LAPLACES]
    parts += [ny.Gaussian(float(s)).subsample(rate=float(q)) for s, q in SAMPLED]
    return reduce(lambda a, b: a + b, parts)


def many_by_peer() -> Any:
    """The same."""
    pld = losses()
    return composed(
        [pld.from_gaussian_mechanism(float(s)) for s in GAUSSIANS]
        + [pld.from_laplace_mechanism(float(b)) for b in LAPLACES]
        + [pld.from_gaussian_mechanism(float(s), sampling_prob=float(q)) for s, q in SAMPLED]
    )


# The curve


def curve() -> dict[str, ny.Bound]:
    """The power at 1000 levels, those of the references among them."""
    sigma, rate, steps, _ = key(CURVE)
    f = (ny.Gaussian(sigma).subsample(rate=rate) * steps).tradeoff()
    between = np.geomspace(1e-30, 0.5, 1000 - len(LEVELS) + 2)[1:-1]
    levels = [*LEVELS, *between]
    answers = f.powers(float(level) for level in levels)
    return {str(level): bound for level, bound in zip(levels, answers, strict=True)}


def judge_curve(answers: dict[str, ny.Bound], reference: Any) -> Answer:
    """The widest of all, the worst error of those that have a reference."""
    width = max(b.upper / b.lower - 1 if b.lower else math.inf for b in answers.values())
    error, inside = 0.0, True
    for level, sides in reference.items():
        truth = max(map(Fraction, sides.values()))
        error = max(error, _gap(answers[level].upper, truth) / float(truth))
        inside = inside and _holds(answers[level], truth)
    return Answer(f"{answers['1e-2']} at 0.01", error, inside, width)


# Calibration


def calibrated() -> float:
    """The least sigma for a goal."""
    goal, rate, steps = CALIBRATED
    return ny.calibrate(
        lambda sigma: ny.Gaussian(sigma).subsample(rate=float(rate)) * steps,
        budget=ny.approximate(float(goal), float(DELTA)),
    )


def judge_calibrated(answer: float, reference: Any) -> Answer:
    """How far above the least sigma; below it the promise would be broken."""
    truth = Fraction(reference["sigma"])
    error = float(Fraction(answer) / truth - 1)
    return Answer(f"sigma {answer:.12g}", abs(error), error >= -ROUNDING, abs(error))


def calibrated_by_peer() -> float:
    """By its own search, as it comes."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    goal, rate, steps = CALIBRATED

    def event(sigma: float) -> dp_accounting.DpEvent:
        step = dp_accounting.PoissonSampledDpEvent(
            float(rate), dp_accounting.GaussianDpEvent(sigma)
        )
        return dp_accounting.SelfComposedDpEvent(step, steps)

    return float(
        dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, float(goal), float(DELTA))
    )


def judge_peer_calibrated(answer: float, reference: Any) -> PeerAnswer:
    """Its sigma."""
    error = float(Fraction(answer) / Fraction(reference["sigma"]) - 1)
    return PeerAnswer(f"sigma {answer:.9g}", error, error)


MAIN = Goal(1e-6, 5, 150, 1000)
QUESTION = Goal(1e-6, 2, 100)
SMALL = Goal(1e-6, 30)
LONG = Goal(1e-4, 10)

ROWS: Mapping[str, Row] = {
    **{
        name: poisson_row(case, MAIN if "poisson" in name else SMALL if "delta" in name else LONG)
        for name, case in POISSON.items()
    },
    **{
        name.replace("poisson", "question"): question_row(name, case, QUESTION)
        for name, case in POISSON.items()
        if "poisson" in name
    },
    "300 mechanisms": epsilon_row(
        "300 mechanisms, no two alike, 1e-6", many, many_by_peer, float(DELTA), Goal(1e-6, 100, 20)
    ),
    "72 discrete Gaussians": epsilon_row(
        "72 discrete Gaussians, no two alike, 1e-6",
        lambda: reduce(lambda a, b: a + b, [ny.DiscreteGaussian(s) for s in DISCRETE]),
        lambda: composed([losses().from_discrete_gaussian_mechanism(float(s)) for s in DISCRETE]),
        float(DELTA),
        Goal(1e-4, 300, 10),
    ),
    "curve": Row("power at 1000 levels from 1e-30", curve, judge_curve, Goal(1e-6, 150)),
    "calibrate": Row(
        "calibrate to (1, 1e-6), 0.01, 10000",
        calibrated,
        judge_calibrated,
        Goal(1e-9, 60, 25),
        calibrated_by_peer,
        judge_peer_calibrated,
    ),
    "30 responses": epsilon_row(
        "30 randomized responses 0.1, 1e-6",
        lambda: ny.RandomizedResponse(0.1) * 30,
        lambda: losses().from_randomized_response(2 / (1 + math.exp(0.1)), 2).self_compose(30),
        float(DELTA),
        Goal(1e-12),
    ),
    "6 discrete Gaussians": epsilon_row(
        "6 discrete Gaussians, sigma 3, 1e-6",
        lambda: ny.DiscreteGaussian(3) * 6,
        lambda: losses().from_discrete_gaussian_mechanism(3).self_compose(6),
        float(DELTA),
        Goal(1e-12),
    ),
    "20 Laplace, 1 Gaussian": epsilon_row(
        "20 Laplace 10, 1 Gaussian 5, 1e-6",
        lambda: ny.Laplace(10) * 20 + ny.Gaussian(5),
        lambda: (
            losses()
            .from_laplace_mechanism(10)
            .self_compose(20)
            .compose(losses().from_gaussian_mechanism(5))
        ),
        float(DELTA),
        Goal(1e-6),
    ),
}
