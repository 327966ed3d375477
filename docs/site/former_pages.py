"""Redirect the former addresses of merged pages to the new ones, with an HTML file at each."""

from __future__ import annotations

from pathlib import Path

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
    addresses: dict[str, str] = {}
    for former, place in PAGES.items():
        page, _, section = place.partition("#")
        addresses[f"{former}.html"] = f"{'../' * former.count('/')}{page}.html#{section}"
    return addresses


def write_redirects(folder: Path) -> None:
    """Write a redirect for each former address into the folder of a built site."""
    for former, target in former_pages().items():
        (folder / former).parent.mkdir(parents=True, exist_ok=True)
        (folder / former).write_text(REDIRECT.format(target=target), encoding="utf-8")
