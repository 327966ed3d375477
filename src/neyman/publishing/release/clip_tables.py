"""Compute discovered clips from published histograms, and the noise of tables with these clips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from neyman.accounting.semantics.digits import exact_text
from neyman.publishing.plan.clip_search import ROWS_TABLE, ClipSearch, chosen_clip, top_clip
from neyman.publishing.plan.hierarchy import ALL
from neyman.publishing.release.receipt_format import ClipNoise, ClipPart
from neyman.publishing.release.table_files import FileCheck, published_integers
from neyman.publishing.tables.forms import Form, forms

Clips = Mapping[str, tuple[int, int]]


def chosen_clips(tables: Sequence[Form], folder: Path, check: FileCheck | None = None) -> Clips:
    """Return each discovered clip by the query's name, from the histogram files in ``folder``.

    ``check`` is as for `published_integers`.
    """
    clips: dict[str, tuple[int, int]] = {}
    by_name = {form.query.name: form for form in tables}
    for name, search in searches(tables).items():
        histogram = by_name[search.histogram]
        ((_, sigma_squared),) = histogram.entries
        counts = published_integers(histogram, folder, check).tolist()
        clips[name] = chosen_clip(search, counts, sigma_squared)
    return clips


def forms_with(tables: Sequence[Form], clips: Clips) -> tuple[Form, ...]:
    """Return each table's `Form` for these clips. Sigma is proportional to the shift [UN-9]."""
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
    """Return each table's `Form` for the smallest possible clips, with the least noise."""
    tops = {name: top_clip(one) for name, one in searches(tables).items()}
    return forms_with(tables, {name: (low // high, 1) for name, (low, high) in tops.items()})


def searches(tables: Sequence[Form]) -> dict[str, ClipSearch]:
    """Return the search for each clip by the query's name, and for the rows by `ROWS_TABLE`."""
    by_query = {form.query.name: form.query.search for form in tables}
    if tables:
        by_query[ROWS_TABLE] = tables[0].plan.unit.search
    return {name: search for name, search in by_query.items() if search is not None}


def clip_parts(tables: Sequence[Form], clips: Clips) -> tuple[ClipPart, ...]:
    """Return the parts of a receipt about discovered clips."""
    known = searches(tables)
    later = [form for form in forms_with(tables, clips) if not form.query.searched]
    parts: list[ClipPart] = []
    for name, clip in clips.items():
        own = [form for form in later if name in (form.query.name, ROWS_TABLE)]
        decimals = 0 if name == ROWS_TABLE else own[0].decimals
        noise = [
            ClipNoise(
                query=form.query.name,
                level=form.level,
                measure=entry.measure,
                mechanism=entry.noise(sigma_squared).to_dict(),
            )
            for form in own
            for entry, sigma_squared in form.entries
            if entry.public is None
        ]
        ends = tuple(exact_text(Fraction(end, 10**decimals)) for end in clip)
        histogram = f"{known[name].histogram}.{ALL}"
        what = "rows" if name == ROWS_TABLE else name
        parts.append(ClipPart(bounds=what, histogram=histogram, clip=ends, mechanisms=tuple(noise)))
    return tuple(parts)
