"""What the fuzzers share: documents changed at random, hostile values, and errors that may be."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attacks import SIZE
from random_laws import is_small

__all__ = ["TEXTS", "at_most", "changed", "fuzzed", "mutated", "named_errors", "texts", "values"]

ASKED = os.environ.get("NEYMAN_FUZZ")
"""How many inputs in all; by default 1,000, always the same ones, or SIZE times as many others."""
INPUTS = int(ASKED or (100 if is_small() else 1000 * SIZE))
FIXED = ASKED is None and SIZE == 1
_LONGEST = 120  # seconds for one input: as good as for ever

TEXTS = (
    "",
    " ",
    "..",
    ".",
    "../../escaped",
    "/etc/escaped",
    "a/b",
    "a\\b",
    "C:\\x",
    "con",
    "~",
    "-",
    "--help",
    "x" * 300,
    "'",
    '"',
    "';--",
    "a'; DROP TABLE event; --",
    '"; DROP TABLE entry; --',
    "$(touch escaped)",
    "`touch escaped`",
    "%s%n",
    "{0}",
    "${x}",
    "=1+1",
    "+1",
    "-1+1",
    "@SUM(A1)",
    "=cmd|' /C calc'!A0",
    "\t=1",
    "\r=1",
    "'=1",
    "\x00",
    "a\x00b",
    "a\nb",
    "\x1b[2J",
    "\u202eabc",
    "\ud800",
    "é",
    "e\u0301",
    "日本",
    "\U0001f600",
    "[bold]",
    "[/]",
    "<script>alert(1)</script>",
    "]]>",
    "null",
    "NaN",
    "inf",
    "-0",
    "1e999",
    "1/0",
    "0x10",
    "1_000",
    "people",
    "people@1",
    "race",
    "count",
    "all",
    "value",
    "lower",
    "receipt.json",
    "tables",
    "report.html",
)
"""Texts that some part of a computer takes for something else."""

_NUMBERS = (
    0,
    1,
    -1,
    2,
    10**6,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
    0.0,
    -0.0,
    0.1,
    1e-300,
    5e-324,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    True,
    False,
)


def texts() -> st.SearchStrategy[str]:
    """Hostile texts, and any others."""
    return st.sampled_from(TEXTS) | st.text(max_size=12)


def values() -> st.SearchStrategy[Any]:
    """What may stand in the place of anything."""
    plain = st.none() | st.sampled_from(_NUMBERS) | texts() | st.integers() | st.floats()
    nested = st.sampled_from(([], {}, [[]], [{}], {"": None}, [None], ["a", "a"], {"a": {"a": {}}}))
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    return plain | nested | st.just(deep)


def _spots(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document: what holds it, and under which name or number."""
    pairs = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for name, value in list(pairs):
        yield document, name
        yield from _spots(value)


def changed(draw: Callable[[Any], Any], document: Any, most: int = 3) -> Any:
    """A copy of a document of dictionaries and lists, changed in one to a few places."""
    product = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, most))):
        spots = list(_spots(product))
        if not spots:
            return product
        holder, name = spots[draw(st.integers(0, len(spots) - 1))]
        how = draw(st.sampled_from(["other", "other", "other", "gone", "twice", "moved", "named"]))
        if how == "other":
            holder[name] = draw(values())
        elif how == "gone":
            del holder[name]
        elif how == "moved":
            other, there = spots[draw(st.integers(0, len(spots) - 1))]
            # A copy of what may hold this very place.
            holder[name] = copy.deepcopy(other[there])
        elif isinstance(holder, list):
            holder.insert(name, copy.deepcopy(holder[name]))
        else:
            holder[draw(texts())] = holder[name] if how == "twice" else holder.pop(name)
    return product


def mutated(
    draw: Callable[[Any], Any], content: bytes, most: int = 4, *, in_place: bool = False
) -> bytes:
    """A file's bytes, changed in one to a few places, cut or lengthened unless all is in place."""
    product, ways = (
        bytearray(content),
        ["flip", "flip", "over", "put", "cut", "end", "twice", "zero"],
    )
    ways = ["flip", "flip", "over", "zero"] if in_place else ways
    for _ in range(draw(st.integers(1, most))):
        block = draw(st.integers(0, len(product) // 64))  # Hypothesis likes small numbers
        at = min(block * 64 + draw(st.integers(0, 63)), max(len(product) - 1, 0))
        how = draw(st.sampled_from(ways))
        if how == "flip" and product:
            product[at] ^= 1 << draw(st.integers(0, 7))
        elif how in ("put", "over"):
            word = draw(st.binary(max_size=8) | texts().map(_bytes))[: len(product) - at]
            product[at : at + (len(word) if how == "over" else 0)] = word
        elif how == "cut":
            del product[at : at + draw(st.integers(1, 64))]
        elif how == "end":
            del product[at:]
        elif how == "twice":
            product[at:at] = product[at : at + draw(st.integers(1, 64))]
        elif how == "zero":
            size = min(draw(st.sampled_from([1, 8, 512, 4096])), len(product) - at)
            product[at : at + size] = bytes(size)
    return bytes(product)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def toml_of(document: Mapping[str, Any]) -> str:
    """A document as TOML, as far as TOML can say it; what it cannot is left as it prints."""
    return "".join(f"{_toml_key(name)} = {_toml(value)}\n" for name, value in document.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float | Decimal):
        try:
            return repr(value)
        except ValueError:  # more digits than Python writes
            return "9" * 5000
    return _toml_key(value)


def _toml_key(text: object) -> str:
    shown = {'"': '\\"', "\\": "\\\\"}
    parts = (shown.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in str(text))
    return f'"{"".join(parts)}"'


def named_errors() -> tuple[type[Exception], ...]:
    """Those that the documentation of `ny.run` names."""
    from neyman.ledger import BudgetRefused, LedgerError
    from neyman.publishing import DataError, PlanError
    from neyman.publishing.release.folder import OutputError

    return (PlanError, DataError, OutputError, LedgerError, BudgetRefused)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzzed(share: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that is given ``data`` to draw from, for a share of all inputs."""

    examples = max(round(INPUTS * share), 1)

    def law(test: Callable[..., None]) -> Callable[..., None]:
        @settings(
            max_examples=examples,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # an input takes long, and making it small takes minutes
            print_blob=not FIXED,
        )
        @given(st.data())
        def holds(data: Any) -> None:
            with at_most(_LONGEST):
                test(data.draw)

        def run(attempts: Callable[[int], None]) -> None:
            holds()
            attempts(examples)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return law
