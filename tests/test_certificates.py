"""The proofs of the bounds and the code cite each other: every label exists and is needed."""

from __future__ import annotations

import re
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
        anchors = re.findall(r"^\(([a-z]{1,2}-\d+)\)=$", text, re.M)
        heads = re.findall(rf"^\*\*({LABEL})\. [^*]+\.\*\*( \(explanatory\))?", text, re.M)
        assert anchors == [label.lower() for label, _ in heads], page.name
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


def test_labels_are_numbered_from_one_on_each_page_and_each_is_there_once():
    prefixes: dict[str, str] = {}
    for page in PAGES:
        labels = [label for label, name, _ in defined() if name == page.name]
        if labels:
            prefix = labels[0].split("-")[0]
            assert labels == [f"{prefix}-{n}" for n in range(1, len(labels) + 1)], page.name
            assert prefixes.setdefault(prefix, page.name) == page.name
    assert len(prefixes) > 20


def test_every_label_that_the_code_cites_is_on_a_page():
    known = {label for label, _, _ in defined()}
    assert {label: files for label, files in cited().items() if label not in known} == {}


def test_every_inequality_of_a_page_is_cited_or_explains():
    citations = cited()
    idle = [label for label, _, explains in defined() if not explains and label not in citations]
    assert idle == []
    both = [label for label, _, explains in defined() if explains and label in citations]
    assert both == []


def test_the_index_lists_every_page_with_its_prefix():
    index = (ROOT / "docs/certificates/index.md").read_text("utf-8")
    rows = dict(re.findall(r"^\|\[[^\]]+\]\(([\w-]+)\.md\)\|(\w+)\|", index, re.M))
    assert [f"{name}.md" for name in rows] == [
        f"{name}.md" for name in re.search(r":hidden:\n(.*?)```", index, re.S)[1].split()
    ]
    assert {f"{name}.md" for name in rows} | {"index.md"} == {page.name for page in PAGES}
    for label, page, _ in defined():
        assert rows[page.removesuffix(".md")] == label.split("-")[0]
