"""Descriptions: equal by value, written and read back, refused where they make no sense."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neyman as ny
from function_calls import function_calls
from neyman import Mechanism, Tradeoff
from neyman.curves import Composition, LaplaceLoss, discrete_laplace_loss
from neyman.mechanisms import Alternatives, Choice, Composed

tries = settings(max_examples=60)
numbers = st.one_of(
    st.floats(0.05, 50),
    st.integers(1, 20),
    st.fractions(F(1, 9), F(9), max_denominator=9),
    st.decimals(Decimal("0.1"), Decimal(9), places=3),
)
leaves = st.one_of(
    st.builds(ny.Gaussian, numbers, numbers),
    st.builds(ny.Laplace, numbers, numbers),
    st.builds(ny.RandomizedResponse, numbers, st.integers(2, 9)),
    st.builds(ny.DiscreteLaplace, numbers, st.integers(0, 3)),
    st.builds(
        ny.DiscreteGaussian,
        numbers,
        st.one_of(
            st.integers(0, 3), st.lists(st.lists(st.integers(-3, 3), max_size=3), max_size=3)
        ),
    ),
)
mechanisms = st.lists(st.tuples(leaves, st.integers(0, 4)), min_size=1, max_size=3).map(
    lambda parts: sum((m * n for m, n in parts[1:]), parts[0][0] * parts[0][1])
)
NAMES = {name: getattr(ny, name) for name in ny.__all__}
NAMES |= {"Fraction": Fraction, "Decimal": Decimal, "Composed": Composed, "np": np}


def test_a_mechanism_has_the_renyi_divergence_of_its_curve():
    known = (ny.Gaussian(2) * 3).renyi(4)  # order mu^2 / 2 each
    assert known.lower <= 3 * 4 / 8 <= known.upper <= 1.5 * (1 + 1e-9)
    assert ny.RandomSubset(1, 9).renyi(2).upper == math.inf
    with pytest.raises(ValueError, match="order"):
        ny.Gaussian(1).renyi(0.5)


def test_a_mechanism_without_a_relation_names_what_it_lacks():
    @dataclass(frozen=True)
    class Relationless(Mechanism):
        def losses(self):
            return (Composition(),)

        def rho(self):
            return F(0)

    try:
        with pytest.raises(TypeError, match="must set RELATION"):
            Relationless().tradeoff()
    finally:
        del Mechanism._kinds["Relationless"]


@tries
@given(mechanisms)
def test_a_mechanism_is_what_its_repr_evaluates_to(m):
    again = eval(repr(m), dict(NAMES))  # the law under test
    assert again == m
    assert hash(again) == hash(m)


@tries
@given(mechanisms)
def test_a_mechanism_survives_json(m):
    text = m.to_json()
    again = ny.Mechanism.from_json(text)
    assert again == m
    assert hash(again) == hash(m)
    assert again.rho() == m.rho()
    assert json.loads(text) == m.to_dict() == again.to_dict()


@pytest.mark.parametrize(
    "m",
    [
        ny.Gaussian(F(1, 3)),
        ny.Gaussian(Decimal("0.5"), 1.5),
        ny.Gaussian(np.float32(0.5)),
        Choice(((F(1, 3), ny.Gaussian(1)), (F(2, 3), ny.Laplace(1)))),
        ny.Gaussian(np.int64(5)),
        ny.Laplace(F(1, 3)),
        ny.Laplace(Decimal("0.1"), np.int64(2)),
        ny.RandomizedResponse(F(1, 3)),
        ny.RandomizedResponse(1.0, np.int64(3)),
        ny.DiscreteGaussian(Decimal("0.5")),
        ny.DiscreteLaplace(np.float64(0.5), np.int64(2)),
    ],
    ids=repr,
)
def test_every_accepted_kind_of_number_is_accounted_for_and_written(m):
    assert 0 < m.tradeoff().delta(0.0).upper <= 1
    assert m.rho() > 0
    assert ny.Mechanism.from_json(m.to_json()) == m


GAUSSIAN, LAPLACE, RESPONSE = ny.Gaussian(2), ny.Laplace(F(5, 4)), ny.RandomizedResponse(1)
DESCRIBED = [
    LAPLACE.subsample(0.1),
    GAUSSIAN.subsample(rate=F(1, 7), neighboring="replace-one"),
    LAPLACE.subsample(0.25, neighboring="replace-one"),
    (GAUSSIAN + LAPLACE).subsample(0.1) * 3 + LAPLACE,
    ny.DiscreteGaussian(2, [(1, 1)]).subsample(0.1),
    ny.DiscreteLaplace(2, 3).subsample(size=3, population=10) * 2,
    RESPONSE.subsample(size=1, population=4) + RESPONSE,
    (GAUSSIAN * 2 + LAPLACE).shuffled_batches(50) * 10,
    GAUSSIAN.random_allocation(10) * 3,
    ny.ExponentialMechanism(F(1, 3)) * 3,
    ny.ExponentialMechanism(0),
    ny.ReportNoisyMax(2.5, 2, "exponential", True),
    ny.ReportNoisyMax(2, noise="gumbel"),
    ny.SparseVector(F(5, 2), 7.5, 3, 1, True),
    ny.RandomSubset(3, 10),
    ny.LocalRandomizer(0.7),
    ny.LocalRandomizer(1.5).shuffle(users=123),
    ny.RandomizedResponse(F(1, 3), 4).shuffle(users=123),
    ny.Laplace(scale=2).shuffle(users=123),
    ny.ProposeTestRelease(ny.DiscreteLaplace(F(3, 2)), None, F(1, 1000)),
    ny.ProposeTestRelease(ny.DiscreteLaplace(F(3, 2)), ny.DiscreteGaussian(3), F(1, 1000)),
    ny.ProposeTestRelease(ny.DiscreteLaplace(F(3, 2)), ny.RoundedGaussian(2), F(1, 1000)),
]
CURVES = [  # whose mechanisms name their curve
    ny.CanonicalNoise(ny.gdp(0.1)),
    ny.CanonicalNoise(ny.gdp(1) ** 2, sensitivity=F(1, 3)),
    ny.CanonicalNoise(ny.approximate("0.1", 1e-6) ** 3),
    ny.CanonicalNoise(ny.approximate(0, 0.25)),
    ny.CanonicalNoise(ny.zcdp("0.1")),
    ny.CanonicalNoise(ny.Laplace(2) * 2, sensitivity=0.5),
    ny.CanonicalNoise(ny.Laplace(2).tradeoff()),
]


@pytest.mark.parametrize("m", [*DESCRIBED, *CURVES], ids=repr)
def test_a_description_is_read_back_from_json_and_its_repr(m):
    again = ny.Mechanism.from_json(m.to_json())
    assert again == m
    assert hash(again) == hash(m)
    assert m in CURVES or eval(repr(m), dict(NAMES)) == m


@tries
@given(mechanisms, mechanisms)
def test_sums_commute_and_count(a, b):
    if {a.neighboring, b.neighboring} <= {"any", "replace-one"}:
        assert a + b == b + a
        assert hash(a + b) == hash(b + a)
        assert (a + b).rho() == a.rho() + b.rho()
    assert a * 3 == a + a + a
    assert 3 * a == a * 3
    assert a * 1 == a


def test_the_sum_of_mechanisms_releases_all():
    parts = [ny.Gaussian(2), ny.Laplace(3), ny.Gaussian(2), ny.Gaussian(1).subsample(rate=0.1)]
    total = sum(parts)
    assert total == parts[0] * 2 + parts[1] + parts[3]
    assert sum(parts, ny.Mechanism.nothing()) == total
    assert sum(parts[:1]) == parts[0]
    for start in (1, 0.0, False, "", None, [0]):
        with pytest.raises(TypeError):
            sum(parts, start)


def test_mechanisms_are_immutable():
    for m in (ny.Gaussian(1), ny.DiscreteGaussian(1), ny.Gaussian(1) * 2):
        with pytest.raises(AttributeError):
            m.sigma = 2


def test_a_rate_that_is_above_one_by_less_than_a_float_is_refused():
    with pytest.raises(ValueError, match="rate = "):
        ny.Gaussian(1).subsample(rate=1 + F(1, 10**20))


@pytest.mark.parametrize("m", [ny.Gaussian(1) * 0, (ny.Laplace(1) * 0).subsample(rate=0.5)])
def test_nothing_released_is_written_in_public_names(m):
    public = {name: getattr(ny, name) for name in ny.__all__ if name in vars(ny)}
    assert eval(repr(m), public) == m
    assert (
        ny.Gaussian(1) * 0
        == ny.Mechanism.nothing()
        == ny.Mechanism.from_json(ny.Mechanism.nothing().to_json())
    )


def test_nothing_beside_a_mechanism_is_that_mechanism():
    for m in (ny.Laplace(1), ny.Laplace(1) * 2, ny.Laplace(1) + ny.Gaussian(1)):
        assert ny.Mechanism.nothing() + m == m + ny.Mechanism.nothing() == m


def test_nothing_released_reveals_nothing():
    for m in (
        ny.Gaussian(1) * 0,
        ny.Laplace(1, 0),
        ny.DiscreteGaussian(1, 0),
        ny.DiscreteLaplace(1, 0),
        ny.RandomizedResponse(0),
        ny.Gaussian(1, 0),
    ):
        assert m.tradeoff().delta(0.0).upper < 1e-300
        assert m.rho() == 0


def test_alternatives_are_a_set_of_mechanisms_of_one_relation():
    gaussian, laplace = ny.Gaussian(1), ny.Laplace(2)
    both = Alternatives((gaussian, laplace))
    assert both == Alternatives((laplace, gaussian, laplace))
    assert ny.Mechanism.from_json(both.to_json()) == both
    with pytest.raises(ValueError, match="cannot be mixed"):
        Alternatives((gaussian.subsample(rate=0.1), ny.RandomizedResponse(1)))
    for wrong in ((3,), (gaussian, None)):
        with pytest.raises(TypeError, match="must list mechanisms"):
            Alternatives(wrong)


def test_relations_unify_or_refuse():
    m = ny.RandomizedResponse(1) + ny.Gaussian(1)
    assert m.neighboring == "replace-one"
    assert m.tradeoff("replace-one").neighboring == "replace-one"
    assert ny.Gaussian(1).tradeoff("add-remove").neighboring == "add-remove"
    with pytest.raises(ValueError, match="neighboring"):
        m.tradeoff("add-remove")
    for mechanism in (ny.Gaussian(1), m):
        with pytest.raises(ValueError, match=r"'foo'.*'any', 'add-remove', 'replace-one'"):
            mechanism.tradeoff("foo")
    with pytest.raises(ValueError, match="neighboring"):
        _ = ny.Gaussian(1).tradeoff("add-remove") @ m.tradeoff()


# What the docstrings claim


@pytest.mark.parametrize("parts", [(1, 1), (2, 1), (1, 1, 1), (3, 2)])
@pytest.mark.parametrize("scale", [F(1, 2), F(2), F(10)])
def test_a_shift_spread_over_coordinates_never_beats_one_coordinate_for_the_laplaces(parts, scale):
    def curve(losses):
        return Tradeoff.of([Composition.of((loss, 1) for loss in losses)])

    pairs = [
        (
            curve(discrete_laplace_loss(scale, s) for s in parts),
            curve([discrete_laplace_loss(scale, sum(parts))]),
        ),
        (curve(LaplaceLoss(s / scale) for s in parts), curve([LaplaceLoss(sum(parts) / scale)])),
    ]
    for spread, one in pairs:
        for epsilon in np.linspace(0, float(sum(parts) / scale), 23)[:-1]:
            assert spread.delta(epsilon).lower <= one.delta(epsilon).upper
        for level in (1e-12, 1e-4, 0.03, 0.2, 0.5, 0.8):
            assert spread.power(level).lower <= one.power(level).upper


@pytest.mark.parametrize("sigma", ["0.3", "0.7", "1", "2.5"])
@pytest.mark.parametrize(("less", "more"), [((1,), (2,)), ((1, 1), (2, 1)), ((2,), (2, 1))])
def test_a_covered_shift_vector_is_never_less_private_for_the_discrete_gaussian(sigma, less, more):
    a = ny.DiscreteGaussian(sigma, [less]).tradeoff()
    b = ny.DiscreteGaussian(sigma, [more]).tradeoff()
    for epsilon in (0.0, 0.3, 1.0, 4.0, 12.0):
        assert a.delta(epsilon).lower <= b.delta(epsilon).upper
    for level in (1e-15, 1e-4, 0.05, 0.5, 0.9):
        assert a.power(level).lower <= b.power(level).upper


def test_shift_vectors_are_canonical():
    one = ny.DiscreteGaussian(1, [(1, -2, 0), (2, 1), (1,), (0, 1, 1)])
    assert one == ny.DiscreteGaussian(1, [(2, 1)])
    assert one.sensitivity == ((2, 1),)
    assert ny.DiscreteGaussian("1/3") == ny.DiscreteGaussian(sigma_squared="1/9")


def test_the_worst_of_several_shift_vectors_answers_each_question():
    both = ny.DiscreteGaussian(1, [(2,), (1, 1, 1, 1)]).tradeoff()
    each = [ny.DiscreteGaussian(1, [v]).tradeoff() for v in ((2,), (1, 1, 1, 1))]
    for level in (1e-6, 0.01, 0.05, 0.3):
        assert both.power(level).upper == max(f.power(level).upper for f in each)
    for epsilon in (0.0, 1.0, 3.0):
        assert both.delta(epsilon).upper == max(f.delta(epsilon).upper for f in each)


# Refusals

BAD = [
    math.nan,
    math.inf,
    -1,
    True,
    None,
    [1],
    1j,
    "x",
    type,
    np.array([1.0]),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    10**400,
]
FIELDS = {
    ("sigma", "positive"): [ny.Gaussian, ny.DiscreteGaussian],
    ("sigma_squared", "positive"): [lambda v: ny.DiscreteGaussian(sigma_squared=v)],
    ("scale", "positive"): [ny.Laplace, ny.DiscreteLaplace],
    ("epsilon", ""): [ny.RandomizedResponse],
    ("sensitivity", ""): [
        lambda v: ny.Gaussian(1, v),
        lambda v: ny.Laplace(1, v),
        lambda v: ny.DiscreteLaplace(1, v),
    ],
    ("categories", ""): [lambda v: ny.RandomizedResponse(1, v)],
    ("count", ""): [lambda v: ny.Gaussian(1) * v],
}


@pytest.mark.parametrize("field", FIELDS, ids=lambda f: f[0])
@pytest.mark.parametrize("value", BAD, ids=lambda v: repr(v)[:20])
def test_a_wrong_field_is_refused_by_name_when_the_mechanism_is_made(field, value):
    name, _ = field
    for make in FIELDS[field]:
        if value is None and name in ("sigma", "sigma_squared"):
            continue
        if isinstance(value, int) and value > 1 and name in ("count", "categories"):
            continue
        with pytest.raises((ValueError, TypeError), match=name.replace("_", "[_^]?")):
            make(value)


@pytest.mark.parametrize("name", ["sigma", "scale"])
def test_no_noise_is_refused(name):
    makes = {"sigma": (ny.Gaussian, ny.DiscreteGaussian), "scale": (ny.Laplace, ny.DiscreteLaplace)}
    for make in makes[name]:
        with pytest.raises(ValueError, match=name):
            make(0)


@pytest.mark.parametrize(
    "value", [-1.5, 1.5, "1", "ab", [1], [[1.5]], [["1"]], None, np.array(1.0)]
)
def test_a_discrete_gaussian_refuses_shifts_that_are_not_whole(value):
    with pytest.raises((ValueError, TypeError), match="sensitivity"):
        ny.DiscreteGaussian(1, value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ny.Laplace(5e-324),
        lambda: ny.DiscreteLaplace("1e-400"),
        lambda: ny.DiscreteLaplace("1e400"),
        lambda: ny.DiscreteLaplace(5e-324),
        lambda: ny.RandomizedResponse(1e308),
        lambda: ny.RandomizedResponse(1, 10**400),
        lambda: ny.DiscreteGaussian(1, 10**400),
        lambda: ny.Gaussian(1) * 10**400,
        lambda: ny.DiscreteGaussian("1e400"),
        lambda: ny.DiscreteGaussian("1e-400"),
        lambda: ny.DiscreteGaussian(1e300),
        lambda: ny.RoundedGaussian(1e-300),
        lambda: ny.RoundedGaussian("1e300"),
        lambda: ny.Gaussian(1e-300, 1e300),
        lambda: ny.Laplace(1e-320, 1e300),
        lambda: ny.DiscreteLaplace(1, 10**9),
    ],
)
def test_what_no_float_can_hold_is_a_value_error_or_answered(make):
    try:
        delta = make().tradeoff().delta(1.0)
    except ValueError as refusal:
        assert "=" in str(refusal)  # noqa: PT017 - either outcome is good
    else:
        assert 0 <= delta.lower <= delta.upper <= 1


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "3",
        "null",
        '"x"',
        '{"type": []}',
        '{"type": "Nothing"}',
        "{}",
        "not json",
        '{"type": "Gaussian"}',
        '{"type": "Gaussian", "sigma": 0, "sensitivity": 1}',
        '{"type": "Composed", "parts": 3}',
        '{"type": "Composed", "parts": [3]}',
        '{"type": "Composed", "parts": [{"count": 1}]}',
        '{"type": "Composed", "parts": [{"count": 1.5, "mechanism": {"type": "Gaussian", '
        '"sigma": 1, "sensitivity": 1}}]}',
        '{"type": "Gaussian", "sigma": 1, "sensitivity": NaN}',
        '{"type": "Gaussian", "sigma": 1, "sensitivity": 1, "sigmma": 3}',
        '{"type": "DiscreteGaussian", "sigma_squared": "1", "sensitivity": [[1.5]]}',
        '{"type": "DiscreteGaussian", "sigma_squared": null, "sensitivity": 1}',
    ],
)
def test_wrong_json_is_a_value_or_type_error(text):
    with pytest.raises((ValueError, TypeError)):
        ny.Mechanism.from_json(text)


@pytest.mark.parametrize("text", ["1/0", "abc", "1e30000000", "1e-400", "", "nan", "1/2/3"])
@pytest.mark.parametrize(
    ("m", "field"),
    [
        (ny.Gaussian(1), "sigma"),
        (ny.Gaussian(1), "sensitivity"),
        (ny.Laplace(1), "scale"),
        (ny.RandomizedResponse(1), "epsilon"),
        (ny.DiscreteGaussian(1), "sigma_squared"),
        (ny.Laplace(1).subsample(rate=0.5), "rate"),
        (ny.NonPrivate(), "rate"),
        (ny.Laplace(1).subsample(size=1, population=2), "size"),
    ],
)
def test_text_that_is_no_number_is_refused_by_its_field(m, field, text):
    with pytest.raises(ValueError, match=f"{field} = '{text}' must be"):
        ny.Mechanism.from_dict({**m.to_dict(), field: text})
    shares = {"probabilities": [text, 1], "sensitivities": [1, text]}
    for name, value in shares.items():
        mixture = ny.GaussianMixture(1, [0, 1], [0.5, 0.5]).to_dict()
        with pytest.raises(ValueError, match=f"{name} = '{text}' must be"):
            ny.Mechanism.from_dict({**mixture, name: value})


@pytest.mark.parametrize("kind", [[], {}, None, 3, "Mechanism"])
def test_a_type_that_is_none_is_refused_by_name(kind):
    with pytest.raises(ValueError, match="type = "):
        ny.Mechanism.from_dict({"type": kind})


def test_counts_beyond_the_limit_are_refused_however_they_come_about():
    m = ny.Gaussian(1)
    assert (m * 10**9 * 10**9).rho() == Fraction(10**18, 2)
    for make in (
        lambda: m * (10**18 + 1),
        lambda: (m * 10**18) * 10**18,
        lambda: m * 10**18 + m,
        lambda: ny.Mechanism.from_dict(
            {"type": "Composed", "parts": [{"count": 10**19, "mechanism": m.to_dict()}]}
        ),
        lambda: ny.Mechanism.from_dict(
            {"type": "Composed", "parts": [{"count": 10**18, "mechanism": (m * 9).to_dict()}]}
        ),
    ):
        with pytest.raises(ValueError, match=r"count = .* at most 1e\+18"):
            make()


def test_a_sum_of_many_is_built_in_linear_time():
    parts = [ny.Laplace(scale=30 + k / 7) for k in range(400)]
    parts[::2] = [ny.Gaussian(2 + k / 9).subsample(rate=0.01) for k in range(200)]
    few, many = (function_calls(lambda n=n: sum(parts[:n])) for n in (200, 400))
    assert many < 2.3 * few
    assert sum(parts) == sum(reversed(parts))
    assert sum(parts).neighboring == "add-remove"


def test_a_share_that_rounds_to_one_is_the_normal_law_of_its_shift():
    nearly = ny.GaussianMixture(sigma=1, sensitivities=[0, 1], probabilities=[1e-20, 1.0]) * 3
    normal = ny.Gaussian(sigma=1) * 3
    assert nearly.tradeoff().epsilon(1e-5).upper == normal.tradeoff().epsilon(1e-5).upper
