"""The census page: ``python -m reproductions.census_2020.page docs`` writes it.

Every number on the page is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

from collections.abc import Sequence

from neyman import Bound, DiscreteGaussian
from neyman.accounting import sentences as words
from reproductions.census_2020 import dhc, nation_page
from reproductions.census_2020 import printed_figures as printed
from reproductions.census_2020 import redistricting as census
from reproductions.census_2020.figures import (
    LEVELS,
    NOISE,
    TABLE,
    Asked,
    apart,
    decade,
    delta_figure,
    discrete_figure,
    few_digits,
    nearest,
    posterior_figure,
    power_figure,
)
from reproductions.markdown import Tell, main, table

__all__ = ["pages"]


def pages(tell: Tell = lambda stage, part: None) -> dict[str, str]:
    """Return the page and its figures, each the text of a file by its name.

    Args:
        tell: called with a stage's name and the part done, in [0, 1].
    """
    asked = []
    for i, scenario in enumerate(census.SCENARIOS):
        tell(f"scenario {scenario.name}", 0.6 * i / len(census.SCENARIOS))
        asked.append(Asked.of(scenario))
    tell("printed figures", 0.6)
    cells = list(printed.cells())
    tell("certificates", 0.7)
    certificates = _certificates(cells)
    tell("the nation", 0.75)
    nation = nation_page.section()
    tell("characteristics, level by level", 0.8)
    levels = _levels()
    tell("figures", 0.95)
    total = asked[0]
    single = DiscreteGaussian(sigma_squared=1 / total.rho, sensitivity=[(1, 1)])
    alone = census.Powers.of(single, [*census.TESTED, *LEVELS])
    text = "\n\n".join(
        [
            _opening(total),
            _release_section(total),
            _discrete(total, alone.part(TABLE)),
            _attributes(asked),
            _beliefs(asked),
            certificates,
            nation,
            levels,
            _printed(cells),
            STANDING,
        ]
    )
    by_key = {
        "census.md": text + "\n",
        "census-attributes.svg": power_figure(asked),
        "census-posteriors.svg": posterior_figure(asked),
        "census-deltas.svg": delta_figure(total),
        "census-discrete.svg": discrete_figure(total, alone.part(NOISE)),
    }
    tell("done", 1.0)
    return by_key


# ---- sections ---------------------------------------------------------------------------------


def _opening(total: Asked) -> str:
    production = census.PRODUCTION
    return f"""\
# The 2020 Census, attribute by attribute

<!-- Written by `python -m reproductions.census_2020.page docs`. Edit that module. -->

In 2021 the Census Bureau published noisy counts of everyone in the United States by place, race,
ethnicity, and voting age. What can they reveal about one person, at most? Kifer, Abowd et al.
(2022) answered with bounds and simulations. Here the noise that was used is composed exactly
([redistricting.py](../reproductions/census_2020/redistricting.py)).

**Convention.** Neighbors differ in one record, which is *replaced*. In each query it leaves one
cell and enters another, so two cells move by one. A query with budget ρ has discrete Gaussian noise
with σ² = 1/ρ on each cell. {total.count} queries can move. Budgets are the rounded ones of the
paper's tables, 2.56 for persons and 0.07 for housing units. In production they were
{float(production.persons):.4f} and {float(production.housing):.4f}, which the
[certificates](#the-published-certificates) use. What was published without noise, such as the
population of each state, is left out, as in the paper.

*Power* at a level is how often the best test confirms a true claim, if it confirms that share of
false claims. Powers and epsilons are rounded to the nearest, and up where their certified ends do
not round alike."""


STANDING = """\
## Where this stands

The 2020 Census was published with noise, under the budgets of this page. On 4 June 2026, as
reported by the Tax Policy Center, by NPR (12 June), by PRB's Federal Data Forum, and by Marcum,
Maury, and Jarosz (11 June), the US Secretary of Commerce issued Department Administrative Order
DAO 216-26. As reported, it forbids noise infusion in general at the Census Bureau and the Bureau of
Economic Analysis: differential privacy, swapping, and noise in inputs. It prefers coarser
tables, and suppression as a last resort. Dwork, with more than 100 other researchers, argued
against it: intersections of coarse tables can determine exact values. Supporters said that noise
distorted legitimate uses, such as redistricting. We read these reports in November 2026. We have
not seen the order, and do not know its state today. What we read left open how the 2030 Census
will be protected. [Tables without noise](howto/no-noise.md) computes what such tables reveal."""


def _release_section(total: Asked) -> str:
    p = total.powers
    rows = [
        (f"{level:.2f}", *(nearest(x[i], 4) for x in (p.gaussian, p.exact, p.zcdp)))
        for i, level in enumerate(census.TESTED)
    ]
    head = ("level", "if it were Gaussian", "exact", "any release with this ρ, at most")
    return f"""\
## The whole release

{table(head, rows)}

> {words.power(census.TESTED[1], p.exact[1].upper)}

Exact and Gaussian power differ by less than {decade(apart(p))} here.
What ρ = {float(total.rho):g} alone allows is far more.

![How probably an epsilon is exceeded](census-deltas.svg)

*The paper's figure 1, for the noise that was used. Green: δ of (ε, δ)-differential privacy. Blue:
how probably the odds of a right guess grow by more than e^ε. Red: the latter by ρ alone, by the
formula e^(−(ε−ρ)²/4ρ). Dashed red: by all that ρ implies.*"""


def _discrete(total: Asked, alone: census.Powers) -> str:
    rows = [
        (f"{level:.2f}", nearest(alone.gaussian[i], 4), nearest(alone.exact[i], 4))
        for i, level in enumerate(census.TESTED)
    ]
    return f"""\
## Discrete is not Gaussian

If one query of two cells got the whole ρ = {float(total.rho):g}, the Gaussian formula would be
wrong on either side:

{table(("level", "if it were Gaussian", "exact"), rows)}

![One query of two cells, and all queries](census-discrete.svg)"""


def _attributes(asked: Sequence[Asked]) -> str:
    rows = [
        (
            _name(a),
            str(a.count),
            f"{float(a.rho):.4f}",
            *(
                f"{nearest(a.powers.exact[i], 4)} ({nearest(a.powers.zcdp[i], 4)})"
                for i in range(len(census.TESTED))
            ),
        )
        for a in asked
    ]
    head = ("a concern about", "queries", "ρ", *(f"level {level:.2f}" for level in census.TESTED))
    far = decade(max(apart(a.powers) for a in asked))
    return f"""\
## Attribute by attribute

Only queries by race can show a change of race and of nothing else. In the same way,
`census.concerning("race", "block", within="tract")` picks the queries that race and the block
within the tract can move, at every level of place. Letters are those of the paper's section 8. In
brackets: what any release with this ρ allows. Gaussian noise would change no power here by {far}.

{table(head, rows)}

![Power of the best test, concern by concern](census-attributes.svg)

*The paper's figures 2 (anything), 6 (A), 10 (B), 12 (E) and 14 (F), and those that it leaves out.
Blue: this release. Red: any release with this ρ, at most. The dot is at level 0.05.*"""


def _beliefs(asked: Sequence[Asked]) -> str:
    rows = [(_name(a).partition(":")[0], *(_chance(bound) for bound in a.ten)) for a in asked]
    head = ("a concern about", "the true record: exact", "by ρ", "any statement: exact", "by ρ")
    return f"""\
## Posterior beliefs

An attacker's posterior is compared with the one they would have if the person's record had been
replaced by what the rest of the data predicts. How probably is it more than ten times as high,
because of the record?

- *The true record*: their belief in what the record truly is. They may be uncertain about everyone
  else.
- *Any statement*: their belief in one fixed statement, true or false. They know everyone else's
  record, and this record is drawn from their prior.

*By ρ* is the paper's theorem, and *exact* is for the noise that was used. Chances are rounded up.

{table(head, rows)}

![How probably a posterior grows by more than a factor](census-posteriors.svg)

*The paper's figures 3 and 7 (any statement, by ρ), 4, 8, 11, 13 and 15 (the true record; the paper
draws the Gaussian), 5 and 9 (the true record, by ρ). Lines are as in the large panel.*"""


def _certificates(cells: Sequence[printed.Cell]) -> str:
    facts = [cell for cell in cells if cell.table.startswith("redistricting")]
    rows = []
    for certificate, cell in zip(census.certificates(), facts, strict=True):
        exact = census.release(certificate.queries).tradeoff().epsilon(census.CERTIFICATE_DELTA)
        rows.append(
            (
                certificate.concern,
                f"{float(certificate.rho):.6f}",
                f"{cell.printed:.2f}" + ("" if cell.agrees else f" (ours {cell.ours:.2f})"),
                nearest(exact, 2),
            )
        )
    head = ("what may change", "ρ", "certificate", "exact")
    wrong = sum(not cell.agrees for cell in facts)
    said = f"Ours differ in {wrong} of them." if wrong else "Ours agree with all of them."
    return f"""\
## The published certificates

The Bureau certified sixteen epsilons at delta 10⁻¹⁰, by the conversion of Canonne, Kamath and
Steinke, from the sum of ρ over the queries that a change can move. {said} The last
column composes their noise exactly instead.

{table(head, rows)}"""


def _levels() -> str:
    parts = []
    for when, allocation in dhc.ALLOCATIONS.items():
        rows = [_level_row(level.place.replace("_", " "), level) for level in allocation.levels]
        rows.append(_level_row(f"**all {allocation.count} queries**", allocation))
        head = (
            "level",
            "ρ",
            "Bun–Steinke",
            "best by ρ",
            "exact",
            "ε reduced by",
            "noise saved",
            "exact, two cells",
        )
        title = when.replace("_", " ").capitalize()
        count = allocation.levels[0].count
        parts.append(f"### {title}: {count} queries per level\n\n{table(head, rows)}")
    march = dhc.ALLOCATIONS["march_2022"]
    us, together = march.levels[0].epsilons, march.epsilons
    tables = "\n\n".join(parts)
    return f"""\
## Demographic and housing characteristics

Su, Su and Wang (2024) composed the noise of each level of place exactly, and found less than Bun
and Steinke's conversion states: at delta 10⁻¹¹ the national level of March 2022 has epsilon
{nearest(us.exact, 2)} instead of {nearest(us.bun_steinke, 2)}.

**Much of that gain is due to a loose baseline.** The best conversion of ρ gives
{nearest(us.optimal, 2)}, which is {100 * us.by_conversion:.0f}% of the gain. Composing the noise
brings the rest.

**The levels belong to one release.** One record moves the queries of all eight levels, so an
attacker sees all {march.count} queries of March 2022. Together they have epsilon
{nearest(together.exact, 2)} by composing the noise, {nearest(together.optimal, 2)} by the best
conversion of ρ, and {nearest(together.bun_steinke, 2)} by Bun and Steinke's. The last row of each
table composes all levels.

*ε reduced by* and *noise saved* (the share of σ² that could go at the same guarantee) are against
Bun and Steinke. **One cell of each query moves**, as the paper has it, in all columns but the last.
Under replace-one neighbors, as above, two cells move, and the same noise has the epsilon of the
last column. *Prim* is the Bureau's name for the primitive geographic units below the county.

{tables}"""


def _level_row(name: str, noise: dhc.Level | dhc.Allocation) -> tuple[str, ...]:
    e = noise.epsilons
    return (
        name,
        f"{float(noise.rho):.5f}",
        *(nearest(x, 2) for x in (e.bun_steinke, e.optimal, e.exact)),
        f"{sum(e.reduction) / 2:.2f}%",
        f"{noise.noise_saved(e.bun_steinke.upper):.2f}%",
        nearest(e.two_cells, 2),
    )


def _printed(result: Sequence[printed.Cell]) -> str:
    wrong = sum(not cell.agrees for cell in result)
    return f"""\
## Printed and ours

Of {len(result)} printed figures, {len(result) - wrong} are ours. The other {wrong} are misprints:
the formula that the paper gives for its table contradicts them. The pages of
[Kifer, Abowd et al.](reproduced/kifer-abowd.md) and of
[published figures](reproduced/published.md) list each figure."""


# ---- words and digits -------------------------------------------------------------------------


def _chance(bound: Bound) -> str:
    return few_digits(bound.upper)


def _name(a: Asked) -> str:
    return (
        a.scenario.concern
        if a.scenario.name == "all"
        else f"{a.scenario.name}: {a.scenario.concern}"
    )


if __name__ == "__main__":
    main(pages)
