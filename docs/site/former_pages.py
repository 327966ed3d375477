"""Redirect the former addresses of merged pages to the new ones, with an HTML file at each."""

from __future__ import annotations

from pathlib import Path

DECISIONS = {
    "structure": (
        "0001-packages-by-the-nouns-of-the-field",
        "0004-reproductions-outside-the-wheel",
        "0035-lazy-import",
        "0060-run-in-api",
        "0061-labels-of-certificates",
    ),
    "parts-and-engines": ("0002-three-kinds-of-parts", "0003-engines-register"),
    "exact-numbers": ("0006-exact-numbers", "0007-log-probabilities"),
    "exact-curves": (
        "0026-garbling-in-fractions",
        "0059-canonical-noise-formula",
        "0070-polygons-of-floats",
    ),
    "directions": (
        "0008-worst-direction-last",
        "0009-joined-curves-compose-as-one",
        "0012-mixtures-seen-or-hidden",
    ),
    "currencies": (
        "0010-renyi-composes-in-its-currency",
        "0021-outright-failures",
        "0029-adaptive-filters",
    ),
    "guarantees": (
        "0011-every-definition-comes-in",
        "0027-claims-of-others",
        "0032-posterior-statements",
    ),
    "bounds": (
        "0023-nothing-between-bounds",
        "0028-estimates-are-not-bounds",
        "0064-bounds-compare-where-certain",
    ),
    "calibration": (
        "0024-calibration-is-admitted",
        "0025-power-budgets-bind-everywhere",
        "0030-compare-noise",
    ),
    "proven-claims": (
        "0020-selection-mechanisms",
        "0031-last-iterates",
        "0057-suprema-need-a-tail",
        "0058-bounded-probability-is-a-supremum",
    ),
    "contours": (
        "0013-one-contour-engine",
        "0014-line-of-the-contour",
        "0068-number-of-continuous-parts",
    ),
    "sampled-steps": (
        "0063-density-of-few-steps",
        "0065-lines-by-the-largest-step",
        "0069-one-grid-of-nodes",
    ),
    "sampling": ("0015-poisson-replace-one", "0016-fixed-size-hull", "0017-shuffled-batches"),
    "local-reports": ("0018-shuffling-local-randomizers", "0019-local-mechanisms-estimate"),
    "integer-noise": (
        "0022-shift-vectors",
        "0033-integer-streams",
        "0034-integer-marginals",
        "0066-a-plan-names-its-noise",
    ),
    "plan-fields": (
        "0037-plan-shares",
        "0044-means-about-the-middle",
        "0046-consistent-tables-beside-noisy-ones",
    ),
    "keys": (
        "0040-keys-say-how-values-are-read",
        "0041-key-files-in-the-plans-folder",
        "0043-discovered-keys",
    ),
    "reading-data": ("0038-csv-lines", "0039-private-data-check", "0042-data-read-once"),
    "rows-per-unit": ("0045-row-bounds", "0067-private-tables-join-by-the-unit"),
    "ledger-charges": (
        "0005-a-ledger-knows-its-location",
        "0048-entries-end-reading",
        "0050-ledger-units",
    ),
    "waits-and-crashes": (
        "0049-random-waits",
        "0051-shared-commits",
        "0052-spilled-rows",
        "0053-waits-end",
        "0054-turns",
    ),
    "receipts": (
        "0036-mechanisms-as-json",
        "0047-receipts",
        "0055-verify-has-a-memory-limit",
        "0056-releases-are-read-when-asked",
        "0062-stored-samples",
    ),
}
"""Page of docs/adr, and the former names of the pages of its decisions."""

PAGES = {
    "api/figures": "api/measuring#figures",
    "api/ledger": "api/publishing#ledger",
    "api/mechanism": "api/measuring#mechanism",
    "api/plan": "api/publishing#unit-and-plan",
    "api/questions": "api/measuring#questions",
    "api/release": "api/publishing#release",
    "api/tradeoff": "api/measuring#tradeoff",
    "api/training": "api/measuring#training",
    "attacks": "trust#three-attacks-in-ten-lines",
    "cli-reference": "cli#every-command",
    "compare": "comparison#bounds-of-composition",
    "dictionary": "glossary#names-in-the-code",
    "howto/bounds": "howto/many-rows#bounds-from-the-data",
    "howto/figures": "gallery#figures-for-a-talk-or-a-paper",
    "howto/from-database": "howto/synthetic#from-a-database-to-synthetic-rows",
    "howto/ledger": "ledger#share-a-budget-in-a-team",
    "howto/minimize": "howto/tuning#choose-the-best-of-several-candidates",
    "howto/notebook": "gallery#in-a-notebook",
    "howto/other-servers": "howto/sources#other-servers",
    "howto/scikit-learn": "howto/estimates#models-in-scikit-learn",
    "ledger-audit": "ledger#what-an-auditor-checks",
    "style": "glossary#words-to-write",
    "theory/blackwell": "theory/testing#compare-guarantees",
    "theory/delta": "sharp-edges#what-delta-means",
    "theory/how": "theory/composition#how-a-number-is-computed",
    "theory/individual": "theory/other-definitions#individual-differential-privacy-and-its-leak",
    "theory/manifolds": "theory/canonical-noise#noise-on-a-circle-and-a-sphere",
    "theory/noise-in-the-data": "theory/other-definitions#noise-that-is-already-in-the-data",
    "theory/posterior": "semantics#beliefs-in-python",
    "theory/shuffling": "theory/sampling#shuffling",
    "theory/swapping": "theory/other-definitions#data-swapping-compared-with-noise",
}
"""Former name of a page of docs, and the page and the section that have its content."""

REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="robots" content="noindex">
<title>Moved</title><meta http-equiv="refresh" content="0; url={target}"></head>
<body><a href="{target}">This page moved.</a></body></html>
"""


def former_pages() -> dict[str, str]:
    """Return the former address of each merged page, and the new one relative to its folder."""
    addresses = {
        f"adr/{former}.html": f"{page}.html#decision-{int(former[:4])}"
        for page, formers in DECISIONS.items()
        for former in formers
    }
    for former, place in PAGES.items():
        page, _, section = place.partition("#")
        addresses[f"{former}.html"] = f"{'../' * former.count('/')}{page}.html#{section}"
    return addresses


def write_redirects(folder: Path) -> None:
    """Write a redirect for each former address into the folder of a built site."""
    for former, target in former_pages().items():
        (folder / former).parent.mkdir(parents=True, exist_ok=True)
        (folder / former).write_text(REDIRECT.format(target=target), encoding="utf-8")
