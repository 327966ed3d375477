"""Sentences, and that no rounding in them favors the release."""

import math
import re
from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neyman.semantics import words

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
    """Up is at or above, down at or below, both within a unit of the last digit."""
    up, down = read(words.number(x, digits)), read(words.number(x, digits, up=False))
    exact = decimal(x)
    assert down <= exact <= up
    assert up - down <= abs(exact) * Fraction(10) ** (1 - digits)


@given(probabilities)
@example(0.999999999999)
@example(1e-12)
@example(5e-324)
def test_percent_is_rounded_in_the_direction_asked(x):
    """Up is at or above, down at or below, both within a tenth of a per cent."""
    up, down = read(words.percent(x)), read(words.percent(x, up=False))
    assert down <= decimal(x) <= up
    assert up - down <= Fraction(1, 1000)
    assert down >= 0
    assert up <= 1


@given(st.floats(0, 1), st.booleans())
def test_chance_costs_less_than_a_twentieth(x, up):
    """A chance in words is at least (at most) the chance, within 5%."""
    text = words.chance(x, up=up)
    match = re.fullmatch(r"([\d,]+) " + OF, text)
    assert match, text
    said, exact = read(match[1]) / read(match[2]), decimal(x)
    assert (said >= exact) if up else (said <= exact)
    assert abs(said - exact) <= exact / 20


@given(levels, probabilities)
@example(1e-6, 1.2e-6)
@example(1e-6, 0.3)
@example(0.05, 0.9999)
@example(0.05, 1.0)
@example(1e-300, 1e-300)
def test_the_sentence_never_favors_the_release(level, above):
    """The level said is at most the level, the power said at least the power, and close to it."""
    power = max(level, above)
    text = words.power(level, power, "household")
    start = "Where a claim about a household is false, the best test says otherwise in "
    assert text.startswith(start)
    match = re.search(r"in ([\d,]+) cases? " + OF + r";", text)
    assert match, text
    out_of = read(match[2])
    a = read(match[1]) / out_of
    assert a <= decimal(level)
    assert decimal(level) - a <= decimal(level) / 1000
    if "every time" in text:
        assert power > 0.9999 - 1e-12
        return
    if "just as rarely" in text:
        assert a == decimal(power)
        return
    found = re.search(r"finds out in at most ([\d,]+)(?: " + OF + r")?\. Guessing", text)
    assert found, text
    b = read(found[1]) / (read(found[2]) if found[2] else out_of)
    assert decimal(power) <= b <= decimal(power) * Fraction(21, 20)
    assert b < 1


def test_the_sentence_of_a_policy_maker():
    """Power 25% at level 5% reads as the project's own example."""
    assert words.power("0.05", "0.25") == (
        "Where a claim about a person is false, the best test says otherwise in 5 cases of 100; "
        "where it is true, it finds out in at most 25. Guessing finds 5."
    )


@pytest.mark.parametrize(
    ("level", "power", "said"),
    [
        (1e-6, 1.2e-6, "in 10 cases in 10 million; where it is true, it finds out in at most 12."),
        (1e-6, 0.3, "in 1 case in a million; where it is true, it finds out in at most 30 of 100."),
        (0.05, 0.9999, "in 500 cases of 10,000; where it is true, it finds out in at most 9,999."),
        (0.05, 1, "in 5 cases of 100; where it is true, it may find out every time."),
        (0.05, 0.05, "in 5 cases of 100; where it is true, it finds out just as rarely."),
        (0.01, 0.0872, "in 1 case of 100; where it is true, it finds out in at most 9."),
    ],
)
def test_extreme_tests_read_well(level, power, said):
    """Denominators grow only as far as the numbers need."""
    assert said in words.power(level, power)


@given(levels, probabilities, st.fractions(0, 1, max_denominator=100))
def test_a_finding_is_never_less_often_right_than_computed(level, above, prior):
    """The percentage in the sentence is at least the exact posterior."""
    power = max(level, above)
    match = re.search(r"right at most (\S+%) of the time", words.finding(level, power, prior))
    assert match
    a, b = decimal(level), decimal(power)
    exact = prior * b / (prior * b + (1 - prior) * a)
    assert exact <= read(match[1])
    assert words.posterior(level, power, prior) == exact


def test_findings_at_the_usual_priors():
    """.25 at .05: 25 of 520, 250 of 700 and 1250 of 1500 findings are right."""
    said = [words.finding(0.05, 0.25, prior) for prior in words.PRIORS]
    assert said == [
        "Where 1 in 100 such claims is true beforehand, a finding of this test is right at most "
        "4.9% of the time.",
        "Where 1 in 10 such claims is true beforehand, a finding of this test is right at most "
        "35.8% of the time.",
        "At even odds beforehand, a finding of this test is right at most 83.4% of the time.",
    ]


@given(st.floats(0, 600))
def test_the_factor_of_epsilon_is_rounded_up(epsilon):
    """The factor said is at least e^epsilon, by less than a hundredth (or a power of ten)."""
    text = words.epsilon(epsilon, 1e-6, "with one record replaced")
    match = re.search(r"a factor of (.+?), plus a chance of 1 in a million, with one", text)
    assert match, text
    with mpmath.workdps(60):
        true = mpmath.exp(mpmath.mpf(repr(epsilon)))
        said = read(match[1])
        said = mpmath.mpf(said.numerator) / said.denominator
        assert said >= true
        assert said <= true * (1.0101 if true < 1e300 else 10)


def test_boundless_guarantees_say_so():
    """Infinity is words, not a number."""
    assert "Nothing of use" in words.epsilon(math.inf, 1e-6, "c")
    assert "Nothing of use" in words.epsilon("inf", 0, "c")
    assert "Nothing of use" in words.epsilon(1e300, 0, "c")
    assert "No two bell curves" in words.gdp("inf")
    assert "No finite number" in words.zcdp("inf")
    assert words.number("inf") == "∞"
    assert "10⁴³⁴³⁰" in words.epsilon(1e5, 0, "c")  # e^100000 = 2.8e43429


@given(probabilities)
def test_total_variation_is_rounded_up(tv):
    """Percentage points and the share of right verdicts are at least the exact ones."""
    text = words.total_variation(tv)
    match = re.search(r"more than (\S+) percentage points .* more than (\S+%) of the time", text)
    assert match, text
    assert read(match[1]) / 100 >= decimal(tv)
    assert read(match[2]) >= (1 + decimal(tv)) / 2


def test_words_follow_the_unit_and_the_relation():
    """Households, several rows and both relations are spoken of as what they are."""
    assert words.plural("person") == "people"
    assert words.plural("household") == "households"
    assert words.plural("company") == "companies"
    assert "an individual" in words.power(0.05, 0.25, "individual")
    assert "one thing rather than another" in words.claim("replace-one")
    assert "is in the data, or that the household is not" in words.claim("add-remove", "household")
    assert words.change("add-remove", "person", 5) == (
        "with one person’s records (up to 5) added or removed"
    )
    assert words.change("replace-one") == "with one person’s record replaced by any other"


@pytest.mark.parametrize(
    ("level", "power", "said"),
    [
        (0.05, 0.01, "power = 0.01"),
        (0.0, 0.5, "level = 0"),
        (1.0, 1.0, "level = 1"),
        (0.05, 1.01, "power = 1.01"),
        (0.05, math.nan, "power = .nan"),
        ("x", 0.5, "level = 'x'"),
    ],
)
def test_wrong_numbers_are_named(level, power, said):
    """An error says which number it is, and its value."""
    with pytest.raises(ValueError, match=said):
        words.power(level, power)
