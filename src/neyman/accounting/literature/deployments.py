"""List published deployments of differential privacy, to compare a parameter with them.

Each row has the published parameters and their source. `Deployment.tradeoff` is the curve that they
imply. For Gaussian noise, it is the curve of the noise. Otherwise, it is the curve that the
guarantee proves, and the noise may reveal less. Privacy units differ: a user's day is less than a
person, so a smaller power for a day is no stronger protection.

The table lists deployments with parameters and unit stated in the cited text. The Differential
Privacy Deployments Registry lists more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from neyman import notebook
from neyman.accounting.semantics.digits import delta as delta_text
from neyman.accounting.semantics.digits import level_percent, number, percent
from neyman.curves.tradeoff.guarantees import approximate, gdp, pure, zcdp
from neyman.curves.tradeoff.tradeoff import Tradeoff

Form = Literal["Gaussian noise", "zCDP", "epsilon", "epsilon and delta"]


@dataclass(frozen=True)
class Deployment:
    """Represent a published use of differential privacy, with its parameters and their source.

    Args:
        name: name of the release.
        publisher: organization that released it.
        year: year of the publication.
        unit: the privacy unit, with its time span if the data continue.
        form: what was published: "Gaussian noise" with its rho, so the whole curve is known, or
            only a guarantee.
        rho, epsilon, delta: the published parameters; exact.
        citation: source of the parameters.
        url: URL of the citation.
    """

    name: str
    publisher: str
    year: int
    unit: str
    form: Form
    citation: str
    url: str
    rho: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction | None = None

    @property
    def is_curve(self) -> bool:
        """Return True if the parameters describe the noise, not only a guarantee."""
        return self.form == "Gaussian noise"

    @property
    def parameters(self) -> str:
        """Return the parameters as text: "rho 2.63"."""
        texts = [("rho", self.rho, number), ("epsilon", self.epsilon, number)]
        parts = [f"{name} {text(value)}" for name, value, text in texts if value is not None]
        return ", ".join([*parts, *([f"delta {delta_text(self.delta)}"] if self.delta else [])])

    def tradeoff(self) -> Tradeoff:
        """Return the curve that the published parameters imply.

        Gaussian noise with total cost rho has the curve of mu = sqrt(2 rho). It is also used for
        discrete Gaussian noise. For the 2020 Census, the powers of both differ by less than 0.01.
        """
        if self.rho is not None:
            return gdp(math.sqrt(2 * self.rho)) if self.is_curve else zcdp(self.rho)
        if self.epsilon is None:
            raise ValueError(f"{self.name}: a deployment needs rho, or epsilon")
        return approximate(self.epsilon, self.delta) if self.delta else pure(self.epsilon)


DATA_THEMSELVES = "The data themselves"
CENSUS = "2020 Census, redistricting data"


class Deployments(tuple[Deployment, ...]):
    """Hold published deployments with their sources, in an immutable table.

    Examples:
        >>> import neyman as ny
        >>> census = next(each for each in ny.deployments if "Census" in each.name)
        >>> census.parameters, census.unit, census.is_curve
        ('rho 2.63', 'a person and their housing unit', True)
        >>> print(f"{census.tradeoff().power(level=0.05):.3f}")
        0.742
    """

    __slots__ = ()

    def __repr__(self) -> str:
        rows = (f"{each.name} ({each.publisher}, {each.year}): {each.parameters}" for each in self)
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        head = ["Release", "Publisher", "Year", "Parameters", "Privacy unit", "Source"]
        rows = [
            [each.name, each.publisher, str(each.year), each.parameters, each.unit, each.url]
            for each in self
        ]
        return notebook.safe_html(lambda: (notebook.table(head, rows),), self)


_ROWS = (
    Deployment(
        "Daily page views by country",
        "Wikimedia Foundation",
        2023,
        "a device's day, at most 10 pages",
        "Gaussian noise",
        "Adeleye and others 2023, Publishing Wikipedia usage data with strong privacy guarantees",
        "https://arxiv.org/abs/2308.16298",
        rho=Fraction("0.015"),
    ),
    Deployment(
        "Spanish next-word prediction",
        "Google (Gboard)",
        2022,
        "a device",
        "zCDP",
        "McMahan and Thakurta 2022, Federated Learning with Formal Differential Privacy Guarantees",
        "https://research.google/blog/federated-learning-with-formal-differential-privacy-guarantees/",
        rho=Fraction("0.81"),
    ),
    Deployment(
        "COVID-19 Search Trends symptoms",
        "Google",
        2020,
        "a user's day",
        "epsilon",
        "Bavadekar and others 2020, Google COVID-19 Search Trends Symptoms Dataset: Anonymization "
        "Process Description",
        "https://arxiv.org/abs/2009.01265",
        epsilon=Fraction("1.68"),
    ),
    Deployment(
        "VaultGemma 1B",
        "Google",
        2025,
        "a sequence of 1,024 tokens",
        "epsilon and delta",
        "VaultGemma Team 2025, VaultGemma: A Differentially Private Gemma Model",
        "https://arxiv.org/abs/2510.15001",
        epsilon=Fraction(2),
        delta=Fraction("1.1e-10"),
    ),
    Deployment(
        "Health types in use",
        "Apple",
        2017,
        "a report of one device",
        "epsilon",
        "Differential Privacy Team, Apple 2017, Learning with Privacy at Scale",
        "https://docs-assets.developer.apple.com/ml-research/papers/learning-with-privacy-at-scale.pdf",
        epsilon=Fraction(2),
    ),
    Deployment(
        "COVID-19 Community Mobility Reports",
        "Google",
        2020,
        "a user's day",
        "epsilon",
        "Aktay and others 2020, Google COVID-19 Community Mobility Reports: Anonymization Process "
        "Description",
        "https://arxiv.org/abs/2004.04145",
        epsilon=Fraction("2.64"),
    ),
    Deployment(
        CENSUS,
        "U.S. Census Bureau",
        2021,
        "a person and their housing unit",
        "Gaussian noise",
        "Abowd and others 2022, The 2020 Census Disclosure Avoidance System TopDown Algorithm",
        "https://arxiv.org/abs/2204.08986",
        rho=Fraction("2.63"),
    ),
    Deployment(
        "National registry of live births, 2014",
        "Israel's Ministry of Health",
        2024,
        "a birth",
        "epsilon",
        "Hod and Canetti 2024, Differentially Private Release of Israel's National Registry of "
        "Live Births",
        "https://arxiv.org/abs/2405.00267",
        epsilon=Fraction("9.98"),
    ),
    Deployment(
        "Audience Engagements API",
        "LinkedIn",
        2020,
        "a member's month",
        "epsilon and delta",
        "Rogers and others 2020, LinkedIn's Audience Engagements API: A Privacy Preserving Data "
        "Analytics System at Scale",
        "https://arxiv.org/abs/2002.05839",
        epsilon=Fraction("34.9"),
        delta=Fraction("7e-9"),
    ),
)
deployments = Deployments(_ROWS)
"""Published deployments with their sources. `scale` sorts them by their power at a level."""


class Mark(NamedTuple):
    """Represent one entry of `scale`, which sorts deployments by their power at a level.

    Args:
        name: name of a deployment, or of an end of the scale.
        note: its parameters, unit, and year; "" for an end.
        power: an upper bound on the power at the level.
        known: "noise" if the noise's curve is known, "guarantee" if only a guarantee is known.
    """

    name: str
    note: str
    power: float
    known: Literal["noise", "guarantee", ""]


@lru_cache(maxsize=16)
def scale(level: float) -> tuple[Mark, ...]:
    """Return the scale at a level: its lower end, the deployments by power, and its upper end.

    Args:
        level: a false positive rate, in (0, 1).
    """
    marks = [
        Mark(
            f"{each.name}, {each.publisher}",
            f"{each.parameters} for {each.unit}, {each.year}",
            max(level, each.tradeoff().power(level).upper),
            "noise" if each.is_curve else "guarantee",
        )
        for each in deployments
    ]
    ends = Mark("No information", "", level, ""), Mark(DATA_THEMSELVES, "", 1.0, "")
    return ends[0], *sorted(marks, key=lambda mark: mark.power), ends[1]


def census_power(level: float) -> float:
    """Return an upper bound on the 2020 Census redistricting data's power at a level."""
    return next(mark.power for mark in scale(level) if mark.name.startswith(CENSUS))


def scale_sentence(level: float, power: float) -> str:
    """Return a sentence that places a power on the scale, next to the 2020 Census.

    Examples:
        >>> from neyman.accounting.literature.deployments import scale_sentence
        >>> print(scale_sentence(0.05, 0.8)[:71])
        Scale at a 5% false positive rate: no information 5%; 2020 Census, redi
    """
    most = census_power(level)
    marks = [(most, f"{CENSUS} {percent(most)}"), (power, f"this {percent(power)}")]
    texts = [text for _, text in sorted(marks)]
    rate = level_percent(level)
    return (
        f"Scale at a {rate} false positive rate: no information {rate}; {'; '.join(texts)}; the "
        "data themselves 100%."
    )
