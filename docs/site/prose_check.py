"""Check what people read for phrases that readers stumble over. The rules are in CONTRIBUTING.md.

The check reads the pages and the README outside of code, and the texts of the report, the explorer,
the command line, and the sentences: strings in Python, and everything in HTML and JavaScript.

Use: `python docs/site/prose_check.py`, from the root of the repository. `make check` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/howto/*.md", "docs/theory/*.md")
PAGES += ("docs/api/*.md", "docs/certificates/*.md")
STRINGS = ("display/**/*.py", "cli/**/*.py", "accounting/semantics/*.py")
SCREENS = ("display/*/static/*",)

PHRASES = {
    r"\b(every|some|any)body\b": "everyone, someone, anyone; an attacker",
    r"\bdata sets?\b": "dataset",
    r"\b(he|him|himself)\b": "they, them",
    r"\bhis (belief|prior|expectations|own lights|record)\b": "their",
    r"\b(matches|finds?|finding) out\b": "confirm, learn, detect",
    r"\btak(es?|en|ing) \S+ ?(\S+ ){0,5}for true\b": "confirm",
    r"\bfalse claims taken\b": "false positive rate",
    r"\bsays otherwise in\b": "wrongly confirms",
    r"\bbeforehand\b": "prior",
    r"\bgiv(es?|en|ing) away\b": "reveal, risk",
    r"\b(is|are|be|was|were) told at\b": "report",
    r"\bso many times\b": "name the number",
    r"\bat most so often\b": "name the probability",
    r"\bof whom\b": "about",
    r"\ball else\b": "everything else",
    r"\bper cent\b": "percent",
    r"\blooked at\b": "read, settings",
    r"\bmade to add up\b": "consistent",
    r"\bkeys matches in the data\b(?!\]|\.md)": "discovered keys",
    r"\btimes as (strong|large) as\b": "2 times the ...",
    r"\bdo not cheat\b": "name what the ledger refuses",
    r"\bis there already\b": "already exists",
    r"\bis not to be had\b": "cannot be reached, does not exist",
    r"\bhas no place here\b": "is not allowed here",
    r"\bcannot be looked\b": "cannot be read",
    r"\b(can be|are|is) paid in\b": "can pay for",
    r"\bspent for ever\b": "stays spent, permanent",
    r"\bnone is to be\b": "must not",
}
"""Pattern of each phrase, and what to write."""

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("docs/theory/other-definitions.md", "he"): "Xi He, an author"
}
"""Page and phrase of each exception, and its reason."""


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that people read, with their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, " ".join(node.value.split())
        return
    code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def problems() -> list[str]:
    """Return one line for each refused phrase of a page, a screen, or a text."""
    patterns = [*PAGES, *(f"src/neyman/{pattern}" for pattern in (*STRINGS, *SCREENS))]
    matches = {pattern: [*ROOT.glob(pattern)] for pattern in patterns}
    files = [path for paths in matches.values() for path in paths]
    listed = [
        f"{pattern}: no file has this name" for pattern, paths in matches.items() if not paths
    ]
    for path in sorted(files):
        relative = path.relative_to(ROOT).as_posix()
        for number, line in lines(path):
            for pattern, instead in PHRASES.items():
                phrase = re.search(pattern, line, re.IGNORECASE)
                if phrase and (relative, phrase.group().lower()) not in EXCEPTIONS:
                    listed.append(f"{relative}:{number}: “{phrase.group()}”: write: {instead}")
    return listed


if __name__ == "__main__":
    print(*(refused := problems()), sep="\n")
    sys.exit(bool(refused))
