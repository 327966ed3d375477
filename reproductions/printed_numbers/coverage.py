"""Whether the entries account for each numeral that a text prints.

`python -m reproductions.printed_numbers.coverage su=PATH kifer-abowd=PATH duchi=PATH student=PATH`
reads the texts. It prints each numeral that no entry accounts for, and each numeral of an entry
that is not printed. With `--write` it stores the numerals of the texts, by section, with their
counts. The tests compare them with the entries. The texts are not part of the project.

A numeral is a name, not a number, within a citation, an address, an index, a list label, the number
of a section, theorem, equation, figure, table, footnote, law, or grant. The numerals 0 and 1 stand
in every formula, and entries list them without counts. References at the end do not count.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from reproductions.facts import PUBLISHED, read
from reproductions.printed_numbers import texts
from reproductions.printed_numbers.published import ELSEWHERE

__all__ = ["numerals_in", "problems", "published_numerals", "sections", "stored"]

STORE = "printed_numerals.json"
KINDS = (
    "Section|Sections|Theorem|Theorems|Axiom|Axioms|Equation|Equations|Figure|Figures|Table|Tables|Definition|"
    "Definitions|Proposition|Example|Examples|Lemma|Remark|Chapter|Ch\\.|page|p\\.|Part|Option|"
    "version|et al\\."
)
NAMES = re.compile(
    r"https?://\S+|doi:\S+|\S+@\S+"  # addresses
    r"|\[(?=[^\]]*[A-Z0-9])[^\[\]$\\]*\d[^\[\]$\\]*\](?!\s*\\mapsto)"  # citations: [DRS22]
    r"|DMS-\d+|Law \d+-\d+|\d+ U\.S\. Code §§? [\d()b]+(?: & \d+)?|& 3563|13 USC"  # a grant, laws
    r"|<sup>[^<]*</sup>|(?<=[a-z.,;)])(1?\d)\1\1(?=[A-Z])"  # footnotes
    r"|\\tag\{[^}]*\}|\(\d\.\d\)|^\(\d\) \|"  # equations
    rf"|\b(?:{KINDS})~?\s*[A-Z]?\.?\d+(?:\.\d+)*(?:(?:,? and |, ?|, and )\d+(?:\.\d+)*)*"
    r"|_\{[^{}]*\}|_\\?\w+"  # indices
    r"|\([1-9]\) |^\d\.(?=\s)"  # labels of lists
    r"|^#+\s*\*?\*?\d+(?:\.\d+)*|^\d+(?:\.\d+)* (?=[A-Z])",  # headings
    re.M,
)
NUMERAL = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?|(?<=[a-z{}()^])\d+(?:\.\d+)?")
HEADING = re.compile(r"^#*\s*(\d(?:\.\d)*)\.? (?=[A-Z])|^(8\.2\.\d) Scenario \w:", re.M)
END = re.compile(r"^#*\s*References\s*$|^- \[1\] ", re.M)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the number of each section, and its text. What stands before the first is section 0."""
    end = END.search(text)
    text = text[: end.start()] if end else text
    marks = [
        (0, "0"),
        *((m.start(), m[1] or m[2]) for m in HEADING.finditer(text)),
        (len(text), ""),
    ]
    for (start, name), (stop, _) in pairwise(marks):
        yield name, text[start:stop]


def numerals_in(text: str) -> dict[str, dict[str, int]]:
    """Return the numerals of each section other than 0 and 1, with their counts."""
    result: dict[str, Counter[str]] = {}
    for name, part in sections(text):
        values = NUMERAL.findall(NAMES.sub(" ", part))
        result.setdefault(name, Counter()).update(n for n in values if n not in ("0", "1"))
    return {name: dict(sorted(part.items())) for name, part in result.items() if part}


def published_numerals() -> dict[str, dict[str, int]]:
    """Return the numbers of the published facts, by table. Tables on other pages are left out."""
    return {
        name: dict(sorted(Counter(_numbers(table)).items()))
        for name, table in PUBLISHED.items()
        if name != "about" and name not in ELSEWHERE
    }


def _numbers(facts: object) -> Iterator[str]:
    if isinstance(facts, dict):
        for value in facts.values():
            yield from _numbers(value)
    elif isinstance(facts, list):
        for value in facts:
            yield from _numbers(value)
    elif not isinstance(facts, str):
        yield str(facts)


def stored() -> dict[str, dict[str, dict[str, int]]]:
    """Return the numerals of the texts, as this script stored them."""
    return read(STORE)


def problems(name: str, printed: dict[str, dict[str, int]]) -> list[str]:
    """Return a line for each numeral that a text and its entries do not count alike."""
    ours = texts.numerals(name)
    lines = []
    for section in sorted({*printed, *ours}):
        there, here = Counter(printed.get(section)), Counter(ours.get(section))
        for text, rest in (("no entry for", there - here), ("not printed:", here - there)):
            lines += [
                f"{name}, section {section}: {text} {n} ({count} times)"
                for n, count in sorted(rest.items())
            ]
    return lines


if __name__ == "__main__":
    pairs = [argument.split("=", 1) for argument in sys.argv[1:] if argument != "--write"]
    printed = {name: numerals_in(Path(path).read_text(encoding="utf-8")) for name, path in pairs}
    if "--write" in sys.argv:
        store = Path(__file__).parents[1] / "data" / STORE
        store.write_text(json.dumps(printed, indent=1) + "\n", encoding="utf-8")
    wrong = [line for name, part in printed.items() for line in problems(name, part)]
    print("\n".join(wrong) or "The entries account for each numeral.")
    sys.exit(bool(wrong))
