"""An audit of Neyman's own release path: data to files, with the exact integers below the noise.

It makes small neighboring datasets from a plan's columns, and runs the plan on each. It records
what reaches the noise and each draw. Then it tests the shifts, the noise, the published tables, and
the claimed curve (the method of Casacuberta and others 2026, arXiv 2602.17454, for one library).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import gammaincc, ndtr

from neyman.api import run
from neyman.auditing.evidence import ManyRuns
from neyman.auditing.rate_limits import checked_confidence, error_rates
from neyman.ledger.throwaway import throwaway
from neyman.noise import SecureBits
from neyman.numerics import check
from neyman.numerics.rounding import below
from neyman.plan.derived import NO_ROWS
from neyman.plan.measurement import Entry
from neyman.plan.plan import Plan
from neyman.release import add_noise
from neyman.release import run as release_run
from neyman.release.add_noise import Exact, noisy_part
from neyman.release.table_files import parts
from neyman.tables.forms import Form

__all__ = ["ReleaseAudit", "audit_plan"]

Integers = NDArray[np.int64]
MOST_MATCHES = 20_000  # ways to fit a difference into a shift vector that are tried
EXPECTED = 10.0  # draws per cell of a chi-square test, at least


@dataclass
class Record:
    """One run: what was counted, each draw of noise, and the published tables."""

    forms: tuple[Form, ...] = ()
    exact: Exact | None = None
    draws: list[tuple[str, Fraction, Integers]] = field(default_factory=list)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class ReleaseAudit:
    """What an audit of a plan's release path shows. No fault is no proof that there is none.

    Args:
        pairs, draws, tables: numbers of neighboring pairs, draws of noise, and published tables.
        faults: a sentence per fault.
        evidence: of the best test between the pair that differs most.
        confidence: at which the random tests accuse.
    """

    pairs: int
    draws: int
    tables: int
    faults: tuple[str, ...]
    evidence: ManyRuns
    confidence: Fraction

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON types."""
        return {
            "pairs": self.pairs,
            "draws": self.draws,
            "tables": self.tables,
            "faults": list(self.faults),
            "epsilon_lower_bound": self.evidence.epsilon(),
            "mu_lower_bound": self.evidence.gdp(),
            "confidence": str(self.confidence),
        }


def audit_plan(
    plan: Plan,
    *,
    pairs: int = 5,
    replays: int = 2000,
    confidence: Any = "0.999999",
    seed: int | None = None,
) -> ReleaseAudit:
    """Audit the release path of a plan on small datasets made from its columns.

    Args:
        plan: of one private table with listed keys, without expressions.
        pairs: number of neighboring pairs, each released twice.
        replays: number of times that the noise of each side of a pair is drawn again.
        confidence: at which the tests of the noise and of the curve accuse, in (0, 1).
        seed: of the datasets. The noise has none.

    Raises:
        ValueError: the plan has a part for which no data can be made, or an argument is not valid.
    """
    pairs = check.integer("pairs", pairs, 1)
    replays = check.integer("replays", replays, 100)
    sure = checked_confidence(confidence)
    refuse_unknown_parts(plan)
    rng = np.random.default_rng(seed)
    entries = {(e.query, e.level, e.measure): e for e in plan.entries() if e.public is None}
    faults: list[str] = []
    records: list[Record] = []
    widest: tuple[float, Record, Record] | None = None
    for _ in range(pairs):
        one, other = (recorded(plan, rows) for rows in neighbors(plan, rng))
        records += [one, other]
        faults += shift_faults(entries, one, other)
        distance = squared_distance(one, other)
        if widest is None or distance > widest[0]:
            widest = distance, one, other
    assert widest is not None
    for record in records:
        faults += table_faults(record)
    chance = below(1 - sure) / 2
    faults += noise_faults(records, chance)
    evidence = replayed(plan, widest[1], widest[2], replays, chance)
    if evidence.refutes(plan.mechanism()):
        faults.append(f"the curve: {evidence.sentence(plan.mechanism())}")
    draws = sum(len(noise) for record in records for *_, noise in record.draws)
    tables = sum(len(record.tables) for record in records)
    return ReleaseAudit(pairs, draws, tables, tuple(dict.fromkeys(faults)), evidence, sure)


# ---- data --------------------------------------------------------------------------------------


def refuse_unknown_parts(plan: Plan) -> None:
    """Refuse a plan for which no data can be made."""
    reasons = {
        "further private tables": plan.tables,
        "a part of its dataset": plan.part is not None,
        "expressions": plan.rows != NO_ROWS,
        "discovered keys": any(query.delta is not None for query in plan.queries),
        "bounds that a histogram chooses": plan.unit.search is not None
        or any(entry.searched for entry in plan.entries()),
        "quantiles by inverse sensitivity": any(q.inverse_sensitivity for q in plan.queries),
    }
    for name, present in reasons.items():
        if present:
            raise ValueError(
                f"plan = {plan.name!r} has {name}, for which this audit makes no data; "
                "audit a plan without them"
            )


def neighbors(plan: Plan, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Return two small tables that differ in the rows of one unit."""
    make = row_maker(plan, rng)
    most = plan.unit_rows
    # The rows of a unit are equal, because a run chooses among too many by a key of its own.
    units = [[make()] * int(rng.integers(1, most + 2)) for _ in range(12)]
    if plan.unit.id is None:
        units = [rows[:1] for rows in units]
    extreme = [make(extreme=True)] * (most + 1 if plan.unit.id is not None else 1)
    one, other = [*units, extreme], list(units)
    if plan.unit.neighboring == "replace-one":
        other.append([make(extreme=True)] * len(extreme))
    return table_of(plan, one), table_of(plan, other)


def table_of(plan: Plan, units: Sequence[Sequence[Mapping[str, Any]]]) -> pa.Table:
    """Return the rows of units as a table; the unit's number is its id."""
    rows: list[dict[str, Any]] = []
    for number, own in enumerate(units):
        extra = {} if plan.unit.id is None else {plan.unit.id: f"u{number}"}
        rows += [{**row, **extra} for row in own]
    return pa.Table.from_pylist(rows)


def row_maker(plan: Plan, rng: np.random.Generator) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a row: listed keys and others, numbers in clips and beyond."""

    def number(name: str, decimals: int, extreme: bool) -> float | int:
        ends = [
            end
            for query in plan.queries
            if name in query.columns
            for end in (*(query.clip or ()), *(query.bins or ()))
        ] or [0, 10]
        low, high = min(ends), max(ends)
        wide = max(high - low, 1)
        choices = [low - wide, high + wide]
        value = rng.choice(choices) if extreme else rng.integers(low - 1, high + 2)
        return int(value) / 10**decimals if decimals else int(value)

    def make(*, extreme: bool = False) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for column in plan.columns:
            if column.keys:
                row[column.name] = column.keys[int(rng.integers(len(column.keys)))]
                if column.kind == "text" and not extreme and rng.random() < 0.1:
                    row[column.name] = "no such key"
            else:
                row[column.name] = number(column.name, column.decimals, extreme)
        if plan.hierarchy is not None:
            place = plan.hierarchy.rows[int(rng.integers(len(plan.hierarchy.rows)))]
            row |= dict(zip(plan.hierarchy.levels, place, strict=True))
        return row

    return make


# ---- recording ---------------------------------------------------------------------------------


@contextmanager
def recording(record: Record) -> Iterator[None]:
    """Note what the release path counts and draws. Each noted function does its own work."""
    write, discrete, rounded = (
        release_run.write_tables,
        add_noise.discrete_gaussian,
        add_noise.rounded_gaussian,
    )

    def noted_write(stage: Any, tables: Any, exact: Exact, done: Any) -> Any:
        record.forms, record.exact = tuple(tables), exact
        return write(stage, tables, exact, done)

    def noted(name: str, draw: Any) -> Any:
        def draw_and_note(
            sigma_squared: Fraction, size: int, bits: Any, out: Any = None
        ) -> Integers:
            noise = draw(sigma_squared, size, bits, out)
            record.draws.append((name, sigma_squared, noise.copy()))
            return noise

        return draw_and_note

    release_run.write_tables = noted_write
    add_noise.discrete_gaussian = noted("discrete", discrete)
    add_noise.rounded_gaussian = noted("rounded", rounded)
    try:
        yield
    finally:
        release_run.write_tables = write
        add_noise.discrete_gaussian, add_noise.rounded_gaussian = discrete, rounded


def recorded(plan: Plan, rows: pa.Table) -> Record:
    """Run a plan on rows, with a ledger of its own, and return what was noted."""
    record = Record()
    book = throwaway(10**6)
    book.register(
        plan.dataset,
        protects=plan.unit.protects,
        neighboring=plan.unit.neighboring,
        rows=plan.unit_rows,
    )
    with tempfile.TemporaryDirectory(prefix="neyman-audit-") as folder, recording(record):
        release = run(plan, {plan.table: rows}, book, Path(folder) / "release", pages={})
        names = [f"{form.query.name}.{form.level}" for form in record.forms]
        record.tables = {name: release.tables[name] for name in names}
    return record


# ---- tests -------------------------------------------------------------------------------------


def exact_of(record: Record) -> Mapping[tuple[str, str, str], Any]:
    """Return what was counted."""
    assert record.exact is not None
    return record.exact.cells


def shift_faults(
    entries: Mapping[tuple[str, str, str], Entry], one: Record, other: Record
) -> Iterator[str]:
    """Compare the exact integers of two neighbors with the shifts that the noise is for."""
    for key, entry in entries.items():
        difference = exact_of(one)[key].dense() - exact_of(other)[key].dense()
        away = [abs(int(cell)) for cell in difference if cell]
        squared = sum(cell * cell for cell in away)
        name = ".".join(key)
        if squared > entry.squared // entry.draws:
            yield f"{name} moves by {squared} squared, and its noise is for {entry.squared}"
        elif entry.shifts and not any(fits(away, shift) for shift in entry.shifts):
            yield f"{name} moves by {away}, which is within none of its shifts {entry.shifts}"


def fits(away: Sequence[int], shift: Sequence[int]) -> bool:
    """Return True if cells that move can be put within the parts of a shift, or are too many."""
    if len(shift) ** len(away) > MOST_MATCHES:
        return True
    return any(
        all(
            sum(cell for cell, spot in zip(away, spots, strict=True) if spot == j) <= most
            for j, most in enumerate(shift)
        )
        for spots in product(range(len(shift)), repeat=len(away))
    )


def table_faults(record: Record) -> Iterator[str]:
    """Build each table again from the exact integers and the noted noise, and compare."""
    draws = iter(record.draws)
    for form in record.forms:
        built: list[pa.Table] = []
        for part in parts(form):
            noisy: dict[str, Integers] = {}
            for entry, _ in form.entries:
                if entry.public is not None:
                    noisy[entry.measure] = np.full(len(part), entry.public, np.int64)
                    continue
                truth = exact_of(record)[entry.query, entry.level, entry.measure]
                noisy[entry.measure] = truth.dense(part.start, part.stop) + next(draws)[2]
            built.append(form.build(noisy, part.start))
        name = f"{form.query.name}.{form.level}"
        again = pa.concat_tables(built).cast(record.tables[name].schema)
        if not again.equals(record.tables[name]):
            yield f"{name}: the published table is not the exact one plus its noise"
    if next(draws, None) is not None:
        yield "noise was drawn that no table has"


def noise_faults(records: Sequence[Record], chance: float) -> Iterator[str]:
    """Compare all draws of each scale with their distribution, by a chi-square test."""
    pooled: dict[tuple[str, Fraction], list[Integers]] = {}
    for record in records:
        for kind, sigma_squared, noise in record.draws:
            pooled.setdefault((kind, sigma_squared), []).append(noise)
    for (kind, sigma_squared), noises in pooled.items():
        draws = np.concatenate(noises)
        p = chance_of_draws(kind, float(sigma_squared), draws)
        if p < chance / len(pooled):
            sigma = float(sigma_squared) ** 0.5
            yield f"{len(draws):,} draws of {kind} noise of sigma {sigma:.4g} fit by chance {p:.2g}"


def chance_of_draws(kind: str, variance: float, draws: Integers) -> float:
    """Return the p-value of a chi-square test against the distribution; 1 for too few draws."""
    sigma = variance**0.5
    reach = int(10 * sigma) + 2
    step = max(1, reach // 5000)
    edges = np.arange(-reach, reach + step, step) - 0.5
    if kind == "rounded" or step > 1:  # on a coarse grid both are normal to 1e-6
        steps = ndtr(edges / sigma)
        masses = np.diff(steps)
    else:
        weights = np.exp(-((edges[:-1] + 0.5) ** 2) / (2 * variance))
        masses = weights / weights.sum()
    cumulated = np.concatenate([[0.0], np.cumsum(masses)])
    cells = max(2, min(20, int(len(draws) / EXPECTED)))
    cuts = np.unique(np.searchsorted(cumulated, np.arange(1, cells) / cells))
    cuts = cuts[(cuts > 0) & (cuts < len(masses))]
    expected = np.diff(np.concatenate([[0.0], cumulated[cuts], [1.0]])) * len(draws)
    if len(cuts) == 0 or expected.min() < EXPECTED / 4:
        return 1.0
    counts = np.bincount(np.searchsorted(edges[cuts], draws), minlength=len(expected))
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(gammaincc(len(cuts) / 2, statistic / 2))


def squared_distance(one: Record, other: Record) -> float:
    """Return the sum over cells of the squared difference over the variance of the noise."""
    return float(sum((d**2).sum() / v for _, d, _, v in contrasts(one, other)))


def contrasts(one: Record, other: Record) -> Iterator[tuple[Form, Any, Any, float]]:
    """Each table with noise: its difference, its middle, and the variance."""
    for form in one.forms:
        for entry, sigma_squared in form.entries:
            if entry.public is None:
                key = entry.query, entry.level, entry.measure
                first, second = (exact_of(r)[key].dense().astype(float) for r in (one, other))
                yield form, first - second, (first + second) / 2, float(sigma_squared)


def replayed(plan: Plan, one: Record, other: Record, replays: int, chance: float) -> ManyRuns:
    """Draw the noise of two neighbors again and again; the best test of them decides at 0."""
    bits = SecureBits()
    shown = list(contrasts(one, other))

    def score(record: Record) -> float:
        total, places = 0.0, iter(shown)
        for form in record.forms:
            noisy = noisy_part(form, exact_of(record), range(form.cells), bits)
            for entry, _ in form.entries:
                if entry.public is None:
                    _, difference, middle, variance = next(places)
                    total += float((noisy[entry.measure] - middle) @ difference) / variance
        return total

    misses = sum(score(one) <= 0 for _ in range(replays))
    alarms = sum(score(other) >= 0 for _ in range(replays))
    point = error_rates(alarms, replays, misses, replays, chance / 2)
    least = error_rates(0, replays, 0, replays, chance / 2)
    relation = plan.unit.neighboring
    sure = 1 - Fraction(chance)
    return ManyRuns(sure, relation, (point,), replays, replays, least)
