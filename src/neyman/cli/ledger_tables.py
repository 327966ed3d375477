"""The ledger in tables: how each account stands, what it spent it on, and what happened when."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.text import Text

from neyman.cli.terminal import columns, ends, out
from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account, Entry
from neyman.ledger.rows import Damage, damaged, fields, fraction, texts, typed_field
from neyman.semantics.digits import many, number, plain

__all__ = ["account_dict", "entry_dict", "history", "history_list", "standing", "standing_dict"]

_MOST_ENTRIES, _MOST_LISTS = 20_000, 60
# The fields that a history shows of each kind of event, by their type.
_WHOLE = {"finish": ("published", "entry")}
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
    """An account as JSON types, amounts exact."""
    names = ("dataset", "to", "of", "protects", "neighboring", "rows", "currency")
    amounts = ("cap", "spent", "left", "delta_cap", "spent_delta", "left_delta")
    told = {name: getattr(account, name) for name in names}
    parts = [
        {
            "name": part.name,
            "spent": str(part.spent),
            "spent_delta": str(part.spent_delta),
            "entries": part.entries,
        }
        for part in account.parts
    ]
    told |= {name: str(getattr(account, name)) for name in amounts}
    return told | {"count": account.entries, "parts": parts}


def entry_dict(entry: Entry) -> dict[str, Any]:
    """An entry as JSON types, without its plan and its mechanisms."""
    names = ("id", "state", "to", "part", "created", "finished", "key", "digest")
    told = {name: getattr(entry, name) for name in names}
    plan = _json(entry.plan)
    name = plan.get("name") if isinstance(plan, dict) else None
    return told | {"charge": str(entry.charge), "delta": str(entry.delta), "plan": name}


def standing_dict(book: Ledger, account: Account, last: int, curve: bool) -> dict[str, Any]:
    """How an account stands, with its allocations, its last entries and the exact curve."""
    entries = book.entries(account.dataset, last) if last else ()
    return account_dict(account) | {
        "allocations": [account_dict(one) for one in book.allocations(account.dataset)],
        "entries": [entry_dict(entry) for entry in entries],
        "composed": _composed(book, account) if curve else None,
    }


def _composed(book: Ledger, account: Account) -> dict[str, Any]:
    """The curve of all that was spent, in the part that has spent most; or why there is none."""
    from neyman.release.receipt import composed

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
        made = [
            composed((one["mechanism"], one["count"]) for one in json.loads(text)) * times
            for text, times in lists.items()
        ]
        whole = made[0]
        for one in made[1:]:
            whole = whole + one
        found = whole.tradeoff()
        return {
            "part": part,
            "delta": _DELTA,
            "epsilon": ends(found.epsilon(delta=_DELTA)),
            "level": _LEVEL,
            "power": ends(found.power(level=_LEVEL)),
        }
    except Exception as error:  # what an older or a foreign program stored
        why = " ".join(str(error).split())[:80]
        return {"why": f"the mechanisms stored cannot be composed ({type(error).__name__}: {why})"}


def standing(found: Iterable[Mapping[str, Any]]) -> None:
    """Print how accounts stand."""
    some = False
    for told in found:
        if some:
            out.print()
        some = True
        rows = f"at most {many(told['rows'], 'row')}"
        out.print(
            f"{told['dataset']}: protects each {told['protects']} ({told['neighboring']}, {rows});"
            f" {told['currency']}: spent {_plain(told['spent'])} of {_plain(told['cap'])},"
            f" left {_plain(told['left'])}",
            markup=False,
        )
        if Fraction(told["delta_cap"]):
            out.print(
                f"  delta: spent {_plain(told['spent_delta'])} of {_plain(told['delta_cap'])},"
                f" left {_plain(told['left_delta'])}",
                markup=False,
            )
        _show_composed(told)
        _show_parts(told)
        _show_allocations(told["allocations"])
        _show_entries(told["entries"])
    if not some:
        out.print("No dataset is registered: neyman ledger create registers one.")


def _show_composed(told: Mapping[str, Any]) -> None:
    made = told["composed"]
    if made is None or made.get("why") == "nothing is spent":
        return
    if "why" in made:
        out.print(f"  all entries together: {made['why']}", markup=False)
        return
    where = f" in the part {made['part']}" if made["part"] else ""
    out.print(
        f"  all entries together{where}: epsilon {number(made['epsilon']['upper'])} at delta"
        f" {made['delta']:g}, power {number(made['power']['upper'])} at level {made['level']:g}"
        " (exact only if the plans were fixed in advance)",
        markup=False,
    )


def _show_parts(told: Mapping[str, Any]) -> None:
    if not told["parts"]:
        return
    table = columns("part", "spent", "delta", "entries")
    for part in told["parts"]:
        table.add_row(
            Text(part["name"]),
            _plain(part["spent"]),
            _plain(part["spent_delta"]),
            str(part["entries"]),
        )
    out.print(table)


def _show_allocations(allocations: Sequence[Mapping[str, Any]]) -> None:
    if not allocations:
        return
    table = columns("allocation", "part of", "cap", "spent", "left", "entries")
    for told in allocations:
        table.add_row(
            Text(told["to"]),
            Text(told["of"] or "the account"),
            *(_plain(told[name]) for name in ("cap", "spent", "left")),
            str(told["count"]),
        )
    out.print(table)


def _show_entries(entries: Sequence[Mapping[str, Any]]) -> None:
    if not entries:
        return
    by = any(told["to"] or told["part"] for told in entries)
    table = columns("entry", "state", "charge", "delta", *(["by"] * by), "when", "plan")
    for told in entries:
        to = ", ".join(word for word in (told["to"], told["part"]) if word)
        table.add_row(
            str(told["id"]),
            told["state"],
            _plain(told["charge"]),
            _plain(told["delta"]),
            *([Text(to)] * by),
            _when(told["created"]),
            Text(str(told["plan"] or "")),
        )
    out.print(table)


def history_list(book: Ledger, last: int) -> list[dict[str, Any]]:
    """The last events of the chain (0: all), without the plans and mechanisms that they hold."""
    after = max(0, book.checkpoint().events - last) if last else 0
    found = []
    for line in book.lines(after):
        try:
            found.append(_checked(line))
        except Damage as damage:
            raise damaged("the ledger", damage) from None
    return found


def _checked(line: str) -> dict[str, Any]:
    """An event's fields that a history shows, or lists as JSON."""
    told = fields(line)
    for long in ("plan", "mechanisms", "files", "salt"):
        told.pop(long, None)
    kind = typed_field(told, "kind", str)
    for name in ("number", *_WHOLE.get(kind, ())):
        typed_field(told, name, int)
    for name in ("when", *_TEXTS.get(kind, ())):
        typed_field(told, name, str)
    for name in _AMOUNTS.get(kind, ()):
        fraction(told, name)
    if kind == "account":
        texts(told.get("parts"))
    return told


def history(events: Iterable[Mapping[str, Any]]) -> None:
    """Print events."""
    table = columns("event", "when", "what", "entry", "about")
    for told in events:
        entry = str(told.get("entry", ""))
        row = (str(told["number"]), _when(told["when"]), told["kind"], entry, Text(_about(told)))
        table.add_row(*row)
    out.print(table)


def _about(told: Mapping[str, Any]) -> str:
    kind = told["kind"]
    if kind == "ledger":
        return f"id {told['id'][:16]}"
    if kind == "account":
        parts = f", parts {', '.join(told['parts'])}" if told["parts"] else ""
        return f"{told['dataset']}, cap {_plain(told['cap'])} in {told['currency']}{parts}"
    if kind == "allocation":
        of = told["of"] or told["dataset"]
        return f"{told['to']} of {of}, cap {_plain(told['cap'])}"
    if kind == "reserve":
        to = "".join(f" {word}" for word in (told["to"], told["part"]) if word)
        return f"{_plain(told['charge'])} of {told['dataset']}{to}"
    if kind == "finish":
        other = f", as entry {told['published']}" if told["published"] != told["entry"] else ""
        return f"published {told['digest'][:12]}{other}"
    return str(told.get("why", ""))


def _plain(amount: str) -> str:
    return plain(Fraction(amount))


def _when(moment: str) -> str:
    return moment[:19].replace("T", " ")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
