"""Canonical order: a sum is one value in whatever order it is written."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import neyman as ny
from neyman.curves import (
    Composition,
    DiscreteGaussianLoss,
    ExternalPld,
    FiniteLoss,
    LaplaceLoss,
    LossBracket,
    SubsampledGaussianLoss,
)
from neyman.numerics import order_key

LOSSES = [
    (LaplaceLoss(Fraction(1, 2)), 2),
    (LaplaceLoss(Fraction(10)), 1),
    (SubsampledGaussianLoss(1e-5, 0.3, True), 1),
    (SubsampledGaussianLoss(2.0, 0.3, True), 4),
    (LossBracket(LaplaceLoss(Fraction(1)), LaplaceLoss(Fraction(2)), "between"), 1),
]
MECHANISMS = [
    ny.DiscreteGaussian(3),
    ny.DiscreteGaussian(Fraction(7, 2)) * 4,
    ny.Gaussian(1).subsample(rate=0.1),
    ny.Gaussian(1),
    ny.Laplace(scale=20) * 3,
]


@dataclass(frozen=True)
class Nameless(LaplaceLoss):
    """A loss whose text says nothing about it."""

    def __repr__(self):
        return "a loss"


def test_equal_sums_in_any_order_are_equal_compositions():
    first, *others = [Composition.of(parts) for parts in permutations(LOSSES)]
    for other in others:
        assert other == first
        assert other.parts == first.parts
        assert hash(other) == hash(first)


def test_equal_sums_in_any_order_are_equal_mechanisms_with_one_json():
    sums = [sum(parts, ny.Mechanism.nothing()) for parts in permutations(MECHANISMS)]
    assert set(sums) == {sums[0]}
    assert {one.to_json() for one in sums} == {sums[0].to_json()}


def test_the_order_does_not_depend_on_the_text_of_repr():
    """Of two losses with one text neither would come first, and the order written would count."""
    parts = [(Nameless(Fraction(k)), 1) for k in (1, 2, 3)]
    assert len({repr(part) for part in parts}) == 1
    sums = {Composition.of(written).parts for written in permutations(parts)}
    assert len(sums) == 1


def test_two_external_losses_with_one_text_have_a_canonical_order():
    """The text of one shows its source, its length, and its largest value, and no probability."""
    halves, thirds = (FiniteLoss(Fraction(1), (-1, 1), (p, p), 0.0, 0.0) for p in (-0.7, -1.1))
    parts = [(ExternalPld(law, law, "a paper"), 1) for law in (halves, thirds)]
    assert repr(parts[0]) == repr(parts[1])
    assert Composition.of(parts).parts == Composition.of(parts[::-1]).parts


def test_equal_numbers_of_two_types_have_one_key():
    assert order_key(0.5) == order_key(Fraction(1, 2))
    assert order_key(2) == order_key(2.0) == order_key(Fraction(2))
    assert order_key(-0.0) == order_key(0)
    assert order_key(float("inf")) > order_key(1e300)


def test_two_kinds_with_equal_fields_have_two_keys():
    assert order_key(LaplaceLoss(Fraction(1))) != order_key(Nameless(Fraction(1)))
    assert order_key(DiscreteGaussianLoss(Fraction(1), 1)) < order_key(LaplaceLoss(Fraction(1)))


def test_a_field_that_equality_ignores_does_not_count():
    losses = Composition.of(LOSSES[:2])
    before = order_key(losses)
    assert hash(losses) == hash(Composition.of(LOSSES[:2]))
    assert order_key(losses) == before
