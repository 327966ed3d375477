"""Write guarantees in sentences that a non-specialist can act on.

No rounded number in them favors the release. The convention and the number functions are in
`digits`. They are also available here, so a page needs one import.

Arguments mean the same everywhere. ``level`` is a false positive rate: the probability that a test
confirms a false claim, in (0, 1). ``power`` is an upper bound on the probability that it confirms a
true claim, in [level, 1]. ``prior`` is the prior probability of the claim, in [0, 1].
``probability`` and ``delta`` are upper bounds in [0, 1]. ``epsilon`` is an upper bound of at least
0. ``subject`` is the privacy unit of the claim. ``within`` is a known place, such as "block group".
``change`` is the difference between neighbors, from `change`. A number out of range raises a
ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from scipy.special import ndtr, ndtri

from neyman.accounting.semantics import testing
from neyman.accounting.semantics.bayes import ATTACKERS, Attacker
from neyman.accounting.semantics.digits import (
    Numeric,
    article,
    cases,
    chance,
    factor_of,
    given_level,
    number,
    out_of,
    percent,
    proportion,
    size_for_level,
    size_for_power,
    value,
)
from neyman.numerics import check
from neyman.numerics.relation import Relation

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))
"""The priors shown to a reader: a long shot, a suspicion, even odds."""


# ---- a test and what it confirms ---------------------------------------------------------------


def power(
    level: Numeric, power: Numeric, subject: str = "person", neighboring: Relation = "replace-one"
) -> str:
    """Write an attacker's error rate, their success rate, and the rate of guessing.

    To confirm a claim is to report it as true. Each sentence holds for each claim separately.

    Args:
        neighboring: "add-remove" for claims that someone is in the data, else claims about a
            record.

    Returns:
        For .05 and .25: "An attacker who wrongly confirms a false claim about a person 5% of the
        time can correctly confirm a true claim at most 25% of the time. Guessing would confirm it
        5% of the time." The power is rounded up, by less than a tenth of itself.
    """
    if neighboring == "add-remove":
        return membership(level, power, subject)
    return _test(
        level,
        power,
        f"An attacker who wrongly confirms a false claim about {article(subject)} {subject}",
        "confirm a true claim",
        "confirm it",
    )


_power = power  # used in functions with an argument of this name


def membership(level: Numeric, power: Numeric, subject: str = "person") -> str:
    """Write the sentences of `power` for the claim that a subject is in the data (add-remove).

    ``power`` bounds both orders of the neighbors, as a trade-off curve does.
    """
    what = _test(
        level,
        power,
        f"An attacker who wrongly reports an absent {subject} as present",
        f"report a present {subject}",
        "do so",
    )
    return f"{what} The same limit holds for reporting absence."


def training(level: Numeric, power: Numeric, sees: str = "every training step") -> str:
    """Write the sentences of `power` for membership in training data (add-remove neighbors).

    Args:
        sees: the attacker's view: "every training step" or "only the final model".
    """
    return _test(
        level,
        power,
        f"An attacker who sees {sees} and wrongly flags a non-member",
        "flag a training record",
        "flag it",
    )


def _test(
    level: Numeric, power: Numeric, wrong: str, right: str, guess: str, despite: str = ""
) -> str:
    """Write a test's level and power in words: its error, its success, and guessing.

    ``wrong``, ``right``, and ``guess`` are phrases before the rates.
    """
    a = given_level(level)
    b = proportion("power", power)
    if b < proportion("level", level):
        raise ValueError(
            f"power = {power!r} must be at least the level = {level!r}: guessing achieves that"
        )
    size, fine = size_for_level(a), size_for_power(b)
    if b < _RARE_PROBABILITY and cases(b, max(size, fine)) <= 1000:
        size = fine = max(size, fine)  # one denominator for both, if the numbers stay short
    rate = f"{number(a * 100, 6)}% of the time" if a >= _RARE_PROBABILITY else _times(a, size)
    if b == a:
        return (
            f"{wrong} {rate} can {right} at most equally often{despite}. "
            "That is no better than guessing."
        )
    most = percent(b)
    if most == "100%":
        success = f"might correctly {right} every time"
    else:
        often = f"{most} of the time" if b >= _RARE_PROBABILITY else _times(b, fine)
        success = f"can correctly {right} at most {often}"
    return f"{wrong} {rate} {success}{despite}. Guessing would {guess} {rate}."


_RARE_PROBABILITY = Fraction(1, 1000)  # rarer events are written as "1 time in 10,000"


def _times(x: Fraction, size: int) -> str:
    """Return a rate such as "1 time in 10,000", rounded up."""
    count = cases(x, size)
    return f"{count:,} {'time' if count == 1 else 'times'} {out_of(size).replace('of', 'in')}"


def finding(level: Numeric, power: Numeric, prior: Numeric, *, capital: bool = True) -> str:
    """Write how often a positive result of a test is correct, for a prior.

    Args:
        capital: True to begin with a capital letter.

    Returns:
        For .05, .25 and 1/2: "At even odds, a positive result of this test is correct at most 83.4%
        of the time." The percentage is rounded up.
    """
    text = finding_right(prior, percent(posterior(given_level(level), power, prior)))
    return text if capital else text[0].lower() + text[1:]


def finding_right(prior: Numeric, right: str) -> str:
    """Write the sentence of `finding` with the percentage ``right``, a text."""
    text = f"{odds(prior)}, a positive result of this test is correct at most {right} of the time."
    return _capital(text)


def posterior(level: Numeric, power: Numeric, prior: Numeric) -> Fraction:
    """Return the exact probability that a positive result is correct; see `testing`."""
    return testing.positive_predictive_value(
        proportion("power", power), proportion("level", level), proportion("prior", prior)
    )


def odds(prior: Numeric) -> str:
    """Write a prior in words, rounded down: "at even odds", "if 1 in 100 such claims is true"."""
    p = proportion("prior", prior)
    if p == Fraction(1, 2):
        return "at even odds"
    if p.numerator == 1:
        return f"if 1 in {p.denominator:,} such claims is true"
    return f"if {percent(p, up=False)} of such claims are true"


def right_guess(guess: str, baseline: Numeric, success: Numeric, knows: str = "") -> str:
    """Write how often a guess is right, without a release and with it.

    Args:
        guess: the attacker's action, such as "name the right one of 20 candidates".
        baseline: the best chance of a right guess without the release, in (0, 1].
        success: an upper bound on the chance with the release, rounded up.
        knows: the attacker's knowledge, such as " knows everyone else’s record and".

    Returns:
        For .05 and .25: "An attacker who knows everyone else’s record and would name the right one
        of 20 candidates 5% of the time without the release can do so at most 25% of the time with
        it."
    """
    b, s = proportion("baseline", baseline), proportion("success", success)
    start = f"An attacker who{knows} would {guess} {_frequency(b, up=False)} without the release"
    if s <= b:
        return f"{start} can do so at most equally often with it."
    if percent(s) == "100%":
        return f"{start} might do so every time with it."
    return f"{start} can do so at most {_frequency(s)} with it."


def _frequency(x: Fraction, *, up: bool = True) -> str:
    """Write "25% of the time", or "1 time in 10,000" if rare.

    If not ``up``, a rare rate is rounded down to two digits.
    """
    if x >= _RARE_PROBABILITY:
        return f"{percent(x, up=up)} of the time"
    if x.numerator == 1:
        return f"1 time in {x.denominator:,}"
    unit = Fraction(10) ** -(len(str(x.denominator // x.numerator)) + 1)
    cut = x // unit * unit
    return _times(x, size_for_power(x)) if up else _times(cut, size_for_level(cut))


def known(subject: str, held: Sequence[str]) -> str:
    """Write a subject with known attributes, as "person with a known state and year".

    Args:
        held: the attributes that exact totals fix. If there are none, return only the subject.
    """
    return f"{subject} with a known {_list_words(held)}" if held else subject


def held_conditions(held: Sequence[str]) -> tuple[str, ...]:
    """Return the condition that exact totals add to a named attack; none without totals."""
    return (f"All candidates and records have the same {_list_words(held)}.",) if held else ()


def about(attributes: Sequence[str], within: str | None) -> str:
    """Name a claim by its attributes: "county within a known state"."""
    names = " and ".join(attributes)
    return f"{names} within a known {within}" if within else names


def open_claims(claims: Iterable[tuple[str, bool]], totals: Sequence[str]) -> str:
    """Write which claims have a limit despite exact totals, and which have no limit.

    Args:
        claims: each claim's attribute, such as "race", and True if a change of it can move a total.
        totals: the attributes of each table of totals.
    """
    listed = [*claims]
    limited = [name for name, moves in listed if not moves]
    unlimited = [name for name, moves in listed if moves]
    rest = ", and each claim that combines one of these with others"
    first = (
        f"The limit is for claims that no total moves: {'; '.join(limited)}. " if limited else ""
    )
    return (
        f"Exact totals are public (by {'; by '.join(totals)}). {first}Every other claim has no "
        f"limit{': ' + '; '.join(unlimited) + rest if unlimited else ''}."
    )


def claim(
    neighboring: Relation, subject: str = "person", rows: int = 1, held: Sequence[str] = ()
) -> str:
    """Write the kind of claim that the guarantee covers, given the neighboring relation.

    Args:
        rows: the most records of one subject.
        held: the attributes that exact totals fix.
    """
    if neighboring == "replace-one":
        records = "records" if rows == 1 else f"sets of up to {rows:,} records"
        return (
            f"A claim says which of two {records} {article(subject)} {subject} has. The limit "
            f"holds for any two {records.split(' of ')[0]}{_same(held)}."
        )
    if neighboring == "add-remove":
        given = f"a given {subject}" + ("" if rows == 1 else f" (up to {rows:,} rows)")
        return f"A claim says that {given} is in the data, or that the {subject} is not."
    return f"A claim says which of two neighboring datasets is the true one ({neighboring})."


def change(
    neighboring: Relation, subject: str = "person", rows: int = 1, held: Sequence[str] = ()
) -> str:
    """Write how neighbors differ: "with one person’s record replaced by any other"."""
    what = f"one {subject}’s " + ("record" if rows == 1 else f"records (up to {rows:,})")
    if neighboring == "replace-one":
        return f"with {what} replaced by any other{_same(held)}"
    if neighboring == "add-remove":
        return f"with {what} added or removed"
    return f"with the difference between neighbors ({neighboring})"


def _same(held: Sequence[str]) -> str:
    return f" with the same {_list_words(held)}" if held else ""


def concerning(
    attributes: Sequence[str],
    level: Numeric,
    power: Numeric,
    subject: str = "person",
    within: str | None = None,
) -> str:
    """Write what an attacker can confirm about only certain attributes of one person.

    Args:
        attributes: names of the attributes, at least one, such as ["race"]. ``power`` is for the
            queries that they can change.

    Returns:
        For ["race"], .05 and .25: "An attacker who wrongly confirms a false claim about a person’s
        race 5% of the time can correctly confirm a true claim at most 25% of the time, even if they
        know everything else about that person and everyone else’s record. Guessing would confirm it
        5% of the time."
    """
    what = f"{article(subject)} {subject}’s {_list_words(attributes)}"
    if within:
        what += f" within a known {within}"
    return _test(
        level,
        power,
        f"An attacker who wrongly confirms a false claim about {what}",
        "confirm a true claim",
        "confirm it",
        f", even if they know everything else about that {subject} and everyone else’s record",
    )


# ---- what an attacker comes to believe ---------------------------------------------------------


def odds_sentence(epsilon: Numeric, probability: Numeric, subject: str = "person") -> str:
    """Write by how much one record can raise the odds of a true claim about it.

    The odds are those after the release, against a release in which this record was replaced. They
    are a likelihood ratio, so the probability is that of probabilistically bounded DP
    (``guarantee.pbdp(epsilon)``), and not the delta of (epsilon, delta)-DP, which is smaller.

    Args:
        epsilon: logarithm of the factor, at least 0 and finite; the factor is rounded up.
        probability: an upper bound on the chance that the factor is larger.

    Returns:
        For 2.302 and .0783: "This person’s record multiplies the odds that an attacker holds for a
        true claim about it by at most 10, except with probability 7.9%, ..."
    """
    factor, chance = factor_of(_finite("epsilon", epsilon)), proportion("probability", probability)
    return (
        f"This {subject}’s record multiplies the odds that an attacker holds for a true claim "
        f"about it by at most {factor}, except with probability {percent(chance)}, compared with a "
        "release in which this record was replaced."
    )


def belief_sentence(
    attacker: Attacker,
    epsilon: Numeric,
    probability: Numeric,
    subject: str = "person",
    about: str = "record",
    within: str | None = None,
) -> str:
    """Write the bound of ``ny.posterior_ratio`` for one kind of attacker.

    Args:
        attacker: "knows-the-rest", "true-record" or "arbitrary-prior".
        epsilon: logarithm of the factor, at least 0 and finite; the factor is rounded up.
        about: the claim's topic: "record", or an attribute if the bound is for a scenario.

    Returns:
        For "arbitrary-prior", 3 and .004: "With probability at most 0.4%, an attacker’s belief in a
        person’s true record is more than 20.1 times the belief they would hold without that record.
        This is an average over a calibrated prior."

    Raises:
        ValueError: the attacker is unknown, or a number is out of range.
    """
    check.one_of("attacker", attacker, ATTACKERS)
    factor = factor_of(_finite("epsilon", epsilon))
    p = proportion("probability", probability)
    whose = f"{article(subject)} {subject}’s"
    place = f" within a known {within}" if within else ""
    if attacker == "arbitrary-prior":
        lacking = "record" if about == "record" else "value"
        case, than = "", f"the belief they would hold without that {lacking}"
        who, claim = "an attacker’s belief in", f"{whose} true {about}{place}"
    else:
        case = f"if an attacker knows everything except {whose} {about}{place}, "
        true, than, who = attacker == "true-record", "their prior", "their belief in"
        claim = f"the true {about}" if true else "a given statement about it, true or false,"
    held, grown = f"{who} {claim}", f"more than {factor} times {than}"
    if not p:
        return _capital(f"{case}{held} is never {grown}, whatever their prior is.")
    if p == 1:
        return f"This gives no limit: {case}{held} might be {grown} every time."
    start = f"{case}then with" if case else "with"
    end = (
        f", whatever the true {about} is."
        if attacker == "true-record"
        else ". This is an average over a calibrated prior."
    )
    return _capital(f"{start} probability at most {_share(p)}, {held} is {grown}{end}")


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def belief(prior: Numeric, posterior: Numeric, probability: Numeric) -> str:
    """Write how often a belief in a claim grows from a prior to above a posterior.

    Args:
        prior: prior probability of a claim, in (0, 1); printed rounded down.
        posterior: posterior probability, at least the prior; printed rounded up.
        probability: upper bound on the chance of exceeding the posterior, from
            ``posterior_chance``; rounded up.

    Returns:
        For .01, .5 and .002: "Of claims about one person with a prior of 1%, at most 0.2% have a
        posterior above 50%."
    """
    p, q = proportion("prior", prior), proportion("posterior", posterior)
    if q < p:
        raise ValueError(f"posterior = {posterior!r} must be at least the prior = {prior!r}")
    c = proportion("probability", probability)
    count = f"at most {_share(c)} have" if c else "none has"
    return (
        f"Of claims about one person with a prior of {percent(p, up=False)}, {count} a posterior "
        f"above {percent(q)}."
    )


def _share(x: Fraction) -> str:
    """Write a probability, rounded up: in percent, or as "12 in 10 million" if rare."""
    return percent(x) if x >= _RARE_PROBABILITY else chance(x)


# ---- the same guarantee in other vocabularies -------------------------------------------------


def epsilon(epsilon: Numeric, delta: Numeric, change: str) -> str:
    """Write (epsilon, delta) in one line: the factor e^epsilon, and the remaining delta."""
    e = value("epsilon", epsilon)
    d = proportion("delta", delta)
    if not isinstance(e, Fraction) or e > 10**6 or d == 1:
        return f"This gives no useful guarantee, {change}."
    rest = f", plus a probability of {chance(d)}" if d else ""
    factor = factor_of(e)
    return f"The probability of any outcome grows by at most a factor of {factor}{rest}, {change}."


def gdp(mu: Numeric) -> str:
    """Write Gaussian differential privacy in one line. ``mu``: an upper bound, at least 0."""
    m = value("mu", mu)
    if not isinstance(m, Fraction):
        return "No two bell curves, however far apart, are as easy to distinguish as this release."
    return (
        "To test a claim is at least as hard as to decide from one draw which of two bell curves "
        f"it came from, when their centers are {number(m)} standard deviations apart."
    )


def safe_mu(mu: Numeric, levels: tuple[float, float]) -> str:
    """Write that no test at these levels has more power than under mu-GDP.

    The sentence has the power at the lowest level.

    Args:
        mu: an upper bound, at least 0.
        levels: the smallest and the largest level.
    """
    low, high = (number(100 * Fraction(repr(level)), 6) for level in levels)
    m = value("mu", mu)
    if not isinstance(m, Fraction):
        return f"At some false positive rate from {low}% to {high}%, a test may never be wrong."
    power = percent(float(ndtr(ndtri(levels[0]) + float(m))))
    return (
        f"At every false positive rate from {low}% to {high}%, a test is at most as powerful as on "
        f"two bell curves whose centers are {number(m)} standard deviations apart. At {low}% it "
        f"confirms at most {power} of true claims. This covers no other rates and does not add up."
    )


def zcdp(rho: Numeric) -> str:
    """Write zero-concentrated differential privacy in one line. ``rho``: an upper bound."""
    r = value("rho", rho)
    if not isinstance(r, Fraction):
        return "No finite number of this kind describes the release."
    return _ADDS


def total_variation(tv: Numeric) -> str:
    """Write total variation in one line. ``tv``: an upper bound, in [0, 1]."""
    t = proportion("tv", tv)
    return (
        "The true positive rate exceeds the false positive rate by at most "
        f"{percent(t)[:-1]} percentage points."
    )


_ADDS = "This cost adds up: releases from the same data together cost at most the sum."


def _finite(name: str, x: Numeric) -> Fraction:
    exact = value(name, x)
    if not isinstance(exact, Fraction) or exact < 0:
        raise ValueError(f"{name} = {x!r} must be at least 0 and finite")
    return exact


def _list_words(names: Sequence[str]) -> str:
    """Write a list in words: "race", "race and age", "race, age and block"."""
    if isinstance(names, str) or not names:
        raise ValueError(f"attributes = {names!r} must be a list of at least one name")
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])
