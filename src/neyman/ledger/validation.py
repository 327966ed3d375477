"""Validate ledger inputs and encode them as the content of events."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from fractions import Fraction
from typing import Any

from neyman.accounting.currency import Currency, RenyiEpsilon
from neyman.accounting.semantics.digits import plain
from neyman.ledger.chain import now_utc
from neyman.ledger.records import KEEPING, LedgerError
from neyman.ledger.units import DELTA, MOST_CAP, UNIT, units_down, units_up
from neyman.numerics import check
from neyman.numerics.relation import Neighboring, neighboring_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DATASET = re.compile(f"{_NAME.pattern}@{_NAME.pattern}")
_PUBLIC = re.compile("[0-9a-f]{64}")
_MARK = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_PARTS = 10_000


def account_terms(
    dataset: str,
    protects: str,
    neighboring: Neighboring,
    rows: int,
    currency: str,
    cap: object,
    delta_cap: object,
    parts: object,
    totals: str = "",
    approval: str = "",
    approvers: object = (),
) -> dict[str, Any]:
    """Return the event that registers a dataset version (see `Ledger.create`)."""
    if not isinstance(dataset, str) or len(dataset) > 200 or not _DATASET.fullmatch(dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"dataset = {_shown(dataset)} must be name@version, of letters, digits and ._- , as"
            " 'census@1'"
        )
    neighboring_of(neighboring)
    listed = [_name("parts", part) for part in check.several("parts", parts, "['north', 'south']")]
    if len(set(listed)) < len(listed) or len(listed) == 1 or len(listed) > _MAX_PARTS:
        raise ValueError(
            f"parts has {len(listed)} names, {len(set(listed))} of them different: give 2 to"
            f" {_MAX_PARTS} different ones, or none"
        )
    return {
        "dataset": dataset,
        "protects": text("protects", protects),
        "neighboring": relation_text(neighboring, totals),
        "rows": _rows(rows),
        "currency": _currency(currency),
        "parts": listed,
        "approval": _approval(approval, approvers),
        **_caps(cap, delta_cap),
    }


def _approval(approval: str, approvers: object) -> str:
    """Return the needed approval as an event's text: the public keys of approvers, or ""."""
    names(approval=approval)
    if approval not in ("", "required"):
        raise ValueError(f"approval = {_shown(approval)} must be 'required', or '' for none")
    keys = check.several("approvers", approvers, "public keys")
    if any(not isinstance(key, str) or not _PUBLIC.fullmatch(key) for key in keys):
        raise ValueError("approvers must be Ed25519 public keys, of 64 hexadecimal digits")
    if keys and not approval:
        raise ValueError("approvers go with approval = 'required'")
    return json.dumps([*keys]) if approval else ""


def approval_terms(
    key: str, plan: str, who: str, purpose: str, until: str, public: str, signature: str
) -> dict[str, str]:
    """Return the fields of the event that approves a plan (see `Ledger.approve`)."""
    names(key=key, plan=plan, purpose=purpose, public=public, signature=signature)
    if until:
        day("until", until)
    return {
        "plan": plan,
        "who": text("who", who),
        "purpose": purpose,
        "until": until,
        "public": public,
        "signature": signature,
    }


def day(name: str, value: str) -> date:
    """Return the day in a text such as 2027-12-31."""
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {_shown(value)} must be a day such as 2027-12-31") from None


def allocation_terms(
    dataset: str, to: str, of: str, cap: object, delta_cap: object
) -> dict[str, Any]:
    """Return the event that makes an allocation (see `Ledger.allocate`)."""
    return {"dataset": dataset, "to": _name("account", to), "of": of, **_caps(cap, delta_cap)}


def reservation_terms(
    dataset: str,
    to: str,
    part: str,
    key: str,
    charge: object,
    delta: object,
    mechanisms: object,
    plan: str,
) -> dict[str, Any]:
    """Return the event that reserves a charge, without the entry's number (`Ledger.reserve`)."""
    asked, asked_delta = amount("charge", charge), amount("delta", delta)
    names(dataset=dataset, account=to, part=part)
    try:
        json.loads(check.text("plan", plan, "{}"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"plan must be JSON text: {error}") from None
    return {
        "dataset": dataset,
        "to": to,
        "part": part,
        "key": text("key", key),
        "charge": ratio(asked),
        "units": units_up(asked),
        "delta": ratio(asked_delta),
        "delta_units": units_up(asked_delta, DELTA),
        "mechanisms": _json_text("mechanisms", mechanisms),
        "plan": plan,
        "when": now_utc(),
    }


def amount(name: str, value: object) -> Fraction:
    """Return a charge, a cap, or a delta as an exact number."""
    number = check.exact(name, value)
    if number < 0:
        raise ValueError(f"{name} = {_shown(value)} must be at least 0")
    if "delta" in name and number > 1:
        raise ValueError(f"{name} = {_shown(value)} must be at most 1")
    # Python converts at most 4300 digits to text.
    if max(number.numerator, number.denominator).bit_length() > 4000:
        raise ValueError(f"{name} has more than 1200 digits: round it up to a simpler number")
    return number


def ratio(number: Fraction) -> str:
    """Return a rational number in the format of events."""
    return f"{number.numerator}/{number.denominator}"


def text(name: str, value: str) -> str:
    """Return a text of 1 to 200 characters on one line."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value.strip()) <= 200:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"{name} = {_shown(value)} must be a text of 1 to 200 characters, on one line"
        )
    return value


def same_terms(
    what: str, has: Mapping[str, Any], asked: Mapping[str, Any], *, unused: bool = False
) -> None:
    """Refuse terms that differ from the registered terms.

    Args:
        what: the name of the dataset or account in the error.
        has, asked: the registered terms, and the terms to compare with them.
        unused: True if nothing was ever charged to the dataset. The error then advises to register
            the data under another name, which gives no second budget.
    """
    for name, value in asked.items():
        if has[name] != value and not name.endswith("units"):
            said = Fraction if name.endswith("cap") else repr
            new = "another allocation is another name"
            if "to" not in asked:
                new = (
                    "charges were made on them, so only the custodian of the data can decide what"
                    " else these people's budget may be"
                )
            if unused:
                new = replacement(what)
            raise LedgerError(
                f"{what} is registered with {name} = {said(has[name])}, not {said(value)}: terms do"
                f" not change; {new}"
            )


def replacement(dataset: str) -> str:
    """Return advice if a dataset without charges has the wrong terms."""
    return (
        f"nothing was charged to it, so write another name@version, such as {dataset}-b, into the"
        " plan, register it with `neyman ledger create LEDGER --plan plan.toml`, and charge nothing"
        f" to {dataset}"
    )


def names(**given: object) -> None:
    """Refuse texts that no ledger uses as names, before a database is queried."""
    for name, value in given.items():
        if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
            raise ValueError(f"{name} = {_shown(value)} must be a text, at most 200 characters")


def unit_of(
    protects: str, neighboring: Neighboring, rows: int, totals: str = ""
) -> tuple[str, str, int]:
    """Return the privacy unit of an account: unit, relation as a text, and rows."""
    names(protects=protects, neighboring=neighboring)
    return protects, relation_text(neighboring, totals), _rows(rows)


def relation_text(neighboring: str, totals: str) -> str:
    """Return the relation in an account's format. Exact totals add their hash to it."""
    if not check.text("totals", totals, "sha256:..."):
        return neighboring
    if neighboring != "replace-one" or not _MARK.fullmatch(totals):
        raise ValueError(
            f"totals = {_shown(totals)} with neighboring = {_shown(neighboring)}: must be the "
            "totals_hash of a plan, under 'replace-one'"
        )
    return f"{neighboring}{KEEPING}{totals}"


def _json_text(name: str, value: object) -> str:
    """Return a value as JSON text. Refuse what JSON cannot represent."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be what JSON can hold: {error}") from None


def _shown(value: object) -> str:
    return repr(value)[:200]


def _caps(cap: object, delta_cap: object) -> dict[str, Any]:
    most, most_delta = amount("cap", cap), amount("delta_cap", delta_cap)
    if not most:
        raise ValueError(f"cap = {cap!r} must be above 0")
    if most > MOST_CAP:
        raise ValueError(f"cap = {cap!r} must be at most {MOST_CAP:,}: that much protects no one")
    if most_delta >= 1:
        raise ValueError(f"delta_cap = {delta_cap!r} must be below 1")
    units, delta_units = units_down(most), units_down(most_delta, DELTA)
    for name, has, asked, per in (
        ("cap", units, most, UNIT),
        ("delta_cap", delta_units, most_delta, DELTA),
    ):
        if asked and not has:
            raise ValueError(
                f"{name} = {plain(asked)} must be at least 1/{per:,}, the smallest amount that a"
                " ledger counts"
            )
    return {
        "cap": ratio(most),
        "units": units,
        "delta_cap": ratio(most_delta),
        "delta_units": delta_units,
    }


def _name(argument: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 100 or not _NAME.fullmatch(value):
        raise ValueError(
            f"{argument} = {_shown(value)} must be a name of letters, digits and ._- , as 'team-a'"
        )
    return value


def _rows(value: object) -> int:
    number = check.integer("rows", value, 1)
    if number > 10**15:
        raise ValueError(f"rows = {value!r} must be at most 10^15")
    return number


def _currency(value: object) -> str:
    with suppress(TypeError, ValueError):
        currency = Currency.read(value)
        if not isinstance(currency, RenyiEpsilon) or 1 < currency.order < math.inf:
            return currency.text
    raise ValueError(
        f"currency = {value!r} must be 'pure', 'zcdp', 'gdp' or 'renyi:<order>' with an order"
        " above 1, as 'renyi:8'"
    )
