"""Audit Neyman's own release path, from data to files, including the exact integers before noise.

The audit makes small neighboring datasets from a plan's columns, and runs the plan on each. It
records the inputs of the noise and each draw. Then it tests the shifts, the noise, the published
tables, and the claimed curve (the method of Casacuberta and others 2026, arXiv 2602.17454, for one
library).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, ndtr

from neyman.api import run
from neyman.auditing.evidence import ManyRuns
from neyman.auditing.rate_limits import checked_confidence, error_rates
from neyman.auditing.releases.small_data import neighbors, refuse_unknown_parts
from neyman.ledger.throwaway import throwaway
from neyman.noise.bits import Bits, SecureBits
from neyman.numerics import check
from neyman.numerics.rounding import below
from neyman.publishing.plan.measurement import Entry
from neyman.publishing.plan.plan import Plan
from neyman.publishing.plan.plan_fields import PLAIN_SOURCE
from neyman.publishing.release import add_noise
from neyman.publishing.release import run as release_run
from neyman.publishing.release.add_noise import Exact, noisy_part
from neyman.publishing.release.folder import Staging
from neyman.publishing.release.receipt_format import ReceiptTable
from neyman.publishing.release.table_files import parts
from neyman.publishing.tables.forms import Form

Integers = NDArray[np.int64]


TAILS = np.array([1e-4, 1e-2])  # a few draws of too wide noise show only in the tails


_Draw = tuple[str, Fraction, Integers]


class Noise(Protocol):
    """Represent a function that draws independent noise."""

    def __call__(self, sigma_squared: Fraction, size: int, bits: Bits) -> Integers:
        """Return ``size`` draws."""
        ...


@dataclass
class Record:
    """Record one run: its tables' forms and exact counts, each draw of noise, and its tables."""

    forms: tuple[Form, ...] = ()
    exact: Exact | None = None
    draws: list[_Draw] = field(default_factory=list[_Draw])
    tables: Mapping[str, pa.Table] = field(default_factory=dict[str, pa.Table])


@dataclass(frozen=True)
class ReleaseAudit:
    """Represent an audit of a plan's release path. No fault is no proof of correctness.

    Args:
        pairs, draws, tables: numbers of neighboring pairs, draws of noise, and published tables.
        evidence: evidence from the best test on the pair whose counts differ most, relative to
            noise.
        confidence: confidence of the random tests.
    """

    pairs: int
    draws: int
    tables: int
    faults: tuple[str, ...]
    evidence: ManyRuns
    confidence: Fraction

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
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
    confidence: float | Fraction | str = "0.999999",
    seed: int | None = None,
) -> ReleaseAudit:
    """Audit the release path of a plan on small datasets made from its columns.

    The data are Arrow tables, so the form of a CSV file is not tested.

    Args:
        plan: a plan with listed keys and bounds. It may have expressions and several private
            tables.
        pairs: number of neighboring pairs, each released twice.
        replays: number of new noise draws for each dataset of a pair.
        confidence: confidence of the tests of the noise and of the curve, in (0, 1).
        seed: seed of the datasets. The noise has no seed.

    Raises:
        ValueError: this audit cannot test a part of the plan, or an argument is not valid.
    """
    pairs = check.integer("pairs", pairs, 1)
    replays = check.integer("replays", replays, 100)
    sure = checked_confidence(confidence)
    refuse_unknown_parts(plan)
    # The data are Arrow tables, not CSV files. A part changes only the charged account.
    plan = plan.changed(source=PLAIN_SOURCE, part=None)
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


# ---- recording ---------------------------------------------------------------------------------


@contextmanager
def recording(record: Record) -> Generator[None]:
    """Record the counts and draws of the release path within this context.

    The wrapped functions still do their work.
    """
    write = release_run.write_tables
    discrete, rounded = add_noise.discrete_gaussian, add_noise.rounded_gaussian

    def noted_write(
        stage: Staging, tables: Sequence[Form], exact: Exact, done: Callable[[float], None]
    ) -> list[ReceiptTable]:
        record.forms, record.exact = tuple(tables), exact
        return write(stage, tables, exact, done)

    def noted(name: str, draw: Noise) -> Noise:
        def draw_and_note(sigma_squared: Fraction, size: int, bits: Bits) -> Integers:
            noise = draw(sigma_squared, size, bits)
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


def recorded(plan: Plan, tables: Mapping[str, pa.Table]) -> Record:
    """Run a plan on tables, with its own ledger, and return the record."""
    record = Record()
    book = throwaway(10**6)
    book.register(
        plan.dataset,
        protects=plan.unit.protects,
        neighboring=plan.unit.neighboring,
        rows=plan.unit_rows,
    )
    with tempfile.TemporaryDirectory(prefix="neyman-audit-") as folder, recording(record):
        release = run(plan, dict(tables), book, Path(folder) / "release", pages={})
        names = [f"{form.query.name}.{form.level}" for form in record.forms]
        record.tables = {name: release.tables[name] for name in names}
    return record


# ---- tests -------------------------------------------------------------------------------------


def exact_of(record: Record) -> Mapping[tuple[str, str, str], Any]:
    """Return the exact counts by query, level, and measure."""
    assert record.exact is not None
    return record.exact.cells


def shift_faults(
    entries: Mapping[tuple[str, str, str], Entry], one: Record, other: Record
) -> Iterator[str]:
    """Yield a message per measure whose counts differ by more than the noise protects.

    ``one`` and ``other`` are runs on neighbors.
    """
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
    """Return True if a shift vector covers the changed cells, or if there are too many to check.

    ``away``: absolute changes of cells. ``shift``: limits, among which the cells are divided.
    """
    if len(shift) ** len(away) > 20_000:  # tried ways to fit a difference into a shift vector
        return True
    return any(
        all(
            sum(cell for cell, spot in zip(away, spots, strict=True) if spot == j) <= most
            for j, most in enumerate(shift)
        )
        for spots in product(range(len(shift)), repeat=len(away))
    )


def table_faults(record: Record) -> Iterator[str]:
    """Rebuild each table from exact counts and recorded noise. Yield a message per difference."""
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
        yield "noise was drawn that no table contains"


def noise_faults(records: Sequence[Record], chance: float) -> Iterator[str]:
    """Compare all draws of each noise scale with their distribution. Yield a message per misfit.

    ``chance``: probability of a false message.
    """
    pooled: dict[tuple[str, Fraction], list[Integers]] = {}
    for record in records:
        for kind, sigma_squared, noise in record.draws:
            pooled.setdefault((kind, sigma_squared), []).append(noise)
    for (kind, sigma_squared), noises in pooled.items():
        draws = np.concatenate(noises)
        p = chance_of_draws(kind, float(sigma_squared), draws)
        if p < chance / len(pooled):
            sigma = float(sigma_squared) ** 0.5
            yield f"{len(draws):,} draws of {kind} noise, sigma {sigma:.4g}, have p-value {p:.2g}"


def chance_of_draws(kind: str, variance: float, draws: Integers) -> float:
    """Return an exact p-value of draws against their distribution, by counts in up to 24 bins.

    Up to 20 bins are about equally likely, and four are in the tails. Each bin, and each union of
    bins from the left, has a binomial number of draws. The p-value is the smallest tail probability
    of a count, times the number of counts and sides (Bonferroni).
    """
    sigma = variance**0.5
    reach = int(10 * sigma) + 2
    step = max(1, reach // 5000)
    edges = np.arange(-reach, reach + step, step) - 0.5
    if kind == "rounded" or step > 1:  # on a coarse grid both are normal to 1e-6
        masses = np.diff(ndtr(edges / sigma))
    else:
        weights = np.exp(-((edges[:-1] + 0.5) ** 2) / (2 * variance))
        masses = weights / weights.sum()
    # Of a cell's probability, on a coarse grid and on a grid of all integers.
    error = 1e-6 if step > 1 else 1e-12
    cumulated = np.concatenate([[0.0], np.cumsum(masses)])
    cells = max(2, min(20, int(len(draws) / 10.0)))  # about this many draws per cell
    chances = np.concatenate([np.arange(1, cells) / cells, TAILS, 1 - TAILS])
    cuts = np.unique(np.searchsorted(cumulated, chances))
    cuts = cuts[(cuts > 0) & (cuts < len(masses))]
    if not len(cuts):
        return 1.0
    below_cut = cumulated[cuts]
    counts = np.bincount(np.searchsorted(edges[cuts], draws), minlength=len(cuts) + 1)
    share = np.append(np.diff(np.concatenate([[0.0], below_cut, [1.0]])), below_cut)
    number = np.append(counts, np.cumsum(counts)[:-1])
    n, tests = len(draws), 2 * len(share)
    # P(X >= k) and P(X <= k), each with the cell's chance moved to the safe side by its error.
    most, least = np.minimum(share + error, 1.0), np.maximum(share - error, 0.0)
    above = np.where(number > 0, betainc(np.maximum(number, 1), n - number + 1, most), 1.0)
    under = np.where(number < n, betaincc(number + 1, np.maximum(n - number, 1), least), 1.0)
    return min(float(np.minimum(above, under).min()) * tests, 1.0)


def squared_distance(one: Record, other: Record) -> float:
    """Return the sum over cells of the runs' squared difference divided by the noise variance."""
    return float(sum((d**2).sum() / v for _, d, _, v in contrasts(one, other)))


def contrasts(one: Record, other: Record) -> Iterator[tuple[Form, Any, Any, float]]:
    """Yield each measure's form, difference and mean of both runs' counts, and noise variance."""
    for form in one.forms:
        for entry, sigma_squared in form.entries:
            if entry.public is None:
                key = entry.query, entry.level, entry.measure
                first, second = (exact_of(r)[key].dense().astype(float) for r in (one, other))
                yield form, first - second, (first + second) / 2, float(sigma_squared)


def replayed(plan: Plan, one: Record, other: Record, replays: int, chance: float) -> ManyRuns:
    """Redraw the noise of two neighbors ``replays`` times. Count the errors of the best test."""
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
