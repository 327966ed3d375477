"""Stored bounds are compared with computed ones on the safe side."""

import pytest

from neyman.publishing import Differs, intervals

OURS = {"level": 0.05, "lower": 0.2, "upper": 0.2001}


@pytest.mark.parametrize(
    ("lower", "upper", "proven"),
    [
        (0.2, 0.2001, True),
        (0.1, 0.9, True),  # a wider enclosure claims less
        (0.20002, 0.20008, False),  # within ours: neither proven nor refuted
        (0.1999, 0.20005, False),
    ],
)
def test_bounds_that_meet_ours_pass_and_say_whether_ours_prove_them(lower, upper, proven):
    said = {"level": 0.05, "lower": lower, "upper": upper}
    assert list(intervals("guarantee.power[0]", OURS, said)) == [proven]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (0.1, 0.19999),  # below what we prove the number to be at least
        (0.20011, 0.3),  # above what we prove it to be at most
        (0.2, 0.1),
    ],
)
def test_bounds_that_miss_ours_are_refused(lower, upper):
    said = {"level": 0.05, "lower": lower, "upper": upper}
    with pytest.raises(Differs, match=r"guarantee\.power\[0\] is stated in"):
        list(intervals("guarantee.power[0]", OURS, said))


def test_bounds_that_claim_more_than_versions_differ_by_are_refused():
    """Also where they lie inside a wide enclosure of ours."""
    ours = {"level": 0.05, "lower": 0.1, "upper": 0.2}
    said = {"level": 0.05, "lower": 0.1, "upper": 0.19}
    with pytest.raises(Differs):
        list(intervals("guarantee.power[0]", ours, said))
