"""Turn an attack's errors, scores, or guesses into evidence against a privacy claim."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from neyman.auditing.black_box import attack_curve, search
from neyman.auditing.equal_canaries import key_of
from neyman.auditing.evidence import ManyRuns, OneRun
from neyman.auditing.rate_limits import anytime_limit, checked_confidence, clopper_pearson
from neyman.auditing.scores import Threshold, checked_scores, error_limits
from neyman.numerics import check
from neyman.numerics.relation import Relation, relation_of
from neyman.numerics.rounding import below

__all__ = ["attack_curve", "counts", "one_run", "scores", "search"]


@dataclass(frozen=True)
class Limits:
    """Limit the size of an audit, and hold the threshold for reversed guesses."""

    trials: int = 10**9  # largest number of runs or canaries


LIMITS = Limits()


def counts(
    *,
    false_positives: int,
    negatives: int,
    false_negatives: int,
    positives: int,
    confidence: float | Fraction | str = 0.95,
    neighboring: Relation = "any",
    anytime: bool = False,
) -> ManyRuns:
    """Return the evidence from an attack's errors on many independent runs.

    With probability at least ``confidence``, both error rates are below their upper limits a and b
    (Clopper and Pearson, each with half of 1 - confidence). A claimed trade-off curve f is refuted
    if f(a) > b or f(b) > a. Fix the test before the counted runs.

    Args:
        false_positives: number of runs without the record that the attack reported as with it.
        negatives: number of runs without the record.
        false_negatives: number of runs with the record that the attack reported as without it.
        positives: number of runs with the record.
        confidence: in (0, 1).
        neighboring: the relation between the two datasets: "add-remove", "replace-one", or "any" if
            the test used the claim's own relation.
        anytime: if True, the limits hold after all numbers of runs at once, so an audit may check
            after each run and stop at will. The limits are a little wider.

    Returns:
        An `Evidence`. Its numbers are lower bounds, rounded down.

    Raises:
        ValueError: a count is out of range, or an argument is not valid.

    Examples:
        >>> import neyman as ny
        >>> shown = ny.audit.counts(false_positives=5, negatives=1000,
        ...                  false_negatives=400, positives=1000, confidence=0.95)
        >>> shown.refutes(ny.gdp(2)), shown.refutes(ny.gdp(3))
        (True, False)
        >>> print(shown.sentence())
        With 95% confidence, this mechanism does not satisfy epsilon = 3.89.

    Source: Nasr and others 2023; Clopper and Pearson 1934.
    """
    sure, relation = checked_confidence(confidence), relation_of(neighboring)
    chance = below((1 - sure) / 2)
    counted = [
        ("false_positives", false_positives, "negatives", negatives),
        ("false_negatives", false_negatives, "positives", positives),
    ]
    limit = anytime_limit if check.truth("anytime", anytime) else clopper_pearson
    limits: list[tuple[int, float, float]] = []
    for name, errors, of, trials in counted:
        runs = _count(of, trials)
        number = check.integer(name, errors)
        if number > runs:
            raise ValueError(f"{name} = {number} must be at most {of} = {runs}")
        limits.append((runs, limit(number, runs, chance), limit(0, runs, chance)))
    (without, a, least_a), (within, b, least_b) = limits
    return ManyRuns(sure, relation, ((a, b),), without, within, (least_a, least_b))


def scores(
    members: object,
    others: object,
    *,
    threshold: Threshold = 0.5,
    confidence: float | Fraction | str = 0.95,
    neighboring: Relation = "any",
    seed: int | None = None,
    one_run: bool = False,
) -> ManyRuns:
    """Return the evidence from an attack's scores on many independent runs.

    The scores of canaries in one run serve if they are independent, as with noise of their own.
    Unlike `one_run`, this does not hold for every mechanism [AC-2].

    Args:
        members: scores of runs with the record, one per run. A higher score means "with".
        others: scores of runs without the record, one per run.
        threshold: a number fixed before anyone sees the scores, "split", or "all". With "split",
            half of the scores choose the threshold, and the other half test it. With "all", every
            score is a threshold, and the limits at all thresholds hold at once.
        confidence, neighboring: as for counts.
        seed: seed of the random halves of "split". Without a seed, the halves differ between calls.
            Do not repeat the call until it refutes a claim.
        one_run: True if each score is of a canary in one run, and a fair coin per canary decided
            if it is in the data. The sentence of the evidence then states the assumption.

    Returns:
        An `Evidence`. A score equal to a fixed threshold counts as an error in both groups.

    Raises:
        ValueError: a score is not finite, members clearly score below others, or an argument is not
            valid.

    Examples:
        >>> import neyman as ny
        >>> shown = ny.audit.scores([2.0] * 500, [0.0] * 500, threshold=1)
        >>> round(shown.epsilon(), 2)
        4.91
    """
    sure, relation = checked_confidence(confidence), relation_of(neighboring)
    inside, outside = checked_scores("members", members), checked_scores("others", others)
    points, least, negatives, positives = error_limits(inside, outside, threshold, 1 - sure, seed)
    same_run = check.truth("one_run", one_run)
    return ManyRuns(sure, relation, points, negatives, positives, least, one_run=same_run)


def one_run(
    *,
    canaries: object,
    guesses: int,
    correct: int,
    confidence: float | Fraction | str = 0.95,
    neighboring: Relation = "any",
) -> OneRun:
    """Return the evidence from the guesses about many canaries in one run.

    A fair coin per canary decides if it is in the data. The attacker guesses some of the coins. If
    a claim is true, two bounds hold on P(correct >= c): one for (epsilon, delta)-DP, and one for
    any trade-off curve. The claim is refuted if either bound is at most 1 - confidence.

    Args:
        canaries: the number of canaries, or the canaries themselves. No two may be equal.
        guesses: the number of guesses, at most canaries, fixed before the run.
        correct: the number of correct guesses.
        confidence: in (0, 1).
        neighboring: "add-remove" if a coin adds or omits a canary, "replace-one" if a coin chooses
            one of two canaries.

    Returns:
        An `Evidence`. One run can show less than many runs: see ``most_gdp_at_this_accuracy()``.

    Raises:
        ValueError: a count is out of range, a canary is used twice, or the guesses are clearly
            worse than coin flips.

    Examples:
        >>> import neyman as ny
        >>> shown = ny.audit.one_run(canaries=100, guesses=100, correct=75)
        >>> round(shown.gdp(), 4), round(shown.epsilon(), 3)
        (0.4043, 0.702)

    Source: Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024.
    """
    sure, relation = checked_confidence(confidence), relation_of(neighboring)
    number = _count("canaries", _distinct(canaries))
    guessed, right = check.integer("guesses", guesses), check.integer("correct", correct)
    if guessed > number:
        raise ValueError(f"guesses = {guessed} must be at most canaries = {number}")
    if right > guessed:
        raise ValueError(f"correct = {right} must be at most guesses = {guessed}")
    # Standard deviations of the correct guesses below one half.
    if 2 * right < guessed - 6 * guessed**0.5:
        raise ValueError(
            f"correct = {right} of guesses = {guessed} is far fewer than coins get right: "
            "exchange the two guesses, or check the labels of the coins"
        )
    return OneRun(sure, relation, number, guessed, right)


def _distinct(canaries: object) -> object:
    """Return the number of canaries, from a number or a sequence. Refuse equal canaries."""
    if not hasattr(canaries, "__len__"):
        return canaries
    each = check.several("canaries", canaries, "rows, or a number of them")
    first: dict[object, int] = {}
    for i, canary in enumerate(each):
        earlier = first.setdefault(key_of(canary), i)
        if earlier != i:
            raise ValueError(
                f"canaries[{i}] equals canaries[{earlier}]; each canary needs its own coin, "
                "so use each one once"
            )
    return len(each)


def _count(name: str, value: object) -> int:
    number = check.integer(name, value, 1)
    if number > LIMITS.trials:
        raise ValueError(f"{name} = {number} must be at most {LIMITS.trials:,}")
    return number
