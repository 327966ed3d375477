"""Pages of receipts that no run writes, hostile texts in a release, and what a page has of both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import neyman as ny
from neyman.display import page
from neyman.publishing import Plan
from plans import release

__all__ = [
    "BENIGN", "HOSTILE", "Structure", "page_from", "poisoned", "poisoned_tables", "published"
]  # fmt: skip

BENIGN = "mark"
HOSTILE = (
    "<script>hit()</script>", "<script src=https://e.example/x.js></script>",
    '"><img src=x onerror=hit()>', "' onmouseover='hit()' style='position:fixed",
    '" autofocus onfocus="hit()', "</style></title></script></textarea><b>",
    "<meta http-equiv=refresh content='0;url=https://e.example/'>",
    "<base href=https://e.example/>", "<form action=https://e.example/><button>",
    "<a href=javascript:hit()>x</a>", "javascript:hit()",
    "<svg onload=hit()><style>*{background:url(https://e.example/)}</style>",
    "<iframe srcdoc='<script>parent.hit()</script>'>",
    "</noscript><link rel=stylesheet href=https://e.example/>", "]]><!--", "--><b>",
    "&lt;b&gt;&#60;b&#62;&quot", "`${hit()}`", "{0}{right}{{hit()}}$&", "\u2028\u2029hit()",
    "\u202e\u2066%52", "\x00\x1b[2J\x85", "\ufeff\ud83d",
)  # fmt: skip
"""Texts that a browser could take for something else."""


def page_from(receipt: Any, tables: Mapping[str, Any], folder: str = "") -> str:
    """The page of a release with this receipt and these tables, beside a folder or in it."""
    release: Any = SimpleNamespace(
        receipt=receipt, tables=tables, parquet=tables.__getitem__, folder=Path(folder)
    )
    return page(release, Path("report.html") if folder else None)


_WORDS = re.compile(
    r"-?[\d./e-]+|inf|all|drop|least|count|rank|at_most|zcdp|gdp|approximate|replace-one|add-remove|"
    r"least-squares|nonnegative|neyman-receipt/1|arbitrary-prior|knows-the-rest|true-record"
)
_NAMED = ("columns", "derive", "lookup", "tables", "hierarchy", "versions")


def poisoned(node: Any, text: str, names: bool = False) -> Any:
    """A receipt with the text in each name and value that is not one of a few words."""
    if isinstance(node, dict):
        return {
            f"{name}{text}" if names else name: poisoned(value, text, not names and name in _NAMED)
            for name, value in node.items()
        }
    if isinstance(node, list):
        return [poisoned(value, text) for value in node]
    if isinstance(node, str) and not _WORDS.fullmatch(node):
        return f"{node}{text}"
    return node


def poisoned_tables(tables: Mapping[str, Any], text: str) -> dict[str, pa.Table]:
    """Published tables with the text in their names, in those of their keys, and in each key."""
    shown = text.encode("utf-8", "replace").decode()
    results: dict[str, pa.Table] = {}
    for name, table in tables.items():
        keys = {
            f"{column}{shown}": [f"{key}{shown}" for key in table.column(column).to_pylist()]
            for column in table.column_names[:-4]
        }
        values = {column: table.column(column) for column in table.column_names[-4:]}
        query, _, level = name.partition(".")
        level = level if level == "all" else f"{level}{text}"
        results[f"{query}{text}.{level}"] = pa.table(keys | values)
    return results


def survey(text: str) -> dict[str, Any]:
    """A plan with the text in each place where a plan can have it."""
    size, kind, word = f"size{text}", f"kind{text}", f"found{text}"
    join, people = f"sex{text}", f"people{text}"
    return {
        "schema": 2,
        "name": "survey",
        "publisher": f"office {text}",
        "dataset": "people@1",
        "table": f"visits{text}",
        "part": "west",
        "where": f"column({kind!r}) != {text!r}",
        "unit": {
            "protects": f"patient {text}",
            "neighboring": "replace-one",
            "id": f"id{text}",
            "rows": 2,
        },
        "tables": {people: {"id": f"own{text}", "join": [join], "duplicates": "drop"}},
        "columns": {
            kind: {"keys": [text, "b"], "unknown": text},
            join: {"keys": [f"f{text}", "m"]},
            word: {"discover": True},
            size: {"integer": True, "measurement_unit": f"kg {text}"},
        },
        "derive": {
            f"cut{text}": {"cut": f"column({size!r})", "edges": [0, 1, 9], "labels": [text, "b"]},
            f"map{text}": {"map": f"column({kind!r})", "to": {"b": text}, "unknown": text},
            f"case{text}": {"case": [[f"column({size!r}) > 3", text]], "unknown": "b"},
        },
        "lookup": {
            f"look{text}": {
                "column": f"column({kind!r})",
                "keys": [[text, f"value {text}"], ["b", "c"]],
                "unknown": "c",
            }
        },
        "hierarchy": {"place": {"levels": ["state"], "keys": [[text], ["b"]], "unknown": "drop"}},
        "budget": {"epsilon": 3, "delta": "1e-6"},
        "query": [
            {"name": "kinds", "measure": "count", "by": [kind, join], "at": ["state"]},
            {"name": "words", "measure": "count", "by": [word], "delta": "1e-8"},
            {"name": "sizes", "measure": "sum", "column": size, "clip": [0, 9]},
            {"name": "means", "measure": "mean", "column": size, "clip": [0, 9], "groups": 1}
            | {"by": [f"cut{text}"], "where": f"column({kind!r}) == {text!r}"},
            {"name": "maps", "measure": "count", "by": [f"map{text}", f"case{text}"]},
            {"name": "looks", "measure": "count", "by": [f"look{text}"], "rows_per_group": 1},
        ],
    }


def published(folder: Path, text: str) -> ny.Release:
    """A release of that plan, with its page. A key with the text is discovered in the data."""
    content = survey(text)
    for query in content["query"]:
        query["share"] = "1/6"
    count = 2000
    visits = {
        f"id{text}": [*range(count)], f"kind{text}": ["b"] * count,
        f"found{text}": [f"key {text}"] * count, f"size{text}": [2] * count, "state": ["b"] * count,
    }  # fmt: skip
    people = {f"own{text}": [*range(count)], f"sex{text}": ["m"] * count}
    data = {content["table"]: pa.table(visits), f"people{text}": pa.table(people)}
    ledger = ny.Ledger(folder / "ledger.db")
    ledger.create(
        "people@1", protects=content["unit"]["protects"], neighboring="replace-one", rows=2, cap=9,
        delta_cap="1/10", parts=["west", "east"],
    )  # fmt: skip
    pages = {"report.html": page}
    return release(Plan.from_dict(content), data, ledger, folder / "out", pages=pages)


class Structure(HTMLParser):
    """The elements of a page in order, and its texts. Each tag must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    @property
    def text(self) -> str:
        """All texts, as they are."""
        return "".join(self.texts)

    @property
    def words(self) -> str:
        """All texts, with one blank between two words."""
        return " ".join(" ".join(self.texts).split())

    def values(self, attribute: str) -> list[str]:
        """The values of an attribute, in order."""
        return [attrs[attribute] or "" for _, attrs in self.elements if attribute in attrs]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in {"meta", "input", "br", "link", "img", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")
