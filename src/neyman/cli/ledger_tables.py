"""Describe the ledger in tables: each account's balance, its charges, and the history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from neyman.accounting.semantics.digits import many, number, plain
from neyman.cli.terminal import columns

if TYPE_CHECKING:
    from rich.console import RenderableType

# For each kind of event, the amount that the history shows.
_AMOUNTS = {"account": ("cap",), "allocation": ("cap",), "reserve": ("charge",)}


def standing(accounts: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield accounts with their balances, as ``neyman ledger show --json`` prints them."""
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
        if "population" in account:
            yield f"  an edition of {account['population']}, whose cap covers all its editions"
        if "approval" in account:
            keys = len(account.get("approvers", ()))
            signed = f"signed by one of {many(keys, 'key')}" if keys else "which need not be signed"
            yield f"  each plan needs the approval of a second person, {signed}"
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
        case "edition":
            return f"{event['dataset']}, of {event['subject']}"
        case "approve" | "revoke":
            return f"{event['subject'][:19]} by {event['who']}"
        case "correct" | "withdraw":
            return f"entry {event['subject']}: {event['why']}"
        case _:
            return str(event.get("why", ""))


def _amounts(fields: Mapping[str, str], *names: str) -> list[str]:
    return [plain(Fraction(fields[name])) for name in names]


def _moment_text(moment: str) -> str:
    return moment[:19].replace("T", " ")
