"""Duchi's lecture of 2025. The slides have no numbers, so a place is a slide's title."""

from __future__ import annotations

from collections.abc import Iterator
from math import e, exp, expm1, log, sqrt

import neyman as ny
from neyman.mechanisms import Composed
from reproductions.printed_numbers.entry import Entry, formula, given

__all__ = ["SOURCE", "entries"]

SOURCE = "Duchi (2025), four big ideas in privacy"
DELTA = 1e-6
L = log(1 / DELTA)


def entries() -> Iterator[Entry]:
    """All entries, in the order of the slides."""
    yield given("0", "title", "the date", "2025").covers("2025")
    yield given(
        "0",
        "Notation and setting",
        "individuals, and their empirical distribution",
        "i = 1, 2, …, n; P_n = 1/n Σ 1_(X_i)",
    ).covers("2")
    yield from _definitions()
    yield from _mechanisms()
    yield from _compositions()
    yield from _divergences()


def _definitions() -> Iterator[Entry]:
    yield formula(
        "0",
        "A hypothesis testing perspective",
        "errors of any test under (ε, δ)",
        "α₀ + e^ε α₁ ≥ 1 − δ and α₁ + e^ε α₀ ≥ 1 − δ",
        "ε = 1, δ = 0.1, α₀ = 0.05",
        max(0.9 - e * 0.05, (0.9 - 0.05) / e),
        ny.approximate(1, 0.1)(0.05),
    )
    yield formula(
        "0",
        "Local differential privacy",
        "a local randomizer",
        "P(M(x) ∈ A) ≤ e^ε P(M(x') ∈ A)",
        "ε = 1",
        1.0,
        ny.LocalRandomizer(1).tradeoff().pure(),
    )


def _mechanisms() -> Iterator[Entry]:
    yield given("0", "Global sensitivity", "neighbors: records in which they differ", "at most 1")
    yield given("0", "Mean estimation", "the mean of n records", "1/n Σ X_i")
    yield formula(
        "0",
        "Laplace mechanism",
        "density",
        "p(z) = ½ exp(−|z|)",
        "a shift of 1, total variation 1 − 2 P(Z > ½)",
        1 - exp(-0.5),
        ny.Laplace(1).tradeoff().advantage(),
    ).covers("2")
    yield formula(
        "0",
        "Laplace mechanism",
        "noise scale",
        "GS(f) / ε",
        "GS = 3, ε = 2",
        2.0,
        ny.Laplace(1.5, sensitivity=3).tradeoff().pure(),
    )
    yield formula(
        "0",
        "Laplace mechanism (d dimensions)",
        "noise scale",
        "GS₁(f) / ε",
        "d = 2, a shift of 1/2 in each coordinate, ε = 1",
        1.0,
        (ny.Laplace(1, sensitivity=0.5) * 2).tradeoff().pure(),
    )
    for epsilon, why in (
        (1, ""),
        (
            100,
            "a condition is missing: no constant works for all ε, because the least σ² "
            "falls like 1/(2ε)",
        ),
    ):
        sigma = ny.calibrate(ny.Gaussian, ny.approximate(epsilon, DELTA))
        yield formula(
            "0",
            "Gaussian mechanism",
            "variance",
            "σ²(ε, δ) ≤ O(1) log(1/δ) / ε²",
            f"ε = {epsilon}, δ = 1e-6, least σ², with 2 for O(1)",
            2 * L / epsilon**2,
            float(sigma) ** 2,
            relation="<=",
            why=why,
        ).covers("2 2 2" if epsilon == 1 else "")
    normal = ny.gdp(1)
    both = 1 - float(normal.loss.cdf(1).lower) + float(normal.loss.cdf(-1).upper)
    yield formula(
        "0",
        "Privacy loss random variable",
        "(ε, δ) if and only if",
        "P(|L| ≥ ε) ≤ δ",
        "the Gaussian mechanism of μ = 1, ε = 1: the smallest δ",
        both,
        normal.delta(1),
        why="a misprint: “if” holds, “only if” does not. The Gaussian mechanism has a smaller δ",
    )
    yield formula(
        "0",
        "Mean estimation with randomized response",
        "chance of the true answer",
        "e^ε / (1 + e^ε)",
        "ε = 1, the least type II error at level 1 − e / (1 + e)",
        1 - e / (1 + e),
        ny.RandomizedResponse(1).tradeoff()(1 - e / (1 + e)),
    )
    yield formula(
        "0",
        "Mean estimation with randomized response",
        "mean squared error, up to a constant",
        "1 / (ε² ∧ 1) · 1 / n",
        "ε = 1, n = 1, with 5/4 for the constant: e / (e − 1)² + 1/4",
        1.25,
        e / (e - 1) ** 2 + 0.25,
        relation="<=",
    ).covers("2 2")


def _compositions() -> Iterator[Entry]:
    yield formula(
        "0",
        "Composition",
        "basic composition",
        "(kε, kδ)",
        "k = 10, ε = 0.1, δ = 0",
        1.0,
        (ny.RandomizedResponse(0.1) * 10).tradeoff().pure(),
    )
    yield formula(
        "0",
        "Composition",
        "advanced composition",
        "kε(e^ε − 1) + O(1) √(kε² log(1/δ))",
        "k = 100, ε = 0.1, δ = 1e-6, with √2 for O(1)",
        10 * expm1(0.1) + sqrt(2 * L),
        (ny.RandomizedResponse(0.1) * 100).tradeoff().epsilon(DELTA),
        relation="<=",
    ).covers("2")
    guarantee, small = 10 * expm1(0.1) + sqrt(2 * log(1e8)), 1e-8
    yield formula(
        "0",
        "Composition",
        "advanced composition: δ",
        "O(1) kδ",
        "k = 100, ε = 0.1, δ = 1e-8, with 2 for O(1)",
        2 * 100 * small,
        (ny.approximate(0.1, small) ** 100).delta(guarantee),
        relation="<=",
    )
    k, epsilon, delta = 10, 1, 1e-5
    sigma = sqrt(k * log(1 / delta) / epsilon**2 + k / epsilon)
    yield formula(
        "0",
        "Composition of Gaussian mechanisms",
        "(2ε, δ)",
        "σ² = k log(1/δ) / ε² + k / ε",
        "k = 10, ε = 1, δ = 1e-5: the smallest ε, at most 2",
        2.0,
        (ny.Gaussian(sigma) * k).tradeoff().epsilon(delta),
        relation="<=",
        remark="the same proof gives 1.5ε for 2ε",
    ).covers("2 2 2 2")


def _divergences() -> Iterator[Entry]:
    yield formula(
        "0",
        "Rényi differential privacy",
        "divergence",
        "D_α = 1/(α − 1) log ∫ (dP/dQ)^α dQ",
        "N(0, 1) and N(1, 1), α = 2, where it is α/2",
        1.0,
        ny.gdp(1).renyi(2),
    )
    pair = Composed.of([(ny.Gaussian(1), 1), (ny.Gaussian(0.5), 1)])
    yield formula(
        "0",
        "Composition in Rényi privacy",
        "parameters add up",
        "(α, ε₀ + ε₁)",
        "α = 2, ε₀ = 1, ε₁ = 4",
        5.0,
        pair.tradeoff().renyi(2),
    )
    yield formula(
        "0",
        "From Rényi privacy to differential privacy",
        "epsilon",
        "ε + log(1/δ) / (α − 1)",
        "α = 5, ε = 2.5, δ = 1e-6",
        2.5 + L / 4,
        ny.renyi({5: 2.5}).epsilon(DELTA),
        relation="<=",
        remark="holds, and is not the best conversion",
    )
    yield formula(
        "0",
        "From Rényi privacy to differential privacy",
        "probability of an event",
        "P(A) ≤ (exp(D_α) Q(A))^((α − 1)/α)",
        "N(0, 1) and N(1, 1), α = 2, Q(A) = 0.05",
        sqrt(e * 0.05),
        ny.gdp(1).power(0.05),
        relation="<=",
    )
