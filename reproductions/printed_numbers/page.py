"""Pages of printed numbers: ``python -m reproductions.printed_numbers.page docs`` writes them."""

from __future__ import annotations

from collections import Counter

from reproductions.markdown import Tell, main, table
from reproductions.printed_numbers.entry import Entry, Verdict
from reproductions.printed_numbers.texts import TEXTS, entries

__all__ = ["VERDICTS", "pages", "summary"]

VERDICTS: tuple[Verdict, ...] = ("agree", "differ", "input", "not computed", "missing")
REMARKS = {
    "su": """\
A formula is compared at one point. Table 2 calls the closed form Rényi.""",
    "kifer-abowd": """\
The text at hand lost its formulas and most numbers inside sentences. *Missing* means that a number
should be there. [The 2020 Census](../census.md) has figures 1 to 15.""",
    "duchi": """\
The slides have no numbers, so a place is a slide's title. Formulas are compared at one point.""",
    "student": "Formulas are compared at one point.",
    "published": """\
These numbers come from the Census Bureau's certificates and from two papers that the other texts
cite. The other published tables are on the pages of [Kifer, Abowd et al.](kifer-abowd.md) and
[Su](su.md).""",
}


def pages(tell: Tell = lambda stage, part: None) -> dict[str, str]:
    """Return the text of each page by its file's name.

    Args:
        tell: called with a text's name and the part done, in [0, 1].
    """
    result = {}
    for i, name in enumerate(TEXTS):
        tell(name, i / len(TEXTS))
        result[f"reproduced/{name}.md"] = _page(name)
    return result


def summary() -> str:
    """Return the table that counts the entries of each text, for `docs/reproduced.md`."""
    rows = []
    for name, text in TEXTS.items():
        counts = Counter(entry.verdict for entry in entries(name))
        rows.append(
            (
                f"[{text.SOURCE}](reproduced/{name}.md)",
                *(str(counts[verdict]) for verdict in VERDICTS),
            )
        )
    return table(("text", *VERDICTS), rows)


def _page(name: str) -> str:
    source = TEXTS[name].SOURCE
    rows: list[tuple[str, ...]] = []
    above = ""
    for entry in entries(name):
        place = _place(name, entry)
        cells = (_what(entry), entry.printed, entry.ours, _verdict(entry))
        rows.append(tuple(map(_cell, ("" if place == above else place, *cells))))
        above = place
    return f"""\
# {source[0].upper() + source[1:]}: printed numbers

<!-- Written by `python -m reproductions.printed_numbers.page docs`. Edit that package. -->

This page lists each number that the text prints, with ours. An empty place is that of the row
above. [Reproduced results](../reproduced.md#every-printed-number) defines the verdicts.

{REMARKS[name]}

{table(("where", "what", "printed", "ours", "verdict"), rows, words=5)}
"""


def _place(name: str, entry: Entry) -> str:
    if name in ("duchi", "published") or entry.section == "0":
        return entry.place
    return entry.section if entry.place == "text" else f"{entry.section}, {entry.place}"


def _what(entry: Entry) -> str:
    return f"{entry.what}, at {entry.at}" if entry.at else entry.what


def _verdict(entry: Entry) -> str:
    verdict = "**differ**" if entry.verdict == "differ" else entry.verdict
    return f"{verdict}: {entry.why}" if entry.why else verdict


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("\\*\\*", "**")


if __name__ == "__main__":
    main(pages)
