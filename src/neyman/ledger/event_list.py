"""List the events of a ledger, checked, without their long fields."""

from __future__ import annotations

from typing import Any

from neyman.ledger.ledger import Ledger
from neyman.ledger.rows import Damage, damaged, fields, fraction, texts, typed_field

# For each kind of event, the fields that a history shows, by their type.
_NUMBERED = {"finish": ("published", "entry")}
_TEXTS = {
    "ledger": ("id",),
    "account": ("dataset", "currency"),
    "allocation": ("of", "dataset", "to"),
    "reserve": ("dataset", "to", "part"),
    "edition": ("dataset", "subject"),
    "correct": ("subject", "why"),
    "withdraw": ("subject", "why"),
    "approve": ("subject", "who"),
    "revoke": ("subject", "who"),
    "finish": ("digest",),
}
_AMOUNTS = {"account": ("cap",), "allocation": ("cap",), "reserve": ("charge",)}


def event_list(ledger: Ledger, last: int) -> list[dict[str, Any]]:
    """Return the last events without their plans and mechanisms. If ``last`` is 0, return all."""
    after = max(0, ledger.checkpoint().events - last) if last else 0
    events: list[dict[str, Any]] = []
    for line in ledger.lines(after):
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
