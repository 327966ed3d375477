"""The student overview of Rico and Steplyk, section by section."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log, sqrt
from statistics import NormalDist

import neyman as ny
from reproductions.printed_numbers.entry import Entry, formula, given

__all__ = ["SOURCE", "entries"]

SOURCE = "Rico and Steplyk, student overview"


def entries() -> Iterator[Entry]:
    """All entries, in the order of the text."""
    yield given(
        "2.1",
        "text",
        "k-anonymity: least other records, largest chance of a link",
        "k − 1; 1/k",
        "a definition: the chance is that of a uniform guess within a group",
    )
    yield formula(
        "2.2",
        "text",
        "(ε, δ)",
        "P[f(D) ∈ S] ≤ e^ε P[f(D') ∈ S] + δ",
        "ε = 1, δ = 0.1",
        0.1,
        ny.approximate(1, 0.1).delta(1),
    )
    yield formula("2.2", "text", "pure privacy", "δ = 0", "ε = 1", 1.0, ny.approximate(1, 0).pure())
    yield formula(
        "2.3.1",
        "text",
        "density",
        "1/(2b) e^(−|y − f(D)|/b)",
        "b = 1, a shift of 1, total variation",
        1 - exp(-0.5),
        ny.Laplace(1).tradeoff().advantage(),
    ).covers("2 2")
    yield formula(
        "2.3.1",
        "text",
        "noise scale",
        "b ≥ Δf / ε",
        "Δf = 3, ε = 2",
        2.0,
        ny.Laplace(1.5, sensitivity=3).tradeoff().pure(),
    )
    for epsilon, why in (
        (0.5, ""),
        (100, "a condition is missing: the rule is proven for ε below 1. Above it, it can fail"),
    ):
        sigma = sqrt(2 * log(1.25 / 1e-5)) / epsilon
        yield formula(
            "2.3.2",
            "text",
            "noise of the Gaussian mechanism",
            "σ ≥ Δ₂f √(2 ln(1.25/δ)) / ε",
            f"ε = {epsilon}, δ = 1e-5: the δ that this σ has",
            1e-5,
            ny.Gaussian(sigma).tradeoff().delta(epsilon),
            relation="<=",
            why=why,
        ).covers("2 1.25" if not why else "")
    yield given("2.3.2", "text", "noise of the Gaussian mechanism", "N(0, σ²)").covers("2")
    ratio = exp(-5 * sqrt(2)) / (2 * NormalDist().cdf(-5))
    yield formula(
        "2.3.2",
        "text",
        "Gaussian tails decay more slowly than Laplace tails",
        "a ratio of at most 1",
        "5 standard deviations: the chance of larger Laplace noise, divided by that of "
        "larger Gaussian noise",
        1.0,
        ratio,
        relation="<=",
        why="wrong: Gaussian tails are lighter. δ is needed because the log ratio of two shifted "
        "Gaussian densities has no bound",
    )
    yield given("3", "text", "the year of a citation", "2013").covers("2013")
