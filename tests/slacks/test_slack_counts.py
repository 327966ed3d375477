"""Marks of slacks and tests name each other, and the page on rounding counts the slacks."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

from slacks import slacks

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "certificates" / "rounding.md"


def test_each_mark_names_a_test_and_each_test_a_mark():
    names = {part.partition("/")[0] for slack in slacks() for part in slack.labels}
    modules = [importlib.import_module(p.stem) for p in sorted(HERE.glob("test_slacks_of_*.py"))]
    tests = [test for module in modules for test in vars(module).values() if hasattr(test, "label")]
    labels = Counter(test.label for test in tests)
    assert labels.keys() == names - {"counted", "open"}
    assert set(labels.values()) == {1}


def test_the_page_on_rounding_counts_the_slacks():
    every = slacks()
    counted, unknown = (sum(s.labels == (word,) for s in every) for word in ("counted", "open"))
    sentence = f"Of {len(every)} slacks, {len(every) - counted - unknown} are shown, "
    sentence += f"{counted} are counted, and {unknown} are open."
    assert sentence in re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8")), sentence
