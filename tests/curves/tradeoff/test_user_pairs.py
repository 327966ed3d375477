"""Pairs and noise that a user describes: certified under the statements, which are listed."""

import math
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest

import neyman as ny
import reference as ref
from neyman.curves import Density, Masses
from neyman.mechanisms import Choice, CustomNoise

LEVELS = (0.0, 0.1, 0.5, 1.0, 2.5, 6.0)


def normal(x):
    return -x * x / 2 - math.log(2 * math.pi) / 2


def laplace(x):
    return -np.abs(x) - math.log(2)


def logistic(x):
    return -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x)))


def student(x, d=3):
    log_scale = math.lgamma((d + 1) / 2) - math.lgamma(d / 2) - math.log(d * math.pi) / 2
    return log_scale - (d + 1) / 2 * np.log1p(x * x / d)


NORMAL = Density(
    log_density=normal, low=-12.0, high=12.0, tails=4e-33, curvature=1.0, log_concave=True
)
LAPLACE = Density(
    log_density=laplace, low=-200.0, high=200.0, tails=2e-87, breaks=(0.0,), curvature=0.0,
    log_concave=True,
)  # fmt: skip
LOGISTIC = Density(
    log_density=logistic, low=-90.0, high=90.0, tails=2e-39, curvature=0.5, log_concave=True
)
CUTS = (-1e4, -1e3, -100.0, -10.0, 10.0, 100.0, 1e3, 1e4)
STUDENT = Density(
    log_density=student, low=-1e5, high=1e5, tails=3e-15, breaks=CUTS,
    curvature=[*(4 / x**2 for x in CUTS[:4]), 4 / 3, *(4 / x**2 for x in CUTS[4:])],
    slope=[*(4 / -x for x in CUTS[:4]), 1.1548, *(4 / x for x in CUTS[4:])],
)  # fmt: skip


def truth(name, shift, epsilon):
    """delta by closed forms of both distribution functions, where the loss crosses epsilon."""
    mpmath.mp.dps = 40
    s, e = mpmath.mpf(shift), mpmath.mpf(epsilon)
    if name == "normal":
        at = s / 2 + e / s
        return mpmath.ncdf(s - at) - mpmath.exp(e) * mpmath.ncdf(-at)
    if name == "laplace":
        return max(1 - mpmath.exp((e - s) / 2), mpmath.mpf(0))
    if name == "logistic":
        if e >= s:
            return mpmath.mpf(0)
        k = mpmath.exp((e - s) / 2)  # (1 + u) / (1 + u e^s) at u = e^-x
        u = (1 - k) / (k * mpmath.exp(s) - 1)
        return 1 / (1 + 1 / (u * mpmath.exp(s))) - mpmath.exp(e) / (1 + 1 / u)
    # Of Student's law with d = 3: 1 + x^2 / 3 = e^{e/2} (1 + (x - s)^2 / 3) has two roots.
    k = mpmath.exp(e / 2)
    a, b, c = 1 - k, 2 * k * s, 3 * (1 - k) - k * s * s

    def below(x):
        t = x / mpmath.sqrt(3)
        return mpmath.mpf(1) / 2 + (t / (1 + t * t) + mpmath.atan(t)) / mpmath.pi

    if e == 0:
        return below(s / 2) - below(-s / 2)
    root = b * b - 4 * a * c
    if root <= 0:
        return mpmath.mpf(0)
    low, high = sorted((-b + sign * mpmath.sqrt(root)) / (2 * a) for sign in (1, -1))
    inside = below(high - s) - below(low - s)
    return inside - mpmath.exp(e) * (below(high) - below(low))


@pytest.mark.parametrize(
    ("name", "law"),
    [("normal", NORMAL), ("laplace", LAPLACE), ("logistic", LOGISTIC), ("student", STUDENT)],
)
@pytest.mark.parametrize("shift", [0.01, 0.7, 1.0, 3.0])
def test_intervals_hold_the_closed_form_in_both_orders(name, law, shift):
    """Each distribution is symmetric, so both orders of a shift have one curve."""
    both = ny.between(law.shifted(shift), law)
    for f in (both, both.part(both.alternatives[0]), both.part(both.alternatives[0].reverse())):
        for epsilon in LEVELS:
            exact, bound = truth(name, shift, epsilon), f.delta(epsilon)
            assert bound.lower <= exact <= bound.upper, (shift, epsilon)
            assert bound.upper - bound.lower < 2e-4 * exact + 2e-5


@dataclass(frozen=True)
class Noise(CustomNoise):
    """Any distribution of this file by its number, as a mechanism."""

    which: int
    sensitivity: float = 1

    def law(self):
        return LAWS[self.which]


EVEN = Masses(
    masses=tuple(math.exp(-abs(k) / 4) if k % 2 == 0 else 0.0 for k in range(-80, 81)), first=-80
)
EVEN = Masses(masses=tuple(x / math.fsum(EVEN.masses) for x in EVEN.masses), first=-80, tails=1e-8)
GEOMETRIC = Masses(
    masses=tuple(math.exp(-abs(k)) * math.tanh(0.5) for k in range(-300, 301)),
    first=-300,
    tails=1e-130,
    log_concave=True,
)
HALVES = Density(
    log_density=laplace, low=-200.0, high=200.0, tails=2e-87, breaks=(0.0,), monotone=True
)
LAWS = (NORMAL, LAPLACE, LOGISTIC, STUDENT, EVEN, GEOMETRIC, HALVES)


def test_masses_on_even_numbers_reveal_all_by_a_shift_smaller_than_the_largest():
    """The full shift of 2 is private, and the shift of 1 is not."""
    full = ny.between(EVEN.shifted(2), EVEN)
    assert full.delta(0.6).upper < 1e-6
    assert Noise(4, 2).tradeoff().delta(0.6).upper == 1


@pytest.mark.parametrize("shift", [1, 3])
def test_discrete_laplace_masses_are_those_of_the_mechanism(shift):
    f, exact = Noise(5, shift).tradeoff(), ny.DiscreteLaplace(1, shift).tradeoff()
    for epsilon in (0.0, 0.3, 0.9):
        asked, known = f.delta(epsilon), exact.delta(epsilon)
        assert ref.meet(asked, known)
        assert asked.upper <= known.upper * (1 + 1e-3) + 1e-12


def test_all_shifts_of_student_noise_are_covered_and_cost_little():
    f = Noise(3, 1.0).tradeoff()
    assert len(f.alternatives) == 40
    for epsilon in (0.0, 0.5, 1.0):
        bound = f.delta(epsilon)
        exact = [truth("student", shift, epsilon) for shift in (0.05, 0.3, 0.6, 0.9, 0.999, 1)]
        assert bound.upper >= max(exact)
        assert bound.upper - max(exact) < 2e-4 * bound.upper
    assert not f.sources


def test_a_law_without_a_proof_for_smaller_shifts_is_an_estimate_that_meets_no_budget():
    f = Noise(6, 1.0).tradeoff()
    assert len(f.sources) == 1
    assert "estimate" in f.delta(0.5).method
    assert "estimate" in f.zcdp().method
    assert not f >= ny.gdp(100)
    assert not ny.pure(100).admits(Noise(6, 1.0))
    with pytest.raises(ValueError, match="estimate"):
        f.group(2)
    assert Choice(((0.5, Noise(6, 1.0)), (0.5, ny.Gaussian(1)))).tradeoff().sources == f.sources
    with pytest.raises(ValueError, match="only by a bound"):
        Noise(6, 1.0).subsample(rate=0.1)


def test_the_statements_follow_the_curve_through_all_that_is_made_of_it():
    said, noise = LOGISTIC.statements, Noise(2)
    f, half = noise.tradeoff(), Choice(((0.5, noise), (0.5, ny.Gaussian(1))))
    curves = [f, f**3, f @ ny.gdp(1), f.symmetric() @ ny.pure(1), f.group(2), f.inverse()]
    mechanisms = [noise.subsample(rate=0.1), noise * 2 + ny.Laplace(1), half * 3]
    curves += [ny.mixture([0.5, 0.5], [f, ny.gdp(1)]), *(m.tradeoff() for m in mechanisms)]
    for curve in curves:
        assert curve.statements == said, curve
        assert not curve.sources
    assert said[0] in repr(f)
    assert any(f"{k} statements" in f.delta(0.1).method for k in (4, 5))
    assert noise.to_dict()["statements"] == list(said)


def test_a_composition_agrees_with_the_mechanism_that_is_known():
    mine, known = (m.tradeoff().epsilon(1e-6) for m in (Noise(0) * 20, ny.Gaussian(1) * 20))
    assert ref.meet(mine, known)
    assert mine.upper < known.upper * (1 + 1e-4)
    mine, known = (m.tradeoff().power(0.05) for m in (Noise(1) * 5, ny.Laplace(1) * 5))
    assert known.lower <= mine.upper < known.upper * 1.01


def test_json_keeps_the_statements_and_refuses_other_ones():
    noise = Noise(2, 1)
    assert ny.Mechanism.from_json(noise.to_json()) == noise
    forged = noise.to_dict() | {"statements": ["nothing"]}
    with pytest.raises(ValueError, match="states"):
        ny.Mechanism.from_dict(forged)


def density(function=normal, **others):
    given = {"low": -12.0, "high": 12.0, "tails": 4e-33, "curvature": 1.0}
    return Density(log_density=function, **{**given, **others})


WRONG = [  # what the function shows to be wrong, and what the message says
    ("do not add up", lambda: density(lambda x: normal(x) + 0.01)),
    ("do not add up", lambda: density(lambda x: normal(x) - 0.01)),
    ("curvature", lambda: density(curvature=0.9)),
    ("slope", lambda: density(slope=11.0)),
    ("not finite", lambda: density(lambda x: x * np.nan)),
    ("shape", lambda: density(lambda x: 0.0)),
    ("turns", lambda: density(monotone=True)),
    ("bends up", lambda: density(student, tails=0.001, curvature=2.0, log_concave=True)),
    ("state curvature", lambda: density(curvature=None)),
    ("2 numbers for 1 pieces", lambda: density(curvature=(1.0, 2.0))),
    ("increase", lambda: density(low=3.0, high=-3.0)),
    ("below 1", lambda: density(tails=1.0)),
    ("at least 0", lambda: Masses(masses=(0.5, -0.1, 0.6))),
    ("finite", lambda: Masses(masses=(0.5, math.nan))),
    ("do not add up", lambda: Masses(masses=(0.5, 0.4))),
    ("bend up", lambda: Masses(masses=(0.5, 0.0, 0.5), log_concave=True)),
    ("bend up", lambda: Masses(masses=(0.4, 0.2, 0.4), log_concave=True)),
]


@pytest.mark.parametrize(("message", "law"), WRONG)
def test_wrong_statements_are_refused_where_the_function_shows_it(message, law):
    with pytest.raises(ValueError, match=message):
        ny.between((wrong := law()).shifted(1), wrong)


def test_a_jump_inside_the_support_of_log_concave_noise_is_refused():
    """Chords at both sides of a break are flat, and only the break itself shows the jump."""
    spikes = Density(
        log_density=lambda x: np.where((x > 0.125) & (x < 1.875), -12.0, 0.0), low=0.0, high=2.0,
        tails=0.0, total=None, breaks=(0.125, 1.875), curvature=0.0, log_concave=True,
    )  # fmt: skip

    @dataclass(frozen=True)
    class Spikes(CustomNoise):
        sensitivity: float = 1

        def law(self):
            return spikes

    with pytest.raises(ValueError, match=r"jumps by 12 at the break 0\.125"):
        Spikes().tradeoff().delta(1)

    def stepped(x):
        return laplace(x) + 0.001 * (x > 0)

    step = replace(LAPLACE, log_density=stepped, total=None)
    with pytest.raises(ValueError, match=r"jumps by 0\.001 at the break 0"):
        ny.between(step.shifted(1), step)
    allowed = replace(step, error=0.0005)  # so much may be an error of the function
    assert ny.between(allowed.shifted(1), allowed).delta(0.5).upper >= truth("laplace", 1, 0.5)


@pytest.mark.parametrize("norm", ["", "linf"])
def test_noise_with_a_field_for_its_norm_is_read_from_its_json(norm):
    @dataclass(frozen=True)
    class Normed(CustomNoise):
        dimension: int = 2
        norm: str = "linf"
        sensitivity: float = 1

        def law(self):
            return LOGISTIC

    noise = Normed(dimension=2 if norm else 1, norm=norm)
    assert Normed.from_json(noise.to_json()) == noise


def test_a_bounded_law_reveals_what_only_one_of_them_can_produce():
    uniform = Density(
        log_density=lambda x: np.full(len(x), -math.log(4.0)), low=-2.0, high=2.0, tails=0.0,
        curvature=0.0, log_concave=True,
    )  # fmt: skip
    bound = ny.between(uniform.shifted(0.5), uniform).delta(3)
    assert bound.lower <= 0.125 <= bound.upper
    assert bound.upper - bound.lower < 1e-12
    apart = ny.between(uniform.shifted(5.0), uniform)
    assert apart.delta(3).lower > 1 - 1e-12


def test_errors_of_the_function_and_an_unknown_total_widen_the_interval():
    exact = float(truth("normal", 1, 1))
    for law in (
        density(lambda x: normal(x) + 1e-5 * np.sin(x), error=1e-5),
        density(lambda x: normal(x) + 5.0, total=None),
        density(lambda x: normal(x) + math.log(3), total=3.0),
        density(curvature=None, slope=12.0),
        density(breaks=(0.0,), curvature=None, monotone=True),
    ):
        bound = ny.between(law.shifted(1), law).delta(1)
        assert bound.lower <= exact <= bound.upper < exact * 1.05


def test_several_numbers_need_a_named_norm_and_log_concave_noise():
    @dataclass(frozen=True)
    class Several(Noise):
        dimension: int = 3
        norm: str = ""

    with pytest.raises(ValueError, match="norm"):
        Several(1).tradeoff()
    with pytest.raises(ValueError, match="log-concave"):
        Several(3, norm="linf").tradeoff()
    f, known = Several(1, norm="linf").tradeoff(), (ny.Laplace(1) * 3).tradeoff()
    assert known.epsilon(1e-3).lower <= f.epsilon(1e-3).upper < known.epsilon(1e-3).upper + 1e-3


@pytest.mark.parametrize("seed", range(60))
def test_random_finite_laws_lie_within_and_so_do_their_products(seed):
    """Exact fractions of the same masses, in both orders; errors of the masses are drawn, too."""
    rng = np.random.default_rng(seed)
    size, error = int(rng.integers(2, 7)), float(rng.choice([0.0, 1e-9, 1e-3, 0.1]))
    laws = rng.dirichlet(np.full(size, rng.choice([0.2, 1.0, 5.0])), 2)
    laws = np.maximum(laws, 1e-30)
    laws /= laws.sum(axis=1, keepdims=True)
    off = np.exp(error * rng.uniform(-1, 1, laws.shape) * 0.9)
    p, q = (Masses(masses=tuple(x), tails=0.0, error=error + 1e-12) for x in laws * off)
    f = ny.between(p, q)
    for count in (1, 2):
        a, b = laws if count == 1 else [np.outer(x, x).ravel() for x in laws]
        g = f**count
        pair = g.alternatives[0]
        for one, x, y in ((g.part(pair), a, b), (g.part(pair.reverse()), b, a)):
            for epsilon in (0.0, 0.2, 1.0, 3.0):
                exact = math.fsum(np.maximum(x - math.exp(epsilon) * y, 0))
                bound = one.delta(epsilon)
                assert bound.lower - 1e-15 <= exact <= bound.upper + 1e-15
                if error == 0 and count == 1:
                    assert bound.upper - bound.lower < 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_scales_shifts_and_epsilons_far_out_stay_within(seed):
    """Scales from .01 to 1000, losses to 16, deltas to 1e-200; tails that decide nothing."""
    rng = np.random.default_rng(seed)
    name, base = [("normal", normal), ("laplace", laplace), ("logistic", logistic)][seed % 3]
    scale, shift = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-3, 1.2)
    bends = [2 * math.exp(-x) for x in (60, 20)]
    reach, tails, breaks, curvature = {
        "normal": (30.0, 1e-190, (), [1.0]),
        "laplace": (650.0, 1e-280, (0.0,), [0.0]),
        "logistic": (650.0, 3e-282, (-60, -20, 20, 60), [*bends, 0.5, *bends[::-1]]),
    }[name]
    law = Density(
        log_density=lambda x: base(x / scale) - math.log(scale),
        low=-reach * scale, high=reach * scale, tails=tails,
        breaks=tuple(x * scale for x in breaks), curvature=[c / scale**2 for c in curvature],
    )  # fmt: skip
    f = ny.between(law.shifted(shift * scale), law)
    for epsilon in (0.0, 1e-6, *rng.uniform(0, shift, 2), 0.999 * shift, *rng.uniform(0, 60, 2)):
        exact = truth(name, shift, epsilon)
        for one in (f, f.inverse()):
            bound = one.log_delta(epsilon)
            assert bound.lower <= (mpmath.log(exact) if exact > 0 else -math.inf) <= bound.upper


@pytest.mark.parametrize("seed", range(8))
def test_densities_that_jump_are_integrated_piece_by_piece(seed):
    """Steps of random heights, moved by a number that floats round: sums of rectangles."""
    rng = np.random.default_rng(seed)
    edges = np.sort(np.concatenate([[-3.0, 3.0], rng.uniform(-3, 3, 5)]))
    heights = rng.uniform(0.05, 1, 6)
    heights /= np.sum(heights * np.diff(edges))
    law = Density(
        log_density=lambda x: np.log(heights[np.searchsorted(edges[1:-1], x, side="right")]),
        low=-3.0, high=3.0, tails=0.0, breaks=tuple(edges[1:-1]), slope=0.0,
    )  # fmt: skip
    shift = float(rng.uniform(0.01, 5))
    cuts = np.unique(np.concatenate([edges, edges + shift]))
    middle, width = 0.5 * (cuts[1:] + cuts[:-1]), np.diff(cuts)

    def masses(x):
        inside = (x > -3) & (x < 3)
        return np.where(inside, heights[np.searchsorted(edges[1:-1], x)], 0.0) * width

    p, q = masses(middle - shift), masses(middle)
    f = ny.between(law.shifted(shift), law)
    pair = f.alternatives[0]
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        for one, a, b in ((pair, p, q), (pair.reverse(), q, p)):
            exact, bound = (
                np.maximum(a - math.exp(epsilon) * b, 0).sum(),
                f.part(one).delta(epsilon),
            )
            assert bound.lower - 1e-13 <= exact <= bound.upper + 1e-13
            assert bound.upper - bound.lower < 1e-9
