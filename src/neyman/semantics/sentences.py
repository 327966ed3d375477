"""Guarantees in sentences that a non-specialist can act on.

No rounded number in them favors the release: the convention, and the numbers themselves, are in
`digits`, whose functions stand here too, so that a page needs one import.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from neyman.numerics import check
from neyman.semantics import testing
from neyman.semantics.bayes import ATTACKERS, Attacker
from neyman.semantics.digits import (
    Numeric,
    article,
    cases,
    chance,
    counted,
    delta,
    factor_of,
    given_level,
    number,
    out_of,
    percent,
    plural,
    proportion,
    shares,
    size_for_level,
    size_for_power,
    value,
)

__all__ = [
    "PRIORS",
    "approximate",
    "belief",
    "belief_sentence",
    "budget",
    "chance",
    "change",
    "claim",
    "concerning",
    "delta",
    "epsilon",
    "finding",
    "finding_right",
    "gdp",
    "group",
    "number",
    "odds",
    "pbdp",
    "percent",
    "plural",
    "posterior",
    "power",
    "renyi",
    "shares",
    "tcdp",
    "total_variation",
    "value",
    "zcdp",
]

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))
"""The priors that a reader is shown: a long shot, a suspicion, even odds."""


# ---- a test and what it finds -----------------------------------------------------------------


def power(level: Numeric, power: Numeric, subject: str = "person") -> str:
    """What the best test achieves at a level, in cases of a hundred (or as many as it takes).

    Args:
        level: probability that the test confirms a false claim, in (0, 1).
        power: upper bound of the probability that it confirms a true one, in [level, 1].
        subject: whom the claim is about.

    Returns:
        For .05 and .25: "Where a claim about a person is false, the best test says otherwise in 5
        cases of 100; where it is true, it finds out in at most 25. Guessing finds 5." The power is
        rounded up, by less than 5% of itself (and not to certainty before 1 - 10^-4).

    Raises:
        ValueError: a number is out of its range.
    """
    a = given_level(level)
    b = proportion("power", power)
    if b < proportion("level", level):
        raise ValueError(
            f"power = {power!r} must be at least the level = {level!r}: guessing achieves that"
        )
    size, fine = size_for_level(a), size_for_power(b)
    both = max(size, fine)
    if both > 4 and cases(b, both) > 1000:
        # One denominator would drown the power in digits: each number gets its own.
        of, text = f" {out_of(size)}", f"{cases(b, fine):,} {out_of(fine)}"
    else:
        size, of, text = both, "", f"{cases(b, both):,}"
    text = f"finds out in at most {text}"
    if cases(b, fine) == 10**fine:
        text = "may find out every time"
    elif b == a:
        text = "finds out just as rarely"
    return (
        f"Where a claim about {article(subject)} {subject} is false, the best test says otherwise "
        f"in {counted(a, size)} {out_of(size)}; where it is true, it {text}. "
        f"Guessing finds {cases(a, size):,}{of}."
    )


_power = power  # for where an argument has its name


def finding(level: Numeric, power: Numeric, prior: Numeric, *, capital: bool = True) -> str:
    """What a positive answer of that test means for a claim of the given prior probability.

    Args:
        level: probability that the test confirms a false claim, in (0, 1).
        power: upper bound of the probability that it confirms a true one, in [level, 1].
        prior: probability of the claim before the test, in [0, 1].
        capital: begin with a capital letter.

    Returns:
        For .05, .25 and 1/2: "At even odds beforehand, a finding of this test is right at most
        83.4% of the time." The percentage is rounded up.
    """
    text = finding_right(prior, percent(posterior(level, power, prior)))
    return text if capital else text[0].lower() + text[1:]


def finding_right(prior: Numeric, right: str) -> str:
    """Return the sentence of `finding` with a percentage that is given as text."""
    text = f"{odds(prior)}, a finding of this test is right at most {right} of the time."
    return text[0].upper() + text[1:]


def posterior(level: Numeric, power: Numeric, prior: Numeric) -> Fraction:
    """The exact probability that a finding is right; see `testing.positive_predictive_value`."""
    return testing.positive_predictive_value(
        proportion("power", power), proportion("level", level), proportion("prior", prior)
    )


def odds(prior: Numeric) -> str:
    """A prior in words: "at even odds beforehand", "where 1 of 100 such claims is true"."""
    p = proportion("prior", prior)
    if p == Fraction(1, 2):
        return "at even odds beforehand"
    if p.numerator == 1:
        return f"where 1 in {p.denominator:,} such claims is true beforehand"
    return f"where {percent(p)} of such claims are true beforehand"


def claim(neighboring: str, subject: str = "person", rows: int = 1) -> str:
    """What kind of claim the guarantee is about, from the neighboring relation."""
    what = f"{article(subject)} {subject}"
    held = "record says" if rows == 1 else f"records (up to {rows:,}) say"
    if neighboring == "replace-one":
        return (
            f"A claim says that {what}’s {held} one thing rather than another, whatever the two "
            "things are."
        )
    if neighboring == "add-remove":
        given = f"a given {subject}" + ("" if rows == 1 else f" (up to {rows:,} rows)")
        return f"A claim says that {given} is in the data, or that the {subject} is not."
    return f"A claim is about which of two neighboring data sets is the true one ({neighboring})."


def change(neighboring: str, subject: str = "person", rows: int = 1) -> str:
    """How neighboring data differ, as "with one person’s record replaced by any other"."""
    what = f"one {subject}’s " + ("record" if rows == 1 else f"records (up to {rows:,})")
    if neighboring == "replace-one":
        return f"with {what} replaced by any other"
    if neighboring == "add-remove":
        return f"with {what} added or removed"
    return f"with the difference between neighbors ({neighboring})"


def concerning(
    attributes: Sequence[str],
    level: Numeric,
    power: Numeric,
    subject: str = "person",
    within: str | None = None,
) -> str:
    """What somebody could find out about certain attributes of one person alone.

    Args:
        attributes: their names, at least one, such as ["race"].
        level: probability that the test confirms a false claim, in (0, 1).
        power: upper bound of the probability that it confirms a true one, for the queries that
            these attributes can change.
        subject: whom the claim is about.
        within: a place that is known, such as "block group".

    Returns:
        For ["race"], .05 and .25: "Where a claim about a person’s race is false, the best test says
        otherwise in 5 cases of 100; where it is true, it finds out in at most 25. Guessing finds 5.
        This holds even for somebody who knows all else about the person, and everybody else’s
        record."
    """
    what = f"{subject}’s {_listed(attributes)}"
    if within:
        what += f" within a known {within}"
    return (
        f"{_power(level, power, what)} This holds even for somebody who knows all else about the "
        f"{subject}, and everybody else’s record."
    )


def group(size: int, level: Numeric, power: Numeric, subject: str = "person") -> str:
    """What the best test finds out about several people together.

    Args:
        size: how many, at least 2.
        level: probability that the test confirms a false claim, in (0, 1).
        power: upper bound of the probability that it confirms a true one, of the curve for groups
            of this size.
        subject: who they are, in the singular.
    """
    people = f"{check.integer('size', size, 2):,} {plural(subject)}"
    return (
        f"{_power(level, power, f'group of {people}')} What is promised to each is promised to all "
        "of them together only in this weaker form."
    )


# ---- what somebody comes to believe -----------------------------------------------------------


def belief_sentence(
    attacker: Attacker,
    epsilon: Numeric,
    probability: Numeric,
    subject: str = "person",
    about: str = "record",
    within: str | None = None,
) -> str:
    """A bound on posteriors, from ``ny.posterior_ratio``, for each kind of attacker.

    Args:
        attacker: "knows-the-rest", "true-record" or "arbitrary-prior".
        epsilon: logarithm of the factor, at least 0 and finite; the factor is rounded up.
        probability: upper bound of the probability of exceeding it; rounded up.
        subject: whom it is about.
        about: what of them: "record", or an attribute where the bound is that of a scenario.
        within: a place that is known, such as "block group".

    Returns:
        For "true-record", 3 and .004: "With a chance of at most 4 in 1,000, somebody who knows
        everything else comes to think the truth about a person’s record more than 20.1 times as
        likely as before, whatever the truth is."

    Raises:
        ValueError: there is no such attacker, or a number is out of its range.
    """
    if attacker not in ATTACKERS:
        raise ValueError(
            f"attacker = {attacker!r} must be one of {', '.join(map(repr, ATTACKERS))}"
        )
    factor = factor_of(_finite("epsilon", epsilon))
    p = proportion("probability", probability)
    held = f"{article(subject)} {subject}’s {about}" + (
        f" within a known {within}" if within else ""
    )
    who = "somebody" if attacker == "arbitrary-prior" else "somebody who knows everything else"
    claim = "a given statement, true or not," if attacker == "knows-the-rest" else "the truth"
    than = f"had that {about} {_GUESSED}" if attacker == "arbitrary-prior" else "before"
    what = f"think {claim} about {held} more than {factor} times as likely as {than}"
    if not p:
        return (
            f"Nobody{who.removeprefix('somebody')} comes to {what}, whatever was expected before."
        )
    fair = "where the expectations before are right on average"
    end = "whatever the truth is" if attacker == "true-record" else fair
    if p == 1:
        return f"There is no promise: {who} may come to {what} every time."
    return f"With a chance of at most {chance(p)}, {who} comes to {what}, {end}."


def belief(prior: Numeric, posterior: Numeric, probability: Numeric) -> str:
    """How often a prior grows to more than a posterior, from ``ny.posterior_chance``.

    Args:
        prior: probability of a statement before the release, in (0, 1); printed rounded down.
        posterior: afterwards, from the prior up; printed rounded up.
        probability: upper bound of the chance that it is exceeded; rounded up.

    Returns:
        For .01, .5 and .002: "Of statements about one person that are held for 1% likely
        beforehand, at most 2 in 1,000 are held for more than 50% likely afterwards."
    """
    p, q = proportion("prior", prior), proportion("posterior", posterior)
    if q < p:
        raise ValueError(f"posterior = {posterior!r} must be at least the prior = {prior!r}")
    c = proportion("probability", probability)
    count = f"at most {chance(c)}" if c else "none"
    return (
        f"Of statements about one person that are held for {percent(p, up=False)} likely "
        f"beforehand, {count} are held for more than {percent(q)} likely afterwards."
    )


def pbdp(epsilon: Numeric, delta: Numeric, change: str) -> str:
    """Probabilistically bounded DP in one line.

    Args:
        epsilon: at least 0 and finite.
        delta: upper bound, from ``Tradeoff.pbdp``, in [0, 1].
        change: how neighbors differ, from `change`.
    """
    factor, d = factor_of(_finite("epsilon", epsilon)), proportion("delta", delta)
    what = f"is more than {factor} times as likely as {change}"
    if d == 0:
        return f"Nothing that is published, and nothing made of it, {what}."
    if d == 1:
        return f"What is published, or made of it, may every time be something that {what}."
    return (
        f"With a chance of at most {chance(d)}, what is published, or made of it, is something "
        f"that {what}."
    )


# ---- the same guarantee in other vocabularies -------------------------------------------------


def epsilon(epsilon: Numeric, delta: Numeric, change: str) -> str:
    """(epsilon, delta) in one line: the factor e^epsilon, and what is left over.

    Args:
        epsilon: upper bound, at least 0, possibly infinite.
        delta: in [0, 1].
        change: how neighbors differ, from `change`.
    """
    e = value("epsilon", epsilon)
    d = proportion("delta", delta)
    if not isinstance(e, Fraction) or e > 10**6 or d == 1:
        return f"Nothing of use is promised, {change}."
    rest = f", plus a chance of {chance(d)}" if d else ""
    return f"The chance of any outcome grows by at most a factor of {factor_of(e)}{rest}, {change}."


def gdp(mu: Numeric) -> str:
    """Gaussian differential privacy in one line. ``mu``: an upper bound, at least 0."""
    m = value("mu", mu)
    if not isinstance(m, Fraction):
        return "No two bell curves, however far apart, are as easy to tell apart as this release."
    return (
        "To tell whether a claim is true is no easier than to tell, from one draw, which of two "
        f"bell curves it came from, when their centers lie {number(m)} standard deviations apart."
    )


def zcdp(rho: Numeric) -> str:
    """Zero-concentrated differential privacy in one line. ``rho``: an upper bound."""
    r = value("rho", rho)
    if not isinstance(r, Fraction):
        return "No finite number of this kind describes the release."
    return "A cost that adds up: releases from the same data together cost at most the sum."


def renyi(order: Numeric, divergence: Numeric) -> str:
    """A Renyi guarantee in one line: it adds up, and bounds what a belief may grow by.

    Args:
        order: a, above 1 and finite.
        divergence: upper bound g on D_a, at least 0; inf says nothing.
    """
    a, g = _finite("order", order), value("divergence", divergence)
    if a <= 1:
        raise ValueError(f"order = {order!r} must be above 1")
    if not isinstance(g, Fraction):
        return "No finite number of this kind describes the release."
    return f"{_ADDS} {_tenfold((a - 1) * (g - _LOG_TEN))}"


def tcdp(rho: Numeric, omega: Numeric) -> str:
    """Truncated concentrated DP in one line: zCDP's promise, for orders up to omega alone.

    Args:
        rho: upper bound, at least 0; inf says nothing.
        omega: the largest order, above 1; inf is zCDP.
    """
    r, top = value("rho", rho), value("omega", omega)
    if not top > 1:
        raise ValueError(f"omega = {omega!r} must be above 1")
    if not isinstance(r, Fraction):
        return zcdp(rho)
    best = (_LOG_TEN + r) / (2 * r) if r else top
    order = min(best, top)
    moment: Fraction | float = -math.inf  # where nothing is told at any order
    if order < math.inf:
        moment = (order - 1) * (order * r - _LOG_TEN) if order > 1 else 0
    rarer = " Of rarer outcomes it says less than zCDP does." if isinstance(top, Fraction) else ""
    return f"{_ADDS} {_tenfold(moment)}{rarer}"


def approximate(epsilon: Numeric, delta: Numeric, subject: str = "person") -> str:
    """What (epsilon, delta) says of beliefs: past twice the factor e^epsilon, twice delta.

    By its own curve, a posterior exceeds its counterfactual by more than e^{epsilon + x} with a
    probability of at most delta / (1 - e^-x); x is log 2 here.

    Args:
        epsilon: upper bound, at least 0, possibly infinite.
        delta: in [0, 1].
        subject: whom it is about.
    """
    e, d = value("epsilon", epsilon), proportion("delta", delta)
    if not isinstance(e, Fraction) or e > 10**6 or 2 * d >= 1:
        return f"Nothing of use is promised about what is believed of {article(subject)} {subject}."
    if not d:
        return belief_sentence("arbitrary-prior", epsilon, 0, subject)
    return belief_sentence("arbitrary-prior", e + _LOG_TWO, 2 * d, subject)


def total_variation(tv: Numeric) -> str:
    """Total variation in one line. ``tv``: an upper bound, in [0, 1]."""
    t = proportion("tv", tv)
    return (
        f"At no level does a test find more than {percent(t)[:-1]} percentage points more than "
        f"guessing; at even odds, no verdict is right more than {percent((1 + t) / 2)} of the time."
    )


def budget(budget: Mapping[str, Any]) -> str:
    """The limit that was chosen, from a receipt's budget ("kind" and its exact numbers)."""
    match budget.get("kind"):
        case "at_most":
            return (
                f"at most {percent(budget['power'])} of true claims found out by a test that takes "
                f"{percent(budget['level'], up=False)} of false ones for true"
            )
        case "zcdp":
            beside = f" and delta {delta(budget['delta'])}" if "delta" in budget else ""
            return f"zCDP with rho {number(budget['rho'])}{beside}"
        case "gdp":
            return f"Gaussian differential privacy with mu {number(budget['mu'])}"
        case "approximate":
            return f"epsilon {number(budget['epsilon'])} at delta {delta(budget['delta'])}"
        case _:
            return ", ".join(f"{name} {value}" for name, value in budget.items())


_ADDS = "A cost that adds up: releases from the same data together cost at most the sum."
_GUESSED = "been left out and guessed from the rest"
_LOG_TEN = Fraction(math.nextafter(math.log(10), 0))  # less than it is, so that chances are more
_LOG_TWO = Fraction(math.nextafter(math.log(2), 1))  # more than it is


def _tenfold(log_chance: Fraction | float) -> str:
    """The chance e^x, rounded up, that a belief grows tenfold; silence where it is 1 or more."""
    if log_chance >= 0:
        return "It says nothing of how often a belief about one person grows tenfold."
    p = Fraction(math.exp(max(float(log_chance), -700.0))) * (1 + Fraction(1, 10**12))
    said = chance(min(p, Fraction(1)))
    return (
        f"With a chance of at most {said}, somebody comes to think the truth "
        f"about one person’s record more than 10 times as likely as had that record {_GUESSED}, "
        "where the expectations before are right on average."
    )


def _finite(name: str, x: Numeric) -> Fraction:
    exact = value(name, x)
    if not isinstance(exact, Fraction) or exact < 0:
        raise ValueError(f"{name} = {x!r} must be at least 0 and finite")
    return exact


def _listed(names: Sequence[str]) -> str:
    """ "race", "race and age", "race, age and block"."""
    if isinstance(names, str) or not names:
        raise ValueError(f"attributes = {names!r} must be a list of at least one name")
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])
