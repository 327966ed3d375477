"""Marginals with noise that serves all of them: shifts, errors, the best choice, its proof."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import chi2

import neyman as ny
from neyman import Marginals, optimal_marginals
from seeded import Seeded


def residual(part, sizes):
    """The matrix that takes the full table to r_B, from its definition."""
    matrix = np.ones((1, 1), dtype=int)
    for name, n in sizes.items():
        if name in part:
            factor = n * np.eye(n, dtype=int) - np.ones((n, n), int)
        else:
            factor = np.ones((1, n), int)
        matrix = np.kron(matrix, factor)
    return matrix


def marginal(of, sizes):
    """The matrix that takes the full table to a marginal."""
    matrix = np.ones((1, 1))
    for name, n in sizes.items():
        matrix = np.kron(matrix, np.eye(n) if name in of else np.ones((1, n)))
    return matrix


def worst_by_pairs(sizes, precisions, relation):
    """The largest weighted squared shift over all records, or all pairs of them."""
    cells = math.prod(sizes.values())
    gram = sum(
        (
            float(k) * residual(part, sizes).T @ residual(part, sizes)
            for part, k in precisions.items()
        ),
        np.zeros((cells, cells)),
    )
    if relation == "add-remove":
        return gram.diagonal().max()
    own = gram.diagonal()
    return (own[:, None] + own[None, :] - 2 * gram).max()


small = st.dictionaries(st.sampled_from("abcd"), st.integers(2, 4), min_size=1, max_size=3).map(
    lambda sizes: dict(sorted(sizes.items()))
)
relations = st.sampled_from(["add-remove", "replace-one"])


@st.composite
def problems(draw):
    """Sizes, a weighted workload, an objective and a relation."""
    sizes = draw(small)
    sets = [c for k in range(len(sizes) + 1) for c in combinations(sizes, k)]
    chosen = draw(st.lists(st.sampled_from(sets), min_size=1, max_size=4, unique=True))
    if not any(chosen):
        chosen.append(tuple(sizes)[:1])
    weights = {of: draw(st.sampled_from([0.5, 1.0, 3.0])) for of in chosen}
    return sizes, weights, draw(st.sampled_from(["total", "largest"])), draw(relations)


@given(problems())
@settings(max_examples=60)
def test_rho_is_that_of_the_worst_pair_of_records(problem):
    sizes, weights, objective, relation = problem
    mechanism = optimal_marginals(
        sizes, weights, objective=objective, neighboring=relation
    ).mechanism("0.3")
    precisions = {part: 1 / variance for part, variance in mechanism.noise}
    assert mechanism.rho() == Fraction(3, 10)
    assert mechanism.exact
    assert worst_by_pairs(sizes, precisions, relation) == pytest.approx(0.6, rel=1e-9)


def largest_of_all_changes(sizes, precisions):
    """Half the largest weighted squared shift, over every set of attributes that change at once."""
    bits = {name: 1 << i for i, name in enumerate(sizes)}
    changed = np.arange(1 << len(sizes))
    total = np.zeros(len(changed))
    for part, precision in precisions.items():
        alone, both = math.prod(sizes[n] * (sizes[n] - 1) for n in part), 1
        for n in part:
            both = both * np.where(changed & bits[n], -sizes[n], sizes[n] * (sizes[n] - 1))
        total += precision * (alone - both)
    return total.max()


@pytest.mark.parametrize("attributes", [7, 15, 21])
def test_the_worst_change_is_found_among_all_or_bounded(attributes):
    generator = np.random.default_rng(attributes)
    names = [f"a{i:02}" for i in range(attributes)]
    sizes = dict(zip(names, map(int, generator.integers(2, 4, attributes)), strict=True))
    pairs = list(combinations(names, 2))[: 105 if attributes < 21 else 30]
    parts = [*combinations(names, 1), *pairs]
    precisions = {part: int(generator.integers(1, 1000)) for part in parts}
    noise = {part: Fraction(1, k) for part, k in precisions.items()}
    mechanism = Marginals(sizes, noise, "replace-one")
    worst = largest_of_all_changes(sizes, precisions)
    assert mechanism.exact == (attributes <= 20)
    assert mechanism.rho() == worst if mechanism.exact else worst < mechanism.rho() < 2 * worst


@given(problems())
@settings(max_examples=40)
def test_variances_are_those_of_dense_least_squares(problem):
    sizes, weights, objective, relation = problem
    mechanism = optimal_marginals(
        sizes, weights, objective=objective, neighboring=relation
    ).mechanism(1)
    stacked = [residual(part, sizes) / math.sqrt(variance) for part, variance in mechanism.noise]
    if relation == "replace-one":  # the total is known
        stacked.append(residual((), sizes) * 1e3)
    design = np.vstack(stacked)
    covariance = np.linalg.pinv(design.T @ design, rcond=1e-10)
    for of in weights:
        matrix = marginal(of, sizes)
        # What the parts span contains the marginal, so that the pseudo-inverse is the answer.
        variances = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
        assert variances == pytest.approx(mechanism.variance(of), rel=1e-3, abs=1e-5)


@given(problems())
@settings(max_examples=40)
def test_the_bound_is_below_and_the_choice_near_it(problem):
    sizes, weights, objective, relation = problem
    strategy = optimal_marginals(sizes, weights, objective=objective, neighboring=relation)
    assert 0 <= strategy.gap() <= 2e-4
    assert min(strategy.gains()) >= 1 - 2e-4


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("objective", ["total", "largest"])
def test_brute_force_finds_no_better(objective, relation):
    sizes = {"a": 2, "b": 2, "c": 3}
    weights = {("a", "b"): 1.0, ("b", "c"): 2.0, ("a",): 4.0}
    strategy = optimal_marginals(sizes, weights, objective=objective, neighboring=relation)
    parts = list(strategy.precisions)
    cells = {of: math.prod(sizes[n] for n in of) for of in weights}
    moved = [residual(part, sizes) for part in parts]
    if relation == "replace-one":  # against the first record
        moved = [matrix - matrix[:, :1] for matrix in moved]
    shifts = np.array([(matrix**2).sum(axis=0) for matrix in moved]).T

    def value(logs):
        k = np.exp(logs)
        k = k / (shifts @ k).max()
        own = Marginals(
            sizes, {p: Fraction(1 / x) for p, x in zip(parts, k, strict=True)}, relation
        )
        each = [
            w * own.variance(of) * (cells[of] if objective == "total" else 1)
            for of, w in weights.items()
        ]
        return sum(each) if objective == "total" else max(each)

    best = math.inf
    for seed in range(3):
        start = np.random.default_rng(seed).normal(0, 1, len(parts))
        result = minimize(
            value,
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-7, "fatol": 1e-10},
        )
        best = min(best, result.fun)
    assert strategy.lower <= best * (1 + 1e-9)
    assert strategy.value() <= best * (1 + 2e-4)


def test_closed_form_of_one_marginal():
    strategy = optimal_marginals({"a": 5}, [("a",)])
    # parts () and (a): v = 5 (1/25, 4/5), p = (1, 4/5): (1/sqrt 5 + 4/sqrt 5)^2 = 5 cells at 1.
    assert strategy.value() == pytest.approx(5.0, rel=1e-9)
    assert strategy.gains() == pytest.approx((1.0, 1.0), rel=1e-9)


def test_equal_noise_is_what_least_squares_makes_of_it():
    sizes = {"a": 2, "b": 3, "c": 4}
    workload = [("a", "b"), ("b", "c"), ("a", "c")]
    for compared in optimal_marginals(sizes, workload).compared():
        design = np.vstack([marginal(of, sizes) for of in workload]) / math.sqrt(len(workload))
        covariance = np.linalg.pinv(design.T @ design)
        matrix = marginal(compared.marginal, sizes)
        variances = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
        assert variances == pytest.approx(compared.equal, rel=1e-9)
        assert compared.independent == 3


def tables_of(sizes, workload, seed=0, people=500):
    """Exact marginals of random records."""
    generator = np.random.default_rng(seed)
    full = np.zeros(tuple(sizes.values()), dtype=np.int64)
    for _ in range(people):
        full[tuple(generator.integers(0, n) for n in sizes.values())] += 1
    names = list(sizes)
    return full, {
        of: full.sum(axis=tuple(i for i, n in enumerate(names) if n not in of)) for of in workload
    }


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_estimates_add_up_and_scatter_as_stated(relation):
    """Marginals agree on what they share; chi-squared of their errors, false alarm 1e-6."""
    sizes, workload = {"a": 3, "b": 2, "c": 4}, [("a", "b"), ("b", "c")]
    _, tables = tables_of(sizes, workload)
    mechanism = optimal_marginals(sizes, workload, neighboring=relation).mechanism("0.05")
    total = 500 if relation == "replace-one" else None
    errors = {of: [] for of in workload}
    bits = Seeded(7)
    for _ in range(400):
        measured = mechanism.measure(tables, bits)
        result = mechanism.reconstruct(measured, workload, total=total)
        ab, bc = result["a", "b"].values, result["b", "c"].values
        assert ab.sum(axis=0) == pytest.approx(bc.sum(axis=1), abs=1e-6)
        for of in workload:
            errors[of].append(
                (result[of].values - tables[of]).ravel()[0] / result[of].standard_error
            )
    for of in workload:
        low, high = chi2.ppf([5e-7, 1 - 5e-7], 400)
        assert low <= np.sum(np.square(errors[of])) <= high


def test_huge_precision_gives_the_tables_back():
    sizes, workload = {"a": 3, "b": 2, "c": 4}, [("a", "b"), ("b", "c")]
    full, tables = tables_of(sizes, workload)
    mechanism = optimal_marginals(sizes, workload).mechanism(10**6)
    given_ = {("b", "a"): tables["a", "b"].T, ("c", "b", "a"): full.transpose(2, 1, 0)}
    result = mechanism.reconstruct(mechanism.measure(given_, Seeded(1)), workload)
    for of in workload:
        assert np.array_equal(np.rint(result[of].values), tables[of])


def test_the_curve_is_gaussian_and_hardly_above_that_of_rho():
    strategy = optimal_marginals({"a": 3, "b": 4}, [("a", "b")])
    for rho in (Fraction(1, 10**6), Fraction(1, 2), Fraction(200)):
        mechanism = strategy.mechanism(rho)
        exact = math.sqrt(2 * rho)
        assert exact <= mechanism.mu() <= exact * (1 + 4e-6)
        assert mechanism.rho() == rho
    curve = strategy.mechanism("0.5").tradeoff()
    assert curve.gdp().upper == pytest.approx(1.0, rel=1e-5)


def test_numbers_wrap_and_nothing_fails():
    mechanism = optimal_marginals({"a": 2}, [("a",)]).mechanism(1)
    assert mechanism.room() > 10**12
    table = {("a",): np.array([2**62, 2**62 - 1])}
    assert mechanism.measure(table, Seeded(3))["a",].shape == (2,)


def test_described_and_read_back():
    mechanism = optimal_marginals({"a": 3, "b": 2}, [("a", "b")], neighboring="replace-one")
    product = mechanism.mechanism("0.1")
    assert ny.Mechanism.from_json(product.to_json()) == product
    assert (product + ny.Laplace(scale=20)).neighboring == "replace-one"
    assert (product * 2).rho() == Fraction(1, 5)


def test_noise_that_adds_up_to_no_marginal_is_refused():
    with pytest.raises(ValueError, match="marginals need both"):
        Marginals({"a": 2}, {("a",): 1})
    with pytest.raises(ValueError, match="left out under 'replace-one'"):
        Marginals({"a": 2}, {("a",): 1, (): 1}, "replace-one")
    with pytest.raises(ValueError, match="too far from the least"):
        Marginals({"a": 2}, {("a",): Fraction(10) ** 40, (): 1})
    with pytest.raises(ValueError, match=r"\('a', 'b'\) twice"):
        Marginals({"a": 2, "b": 2}, {("a", "b"): 1, ("b", "a"): 100})
    mechanism = Marginals({"a": 2}, {("a",): 4}, "replace-one")
    with pytest.raises(ValueError, match="declared number of records"):
        mechanism.reconstruct({("a",): np.zeros(2, dtype=np.int64)})
    with pytest.raises(TypeError, match="whole numbers"):
        mechanism.measure({("a",): np.zeros(2)})
    with pytest.raises(ValueError, match="has the shape"):
        mechanism.measure({("a",): np.zeros(3, dtype=np.int64)})


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("ab", "workload"),
        (None, "workload"),
        ([5], "workload"),
        ({("a",): 1e-300, ("b",): 1e300}, "within a factor"),
        ([("c",)], "cells"),
    ],
)
def test_workloads_beyond_the_numbers_are_refused(workload, words):
    with pytest.raises((TypeError, ValueError), match=words):
        optimal_marginals({"a": 3, "b": 2, "c": 10**200}, workload)


def test_budgets_beyond_64_bits_are_refused_before_any_data():
    """With so little noise no table would fit."""
    with pytest.raises(ValueError, match="too small"):
        optimal_marginals({"a": 3}, [("a",)]).mechanism(10**40)


def test_tables_without_a_choice_are_the_parts_that_are_in_no_other():
    noise = dict.fromkeys([(), ("a",), ("b",), ("a", "b"), ("c",)], 1)
    assert set(Marginals({"a": 3, "b": 2, "c": 2}, noise).finest()) == {("a", "b"), ("c",)}


def test_measurements_of_other_shapes_are_refused():
    mechanism = Marginals({"a": 3}, {("a",): 4, (): 4})
    for measured in ({}, {(): np.array(1), ("a",): np.zeros(4)}):
        with pytest.raises(ValueError, match="measured"):
            mechanism.reconstruct(measured)


def test_the_worst_replacement_moves_more_than_leaving_a_record_out():
    source = np.random.default_rng(4)
    parts = [p for k in (1, 2, 3) for p in combinations("abc", k)]
    for _ in range(30):
        sizes = dict(zip("abc", source.integers(2, 4, 3).tolist(), strict=True))
        noise = {p: Fraction(int(source.integers(1, 50))) for p in parts}
        precisions = {part: 1 / variance for part, variance in noise.items()}
        alone = sum(
            k * math.prod(sizes[n] * (sizes[n] - 1) for n in p) for p, k in precisions.items()
        )
        assert alone <= 2 * Marginals(sizes, noise, "replace-one").rho()


@pytest.mark.parametrize("rho", [0, -1, Fraction(-1, 3)])
def test_a_strategy_measures_at_a_positive_rho_only(rho):
    strategy = ny.optimal_marginals({"a": 2, "b": 3}, [("a",), ("a", "b")])
    with pytest.raises(ValueError, match=r"rho = .* must be above 0"):
        strategy.mechanism(rho)
    assert strategy.mechanism(Fraction(1, 100)).rho() == Fraction(1, 100)
