"""Attack two k-anonymous tables, and a differentially private release of the same people.

What is printed stands in docs/linkage.md. The noise is drawn afresh in each run, so that the last
digits of the lines about the release vary.
"""

import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root of the repository

from reproductions.linkage import attack as linkage

counts = linkage.people()
races, counties = linkage.merged_races(counts), linkage.merged_counties(counts)
for name, table in (("races merged", races), ("counties merged", counties)):
    least = min(group.people for group in table)
    alone = linkage.subtracted(counts, table)
    print(f"table with {name}: {len(table):,} groups, the smallest of {least} people;")
    print(f"  of the {alone.hidden} small counts it hides, it reveals {alone.recovered}")
both = linkage.subtracted(counts, races, counties)
print(
    f"the two subtracted: {both.recovered} of the {both.hidden} small counts, {both.right} of them "
    f"right:\n  {both.exposed} people in groups of fewer than {linkage.K}, {both.alone} alone"
)
plan = linkage.demo_plan()
read = linkage.readings_of_release(plan, counts, releases=10_000)
print(
    f"the release: {read.right:.1%} of readings of the same counts are right "
    f"(guessing the commonest: {read.guessing:.1%})"
)

print("\nclaims about one person's race, by an attacker who knows everyone else's record")
print(f"{'':22}{'false ones confirmed':>22}{'true ones confirmed':>22}{'limit':>20}")
exact = linkage.claims_against_tables(counts)
print(f"{'a 5-anonymous table':22}{exact.level:>22.1%}{exact.power:>22.1%}{'nothing':>20}")
noisy = linkage.claims_against_release(plan, Fraction(1, 20), releases=400_000)
promised = f"{noisy.promised:.2%}"
print(f"{'the release':22}{noisy.level:>22.2%}{noisy.power:>22.2%}{promised:>20}")
