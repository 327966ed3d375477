"""Add noise to exact private tables, and write the public tables part by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neyman.noise.bits import Bits, SecureBits
from neyman.noise.integer_noise import discrete_gaussian, rounded_gaussian
from neyman.noise.quantile_draw import draw_quantile
from neyman.publishing.engines.cells import Cells
from neyman.publishing.plan.measurement import Entry, rate_of
from neyman.publishing.plan.query import rank_margin, rank_unit
from neyman.publishing.release.folder import Staging
from neyman.publishing.release.receipt_format import ReceiptTable
from neyman.publishing.release.table_files import listing, parts, write
from neyman.publishing.tables.forms import Form
from neyman.publishing.tables.key_selection import selected, threshold


@dataclass(frozen=True)
class Exact:
    """Hold private numbers without noise: cells by query, level, and measure, and discovered keys.

    ``discovered`` has the keys by query and level, with their numbers by measure.
    """

    cells: Mapping[tuple[str, str, str], Cells]
    discovered: Mapping[tuple[str, str], tuple[pa.Table, Mapping[str, NDArray[np.int64]]]]


def write_tables(
    stage: Staging, tables: Sequence[Form], exact: Exact, done: Callable[[float], None]
) -> list[ReceiptTable]:
    """Draw the noise and write every table, part by part. Return the files for the receipt.

    ``done`` is called with the fraction of all cells that are written.
    """
    bits = SecureBits()
    cells, written = sum(form.cells for form in tables), 0

    def tables_of(form: Form) -> Iterator[pa.Table]:
        nonlocal written
        for part in parts(form):
            yield form.build(noisy_part(form, exact.cells, part, bits), part.start)
            written += len(part)
            done(written / cells)

    listed: list[ReceiptTable] = []
    done(0.0)
    for form in tables:
        if form.discovered:
            table = discovered_table(form, *exact.discovered[form.query.name, form.level], bits)
            files = listing(form.query.name, form.level, table.num_rows)
            listed += write(stage, files, form.schema, [table])
        else:
            files = listing(form.query.name, form.level, form.rows)
            listed += write(stage, files, form.schema, tables_of(form))
    return listed


def discovered_table(
    form: Form, keys: pa.Table, exact: Mapping[str, NDArray[np.int64]], bits: Bits
) -> pa.Table:
    """Return the table of the keys whose noisy number of units reaches the threshold.

    ``exact`` has the numbers of each key, by measure. The units, "keys", are at least 1, and alone
    decide which keys are published [UN-6]. A count or a sum gets separate noise.
    """
    entry, sigma_squared = form.entries[0]
    units = exact[entry.measure] + _noise(entry, sigma_squared, keys.num_rows, bits)
    least = threshold(sigma_squared, entry.delta or Fraction(0), rounded=entry.rounded)
    rows = selected(keys, units, least)
    noisy = units[rows]
    if form.shown is not entry:
        values = exact[form.shown.measure][rows]
        noisy = values + _noise(form.shown, form.entries[-1][1], len(rows), bits)
    return form.named(keys.take(pa.array(rows)), noisy)


def noisy_part(
    form: Form, exact: Mapping[tuple[str, str, str], Cells], part: range, bits: Bits
) -> dict[str, NDArray[np.int64]]:
    """Return the noisy integers of the cells in ``part`` of a table, by measure."""
    noisy: dict[str, NDArray[np.int64]] = {}
    for entry, sigma_squared in form.entries:
        if entry.public is not None:
            noisy[entry.measure] = np.full(len(part), entry.public, np.int64)
            continue
        truth = exact[entry.query, entry.level, entry.measure]
        if entry.measure == "rank":
            noisy[entry.measure] = _quantiles_of_groups(form, truth, part, sigma_squared, bits)
            continue
        noise = _noise(entry, sigma_squared, len(part), bits)
        noisy[entry.measure] = np.add(truth.dense(part.start, part.stop), noise, out=noise)
    return noisy


def _quantiles_of_groups(
    form: Form, truth: Cells, part: range, sigma_squared: Fraction, bits: Bits
) -> NDArray[np.int64]:
    """Draw the quantiles of the groups with cells in ``part``, in the order of `Query.draws`.

    If the draws of a group are quantiles alone, sort them.
    """
    draws, points = form.query.draws, form.query.bins or range(2)
    size, ends = len(points) - 1, (points[0], points[-1] - 1)
    rate = rate_of(sigma_squared) / rank_unit(form.query)
    shift = math.ceil(rank_margin(form.query, sigma_squared))
    values: list[int] = []
    for group in range(part.start // len(draws), part.stop // len(draws)):
        first, last = np.searchsorted(truth.index, [group * size, (group + 1) * size])
        here = (truth.index[first:last] - (group * size - ends[0])).tolist()
        counts = truth.values[first:last].tolist()
        points_of_group = [
            draw_quantile(here, counts, ends, q, rate, bits, shift=sign * shift)
            for q, sign in draws
        ]
        values += points_of_group if form.query.interval else sorted(points_of_group)
    return np.array(values, dtype=np.int64)


def _noise(entry: Entry, sigma_squared: Fraction, size: int, bits: Bits) -> NDArray[np.int64]:
    draw = rounded_gaussian if entry.rounded else discrete_gaussian
    return draw(sigma_squared, size, bits)
