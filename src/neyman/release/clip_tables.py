"""The clips that published histograms lead to, and the tables whose noise is proportional to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq

from neyman.plan.clip_search import ClipSearch, chosen_clip, top_clip
from neyman.plan.query import ALL
from neyman.plan.resolve import exact_text
from neyman.release.receipt_format import ClipNoise, ClipPart
from neyman.release.table_files import listing
from neyman.tables.forms import Form, forms, integers

__all__ = ["Clips", "chosen_clips", "clip_parts", "extreme_forms", "forms_with"]

Clips = Mapping[str, tuple[int, int]]


def chosen_clips(
    tables: Sequence[Form], folder: Path, check: Callable[[Form, Path], None] = lambda f, p: None
) -> Clips:
    """The clip of each query that has one to discover, by its name.

    Args:
        tables: the forms of a plan's tables.
        folder: where the histograms are published.
        check: called with a histogram's form and file before the file is read.
    """
    clips: dict[str, tuple[int, int]] = {}
    by_name = {form.query.name: form for form in tables}
    for form in tables:
        search = form.query.search
        if search is None or form.query.name in clips:
            continue
        histogram = by_name[search.histogram]
        path = folder / listing(search.histogram, histogram.level, histogram.rows)[0].path
        check(histogram, path)
        table = pq.read_table(path, columns=["value"], use_threads=False)
        ((_, sigma_squared),) = histogram.entries
        counts = [int(count) for count in integers(table.column("value"))]
        clips[form.query.name] = chosen_clip(search, counts, sigma_squared)
    return clips


def forms_with(tables: Sequence[Form], clips: Clips) -> tuple[Form, ...]:
    """The forms of the tables once clips are known: sigma is proportional to the shift [UN-7]."""
    if not clips:
        return tuple(tables)
    plan = tables[0].plan.with_clips(clips)
    largest = [pair for form in tables for pair in form.entries]
    scaled = [
        (entry, sigma_squared * entry.squared / top.squared if top.squared else sigma_squared)
        for entry, (top, sigma_squared) in zip(plan.entries(), largest, strict=True)
    ]
    return forms(plan, scaled)


def extreme_forms(tables: Sequence[Form]) -> tuple[Form, ...]:
    """The forms with the smallest candidate for each clip: the least noise that can be drawn."""
    return forms_with(
        tables,
        {
            form.query.name: _least(form.query.search)
            for form in tables
            if form.query.search is not None
        },
    )


def clip_parts(tables: Sequence[Form], clips: Clips) -> tuple[ClipPart, ...]:
    """What a receipt lists of clips that published histograms led to.

    Args:
        tables: the forms of the plan's tables.
        clips: by the name of the query, scaled.
    """
    by_name: dict[str, list[Form]] = {}
    for form in forms_with(tables, clips):
        by_name.setdefault(form.query.name, []).append(form)
    parts = []
    for name, clip in clips.items():
        first = by_name[name][0]
        search, decimals = first.query.search, first.decimals
        noise = [
            ClipNoise(
                level=form.level,
                measure=entry.measure,
                mechanism=entry.noise(sigma_squared).to_dict(),
            )
            for form in by_name[name]
            for entry, sigma_squared in form.entries
        ]
        ends = tuple(exact_text(Fraction(end, 10**decimals)) for end in clip)
        histogram = f"{search.histogram}.{ALL}" if search else ""
        parts.append(
            ClipPart(query=name, histogram=histogram, clip=ends, mechanisms=tuple(noise))
        )
    return tuple(parts)


def _least(search: ClipSearch) -> tuple[int, int]:
    low, high = top_clip(search)
    return low // high, 1
