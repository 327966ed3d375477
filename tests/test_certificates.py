"""The proofs of the bounds and the code cite each other: every label exists and is needed."""

from __future__ import annotations

import re
from itertools import groupby
from os.path import dirname
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/certificates").glob("*.md"))
LABEL = r"[A-Z]{1,2}-\d+"
CITED = re.compile(rf"\[({LABEL}(?:, {LABEL})*)\](?!\()")


def defined() -> list[tuple[str, str, bool]]:
    """Each label with its page, and whether it only explains."""
    results = []
    for page in PAGES:
        text = page.read_text("utf-8")
        heads = re.findall(rf"^\*\*({LABEL})\. [^*]+\.\*\*( \(explanatory\))?", text, re.M)
        results += [(label, page.name, bool(note)) for label, note in heads]
    return results


def cited() -> dict[str, set[str]]:
    """The labels that the code cites in brackets, each with the files that do."""
    by_key: dict[str, set[str]] = {}
    for folder in ("src", "reproductions"):
        for path in (ROOT / folder).rglob("*.py"):
            for labels in CITED.findall(path.read_text("utf-8")):
                for label in labels.split(", "):
                    by_key.setdefault(label, set()).add(str(path.relative_to(ROOT)))
    return by_key


def test_the_labels_of_a_prefix_rise_and_stand_together():
    """A label that is gone is not given again, so numbers rise, perhaps with gaps."""
    labels = [label.split("-") for label, _, _ in defined()]
    runs = [(prefix, [int(n) for _, n in run]) for prefix, run in groupby(labels, lambda x: x[0])]
    assert len(runs) == len(dict(runs)) > 50
    assert [run for run in runs if run[1] != sorted({*run[1]}) or run[1][0] != 1] == []


def test_each_section_leads_back_to_the_code_that_cites_its_labels():
    """A section names only files that cite it, and files of each folder that has such files."""
    files: dict[str, set[str]] = {}
    for label, paths in cited().items():
        own = {path for path in paths if path.startswith("src")}
        files.setdefault(label.split("-")[0], set()).update(own)
    section = re.compile(r"^Code: (.*?)\n\n.*?^\*\*([A-Z]+)-1\. ", re.M | re.S)
    named = {
        prefix: {f"src/neyman/{path}" for path in re.findall(r"`([\w/.]+)`", code)}
        for page in PAGES
        for code, prefix in section.findall(page.read_text("utf-8"))
    }
    assert named.keys() == files.keys()
    for prefix, paths in files.items():
        assert named[prefix] <= paths, prefix
        assert {*map(dirname, named[prefix])} == {*map(dirname, paths)}, prefix


def test_every_label_that_the_code_cites_is_on_a_page():
    known = {label for label, _, _ in defined()}
    assert {label: files for label, files in cited().items() if label not in known} == {}


def test_every_inequality_of_a_page_is_cited_or_explains():
    citations = cited()
    idle = [label for label, _, explains in defined() if not explains and label not in citations]
    assert idle == []
    both = [label for label, _, explains in defined() if explains and label in citations]
    assert both == []


def test_the_index_lists_every_page_with_its_prefixes():
    index = (ROOT / "docs/certificates/index.md").read_text("utf-8")
    rows = dict(re.findall(r"^\|\[[^\]]+\]\(([\w-]+)\.md\)\|([\w, ]+)\|", index, re.M))
    assert [*rows] == re.search(r":hidden:\n(.*?)```", index, re.S)[1].split()
    assert {f"{name}.md" for name in rows} | {"index.md"} == {page.name for page in PAGES}
    prefixes: dict[str, dict[str, None]] = {}
    for label, page, _ in defined():
        prefixes.setdefault(page.removesuffix(".md"), {})[label.split("-")[0]] = None
    assert {page: ", ".join(labels) for page, labels in prefixes.items()} == rows
