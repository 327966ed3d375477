"""What an attacker learns: the numbers of docs/semantics.md, computed.

One release serves throughout: counts to which discrete Gaussian noise is added, in which one
person's record moves two cells by one each (one-half rho), next to the same counts with discrete
Laplace noise (pure DP). Run it: python examples/semantics.py
"""

from __future__ import annotations

import math
from fractions import Fraction

import neyman as ny
from neyman import best_test, posterior_ratio
from neyman.accounting import experiment, posterior_chance
from neyman.accounting import sentences as words
from neyman.accounting.semantics.bayes import ATTACKERS

RELEASE = ny.DiscreteGaussian(sigma_squared=2, sensitivity=[(1, 1)])  # rho 1/2
PURE = ny.DiscreteLaplace(scale=2, sensitivity=2)  # epsilon 1


def best_tests() -> list[str]:
    """The best test itself, for one count."""
    count = ny.DiscreteGaussian(sigma_squared=2)
    test = experiment(count).best_test("0.05")
    power = count.tradeoff().power(0.05).upper
    return [
        f"A count that one person moves by one, noise of sigma squared 2: {test}.",
        f"Its power is {float(test.power):.6f}; the curve says {power:.6f}.",
        words.power(0.05, power),
    ]


def attackers() -> list[str]:
    """How often a posterior exceeds its counterfactual, for each attacker."""
    lines = [
        "factor   knows-the-rest  true-record  arbitrary-prior   (zCDP alone: arbitrary-prior)"
    ]
    for factor in (2, 5, 10, 20):
        # The logarithm rounded down: what exceeds the factor exceeds it.
        epsilon = math.nextafter(math.log(factor), 0)
        release = [words.percent(posterior_ratio(RELEASE, epsilon, a).upper) for a in ATTACKERS]
        bare = words.percent(posterior_ratio(ny.zcdp("0.5"), epsilon).upper)
        known, true, arbitrary = release
        lines.append(f"{factor:6d}   {known:>14}  {true:>11}  {arbitrary:>15}   {bare:>15}")
    return lines


def geometric(ratio: Fraction, reach: int) -> dict[int, Fraction]:
    """Discrete Laplace noise of a rational ratio, its tails gathered at the ends."""
    law = {x: ratio ** abs(x) * (1 - ratio) / (1 + ratio) for x in range(-reach, reach + 1)}
    rest = (1 - sum(law.values())) / 2
    law[reach], law[-reach] = law[reach] + rest, law[-reach] + rest
    return law


def science() -> list[str]:
    """A right scientific inference: a study of others, and a smoker who need not be in it.

    Of 200 smokers, each falls ill with probability .02 if smoking is harmless (which nearly
    everyone believes) and .4 if it is not. The number of the ill is published, epsilon ln 1.1.
    """
    smokers, harmless, harmful, belief = 200, Fraction(1, 50), Fraction(2, 5), Fraction(1, 20)
    noise = geometric(Fraction(10, 11), 60)

    def law(rate: Fraction, known: int | None) -> dict[int, Fraction]:
        """The published count, where the target's own record adds ``known`` (None: drawn anew)."""
        n = smokers - 1
        ill = [math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
        own = {known: Fraction(1)} if known is not None else {1: rate, 0: 1 - rate}
        out: dict[int, Fraction] = {}
        for k, p in enumerate(ill):
            if p < Fraction(1, 10**15):
                continue
            for one, w in own.items():
                for x, q in noise.items():
                    out[k + one + x] = out.get(k + one + x, Fraction(0)) + p * w * q
        return out

    worlds = ((harmless, 1 - belief), (harmful, belief))
    prior = float(sum(w * rate for rate, w in worlds))
    observation = 80  # what a harmful habit makes likely

    def posterior(used: bool) -> float:
        top = sum(
            w * r * law(r, 1 if used else None).get(observation, Fraction(0)) for r, w in worlds
        )
        rest = sum(
            w * (1 - r) * law(r, 0 if used else None).get(observation, Fraction(0))
            for r, w in worlds
        )
        return float(top / (top + rest))

    actual, without = posterior(True), posterior(False)
    return [
        f"before the study, that the smoker falls ill: {prior:.3f}",
        f"after it, their record used:                 {actual:.3f}",
        f"after it, their record replaced by a guess:  {without:.3f}",
        f"prior to posterior: a factor of {actual / prior:.1f}; "
        f"posterior to posterior: a factor of {actual / without:.4f} (pure DP allows 1.1)",
    ]


def wrong_prior() -> list[str]:
    """A hundred people said yes; the attacker is sure that all the others said no."""
    prior, said = 0.01, 100
    gaussian = math.exp((2 * said - 1) / (2 * 2))  # likelihood ratio of 1 over 0 at that count
    laplace = math.exp(1 / 2)
    perceived = [r / (prior * r + 1 - prior) for r in (gaussian, laplace)]
    fair = posterior_ratio(ny.DiscreteGaussian(sigma_squared=2), math.log(50), "knows-the-rest")
    return [
        f"discrete Gaussian noise: the attacker sees a belief grow {perceived[0]:.1f} times",
        f"   (with a right prior, more than 50 times: {words.chance(fair.upper)})",
        f"discrete Laplace noise (epsilon 1/2): {perceived[1]:.3f} times; never above "
        f"{words.number(math.exp(0.5), 4)}",
    ]


def relatives() -> list[str]:
    """Frequentist: others who are the same under both hypotheses, and others who are not."""
    noise, level = geometric(Fraction(3, 5), 60), Fraction(1, 20)

    def law(record: int, others: dict[int, Fraction]) -> list[Fraction]:
        return [
            sum(
                (w * noise.get(y - record - n, Fraction(0)) for n, w in others.items()), Fraction(0)
            )
            for y in range(-60, 100)
        ]

    def power(no: dict[int, Fraction], yes: dict[int, Fraction]) -> float:
        return float(best_test(law(0, no), law(1, yes), level).power)

    sure = {0: Fraction(1)}
    spread = {0: Fraction(1, 2), 3: Fraction(1, 3), 20: Fraction(1, 6)}
    return [
        f"everyone else known:                       power {power(sure, sure):.4f} at level .05",
        f"others uncertain, the same either way:     power {power(spread, spread):.4f}",
        f"ten relatives share the value:             power {power(sure, {10: Fraction(1)}):.4f}",
    ]


def chosen_priors() -> list[str]:
    """From prior to posterior where others tell nothing about the person."""
    lines = []
    for prior, posterior in ((0.01, 0.1), (0.01, 0.5), (0.1, 0.5), (0.5, 0.9)):
        bound = posterior_chance(RELEASE, prior, posterior)
        lines.append(words.belief(prior, posterior, bound.upper))
    return lines


def sentences() -> list[str]:
    """The same in words."""
    epsilon = math.nextafter(math.log(10), 0)
    f = RELEASE.tradeoff()
    said = [
        words.belief_sentence(a, epsilon, posterior_ratio(f, epsilon, a).upper, about="race")
        for a in ATTACKERS
    ]
    said.append(words.belief_sentence("arbitrary-prior", 1, posterior_ratio(PURE, 1).upper))
    said.append(words.concerning(["race"], "0.05", f.power(0.05).upper))
    return said


SECTIONS = {
    "The best test": best_tests,
    "How often a belief grows": attackers,
    "A right inference about a stranger": science,
    "What a wrong prior can perceive": wrong_prior,
    "Relatives": relatives,
    "From a prior to a posterior": chosen_priors,
    "In words": sentences,
}


if __name__ == "__main__":
    for title, section in SECTIONS.items():
        print(f"## {title}\n")
        print("\n".join(section()), end="\n\n")
