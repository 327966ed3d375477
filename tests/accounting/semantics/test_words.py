"""Sentences, and that no rounding in them favors the release."""

import math
import re
from fractions import Fraction

import mpmath
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import neyman as ny
from neyman.accounting import budget_of, plural, scale_sentence
from neyman.accounting import sentences as words

SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
NAMES = {"a million": 10**6, "a billion": 10**9, "a trillion": 10**12}
NAMES |= {f"{k} {n[2:]}": k * v for n, v in list(NAMES.items()) for k in (10, 100)}
OF = r"(?:of|in) (a \w+|10+ \w+illion|10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|[\d,]+)"


def read(text: str) -> Fraction:
    """A printed number, as a reader takes it."""
    text = text.replace(",", "").replace("−", "-")
    if text.endswith("%"):
        return read(text[:-1]) / 100
    if text in NAMES:
        return Fraction(NAMES[text])
    power = re.fullmatch(r"(?:(\S+) × )?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", text)
    if power:
        mantissa = Fraction(power[1] or 1)
        return mantissa * Fraction(10) ** int(power[2].translate(SUPERSCRIPT))
    return Fraction(text)


def decimal(x: float) -> Fraction:
    """The number that a receipt shows for the float."""
    return Fraction(repr(x))


floats = st.floats(-1e300, 1e300, allow_nan=False)
probabilities = st.floats(0, 1)
levels = st.one_of(
    st.floats(0.0, 1, exclude_min=True, exclude_max=True), st.sampled_from([0.01, 0.05, 0.1, 1e-6])
)


@given(floats, st.integers(1, 6))
@example(0.9999, 3)
@example(9.9996e20, 3)
@example(1e-5, 1)
def test_number_is_rounded_in_the_direction_asked(x, digits):
    up, down = read(words.number(x, digits)), read(words.number(x, digits, up=False))
    exact = decimal(x)
    assert down <= exact <= up
    assert up - down <= abs(exact) * Fraction(10) ** (1 - digits)


@given(probabilities)
@example(0.999999999999)
@example(1e-12)
@example(5e-324)
def test_percent_is_rounded_in_the_direction_asked(x):
    up, down = read(words.percent(x)), read(words.percent(x, up=False))
    assert down <= decimal(x) <= up
    assert up - down <= Fraction(1, 1000)
    assert down >= 0
    assert up <= 1


@given(st.floats(0, 1), st.booleans())
def test_chance_costs_less_than_a_twentieth(x, up):
    text = words.chance(x, up=up)
    match = re.fullmatch(r"([\d,]+) " + OF, text)
    assert match, text
    said, exact = read(match[1]) / read(match[2]), decimal(x)
    assert (said >= exact) if up else (said <= exact)
    assert abs(said - exact) <= exact / 20


@given(st.floats(0, 1), st.booleans())
@example(9.6e-7, True)
@example(0.00096, True)
def test_a_chance_is_a_rate_in_its_lowest_power_of_ten(x, up):
    count, _, size = words.chance(x, up=up).partition(" in ")
    assert read(count) % 10 != 0 or size == "100"


RATE = r"(?:(\S+%) of the time|([\d,]+) times? in (a \w+|10+ \w+illion|10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|[\d,]+))"


def rate(match: re.Match[str], first: int) -> Fraction:
    """A rate in a sentence: "5% of the time" or "12 times in 10 million"."""
    share, count, size = match.group(first, first + 1, first + 2)
    return read(share) if share else read(count) / read(size)


@given(levels, probabilities, st.sampled_from(["replace-one", "add-remove", "training", "one"]))
@example(1e-6, 1.2e-6, "replace-one")
@example(1e-6, 0.3, "add-remove")
@example(0.05, 0.9999, "training")
@example(0.05, 1.0, "one")
@example(1e-300, 1e-300, "replace-one")
def test_the_sentence_never_favors_the_release(level, above, kind):
    power = max(level, above)
    if kind == "training":
        text = words.training(level, power)
    elif kind == "one":
        text = words.concerning(["race"], level, power)
    else:
        text = words.power(level, power, "household", kind)
    first = re.search(
        r"(?:a household|a person’s race|as present|a non-member) " + RATE + " (can|might)", text
    )
    assert first, text
    a = rate(first, 1)
    assert a <= decimal(level)
    assert decimal(level) - a <= decimal(level) / 1000
    if "every time" in text:
        assert power > 0.9999 - 1e-12
        return
    if "at most equally often" in text:
        assert a == decimal(power)
        return
    result = re.search("can correctly .* at most " + RATE + r"(?:\.|, even)", text)
    assert result, text
    b = rate(result, 1)
    assert decimal(power) <= b <= decimal(power) * Fraction(11, 10)
    assert b < 1
    guess = re.search(r"Guessing would (?:confirm it|flag it|do so) " + RATE + r"\.", text)
    assert guess, text
    assert rate(guess, 1) == a


@given(levels, probabilities, st.fractions(0, 1, max_denominator=100))
def test_a_finding_is_never_less_often_right_than_computed(level, above, prior):
    power = max(level, above)
    match = re.search(r"correct at most (\S+%) of the time", words.finding(level, power, prior))
    assert match
    a, b = decimal(level), decimal(power)
    exact = prior * b / (prior * b + (1 - prior) * a)
    assert exact <= read(match[1])
    assert words.posterior(level, power, prior) == exact


@pytest.mark.parametrize(
    ("level", "said"), [("0.05", "5%"), ("0.0129", "1.29%"), ("1e-12", "0.0000000001%")]
)
def test_a_chosen_limit_and_the_scale_state_the_level_in_full(level, said):
    """A level of 1.29% was share as 1.2%, and one of 1e-12 as 0%."""
    assert f"at a {said} false positive rate" in ny.at_most("0.3", level).sentence
    assert f"no information {said};" in scale_sentence(float(level), 0.3)


@given(levels, probabilities, st.floats(1e-6, 0.999999))
@example(0.05, 0.25, 0.12301)
def test_a_finding_also_holds_at_the_prior_that_it_states(level, above, prior):
    power = max(level, above)
    said = words.finding(level, power, prior)
    share = re.match(r"If (\S+%) of such claims are true", said)
    assume(share is not None)
    limit = re.search(r"correct at most (\S+%) of the time", said)
    assert share
    assert limit
    a, b, p = decimal(level), decimal(power), read(share[1])
    assert p * b / (p * b + (1 - p) * a) <= read(limit[1])


@given(st.floats(0, 600))
def test_the_factor_of_epsilon_is_rounded_up(epsilon):
    text = words.epsilon(epsilon, 1e-6, "with one record replaced")
    match = re.search(r"a factor of (.+?), plus a probability of 1 in a million, with one", text)
    assert match, text
    with mpmath.workdps(60):
        true = mpmath.exp(mpmath.mpf(repr(epsilon)))
        said = read(match[1])
        said = mpmath.mpf(said.numerator) / said.denominator
        assert said >= true
        assert said <= true * (1.0101 if true < 1e300 else 10)


@given(probabilities)
def test_total_variation_is_rounded_up(tv):
    text = words.total_variation(tv)
    match = re.search(r"by at most (\S+) percentage points", text)
    assert match, text
    assert read(match[1]) / 100 >= decimal(tv)


HEADLINES = [
    (
        words.power("0.05", "0.25"),
        "An attacker who wrongly confirms a false claim about a person 5% of the time can "
        "correctly confirm a true claim at most 25% of the time. Guessing would confirm it 5% of "
        "the time.",
    ),
    (words.power(0.05, 0.25, "user", "add-remove"), "wrongly reports an absent user as present 5%"),
    *(
        (words.power(0.05, 0.25, noun), f"false claim about {article} {noun} 5% of")
        for article, nouns in (
            ("a", ("user", "university", "European", "one-parent family", "US citizen", "group")),
            ("an", ("employee", "hour", "heir", "uncle", "HR record", "NGO", "8-year-old")),
        )
        for noun in nouns
    ),
    (words.power(0.05, 0.05), "at most equally often. That is no better than gue"),
    (words.training(0.05, 0.25, "only the final model"), "who sees only the final model and wrong"),
    (words.finding(0.05, 0.25, 0.5), "At even odds, a positive result of this test is correct at"),
    (words.claim("add-remove", "household"), "is in the data, or that the household is not"),
    (words.change("add-remove", "person", 5), "with one person’s records (up to 5) added or"),
    (
        words.belief_sentence("knows-the-rest", 3, 0.004, about="race"),
        "If an attacker knows everything except a person’s race, then with probability at most "
        "0.4%, their belief in a given statement about it, true or false, is more than 20.1 times "
        "their prior. This is an average over a calibrated prior.",
    ),
    (words.belief_sentence("true-record", 3, 0.004), "whatever the true record is."),
    (words.belief_sentence("true-record", 3, 0), "is never more than 20.1 times their prior"),
    (words.belief_sentence("arbitrary-prior", 3, 0.004), "they would hold without that record."),
    (words.concerning(["race"], 0.05, 0.25), "about a person’s race 5% of the time can correctly"),
    (words.concerning(["age", "race"], 0.1, 0.2, within="tract"), "age and race within a known t"),
    (words.epsilon(math.inf, 1e-6, "c"), "no useful guarantee"),
    (words.epsilon(1e300, 0, "c"), "no useful guarantee"),
    (words.epsilon(1e5, 0, "c"), "10⁴³⁴³⁰"),  # e^100000 = 2.8e43429
    (words.gdp("inf"), "No two bell curves"),
    (words.zcdp("inf"), "No finite number"),
    (words.number("inf"), "∞"),
    (budget_of({"kind": "zcdp", "rho": "1", "delta": "0.000001"}).sentence, "and delta 10⁻⁶"),
    (plural("person") + plural("household") + plural("company"), "peoplehouseholdscompanies"),
]


def test_headlines_have_their_words():
    for text, fragment in HEADLINES:
        assert fragment in text


def the_chance(text: str) -> Fraction:
    """The chance that a sentence names."""
    match = re.search(r"probability at most (?:(\S+%)|([\d,]+) " + OF + "),", text)
    match = match or re.search(r"probability at most (?:(\S+%)|([\d,]+) " + OF + ") ", text)
    assert match, text
    return read(match[1]) if match[1] else read(match[2]) / read(match[3])


def the_factor(text: str) -> Fraction:
    """The factor that a sentence names."""
    match = re.search(r"more than (.+?) times the", text)
    assert match, text
    return read(match[1])


@given(st.sampled_from(words.ATTACKERS), st.floats(0, 600), st.floats(0, 1, exclude_min=True))
@example("true-record", 3.0, 0.004)
@example("arbitrary-prior", 0.0, 5e-324)
@example("knows-the-rest", 34.03864726193496, 1.0)
def test_what_is_learned_is_never_said_to_be_less(attacker, epsilon, probability):
    text = words.belief_sentence(attacker, epsilon, probability)
    exact = mpmath.exp(mpmath.mpf(repr(epsilon)))  # floats are read as the decimal they print
    assert float(the_factor(text)) >= exact * (1 - 1e-15)
    if probability < 1:
        assert decimal(probability) <= the_chance(text) <= decimal(probability) * Fraction(11, 10)
    else:
        assert "no limit" in text


@given(st.floats(1e-6, 0.999), st.floats(0, 1), st.floats(0, 1))
def test_a_belief_is_rounded_so_that_it_stays_true(prior, up, chance):
    posterior = prior + (1 - prior) * up
    text = words.belief(prior, posterior, chance)
    printed = [read(x) for x in re.search(r"a prior of (\S+%), .* above (\S+%)\.", text).groups()]
    assert printed[0] <= decimal(prior)
    assert printed[1] >= decimal(posterior)
    said = re.search(r"at most (?:(\S+%)|([\d,]+) " + OF + ") have", text)
    if said:
        shown = read(said[1]) if said[1] else read(said[2]) / read(said[3])
        assert shown >= decimal(chance)
    else:
        assert chance == 0


def test_the_odds_grow_beyond_ten_with_the_chance_of_pbdp_and_not_with_delta():
    """mu = 1: the largest event with 10 times the mass under P, by its own equation, is .078."""
    curve, cdf = ny.gdp(1), mpmath.ncdf
    least = mpmath.findroot(lambda cut: cdf(1 - cut) - 10 * cdf(-cut), 2)
    own = float(cdf(1 - least))
    assert abs(float(curve.pbdp(epsilon=math.log(10))) - own) < 1e-9
    assert float(curve.delta(epsilon=math.log(10))) < own / 7
    upper = ny.posterior_ratio(curve, epsilon=2.302).upper
    said = words.odds_sentence(2.302, upper)
    assert "by at most 10, except with probability 7.9%, compared with a release" in said
