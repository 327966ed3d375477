"""Describe the ledger in tables: each account's balance, its charges, and the history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from neyman.accounting.semantics.digits import many, number, plain
from neyman.cli.terminal import columns, ends
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account, Entry
from neyman.ledger.rows import Damage, damaged, fields, fraction, texts, typed_field
from neyman.storage.reading import read_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_ENTRIES, _MOST_LISTS = 20_000, 60
# For each kind of event, the fields that a history shows, by their type.
_NUMBERED = {"finish": ("published", "entry")}
_TEXTS = {
    "ledger": ("id",),
    "account": ("dataset", "currency"),
    "allocation": ("of", "dataset", "to"),
    "reserve": ("dataset", "to", "part"),
    "finish": ("digest",),
}
_AMOUNTS = {"account": ("cap",), "allocation": ("cap",), "reserve": ("charge",)}
_DELTA, _LEVEL = 1e-6, 0.05


def account_dict(account: Account) -> dict[str, Any]:
    """Return an account as JSON types, with exact amounts."""
    names = ("dataset", "to", "of", "protects", "neighboring", "rows", "currency")
    amounts = ("cap", "spent", "left", "delta_cap", "spent_delta", "left_delta")
    return {
        **{name: getattr(account, name) for name in names},
        **{name: str(getattr(account, name)) for name in amounts},
        **({"totals": account.totals} if account.totals else {}),
        "count": account.entries,
        "parts": [
            asdict(part) | {"spent": str(part.spent), "spent_delta": str(part.spent_delta)}
            for part in account.parts
        ],
    }


def entry_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON types, without its plan and its mechanisms."""
    names = ("id", "state", "to", "part", "created", "finished", "key", "digest")
    try:
        plan = read_json(entry.plan)
    except ValueError:
        plan = None
    return {
        **{name: getattr(entry, name) for name in names},
        "charge": str(entry.charge),
        "delta": str(entry.delta),
        "plan": cast(dict[str, Any], plan).get("name") if isinstance(plan, dict) else None,
    }


def standing_dict(book: Ledger, account: Account, last: int, curve: bool) -> dict[str, Any]:
    """Return an account, its allocations, ``last`` entries, and epsilon and power if asked for."""
    entries = book.entries(account.dataset, last) if last else ()
    return account_dict(account) | {
        "allocations": [account_dict(one) for one in book.allocations(account.dataset)],
        "entries": [entry_dict(entry) for entry in entries],
        "composed": _spent_curve(book, account) if curve else None,
    }


def _spent_curve(book: Ledger, account: Account) -> dict[str, Any]:
    """Return epsilon and power of all charges to the most charged part, or why there are none."""
    from neyman.publishing.release.receipt import composed

    if not account.entries:
        return {"why": "nothing is spent"}
    if account.entries > _MOST_ENTRIES:
        return {"why": f"more than {_MOST_ENTRIES} entries are not composed"}
    part = max(account.parts, key=lambda p: p.spent).name if account.parts else ""
    lists = Counter(
        json.dumps(entry.mechanisms, sort_keys=True)
        for entry in book.entries(account.dataset)
        if entry.state != "void" and entry.part in ("", part)
    )
    if len(lists) > _MOST_LISTS:
        return {"why": f"more than {_MOST_LISTS} different plans are not composed"}
    try:
        mechanisms = [
            composed((one["mechanism"], one["count"]) for one in json.loads(text)) * times
            for text, times in lists.items()
        ]
        total = mechanisms[0]
        for one in mechanisms[1:]:
            total = total + one
        curve = total.tradeoff()
        return {
            "part": part,
            "delta": _DELTA,
            "epsilon": ends(curve.epsilon(delta=_DELTA)),
            "level": _LEVEL,
            "power": ends(curve.power(level=_LEVEL)),
        }
    except Exception as error:  # stored by a foreign program
        why = " ".join(str(error).split())[:80]
        return {"why": f"the mechanisms stored cannot be composed ({type(error).__name__}: {why})"}


def standing(accounts: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield accounts with their balances, as `standing_dict` returns them."""
    if not accounts:
        yield "No dataset is registered: neyman ledger create registers one."
    for place, account in enumerate(accounts):
        if place:
            yield ""
        rows = f"at most {many(account['rows'], 'row')}"
        totals = f", all totals of {account['totals']} kept" if "totals" in account else ""
        spent, cap, left = _amounts(account, "spent", "cap", "left")
        yield (
            f"{account['dataset']}: protects each {account['protects']}"
            f" ({account['neighboring']}, {rows}{totals}); {account['currency']}:"
            f" spent {spent} of {cap}, left {left}"
        )
        spent, cap, left = _amounts(account, "spent_delta", "delta_cap", "left_delta")
        if Fraction(account["delta_cap"]):
            yield f"  delta: spent {spent} of {cap}, left {left}"
        yield from _composed(account["composed"])
        if account["parts"]:
            parts = (
                (part["name"], *_amounts(part, "spent", "spent_delta"), str(part["entries"]))
                for part in account["parts"]
            )
            yield columns(("part", "spent", "delta", "entries"), parts)
        if account["allocations"]:
            allocations = (
                (
                    one["to"],
                    one["of"] or "the account",
                    *_amounts(one, "cap", "spent", "left"),
                    str(one["count"]),
                )
                for one in account["allocations"]
            )
            heads = ("allocation", "part of", "cap", "spent", "left", "entries")
            yield columns(heads, allocations)
        if account["entries"]:
            yield _entries(account["entries"])


def _composed(curve: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the epsilon and the power of all entries together, or why there are none."""
    if curve is None or curve.get("why") == "nothing is spent":
        return
    if "why" in curve:
        yield f"  all entries together: {curve['why']}"
        return
    where = f" in the part {curve['part']}" if curve["part"] else ""
    epsilon, power = (number(curve[name]["upper"]) for name in ("epsilon", "power"))
    yield (
        f"  all entries together{where}: epsilon {epsilon} at delta {curve['delta']:g},"
        f" power {power} at level {curve['level']:g}"
        " (exact only if the plans were fixed in advance)"
    )


def _entries(entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    by = any(entry["to"] or entry["part"] for entry in entries)
    rows = (
        (
            str(entry["id"]),
            entry["state"],
            *_amounts(entry, "charge", "delta"),
            *([", ".join(filter(None, (entry["to"], entry["part"])))] * by),
            _moment_text(entry["created"]),
            str(entry["plan"] or ""),
        )
        for entry in entries
    )
    return columns(("entry", "state", "charge", "delta", *["by"] * by, "when", "plan"), rows)


def history_list(book: Ledger, last: int) -> list[dict[str, Any]]:
    """Return the last events without their plans and mechanisms. If ``last`` is 0, return all."""
    after = max(0, book.checkpoint().events - last) if last else 0
    events: list[dict[str, Any]] = []
    for line in book.lines(after):
        try:
            events.append(_event_fields(line))
        except Damage as damage:
            raise damaged("the ledger", damage) from None
    return events


def _event_fields(line: str) -> dict[str, Any]:
    """Return the fields of an event, checked, without the long ones."""
    event = fields(line)
    for long in ("plan", "mechanisms", "files", "salt"):
        event.pop(long, None)
    kind = typed_field(event, "kind", str)
    for name in ("number", *_NUMBERED.get(kind, ())):
        typed_field(event, name, int)
    for name in ("when", *_TEXTS.get(kind, ())):
        typed_field(event, name, str)
    for name in _AMOUNTS.get(kind, ()):
        fraction(event, name)
    if kind == "account":
        texts(event.get("parts"))
    return event


def history(events: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Return events as a table, one row per event."""
    rows = (
        (
            str(event["number"]),
            _moment_text(event["when"]),
            event["kind"],
            str(event.get("entry", "")),
            _about(event),
        )
        for event in events
    )
    return columns(("event", "when", "what", "entry", "about"), rows)


def _about(event: Mapping[str, Any]) -> str:
    (amount,) = _amounts(event, *_AMOUNTS.get(event["kind"], ())) or ("",)
    match event["kind"]:
        case "ledger":
            return f"id {event['id'][:16]}"
        case "account":
            parts = f", parts {', '.join(event['parts'])}" if event["parts"] else ""
            return f"{event['dataset']}, cap {amount} in {event['currency']}{parts}"
        case "allocation":
            return f"{event['to']} of {event['of'] or event['dataset']}, cap {amount}"
        case "reserve":
            to = "".join(f" {word}" for word in (event["to"], event["part"]) if word)
            return f"{amount} of {event['dataset']}{to}"
        case "finish":
            other = event["published"] != event["entry"]
            as_entry = f", as entry {event['published']}" if other else ""
            return f"published {event['digest'][:12]}{as_entry}"
        case _:
            return str(event.get("why", ""))


def _amounts(fields: Mapping[str, str], *names: str) -> list[str]:
    return [plain(Fraction(fields[name])) for name in names]


def _moment_text(moment: str) -> str:
    return moment[:19].replace("T", " ")
