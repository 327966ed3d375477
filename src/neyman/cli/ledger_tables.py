"""Print the ledger as tables: each account's balance, its charges, and the history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, cast

from rich.text import Text

from neyman.accounting.semantics.digits import many, number, plain
from neyman.cli.terminal import columns, ends, out
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account, Entry
from neyman.ledger.rows import Damage, damaged, fields, fraction, texts, typed_field
from neyman.storage.reading import read_json

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
    content = {name: getattr(account, name) for name in names}
    parts = [
        asdict(part) | {"spent": str(part.spent), "spent_delta": str(part.spent_delta)}
        for part in account.parts
    ]
    content |= {name: str(getattr(account, name)) for name in amounts}
    content |= {"totals": account.totals} if account.totals else {}
    return content | {"count": account.entries, "parts": parts}


def entry_dict(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON types, without its plan and its mechanisms."""
    names = ("id", "state", "to", "part", "created", "finished", "key", "digest")
    content = {name: getattr(entry, name) for name in names}
    plan = _json(entry.plan)
    name = cast(dict[str, Any], plan).get("name") if isinstance(plan, dict) else None
    return content | {"charge": str(entry.charge), "delta": str(entry.delta), "plan": name}


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


def standing(accounts: Sequence[Mapping[str, Any]]) -> None:
    """Print accounts with their balances, as `standing_dict` returns them."""
    if not accounts:
        out.print("No dataset is registered: neyman ledger create registers one.")
    for place, account in enumerate(accounts):
        if place:
            out.print()
        rows = f"at most {many(account['rows'], 'row')}"
        totals = f", all totals of {account['totals']} kept" if "totals" in account else ""
        out.say(
            f"{account['dataset']}: protects each {account['protects']}"
            f" ({account['neighboring']}, {rows}{totals}); {account['currency']}:"
            f" spent {_amount_text(account['spent'])} of {_amount_text(account['cap'])},"
            f" left {_amount_text(account['left'])}"
        )
        if Fraction(account["delta_cap"]):
            out.say(
                f"  delta: spent {_amount_text(account['spent_delta'])} of"
                f" {_amount_text(account['delta_cap'])}, left {_amount_text(account['left_delta'])}"
            )
        _show_composed(account)
        _show_parts(account)
        _show_allocations(account["allocations"])
        _show_entries(account["entries"])


def _show_composed(account: Mapping[str, Any]) -> None:
    composed_row = account["composed"]
    if composed_row is None or composed_row.get("why") == "nothing is spent":
        return
    if "why" in composed_row:
        out.say(f"  all entries together: {composed_row['why']}")
        return
    where = f" in the part {composed_row['part']}" if composed_row["part"] else ""
    epsilon, power = (number(composed_row[name]["upper"]) for name in ("epsilon", "power"))
    out.say(
        f"  all entries together{where}: epsilon {epsilon} at delta {composed_row['delta']:g},"
        f" power {power} at level {composed_row['level']:g}"
        " (exact only if the plans were fixed in advance)"
    )


def _show_parts(account: Mapping[str, Any]) -> None:
    if not account["parts"]:
        return
    table = columns("part", "spent", "delta", "entries")
    for part in account["parts"]:
        table.add_row(
            Text(part["name"]),
            _amount_text(part["spent"]),
            _amount_text(part["spent_delta"]),
            str(part["entries"]),
        )
    out.print(table)


def _show_allocations(allocations: Sequence[Mapping[str, Any]]) -> None:
    if not allocations:
        return
    table = columns("allocation", "part of", "cap", "spent", "left", "entries")
    for allocation in allocations:
        table.add_row(
            Text(allocation["to"]),
            Text(allocation["of"] or "the account"),
            *(_amount_text(allocation[name]) for name in ("cap", "spent", "left")),
            str(allocation["count"]),
        )
    out.print(table)


def _show_entries(entries: Sequence[Mapping[str, Any]]) -> None:
    if not entries:
        return
    by = any(entry["to"] or entry["part"] for entry in entries)
    table = columns("entry", "state", "charge", "delta", *(["by"] * by), "when", "plan")
    for entry in entries:
        to = ", ".join(word for word in (entry["to"], entry["part"]) if word)
        table.add_row(
            str(entry["id"]),
            entry["state"],
            _amount_text(entry["charge"]),
            _amount_text(entry["delta"]),
            *([Text(to)] * by),
            _moment_text(entry["created"]),
            Text(str(entry["plan"] or "")),
        )
    out.print(table)


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


def history(events: Iterable[Mapping[str, Any]]) -> None:
    """Print events as a table, one row per event."""
    table = columns("event", "when", "what", "entry", "about")
    for event in events:
        entry = str(event.get("entry", ""))
        when, about = _moment_text(event["when"]), Text(_about(event))
        table.add_row(str(event["number"]), when, event["kind"], entry, about)
    out.print(table)


def _about(event: Mapping[str, Any]) -> str:
    kind = event["kind"]
    if kind == "ledger":
        return f"id {event['id'][:16]}"
    if kind == "account":
        parts = f", parts {', '.join(event['parts'])}" if event["parts"] else ""
        return f"{event['dataset']}, cap {_amount_text(event['cap'])} in {event['currency']}{parts}"
    if kind == "allocation":
        of = event["of"] or event["dataset"]
        return f"{event['to']} of {of}, cap {_amount_text(event['cap'])}"
    if kind == "reserve":
        to = "".join(f" {word}" for word in (event["to"], event["part"]) if word)
        return f"{_amount_text(event['charge'])} of {event['dataset']}{to}"
    if kind == "finish":
        other = f", as entry {event['published']}" if event["published"] != event["entry"] else ""
        return f"published {event['digest'][:12]}{other}"
    return str(event.get("why", ""))


def _amount_text(amount: str) -> str:
    return plain(Fraction(amount))


def _moment_text(moment: str) -> str:
    return moment[:19].replace("T", " ")


def _json(text: str) -> object:
    try:
        return read_json(text)
    except ValueError:
        return None
