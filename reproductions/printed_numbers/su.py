"""Su's review of 2024, section by section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import e, exp, log, sqrt, tanh
from statistics import NormalDist

from scipy.integrate import quad

import neyman as ny
from reproductions.census_2020 import dhc
from reproductions.printed_numbers.entry import Entry, formula, given, misprint, number, uncomputed
from reproductions.printed_numbers.su_tables import iterates, levels, shuffles

__all__ = ["SOURCE", "entries"]

SOURCE = "Su (2024), a statistical viewpoint on differential privacy"
NORMAL = NormalDist()
FAR = 12  # standard deviations: the rest of an integral is below 1e-20


def entries() -> Iterator[Entry]:
    """All entries, in the order of the text."""
    yield given("0", "title", "the date", "21 October 2024").covers("21 2024")
    yield given("1", "text", "the year of the census", "2020").covers("2020")
    yield from _links()
    yield from _toolbox()
    yield from _composition()
    yield from _sgd()
    yield given("4.2", "table 1", "δ of the table", "1e-5").covers("10 5")
    yield from iterates("4.2", "table 1")
    yield from _mixtures()
    yield from shuffles("4.3", "table 2", "table 3")
    yield from _census()


def _over_gaussian(value: Callable[[float], float], mu: float = 1.0) -> float:
    """Return the integral over [0, 1] of value(-f'(x)), f the Gaussian curve of mu."""
    slope = lambda t: exp(mu * t - mu * mu / 2)  # noqa: E731
    return quad(lambda t: value(slope(t)) * NORMAL.pdf(t), -FAR, FAR, points=[mu / 2], limit=200)[0]


def _links() -> Iterator[Entry]:
    normal = ny.gdp(1)
    yield formula(
        "2.2",
        "after axiom 2",
        "Wasserstein distances grow under x → s x",
        "s above 1",
        "N(0, 1) and N(1, 1), s = 2: distance 1 before, and after",
        1.0,
        2.0,
        relation=">=",
    )
    yield formula(
        "2.3",
        "equation 2.2",
        "points of the trade-off function",
        "α = P(dP/dQ ≤ r), β = Q(dP/dQ > r)",
        "N(0, 1) and N(1, 1), r = 1",
        1 - NORMAL.cdf(0.5),
        normal(NORMAL.cdf(-0.5)),
    )
    tv = "½ ∫ |1 + f'(x)| dx"
    yield formula(
        "2.3",
        "after theorem 3",
        "total variation",
        tv,
        "a Gaussian curve, μ = 1",
        _over_gaussian(lambda x: abs(1 - x)) / 2,
        normal.advantage(),
    ).covers("2")
    yield formula(
        "2.3",
        "after theorem 3",
        "total variation",
        tv,
        "f(x) = max(0, 0.7 − x)",
        0.15,
        ny.total_variation(0.3).advantage(),
        why="a condition is missing: it holds only if f(0) = 1. In general add (1 − f(0))/2",
    )
    yield formula(
        "2.3",
        "pure",
        "link function",
        "−log(−f'(1))",
        "f of randomized response, ε = 1: slope −e⁻¹ at 1",
        -log(exp(-1)),
        ny.RandomizedResponse(1).tradeoff().pure(),
    )
    stick = NORMAL.cdf(0.5 - 1) - e * NORMAL.cdf(-0.5 - 1)
    yield formula(
        "2.3",
        "approximate",
        "hockey-stick divergence",
        "E_Q (dP/dQ − e^ε)₊",
        "N(0, 1) and N(1, 1), ε = 1",
        stick,
        normal.delta(1),
    )
    delta = float(normal.delta(1))
    yield formula(
        "2.3",
        "approximate",
        "ε at δ",
        "max log((P(Ω) − δ) / Q(Ω)) = inf{ε: H ≤ δ}",
        "N(0, 1) and N(1, 1), δ the number above, Ω: dP/dQ > e",
        log((NORMAL.cdf(-0.5) - stick) / NORMAL.cdf(-1.5)),
        normal.epsilon(float(normal.delta(1))),
    )
    yield formula(
        "2.3",
        "equation 2.4",
        "link function: its root in ε",
        "f*(−e^(−ε)) + e^(−ε)(1 − δ) = 0",
        "μ = 1, ε = 1, δ = 0.1269: −f*(−e⁻¹)",
        exp(-1) * (1 - delta),
        -float(normal.conjugate(-exp(-1))),
    )
    yield formula(
        "2.3",
        "Rényi",
        "link function",
        "1/(γ − 1) log ∫ |f'(x)|^(1 − γ) dx",
        "μ = 1, γ = 3",
        log(_over_gaussian(lambda x: x ** (1 - 3) if x else 0.0)) / 2,
        normal.renyi(3),
    )
    coin = ny.RandomizedResponse(1).tradeoff()
    yield formula(
        "2.4",
        "proposition 2.2",
        "probabilities of 1",
        "e^ε/(1 + e^ε) and 1/(1 + e^ε)",
        "ε = 1: total variation",
        tanh(0.5),
        coin.advantage(),
    )
    yield formula(
        "2.4",
        "proposition 2.2 (a)",
        "Rényi divergences: normal at least Bernoulli",
        "D_γ(N(0, 1), N(ε, 1)) ≥ D_γ(P_ε, Q_ε)",
        "ε = 1: the supremum of D_γ/γ, ½ for the normal",
        0.5,
        coin.zcdp(),
        relation="<=",
    )
    yield formula(
        "2.4",
        "proposition 2.2 (b)",
        "total variation: normal below Bernoulli",
        "TV(N(0, 1), N(ε, 1)) < TV(P_ε, Q_ε)",
        "ε = 1",
        float(normal.advantage()),
        coin.advantage(),
        relation=">=",
    )


def _toolbox() -> Iterator[Entry]:
    yield given("3.1", "text", "type II error of a rule φ", "1 − E_Q φ")
    yield given("3.1", "text", "trade-off functions", "f(α) ≤ 1 − α; id(α) = 1 − α")
    yield formula(
        "3.1",
        "theorem 5",
        "curve of (ε, δ)",
        "max{0, 1 − δ − e^ε α, e^(−ε)(1 − δ − α)}",
        "ε = 1, δ = 0.1, α = 0.5",
        exp(-1) * (1 - 0.1 - 0.5),
        ny.approximate(1, 0.1)(0.5),
    )
    yield formula(
        "3.2",
        "Gaussian mechanism",
        "noise for μ",
        "N(0, sens² / μ²)",
        "sens = 3, μ = 1/2: σ = 6, and its μ",
        0.5,
        ny.Gaussian(6, sensitivity=3).tradeoff().gdp(),
    ).covers("2 2")
    yield formula(
        "3.2",
        "Gaussian mechanism",
        "curve",
        "G_μ(α) = Φ(Φ⁻¹(1 − α) − μ)",
        "μ = 1, α = 0.05",
        NORMAL.cdf(NORMAL.inv_cdf(0.95) - 1),
        ny.gdp(1)(0.05),
    )
    noise = ny.CanonicalNoise(ny.gdp(1))
    yield formula(
        "3.2",
        "canonical noise, property 2",
        "curve of a shift by 1",
        "F(F⁻¹(α) − 1)",
        "the noise of G₁, which is N(0, 1), α = 0.05",
        NORMAL.cdf(NORMAL.inv_cdf(0.05) - 1),
        noise.tradeoff()(0.05),
        why="a misprint: F⁻¹(1 − α) for F⁻¹(α). "
        "What is printed is not a trade-off function: it rises with α",
    )


def _composition() -> Iterator[Entry]:
    yield formula(
        "3.3",
        "Gaussian composition",
        "μ of all",
        "√(μ₁² + … + μ_m²)",
        "μ = 3 and 4",
        5.0,
        (ny.gdp(3) @ ny.gdp(4)).gdp(),
    ).covers("2 2")
    mean = _over_gaussian(lambda x: -log(x) if x else 0.0)
    yield formula(
        "3.3",
        "text",
        "kl",
        "kl(f) = −∫ log(−f'(x)) dx",
        "μ = 1, where it is μ²/2",
        mean,
        ny.gdp(1).renyi(1),
    )
    square = _over_gaussian(lambda x: log(x) ** 2 if x else 0.0)
    variance = float(ny.gdp(1).loss.variance)
    yield formula(
        "3.3",
        "text",
        "κ₂",
        "κ₂(f) = ∫ log²(−f'(x)) dx",
        "μ = 1: the loss has variance 1 and mean ½",
        square,
        variance + 0.25,
    ).covers("2")
    kl, kappa = 0.5**2 / 2, 0.5**2 + 0.5**4 / 4
    yield formula(
        "3.3",
        "central limit theorem",
        "μ",
        "2 Σ kl(f_i) / √(Σ κ₂(f_i))",
        "100 Gaussian curves of μ = 1/2",
        2 * 100 * kl / sqrt(100 * kappa),
        (ny.gdp(0.5) ** 100).gdp(),
        why="a misprint, on the unsafe side: the root lacks − Σ kl(f_i)². With it "
        "the formula gives 5",
    ).covers("2")
    tail = NORMAL.cdf(0.5 - 1) - e * NORMAL.cdf(-0.5 - 1)
    yield formula(
        "3.3",
        "proposition 3.2",
        "δ from sums",
        "1 − F_Y(ε) − e^ε (1 − F_X(ε))",
        "4 Gaussian curves of μ = 1/2, ε = 1: sums N(±½, 1)",
        tail,
        (ny.gdp(0.5) ** 4).delta(1),
    )
    yield given(
        "3.3",
        "figure 2",
        "δ of the figure",
        "1e-5",
        "[bounds of composition](../comparison.md#bounds-of-composition) has one such",
    ).covers("10 5")
    yield uncomputed(
        "3.3", "text", "error of the Edgeworth accountant", "O(1/m)", "no constant is printed"
    )
    yield given(
        "3.3", "text", "iterations of a training", "tens of thousands", "a typical size, no result"
    )


def _sgd() -> Iterator[Entry]:
    p, sigma, level = 0.1, 2.0, 0.05
    curve = ny.Gaussian(sigma).subsample(rate=p).tradeoff()
    yield formula(
        "4.1",
        "text",
        "curve of one step",
        "p G_(1/σ) + (1 − p) id",
        "p = 0.1, σ = 2, α = 0.05",
        p * NORMAL.cdf(NORMAL.inv_cdf(1 - level) - 1 / sigma) + (1 - p) * (1 - level),
        curve(level),
        remark="for the sum of clipped gradients, a secret batch drawn by one coin per "
        "record, and add-remove. If one record is replaced, the shift is 2R: 2/σ for 1/σ",
    )
    yield given(
        "4.1", "text", "records, and their mean loss", "{1, 2, …, n}; 1/n Σ ℓ(θ, x_i)"
    ).covers("2")
    steps, rate = 10**6, 1e-3
    yield formula(
        "4.1",
        "text",
        "μ in the limit",
        "ν √(e^(1/σ²) − 1), ν the limit of p √T; (B/n) √(T (e^(1/σ²) − 1))",
        "p = 0.001, T = 10⁶, σ = 1: δ at ε = 1",
        float(ny.gdp(sqrt(e - 1)).delta(1)),
        (ny.Gaussian(1).subsample(rate=rate) * steps).tradeoff().delta(1),
        within=0.01,
        remark="a limit, so equal to within 1%. It is not a bound",
    ).covers("2 2")
    loss = lambda t: 1 - p + p * exp(t / sigma - 1 / (2 * sigma**2))  # noqa: E731
    second = quad(lambda t: loss(t) ** 2 * NORMAL.pdf(t), -FAR, FAR)[0]
    yield formula(
        "4.1",
        "text",
        "loss of one step",
        "log(1 − p + p e^(ξ/σ − 1/(2σ²)))",
        "p = 0.1, σ = 2: Rényi divergence of order 2",
        log(second),
        curve.renyi(2),
    ).covers("2 2 2 2")
    yield given("4.1", "text", "names of the losses of f⁻¹", "X⁽²⁾, Y⁽²⁾").covers("2 2")
    normal = ny.gdp(1)
    yield formula(
        "4.1",
        "text",
        "G_μ is its own inverse",
        "min{G_μ, G_μ⁻¹}** = G_μ",
        "μ = 1, α = 0.05: G(G(α))",
        0.05,
        normal(float(normal(0.05))),
    )
    yield misprint(
        "4.1",
        "text",
        "number of steps",
        "(…)^(⊗m) for f, (…)^(⊗T) for f⁻¹",
        "a misprint: both exponents are T, the number of steps",
    )
    yield misprint(
        "4.1",
        "text",
        "noise of DP-SGD",
        "scale σR, added to the average clipped gradient",
        "a misprint: G_(1/σ) belongs to noise of scale σR on the sum. A divisor |I_t| must "
        "not depend on the data",
    )
    yield formula(
        "4.2",
        "text",
        "growth of μ",
        "(B/n) √(T (e^(1/σ²) − 1)) = O(√T)",
        "4 times the steps, σ = 1: the ratio of μ",
        2.0,
        (ny.gdp(0.1) ** 4).gdp().upper / 0.1,
    ).covers("2")


def _mixtures() -> Iterator[Entry]:
    parts = ny.between([0.8, 0.2], [0.2, 0.8]), ny.between([0.5, 0.5], [0.5, 0.5])
    mixed = ny.between([0.65, 0.35], [0.35, 0.65])
    value = 0.5 * float(parts[0](0.2)) + 0.5 * float(parts[1](0))
    yield formula(
        "4.3",
        "equation 4.1",
        "curve of a mixture",
        "T(P, Q)(α(r, c)) ≥ Σ w_i T(P_i, Q_i)(α_i(r, c))",
        "two coins, of chances 0.2 and 0.8, and 0.5 and 0.5, equal weights, r = 1, c = 0",
        value,
        mixed(0.1),
        relation=">=",
    )


def _census() -> Iterator[Entry]:
    march, august = dhc.ALLOCATIONS["march_2022"], dhc.ALLOCATIONS["august_2022"]
    yield given("4.4", "text", "the year of the census", "2020").covers("2020")
    total = sum(exp(-i * i / 2) for i in range(-40, 41))
    yield formula(
        "4.4",
        "text",
        "discrete Gaussian",
        "p(x) ∝ e^(−(x − μ)²/(2σ²))",
        "σ = 1, a shift by 1: total variation, which is p(0)",
        1 / total,
        ny.DiscreteGaussian(1).tradeoff().advantage(),
    ).covers("2 2 2 2 2 2 2 2 2 2 2 2")
    yield number("4.4", "text", "queries m", "72", float(march.count))
    yield number("4.4", "text", "levels of place", "8", float(len(march.levels)))
    yield number("4.4", "text", "queries per level", "9", float(march.levels[0].count))
    yield given(
        "4.4",
        "text",
        "sensitivity of a query",
        "1",
        "one cell of each query moves. If a record is replaced, two do, and ε is larger",
    )
    ends = (level for level in august.levels if level.place in ("state", "block"))  # least, most
    saved = [level.noise_saved(level.epsilons.bun_steinke.upper) for level in ends]
    yield number(
        "4.4",
        "text",
        "reduction of the mean squared error, percent",
        "10",
        ny.Bound(min(saved), max(saved)),
        why="“about 10%”: coarse. The cited paper prints 15.08% to 24.82%, which are "
        "[ours](published.md)",
    )
    yield given("4.4", "text", "δ of the two guarantees", "1e-11").covers("10 11 10 11")
    yield from levels("4.4", "text")
