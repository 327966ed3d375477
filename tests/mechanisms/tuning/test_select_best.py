"""The best of K runs, against every run enumerated and against every score on small cases."""

import itertools
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import neyman as ny
from neyman import Tradeoff
from neyman.accounting import Filter
from random_laws import examples

GEOMETRIC = ny.Runs.geometric(mean=4)
LAWS = (
    GEOMETRIC,
    ny.Runs.poisson(mean=3),
    ny.Runs.poisson(mean=Fraction(1, 2)),
    ny.Runs.logarithmic(mean=5),
    ny.Runs.negative_binomial(mean=6, shape=2.5),
    ny.Runs.negative_binomial(mean=3, shape=Fraction(-1, 2)),
)


def chances(runs: ny.Runs, most: int) -> list[float]:
    """P(K = k) for k = 0, ..., most, from the definition of the law."""
    if runs.poisson_law:
        mean = float(runs.mean)
        return [math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(most + 1)]
    gamma, eta = runs.halting, float(runs.shape)
    weights, weight = [0.0], 1.0
    for k in range(1, most + 1):  # (1 - gamma)^k Gamma(k + eta) / k!, over the first one
        weight = 1.0 if k == 1 else weight * (1 - gamma) * (k - 1 + eta) / k
        weights.append(weight)
    total = sum(weights)
    return [w / total for w in weights]


def generating(runs: ny.Runs, x):
    """psi(x) = E[x^K], in closed form."""
    x = np.asarray(x, dtype=float)
    if runs.poisson_law:
        return np.exp(float(runs.mean) * (x - 1))
    gamma, eta = runs.halting, float(runs.shape)
    if eta == 0:
        return np.log1p(-(1 - gamma) * x) / math.log(gamma)
    return ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


def winners_law(runs: ny.Runs, law, tied=None):
    """Masses of the winner, scores rising, and of nothing; outcomes of one group have one score."""
    law = np.asarray(law, dtype=float)
    masses, at = [], 0
    for size in tied or [1] * len(law):
        group = law[at : at + size]
        below = law[:at].sum()
        gain = generating(runs, below + group.sum()) - generating(runs, below)
        masses += list(gain * group / group.sum())
        at += size
    return np.array([*masses, float(generating(runs, 0.0))])


def delta(p, q, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_the_winners_law_is_that_of_all_sequences_of_runs():
    law, score, most = [0.5, 0.3, 0.2], [1, 2, 2], 9  # a tie, which the first run wins
    for runs in LAWS[:2]:
        enumerated = np.zeros(4)
        for k, chance in enumerate(chances(runs, 400)[: most + 1]):
            for outcomes in product(range(3), repeat=k):
                best = max(outcomes, key=lambda o: score[o]) if k else 3
                enumerated[best] += chance * math.prod(law[o] for o in outcomes)
        closed = winners_law(runs, law, [1, 2])
        left = 1 - sum(chances(runs, 400)[: most + 1])
        assert abs(closed.sum() - 1) < 1e-12
        assert np.all(enumerated <= closed + 1e-12)
        assert np.all(closed <= enumerated + left + 1e-12)


@pytest.mark.parametrize("runs", LAWS, ids=repr)
def test_the_law_has_the_mean_that_it_states(runs):
    masses = chances(runs, 4000)
    assert math.isclose(sum(k * p for k, p in enumerate(masses)), float(runs.mean), rel_tol=1e-9)
    x = np.linspace(0, 1, 9)
    slopes = [sum(k * p * y ** (k - 1) for k, p in enumerate(masses) if k) for y in x]
    for side in (-1, 1):
        bound = np.exp(runs.log_slope(1 - x, side))
        assert np.all(side * (bound - slopes) >= -1e-9 * bound)
        assert np.allclose(bound, slopes, rtol=1e-9)
    assert math.isclose(runs.none, masses[0], abs_tol=1e-12)


class Finite(ny.Mechanism):
    """One run with few outcomes, given by both of its distributions."""

    def __init__(self, p, q):
        self.curve = ny.between(p, q)

    @property
    def neighboring(self):
        return "replace-one"

    def losses(self):
        return self.curve.alternatives

    def rho(self):
        return Fraction(self.curve.zcdp().upper)


masses = st.lists(st.integers(1, 40), min_size=3, max_size=6)


@settings(max_examples=examples(40))
@given(masses, st.data(), st.sampled_from(LAWS))
def test_no_score_and_no_tie_beats_the_curve(first, data, runs):
    second = data.draw(st.lists(st.integers(1, 40), min_size=len(first), max_size=len(first)))
    order = data.draw(st.permutations(range(len(first))))
    p, q = (np.array([w[i] for i in order]) / sum(w) for w in (first, second))
    tied = [1] * len(p)
    if data.draw(st.booleans()):
        tied = [2, *tied[2:]]
    exact = [[Fraction(w[i], sum(w)) for i in order] for w in (first, second)]
    best = ny.select_best(Finite(*exact), runs=runs)
    f = best.tradeoff()
    attacked = [winners_law(runs, law, tied) for law in (p, q)]
    for one, other in (attacked, attacked[::-1]):
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
            assert delta(one, other, epsilon) <= f.delta(epsilon).upper + 1e-12
        for alpha in (1.5, 2.0, 8.0):
            x, y = one[one > 0], other[one > 0]
            divergence = math.log(float((x**alpha * y ** (1 - alpha)).sum())) / (alpha - 1)
            assert divergence <= best.renyi(alpha).upper + 1e-12
            assert divergence <= best.rho() * alpha + 1e-12


@pytest.mark.parametrize("runs", LAWS, ids=repr)
def test_a_score_attains_the_pure_epsilon(runs):
    """Scores rise where the record is likelier first, so that F leads F', then where it is not."""
    epsilon = 1.0
    truth = 1 / (1 + math.exp(-epsilon))
    p, q = (np.repeat([x, 1 - x], 4000) / 4000 for x in (truth, 1 - truth))
    first, second = (winners_law(runs, law)[:-1] for law in (p, q))
    attained = float(np.max(np.abs(np.log(first / second))))
    claimed = ny.select_best(ny.RandomizedResponse(epsilon), runs=runs).tradeoff().pure().upper
    assert attained <= claimed <= attained + 0.005


@pytest.mark.parametrize("runs", LAWS[:2], ids=repr)
def test_no_score_of_a_gaussian_run_beats_the_curve(runs):
    best = ny.select_best(ny.Gaussian(sigma=2), runs=runs)
    edges = np.linspace(-5.0, 5.5, 1001)
    masses = [np.diff(ndtr(edges - shift)) for shift in (0.0, 0.5)]
    laws = [m / m.sum() for m in masses]  # less than 1e-6 is beyond
    middle = 0.5 * (edges[1:] + edges[:-1])
    f = best.tradeoff()
    for score in (middle, -middle, np.abs(middle - 1), -np.abs(middle + 2)):
        order = np.argsort(score, kind="stable")
        one, other = (winners_law(runs, law[order]) for law in laws)
        for p, q in ((one, other), (other, one)):
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                assert delta(p, q, epsilon) <= f.delta(epsilon).upper + 1e-5
            divergence = math.log(float((p[p > 0] ** 2 / q[p > 0]).sum()))
            assert divergence <= best.renyi(2).upper


def test_one_run_is_the_mechanism_itself():
    one = ny.Gaussian(sigma=2)
    best = ny.select_best(one, runs=ny.Runs.geometric(mean=1)).tradeoff()
    for level in (0.001, 0.05, 0.4):
        assert best.power(level=level).upper >= one.tradeoff().power(level=level).lower
        assert float(best.power(level=level)) <= float(one.tradeoff().power(level=level)) + 1e-4


def test_a_pure_run_stays_pure_and_within_the_published_bound():
    for epsilon in (0.1, 1, 3):
        one = ny.RandomizedResponse(epsilon)
        for mean in (2, 10, 1000):
            best = ny.select_best(one, runs=ny.Runs.geometric(mean=mean)).tradeoff()
            assert float(epsilon) < float(best.pure()) <= 3 * float(epsilon) * 1.005
        tv = math.tanh(float(epsilon) / 2)
        poisson = ny.select_best(one, runs=ny.Runs.poisson(mean=7)).tradeoff()
        assert math.isclose(float(poisson.pure()), float(epsilon) + 7 * tv, rel_tol=2e-3)


def published(one: Tradeoff, runs: ny.Runs, order: float, orders: list[float]) -> float:
    """Theorem 2 of Papernot and Steinke, as printed."""
    gamma, eta = runs.halting, float(runs.shape)
    hat = min((1 - 1 / a) * float(one.renyi(a)) - math.log(gamma) / a for a in orders)
    return float(one.renyi(order)) + (1 + eta) * hat + math.log(runs.mean) / (order - 1)


def test_renyi_bounds_are_at_most_the_published_ones():
    orders = [1.1, 1.5, 2, 3, 8, 32]
    for one in (ny.Gaussian(sigma=2), ny.RandomizedResponse(1)):
        best = ny.select_best(one, runs=ny.Runs.logarithmic(20))
        for order in orders:
            proven = published(one.tradeoff(), best.runs, order, orders)
            assert best.renyi(order).upper <= proven * (1 + 1e-9), (one, order)
    curve, implied = best.tradeoff(), best.renyi_bounds()
    assert float(curve.epsilon(delta=1e-4)) <= float(implied.epsilon(delta=1e-4))


def test_an_empty_release_counts_in_a_divergence():
    """With few runs and little noise: the printed theorem for Poisson would be below 0 here."""
    runs = ny.Runs.poisson(mean=0.01)
    best = ny.select_best(ny.RandomizedResponse(0.5), runs=runs)
    p = np.array([1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5))])
    one, other = winners_law(runs, p), winners_law(runs, p[::-1])
    assert one[-1] == other[-1] == pytest.approx(0.99, abs=1e-4)
    for order in (1.5, 2.0, 8.0):
        divergence = math.log(float((one**order * other ** (1 - order)).sum())) / (order - 1)
        assert 0 < divergence <= best.renyi(order).upper < 0.2


def test_the_rho_of_a_winner_is_no_less_than_its_divergences():
    p = np.array([1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(0.5))])
    for runs in (ny.Runs.geometric(mean=10), ny.Runs.logarithmic(20), ny.Runs.poisson(mean=9)):
        rho = float(ny.select_best(ny.RandomizedResponse(0.5), runs=runs).rho())
        both = [law[law > 0] for law in (winners_law(runs, p), winners_law(runs, p[::-1]))]
        for laws in itertools.permutations(both):
            for order in (1.1, 2.0, 5.0, 30.0):
                moment = float((laws[0] ** order * laws[1] ** (1 - order)).sum())
                assert math.log(moment) / (order - 1) <= rho * order


def test_it_composes_and_is_read_back():
    best = ny.select_best(ny.Gaussian(sigma=4) + ny.Laplace(20), runs=ny.Runs.poisson(mean=3))
    for one in (best, ny.select_best(ny.RandomizedResponse(1), runs=LAWS[5])):
        assert ny.Mechanism.from_json(one.to_json()) == one
        names = {"select_best": ny.select_best, "Fraction": Fraction, "Runs": ny.Runs}
        names |= {n: getattr(ny, n) for n in ("Gaussian", "Laplace", "RandomizedResponse")}
        assert eval(repr(one), names) == one
    alone, twice = (m.tradeoff().epsilon(delta=1e-6) for m in (best, best * 2))
    assert alone.upper < twice.upper < 2 * alone.upper
    sampled = best.subsample(rate=0.01).tradeoff().epsilon(delta=1e-6)
    assert sampled.upper < alone.lower
    nested = ny.select_best(best, runs=ny.Runs.geometric(mean=2))
    assert nested.tradeoff().epsilon(delta=1e-6).upper > alone.lower
    assert nested.renyi(2).upper > best.renyi(2).upper
    assert (best * 2 + ny.Gaussian(1)).renyi(2).upper == pytest.approx(2 * best.renyi(2).upper + 1)
    budget = Filter("zcdp", Fraction(10)).after(best)
    assert budget.spent == best.rho()
    for order in (1, 8):
        spent = Filter(f"renyi:{order}", Fraction(10)).after(best * 2).spent
        assert spent == pytest.approx(2 * best.renyi(order).upper)
    assert ny.select_best(ny.Mechanism.nothing(), runs=GEOMETRIC).tradeoff().pure().upper == 0
